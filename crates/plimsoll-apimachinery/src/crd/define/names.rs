//! Names: their form, and whether they are taken.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{at, list, text};
use crate::error::FieldError;
use crate::validate::dns_1035_label;

/// `ValidateCustomResourceDefinitionNames`: names may be missing here.
pub fn validate(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let field = |name: &str| format!("{path}.{name}");
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = text(names, name);
        let mixed = matches!(name, "kind" | "listKind");
        let lower = value.to_lowercase();
        let faults = dns_1035_label(if mixed { &lower } else { value });
        if !value.is_empty() && !faults.is_empty() {
            let lead = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(FieldError::invalid(field(name), &json!(value), lead.to_owned() + &faults.join(",")));
        }
    }
    for key in ["shortNames", "categories"] {
        for (i, value) in list(names, key).iter().enumerate() {
            let faults = dns_1035_label(value.as_str().unwrap_or_default());
            if !faults.is_empty() {
                errors.push(FieldError::invalid(format!("{path}.{key}[{i}]"), value, faults.join(",")));
            }
        }
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let what = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(field("listKind"), &json!(list_kind), what));
    }
}

/// Whether a group is one of Kubernetes' own, for which definitions need an approval.
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}")))
}

/// The state of the annotation `api-approved.kubernetes.io`.
pub enum Approval<'a> {
    /// The annotation is missing.
    Missing,
    /// Neither a URL nor `unapproved…`.
    Invalid(&'a str),
    /// `unapproved…`.
    Bypassed(&'a str),
    /// A URL.
    Approved(&'a str),
}

/// Reads the approval annotation.
pub fn approval(annotations: &Value) -> Approval<'_> {
    match text(annotations, "api-approved.kubernetes.io") {
        "" => Approval::Missing,
        value if value.starts_with("unapproved") => Approval::Bypassed(value),
        value if value.contains("://") => Approval::Approved(value),
        value => Approval::Invalid(value),
    }
}

/// Whether a definition has a condition with a status.
pub fn has_condition(definition: &Value, kind: &str, status: &str) -> bool {
    condition(definition, kind).is_some_and(|c| text(c, "status") == status)
}

fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    list(at(definition, "status"), "conditions").iter().find(|c| text(c, "type") == kind)
}

/// Decides which names of a definition are accepted, and makes its new status: `acceptedNames` and the
/// conditions `NamesAccepted` and `Established` (upstream's naming and establishing controllers, in one step).
///
/// `others` are the other definitions; `now` is RFC 3339 with seconds. Transition times of conditions that
/// don't change are kept.
pub fn accept(definition: &Value, others: &[&Value], now: &str) -> Value {
    let spec = at(definition, "spec");
    let (wanted, had) = (at(spec, "names"), at(at(definition, "status"), "acceptedNames"));
    let (resources, kinds) = taken(text(spec, "group"), text(at(definition, "metadata"), "name"), others);
    let mut accepted: Map<String, Value> = had.as_object().cloned().unwrap_or_default();
    let mut problem: Option<(&str, String)> = None;
    for (key, reason, used) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        match conflict(at(wanted, key), at(had, key), used) {
            Some(message) => problem = Some((reason, message)),
            None => copy(&mut accepted, wanted, key),
        }
    }
    copy(&mut accepted, wanted, "categories");
    for key in ["plural", "kind"] {
        accepted.entry(key).or_insert_with(|| json!(""));
    }
    let fine = problem.is_none();
    let (reason, message) = problem.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    let mut conditions: Vec<Value> = list(at(definition, "status"), "conditions").to_vec();
    set(&mut conditions, "NamesAccepted", fine, reason, &message, now);
    if let Approval::Approved(value) | Approval::Bypassed(value) =
        approval(at(at(definition, "metadata"), "annotations"))
        && is_protected(text(spec, "group"))
    {
        let approved = value.contains("://");
        let reason = if approved { "ApprovedAnnotation" } else { "UnapprovedAnnotation" };
        let message =
            if approved { format!("approved in {value}") } else { format!("not approved: {value:?}") };
        set(&mut conditions, "KubernetesAPIApprovalPolicyConformant", approved, reason, &message, now);
    }
    if !has_condition(definition, "Established", "True") {
        if fine {
            let message = "the initial names have been accepted";
            set(&mut conditions, "Established", true, "InitialNamesAccepted", message, now);
        } else {
            set(&mut conditions, "Established", false, "NotAccepted", "not all names are accepted", now);
        }
    }
    let mut status = at(definition, "status").as_object().cloned().unwrap_or_default();
    status.insert("acceptedNames".to_owned(), Value::Object(accepted));
    status.insert("conditions".to_owned(), json!(conditions));
    Value::Object(status)
}

/// Resource names and kinds in use by other definitions of a group.
fn taken(group: &str, own: &str, others: &[&Value]) -> (HashSet<String>, HashSet<String>) {
    let (mut resources, mut kinds) = (HashSet::new(), HashSet::new());
    for other in others {
        if text(at(other, "spec"), "group") != group || text(at(other, "metadata"), "name") == own {
            continue;
        }
        let names = at(at(other, "status"), "acceptedNames");
        resources.extend(["plural", "singular"].map(|k| text(names, k).to_owned()));
        resources.extend(list(names, "shortNames").iter().filter_map(|v| v.as_str().map(str::to_owned)));
        kinds.extend(["kind", "listKind"].map(|k| text(names, k).to_owned()));
    }
    (resources, kinds)
}

fn conflict(wanted: &Value, had: &Value, used: &HashSet<String>) -> Option<String> {
    let clash = |name: &str| used.contains(name) && !name.is_empty();
    match wanted {
        Value::String(name) if had != wanted && clash(name) => Some(format!("{name:?} is already in use")),
        Value::Array(names) => {
            let before = had.as_array();
            let found: Vec<String> = names
                .iter()
                .filter(|n| !before.is_some_and(|b| b.contains(n)))
                .filter_map(Value::as_str)
                .filter(|n| clash(n))
                .map(|n| format!("{n:?} is already in use"))
                .collect();
            match found.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                many => Some(format!("[{}]", many.join(", "))),
            }
        }
        _ => None,
    }
}

fn copy(into: &mut Map<String, Value>, from: &Value, key: &str) {
    match from.get(key) {
        Some(value) => into.insert(key.to_owned(), value.clone()),
        None => into.remove(key),
    };
}

fn set(conditions: &mut Vec<Value>, kind: &str, status: bool, reason: &str, message: &str, now: &str) {
    let status = if status { "True" } else { "False" };
    let before = conditions.iter_mut().find(|c| text(c, "type") == kind);
    let since = match &before {
        Some(c) if text(c, "status") == status => text(c, "lastTransitionTime").to_owned(),
        _ => now.to_owned(),
    };
    let made = json!({
        "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match before {
        Some(c) => *c = made,
        None => conditions.push(made),
    }
}
