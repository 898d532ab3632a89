//! Which trees of cohorts the next cycle looks at.
//!
//! What a head can get depends on the quota, the usage and the workloads of its own tree, and on nothing in others. So a
//! tree in which nothing changed since its heads were looked at is left out of the cycle: they would get the same answer.
//! What goes across trees makes a cycle look everywhere: places on nodes, pods that have to become ready first, and usage
//! that decays with time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Queueing;
use crate::ids::ClusterQueueId;
use crate::tree::NodeId;

/// ClusterQueues after which a cycle looks at no further tree.
pub(crate) const QUEUES_PER_CYCLE: usize = 256;

/// ClusterQueues in whose trees a cycle could find something it did not find last time.
#[derive(Debug, Default)]
pub(crate) struct DueCycle {
    everywhere: bool,
    queues: BTreeSet<ClusterQueueId>,
}

impl DueCycle {
    /// Whether no cycle is due.
    pub(crate) fn is_empty(&self) -> bool {
        !self.everywhere && self.queues.is_empty()
    }

    /// Something changed in the tree of a ClusterQueue.
    pub(crate) fn tree_of(&mut self, cq: ClusterQueueId) {
        if !self.everywhere {
            self.queues.insert(cq);
        }
    }

    /// Something changed that concerns all trees.
    pub(crate) fn everywhere(&mut self) {
        self.everywhere = true;
        self.queues.clear();
    }
}

/// The ClusterQueues of every tree, by its root; those of a tree in the order of their names.
pub(crate) type Trees = BTreeMap<NodeId, Arc<[ClusterQueueId]>>;

impl Queueing {
    /// The ClusterQueues whose heads the next cycle looks at, in the order of their names. Trees beyond the bound of a
    /// cycle stay due.
    pub(crate) fn take_queues_due(&mut self, joint: bool) -> Vec<ClusterQueueId> {
        let due = std::mem::take(&mut self.due);
        let across = joint
            || self.looks_everywhere
            || self.config.wait_for_pods_ready.is_some()
            || self.config.admission_fair_sharing.is_some()
            || !self.objects.topologies.is_empty();
        if across {
            return self.cluster_queues.ids_by_name().collect();
        }
        let trees =
            if due.everywhere { self.trees.values().cloned().collect() } else { self.trees_of(&due.queues) };
        let mut out: Vec<ClusterQueueId> = Vec::new();
        for tree in &trees {
            if out.len() < self.queues_per_cycle {
                out.extend(tree.iter().copied());
            } else {
                self.due.queues.extend(tree.first());
            }
        }
        if trees.len() > 1 {
            out.sort_by(|&a, &b| self.cq(a).name.cmp(&self.cq(b).name));
        }
        out
    }

    /// The trees that these ClusterQueues are in.
    pub(crate) fn trees_of(&self, queues: &BTreeSet<ClusterQueueId>) -> Vec<Arc<[ClusterQueueId]>> {
        let nodes = queues.iter().filter_map(|&q| self.cq(q).node);
        let roots: BTreeSet<NodeId> = nodes.map(|n| self.tree.root(n)).collect();
        roots.iter().filter_map(|r| self.trees.get(r).cloned()).collect()
    }

    /// Sorts all ClusterQueues into their trees.
    pub(crate) fn sort_into_trees(&mut self) {
        let mut trees: BTreeMap<NodeId, Vec<ClusterQueueId>> = BTreeMap::new();
        for cq in self.cluster_queues.ids_by_name() {
            if let Some(node) = self.cq(cq).node {
                trees.entry(self.tree.root(node)).or_default().push(cq);
            }
        }
        self.trees = trees.into_iter().map(|(root, queues)| (root, Arc::from(queues))).collect();
    }
}
