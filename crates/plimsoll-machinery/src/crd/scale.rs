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

/// What is wrong with what a scale reads of an object; `status`: only what it reads of the status.
pub(super) fn check(custom: &CustomKind, object: &Value, status: bool, errors: &mut Vec<FieldError>) {
    let Some(scale) = &custom.scale else { return };
    let keys = ["specReplicasPath", "statusReplicasPath"];
    for key in keys.into_iter().skip(usize::from(status)) {
        replicas(object, text(scale, key), errors);
    }
    let Some(path) = scale.get("labelSelectorPath").and_then(Value::as_str) else { return };
    match nested(object, path) {
        Err(why) => errors.push(FieldError::invalid(path, &json!(""), why)),
        Ok(Some(found)) if !found.is_string() => {
            errors.push(FieldError::invalid(path, &json!(""), accessor(path, found, "string")));
        }
        Ok(_) => {}
    }
}

fn replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut bad = |value: i64, why: String| errors.push(FieldError::invalid(path, &json!(value), why));
    match nested(object, path) {
        Err(why) => bad(0, why),
        Ok(None) => {}
        Ok(Some(found)) => match found.as_i64() {
            None => bad(0, accessor(path, found, "int64")),
            Some(n) if n < 0 => bad(n, "should be a non-negative integer".to_owned()),
            Some(n) if n > i64::from(i32::MAX) => {
                bad(n, format!("should be less than or equal to {}", i32::MAX));
            }
            Some(_) => {}
        },
    }
}

/// `unstructured.NestedFieldNoCopy`.
fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let fields: Vec<&str> = path.strip_prefix('.').unwrap_or(path).split('.').collect();
    let mut here = object;
    for (i, field) in fields.iter().enumerate() {
        match here {
            Value::Object(map) => match map.get(*field) {
                Some(inner) => here = inner,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => {
                let way = format!(".{}", fields.get(..=i).unwrap_or_default().join("."));
                return Err(accessor(&way, other, "map[string]interface{}"));
            }
        }
    }
    Ok(Some(here))
}

fn accessor(path: &str, found: &Value, wanted: &str) -> String {
    let (shown, of) = (crate::patch::go_text(found), crate::obj::go_type(found));
    format!("{path} accessor error: {shown} is of the type {of}, expected {wanted}")
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
