//! The dependency graph of objects (`pkg/controller/garbagecollector/graph.go` upstream).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use plimsoll_apimachinery::Key;
use plimsoll_apimachinery::meta::{OwnerReference, Time, nullable};
use plimsoll_client::StoredObject;
use plimsoll_client::informer::parse;
use serde::Deserialize;

/// Finalizer of an owner whose dependents go first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents stay.
pub const ORPHAN: &str = "orphan";

/// What the collector keeps of an object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Node {
    /// `metadata`.
    pub metadata: NodeMeta,
}

/// Words that are in every object that has an owner, is going, or has to wait for something before it goes.
const TIES: [&[u8]; 3] = [b"\"ownerReferences\"", b"\"finalizers\"", b"\"deletionTimestamp\""];

/// `metadata`, as far as it concerns owners.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeMeta {
    /// Name.
    pub name: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Finalizers.
    #[serde(deserialize_with = "nullable")]
    pub finalizers: Vec<String>,
    /// Owners.
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
    /// When it is to be gone.
    pub deletion_timestamp: Option<Time>,
}

impl Node {
    /// What the collector keeps of a stored object. Most objects of a busy cluster have no ties, so nothing of them has
    /// to be read.
    pub fn of(record: &dyn StoredObject) -> Option<Self> {
        if TIES.iter().any(|word| memchr::memmem::find(record.json(), word).is_some()) {
            return parse(record);
        }
        let Key { namespace, name, .. } = record.key().clone();
        let metadata = NodeMeta { name, namespace, uid: record.uid().to_owned(), ..NodeMeta::default() };
        Some(Self { metadata })
    }

    /// Being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Being deleted, dependents first.
    pub fn is_deleting_dependents(&self) -> bool {
        self.is_deleting() && self.has(FOREGROUND)
    }

    /// Being deleted, dependents stay.
    pub fn is_orphaning(&self) -> bool {
        self.is_deleting() && self.has(ORPHAN)
    }

    /// Whether it has a finalizer.
    pub fn has(&self, finalizer: &str) -> bool {
        self.metadata.finalizers.iter().any(|f| f == finalizer)
    }

    /// Whether an owner waits for it.
    pub fn blocks(&self, owner: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        owners.any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
    }
}

/// An object and where it is stored.
#[derive(Clone, Debug)]
pub struct Placed {
    /// `group/plural`.
    pub storage: Arc<str>,
    /// The object.
    pub node: Arc<Node>,
}

/// All objects by UID, and by the UID of their owners.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<String, Placed>,
    dependents: HashMap<String, BTreeSet<String>>,
}

impl Graph {
    /// The object with a UID.
    pub fn get(&self, uid: &str) -> Option<&Placed> {
        self.nodes.get(uid)
    }

    /// UIDs of the objects that name this one as an owner.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &String> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// An object has appeared, changed or gone; returns UIDs of those that must be reconciled.
    pub fn apply(
        &mut self,
        storage: &Arc<str>,
        old: Option<&Arc<Node>>,
        new: Option<&Arc<Node>>,
    ) -> Vec<String> {
        let mut affected = Vec::new();
        if let Some(old) = old {
            self.unlink(old);
            let same = new.is_some_and(|n| n.metadata.uid == old.metadata.uid);
            if !same {
                self.nodes.remove(&old.metadata.uid);
                affected.extend(self.dependents(&old.metadata.uid).cloned());
            }
            // Owners that wait for it may go on.
            let waiting = old.metadata.owner_references.iter().map(|o| &o.uid);
            let waits = |uid: &&String| self.get(uid).is_some_and(|p| p.node.is_deleting_dependents());
            affected.extend(waiting.filter(waits).cloned());
        }
        if let Some(new) = new {
            self.link(new);
            let uid = &new.metadata.uid;
            self.nodes.insert(uid.clone(), Placed { storage: Arc::clone(storage), node: Arc::clone(new) });
            if self.concerns(new) {
                affected.push(uid.clone());
            }
            if new.is_deleting_dependents() && !old.is_some_and(|o| o.is_deleting_dependents()) {
                affected.extend(self.dependents(uid).cloned());
            }
        }
        affected
    }

    /// Whether there may be something to do about an object: it is on its way out, or an owner is or isn't there.
    fn concerns(&self, node: &Node) -> bool {
        if node.is_deleting() {
            return node.is_deleting_dependents() || node.is_orphaning();
        }
        let mut owners = node.metadata.owner_references.iter();
        owners.any(|o| self.get(&o.uid).is_none_or(|p| p.node.is_deleting_dependents()))
    }

    fn link(&mut self, node: &Node) {
        for owner in &node.metadata.owner_references {
            self.dependents.entry(owner.uid.clone()).or_default().insert(node.metadata.uid.clone());
        }
    }

    fn unlink(&mut self, node: &Node) {
        for owner in &node.metadata.owner_references {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&node.metadata.uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }
}

/// How many UIDs of objects that are gone are kept before it is asked which of them matter.
const FEW_ABSENT: usize = 1000;

/// Objects that were seen to go while others depended on them (`absentOwnerCache` upstream): their kinds may be unknown when it is
/// the dependents' turn.
#[derive(Debug, Default)]
pub struct Absent {
    uids: HashSet<String>,
    /// How many there may be before those that nobody depends on any more are forgotten.
    most: usize,
}

impl Absent {
    /// An object is gone.
    pub fn note(&mut self, uid: &str, graph: &Graph) {
        let matters = |uid: &str| graph.dependents(uid).next().is_some();
        if !matters(uid) {
            return;
        }
        if self.uids.len() >= self.most.max(FEW_ABSENT) {
            self.uids.retain(|uid| matters(uid));
            self.most = self.uids.len().saturating_mul(2);
        }
        self.uids.insert(uid.to_owned());
    }

    /// Whether an object is known to be gone.
    pub fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_apiserver::store::{Expected, Store, Write};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_absent_is_kept_while_others_depend_on_it() {
        let meta = |uid: String, owner: Option<&str>| {
            let owner = owner.map(|uid| OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() });
            NodeMeta { uid, owner_references: owner.into_iter().collect(), ..NodeMeta::default() }
        };
        let node = |uid: String, owner: Option<&str>| Arc::new(Node { metadata: meta(uid, owner) });
        let (mut graph, mut absent, storage) = (Graph::default(), Absent::default(), Arc::from("x/y"));
        let kept = node("kept".into(), Some("owner"));
        graph.apply(&storage, None, Some(&kept));
        absent.note("owner", &graph);
        absent.note("lonely", &graph);
        assert!(absent.contains("owner") && !absent.contains("lonely"));
        for i in 0..3 * FEW_ABSENT {
            let (owner, dependent) = (format!("o{i}"), node(format!("d{i}"), Some(&format!("o{i}"))));
            graph.apply(&storage, None, Some(&dependent));
            absent.note(&owner, &graph);
            assert!(absent.contains(&owner) && absent.contains("owner") && absent.uids.len() <= FEW_ABSENT);
            graph.apply(&storage, Some(&dependent), None);
        }
    }

    #[tokio::test]
    async fn a_node_is_what_reading_the_object_gives() {
        let store = Store::in_memory();
        let owner =
            json!({"apiVersion": "v1", "kind": "Node", "name": "o", "uid": "9", "blockOwnerDeletion": true});
        let metas = [
            json!({"name": "a", "namespace": "n", "uid": "1"}),
            json!({"name": "b", "uid": "2", "labels": {"finalizers": "no"}}),
            json!({"name": "c", "namespace": "n", "uid": "3", "ownerReferences": [owner]}),
            json!({"name": "d", "namespace": "n", "uid": "4", "finalizers": ["orphan"],
                "deletionTimestamp": "2026-01-01T00:00:00Z"}),
            json!({"name": "e", "namespace": "n", "uid": "5", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ];
        for meta in metas {
            let text = |key: &str| meta[key].as_str().unwrap_or_default().to_owned();
            let key = Key::new("/pods", text("namespace"), text("name"));
            let write = Write::put(key, Expected::Absent, &json!({"metadata": meta})).unwrap();
            let record = store.commit(write).await.unwrap();
            let read: Option<Node> = parse(&*record);
            assert!(read.is_some());
            assert_eq!(Node::of(&*record), read);
        }
    }
}
