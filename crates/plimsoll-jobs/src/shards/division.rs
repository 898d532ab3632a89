//! What the leader of a shard is told of the cluster: of all objects of queueing, nodes and pods, those of the shard. It is a function of
//! what the watches have shown, in any order; the simulator divides a cluster with it as `plimsoll run` does.

mod moves;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::json;
use plimsoll_api::kueue::delete_event;
use plimsoll_api::shards::{self, Changed, DEFAULT, Marks, Owner, Pods, TreeObject, Trees};
use plimsoll_queueing::{Event, ShardStop};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::Pod;
use serde_json::Value;

use super::{Concern, cluster_queue_of, concern, has_pod, keys_of_namespaces, owner_of_workload};
use crate::Env;
use crate::controllers::affected;
use crate::key::Key;
use crate::store::{Kind, ObjectStore};
use moves::UnderWay;
pub use moves::{Leaving, Step};

/// What follows from an object that was seen, in order.
#[derive(Clone, Debug)]
pub enum Told {
    /// The engine is told of an object of queueing.
    Queueing(Event),
    /// The engine is told of a node or a pod.
    Object(ObjectEvent),
    /// Job controllers look at a key, whose owner may be this process from now on.
    Look(Key),
    /// The tree of a ClusterQueue has the labels of several shards.
    Conflict {
        /// Name of the ClusterQueue.
        cluster_queue: String,
        /// The labels, and objects that have them.
        why: String,
    },
}

/// What objects are seen with.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Last seen objects, among them the one that is seen now.
    pub objects: &'a ObjectStore,
    /// What tells the engine of an object; `None`: it is malformed, or no object of queueing.
    pub event_of: &'a dyn Fn(&Value) -> Option<Event>,
}

/// All objects by their shards, as the process of one shard sees them.
#[derive(Debug)]
pub struct Division {
    name: String,
    trees: Trees,
    pods: Pods,
    /// ClusterQueues of LocalQueues.
    local_queues: BTreeMap<(String, String), String>,
    /// Lists that are not complete. Until all are, nothing is given to the engine that belongs to a shard.
    lists: usize,
    /// Nodes with which this process does not decide any more, and those that ask to stay.
    leaving: BTreeMap<String, Leaving>,
    /// What is under way to other nodes and in trees, and was.
    under_way: UnderWay,
    /// Counts changes of what is decided about trees.
    changes: u64,
}

impl Division {
    /// The division for the shard of this name, before so many lists are complete.
    pub fn new(name: &str, lists: usize) -> Self {
        Self {
            name: name.to_owned(),
            trees: Trees::new(name),
            pods: Pods::default(),
            local_queues: BTreeMap::new(),
            lists,
            leaving: BTreeMap::new(),
            under_way: UnderWay::default(),
            changes: 0,
        }
    }

    /// Name of the shard.
    pub fn name(&self) -> &str {
        &self.name
    }

    const fn is_open(&self) -> bool {
        self.lists == 0
    }

    /// Whether the leader of the shard decides with a node.
    pub fn has_node(&self, node: &str) -> bool {
        self.pods.has_node(node)
    }

    /// To which shard a ClusterQueue belongs.
    pub fn of_cluster_queue(&self, name: &str) -> Owner {
        self.trees.of_cluster_queue(name)
    }

    /// To which shard a cohort belongs.
    pub fn of_cohort(&self, name: &str) -> Owner {
        self.trees.of_cohort(name)
    }

    /// Whether the leader of the shard admits in a ClusterQueue.
    pub fn decides(&self, cluster_queue: &str) -> bool {
        self.trees.has_cluster_queue(cluster_queue)
            && self.is_open()
            && self.trees.of_cluster_queue(cluster_queue).decides(&self.name)
    }

    /// Whether job controllers of this process plan a key.
    pub fn plans(&self, key: &Key, env: Env<'_>) -> bool {
        match concern(key, env) {
            Concern::ClusterQueue(name) => self.trees.of_cluster_queue(&name).controls(&self.name),
            Concern::Node(name) if !name.is_empty() => self.pods.has_node(&name),
            Concern::Node(_) | Concern::Cluster => self.name == DEFAULT,
            Concern::Undecided => true,
        }
    }

    /// Whether a write to a workload may begin: it is of the shard, or not known.
    pub fn may_write(&self, namespace: &str, name: &str, objects: &ObjectStore) -> bool {
        let known = objects.get(Kind::Workload, namespace, name);
        known.is_none_or(|wl| owner_of_workload(&wl, objects, &self.trees).keeper() == self.name)
    }

    /// A list is complete; with the last one, everything of the shard is given to the engine.
    pub fn listed(&mut self, seen: Seen<'_>, out: &mut Vec<Told>) {
        self.lists = self.lists.saturating_sub(1);
        if !self.is_open() {
            return;
        }
        drop(self.trees.resolve());
        for kind in [Kind::Cohort, Kind::ClusterQueue, Kind::LocalQueue, Kind::Workload] {
            for object in seen.objects.all(kind) {
                let owner = self.owner(kind, &object, seen.objects);
                if owner.keeper() == self.name {
                    give(&object, &owner, seen, out);
                }
            }
        }
        let Self { name, trees, pods, .. } = self;
        out.extend(pods.open(|pod| has_pod(name, pod, seen.objects, trees)).into_iter().map(Told::Object));
        self.tell_absent(out);
    }

    /// The shard of an object of queueing.
    fn owner(&self, kind: Kind, object: &Value, objects: &ObjectStore) -> Owner {
        match kind {
            Kind::Cohort => self.trees.of_cohort(json::name(object)),
            Kind::ClusterQueue => self.trees.of_cluster_queue(json::name(object)),
            Kind::LocalQueue => self.trees.of_cluster_queue(json::text(object, &["spec", "clusterQueue"])),
            _ => owner_of_workload(object, objects, &self.trees),
        }
    }

    /// Tells the engine what there is of this name, if it is of the shard; else that there is none.
    fn give_or_take(&self, kind: Kind, (namespace, name): (&str, &str), seen: Seen<'_>, out: &mut Vec<Told>) {
        if let Some(object) = seen.objects.get(kind, namespace, name) {
            let owner = self.owner(kind, &object, seen.objects);
            if owner.keeper() == self.name {
                return give(&object, &owner, seen, out);
            }
        }
        let word = match kind {
            Kind::Cohort => "Cohort",
            Kind::ClusterQueue => "ClusterQueue",
            Kind::LocalQueue => "LocalQueue",
            _ => "Workload",
        };
        out.extend(delete_event(word, namespace, name).map(Told::Queueing));
    }

    /// An object of queueing was seen or has changed.
    pub fn upsert(&mut self, event: Event, object: &Value, seen: Seen<'_>, out: &mut Vec<Told>) {
        let put = |trees: &mut Trees, object_of: TreeObject, above: &str| {
            trees.put(object_of, above, Marks::of(object), json::version(object));
        };
        match event {
            Event::ClusterQueueUpsert(q) => {
                put(&mut self.trees, TreeObject::cluster_queue(&q.name), &q.cohort);
                let changed = Changed { cluster_queues: [q.name].into(), ..Changed::default() };
                self.trees_changed(changed, seen, out);
            }
            Event::CohortUpsert(c) => {
                put(&mut self.trees, TreeObject::cohort(&c.name), &c.parent);
                self.trees_changed(Changed { cohorts: [c.name].into(), ..Changed::default() }, seen, out);
            }
            Event::LocalQueueUpsert(q) => {
                self.local_queue_changed((&q.namespace, &q.name), Some(q.cluster_queue), seen, out);
            }
            Event::WorkloadUpsert(w) => {
                if !self.is_open() {
                    return;
                }
                let owner = self.owner(Kind::Workload, object, seen.objects);
                let (namespace, name) = (w.key.namespace.clone(), w.key.name.clone());
                out.push(Told::Queueing(match owner.keeper() == self.name {
                    true => Event::WorkloadUpsert(w),
                    false => Event::WorkloadDelete(w.key),
                }));
                self.workload_changed(&namespace, &name, seen.objects, out);
            }
            Event::QuotaLoanUpsert(loan) => self.loan(*loan, seen, out),
            Event::ResourceSliceUpsert(slice) if shards::is_shared(&slice) && self.name != DEFAULT => {
                out.push(Told::Queueing(Event::ResourceSliceDelete(slice.name)));
            }
            other => out.push(Told::Queueing(other)),
        }
    }

    /// An object of queueing is gone: the store has it no more.
    pub fn delete(&mut self, event: Event, seen: Seen<'_>, out: &mut Vec<Told>) {
        match event {
            Event::ClusterQueueDelete(name) => {
                self.trees.remove(&TreeObject::cluster_queue(&name));
                let changed = Changed { cluster_queues: [name].into(), ..Changed::default() };
                self.trees_changed(changed, seen, out);
            }
            Event::CohortDelete(name) => {
                self.trees.remove(&TreeObject::cohort(&name));
                self.trees_changed(Changed { cohorts: [name].into(), ..Changed::default() }, seen, out);
            }
            Event::LocalQueueDelete(namespace, name) => {
                self.local_queue_changed((&namespace, &name), None, seen, out);
            }
            Event::QuotaLoanDelete(name) => self.loan_gone(name, seen, out),
            Event::WorkloadDelete(key) => {
                let (namespace, name) = (key.namespace.clone(), key.name.clone());
                out.push(Told::Queueing(Event::WorkloadDelete(key)));
                self.workload_changed(&namespace, &name, seen.objects, out);
            }
            other => out.push(Told::Queueing(other)),
        }
    }

    fn workload_changed(&mut self, namespace: &str, name: &str, objects: &ObjectStore, out: &mut Vec<Told>) {
        let Self { name: shard, trees, pods, .. } = self;
        let events = pods.workload_changed(namespace, name, |pod| has_pod(shard, pod, objects, trees));
        out.extend(events.into_iter().map(Told::Object));
    }

    fn queues_changed(&mut self, objects: &ObjectStore, out: &mut Vec<Told>) {
        let Self { name, trees, pods, .. } = self;
        let events = pods.queues_changed(|pod| has_pod(name, pod, objects, trees));
        out.extend(events.into_iter().map(Told::Object));
    }

    /// ClusterQueues or Cohorts have changed, `changed` in any way.
    fn trees_changed(&mut self, mut changed: Changed, seen: Seen<'_>, out: &mut Vec<Told>) {
        if !self.is_open() {
            return;
        }
        let mut moved = self.trees.resolve();
        self.changes += u64::from(moved != Changed::default());
        let handed = std::mem::take(&mut moved.handed);
        let controlled = std::mem::take(&mut moved.controlled);
        let queues: Vec<(String, String)> = {
            let of = self.local_queues.iter().filter(|(_, of)| handed.contains(*of));
            of.map(|(queue, _)| queue.clone()).collect()
        };
        let of_moved =
            |wl: &Value| cluster_queue_of(wl, seen.objects).is_some_and(|name| handed.contains(&name));
        let workloads = match handed.is_empty() {
            true => Vec::new(),
            false => workloads(seen.objects, of_moved),
        };
        for cluster_queue in &moved.cluster_queues {
            if let Some(ShardStop::Conflict(why)) = self.trees.of_cluster_queue(cluster_queue).stop() {
                out.push(Told::Conflict { cluster_queue: cluster_queue.clone(), why: why.clone() });
            }
        }
        let all = moved.pods;
        changed.cohorts.append(&mut moved.cohorts);
        changed.cluster_queues.append(&mut moved.cluster_queues);
        // Workloads leave before their queue does, and come after it: none is told that it is missing.
        self.hand_over(&workloads, &queues, false, seen, out);
        for name in &changed.cohorts {
            self.give_or_take(Kind::Cohort, ("", name), seen, out);
        }
        for name in &changed.cluster_queues {
            self.give_or_take(Kind::ClusterQueue, ("", name), seen, out);
        }
        self.hand_over(&workloads, &queues, true, seen, out);
        if all {
            self.queues_changed(seen.objects, out);
            let mut namespaces: BTreeSet<String> =
                queues.into_iter().map(|(namespace, _)| namespace).collect();
            namespaces.extend(workloads.into_iter().map(|(namespace, _)| namespace));
            look_again(&namespaces, &changed.cluster_queues, seen.objects, out);
        }
        if !controlled.is_empty() {
            let of = self.local_queues.iter().filter(|(_, of)| controlled.contains(*of));
            let mut namespaces: BTreeSet<String> = of.map(|((namespace, _), _)| namespace.clone()).collect();
            let all = seen.objects.all(Kind::Workload);
            let of_controlled =
                |wl: &Value| cluster_queue_of(wl, seen.objects).is_some_and(|q| controlled.contains(&q));
            namespaces.extend(all.filter(|wl| of_controlled(wl)).map(|wl| json::namespace(&wl).to_owned()));
            look_again(&namespaces, &controlled, seen.objects, out);
        }
        self.tell_absent(out);
    }

    /// Tells the engine of those that are of the shard now (`come`), or of the others.
    fn hand_over(
        &self,
        workloads: &[(String, String)],
        queues: &[(String, String)],
        come: bool,
        seen: Seen<'_>,
        out: &mut Vec<Told>,
    ) {
        let mine = |kind, (namespace, name): &(String, String)| {
            let object = seen.objects.get(kind, namespace, name);
            object.is_some_and(|object| self.owner(kind, &object, seen.objects).keeper() == self.name) == come
        };
        let tell = |kind, all: &[(String, String)], out: &mut Vec<Told>| {
            for (namespace, name) in all.iter().filter(|name| mine(kind, name)) {
                self.give_or_take(kind, (namespace, name), seen, out);
            }
        };
        if come {
            tell(Kind::LocalQueue, queues, out);
        }
        tell(Kind::Workload, workloads, out);
        if !come {
            tell(Kind::LocalQueue, queues, out);
        }
    }

    /// A LocalQueue was seen or has changed, or is gone.
    fn local_queue_changed(
        &mut self,
        (namespace, name): (&str, &str),
        cluster_queue: Option<String>,
        seen: Seen<'_>,
        out: &mut Vec<Told>,
    ) {
        let key = (namespace.to_owned(), name.to_owned());
        let same = self.local_queues.get(&key) == cluster_queue.as_ref();
        match cluster_queue {
            Some(cluster_queue) => drop(self.local_queues.insert(key, cluster_queue)),
            None => drop(self.local_queues.remove(&key)),
        }
        if !self.is_open() {
            return;
        }
        if same {
            return self.give_or_take(Kind::LocalQueue, (namespace, name), seen, out);
        }
        let of_queue =
            |wl: &Value| json::namespace(wl) == namespace && json::text(wl, &["spec", "queueName"]) == name;
        let workloads = workloads(seen.objects, of_queue);
        let queue = [(namespace.to_owned(), name.to_owned())];
        self.hand_over(&workloads, &queue, false, seen, out);
        self.hand_over(&workloads, &queue, true, seen, out);
        self.queues_changed(seen.objects, out);
        look_again(&[namespace.to_owned()].into(), &BTreeSet::new(), seen.objects, out);
    }

    /// A pod was seen or has changed.
    pub fn pod(&mut self, pod: Pod, objects: &ObjectStore, out: &mut Vec<Told>) {
        let Self { name, trees, pods, .. } = self;
        let event = pods.upsert(Box::new(pod), |pod| has_pod(name, pod, objects, trees));
        out.extend(event.map(Told::Object));
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, uid: &str, out: &mut Vec<Told>) {
        out.extend(self.pods.delete(uid).map(Told::Object));
    }
}

/// Tells the engine of an object of the shard.
fn give(object: &Value, owner: &Owner, seen: Seen<'_>, out: &mut Vec<Told>) {
    let Some(mut event) = (seen.event_of)(object) else { return };
    match &mut event {
        Event::ClusterQueueUpsert(queue) => queue.shard_stop = owner.stop().cloned(),
        Event::CohortUpsert(cohort) => cohort.shard_stop = owner.stop().cloned(),
        _ => {}
    }
    out.push(Told::Queueing(event));
}

/// Workloads of which this holds, by namespace and name.
fn workloads(objects: &ObjectStore, which: impl Fn(&Value) -> bool) -> Vec<(String, String)> {
    let some = objects.all(Kind::Workload).filter(|wl| which(wl));
    some.map(|wl| (json::namespace(&wl).to_owned(), json::name(&wl).to_owned())).collect()
}

/// Has the job controllers look at everything whose owner may be this process from now on.
fn look_again(
    namespaces: &BTreeSet<String>,
    cluster_queues: &BTreeSet<String>,
    objects: &ObjectStore,
    out: &mut Vec<Told>,
) {
    let mut keys = keys_of_namespaces(namespaces, objects);
    for queue in cluster_queues.iter().filter_map(|name| objects.get(Kind::ClusterQueue, "", name)) {
        keys.extend(affected(Kind::ClusterQueue, &queue, objects));
    }
    out.extend(keys.into_iter().map(Told::Look));
}
