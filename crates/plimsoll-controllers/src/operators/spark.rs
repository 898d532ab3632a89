//! SparkApplications (Kubeflow's Spark operator): a driver, and executors that go with it.

use plimsoll_api::json;
use plimsoll_client::Resource;
use plimsoll_jobs::pod_templates;
use serde_json::{Map, Value, json};

use super::Operator;
use super::plan::{Counts, Role, State, Wanted};

/// SparkApplications.
pub(super) const SPARK_APPLICATION: Operator = Operator {
    choice: "spark",
    resource: Resource::builtin(
        "sparkoperator.k8s.io",
        "v1beta2",
        "sparkapplications",
        "sparkoperator.k8s.io/sparkapplications",
    ),
    kind: "SparkApplication",
    short_names: &["sparkapp"],
    reads: None,
    defaults: &[],
    suspend: &["spec", "suspend"],
    roles,
    status,
    ended: |app| matches!(json::text(app, &["status", "applicationState", "state"]), "COMPLETED" | "FAILED"),
};

fn roles(app: &Value) -> Vec<Role> {
    let name = json::name(app);
    let role = |(role, count, mut template): (String, i64, Value)| {
        let image = match json::text(app, &["spec", &role, "image"]) {
            "" => json::text(app, &["spec", "image"]),
            image => image,
        };
        if let Some(Value::Array(containers)) = template.pointer_mut("/spec/containers") {
            for container in containers.iter_mut().filter(|c| c["image"].is_null()) {
                container["image"] = image.into();
            }
        }
        let pod = |index: i64| Wanted {
            // As Spark names them.
            name: if role == "driver" {
                format!("{name}-driver")
            } else {
                format!("{name}-exec-{}", index + 1)
            },
            labels: vec![("sparkoperator.k8s.io/app-name", name.to_owned()), ("spark-role", role.clone())],
            annotations: Vec::new(),
        };
        Role {
            template,
            restart_policy: Some("Never".to_owned()),
            pods: (0..count).map(pod).collect(),
            name: role,
        }
    };
    pod_templates("sparkoperator.k8s.io/sparkapplication", app).into_iter().map(role).collect()
}

fn status(state: &State<'_>) -> Value {
    let counts = |name: &str| {
        let found = state.roles.iter().find(|(role, _)| *role == name);
        found.map_or_else(Counts::default, |(_, counts)| *counts)
    };
    let (driver, executors) = (counts("driver"), counts("executor"));
    let now = match () {
        () if state.suspended => "SUSPENDED",
        () if driver.failed > 0 => "FAILED",
        () if driver.succeeded > 0 => "COMPLETED",
        () if driver.ready > 0 => "RUNNING",
        () => "SUBMITTED",
    };
    let name = json::name(state.object);
    let states =
        [("COMPLETED", executors.succeeded), ("FAILED", executors.failed), ("RUNNING", executors.ready)];
    let states = states.into_iter().flat_map(|(state, n)| std::iter::repeat_n(state, n));
    let executors: Map<String, Value> =
        states.enumerate().map(|(i, state)| (format!("{name}-exec-{}", i + 1), json!(state))).collect();
    let mut status = json!({"applicationState": {"state": now}, "executorState": executors,
        "driverInfo": {"podName": format!("{name}-driver")}});
    for (field, holds) in [
        ("lastSubmissionAttemptTime", !state.suspended),
        ("terminationTime", matches!(now, "COMPLETED" | "FAILED")),
    ] {
        let time = state.once(field, holds);
        if !time.is_null() {
            status[field] = time;
        }
    }
    status
}
