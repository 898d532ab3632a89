//! AppWrappers (github.com/project-codeflare/appwrapper): each podset of a component is a role, and its pods are made without the
//! wrapped objects.

use plimsoll_api::json;
use plimsoll_client::Resource;
use plimsoll_jobs::pod_templates;
use serde_json::{Map, Value, json};

use super::Operator;
use super::plan::{Role, State, Wanted};

/// AppWrappers.
pub(super) const APP_WRAPPER: Operator = Operator {
    choice: "appwrapper",
    resource: Resource::builtin(
        "workload.codeflare.dev",
        "v1beta2",
        "appwrappers",
        "workload.codeflare.dev/appwrappers",
    ),
    kind: "AppWrapper",
    short_names: &[],
    reads: None,
    defaults: &[],
    suspend: &["spec", "suspend"],
    roles,
    status,
    ended: |wrapper| matches!(json::text(wrapper, &["status", "phase"]), "Succeeded" | "Failed"),
};

/// Kinds whose pods serve until they are deleted; those of all others end.
const SERVING: [&str; 4] = ["Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster"];

fn roles(wrapper: &Value) -> Vec<Role> {
    let framework = "workload.codeflare.dev/appwrapper";
    // One component after the other, so that each podset finds what was assigned to it.
    let components = json::list(wrapper, &["spec", "components"]).iter().enumerate();
    components
        .flat_map(|(number, component)| {
            let mut alone = wrapper.clone();
            json::set(&mut alone, &["spec", "components"], json!([component]));
            json::remove(&mut alone, &["status"]);
            let serves = SERVING.contains(&json::text(component, &["template", "kind"]));
            let assigned = json::list(component, &["podSetInfos"]).to_vec();
            let templates = pod_templates(framework, &alone).into_iter().enumerate();
            let role = move |(i, (_, count, template)): (usize, (String, i64, Value))| {
                let name = format!("{}-{number}-{i}", json::name(wrapper));
                let pod = |index: i64| Wanted {
                    name: format!("{name}-{index}"),
                    labels: vec![("workload.codeflare.dev/appwrapper", json::name(wrapper).to_owned())],
                    annotations: Vec::new(),
                };
                Role {
                    template: with(template, assigned.get(i)),
                    restart_policy: (!serves).then(|| "OnFailure".to_owned()),
                    pods: (0..count).map(pod).collect(),
                    name,
                }
            };
            templates.map(role).collect::<Vec<_>>()
        })
        .collect()
}

/// A template with what Kueue assigned to its podset, beside which the wrapped object has it.
fn with(mut template: Value, assigned: Option<&Value>) -> Value {
    let Some(assigned) = assigned else { return template };
    for (key, path) in [
        ("labels", ["metadata", "labels"]),
        ("annotations", ["metadata", "annotations"]),
        ("nodeSelector", ["spec", "nodeSelector"]),
    ] {
        let mut all = json::map(&template, &path).cloned().unwrap_or_else(Map::new);
        all.extend(json::map(assigned, &[key]).cloned().unwrap_or_default());
        json::set(&mut template, &path, Value::Object(all));
    }
    for key in ["tolerations", "schedulingGates"] {
        let mut all = json::list(&template, &["spec", key]).to_vec();
        all.extend(json::list(assigned, &[key]).iter().cloned());
        json::set(&mut template, &["spec", key], Value::Array(all));
    }
    template
}

fn status(state: &State<'_>) -> Value {
    let total = state.total();
    let failed = total.failed > 0;
    let done = !failed && total.wanted > 0 && total.is_done();
    let phase = match () {
        () if state.suspended => "Suspended",
        () if failed => "Failed",
        () if done => "Succeeded",
        () if total.active + total.succeeded > 0 => "Running",
        () => "Resuming",
    };
    // What is left of a failed one is deleted.
    let deployed = matches!(phase, "Running" | "Resuming" | "Succeeded");
    let ready = phase == "Running" && total.is_ready();
    let conditions = state.conditions(&[
        ("QuotaReserved", !state.suspended && !failed && !done, phase, ""),
        ("ResourcesDeployed", deployed, phase, ""),
        (
            "PodsReady",
            ready || done,
            if ready || done { "SufficientPodsReady" } else { "InsufficientPodsReady" },
            "",
        ),
    ]);
    json!({"phase": phase, "conditions": conditions})
}
