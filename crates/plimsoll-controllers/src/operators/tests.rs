//! What operators plan for an object and its pods.

use serde_json::{Value, json};

use super::*;

const NOW: Time = Time::from_seconds(1_700_000_000);

fn operator(kind: &str) -> &'static Operator {
    OPERATORS.iter().find(|o| o.kind == kind).unwrap()
}

fn object(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": operator(kind).resource.api_version(), "kind": kind, "spec": spec,
        "metadata": {"name": "j", "namespace": "ns", "uid": "ju"}})
}

/// The pods that a plan creates, in these phases; `Ready` runs.
fn become_of(plan: &Plan, phase: impl Fn(&str) -> &'static str) -> Vec<Arc<Pod>> {
    let pod = |made: &Value| {
        let mut pod = made.clone();
        let phase = phase(made["metadata"]["name"].as_str().unwrap());
        let (phase, ready) = if phase == "Ready" { ("Running", "True") } else { (phase, "False") };
        pod["metadata"]["uid"] = made["metadata"]["name"].clone();
        pod["status"] = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    plan.create.iter().map(pod).collect()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.create.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect()
}

fn next(object: &Value, pods: &[Arc<Pod>]) -> (Plan, Value) {
    let kind = object["kind"].as_str().unwrap();
    let plan = plan::plan(operator(kind), object, pods, NOW);
    let status = plan.status.clone().unwrap_or_else(|| object["status"].clone());
    (plan, status)
}

fn is_true(status: &Value, kind: &str) -> bool {
    let all = status["conditions"].as_array().into_iter().flatten();
    all.into_iter().any(|c| c["type"] == kind && c["status"] == "True")
}

fn template() -> Value {
    json!({"metadata": {"labels": {"own": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn a_job_set_has_a_pod_for_each_index_of_each_job() {
    let job = |replicas: i64| json!({"name": "w", "replicas": replicas, "template": {"spec": {"parallelism": 2, "template": template()}}});
    let mut set = object("JobSet", &json!({"suspend": true, "replicatedJobs": [job(2)]}));
    let (plan, status) = next(&set, &[]);
    assert!(plan.create.is_empty() && is_true(&status, "Suspended"), "{status}");
    set["status"] = status;
    set["spec"]["suspend"] = json!(false);
    let (plan, status) = next(&set, &[]);
    assert_eq!(names(&plan), ["j-w-0-0", "j-w-0-1", "j-w-1-0", "j-w-1-1"]);
    assert_eq!(plan.create[2]["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"], "1");
    assert_eq!(plan.create[0]["metadata"]["labels"]["own"], "x");
    assert!(!is_true(&status, "Suspended"));
    set["status"] = status;
    let pods = become_of(&plan, |name| if name.starts_with("j-w-0") { "Succeeded" } else { "Ready" });
    let (more, status) = next(&set, &pods);
    assert!(more.create.is_empty() && more.delete.is_empty());
    let row = json!({"name": "w", "ready": 1, "succeeded": 1, "failed": 0, "active": 1, "suspended": 0});
    assert_eq!(status["replicatedJobsStatus"], json!([row]));
    // Suspended again it has no pods at all.
    let mut stopped = set.clone();
    stopped["spec"]["suspend"] = json!(true);
    assert_eq!(next(&stopped, &pods).0.delete.len(), 4);
    let done = become_of(&plan, |_| "Succeeded");
    let (_, status) = next(&set, &done);
    assert!(is_true(&status, "Completed"), "{status}");
    // The end is final.
    set["status"] = status;
    let (plan, _) = next(&set, &[]);
    assert!(plan.create.is_empty() && plan.status.is_none());
}

#[test]
fn amounts_are_texts_as_the_api_server_keeps_them() {
    let resources = json!({"requests": {"cpu": 1, "memory": "1024Mi"}, "limits": {"cpu": 1.5, "bad": "x"}});
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
    let job = json!({"name": "w", "template": {"spec": {"template": template}}});
    let (plan, _) = next(&object("JobSet", &json!({"replicatedJobs": [job]})), &[]);
    let want = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1500m", "bad": "x"}});
    assert_eq!(plan.create[0]["spec"]["containers"][0]["resources"], want);
}

#[test]
fn kubeflows_jobs_end_with_their_leader() {
    let replica = |n: i64| json!({"replicas": n, "restartPolicy": "OnFailure", "template": template()});
    let job = object("MPIJob", &json!({"mpiReplicaSpecs": {"Launcher": replica(1), "Worker": replica(2)}}));
    let (plan, status) = next(&job, &[]);
    assert_eq!(names(&plan), ["j-launcher-0", "j-worker-0", "j-worker-1"]);
    assert_eq!(plan.create[0]["spec"]["restartPolicy"], "OnFailure");
    assert!(is_true(&status, "Created"));
    let runs = become_of(&plan, |_| "Ready");
    assert!(is_true(&next(&job, &runs).1, "Running"));
    let ends = become_of(&plan, |name| if name == "j-launcher-0" { "Succeeded" } else { "Ready" });
    let (plan, status) = next(&job, &ends);
    assert!(is_true(&status, "Succeeded") && !is_true(&status, "Running"), "{status}");
    // Its workers would run for ever.
    assert_eq!(plan.delete.len(), 2);
    let workers = object("PyTorchJob", &json!({"pytorchReplicaSpecs": {"Worker": replica(2)}}));
    let (plan, _) = next(&workers, &[]);
    let one = become_of(&plan, |name| if name.ends_with('0') { "Succeeded" } else { "Ready" });
    assert!(!is_true(&next(&workers, &one).1, "Succeeded"));
    let failed = become_of(&plan, |name| if name.ends_with('0') { "Failed" } else { "Ready" });
    assert!(is_true(&next(&workers, &failed).1, "Failed"));
}

#[test]
fn ray_jobs_run_their_entrypoint() {
    let cluster = json!({"headGroupSpec": {"template": template()},
        "workerGroupSpecs": [{"groupName": "g", "replicas": 2, "template": template()}]});
    let mut job = object("RayJob", &json!({"entrypoint": "sleep 3", "rayClusterSpec": cluster}));
    let (plan, status) = next(&job, &[]);
    assert_eq!(names(&plan), ["j-head", "j-g-worker-0", "j-g-worker-1", "j-submitter"]);
    assert_eq!(plan.create[3]["spec"]["containers"][0]["command"], json!(["sh", "-c", "sleep 3"]));
    assert_eq!(status["jobDeploymentStatus"], "Initializing");
    let (_, status) = next(&job, &become_of(&plan, |_| "Ready"));
    assert_eq!(
        (&status["jobDeploymentStatus"], &status["rayClusterStatus"]["state"]),
        (&json!("Running"), &json!("ready"))
    );
    let ends = become_of(&plan, |name| if name == "j-submitter" { "Succeeded" } else { "Ready" });
    let (plan, status) = next(&job, &ends);
    assert_eq!(
        (&status["jobDeploymentStatus"], &status["jobStatus"]),
        (&json!("Complete"), &json!("SUCCEEDED"))
    );
    assert_eq!(plan.delete.len(), 3, "the cluster goes with its job");
    job["spec"]["suspend"] = json!(true);
    assert_eq!(next(&job, &[]).1["jobDeploymentStatus"], "Suspended");
}

#[test]
fn groups_of_leader_worker_sets_come_and_go() {
    let of = |replicas: i64| {
        object(
            "LeaderWorkerSet",
            &json!({"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}}),
        )
    };
    let (plan, _) = next(&of(2), &[]);
    assert_eq!(names(&plan), ["j-0", "j-0-1", "j-1", "j-1-1"]);
    let annotations = &plan.create[3]["metadata"]["annotations"];
    assert_eq!(annotations["leaderworkerset.sigs.k8s.io/leader-name"], "j-1");
    let pods = become_of(&plan, |name| if name.starts_with("j-0") { "Ready" } else { "Pending" });
    let (plan, status) = next(&of(2), &pods);
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(2), &json!(1)));
    assert!(plan.create.is_empty());
    assert_eq!(next(&of(1), &pods).0.delete.len(), 2);
}

#[test]
fn every_operator_has_a_definition() {
    let mut names = BTreeSet::new();
    for operator in &OPERATORS {
        let definitions = operator.definitions();
        let definition = definitions.last().unwrap();
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let (plural, group) = name.split_once('.').unwrap();
        assert_eq!(operator.resource.storage, format!("{group}/{plural}"));
        assert!(names.insert(name));
    }
}

#[test]
fn a_train_job_has_the_pods_of_its_runtime() {
    let reads = operator("TrainJob").reads.as_ref().unwrap();
    let mut job = object(
        "TrainJob",
        &json!({"suspend": true, "runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}}),
    );
    assert_eq!((reads.of)(&job), (0, "torch"));
    job["spec"]["runtimeRef"]["kind"] = json!("TrainingRuntime");
    assert_eq!((reads.of)(&job), (1, "torch"));
    let step = |name: &str, step: &str| {
        json!({"name": name, "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}}, "spec": {"template": template()}}})
    };
    let runtime = json!({"spec": {"template": {"spec": {"replicatedJobs": [
        step("data", "dataset-initializer"), step("node", "trainer")]}}}});
    let completed = |job: &Value| (reads.completed)(job, &runtime);
    let (plan, status) = next(&completed(&job), &[]);
    assert!(plan.create.is_empty() && is_true(&status, "Suspended"), "{status}");
    job["status"] = status;
    job["spec"]["suspend"] = json!(false);
    let (plan, status) = next(&completed(&job), &[]);
    assert_eq!(names(&plan), ["j-data-0-0", "j-node-0-0", "j-node-0-1"]);
    assert_eq!(plan.create[0]["metadata"]["ownerReferences"][0]["kind"], "TrainJob");
    job["status"] = status;
    let pods = become_of(&plan, |name| if name.starts_with("j-data") { "Succeeded" } else { "Ready" });
    let (_, status) = next(&completed(&job), &pods);
    let row = |name: &str, ready: i64, succeeded: i64, active: i64| json!({"name": name, "ready": ready, "succeeded": succeeded, "failed": 0, "active": active, "suspended": 0});
    assert_eq!(status["jobsStatus"], json!([row("data", 0, 1, 0), row("node", 1, 0, 1)]));
    job["status"] = status;
    let (_, status) = next(&completed(&job), &become_of(&plan, |_| "Succeeded"));
    assert!(is_true(&status, "Complete"), "{status}");
}

#[test]
fn wrapped_pods_get_what_was_assigned_and_end_the_wrapper() {
    let component = json!({"template": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {
            "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template()},
                "Worker": {"replicas": 2, "template": template()}}}},
        "podSetInfos": [{}, {"nodeSelector": {"zone": "a"}, "labels": {"given": "y"}}]});
    let serving = json!({"template": {"apiVersion": "apps/v1", "kind": "Deployment",
        "spec": {"replicas": 1, "template": template()}}});
    let mut wrapper = object("AppWrapper", &json!({"suspend": true, "components": [component, serving]}));
    let (plan, status) = next(&wrapper, &[]);
    assert!(plan.create.is_empty() && status["phase"] == "Suspended", "{status}");
    wrapper["spec"]["suspend"] = json!(false);
    let (plan, status) = next(&wrapper, &[]);
    assert_eq!(names(&plan), ["j-0-0-0", "j-0-1-0", "j-0-1-1", "j-1-0-0"]);
    let (worker, server) = (&plan.create[1], &plan.create[3]);
    assert_eq!(worker["spec"]["nodeSelector"]["zone"], "a");
    assert_eq!(worker["metadata"]["labels"]["given"], "y");
    assert_eq!(
        (&worker["spec"]["restartPolicy"], &server["spec"]["restartPolicy"]),
        (&json!("OnFailure"), &Value::Null)
    );
    assert!(is_true(&status, "QuotaReserved") && !is_true(&status, "PodsReady"), "{status}");
    let (_, status) = next(&wrapper, &become_of(&plan, |_| "Ready"));
    assert!(status["phase"] == "Running" && is_true(&status, "PodsReady"), "{status}");
    let (_, status) = next(&wrapper, &become_of(&plan, |_| "Succeeded"));
    assert!(status["phase"] == "Succeeded" && !is_true(&status, "QuotaReserved"), "{status}");
    let (more, status) =
        next(&wrapper, &become_of(&plan, |name| if name == "j-0-0-0" { "Failed" } else { "Ready" }));
    assert!(status["phase"] == "Failed" && !is_true(&status, "ResourcesDeployed"), "{status}");
    assert_eq!(more.delete.len(), 3);
}

#[test]
fn spark_applications_end_with_their_driver() {
    let app = object(
        "SparkApplication",
        &json!({"image": "spark", "driver": {"coreRequest": "1", "memory": "1g"}, "executor": {"instances": 2}}),
    );
    let (plan, status) = next(&app, &[]);
    assert_eq!(names(&plan), ["j-driver", "j-exec-1", "j-exec-2"]);
    let container = &plan.create[0]["spec"]["containers"][0];
    assert_eq!(
        (&container["image"], &container["resources"]["requests"]["memory"]),
        (&json!("spark"), &json!("1Gi"))
    );
    assert_eq!(status["applicationState"]["state"], "SUBMITTED");
    let (_, status) = next(&app, &become_of(&plan, |_| "Ready"));
    assert_eq!(status["applicationState"]["state"], "RUNNING");
    assert_eq!(status["executorState"], json!({"j-exec-1": "RUNNING", "j-exec-2": "RUNNING"}));
    let ends = become_of(&plan, |name| if name == "j-driver" { "Succeeded" } else { "Ready" });
    let (more, status) = next(&app, &ends);
    assert_eq!(status["applicationState"]["state"], "COMPLETED");
    assert_eq!(more.delete.len(), 2, "executors go with their driver");
}
