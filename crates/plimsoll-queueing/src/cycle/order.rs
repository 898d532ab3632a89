//! The order in which heads are processed (Kueue `pkg/scheduler/scheduler.go`, `makeIterator`).

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

use super::Cycle;
use super::assign::Assignment;
use super::entry::Entry;
use crate::Queueing;
use crate::ids::Map;
use crate::tree::{NodeId, Share};

/// The order of the entries of a cycle, which are of different ClusterQueues.
pub(crate) trait EntryOrder: Debug + Send + Sync {
    /// The entry to process next, one of `left`: indexes of `entries` in classical order, at least one.
    fn next(&self, cycle: &mut Cycle<'_>, entries: &[Entry], left: &[usize]) -> usize;
}

/// Less borrowing first, then higher priority, then older (Kueue `classicalIterator`). Rules of the configuration come before
/// and after the priority.
#[derive(Debug)]
pub(super) struct ClassicalOrder;

impl EntryOrder for ClassicalOrder {
    fn next(&self, _: &mut Cycle<'_>, _: &[Entry], left: &[usize]) -> usize {
        left[0]
    }
}

/// The least share first, in every cohort (Kueue `fairSharingIterator`).
#[derive(Debug)]
pub(super) struct FairSharingOrder;

impl EntryOrder for FairSharingOrder {
    fn next(&self, cycle: &mut Cycle<'_>, entries: &[Entry], left: &[usize]) -> usize {
        cycle.tournament(entries, left)
    }
}

impl Cycle<'_> {
    /// Whether an entry goes first because it waits for those that it preempted (gate `PrioritizePreemptorWorkloads`).
    pub(super) fn preempts_first(&self, e: &Entry) -> bool {
        let preempted = |generation| self.state.cq(e.cq).pending.preemptor == Some((e.id, generation));
        self.state.config.gates.prioritize_preemptors
            && self.state.wl(e.id).is_some_and(|w| preempted(w.obj.generation))
    }

    /// All entries: less borrowing first, then higher priority, then older.
    pub(super) fn classical_order(&self, entries: &[Entry]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        let by_priority = self.state.config.gates.priority_sorting_within_cohort;
        order.sort_by_cached_key(|&i| {
            let e = &entries[i];
            let borrowing = e.fits.or_else(|| e.assignment.as_ref().map(|a: &Assignment| a.borrowing));
            let age = self.state.wl(e.id).map(|w| {
                let priority = if by_priority { w.obj.effective_priority() } else { 0 };
                let (order, score) = w.ruled_order();
                (order, std::cmp::Reverse(priority), score, self.state.queue_order_timestamp(&w.obj))
            });
            (e.second.is_none(), !self.preempts_first(e), borrowing.unwrap_or(0), age)
        });
        order
    }

    fn by_priority_and_age(&self, a: &Entry, b: &Entry) -> Ordering {
        let (Some(a), Some(b)) = (self.state.wl(a.id), self.state.wl(b.id)) else { return Ordering::Equal };
        let priority = if self.state.config.gates.priority_sorting_within_cohort {
            b.obj.effective_priority().cmp(&a.obj.effective_priority())
        } else {
            Ordering::Equal
        };
        let ((a_order, a_score), (b_order, b_score)) = (a.ruled_order(), b.ruled_order());
        a_order.cmp(&b_order).then(priority).then(a_score.cmp(&b_score)).then_with(|| {
            self.state.queue_order_timestamp(&a.obj).cmp(&self.state.queue_order_timestamp(&b.obj))
        })
    }

    /// Takes the entry to process next out of `left`.
    pub(super) fn next_entry(
        &mut self,
        entries: &[Entry],
        left: &mut Vec<usize>,
        in_vain: &[usize],
    ) -> Option<usize> {
        if left.is_empty() {
            return None;
        }
        // Those that hold their quota come first: their shares don't change.
        let again = left.first().is_some_and(|&i| entries[i].second.is_some());
        // Kueue waits for ready pods within the cycle, and admits the one that it waited with.
        let waits = self.state.waits_for_pods;
        let waited = waits.and_then(|w| left.iter().copied().find(|&i| entries[i].id == w));
        let winner = if again {
            left[0]
        } else if let Some(waited) = waited {
            waited
        } else {
            let order = Arc::clone(&self.strategies.order);
            let turn = order.next(self, entries, left);
            self.before_turn(entries, left, in_vain, turn)
        };
        left.iter().position(|&i| i == winner).map(|at| left.remove(at))
    }

    /// The entries for which others were preempted again and again, in vain. Hardly ever any.
    pub(super) fn in_vain(&self, entries: &[Entry]) -> Vec<usize> {
        let in_vain = |e: &Entry| self.state.wl(e.id).is_some_and(|w| w.rounds.goes_first());
        (0..entries.len()).filter(|&i| in_vain(&entries[i])).collect()
    }

    /// Who goes before the one whose turn it is: one of `in_vain` in the same tree.
    fn before_turn(&self, entries: &[Entry], left: &[usize], in_vain: &[usize], turn: usize) -> usize {
        if in_vain.is_empty() || in_vain.contains(&turn) {
            return turn;
        }
        let root = |i: usize| self.state.cq(entries[i].cq).node.map(|n| self.state.tree.root(n));
        let here = root(turn);
        left.iter().copied().find(|i| in_vain.contains(i) && root(*i) == here).unwrap_or(turn)
    }

    /// Fair sharing: in the tree of one of the entries left, every cohort picks among its children the one
    /// with the least share once its candidate were admitted.
    fn tournament(&mut self, entries: &[Entry], left: &[usize]) -> usize {
        let first = left[0];
        let root = |q: &Queueing, i: usize| q.cq(entries[i].cq).node.map(|n| q.tree.root(n));
        let Some(top) = root(&self.state, first) else { return first };
        if self.state.cq(entries[first].cq).node == Some(top) {
            return first;
        }
        let mut shares: Map<(NodeId, usize), Share> = Map::default();
        let mut at_queue: Map<NodeId, usize> = Map::default();
        let here: Vec<usize> = left.iter().copied().filter(|&i| root(&self.state, i) == Some(top)).collect();
        for i in here {
            let Some(node) = self.state.cq(entries[i].cq).node else { continue };
            at_queue.insert(node, i);
            let mark = self.state.mark();
            let usage = entries[i].usage().to_vec();
            self.state.add_usage(entries[i].cq, &usage);
            let mut share = self.state.share(node);
            let ancestors: Vec<NodeId> = self.state.tree.ancestors(node).collect();
            for a in ancestors {
                shares.insert((a, i), share);
                share = self.state.share(a);
            }
            self.state.rollback(mark);
        }
        self.play(entries, top, &shares, &at_queue).unwrap_or(first)
    }

    fn play(
        &self,
        entries: &[Entry],
        cohort: NodeId,
        shares: &Map<(NodeId, usize), Share>,
        at_queue: &Map<NodeId, usize>,
    ) -> Option<usize> {
        let node = self.state.tree.node(cohort);
        let below = node.cohorts.iter().filter_map(|&c| self.play(entries, c, shares, at_queue));
        let here = node.queues.iter().filter_map(|q| at_queue.get(q).copied());
        below.chain(here).reduce(|best, i| {
            let (Some(a), Some(b)) = (shares.get(&(cohort, i)), shares.get(&(cohort, best))) else {
                return best;
            };
            if self.fairer(&entries[i], a, &entries[best], b) { i } else { best }
        })
    }

    fn fairer(&self, a: &Entry, a_share: &Share, b: &Entry, b_share: &Share) -> bool {
        let (first, other) = (self.preempts_first(a), self.preempts_first(b));
        if first != other {
            return first;
        }
        if self.state.config.gates.fair_prioritize_non_borrowing {
            let (x, y) = (a_share.is_borrowing_on(a.usage()), b_share.is_borrowing_on(b.usage()));
            if x != y {
                return !x;
            }
        }
        a_share.compare(b_share).then_with(|| self.by_priority_and_age(a, b)) == Ordering::Less
    }
}
