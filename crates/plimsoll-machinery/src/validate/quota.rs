//! core/v1 `LimitRange` and `ResourceQuota`.

use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, resources};
use crate::obj::{Obj, as_obj, has, list, object, text};

/// core/v1 `LimitRange`.
pub(super) fn limit_range(range: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("limits");
    let mut types: Vec<&str> = Vec::new();
    for (i, limit) in list(object(range, "spec"), "limits").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let kind = text(limit, "type");
        errors.invalid_all(&here.field("type"), kind, &checks::qualified_name(kind));
        if types.contains(&kind) {
            errors.duplicate(&here.field("type"), kind);
        }
        types.push(kind);
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
    let mut names: Vec<&String> = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
        .iter()
        .flat_map(|key| object(limit, key).keys())
        .collect();
    names.sort();
    names.dedup();
    for name in names {
        let find = |key: &str| object(limit, key).get(name).map(resources::amount);
        let (min, max) = (find("min"), find("max"));
        let (default, request) = (find("default"), find("defaultRequest"));
        let mut compare =
            |low: Option<_>, high: Option<_>, field: &str, shown_high: bool, texts: (&str, &str)| {
                let (Some(low), Some(high)): (
                    Option<plimsoll_api::Quantity>,
                    Option<plimsoll_api::Quantity>,
                ) = (low, high) else {
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
    if let (Some(min), Some(max)) = (find("min"), find("max"))
        && min.signum() > 0
    {
        let limit = max.to_f64() / min.to_f64();
        if ratio.to_f64() > limit {
            let detail = format!("ratio {ratio} is greater than max/min = {limit:.6}");
            errors.invalid(&at.key(name), ratio.to_string(), &detail);
        }
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
        let whole_or_count = name.starts_with("count/");
        resources::quantity(if whole_or_count { "pods" } else { name }, value, &at, errors);
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

fn scopes(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let scopes = list(spec, "scopes");
    if scopes.is_empty() {
        return;
    }
    let at = path.field("scopes");
    let shown = Value::Array(scopes.to_vec());
    for scope in scopes.iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            errors.invalid(&at, shown.clone(), "unsupported scope");
        }
        for name in object(spec, "hard").keys() {
            if SCOPES.contains(&scope) && !scope_fits(scope, name) {
                errors.invalid(&at, shown.clone(), "unsupported scope applied to resource");
            }
        }
    }
    let has = |name: &str| scopes.iter().any(|s| s == name);
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if has(one) && has(other) {
            errors.invalid(&at, shown.clone(), "conflicting scopes");
        }
    }
}

/// `IsResourceQuotaScopeValidForResource`.
fn scope_fits(scope: &str, name: &str) -> bool {
    let pods = matches!(name, "pods" | "count/pods");
    match scope {
        "BestEffort" => pods,
        "VolumeAttributesClass" => name.ends_with("storage") || name == "persistentvolumeclaims",
        _ => {
            pods || matches!(
                name,
                "cpu"
                    | "memory"
                    | "requests.cpu"
                    | "requests.memory"
                    | "limits.cpu"
                    | "limits.memory"
                    | "ephemeral-storage"
                    | "requests.ephemeral-storage"
                    | "limits.ephemeral-storage"
            ) || name.starts_with("requests.")
                || name.starts_with("limits.")
        }
    }
}

/// The scopes of a quota are for good.
pub(super) fn resource_quota_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    if before.get("scopes") != after.get("scopes") {
        let path = Path::new("spec");
        let value = after.get("scopes").cloned().unwrap_or_default();
        errors.invalid(&path.field("scopes"), value, IMMUTABLE);
    }
}

/// What a quota counts is not negative.
pub(super) fn resource_quota_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    for key in ["hard", "used"] {
        amounts(object(object(new, "status"), key), &path.field(key), errors);
    }
}
