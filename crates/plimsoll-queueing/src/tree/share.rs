//! Shares: with dominant resource share, how much of what could be lent a node has borrowed (Kueue
//! `pkg/cache/scheduler/fair_sharing.go`, `dominantResourceShare`).

use plimsoll_state::slab::Id;
use std::cmp::Ordering;

use smallvec::SmallVec;

use plimsoll_state::cast::whole;

use super::{NodeId, Tree};
use crate::amount::Amount;
use crate::ids::{FlavorResource, ResourceId};

/// The share of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    weight: f64,
    /// Largest ratio of borrowed to lendable, in thousandths, before the weight.
    ratio: f64,
    /// Columns on which the node borrows.
    borrowed: SmallVec<[FlavorResource; 4]>,
}

impl Share {
    /// Less than every share of a node.
    pub(crate) fn lowest() -> Self {
        Self { weight: 1.0, ratio: -1.0, borrowed: SmallVec::new() }
    }

    /// Whether the node uses more than its quota anywhere.
    pub(crate) fn is_borrowing(&self) -> bool {
        !self.borrowed.is_empty()
    }

    /// Whether it borrows on a column that `usage` asks for.
    pub(crate) fn is_borrowing_on(&self, usage: &[(FlavorResource, Amount)]) -> bool {
        usage.iter().any(|(fr, a)| *a > Amount::ZERO && self.borrowed.contains(fr))
    }

    /// The ratio divided by the weight; infinite when borrowing with weight 0.
    pub(crate) fn precise(&self) -> f64 {
        if self.ratio == 0.0 {
            0.0
        } else if self.weight == 0.0 {
            f64::INFINITY
        } else {
            self.ratio / self.weight
        }
    }

    /// As in `status.fairSharing.weightedShare`: rounded up, `i64::MAX` for infinite.
    pub(crate) fn rounded(&self) -> i64 {
        if self.is_endless() { i64::MAX } else { whole(self.precise().ceil()) }
    }

    fn is_endless(&self) -> bool {
        self.weight == 0.0 && self.ratio != 0.0
    }

    /// Whether the share is infinite.
    pub(crate) fn is_infinite(&self) -> bool {
        self.precise().is_infinite()
    }

    /// Order of shares; two nodes with weight 0 compare by their ratio.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self.is_endless(), other.is_endless()) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.precise().total_cmp(&other.precise()),
        }
    }
}

/// The value by which fair sharing compares what ClusterQueues and cohorts use.
pub(crate) trait FairShare: std::fmt::Debug + Send + Sync {
    /// The share of a node with its present usage.
    fn share(&self, tree: &Tree, n: NodeId) -> Share;
}

/// Kueue's: the largest ratio, over all resources, of what a node borrows to what its cohort could lend.
#[derive(Debug)]
pub(crate) struct DominantResourceShare;

impl FairShare for DominantResourceShare {
    fn share(&self, tree: &Tree, n: NodeId) -> Share {
        let mut share = Share { weight: tree.node(n).weight, ratio: 0.0, borrowed: SmallVec::new() };
        let Some(parent) = tree.node(n).parent else { return share };
        let mut borrowed: SmallVec<[(ResourceId, Amount); 4]> = SmallVec::new();
        for fr in FlavorResource::first(tree.columns) {
            let c = tree.cells[tree.at(n, fr)];
            let over = c.usage.sub(c.subtree);
            if c.present && over > Amount::ZERO {
                share.borrowed.push(fr);
                add_to(&mut borrowed, tree.resource_of[fr.index()], over);
            }
        }
        for (res, over) in borrowed {
            let lendable = tree.lendable(parent, res);
            if lendable > Amount::ZERO {
                share.ratio = share.ratio.max(over.0 as f64 * 1000.0 / lendable.0 as f64);
            }
        }
        share
    }
}

impl Tree {
    /// What children of `n` could use of a resource together if nothing were used anywhere.
    fn lendable(&self, n: NodeId, res: ResourceId) -> Amount {
        let root = self.root(n);
        FlavorResource::first(self.columns)
            .filter(|&fr| self.resource_of[fr.index()] == res && self.present(root, fr))
            .fold(Amount::ZERO, |sum, fr| sum.add(self.potential(n, fr)))
    }
}

fn add_to(list: &mut SmallVec<[(ResourceId, Amount); 4]>, res: ResourceId, amount: Amount) {
    match list.iter_mut().find(|(r, _)| *r == res) {
        Some((_, sum)) => *sum = sum.add(amount),
        None => list.push((res, amount)),
    }
}
