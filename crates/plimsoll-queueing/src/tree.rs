//! The quota tree: ClusterQueues are leaves, cohorts are inner nodes.
//!
//! Every node has one cell per column, a column being a (flavor, resource) pair. A cell holds what the node
//! owns, what its subtree can use, and what is used. The arithmetic is that of Kueue's
//! `pkg/cache/scheduler/resource_node.go` and saturates; usage is kept exactly beside it, so that usage beyond the limits
//! can be taken away again. Changes of usage are written to an undo log, so that simulations work on the tree itself
//! instead of on copies.

mod build;
mod share;
#[cfg(test)]
mod tests;

pub(crate) use build::NodeSpec;
pub(crate) use share::{DominantResourceShare, FairShare, Share};

use std::collections::BTreeMap;

use super::amount::{Amount, Exact};
use super::ids::{FlavorResource, ResourceId};
use plimsoll_state::dense_id;
use plimsoll_state::slab::Id;

dense_id!(
    /// A node of the quota tree.
    NodeId
);

/// What a node owns of one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Own quota.
    pub(crate) nominal: Amount,
    /// How much may be borrowed from the parent; `None`: everything.
    pub(crate) borrowing: Option<Amount>,
    /// How much may be lent to the parent; `None`: everything.
    pub(crate) lending: Option<Amount>,
}

/// One cell of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    quota: Quota,
    /// Own quota plus what children lend.
    subtree: Amount,
    /// What the node could use if nothing were used anywhere.
    potential: Amount,
    usage: Amount,
    /// Whether the node or anything below it mentions this column.
    present: bool,
}

impl Cell {
    /// The part of the subtree's quota that its parent never sees.
    fn local_quota(&self) -> Amount {
        self.quota.lending.map_or(Amount::ZERO, |l| self.subtree.sub(l).at_least_zero())
    }

    fn local_available(&self) -> Amount {
        self.local_quota().sub(self.usage).at_least_zero()
    }
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) parent: Option<NodeId>,
    /// Child cohorts, by name.
    pub(crate) cohorts: Vec<NodeId>,
    /// Child ClusterQueues that take part in scheduling, by name.
    pub(crate) queues: Vec<NodeId>,
    /// Whether it is a ClusterQueue.
    pub(crate) leaf: bool,
    /// Fair sharing weight.
    pub(crate) weight: f64,
    /// Steps to the farthest leaf below; 0 for a ClusterQueue or an empty cohort.
    pub(crate) height: u32,
    /// Whether following parents from here never ends; such a node counts as having no parent.
    pub(crate) cyclic: bool,
}

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    columns: usize,
    cells: Vec<Cell>,
    /// Usage of every cell before it saturates.
    exact: Vec<Exact>,
    /// Resource of each column, for shares.
    resource_of: Vec<ResourceId>,
    log: Vec<(usize, Exact)>,
    /// Usage that is charged to a cohort itself.
    of_cohorts: Vec<(NodeId, FlavorResource, Amount)>,
}

/// A point in the undo log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(usize);

impl Tree {
    pub(crate) fn node(&self, n: NodeId) -> &Node {
        &self.nodes[n.index()]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId::new(i), n))
    }

    /// The cell, an empty one for a column that came after the tree was built.
    fn cell(&self, n: NodeId, fr: FlavorResource) -> Cell {
        if fr.index() < self.columns { self.cells[self.at(n, fr)] } else { Cell::default() }
    }

    fn at(&self, n: NodeId, fr: FlavorResource) -> usize {
        n.index() * self.columns + fr.index()
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn quota(&self, n: NodeId, fr: FlavorResource) -> Quota {
        self.cell(n, fr).quota
    }

    pub(crate) fn usage(&self, n: NodeId, fr: FlavorResource) -> Amount {
        self.cell(n, fr).usage
    }

    pub(crate) fn subtree_quota(&self, n: NodeId, fr: FlavorResource) -> Amount {
        self.cell(n, fr).subtree
    }

    /// Whether the node or anything below it mentions the column.
    pub(crate) fn present(&self, n: NodeId, fr: FlavorResource) -> bool {
        self.cell(n, fr).present
    }

    /// Quota that is free here and not visible to the parent.
    pub(crate) fn local_available(&self, n: NodeId, fr: FlavorResource) -> Amount {
        self.cell(n, fr).local_available()
    }

    /// What can still be used at this node; negative when more is used than the tree now has.
    pub(crate) fn available_signed(&self, n: NodeId, fr: FlavorResource) -> Amount {
        let c = self.cell(n, fr);
        let Some(parent) = self.node(n).parent else { return c.subtree.sub(c.usage) };
        let mut from_parent = self.available_signed(parent, fr);
        if let Some(limit) = c.quota.borrowing {
            let local = c.local_quota();
            let stored = c.subtree.sub(local);
            let used = c.usage.sub(local).at_least_zero();
            from_parent = from_parent.min(stored.sub(used).add(limit));
        }
        c.local_available().add(from_parent)
    }

    /// What can still be used at this node, at least zero.
    pub(crate) fn available(&self, n: NodeId, fr: FlavorResource) -> Amount {
        self.available_signed(n, fr).at_least_zero()
    }

    /// What could be used at this node if nothing were used anywhere.
    pub(crate) fn potential(&self, n: NodeId, fr: FlavorResource) -> Amount {
        self.cell(n, fr).potential
    }

    /// Whether the node's usage with `more` on top exceeds its subtree's quota.
    pub(crate) fn borrowing_with(&self, n: NodeId, fr: FlavorResource, more: Amount) -> bool {
        let c = self.cell(n, fr);
        c.subtree < c.usage.add(more)
    }

    /// Whether no column of `frs` exceeds the node's subtree quota.
    pub(crate) fn within_nominal(&self, n: NodeId, frs: &[FlavorResource]) -> bool {
        frs.iter().all(|&fr| !self.borrowing_with(n, fr, Amount::ZERO))
    }

    /// Whether more is used at the node than it has and may borrow.
    pub(crate) fn is_overused(&self, n: NodeId, fr: FlavorResource) -> bool {
        let c = self.cell(n, fr);
        match (self.node(n).parent, c.quota.borrowing) {
            (None, _) => c.subtree < c.usage,
            (Some(_), Some(limit)) => c.subtree.add(limit) < c.usage,
            (Some(_), None) => false,
        }
    }

    /// The cohort of this name.
    pub(crate) fn cohort(&self, name: &str) -> Option<NodeId> {
        self.nodes().find(|(_, node)| !node.leaf && node.name == name).map(|(n, _)| n)
    }

    /// The node's ancestors, from its parent to the root.
    pub(crate) fn ancestors(&self, n: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.node(n).parent, |&p| self.node(p).parent)
    }

    /// The root above `n`, `n` itself when it has no parent.
    pub(crate) fn root(&self, n: NodeId) -> NodeId {
        self.ancestors(n).last().unwrap_or(n)
    }

    /// Height of the lowest subtree around ClusterQueue `n` in which `amount` more fits without borrowing
    /// (0: the queue itself), and whether that subtree is only a part of the whole tree (Kueue
    /// `pkg/scheduler/preemption/classical`, `FindHeightOfLowestSubtreeThatFits`).
    pub(crate) fn borrow_level(&self, n: NodeId, fr: FlavorResource, amount: Amount) -> (u32, bool) {
        let Some(parent) = self.node(n).parent else { return (0, false) };
        if !self.borrowing_with(n, fr, amount) {
            return (0, true);
        }
        let mut remaining = amount.sub(self.local_available(n, fr));
        for a in std::iter::once(parent).chain(self.ancestors(parent)) {
            if !self.borrowing_with(a, fr, remaining) {
                return (self.node(a).height, self.node(a).parent.is_some());
            }
            remaining = remaining.sub(self.local_available(a, fr));
        }
        (self.node(self.root(n)).height, false)
    }

    /// Adds usage at a node; what exceeds the local quota is counted at the parent too.
    pub(crate) fn add(&mut self, n: NodeId, fr: FlavorResource, amount: Amount) {
        self.change(n, fr, Exact::of(amount));
    }

    /// Adds usage of a cohort that is none of its ClusterQueues', for as long as the tree stands.
    pub(crate) fn charge_cohort(&mut self, n: NodeId, fr: FlavorResource, amount: Amount) {
        self.add(n, fr, amount);
        self.of_cohorts.push((n, fr, amount));
    }

    /// Whether cohorts in the tree of a node are charged themselves.
    pub(crate) fn lends(&self, n: NodeId) -> bool {
        let root = self.root(n);
        self.of_cohorts.iter().any(|(lender, ..)| self.root(*lender) == root)
    }

    /// What cohorts themselves are charged, by column.
    pub(crate) fn charged_cohorts(&self) -> BTreeMap<(NodeId, FlavorResource), Amount> {
        let mut sums = BTreeMap::new();
        for &(n, fr, amount) in &self.of_cohorts {
            let sum = sums.entry((n, fr)).or_insert(Amount::ZERO);
            *sum = sum.add(amount);
        }
        sums
    }

    /// Takes usage away at a node, the mirror of [`Tree::add`].
    pub(crate) fn remove(&mut self, n: NodeId, fr: FlavorResource, amount: Amount) {
        self.change(n, fr, Exact::default().sub(Exact::of(amount)));
    }

    /// Changes usage at a node, and at every ancestor by as much as what exceeds the local quota below it changes.
    fn change(&mut self, n: NodeId, fr: FlavorResource, by: Exact) {
        if fr.index() >= self.columns {
            return;
        }
        let (mut n, mut by) = (n, by);
        while by != Exact::default() {
            let i = self.at(n, fr);
            let (Some(cell), Some(exact)) = (self.cells.get_mut(i), self.exact.get_mut(i)) else { return };
            let local = cell.local_quota();
            let old = *exact;
            self.log.push((i, old));
            *exact = old.add(by);
            cell.usage = exact.amount();
            let Some(parent) = self.nodes[n.index()].parent else { return };
            (n, by) = (parent, exact.above(local).sub(old.above(local)));
        }
    }

    /// The present point of the undo log.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.log.len())
    }

    /// Undoes every change of usage since `mark`.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        while self.log.len() > mark.0 {
            if let Some((i, old)) = self.log.pop() {
                self.exact[i] = old;
                self.cells[i].usage = old.amount();
            }
        }
    }

    /// Makes all changes so far final. No mark taken before may be used afterwards.
    pub(crate) fn commit(&mut self) {
        self.log.clear();
    }
}
