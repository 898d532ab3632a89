//! Objects as `meta.k8s.io/v1` Tables, as kube-apiserver makes them for kubectl.

pub mod age;
mod cell;
mod columns;
mod core;
mod custom;
mod others;
mod pod;
mod registry;
#[cfg(test)]
mod tests;
mod workloads;

use jiff::Timestamp;
use plimsoll_state::collect::InsertEach as _;
use serde_json::{Value, json};

use self::columns::{Column, n};
use crate::error::ApiError;
use crate::kinds::Kind;

pub use self::pod::status_word as pod_status_word;

/// The part of the object that a row contains (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata, as `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter.
    ///
    /// # Errors
    /// 400 with upstream's text for anything but `None`, `Metadata`, `Object` and empty.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be \
                 'Metadata', 'Object', 'None', or empty",
                json!(other)
            ))),
        }
    }
}

/// Options of a table.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// The part of the object that rows contain.
    pub include_object: IncludeObject,
    /// Leaves `columnDefinitions` null, as in all but the first event of a watch.
    pub no_headers: bool,
    /// The table's metadata: `resourceVersion`, `continue`, `remainingItemCount` of the list; null: taken
    /// from the one object shown.
    pub list_meta: Value,
}

const DEFAULT: &[Column] = &[n("Name"), Column { name: "Created At", kind: "date", format: "", priority: 0 }];

/// Makes the table of `items`, all of the kind `kind`. Ages are relative to `now`.
pub fn to_table(kind: &Kind, items: &[Value], options: &TableOptions, now: Timestamp) -> Value {
    let (columns, rows) = match &kind.custom {
        Some(custom) => {
            let columns = custom::CustomColumns::new(custom);
            let rows = make_rows(items, options, |item| columns.cells(item, now));
            (columns.definitions(), Value::Array(rows))
        }
        None => match registry::printer(&kind.gvk) {
            Some(printer) => {
                let sorted = registry::order(&kind.gvk).map(|order| {
                    let mut items = items.to_vec();
                    items.sort_by(order);
                    items
                });
                let items = sorted.as_deref().unwrap_or(items);
                let mut rows = make_rows(items, options, |item| printer.cells(item, now));
                if kind.gvk.group.is_empty() && kind.gvk.kind == "Pod" {
                    add_pod_conditions(&mut rows, items);
                }
                (printer.columns.iter().map(Column::definition).collect(), Value::Array(rows))
            }
            None => {
                let rows = make_rows(items, options, default_cells);
                // the default convertor has no rows rather than an empty list
                let rows = if rows.is_empty() { Value::Null } else { Value::Array(rows) };
                (DEFAULT.iter().map(Column::definition).collect(), rows)
            }
        },
    };
    let columns = if options.no_headers { Value::Null } else { Value::Array(columns) };
    let metadata = match (&options.list_meta, items) {
        (Value::Null, [item, ..]) => {
            json!({ "resourceVersion": cell::text(item, &["metadata", "resourceVersion"]) })
        }
        (Value::Null, []) => json!({}),
        (meta, _) => meta.clone(),
    };
    object([
        ("kind", Value::from("Table")),
        ("apiVersion", Value::from("meta.k8s.io/v1")),
        ("metadata", metadata),
        ("columnDefinitions", columns),
        ("rows", rows),
    ])
}

/// An object of these members. `json!` would copy each of them, and with them all the rows of a large list.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).insert_each())
}

/// Whether rows have another order than the list, so that a list can't be shown in pieces.
pub fn is_sorted(kind: &Kind) -> bool {
    kind.custom.is_none() && registry::order(&kind.gvk).is_some()
}

fn default_cells(item: &Value) -> Vec<Value> {
    let created = cell::text(item, &["metadata", "creationTimestamp"]);
    vec![cell::name(item), json!(created)]
}

fn make_rows(items: &[Value], options: &TableOptions, cells: impl Fn(&Value) -> Vec<Value>) -> Vec<Value> {
    let row = |item| {
        object([("cells", Value::Array(cells(item))), ("object", row_object(item, options.include_object))])
    };
    items.iter().map(row).collect()
}

fn add_pod_conditions(rows: &mut [Value], items: &[Value]) {
    for (row, item) in rows.iter_mut().zip(items) {
        if let (Some(conditions), Some(row)) = (pod::conditions(item), row.as_object_mut()) {
            row.insert("conditions".to_owned(), conditions);
        }
    }
}

fn row_object(item: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => {
            let mut partial = partial_metadata(item);
            drop_internal_annotation(&mut partial);
            partial
        }
        IncludeObject::Object => item.clone(),
    }
}

/// Rows are made of upstream's internal objects, in which this annotation is a field.
fn drop_internal_annotation(partial: &mut Value) {
    let Some(metadata) = partial.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove("deprecated.daemonset.template.generation");
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// An object's metadata as `PartialObjectMetadata`.
pub fn partial_metadata(item: &Value) -> Value {
    object([
        ("kind", Value::from("PartialObjectMetadata")),
        ("apiVersion", Value::from("meta.k8s.io/v1")),
        ("metadata", cell::at(item, &["metadata"]).clone()),
    ])
}
