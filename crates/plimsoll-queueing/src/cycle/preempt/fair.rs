//! Preemption under fair sharing (Kueue KEP-1714, `pkg/scheduler/preemption/fairsharing`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::sort::merge_sort;
use super::{PreemptionContext, Reason, Target};
use crate::config::FairStrategy;
use crate::cycle::Cycle;
use crate::ids::{ClusterQueueId, WorkloadId};
use crate::model::PreemptionPolicy;
use crate::tree::{NodeId, Share};
use plimsoll_state::collect::InsertEach as _;

/// Candidates per ClusterQueue, and which nodes have nothing more to give.
struct Order {
    candidates: BTreeMap<NodeId, VecDeque<WorkloadId>>,
    pruned: BTreeSet<NodeId>,
    /// Cohorts above the preemptor.
    path: BTreeSet<NodeId>,
}

/// A target taken, and the strategy by which it was fair to take it, if one was asked.
struct FairTarget {
    target: Target,
    rule: Option<FairStrategy>,
}

/// Whether a target is of the preemptor's own ClusterQueue.
fn has_own(taken: &[FairTarget]) -> bool {
    taken.iter().any(|p| p.target.reason == Reason::ClusterQueue)
}

impl Order {
    fn has(&self, queue: NodeId) -> bool {
        self.candidates.get(&queue).is_some_and(|c| !c.is_empty())
    }

    fn pop(&mut self, queue: NodeId) -> Option<WorkloadId> {
        self.candidates.get_mut(&queue)?.pop_front()
    }
}

impl Cycle<'_> {
    pub(super) fn fair_targets(
        &mut self,
        need: &PreemptionContext,
        strategies: &[FairStrategy],
    ) -> Vec<Target> {
        let candidates = self.fair_candidates(need);
        let none = candidates.is_empty() && !self.has_preemption_rules(need);
        let (false, Some(&first)) = (none, strategies.first()) else { return Vec::new() };
        // Shares have to include the incoming workload.
        self.state.add_usage(need.cq, &need.usage);
        let mut taken = Vec::new();
        let mut retry = Vec::new();
        let mut fits = self.first_strategy(need, candidates, first, &mut taken, &mut retry);
        if !fits && self.state.config.gates.fair_reevaluate && has_own(&taken) {
            // The preemptor's share is lower now (kubernetes-sigs/kueue pull request 14128).
            let again = std::mem::take(&mut retry);
            fits = self.first_strategy(need, again, first, &mut taken, &mut retry);
        }
        if !fits && strategies.len() > 1 {
            fits = self.second_strategy(need, retry, &mut taken);
        }
        self.state.remove_usage(need.cq, &need.usage);
        let mut targets: Vec<Target> = taken.iter().map(|p| p.target).collect();
        if !fits && !self.take_configured(need, &mut targets, true) {
            return Vec::new();
        }
        let path: BTreeSet<NodeId> = self.state.tree.ancestors(need.node).insert_each();
        let again = self.state.wl(need.id).is_some_and(|w| w.rounds.again());
        self.fill_back(need, &mut targets, true, |q, left, i| {
            !again || q.still_fair(need, &path, &taken, left, i)
        });
        if !self.find_what_is_lacking(need, &mut targets, true) {
            self.node_search.lacked = true;
            return Vec::new();
        }
        self.shrink_targets(need, &mut targets, true);
        targets
    }

    /// Whether all other targets may still be taken once `left[i]` stays (it has been put back).
    ///
    /// A target near the preemptor raises the preemptor's share by staying. Kueue doesn't look again, and a
    /// target that was fair only while the other was gone can then be admitted in place of the preemptor and be
    /// preempted by it, without end (kubernetes-sigs/kueue issue 14543). Asked from the third round in vain on.
    fn still_fair(
        &mut self,
        need: &PreemptionContext,
        path: &BTreeSet<NodeId>,
        taken: &[FairTarget],
        left: &[Target],
        i: usize,
    ) -> bool {
        let Some(node) = self.node_held(left[i].id) else { return true };
        let root = self.state.tree.root(need.node);
        let near =
            node == need.node || self.state.tree.ancestors(node).any(|a| a != root && path.contains(&a));
        let stays = |id: WorkloadId| id == left[i].id || !left.iter().any(|t| t.id == id);
        if !near || !taken.iter().any(|p| p.rule.is_some() && !stays(p.target.id)) {
            return true;
        }
        let mark = self.state.mark();
        self.state.add_usage(need.cq, &need.usage);
        let fair = taken.iter().filter(|p| p.rule.is_some() && !stays(p.target.id)).all(|p| {
            let mark = self.state.mark();
            self.state.simulate_workload_addition(p.target.id);
            let fair = self.goes_first(need, path, p.target.id);
            self.state.rollback(mark);
            fair
        });
        self.state.rollback(mark);
        fair
    }

    /// Whether the preemptor goes before a workload that is there, were both to be admitted.
    fn goes_first(&self, need: &PreemptionContext, path: &BTreeSet<NodeId>, id: WorkloadId) -> bool {
        let Some(node) = self.node_held(id) else { return true };
        let (mine, theirs) = self.below_common(need, path, node);
        self.state.share(mine).compare(&self.state.share(theirs)) != Ordering::Greater
    }

    /// The strategies of KEP-1714: the preemptor's share against the target's without, or with, the candidate.
    fn passes(
        &mut self,
        rule: FairStrategy,
        id: WorkloadId,
        theirs: NodeId,
        new: &Share,
        old: &Share,
    ) -> bool {
        match rule {
            FairStrategy::LessThanOrEqualToFinalShare => {
                let mark = self.state.mark();
                self.state.simulate_usage_removal(id);
                let after = self.state.share(theirs);
                self.state.rollback(mark);
                new.compare(&after) != Ordering::Greater
            }
            FairStrategy::LessThanInitialShare => new.compare(old) == Ordering::Less,
        }
    }

    /// The ClusterQueue a workload holds quota of, in the tree.
    fn node_held(&self, id: WorkloadId) -> Option<NodeId> {
        self.state.cq_holding(id).and_then(|c| self.state.cq(c).node)
    }

    fn fair_candidates(&self, need: &PreemptionContext) -> Vec<WorkloadId> {
        let rules = self.state.cq(need.cq).rules.preemption;
        let fits = |id: WorkloadId, policy: PreemptionPolicy| {
            self.may_preempt(need.id, id, policy)
                && self.state.wl(id).is_some_and(|w| self.uses_any(w, &need.frs))
        };
        let mut out: Vec<WorkloadId> = Vec::new();
        if rules.within_cluster_queue != PreemptionPolicy::Never {
            let own = self.holders_of(need.cq);
            out.extend(own.filter(|&w| fits(w, rules.within_cluster_queue)));
        }
        if rules.reclaim_within_cohort != PreemptionPolicy::Never
            && self.state.tree.node(need.node).parent.is_some()
        {
            for (node, cq) in self.queues_below(self.state.tree.root(need.node)) {
                if node == need.node || self.state.tree.within_nominal(node, &need.frs) {
                    continue;
                }
                let others = self.holders_of(cq);
                out.extend(others.filter(|&w| fits(w, rules.reclaim_within_cohort)));
            }
        }
        merge_sort(&mut out, |&a, &b| self.compare_candidates(a, b, need.cq, true));
        out
    }

    fn order(&self, need: &PreemptionContext, candidates: Vec<WorkloadId>) -> Order {
        let mut by_queue: BTreeMap<NodeId, VecDeque<WorkloadId>> = BTreeMap::new();
        for id in candidates {
            if let Some(node) = self.node_held(id) {
                by_queue.entry(node).or_default().push_back(id);
            }
        }
        Order {
            candidates: by_queue,
            pruned: BTreeSet::new(),
            path: self.state.tree.ancestors(need.node).insert_each(),
        }
    }

    /// The queue to take from next; `None` when no queue has anything to give.
    fn next_queue(&self, need: &PreemptionContext, order: &mut Order) -> Option<NodeId> {
        if self.state.tree.node(need.node).parent.is_none() {
            return (!order.pruned.contains(&need.node) && order.has(need.node)).then_some(need.node);
        }
        let root = self.state.tree.root(need.node);
        while !order.pruned.contains(&root) {
            if let Some(queue) = self.descend(need, order, root) {
                return Some(queue);
            }
        }
        None
    }

    /// Goes down to the queue with the highest share; `None` if that only pruned something.
    fn descend(&self, need: &PreemptionContext, order: &mut Order, root: NodeId) -> Option<NodeId> {
        let mut at = root;
        loop {
            let queue = self.highest_queue(need, order, at);
            let cohort = self.highest_cohort(order, at);
            match (queue, cohort) {
                (None, None) => {
                    order.pruned.insert(at);
                    return None;
                }
                (Some((q, _)), None) => return Some(q),
                (None, Some((c, _))) => at = c,
                (Some((q, qs)), Some((c, cs))) => {
                    if cs.compare(&qs) == Ordering::Less {
                        return Some(q);
                    }
                    at = c;
                }
            }
        }
    }

    fn highest_queue(
        &self,
        need: &PreemptionContext,
        order: &mut Order,
        at: NodeId,
    ) -> Option<(NodeId, Share)> {
        let mut best: Option<(NodeId, Share)> = None;
        for &q in &self.state.tree.node(at).queues {
            if order.pruned.contains(&q) {
                continue;
            }
            let share = self.state.share(q);
            if (!share.is_borrowing() && q != need.node) || !order.has(q) {
                order.pruned.insert(q);
                continue;
            }
            let better = match &best {
                None => share.compare(&Share::lowest()) == Ordering::Greater,
                Some((b, bs)) => match share.compare(bs) {
                    Ordering::Equal => self.first_candidate_before(need, order, q, *b),
                    o @ (Ordering::Less | Ordering::Greater) => o == Ordering::Greater,
                },
            };
            if better {
                best = Some((q, share));
            }
        }
        best
    }

    fn first_candidate_before(&self, need: &PreemptionContext, order: &Order, a: NodeId, b: NodeId) -> bool {
        let first = |n: NodeId| order.candidates.get(&n).and_then(|c| c.front()).copied();
        let (Some(a), Some(b)) = (first(a), first(b)) else { return false };
        self.compare_candidates(a, b, need.cq, false) == Ordering::Less
    }

    fn highest_cohort(&self, order: &mut Order, at: NodeId) -> Option<(NodeId, Share)> {
        let mut best: Option<(NodeId, Share)> = None;
        for &c in &self.state.tree.node(at).cohorts {
            if order.pruned.contains(&c) {
                continue;
            }
            let share = self.state.share(c);
            if !share.is_borrowing() && !order.path.contains(&c) {
                order.pruned.insert(c);
            } else if best.as_ref().is_none_or(|(_, b)| share.compare(b) != Ordering::Less) {
                best = Some((c, share));
            }
        }
        best
    }

    /// The nodes just below the lowest common cohort: the preemptor's and the target's.
    fn below_common(
        &self,
        need: &PreemptionContext,
        path: &BTreeSet<NodeId>,
        target: NodeId,
    ) -> (NodeId, NodeId) {
        let common = self.state.tree.ancestors(target).find(|a| path.contains(a));
        let below = |n: NodeId| {
            let up = self.state.tree.ancestors(n).take_while(|&a| Some(a) != common);
            up.last().unwrap_or(n)
        };
        (below(need.node), below(target))
    }

    /// As [`Cycle::is_spared`], where usage includes the need.
    fn is_spared_fairly(&mut self, need: &PreemptionContext, id: WorkloadId) -> bool {
        let mark = self.state.mark();
        self.state.remove_usage(need.cq, &need.usage);
        let spared = self.is_spared(need, id, true);
        self.state.rollback(mark);
        spared
    }

    fn take(
        &mut self,
        need: &PreemptionContext,
        id: WorkloadId,
        reason: Reason,
        rule: Option<FairStrategy>,
        taken: &mut Vec<FairTarget>,
    ) -> bool {
        self.state.simulate_workload_removal(id);
        self.take_out_nodes(need, id);
        taken.push(FairTarget { target: Target::new(id, reason), rule });
        let mark = self.state.mark();
        self.state.remove_usage(need.cq, &need.usage);
        let fits = self.need_fits(need, true);
        self.state.rollback(mark);
        fits
    }

    fn first_strategy(
        &mut self,
        need: &PreemptionContext,
        candidates: Vec<WorkloadId>,
        strategy: FairStrategy,
        taken: &mut Vec<FairTarget>,
        retry: &mut Vec<WorkloadId>,
    ) -> bool {
        let mut order = self.order(need, candidates);
        let entitled = self.state.config.gates.fair_preempt_within_nominal
            && self.state.tree.within_nominal(need.node, &need.frs);
        while let Some(queue) = self.next_queue(need, &mut order) {
            if queue == need.node || entitled {
                let reason = if queue == need.node { Reason::ClusterQueue } else { Reason::Reclamation };
                let Some(id) = order.pop(queue) else { continue };
                if !self.is_spared_fairly(need, id) && self.take(need, id, reason, None, taken) {
                    return true;
                }
                continue;
            }
            let (mine, theirs) = self.below_common(need, &order.path, queue);
            let (new, old) = (self.state.share(mine), self.state.share(theirs));
            if new.is_infinite() && !old.is_infinite() {
                while let Some(id) = order.pop(queue) {
                    retry.push(id);
                }
                continue;
            }
            while let Some(id) = order.pop(queue) {
                if !self.passes(strategy, id, theirs, &new, &old) {
                    retry.push(id);
                    continue;
                }
                if self.is_spared_fairly(need, id) {
                    continue;
                }
                if self.take(need, id, Reason::FairSharing, Some(strategy), taken) {
                    return true;
                }
                break;
            }
        }
        false
    }

    /// Once per queue, over those the first strategy refused: the preemptor's share must be less than the
    /// target's now.
    fn second_strategy(
        &mut self,
        need: &PreemptionContext,
        retry: Vec<WorkloadId>,
        taken: &mut Vec<FairTarget>,
    ) -> bool {
        let mut order = self.order(need, retry);
        while let Some(queue) = self.next_queue(need, &mut order) {
            let (mine, theirs) = self.below_common(need, &order.path, queue);
            let passed = self.state.share(mine).compare(&self.state.share(theirs)) == Ordering::Less;
            let Some(id) = order.pop(queue) else { continue };
            let rule = Some(FairStrategy::LessThanInitialShare);
            let passed = passed && !self.is_spared_fairly(need, id);
            if passed && self.take(need, id, Reason::FairSharing, rule, taken) {
                return true;
            }
            order.pruned.insert(queue);
        }
        false
    }

    /// ClusterQueues that take part in scheduling below a node.
    pub(crate) fn queues_below(&self, root: NodeId) -> Vec<(NodeId, ClusterQueueId)> {
        let (mut stack, mut out) = (vec![root], Vec::new());
        while let Some(n) = stack.pop() {
            let node = self.state.tree.node(n);
            stack.extend(&node.cohorts);
            out.extend(node.queues.iter().filter_map(|&q| Some((q, self.state.cq_of_node(q)?))));
        }
        out
    }
}
