//! Go's types and zero values of schemas, and errors in which they show.

use serde_json::{Map, Value};

use crate::schema::{Leaf, Presence, Schema, SchemaId, SchemaType, Schemas};

/// The type of the elements that are `depth` lists or maps inside of a Go type.
pub(super) fn element_type(mut name: &str, depth: usize) -> &str {
    for _ in 0..depth {
        name = name
            .strip_prefix("[]")
            .or_else(|| name.strip_prefix("map[").and_then(|n| n.split_once(']')).map(|p| p.1))
            .unwrap_or(name);
    }
    name
}

/// An error of [`super::conform`] in the words of the converter for strategic merge patches
/// (`k8s.io/apimachinery/pkg/runtime/converter.go`, `fromUnstructured`).
pub fn converter_error(why: &str) -> String {
    let parts = why
        .strip_prefix("json: cannot unmarshal ")
        .and_then(|rest| rest.split_once(" into Go struct field "))
        .and_then(|(got, rest)| Some((got, rest.split_once(" of type ")?.1)));
    let Some((got, wanted)) = parts else { return why.to_owned() };
    let got = match got.split(' ').next().unwrap_or_default() {
        "object" => "map",
        "array" => "slice",
        "number" => "int64",
        other => other,
    };
    let float = why.strip_prefix("json: cannot unmarshal number ").and_then(|n| n.split(' ').next());
    let float = float.is_some_and(|n| n.contains(['.', 'e']));
    // The converter has other words for numbers and strings that Go could convert.
    match wanted {
        "string" if got == "int64" && !float => return "cannot convert int64 to string".to_owned(),
        "int32" | "int64" if float => return format!("cannot convert float64 to {wanted}"),
        _ => {}
    }
    let simple = matches!(wanted, "string" | "bool" | "int32" | "int64" | "float64");
    match wanted {
        _ if wanted.starts_with("[]") => format!("cannot restore slice from {got}"),
        _ if wanted.starts_with("map[") => format!("cannot restore map from {got}"),
        _ if simple => format!("unrecognized type: {wanted}"),
        _ if got == "map" || got == "slice" => "unrecognized type: string".to_owned(),
        _ => format!("cannot restore struct from: {got}"),
    }
}

/// The name of a schema's Go type.
pub(super) fn go_type(schemas: &Schemas, id: SchemaId) -> String {
    let schema = schemas.get(id);
    if let Some(name) = &schema.name {
        return match schema.leaf {
            Leaf::IntOrString => "int32".to_owned(),
            Leaf::Time | Leaf::MicroTime => "string".to_owned(),
            _ => {
                let mut parts = name.rsplit('.');
                let (kind, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{version}.{kind}")
            }
        };
    }
    match schema.kind {
        SchemaType::Array => format!("[]{}", schema.items.map_or_else(String::new, |i| go_type(schemas, i))),
        SchemaType::Object => {
            format!("map[string]{}", schema.additional.map_or_else(String::new, |i| go_type(schemas, i)))
        }
        SchemaType::Integer if schema.format.is_empty() => "int64".to_owned(),
        SchemaType::Integer => schema.format.clone(),
        SchemaType::Boolean => "bool".to_owned(),
        SchemaType::Number => "float64".to_owned(),
        _ if schema.leaf == Leaf::Bytes => "[]uint8".to_owned(),
        _ => "string".to_owned(),
    }
}

/// The zero value of a type, as Go writes it.
pub fn zero_value(schemas: &Schemas, id: SchemaId) -> Value {
    let schema = schemas.get(id);
    match schema.leaf {
        Leaf::Quantity => return Value::String("0".to_owned()),
        Leaf::IntOrString => return Value::from(0),
        Leaf::Time | Leaf::MicroTime => return Value::Null,
        _ => {}
    }
    match schema.kind {
        SchemaType::Object => {
            let mut map = Map::new();
            add_always(schemas, schema, &mut map);
            Value::Object(map)
        }
        SchemaType::Array => Value::Array(Vec::new()),
        SchemaType::String => Value::String(String::new()),
        SchemaType::Integer | SchemaType::Number => Value::from(0),
        SchemaType::Boolean => Value::Bool(false),
        SchemaType::Any | SchemaType::IntOrString => Value::Null,
    }
}

/// Adds the fields that Go always writes.
pub(super) fn add_always(schemas: &Schemas, schema: &Schema, map: &mut Map<String, Value>) {
    for name in &schema.always {
        if map.contains_key(name) {
            continue;
        }
        let Some(property) = schema.properties.get(name) else { continue };
        let value = match property.presence {
            Presence::Zero => zero_value(schemas, property.id),
            _ => Value::Null,
        };
        map.insert(name.clone(), value);
    }
}

/// Whether a value is the zero value of its type.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

/// Whether a schema is that of a map.
pub(super) fn is_map(schemas: &Schemas, id: SchemaId) -> bool {
    schemas.get(id).additional.is_some()
}

/// The byte at which Go's decoder rejects base64 text (`base64.CorruptInputError`).
pub(super) fn base64_fault(text: &[u8]) -> usize {
    let known = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    for (n, quantum) in text.chunks(4).enumerate() {
        let start = n * 4;
        let Some(j) = quantum.iter().position(|b| !known(b)) else {
            if quantum.len() < 4 {
                return start;
            }
            continue;
        };
        let at = start + j;
        let padding = |i: usize| quantum.get(i) == Some(&b'=');
        return match j {
            _ if !padding(j) => at,
            0 | 1 => at,
            2 if quantum.len() == 3 => text.len(),
            2 if !padding(3) => at,
            // More text after the padding.
            _ => start + 4,
        };
    }
    text.len()
}
