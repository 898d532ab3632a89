//! Kueue's own kinds: the rules that their schemas can't express (Kueue `pkg/webhooks`).

use std::collections::BTreeSet;

use plimsoll_api::json;
use serde_json::{Value, json};

use super::review::{Review, Validation};
use super::validation::{self, ErrorList, annotation_path};
use crate::{Config, Env, names};

/// Kinds with a webhook.
pub(super) const PLURALS: [&str; 7] = [
    "clusterqueues",
    "resourceflavors",
    "workloads",
    "cohorts",
    "admissionchecks",
    "multikueueconfigs",
    "multikueueclusters",
];
/// Controller of checks that send workloads to other clusters.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// Most flavors and most resources of a whole ClusterQueue.
const MOST: usize = 256;

/// Finalizers, and the name of an only podset.
pub(super) fn default(review: &Review<'_>, object: &mut Value) {
    match review.plural {
        "clusterqueues" | "resourceflavors" => {
            let mut list = json::list(object, &["metadata", "finalizers"]).to_vec();
            if !list.iter().any(|f| f == names::IN_USE) {
                list.push(json!(names::IN_USE));
                json::set(object, &["metadata", "finalizers"], Value::Array(list));
            }
        }
        "workloads" => {
            let [only] = json::list(object, &["spec", "podSets"]) else { return };
            if json::text(only, &["name"]).is_empty() {
                let mut only = only.clone();
                json::set(&mut only, &["name"], json!("main"));
                json::set(object, &["spec", "podSets"], json!([only]));
            }
        }
        _ => {}
    }
}

/// A warning for fields and kinds that have no effect here.
pub fn without_effect(plural: &str, object: &Value) -> Option<String> {
    match plural {
        "clusterqueues" if !object["spec"]["concurrentAdmissionPolicy"].is_null() => Some(
            "spec.concurrentAdmissionPolicy has no effect: concurrent admission is not supported".to_owned(),
        ),
        "admissionchecks" if object["spec"]["controllerName"] == MULTIKUEUE => Some(format!(
            "spec.controllerName: nothing acts on {MULTIKUEUE}: the check stays inactive, and with it every ClusterQueue that names it"
        )),
        "multikueueconfigs" | "multikueueclusters" => {
            Some("MultiKueue is not supported: nothing acts on this object".to_owned())
        }
        _ => None,
    }
}

/// Validates a created or updated object: the name of the webhook, and the result.
pub(super) fn validate(review: &Review<'_>, object: &Value, env: Env<'_>) -> (&'static str, Validation) {
    let warnings = without_effect(review.plural, object).into_iter().collect();
    let (webhook, errors) = match review.plural {
        "clusterqueues" => ("vclusterqueue.kb.io", cluster_queue(object)),
        "cohorts" => ("vcohort.kb.io", cohort(object)),
        "resourceflavors" => ("vresourceflavor.kb.io", flavor(object)),
        "workloads" => ("vworkload.kb.io", workload(object, review.old, env.config)),
        _ => ("", ErrorList::default()),
    };
    (webhook, Validation { errors, warnings })
}

fn cluster_queue(object: &Value) -> ErrorList {
    let mut errors = ErrorList::default();
    let in_cohort = !json::text(object, &["spec", "cohortName"]).is_empty();
    resource_groups(object, in_cohort, true, &mut errors);
    errors
}

fn cohort(object: &Value) -> ErrorList {
    let mut errors = ErrorList::default();
    let has_parent = !json::text(object, &["spec", "parentName"]).is_empty();
    resource_groups(object, has_parent, false, &mut errors);
    errors
}

/// A resource belongs to one group and a flavor to one group; quantities are in bounds.
fn resource_groups(object: &Value, limits: bool, lending_bound: bool, errors: &mut ErrorList) {
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (i, group) in json::list(object, &["spec", "resourceGroups"]).iter().enumerate() {
        let at = format!("spec.resourceGroups[{i}]");
        let covered = json::list(group, &["coveredResources"]);
        for (j, resource) in covered.iter().enumerate() {
            let name = resource.as_str().unwrap_or_default();
            if !resources.insert(name) {
                errors.duplicate(&format!("{at}.coveredResources[{j}]"), name);
            }
        }
        for (j, flavor) in json::list(group, &["flavors"]).iter().enumerate() {
            let at = format!("{at}.flavors[{j}]");
            let name = json::text(flavor, &["name"]);
            if !flavors.insert(name) {
                errors.duplicate(&format!("{at}.name"), name);
            }
            let rows = json::list(flavor, &["resources"]);
            if rows.len() != covered.len() {
                let detail = "must have the same number of resources as the coveredResources";
                errors.invalid(&format!("{at}.resources"), flavor["resources"].clone(), detail);
                continue;
            }
            for (k, (row, wanted)) in rows.iter().zip(covered).enumerate() {
                let at = format!("{at}.resources[{k}]");
                if row["name"] != *wanted {
                    let detail = "must match the name in coveredResources";
                    errors.invalid(&format!("{at}.name"), row["name"].clone(), detail);
                }
                quota(row, &at, limits, lending_bound, errors);
            }
        }
    }
    for count in [flavors.len(), resources.len()] {
        if count > MOST {
            errors.too_many("spec.resourceGroups", count, MOST);
        }
    }
}

fn quota(row: &Value, at: &str, limits: bool, lending_bound: bool, errors: &mut ErrorList) {
    let read = |key: &str| {
        let value = &row[key];
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.parse::<plimsoll_api::Quantity>().ok()
    };
    let nominal = read("nominalQuota");
    for key in ["nominalQuota", "borrowingLimit", "lendingLimit"] {
        let Some(amount) = read(key) else { continue };
        let path = format!("{at}.{key}");
        if amount.signum() < 0 {
            errors.invalid(&path, amount.to_string(), "must be greater than or equal to 0");
        }
        if key != "nominalQuota" && !limits {
            errors.invalid(&path, amount.to_string(), "must be nil when cohort is empty");
        }
        if key == "lendingLimit" && lending_bound && nominal.is_some_and(|n| amount > n) {
            errors.invalid(&path, amount.to_string(), "must be less than or equal to the nominalQuota");
        }
    }
}

fn flavor(object: &Value) -> ErrorList {
    let mut errors = ErrorList::default();
    let mut seen = BTreeSet::new();
    for (i, taint) in json::list(object, &["spec", "nodeTaints"]).iter().enumerate() {
        let (key, effect) = (json::text(taint, &["key"]), json::text(taint, &["effect"]));
        if !seen.insert((key, effect)) {
            errors.duplicate(&format!("spec.nodeTaints[{i}]"), &format!("{key}:{effect}"));
        }
    }
    errors
}

/// Rules between the parts of a Workload, and fields that are immutable while it has quota (Kueue `workload_webhook.go`).
fn workload(object: &Value, old: Option<&Value>, config: &Config) -> ErrorList {
    let mut errors = ErrorList::default();
    let podsets = json::list(object, &["spec", "podSets"]);
    let elastic = config.elastic_jobs && json::annotation(object, names::ELASTIC) == Some("true");
    let variable = podsets.iter().filter(|p| p["minCount"].is_i64()).count();
    if variable > 1 {
        errors.invalid("spec.podSets", variable, "at most one podSet can use minCount");
    }
    if variable > 0 && elastic {
        let detail = "partial admission and elastic job cannot be used together";
        errors.invalid("spec.podSets", variable, detail);
    }
    for (i, podset) in podsets.iter().enumerate() {
        for kind in ["initContainers", "containers"] {
            for (j, container) in json::list(podset, &["template", "spec", kind]).iter().enumerate() {
                if !container["resources"]["requests"]["pods"].is_null() {
                    let path = format!("spec.podSets[{i}].template.spec.{kind}[{j}].resources.requests");
                    errors.invalid(&path, "pods", "the key is reserved for internal kueue use");
                }
            }
        }
    }
    reclaimable(object, old, elastic, &mut errors);
    if config.priority_boost {
        boost(object, &mut errors);
    }
    validation::depends_on(object, &mut errors);
    validation::named_window(object, &mut errors);
    let reserved = |o: &Value| json::is_true(o, "QuotaReserved");
    if let Some(old) = old.filter(|o| reserved(o) && reserved(object)) {
        frozen(podsets, json::list(old, &["spec", "podSets"]), config.elastic_jobs, &mut errors);
        let queue = |o: &Value| json::text(o, &["spec", "queueName"]).to_owned();
        errors.immutable("spec.queueName", queue(object), queue(old));
    }
    errors
}

/// Podsets are immutable while quota is reserved; with workload slices a podset may still shrink.
fn frozen(new: &[Value], old: &[Value], shrinks: bool, errors: &mut ErrorList) {
    if new.len() != old.len() {
        return errors.invalid("spec.podSets", Value::from(new), "field is immutable");
    }
    for (i, (new, old)) in new.iter().zip(old).enumerate() {
        let mut compared = new.clone();
        if shrinks && new["count"].as_i64().unwrap_or(1) < old["count"].as_i64().unwrap_or(1) {
            json::set(&mut compared, &["count"], old["count"].clone());
        }
        errors.immutable(&format!("spec.podSets.{i}"), compared, old.clone());
    }
}

/// The boost of the priority is a number (Kueue KEP-7990).
fn boost(object: &Value, errors: &mut ErrorList) {
    let key = plimsoll_api::kueue::PRIORITY_BOOST;
    let Some(text) = json::annotation(object, key) else { return };
    let path = annotation_path(key);
    if text.is_empty() {
        let detail = "must be a valid signed integer; use \"0\" explicitly, empty string is not allowed";
        errors.invalid(&path, text, detail);
    } else if text.parse::<i32>().is_err() {
        errors.invalid(&path, text, "must be a valid signed integer");
    }
}

/// Podsets of an elastic workload that are smaller than they were admitted with.
fn shrunk(object: &Value) -> Vec<&str> {
    let podsets = json::list(object, &["spec", "podSets"]);
    let count = |name: &str| podsets.iter().find(|p| p["name"] == name).and_then(|p| p["count"].as_i64());
    json::list(object, &["status", "admission", "podSetAssignments"])
        .iter()
        .map(|a| (json::text(a, &["name"]), a["count"].as_i64()))
        .filter(|(name, given)| given.is_some_and(|g| g > count(name).unwrap_or(0)))
        .map(|(name, _)| name)
        .collect()
}

/// At most the number of pods, and never less than before while quota is reserved. After an elastic job has shrunk, the old
/// number may be too large until the next reconcile, and a smaller one is allowed.
fn reclaimable(object: &Value, old: Option<&Value>, elastic: bool, errors: &mut ErrorList) {
    let rows = json::list(object, &["status", "reclaimablePods"]);
    let podsets = json::list(object, &["spec", "podSets"]);
    for (i, row) in rows.iter().enumerate() {
        let at = format!("status.reclaimablePods[{i}]");
        let Some(podset) = podsets.iter().find(|p| p["name"] == row["name"]) else {
            let names: Vec<String> = podsets.iter().map(|p| p["name"].to_string()).collect();
            let detail = format!("supported values: {}", names.join(", "));
            errors.invalid(&format!("{at}.name"), row["name"].clone(), &detail);
            continue;
        };
        let (count, most) = (row["count"].as_i64().unwrap_or(0), podset["count"].as_i64().unwrap_or(1));
        let before = old.map_or(&[][..], |o| json::list(o, &["status", "reclaimablePods"]));
        if count > most && !(elastic && before.contains(row)) {
            errors.invalid(&format!("{at}.count"), count, &format!("should be less or equal to {most}"));
        }
    }
    let reserved = |o: &&Value| json::is_true(o, "QuotaReserved");
    let Some(old) = old.filter(reserved).filter(|_| reserved(&object)) else { return };
    let shrunk = if elastic { shrunk(object) } else { Vec::new() };
    for before in json::list(old, &["status", "reclaimablePods"]) {
        if shrunk.contains(&json::text(before, &["name"])) {
            continue;
        }
        let count = before["count"].as_i64().unwrap_or(0);
        let path = format!("status.reclaimablePods[{}]", json::text(before, &["name"]));
        match rows.iter().find(|r| r["name"] == before["name"]) {
            Some(now) if now["count"].as_i64().unwrap_or(0) >= count => {}
            Some(now) => {
                let detail = format!("cannot be less then {count}");
                errors.invalid(&format!("{path}.count"), now["count"].clone(), &detail);
            }
            None => errors.required(&format!("{path}.name"), "cannot be removed"),
        }
    }
}
