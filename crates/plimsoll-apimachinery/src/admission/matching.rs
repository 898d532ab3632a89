//! Rules and selectors that webhooks and policies match requests with
//! (`k8s.io/apiserver/pkg/admission/plugin/webhook/predicates`).

use std::collections::BTreeMap;

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use super::attributes::{Attributes, Target};
use crate::json::{at, list, text};

/// Whether a selector matches the namespace of a request; it matches every request outside of namespaces.
pub(crate) fn selects_namespace(selector: &Value, request: &Attributes) -> bool {
    let own = request.target.gvk.group.is_empty() && request.target.plural == "namespaces";
    if own {
        let object = if request.object.is_null() { &request.old } else { &request.object };
        return selector_matches(selector, &labels_of(object));
    }
    request.namespace.is_empty() || selector_matches(selector, &request.namespace_labels)
}

/// Whether a selector matches the new or the old object of a request.
pub(crate) fn selects_object(selector: &Value, request: &Attributes) -> bool {
    let of = |o: &Value| !o.is_null() && selector_matches(selector, &labels_of(o));
    if request.object.is_null() && request.old.is_null() {
        return selector_matches(selector, &BTreeMap::new());
    }
    of(&request.object) || of(&request.old)
}

/// Whether a rule of a webhook or policy matches a request as `target`.
pub(crate) fn rule_matches(rule: &Value, target: &Target, request: &Attributes) -> bool {
    let version = target.resource_version.as_ref().unwrap_or(&target.gvk);
    let one = |key: &str, wanted: &str| list(rule, key).iter().any(|v| v == "*" || v == wanted);
    let scope = match text(rule, "scope") {
        "Namespaced" => !request.namespace.is_empty(),
        "Cluster" => request.namespace.is_empty(),
        _ => true,
    };
    scope
        && request.operation.is_some_and(|o| one("operations", o.name()))
        && one("apiGroups", &version.group)
        && one("apiVersions", &version.version)
        && list(rule, "resources")
            .iter()
            .filter_map(Value::as_str)
            .any(|pattern| resource_matches(pattern, &target.plural, &request.subresource))
}

/// Whether a rule's resource matches: `pods`, `pods/status`, `*`, `*/*`, `pods/*`, `*/status`. A pattern without a slash
/// matches no subresource.
fn resource_matches(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (resource, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == plural) && (sub == subresource || sub == "*")
}

/// `metadata.labels` of an object.
pub fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = at(at(object, "metadata"), "labels");
    let pair = |(k, v): (&String, &Value)| (k.clone(), v.as_str().unwrap_or_default().to_owned());
    labels.as_object().into_iter().flatten().map(pair).insert_each()
}

/// Whether a `metav1.LabelSelector` matches labels; a missing or an empty selector matches everything.
pub(crate) fn selector_matches(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let pairs = at(selector, "matchLabels").as_object().into_iter().flatten();
    let equal = pairs.into_iter().all(|(k, v)| labels.get(k).map(String::as_str) == v.as_str());
    equal
        && list(selector, "matchExpressions").iter().all(|e| {
            let value = labels.get(text(e, "key"));
            let among = value.is_some_and(|v| list(e, "values").iter().any(|x| x == v.as_str()));
            match text(e, "operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
