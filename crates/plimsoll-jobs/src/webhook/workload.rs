//! Workloads: the rules that their schema can't express (Kueue `pkg/webhooks/workload_webhook.go`).

use plimsoll_api::json;
use serde_json::Value;

use super::admission_gates;
use super::validation::{self, ErrorList, NEGATIVE, annotation_path, quantity, tolerations};
use crate::{Config, names};

/// Rules between the parts of a Workload, and fields that are immutable while it has quota (Kueue `workload_webhook.go`).
pub(super) fn validate(object: &Value, old: Option<&Value>, config: &Config) -> ErrorList {
    let mut errors = ErrorList::default();
    let podsets = json::list(object, &["spec", "podSets"]);
    let elastic = config.elastic_jobs && json::annotation(object, names::ELASTIC) == Some("true");
    let shrinks = config.partial_preemption
        && json::annotation(object, plimsoll_api::kueue::PARTIAL_PREEMPTION) == Some("true");
    let scales = elastic && (config.partial_scale_up || shrinks);
    for (i, podset) in podsets.iter().enumerate() {
        pod_set(podset, &format!("spec.podSets[{i}]"), &mut errors);
    }
    least_counts(podsets, old, (elastic, scales, shrinks), &mut errors);
    if reserved(object) {
        admission(object, old, &mut errors);
    }
    reclaimable(object, old, elastic, &mut errors);
    admission_checks(object, &mut errors);
    if config.priority_boost {
        boost(object, &mut errors);
    }
    admission_gates::validate(object, old, &mut errors);
    validation::depends_on(object, &mut errors);
    validation::named_window(object, &mut errors);
    let Some(old) = old else { return errors };
    if reserved(old) {
        frozen(podsets, json::list(old, &["spec", "podSets"]), config.elastic_jobs, &mut errors);
    }
    if reserved(old) && reserved(object) {
        let queue = |o: &Value| json::text(o, &["spec", "queueName"]).to_owned();
        errors.immutable("spec.queueName", queue(object), queue(old));
    }
    admission_update(object, old, config.partial_preemption, &mut errors);
    ready_checks(object, old, &mut errors);
    cluster_name(object, old, config, &mut errors);
    errors
}

fn reserved(wl: &Value) -> bool {
    json::is_true(wl, "QuotaReserved")
}

/// How many podsets may have a least count: one of a workload that is not `elastic`, all of a slice that `scales` up partly or
/// `shrinks` when it is asked to.
/// What a workload had before the gate was turned off it keeps.
fn least_counts(
    podsets: &[Value],
    old: Option<&Value>,
    (elastic, scales, shrinks): (bool, bool, bool),
    errors: &mut ErrorList,
) {
    let variable = |podsets: &[Value]| podsets.iter().filter(|p| p["minCount"].is_i64()).count();
    let before = old.map_or(0, |old| variable(json::list(old, &["spec", "podSets"])));
    let variable = variable(podsets);
    let kept = elastic && variable <= before;
    if !scales && !kept {
        if variable > 1 {
            errors.invalid("spec.podSets", variable, "at most one podSet can use minCount");
        }
        if variable > 0 && elastic {
            let detail = "partial admission and elastic job cannot be used together";
            errors.invalid("spec.podSets", variable, detail);
        }
    }
    // Upstream's next schema allows it, for groups that have no pod before they grow.
    let none = podsets.iter().enumerate().filter(|(_, p)| p["minCount"] == 0 && !elastic && !shrinks);
    for (i, _) in none {
        let path = format!("spec.podSets[{i}].minCount");
        let detail = format!("{path} in body should be greater than or equal to 1");
        errors.invalid(&path, 0, &detail);
    }
}

fn pod_set(podset: &Value, at: &str, errors: &mut ErrorList) {
    let (metadata, spec) = (&podset["template"]["metadata"], &podset["template"]["spec"]);
    errors.labels(&format!("{at}.template.metadata.labels"), &metadata["labels"]);
    errors.annotations(&format!("{at}.template.metadata.annotations"), &metadata["annotations"]);
    let at_spec = format!("{at}.template.spec");
    for kind in ["initContainers", "containers"] {
        for (i, container) in json::list(spec, &[kind]).iter().enumerate() {
            resources(&container["resources"], &format!("{at_spec}.{kind}[{i}].resources"), errors);
        }
    }
    resources(&spec["resources"], &format!("{at_spec}.resources"), errors);
    slice_size(&podset["topologyRequest"], &format!("{at}.topologyRequest"), errors);
}

/// Requests and limits are not negative and leave the number of pods to Kueue.
fn resources(resources: &Value, at: &str, errors: &mut ErrorList) {
    for list in ["requests", "limits"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let at = format!("{at}.{list}[{name}]");
            if name == "pods" {
                errors.invalid(&at, "pods", "the key is reserved for internal kueue use");
            }
            if let Some(amount) = quantity(value).filter(|q| q.signum() < 0) {
                errors.invalid(&at, amount.to_string(), NEGATIVE);
            }
        }
    }
}

/// Kueue `validateTASSliceSize`.
fn slice_size(request: &Value, at: &str, errors: &mut ErrorList) {
    let (level, size) = (&request["podSetSliceRequiredTopology"], request["podSetSliceSize"].as_i64());
    let path = format!("{at}.podSetSliceSize");
    match (level.is_string(), size) {
        (true, None) => {
            errors.required(&path, "must be set when podSetSliceRequiredTopology is specified");
        }
        (true, Some(size)) if size <= 0 => errors.invalid(&path, size, "must be greater than 0"),
        (false, Some(_)) => {
            errors.forbidden(&path, "may not be set when podSetSliceRequiredTopology is not specified");
        }
        _ => {}
    }
    for (i, row) in json::list(request, &["podsetSliceRequiredTopologyConstraints"]).iter().enumerate() {
        let size = row["size"].as_i64().unwrap_or(0);
        if size <= 0 {
            let path = format!("{at}.podsetSliceRequiredTopologyConstraints[{i}].size");
            errors.invalid(&path, size, "must be greater than 0");
        }
    }
}

/// The admission of a workload with quota: podsets that exist, and usage that its pods share equally.
fn admission(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    const PATH: &str = "status.admission";
    let admission = &object["status"]["admission"];
    if admission.is_null() {
        // A workload that was like this before may converge and be deleted.
        if !old.is_some_and(|o| reserved(o) && o["status"]["admission"].is_null()) {
            errors.required(PATH, "must be set while the QuotaReserved condition is true");
        }
        return;
    }
    let podsets = json::list(object, &["spec", "podSets"]);
    for (i, assigned) in json::list(admission, &["podSetAssignments"]).iter().enumerate() {
        let at = format!("{PATH}.podSetAssignments[{i}]");
        if !podsets.iter().any(|p| p["name"] == assigned["name"]) {
            errors.not_found(&format!("{at}.name"), json::text(assigned, &["name"]));
        }
        let Some(count) = assigned["count"].as_i64().filter(|c| *c > 0) else { continue };
        for (name, used) in assigned["resourceUsage"].as_object().into_iter().flatten() {
            let Some(used) = quantity(used) else { continue };
            let units = if name == "cpu" { used.milli_value() } else { used.value() };
            if units % count != 0 {
                let detail = format!("is not a multiple of {count}");
                errors.invalid(&format!("{at}.resourceUsage[{name}]"), used.to_string(), &detail);
            }
        }
    }
}

/// An admission is set or removed, and does not change in between, apart from topologies and requests to shrink. Amounts may be written in another
/// form, and what is empty may be left out: clients in Go write their own.
fn admission_update(object: &Value, old: &Value, shrinks: bool, errors: &mut ErrorList) {
    let (new, old) = (&object["status"]["admission"], &old["status"]["admission"]);
    if new.is_null() || old.is_null() {
        return;
    }
    let without_topologies = |admission: &Value| {
        let mut admission = admission.clone();
        let rows = admission.get_mut("podSetAssignments").and_then(Value::as_array_mut);
        for row in rows.into_iter().flatten().filter_map(Value::as_object_mut) {
            row.remove("topologyAssignment");
            row.remove("delayedTopologyRequest");
            if shrinks {
                row.remove("reclaimTargetCount");
            }
            for amount in row.get_mut("resourceUsage").and_then(Value::as_object_mut).into_iter().flatten() {
                if let Some(parsed) = quantity(amount.1) {
                    *amount.1 = parsed.to_string().into();
                }
            }
            row.retain(|_, field| !field.is_null() && field.as_object().is_none_or(|map| !map.is_empty()));
        }
        admission
    };
    if without_topologies(new) != without_topologies(old) {
        errors.invalid("status.admission", new.clone(), "field is immutable");
    }
}

/// What admission checks add to podsets.
fn admission_checks(object: &Value, errors: &mut ErrorList) {
    let podsets = json::list(object, &["spec", "podSets"]);
    for (i, check) in json::list(object, &["status", "admissionChecks"]).iter().enumerate() {
        for (j, update) in json::list(check, &["podSetUpdates"]).iter().enumerate() {
            let at = format!("status.admissionChecks[{i}].podSetUpdates[{j}]");
            if !podsets.iter().any(|p| p["name"] == update["name"]) {
                let mut names: Vec<&str> = podsets.iter().map(|p| json::text(p, &["name"])).collect();
                names.sort_unstable();
                errors.not_supported(&format!("{at}.name"), json::text(update, &["name"]), &names);
            }
            tolerations(update, &format!("{at}.tolerations"), errors);
            errors.annotations(&format!("{at}.annotations"), &update["annotations"]);
            errors.labels(&format!("{at}.nodeSelector"), &update["nodeSelector"]);
            errors.labels(&format!("{at}.labels"), &update["labels"]);
        }
    }
}

/// A check that is and stays ready adds what it added before.
fn ready_checks(object: &Value, old: &Value, errors: &mut ErrorList) {
    let new = json::list(object, &["status", "admissionChecks"]);
    for (i, before) in json::list(old, &["status", "admissionChecks"]).iter().enumerate() {
        let now = new.iter().find(|c| c["name"] == before["name"]);
        if let Some(now) = now.filter(|c| c["state"] == "Ready" && before["state"] == "Ready") {
            let path = format!("status.admissionChecks[{i}].podSetUpdates");
            errors.immutable(&path, now["podSetUpdates"].clone(), before["podSetUpdates"].clone());
        }
    }
}

/// A cluster is chosen from those that were nominated.
fn cluster_name(object: &Value, old: &Value, config: &Config, errors: &mut ErrorList) {
    let replaces = json::annotation(object, plimsoll_api::kueue::REPLACEMENT_FOR).is_some();
    if config.elastic_jobs && replaces || !old["status"]["clusterName"].is_null() {
        return;
    }
    if let Some(name) = object["status"]["clusterName"].as_str()
        && !json::list(old, &["status", "nominatedClusterNames"]).iter().any(|n| n == name)
    {
        let detail = "when setting clusterName it must be one of the nominatedClusterNames";
        errors.invalid("status.clusterName", name, detail);
    }
}

/// Podsets are immutable while quota is reserved; with workload slices a podset may still shrink, and its least count with it.
fn frozen(new: &[Value], old: &[Value], shrinks: bool, errors: &mut ErrorList) {
    if new.len() != old.len() {
        return errors.invalid("spec.podSets", Value::from(new), "field is immutable");
    }
    for (i, (new, old)) in new.iter().zip(old).enumerate() {
        let mut compared = new.clone();
        if shrinks && new["count"].as_i64().unwrap_or(1) < old["count"].as_i64().unwrap_or(1) {
            json::set(&mut compared, &["count"], old["count"].clone());
            let least = |podset: &Value| podset["minCount"].as_i64();
            if least(old) > least(new) && least(new) == new["count"].as_i64() {
                json::set(&mut compared, &["minCount"], old["minCount"].clone());
            }
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
    for row in rows {
        let at = format!("status.reclaimablePods[{}]", json::text(row, &["name"]));
        let Some(podset) = podsets.iter().find(|p| p["name"] == row["name"]) else {
            let names: Vec<&str> = podsets.iter().map(|p| json::text(p, &["name"])).collect();
            errors.not_supported(&format!("{at}.name"), json::text(row, &["name"]), &names);
            continue;
        };
        let (count, most) = (row["count"].as_i64().unwrap_or(0), podset["count"].as_i64().unwrap_or(1));
        let before = old.map_or(&[][..], |o| json::list(o, &["status", "reclaimablePods"]));
        if count > most && !(elastic && before.contains(row)) {
            errors.invalid(&format!("{at}.count"), count, &format!("should be less or equal to {most}"));
        }
    }
    let Some(old) = old.filter(|o| reserved(o) && reserved(object)) else { return };
    let shrunk = if elastic { shrunk(object) } else { Vec::new() };
    for before in json::list(old, &["status", "reclaimablePods"]) {
        let name = json::text(before, &["name"]);
        if shrunk.contains(&name) || (elastic && plimsoll_api::kueue::keeps_charge(old, name)) {
            continue;
        }
        let count = before["count"].as_i64().unwrap_or(0);
        let path = format!("status.reclaimablePods[{}]", json::text(before, &["name"]));
        match rows.iter().find(|r| r["name"] == before["name"]) {
            Some(now) if now["count"].as_i64().unwrap_or(0) >= count => {}
            Some(now) => {
                let detail = format!("cannot be less than {count}");
                errors.invalid(&format!("{path}.count"), now["count"].clone(), &detail);
            }
            None => errors.required(&path, "cannot be removed"),
        }
    }
}
