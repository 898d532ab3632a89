//! TrainJobs (Kueue `trainjob_controller_test.go`, `trainjob_webhook_test.go`).

use serde_json::json;

use super::*;
use crate::Key;
use crate::custom_kind::CustomKind;

const RUNTIME: Kind = Kind::Custom(CustomKind::CLUSTER_TRAINING_RUNTIME);

fn runtime(annotations: &Value) -> Value {
    let step = |name: &str, step: &str| {
        let labels = json!({"trainer.kubeflow.org/trainjob-ancestor-step": step});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "node", "image": "i",
            "resources": {"requests": {"cpu": "1"}}}]}});
        json!({"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": pod}}})
    };
    json!({"metadata": {"name": "torch", "uid": "r"}, "spec": {"mlPolicy": {"numNodes": 2},
        "template": {"spec": {"replicatedJobs": [step("data", "dataset-initializer"), step("node", "trainer")]}}}})
}

fn train_job(trainer: &Value) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "j", "uid": "ju", "resourceVersion": "1", "labels": {names::QUEUE: "q"}},
        "spec": {"suspend": true, "runtimeRef": {"name": "torch"}, "trainer": trainer, "runtimePatches": [
            {"manager": "example.com/user", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
                {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}}]}}}},
            {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}]}})
}

fn plan_of(fixture: &mut Fixture, object: &Value) -> Plan {
    fixture.put(Kind::Custom(CustomKind::TRAIN_JOB), object.clone());
    crate::reconcile(&Key::job("trainer.kubeflow.org/trainjob", "ns", "j"), fixture.env(NOW))
}

#[test]
fn a_train_job_has_the_podsets_of_its_runtime() {
    let mut fixture = Fixture::default();
    let plan = plan_of(&mut fixture, &train_job(&json!({})));
    assert!(matches!(plan.as_slice(), [Write::RequeueAfter(_)]), "its runtime is not known: {plan:?}");
    let torch = runtime(&json!({}));
    fixture.put(RUNTIME, torch.clone());
    assert_eq!(
        crate::affected(RUNTIME, &torch, &fixture),
        [Key::job("trainer.kubeflow.org/trainjob", "ns", "j")]
    );
    let mut pod_sets = |trainer: Value| {
        let plan = plan_of(&mut fixture, &train_job(&trainer));
        let Some(Write::Create(_, wl)) = plan.first() else { panic!("{plan:?}") };
        json::list(wl, &["spec", "podSets"]).to_vec()
    };
    let counts = |pod_sets: &[Value]| -> Vec<(String, i64)> {
        pod_sets.iter().map(|p| (json::text(p, &["name"]).to_owned(), p["count"].as_i64().unwrap())).collect()
    };
    let all = pod_sets(json!({}));
    assert_eq!(counts(&all), [("data".to_owned(), 1), ("node".to_owned(), 2)]);
    assert_eq!(all[1]["template"]["spec"]["nodeSelector"], json!({"disk": "ssd"}));
    let all =
        pod_sets(json!({"numNodes": 5, "image": "own", "resourcesPerNode": {"requests": {"cpu": "3"}}}));
    assert_eq!(counts(&all)[1].1, 5);
    let container = &all[1]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["image"], &container["resources"]["requests"]["cpu"]),
        (&json!("own"), &json!("3"))
    );
    assert_eq!(all[0]["template"]["spec"]["containers"][0]["image"], "i");

    // A replicated job has at least one pod, whatever the runtime says.
    let mut none = torch;
    none["spec"]["mlPolicy"] = json!({"numNodes": 0});
    none["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = json!(0);
    fixture.put(RUNTIME, none.clone());
    let plan = plan_of(&mut fixture, &train_job(&json!({})));
    let Some(Write::Create(_, wl)) = plan.first() else { panic!("{plan:?}") };
    let sizes = json::list(wl, &["spec", "podSets"]).iter().map(|p| p["count"].clone());
    assert_eq!(sizes.collect::<Vec<_>>(), [json!(1), json!(1)]);
    // What an admission has brought is for the pods, not for the podsets.
    let mut started = train_job(&json!({}));
    started["spec"]["runtimePatches"][1]["trainingRuntimeSpec"]["template"]["spec"] = json!({"replicatedJobs": [
        {"name": "data", "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}}]});
    let set = crate::train_job_set(&started, &none["spec"]);
    let spec = |i: usize| &set["spec"]["replicatedJobs"][i]["template"]["spec"]["template"]["spec"];
    assert_eq!(
        (&spec(0)["nodeSelector"], &spec(1)["nodeSelector"]),
        (&json!({"zone": "a"}), &json!({"disk": "ssd"}))
    );
}

#[test]
fn a_train_job_is_patched_before_it_runs() {
    let mut fixture = Fixture::default();
    let resource = CustomKind::TRAIN_JOB.preferred();
    fixture.put(RUNTIME, runtime(&json!({})));
    fixture.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
    let object = train_job(&json!({}));
    let plan = plan_of(&mut fixture, &object);
    let Some(Write::Create(_, made)) = plan.first() else { panic!("{plan:?}") };
    let wl = admitted(made);
    fixture.put(Kind::Workload, wl.clone());
    let plan = plan_of(&mut fixture, &object);
    assert_eq!(plan.len(), 1, "it does not run yet: {plan:?}");
    let patched_job = patched(&object, &plan, resource);
    assert_eq!(patched_job["spec"]["suspend"], true);
    let own = &patched_job["spec"]["runtimePatches"][1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"];
    assert_eq!((&own[0]["name"], &own[1]["name"]), (&json!("data"), &json!("node")));
    assert_eq!(own[1]["template"]["spec"]["template"]["spec"], json!({"nodeSelector": {"zone": "a"}}));
    let plan = plan_of(&mut fixture, &patched_job);
    assert!(plan.iter().any(|w| matches!(w, Write::Event(e) if e.reason == "Started")), "{plan:?}");
    let mut running = patched(&patched_job, &plan, resource);
    assert_eq!(running["spec"]["suspend"], false);
    assert_eq!(plan_of(&mut fixture, &running), Plan::new());

    // Evicted: suspended, then restored when no pod runs any more, then its quota is free.
    let row =
        |active: i64| json!({"jobsStatus": [{"name": "node", "active": active, "ready": 0, "succeeded": 0}]});
    running["status"] = row(1);
    fixture.put(Kind::Workload, with_condition(&wl, "Evicted", "Preempted"));
    let mut stopped = patched(&running, &plan_of(&mut fixture, &running), resource);
    assert_eq!(stopped["spec"]["suspend"], true);
    assert_eq!(plan_of(&mut fixture, &stopped), Plan::new());
    stopped["status"] = row(0);
    let mut restored = patched(&stopped, &plan_of(&mut fixture, &stopped), resource);
    assert!(matches!(plan_of(&mut fixture, &restored).as_slice(), [Write::WorkloadStopped { .. }]));
    json::remove(&mut restored, &["status"]);
    assert_eq!(restored, object);

    let mut ended = running;
    ended["status"] = json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]});
    fixture.put(Kind::Workload, wl);
    let plan = plan_of(&mut fixture, &ended);
    assert!(matches!(plan.as_slice(), [Write::Patch { subresource: "status", .. }]), "{plan:?}");
}

#[test]
fn a_train_job_gets_a_patch_of_its_own_and_valid_templates() {
    let mut fixture = Fixture::default();
    fixture.put(RUNTIME, runtime(&json!({"kueue.x-k8s.io/podset-slice-size": "1"})));
    let resource = CustomKind::TRAIN_JOB.preferred();
    let review = Review {
        group: resource.group(),
        plural: resource.plural,
        operation: Operation::Create,
        namespace: "ns",
        old: None,
    };
    let mut object = train_job(&json!({}));
    object["spec"]["runtimePatches"].as_array_mut().unwrap().truncate(1);
    json::set(&mut object, &["spec", "suspend"], json!(false));
    mutate(&review, &mut object, fixture.env(NOW));
    let mut want = train_job(&json!({}));
    want["spec"]["suspend"] = json!(true);
    assert_eq!(object, want);
    let refused = validate(&review, &object, fixture.env(NOW)).unwrap_err().message;
    let start = "[job[data].annotations[kueue.x-k8s.io/podset-slice-size]: Forbidden: may not be set";
    let end = "Adjust either the \"TrainJob.spec.runtimePatches\" or the \"TrainingRuntime.Template\" annotations for the \
               corresponding Job]";
    assert!(refused.starts_with(start) && refused.ends_with(end), "{refused}");
}
