//! The shard of this process (`docs/scale.md`): which part of the cluster it decides about.
//!
//! Watches divide the objects (`ingest/turn.rs`), the executor begins no write about what is another shard's, and job
//! controllers ask whose their keys are. [`moves`](crate::moves) gives nodes away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_api::shards::{self, DEFAULT, Pods, Trees};
use plimsoll_engine::Action;
use plimsoll_jobs::Key;
use plimsoll_jobs::shards::{Concern, concern, owner_of_workload};
use plimsoll_queueing::Action as QueueAction;
use plimsoll_scheduler::Action as SchedulerAction;
use plimsoll_state::model::ClusterObject;

use crate::api::{NODES, Resource};
use crate::cache::{Cache, Kind};
use crate::clock;

/// The shard of this process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    division: Mutex<Division>,
}

/// A node of the shard that is to be given to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The other shard.
    pub to: String,
    /// The version of the node that says so.
    pub version: String,
}

/// All objects by their shards.
#[derive(Debug, Default)]
pub struct Division {
    /// ClusterQueues and cohorts.
    pub trees: Trees,
    /// Nodes and pods.
    pub pods: Pods,
    /// ClusterQueues of LocalQueues.
    pub local_queues: BTreeMap<(String, String), String>,
    /// Lists that are not complete. Until all are, nothing is given to the engine that belongs to a shard.
    pub lists: usize,
    /// Nodes with which this process does not decide any more.
    pub leaving: BTreeMap<String, Leaving>,
    /// How many bindings to each node are under way.
    binding: BTreeMap<String, usize>,
}

impl Shard {
    /// The shard of this name, for a process with so many watches.
    pub fn new(name: &str, lists: usize) -> Self {
        let division = Mutex::new(Division { lists, ..Division::default() });
        Self(Arc::new(Shared { name: name.to_owned(), division }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether its leader does what is about the whole cluster.
    pub fn is_default(&self) -> bool {
        self.0.name == DEFAULT
    }

    /// What a watch of a resource is limited to.
    pub fn selector(&self, resource: Resource) -> Option<String> {
        // No selector has nodes without the label and those that name the default shard.
        let selects = resource == NODES && !self.is_default();
        selects.then(|| format!("&labelSelector={}%3D{}", shards::LABEL.replace('/', "%2F"), self.0.name))
    }

    /// Whether the scheduler gets to see an object that pods refer to: devices that nodes of several shards reach are given
    /// away by the default one alone.
    pub fn sees(&self, object: &ClusterObject) -> bool {
        match object {
            ClusterObject::DeviceSlice(slice) => self.is_default() || !shards::is_shared(slice),
            _ => true,
        }
    }

    /// Whether job controllers of this process plan a key.
    pub fn plans(&self, key: &Key, cache: &Cache) -> bool {
        let division = self.lock();
        match cache.read(clock::now(), |env| concern(key, env)) {
            Concern::ClusterQueue(name) => division.trees.of_cluster_queue(&name).keeper() == self.0.name,
            Concern::Node(name) if !name.is_empty() => division.pods.has_node(&name),
            Concern::Node(_) | Concern::Cluster => self.is_default(),
            Concern::Undecided => true,
        }
    }

    /// Begins a write, which is under way until the answer is dropped; `None`: it is about a node or a workload that is not of
    /// this shard any more.
    pub fn begin(&self, action: &Action, cache: &Cache) -> Option<UnderWay> {
        let mut division = self.lock();
        let node = match action {
            Action::Scheduler(SchedulerAction::Bind { node, .. }) => {
                if !division.pods.has_node(node) {
                    return None;
                }
                *division.binding.entry(node.clone()).or_insert(0) += 1;
                Some(node.clone())
            }
            Action::Queueing(QueueAction::UpdateWorkload(update)) => {
                let key = &update.key;
                let known = cache.get(Kind::Workload, &key.namespace, &key.name);
                let trees = &division.trees;
                let owner = known.map(|wl| cache.objects(|objects| owner_of_workload(&wl, objects, trees)));
                if owner.is_some_and(|owner| owner.keeper() != self.0.name) {
                    return None;
                }
                None
            }
            Action::Scheduler(_) | Action::Queueing(_) => None,
        };
        Some(UnderWay { shard: self.clone(), node })
    }

    /// Nodes that can be given away now.
    pub fn given_away(&self) -> Vec<(String, Leaving)> {
        let division = self.lock();
        let idle = division.leaving.iter().filter(|(node, _)| !division.binding.contains_key(*node));
        idle.map(|(node, leaving)| (node.clone(), leaving.clone())).collect()
    }

    /// The division, for a moment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Division> {
        self.0.division.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write that has begun.
#[derive(Debug)]
pub struct UnderWay {
    shard: Shard,
    node: Option<String>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(node) = &self.node else { return };
        let mut division = self.shard.lock();
        if let Some(count) = division.binding.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                division.binding.remove(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_jobs::Config;
    use plimsoll_queueing::{WorkloadKey, WorkloadUpdate};
    use serde_json::json;

    use super::*;

    fn bind(node: &str) -> Action {
        let pod = plimsoll_scheduler::PodRef { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        Action::Scheduler(SchedulerAction::Bind { pod, node: node.into() })
    }

    #[test]
    fn a_node_is_given_away_when_no_binding_is_under_way() {
        let (shard, cache) = (Shard::new("a", 0), Cache::new(Config::default()));
        assert!(shard.begin(&bind("x"), &cache).is_none(), "not of this shard");
        shard.lock().pods.node("x");
        let first = shard.begin(&bind("x"), &cache).unwrap();
        let second = shard.begin(&bind("x"), &cache).unwrap();
        let leaving = Leaving { to: "b".into(), version: "7".into() };
        {
            let mut division = shard.lock();
            division.pods.node_gone("x");
            division.leaving.insert("x".into(), leaving.clone());
        }
        assert!(shard.begin(&bind("x"), &cache).is_none(), "no more begins");
        drop(first);
        assert_eq!(shard.given_away(), []);
        drop(second);
        assert_eq!(shard.given_away(), [("x".to_owned(), leaving)]);
    }

    #[test]
    fn workloads_of_other_shards_are_not_written() {
        let (shard, cache) = (Shard::new("a", 0), Cache::new(Config::default()));
        let lq = |name: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"clusterQueue": name}});
        let wl = |name: &str, queue: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"queueName": queue}});
        for queue in ["qa", "qb"] {
            cache.put(Kind::LocalQueue, lq(queue));
        }
        cache.put(Kind::Workload, wl("of-a", "qa"));
        cache.put(Kind::Workload, wl("of-b", "qb"));
        {
            let mut division = shard.lock();
            division.trees.put_cluster_queue("qa", "", "a");
            division.trees.put_cluster_queue("qb", "", "b");
            division.trees.resolve();
        }
        let update = |name: &str| {
            let key = WorkloadKey { namespace: "n".into(), name: name.into() };
            let update = WorkloadUpdate { key, ..WorkloadUpdate::default() };
            Action::Queueing(QueueAction::UpdateWorkload(Box::new(update)))
        };
        assert!(shard.begin(&update("of-a"), &cache).is_some());
        assert!(shard.begin(&update("of-b"), &cache).is_none());
        let topology = |name: &str| Key::Topology("n".into(), name.into());
        assert!(shard.plans(&topology("of-a"), &cache) && !shard.plans(&topology("of-b"), &cache));
        assert!(!shard.plans(&Key::ResourceFlavor("f".into()), &cache), "about the whole cluster");
        assert!(Shard::new("default", 0).plans(&Key::ResourceFlavor("f".into()), &cache));
    }

    #[test]
    fn watches_of_nodes_are_limited_where_a_selector_can_be() {
        let selector = Shard::new("a", 0).selector(NODES);
        assert_eq!(selector.as_deref(), Some("&labelSelector=plimsoll.dev%2Fshard%3Da"));
        assert_eq!(Shard::new("default", 0).selector(NODES), None);
        assert_eq!(Shard::new("a", 0).selector(crate::api::PODS), None);
    }
}
