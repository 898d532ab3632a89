//! Objects that are being deleted, of kinds of which there are few: each event of a workload asks for ClusterQueues that wait
//! for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_api::json;
use serde_json::Value;

use super::kept::{Kept, is_numerous};
use super::{Kind, Name, ObjectStore};

#[derive(Debug, Default)]
pub(super) struct Terminating(BTreeSet<(Kind, Name)>);

impl Terminating {
    pub(super) fn keep(&mut self, kind: Kind, name: &Name, object: &Value) {
        if !is_numerous(kind) && json::deleting(object) {
            self.0.insert((kind, name.clone()));
        }
    }

    pub(super) fn forget(&mut self, kind: Kind, name: &Name) {
        if !self.0.is_empty() && !is_numerous(kind) {
            self.0.remove(&(kind, name.clone()));
        }
    }
}

impl ObjectStore {
    /// Objects of a kind of which there are few that are being deleted, by namespace and name.
    pub(crate) fn terminating(&self, kind: Kind) -> impl Iterator<Item = Arc<Value>> {
        let all = self.terminating.0.range((kind, Name::default())..);
        let names = all.take_while(move |(of, _)| *of == kind);
        names.filter_map(|(kind, name)| self.find(*kind, name)).map(Kept::object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_that_are_being_deleted_are_found_as_by_a_search() {
        let mut objects = ObjectStore::default();
        let object = |name: &str, version: u32, deleting: bool| {
            let stamp = deleting.then_some("2026-01-01T00:00:00Z");
            json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(), "deletionTimestamp": stamp}})
        };
        let check = |objects: &ObjectStore, want: &[&str]| {
            for kind in [Kind::ClusterQueue, Kind::Flavor] {
                let found: Vec<_> = objects.terminating(kind).collect();
                let searched: Vec<_> = objects.all(kind).filter(|o| json::deleting(o)).collect();
                assert_eq!(found, searched);
            }
            let names: Vec<_> =
                objects.terminating(Kind::ClusterQueue).map(|o| json::name(&o).to_owned()).collect();
            assert_eq!(names, want);
        };
        for name in ["c", "a", "b"] {
            objects.put(Kind::ClusterQueue, object(name, 1, false));
            objects.put(Kind::Flavor, object(name, 1, name == "b"));
        }
        check(&objects, &[]);
        objects.put(Kind::ClusterQueue, object("c", 2, true));
        objects.put(Kind::ClusterQueue, object("a", 3, true));
        objects.put(Kind::ClusterQueue, object("b", 4, false));
        check(&objects, &["a", "c"]);
        // A version from before the deletion changes nothing.
        objects.put(Kind::ClusterQueue, object("a", 5, false));
        check(&objects, &["a", "c"]);
        objects.remove(Kind::ClusterQueue, "", "a", "a");
        check(&objects, &["c"]);
        // One of the same name replaces it.
        let mut next = object("c", 6, false);
        next["metadata"]["uid"] = json!("other");
        objects.put(Kind::ClusterQueue, next);
        check(&objects, &[]);
    }
}
