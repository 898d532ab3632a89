//! Columns of custom resources (`additionalPrinterColumns`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cell;
use super::columns::definition;
use crate::jsonpath::JsonPath;
use crate::kinds::CustomKind;

/// The columns of a custom resource, parsed: Name, then those of the definition, or Name and Age.
pub struct CustomColumns {
    columns: Vec<CustomColumn>,
}

struct CustomColumn {
    definition: Value,
    kind: String,
    path: Option<JsonPath>,
}

impl CustomColumns {
    /// Reads the definition's columns; a path that can't be read gives empty cells.
    pub fn new(custom: &CustomKind) -> Self {
        let default = [json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" })];
        let written = if custom.columns.is_empty() { &default[..] } else { &custom.columns };
        let columns = written.iter().map(CustomColumn::new).collect();
        Self { columns }
    }

    /// `columnDefinitions`.
    pub fn definitions(&self) -> Vec<Value> {
        let name = definition("Name", "string", "name", "Name of the object.", 0);
        std::iter::once(name).chain(self.columns.iter().map(|c| c.definition.clone())).collect()
    }

    /// Cells of one object.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        std::iter::once(cell::name(object)).chain(self.columns.iter().map(|c| c.cell(object, now))).collect()
    }
}

impl CustomColumn {
    fn new(written: &Value) -> Self {
        let text = |field: &str| cell::text(written, &[field]);
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            own => own.to_owned(),
        };
        let priority = cell::int(written, &["priority"]);
        Self {
            definition: definition(text("name"), text("type"), text("format"), &description, priority),
            kind: text("type").to_owned(),
            path: JsonPath::parse(path).ok(),
        }
    }

    /// The first value found, if it has the column's type; else null. Texts are printed as Go does.
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.as_ref().and_then(|p| p.find(object)).unwrap_or_default();
        let Some(value) = found.first() else { return Value::Null };
        match (self.kind.as_str(), value) {
            ("string", Value::Null) => json!("<no value>"),
            (_, Value::Null) => Value::Null,
            ("string", Value::String(s)) => json!(s),
            ("string", other) => json!(crate::error::shown(other)),
            ("integer", Value::Number(n)) => {
                n.as_i64().or_else(|| n.as_f64().map(|f| f as i64)).map_or(Value::Null, Value::from)
            }
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => (*value).clone(),
            ("date", Value::String(s)) => match s.parse::<Timestamp>() {
                Ok(at) => json!(age::human_duration(age::seconds_between(at, now))),
                Err(_) => json!("<invalid>"),
            },
            _ => Value::Null,
        }
    }
}
