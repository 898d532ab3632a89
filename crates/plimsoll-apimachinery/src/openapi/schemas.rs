//! Components of documents.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_state::collect::InsertEach as _;
use serde_json::{Map, Value, json};

use super::describe::{describe, describe_custom};
use crate::builtin;
use crate::gvk::Gvk;
use crate::kinds::Kind;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// `{"$ref": "#/components/schemas/<name>"}`.
pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Name of a custom resource's definition: `example.dev/v1, Kind=Oapi` → `dev.example.v1.Oapi`.
pub fn definition_name(gvk: &Gvk) -> String {
    let reversed: Vec<&str> = gvk.group.rsplit('.').collect();
    format!("{}.{}.{}", reversed.join("."), gvk.version, gvk.kind)
}

/// Name of its list's definition.
pub fn list_name(row: &Kind) -> String {
    let gvk = Gvk { kind: row.list_kind.clone(), ..row.gvk.clone() };
    definition_name(&gvk)
}

/// The schemas of a recorded document.
pub fn recorded(document: &Value) -> Value {
    let mut made = Map::new();
    let (own, data) = (&document["own"], &builtin::data().schemas);
    for name in document["schemas"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if let Some(schema) = own.get(name).or_else(|| data.get(name)) {
            made.insert(name.to_owned(), described(name, schema));
        }
    }
    Value::Object(made)
}

fn described(name: &str, schema: &Value) -> Value {
    let mut made = written_out(schema);
    describe(name, &mut made);
    made
}

/// A schema of the table in OpenAPI's form: references written out, with the fields beside a reference in `allOf`.
fn written_out(schema: &Value) -> Value {
    match schema {
        Value::Array(all) => all.iter().map(written_out).collect(),
        Value::Object(map) => match map.get("ref").and_then(Value::as_str) {
            Some(name) if map.len() == 1 => reference(name),
            Some(name) => {
                let mut made: Map<String, Value> = map
                    .iter()
                    .filter(|(k, _)| *k != "ref")
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .insert_each();
                made.insert("allOf".to_owned(), json!([reference(name)]));
                Value::Object(made)
            }
            None => Value::Object(map.iter().map(|(k, v)| (k.clone(), inner(k, v))).insert_each()),
        },
        other => other.clone(),
    }
}

fn inner(key: &str, value: &Value) -> Value {
    match key {
        // a default or enumeration may look like anything
        "default" | "enum" | "required" | "x-kubernetes-group-version-kind" => value.clone(),
        "properties" => {
            let fields = value.as_object().into_iter().flatten();
            Value::Object(fields.map(|(name, schema)| (name.clone(), written_out(schema))).insert_each())
        }
        _ => written_out(value),
    }
}

/// The schemas of rows without a recorded document, with the built-in ones they refer to.
pub fn of_rows(rows: &[Arc<Kind>]) -> Value {
    let mut made = Map::new();
    for row in rows {
        made.insert(definition_name(&row.gvk), object(row));
        made.insert(list_name(row), list(row));
    }
    let mut wanted = BTreeSet::from(
        ["ObjectMeta", "ListMeta", "Status", "DeleteOptions", "Patch"].map(|n| format!("{META}{n}")),
    );
    let scales = rows.iter().any(|r| r.subresources.iter().any(|s| s.kind.kind == "Scale"));
    if scales {
        wanted.insert("io.k8s.api.autoscaling.v1.Scale".to_owned());
    }
    add_built_in(&mut made, wanted);
    Value::Object(made)
}

/// Adds the built-in schemas of these names, and those that they refer to.
fn add_built_in(made: &mut Map<String, Value>, mut wanted: BTreeSet<String>) {
    while let Some(name) = wanted.pop_first() {
        if made.contains_key(&name) {
            continue;
        }
        if let Some(schema) = builtin::data().schemas.get(&name) {
            references(schema, &mut wanted);
            let schema = described(&name, schema);
            made.insert(name, schema);
        }
    }
}

/// These schemas, with the built-in ones that they and the paths of a document refer to.
pub fn with_built_in(paths: &Value, schemas: &Map<String, Value>) -> Value {
    let mut wanted = BTreeSet::new();
    written_references(paths, &mut wanted);
    schemas.values().for_each(|schema| written_references(schema, &mut wanted));
    let mut made = schemas.clone();
    add_built_in(&mut made, wanted);
    Value::Object(made)
}

/// Names of schemas that a document refers to.
fn written_references(document: &Value, out: &mut BTreeSet<String>) {
    match document {
        Value::Object(map) => {
            let target = map.get("$ref").and_then(Value::as_str);
            out.extend(target.and_then(|t| t.strip_prefix("#/components/schemas/")).map(str::to_owned));
            map.values().for_each(|v| written_references(v, out));
        }
        Value::Array(all) => all.iter().for_each(|v| written_references(v, out)),
        _ => {}
    }
}

fn references(schema: &Value, out: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            out.extend(map.get("ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|v| references(v, out));
        }
        Value::Array(all) => all.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

fn gvk_of(row: &Kind, kind: &str) -> Value {
    json!([{ "group": row.gvk.group, "version": row.gvk.version, "kind": kind }])
}

/// A custom resource's schema as it is published: with type and metadata, int-or-string written out.
fn object(row: &Kind) -> Value {
    let raw = row.schema.as_ref().map(|s| s.schema().raw.clone()).filter(Value::is_object);
    let mut schema =
        raw.unwrap_or_else(|| json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
    publish(&mut schema);
    let empty = || json!({});
    if let Some(map) = schema.as_object_mut() {
        let properties = map.entry("properties").or_insert_with(empty);
        properties["apiVersion"] = json!({ "type": "string" });
        properties["kind"] = json!({ "type": "string" });
        properties["metadata"] = reference(&format!("{META}ObjectMeta"));
        if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
            describe_custom(&row.gvk.kind, properties);
        }
        map.insert("x-kubernetes-group-version-kind".to_owned(), gvk_of(row, &row.gvk.kind));
    }
    schema
}

fn publish(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if map.get("x-kubernetes-int-or-string") == Some(&json!(true)) && !map.contains_key("anyOf") {
        map.insert("anyOf".to_owned(), json!([{ "type": "integer" }, { "type": "string" }]));
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(child) = map.get_mut(key) {
            publish(child);
        }
    }
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(publish);
    }
}

fn list(row: &Kind) -> Value {
    json!({
        "type": "object",
        "description": format!("List of objects of kind {}.", row.gvk.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string" },
            "items": { "type": "array", "items": reference(&definition_name(&row.gvk)) },
            "kind": { "type": "string" },
            "metadata": reference(&format!("{META}ListMeta")),
        },
        "x-kubernetes-group-version-kind": gvk_of(row, &row.list_kind),
    })
}

/// References in the form of Swagger 2.0, which has them in `definitions` and allows nothing beside them.
pub fn to_v2(document: &mut Value) {
    match document {
        Value::Object(map) => {
            if let Some(Value::Array(all)) = map.get("allOf")
                && let [one] = all.as_slice()
                && one.get("$ref").is_some()
            {
                let target = one["$ref"].clone();
                map.remove("allOf");
                map.insert("$ref".to_owned(), target);
            }
            if let Some(Value::String(target)) = map.get_mut("$ref") {
                *target = target.replace("#/components/schemas/", "#/definitions/");
            }
            for key in ["anyOf", "oneOf", "nullable"] {
                map.remove(key);
            }
            map.values_mut().for_each(to_v2);
        }
        Value::Array(all) => all.iter_mut().for_each(to_v2),
        _ => {}
    }
}
