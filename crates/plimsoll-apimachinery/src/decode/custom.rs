//! Bodies of custom resources and of built-in kinds without a schema: any JSON, with typed metadata.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::walk::Walk;
use super::{Findings, MAX_STRICT};
use crate::kinds::Kind;
use crate::schema::{Schema, SchemaId, Schemas};

/// Reads any object, then drops the fields that its schema doesn't specify.
pub(super) fn walk<'de, D: Deserializer<'de>>(kind: &Kind, deserializer: D) -> Result<Findings, D::Error> {
    let mut findings = Findings::default();
    let keep_floats = kind.custom.is_some();
    let any = Any { findings: &mut findings, steps: &mut Vec::new(), keep_floats };
    let object = any.deserialize(deserializer)?;
    findings.object = object;
    if !findings.object.is_object() && !findings.object.is_null() {
        let got = super::json_kind(&findings.object);
        findings.meta_error = Some(format!(
            "json: cannot unmarshal {got} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        ));
        return Ok(findings);
    }
    if kind.custom.is_some() {
        for field in ["apiVersion", "kind"] {
            if let Some(wrong) = findings.object.get(field).filter(|v| !v.is_string() && !v.is_null()) {
                let got = super::json_kind(wrong);
                let why =
                    format!("json: cannot unmarshal {got} into Go struct field .{field} of type string");
                findings.meta_error = Some(why);
                return Ok(findings);
            }
        }
        if let Some(wrong) = findings.object.get("metadata").filter(|v| !v.is_object() && !v.is_null()) {
            let got = super::json_kind(wrong);
            findings.error =
                Some(format!("json: cannot unmarshal {got} into Go value of type v1.ObjectMeta"));
            return Ok(findings);
        }
    }
    typed_metadata(&mut findings, None, kind.custom.is_some());
    for path in unknown_fields(kind, &mut findings) {
        push(&mut findings.strict, "unknown", &path);
    }
    Ok(findings)
}

/// Fields that are there twice.
pub(super) fn duplicates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let mut findings = Findings::default();
    let any = Any { findings: &mut findings, steps: &mut Vec::new(), keep_floats: true };
    any.deserialize(deserializer)?;
    Ok(findings.strict)
}

/// Drops the fields that the schema of a custom resource doesn't specify, and decodes embedded resources. Objects of
/// another group or kind are left alone; versions that don't exist have no known fields.
fn unknown_fields(kind: &Kind, findings: &mut Findings) -> Vec<String> {
    let (Some(schema), Some(custom)) = (&kind.schema, &kind.custom) else { return Vec::new() };
    let text = |key: &str| findings.object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or_default();
    if custom.preserve_unknown || group != kind.gvk.group || text("kind") != kind.gvk.kind {
        return Vec::new();
    }
    if version != kind.gvk.version {
        let fields = findings.object.as_object().into_iter().flat_map(Map::keys);
        let own = |name: &&String| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
        let known = custom.versions.iter().any(|v| v == version);
        return if known { Vec::new() } else { fields.filter(own).cloned().collect() };
    }
    let mut unknown = Vec::new();
    prune(&schema.schemas, schema.root, &mut findings.object, "", true, &mut unknown);
    unknown.sort();
    // Fields of embedded resources come after all others.
    unknown.extend(super::embedded::coerce(&schema.schemas, schema.root, findings));
    unknown
}

fn push(strict: &mut Vec<String>, what: &str, path: &str) {
    if strict.len() < MAX_STRICT {
        let text = format!("{what} field \"{path}\"");
        if !strict.contains(&text) {
            strict.push(text);
        }
    }
}

/// Gives `metadata` the form of an `ObjectMeta`.
fn typed_metadata(findings: &mut Findings, at: Option<&str>, custom: bool) {
    let Some(metadata) = findings.object.get_mut("metadata").map(Value::take) else { return };
    let schemas = crate::builtin::schemas();
    let Some(id) = schemas.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else { return };
    let mut walk = Walk::new(schemas);
    if let Ok(metadata) = walk.root(id).deserialize(metadata) {
        findings.object["metadata"] = metadata;
    }
    let prefix = at.unwrap_or("metadata");
    for text in walk.findings.strict {
        if findings.strict.len() < MAX_STRICT {
            findings.strict.push(text.replacen('"', &format!("\"{prefix}."), 1));
        }
    }
    if let Some(error) = walk.findings.fatal.or(walk.findings.error).or(walk.findings.meta_error) {
        // the metadata of custom resources is decoded on its own
        let owner = if custom { "ObjectMeta." } else { "ObjectMeta.metadata." };
        let error = error.replacen("Go struct field ObjectMeta.", &format!("Go struct field {owner}"), 1);
        findings.error.get_or_insert(error);
    }
}

/// Drops fields the schema does not know and gathers their paths.
fn prune(
    schemas: &Schemas,
    id: SchemaId,
    value: &mut Value,
    path: &str,
    root: bool,
    unknown: &mut Vec<String>,
) {
    let schema = schemas.get(id);
    match value {
        Value::Object(map) => prune_object(schemas, schema, map, path, root, unknown),
        Value::Array(list) => {
            if let Some(items) = schema.items {
                for (i, element) in list.iter_mut().enumerate() {
                    prune(schemas, items, element, &format!("{path}[{i}]"), false, unknown);
                }
            }
        }
        _ => {}
    }
}

fn prune_object(
    schemas: &Schemas,
    schema: &Schema,
    map: &mut Map<String, Value>,
    path: &str,
    root: bool,
    unknown: &mut Vec<String>,
) {
    let implicit = root || schema.embedded_resource;
    map.retain(|name, value| {
        if implicit && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            return true;
        }
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let Some(property) = schema.properties.get(name) {
            prune(schemas, property.id, value, &at, false, unknown);
            return true;
        }
        if let Some(values) = schema.additional {
            prune(schemas, values, value, &at, false, unknown);
            return true;
        }
        if !schema.preserve_unknown {
            unknown.push(at);
        }
        schema.preserve_unknown
    });
}

/// A step on the way to a value.
enum Step {
    Index(usize),
    Key(String),
}

/// Reads any JSON and reports duplicate keys.
struct Any<'f> {
    findings: &'f mut Findings,
    /// The way here. One for the whole body: keys may be long and many inside one another.
    steps: &'f mut Vec<Step>,
    /// Whether whole numbers written with a fraction stay floats, as they do in custom resources until they are
    /// stored.
    keep_floats: bool,
}

impl Any<'_> {
    /// `spec.list[0].key`.
    /// The length of the path, about.
    fn length(&self) -> usize {
        let of = |step: &Step| match step {
            Step::Index(_) => 8,
            Step::Key(key) => key.len() + 1,
        };
        self.steps.iter().map(of).sum()
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in self.steps.iter() {
            match step {
                Step::Index(i) => path.push_str(&format!("[{i}]")),
                Step::Key(key) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
            }
        }
        path
    }

    /// The reader of the value at the last step.
    fn inner(&mut self) -> Any<'_> {
        Any { findings: self.findings, steps: self.steps, keep_floats: self.keep_floats }
    }
}

impl<'de> DeserializeSeed<'de> for Any<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Any<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        // A number outside of Go's int64 is a float there.
        Ok(i64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // Go writes whole numbers without a fraction.
        const WHOLE: f64 = 9e18;
        if !self.keep_floats && value.fract() == 0.0 && value.abs() < WHOLE {
            return Ok(Value::from(value as i64));
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            self.steps.push(Step::Index(list.len()));
            let value = access.next_element_seed(self.inner())?;
            self.steps.pop();
            match value {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let twice = map.contains_key(&key);
            self.steps.push(Step::Key(key));
            if twice && self.findings.looks(self.length()) {
                let path = self.path();
                push(&mut self.findings.strict, "duplicate", &path);
            }
            let value = access.next_value_seed(self.inner())?;
            if let Some(Step::Key(key)) = self.steps.pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}
