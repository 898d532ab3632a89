//! Validation of the fields that the `scale` subresource of custom resources reads.

use serde_json::{Value, json};

use super::text;
use crate::error::FieldError;
use crate::kinds::CustomKind;

/// Validates the fields that a Scale reads of an object; `status`: only those of the status.
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
