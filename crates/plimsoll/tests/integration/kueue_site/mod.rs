//! The manifests of Kueue's documentation against `plimsoll up --with all`. `PLIMSOLL_KUEUE_SITE` is the directory `site` of its
//! repository; without it the tests say that they were skipped.
//!
//! Every file of `static/examples` is played in one of the control planes here, as the page that shows it says, or is in
//! [`LEFT_OUT`] with the reason.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod pages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::Up;
use plimsoll_api::json;
use plimsoll_runtime::api::{NAMESPACES, PatchKind, Resource, WORKLOADS};
use serde_json::{Value, json};

/// Examples that are not played. The list only shrinks.
const LEFT_OUT: [(&str, &str); 12] = [
    ("admin/minimal-cq.yaml", "names a flavor that it does not have; Kueue refuses it, too"),
    ("multikueue/dev/manager-kind-config.yaml", KIND),
    ("multikueue/dev/worker-kind-config.yaml", KIND),
    ("pod-based-workloads/sample-sandbox.yaml", FOREIGN),
    ("pod-based-workloads/tekton-hello-task.yaml", FOREIGN),
    ("pod-based-workloads/tekton-pipeline-run.yaml", FOREIGN),
    ("pod-based-workloads/tekton-pipeline.yaml", FOREIGN),
    ("pod-based-workloads/tekton-sleep-task.yaml", FOREIGN),
    ("pod-based-workloads/workflow-queue-per-template.yaml", FOREIGN),
    ("pod-based-workloads/workflow-single-queue.yaml", FOREIGN),
    (
        "serving-workloads/sample-leaderworkerset-tas.yaml",
        "requests GPUs without limits: no API server takes the pods",
    ),
    ("tas/kind-cluster.yaml", KIND),
];
const KIND: &str = "a file for kind, no manifest";
const FOREIGN: &str = "an operator of another project makes the pods";

/// How an example ends.
#[derive(Clone, Copy)]
enum End {
    /// The last object has this condition.
    Is(&'static str),
    /// The last object has this value at a JSON pointer.
    Has(&'static str, &'static str),
    /// The API server takes it.
    Accepted,
}
use End::{Accepted, Has, Is};

/// Objects of a page that stand before its jobs, and the jobs one after the other.
struct Shown {
    setup: &'static [&'static str],
    jobs: &'static [(&'static str, End)],
}

const BASICS: [Shown; 7] = [
    Shown {
        setup: &["admin/single-clusterqueue-setup.yaml"],
        jobs: &[
            ("jobs/sample-job.yaml", Is("Complete")),
            ("jobs/sample-job-partial-admission.yaml", Is("Complete")),
            ("jobs/sample-scalable-job.yaml", Is("Complete")),
            ("jobs/sample-jobset.yaml", Is("Completed")),
            ("jobs/sample-jaxjob.yaml", Is("Succeeded")),
            ("jobs/sample-mpijob.yaml", Is("Succeeded")),
            ("jobs/sample-paddlejob.yaml", Is("Succeeded")),
            ("jobs/sample-pytorchjob.yaml", Is("Succeeded")),
            ("jobs/sample-tfjob.yaml", Is("Succeeded")),
            ("jobs/sample-xgboostjob.yaml", Is("Succeeded")),
            ("jobs/ray-job-code-sample.yaml", Accepted),
            ("jobs/ray-job-sample.yaml", Has("/status/jobDeploymentStatus", "Complete")),
            ("jobs/ray-job-autoscaling-code-sample.yaml", Accepted),
            ("jobs/ray-job-autoscaling-sample.yaml", Has("/status/jobDeploymentStatus", "Complete")),
            ("jobs/ray-cluster-sample.yaml", Has("/status/state", "ready")),
            ("jobs/ray-service-sample.yaml", Is("Ready")),
            ("serving-workloads/sample-deployment.yaml", Is("Available")),
            ("serving-workloads/sample-statefulset.yaml", Has("/status/readyReplicas", "3")),
            ("serving-workloads/sample-leaderworkerset.yaml", Is("Available")),
            ("appwrapper/deployment-sample.yaml", Is("PodsReady")),
            ("appwrapper/leaderworkerset-sample.yaml", Is("PodsReady")),
            ("appwrapper/pytorch-sample.yaml", Has("/status/phase", "Succeeded")),
            ("pods-kueue/kueue-pod.yaml", Has("/status/phase", "Succeeded")),
            ("pods-kueue/kueue-pod-group.yaml", Has("/status/phase", "Succeeded")),
            // Once a job of it has run.
            ("jobs/sample-cronjob.yaml", Has("/status/lastSuccessfulTime", "")),
        ],
    },
    Shown {
        setup: &["getting-started/quick-start-setup.yaml"],
        jobs: &[("getting-started/quick-start-job.yaml", Is("Complete"))],
    },
    // No worker can be reached: the secrets with their kubeconfigs are not there yet.
    Shown { setup: &["multikueue/multikueue-setup.yaml"], jobs: &[] },
    Shown { setup: &["multikueue/tas/manager-setup.yaml"], jobs: &[] },
    Shown {
        setup: &["admin/concurrent-admission-setup.yaml"],
        jobs: &[("admin/resource-flavor-empty.yaml", Accepted)],
    },
    Shown {
        setup: &[],
        jobs: &[
            ("admin/resource-flavor-taints.yaml", Accepted),
            ("admin/resource-flavor-tolerations.yaml", Accepted),
            ("sample-admission-check.yaml", Accepted),
        ],
    },
    Shown {
        setup: &[],
        jobs: &[
            ("visibility/cluster-role-and-binding.yaml", Accepted),
            ("visibility/grafana-cluster-queue-reader.yaml", Accepted),
            ("visibility/grafana-local-queue-reader.yaml", Accepted),
        ],
    },
];
const POLICIES: [&str; 4] = [
    "sample-validating-policy.yaml",
    "sample-validating-policy-binding.yaml",
    "sample-enforce-requests-policy.yaml",
    "sample-enforce-requests-policy-binding.yaml",
];
const FAIR: [Shown; 1] = [Shown {
    setup: &["admission-fs/admission-fair-sharing-setup.yaml"],
    jobs: &[
        ("admission-fs/lq-a-simple-job.yaml", Has("/status/ready", "1")),
        ("admission-fs/lq-b-simple-job.yaml", Has("/status/ready", "1")),
    ],
}];
const SHARED: [Shown; 1] = [Shown {
    setup: &["admin/shared-quota-setup.yaml"],
    jobs: &[("admin/shared-quota-sample-job.yaml", Is("Complete"))],
}];
const SPARK: [Shown; 1] = [Shown {
    setup: &["admin/single-clusterqueue-setup.yaml"],
    jobs: &[("jobs/sample-sparkapplication.yaml", Has("/status/applicationState/state", "COMPLETED"))],
}];
const HAMI: [Shown; 1] =
    [Shown { setup: &[], jobs: &[("serving-workloads/sample-hami.yaml", Is("Available"))] }];
const DEVICES: [Shown; 1] = [Shown {
    setup: &["dra/sample-dra-queues.yaml"],
    jobs: &[
        ("dra/sample-dra-rct-job.yaml", Has("/status/ready", "1")),
        ("dra/sample-dra-extended-resource-job.yaml", Has("/status/ready", "1")),
    ],
}];
const COUNTERS: [Shown; 1] = [Shown {
    setup: &["dra/sample-dra-counter-queues.yaml"],
    jobs: &[("dra/sample-dra-counter-job.yaml", Has("/status/ready", "1"))],
}];
const CAPACITY: [Shown; 1] = [Shown {
    setup: &["dra/sample-dra-capacity-queues.yaml"],
    // kube-scheduler places the pod.
    jobs: &[("dra/sample-dra-capacity-job.yaml", Has("/status/active", "1"))],
}];
const PROVISIONING: [&str; 2] = ["provisioning/provisioning-setup.yaml", "provisioning/sample-job.yaml"];
const RACKS: [&str; 3] =
    ["tas/sample-job-required.yaml", "tas/sample-job-preferred.yaml", "tas/sample-job-unconstrained.yaml"];
const TOPOLOGIES: [Shown; 3] = [
    Shown {
        setup: &["tas/sample-queues.yaml"],
        jobs: &[
            ("jobs/sample-jobset-tas-required.yaml", Is("Completed")),
            ("jobs/sample-jobset-tas-sliced.yaml", Is("Completed")),
            ("jobs/sample-jobset-tas-combined.yaml", Is("Completed")),
        ],
    },
    Shown { setup: &["tas/sample-gpu-queues.yaml"], jobs: &[] },
    Shown {
        setup: &["multikueue/tas/worker-setup.yaml"],
        jobs: &[("multikueue/dev/sample-tas-job.yaml", Has("/status/ready", "3"))],
    },
];

/// The site, where it is at hand.
fn site() -> Option<PathBuf> {
    let found = std::env::var_os("PLIMSOLL_KUEUE_SITE").map(PathBuf::from);
    if found.is_none() {
        eprintln!("skipped: PLIMSOLL_KUEUE_SITE is not set");
    }
    found
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    }
}

/// The resource of an object, by its kind.
fn resource_of(object: &Value) -> Resource {
    let kind = json::text(object, &["kind"]).to_owned();
    let plural = plural(&kind);
    let api_version = json::text(object, &["apiVersion"]).to_owned();
    Resource { api_version: api_version.leak(), plural: plural.leak(), kind: kind.leak() }
}

fn is_of_the_cluster(kind: &str) -> bool {
    [
        "AdmissionCheck",
        "ClusterQueue",
        "ClusterRole",
        "ClusterRoleBinding",
        "DeviceClass",
        "MultiKueueCluster",
        "MultiKueueConfig",
        "Namespace",
        "ProvisioningRequestConfig",
        "ResourceFlavor",
        "Topology",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    .contains(&kind)
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    all.into_iter().filter(|d| !d.is_null()).collect()
}

/// A control plane and the site.
struct Plane {
    up: Up,
    examples: PathBuf,
}

impl Plane {
    /// With a configuration file of Kueue and with nodes, where they are not empty.
    async fn start(site: &Path, config: &str, nodes: &[Value], args: &[&str]) -> Self {
        let dir = crate::common::directory();
        std::fs::create_dir_all(&dir).unwrap();
        let mut all: Vec<String> = ["--speed", "60", "--with", "all"].map(str::to_owned).to_vec();
        all.extend(args.iter().map(|&a| a.to_owned()));
        if !config.is_empty() {
            let file = dir.join("config.yaml");
            std::fs::write(&file, config).unwrap();
            all.extend(["--config".to_owned(), file.display().to_string()]);
        }
        if !nodes.is_empty() {
            let file = dir.join("nodes.yaml");
            let texts: Vec<String> = nodes.iter().map(Value::to_string).collect();
            std::fs::write(&file, texts.join("\n---\n")).unwrap();
            all.extend(["--nodes-file".to_owned(), file.display().to_string()]);
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Self { up: Up::start_in(dir, &all).await, examples: site.join("static/examples") }
    }

    async fn create(&self, file: &str) -> Vec<(Resource, Value)> {
        let mut made = Vec::new();
        for mut object in documents(&self.examples.join(file)) {
            if is_of_the_cluster(json::text(&object, &["kind"])) {
                // kubectl asks the path of the cluster, whatever the object says.
                json::remove(&mut object, &["metadata", "namespace"]);
            } else if json::namespace(&object).is_empty() {
                json::set(&mut object, &["metadata", "namespace"], "default".into());
            }
            let resource = resource_of(&object);
            let created = self.up.api.create(resource, &object).await;
            made.push((resource, created.unwrap_or_else(|e| panic!("{file}: {e}: {object}"))));
        }
        made
    }

    async fn now(&self, (resource, object): &(Resource, Value)) -> Value {
        self.up.get(*resource, json::namespace(object), json::name(object)).await
    }

    async fn ends(&self, file: &str, made: &[(Resource, Value)], end: End) {
        let last = made.last().unwrap();
        self.up
            .until_shown(&format!("{file} ends"), async |_| {
                let now = self.now(last).await;
                let holds = match end {
                    Accepted => true,
                    Is(condition) => json::is_true(&now, condition),
                    Has(at, want) => match now.pointer(at) {
                        Some(Value::String(text)) => want.is_empty() || text == want,
                        Some(Value::Number(number)) => number.to_string() == want,
                        _ => false,
                    },
                };
                let workloads = self.up.list(WORKLOADS).await;
                // Not past the queue.
                let admitted = workloads.iter().any(|w| json::is_true(w, "Admitted"));
                if holds && (admitted || matches!(end, Accepted)) {
                    return Ok(());
                }
                let waits: Vec<String> = workloads.iter().map(|w| w["status"].to_string()).collect();
                Err(format!("{}\nworkloads: {}", now["status"], waits.join("\n")))
            })
            .await;
    }

    async fn delete(&self, file: &str, made: &[(Resource, Value)]) {
        for (resource, object) in made.iter().rev() {
            let (namespace, name) = (json::namespace(object), json::name(object));
            let deleted = self.up.api.delete_with_dependents(*resource, namespace, name, "").await;
            deleted.unwrap_or_else(|e| panic!("{file}: {e}"));
        }
        self.up
            .until_shown(&format!("{file} leaves nothing"), async |up| {
                for (resource, object) in made.iter().filter(|(r, _)| *r != NAMESPACES) {
                    let (namespace, name) = (json::namespace(object), json::name(object));
                    if let Some(left) = up.api.find(*resource, namespace, name).await.unwrap() {
                        return Err(left.to_string());
                    }
                }
                let left = up.list(WORKLOADS).await;
                left.first().map_or(Ok(()), |wl| Err(wl.to_string()))
            })
            .await;
    }

    async fn play(&self, shown: &[Shown]) {
        for Shown { setup, jobs } in shown {
            let mut before = Vec::new();
            for file in *setup {
                before.extend(self.create(file).await);
            }
            for (file, end) in *jobs {
                let made = self.create(file).await;
                self.ends(file, &made, *end).await;
                self.delete(file, &made).await;
            }
            self.delete(&setup.join(", "), &before).await;
        }
    }
}

fn node(name: &str, labels: &Value, more: &Value) -> Value {
    let mut allocatable = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    for (resource, amount) in more.as_object().unwrap() {
        allocatable[resource] = amount.clone();
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable}})
}

/// The workers of the file for kind that the page about topologies has, with 8 CPUs each.
fn workers(site: &Path) -> Vec<Value> {
    let [kind] = &documents(&site.join("static/examples/tas/kind-cluster.yaml"))[..] else {
        panic!("one cluster");
    };
    let workers = json::list(kind, &["nodes"]).iter().filter(|n| n["role"] == "worker").enumerate();
    workers
        .map(|(i, n)| node(&format!("worker-{i}"), &n["labels"], &json!({"nvidia.com/gpu": "2"})))
        .collect()
}

/// The configuration that a page has, the number `n` of those that it has.
fn configuration(site: &Path, page: &str, n: usize) -> String {
    let blocks = pages::blocks(&site.join("content/en/docs/tasks").join(page));
    let mut found = blocks.into_iter().filter(|b| b.text.contains("\nkind: Configuration\n"));
    found.nth(n).unwrap_or_else(|| panic!("{page} has no configuration {n}")).text
}

#[test]
fn every_example_is_played_or_left_out() {
    let Some(site) = site() else { return };
    let examples = site.join("static/examples");
    let found =
        pages::files(std::slice::from_ref(&examples), &|path| path.extension().is_some_and(|e| e == "yaml"));
    let found: BTreeSet<String> =
        found.iter().map(|f| f.strip_prefix(&examples).unwrap().display().to_string()).collect();
    let all = [&BASICS[..], &FAIR, &SHARED, &SPARK, &HAMI, &DEVICES, &COUNTERS, &CAPACITY, &TOPOLOGIES];
    let shown = all.into_iter().flatten();
    let played = shown.flat_map(|s| s.setup.iter().copied().chain(s.jobs.iter().map(|(file, _)| *file)));
    let played = played.chain(POLICIES).chain(PROVISIONING).chain(RACKS);
    let known: BTreeSet<String> =
        played.chain(LEFT_OUT.iter().map(|(file, _)| *file)).map(str::to_owned).collect();
    assert_eq!(known, found, "an example is neither played nor left out, or not there any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_examples_end_as_its_documentation_says() {
    let Some(site) = site() else { return };
    Plane::start(&site, "", &[], &[]).await.play(&BASICS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_policies_refuse_jobs_without_a_queue_and_without_requests() {
    let Some(site) = site() else { return };
    let plane = Plane::start(&site, "", &[], &[]).await;
    for file in POLICIES {
        plane.create(file).await;
    }
    let label = json!({"metadata": {"labels": {"kueue-managed": "true"}}});
    plane.up.api.patch(NAMESPACES, "", "default", "", PatchKind::Merge, &label).await.unwrap();
    let job = |labels: &Value, resources: &Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"generateName": "j-", "namespace": "default", "labels": labels},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "i", "resources": resources}]}}}})
    };
    let (queue, requests) = (json!({"kueue.x-k8s.io/queue-name": "q"}), json!({"requests": {"cpu": "1"}}));
    for (labels, resources, want) in [
        (&json!({}), &requests, "The label 'kueue.x-k8s.io/queue-name' is either missing"),
        (&queue, &json!({}), "Every container in the job/deployment must specify resource requests"),
    ] {
        plane
            .up
            .until_shown(want, async |up| match up.create(&job(labels, resources)).await {
                Err(e) if e.to_string().contains(want) => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await;
    }
    plane.up.create(&job(&queue, &requests)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_examples_of_fair_sharing_and_shared_quota_run() {
    let Some(site) = site() else { return };
    let fair = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nadmissionFairSharing:\n  \
                usageHalfLifeTime: 168h\n  usageSamplingInterval: 5m\n";
    Plane::start(&site, fair, &[], &[]).await.play(&FAIR).await;
    let config = configuration(&site, "manage/share_quotas_across_flavors.md", 0);
    let kinds = ["on-demand", "spot"];
    let nodes: Vec<Value> =
        kinds.iter().map(|kind| node(kind, &json!({"node-type": kind}), &json!({"cpu": "16"}))).collect();
    let plane = Plane::start(&site, &config, &nodes, &[]).await;
    plane.play(&SHARED).await;
    // 14 credits are enough for four jobs of 3 CPUs.
    plane.create("admin/shared-quota-setup.yaml").await;
    for _ in 0..5 {
        plane.create("admin/shared-quota-sample-job.yaml").await;
    }
    plane
        .up
        .until_shown("four are admitted, and one says why not", async |up| {
            let workloads = up.list(WORKLOADS).await;
            let admitted = workloads.iter().filter(|w| json::is_true(w, "Admitted")).count();
            let why = |w: &Value| crate::common::condition(w, "QuotaReserved").2.to_owned();
            let waits = workloads.iter().any(|w| why(w).contains("cpu_credits in flavor credits"));
            if (admitted, waits) == (4, true) { Ok(()) } else { Err(Value::from(workloads).to_string()) }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_example_of_spark_runs() {
    let Some(site) = site() else { return };
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  featureGates: {SparkApplicationIntegration: true}\n\
                  integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}\n";
    Plane::start(&site, config, &[], &[]).await.play(&SPARK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_examples_of_shared_gpus_run() {
    let Some(site) = site() else { return };
    // The page extends the configuration that Kueue is installed with.
    let config =
        configuration(&site, "run/using_hami.md", 0) + "\nintegrations: {frameworks: [deployment]}\n";
    let gpus = json!({"nvidia.com/gpu": "10", "nvidia.com/gpucores": "100", "nvidia.com/gpumem": "8192"});
    Plane::start(&site, &config, &[node("gpu", &json!({"gpu": "on"}), &gpus)], &[]).await.play(&HAMI).await;
}

/// What a driver publishes: its class, and devices of every node.
async fn devices(plane: &Plane, class: &Value, slices: &[Value]) {
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"}, "spec": class});
    plane.up.create(&class).await.unwrap();
    for (i, slice) in slices.iter().enumerate() {
        let mut spec = json!({"driver": "gpu.example.com", "allNodes": true,
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": slices.len()}});
        for (key, value) in slice.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("pool-{i}")}, "spec": spec});
        plane.up.create(&slice).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_examples_of_devices_run() {
    let Some(site) = site() else { return };
    let page = "manage/setup_dra.md";
    let plane = Plane::start(&site, &configuration(&site, page, 0), &[], &[]).await;
    let gpus = json!({"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]});
    devices(&plane, &json!({"extendedResourceName": "example.com/gpu"}), &[gpus]).await;
    plane.play(&DEVICES).await;
    let plane = Plane::start(&site, &configuration(&site, page, 1), &[], &[]).await;
    let counters = json!({"sharedCounters": [
        {"name": "shared", "counters": {"memory": {"value": "40Gi"}}}]});
    let parts = json!({"devices": [{"name": "gpu-0", "consumesCounters": [
        {"counterSet": "shared", "counters": {"memory": {"value": "10Gi"}}}]}]});
    devices(&plane, &json!({}), &[counters, parts]).await;
    plane.play(&COUNTERS).await;
    let args = ["--no-joint-admission"];
    let plane = Plane::start(&site, &configuration(&site, page, 2), &[], &args).await;
    let shares = json!({"devices": [{"name": "gpu-0", "allowMultipleAllocations": true,
        "capacity": {"gpu.example.com/memory": {"value": "80Gi"}}}]});
    devices(&plane, &json!({}), &[shares]).await;
    plane.play(&CAPACITY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_examples_of_provisioning_run() {
    use plimsoll_runtime::api::{JOBS, PROVISIONING_REQUESTS};
    let Some(site) = site() else { return };
    let gpus = json!({"nvidia.com/gpu": "8"});
    let plane = Plane::start(&site, "", &[node("gpu", &json!({}), &gpus)], &[]).await;
    let definition = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/provisioning-requests.yaml");
    plane.up.apply(&std::fs::read_to_string(definition).unwrap()).await;
    let [setup, job] = PROVISIONING;
    plane.create(setup).await;
    let made = plane.create(job).await;
    let (namespace, name) = plane
        .up
        .until("a request", async |up| {
            let requests = up.list(PROVISIONING_REQUESTS).await;
            let request = requests.first()?;
            // Annotations with the prefix are its parameters.
            assert_eq!(request["spec"]["parameters"]["maxRunDurationSeconds"], "600");
            Some((json::namespace(request).to_owned(), json::name(request).to_owned()))
        })
        .await;
    let done = json!({"status": {"conditions": [{"type": "Provisioned", "status": "True", "reason": "Done",
        "message": "done", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let (merge, sub) = (PatchKind::Merge, "status");
    plane.up.api.patch(PROVISIONING_REQUESTS, &namespace, &name, sub, merge, &done).await.unwrap();
    assert_eq!(made[0].0.plural, JOBS.plural);
    plane.ends(job, &made, Has("/status/ready", "3")).await;
}

/// The page "Set up topology aware scheduling", step by step.
#[tokio::test(flavor = "multi_thread")]
async fn kueues_examples_of_topologies_run() {
    let Some(site) = site() else { return };
    let mut nodes = workers(&site);
    nodes.push(node("tas", &json!({"cloud.provider.com/node-group": "tas-node"}), &json!({})));
    let plane = Plane::start(&site, "", &nodes, &[]).await;
    let queues = plane.create("tas/sample-queues.yaml").await;
    let [required, preferred, unconstrained] = RACKS;
    let first = plane.create(required).await;
    plane.ends(required, &first, Has("/status/ready", "10")).await;
    let second = plane.create(preferred).await;
    plane.ends(preferred, &second, Has("/status/ready", "40")).await;
    let third = plane.create(required).await;
    plane
        .up
        .until_shown("no rack has room for ten more", async |up| {
            let workloads = up.list(WORKLOADS).await;
            let why = |w: &Value| crate::common::condition(w, "QuotaReserved").2.to_owned();
            let waits = |w: &&Value| !json::is_true(w, "QuotaReserved");
            let says: Vec<String> = workloads.iter().filter(waits).map(why).collect();
            let wanted = "couldn't assign flavors to pod set main: topology \"default\" allows to fit only";
            if says.len() == 1 && says[0].contains(wanted) { Ok(()) } else { Err(says.join("\n")) }
        })
        .await;
    let fourth = plane.create(unconstrained).await;
    plane.ends(unconstrained, &fourth, Has("/status/ready", "6")).await;
    for (file, made) in [(unconstrained, fourth), (required, third), (preferred, second), (required, first)] {
        for (resource, object) in &made {
            let (namespace, name) = (json::namespace(object), json::name(object));
            let deleted = plane.up.api.delete_with_dependents(*resource, namespace, name, "").await;
            deleted.unwrap_or_else(|e| panic!("{file}: {e}"));
        }
    }
    plane.delete("tas/sample-queues.yaml", &queues).await;
    // Their pages say nothing of the queue: it is one of the topology.
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": "user-queue", "namespace": "default"}, "spec": {"clusterQueue": "tas-cluster-queue"}});
    let queue = (resource_of(&queue), plane.up.create(&queue).await.unwrap());
    plane.play(&TOPOLOGIES[..1]).await;
    plane.delete("user-queue", &[queue]).await;
    plane.play(&TOPOLOGIES[1..]).await;
}
