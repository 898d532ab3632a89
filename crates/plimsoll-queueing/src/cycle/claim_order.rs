//! The order of claims on nodes (joint admission), across all ClusterQueues.
//!
//! With fair sharing, what a ClusterQueue uses beyond its quota comes first: nodes are one pool, so the queues that use the least
//! beyond what is theirs get the places that become free. Kueue's tournament compares the shares that queues would have after
//! the admission. A claim waits, and its place must not depend on its size: a large gang would come after all small ones. So
//! shares are those of now.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{Cycle, Head};
use crate::Queueing;
use crate::ids::ClusterQueueId;
use crate::pending::Rank;
use plimsoll_state::cast::whole;

/// The shares of a ClusterQueue and the cohorts above it, in millionths, the coarsest first, without zeros at the end: so queues
/// compare by the share of the cohort in which their paths part, and those within their quota are equal whatever their depth.
pub(super) type ShareOrder = SmallVec<[i64; 4]>;

/// The order of claims: with fair sharing by the share of the ClusterQueue, then by priority, those first for which others were
/// preempted, then like workloads in a queue. Others were preempted by the rules of fair sharing, so what they leave
/// is not compared again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClaimRank {
    share: ShareOrder,
    priority: Reverse<i64>,
    pub(super) preempts: Reverse<bool>,
    pub(super) rank: Rank,
}

impl ClaimRank {
    /// `share`: none without fair sharing, and for claims for which others were preempted.
    pub(super) fn new(share: Option<&ShareOrder>, rank: Rank, preempts: bool) -> Self {
        let share = share.cloned().unwrap_or_default();
        Self { share, priority: rank.priority, preempts: Reverse(preempts), rank }
    }
}

impl Queueing {
    fn share_order(&self, cq: ClusterQueueId) -> ShareOrder {
        let Some(node) = self.cq(cq).node else { return ShareOrder::new() };
        let path = std::iter::once(node).chain(self.tree.ancestors(node));
        let mut shares: ShareOrder = path
            .map(|n| {
                let share = self.share(n).precise();
                if share.is_finite() { whole((share * 1_000.0).ceil()) } else { i64::MAX }
            })
            .collect();
        shares.reverse();
        while shares.last() == Some(&0) {
            shares.pop();
        }
        shares
    }
}

impl Cycle<'_> {
    /// Before a cycle: with fair sharing, the shares of the ClusterQueues that claims and heads are of.
    pub(super) fn find_shares(&mut self, heads: &[Head]) {
        if self.nodes.is_none() || self.state.config.fair_sharing.is_none() {
            return;
        }
        let queues = self.claims.queues().chain(heads.iter().map(|h| h.cq));
        self.claims.shares = queues.map(|cq| (cq, self.state.share_order(cq))).collect();
    }

    /// Whether claims have another order than in the cycle before: then what failed because of them may succeed.
    pub(super) fn claims_reordered(&mut self) -> bool {
        let reordered = self.state.config.fair_sharing.is_some() && self.claims.reorder();
        if reordered {
            self.claims_dropped();
        }
        reordered
    }
}
