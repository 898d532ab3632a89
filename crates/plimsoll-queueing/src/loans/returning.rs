//! Returning a loan: the borrower's tree does without it, and workloads that borrow in it are preempted until the rest fits, by the
//! rules of reclaiming within a cohort.

use std::cmp::Reverse;

use super::{LoanChange, QuotaLoan};
use crate::cond;
use crate::cycle::victim::Reason;
use crate::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::tree::NodeId;
use crate::{KubernetesEvent, Queueing};
use plimsoll_state::time::Time;

/// A workload that may have to go.
struct Candidate {
    id: WorkloadId,
    node: NodeId,
    frs: Vec<FlavorResource>,
}

impl Queueing {
    /// The borrower's next step with a loan that was asked back. Its tree has no quota of the loan any more; usage counts until the API
    /// is known to have taken a reservation back, so that no admission is under way that does not count.
    pub(super) fn return_loan(&mut self, loan: &QuotaLoan, now: Time) -> Option<LoanChange> {
        self.ensure_tree();
        let frs: Vec<FlavorResource> = self.lent_columns(loan).map(|(fr, _)| fr).collect();
        let Some(to) = self.tree.cohort(&loan.to) else { return Some(LoanChange::Return) };
        if self.overused(to, &frs).is_none() {
            return Some(LoanChange::Return);
        }
        for id in self.preempted_for_return(to, &frs) {
            self.preempt_for_return(loan, id, now);
        }
        let waits = format!("Waiting for workloads of cohort {} that use it to stop", loan.to);
        (loan.message != waits).then_some(LoanChange::Explain(waits))
    }

    /// The first cohort, from this one to the root, that uses more of one of these columns than it can without borrowing too much.
    fn overused(&self, to: NodeId, frs: &[FlavorResource]) -> Option<(NodeId, FlavorResource)> {
        std::iter::once(to)
            .chain(self.tree.ancestors(to))
            .find_map(|n| frs.iter().find(|fr| self.tree.is_overused(n, **fr)).map(|fr| (n, *fr)))
    }

    /// Workloads without which the cohort and those above it use no more than they can; those that are leaving count as gone.
    fn preempted_for_return(&mut self, to: NodeId, frs: &[FlavorResource]) -> Vec<WorkloadId> {
        let Some(queues) = self.trees.get(&self.tree.root(to)).cloned() else { return Vec::new() };
        let mark = self.tree.mark();
        for &cq in &*queues {
            for id in self.cq(cq).evicted.clone() {
                self.simulate_usage(id, false);
            }
        }
        let mut victims = Vec::new();
        let mut candidates: Option<Vec<Option<Candidate>>> = None;
        let (mut from, mut place) = (0, None);
        while let Some((over, fr)) = self.overused(to, frs) {
            let all = candidates.get_or_insert_with(|| self.candidates_to_return(&queues, frs));
            if place.replace((over, fr)) != Some((over, fr)) {
                from = 0;
            }
            // One that does not borrow doesn't begin to while others go.
            let may_go = |c: &Candidate| c.frs.contains(&fr) && self.borrows_below(c.node, over, fr);
            let found = (from..all.len()).find(|&i| all[i].as_ref().is_some_and(may_go));
            let Some(victim) = found.and_then(|i| all[i].take().map(|c| (i, c.id))) else { break };
            (from, _) = victim;
            self.simulate_usage(victim.1, false);
            victims.push(victim.1);
        }
        if self.overused(to, frs).is_none() {
            for i in (0..victims.len()).rev() {
                self.simulate_usage(victims[i], true);
                if self.overused(to, frs).is_none() {
                    victims.remove(i);
                } else {
                    self.simulate_usage(victims[i], false);
                }
            }
        }
        self.tree.rollback(mark);
        victims
    }

    fn simulate_usage(&mut self, id: WorkloadId, add: bool) {
        let Some(reservation) = self.quota_reservation(id) else { return };
        let Some(node) = self.cq(reservation.place).node else { return };
        for (fr, amount) in reservation.held.usage.clone() {
            if add { self.tree.add(node, fr, amount) } else { self.tree.remove(node, fr, amount) }
        }
    }

    /// Whether a ClusterQueue, and each cohort between it and `over`, uses more than its own.
    fn borrows_below(&self, queue: NodeId, over: NodeId, fr: FlavorResource) -> bool {
        let mut below = std::iter::once(queue).chain(self.tree.ancestors(queue)).take_while(|&n| n != over);
        let is_below = self.tree.ancestors(queue).any(|n| n == over);
        is_below && below.all(|n| self.tree.borrowing_with(n, fr, crate::amount::Amount::ZERO))
    }

    /// Workloads that use these columns and are not leaving, in the order in which Kueue preempts candidates: lower priority first,
    /// then those that reserved quota last.
    fn candidates_to_return(
        &self,
        queues: &[ClusterQueueId],
        frs: &[FlavorResource],
    ) -> Vec<Option<Candidate>> {
        let mut found = Vec::new();
        for &cq in queues {
            let Some(node) = self.cq(cq).node else { continue };
            for (_, reservation) in self.quota.at(cq) {
                let columns: Vec<FlavorResource> =
                    reservation.held.usage.iter().map(|(fr, _)| *fr).filter(|fr| frs.contains(fr)).collect();
                let id = reservation.owner;
                let Some(wl) = self.wl(id).filter(|w| !w.obj.status.is_true(cond::EVICTED)) else { continue };
                if columns.is_empty() {
                    continue;
                }
                let priority = wl.obj.effective_priority();
                let key = (wl.victim_order(), priority, Reverse(reservation.since), wl.uid().clone());
                found.push((key, Candidate { id, node, frs: columns }));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.into_iter().map(|(_, candidate)| Some(candidate)).collect()
    }

    fn preempt_for_return(&mut self, loan: &QuotaLoan, id: WorkloadId, now: Time) {
        let Some(held) = self.cq_holding(id) else { return };
        let message = format!(
            "Preempted to return the quota loan {} due to {}; preemptee path: {}",
            loan.name,
            Reason::Reclamation.text(),
            self.path(held),
        );
        let event = |reason: &str| KubernetesEvent::of_scheduler(false, reason, message.clone());
        let events = vec![event("EvictedDueToPreempted"), event("Preempted")];
        self.edit(id, now, events, |edit| {
            edit.set(cond::PREEMPTED, true, Reason::Reclamation.as_str(), &message);
            edit.evict("Preempted", "", &message);
        });
    }
}
