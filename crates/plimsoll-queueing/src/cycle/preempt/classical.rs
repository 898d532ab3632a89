//! Preemption by priority and hierarchy (Kueue `pkg/scheduler/preemption/classical`).

use std::ops::ControlFlow;

use super::sort::merge_sort;
use super::{PreemptionContext, Reason, Target};
use crate::amount::Amount;
use crate::cond;
use crate::cycle::Cycle;
use crate::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::model::PreemptionPolicy;
use crate::tree::NodeId;

/// After how many victims that were not enough a search asks whether all candidates would be: most searches that succeed
/// end before.
const VICTIMS_IN_VAIN: usize = 8;

/// On what ground a workload may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// It is in the same ClusterQueue.
    Own,
    /// The preemptor is nearer to the quota it uses.
    Nearer,
    /// Only if the preemptor borrows nothing in the end.
    WithoutBorrowing,
    /// Even if the preemptor borrows.
    WhileBorrowing,
}

impl Ground {
    fn reason(self) -> Reason {
        match self {
            Self::Own => Reason::ClusterQueue,
            Self::Nearer | Self::WithoutBorrowing => Reason::Reclamation,
            Self::WhileBorrowing => Reason::WhileBorrowing,
        }
    }
}

#[derive(Clone)]
struct Candidate {
    id: WorkloadId,
    cq: ClusterQueueId,
    ground: Ground,
    /// Lowest cohort above both the candidate and the preemptor.
    common: Option<NodeId>,
}

impl Cycle<'_> {
    pub(super) fn classical_targets(&mut self, need: &PreemptionContext) -> Vec<Target> {
        if let Some(targets) = self.evicted_targets(need) {
            return targets;
        }
        let lists = self.candidates(need, false);
        let [near, far, _] = &lists;
        let attempts = self.attempts(need, !(near.is_empty() && far.is_empty()), !near.is_empty());
        let ruled = self.has_preemption_rules(need);
        let possible = |borrow: &bool| ruled || self.could_fit(need, &lists, *borrow);
        let attempts: Vec<bool> = attempts.iter().copied().filter(possible).collect();
        if attempts.is_empty() {
            return Vec::new();
        }
        let candidates = self.in_order(need, lists);
        attempts
            .into_iter()
            .find_map(|borrow| self.first_that_fit(need, &candidates, borrow, ruled))
            .unwrap_or_default()
    }

    /// The targets, where workloads that are evicted already are enough: they come first in the order of candidates, so
    /// that the others need not be sorted. A preemptor that waits for its victims finds them so, cycle after cycle.
    fn evicted_targets(&mut self, need: &PreemptionContext) -> Option<Vec<Target>> {
        // With usage of LocalQueues the order is not one of single candidates.
        if self.state.config.admission_fair_sharing.is_some() {
            return None;
        }
        let lists = self.candidates(need, true);
        if lists.iter().all(Vec::is_empty) {
            return None;
        }
        let (others, near) = self.has_candidates_elsewhere(need);
        let borrow = *self.attempts(need, others, near).first()?;
        let candidates = self.in_order(need, lists);
        self.first_that_fit(need, &candidates, borrow, false)
    }

    /// Whether the preemptor may borrow: what is tried, in this order. `others`: other ClusterQueues have candidates;
    /// `near`: some over which the preemptor has the advantage.
    fn attempts(&self, need: &PreemptionContext, others: bool, near: bool) -> &'static [bool] {
        let forbidden = !self.state.cq(need.cq).rules.preemption.borrow_within_cohort.lower_priority;
        let tree = &self.state.tree;
        let under = need.frs.iter().all(|&fr| tree.quota(need.node, fr).nominal > tree.usage(need.node, fr));
        if !others || (forbidden && !under) {
            &[true]
        } else if forbidden && !near {
            &[false, true]
        } else {
            &[true, false]
        }
    }

    /// Takes candidates in order until the need fits, and gives back those that are not necessary. `ruled`: candidates that
    /// rules select come after them.
    fn first_that_fit(
        &mut self,
        need: &PreemptionContext,
        candidates: &[Candidate],
        borrow: bool,
        ruled: bool,
    ) -> Option<Vec<Target>> {
        let mark = self.state.mark();
        let (mut targets, mut fits, mut hopeless) = (Vec::new(), false, false);
        for c in candidates {
            if !self.still_valid(need, c, borrow) || self.is_spared(need, c.id, borrow) {
                continue;
            }
            self.state.simulate_workload_removal(c.id);
            self.take_out_nodes(need, c.id);
            targets.push(Target::new(c.id, c.ground.reason()));
            fits = self.need_fits(need, borrow);
            hopeless = !fits
                && !ruled
                && targets.len() == VICTIMS_IN_VAIN
                && self.is_hopeless_on_nodes(need, candidates.iter().map(|c| c.id));
            if fits || hopeless {
                break;
            }
        }
        if fits || (ruled && !hopeless && self.take_configured(need, &mut targets, borrow)) {
            self.fill_back(need, &mut targets, borrow, |_, _, _| true);
            if self.find_what_is_lacking(need, &mut targets, borrow) {
                self.shrink_targets(need, &mut targets, borrow);
                return Some(targets);
            }
            self.node_search.lacked = true;
        }
        self.put_all_back();
        self.state.rollback(mark);
        None
    }

    /// Whether the need might fit once all candidates were gone: what is available grows by no more than they use. Saves
    /// most searches that find nothing.
    fn could_fit(&self, need: &PreemptionContext, lists: &[Vec<Candidate>], borrow: bool) -> bool {
        need.usage.iter().all(|&(fr, wanted)| {
            let (mut own, mut others) = (Amount::ZERO, Amount::ZERO);
            for c in lists.iter().flatten().filter(|c| !borrow || c.ground != Ground::WithoutBorrowing) {
                let held = self.state.quota_reservation(c.id).into_iter().flat_map(|r| &r.held.usage);
                let sum = if c.cq == need.cq { &mut own } else { &mut others };
                held.filter(|(f, _)| *f == fr).for_each(|(_, a)| *sum = sum.add(*a));
            }
            let tree = &self.state.tree;
            let within = tree.usage(need.node, fr).sub(own).add(wanted) <= tree.subtree_quota(need.node, fr);
            (borrow || within) && wanted <= tree.available(need.node, fr).add(own).add(others)
        })
    }

    /// Sorts each list, then puts those already evicted of all lists before the rest of all lists, and between the two those
    /// that were asked to shrink.
    fn in_order(&self, need: &PreemptionContext, mut lists: [Vec<Candidate>; 3]) -> Vec<Candidate> {
        let (mut evicted, mut shrinking, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let partial = self.state.config.gates.partial_preemption;
        for list in &mut lists {
            self.sort_candidates(list, need.cq);
            for c in list.drain(..) {
                let gone = self.state.wl(c.id).is_some_and(|w| w.obj.status.is_true(cond::EVICTED));
                let asked = || self.state.shrinkable(c.id).is_some_and(|s| s.asked);
                if gone {
                    evicted.push(c);
                } else if partial && asked() {
                    shrinking.push(c);
                } else {
                    rest.push(c);
                }
            }
        }
        evicted.append(&mut shrinking);
        evicted.append(&mut rest);
        evicted
    }

    fn sort_candidates(&self, list: &mut [Candidate], cq: ClusterQueueId) {
        if self.state.config.admission_fair_sharing.is_some() {
            merge_sort(list, |a, b| self.compare_candidates(a.id, b.id, cq, true));
        } else {
            list.sort_by_cached_key(|c| self.state.wl(c.id).map(|w| (self.candidate_key(w, cq), c.id)));
        }
    }

    /// Whether a candidate may still be taken after others were.
    fn still_valid(&self, need: &PreemptionContext, c: &Candidate, borrow: bool) -> bool {
        if c.cq == need.cq {
            return true;
        }
        if borrow && c.ground == Ground::WithoutBorrowing {
            return false;
        }
        let Some(node) = self.state.cq(c.cq).node else { return false };
        std::iter::once(node)
            .chain(self.state.tree.ancestors(node).take_while(|&n| Some(n) != c.common))
            .all(|n| !self.state.tree.within_nominal(n, &need.frs))
    }

    /// Candidates of other ClusterQueues over which the preemptor has the advantage of being nearer to the quota, other
    /// candidates of other ClusterQueues, and those of its own. `evicted`: only those that are evicted already.
    fn candidates(&self, need: &PreemptionContext, evicted: bool) -> [Vec<Candidate>; 3] {
        let (mut near, mut far, mut own) = (Vec::new(), Vec::new(), Vec::new());
        if self.state.cq(need.cq).rules.preemption.within_cluster_queue != PreemptionPolicy::Never {
            self.collect_from(need, need.cq, None, false, evicted, &mut own);
        }
        self.visit_others(need, &mut |cq, common, advantage| {
            let list = if advantage { &mut near } else { &mut far };
            self.collect_from(need, cq, Some(common), advantage, evicted, list);
            ControlFlow::Continue(())
        });
        [near, far, own]
    }

    /// Whether other ClusterQueues have candidates, and whether they have some over which the preemptor has the advantage.
    fn has_candidates_elsewhere(&self, need: &PreemptionContext) -> (bool, bool) {
        let (mut others, mut near) = (false, false);
        self.visit_others(need, &mut |cq, _, advantage| {
            let candidate = |id| self.ground(need, id, cq, advantage).is_some();
            if (!others || advantage) && self.holders_of(cq).any(candidate) {
                (others, near) = (true, advantage);
            }
            if near { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (others, near)
    }

    /// Visits the ClusterQueues of the tree that use more than their quota: each with the lowest cohort above it and the
    /// preemptor, and whether the preemptor has the advantage of being nearer to the quota.
    fn visit_others(
        &self,
        need: &PreemptionContext,
        visit: &mut dyn FnMut(ClusterQueueId, NodeId, bool) -> ControlFlow<()>,
    ) {
        if self.state.cq(need.cq).rules.preemption.reclaim_within_cohort == PreemptionPolicy::Never {
            return;
        }
        let (mut advantage, mut remaining) = self.fit_in_quota(need.node, &need.usage);
        let mut previous = None;
        for root in self.state.tree.ancestors(need.node) {
            let mut visit = |cq| visit(cq, root, advantage);
            if self.visit_subtree(need, root, previous, &mut visit).is_break() {
                return;
            }
            let (fits, rest) = self.fit_in_quota(root, &remaining);
            advantage = advantage || fits;
            (remaining, previous) = (rest, Some(root));
        }
    }

    /// Whether the requests fit the node's quota on top of its usage, and what of them the node can't
    /// take from what is local to it.
    fn fit_in_quota(
        &self,
        n: NodeId,
        requests: &[(FlavorResource, Amount)],
    ) -> (bool, Vec<(FlavorResource, Amount)>) {
        let fits = requests.iter().all(|&(fr, a)| !self.state.tree.borrowing_with(n, fr, a));
        let rest = requests
            .iter()
            .map(|&(fr, a)| (fr, a.sub(self.state.tree.local_available(n, fr)).at_least_zero()))
            .collect();
        (fits, rest)
    }

    /// Visits all ClusterQueues below `at` that use more than their quota, leaving out the subtree `skip` and every cohort
    /// that keeps to its quota.
    fn visit_subtree(
        &self,
        need: &PreemptionContext,
        at: NodeId,
        skip: Option<NodeId>,
        visit: &mut dyn FnMut(ClusterQueueId) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut stack = vec![at];
        while let Some(n) = stack.pop() {
            let node = self.state.tree.node(n);
            let deeper = node.cohorts.iter().copied();
            stack
                .extend(deeper.filter(|&c| Some(c) != skip && !self.state.tree.within_nominal(c, &need.frs)));
            for &q in &node.queues {
                if q != need.node
                    && !self.state.tree.within_nominal(q, &need.frs)
                    && let Some(cq) = self.state.cq_of_node(q)
                {
                    visit(cq)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn collect_from(
        &self,
        need: &PreemptionContext,
        cq: ClusterQueueId,
        common: Option<NodeId>,
        advantage: bool,
        evicted: bool,
        out: &mut Vec<Candidate>,
    ) {
        let candidate = |id| {
            let ground = self.ground(need, id, cq, advantage)?;
            Some(Candidate { id, cq, ground, common })
        };
        if evicted {
            let there = |&id: &WorkloadId| !self.state.is_removed(id);
            out.extend(self.state.cq(cq).evicted.iter().copied().filter(there).filter_map(candidate));
        } else {
            out.extend(self.holders_of(cq).filter_map(candidate));
        }
    }

    fn ground(
        &self,
        need: &PreemptionContext,
        id: WorkloadId,
        cq: ClusterQueueId,
        advantage: bool,
    ) -> Option<Ground> {
        let (wl, preemptor) = (self.state.wl(id)?, self.state.wl(need.id)?);
        let rules = self.state.cq(need.cq).rules.preemption;
        let own = cq == need.cq;
        let policy = if own { rules.within_cluster_queue } else { rules.reclaim_within_cohort };
        if !self.uses_any(wl, &need.frs) || !self.may_preempt(need.id, id, policy) {
            return None;
        }
        if own {
            return Some(Ground::Own);
        }
        if advantage {
            return Some(Ground::Nearer);
        }
        let borrow = rules.borrow_within_cohort;
        let priority = wl.obj.effective_priority();
        let above = priority >= preemptor.obj.effective_priority()
            || borrow.max_priority_threshold.is_some_and(|t| priority > i64::from(t));
        Some(if !borrow.lower_priority || above { Ground::WithoutBorrowing } else { Ground::WhileBorrowing })
    }
}
