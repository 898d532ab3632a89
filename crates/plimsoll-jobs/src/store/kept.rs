//! How objects are kept: those that changed of late as trees of values, the others of numerous kinds as JSON text.
//!
//! A Workload takes 25 KiB as a tree, because a map of one entry has room for eleven, and 3 KiB as text. Reading one that
//! has not changed for long costs a parse.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_api::json;
use serde_json::Value;

use super::{Kind, Name, revision};

/// So many objects that changed last are trees: 25 MiB at most, and more than are read again and again.
const RECENT: usize = 1024;

/// An object in the store.
#[derive(Debug)]
pub(super) enum Kept {
    /// As a tree, with the number of the change that brought it.
    Tree(Arc<Value>, u64),
    /// As text.
    Text(Box<Text>),
}

/// An object as text, with what is asked of every object.
#[derive(Debug)]
pub(super) struct Text {
    uid: Box<str>,
    revision: u128,
    is_reserving: bool,
    json: Box<[u8]>,
}

impl Text {
    fn object(&self) -> Value {
        let mut deserializer = serde_json::Deserializer::from_slice(&self.json);
        // It was written from a value, which may be as deep as a server allows.
        deserializer.disable_recursion_limit();
        // That it can't be read would be a fault of this file.
        deserializer.into_iter().next().and_then(Result::ok).unwrap_or_default()
    }
}

impl Kept {
    /// The object.
    pub(super) fn object(&self) -> Arc<Value> {
        match self {
            Self::Tree(object, _) => Arc::clone(object),
            Self::Text(text) => Arc::new(text.object()),
        }
    }

    pub(super) fn uid(&self) -> &str {
        match self {
            Self::Tree(object, _) => json::uid(object),
            Self::Text(text) => &text.uid,
        }
    }

    pub(super) fn revision(&self) -> u128 {
        match self {
            Self::Tree(object, _) => revision(object),
            Self::Text(text) => text.revision,
        }
    }

    /// Of a Workload: whether it holds quota.
    pub(super) fn is_reserving(&self) -> bool {
        match self {
            Self::Tree(object, _) => is_reserving(object),
            Self::Text(text) => text.is_reserving,
        }
    }

    fn pack(&mut self, change: u64) {
        if let Self::Tree(object, brought) = self
            && *brought == change
            && let Ok(json) = serde_json::to_vec(&**object)
        {
            *self = Self::Text(Box::new(Text {
                uid: json::uid(object).into(),
                revision: revision(object),
                is_reserving: is_reserving(object),
                json: json.into_boxed_slice(),
            }));
        }
    }
}

/// Whether a Workload has an admission and has not finished.
fn is_reserving(object: &Value) -> bool {
    !object["status"]["admission"].is_null() && !json::is_true(object, "Finished")
}

/// Whether there may be very many objects of a kind.
const fn is_numerous(kind: Kind) -> bool {
    matches!(kind, Kind::Pod | Kind::Job | Kind::Workload | Kind::Custom(_))
}

/// The objects of numerous kinds that changed last.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The one that changed last is the last; with the number of the change.
    order: VecDeque<(Kind, Name, u64)>,
    changes: u64,
}

impl Recent {
    /// Keeps an object that has changed as a tree. Gives the one that has not changed for longest, which becomes text unless
    /// it has changed since.
    pub(super) fn keep(
        &mut self,
        kind: Kind,
        name: &Name,
        object: Arc<Value>,
    ) -> (Kept, Option<(Kind, Name, u64)>) {
        self.changes += 1;
        if is_numerous(kind) {
            self.order.push_back((kind, name.clone(), self.changes));
        }
        let old = if self.order.len() > RECENT { self.order.pop_front() } else { None };
        (Kept::Tree(object, self.changes), old)
    }
}

/// Makes an object text, unless it has changed again after this change.
pub(super) fn pack(kept: Option<&mut Kept>, change: u64) {
    if let Some(kept) = kept {
        kept.pack(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectStore;
    use serde_json::json;

    fn workload(i: usize, version: usize, reserving: bool) -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": format!("w{i}"), "uid": format!("u{i}"), "resourceVersion": version.to_string(),
                         "ownerReferences": [{"kind": "Job", "name": format!("j{i}"), "uid": format!("o{i}")}]},
            "status": {"admission": if reserving { json!({"clusterQueue": "q"}) } else { Value::Null }},
        })
    }

    #[test]
    fn what_has_not_changed_for_long_is_text_and_reads_the_same() {
        let mut objects = ObjectStore::default();
        let many = RECENT + 10;
        for i in 0..many {
            objects.put(Kind::Workload, workload(i, i + 1, i % 2 == 0));
        }
        let kept = |objects: &ObjectStore, i: usize| {
            let name = ("ns".to_owned(), format!("w{i}"));
            matches!(objects.tables[&Kind::Workload].objects[&name], Kept::Text(_))
        };
        assert!(kept(&objects, 0) && kept(&objects, 9) && !kept(&objects, 10));
        for i in [0, 1, 9, 10, many - 1] {
            let got = objects.get(Kind::Workload, "ns", &format!("w{i}")).expect("it is there");
            assert_eq!(*got, workload(i, i + 1, i % 2 == 0));
            assert_eq!(objects.owned_by(&format!("o{i}")).count(), 1);
            assert_eq!(objects.owned_by_name("ns", "Job", &format!("j{i}")).len(), 1);
        }
        assert_eq!(objects.all(Kind::Workload).count(), many);
        assert_eq!(objects.reserving_workloads().count(), many / 2);
        // An older version does not come back, a newer one is a tree again, and indexes follow.
        objects.put(Kind::Workload, workload(3, 1, true));
        assert!(kept(&objects, 3));
        let mut moved = workload(3, many + 1, true);
        moved["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "other", "uid": "other"}]);
        objects.put(Kind::Workload, moved);
        assert!(!kept(&objects, 3));
        assert_eq!(objects.owned_by("o3").count() + objects.owned_by_name("ns", "Job", "j3").len(), 0);
        assert_eq!(objects.owned_by("other").count(), 1);
        assert!(objects.remove(Kind::Workload, "ns", "w4", "another").is_none());
        let gone = objects.remove(Kind::Workload, "ns", "w4", "u4").expect("it was there");
        assert_eq!(*gone, workload(4, 5, true));
    }

    #[test]
    fn an_object_may_be_deep() {
        let mut deep = json!(1);
        for _ in 0..500 {
            deep = json!({ "a": deep });
        }
        let object = json!({"metadata": {"namespace": "ns", "name": "deep", "uid": "u"}, "spec": deep});
        let mut kept = Kept::Tree(Arc::new(object.clone()), 1);
        kept.pack(1);
        assert!(matches!(kept, Kept::Text(_)));
        assert_eq!(*kept.object(), object);
    }

    #[test]
    fn one_that_changes_all_the_time_stays_a_tree() {
        let mut objects = ObjectStore::default();
        for i in 0..3 * RECENT {
            objects.put(Kind::Workload, workload(0, i + 1, true));
            objects.put(Kind::Job, workload(i, 1, false));
        }
        assert!(matches!(
            objects.tables[&Kind::Workload].objects[&("ns".into(), "w0".into())],
            Kept::Tree(..)
        ));
        assert_eq!(objects.all(Kind::Job).count(), 3 * RECENT);
    }
}
