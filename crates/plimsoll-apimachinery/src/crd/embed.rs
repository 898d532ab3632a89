//! Schemas of built-in types inside manifests.
//!
//! A manifest has `x-plimsoll-embed: io.k8s.api.core.v1.PodTemplateSpec` where controller-gen would write out the type.
//! The expansion follows controller-gen: quantities are int-or-string with a pattern, times are date-times, ports
//! default to TCP, references are inlined, descriptions are left out.

use serde_json::{Map, Value, json};

use crate::builtin;

/// The keyword.
const MARKER: &str = "x-plimsoll-embed";
const QUANTITY: &str = "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";
/// Deepest nesting of references followed; Kubernetes' own types need about 15.
const MAX_DEPTH: usize = 40;

/// Replaces every `x-plimsoll-embed: <definition>` in `schema` by the definition's structural schema; keys beside the
/// marker override those of the definition.
///
/// # Errors
/// The name of a definition that isn't known, or is nested too deeply.
pub fn expand_embeds(schema: &mut Value) -> Result<(), String> {
    match schema {
        Value::Array(all) => all.iter_mut().try_for_each(expand_embeds),
        Value::Object(map) => {
            map.values_mut().try_for_each(expand_embeds)?;
            let Some(name) = map.remove(MARKER) else { return Ok(()) };
            let name = name.as_str().unwrap_or_default();
            let mut found = definition(name, MAX_DEPTH)?;
            if let Some(found) = found.as_object_mut() {
                found.append(map);
                *map = std::mem::take(found);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn definition(name: &str, depth: usize) -> Result<Value, String> {
    if depth == 0 {
        return Err(format!("{name} is nested too deeply"));
    }
    let short = name.rsplit_once("apimachinery.pkg.").map_or(name, |(_, short)| short);
    match short {
        "api.resource.Quantity" => return Ok(quantity()),
        "apis.meta.v1.Time" | "apis.meta.v1.MicroTime" => {
            return Ok(json!({ "type": "string", "format": "date-time" }));
        }
        "util.intstr.IntOrString" => return Ok(int_or_string()),
        // controller-gen leaves metadata inside objects open, as the API machinery fills it
        "apis.meta.v1.ObjectMeta" => {
            return Ok(json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
        }
        "runtime.RawExtension" | "apis.meta.v1.FieldsV1" => {
            return Ok(json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
        }
        _ => {}
    }
    let raw = builtin::data().schemas.get(name).ok_or_else(|| format!("no definition {name}"))?;
    let mut schema = convert(raw, depth)?;
    amend(name, &mut schema);
    Ok(schema)
}

fn quantity() -> Value {
    json!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": QUANTITY, "x-kubernetes-int-or-string": true,
    })
}

fn int_or_string() -> Value {
    json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
}

/// Rules of the types that OpenAPI doesn't carry but controller-gen's output does.
fn amend(name: &str, schema: &mut Value) {
    if name.ends_with(".ContainerPort") || name.ends_with(".ServicePort") {
        schema["properties"]["protocol"]["default"] = json!("TCP");
    }
    if name.ends_with(".meta.v1.Condition") {
        let p = &mut schema["properties"];
        p["lastTransitionTime"] = json!({ "type": "string", "format": "date-time" });
        p["message"] = json!({ "type": "string", "maxLength": 32768 });
        p["observedGeneration"] = json!({ "type": "integer", "format": "int64", "minimum": 0 });
        p["reason"] = json!({
            "type": "string", "maxLength": 1024, "minLength": 1,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        });
        p["status"] = json!({ "type": "string", "enum": ["True", "False", "Unknown"] });
        p["type"] = json!({
            "type": "string", "maxLength": 316,
            "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        });
    }
}

fn convert(raw: &Value, depth: usize) -> Result<Value, String> {
    if let Some(name) = raw.get("ref").and_then(Value::as_str) {
        return definition(name, depth - 1);
    }
    let mut out = Map::new();
    for key in ["type", "format", "required", "enum", "minimum", "maximum"] {
        if let Some(value) = raw.get(key) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(properties) = raw.get("properties").and_then(Value::as_object) {
        let mut converted = Map::new();
        for (field, property) in properties {
            let mut inner = convert(property, depth)?;
            copy_list_and_map(property, &mut inner);
            converted.insert(field.clone(), inner);
        }
        out.insert("properties".to_owned(), Value::Object(converted));
    }
    if let Some(items) = raw.get("items") {
        out.insert("items".to_owned(), convert(items, depth)?);
    }
    if let Some(of) = raw.get("additionalProperties").filter(|a| a.is_object()) {
        out.insert("additionalProperties".to_owned(), convert(of, depth)?);
    }
    let mut out = Value::Object(out);
    copy_list_and_map(raw, &mut out);
    if out.get("type").is_none() && out.get("x-kubernetes-int-or-string").is_none() {
        out["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    Ok(out)
}

/// List and map types; defaults that are the key of a map list are kept, others are Go's business.
fn copy_list_and_map(raw: &Value, out: &mut Value) {
    for key in ["x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"] {
        if let Some(value) = raw.get(key) {
            out[key] = value.clone();
        }
    }
    // keys of a map list must be required or have a default
    let keys: Vec<String> = super::list(out, "x-kubernetes-list-map-keys")
        .iter()
        .filter_map(|k| k.as_str().map(str::to_owned))
        .collect();
    for key in keys {
        let items = &mut out["items"];
        let required = super::list(items, "required").iter().any(|r| r == &json!(key));
        if !required
            && let Some(property) = items.pointer_mut(&format!("/properties/{key}"))
            && property.get("default").is_none()
        {
            property["default"] = if property["type"] == "string" { json!("") } else { json!(0) };
        }
    }
}
