//! Kinds of jobs that CustomResourceDefinitions add, through the front door: the test plays the kind's own controller.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Up, condition, job, resource};
use plimsoll_api::json;
use plimsoll_runtime::api::{
    CLUSTER_QUEUES, CLUSTER_TRAINING_RUNTIMES, JOB_SETS, JOBS, LEADER_WORKER_SETS, MPI_JOBS, PODS,
    PYTORCH_JOBS, PatchKind, RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES, Resource, TRAIN_JOBS, WORKLOADS,
};
use serde_json::{Value, json};

/// A queue of four cpus whose flavor has a node label.
const QUEUE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: linux}
spec: {nodeLabels: {kubernetes.io/os: linux}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: linux
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team}
spec: {clusterQueue: cq}
";

/// The definition of a kind that keeps all fields.
pub fn definition(of: Resource) -> Value {
    let (group, version) = of.api_version.split_once('/').unwrap();
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{group}", of.plural)},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": of.plural, "singular": of.kind.to_lowercase(), "kind": of.kind, "listKind": format!("{}List", of.kind)},
            "versions": [{"name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": any}}]}})
}

fn template(cpu: &str) -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "busybox",
        "resources": {"requests": {"cpu": cpu}}}], "unknownField": {"kept": true}}})
}

fn job_set(name: &str, pods: u32) -> Value {
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"unknownField": [1], "replicatedJobs": [
            {"name": "leader", "replicas": 1, "template": {"spec": {"template": template("1")}}},
            {"name": "workers", "replicas": pods, "template": {"spec": {"parallelism": 1, "template": template("1")}}}]}})
}

async fn create(up: &Up, of: Resource, object: &Value) -> Result<Value, plimsoll_runtime::api::Error> {
    up.api.create(of, object).await
}

/// The workload of a job, when there is one.
async fn workload(up: &Up, job: &Value) -> Option<Value> {
    let all = up.list(WORKLOADS).await;
    all.into_iter().find(|w| json::controller(w).is_some_and(|o| o["uid"] == json::uid(job)))
}

async fn until_started(up: &Up, of: Resource, name: &str) -> Value {
    up.until("the job runs", async |up| {
        let job = up.get(of, "team", name).await;
        (!json::flag(&job, &["spec", "suspend"])).then_some(job)
    })
    .await
}

fn selector(job_set: &Value, i: usize) -> &Value {
    &job_set["spec"]["replicatedJobs"][i]["template"]["spec"]["template"]["spec"]["nodeSelector"]
}

#[tokio::test(flavor = "multi_thread")]
async fn job_sets_are_queued_as_long_as_their_definition_is_there() {
    let up = Up::start(&["--speed", "10"]).await;
    up.apply(QUEUE).await;
    for round in ["first", "again"] {
        up.until("the definition is served", async |up| {
            let made = up.create(&definition(JOB_SETS)).await;
            match made {
                Ok(_) => Some(()),
                // The one before is not quite gone.
                Err(e) if e.is_conflict() => None,
                Err(e) => panic!("{e}"),
            }
        })
        .await;
        let made = up
            .until("a JobSet is created", async |up| create(up, JOB_SETS, &job_set(round, 2)).await.ok())
            .await;
        assert_eq!(made["spec"]["suspend"], true, "the webhook suspends it");

        let running = until_started(&up, JOB_SETS, round).await;
        for i in [0, 1] {
            assert_eq!(selector(&running, i), &json!({"kubernetes.io/os": "linux"}), "{running}");
        }
        assert_eq!(running["spec"]["unknownField"], json!([1]));
        let wl = workload(&up, &made).await.unwrap();
        assert!(json::name(&wl).starts_with(&format!("jobset-{round}-")), "{wl}");
        assert_eq!(condition(&wl, "Admitted").0, "True", "{wl}");
        let counts: Vec<&Value> = json::list(&wl, &["spec", "podSets"]).iter().map(|p| &p["count"]).collect();
        assert_eq!(counts, [&json!(1), &json!(2)]);

        // What does not fit beside it waits, and its queue can't be changed while it runs.
        let waits = create(&up, JOB_SETS, &job_set("waits", 3)).await.unwrap();
        up.until_shown("the second one waits", async |up| {
            let wl = workload(up, &waits).await.unwrap_or_default();
            (condition(&wl, "QuotaReserved").0 == "False").then_some(()).ok_or(wl.to_string())
        })
        .await;
        let body = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}});
        let refused = up.api.patch(JOB_SETS, "team", round, "", PatchKind::Merge, &body).await.unwrap_err();
        assert!(refused.to_string().contains("vjobset.kb.io"), "{refused}");

        let ended = json!({"status": {"conditions": [{"type": "Completed", "status": "True", "message": "done",
            "reason": "AllJobsCompleted", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        up.api.patch(JOB_SETS, "team", round, "status", PatchKind::Merge, &ended).await.unwrap();
        let second = until_started(&up, JOB_SETS, "waits").await;
        let first = workload(&up, &made).await.unwrap();
        assert_eq!(condition(&first, "Finished"), ("True", "Succeeded", "done"));

        // The definition takes its objects with it, and their workloads go.
        let crd = resource(&definition(JOB_SETS));
        let name = json::name(&definition(JOB_SETS)).to_owned();
        up.api.delete(crd, "", &name, "", None).await.unwrap();
        up.until_shown("nothing is charged for it any more", async |up| {
            let left = up.list(WORKLOADS).await;
            let of = |w: &Value| json::controller(w).is_some_and(|o| o["uid"] == json::uid(&second));
            let held = left.iter().find(|w| of(w) && !json::is_true(w, "Finished"));
            held.map_or(Ok(()), |w| Err(w.to_string()))
        })
        .await;
        // Everything else goes on.
        let mut own = job(round, &json!({"kueue.x-k8s.io/queue-name": "main"}), 1, 1);
        own["metadata"]["name"] = json!(format!("job-{round}"));
        up.create(&own).await.unwrap();
        up.until("the Job completes", async |up| {
            let job = up.get(JOBS, "team", &format!("job-{round}")).await;
            json::is_true(&job, "Complete").then_some(())
        })
        .await;
    }
}

/// Of each kind: its resource, the path of its suspend flag, a spec with one template, the path of that, and the status with
/// which a job of it has succeeded.
fn kinds() -> Vec<(Resource, &'static str, Value, &'static str, Value)> {
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "message": "done"}]});
    let replica = || json!({"replicas": 2, "template": template("1")});
    let suspend = "/spec/runPolicy/suspend";
    let cluster = || {
        let head = json!({"template": template("1")});
        json!({"headGroupSpec": head, "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": template("1")}]})
    };
    vec![
        (
            RAY_JOBS,
            "/spec/suspend",
            json!({"rayClusterSpec": cluster(), "shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode"}),
            "/spec/rayClusterSpec/workerGroupSpecs/0/template",
            json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}),
        ),
        (
            PYTORCH_JOBS,
            suspend,
            json!({"pytorchReplicaSpecs": {"Worker": replica()}}),
            "/spec/pytorchReplicaSpecs/Worker/template",
            condition("Succeeded"),
        ),
        (
            MPI_JOBS,
            suspend,
            json!({"mpiReplicaSpecs": {"Worker": replica()}}),
            "/spec/mpiReplicaSpecs/Worker/template",
            condition("Succeeded"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_every_kind_start_with_what_was_assigned_and_finish() {
    let up = Up::start(&["--speed", "10"]).await;
    up.apply(QUEUE).await;
    for (of, ..) in kinds() {
        up.create(&definition(of)).await.unwrap();
    }
    for (of, suspend, spec, template, status) in kinds() {
        let object = json!({"apiVersion": of.api_version, "kind": of.kind, "spec": spec,
            "metadata": {"name": "j", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}});
        let made = up.until("it is created", async |up| create(up, of, &object).await.ok()).await;
        assert_eq!(made.pointer(suspend), Some(&json!(true)), "{made}");
        let running = up
            .until("it runs", async |up| {
                let job = up.get(of, "team", "j").await;
                (job.pointer(suspend) == Some(&json!(false))).then_some(job)
            })
            .await;
        let template = running.pointer(template).unwrap();
        assert_eq!(template["spec"]["nodeSelector"], json!({"kubernetes.io/os": "linux"}), "{running}");
        assert_eq!(template["spec"]["unknownField"], json!({"kept": true}), "{running}");
        let body = json!({"status": status});
        up.api.patch(of, "team", "j", "status", PatchKind::Merge, &body).await.unwrap();
        up.until_shown("its workload is finished", async |up| {
            let wl = workload(up, &made).await.unwrap_or_default();
            let done = condition(&wl, "Finished") == ("True", "Succeeded", "done");
            done.then_some(()).ok_or(wl.to_string())
        })
        .await;
    }
}

/// A job of each kind that has a simulated operator, which ends by itself: its resource, its spec, and where its status says
/// that it has ended.
fn ending_jobs() -> Vec<(Resource, Value, &'static str, &'static str)> {
    let work = || {
        let container = json!({"name": "work", "image": "busybox", "command": ["sleep", "2"],
            "resources": {"requests": {"cpu": "1"}}});
        json!({"spec": {"restartPolicy": "Never", "containers": [container]}})
    };
    let replica = |n: u32| json!({"replicas": n, "restartPolicy": "Never", "template": work()});
    let rank = |name: &str, n: u32| json!({"name": name, "replicas": n, "template": {"spec": {"parallelism": 1, "template": work()}}});
    let forever = || {
        let container = json!({"name": "ray", "image": "rayproject/ray", "command": ["sleep", "infinity"],
            "resources": {"requests": {"cpu": "1"}}});
        json!({"spec": {"containers": [container]}})
    };
    let ray = json!({"headGroupSpec": {"template": forever()},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": forever()}]});
    vec![
        (JOB_SETS, json!({"replicatedJobs": [rank("leader", 1), rank("workers", 2)]}), "Completed", ""),
        (
            PYTORCH_JOBS,
            json!({"pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(2)}}),
            "Succeeded",
            "",
        ),
        (
            MPI_JOBS,
            json!({"mpiReplicaSpecs": {"Launcher": replica(1), "Worker": replica(2)}}),
            "Succeeded",
            "",
        ),
        (
            RAY_JOBS,
            json!({"rayClusterSpec": ray, "shutdownAfterJobFinishes": true, "entrypoint": "sleep 2",
                "submitterPodTemplate": work()}),
            "",
            "Complete",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn with_simulated_operators_jobs_run_to_their_end() {
    let up = Up::start(&["--speed", "10", "--with", "all"]).await;
    up.apply(QUEUE).await;
    for (of, spec, ..) in ending_jobs() {
        let object = json!({"apiVersion": of.api_version, "kind": of.kind, "spec": spec,
            "metadata": {"name": "j", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}});
        up.until("its kind is served", async |up| create(up, of, &object).await.ok()).await;
    }
    for (of, _, condition_type, deployment) in ending_jobs() {
        up.until_shown(&format!("the {} ends", of.kind), async |up| {
            let job = up.get(of, "team", "j").await;
            let done = match condition_type {
                "" => job["status"]["jobDeploymentStatus"] == deployment,
                kind => json::is_true(&job, kind),
            };
            done.then_some(()).ok_or(job.to_string())
        })
        .await;
    }
    up.until_shown("all workloads are finished", async |up| {
        let all = up.list(WORKLOADS).await;
        let open = all.iter().find(|w| condition(w, "Finished").1 != "Succeeded");
        open.map_or(Ok(()), |w| Err(w.to_string()))
    })
    .await;
    train(&up).await;
    // A set of groups serves, with a workload for each.
    let serving = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [
            {"name": "c", "image": "i", "command": ["sleep", "infinity"], "resources": {"requests": {"cpu": "1"}}}]}}}}});
    create(&up, LEADER_WORKER_SETS, &serving).await.unwrap();
    up.until_shown("both groups are ready", async |up| {
        let set = up.get(LEADER_WORKER_SETS, "team", "serve").await;
        (set["status"]["readyReplicas"] == 2).then_some(()).ok_or(set.to_string())
    })
    .await;
    // It has the short name of its own definition.
    let of = Resource {
        api_version: "apiextensions.k8s.io/v1",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
    };
    let definition = up.get(of, "", "leaderworkersets.leaderworkerset.x-k8s.io").await;
    assert_eq!(definition["status"]["acceptedNames"]["shortNames"], json!(["lws"]), "{definition}");
}

/// A TrainJob has the pods of its runtime, where its admission sends them.
async fn train(up: &Up) {
    let step = |name: &str, step: &str| {
        let container = json!({"name": "node", "image": "busybox", "command": ["sleep", "2"],
            "resources": {"requests": {"cpu": "1"}}});
        json!({"name": name, "template": {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
            "spec": {"template": {"spec": {"containers": [container]}}}}})
    };
    let runtime = json!({"apiVersion": TRAIN_JOBS.api_version, "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"},
        "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [
            step("data", "dataset-initializer"), step("node", "trainer")]}}}});
    create(up, CLUSTER_TRAINING_RUNTIMES, &runtime).await.unwrap();
    let train = json!({"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind,
        "metadata": {"name": "train", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}}});
    create(up, TRAIN_JOBS, &train).await.unwrap();
    up.until_shown("its nodes run where its flavor is", async |up| {
        let pod = up.api.get(PODS, "team", "train-node-0-1").await.map_err(|e| e.to_string())?;
        (pod["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux").then_some(()).ok_or(pod.to_string())
    })
    .await;
    up.until_shown("the TrainJob ends", async |up| {
        let job = up.get(TRAIN_JOBS, "team", "train").await;
        json::is_true(&job, "Complete").then_some(()).ok_or(job.to_string())
    })
    .await;
}

/// The workers of a cluster, as the autoscaler of Ray sets them.
async fn scale(up: &Up, name: &str, workers: i64) {
    up.until_shown("the cluster is scaled", async |up| {
        let mut cluster = up.get(RAY_CLUSTERS, "team", name).await;
        cluster["spec"]["workerGroupSpecs"][0]["replicas"] = json!(workers);
        up.api.replace(RAY_CLUSTERS, &cluster).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
}

/// Used quota of the queue, and ready workers of a cluster.
async fn runs(up: &Up, name: &str, cpu: &str, workers: i64) {
    up.until_shown(&format!("{workers} workers of {name} run and {cpu} is used"), async |up| {
        let queue = up.get(CLUSTER_QUEUES, "", "cq").await;
        let cluster = up.get(RAY_CLUSTERS, "team", name).await;
        let used = queue["status"]["flavorsUsage"][0]["resources"][0]["total"] == cpu;
        let ready = cluster["status"]["readyWorkerReplicas"] == workers;
        (used && ready).then_some(()).ok_or(format!("{}\n{cluster}", queue["status"]))
    })
    .await;
}

/// The specs of Kueue's integration suite `controller/jobs/raycluster` about elastic jobs: a RayCluster with an autoscaler.
#[tokio::test(flavor = "multi_thread")]
async fn a_ray_cluster_grows_and_shrinks_while_it_runs() {
    let up = Up::start(&["--speed", "10", "--with", "ray"]).await;
    let cpu = "{name: cpu, nominalQuota: 4}";
    let queue = QUEUE.replace("[cpu]", "[cpu, memory]");
    up.apply(&queue.replace(cpu, &format!("{cpu}, {{name: memory, nominalQuota: 8Gi}}"))).await;
    let template = || {
        let container = json!({"name": "ray", "image": "ray", "command": ["sleep", "infinity"],
            "resources": {"requests": {"cpu": "1"}}});
        json!({"spec": {"containers": [container]}})
    };
    let cluster = |name: &str, workers: i64| {
        json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind,
            "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"},
                "annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
            "spec": {"enableInTreeAutoscaling": true, "headGroupSpec": {"template": template()},
                "workerGroupSpecs": [{"groupName": "small", "replicas": workers, "template": template()}]}})
    };
    let gate = json!([{"name": "kueue.x-k8s.io/elastic-job"}]);
    let served = async |up: &Up| create(up, RAY_CLUSTERS, &cluster("a", 1)).await.ok();
    let made = up.until("the kind is served", served).await;
    assert_eq!(made["spec"]["workerGroupSpecs"][0]["template"]["spec"]["schedulingGates"], gate);
    // The head, the autoscaler beside it, and the worker.
    runs(&up, "a", "2500m", 1).await;
    let first = workload(&up, &made).await.unwrap();

    // It grows by a second slice, and goes on meanwhile.
    scale(&up, "a", 2).await;
    runs(&up, "a", "3500m", 2).await;
    let mine = async |up: &Up| {
        let all = up.list(WORKLOADS).await;
        let of =
            all.into_iter().filter(|w| json::controller(w).is_some_and(|o| o["uid"] == json::uid(&made)));
        of.collect::<Vec<_>>()
    };
    let slices = mine(&up).await;
    let (old, new): (Vec<&Value>, Vec<&Value>) =
        slices.iter().partition(|w| json::name(w) == json::name(&first));
    assert_eq!(condition(old[0], "Finished").1, "WorkloadSliceReplaced");
    assert_eq!(json::annotation(new[0], "kueue.x-k8s.io/workload-slice-name"), Some(json::name(&first)));

    // Beyond the quota it waits, and what runs goes on.
    scale(&up, "a", 4).await;
    up.until_shown("a slice waits", async |up| {
        let slices = mine(up).await;
        let waits = slices.iter().any(|w| condition(w, "QuotaReserved").0 == "False");
        waits.then_some(()).ok_or(format!("{slices:?}"))
    })
    .await;
    runs(&up, "a", "3500m", 2).await;

    // Another one starts once it has shrunk.
    scale(&up, "a", 0).await;
    runs(&up, "a", "1500m", 0).await;
    create(&up, RAY_CLUSTERS, &cluster("b", 1)).await.unwrap();
    runs(&up, "b", "4", 1).await;
    assert!(!json::flag(&up.get(RAY_CLUSTERS, "team", "a").await, &["spec", "suspend"]), "it never stopped");
}

/// A configuration with this gate on, for Jobs and RayClusters.
fn ray_with_gate(gate: &str) -> Value {
    json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "featureGates": {gate: true},
        "integrations": {"frameworks": ["batch/job", "ray.io/raycluster"]}})
}

/// Kueue KEP-12100, "Example: Two-Step Scale Up under Quota Constraints", with a head beside the workers.
#[tokio::test(flavor = "multi_thread")]
async fn a_ray_cluster_grows_as_far_as_quota_allows() {
    let dir = crate::common::directory();
    let file = dir.join("config.yaml");
    let config = ray_with_gate("ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp");
    std::fs::write(&file, config.to_string()).unwrap();
    let arguments = ["--speed", "10", "--with", "ray", "--config", &file.to_string_lossy()];
    let up = Up::start_in(dir.clone(), &arguments).await;
    up.apply(&QUEUE.replace("nominalQuota: 4", "nominalQuota: 8")).await;
    let template = json!({"spec": {"containers": [{"name": "ray", "image": "ray", "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "1"}}}]}});
    let cluster = json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind,
        "metadata": {"name": "a", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/elastic-job-scale-up-strategy": "partial"}},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [
            {"groupName": "small", "replicas": 5, "minReplicas": 0, "maxReplicas": 20, "template": template}]}});
    let made =
        up.until("the kind is served", async |up: &Up| create(up, RAY_CLUSTERS, &cluster).await.ok()).await;
    runs(&up, "a", "6", 5).await;

    // Slices that have not finished, with the number of workers asked for, the least, and those admitted.
    let sizes = async |up: &Up| {
        let mine = |w: &Value| json::controller(w).is_some_and(|o| o["uid"] == json::uid(&made));
        let all = up.list(WORKLOADS).await;
        let live = all.iter().filter(|w| mine(w) && condition(w, "Finished").0 != "True");
        let size = |w: &Value| {
            let (podset, given) =
                (&w["spec"]["podSets"][1], &w["status"]["admission"]["podSetAssignments"][1]);
            [&podset["count"], &podset["minCount"], &given["count"]].map(Value::as_i64)
        };
        let mut sizes: Vec<_> = live.map(size).collect();
        sizes.sort_by_key(|[.., given]| given.is_none());
        sizes
    };
    let until = async |up: &Up, want: &[[Option<i64>; 3]]| {
        up.until_shown("its slices are as they should", async |up| {
            let sizes = sizes(up).await;
            (sizes == want).then_some(()).ok_or(format!("{sizes:?}, not {want:?}"))
        })
        .await;
    };
    until(&up, &[[Some(5), Some(5), Some(5)]]).await;
    scale(&up, "a", 10).await;
    runs(&up, "a", "8", 7).await;
    until(&up, &[[Some(10), Some(5), Some(7)], [Some(10), Some(7), None]]).await;
    scale(&up, "a", 12).await;
    until(&up, &[[Some(10), Some(5), Some(7)], [Some(12), Some(7), None]]).await;
    let gated = |p: &&Value| !json::list(p, &["spec", "schedulingGates"]).is_empty();
    let pods = up.list(PODS).await;
    assert_eq!((pods.len(), pods.iter().filter(gated).count()), (13, 5));
    up.until_shown("quota becomes free", async |up| {
        let mut queue = up.get(CLUSTER_QUEUES, "", "cq").await;
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(13);
        up.api.replace(CLUSTER_QUEUES, &queue).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    runs(&up, "a", "13", 12).await;
    until(&up, &[[Some(12), Some(7), Some(12)]]).await;
    scale(&up, "a", 8).await;
    runs(&up, "a", "9", 8).await;
    until(&up, &[[Some(8), Some(7), Some(12)]]).await;
    assert!(!json::flag(&up.get(RAY_CLUSTERS, "team", "a").await, &["spec", "suspend"]), "it never stopped");
}

/// Kueue KEP-12100, stories 1 and 2, for RayJobs and RayServices: the number of workers in their spec changes.
#[tokio::test(flavor = "multi_thread")]
async fn ray_jobs_and_services_grow_as_far_as_quota_allows() {
    let dir = crate::common::directory();
    let file = dir.join("config.yaml");
    let mut config = ray_with_gate("ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp");
    config["integrations"]["frameworks"] = json!(["batch/job", "ray.io/rayjob", "ray.io/rayservice"]);
    std::fs::write(&file, config.to_string()).unwrap();
    let arguments = ["--speed", "10", "--with", "ray", "--config", &file.to_string_lossy()];
    let up = Up::start_in(dir.clone(), &arguments).await;
    up.apply(QUEUE).await;
    let template = |policy: &str| {
        let container = json!({"name": "ray", "image": "ray", "command": ["sleep", "infinity"],
            "resources": {"requests": {"cpu": "1"}}});
        json!({"spec": {"restartPolicy": policy, "containers": [container]}})
    };
    let cluster = json!({"headGroupSpec": {"template": template("Always")}, "workerGroupSpecs": [
        {"groupName": "small", "replicas": 2, "minReplicas": 0, "maxReplicas": 20, "template": template("Always")}]});
    let job = json!({"entrypoint": "sleep infinity", "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster,
        "submitterPodTemplate": template("Never")});
    let quota = async |up: &Up, cpus: i64| {
        up.until_shown("the quota changes", async |up| {
            let mut queue = up.get(CLUSTER_QUEUES, "", "cq").await;
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(cpus);
            up.api.replace(CLUSTER_QUEUES, &queue).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    };
    // Where the spec of the cluster and its status are, and what runs beside the workers.
    for (of, spec, at, status, others) in [
        (RAY_JOBS, job, "rayClusterSpec", "/status/rayClusterStatus", 2),
        (
            RAY_SERVICES,
            json!({"serveConfigV2": "", "rayClusterConfig": cluster}),
            "rayClusterConfig",
            "/status/activeServiceStatus/rayClusterStatus",
            1,
        ),
    ] {
        quota(&up, others + 4).await;
        let object = json!({"apiVersion": of.api_version, "kind": of.kind,
            "metadata": {"name": "a", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"},
                "annotations": {"kueue.x-k8s.io/elastic-job": "true",
                    "kueue.x-k8s.io/elastic-job-scale-up-strategy": "partial"}},
            "spec": spec});
        let made = up.until("the kind is served", async |up: &Up| create(up, of, &object).await.ok()).await;
        let scale = async |up: &Up, workers: i64| {
            up.until_shown("it is scaled", async |up| {
                let mut object = up.get(of, "team", "a").await;
                object["spec"][at]["workerGroupSpecs"][0]["replicas"] = json!(workers);
                up.api.replace(of, &object).await.map(drop).map_err(|e| e.to_string())
            })
            .await;
        };
        // Workers that run, and its slices: number of workers, the least, those admitted.
        let until = async |up: &Up, workers: i64, want: &[[Option<i64>; 3]]| {
            up.until_shown(&format!("{workers} workers of the {} run", of.kind), async |up| {
                let queue = up.get(CLUSTER_QUEUES, "", "cq").await;
                let used = queue["status"]["flavorsUsage"][0]["resources"][0]["total"].clone();
                let object = up.get(of, "team", "a").await;
                let ready = object.pointer(status).map(|s| s["readyWorkerReplicas"].clone());
                let mine = |w: &Value| json::controller(w).is_some_and(|o| o["uid"] == json::uid(&made));
                let all = up.list(WORKLOADS).await;
                let live = all.iter().filter(|w| mine(w) && condition(w, "Finished").0 != "True");
                let size = |w: &Value| {
                    let given = &w["status"]["admission"]["podSetAssignments"][1]["count"];
                    let podset = &w["spec"]["podSets"][1];
                    [&podset["count"], &podset["minCount"], given].map(Value::as_i64)
                };
                let mut sizes: Vec<_> = live.map(size).collect();
                sizes.sort_by_key(|[.., given]| given.is_none());
                let right = sizes == want && ready == Some(json!(workers));
                (right && used.as_str() == Some(&(others + workers).to_string())).then_some(()).ok_or(
                    format!("{ready:?} run, {used} used, {sizes:?}, not {want:?}\n{}", object["status"]),
                )
            })
            .await;
        };
        until(&up, 2, &[[Some(2), Some(2), Some(2)]]).await;
        scale(&up, 6).await;
        until(&up, 4, &[[Some(6), Some(2), Some(4)], [Some(6), Some(4), None]]).await;
        let pods = up.list(PODS).await;
        let gated = pods.iter().filter(|p| !json::list(p, &["spec", "schedulingGates"]).is_empty());
        assert_eq!(gated.count(), 2, "workers beyond the quota wait");
        quota(&up, others + 6).await;
        until(&up, 6, &[[Some(6), Some(4), Some(6)]]).await;
        scale(&up, 3).await;
        until(&up, 3, &[[Some(3), Some(3), Some(6)]]).await;
        let object = up.get(of, "team", "a").await;
        let suspended = [&object["spec"]["suspend"], &object["spec"][at]["suspend"]];
        assert!(suspended.iter().all(|s| **s != true), "it never stopped: {object}");
        up.api.delete(of, "team", "a", json::uid(&made), None).await.unwrap();
        up.until_shown("its quota is released", async |up| {
            let queue = up.get(CLUSTER_QUEUES, "", "cq").await;
            let used = &queue["status"]["flavorsUsage"][0]["resources"][0]["total"];
            (*used == "0").then_some(()).ok_or(queue["status"].to_string())
        })
        .await;
    }
}

/// Kueue KEP-975: the runtime of a RayCluster, which the test plays, shrinks it as it is asked, and it runs on.
#[tokio::test(flavor = "multi_thread")]
async fn a_ray_cluster_shrinks_for_another_job() {
    let dir = crate::common::directory();
    let file = dir.join("config.yaml");
    let config = ray_with_gate("PartialPreemption");
    std::fs::write(&file, config.to_string()).unwrap();
    let arguments = ["--speed", "10", "--with", "ray", "--config", &file.to_string_lossy()];
    let up = Up::start_in(dir.clone(), &arguments).await;
    let strategy = "\n  namespaceSelector: {}\n  preemption: {withinClusterQueue: LowerPriority}";
    let queue = QUEUE.replace("\n  namespaceSelector: {}", strategy);
    up.apply(&queue.replace("nominalQuota: 4", "nominalQuota: 8")).await;
    let class = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 100}";
    up.apply(class).await;
    let template = json!({"spec": {"containers": [{"name": "ray", "image": "ray", "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "1"}}}]}});
    let cluster = json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind,
        "metadata": {"name": "a", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/partial-preemption": "true"}},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [
            {"groupName": "small", "replicas": 7, "minReplicas": 1, "maxReplicas": 20, "template": template}]}});
    let made =
        up.until("the kind is served", async |up: &Up| create(up, RAY_CLUSTERS, &cluster).await.ok()).await;
    runs(&up, "a", "8", 7).await;
    let victim = workload(&up, &made).await.unwrap();
    assert_eq!(victim["spec"]["podSets"][1]["minCount"], 1);
    assert_eq!(json::annotation(&victim, "kueue.x-k8s.io/partial-preemption"), Some("true"));

    let labels = json!({"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "high"});
    up.create(&job("high", &labels, 3, 3600)).await.unwrap();
    let asked = up
        .until("the cluster is asked to shrink", async |up: &Up| {
            let wl = up.get(WORKLOADS, "team", json::name(&victim)).await;
            wl["status"]["admission"]["podSetAssignments"][1]["reclaimTargetCount"].as_i64()
        })
        .await;
    assert_eq!(asked, 4, "as many go as are needed");
    let waits = up.get(JOBS, "team", "high").await;
    assert!(json::flag(&waits, &["spec", "suspend"]), "nothing is released yet");
    runs(&up, "a", "8", 7).await;

    // The runtime shrinks in two steps.
    scale(&up, "a", 6).await;
    runs(&up, "a", "7", 6).await;
    assert!(json::flag(&up.get(JOBS, "team", "high").await, &["spec", "suspend"]));
    scale(&up, "a", 4).await;
    up.until_shown("the other job runs", async |up: &Up| {
        let job = up.get(JOBS, "team", "high").await;
        (job["status"]["active"] == 3).then_some(()).ok_or(job.to_string())
    })
    .await;
    runs(&up, "a", "8", 4).await;
    let wl = up.get(WORKLOADS, "team", json::name(&victim)).await;
    assert!(wl["status"]["admission"]["podSetAssignments"][1]["reclaimTargetCount"].is_null(), "{wl}");
    assert_eq!(condition(&wl, "Evicted").0, "", "it was not evicted");
    assert!(!json::flag(&up.get(RAY_CLUSTERS, "team", "a").await, &["spec", "suspend"]), "it never stopped");
}

const TRAINS: Resource = Resource { api_version: "example.com/v1", plural: "trains", kind: "Train" };

/// Kinds of `integrations.externalFrameworks`: their own controllers make the workloads, and what belongs to a queued job of
/// theirs is not queued itself.
#[tokio::test(flavor = "multi_thread")]
async fn external_frameworks_bring_their_own_workloads() {
    let dir = crate::common::directory();
    let file = dir.join("config.yaml");
    let config = json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job"], "externalFrameworks": ["Train.v1.example.com"]}});
    std::fs::write(&file, config.to_string()).unwrap();
    let up = Up::start_in(dir, &["--speed", "10", "--config", &file.to_string_lossy()]).await;
    up.apply(QUEUE).await;
    up.create(&definition(TRAINS)).await.unwrap();
    let train = json!({"apiVersion": TRAINS.api_version, "kind": TRAINS.kind, "spec": {},
        "metadata": {"name": "t", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}});
    let train = up.until("its kind is served", async |up| create(up, TRAINS, &train).await.ok()).await;
    let owner = json!([{"apiVersion": TRAINS.api_version, "kind": TRAINS.kind, "name": "t", "uid": json::uid(&train),
        "controller": true}]);
    // A Job of the train waits for it.
    let mut child = job("child", &json!({}), 1, 3600);
    child["metadata"]["ownerReferences"] = owner.clone();
    up.create(&child).await.unwrap();
    up.until("the child is suspended", async |up| {
        let child = up.get(JOBS, "team", "child").await;
        json::flag(&child, &["spec", "suspend"]).then_some(())
    })
    .await;
    assert!(up.list(WORKLOADS).await.is_empty(), "it has no workload");
    // What the train's controller does with Kueue's library.
    let made = json!({"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind,
        "metadata": {"name": "train-t", "namespace": "team", "ownerReferences": owner,
            "labels": {"kueue.x-k8s.io/job-uid": json::uid(&train)}, "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 2, "template": template("1")}]}});
    create(&up, WORKLOADS, &made).await.unwrap();
    up.until_shown("it is admitted", async |up| {
        let wl = up.get(WORKLOADS, "team", "train-t").await;
        (condition(&wl, "Admitted").0 == "True").then_some(()).ok_or(wl.to_string())
    })
    .await;
    let child = up.get(JOBS, "team", "child").await;
    assert!(json::flag(&child, &["spec", "suspend"]), "its own controller resumes it");
}
