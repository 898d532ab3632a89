//! Preemption by priority and hierarchy (spec section 2.6.1).

use super::{Need, Reason, Target};
use crate::amount::Amount;
use crate::cond;
use crate::ids::Fr;
use crate::pending::WlId;
use crate::state::{CqId, Queueing};
use crate::tree::NodeId;

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

struct Candidate {
    id: WlId,
    cq: CqId,
    ground: Ground,
    /// Lowest cohort above both the candidate and the preemptor.
    common: Option<NodeId>,
}

impl Queueing {
    pub(super) fn classical_targets(&mut self, need: &Need) -> Vec<Target> {
        let own = self.own_candidates(need);
        let (near, far) = self.cohort_candidates(need);
        let (no_others, no_near) = (near.is_empty() && far.is_empty(), near.is_empty());
        let candidates = self.in_order(need, [near, far, own]);
        let forbidden = !self.cq(need.cq).rules.preemption.borrow_within_cohort.lower_priority;
        let under = need
            .frs
            .iter()
            .all(|&fr| self.tree.quota(need.node, fr).nominal > self.tree.usage(need.node, fr));
        let attempts: &[bool] = if no_others || (forbidden && !under) {
            &[true]
        } else if forbidden && no_near {
            &[false, true]
        } else {
            &[true, false]
        };
        for &borrow in attempts {
            let mark = self.mark();
            let mut targets = Vec::new();
            for c in &candidates {
                if !self.still_valid(need, c, borrow) {
                    continue;
                }
                self.take_out(c.id);
                targets.push(Target { id: c.id, reason: c.ground.reason() });
                if self.need_fits(need, borrow) {
                    self.fill_back(need, &mut targets, borrow, |_, _, _| true);
                    return targets;
                }
            }
            self.rollback(mark);
        }
        Vec::new()
    }

    /// Sorts each list, then puts those already evicted of all lists before the rest of all lists.
    fn in_order(&self, need: &Need, mut lists: [Vec<Candidate>; 3]) -> Vec<Candidate> {
        let (mut evicted, mut rest) = (Vec::new(), Vec::new());
        for list in &mut lists {
            list.sort_by(|a, b| self.compare_candidates(a.id, b.id, need.cq, true));
            for c in list.drain(..) {
                let gone = self.wl(c.id).is_some_and(|w| w.obj.status.is_true(cond::EVICTED));
                if gone { evicted.push(c) } else { rest.push(c) }
            }
        }
        evicted.append(&mut rest);
        evicted
    }

    /// Whether a candidate may still be taken after others were.
    fn still_valid(&self, need: &Need, c: &Candidate, borrow: bool) -> bool {
        if c.cq == need.cq {
            return true;
        }
        if borrow && c.ground == Ground::WithoutBorrowing {
            return false;
        }
        let Some(node) = self.cq(c.cq).node else { return false };
        std::iter::once(node)
            .chain(self.tree.ancestors(node).take_while(|&n| Some(n) != c.common))
            .all(|n| !self.tree.within_nominal(n, &need.frs))
    }

    fn own_candidates(&self, need: &Need) -> Vec<Candidate> {
        let mut out = Vec::new();
        if self.cq(need.cq).rules.preemption.within_cluster_queue != 0 {
            self.collect_from(need, need.cq, None, false, &mut out);
        }
        out
    }

    /// Candidates of other ClusterQueues: those over which the preemptor has the advantage of being nearer
    /// to the quota, and the others.
    fn cohort_candidates(&self, need: &Need) -> (Vec<Candidate>, Vec<Candidate>) {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        if self.cq(need.cq).rules.preemption.reclaim_within_cohort == 0 {
            return (near, far);
        }
        let (mut advantage, mut remaining) = self.fit_in_quota(need.node, &need.usage);
        let mut previous = None;
        for root in self.tree.ancestors(need.node) {
            let list = if advantage { &mut near } else { &mut far };
            self.collect_in_subtree(need, root, root, previous, advantage, list);
            let (fits, rest) = self.fit_in_quota(root, &remaining);
            advantage = advantage || fits;
            (remaining, previous) = (rest, Some(root));
        }
        (near, far)
    }

    /// Whether the requests fit the node's quota on top of its usage, and what of them the node can't
    /// take from what is local to it.
    fn fit_in_quota(&self, n: NodeId, requests: &[(Fr, Amount)]) -> (bool, Vec<(Fr, Amount)>) {
        let fits = requests.iter().all(|&(fr, a)| !self.tree.borrowing_with(n, fr, a));
        let rest = requests
            .iter()
            .map(|&(fr, a)| (fr, a.sub(self.tree.local_available(n, fr)).at_least_zero()))
            .collect();
        (fits, rest)
    }

    /// Collects from all queues below `at` that use more than their quota, leaving out the subtree `skip`
    /// and every cohort that keeps to its quota.
    fn collect_in_subtree(
        &self,
        need: &Need,
        at: NodeId,
        common: NodeId,
        skip: Option<NodeId>,
        advantage: bool,
        out: &mut Vec<Candidate>,
    ) {
        let mut stack = vec![at];
        while let Some(n) = stack.pop() {
            let node = self.tree.node(n);
            let deeper = node.cohorts.iter().copied();
            stack.extend(deeper.filter(|&c| Some(c) != skip && !self.tree.within_nominal(c, &need.frs)));
            for &q in &node.queues {
                if q != need.node
                    && !self.tree.within_nominal(q, &need.frs)
                    && let Some(cq) = self.cq_of_node(q)
                {
                    self.collect_from(need, cq, Some(common), advantage, out);
                }
            }
        }
    }

    fn collect_from(
        &self,
        need: &Need,
        cq: CqId,
        common: Option<NodeId>,
        advantage: bool,
        out: &mut Vec<Candidate>,
    ) {
        for id in self.holders_of(cq) {
            if let Some(ground) = self.ground(need, id, cq, advantage) {
                out.push(Candidate { id, cq, ground, common });
            }
        }
    }

    fn ground(&self, need: &Need, id: WlId, cq: CqId, advantage: bool) -> Option<Ground> {
        let (wl, preemptor) = (self.wl(id)?, self.wl(need.id)?);
        let rules = self.cq(need.cq).rules.preemption;
        let own = cq == need.cq;
        let policy = if own { rules.within_cluster_queue } else { rules.reclaim_within_cohort };
        if !self.uses_any(wl, &need.frs) || !self.may_preempt(need.id, id, policy, own) {
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
