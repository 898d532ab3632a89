//! What a write changes of the fields that a manager can own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::compare::{Comparison, Side, compare};
use super::fields;
use super::managed::{self, Entry};
use super::reset::reset;
use super::types::Type;
use crate::kinds::Kind;

/// Fields of metadata without an owner.
pub const SYSTEM: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// An object that is not there.
pub static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// The fields that differ between two objects of a kind, as far as writes to a subresource can own them.
pub fn difference(kind: &Kind, subresource: &str, old: Option<&Value>, new: &Value) -> Comparison {
    let reset = reset(kind, subresource);
    let skip = |parent: &str, field: &str| match parent {
        "" => matches!(field, "apiVersion" | "kind") || reset.drops(field),
        _ => SYSTEM.contains(&field),
    };
    let old = match old {
        Some(old) => Side::Value(old),
        None if kind.custom.is_none() => Side::Zero,
        None => Side::Value(&NOTHING),
    };
    let mut difference = compare(Type::of(kind), old, new, &skip);
    reset.filter(&mut difference.changed);
    reset.filter(&mut difference.removed);
    difference
}

/// What differs between two objects in the version of a request and in those of entries.
#[derive(Debug)]
pub struct Differences {
    /// In the version of the request.
    pub own: Comparison,
    /// In other versions.
    pub others: BTreeMap<String, Comparison>,
}

impl Differences {
    /// What differs in the version of an entry.
    pub fn of(&self, entry: &Value) -> &Comparison {
        self.others.get(Entry::of(entry).api_version).unwrap_or(&self.own)
    }

    /// Takes away from managers what differs.
    pub fn take_from(&self, entries: &mut [Value]) {
        for entry in entries {
            let Comparison { changed, removed } = self.of(entry);
            if let Some(set) = managed::fields_mut(entry) {
                fields::subtract(set, changed);
                fields::subtract(set, removed);
            }
        }
    }
}
