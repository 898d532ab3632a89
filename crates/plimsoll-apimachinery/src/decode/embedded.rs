//! Decoding of resources inside custom resources: their kind and typed metadata (apiextensions
//! `schema/objectmeta/algorithm.go`).

use serde::de::DeserializeSeed;
use serde_json::{Map, Value};

use super::Findings;
use super::walk;
use crate::schema::{Schema, SchemaId, Schemas};

/// Deepest value that is decoded.
const MAX_DEPTH: usize = 64;

/// Decodes the metadata of resources inside `findings.object` as `ObjectMeta`. Malformed metadata is an error; the
/// function returns the paths of unknown fields.
pub(super) fn coerce(schemas: &Schemas, root: SchemaId, findings: &mut Findings) -> Vec<String> {
    let mut walk = Walk { schemas, unknown: Vec::new(), error: None };
    walk.value(root, &mut findings.object, "", 0);
    if let Some(error) = walk.error {
        findings.error.get_or_insert(error);
    }
    walk.unknown.sort();
    walk.unknown
}

struct Walk<'a> {
    schemas: &'a Schemas,
    unknown: Vec<String>,
    error: Option<String>,
}

impl Walk<'_> {
    fn value(&mut self, id: SchemaId, value: &mut Value, path: &str, depth: usize) {
        if depth > MAX_DEPTH || self.error.is_some() {
            return;
        }
        let schema = self.schemas.get(id);
        match value {
            Value::Object(map) => self.object(schema, map, path, depth),
            Value::Array(all) => {
                let Some(items) = schema.items else { return };
                for (i, item) in all.iter_mut().enumerate() {
                    self.value(items, item, &format!("{path}[{i}]"), depth + 1);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &Schema, map: &mut Map<String, Value>, path: &str, depth: usize) {
        for (key, value) in map.iter_mut() {
            let dot = if path.is_empty() { "" } else { "." };
            let mut at = format!("{path}{dot}{key}");
            if schema.embedded_resource {
                self.own(key, value, &at);
            }
            if let Some(property) = schema.properties.get(key) {
                self.value(property.id, value, &at, depth + 1);
            } else if let Some(values) = schema.additional {
                at = format!("{path}[{key}]");
                self.value(values, value, &at, depth + 1);
            }
        }
    }

    /// A field every resource has.
    fn own(&mut self, key: &str, value: &mut Value, path: &str) {
        match key {
            "apiVersion" | "kind" if !value.is_string() => {
                let error = crate::FieldError::invalid(path, value, "must be a string");
                self.error.get_or_insert(error.to_string());
            }
            "metadata" => self.metadata(value, path),
            _ => {}
        }
    }

    fn metadata(&mut self, value: &mut Value, path: &str) {
        if !value.is_object() && !value.is_null() {
            let got = super::json_kind(value);
            let why = format!("json: cannot unmarshal {got} into Go value of type v1.ObjectMeta");
            let error = crate::FieldError::invalid(path, value, why);
            self.error.get_or_insert(error.to_string());
            return;
        }
        let schemas = crate::builtin::schemas();
        let Some(id) = schemas.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else { return };
        let mut walk = walk::Walk::new(schemas);
        let made = walk.root(id).deserialize(value.clone());
        let findings = walk.findings;
        if let Some(why) = findings.fatal.or(findings.error).or(findings.meta_error) {
            let error = crate::FieldError::invalid(path, value, why);
            self.error.get_or_insert(error.to_string());
            return;
        }
        let prefix = "unknown field \"";
        for text in &findings.strict {
            if let Some(field) = text.strip_prefix(prefix) {
                self.unknown.push(format!("{path}.{}", field.trim_end_matches('"')));
            }
        }
        if let Ok(made) = made {
            *value = made;
        }
    }
}
