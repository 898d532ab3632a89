//! Garbage collection: objects go when their owners have gone, or before, or stay without them
//! (`pkg/controller/garbagecollector` upstream).

pub mod graph;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::meta::OwnerReference;
use plimsoll_apimachinery::{ApiError, Gvk, Kind, KindTable};
use plimsoll_client::{
    Client, Controller, Deletion, Informer, Outcome, Propagation, Resource, Target, WorkQueue, modify,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use graph::{Absent, FOREGROUND, Graph, Node, ORPHAN};

/// Kinds that are never owned in earnest and come in large numbers.
const IGNORED: &[&str] = &["/events"];

/// The garbage collector.
pub struct GarbageCollector {
    client: Arc<dyn Client>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    table: Option<Arc<KindTable>>,
    /// By `group/plural`.
    watched: BTreeMap<Arc<str>, Watched>,
    graph: Graph,
    absent: Absent,
    /// UIDs that the reconciliation of another object enqueues.
    also: Vec<String>,
}

struct Watched {
    kind: Arc<Kind>,
    informer: Arc<Informer<Node>>,
}

/// What the owners of an object are like.
#[derive(Debug, Default)]
struct Owners {
    /// There, and staying or going without regard to dependents.
    solid: usize,
    /// Not there.
    dangling: Vec<String>,
    /// Waiting for their dependents to go.
    waiting: Vec<String>,
    /// Of an unknown kind, or out of reach.
    unknown: usize,
}

impl GarbageCollector {
    /// The collector, not running yet.
    pub fn new(client: Arc<dyn Client>) -> Self {
        Self { client, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the kind table: new kinds are watched, kinds that are gone are forgotten.
    fn follow_kinds(&self, state: &mut State) {
        let table = self.client.kinds();
        if state.table.as_ref().is_some_and(|t| Arc::ptr_eq(t, &table)) {
            return;
        }
        let kinds = collectable(&table);
        let State { watched, graph, absent, also, .. } = state;
        watched.retain(|storage, gone| {
            let keep = kinds.contains_key(storage.as_ref());
            if !keep {
                // A definition goes with all its objects: the last of them may be news.
                also.extend(follow_objects(storage, &gone.informer, graph, absent));
                for node in gone.informer.all() {
                    graph.apply(storage, Some(&node), None);
                }
            }
            keep
        });
        for (storage, kind) in kinds {
            match watched.get_mut(storage.as_str()) {
                Some(known) => known.kind = kind,
                None => {
                    let informer = Arc::new(Informer::decoding(self.client.reader(), &storage, Node::of));
                    watched.insert(storage.into(), Watched { kind, informer });
                }
            }
        }
        state.table = Some(table);
    }

    /// The object with a UID: its resource, and its state now.
    fn live(&self, uid: &str) -> Option<(Resource, Node)> {
        let (kind, node) = {
            let state = self.state();
            let placed = state.graph.get(uid)?;
            let kind = Arc::clone(&state.watched.get(&placed.storage)?.kind);
            (kind, Arc::clone(&placed.node))
        };
        let resource = Resource::of(&kind);
        let key = resource.key(&node.metadata.namespace, &node.metadata.name);
        let record = self.client.reader().get(&key).filter(|r| r.uid() == uid)?;
        Some((resource, serde_json::from_slice(record.json()).ok()?))
    }

    async fn collect(&self, uid: &str) -> Result<(), ApiError> {
        let Some((resource, node)) = self.live(uid) else { return Ok(()) };
        if node.is_deleting_dependents() {
            self.delete_dependents(&resource, &node).await
        } else if node.is_orphaning() {
            self.orphan_dependents(&resource, &node).await
        } else if node.is_deleting() {
            Ok(())
        } else {
            self.check_owners(&resource, &node).await
        }
    }

    /// The owner goes when nothing blocks it any more.
    async fn delete_dependents(&self, resource: &Resource, owner: &Node) -> Result<(), ApiError> {
        let uid = &owner.metadata.uid;
        let blocking: Vec<String> = {
            let state = self.state();
            let blocks = |d: &&String| state.graph.get(d).is_some_and(|p| p.node.blocks(uid));
            state.graph.dependents(uid).filter(blocks).cloned().collect()
        };
        if blocking.is_empty() {
            return self.remove_finalizer(resource, owner, FOREGROUND).await;
        }
        self.state().also.extend(blocking);
        Ok(())
    }

    /// Dependents forget the owner, then it goes.
    async fn orphan_dependents(&self, resource: &Resource, owner: &Node) -> Result<(), ApiError> {
        let uid = &owner.metadata.uid;
        let dependents: Vec<String> = self.state().graph.dependents(uid).cloned().collect();
        for dependent in dependents {
            if let Some((resource, node)) = self.live(&dependent) {
                self.drop_owners(&resource, &node, std::slice::from_ref(uid)).await?;
            }
        }
        self.remove_finalizer(resource, owner, ORPHAN).await
    }

    async fn remove_finalizer(
        &self,
        resource: &Resource,
        node: &Node,
        finalizer: &str,
    ) -> Result<(), ApiError> {
        self.change(resource, node, |object| {
            let Some(list) = object["metadata"]["finalizers"].as_array_mut() else { return false };
            let before = list.len();
            list.retain(|f| f != finalizer);
            list.len() != before
        })
        .await
    }

    async fn drop_owners(&self, resource: &Resource, node: &Node, uids: &[String]) -> Result<(), ApiError> {
        self.change(resource, node, |object| {
            let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() else { return false };
            let before = owners.len();
            owners.retain(|o| !uids.iter().any(|uid| o["uid"] == uid.as_str()));
            owners.len() != before
        })
        .await
    }

    async fn change(
        &self,
        resource: &Resource,
        node: &Node,
        change: impl FnMut(&mut Value) -> bool + Send,
    ) -> Result<(), ApiError> {
        let target = Target::object(resource, &node.metadata.namespace, &node.metadata.name);
        match modify(&*self.client, target, &node.metadata.uid, change).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes an object that has lost all its owners, or whose owners wait for it to go.
    async fn check_owners(&self, resource: &Resource, node: &Node) -> Result<(), ApiError> {
        let owners = self.classify(node);
        if node.metadata.owner_references.is_empty() || owners.unknown > 0 {
            return Ok(());
        }
        if owners.solid > 0 {
            let mut lost = owners.dangling;
            lost.extend(owners.waiting);
            return if lost.is_empty() { Ok(()) } else { self.drop_owners(resource, node, &lost).await };
        }
        let has_dependents = self.state().graph.dependents(&node.metadata.uid).next().is_some();
        if !owners.waiting.is_empty() && has_dependents {
            // A ring of objects that wait for each other would stay for ever.
            if self.waits_in_a_ring(node) {
                self.unblock(resource, node).await?;
            }
            return self.delete(resource, node, Propagation::Foreground).await;
        }
        let propagation = if node.has(ORPHAN) {
            Propagation::Orphan
        } else if node.has(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.delete(resource, node, propagation).await
    }

    fn waits_in_a_ring(&self, node: &Node) -> bool {
        let state = self.state();
        let mut dependents = state.graph.dependents(&node.metadata.uid);
        dependents.any(|d| state.graph.get(d).is_some_and(|p| p.node.is_deleting_dependents()))
    }

    async fn unblock(&self, resource: &Resource, node: &Node) -> Result<(), ApiError> {
        self.change(resource, node, |object| {
            let owners = object["metadata"]["ownerReferences"].as_array_mut();
            let mut changed = false;
            for owner in owners.into_iter().flatten().filter(|o| o["blockOwnerDeletion"] == true) {
                owner["blockOwnerDeletion"] = json!(false);
                changed = true;
            }
            changed
        })
        .await
    }

    async fn delete(
        &self,
        resource: &Resource,
        node: &Node,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        let target = Target::object(resource, &node.metadata.namespace, &node.metadata.name);
        let deletion = Deletion::of_uid(&node.metadata.uid).with(propagation);
        match self.client.delete(target, deletion).await {
            // Another object of that name (409) is none of our business.
            Err(error) if error.code != 404 && error.code != 409 => Err(error),
            _ => Ok(()),
        }
    }

    fn classify(&self, node: &Node) -> Owners {
        let table = self.client.kinds();
        let mut owners = Owners::default();
        for reference in &node.metadata.owner_references {
            let Some(kind) = kind_of(&table, reference) else {
                if self.state().absent.contains(&reference.uid) {
                    owners.dangling.push(reference.uid.clone());
                } else {
                    owners.unknown += 1;
                }
                continue;
            };
            if kind.namespaced && node.metadata.namespace.is_empty() {
                // Not valid: nothing cluster-wide can depend on something in a namespace. It stays.
                owners.unknown += 1;
                continue;
            }
            let namespace = if kind.namespaced { node.metadata.namespace.as_str() } else { "" };
            let key = Resource::of(kind).key(namespace, &reference.name);
            let record = self.client.reader().get(&key).filter(|r| r.uid() == reference.uid);
            let owner = record.and_then(|r| serde_json::from_slice::<Node>(r.json()).ok());
            match owner {
                None => owners.dangling.push(reference.uid.clone()),
                Some(owner) if owner.is_deleting_dependents() => owners.waiting.push(reference.uid.clone()),
                Some(_) => owners.solid += 1,
            }
        }
        owners
    }
}

/// Follows what has happened to the objects of a resource: which ones have to be looked at.
fn follow_objects(
    storage: &Arc<str>,
    informer: &Informer<Node>,
    graph: &mut Graph,
    absent: &mut Absent,
) -> Vec<String> {
    let mut affected = Vec::new();
    informer.refresh(|seen| {
        affected.extend(graph.apply(storage, seen.old, seen.new));
        if let Some(gone) = seen.old.filter(|old| seen.new.is_none_or(|n| n.metadata.uid != old.metadata.uid))
        {
            absent.note(&gone.metadata.uid, graph);
        }
    });
    affected
}

fn kind_of<'a>(table: &'a KindTable, reference: &OwnerReference) -> Option<&'a Arc<Kind>> {
    let (group, version) = reference.api_version.split_once('/').unwrap_or(("", &reference.api_version));
    let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: reference.kind.clone() };
    // Any version of the kind will do: the object is the same.
    table.kind(&gvk).or_else(|| table.iter().find(|k| k.gvk.group == group && k.gvk.kind == reference.kind))
}

/// Resources whose objects can be listed, watched and deleted, by `group/plural`.
fn collectable(table: &KindTable) -> BTreeMap<String, Arc<Kind>> {
    let mut kinds: BTreeMap<String, Arc<Kind>> = BTreeMap::new();
    for kind in table.iter() {
        let can = |verb: &str| kind.verbs.iter().any(|v| v == verb);
        if !can("delete") || !can("list") || !can("watch") || IGNORED.contains(&kind.storage.as_str()) {
            continue;
        }
        let preferred = table.groups().iter().find(|(g, _)| *g == kind.gvk.group);
        let preferred = preferred.and_then(|(_, versions)| versions.first());
        // What a webhook converts is only known in the version it is stored in.
        let converted = kind.custom.as_ref().filter(|c| c.conversion.is_some());
        let chosen = match converted {
            Some(custom) => custom.storage_version == kind.gvk.version,
            None => preferred == Some(&kind.gvk.version),
        };
        if chosen || !kinds.contains_key(&kind.storage) {
            kinds.insert(kind.storage.clone(), Arc::clone(kind));
        }
    }
    kinds
}

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        // One signal for all kinds.
        vec![self.client.reader().signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        let mut state = self.state();
        self.follow_kinds(&mut state);
        let State { watched, graph, absent, also, .. } = &mut *state;
        for uid in also.drain(..) {
            queue.add(&uid);
        }
        for (storage, watched) in watched.iter() {
            for uid in follow_objects(storage, &watched.informer, graph, absent) {
                queue.add(&uid);
            }
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { self.collect(key).await.map(|()| None) })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_apimachinery::crd;

    use super::*;

    /// Kinds of a definition with `v1` stored and `v2` preferred.
    fn table(conversion: &Value) -> KindTable {
        let version = |name: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage,
                "schema": {"openAPIV3Schema": {"type": "object"}}})
        };
        let definition = json!({
            "metadata": {"name": "ships.test.dev"},
            "spec": {
                "group": "test.dev", "scope": "Namespaced", "conversion": conversion,
                "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"},
                "versions": [version("v2", false), version("v1", true)],
            },
        });
        let mut table = KindTable::default();
        for kind in crd::kinds(&definition) {
            table.insert(kind);
        }
        assert_eq!(table.groups(), [("test.dev".to_owned(), vec!["v2".to_owned(), "v1".to_owned()])]);
        table
    }

    fn chosen(table: &KindTable) -> Vec<(String, String)> {
        let kinds = collectable(table);
        kinds.iter().map(|(storage, kind)| (storage.clone(), kind.gvk.version.clone())).collect()
    }

    #[test]
    fn what_a_webhook_converts_is_collected_in_the_version_it_is_stored_in() {
        let ships = |version: &str| vec![("test.dev/ships".to_owned(), version.to_owned())];
        let webhook = json!({"strategy": "Webhook", "webhook": {
            "clientConfig": {"url": "https://example.com"}, "conversionReviewVersions": ["v1"]}});
        assert_eq!(chosen(&table(&webhook)), ships("v1"));
        assert_eq!(chosen(&table(&json!({"strategy": "None"}))), ships("v2"));
        // What can't be deleted or watched isn't collected, and neither are events.
        let mut other = table(&webhook);
        for version in ["v1", "v2"] {
            let mut kind = Kind::clone(other.resource("test.dev", version, "ships").unwrap());
            kind.verbs.retain(|v| v != "watch");
            other.insert(kind);
        }
        other.insert(Kind {
            gvk: Gvk { group: String::new(), version: "v1".into(), kind: "Event".into() },
            plural: "events".into(),
            storage: "/events".into(),
            verbs: ["delete", "list", "watch"].map(str::to_owned).to_vec(),
            ..Kind::default()
        });
        assert_eq!(chosen(&other), []);
    }
}
