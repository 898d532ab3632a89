//! Affinity, tolerations, spreading.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{checks, selector};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// `validateAffinity`.
pub(super) fn affinity(affinity: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = affinity.get("nodeAffinity").and_then(Value::as_object) {
        let at = path.field("nodeAffinity");
        if let Some(required) = node.get(REQUIRED).and_then(Value::as_object) {
            node_selector(required, &at.field(REQUIRED), errors);
        }
        let preferred = at.field(PREFERRED);
        for (i, term) in list(node, PREFERRED).iter().map(as_obj).enumerate() {
            let here = preferred.index(i);
            weight(term, &here, errors);
            // Values that are no valid labels match nothing, which a preferred term may do.
            node_term(object(term, "preference"), false, &here.field("preference"), errors);
        }
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        let required = at.field(REQUIRED);
        for (i, term) in list(pods, REQUIRED).iter().map(as_obj).enumerate() {
            pod_term(term, &required.index(i), errors);
        }
        let preferred = at.field(PREFERRED);
        for (i, term) in list(pods, PREFERRED).iter().map(as_obj).enumerate() {
            let here = preferred.index(i);
            weight(term, &here, errors);
            pod_term(object(term, "podAffinityTerm"), &here.field("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let weight = int(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.field("weight"), weight, "must be in the range 1-100");
    }
}

/// `ValidateNodeSelector`.
pub(in super::super) fn node_selector(selector: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let terms = path.field("nodeSelectorTerms");
    if list(selector, "nodeSelectorTerms").is_empty() {
        errors.required(&terms, "must have at least one node selector term");
        return;
    }
    for (i, term) in list(selector, "nodeSelectorTerms").iter().map(as_obj).enumerate() {
        node_term(term, true, &terms.index(i), errors);
    }
}

fn node_term(term: &Obj, strict: bool, path: &Path<'_>, errors: &mut Errors) {
    let expressions = path.field("matchExpressions");
    for (i, e) in list(term, "matchExpressions").iter().map(as_obj).enumerate() {
        node_requirement(e, strict, &expressions.index(i), errors);
    }
    let fields = path.field("matchFields");
    for (i, e) in list(term, "matchFields").iter().map(as_obj).enumerate() {
        field_requirement(e, &fields.index(i), errors);
    }
}

/// `strict`: values have to be values of labels.
fn node_requirement(e: &Obj, strict: bool, path: &Path<'_>, errors: &mut Errors) {
    let values = list(e, "values");
    let at = path.field("values");
    match text(e, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(&at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    let key = text(e, "key");
    errors.invalid_all(&path.field("key"), key, &checks::qualified_name(key));
    for (i, value) in values.iter().enumerate().filter(|_| strict) {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_all(&at.index(i), value, &checks::label_value(value));
    }
}

fn field_requirement(e: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let values = list(e, "values");
    match text(e, "operator") {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(&path.field("values"), detail);
            }
        }
        other => errors.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    let key = text(e, "key");
    if key == "metadata.name" {
        for (i, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            errors.invalid_all(&path.field("values").index(i), value, &checks::dns_subdomain(value));
        }
    } else {
        errors.invalid(&path.field("key"), key, "not a valid field selector key");
    }
}

fn pod_term(term: &Obj, path: &Path<'_>, errors: &mut Errors) {
    selector::label_selector(object(term, "labelSelector"), &path.field("labelSelector"), errors);
    selector::label_selector(object(term, "namespaceSelector"), &path.field("namespaceSelector"), errors);
    let namespaces = path.field("namespace");
    for name in list(term, "namespaces") {
        let name = name.as_str().unwrap_or_default();
        errors.invalid_all(&namespaces, name, &checks::dns_label(name));
    }
    label_keys(term, path, errors);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(&path.field("topologyKey"), "can not be empty");
    }
    errors.invalid_all(&path.field("topologyKey"), key, &checks::qualified_name(key));
}

/// `ValidateMatchLabelKeysAndMismatchLabelKeys`. In a pod, the keys are already part of the selector.
fn label_keys(term: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let at = path.field(field);
        let keys = list(term, field);
        if !keys.is_empty() && !has(term, "labelSelector") {
            errors.forbidden(&at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            let key = key.as_str().unwrap_or_default();
            errors.invalid_all(&at.index(i), key, &checks::qualified_name(key));
        }
    }
    let keys = list(term, "matchLabelKeys");
    let chosen = object(term, "labelSelector");
    let mut seen: BTreeSet<&str> = object(chosen, "matchLabels").keys().map(String::as_str).collect();
    for expression in list(chosen, "matchExpressions").iter().map(as_obj) {
        let key = text(expression, "key");
        if seen.contains(key)
            && let Some(i) = keys.iter().rposition(|k| k == key)
        {
            errors.invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
    let others = list(term, "mismatchLabelKeys");
    let at = path.field("matchLabelKeys");
    for (i, key) in keys.iter().enumerate().filter(|(_, key)| others.contains(key)) {
        errors.invalid(&at.index(i), key.clone(), "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

/// `ValidateTolerations`.
pub(in super::super) fn tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, t) in tolerations.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let (key, operator, effect) = (text(t, "key"), text(t, "operator"), text(t, "effect"));
        if !key.is_empty() {
            errors.invalid_all(&at.field("key"), key, &checks::qualified_name(key));
        }
        if key.is_empty() && operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&at.field("operator"), operator, detail);
        }
        if has(t, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&at.field("effect"), effect, detail);
        }
        match operator {
            "Equal" | "" => {
                let faults = checks::label_value(text(t, "value"));
                if !faults.is_empty() {
                    errors.invalid(&at.field("operator"), text(t, "value"), &faults.join(";"));
                }
            }
            "Exists" => {
                if !text(t, "value").is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(&at.field("operator"), text(t, "value"), detail);
                }
            }
            // Comparisons belong to a feature that is off by default; upstream's error lists them nevertheless.
            other @ ("Lt" | "Gt") => {
                errors.not_supported(&at.field("operator"), other, &["Equal", "Exists", "Lt", "Gt"]);
            }
            other => errors.not_supported(&at.field("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(&at.field("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

/// `validateTopologySpreadConstraints`.
pub(super) fn spread<'a>(constraints: &'a [Value], path: &Path<'_>, errors: &mut Errors) {
    let pair = |c: &'a Obj| (text(c, "topologyKey"), text(c, "whenUnsatisfiable"));
    let last: BTreeMap<_, usize> = constraints.iter().map(as_obj).map(pair).zip(0..).insert_each();
    for (i, c) in constraints.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let (key, when) = (text(c, "topologyKey"), text(c, "whenUnsatisfiable"));
        let skew = int(c, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&at.field("maxSkew"), skew, "must be greater than zero");
        }
        if key.is_empty() {
            errors.required(&at.field("topologyKey"), "can not be empty");
        }
        errors.one_of(&at.field("whenUnsatisfiable"), when, &["DoNotSchedule", "ScheduleAnyway"]);
        if last.get(&pair(c)).is_some_and(|last| *last > i) {
            let name = "{topologyKey, whenUnsatisfiable}";
            errors.duplicate(&at.field(name), format!("{{{key}, {when}}}"));
        }
        if let Some(domains) = int(c, "minDomains") {
            if domains <= 0 {
                errors.invalid(&at.field("minDomains"), domains, "must be greater than zero");
            }
            if when != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}");
                errors.invalid(&at.field("minDomains"), domains, &detail);
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = c.get(key).and_then(Value::as_str) {
                errors.one_of(&at.field(key), policy, &["Honor", "Ignore"]);
            }
        }
        label_keys(c, &at, errors);
        if has(c, "labelSelector") {
            selector::label_selector(object(c, "labelSelector"), &at.field("labelSelector"), errors);
        }
    }
}
