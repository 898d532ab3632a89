//! Objects of the API as the scenario wants them.

use plimsoll_kubelet::kubelet::{DURATION, START_DELAY};
use plimsoll_state::Time;
use serde_json::{Value, json};

use super::devices;
use super::extensions::annotate;
pub use super::names::{NAMESPACE, job_name, node_name, pod_prefix};
use super::{Form, JobSpec, NodeSpec, QueueSpec, Quota, QuotaSpec, Settings, Stop};
use crate::api::stamp;

/// Flavors.
pub const FLAVORS: [&str; 2] = ["f0", "f1"];
/// Configuration of requests to the cluster autoscaler.
const PROVISIONING: &str = "provisioning";
/// The admission check.
pub const CHECK: &str = "check";
/// Topology levels, coarse to fine.
pub const LEVELS: [&str; 2] = ["rack", "kubernetes.io/hostname"];
/// Label of nodes that belong to a flavor.
const FLAVOR: &str = "flavor";
/// Pods that a node can run.
const PODS: i64 = 20;

/// The namespace, with or without the label that ClusterQueues select.
pub fn namespace(selected: bool) -> Value {
    let team = if selected { "a" } else { "b" };
    json!({"metadata": {"name": NAMESPACE, "labels": {"team": team}}})
}

/// The topology.
pub fn topology() -> Value {
    let levels: Vec<Value> = LEVELS.iter().map(|l| json!({"nodeLabel": l})).collect();
    json!({"metadata": {"name": "t"}, "spec": {"levels": levels}})
}

/// A flavor; the first one has the topology.
pub fn flavor(flavor: usize, settings: &Settings) -> Value {
    let name = FLAVORS.get(flavor).copied().unwrap_or("f");
    let mut out = json!({"metadata": {"name": name}, "spec": {}});
    if settings.flavored {
        out["spec"]["nodeLabels"] = json!({FLAVOR: name});
    }
    if settings.topology && flavor == 0 {
        out["spec"]["topologyName"] = json!("t");
    }
    out
}

/// Configuration of the requests that the check makes: two retries.
pub fn provisioning() -> Value {
    let retries = json!({"backoffLimitCount": 2, "backoffBaseSeconds": 5, "backoffMaxSeconds": 20});
    let class = "check-capacity.autoscaling.x-k8s.io";
    json!({
        "metadata": {"name": PROVISIONING},
        "spec": {"provisioningClassName": class, "retryStrategy": retries},
    })
}

/// The check. With a topology it is of the kind after which places are found. The one that asks the cluster autoscaler has
/// its status from its own controller, and is inactive without its configuration.
pub fn check(active: bool, settings: &Settings) -> Value {
    if settings.provisioning {
        let name = if active { PROVISIONING } else { "none" };
        let parameters =
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name});
        let controller = "kueue.x-k8s.io/provisioning-request";
        return json!({
            "metadata": {"name": CHECK}, "spec": {"controllerName": controller, "parameters": parameters},
        });
    }
    let controller =
        if settings.topology { "kueue.x-k8s.io/provisioning-request" } else { "example.com/check" };
    let status = if active { "True" } else { "False" };
    json!({
        "metadata": {"name": CHECK}, "spec": {"controllerName": controller},
        "status": {"conditions": [{"type": "Active", "status": status}]},
    })
}

fn groups(quotas: &[Quota; 2], limits: bool) -> Value {
    let flavor = |(name, q): (&&str, &Quota)| {
        let mut cpu = json!({"name": "cpu", "nominalQuota": q.nominal.to_string()});
        if let Some(borrowing) = q.borrowing.filter(|_| limits) {
            cpu["borrowingLimit"] = json!(borrowing.to_string());
        }
        if let Some(lending) = q.lending.filter(|_| limits) {
            cpu["lendingLimit"] = json!(lending.to_string());
        }
        json!({"name": name, "resources": [cpu]})
    };
    let flavors: Vec<Value> = FLAVORS.iter().zip(quotas).map(flavor).collect();
    json!([{"coveredResources": ["cpu"], "flavors": flavors}])
}

const fn stop_policy(stop: Stop) -> &'static str {
    match stop {
        Stop::None => "None",
        Stop::Hold => "Hold",
        Stop::HoldAndDrain => "HoldAndDrain",
    }
}

/// A ClusterQueue.
pub fn cluster_queue(queue: usize, s: &QueueSpec, stop: Stop) -> Value {
    const RECLAIM: [&str; 3] = ["Never", "LowerPriority", "Any"];
    const WITHIN: [&str; 3] = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"];
    let of = |words: [&'static str; 3], i: u8| words.get(usize::from(i)).copied().unwrap_or("Never");
    let next = |next: bool| if next { "TryNextFlavor" } else { "MayStopSearch" };
    let borrow = s.borrow_preempts && s.preemption.0 != 0;
    let mut spec = json!({
        "resourceGroups": groups(&s.quota.quotas, s.quota.parent.is_some()),
        "queueingStrategy": if s.strict { "StrictFIFO" } else { "BestEffortFIFO" },
        "namespaceSelector": if s.selects { json!({"matchLabels": {"team": "a"}}) } else { json!({}) },
        "flavorFungibility": {
            "whenCanBorrow": next(s.next_flavor.0), "whenCanPreempt": next(s.next_flavor.1),
        },
        "preemption": {
            "reclaimWithinCohort": of(RECLAIM, s.preemption.0),
            "withinClusterQueue": of(WITHIN, s.preemption.1),
            "borrowWithinCohort": {"policy": if borrow { "LowerPriority" } else { "Never" }},
        },
        "fairSharing": {"weight": s.quota.weight.to_string()},
        "stopPolicy": stop_policy(stop),
    });
    if let Some(parent) = s.quota.parent {
        spec["cohortName"] = json!(format!("k{parent}"));
    }
    if s.check {
        let mut check = json!({"name": CHECK});
        if s.check_second {
            check["onFlavors"] = json!([FLAVORS[1]]);
        }
        spec["admissionChecksStrategy"] = json!({ "admissionChecks": [check] });
    }
    if let Some(mode) = s.migration {
        spec["concurrentAdmissionPolicy"] = json!({"migration": {"mode": mode}});
    }
    json!({"metadata": {"name": format!("c{queue}")}, "spec": spec})
}

/// A LocalQueue.
pub fn local_queue(queue: usize, stop: Stop) -> Value {
    let spec = json!({"clusterQueue": format!("c{queue}"), "stopPolicy": stop_policy(stop)});
    json!({"metadata": {"namespace": NAMESPACE, "name": format!("l{queue}")}, "spec": spec})
}

/// A Cohort.
pub fn cohort(cohort: usize, s: &QuotaSpec) -> Value {
    let mut spec = json!({
        "resourceGroups": groups(&s.quotas, s.parent.is_some()),
        "fairSharing": {"weight": s.weight.to_string()},
    });
    if let Some(parent) = s.parent {
        spec["parentName"] = json!(format!("k{parent}"));
    }
    json!({"metadata": {"name": format!("k{cohort}")}, "spec": spec})
}

/// A node, which has the label of a flavor whether flavors select it or not.
pub fn node(node: usize, s: &NodeSpec, now: Time) -> Value {
    let amounts = json!({"cpu": s.cpus.to_string(), "pods": PODS.to_string(), "memory": "64Gi"});
    let name = node_name(node);
    let ready = if s.ready { "True" } else { "False" };
    let (rack, host) = (LEVELS[0], LEVELS[1]);
    // As the node lifecycle controller does.
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = if s.ready { json!([]) } else { json!([taint]) };
    json!({
        "metadata": {
            "name": name, "labels": {rack: format!("r{}", s.rack), host: name, FLAVOR: FLAVORS[s.rack % 2]},
        },
        "spec": {"taints": taints},
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": stamp(now)}],
        },
    })
}

/// The pod template of a job.
fn template(s: &JobSpec) -> Value {
    let requests = json!({"cpu": s.cpus.to_string()});
    let mut template = json!({"spec": {
        "restartPolicy": "Never", "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": requests}}],
    }});
    devices::ask(&s.claims, &mut template);
    template
}

/// A priority class of jobs.
pub fn priority_class(class: i32, value: i32) -> Value {
    json!({"metadata": {"name": format!("p{class}")}, "value": value})
}

/// The value of a priority class as planned: `p0` is -1.
pub const fn planned_value(class: i32) -> i32 {
    class - 1
}

/// The class of a priority.
pub fn class_of(priority: i32) -> String {
    format!("p{}", priority + 1)
}

/// Annotations of the pods of a job: how long they run, and what topology they ask for.
fn annotations(s: &JobSpec, settings: &Settings) -> Value {
    let mut annotations = json!({DURATION: format!("{}ms", s.runs)});
    if s.starts > 0 {
        annotations[START_DELAY] = json!(format!("{}ms", s.starts));
    }
    if settings.topology {
        let (key, value) = match s.topology {
            0 | 1 => ("kueue.x-k8s.io/podset-unconstrained-topology", "true"),
            2 => ("kueue.x-k8s.io/podset-required-topology", LEVELS[0]),
            3 => ("kueue.x-k8s.io/podset-preferred-topology", LEVELS[1]),
            _ => ("kueue.x-k8s.io/podset-preferred-topology", LEVELS[0]),
        };
        annotations[key] = json!(value);
    }
    annotations
}

fn labels(s: &JobSpec) -> Value {
    json!({
        "kueue.x-k8s.io/queue-name": format!("l{}", s.queue),
        "kueue.x-k8s.io/priority-class": class_of(s.priority),
    })
}

/// The plain pods of a job: a group where there are several, unless no queue manages them.
pub fn pods(job: usize, s: &JobSpec, settings: &Settings) -> Vec<Value> {
    let group = job_name(job);
    let queued = s.form == Form::Pods;
    let pod = |i: i32| {
        let mut pod = template(s);
        let name = format!("{}{i}", pod_prefix(&group));
        let (mut labels, mut annotations) = (json!({}), json!({DURATION: format!("{}ms", s.runs)}));
        if queued {
            (labels, annotations) = (self::labels(s), self::annotations(s, settings));
        } else {
            // As the API server's admission sets it from the pod's PriorityClass.
            pod["spec"]["priority"] = json!(s.priority);
        }
        if queued && s.pods > 1 {
            labels["kueue.x-k8s.io/pod-group-name"] = json!(group);
            annotations["kueue.x-k8s.io/pod-group-total-count"] = json!(s.pods.to_string());
        }
        pod["metadata"] =
            json!({"namespace": NAMESPACE, "name": name, "labels": labels, "annotations": annotations});
        if queued {
            annotate(s, &mut pod["metadata"]);
        }
        pod
    };
    (0..s.pods).map(pod).collect()
}

/// A Job.
pub fn batch_job(job: usize, s: &JobSpec, settings: &Settings) -> Value {
    let mut template = template(s);
    template["metadata"] = json!({"annotations": annotations(s, settings)});
    let mut metadata = json!({"namespace": NAMESPACE, "name": job_name(job), "labels": labels(s)});
    if let Some(least) = s.least.filter(|l| *l < s.pods) {
        metadata["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": least.to_string()});
    }
    annotate(s, &mut metadata);
    let completions = if s.elastic { 2 * s.pods } else { s.pods };
    let spec = json!({"parallelism": s.pods, "completions": completions, "template": template});
    json!({"metadata": metadata, "spec": spec})
}

/// With two flavors of which one has a topology, a workload without a topology request gets the other one.
fn topology_request(kind: u8) -> Value {
    match kind {
        0 | 1 => json!({"unconstrained": true}),
        2 => json!({"required": LEVELS[0]}),
        3 => json!({"preferred": LEVELS[1]}),
        _ => json!({"preferred": LEVELS[0]}),
    }
}

/// A Workload that a user made.
pub fn workload(job: usize, s: &JobSpec, settings: &Settings) -> Value {
    let mut podset = json!({"name": "main", "count": s.pods, "template": template(s)});
    if let Some(least) = s.least.filter(|l| *l < s.pods) {
        podset["minCount"] = json!(least);
    }
    if settings.topology {
        podset["topologyRequest"] = topology_request(s.topology);
    }
    let mut workload = json!({
        "metadata": {"namespace": NAMESPACE, "name": job_name(job)},
        "spec": {
            "queueName": format!("l{}", s.queue), "priority": s.priority, "active": true, "podSets": [podset],
        },
    });
    annotate(s, &mut workload["metadata"]);
    if s.partial {
        workload["metadata"]["annotations"][plimsoll_api::kueue::PARTIAL_PREEMPTION] = json!("true");
    }
    workload
}
