//! Owners of the number of replicas, as a Scale shows them and back (`managedfields.ScaleHandler`).

use serde_json::Value;

use super::fields::{self, Fields};
use super::managed::{self, Entry};
use crate::kinds::Kind;

/// The version a Scale is in.
const SCALE: &str = "autoscaling/v1";
/// The path of the number of replicas in a Scale.
const REPLICAS: [&str; 2] = ["f:spec", "f:replicas"];

/// A kind that has a Scale, and where it has its number of replicas.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// The way to the number.
    pub path: &'a [String],
}

impl Scaled<'_> {
    /// The managed fields of an object's Scale: those of managers that own the number of replicas.
    pub fn shown(self, object: &Value) -> Vec<Value> {
        let path = self.elements();
        let owners = managed::live(Some(object)).into_iter().filter(|e| self.is_known(e));
        let owners = owners.filter(|e| managed::fields_of(e).is_some_and(|set| has(set, &path)));
        owners.map(|e| entry(&e, SCALE, &REPLICAS, managed::time_of(&e))).collect()
    }

    /// The managed fields of the object after `scale`, a write to its Scale. A manager that no longer owns the number
    /// there loses it. An updater that still owns it gets an entry of its own, because its other entry has another
    /// version; new entries have no time.
    pub fn returned(self, object: &Value, scale: &Value) -> Vec<Value> {
        let path = self.elements();
        let mut owners = managed::live(Some(scale));
        let mut out = Vec::new();
        for mut ours in managed::live(Some(object)).into_iter().filter(|e| self.is_known(e)) {
            if managed::fields_of(&ours).is_some_and(|set| has(set, &path)) {
                let still = owners.iter().position(|theirs| Entry::of(theirs).same(&Entry::of(&ours)));
                if let Some(still) = still {
                    owners.remove(still);
                } else if let Some(set) = managed::fields_mut(&mut ours) {
                    fields::subtract(set, &one(&path));
                }
            }
            out.push(ours);
        }
        owners.retain(|e| managed::fields_of(e).is_some_and(|set| has(set, &REPLICAS)));
        let version = self.kind.gvk.api_version();
        out.extend(owners.iter().map(|e| entry(e, &version, &path, None)));
        out
    }

    fn elements(&self) -> Vec<String> {
        self.path.iter().map(|step| format!("f:{step}")).collect()
    }

    /// Entries in versions of other groups go.
    fn is_known(&self, entry: &Value) -> bool {
        let version = Entry::of(entry).api_version;
        version.rsplit_once('/').map_or("", |(group, _)| group) == self.kind.gvk.group
    }
}

fn has<S: AsRef<str>>(set: &Fields, path: &[S]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    let node = set.get(first.as_ref()).and_then(Value::as_object);
    node.is_some_and(|node| if rest.is_empty() { fields::is_member(node) } else { has(node, rest) })
}

/// A manager's entry in another version, with one field.
fn entry<S: AsRef<str>>(of: &Value, api_version: &str, path: &[S], time: Option<&str>) -> Value {
    Entry { api_version, ..Entry::of(of) }.to_value(one(path), time)
}

/// The set of one field.
fn one<S: AsRef<str>>(path: &[S]) -> Fields {
    let mut set = Fields::new();
    fields::insert(&mut set, &path.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    set
}

/// Puts managed fields in the place of an object's.
pub fn replace(object: &mut Value, entries: Vec<Value>) {
    drop(managed::take(object));
    managed::put(object, entries);
}
