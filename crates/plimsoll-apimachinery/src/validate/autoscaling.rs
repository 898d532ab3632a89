//! autoscaling `HorizontalPodAutoscaler`, v1 and v2.

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use super::resources::{self, amount};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// Longest period of a policy and longest window, in seconds.
const MAX_PERIOD: i64 = 1800;
const MAX_WINDOW: i64 = 3600;

/// Relaxations for values that the old object has.
#[derive(Default)]
struct Allowed {
    /// No replicas at all.
    zero: bool,
    /// Any version of the target.
    target: bool,
    /// Any version of objects that are measured.
    objects: bool,
}

/// `HorizontalPodAutoscaler`.
pub(super) fn autoscaler(autoscaler: &Obj, errors: &mut Errors) {
    spec(object(autoscaler, "spec"), &Allowed::default(), errors);
}

/// Like a new object, except that invalid values of the old one may stay.
pub(super) fn autoscaler_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let same =
        |key: &str| text(object(before, "scaleTargetRef"), key) == text(object(after, "scaleTargetRef"), key);
    let wrong = |m: &Obj| {
        let described = object(object(m, "object"), "describedObject");
        has(m, "object") && version_fault(text(described, "apiVersion"), true).is_some()
    };
    let allowed = Allowed {
        zero: int(before, "minReplicas") == Some(0),
        target: same("apiVersion") && same("kind"),
        objects: list(before, "metrics").iter().map(as_obj).any(wrong),
    };
    spec(after, &allowed, errors);
}

fn spec(spec: &Obj, allowed: &Allowed, errors: &mut Errors) {
    let path = Path::new("spec");
    let (min, max) = (int(spec, "minReplicas"), int(spec, "maxReplicas").unwrap_or(0));
    let least = i64::from(!allowed.zero);
    if let Some(min) = min.filter(|min| *min < least) {
        let detail = format!("must be greater than or equal to {least}");
        errors.invalid(&path.field("minReplicas"), min, &detail);
    }
    let at = path.field("maxReplicas");
    if max == 0 {
        errors.required(&at, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&at, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(&at, max, "must be greater than or equal to `minReplicas`");
    }
    let target = object(spec, "scaleTargetRef");
    // The only kind of the core group that scales.
    let core = text(target, "kind") == "ReplicationController";
    let versions = if allowed.target { Versions::Any } else { Versions::of(core) };
    reference(target, versions, &path.field("scaleTargetRef"), errors);
    metrics(spec, min, allowed, &path.field("metrics"), errors);
    // v1 has this field instead of metrics; internally it is the first metric.
    if let Some(percent) = int(spec, "targetCPUUtilizationPercentage").filter(|percent| *percent <= 0) {
        let at = Path::new("spec.metrics[0].resource.target.averageUtilization");
        errors.invalid(&at, percent, "must be greater than 0");
    }
    let behavior = object(spec, "behavior");
    let at = path.field("behavior");
    for key in ["scaleUp", "scaleDown"] {
        if has(behavior, key) {
            scaling(object(behavior, key), &at.field(key), errors);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Versions {
    Any,
    WithGroup,
    Valid,
}

impl Versions {
    fn of(core: bool) -> Self {
        if core { Self::Valid } else { Self::WithGroup }
    }
}

fn version_fault(version: &str, core: bool) -> Option<String> {
    if version.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {version}"));
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    (!core && group.is_empty()).then(|| "apiVersion must specify API group".to_owned())
}

/// `ValidateCrossVersionObjectReference`.
fn reference(of: &Obj, versions: Versions, path: &Path<'_>, errors: &mut Errors) {
    for key in ["kind", "name"] {
        let (value, at) = (text(of, key), path.field(key));
        errors.named(&at, value, |v| checks::path_segment(v, false));
    }
    let version = text(of, "apiVersion");
    if versions != Versions::Any
        && let Some(fault) = version_fault(version, versions == Versions::Valid)
    {
        errors.invalid(&path.field("apiVersion"), version, &fault);
    }
}

fn metrics(spec: &Obj, min: Option<i64>, allowed: &Allowed, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "metrics");
    for (i, one) in all.iter().map(as_obj).enumerate() {
        metric(one, allowed, &path.index(i), errors);
    }
    let outside = |m: &Obj| matches!(text(m, "type"), "Object" | "External");
    if min == Some(0) && !all.iter().map(as_obj).any(outside) {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, detail);
    }
}

/// Sources and their types, in the order of upstream's checks.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

fn metric(metric: &Obj, allowed: &Allowed, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let (kind, at) = (text(metric, "type"), path.field("type"));
    if kind.is_empty() {
        errors.required(&at, "must specify a metric source type");
    }
    errors.one_of(&at, kind, &TYPES);
    let present: Vec<&str> = SOURCES.iter().map(|(key, _)| *key).filter(|key| has(metric, key)).collect();
    if let Some(first) = present.first() {
        source(first, object(metric, first), allowed, &path.field(first), errors);
    }
    let wanted = SOURCES.iter().find(|(_, t)| *t == kind).map(|(key, _)| *key);
    match wanted {
        None => errors.not_supported(&at, kind, &TYPES),
        Some(key) if !has(metric, key) => {
            let detail = "must populate information for the given metric source";
            errors.required(&path.field(key), detail);
        }
        Some(_) => {}
    }
    if present.len() != 1 {
        for key in present.iter().filter(|key| Some(**key) != wanted) {
            errors.forbidden(&path.field(key), "must populate the given metric source only");
        }
    }
}

fn source(key: &str, of: &Obj, allowed: &Allowed, path: &Path<'_>, errors: &mut Errors) {
    if key == "object" {
        let versions = if allowed.objects { Versions::Any } else { Versions::Valid };
        reference(object(of, "describedObject"), versions, &path.field("describedObject"), errors);
    }
    if matches!(key, "object" | "external" | "pods") {
        let (id, at) = (object(of, "metric"), path.field("metric"));
        let name = text(id, "name");
        if name.is_empty() {
            errors.required(&at.field("name"), "must specify a metric name");
        } else {
            errors.invalid_all(&at.field("name"), name, &checks::path_segment(name, false));
        }
    } else {
        resource(key, of, path, errors);
    }
    let (target, at) = (object(of, "target"), path.field("target"));
    self::target(target, &at, errors);
    let given = |key: &str| has(target, key);
    let either = |a: &str, b: &str| given(a) || given(b);
    match key {
        "object" if !either("value", "averageValue") => {
            errors.required(&at.field("averageValue"), "must set either a target value or averageValue");
        }
        "external" => {
            if !either("value", "averageValue") {
                let detail = "must set either a target value for metric or a per-pod target";
                errors.required(&at.field("averageValue"), detail);
            }
            if given("value") && given("averageValue") {
                let detail = "may not set both a target value for metric and a per-pod target";
                errors.forbidden(&at.field("value"), detail);
            }
        }
        "pods" if !given("averageValue") => {
            errors.required(&at.field("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" => {
            if !either("averageUtilization", "averageValue") {
                let detail = "must set either a target raw value or a target utilization";
                errors.required(&at.field("averageUtilization"), detail);
            }
            if given("averageUtilization") && given("averageValue") {
                let detail = "may not set both a target raw value and a target utilization";
                errors.forbidden(&at.field("averageValue"), detail);
            }
        }
        _ => {}
    }
}

fn resource(key: &str, of: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let name = text(of, "name");
    if name.is_empty() {
        errors.required(&path.field("name"), "must specify a resource name");
    } else if key == "containerResource" {
        resources::container_name(name, &path.field("name"), errors);
    }
    if key != "containerResource" {
        return;
    }
    let container = text(of, "container");
    if container.is_empty() {
        errors.required(&path.field("container"), "must specify a container");
    } else {
        errors.invalid_all(&path.field("container"), container, &checks::dns_label(container));
    }
}

fn target(target: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (kind, at) = (text(target, "type"), path.field("type"));
    if kind.is_empty() {
        errors.required(&at, "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&at, kind, "must be either Utilization, Value, or AverageValue");
    }
    for key in ["value", "averageValue"] {
        if let Some(value) = target.get(key).filter(|v| !v.is_null()).map(amount)
            && value.signum() != 1
        {
            errors.invalid(&path.field(key), value.to_string(), "must be positive");
        }
    }
    if let Some(percent) = int(target, "averageUtilization").filter(|p| *p < 1) {
        errors.invalid(&path.field("averageUtilization"), percent, "must be greater than 0");
    }
}

/// `validateScalingRules`.
fn scaling(rules: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("stabilizationWindowSeconds");
    if let Some(window) = int(rules, "stabilizationWindowSeconds") {
        if window < 0 {
            errors.invalid(&at, window, "must be greater than or equal to zero");
        }
        if window > MAX_WINDOW {
            errors.invalid(&at, window, &format!("must be less than or equal to {MAX_WINDOW}"));
        }
    }
    if let Some(select) = rules.get("selectPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("selectPolicy"), select, &["Disabled", "Max", "Min"]);
    }
    let (policies, at) = (list(rules, "policies"), path.field("policies"));
    if policies.is_empty() {
        errors.required(&at, "must specify at least one Policy");
    }
    for (i, one) in policies.iter().map(as_obj).enumerate() {
        policy(one, &at.index(i), errors);
    }
    if let Some(tolerance) = rules.get("tolerance").filter(|t| !t.is_null()) {
        resources::non_negative(tolerance, &path.field("tolerance"), errors);
    }
}

fn policy(policy: &Obj, path: &Path<'_>, errors: &mut Errors) {
    errors.one_of(&path.field("type"), text(policy, "type"), &["Percent", "Pods"]);
    for key in ["value", "periodSeconds"] {
        let value = int(policy, key).unwrap_or(0);
        if value <= 0 {
            errors.invalid(&path.field(key), value, "must be greater than zero");
        }
        if key == "periodSeconds" && value > MAX_PERIOD {
            let detail = format!("must be less than or equal to {MAX_PERIOD}");
            errors.invalid(&path.field(key), value, &detail);
        }
    }
}

/// Counts of an autoscaler are not negative.
pub(super) fn autoscaler_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    for key in ["currentReplicas", "desiredReplicas"] {
        errors.non_negative(&path.field(key), int(object(new, "status"), key));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn autoscalers() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let with = |key: &str, value: Value| {
            let mut spec = json!({"maxReplicas": 3, "scaleTargetRef": target});
            spec[key] = value;
            json!({"spec": spec})
        };
        for (autoscaler, want) in [
            (
                with("minReplicas", json!(5)),
                vec!["spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"],
            ),
            (
                with("scaleTargetRef", json!({"apiVersion": "v1", "kind": "Pod", "name": "p"})),
                vec![
                    "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
                ],
            ),
            (
                with(
                    "metrics",
                    json!([{"type": "Pods", "resource": {"name": "cpu", "target": {"type": "X", "averageValue": "0"}}}]),
                ),
                vec![
                    "spec.metrics[0].resource.target.type: Invalid value: \"X\": must be either Utilization, Value, or AverageValue",
                    "spec.metrics[0].resource.target.averageValue: Invalid value: \"0\": must be positive",
                    "spec.metrics[0].pods: Required value: must populate information for the given metric source",
                ],
            ),
            (
                with(
                    "behavior",
                    json!({"scaleUp": {"selectPolicy": "X", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 2000}]}}),
                ),
                vec![
                    "spec.behavior.scaleUp.selectPolicy: Unsupported value: \"X\": supported values: \"Disabled\", \"Max\", \"Min\"",
                    "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 2000: must be less than or equal to 1800",
                ],
            ),
        ] {
            let mut errors = Errors::default();
            super::autoscaler(as_obj(&autoscaler), &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{autoscaler}");
        }
    }
}
