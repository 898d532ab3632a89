//! How objects are kept: those that changed of late as trees of values, the others of numerous kinds as JSON text, packed.
//!
//! A Workload takes 25 KiB as a tree, because a map of one entry has room for eleven, 3 KiB as text, and a fraction of that as its
//! difference from another one. Reading one that has not changed for long costs a parse.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use plimsoll_api::watch::Meta;
use plimsoll_api::{json, object};
use serde_json::Value;

use super::packed::{Packed, Samples};
use super::{Kind, Name, ObjectStore, revision};

/// So many objects that changed last are trees, and more than are read again and again: 25 MiB of pods and jobs at most.
const RECENT: usize = 1024;
/// The same of Workloads, 3 MiB at most: nothing reads many of them again and again, as a group's pods are. More than have a
/// write on its way, so that what the watch shows of it is known.
const RECENT_WORKLOADS: usize = 128;

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
    is_finished: bool,
    is_deleting: bool,
    json: Packed,
}

impl Text {
    fn object(&self) -> Value {
        let json = self.json.text();
        let mut deserializer = serde_json::Deserializer::from_slice(&json);
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

    /// The object as far as indexes need it, and the comparison of deletions: as text its metadata alone, unless it is being
    /// deleted.
    pub(super) fn head(&self) -> Arc<Value> {
        match self {
            Self::Text(text) if !text.is_deleting => {
                object::metadata(&text.json.text()).map_or_else(|| self.object(), Arc::new)
            }
            _ => self.object(),
        }
    }

    /// The object, if it is a tree of this UID and version.
    pub(super) fn same(&self, meta: &Meta<'_>) -> Option<Arc<Value>> {
        let Self::Tree(object, _) = self else { return None };
        let same = json::uid(object) == meta.uid && json::version(object) == meta.resource_version;
        (same && !meta.resource_version.is_empty()).then(|| Arc::clone(object))
    }

    /// The change that brought it, if it is this tree.
    pub(super) fn brought(&self, object: &Arc<Value>) -> Option<u64> {
        match self {
            Self::Tree(tree, change) if Arc::ptr_eq(tree, object) => Some(*change),
            _ => None,
        }
    }

    /// Whether it is the version that `object` is, and known to be deleted where that is.
    pub(super) fn is_version_of(&self, object: &Value) -> bool {
        let revision = revision(object);
        revision > 0
            && self.revision() == revision
            && self.uid() == json::uid(object)
            && self.is_deleting() == json::deleting(object)
    }

    fn is_deleting(&self) -> bool {
        match self {
            Self::Tree(object, _) => json::deleting(object),
            Self::Text(text) => text.is_deleting,
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

    /// Of a Workload: whether it has ended.
    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Tree(object, _) => json::is_true(object, "Finished"),
            Self::Text(text) => text.is_finished,
        }
    }

    /// Makes an object text that this change has brought; `json`: as a watch has shown it.
    fn pack(&mut self, kind: Kind, change: u64, json: Option<Packed>, room: &mut Room) {
        if let Self::Tree(object, brought) = self
            && *brought == change
            && let Some(json) = json.or_else(|| room.write(kind, object))
        {
            let text = Text {
                uid: json::uid(object).into(),
                revision: revision(object),
                is_reserving: is_reserving(object),
                is_finished: json::is_true(object, "Finished"),
                is_deleting: json::deleting(object),
                json,
            };
            debug_assert_eq!(text.object(), **object);
            *self = Self::Text(Box::new(text));
        }
    }
}

/// Whether a Workload has an admission and has not finished.
fn is_reserving(object: &Value) -> bool {
    !object["status"]["admission"].is_null() && !json::is_true(object, "Finished")
}

/// Whether `object` was read before the deletion of `known` was accepted: a deletion is never withdrawn.
pub(super) fn is_before_deletion(object: &Value, known: &Value) -> bool {
    json::deleting(known) && !json::deleting(object) && json::uid(known) == json::uid(object)
}

/// Nothing here reads `managedFields`, and as a tree of maps they take more memory than all the rest of an object.
pub(super) fn without_managed_fields(mut object: Arc<Value>) -> Arc<Value> {
    if object.get("metadata").is_some_and(|metadata| metadata.get("managedFields").is_some())
        && let Some(metadata) = Arc::make_mut(&mut object).get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("managedFields");
    }
    object
}

/// Whether there may be very many objects of a kind.
pub(super) const fn is_numerous(kind: Kind) -> bool {
    matches!(kind, Kind::Pod | Kind::Job | Kind::Workload | Kind::Custom(_))
}

/// What objects need to become text.
#[derive(Debug, Default)]
struct Room {
    /// Where they are written.
    scratch: Vec<u8>,
    samples: Samples,
}

impl Room {
    /// Writes an object as text, and packs it.
    fn write(&mut self, kind: Kind, object: &Value) -> Option<Packed> {
        self.scratch.clear();
        serde_json::to_writer(&mut self.scratch, object).ok()?;
        Some(self.samples.pack(kind, &self.scratch))
    }

    /// Packs the text of an object that a watch has shown.
    fn take(&mut self, kind: Kind, text: &[u8]) -> Option<Packed> {
        let [before, after] = object::lean(text)?;
        self.scratch.clear();
        self.scratch.extend_from_slice(before);
        self.scratch.extend_from_slice(after);
        Some(self.samples.pack(kind, &self.scratch))
    }
}

/// The objects of numerous kinds that changed last.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Workloads, and objects of other kinds. The one that changed last is the last; with the number of the change.
    order: [VecDeque<(Kind, Name, u64)>; 2],
    changes: u64,
    /// The texts of Workloads that a watch has shown, by the number of the change: to pack them when they come takes less than to write
    /// a tree that has not been used for a while.
    texts: HashMap<u64, Packed>,
    room: Room,
}

impl Recent {
    /// Keeps an object that has changed as a tree, and its text as a watch has shown it. Gives the one that has not changed for
    /// longest, which becomes text unless it has changed since.
    pub(super) fn keep(
        &mut self,
        kind: Kind,
        name: &Name,
        object: Arc<Value>,
        text: Option<&[u8]>,
    ) -> (Kept, Option<(Kind, Name, u64)>) {
        self.changes += 1;
        self.shown(kind, self.changes, text);
        let kept = Kept::Tree(object, self.changes);
        if !is_numerous(kind) {
            return (kept, None);
        }
        let [workloads, others] = &mut self.order;
        let (order, most) =
            if kind == Kind::Workload { (workloads, RECENT_WORKLOADS) } else { (others, RECENT) };
        order.push_back((kind, name.clone(), self.changes));
        let old = if order.len() > most { order.pop_front() } else { None };
        (kept, old)
    }

    /// A watch has shown what this change has brought, as this text.
    pub(super) fn shown(&mut self, kind: Kind, change: u64, text: Option<&[u8]>) {
        // Others change more often while they are trees.
        if kind == Kind::Workload
            && let Some(packed) = text.and_then(|text| self.room.take(kind, text))
        {
            self.texts.insert(change, packed);
        }
    }

    /// Makes an object text, unless it has changed again after this change.
    pub(super) fn pack(&mut self, kind: Kind, kept: Option<&mut Kept>, change: u64) {
        let text = self.texts.remove(&change);
        if let Some(kept) = kept {
            kept.pack(kind, change, text, &mut self.room);
        }
    }
}

impl ObjectStore {
    /// The object that a watch has shown in this version, if it is of a kind of which there are many and known as a tree: from
    /// the response to a write of this process, for example.
    pub fn same(&self, kind: Kind, meta: &Meta<'_>) -> Option<Arc<Value>> {
        let name = || (meta.namespace.clone().into_owned(), meta.name.clone().into_owned());
        is_numerous(kind).then(|| self.find(kind, &name())?.same(meta)).flatten()
    }

    /// Whether a workload is known and has ended.
    pub fn has_finished(&self, namespace: &str, workload: &str) -> bool {
        self.find(Kind::Workload, &(namespace.to_owned(), workload.to_owned())).is_some_and(Kept::is_finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let many = RECENT_WORKLOADS + 10;
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

    /// Indexes follow, and deletions are known, from the metadata alone as from the whole object.
    #[test]
    fn what_is_text_is_replaced_as_a_tree_is() {
        let pod = |i: usize, version: usize, group: &str, deleting: bool| {
            let mut pod = json!({
                "metadata": {"namespace": "ns", "name": format!("p{i}"), "uid": format!("u{i}"), "resourceVersion": version.to_string(),
                             "labels": {crate::pod_view::GROUP: group},
                             "annotations": {crate::names::SAFE_TO_FORCEFULLY_DELETE: "true"}},
                "spec": {"nodeName": "n"},
            });
            if deleting {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            pod
        };
        let run = |packs: bool| {
            let mut objects = ObjectStore::default();
            let pack = |objects: &mut ObjectStore| {
                for (kind, table) in objects.tables.iter_mut().filter(|_| packs) {
                    for kept in table.objects.values_mut() {
                        if let Kept::Tree(_, change) = *kept {
                            kept.pack(*kind, change, None, &mut objects.recent.room);
                        }
                    }
                }
            };
            let mut seen = Vec::new();
            for (i, version, group, deleting) in [
                (0, 1, "g", false),
                (1, 2, "g", true),
                (0, 3, "h", false),
                (1, 4, "g", false),
                (1, 5, "h", true),
                (0, 6, "h", true),
                (0, 7, "h", true),
                (2, 8, "g", false),
                (2, 9, "g", false),
            ] {
                objects.put(Kind::Pod, pod(i, version, group, deleting));
                let mut workload = workload(i, version, deleting);
                if group == "h" {
                    workload["metadata"]["ownerReferences"] =
                        json!([{"kind": "Job", "name": "h", "uid": "h"}]);
                }
                objects.put(Kind::Workload, workload);
                pack(&mut objects);
                let groups = ["g", "h"].map(|g| objects.pods_of_group("ns", g));
                let owned: Vec<_> = ["o0", "o1", "o2", "h"].map(|o| objects.owned_by(o).count()).into();
                let terminating: Vec<_> =
                    objects.terminating_pods_on("n").map(|(ns, name)| format!("{ns}/{name}")).collect();
                seen.push((groups, owned, terminating, objects.all(Kind::Workload).collect::<Vec<_>>()));
            }
            seen
        };
        assert_eq!(run(true), run(false));
    }

    #[test]
    fn a_tree_of_the_same_version_is_known() {
        let mut objects = ObjectStore::default();
        objects.refresh(Kind::Workload, workload(0, 7, true));
        objects.put(Kind::Workload, workload(0, 7, true));
        objects.put(Kind::Job, workload(0, 7, true));
        objects.put(Kind::Flavor, workload(0, 7, true));
        let meta = |uid: &str, version: &str| Meta {
            namespace: "ns".into(),
            name: "w0".into(),
            uid: uid.to_owned().into(),
            resource_version: version.to_owned().into(),
        };
        let same = |kind, uid: &str, version: &str| objects.same(kind, &meta(uid, version)).is_some();
        assert!(same(Kind::Workload, "u0", "7") && same(Kind::Job, "u0", "7"));
        assert!(!same(Kind::Workload, "u1", "7") && !same(Kind::Workload, "u0", "8"));
        assert!(!same(Kind::Flavor, "u0", "7") && !same(Kind::Pod, "u0", "7"));
        let mut packed = Kept::Tree(Arc::new(workload(0, 7, true)), 1);
        packed.pack(Kind::Workload, 1, None, &mut Room::default());
        assert_eq!(packed.same(&meta("u0", "7")), None);
    }

    /// Texts that watches show are kept, of what they have shown first and of the echoes of answers.
    #[test]
    fn what_a_watch_has_shown_is_not_written_again() {
        let mut objects = ObjectStore::default();
        let text = |i: usize, version: usize| {
            let mut shown = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"});
            let mut workload = workload(i, version, true);
            let tree = {
                let mut tree = workload.clone();
                tree["apiVersion"] = shown["apiVersion"].clone();
                tree["kind"] = shown["kind"].clone();
                Arc::new(tree)
            };
            workload["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
            for key in ["metadata", "status"] {
                shown[key] = workload[key].take();
            }
            (tree, shown.to_string())
        };
        let texts = |objects: &ObjectStore| objects.recent.texts.len();
        let (tree, shown) = text(0, 1);
        objects.put_text(Kind::Workload, Arc::clone(&tree), shown.as_bytes());
        assert_eq!(texts(&objects), 1);
        let (answer, echo) = text(0, 2);
        objects.refresh(Kind::Workload, Arc::clone(&answer));
        assert_eq!(texts(&objects), 1);
        objects.put_text(Kind::Workload, Arc::clone(&answer), echo.as_bytes());
        assert_eq!(texts(&objects), 2);
        // One whose deletion was accepted since, one of which the text can't be used, and another kind.
        objects.put(Kind::Workload, text(2, 3).0);
        objects.deletion_accepted(Kind::Workload, "ns", "w2", "u2", plimsoll_state::Time::from_seconds(1));
        let deleting = objects.get(Kind::Workload, "ns", "w2").expect("it is there");
        objects.put_text(Kind::Workload, Arc::clone(&deleting), text(2, 3).1.as_bytes());
        objects.put_text(Kind::Workload, text(1, 3).0, b"{}");
        objects.put_text(Kind::Job, text(1, 3).0, shown.as_bytes());
        assert_eq!(texts(&objects), 2);
        (3..3 + RECENT_WORKLOADS).for_each(|i| objects.put(Kind::Workload, workload(i, i + 2, true)));
        assert_eq!(texts(&objects), 0);
        for (i, tree) in [(0, answer), (1, text(1, 3).0), (2, deleting)] {
            let name = ("ns".to_owned(), format!("w{i}"));
            let kept = &objects.tables[&Kind::Workload].objects[&name];
            assert!(matches!(kept, Kept::Text(_)));
            assert_eq!(kept.object(), tree);
        }
    }

    #[test]
    fn an_object_may_be_deep() {
        let mut deep = json!(1);
        for _ in 0..500 {
            deep = json!({ "a": deep });
        }
        let object = json!({"metadata": {"namespace": "ns", "name": "deep", "uid": "u"}, "spec": deep});
        let mut kept = Kept::Tree(Arc::new(object.clone()), 1);
        kept.pack(Kind::Workload, 1, None, &mut Room::default());
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
