//! The `scale` subresource of custom resources (`autoscaling/v1` Scale).

use serde_json::{Value, json};

use super::{at, text};
use crate::error::{ApiError, FieldError};
use crate::jsonpath::JsonPath;
use crate::kinds::{CustomKind, Kind};

/// The Scale of an object.
///
/// # Errors
/// 500 as upstream when the object has no replicas; 404 when the kind has no scale.
pub fn scale_of(kind: &Kind, object: &Value) -> Result<Value, ApiError> {
    let scale = scale_paths(kind)?;
    let path = text(scale, "specReplicasPath");
    let Some(replicas) = find(object, path).and_then(Value::as_i64) else {
        return Err(ApiError::internal(format_args!("the spec replicas field {path:?} does not exist")));
    };
    let status = find(object, text(scale, "statusReplicasPath")).and_then(Value::as_i64).unwrap_or_default();
    let mut made = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {}, "spec": {}, "status": { "replicas": status },
    });
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = at(object, "metadata").get(key) {
            made["metadata"][key] = value.clone();
        }
    }
    if replicas != 0 {
        made["spec"]["replicas"] = json!(replicas);
    }
    if let Some(selector) = find(object, text(scale, "labelSelectorPath")).and_then(Value::as_str)
        && !selector.is_empty()
    {
        made["status"]["selector"] = json!(selector);
    }
    Ok(made)
}

/// Writes the replicas of a Scale into its object.
///
/// # Errors
/// 404 when the kind has no scale; 500 when the path leads through something that is no object.
pub fn set_scale(kind: &Kind, object: &mut Value, scale: &Value) -> Result<(), ApiError> {
    let path = text(scale_paths(kind)?, "specReplicasPath");
    let replicas = at(at(scale, "spec"), "replicas").as_i64().unwrap_or_default();
    let wrong = || ApiError::internal(format_args!("the spec replicas field {path:?} cannot be set"));
    let parsed = JsonPath::parse(path).map_err(|_| wrong())?;
    let fields = parsed.fields().ok_or_else(wrong)?;
    let (last, parents) = fields.split_last().ok_or_else(wrong)?;
    let mut here = object;
    for name in parents {
        here = here.as_object_mut().ok_or_else(wrong)?.entry(*name).or_insert_with(|| json!({}));
    }
    here.as_object_mut().ok_or_else(wrong)?.insert((*last).to_owned(), json!(replicas));
    Ok(())
}

fn scale_paths(kind: &Kind) -> Result<&Value, ApiError> {
    kind.custom
        .as_ref()
        .and_then(|c| c.scale.as_ref())
        .ok_or_else(|| ApiError::new(404, "NotFound", "the server could not find the requested resource"))
}

fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    JsonPath::parse(path).ok()?.find(object)?.first().copied()
}

/// Replicas of kinds with a scale may not be negative.
pub(super) fn check(custom: &CustomKind, object: &Value, errors: &mut Vec<FieldError>) {
    let Some(scale) = &custom.scale else { return };
    for key in ["specReplicasPath", "statusReplicasPath"] {
        let path = text(scale, key);
        if let Some(value) = find(object, path).filter(|v| v.as_i64().is_some_and(|n| n < 0)) {
            errors.push(FieldError::invalid(path, value, "should be a non-negative integer"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn maps_both_ways() {
        let custom = CustomKind {
            scale: Some(json!({ "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n",
                "labelSelectorPath": ".status.sel" })),
            ..CustomKind::default()
        };
        let kind = Kind { custom: Some(Arc::new(custom)), ..Kind::default() };
        let mut object = json!({ "metadata": { "name": "a", "labels": {} }, "spec": { "n": 2 },
            "status": { "sel": "app=x" } });
        let mut scale = scale_of(&kind, &object).unwrap();
        assert_eq!(scale["metadata"], json!({ "name": "a" }));
        assert_eq!(scale["status"], json!({ "replicas": 0, "selector": "app=x" }));
        scale["spec"]["replicas"] = json!(7);
        set_scale(&kind, &mut object, &scale).unwrap();
        assert_eq!(object["spec"]["n"], 7);
        let error = scale_of(&kind, &json!({})).unwrap_err();
        assert_eq!(
            error.message,
            "Internal error occurred: the spec replicas field \".spec.n\" does not exist"
        );
        assert!(set_scale(&kind, &mut json!({ "spec": 1 }), &scale).is_err());
    }
}
