//! The objects that a quota selects.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Kind;

/// Whether the scopes of a quota (its `spec`) take an object in. Only pods and claims have any.
pub fn holds(kind: &Kind, object: &Value, spec: &Value) -> bool {
    let plain = list(&spec["scopes"]).iter().filter_map(Value::as_str);
    let mut plain = plain.map(|scope| Requirement { scope, operator: "Exists", values: &[] });
    let selected = list(&spec["scopeSelector"]["matchExpressions"]);
    let mut selected = selected.iter().map(Requirement::read);
    let matches = |r: Requirement| match (kind.gvk.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => r.pod(object),
        ("", "persistentvolumeclaims") => r.claim(object),
        _ => false,
    };
    plain.all(matches) && selected.all(matches)
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

struct Requirement<'a> {
    scope: &'a str,
    operator: &'a str,
    values: &'a [Value],
}

impl<'a> Requirement<'a> {
    fn read(v: &'a Value) -> Self {
        let text = |field: &str| v[field].as_str().unwrap_or("");
        Self { scope: text("scopeName"), operator: text("operator"), values: list(&v["values"]) }
    }

    fn pod(&self, pod: &Value) -> bool {
        let spec = &pod["spec"];
        let best_effort = || {
            let spec = spec.as_object().cloned().unwrap_or_default();
            crate::strategy::qos_class(&spec) == "BestEffort"
        };
        match self.scope {
            "Terminating" => is_terminating(pod),
            "NotTerminating" => !is_terminating(pod),
            "BestEffort" => best_effort(),
            "NotBestEffort" => !best_effort(),
            "PriorityClass" => self.selects(spec["priorityClassName"].as_str().filter(|c| !c.is_empty())),
            "CrossNamespacePodAffinity" => crosses_namespaces(spec),
            _ => false,
        }
    }

    fn claim(&self, claim: &Value) -> bool {
        if self.scope != "VolumeAttributesClass" {
            return false;
        }
        let (spec, status) = (&claim["spec"], &claim["status"]);
        let all = [
            &spec["volumeAttributesClassName"],
            &status["currentVolumeAttributesClassName"],
            &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
        ];
        let named: BTreeSet<&str> =
            all.into_iter().filter_map(Value::as_str).filter(|n| !n.is_empty()).collect();
        if named.is_empty() { self.selects(None) } else { named.into_iter().any(|n| self.selects(Some(n))) }
    }

    /// As a selector of labels would, with the scope for the key.
    fn selects(&self, name: Option<&str>) -> bool {
        let listed = name.is_some_and(|name| self.values.iter().any(|v| v == name));
        match self.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => name.is_some(),
            "DoesNotExist" => name.is_none(),
            _ => false,
        }
    }
}

/// Whether a pod runs for a limited time.
pub fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// Whether a pod wants to be near or far from pods of other namespaces.
fn crosses_namespaces(spec: &Value) -> bool {
    let crosses =
        |term: &Value| !list(&term["namespaces"]).is_empty() || term["namespaceSelector"].is_object();
    ["podAffinity", "podAntiAffinity"].iter().map(|kind| &spec["affinity"][kind]).any(|affinity| {
        list(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]).iter().any(crosses)
            || list(&affinity["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .any(|weighted| crosses(&weighted["podAffinityTerm"]))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scopes() {
        let pod = json!({ "spec": {
            "activeDeadlineSeconds": 0, "priorityClassName": "high",
            "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                { "podAffinityTerm": { "namespaceSelector": {} } }
            ] } },
        } });
        let bare = json!({ "spec": {} });
        let claim = json!({ "status": { "currentVolumeAttributesClassName": "gold" } });
        let plain = |scope: &str| json!({ "scopes": [scope] });
        let selected = |scope: &str, operator: &str, values: &[&str]| {
            json!({ "scopeSelector": { "matchExpressions": [
                { "scopeName": scope, "operator": operator, "values": values }
            ] } })
        };
        let rows = [
            ("pods", &pod, plain("Terminating"), true),
            ("pods", &bare, plain("Terminating"), false),
            ("pods", &pod, plain("BestEffort"), true),
            ("pods", &pod, plain("CrossNamespacePodAffinity"), true),
            ("pods", &bare, plain("CrossNamespacePodAffinity"), false),
            ("pods", &pod, plain("PriorityClass"), true),
            ("pods", &bare, plain("PriorityClass"), false),
            ("pods", &pod, selected("PriorityClass", "In", &["low", "high"]), true),
            ("pods", &bare, selected("PriorityClass", "NotIn", &["high"]), true),
            ("pods", &bare, selected("PriorityClass", "In", &["high"]), false),
            ("pods", &bare, selected("PriorityClass", "DoesNotExist", &[]), true),
            ("persistentvolumeclaims", &claim, plain("VolumeAttributesClass"), true),
            ("persistentvolumeclaims", &claim, selected("VolumeAttributesClass", "In", &["gold"]), true),
            ("persistentvolumeclaims", &bare, selected("VolumeAttributesClass", "In", &["gold"]), false),
            ("persistentvolumeclaims", &claim, plain("NotTerminating"), false),
            ("configmaps", &bare, plain("NotTerminating"), false),
            ("configmaps", &bare, json!({}), true),
        ];
        for (plural, object, spec, wanted) in rows {
            let kind = Kind { plural: plural.to_owned(), ..Kind::default() };
            assert_eq!(holds(&kind, object, &spec), wanted, "{plural} {object} {spec}");
        }
    }
}
