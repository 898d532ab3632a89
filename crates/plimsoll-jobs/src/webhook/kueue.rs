//! Kueue's own kinds: the rules that their schemas can't express (Kueue `pkg/webhooks`).

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_api::{content, json};
use serde_json::{Value, json};

use super::review::{Review, Validation};
use super::validation::{ErrorList, NEGATIVE, quantity, tolerations};
use super::workload;
use crate::store::{Kind, ObjectStore};
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
/// Most flavors and most resources of a whole ClusterQueue.
const MOST: usize = 256;
/// Most pairs of flavor and resource of a group.
const MOST_PAIRS: usize = 512;
/// Most flavors of a ClusterQueue whose workloads have a variant for each.
const MOST_VARIANTS: usize = 16;
const TRY_PREFERRED: &str = "TryPreferredFlavors";

/// Finalizers, quotas of nothing, and the name of an only podset.
pub(super) fn default(review: &Review<'_>, object: &mut Value) {
    match review.plural {
        "clusterqueues" | "resourceflavors" => {
            let mut list = json::list(object, &["metadata", "finalizers"]).to_vec();
            if !list.iter().any(|f| f == names::IN_USE) {
                list.push(json!(names::IN_USE));
                json::set(object, &["metadata", "finalizers"], Value::Array(list));
            }
            if review.plural == "clusterqueues" {
                zero_quotas(object);
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

/// A quota that is not named is one of nothing: Kueue's webhook writes the Go type out, in which `nominalQuota` is no pointer.
fn zero_quotas(queue: &mut Value) {
    fn rows<'a>(of: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
        of.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
    }
    let Some(spec) = queue.get_mut("spec") else { return };
    let flavors = rows(spec, "resourceGroups").flat_map(|group| rows(group, "flavors"));
    for quota in flavors.flat_map(|flavor| rows(flavor, "resources")).filter_map(Value::as_object_mut) {
        if quota.get("nominalQuota").is_none_or(Value::is_null) {
            quota.insert("nominalQuota".to_owned(), json!("0"));
        }
    }
}

/// Existing objects with fields that have no effect: `plural/name` and why. For the log at the start.
pub fn objects_without_effect(objects: &ObjectStore, config: &Config) -> Vec<(String, String)> {
    let queues = objects.all(Kind::ClusterQueue);
    let told = |queue: Arc<Value>| {
        let text = without_effect("clusterqueues", &queue, config)?;
        Some((format!("clusterqueues/{}", json::name(&queue)), text))
    };
    queues.filter_map(told).collect()
}

/// A warning for fields that have no effect here.
fn without_effect(plural: &str, object: &Value, config: &Config) -> Option<String> {
    match plural {
        "clusterqueues"
            if !config.concurrent_admission && !object["spec"]["concurrentAdmissionPolicy"].is_null() =>
        {
            let text =
                "spec.concurrentAdmissionPolicy has no effect: the feature gate ConcurrentAdmission is off";
            Some(text.to_owned())
        }
        "multikueueconfigs"
            if !config.multikueue.automates_quota && object["spec"]["quotaManagement"] == "Automated" =>
        {
            let text = "spec.quotaManagement has no effect: the feature gate MultiKueueManagerQuotaAutomation is off";
            Some(text.to_owned())
        }
        _ => None,
    }
}

/// Validates a created or updated object: the name of the webhook, and the result.
pub(super) fn validate(review: &Review<'_>, object: &Value, env: Env<'_>) -> (&'static str, Validation) {
    let warnings = without_effect(review.plural, object, env.config).into_iter().collect();
    let (webhook, errors) = match review.plural {
        "clusterqueues" => ("vclusterqueue.kb.io", cluster_queue(object, review.old, env.config)),
        "cohorts" => ("vcohort.kb.io", cohort(object)),
        "resourceflavors" => ("vresourceflavor.kb.io", flavor(object)),
        "workloads" => ("vworkload.kb.io", workload::validate(object, review.old, env.config)),
        _ => ("", ErrorList::default()),
    };
    (webhook, Validation { errors, warnings })
}

fn cluster_queue(object: &Value, old: Option<&Value>, config: &Config) -> ErrorList {
    let mut errors = ErrorList::default();
    let in_cohort = !json::text(object, &["spec", "cohortName"]).is_empty();
    resource_groups(object, in_cohort, true, &mut errors);
    selector(&object["spec"]["namespaceSelector"], "spec.namespaceSelector", &mut errors);
    fair_sharing(object, &mut errors);
    totals(object, &mut errors);
    if config.concurrent_admission {
        concurrent_admission(object, &mut errors);
    }
    // With the gate on, what was wrong before is refused like anything else.
    let legacy = old.filter(|_| !config.webhook_gates.rejects_invalid_on_flavors);
    on_flavors(object, legacy, &mut errors);
    if let Some(old) = old {
        let policy = |o: &Value| o["spec"]["concurrentAdmissionPolicy"].clone();
        errors.immutable("spec.concurrentAdmissionPolicy", policy(object), policy(old));
    }
    errors
}

/// What a policy of concurrent admission asks of its ClusterQueue (Kueue `validateConcurrentAdmissionPolicy`).
fn concurrent_admission(object: &Value, errors: &mut ErrorList) {
    const CONSTRAINTS: &str = "spec.concurrentAdmissionPolicy.migration.constraints";
    let migration = &object["spec"]["concurrentAdmissionPolicy"]["migration"];
    if object["spec"]["concurrentAdmissionPolicy"].is_null() {
        return;
    }
    let groups = json::list(object, &["spec", "resourceGroups"]);
    let flavors: Vec<&str> =
        groups.iter().flat_map(|g| json::list(g, &["flavors"])).map(|f| json::text(f, &["name"])).collect();
    if groups.len() != 1 {
        let detail = "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined";
        errors.invalid("spec.resourceGroups", groups.len(), detail);
    } else if flavors.len() > MOST_VARIANTS {
        let detail = format!(
            "cannot have more than {MOST_VARIANTS} resource flavors in the ResourceGroup when ConcurrentAdmissionPolicy is defined"
        );
        errors.invalid("spec.resourceGroups[0].flavors", flavors.len(), &detail);
    }
    let mode = json::text(migration, &["mode"]);
    if migration["constraints"].is_object() && !["", TRY_PREFERRED].contains(&mode) {
        let detail = format!("may only be set when migration.mode is {TRY_PREFERRED:?} (got {mode:?})");
        errors.forbidden(CONSTRAINTS, &detail);
    } else if let Some(last) = migration["constraints"]["lastAcceptableFlavorName"].as_str()
        && !flavors.contains(&last)
    {
        let detail =
            format!("must be one of the flavors defined in the ClusterQueue: [{}]", flavors.join(" "));
        errors.invalid(&format!("{CONSTRAINTS}.lastAcceptableFlavorName"), last, &detail);
    }
    if object["spec"]["queueingStrategy"] == "StrictFIFO" {
        let detail = "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined";
        errors.invalid("spec.queueingStrategy", "StrictFIFO", detail);
    }
}

/// Most flavors, resources, and pairs of both (Kueue `validateTotalFlavors` and its siblings).
fn totals(object: &Value, errors: &mut ErrorList) {
    let groups = json::list(object, &["spec", "resourceGroups"]);
    for (what, key) in [("flavors", "flavors"), ("covered resources", "coveredResources")] {
        let total: usize = groups.iter().map(|g| json::list(g, &[key]).len()).sum();
        if total > MOST {
            let detail =
                format!("total number of {what} across all resourceGroups must be ≤ {MOST}, got {total}");
            errors.invalid("spec.resourceGroups", total, &detail);
        }
    }
    for (i, group) in groups.iter().enumerate() {
        let flavors = json::list(group, &["flavors"]).iter();
        let total: usize = flavors.map(|f| json::list(f, &["resources"]).len()).sum();
        if total > MOST_PAIRS {
            let detail = format!(
                "number of flavor-resource combinations in a resourceGroup must be ≤ {MOST_PAIRS}, got {total}"
            );
            errors.invalid(&format!("spec.resourceGroups[{i}]"), total, &detail);
        }
    }
}

/// A label selector (`validation.ValidateLabelSelector`).
fn selector(selector: &Value, at: &str, errors: &mut ErrorList) {
    errors.labels(&format!("{at}.matchLabels"), &selector["matchLabels"]);
    for (i, row) in json::list(selector, &["matchExpressions"]).iter().enumerate() {
        let at = format!("{at}.matchExpressions[{i}]");
        let values = json::list(row, &["values"]);
        match json::text(row, &["operator"]) {
            "In" | "NotIn" if values.is_empty() => errors
                .required(&format!("{at}.values"), "must be specified when `operator` is 'In' or 'NotIn'"),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
                &format!("{at}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&format!("{at}.operator"), other, "not a valid selector operator"),
        }
        errors.label_key(&format!("{at}.key"), json::text(row, &["key"]));
        for (j, value) in values.iter().enumerate() {
            errors.label_value(&format!("{at}.values[{j}]"), value.as_str().unwrap_or_default());
        }
    }
}

/// The weight of fair sharing is 0 or large enough to divide by.
fn fair_sharing(object: &Value, errors: &mut ErrorList) {
    let Some(weight) = quantity(&object["spec"]["fairSharing"]["weight"]) else { return };
    if weight.signum() < 0 {
        errors.invalid("spec.fairSharing", weight.to_string(), NEGATIVE);
    } else if weight.signum() > 0 && "1n".parse().is_ok_and(|least| weight <= least) {
        errors.invalid("spec.fairSharing", weight.to_string(), "When not 0, weight must be > 10e-9");
    }
}

/// Admission checks name flavors of the ClusterQueue (Kueue `validateAdmissionCheckOnFlavorsUpdate`). What is wrong in `legacy`
/// may stay, while the flavors of the ClusterQueue stay the same.
fn on_flavors(object: &Value, legacy: Option<&Value>, errors: &mut ErrorList) {
    let flavors = |o: &Value| -> BTreeSet<String> {
        let groups = json::list(o, &["spec", "resourceGroups"]).iter();
        let flavors = groups.flat_map(|g| json::list(g, &["flavors"]));
        flavors.map(|f| json::text(f, &["name"]).to_owned()).collect()
    };
    let checks = |o: &Value| json::list(o, &["spec", "admissionChecksStrategy", "admissionChecks"]).to_vec();
    let names = |check: &Value| -> BTreeSet<String> {
        let names = json::list(check, &["onFlavors"]).iter();
        names.filter_map(|f| f.as_str().map(str::to_owned)).collect()
    };
    let valid = flavors(object);
    let before = legacy.filter(|o| flavors(o) == valid).map_or_else(Vec::new, checks);
    for (i, check) in checks(object).iter().enumerate() {
        if before.iter().any(|b| b["name"] == check["name"] && names(b) == names(check)) {
            continue;
        }
        for (j, flavor) in json::list(check, &["onFlavors"]).iter().enumerate() {
            let flavor = flavor.as_str().unwrap_or_default();
            if !valid.contains(flavor) {
                let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
                let at = format!("spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{j}]");
                errors.not_supported(&at, flavor, &valid);
            }
        }
    }
}

fn cohort(object: &Value) -> ErrorList {
    let mut errors = ErrorList::default();
    let has_parent = !json::text(object, &["spec", "parentName"]).is_empty();
    fair_sharing(object, &mut errors);
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
            errors.label_key(&format!("{at}.coveredResources[{j}]"), name);
            if !resources.insert(name) {
                errors.duplicate(&format!("{at}.coveredResources[{j}]"), name);
            }
        }
        for (j, flavor) in json::list(group, &["flavors"]).iter().enumerate() {
            let at = format!("{at}.flavors[{j}]");
            let name = json::text(flavor, &["name"]);
            // The schema has it that there are as many as covered resources.
            for (k, (row, wanted)) in json::list(flavor, &["resources"]).iter().zip(covered).enumerate() {
                let at = format!("{at}.resources[{k}]");
                if row["name"] != *wanted {
                    let detail = "must match the name in coveredResources";
                    errors.invalid(&format!("{at}.name"), row["name"].clone(), detail);
                }
                quota(row, &at, limits, lending_bound, errors);
            }
            if !flavors.insert(name) {
                errors.duplicate(&format!("{at}.name"), name);
            }
        }
    }
}

fn quota(row: &Value, at: &str, limits: bool, lending_bound: bool, errors: &mut ErrorList) {
    let read = |key: &str| quantity(&row[key]);
    let nominal = read("nominalQuota");
    for key in ["nominalQuota", "borrowingLimit", "lendingLimit"] {
        let Some(amount) = read(key) else { continue };
        let path = format!("{at}.{key}");
        if amount.signum() < 0 {
            errors.invalid(&path, amount.to_string(), NEGATIVE);
        }
        if key != "nominalQuota" && !limits {
            let parent = if lending_bound { "cohort" } else { "parent" };
            errors.invalid(&path, amount.to_string(), &format!("must be nil when {parent} is empty"));
        }
        if key == "lendingLimit" && lending_bound && nominal.is_some_and(|n| amount > n) {
            errors.invalid(&path, amount.to_string(), "must be less than or equal to the nominalQuota");
        }
    }
}

fn flavor(object: &Value) -> ErrorList {
    let mut errors = ErrorList::default();
    errors.labels("spec.nodeLabels", &object["spec"]["nodeLabels"]);
    let mut seen = BTreeSet::new();
    for (i, taint) in json::list(object, &["spec", "nodeTaints"]).iter().enumerate() {
        let (key, effect) = (json::text(taint, &["key"]), json::text(taint, &["effect"]));
        let at = format!("spec.nodeTaints[{i}]");
        errors.label_key(&format!("{at}.key"), key);
        let value = json::text(taint, &["value"]);
        let faults = content::label_value(value);
        if !faults.is_empty() {
            errors.invalid(&format!("{at}.value"), value, &faults.join(";"));
        }
        if !seen.insert((key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.duplicate_object(&at, &shown_taint(taint), detail);
        }
    }
    tolerations(&object["spec"], "spec.tolerations", &mut errors);
    errors
}

/// A taint as Go encodes it.
fn shown_taint(taint: &Value) -> String {
    let shown = |key: &&str| matches!(*key, "key" | "effect") || !json::text(taint, &[*key]).is_empty();
    let field = |key: &str| format!("{key:?}:{}", Value::from(json::text(taint, &[key])));
    let keys = ["key", "value", "effect", "timeAdded"].into_iter().filter(shown);
    format!("{{{}}}", keys.map(field).collect::<Vec<_>>().join(","))
}
