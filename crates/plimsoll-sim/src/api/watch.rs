//! A client's watch of one kind: list, then changes in their order, and a list again when changes were lost. What is
//! handed on is what the runtime's `watch` hands on: deletions of what a list lacks, and of an object whose name
//! another one has.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Api, Kind, Name, name_of, uid};

/// What a watch hands on.
#[derive(Clone, Debug)]
pub enum Delta {
    /// An object is there or has changed.
    Upsert(Arc<Value>),
    /// An object is gone: its name and UID.
    Delete(Name, String),
}

/// A watch of one kind.
#[derive(Debug)]
pub struct Watch {
    /// The kind.
    pub kind: Kind,
    /// How many changes of the kind's log were handed on, or were there when the last list was made.
    cursor: usize,
    /// UIDs of objects that were handed on, and of which list.
    known: BTreeMap<Name, (String, u32)>,
    generation: u32,
    /// Whether a list was made since changes were lost.
    pub listed: bool,
    /// Whether the next change is on its way.
    pub coming: bool,
}

impl Watch {
    /// A watch that has to list first.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, cursor: 0, known: BTreeMap::new(), generation: 0, listed: false, coming: false }
    }

    /// Whether there are changes that were not handed on.
    pub fn behind(&self, api: &Api) -> bool {
        self.listed && self.cursor < api.log(self.kind).len()
    }

    /// What a list hands on; the watch goes on behind it.
    pub fn list(&mut self, api: &Api) -> Vec<Delta> {
        self.generation += 1;
        self.listed = true;
        self.cursor = api.log(self.kind).len();
        let mut out = Vec::new();
        for object in api.all(self.kind) {
            self.upsert(Arc::clone(object), &mut out);
        }
        let generation = self.generation;
        let gone = self.known.iter().filter(|(_, (_, g))| *g != generation).map(|(name, _)| name.clone());
        for name in gone.collect::<Vec<_>>() {
            self.delete(name, &mut out);
        }
        out
    }

    /// What the next change hands on.
    pub fn next(&mut self, api: &Api) -> Vec<Delta> {
        let mut out = Vec::new();
        if let Some(change) = api.log(self.kind).get(self.cursor) {
            self.cursor += 1;
            if change.deleted {
                self.delete(name_of(&change.object), &mut out);
            } else {
                self.upsert(Arc::clone(&change.object), &mut out);
            }
        }
        out
    }

    /// The watch breaks: it has to list again, and changes until then are lost.
    pub const fn lose(&mut self) {
        self.listed = false;
    }

    fn upsert(&mut self, object: Arc<Value>, out: &mut Vec<Delta>) {
        let (name, own) = (name_of(&object), uid(&object).to_owned());
        if self.known.get(&name).is_some_and(|(known, _)| *known != own) {
            self.delete(name.clone(), out);
        }
        self.known.insert(name, (own, self.generation));
        out.push(Delta::Upsert(object));
    }

    fn delete(&mut self, name: Name, out: &mut Vec<Delta>) {
        if let Some((uid, _)) = self.known.remove(&name) {
            out.push(Delta::Delete(name, uid));
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_state::Time;
    use serde_json::json;

    use super::super::Request;
    use super::*;

    #[test]
    fn a_list_after_lost_changes_deletes_what_is_gone() {
        let mut api = Api::default();
        let now = Time::from_seconds(1);
        let make = |api: &mut Api, name: &str| {
            let object = json!({"metadata": {"name": name}});
            api.handle(Request::Create(Kind::Node, object), now).unwrap();
        };
        let drop = |api: &mut Api, name: &str| {
            let (kind, name, uid) = (Kind::Node, (String::new(), name.to_owned()), String::new());
            api.handle(Request::Delete { kind, name, uid, grace: None }, now).unwrap();
        };
        make(&mut api, "a");
        let mut watch = Watch::new(Kind::Node);
        assert_eq!(watch.list(&api).len(), 1);
        make(&mut api, "b");
        assert!(watch.behind(&api));
        assert!(matches!(&watch.next(&api)[..], [Delta::Upsert(_)]));
        watch.lose();
        drop(&mut api, "a");
        drop(&mut api, "b");
        make(&mut api, "b");
        let deltas = watch.list(&api);
        assert!(
            matches!(&deltas[..], [Delta::Delete(b, _), Delta::Upsert(_), Delta::Delete(a, _)] if b.1 == "b" && a.1 == "a"),
            "{deltas:?}"
        );
    }
}
