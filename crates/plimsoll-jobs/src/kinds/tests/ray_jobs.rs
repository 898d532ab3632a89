//! Ray's kinds (Kueue `pkg/controller/jobs/{raycluster,rayjob,rayservice}/*_test.go`).

use super::*;
use crate::kinds::ray::{RAY_CLUSTER, RAY_JOB, RAY_SERVICE};

pub(super) fn cluster(groups: &[(&str, Option<i64>, Option<i64>)]) -> Value {
    let group = |(name, replicas, hosts): &(&str, Option<i64>, Option<i64>)| {
        let mut group = json!({"groupName": name, "template": template(), "rayStartParams": {}});
        for (key, n) in [("replicas", replicas), ("numOfHosts", hosts)] {
            if let Some(n) = n {
                group[key] = json!(n);
            }
        }
        group
    };
    let groups: Vec<Value> = groups.iter().map(group).collect();
    json!({"headGroupSpec": {"template": template(), "rayStartParams": {}}, "workerGroupSpecs": groups})
}

/// An object of each kind around a cluster; the RayJob has no Job that submits it.
pub(super) fn around(table: &JobKind, cluster: &Value) -> Value {
    match table.kind {
        CustomKind::RAY_CLUSTER => job(table, cluster),
        CustomKind::RAY_JOB => {
            let spec = json!({"rayClusterSpec": cluster, "shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode"});
            job(table, &spec)
        }
        _ => job(table, &json!({"rayClusterConfig": cluster})),
    }
}

pub(super) const ALL: [&JobKind; 3] = [&RAY_CLUSTER, &RAY_JOB, &RAY_SERVICE];

#[test]
fn a_cluster_has_a_head_and_groups_of_workers() {
    let groups = [
        ("Small", None, None),
        ("large", Some(3), Some(1)),
        ("hosts", Some(2), Some(4)),
        ("none", Some(0), Some(0)),
    ];
    for table in ALL {
        let object = around(table, &cluster(&groups));
        let want = [("head", 1), ("small", 1), ("large", 3), ("hosts", 8), ("none", 0)];
        assert_eq!(counts(table, &object), want.map(|(name, n)| (name.to_owned(), n)));
        lives(table, &object);
    }
}

#[test]
fn a_ray_job_is_submitted_by_a_job_of_its_own() {
    let mut object = around(&RAY_JOB, &cluster(&[("w", Some(2), None)]));
    object["spec"]["submissionMode"] = json!("K8sJobMode");
    object["spec"]["submitterPodTemplate"] = template();
    let want = [("head", 1), ("w", 2), ("submitter", 1)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(counts(&RAY_JOB, &object), want);
    lives(&RAY_JOB, &object);

    // KubeRay's default where there is no template: with the head's image. A null would not come back from the API server,
    // and the workload would not match.
    object["spec"].as_object_mut().unwrap().remove("submitterPodTemplate");
    let pod_sets = table_job(&RAY_JOB, &object).pod_sets();
    assert!(pod_sets[2]["template"]["spec"]["containers"][0].get("image").is_none());
    object["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] =
        json!("ray:2");
    let job = table_job(&RAY_JOB, &object);
    let pod_sets = job.pod_sets();
    let container = &pod_sets[2]["template"]["spec"]["containers"][0];
    assert_eq!((&container["name"], &container["image"]), (&json!("ray-job-submitter"), &json!("ray:2")));
    assert_eq!(container["resources"]["requests"], json!({"cpu": "500m", "memory": "200Mi"}));
    let infos = ["head", "w", "submitter"].map(|name| PodSetInfo {
        name: name.into(),
        node_selector: json!({"zone": "a"}).as_object().unwrap().clone(),
        ..PodSetInfo::default()
    });
    let mut started = object.clone();
    job.run_with_pod_sets_info(&mut started, &infos).unwrap();
    let submitter = &started["spec"]["submitterPodTemplate"]["spec"];
    assert_eq!((&submitter["nodeSelector"]["zone"], &submitter["containers"][0]), (&json!("a"), container));
    let wrong = job.run_with_pod_sets_info(&mut object.clone(), &infos[..2]);
    assert_eq!(wrong.unwrap_err(), "invalid podset infos: expecting 3 podset, got 2");
}

#[test]
fn the_head_is_charged_for_what_runs_beside_it() {
    let requests = |table: &'static JobKind, change: &dyn Fn(&mut Value, &mut Value)| -> Vec<Value> {
        let mut spec = cluster(&[]);
        let mut object = json!({});
        change(&mut spec, &mut object);
        let mut whole = around(table, &spec);
        merge(&mut whole, &object);
        let pod_sets = table_job(table, &whole).pod_sets();
        let containers = json::list(&pod_sets[0], &["template", "spec", "containers"]);
        containers.iter().map(|c| c["resources"]["requests"].clone()).collect()
    };
    let sidecar = json!({"cpu": "500m", "memory": "512Mi"});
    for table in ALL {
        assert_eq!(requests(table, &|_, _| ()), [Value::Null]);
        assert_eq!(
            requests(table, &|c, _| c["enableInTreeAutoscaling"] = json!(true)),
            [Value::Null, sidecar.clone()]
        );
        let own = |c: &mut Value, _: &mut Value| {
            c["enableInTreeAutoscaling"] = json!(true);
            c["autoscalerOptions"] = json!({"resources": {"requests": {"cpu": "1"}}});
        };
        assert_eq!(requests(table, &own), [Value::Null, json!({"cpu": "1"})]);
        let cleanup = json!({"cpu": "200m", "memory": "256Mi"});
        assert_eq!(requests(table, &|c, _| c["gcsFaultToleranceOptions"] = json!({})), [cleanup]);
        let annotated = |c: &mut Value, o: &mut Value| {
            *o = json!({"metadata": {"annotations": {"ray.io/ft-enabled": "True"}}});
            c["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"requests": {"cpu": 1, "memory": "1Mi"}});
        };
        assert_eq!(requests(table, &annotated), [json!({"cpu": 1, "memory": "256Mi"})]);
    }
    let sidecar_mode = |_: &mut Value, o: &mut Value| *o = json!({"spec": {"submissionMode": "SidecarMode"}});
    assert_eq!(requests(&RAY_JOB, &sidecar_mode), [Value::Null, json!({"cpu": "500m", "memory": "200Mi"})]);
}

#[test]
fn their_status_says_what_they_do() {
    // Status; whether pods are ready, whether any runs, how it ended.
    type Row = (&'static JobKind, Value, bool, bool, Option<bool>);
    let deployment =
        |status: &str, job: &str| json!({"jobDeploymentStatus": status, "jobStatus": job, "message": "m"});
    let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
    let table: [Row; 11] = [
        (&RAY_CLUSTER, json!({"state": "ready"}), true, true, None),
        (&RAY_CLUSTER, json!({"state": "failed"}), false, false, None),
        (&RAY_JOB, json!({}), false, false, None),
        (&RAY_JOB, deployment("Suspended", ""), false, false, None),
        (&RAY_JOB, deployment("Running", "RUNNING"), false, true, None),
        (
            &RAY_JOB,
            json!({"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}),
            true,
            true,
            None,
        ),
        (&RAY_JOB, deployment("Complete", "SUCCEEDED"), false, true, Some(true)),
        (&RAY_JOB, deployment("Complete", "FAILED"), false, true, Some(false)),
        (&RAY_JOB, deployment("Failed", ""), false, true, Some(false)),
        (&RAY_SERVICE, ready("True"), true, true, None),
        (&RAY_SERVICE, ready("False"), false, false, None),
    ];
    for (kind, status, pods_ready, active, ended) in table {
        let mut object = around(kind, &cluster(&[]));
        object["status"] = status.clone();
        let job = table_job(kind, &object);
        assert_eq!(
            (job.pods_ready(), job.is_active(QuotaReleaseStrategy::OnTerminal)),
            (pods_ready, active),
            "{status}"
        );
        assert_eq!(job.finished().map(|f| f.success), ended, "{status}");
    }
    assert_eq!(end(&RAY_JOB, &deployment("Complete", "SUCCEEDED")), Some((true, "m".into())));
}

/// A job in a cluster that is there, one that is invalid, and a service whose Redis is being cleaned up.
#[test]
fn some_jobs_are_left_alone() {
    let writes = |table: &'static JobKind, change: Value| {
        let mut fixture = Fixture::default();
        let kind = Kind::Custom(table.kind);
        fixture.serve(kind, Some(table.kind.preferred()));
        let mut object = around(table, &cluster(&[]));
        merge(&mut object, &change);
        fixture.put(kind, object);
        let owner = json!([{"apiVersion": "ray.io/v1", "kind": table.kind.preferred().kind, "name": "j", "uid": "ju", "controller": true}]);
        if json::deleting(&change) {
            fixture.put(
                Kind::Workload,
                json!({"metadata": {"namespace": "ns", "name": "w", "uid": "w", "ownerReferences": owner}}),
            );
        }
        reconcile(table.kind.framework(), "ns", "j", fixture.env(NOW)).len()
    };
    assert!(writes(&RAY_JOB, json!({})) > 0);
    assert_eq!(writes(&RAY_JOB, json!({"spec": {"clusterSelector": {"a": "b"}}})), 0);
    assert_eq!(writes(&RAY_JOB, json!({"status": {"jobDeploymentStatus": "ValidationFailed"}})), 0);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert!(writes(&RAY_SERVICE, deleted.clone()) > 0);
    let mut tolerant = deleted;
    tolerant["spec"] = json!({"rayClusterConfig": {"gcsFaultToleranceOptions": {"redisAddress": "r"}}});
    assert_eq!(writes(&RAY_SERVICE, tolerant), 0);
}

/// A job that KubeRay refuses holds no quota, and is queued again when it does not refuse it any more.
#[test]
fn a_job_on_hold_gives_its_quota_back() {
    let mut fixture = Fixture::default();
    let kind = Kind::Custom(RAY_JOB.kind);
    fixture.serve(kind, Some(RAY_JOB.kind.preferred()));
    let mut object = around(&RAY_JOB, &cluster(&[]));
    fixture.put(kind, object.clone());
    let framework = RAY_JOB.kind.framework();
    let plan = reconcile(framework, "ns", "j", fixture.env(NOW));
    let Some(Write::Create(_, made)) = plan.first() else { panic!("{plan:?}") };
    let mut wl = admitted(made);
    fixture.put(Kind::Workload, wl.clone());
    object["status"] = json!({"jobDeploymentStatus": "ValidationFailed"});
    fixture.put(kind, object.clone());
    let reserved = |plan: &Plan| match plan.first() {
        Some(Write::Patch { body, .. }) => {
            let reserved = json::condition(body, "QuotaReserved").unwrap();
            (json::text(reserved, &["reason"]).to_owned(), body["status"].clone())
        }
        other => panic!("{other:?}"),
    };
    let (reason, status) = reserved(&reconcile(framework, "ns", "j", fixture.env(NOW)));
    assert_eq!((reason.as_str(), &status["admission"]), ("OnHold", &Value::Null));
    wl["status"] = json!({"conditions": status["conditions"]});
    fixture.put(Kind::Workload, wl);
    assert_eq!(reconcile(framework, "ns", "j", fixture.env(NOW)), Plan::new());
    object["status"] = json!({"jobDeploymentStatus": "Suspended"});
    fixture.put(kind, object);
    let (reason, _) = reserved(&reconcile(framework, "ns", "j", fixture.env(NOW)));
    assert_eq!(reason, "PendingEvaluation");
}

#[test]
fn refusals_have_kueues_words() {
    let many: Vec<(String, Option<i64>, Option<i64>)> =
        (0..18).map(|i| (format!("g{i}"), None, None)).collect();
    let many: Vec<(&str, Option<i64>, Option<i64>)> =
        many.iter().map(|(n, a, b)| (n.as_str(), *a, *b)).collect();
    let scaled = |mut c: Value| {
        c["enableInTreeAutoscaling"] = json!(true);
        c
    };
    let head = [("head", None, None)];
    for (table, field, autoscaling) in [
        (&RAY_CLUSTER, "spec", "a kueue-managed RayCluster can use autoscaling only as an elastic job"),
        (
            &RAY_JOB,
            "spec.rayClusterSpec",
            "a kueue managed job should only use autoscaling when workload slicing is enabled",
        ),
        (
            &RAY_SERVICE,
            "spec.rayClusterSpec",
            "a kueue managed job should only use autoscaling when workload slicing is enabled",
        ),
    ] {
        let refused = |c: &Value| refusal(table, &around(table, c), None);
        assert_eq!(refused(&cluster(&[("w", None, None)])), "");
        let want = format!("{field}.workerGroupSpecs: Too many: 19: must have at most 18 items");
        assert_eq!(refused(&cluster(&many)), want);
        let want = format!(
            "{field}.workerGroupSpecs[0].groupName: Forbidden: \"head\" is reserved for the head group"
        );
        assert_eq!(refused(&cluster(&head)), want);
        let want = format!("{field}.enableInTreeAutoscaling: Invalid value: true: {autoscaling}");
        assert!(refused(&scaled(cluster(&[]))).starts_with(&want));
        // A running job can't leave its queue; one that never was in a queue is nobody's business.
        let mut queued = around(table, &scaled(cluster(&[])));
        json::set(&mut queued, table.suspend, json!(false));
        let mut free = queued.clone();
        free["metadata"]["labels"] = json!({});
        assert!(refusal(table, &free, Some(&queued)).contains("field is immutable"));
        assert_eq!(refusal(table, &free, Some(&free)), "");
    }
    let rayjob = |spec: Value| refusal(&RAY_JOB, &job(&RAY_JOB, &spec), None);
    let selector = json!({"ray.io/cluster": "c"});
    assert!(rayjob(json!({})).starts_with("spec.rayClusterSpec: Required value: rayClusterSpec is required"));
    assert_eq!(rayjob(json!({"clusterSelector": selector})), "");
    let both = rayjob(json!({"clusterSelector": selector, "rayClusterSpec": {}}));
    assert!(both.ends_with("a kueue managed job should not use an existing cluster"), "{both}");
    let stays = rayjob(json!({"rayClusterSpec": {}}));
    let want = "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after finishing";
    assert_eq!(stays, want);
}
