//! Column definitions.

use serde_json::{Value, json};

/// One column of a built-in kind.
#[derive(Clone, Copy)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean`, `date`, …
    pub kind: &'static str,
    /// `name` for the column that holds the object's name, else empty.
    pub format: &'static str,
    /// 0: always shown; 1: wide output.
    pub priority: i32,
}

/// A string column.
pub const fn s(name: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 0 }
}

/// A string column of wide output.
pub const fn w(name: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 1 }
}

/// An integer column.
pub const fn i(name: &'static str) -> Column {
    Column { name, kind: "integer", format: "", priority: 0 }
}

/// A boolean column.
pub const fn b(name: &'static str) -> Column {
    Column { name, kind: "boolean", format: "", priority: 0 }
}

/// A string column with the format `name`.
pub const fn n(name: &'static str) -> Column {
    Column { name, kind: "string", format: "name", priority: 0 }
}

/// A column as part of `columnDefinitions`.
pub fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority })
}

impl Column {
    /// The definition; descriptions are short and ours.
    pub fn definition(&self) -> Value {
        let description = match self.name {
            "Name" => "Name of the object, unique within its namespace and kind.",
            "Age" => "Time since the object was created.",
            "Created At" => "Time at which the object was created.",
            _ => "",
        };
        definition(self.name, self.kind, self.format, description, i64::from(self.priority))
    }
}
