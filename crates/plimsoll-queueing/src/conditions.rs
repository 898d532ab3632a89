//! How the status of a workload changes: conditions, admission, eviction
//! (Kueue `pkg/workload/workload.go`, `pkg/workload/evict/evict.go`).

use super::cond;
use super::cycle::victim::CONFIGURED;
use super::model::{Admission, AdmissionCheckState, CheckState, Condition, EvictionCount, WorkloadStatus};
use plimsoll_state::time::Time;

/// Reason of the eviction of a variant for a sibling with a more favorable flavor.
pub(crate) const FLAVOR_MIGRATION: &str = "FlavorMigration";
/// Longest underlying cause of evictions, in characters.
const MAX_CAUSE: usize = 316;
/// Longest message of a condition, in bytes.
const MESSAGE_LIMIT: usize = 32 * 1024;

/// Cuts a message to the length conditions may have.
fn cut(message: &str) -> String {
    if message.len() <= MESSAGE_LIMIT {
        return message.to_owned();
    }
    let mut end = MESSAGE_LIMIT - 4;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &message[..end])
}

/// A status being changed, with what every change needs to know.
pub(crate) struct Edit<'a> {
    pub(crate) status: &'a mut WorkloadStatus,
    pub(crate) generation: i64,
    pub(crate) now: Time,
}

impl Edit<'_> {
    /// Sets a condition as `meta.SetStatusCondition` does; whether anything changed.
    pub(crate) fn set(&mut self, kind: &str, status: bool, reason: &str, message: &str) -> bool {
        let message = cut(message);
        let at = self.now.truncate_to_second();
        let Some(old) = self.status.conditions.iter_mut().find(|c| c.kind == kind) else {
            self.status.conditions.push(Condition {
                kind: kind.to_owned(),
                status,
                reason: reason.to_owned(),
                message,
                transition: at,
                observed_generation: self.generation,
            });
            return true;
        };
        let same = old.status == status
            && old.reason == reason
            && old.message == message
            && old.observed_generation == self.generation;
        if old.status != status {
            old.transition = at;
        }
        old.status = status;
        reason.clone_into(&mut old.reason);
        old.message = message;
        old.observed_generation = self.generation;
        !same
    }

    /// Brings Admitted in line with the reservation and the checks; whether anything changed.
    pub(crate) fn sync_admitted(&mut self, explicit_status: bool) -> bool {
        let s = &*self.status;
        let admitted = s.condition(cond::ADMITTED);
        if !explicit_status && admitted.is_none() && s.condition(cond::QUOTA_RESERVED).is_none() {
            return false;
        }
        let reserved = s.is_true(cond::QUOTA_RESERVED);
        let ready = s.admission_checks.iter().all(|c| c.state == CheckState::Ready);
        let (status, reason, message) = if !reserved {
            (false, "NoReservation", "The workload has no reservation")
        } else if !ready {
            (false, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
        } else if s.awaits_topology() {
            let message = "There are pending delayed topology requests";
            (false, "PendingDelayedTopologyRequests", message)
        } else {
            (true, "Admitted", "The workload is admitted")
        };
        if let Some(old) = admitted.filter(|c| c.status && !status) {
            let ran = i32::try_from(self.now.since(old.transition).seconds()).unwrap_or(i32::MAX);
            let past = self.status.past_execution_seconds.get_or_insert(0);
            *past = past.saturating_add(ran);
        }
        self.set(cond::ADMITTED, status, reason, message)
    }

    /// Takes the reservation away and says why.
    pub(crate) fn unset_reservation(&mut self, explicit_status: bool, reason: &str, message: &str) -> bool {
        let changed = self.set(cond::QUOTA_RESERVED, false, reason, message);
        if self.status.is_true(cond::NODES_RESERVED) {
            self.set(cond::NODES_RESERVED, false, "NoReservation", "The workload has no reservation");
        }
        let had = self.status.admission.take().is_some();
        self.sync_admitted(explicit_status) || changed || had
    }

    /// Records a reservation; an earlier eviction is over.
    pub(crate) fn set_reservation(&mut self, admission: Admission) {
        let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
        self.status.admission = Some(Box::new(admission));
        // The usage of the assignments supersedes them (Kueue `admissionStatusPatch`).
        self.status.resource_requests.clear();
        self.set(cond::QUOTA_RESERVED, true, "QuotaReserved", &message);
        for kind in [cond::EVICTED, cond::PREEMPTED, cond::BLOCKED_ON_GATES] {
            let Some(old) = self.status.condition(kind).filter(|c| c.status) else { continue };
            let message = format!("Previously: {}", old.message);
            self.set(kind, false, "QuotaReserved", &message);
        }
    }

    /// As [`Edit::evict`] for preemption by rules of a PreemptionConfig: counted under a reason of its own, with the cause of
    /// the last one (KEP-13396, Observability).
    pub(crate) fn evict_by_rules(&mut self, cause: &str, message: &str) {
        self.set_evicted("Preempted", message);
        let cause: String = cause.chars().take(MAX_CAUSE).collect();
        let counts = &mut self.status.evictions;
        match counts.iter_mut().find(|e| e.reason == CONFIGURED) {
            Some(e) => (e.count, e.cause) = (e.count.saturating_add(1), cause),
            None => counts.push(EvictionCount { reason: CONFIGURED.into(), cause, count: 1 }),
        }
    }

    fn set_evicted(&mut self, full: &str, message: &str) {
        self.set(cond::EVICTED, true, full, message);
        self.status.unhealthy_nodes.clear();
        self.reset_checks();
        self.close_gates(full, message);
    }

    /// First phase of an eviction: the workload has to stop, and keeps its quota until it did.
    pub(crate) fn evict(&mut self, reason: &str, cause: &str, message: &str) {
        let full = if reason == "Deactivated" && !cause.is_empty() {
            format!("{reason}DueTo{cause}")
        } else {
            reason.to_owned()
        };
        self.set_evicted(&full, message);
        let counts = &mut self.status.evictions;
        match counts.iter_mut().find(|e| e.reason == reason && e.cause == cause) {
            Some(e) => e.count = e.count.saturating_add(1),
            None => counts.push(EvictionCount { reason: reason.into(), cause: cause.into(), count: 1 }),
        }
    }

    /// Asks the admission checks anew.
    pub(crate) fn reset_checks(&mut self) {
        let at = self.now.truncate_to_second();
        self.status.admission_checks.iter_mut().for_each(|c| reset_check(c, at));
    }

    /// Second phase: the job has stopped. The reservation goes, and unless the cause of the eviction
    /// lasts or its one pod has `ended`, the workload may be queued again (Kueue `ReconcileGenericJob`).
    pub(crate) fn stopped(&mut self, explicit_status: bool, ended: bool) -> bool {
        let Some(evicted) = self.status.condition(cond::EVICTED).filter(|c| c.status) else { return false };
        if !self.status.is_true(cond::QUOTA_RESERVED) {
            return false;
        }
        let (reason, message) = (evicted.reason.clone(), evicted.message.clone());
        self.set(cond::REQUEUED, requeues_after(&reason) && !ended, &reason, &message);
        self.unset_reservation(explicit_status, "PendingEvaluation", &message);
        true
    }
}

/// Whether a workload is queued again as soon as its job has stopped after an eviction for this reason.
pub(crate) fn requeues_after(reason: &str) -> bool {
    // In Kueue a variant is never queued again once it had to leave for a sibling. Here the sibling goes first.
    ["Preempted", "NodeFailures", FLAVOR_MIGRATION, super::OUTSIDE].contains(&reason)
}

fn reset_check(check: &mut AdmissionCheckState, at: Time) {
    if check.state == CheckState::Pending {
        return;
    }
    // The controller of the check owns the count, so that in Kueue it outlasts other states, too.
    if check.state == CheckState::Retry {
        check.retry_count = Some(check.retry_count.unwrap_or(0).saturating_add(1));
    }
    check.message = format!("Reset to Pending after eviction. Previously: {}", check.state.as_str());
    check.updates.clear();
    check.state = CheckState::Pending;
    check.transition = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_keeps_the_reservation_until_the_job_stopped() {
        let requests = vec![("main".into(), Default::default())];
        let mut status = WorkloadStatus { resource_requests: requests, ..WorkloadStatus::default() };
        let mut e = Edit { status: &mut status, generation: 3, now: Time::from_seconds(100) };
        e.set_reservation(Admission { cluster_queue: "a".into(), ..Admission::default() });
        assert!(e.status.resource_requests.is_empty(), "it asks for nothing more");
        assert!(e.sync_admitted(false));
        e.now = Time::from_seconds(130);
        e.evict("Preempted", "", "make room");
        assert!(e.status.is_true(cond::ADMITTED) && e.status.admission.is_some());
        let mut of_pod = e.status.clone();
        assert!(e.stopped(false, false) && !e.stopped(false, false));
        let requeued = |s: &WorkloadStatus| s.condition(cond::REQUEUED).map(|c| (c.status, c.reason.clone()));
        assert_eq!(requeued(e.status), Some((true, "Preempted".into())));
        assert!(Edit { status: &mut of_pod, generation: 3, now: e.now }.stopped(false, true));
        assert_eq!(
            requeued(&of_pod),
            Some((false, "Preempted".into())),
            "another pod has a workload of its own"
        );
        assert!(e.status.admission.is_none() && e.status.is_true(cond::REQUEUED));
        let reserved = e.status.condition(cond::QUOTA_RESERVED).map(|c| (c.status, c.reason.as_str()));
        assert_eq!(reserved, Some((false, "PendingEvaluation")));
        assert_eq!(e.status.past_execution_seconds, Some(30));
        e.set_reservation(Admission { cluster_queue: "a".into(), ..Admission::default() });
        let evicted = e.status.condition(cond::EVICTED).map(|c| (c.status, c.message.as_str()));
        assert_eq!(evicted, Some((false, "Previously: make room")));
    }
}
