//! Descriptions of built-in types and their fields, which `kubectl explain` shows.
//!
//! The texts are this project's own (`data/descriptions/*.txt`), because the recorded documents have none. They are
//! read when the first document is requested.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

const FILES: [&str; 9] = [
    include_str!("../../data/descriptions/common.txt"),
    include_str!("../../data/descriptions/machinery.txt"),
    include_str!("../../data/descriptions/core.txt"),
    include_str!("../../data/descriptions/core-pod.txt"),
    include_str!("../../data/descriptions/core-volumes.txt"),
    include_str!("../../data/descriptions/workloads.txt"),
    include_str!("../../data/descriptions/cluster.txt"),
    include_str!("../../data/descriptions/resource.txt"),
    include_str!("../../data/descriptions/extension.txt"),
];

/// Placeholder for the kind in a text of several types.
const KIND: &str = "{}";

/// The descriptions of a type.
#[derive(Debug, Default)]
struct Texts {
    about: &'static str,
    fields: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug, Default)]
struct Descriptions {
    /// By package and name.
    types: BTreeMap<(&'static str, &'static str), Texts>,
    /// By the end of the name, for types without a text of their own; "" is for whole objects.
    endings: BTreeMap<&'static str, Texts>,
    /// SHA-256 of all texts.
    hash: Vec<u8>,
}

static DESCRIPTIONS: LazyLock<Descriptions> = LazyLock::new(|| {
    let mut made = Descriptions::default();
    let mut hash = Sha256::new();
    for file in FILES {
        hash.update(file);
        made.read(file);
    }
    made.hash = hash.finalize().to_vec();
    made
});

impl Descriptions {
    /// Reads `Type: text` and, indented below it, `field: text`, after a line `package NAME`.
    fn read(&mut self, file: &'static str) {
        let mut package = "";
        let mut at = &mut Texts::default();
        for line in file.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if let Some(name) = line.strip_prefix("package ") {
                package = name;
                continue;
            }
            let Some((name, text)) = line.split_once(':') else { continue };
            let text = text.trim_start();
            if let Some(field) = name.strip_prefix("  ") {
                at.fields.insert(field, text);
                continue;
            }
            at = match name.strip_prefix('*') {
                Some(ending) => self.endings.entry(ending).or_default(),
                None => self.types.entry((package, name)).or_default(),
            };
            at.about = text;
        }
    }

    /// The text of a type, or of one of its fields.
    fn find(&self, definition: &str, whole: bool, field: Option<&str>) -> Option<String> {
        let (package, name) = definition.rsplit_once('.')?;
        let text = |texts: &Texts| match field {
            None => Some(texts.about).filter(|t| !t.is_empty()),
            Some(field) => texts.fields.get(field).copied(),
        };
        if let Some(found) = self.types.get(&(package, name)).and_then(text) {
            return Some(found.to_owned());
        }
        let of_ending = |(ending, texts): (&&'static str, &Texts)| {
            let kind = name.strip_suffix(ending).filter(|kind| !kind.is_empty())?;
            (whole || !ending.is_empty()).then(|| text(texts))?.map(|found| found.replace(KIND, kind))
        };
        // Backwards: a list is a list first, and then a whole object like others, whose ending is "".
        self.endings.iter().rev().find_map(of_ending)
    }
}

/// A hash that changes when any description changes.
pub fn hash() -> &'static [u8] {
    &DESCRIPTIONS.hash
}

/// Adds descriptions to the schema of a built-in definition and to its properties.
pub fn describe(definition: &str, schema: &mut Value) {
    let whole = schema.get("x-kubernetes-group-version-kind").is_some();
    let Some(map) = schema.as_object_mut() else { return };
    if let Some(text) = DESCRIPTIONS.find(definition, whole, None) {
        map.insert("description".to_owned(), json!(text));
    }
    for (field, property) in map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if let Some(text) = DESCRIPTIONS.find(definition, whole, Some(field)) {
            put(property, text);
        }
    }
}

/// Adds the descriptions of fields that all objects have to the schema of a custom resource, where it has none.
pub fn describe_custom(kind: &str, properties: &mut Map<String, Value>) {
    let Some(texts) = DESCRIPTIONS.endings.get("") else { return };
    for field in ["apiVersion", "kind", "metadata"] {
        if let (Some(property), Some(text)) = (properties.get_mut(field), texts.fields.get(field))
            && property.get("description").is_none()
        {
            put(property, text.replace(KIND, kind));
        }
    }
}

/// In OpenAPI 3.0, a reference has no siblings: the description goes into `allOf`, as upstream has it.
fn put(property: &mut Value, text: String) {
    let Some(map) = property.as_object_mut() else { return };
    if let Some(target) = map.remove("$ref") {
        map.insert("allOf".to_owned(), json!([{ "$ref": target }]));
    }
    map.insert("description".to_owned(), Value::String(text));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::builtin;

    /// A line for something that is gone, or for a misspelled name, would never be shown.
    #[test]
    fn every_line_names_a_type_and_a_field() {
        let (schemas, arena) = (&builtin::data().schemas, builtin::schemas());
        let mut lines = 0;
        for ((package, name), texts) in &DESCRIPTIONS.types {
            let definition = format!("{package}.{name}");
            // Types of kinds without a recorded document are in the arena only.
            let id = arena.named(&definition).unwrap_or_else(|| panic!("no type {definition}"));
            let recorded = schemas.get(&definition);
            for field in texts.fields.keys() {
                let known = match recorded {
                    Some(schema) => schema["properties"].get(field).is_some(),
                    None => arena.get(id).properties.contains_key(*field),
                };
                assert!(known, "no field {definition}.{field}");
            }
            lines += 1 + texts.fields.len();
        }
        lines += DESCRIPTIONS.endings.values().map(|t| 1 + t.fields.len()).sum::<usize>();
        let written = FILES.iter().flat_map(|f| f.lines());
        let written = written
            .filter(|l| !l.is_empty() && !l.starts_with('#') && !l.starts_with("package "))
            .inspect(|l| assert!(l.contains(": ") || l.starts_with('*'), "{l}"))
            .inspect(|l| assert!(l.ends_with(['.', ':']), "no sentence: {l}"))
            .count();
        assert_eq!(lines, written, "a line is there twice");
    }

    #[test]
    fn every_type_and_every_field_has_a_description() {
        let mut missing = BTreeSet::new();
        for (definition, schema) in &builtin::data().schemas {
            let whole = schema.get("x-kubernetes-group-version-kind").is_some();
            if DESCRIPTIONS.find(definition, whole, None).is_none() {
                missing.insert(definition.clone());
            }
            for field in schema["properties"].as_object().into_iter().flat_map(Map::keys) {
                if DESCRIPTIONS.find(definition, whole, Some(field)).is_none() {
                    missing.insert(format!("{definition}.{field}"));
                }
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn shared_texts_name_the_kind() {
        let text = |definition: &str, field| DESCRIPTIONS.find(definition, true, field);
        let shared = |t: &str| Some(t.to_owned());
        assert_eq!(text("io.k8s.api.core.v1.PodList", None), shared("List of objects of kind Pod."));
        assert_eq!(text("io.k8s.api.core.v1.Pod", Some("spec")), shared("Desired state of the Pod."));
        assert_eq!(text("io.k8s.api.core.v1.PodList", Some("items")), shared("The objects."));
        assert_eq!(DESCRIPTIONS.find("io.k8s.api.core.v1.Nothing", false, Some("spec")), None);
    }
}
