//! Between the version objects are stored in and the versions they are served in.
//!
//! Custom resources differ in `apiVersion` only (conversion strategy `None`), but for Kueue's own and those that a
//! [webhook] converts; events are one set of objects with two spellings.

mod autoscaling;
mod call;
pub mod shared;
pub mod versions;
pub mod webhook;

use plimsoll_apimachinery::{Gvk, Kind};
use serde_json::{Map, Value, json};

use crate::store::Record;

/// `core/v1` and `events.k8s.io/v1` names of the same field.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// `apiVersion` that objects of a kind are stored in.
pub fn storage_version(kind: &Kind) -> String {
    match (&kind.custom, kind.gvk.group.as_str()) {
        (Some(custom), group) => format!("{group}/{}", custom.storage_version),
        (None, "events.k8s.io") => "v1".to_owned(),
        (None, "autoscaling") => "autoscaling/v2".to_owned(),
        (None, _) => kind.gvk.api_version(),
    }
}

/// Whether a record can be sent as it is to a client that asked for a version.
pub fn is_served_as(record: &Record, gvk: &Gvk) -> bool {
    let mut rest = record.json.strip_prefix(b"{\"apiVersion\":\"");
    if !gvk.group.is_empty() {
        rest = rest.and_then(|r| r.strip_prefix(gvk.group.as_bytes())).and_then(|r| r.strip_prefix(b"/"));
    }
    rest.and_then(|r| r.strip_prefix(gvk.version.as_bytes())).is_some_and(|r| r.first() == Some(&b'"'))
}

/// The object in the version it is served in.
pub fn to_served(kind: &Kind, object: Value) -> Value {
    let target = kind.gvk.api_version();
    if kind.custom.is_some() || object["apiVersion"] == target.as_str() {
        return convert(object, &target);
    }
    let converted = convert(object, &target);
    // Fields that one version writes when empty and the other doesn't.
    match plimsoll_apimachinery::decode::conform(kind, converted.clone()) {
        Ok(conformed) => conformed.object,
        Err(_) => converted,
    }
}

/// The object in the version it is stored in.
pub fn to_storage(kind: &Kind, object: Value) -> Value {
    let target = storage_version(kind);
    convert(object, &target)
}

fn convert(mut object: Value, target: &str) -> Value {
    if object["apiVersion"] == target {
        return object;
    }
    if let Some(version) = target.strip_prefix("kueue.x-k8s.io/") {
        return plimsoll_api::kueue::convert::convert(object, version);
    }
    let Some(map) = object.as_object_mut() else { return object };
    match target {
        "events.k8s.io/v1" => rename(map, EVENT_FIELDS.iter().map(|(a, b)| (*a, *b))),
        "v1" if map.contains_key("regarding")
            || map.get("apiVersion").is_some_and(|v| v == "events.k8s.io/v1") =>
        {
            rename(map, EVENT_FIELDS.iter().map(|(a, b)| (*b, *a)));
        }
        "autoscaling/v1" => autoscaling::to_v1(map),
        "autoscaling/v2" => autoscaling::to_v2(map),
        _ => {}
    }
    map.insert("apiVersion".to_owned(), json!(target));
    object
}

fn rename<'a>(map: &mut Map<String, Value>, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}
