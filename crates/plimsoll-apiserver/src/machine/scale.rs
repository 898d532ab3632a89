//! Scales: the number of replicas of whatever has one, as an object of its own.

use plimsoll_apimachinery::apply::Scaled;
use plimsoll_apimachinery::select::selector_text;
use plimsoll_apimachinery::{ApiError, FieldError, Kind};
use serde_json::{Value, json};

use super::object::replace_owners;

/// Where a kind keeps what a Scale shows.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Option<Vec<String>>,
    spec_text: String,
    custom: bool,
}

fn paths(kind: &Kind) -> Paths {
    let split = |path: &str| path.trim_start_matches('.').split('.').map(str::to_owned).collect::<Vec<_>>();
    match kind.custom.as_ref().and_then(|c| c.scale.as_ref()) {
        Some(scale) => {
            let text = |f: &str| scale[f].as_str().unwrap_or("").to_owned();
            Paths {
                spec: split(&text("specReplicasPath")),
                status: split(&text("statusReplicasPath")),
                selector: scale["labelSelectorPath"].as_str().filter(|p| !p.is_empty()).map(split),
                spec_text: text("specReplicasPath"),
                custom: true,
            }
        }
        None => Paths {
            spec: split("spec.replicas"),
            status: split("status.replicas"),
            selector: None,
            spec_text: ".spec.replicas".to_owned(),
            custom: false,
        },
    }
}

fn at<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |v, step| &v[step.as_str()])
}

/// The Scale of an object.
pub fn scale_of(kind: &Kind, object: &Value) -> Result<Value, ApiError> {
    let paths = paths(kind);
    if at(object, &paths.spec).is_null() && paths.custom {
        return Err(ApiError::internal(format!(
            "the spec replicas field \"{}\" does not exist",
            paths.spec_text
        )));
    }
    Ok(shown_scale(object, &paths))
}

/// The Scale of an object that may lack the number.
fn shown_scale(object: &Value, paths: &Paths) -> Value {
    let meta = &object["metadata"];
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !meta[field].is_null() {
            metadata[field] = meta[field].clone();
        }
    }
    let replicas = at(object, &paths.spec);
    let mut spec = json!({});
    if let Some(n) = replicas.as_i64().filter(|n| *n != 0) {
        spec["replicas"] = json!(n);
    }
    let mut status = json!({"replicas": at(object, &paths.status).as_i64().unwrap_or(0)});
    let selector = match &paths.selector {
        Some(path) => at(object, path).as_str().unwrap_or("").to_owned(),
        None if paths.custom => String::new(),
        None => selector_text(&object["spec"]["selector"]),
    };
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
    })
}

/// The object with the replicas of a Scale.
pub fn apply_scale(kind: &Kind, object: &Value, scale: &Value) -> Result<Value, ApiError> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    let name = scale["metadata"]["name"].as_str().unwrap_or("");
    let paths = paths(kind);
    // of custom resources the object is checked instead
    if replicas < 0 && !paths.custom {
        let detail = "must be greater than or equal to 0";
        let e = FieldError::invalid("spec.replicas", &json!(replicas), detail);
        return Err(ApiError::invalid("autoscaling", "Scale", name, &[e]));
    }
    let mut object = object.clone();
    set(&mut object, &paths.spec, json!(replicas))?;
    if let Some(meta) = object["metadata"].as_object_mut() {
        match scale["metadata"]["resourceVersion"].as_str().filter(|v| !v.is_empty()) {
            Some(version) => meta.insert("resourceVersion".to_owned(), json!(version)),
            None => meta.remove("resourceVersion"),
        };
        if let Some(uid) = scale["metadata"]["uid"].as_str().filter(|u| !u.is_empty()) {
            meta.insert("uid".to_owned(), json!(uid));
        }
    }
    Ok(object)
}

/// The Scale of an object, owned by the managers of the number.
pub fn owned_scale(kind: &Kind, object: &Value) -> Value {
    let paths = paths(kind);
    let mut scale = shown_scale(object, &paths);
    replace_owners(&mut scale, scaled(kind, &paths).shown(object));
    scale
}

/// The object with the replicas and the owners of a Scale that was written.
pub fn with_owned(kind: &Kind, object: &Value, scale: &Value) -> Result<Value, ApiError> {
    let mut new = apply_scale(kind, object, scale)?;
    replace_owners(&mut new, scaled(kind, &paths(kind)).returned(object, scale));
    Ok(new)
}

fn scaled<'a>(kind: &'a Kind, paths: &'a Paths) -> Scaled<'a> {
    Scaled { kind, path: &paths.spec }
}

/// Writes a field, and makes the objects around it that aren't there (`unstructured.SetNestedField`).
fn set(object: &mut Value, path: &[String], value: Value) -> Result<(), ApiError> {
    let mut here = object;
    for (i, step) in path.iter().enumerate() {
        if here.is_null() {
            *here = json!({});
        }
        let Some(map) = here.as_object_mut() else {
            let way = path.get(..i).unwrap_or_default().join(".");
            let why = format!("value cannot be set because .{way} is not a map[string]interface{{}}");
            return Err(ApiError::new(500, "", why));
        };
        here = map.entry(step.as_str()).or_insert(Value::Null);
    }
    *here = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_apimachinery::kinds::CustomKind;

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
        object = apply_scale(&kind, &object, &scale).unwrap();
        assert_eq!(object["spec"]["n"], 7);
        let error = scale_of(&kind, &json!({})).unwrap_err();
        assert_eq!(
            error.message,
            "Internal error occurred: the spec replicas field \".spec.n\" does not exist"
        );
        assert_eq!(apply_scale(&kind, &json!({}), &scale).unwrap()["spec"], json!({ "n": 7 }));
        let error = apply_scale(&kind, &json!({ "spec": 1 }), &scale).unwrap_err();
        assert_eq!(error.message, "value cannot be set because .spec is not a map[string]interface{}");
    }
}
