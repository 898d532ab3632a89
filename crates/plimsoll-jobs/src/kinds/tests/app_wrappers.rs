//! AppWrappers (Kueue `pkg/controller/jobs/appwrapper/appwrapper_controller_test.go`).

use super::*;
use crate::kinds::appwrapper::APP_WRAPPER;

fn wrapper(components: &Value) -> Value {
    job(&APP_WRAPPER, &json!({ "components": components }))
}

fn wrapped(object: &Value) -> Value {
    wrapper(&json!([{ "template": object }]))
}

#[test]
fn podsets_are_declared_or_implied_by_what_is_wrapped() {
    let t = template;
    let group = json!({"groupName": "w", "replicas": 3, "template": t()});
    let cluster = json!({"headGroupSpec": {"template": t()}, "workerGroupSpecs": [group]});
    let table: [(Value, &[i64]); 9] = [
        (json!({"apiVersion": "v1", "kind": "Pod", "spec": t()["spec"]}), &[1]),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 4, "template": t()}}),
            &[4],
        ),
        (json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": t()}}), &[1]),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 5, "completions": 2, "template": t()}}),
            &[2],
        ),
        (
            json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [
                {"replicas": 2, "template": {"spec": {"parallelism": 3, "template": t()}}},
                {"template": {"spec": {"template": t()}}}]}}),
            &[6, 1],
        ),
        (
            json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {
                "Worker": {"replicas": 2, "template": t()}, "Master": {"template": t()}}}}),
            &[1, 2],
        ),
        (json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": cluster}), &[1, 3]),
        (json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"rayClusterSpec": cluster}}), &[1, 3]),
        (json!({"apiVersion": "example.com/v1", "kind": "Other", "spec": {"template": t()}}), &[]),
    ];
    for (object, want) in table {
        let got: Vec<i64> = counts(&APP_WRAPPER, &wrapped(&object)).into_iter().map(|(_, n)| n).collect();
        assert_eq!(got, want, "{object}");
    }
    let declared = |path: &str| {
        wrapper(&json!([{"podSets": [{"path": path, "replicas": 7}],
            "template": {"kind": "Other", "spec": {"parts": [{"template": t()}]}}}]))
    };
    assert_eq!(counts(&APP_WRAPPER, &declared("template.spec.parts[0].template")), [("j-0".to_owned(), 7)]);
    for path in [
        "",
        "template.spec.parts[1].template",
        "template.spec.parts[x].template",
        "spec",
        "template.spec.parts",
    ] {
        assert!(counts(&APP_WRAPPER, &declared(path)).is_empty(), "{path}");
    }
    // The controller's record counts.
    let mut recorded = declared("template.spec.parts[0].template");
    recorded["status"] =
        json!({"componentStatus": [{"podSets": [{"path": "template.spec.parts[0].template"}]}]});
    assert_eq!(counts(&APP_WRAPPER, &recorded), [("j-0".to_owned(), 1)]);
}

#[test]
fn what_was_assigned_is_written_beside_what_is_wrapped() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"own": "x"}}, "spec": template()["spec"]});
    let own = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template()}});
    let object = wrapper(&json!([{"template": pod}, {"template": {"kind": "ConfigMap"}}, {"template": own}]));
    lives(&APP_WRAPPER, &object);
    let job = table_job(&APP_WRAPPER, &object);
    let pod_sets = job.pod_sets();
    assert_eq!(pod_sets[0]["template"]["metadata"], json!({"labels": {"own": "x"}}), "a pod has a name");
    assert_eq!(pod_sets[1]["topologyRequest"]["podIndexLabel"], "batch.kubernetes.io/job-completion-index");
    let info = |zone: &str| PodSetInfo {
        node_selector: json!({ "zone": zone }).as_object().unwrap().clone(),
        tolerations: vec![json!({"key": "k"})],
        ..PodSetInfo::default()
    };
    let mut started = object.clone();
    job.run_with_pod_sets_info(&mut started, &[info("a"), info("b")]).unwrap();
    let infos = |i: usize| started["spec"]["components"][i]["podSetInfos"].clone();
    assert_eq!(infos(0), json!([{"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k"}]}]));
    assert_eq!((infos(1), infos(2)[0]["nodeSelector"]["zone"].clone()), (json!([]), json!("b")));
    let wrong = job.run_with_pod_sets_info(&mut object.clone(), &[info("a")]);
    assert_eq!(wrong.unwrap_err(), "invalid podset infos: expecting 2 podsets, got 1");
}

#[test]
fn its_phase_says_how_it_ended() {
    let status = |phase: &str, deployed: &str| json!({"phase": phase, "conditions": [{"type": "ResourcesDeployed", "status": deployed}]});
    assert_eq!(
        end(&APP_WRAPPER, &status("Succeeded", "True")),
        Some((true, "AppWrapper finished successfully".into()))
    );
    assert_eq!(end(&APP_WRAPPER, &status("Failed", "False")), Some((false, "AppWrapper failed".into())));
    assert_eq!(end(&APP_WRAPPER, &status("Failed", "True")), None, "its objects are being deleted");
    assert_eq!(end(&APP_WRAPPER, &status("Running", "True")), None);
    let mut object = wrapper(&json!([]));
    for (kind, ready, active) in [("PodsReady", true, false), ("QuotaReserved", false, true)] {
        object["status"] = json!({"conditions": [{"type": kind, "status": "True"}]});
        let job = table_job(&APP_WRAPPER, &object);
        assert_eq!(
            (job.pods_ready(), job.is_active(QuotaReleaseStrategy::OnTerminal)),
            (ready, active),
            "{kind}"
        );
    }
}
