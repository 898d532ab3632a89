//! `metadata.managedFields`: entries, where they come from on a write, their order and their number.

use serde_json::{Map, Value, json};

use super::fields::{self, Fields};
use crate::kinds::Kind;

/// Entries of updates that are kept apart; older ones are merged (`DefaultMaxUpdateManagers`).
const MAX_UPDATE_ENTRIES: usize = 10;
/// Manager under which merged entries go.
const ANCIENT: &str = "ancient-changes";

/// An entry, read.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Name of the manager.
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    /// Version in which the fields are named.
    pub api_version: &'a str,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
}

impl<'a> Entry<'a> {
    /// Reads an entry.
    pub fn of(entry: &'a Value) -> Self {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        Self {
            manager: text("manager"),
            operation: text("operation"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
        }
    }

    /// Whether both entries have the same manager. Appliers are compared without their version.
    pub fn same(&self, other: &Entry<'_>) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == "Apply" || self.api_version == other.api_version)
    }

    /// A new entry.
    pub fn to_value(self, fields: Fields, time: Option<&str>) -> Value {
        let mut entry = json!({
            "operation": self.operation, "apiVersion": self.api_version, "fieldsType": "FieldsV1",
        });
        if !self.manager.is_empty() {
            entry["manager"] = json!(self.manager);
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        if let Some(time) = time {
            entry["time"] = json!(time);
        }
        entry["fieldsV1"] = Value::Object(fields);
        entry
    }
}

/// The fields of an entry.
pub fn fields_of(entry: &Value) -> Option<&Fields> {
    entry.get("fieldsV1").and_then(Value::as_object)
}

/// The fields of an entry, to change.
pub fn fields_mut(entry: &mut Value) -> Option<&mut Fields> {
    entry.get_mut("fieldsV1").and_then(Value::as_object_mut)
}

/// The entries of an object.
pub fn entries(object: Option<&Value>) -> Option<&Value> {
    object?.get("metadata")?.get("managedFields").filter(|m| !m.is_null())
}

/// Takes the entries out of an object.
pub fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields").filter(|m| !m.is_null())
}

/// Puts entries into an object, in upstream's order; entries without fields go.
pub fn put(object: &mut Value, mut entries: Vec<Value>) {
    entries.retain(|e| fields_of(e).is_some_and(|f| !f.is_empty()));
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    if entries.is_empty() {
        return;
    }
    if let Value::Object(object) = object {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
}

fn order(entry: &Value) -> (&str, &str, &str, &str, &str) {
    let e = Entry::of(entry);
    (e.operation, time(entry), e.manager, e.api_version, e.subresource)
}

fn time(entry: &Value) -> &str {
    time_of(entry).unwrap_or_default()
}

/// When an entry was written.
pub fn time_of(entry: &Value) -> Option<&str> {
    entry.get("time").and_then(Value::as_str)
}

/// The entries of a stored object, one for each manager: of several the last counts.
pub fn live(object: Option<&Value>) -> Vec<Value> {
    let list = entries(object).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_last = |i: usize, e: &Value| {
        let later = list.get(i + 1..).unwrap_or_default();
        !later.iter().any(|l| Entry::of(l).same(&Entry::of(e)))
    };
    list.iter().enumerate().filter(|(i, e)| is_last(*i, e)).map(|(_, e)| e.clone()).collect()
}

/// The entries before a write: those in the request, if they are valid and the request may set entries, else the live
/// object's. An empty list, or one empty entry, clears them.
pub fn live_or_new(old: Option<&Value>, given: Option<Value>, subresource: bool) -> Vec<Value> {
    let Some(given) = given.filter(|given| !subresource && entries(old) != Some(given)) else {
        return live(old);
    };
    let Value::Array(list) = given else { return live(old) };
    if matches!(list.as_slice(), [] | [Value::Null]) || is_one_empty(&list) {
        return Vec::new();
    }
    match decode(&list) {
        Ok(decoded) if !decoded.is_empty() => decoded,
        _ => live(old),
    }
}

fn is_one_empty(list: &[Value]) -> bool {
    matches!(list, [Value::Object(entry)] if entry.is_empty())
}

/// Drops entries in versions that a write can't read: the core API and the other groups don't know each other's types,
/// so that an event, which both serve, loses the entries of the other group (`IsMissingVersionError`).
pub fn drop_unknown(kind: &Kind, entries: &mut Vec<Value>) {
    if kind.custom.is_none() {
        entries.retain(|e| Entry::of(e).api_version.contains('/') != kind.gvk.group.is_empty());
    }
}

/// Whether an entry is in a version of a definition, as far as its versions are known.
pub fn is_version_of(entry: &Value, group: &str, versions: &[String]) -> bool {
    let (of, version) = Entry::of(entry).api_version.split_once('/').unwrap_or_default();
    of == group && (versions.is_empty() || versions.iter().any(|v| v == version))
}

/// Reads entries given by a client.
///
/// # Errors
/// Upstream's text when an entry isn't valid.
pub fn decode(list: &[Value]) -> Result<Vec<Value>, String> {
    let mut out: Vec<Value> = Vec::with_capacity(list.len());
    for (i, given) in list.iter().enumerate() {
        let entry = Entry::of(given);
        if !matches!(entry.operation, "Apply" | "Update") {
            return Err("operation must be `Apply` or `Update`".to_owned());
        }
        if entry.api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match given.get("fieldsType").and_then(Value::as_str).unwrap_or_default() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
            other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {i}")),
        }
        let set = match given.get("fieldsV1") {
            None | Some(Value::Null) => Fields::new(),
            Some(Value::Object(set)) => fields::canonical(set, 0)?,
            Some(_) => return Err(format!("error decoding manager from entry {i}")),
        };
        let time = given.get("time").and_then(Value::as_str);
        let decoded = entry.to_value(set, time);
        match out.iter_mut().find(|e| Entry::of(e).same(&entry)) {
            Some(earlier) => *earlier = decoded,
            None => out.push(decoded),
        }
    }
    Ok(out)
}

/// Merges the oldest update entries when there are too many (`capManagersManager`).
pub fn cap(entries: &mut Vec<Value>) {
    let is_update = |e: &Value| Entry::of(e).operation == "Update";
    let mut count = entries.iter().filter(|e| is_update(e)).count();
    if count <= MAX_UPDATE_ENTRIES {
        return;
    }
    let key = |e: &Value| {
        let entry = Entry::of(e);
        (time(e).to_owned(), format!("{}\"{}{}", entry.manager, entry.api_version, entry.subresource))
    };
    let (mut updates, mut rest): (Vec<Value>, Vec<Value>) = entries.drain(..).partition(|e| is_update(e));
    updates.sort_by_cached_key(key);
    // per version: the first (oldest) entry, which becomes the bucket when a second one follows
    let mut buckets: Vec<Value> = Vec::new();
    let mut queue = updates.into_iter();
    for mut update in queue.by_ref() {
        let version = Entry::of(&update).api_version.to_owned();
        let Some(bucket) = buckets.iter_mut().find(|b| Entry::of(b).api_version == version) else {
            buckets.push(update);
            continue;
        };
        let new = fields_mut(&mut update).map(std::mem::take).unwrap_or_default();
        let mut set = fields_mut(bucket).map(std::mem::take).unwrap_or_default();
        fields::union(&mut set, new);
        let name = Entry { manager: ANCIENT, operation: "Update", api_version: &version, subresource: "" };
        *bucket = name.to_value(set, update.get("time").and_then(Value::as_str));
        count -= 1;
        if count <= MAX_UPDATE_ENTRIES {
            break;
        }
    }
    rest.extend(buckets);
    rest.extend(queue);
    *entries = rest;
}
