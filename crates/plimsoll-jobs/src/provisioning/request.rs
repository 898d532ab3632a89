//! Requests to the cluster autoscaler for a workload: one ProvisioningRequest per check and attempt, with a PodTemplate
//! per podset (Kueue KEP-1136, parameters KEP-1788).

use plimsoll_api::json;
use plimsoll_api::resource::WORKLOADS;
use serde_json::{Map, Value, json};

use super::config::{Config, Merge};
use crate::{Env, names, podset, workload};

const CONTAINERS: [&str; 2] = ["initContainers", "containers"];
/// Names shorter than this, without the number, are never truncated.
const SURELY_WHOLE: usize = 236;
/// Most attempts that are tried for a truncated name.
const MAX_CUT_ATTEMPTS: i64 = 1000;

/// Name of an attempt's request.
pub fn name(workload: &str, check: &str, attempt: i64) -> String {
    plimsoll_api::kueue::limited_name(&format!("{workload}-{check}-{attempt}"))
}

/// Name of the template of a podset.
pub fn template_name(request: &str, podset: &str) -> String {
    plimsoll_api::kueue::limited_name(&format!("ppt-{request}-{podset}"))
}

/// Which attempt a request of this name is; `None` when it belongs to another workload or check.
pub fn attempt(request: &str, workload: &str, check: &str) -> Option<i64> {
    let whole = format!("{workload}-{check}-");
    if let Some(digits) = request.strip_prefix(whole.as_str()) {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if plain {
            return digits.parse().ok();
        }
    }
    // Only a truncated name hides its number.
    if whole.len() < SURELY_WHOLE {
        return None;
    }
    (1..=MAX_CUT_ATTEMPTS).find(|n| name(workload, check, *n) == request)
}

/// Pods that a podset of the workload was admitted with: what the assignment says, else what the podset says.
/// `None`: nothing was assigned to it.
fn admitted(wl: &Value, podset: &Value) -> Option<(i64, Value)> {
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]);
    let mine = assigned.iter().find(|a| a["name"] == podset["name"])?;
    let declared = declared(podset);
    Some((mine["count"].as_i64().unwrap_or(declared), mine.clone()))
}

fn declared(podset: &Value) -> i64 {
    podset["count"].as_i64().unwrap_or(1)
}

/// Whether a pod requests a managed resource.
fn uses(podset: &Value, managed: &[String]) -> bool {
    let spec = &podset["template"]["spec"];
    managed.is_empty()
        || CONTAINERS.iter().flat_map(|list| json::list(spec, &[list])).any(|c| {
            ["requests", "limits"].iter().any(|kind| {
                json::map(c, &["resources", kind]).is_some_and(|m| managed.iter().any(|r| m.contains_key(r)))
            })
        })
}

/// Whether a request is needed; `None` when podsets and assignments don't belong together.
pub fn is_needed(wl: &Value, config: &Config) -> Option<bool> {
    for podset in json::list(wl, &["spec", "podSets"]) {
        if declared(podset) <= 0 || !uses(podset, &config.managed) {
            continue;
        }
        if admitted(wl, podset)?.0 > 0 {
            return Some(true);
        }
    }
    Some(false)
}

/// A podset of a request.
#[derive(Clone, Debug)]
pub struct Part {
    /// The podset that stands for all that were merged into it.
    pub podset: Value,
    /// Its assignment.
    pub assigned: Value,
    /// Pods of all of them.
    pub count: i64,
}

/// The podsets that need capacity, merged as the configuration says. `None` as in [`is_needed`].
pub fn parts(wl: &Value, config: &Config) -> Option<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for podset in json::list(wl, &["spec", "podSets"]) {
        if declared(podset) <= 0 || !uses(podset, &config.managed) {
            continue;
        }
        let (count, assigned) = admitted(wl, podset)?;
        if count <= 0 {
            continue;
        }
        let same = |p: &&mut Part| config.merge.is_some_and(|policy| mergeable(&p.podset, podset, policy));
        match parts.iter_mut().find(same) {
            Some(part) => part.count = part.count.saturating_add(count),
            None => parts.push(Part { podset: podset.clone(), assigned, count }),
        }
    }
    Some(parts)
}

fn mergeable(a: &Value, b: &Value, policy: Merge) -> bool {
    let (a, b) = (&a["template"], &b["template"]);
    if policy == Merge::IdenticalTemplates {
        return alike(a, b, false);
    }
    let (a, b) = (&a["spec"], &b["spec"]);
    let requests = |list: &str| {
        let (a, b) = (json::list(a, &[list]), json::list(b, &[list]));
        a.len() == b.len()
            && a.iter()
                .zip(b)
                .all(|(a, b)| alike(&a["resources"]["requests"], &b["resources"]["requests"], true))
    };
    CONTAINERS.iter().all(|list| requests(list))
        && ["resources", "nodeSelector", "tolerations", "affinity", "resourceClaims"]
            .iter()
            .all(|key| alike(&a[*key], &b[*key], false))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Whether two values are semantically equal: empty values may be missing, quantities may be written differently.
fn alike(a: &Value, b: &Value, amounts: bool) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys().filter(|k| !x.contains_key(*k)));
            keys.into_iter().all(|k| {
                let below = amounts || k == "requests" || k == "limits" || k == "overhead";
                alike(a.get(k).unwrap_or(&Value::Null), b.get(k).unwrap_or(&Value::Null), below)
            })
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| alike(x, y, false))
        }
        _ if is_empty(a) && is_empty(b) => true,
        _ if amounts => match (amount(a), amount(b)) {
            (Some(x), Some(y)) => x == y,
            _ => a == b,
        },
        _ => a == b,
    }
}

fn amount(value: &Value) -> Option<plimsoll_api::quantity::Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// The PodTemplate of a podset: its template with what the assigned flavors add, owned by `owner`.
///
/// # Errors
/// Why there is none, as text.
pub fn template(wl: &Value, part: &Part, name: &str, owner: &Value, env: Env<'_>) -> Result<Value, String> {
    let info =
        podset::from_assignment(&part.assigned, part.count, env).map_err(podset::Error::into_message)?;
    let mut template = part.podset["template"].clone();
    podset::merge(&mut template, &info).map_err(podset::Error::into_message)?;
    limits_as_requests(&mut template);
    Ok(json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": {
            "name": name, "namespace": json::namespace(wl), "labels": {names::MANAGED: "true"},
            "ownerReferences": [owner],
        },
        "template": template,
    }))
}

/// Missing requests default to the limits (Kueue `UseLimitsAsMissingRequestsInPod`).
fn limits_as_requests(template: &mut Value) {
    let fill = |resources: &mut Value| {
        let Some(limits) = resources["limits"].as_object().filter(|l| !l.is_empty()).cloned() else { return };
        let mut requests = resources["requests"].as_object().cloned().unwrap_or_default();
        for (name, value) in limits {
            requests.entry(name).or_insert(value);
        }
        resources["requests"] = Value::Object(requests);
    };
    let Some(spec) = template.get_mut("spec").filter(|s| s.is_object()) else { return };
    for list in CONTAINERS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(resources) = container.get_mut("resources").filter(|r| r.is_object()) {
                fill(resources);
            }
        }
    }
    if let Some(resources) = spec.get_mut("resources").filter(|r| r.is_object()) {
        fill(resources);
    }
}

/// The request of an attempt.
pub fn request(wl: &Value, name: &str, config: &Config, parts: &[Part], api_version: &str) -> Value {
    let mut parameters: Map<String, Value> =
        config.parameters.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    for (key, value) in json::map(wl, &["metadata", "annotations"]).into_iter().flatten() {
        if let Some(parameter) = key.strip_prefix(names::PROVREQ) {
            parameters.insert(parameter.to_owned(), value.clone());
        }
    }
    let podsets: Vec<Value> = parts
        .iter()
        .map(|p| {
            let template = template_name(name, json::text(&p.podset, &["name"]));
            json!({"podTemplateRef": {"name": template}, "count": p.count})
        })
        .collect();
    json!({
        "apiVersion": api_version, "kind": "ProvisioningRequest",
        "metadata": {
            "name": name, "namespace": json::namespace(wl), "labels": {names::MANAGED: "true"},
            "ownerReferences": [owner(wl)],
        },
        "spec": {"provisioningClassName": config.class, "parameters": parameters, "podSets": podsets},
    })
}

/// The workload as controlling owner.
pub fn owner(wl: &Value) -> Value {
    workload::owner(WORKLOADS.api_version, WORKLOADS.kind, wl, true)
}

/// Whether a request asks for what the configuration says today.
pub fn in_sync(request: &Value, config: &Config) -> bool {
    let spec = &request["spec"];
    spec["provisioningClassName"] == config.class.as_str()
        && config.parameters.iter().all(|(k, v)| spec["parameters"][k.as_str()] == v.as_str())
}
