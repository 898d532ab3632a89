//! Carries out what a cycle decided: conditions, queues, metrics and actions.

use super::assign::{Assignment, LastAssignment, why};
use super::entry::{NO_LONGER_FITS, RequeueReason};
use super::plan::{AdmittedNodes, Decision, NodesPlan, Plan, Requeue, Retry, StillInadmissible};
use super::victim::{Reason, Target};
use crate::Queueing;
use crate::account::is_admissible;
use crate::ids::{ClusterQueueId, WorkloadId};
use crate::model::{Admission, CheckState, Delayed, PodSetAssignment, QueueingStrategy, Workload};
use crate::pod_sets::looks_at_pods;
use crate::state::WorkloadInfo;
use crate::{Action, KubernetesEvent, RecordCause, WorkloadEvent, cond};
use plimsoll_state::time::{Duration, Time};

/// When a search among flavors starts anew that ended with flavors tried before others gave something back. In Kueue
/// it waits for the next event, which may never come; whatever requeues others comes first here, too.
const SCAN_AGAIN: Duration = Duration::from_seconds(10);

impl Queueing {
    /// Carries out a plan.
    pub(super) fn commit(&mut self, plan: Plan, now: Time) {
        let idle = plan.is_idle();
        let NodesPlan { failed, claims, changed } = plan.nodes;
        (self.joint.failed, self.joint.claims) = (failed, claims);
        if plan.put_off {
            if changed.claims_dropped {
                self.requeue_awaiting_nodes();
            }
            return self.due.again(plan.queues);
        }
        self.second.remove_due(now);
        self.due.unfinished(plan.unfinished);
        if idle {
            return;
        }
        self.waits_for_pods = plan.blocked;
        if changed.claims_dropped || changed.claim_due {
            self.requeue_awaiting_nodes();
        }
        if changed.claimed {
            self.due.everywhere();
        }
        plan.queues.iter().for_each(|&cq| self.cq_mut(cq).cycles += 1);
        for (cq, lowest) in plan.lowest_priorities {
            self.cq_mut(cq).lowest_held = Some(lowest);
        }
        for &StillInadmissible { cq, scheduling_hash } in &plan.still_inadmissible {
            let queue = self.cq_mut(cq);
            queue.pending.handle_inadmissible_hash_again(scheduling_hash);
            queue.skips = 0;
            // Another head comes first next time.
            self.due.tree_of(cq);
        }
        for (id, cq) in plan.heads {
            self.cq_mut(cq).pending.remove(id);
            if let Some(wl) = self.wl_mut(id) {
                wl.restart_flavor_search();
            }
        }
        for &(cq, _) in &plan.skips {
            self.cq_mut(cq).skips = 0;
        }
        for (cq, n) in plan.skips {
            self.cq_mut(cq).skips += n;
        }
        for (cq, result) in plan.recomputations {
            let queue = self.cq(cq).name.clone();
            self.metrics.count("kueue_preemption_target_recomputations_total", &[&queue, result], 1);
        }
        let admitted = plan.decisions.iter().any(Decision::succeeds);
        let result = if admitted { "success" } else { "inadmissible" };
        self.metrics.count("kueue_admission_attempts_total", &[result], 1);
        if admitted {
            self.attempts.success += 1;
        } else {
            self.attempts.inadmissible += 1;
        }
        for decision in plan.decisions {
            self.carry_out(decision, now);
        }
    }

    fn carry_out(&mut self, decision: Decision, now: Time) {
        match decision {
            Decision::Admit { id, cq, assignment, nodes } => self.admit((id, cq), &assignment, &nodes, now),
            Decision::AssignTopology { id, cq, assignment } => self.admit_again(id, cq, &assignment, now),
            Decision::EvictForNodeFailure { id } => self.give_up_on_nodes(id, now),
            Decision::Preempt { targets, retry } => {
                let by = retry.workload();
                let mut preempted = false;
                for t in targets {
                    preempted |= self.preempt(by, t, now);
                }
                if preempted && let Some(wl) = self.wl_mut(by.0) {
                    wl.rounds.count(now);
                }
                self.retry(retry, preempted, now);
            }
            Decision::Migrate { from, retry } => {
                self.evict_for_migration(from, retry.workload().0, now);
                self.retry(retry, false, now);
            }
            Decision::Retry(retry) => self.retry(retry, false, now),
            // The next cycle finds another reason. Where explanations are paced, this one would never be written.
            Decision::Stay { id } => {
                if self.config.explain_every <= Duration::ZERO {
                    self.record_reason(id, why::QUOTA, NO_LONGER_FITS, now);
                }
            }
        }
    }

    fn retry(&mut self, retry: Retry, preempted: bool, now: Time) {
        match retry {
            Retry::Requeue(requeue) => self.requeue(requeue, preempted, now),
            Retry::SecondPass { id, attempt, message, cq: _ } => {
                self.second_pass_failed(id, message, attempt, now);
            }
        }
    }

    /// Reserves quota for a workload.
    fn admit(
        &mut self,
        (id, cq): (WorkloadId, ClusterQueueId),
        a: &Assignment,
        nodes: &AdmittedNodes,
        now: Time,
    ) {
        let Some(wl) = self.wl(id) else { return };
        let mut admission = self.admission_of(cq, a);
        self.pass_on_request(id, &mut admission);
        let name = admission.cluster_queue.clone();
        let queued = wl.obj.status.condition(cond::REQUEUED).map_or(wl.obj.creation, |c| c.transition);
        let mut text = format!(
            "Quota reserved in ClusterQueue {name}, wait time since queued was {}s",
            now.since(queued).rounded_seconds()
        );
        let tried = a.considered(&self.ids);
        if !tried.is_empty() {
            text.push_str(&format!("; Flavors considered: {tried}"));
        }
        let complete = self.has_all_checks(id, cq, &admission);
        let placed = admission.assignments.iter().all(|p| p.delayed != Some(Delayed::Pending));
        let checks = &wl.obj.status.admission_checks;
        let ready = placed && checks.iter().all(|c| c.state == CheckState::Ready);
        let mut events = vec![KubernetesEvent::of_scheduler(false, "QuotaReserved", text)];
        if complete && ready {
            let text = format!("Admitted by ClusterQueue {name}, wait time since reservation was 0s");
            events.push(KubernetesEvent::of_scheduler(false, "Admitted", text));
        }
        let explicit = self.config.gates.explicit_status;
        if let Some(wl) = self.wl_mut(id) {
            wl.restart_flavor_search();
            wl.rounds.admitted();
            if nodes.reserved {
                wl.set_nodes_reserved(true);
            }
        }
        self.add_entry_penalty(id, cq);
        self.edit(id, now, events, |edit| {
            edit.set_reservation(admission);
            if let Some(decision) = &nodes.decision {
                decision.write(edit);
            }
            if complete {
                edit.sync_admitted(explicit);
            }
        });
    }

    /// `status.admission` for an assignment.
    pub(super) fn admission_of(&self, cq: ClusterQueueId, a: &Assignment) -> Admission {
        let mut assignments: Vec<(usize, PodSetAssignment)> = a
            .pod_sets
            .iter()
            .map(|ps| {
                let mut flavors: Vec<(String, String)> = ps
                    .flavors
                    .iter()
                    .map(|p| {
                        (self.ids.resource_name(p.res).to_owned(), self.ids.flavor_name(p.flavor).to_owned())
                    })
                    .collect();
                flavors.sort_unstable();
                let asked = |res| ps.requests.iter().find(|(r, _)| *r == res).map_or(0, |(_, v)| *v);
                let resource_usage =
                    ps.flavors.iter().map(|p| (self.ids.resource_name(p.res), asked(p.res))).collect();
                let assignment = PodSetAssignment {
                    name: ps.name.clone(),
                    flavors,
                    resource_usage,
                    count: ps.count,
                    topology: ps.topology.clone(),
                    delayed: ps.delayed,
                    reclaim_target: None,
                };
                (ps.index, assignment)
            })
            .collect();
        assignments.sort_unstable_by_key(|(i, _)| *i);
        Admission {
            cluster_queue: self.cq(cq).name.clone(),
            assignments: assignments.into_iter().map(|(_, a)| a).collect(),
        }
    }

    /// The ClusterQueue's path from the root cohort.
    pub(crate) fn path(&self, cq: ClusterQueueId) -> String {
        let Some(node) = self.cq(cq).node else { return format!("/{}", self.cq(cq).name) };
        let mut names: Vec<&str> = std::iter::once(node)
            .chain(self.tree.ancestors(node))
            .map(|n| self.tree.node(n).name.as_str())
            .collect();
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Evicts a workload for another one; whether it was not already leaving.
    fn preempt(&mut self, by: (WorkloadId, ClusterQueueId), t: Target, now: Time) -> bool {
        let (id, cq) = by;
        let (Some(preemptor), Some(victim)) = (self.wl(id), self.wl(t.id)) else { return false };
        let leaving = victim.obj.status.is_true(cond::EVICTED);
        let Some(held) = self.reserved_in(victim).filter(|_| !leaving) else {
            return false;
        };
        if let Some(to) = t.shrinks_to {
            return self.ask_to_shrink(by, (t, to), held, now);
        }
        let or_unknown = |s: &str| if s.is_empty() { "UNKNOWN".to_owned() } else { s.to_owned() };
        let rules = match t.reason {
            Reason::Configured(trigger) => self.selecting_rules(trigger, by, (t.id, held)),
            Reason::ClusterQueue | Reason::Reclamation | Reason::FairSharing | Reason::WhileBorrowing => None,
        };
        let mut message = format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}{}; preemptor path: {}; \
             preemptee path: {}",
            or_unknown(&preemptor.obj.uid),
            or_unknown(&preemptor.obj.job_uid),
            t.reason.text(),
            t.lacking.text(),
            self.path(cq),
            self.path(held),
        );
        if let Some(rules) = &rules {
            message.push_str(&format!("; {rules}"));
        }
        let cause_of = |rules| format!("Preempted by {} because of {rules}", preemptor.obj.key);
        let underlying = rules.map(cause_of);
        let of = |w: &Workload| {
            format!(
                "effective priority: {} (base: {}, boost: {})",
                w.effective_priority(),
                w.priority,
                w.priority_boost
            )
        };
        let priorities = format!("; preemptor {}; preemptee {}", of(&preemptor.obj), of(&victim.obj));
        let told = format!(
            "Preempted workload {} (UID: {}) in ClusterQueue {}{priorities}",
            victim.obj.key,
            victim.obj.uid,
            self.cq(held).name
        );
        let key = preemptor.obj.key.clone();
        let cause = RecordCause::Preempted { victim: victim.obj.key.clone() };
        let normal = |reason: &str, message: String| KubernetesEvent::of_scheduler(false, reason, message);
        let event = normal("PreemptedWorkload", told);
        let events = vec![
            normal("EvictedDueToPreempted", message.clone()),
            normal("Preempted", format!("{message}{priorities}")),
        ];
        let preemptor_queue = Some(self.cq(cq).name.clone());
        self.edit_by(t.id, preemptor_queue, now, events, |edit| {
            edit.set(cond::PREEMPTED, true, t.reason.as_str(), &message);
            match &underlying {
                Some(cause) => edit.evict_by_rules(cause, &message),
                None => edit.evict("Preempted", "", &message),
            }
        });
        self.out.push(Action::Record(Box::new(WorkloadEvent { key, cause, event })));
        true
    }

    /// Puts a head back where it belongs and records why it waits (Kueue `RequeueIfNotPresent`). `preempted`: others
    /// were newly preempted for it.
    fn requeue(&mut self, mut e: Requeue, preempted: bool, now: Time) {
        if e.awaits_nodes {
            self.joint.awaiting_nodes.insert(e.cq);
            let looks = |w: &WorkloadInfo| w.obj.pod_sets.iter().any(|p| looks_at_pods(&p.spec));
            if self.wl(e.id).is_some_and(looks) {
                self.joint.awaiting_pods.insert(e.cq);
            }
        }
        self.timers.requeue_inadmissible.extend(e.retry_at.map(|at| (at, e.cq)));
        let Some(wl) = self.wl(e.id) else { return };
        if !is_admissible(&wl.obj) || !Self::depends_on_nothing(wl) || self.outside_run_window(wl) {
            self.unqueue(e.id);
            return;
        }
        let (rank, scheduling_hash, lq) = (self.rank(wl, e.id), wl.scheduling_hash(), wl.lq());
        let more = e.last_assignment.as_ref().is_some_and(LastAssignment::has_more);
        let ready = self.is_ready(e.id, now);
        if let Some(wl) = self.wl_mut(e.id) {
            wl.continue_flavor_search(e.last_assignment.take());
        }
        let hashing = self.config.gates.equivalence_hashing;
        let best_effort = self.cq(e.cq).rules.strategy == QueueingStrategy::BestEffortFifo;
        if e.why == RequeueReason::PendingPreemption {
            let generation = self.wl(e.id).map_or(0, |w| w.obj.generation);
            let pending = &mut self.cq_mut(e.cq).pending;
            pending.sticky = best_effort.then_some(e.id);
            pending.preemptor = Some((e.id, generation));
        }
        let at_once = if best_effort {
            matches!(e.why, RequeueReason::FailedAfterNomination | RequeueReason::PendingPreemption)
        } else {
            e.why != RequeueReason::NamespaceMismatch
        };
        let mut inadmissible = Vec::new();
        if e.stale && ready && !more {
            // The flavors before may fit by now, and nothing else would tell: Kueue leaves it there.
            self.timers.requeue_inadmissible.insert((now.plus(SCAN_AGAIN), e.cq));
        }
        let queue = self.cq_mut(e.cq);
        if !ready {
            queue.pending.delay(e.id);
        } else if at_once || more {
            queue.pending.activate(rank, scheduling_hash, lq);
        } else {
            queue.pending.insert_inadmissible(rank, scheduling_hash, lq);
            if hashing
                && best_effort
                && !e.by_labels
                && matches!(e.why, RequeueReason::NoFit | RequeueReason::NoCandidates)
            {
                inadmissible =
                    queue.pending.handle_inadmissible_hash(scheduling_hash, e.reason, &e.message, e.shortage);
            }
        }
        // One that waits for victims already asked would only be told the same again.
        if more || !inadmissible.is_empty() || !at_once || !ready || preempted {
            // Another head comes first next time, or the same one with other flavors.
            self.due.tree_of(e.cq);
        }
        for &id in &inadmissible {
            self.explain_skipped(id, now);
        }
        inadmissible.retain(|&id| self.may_adopt_hash_reason(id));
        self.dirty.workloads.extend(inadmissible);
        self.record_reason(e.id, e.reason, &e.message, now);
    }
}
