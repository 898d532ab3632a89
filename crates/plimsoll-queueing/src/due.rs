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
use plimsoll_state::collect::InsertEach as _;

/// ClusterQueues after which a cycle looks at no further tree, and workloads after which it admits no further ones that
/// nobody needs to go for.
pub(crate) const QUEUES_PER_CYCLE: usize = 256;

/// ClusterQueues in whose trees a cycle could find something it did not find last time.
#[derive(Debug, Default)]
pub(crate) struct DueCycle {
    everywhere: bool,
    queues: BTreeSet<ClusterQueueId>,
    /// The tree at which the last cycle broke off, if it did.
    from: Option<NodeId>,
    /// ClusterQueues whose heads the last cycle did not come to.
    unfinished: Vec<ClusterQueueId>,
}

impl DueCycle {
    /// Whether no cycle is due.
    pub(crate) fn is_empty(&self) -> bool {
        !self.everywhere && self.queues.is_empty() && self.unfinished.is_empty()
    }

    /// Something changed in the tree of a ClusterQueue.
    pub(crate) fn tree_of(&mut self, cq: ClusterQueueId) {
        if !self.everywhere {
            self.queues.insert(cq);
        }
    }

    /// The last cycle was long enough before it came to these, which are in the order of their names.
    pub(crate) fn unfinished(&mut self, queues: Vec<ClusterQueueId>) {
        self.unfinished = queues;
    }

    /// The last cycle was put off: the next one looks at the same ClusterQueues.
    pub(crate) fn again(&mut self, queues: Vec<ClusterQueueId>) {
        if queues.is_empty() {
            self.everywhere();
        }
        self.unfinished = queues;
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
        if !self.due.unfinished.is_empty() {
            return std::mem::take(&mut self.due.unfinished);
        }
        let DueCycle { everywhere, queues, from, unfinished: _ } = std::mem::take(&mut self.due);
        let across = joint
            || self.looks_everywhere
            || self.config.blocks_admission()
            || self.config.admission_fair_sharing.is_some()
            || !self.objects.topologies.is_empty();
        if across {
            return self.cluster_queues.ids_by_name().collect();
        }
        let mut roots: Vec<NodeId> =
            if everywhere { self.trees.keys().copied().collect() } else { self.roots_of(&queues) };
        // Trees in which something changes all the time must not keep others waiting.
        let first = roots.partition_point(|&r| Some(r) < from);
        roots.rotate_left(first);
        let (mut out, mut looked_at): (Vec<ClusterQueueId>, _) = (Vec::new(), 0);
        for tree in roots.iter().filter_map(|r| self.trees.get(r)) {
            if out.len() >= self.queues_per_cycle {
                break;
            }
            out.extend(tree.iter().copied());
            looked_at += 1;
        }
        let left_out = roots.get(looked_at..).unwrap_or_default();
        self.due.from = left_out.first().copied();
        self.due.queues.extend(left_out.iter().filter_map(|r| self.trees.get(r)?.first()));
        if roots.len() > 1 {
            out.sort_by(|&a, &b| self.cq(a).name.cmp(&self.cq(b).name));
        }
        out
    }

    /// The trees that these ClusterQueues are in.
    pub(crate) fn trees_of(&self, queues: &BTreeSet<ClusterQueueId>) -> Vec<Arc<[ClusterQueueId]>> {
        self.roots_of(queues).iter().filter_map(|r| self.trees.get(r).cloned()).collect()
    }

    /// The roots of these trees, in order.
    fn roots_of(&self, queues: &BTreeSet<ClusterQueueId>) -> Vec<NodeId> {
        let nodes = queues.iter().filter_map(|&q| self.cq(q).node);
        let roots: BTreeSet<NodeId> = nodes.map(|n| self.tree.root(n)).insert_each();
        roots.into_iter().collect()
    }

    /// Sorts all ClusterQueues into their trees.
    pub(crate) fn sort_into_trees(&mut self) {
        let mut trees: BTreeMap<NodeId, Vec<ClusterQueueId>> = BTreeMap::new();
        for cq in self.cluster_queues.ids_by_name() {
            if let Some(node) = self.cq(cq).node {
                trees.entry(self.tree.root(node)).or_default().push(cq);
            }
        }
        self.trees = trees.into_iter().map(|(root, queues)| (root, Arc::from(queues))).insert_each();
    }
}
