//! Kinds that JobKinds declare: the built-in kinds say the same when they are declared, and a kind of one's own comes and goes.

use plimsoll_api::resource::{JOB_KINDS, PODS};
use serde_json::json;

use super::*;
use crate::declaration::Declaration;
use crate::kinds::declared::DeclaredJob;
use crate::kinds::kubeflow::PYTORCH_JOB;
use crate::kinds::ray::RAY_CLUSTER;
use crate::webhook::concerns_declared;
use crate::{Key, affected};

/// Kubeflow's PyTorchJob.
fn py_torch() -> Value {
    let ended = "object.status.conditions.filter(c, c.status == 'True' && c.type in ['Succeeded', 'Failed'])";
    let pod_set = |kind: &str| {
        let at = format!("object.spec.pytorchReplicaSpecs.{kind}");
        json!({"name": kind.to_lowercase(), "templatePath": format!(".spec.pytorchReplicaSpecs.{kind}.template"),
            "count": format!("has({at}.replicas) ? {at}.replicas : 1"),
            "podIndexLabel": "training.kubeflow.org/replica-index"})
    };
    let statuses = "object.status.replicaStatuses";
    json!({"metadata": {"name": "pytorchjobs.kubeflow.org"}, "spec": {
        "group": "kubeflow.org", "versions": ["v1"], "plural": "pytorchjobs", "kind": "PyTorchJob",
        "suspendPath": ".spec.runPolicy.suspend",
        "podSets": [pod_set("Master"), pod_set("Worker")],
        "active": format!("has({statuses}) && {statuses}.exists(k, has({statuses}[k].active) && {statuses}[k].active != 0)"),
        "finished": format!("has(object.status.conditions) && size({ended}) > 0"),
        "succeeded": format!("{ended}[0].type == 'Succeeded'"),
        "message": format!("has({ended}[0].message) ? {ended}[0].message : ''"),
        "podsReady": "has(object.status.conditions) && object.status.conditions.exists(c, c.type == 'Running' && c.status == 'True')",
        "priorityClassPath": ".spec.runPolicy.schedulingPolicy.priorityClass"}})
}

/// A RayCluster without sidecars.
fn ray_cluster() -> Value {
    let ready = "has(object.status.state) && object.status.state == 'ready'";
    json!({"metadata": {"name": "rayclusters.ray.io"}, "spec": {
        "group": "ray.io", "versions": ["v1"], "plural": "rayclusters", "kind": "RayCluster",
        "suspendPath": ".spec.suspend",
        "podSets": [
            {"name": "head", "templatePath": ".spec.headGroupSpec.template"},
            {"forEachPath": ".spec.workerGroupSpecs", "nameExpression": "item.groupName", "templatePath": ".template",
             "count": "(has(item.replicas) ? item.replicas : 1) * (has(item.numOfHosts) ? item.numOfHosts : 1)"}],
        "active": ready, "finished": "false", "podsReady": ready}})
}

/// Plans of the built-in kind and of the declared one, which are the same, in each state of a job's life.
fn same(table: &'static JobKind, kind: &Value, object: &Value, statuses: &[Value]) {
    let declaration = Declaration::read(kind).unwrap();
    let resource = table.kind.preferred();
    let mut fixture = Fixture::default();
    fixture.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
    fixture.put(Kind::PriorityClass, json!({"metadata": {"name": "high"}, "value": 7}));
    let plans = |fixture: &Fixture, object: &Value| {
        let declared = DeclaredJob::new(&declaration, resource, object).unwrap();
        let built_in = TableJob { table, resource, object, cluster: None };
        assert_eq!(declared.pod_sets(), built_in.pod_sets());
        let plan = reconciler::of_job(&declared, fixture.env(NOW)).unwrap();
        assert_eq!(plan, reconciler::of_job(&built_in, fixture.env(NOW)).unwrap(), "{object}");
        plan
    };
    let plan = plans(&fixture, object);
    let Some(Write::Create(_, made)) = plan.first() else { panic!("{plan:?}") };
    let wl = admitted(made);
    fixture.put(Kind::Workload, wl.clone());
    let mut started = patched(object, &plans(&fixture, object), resource);
    assert!(!is_suspended(table, &started));
    fixture.config.wait_for_pods_ready = true;
    for status in statuses {
        started["status"] = status.clone();
        plans(&fixture, &started);
    }
    fixture.put(Kind::Workload, with_condition(&wl, "Evicted", "Preempted"));
    for status in statuses {
        started["status"] = status.clone();
        plans(&fixture, &started);
    }
}

#[test]
fn built_in_kinds_behave_the_same_when_they_are_declared() {
    let replica = |n: i64| json!({"replicas": n, "template": template()});
    let condition = |kind: &str| {
        json!({"conditions": [{"type": "Created", "status": "True"},
        {"type": kind, "status": "True", "message": "why"}], "replicaStatuses": {"Worker": {"active": 1}, "Master": {}}})
    };
    let statuses = [
        json!({}),
        condition("Running"),
        condition("Succeeded"),
        condition("Failed"),
        json!({"replicaStatuses": {}}),
    ];
    let run = |extra: Value| {
        let mut spec =
            json!({"pytorchReplicaSpecs": {"Master": {"template": template()}, "Worker": replica(3)}});
        json::set(&mut spec, &["runPolicy"], extra);
        job(&PYTORCH_JOB, &spec)
    };
    same(&PYTORCH_JOB, &py_torch(), &run(json!({})), &statuses);
    same(&PYTORCH_JOB, &py_torch(), &run(json!({"schedulingPolicy": {"priorityClass": "high"}})), &statuses);
    let workers = job(&PYTORCH_JOB, &json!({"pytorchReplicaSpecs": {"Worker": replica(2)}}));
    same(&PYTORCH_JOB, &py_torch(), &workers, &statuses);

    let group = |name: &str, n: i64| json!({"groupName": name, "replicas": n, "numOfHosts": 2, "template": template()});
    let spec = json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group("Small", 1), group("large", 3)]});
    let cluster = job(&RAY_CLUSTER, &spec);
    same(
        &RAY_CLUSTER,
        &ray_cluster(),
        &cluster,
        &[json!({}), json!({"state": "ready"}), json!({"state": "failed"})],
    );
}

const TRAINS: Resource = Resource { api_version: "example.com/v1", plural: "trains", kind: "Train" };

fn train_kind() -> Value {
    json!({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "JobKind",
        "metadata": {"name": "trains.example.com", "uid": "k", "resourceVersion": "1", "generation": 1},
        "spec": {"group": "example.com", "versions": ["v2", "v1"], "plural": "trains", "kind": "Train",
            "suspendPath": ".spec.paused", "active": "object.status.cars > 0",
            "finished": "has(object.status.arrived)",
            "podSets": [{"name": "cars", "templatePath": ".spec.cars.pod", "count": "object.spec.cars.number"}]}})
}

fn train() -> Value {
    json!({"metadata": {"namespace": "ns", "name": "t", "uid": "tu", "resourceVersion": "1", "labels": {names::QUEUE: "q"}},
        "spec": {"cars": {"number": 2, "pod": template()}}, "status": {"cars": 0}})
}

fn next(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = object.clone();
    let version: u32 = json::version(&object).parse().unwrap();
    object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    change(&mut object);
    object
}

/// Reason of the condition `Ready` after the next write of the JobKind.
fn ready(fixture: &Fixture) -> Option<(String, String)> {
    let plan = crate::reconcile(&Key::JobKind("trains.example.com".into()), fixture.env(NOW));
    let Some(Write::Patch { body, .. }) = plan.first() else { return None };
    let ready = json::condition(body, "Ready")?;
    Some((json::text(ready, &["reason"]).to_owned(), json::text(ready, &["message"]).to_owned()))
}

#[test]
fn a_kind_of_ones_own_is_queued_while_it_is_declared() {
    let mut fixture = Fixture::default();
    let name = || Key::JobKind("trains.example.com".into());
    let review = Review {
        group: "example.com",
        plural: "trains",
        operation: Operation::Create,
        namespace: "ns",
        old: None,
    };
    assert!(!concerns_declared("example.com", "trains", "", &fixture));
    fixture.put(Kind::JobKind, train_kind());
    assert!(concerns_declared("example.com", "trains", "", &fixture));
    let custom = fixture.declared_kinds().next().unwrap();
    assert_eq!(custom.framework(), "example.com/train");
    // Its finalizer, then why its jobs are not queued yet.
    let plan = crate::reconcile(&name(), fixture.env(NOW));
    let kind = patched(&train_kind(), &plan, JOB_KINDS);
    assert_eq!(kind["metadata"]["finalizers"], json!(["plimsoll.dev/job-kind"]));
    fixture.put(Kind::JobKind, kind.clone());
    assert_eq!(ready(&fixture).unwrap().0, "NotServed");
    let of_kind = Kind::Custom(custom);
    assert_eq!(fixture.kind_of(TRAINS), Some(of_kind));
    fixture.serve(of_kind, Some(TRAINS));
    assert_eq!(ready(&fixture).unwrap().0, "Served");

    let mut made = train();
    mutate(&review, &mut made, fixture.env(NOW));
    assert_eq!(made["spec"]["paused"], true);
    validate(&review, &made, fixture.env(NOW)).unwrap();
    let key = Key::job("example.com/train", "ns", "t");
    assert_eq!(affected(of_kind, &made, &fixture), std::slice::from_ref(&key));
    // Before the first list nobody knows whether it is there.
    assert_eq!(
        crate::reconcile(&key, fixture.env(NOW)),
        [Write::RequeueAfter(std::time::Duration::from_secs(1))]
    );
    fixture.put(of_kind, made.clone());
    fixture.listed(of_kind, "1");
    let plan = crate::reconcile(&key, fixture.env(NOW));
    let Some(Write::Create(_, wl)) = plan.first() else { panic!("{plan:?}") };
    assert_eq!(wl["metadata"]["ownerReferences"][0]["apiVersion"], "example.com/v1");
    fixture.put(Kind::Workload, admitted(wl));
    fixture.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
    let running = patched(&made, &crate::reconcile(&key, fixture.env(NOW)), TRAINS);
    assert_eq!(
        (&running["spec"]["paused"], &running["spec"]["cars"]["pod"]["spec"]["nodeSelector"]),
        (&json!(false), &json!({"zone": "a"}))
    );
    fixture.put(of_kind, next(&running, |train| train["status"]["arrived"] = json!(true)));
    let plan = crate::reconcile(&key, fixture.env(NOW));
    assert!(matches!(plan.first(), Some(Write::Patch { subresource: "status", .. })), "{plan:?}");
    // A job within it is not queued, one within a train that is not known yet waits.
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Train", "name": "t", "uid": "tu", "controller": true}]);
    let pod = json!({"metadata": {"namespace": "ns", "name": "p", "ownerReferences": owner, "labels": {names::QUEUE: "q"}}, "spec": {}});
    let mut within = pod.clone();
    let pods = Review { group: "", plural: PODS.plural, ..review };
    mutate(&pods, &mut within, fixture.env(NOW));
    assert_eq!(within, pod);

    // It goes: the workloads of its jobs are let go, then the JobKind.
    fixture.put(
        Kind::JobKind,
        next(&kind, |kind| {
            kind["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
    );
    let plan = crate::reconcile(&name(), fixture.env(NOW));
    assert!(
        plan.iter().any(|w| matches!(w, Write::Delete { resource, .. } if resource.kind == "Workload")),
        "{plan:?}"
    );
    assert_eq!(crate::reconcile(&key, fixture.env(NOW)), Plan::new());
    let wl = admitted(wl);
    fixture.remove(Kind::Workload, "ns", json::name(&wl), "wu");
    let plan = crate::reconcile(&name(), fixture.env(NOW));
    assert!(
        matches!(plan.as_slice(), [Write::Patch { body, .. }] if body["metadata"]["finalizers"] == json!([])),
        "{plan:?}"
    );
    fixture.remove(Kind::JobKind, "", "trains.example.com", "k");
    assert!(fixture.declared_kinds().next().is_none());
    assert!(!concerns_declared("example.com", "trains", "", &fixture));
}

/// An expression that fails concerns its job alone; the JobKind says so once.
#[test]
fn jobs_that_can_t_be_read_are_reported() {
    let mut fixture = Fixture::default();
    fixture.put(Kind::JobKind, train_kind());
    let custom = Kind::Custom(fixture.declared_kinds().next().unwrap());
    let broken = next(&train(), |train| drop(json::remove(train, &["spec", "cars", "number"])));
    fixture.put(custom, broken.clone());
    let key = Key::job("example.com/train", "ns", "t");
    let plan = crate::reconcile(&key, fixture.env(NOW));
    let [Write::Event(event), Write::Patch { body, .. }] = plan.as_slice() else { panic!("{plan:?}") };
    assert_eq!(
        (event.reason.as_str(), event.message.as_str()),
        ("ErrWorkloadCompose", "spec.podSets[0].count: no such key: number")
    );
    let failed = json::condition(body, "Evaluates").unwrap();
    assert_eq!(failed["message"], "ns/t: spec.podSets[0].count: no such key: number");
    fixture.put(Kind::JobKind, next(&train_kind(), |kind| kind["status"] = body["status"].clone()));
    assert_eq!(crate::reconcile(&key, fixture.env(NOW)).len(), 1);
    let review = Review {
        group: "example.com",
        plural: "trains",
        operation: Operation::Create,
        namespace: "ns",
        old: None,
    };
    let refused = validate(&review, &broken, fixture.env(NOW)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "admission webhook \"vtrain.kb.io\" denied the request: spec: Invalid value: \
        spec.podSets[0].count: no such key: number"
    );
    let nothing = next(&train(), |train| drop(json::remove(train, &["spec", "cars", "pod"])));
    let refused = validate(&review, &nothing, fixture.env(NOW)).unwrap_err();
    assert!(refused.message.ends_with("there is no pod template at spec.cars.pod"), "{}", refused.message);
}

#[test]
fn what_is_wrong_with_a_declaration_is_named() {
    let wrong = |path: &[&str], value: Value| {
        let mut kind = train_kind();
        json::set(&mut kind, path, value);
        let mut fixture = Fixture::default();
        fixture.put(Kind::JobKind, kind);
        assert!(fixture.declared_kinds().next().is_none(), "{path:?}");
        let (reason, message) = ready(&fixture).unwrap();
        assert_eq!(reason, "Invalid");
        message
    };
    let costly = "object.a.exists(x, object.b.exists(y, object.c.exists(z, x == y && y == z)))";
    let table: [(&[&str], Value, &str); 10] = [
        (
            &["metadata", "name"],
            json!("trains"),
            "metadata.name: Invalid value: \"trains\": must be \"trains.example.com\"",
        ),
        (
            &["spec", "suspendPath"],
            json!("spec.paused"),
            "spec.suspendPath: Invalid value: \"spec.paused\": must begin with a dot",
        ),
        (&["spec", "suspendPath"], json!(".spec[0]"), "must not lead through a list"),
        (&["spec", "suspendPath"], json!(".spec..x"), "a name is missing"),
        (
            &["spec", "active"],
            json!("object.status."),
            "spec.active: Invalid value: \"object.status.\": compilation failed",
        ),
        (&["spec", "active"], json!("'yes'"), "spec.active: Invalid value: \"'yes'\": must evaluate to bool"),
        (&["spec", "active"], json!("job.status"), "undeclared reference to 'job'"),
        (&["spec", "finished"], json!(costly), "exceeds the limit of 10000000"),
        (&["spec", "podSets"], json!([]), "spec.podSets: Required value"),
        (&["spec", "podSets"], json!([{"templatePath": ".spec.x"}]), "either name or nameExpression"),
    ];
    for (path, value, want) in table {
        if path[0] == "metadata" {
            // It is kept under its own name.
            let mut kind = train_kind();
            json::set(&mut kind, path, value);
            let errors = Declaration::read(&kind).unwrap_err();
            assert!(errors[0].starts_with(want), "{errors:?}");
            continue;
        }
        let message = wrong(path, value);
        assert!(message.contains(want), "{path:?}: {message}");
    }
    let mut fixture = Fixture::default();
    fixture.put(Kind::JobKind, py_torch());
    let known = fixture.job_kind("pytorchjobs.kubeflow.org").unwrap();
    let why = known.declaration.as_ref().unwrap_err();
    assert!(
        why[0].contains("queued by the integration kubeflow.org/pytorchjob, which is built in"),
        "{why:?}"
    );
}
