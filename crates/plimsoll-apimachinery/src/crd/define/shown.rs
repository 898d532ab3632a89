//! Definitions' internal types as messages show them.

use serde_json::Value;

use crate::validate::golang;

/// A schema.
pub fn schema(raw: &Value) -> String {
    golang::shown("JSONSchemaProps", Some(raw))
}

/// One of `x-kubernetes-validations`.
pub fn rule(raw: &Value) -> String {
    golang::shown("ValidationRule", Some(raw))
}

/// Versions without the fields that all of them share (`shared`): upstream keeps those in another place.
pub fn versions(all: Option<&Value>, shared: &[&str]) -> String {
    let mut all = all.cloned();
    for version in all.iter_mut().filter_map(Value::as_array_mut).flatten().filter_map(Value::as_object_mut) {
        for key in shared {
            version.remove(*key);
        }
    }
    golang::shown("[]CustomResourceDefinitionVersion", all.as_ref())
}

/// The fields of a schema that are set, in the order of Go's fields: name in Go, name in the API.
pub fn set_fields(raw: &Value) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fields = golang::fields("JSONSchemaProps").iter();
    fields.filter(move |f| !f.is_zero(raw.get(f.wire))).map(|f| (f.name, f.wire))
}
