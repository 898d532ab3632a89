//! A client's watch of one kind: list, then changes in their order, and a list again when changes were lost. What changes
//! for the client with each of them is the product's own [`Known`].

use std::sync::Arc;

use plimsoll_api::watch::{self, Gone, Known};
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
    /// Up to which version everything was handed on: that of the last list or change, also where it handed on no object
    /// (`Memory` of `plimsoll-client`'s reflector).
    pub reached: u64,
    /// Objects that were handed on.
    known: Known<()>,
    /// Whether a list was made since changes were lost.
    pub listed: bool,
    /// Whether the next change is on its way.
    pub coming: bool,
}

impl Watch {
    /// A watch that has to list first.
    pub fn new(kind: Kind) -> Self {
        Self { kind, cursor: 0, reached: 0, known: Known::default(), listed: false, coming: false }
    }

    /// Whether there are changes that were not handed on.
    pub fn behind(&self, api: &Api) -> bool {
        self.listed && self.cursor < api.log(self.kind).len()
    }

    /// What a list hands on; the watch goes on behind it.
    pub fn list(&mut self, api: &Api) -> Vec<Delta> {
        self.known.begin_list();
        self.listed = true;
        self.cursor = api.log(self.kind).len();
        self.reached = api.version();
        let mut out = Vec::new();
        for object in api.all(self.kind) {
            self.upsert(Arc::clone(object), &mut out);
        }
        out.extend(self.known.end_list().iter().map(Delta::of));
        out
    }

    /// What the next change hands on.
    pub fn next(&mut self, api: &Api) -> Vec<Delta> {
        let mut out = Vec::new();
        if let Some(change) = api.log(self.kind).get(self.cursor) {
            self.cursor += 1;
            self.reached = change.version;
            if change.deleted {
                out.extend(self.known.delete(&path(&change.object)).iter().map(Delta::of));
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
        if let watch::Change::Replaced(gone) = self.known.upsert(&path(&object), uid(&object), ()) {
            out.push(Delta::of(&gone));
        }
        out.push(Delta::Upsert(object));
    }
}

impl Delta {
    fn of(gone: &Gone<()>) -> Self {
        let (namespace, name) = watch::split(&gone.path);
        Self::Delete((namespace.to_owned(), name.to_owned()), gone.uid.to_string())
    }
}

fn path(object: &Value) -> String {
    let ((namespace, name), mut path) = (name_of(object), String::new());
    watch::join(&mut path, &namespace, &name);
    path
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
        assert_eq!(watch.reached, api.version());
        watch.lose();
        drop(&mut api, "a");
        drop(&mut api, "b");
        make(&mut api, "b");
        let deltas = watch.list(&api);
        assert!(
            matches!(&deltas[..], [Delta::Delete(b, _), Delta::Upsert(_), Delta::Delete(a, _)] if b.1 == "b" && a.1 == "a"),
            "{deltas:?}"
        );
        assert_eq!(watch.reached, api.version());
    }

    #[test]
    fn deletions_are_reached_as_well() {
        let mut api = Api::default();
        let now = Time::from_seconds(1);
        let name = || (String::new(), "a".to_owned());
        let object = json!({"metadata": {"name": "a"}});
        api.handle(Request::Create(Kind::Node, object), now).unwrap();
        let (mut early, mut late) = (Watch::new(Kind::Node), Watch::new(Kind::Node));
        early.list(&api);
        let made = early.reached;
        let delete = Request::Delete { kind: Kind::Node, name: name(), uid: String::new(), grace: None };
        api.handle(delete, now).unwrap();
        assert!(matches!(&early.next(&api)[..], [Delta::Delete(a, _)] if *a == name()));
        assert!(late.list(&api).is_empty());
        assert!(made < early.reached && early.reached == late.reached);
    }
}
