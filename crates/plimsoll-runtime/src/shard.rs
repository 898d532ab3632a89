//! The shard of this process (`docs/scale.md`): which part of the cluster it decides about.
//!
//! Watches divide the objects ([`Division`]), the executor begins no write about what is another shard's, and job
//! controllers ask whose their keys are. [`moves`](crate::moves) gives nodes and trees away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_api::shards::{self, DEFAULT};
use plimsoll_engine::Action;
use plimsoll_jobs::Key;
use plimsoll_jobs::shards::Division;
pub use plimsoll_jobs::shards::Leaving;
use plimsoll_queueing::{Action as QueueAction, WorkloadKey};
use plimsoll_scheduler::Action as SchedulerAction;
use plimsoll_state::model::ClusterObject;

use crate::api::{NODES, Resource};
use crate::cache::Cache;
use crate::clock;

/// The shard of this process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    division: Mutex<Division>,
}

impl Shard {
    /// The shard of this name, for a process with so many watches.
    pub fn new(name: &str, lists: usize) -> Self {
        Self(Arc::new(Shared { name: name.to_owned(), division: Mutex::new(Division::new(name, lists)) }))
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
        cache.read(clock::now(), |env| division.plans(key, env))
    }

    /// Begins a write, which is under way until the answer is dropped; `None`: it is about a node or a workload that is not of
    /// this shard any more.
    pub fn begin(&self, action: &Action, cache: &Cache) -> Option<UnderWay> {
        let mut division = self.lock();
        let (mut node, mut admits) = (None, None);
        match action {
            Action::Scheduler(SchedulerAction::Bind { node: to, .. }) => {
                node = Some(division.may_bind(to).then(|| to.clone())?);
            }
            Action::Queueing(QueueAction::UpdateWorkload(update)) => {
                let WorkloadKey { namespace, name } = &update.key;
                cache.objects(|objects| division.may_write(namespace, name, objects)).then_some(())?;
                if let Some(Some(admission)) = &update.admission {
                    let queue = &admission.cluster_queue;
                    admits = Some(division.may_admit(queue).then(|| queue.clone())?);
                }
            }
            Action::Queueing(QueueAction::UpdateLoan(update)) => {
                division.may_write_loan(update).then_some(())?;
            }
            Action::Scheduler(_) | Action::Queueing(_) => {}
        }
        Some(UnderWay { shard: self.clone(), node, admits })
    }

    /// Nodes that can be given away now.
    pub fn given_away(&self) -> Vec<(String, Leaving)> {
        self.lock().given_away()
    }

    /// Whether a write may still be carried out of which the next leader of the shard would know nothing.
    pub fn is_unsettled(&self) -> bool {
        self.lock().is_unsettled()
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
    /// The node that it binds to.
    node: Option<String>,
    /// The ClusterQueue that it admits in.
    admits: Option<String>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(node) = &self.node {
            self.shard.lock().bound(node);
        }
        if let Some(queue) = &self.admits {
            self.shard.lock().admitted(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_jobs::Config;
    use plimsoll_state::model::Node;

    use super::*;

    #[test]
    fn bindings_are_under_way_until_they_are_dropped() {
        let (shard, cache) = (Shard::new("a", 0), Cache::new(Config::default()));
        let pod = plimsoll_scheduler::PodRef { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let bind = Action::Scheduler(SchedulerAction::Bind { pod, node: "x".into() });
        assert!(shard.begin(&bind, &cache).is_none(), "not of this shard");
        let node = |to: Option<&str>| {
            let annotations = to.map(|to| (shards::MOVE_TO.to_owned(), to.to_owned())).into_iter().collect();
            let labels = [(shards::LABEL.to_owned(), "a".to_owned())].into();
            Node { name: "x".into(), annotations, labels, ..Node::default() }
        };
        shard.lock().node(node(None), "1", &mut Vec::new());
        let under_way = shard.begin(&bind, &cache).unwrap();
        shard.lock().node(node(Some("b")), "2", &mut Vec::new());
        assert_eq!(shard.given_away(), []);
        drop(under_way);
        let leaving = Leaving { to: "b".into(), version: "2".into() };
        assert_eq!(shard.given_away(), [("x".to_owned(), leaving)]);
    }

    #[test]
    fn watches_of_nodes_are_limited_where_a_selector_can_be() {
        let selector = Shard::new("a", 0).selector(NODES);
        assert_eq!(selector.as_deref(), Some("&labelSelector=plimsoll.dev%2Fshard%3Da"));
        assert_eq!(Shard::new("default", 0).selector(NODES), None);
        assert_eq!(Shard::new("a", 0).selector(crate::api::PODS), None);
    }
}
