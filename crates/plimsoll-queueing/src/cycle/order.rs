//! In which order heads are processed (spec section 2.2).

use std::cmp::Ordering;

use super::Entry;
use crate::assign::Assignment;
use crate::ids::Map;
use crate::state::Queueing;
use crate::tree::{NodeId, Share};

impl Queueing {
    /// All entries: less borrowing first, then higher priority, then older.
    pub(super) fn classical_order(&self, entries: &[Entry]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        let borrowing = |i: usize| entries[i].assignment.as_ref().map_or(0, |a: &Assignment| a.borrowing);
        order.sort_by(|&a, &b| {
            let first = |i: usize| entries[i].second.is_none();
            let order = first(a).cmp(&first(b)).then_with(|| borrowing(a).cmp(&borrowing(b)));
            order.then_with(|| self.by_priority_and_age(&entries[a], &entries[b]))
        });
        order
    }

    fn by_priority_and_age(&self, a: &Entry, b: &Entry) -> Ordering {
        let (Some(a), Some(b)) = (self.wl(a.id), self.wl(b.id)) else { return Ordering::Equal };
        let priority = if self.config.gates.priority_sorting_within_cohort {
            b.obj.effective_priority().cmp(&a.obj.effective_priority())
        } else {
            Ordering::Equal
        };
        priority.then_with(|| self.waiting_since(&a.obj).cmp(&self.waiting_since(&b.obj)))
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
        let fair = self.config.fair_sharing.is_some() && !again;
        let winner = if fair { self.tournament(entries, left) } else { left[0] };
        let winner = if again { winner } else { self.before_turn(entries, left, in_vain, winner) };
        left.iter().position(|&i| i == winner).map(|at| left.remove(at))
    }

    /// Fair sharing: in the tree of one of the entries left, every cohort picks among its children the one
    /// with the least share once its candidate were admitted.
    fn tournament(&mut self, entries: &[Entry], left: &[usize]) -> usize {
        let first = left[0];
        let root = |q: &Self, i: usize| q.cq(entries[i].cq).node.map(|n| q.tree.root(n));
        let Some(top) = root(self, first) else { return first };
        if self.cq(entries[first].cq).node == Some(top) {
            return first;
        }
        let mut shares: Map<(NodeId, usize), Share> = Map::default();
        let mut at_queue: Map<NodeId, usize> = Map::default();
        let here: Vec<usize> = left.iter().copied().filter(|&i| root(self, i) == Some(top)).collect();
        for i in here {
            let Some(node) = self.cq(entries[i].cq).node else { continue };
            at_queue.insert(node, i);
            let mark = self.mark();
            let usage = entries[i].usage().to_vec();
            self.add_usage(entries[i].cq, &usage);
            let mut share = self.tree.share(node);
            let ancestors: Vec<NodeId> = self.tree.ancestors(node).collect();
            for a in ancestors {
                shares.insert((a, i), share);
                share = self.tree.share(a);
            }
            self.rollback(mark);
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
        let node = self.tree.node(cohort);
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
        if self.config.gates.fair_prioritize_non_borrowing {
            let (x, y) = (a_share.is_borrowing_on(a.usage()), b_share.is_borrowing_on(b.usage()));
            if x != y {
                return !x;
            }
        }
        a_share.compare(b_share).then_with(|| self.by_priority_and_age(a, b)) == Ordering::Less
    }
}
