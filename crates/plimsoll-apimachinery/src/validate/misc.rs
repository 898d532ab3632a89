//! Kinds of the smaller groups.

use std::collections::BTreeSet;

use serde_json::Value;

use super::apps::{at_most_all, int_or_percent};
use super::path::{Errors, Path};
use super::{checks, conditions, golang, meta, pod, resources, selector};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

/// policy/v1 `PodDisruptionBudget`.
pub(super) fn disruption_budget(budget: &Obj, errors: &mut Errors) {
    let spec = object(budget, "spec");
    let path = Path::new("spec");
    let (min, max) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if min.is_some() && max.is_some() {
        let shown = golang::structure("PodDisruptionBudgetSpec", spec);
        errors.invalid_text(&path, shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for (key, value) in [("minAvailable", min), ("maxUnavailable", max)] {
        int_or_percent(value, &path.field(key), errors);
        at_most_all(value, &path.field(key), errors);
    }
    selector::label_selector(object(spec, "selector"), &path.field("selector"), errors);
    if let Some(policy) = spec.get("unhealthyPodEvictionPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("unhealthyPodEvictionPolicy"), policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
}

/// Counts of a budget are not negative.
pub(super) fn disruption_budget_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let status = object(new, "status");
    let path = Path::new("status");
    conditions::conditions(list(status, "conditions"), &path.field("conditions"), errors);
    for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.non_negative(&path.field(key), int(status, key));
    }
}

/// Largest priority a user may give.
const MAX_PRIORITY: i64 = 1_000_000_000;

/// scheduling.k8s.io/v1 `PriorityClass`.
pub(super) fn priority_class(class: &Obj, errors: &mut Errors) {
    let name = text(object(class, "metadata"), "name");
    let value = int(class, "value").unwrap_or(0);
    if name.starts_with("system-") {
        if let Some(why) = system_class(class, name, value) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            errors.forbidden(&Path::new("metadata").field("name"), &detail);
        }
    } else if value > MAX_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.forbidden(&Path::new("value"), &detail);
    }
    if let Some(policy) = class.get("preemptionPolicy").and_then(Value::as_str) {
        errors.choice(&Path::new("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
}

/// The reason why a class is not one of the system's.
fn system_class(class: &Obj, name: &str, value: i64) -> Option<String> {
    let known = match name {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if value != known {
        return Some(format!("value of {name} PriorityClass must be {known}"));
    }
    flag(class, "globalDefault").then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// The value of a class is immutable.
pub(super) fn priority_class_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if int(old, "value").unwrap_or(0) != int(new, "value").unwrap_or(0) {
        errors.forbidden(&Path::new("value"), "may not be changed in an update.");
    }
    errors.immutable(&Path::new("preemptionPolicy"), old, new, "preemptionPolicy");
}

/// coordination.k8s.io/v1 Lease.
pub(super) fn lease(lease: &Obj, errors: &mut Errors) {
    let spec = object(lease, "spec");
    let path = Path::new("spec");
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|s| *s <= 0) {
        errors.invalid(&path.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    errors.non_negative(&path.field("leaseTransitions"), int(spec, "leaseTransitions"));
    if has(spec, "preferredHolder") && text(spec, "strategy").is_empty() {
        errors.forbidden(&path.field("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

/// node.k8s.io/v1 `RuntimeClass`.
pub(super) fn runtime_class(class: &Obj, errors: &mut Errors) {
    let handler = text(class, "handler");
    errors.named(&Path::new("handler"), handler, checks::dns_label);
    if has(class, "overhead") {
        let fixed = object(object(class, "overhead"), "podFixed");
        resources::overhead(fixed, &Path::new("overhead"), errors);
    }
    let path = Path::new("scheduling");
    let scheduling = object(class, "scheduling");
    meta::labels(object(scheduling, "nodeSelector"), &path.field("nodeSelector"), errors);
    let (all, at) = (list(scheduling, "tolerations"), path.field("tolerations"));
    pod::tolerations(all, &at, errors);
    let mut seen = BTreeSet::new();
    for (i, one) in all.iter().enumerate() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|key| text(as_obj(one), key))) {
            errors.duplicate_text(&at.index(i), golang::shown("Toleration", Some(one)), "");
        }
    }
}

/// The handler of a class is immutable.
pub(super) fn runtime_class_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    errors.immutable(&Path::new("handler"), old, new, "handler");
}
