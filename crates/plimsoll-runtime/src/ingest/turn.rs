//! What watches tell the engine of one shard of a cluster: of all objects of queueing, nodes and pods, those of the shard.
//!
//! The lock is held from when an object enters the cache until its event is sent, so that an object that changes its shard is
//! given with its newest state, whatever watch is faster.

use std::collections::BTreeSet;
use std::sync::MutexGuard;

use plimsoll_api::json;
use plimsoll_api::kueue::delete_event;
use plimsoll_api::shards::{self, Changed, DEFAULT, Owner};
use plimsoll_engine::Event;
use plimsoll_jobs::shards::{cluster_queue_of, has_pod, keys_of_namespaces, owner_of_workload};
use plimsoll_jobs::{ObjectStore, affected};
use plimsoll_queueing::Event as QueueEvent;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{Node, Pod};
use serde_json::Value;

use super::Sinks;
use crate::api::{CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, Resource, WORKLOADS};
use crate::cache::Kind;
use crate::shard::{Division, Leaving, Shard};

/// The right to change the cache and to tell the engine of it.
pub struct Turn<'a> {
    name: &'a str,
    division: MutexGuard<'a, Division>,
    sinks: &'a Sinks,
}

impl<'a> Turn<'a> {
    /// Waits until what other watches have told is given to the engine.
    pub fn new(shard: &'a Shard, sinks: &'a Sinks) -> Self {
        Self { name: shard.name(), division: shard.lock(), sinks }
    }

    fn is_open(&self) -> bool {
        self.division.lists == 0
    }

    fn send(&self, event: QueueEvent) {
        self.sinks.inbox.send(Event::Queueing(event));
    }

    fn send_objects(&self, events: impl IntoIterator<Item = ObjectEvent>) {
        if self.sinks.nodes {
            events.into_iter().for_each(|event| self.sinks.inbox.send(Event::Object(event)));
        }
    }

    /// A list is complete; with the last one, everything of the shard is given to the engine.
    pub fn listed(&mut self) {
        self.division.lists = self.division.lists.saturating_sub(1);
        if !self.is_open() {
            return;
        }
        drop(self.division.trees.resolve());
        for (kind, resource) in [
            (Kind::Cohort, COHORTS),
            (Kind::ClusterQueue, CLUSTER_QUEUES),
            (Kind::LocalQueue, LOCAL_QUEUES),
            (Kind::Workload, WORKLOADS),
        ] {
            let all: Vec<_> = self.sinks.cache.objects(|objects| objects.all(kind).collect());
            for object in all {
                let owner = self.owner(kind, &object);
                if owner.keeper() == self.name {
                    self.give(resource, &object, &owner);
                }
            }
        }
        let Division { trees, pods, .. } = &mut *self.division;
        let (name, cache) = (self.name, &self.sinks.cache);
        let events = pods.open(|pod| cache.objects(|objects| has_pod(name, pod, objects, trees)));
        self.send_objects(events);
    }

    /// The shard of an object of queueing.
    fn owner(&self, kind: Kind, object: &Value) -> Owner {
        let trees = &self.division.trees;
        match kind {
            Kind::Cohort => trees.of_cohort(json::name(object)),
            Kind::ClusterQueue => trees.of_cluster_queue(json::name(object)),
            Kind::LocalQueue => trees.of_cluster_queue(json::text(object, &["spec", "clusterQueue"])),
            _ => self.sinks.cache.objects(|objects| owner_of_workload(object, objects, trees)),
        }
    }

    /// Tells the engine of an object of the shard.
    fn give(&self, resource: Resource, object: &Value, owner: &Owner) {
        match self.sinks.event_of(object) {
            Ok(Some(mut event)) => {
                if let (QueueEvent::ClusterQueueUpsert(queue), Owner::Conflict(why)) = (&mut event, owner) {
                    queue.shard_conflict = (**why).to_owned();
                }
                self.send(event);
            }
            Ok(None) => {}
            Err(error) => {
                let (namespace, name) = (json::namespace(object), json::name(object));
                tracing::warn!(kind = resource.kind, namespace, name, %error, "skipping malformed object");
            }
        }
    }

    /// Tells the engine what there is of this name, if it is of the shard; else that there is none.
    fn give_or_take(&self, kind: Kind, resource: Resource, namespace: &str, name: &str) {
        let object = self.sinks.cache.get(kind, namespace, name);
        if let Some(object) = object {
            let owner = self.owner(kind, &object);
            if owner.keeper() == self.name {
                return self.give(resource, &object, &owner);
            }
        }
        if let Some(event) = delete_event(resource.kind, namespace, name) {
            self.send(event);
        }
    }

    /// An object of queueing was seen or has changed; the cache has it.
    pub fn upsert(&mut self, event: QueueEvent, object: &Value) {
        let label = shards::label_of(object);
        match event {
            QueueEvent::ClusterQueueUpsert(q) => {
                self.division.trees.put_cluster_queue(&q.name, &q.cohort, label);
                self.trees_changed(Changed { cluster_queues: [q.name].into(), ..Changed::default() });
            }
            QueueEvent::CohortUpsert(c) => {
                self.division.trees.put_cohort(&c.name, &c.parent, label);
                self.trees_changed(Changed { cohorts: [c.name].into(), ..Changed::default() });
            }
            QueueEvent::LocalQueueUpsert(q) => {
                self.local_queue_changed(&q.namespace, &q.name, Some(q.cluster_queue));
            }
            QueueEvent::WorkloadUpsert(w) => {
                if !self.is_open() {
                    return;
                }
                let owner = self.owner(Kind::Workload, object);
                let (namespace, name) = (w.key.namespace.clone(), w.key.name.clone());
                match owner.keeper() == self.name {
                    true => self.send(QueueEvent::WorkloadUpsert(w)),
                    false => self.send(QueueEvent::WorkloadDelete(w.key)),
                }
                self.workload_changed(&namespace, &name);
            }
            QueueEvent::ResourceSliceUpsert(slice) if shards::is_shared(&slice) && self.name != DEFAULT => {
                self.send(QueueEvent::ResourceSliceDelete(slice.name));
            }
            other => self.send(other),
        }
    }

    /// An object of queueing is gone; the cache has it no more.
    pub fn delete(&mut self, event: QueueEvent) {
        match event {
            QueueEvent::ClusterQueueDelete(name) => {
                self.division.trees.remove_cluster_queue(&name);
                self.trees_changed(Changed { cluster_queues: [name].into(), ..Changed::default() });
            }
            QueueEvent::CohortDelete(name) => {
                self.division.trees.remove_cohort(&name);
                self.trees_changed(Changed { cohorts: [name].into(), ..Changed::default() });
            }
            QueueEvent::LocalQueueDelete(namespace, name) => {
                self.local_queue_changed(&namespace, &name, None);
            }
            QueueEvent::WorkloadDelete(key) => {
                let (namespace, name) = (key.namespace.clone(), key.name.clone());
                self.send(QueueEvent::WorkloadDelete(key));
                self.workload_changed(&namespace, &name);
            }
            other => self.send(other),
        }
    }

    fn workload_changed(&mut self, namespace: &str, name: &str) {
        let Division { trees, pods, .. } = &mut *self.division;
        let (shard, cache) = (self.name, &self.sinks.cache);
        let mine = |pod: &Pod| cache.objects(|objects| has_pod(shard, pod, objects, trees));
        let events = pods.workload_changed(namespace, name, mine);
        self.send_objects(events);
    }

    fn queues_changed(&mut self) {
        let Division { trees, pods, .. } = &mut *self.division;
        let (shard, cache) = (self.name, &self.sinks.cache);
        let events = pods.queues_changed(|pod| cache.objects(|objects| has_pod(shard, pod, objects, trees)));
        self.send_objects(events);
    }

    /// ClusterQueues or Cohorts have changed, `seen` in any way.
    fn trees_changed(&mut self, mut seen: Changed) {
        if !self.is_open() {
            return;
        }
        let mut moved = self.division.trees.resolve();
        let queues: Vec<(String, String)> = {
            let of = self.division.local_queues.iter().filter(|(_, of)| moved.cluster_queues.contains(*of));
            of.map(|(queue, _)| queue.clone()).collect()
        };
        let of_moved = |wl: &Value, objects: &ObjectStore| {
            cluster_queue_of(wl, objects).is_some_and(|name| moved.cluster_queues.contains(&name))
        };
        let workloads = match moved.cluster_queues.is_empty() {
            true => Vec::new(),
            false => self.workloads(of_moved),
        };
        for name in &moved.cluster_queues {
            if let Owner::Conflict(why) = self.division.trees.of_cluster_queue(name) {
                tracing::warn!(
                    cluster_queue = name,
                    "no shard decides with it: its tree belongs to several shards: {why}"
                );
            }
        }
        let all = !moved.cluster_queues.is_empty();
        seen.cohorts.append(&mut moved.cohorts);
        seen.cluster_queues.append(&mut moved.cluster_queues);
        // Workloads leave before their queue does, and come after it: none is told that it is missing.
        self.hand_over(&workloads, &queues, false);
        for name in &seen.cohorts {
            self.give_or_take(Kind::Cohort, COHORTS, "", name);
        }
        for name in &seen.cluster_queues {
            self.give_or_take(Kind::ClusterQueue, CLUSTER_QUEUES, "", name);
        }
        self.hand_over(&workloads, &queues, true);
        if all {
            self.queues_changed();
            let mut namespaces: BTreeSet<String> =
                queues.into_iter().map(|(namespace, _)| namespace).collect();
            namespaces.extend(workloads.iter().map(|(namespace, _)| namespace.clone()));
            self.look_again(&namespaces, &seen.cluster_queues);
        }
    }

    /// Workloads of which this holds, by namespace and name.
    fn workloads(&self, which: impl Fn(&Value, &ObjectStore) -> bool) -> Vec<(String, String)> {
        self.sinks.cache.objects(|objects| {
            let some = objects.all(Kind::Workload).filter(|wl| which(wl, objects));
            some.map(|wl| (json::namespace(&wl).to_owned(), json::name(&wl).to_owned())).collect()
        })
    }

    /// Tells the engine of those that are of the shard now (`come`), or of the others.
    fn hand_over(&self, workloads: &[(String, String)], queues: &[(String, String)], come: bool) {
        let mine = |kind, (namespace, name): &&(String, String)| {
            let object = self.sinks.cache.get(kind, namespace, name);
            object.is_some_and(|object| self.owner(kind, &object).keeper() == self.name) == come
        };
        let queues = || {
            for (namespace, name) in queues.iter().filter(|queue| mine(Kind::LocalQueue, queue)) {
                self.give_or_take(Kind::LocalQueue, LOCAL_QUEUES, namespace, name);
            }
        };
        if come {
            queues();
        }
        for (namespace, name) in workloads.iter().filter(|wl| mine(Kind::Workload, wl)) {
            self.give_or_take(Kind::Workload, WORKLOADS, namespace, name);
        }
        if !come {
            queues();
        }
    }

    /// A LocalQueue was seen or has changed, or is gone.
    fn local_queue_changed(&mut self, namespace: &str, name: &str, cluster_queue: Option<String>) {
        let key = (namespace.to_owned(), name.to_owned());
        let same = self.division.local_queues.get(&key) == cluster_queue.as_ref();
        match cluster_queue {
            Some(cluster_queue) => drop(self.division.local_queues.insert(key, cluster_queue)),
            None => drop(self.division.local_queues.remove(&key)),
        }
        if !self.is_open() {
            return;
        }
        if same {
            return self.give_or_take(Kind::LocalQueue, LOCAL_QUEUES, namespace, name);
        }
        let of_queue = |wl: &Value, _: &ObjectStore| {
            json::namespace(wl) == namespace && json::text(wl, &["spec", "queueName"]) == name
        };
        let workloads = self.workloads(of_queue);
        let queue = [(namespace.to_owned(), name.to_owned())];
        self.hand_over(&workloads, &queue, false);
        self.hand_over(&workloads, &queue, true);
        self.queues_changed();
        self.look_again(&[namespace.to_owned()].into(), &BTreeSet::new());
    }

    /// Has the job controllers look at everything whose owner may be this process from now on.
    fn look_again(&self, namespaces: &BTreeSet<String>, cluster_queues: &BTreeSet<String>) {
        let keys = self.sinks.cache.objects(|objects| {
            let mut keys = keys_of_namespaces(namespaces, objects);
            for queue in cluster_queues.iter().filter_map(|name| objects.get(Kind::ClusterQueue, "", name)) {
                keys.extend(affected(Kind::ClusterQueue, &queue, objects));
            }
            keys
        });
        keys.iter().for_each(|key| self.sinks.queue.add(key));
    }

    /// A node was seen or has changed, in this version. Returns whether it is of the shard, and stays there.
    pub fn node(&mut self, node: Node, version: &str) -> bool {
        let name = node.name.clone();
        let leaves = shards::moves_to(&node.annotations).filter(|to| *to != self.name);
        if shards::of_node(&node.labels) != self.name || leaves.is_some() {
            self.node_gone(&name);
            // It is given away when nothing is under way that concerns it.
            if let Some(to) = leaves.filter(|_| shards::of_node(&node.labels) == self.name) {
                let leaving = Leaving { to: to.to_owned(), version: version.to_owned() };
                self.division.leaving.insert(name, leaving);
            }
            return false;
        }
        self.division.leaving.remove(&name);
        self.send_objects([ObjectEvent::NodeUpsert(Box::new(node))]);
        let pods = self.division.pods.node(&name);
        self.send_objects(pods);
        true
    }

    /// A node is gone, or of another shard.
    pub fn node_gone(&mut self, name: &str) {
        self.division.leaving.remove(name);
        if self.division.pods.node_gone(name) {
            self.send_objects([ObjectEvent::NodeDelete(name.to_owned())]);
        }
    }

    /// A pod was seen or has changed.
    pub fn pod(&mut self, pod: Pod) {
        let Division { trees, pods, .. } = &mut *self.division;
        let (shard, cache) = (self.name, &self.sinks.cache);
        let mine = |pod: &Pod| cache.objects(|objects| has_pod(shard, pod, objects, trees));
        let event = pods.upsert(Box::new(pod), mine);
        self.send_objects(event);
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, uid: &str) {
        let event = self.division.pods.delete(uid);
        self.send_objects(event);
    }
}
