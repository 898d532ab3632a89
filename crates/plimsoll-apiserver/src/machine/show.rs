//! Objects in other forms than their own: protobuf and tables.

use jiff::Timestamp;
use plimsoll_apimachinery::table::{IncludeObject, TableOptions, is_sorted, to_table};
use plimsoll_apimachinery::{ApiError, Kind, proto};
use serde_json::{Value, json};

use super::read::gvk_of;
use crate::http::negotiate::MetaVersion;
use crate::http::query::Query;

/// The object in protobuf, in its envelope; `None`: it has no protobuf form.
pub fn to_protobuf(object: &Value) -> Option<Vec<u8>> {
    proto::encode(&gvk_of(object), object)
}

/// A watch event in protobuf, with its length.
pub fn protobuf_event(event_type: &str, object: &Value) -> Option<Vec<u8>> {
    let object = proto::encode(&gvk_of(object), object)?;
    Some(proto::frame(&proto::watch_event(event_type, &object)))
}

/// Whether a kind can be read and written in protobuf.
pub fn has_protobuf(kind: &Kind) -> bool {
    kind.custom.is_none() && proto::supports(&kind.gvk)
}

/// Options of a table from the query.
pub fn table_options(query: &Query, list_meta: Value, no_headers: bool) -> Result<TableOptions, ApiError> {
    let include_object = IncludeObject::parse(query.get("includeObject").unwrap_or(""))?;
    Ok(TableOptions { include_object, no_headers, list_meta })
}

/// Whether the rows of a table have another order than the list.
pub fn is_sorted_table(kind: &Kind) -> bool {
    is_sorted(kind)
}

/// Objects as a table.
pub fn table(
    kind: &Kind,
    items: &[Value],
    options: &TableOptions,
    version: MetaVersion,
    now: Timestamp,
) -> Value {
    let mut table = to_table(kind, items, options, now);
    if version == MetaVersion::V1beta1 {
        table["apiVersion"] = json!(version.api_version());
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            if row["object"]["kind"] == "PartialObjectMetadata" {
                row["object"]["apiVersion"] = json!(version.api_version());
            }
        }
    }
    table
}
