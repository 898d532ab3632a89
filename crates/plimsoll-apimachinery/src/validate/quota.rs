//! core/v1 `LimitRange` and `ResourceQuota`.

use std::collections::BTreeSet;

use plimsoll_api::Quantity;
use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, golang, resources};
use crate::obj::{Obj, as_obj, has, list, object, text};

/// core/v1 `LimitRange`.
pub(super) fn limit_range(range: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("limits");
    let mut types = BTreeSet::new();
    for (i, limit) in list(object(range, "spec"), "limits").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let kind = text(limit, "type");
        let faults = checks::qualified_name(kind);
        errors.invalid_all(&here.field("type"), kind, &faults);
        let standard = ["Pod", "Container", "PersistentVolumeClaim"];
        if faults.is_empty() && !kind.contains('/') && !standard.contains(&kind) {
            let detail = "must be a standard limit type or fully qualified";
            errors.invalid(&here.field("type"), kind, detail);
        }
        if !types.insert(kind) {
            errors.duplicate(&here.field("type"), kind);
        }
        limit_names(limit, kind, &here, errors);
        limit_amounts(limit, &here, errors);
    }
}

fn limit_names(limit: &Obj, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let check = |key: &str, errors: &mut Errors| {
        let at = path.field(key);
        for name in object(limit, key).keys() {
            limit_name(kind, name, &at.key(name), errors);
        }
    };
    check("max", errors);
    check("min", errors);
    if kind == "Pod" {
        for key in ["default", "defaultRequest"] {
            if !object(limit, key).is_empty() {
                errors.forbidden(&path.field(key), "may not be specified when `type` is 'Pod'");
            }
        }
    } else {
        check("default", errors);
        check("defaultRequest", errors);
    }
    if kind == "PersistentVolumeClaim"
        && !has(object(limit, "min"), "storage")
        && !has(object(limit, "max"), "storage")
    {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.field("limits"), detail);
    }
    check("maxLimitRequestRatio", errors);
}

fn limit_name(kind: &str, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(kind, "Pod" | "Container") {
        resources::container_name(name, path, errors);
    } else {
        resources::name(name, path, errors);
    }
}

fn limit_amounts(limit: &Obj, path: &Path<'_>, errors: &mut Errors) {
    // Defaults of pods are refused, so their quantities are not checked.
    let fields: &[&str] = if text(limit, "type") == "Pod" {
        &["max", "min", "maxLimitRequestRatio"]
    } else {
        &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    };
    let mut names: Vec<&String> = fields.iter().flat_map(|key| object(limit, key).keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let find =
            |key: &str| object(limit, key).get(name).filter(|_| fields.contains(&key)).map(resources::amount);
        let (min, max) = (find("min"), find("max"));
        let (default, request) = (find("default"), find("defaultRequest"));
        let mut compare =
            |low: Option<_>, high: Option<_>, field: &str, shown_high: bool, texts: (&str, &str)| {
                let (Some(low), Some(high)): (Option<Quantity>, Option<Quantity>) = (low, high) else {
                    return;
                };
                if low > high {
                    let shown = if shown_high { high } else { low };
                    let detail = format!("{} value {low} is greater than {} value {high}", texts.0, texts.1);
                    errors.invalid(&path.field(field).key(name), shown.to_string(), &detail);
                }
            };
        compare(min, max, "min", false, ("min", "max"));
        compare(min, request, "defaultRequest", true, ("min", "default request"));
        compare(request, max, "defaultRequest", false, ("default request", "max"));
        compare(request, default, "defaultRequest", false, ("default request", "default limit"));
        compare(min, default, "default", false, ("min", "default"));
        compare(default, max, "default", true, ("default", "max"));
        ratio(limit, name, path, errors);
        if let (Some(default), Some(request)) = (default, request)
            && !resources::may_overcommit(name)
            && default != request
        {
            let detail =
                format!("default value {default} must equal to defaultRequest value {request} in {name}");
            errors.invalid(&path.field("defaultRequest").key(name), request.to_string(), &detail);
        }
    }
}

fn ratio(limit: &Obj, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(value) = object(limit, "maxLimitRequestRatio").get(name) else { return };
    let ratio = resources::amount(value);
    let at = path.field("maxLimitRequestRatio");
    if ratio.nanos() < 1_000_000_000 {
        errors.invalid(&at.key(name), ratio.to_string(), &format!("ratio {ratio} is less than 1"));
    }
    let find = |key: &str| object(limit, key).get(name).map(resources::amount);
    if let (Some(min), Some(max)) = (find("min"), find("max")) {
        let (value, limit) = shares(ratio, min, max);
        if value > limit {
            let shown = if limit.is_nan() { "NaN".to_owned() } else { format!("{limit:.6}") };
            let detail = format!("ratio {ratio} is greater than max/min = {shown}");
            errors.invalid(&at.key(name), ratio.to_string(), &detail);
        }
    }
}

/// A ratio and the largest it may be, in thousandths as long as they fit.
#[allow(clippy::cast_precision_loss)]
fn shares(ratio: Quantity, min: Quantity, max: Quantity) -> (f64, f64) {
    const MOST: i64 = i64::MAX / 1000;
    if [ratio, min, max].iter().all(|q| q.value() < MOST) {
        (ratio.milli_value() as f64 / 1000.0, max.milli_value() as f64 / min.milli_value() as f64)
    } else {
        (ratio.value() as f64, max.value() as f64 / min.value() as f64)
    }
}

/// core/v1 `ResourceQuota`.
pub(super) fn resource_quota(quota: &Obj, errors: &mut Errors) {
    let spec = object(quota, "spec");
    let path = Path::new("spec");
    amounts(object(spec, "hard"), &path.field("hard"), errors);
    scopes(spec, &path, errors);
}

fn amounts(hard: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (name, value) in hard {
        let at = path.key(name);
        resources::quota_name(name, &at, errors);
        resources::quantity(name, value, &at, errors);
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Scopes that a pod is either in or not.
const PLAIN: [&str; 5] =
    ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];

fn scopes(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let scopes: Vec<&str> = list(spec, "scopes").iter().map(|s| s.as_str().unwrap_or_default()).collect();
    let at = path.field("scopes");
    let shown = Value::from(scopes.clone());
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.invalid(&at, shown.clone(), "unsupported scope");
        }
        for _ in object(spec, "hard").keys().filter(|name| !scope_fits(scope, name)) {
            errors.invalid(&at, shown.clone(), "unsupported scope applied to resource");
        }
    }
    conflicts(&scopes, &at, &shown, errors);
    if let Some(selector) = spec.get("scopeSelector").and_then(Value::as_object) {
        let here = path.field("scopeSelector");
        scope_selector(spec, selector, &here.field("matchExpressions"), errors);
    }
}

fn conflicts(scopes: &[&str], path: &Path<'_>, shown: &Value, errors: &mut Errors) {
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if scopes.contains(&one) && scopes.contains(&other) {
            errors.invalid(path, shown.clone(), "conflicting scopes");
        }
    }
}

/// `validateScopedResourceSelectorRequirement`; errors don't name the expression.
fn scope_selector(spec: &Obj, selector: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let expressions = list(selector, "matchExpressions");
    let mut scopes: Vec<&str> = Vec::new();
    for e in expressions.iter().map(as_obj) {
        let (scope, operator) = (text(e, "scopeName"), text(e, "operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.field("scopeName"), scope, "unsupported scope");
        }
        for _ in object(spec, "hard").keys().filter(|name| !scope_fits(scope, name)) {
            let shown = golang::structure("ScopeSelector", selector);
            errors.invalid_text(path, shown, "unsupported scope applied to resource");
        }
        if PLAIN.contains(&scope) && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(&path.field("operator"), operator, detail);
        }
        let values = list(e, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.field("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.field("values"), Value::Array(values.to_vec()), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.field("operator"), other, "not a valid selector operator"),
        }
        scopes.push(scope);
    }
    // Upstream shows the other list.
    conflicts(&scopes, path, spec.get("scopes").unwrap_or(&Value::Null), errors);
}

/// Whether a scope applies to a resource that quota knows (`IsResourceQuotaScopeValidForResource`).
fn scope_fits(scope: &str, name: &str) -> bool {
    let counted = name == "pods";
    let computed = matches!(
        name,
        "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
    );
    if !resources::is_standard_quota(name) {
        return true;
    }
    match scope {
        "BestEffort" => counted,
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ if SCOPES.contains(&scope) => counted || computed,
        _ => true,
    }
}

/// The scopes of a quota are immutable.
pub(super) fn resource_quota_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let set = |spec: &Obj| -> BTreeSet<String> {
        list(spec, "scopes").iter().filter_map(|s| s.as_str().map(str::to_owned)).collect()
    };
    if set(before) != set(after) {
        let path = Path::new("spec");
        let value = after.get("scopes").cloned().unwrap_or_default();
        errors.invalid(&path.field("scopes"), value, IMMUTABLE);
    }
}

/// The counts of a quota are not negative.
pub(super) fn resource_quota_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    for key in ["hard", "used"] {
        amounts(object(object(new, "status"), key), &path.field(key), errors);
    }
}
