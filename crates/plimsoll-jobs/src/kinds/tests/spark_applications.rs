//! SparkApplications (Kueue `sparkapplication_controller_test.go`, `sparkapplication_webhook_test.go`).

use serde_json::json;

use super::*;
use crate::Config;
use crate::kinds::spark::SPARK_APPLICATION;

const FRAMEWORK: &str = SPARK_APPLICATION.kind.framework();

fn spec() -> Value {
    json!({"mode": "cluster", "suspend": true, "volumes": [{"name": "data", "emptyDir": {}}],
        "driver": {"coreRequest": "1", "memory": "512m", "labels": {"own": "x"},
            "volumeMounts": [{"name": "data", "mountPath": "/d"}, {"name": "spark-local-dir-1", "mountPath": "/l"}]},
        "executor": {"instances": 2, "coreRequest": "500m", "coreLimit": "1", "memory": "2g", "unknownField": 1,
            "gpu": {"name": "nvidia.com/gpu", "quantity": 1}, "sidecars": [{"name": "s", "image": "i"}]}})
}

#[test]
fn drivers_and_executors_are_podsets() {
    let app = job(&SPARK_APPLICATION, &spec());
    assert_eq!(counts(&SPARK_APPLICATION, &app), [("driver".to_owned(), 1), ("executor".to_owned(), 2)]);
    let pod_sets = table_job(&SPARK_APPLICATION, &app).pod_sets();
    let container = |i: usize| &pod_sets[i]["template"]["spec"]["containers"][0];
    assert_eq!(
        container(0),
        &json!({"name": "spark-kubernetes-driver", "volumeMounts": [{"name": "data", "mountPath": "/d"}],
            "resources": {"requests": {"cpu": "1", "memory": "512Mi"}}})
    );
    let resources =
        json!({"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"cpu": "1", "nvidia.com/gpu": "1"}});
    assert_eq!(container(1)["resources"], resources);
    assert_eq!(pod_sets[1]["template"]["spec"]["containers"][1]["name"], "s");
    assert_eq!(pod_sets[0]["template"]["metadata"]["labels"], json!({"own": "x"}));
}

/// The object is as before after an eviction, but for a node selector of both roles, which moved to each of them.
#[test]
fn an_application_starts_with_what_was_assigned_and_is_restored() {
    let mut app = job(&SPARK_APPLICATION, &spec());
    let infos: Vec<PodSetInfo> = ["driver", "executor"]
        .into_iter()
        .map(|name| PodSetInfo {
            name: name.to_owned(),
            node_selector: json!({"zone": "a"}).as_object().cloned().unwrap(),
            tolerations: vec![json!({"key": "k"})],
            scheduling_gates: vec![json!({"name": "g"})],
            ..PodSetInfo::default()
        })
        .collect();
    let before = app.clone();
    let pod_sets = table_job(&SPARK_APPLICATION, &app).pod_sets();
    table_job(&SPARK_APPLICATION, &before).run_with_pod_sets_info(&mut app, &infos).unwrap();
    for role in ["driver", "executor"] {
        let own = &app["spec"][role];
        assert_eq!(
            (&own["nodeSelector"], &own["tolerations"]),
            (&json!({"zone": "a"}), &json!([{"key": "k"}]))
        );
        assert_eq!(own["template"]["spec"]["schedulingGates"], json!([{"name": "g"}]));
    }
    assert_eq!(app["spec"]["suspend"], false);
    let job = table_job(&SPARK_APPLICATION, &before);
    job.suspend(&mut app);
    job.restore_pod_sets_info(&mut app, &pod_sets);
    for role in ["driver", "executor"] {
        // An empty template stays.
        json::remove(&mut app, &["spec", role, "template"]);
    }
    assert_eq!(app, before);

    let mut global = before;
    json::set(&mut global, &["spec", "nodeSelector"], json!({"os": "linux"}));
    let mut started = global.clone();
    table_job(&SPARK_APPLICATION, &global).run_with_pod_sets_info(&mut started, &infos).unwrap();
    assert_eq!(started["spec"]["nodeSelector"], Value::Null);
    assert_eq!(started["spec"]["driver"]["nodeSelector"], json!({"os": "linux", "zone": "a"}));
}

#[test]
fn an_application_runs_when_its_executors_do() {
    let status = |state: &str| json!({"applicationState": {"state": state, "errorMessage": "why"}});
    assert_eq!(end(&SPARK_APPLICATION, &status("RUNNING")), None);
    assert_eq!(end(&SPARK_APPLICATION, &status("COMPLETED")), Some((true, "why".to_owned())));
    assert_eq!(end(&SPARK_APPLICATION, &status("SUBMISSION_FAILED")), Some((false, "why".to_owned())));
    let ready = |executors: Value| {
        let mut app = job(&SPARK_APPLICATION, &spec());
        app["status"] = status("RUNNING");
        app["status"]["executorState"] = executors;
        (SPARK_APPLICATION.pods_ready)(&app)
    };
    assert!(!ready(json!({"a": "RUNNING", "b": "PENDING"})));
    assert!(ready(json!({"a": "RUNNING", "b": "COMPLETED"})));
}

#[test]
fn refusals_of_applications_have_kueues_words() {
    let config = Config { frameworks: [FRAMEWORK.to_owned()].into(), ..Config::default() };
    let fixture = Fixture::with_config(config);
    let refused = |path: &[&str], value: Value| {
        let mut app = job(&SPARK_APPLICATION, &spec());
        json::set(&mut app, path, value);
        let outcome = validate(&review(&SPARK_APPLICATION, None), &app, fixture.env(NOW));
        outcome.map_or_else(|denied| denied.message, |_| String::new())
    };
    assert_eq!(refused(&["spec", "mode"], json!("cluster")), "");
    let want = "spec.mode: Invalid value: \"client\": only Cluster mode is supported for a kueue managed job";
    assert_eq!(refused(&["spec", "mode"], json!("client")), want);
    let dynamic = refused(&["spec", "dynamicAllocation"], json!({"enabled": true}));
    assert!(
        dynamic
            .starts_with("spec.dynamicAllocation.enabled: Invalid value: true: a kueue managed job can use")
    );
    let annotations = json!({"kueue.x-k8s.io/podset-slice-size": "2"});
    let slices = refused(&["spec", "executor", "annotations"], annotations);
    assert!(
        slices.starts_with("spec.executor.annotations[kueue.x-k8s.io/podset-slice-size]: Forbidden"),
        "{slices}"
    );
    let prebuilt = refused(&["metadata", "annotations", names::PREBUILT], json!("w"));
    let want = "metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Forbidden: Is not supported for \
                \"sparkoperator.k8s.io/v1beta2, Kind=SparkApplication\"";
    assert_eq!(prebuilt, want);
}
