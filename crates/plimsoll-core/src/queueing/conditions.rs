//! How the status of a workload changes: conditions, admission, eviction (spec sections 3.1 and 3.2).

use super::model::{
    Admission, AdmissionCheckState, CheckState, Condition, EvictionCount, Workload, WorkloadStatus,
};
use super::{WorkloadUpdate, cond};
use crate::time::Time;

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
        let had = self.status.admission.take().is_some();
        self.sync_admitted(explicit_status) || changed || had
    }

    /// Records a reservation; an earlier eviction is over.
    pub(crate) fn set_reservation(&mut self, admission: Admission) {
        let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
        self.status.admission = Some(Box::new(admission));
        self.set(cond::QUOTA_RESERVED, true, "QuotaReserved", &message);
        for kind in [cond::EVICTED, cond::PREEMPTED, cond::BLOCKED_ON_GATES] {
            let Some(old) = self.status.condition(kind).filter(|c| c.status) else { continue };
            let message = format!("Previously: {}", old.message);
            self.set(kind, false, "QuotaReserved", &message);
        }
    }

    /// First phase of an eviction: the workload has to stop, and keeps its quota until it did.
    pub(crate) fn evict(&mut self, reason: &str, cause: &str, message: &str) {
        let full = if reason == "Deactivated" && !cause.is_empty() {
            format!("{reason}DueTo{cause}")
        } else {
            reason.to_owned()
        };
        self.set(cond::EVICTED, true, &full, message);
        self.status.unhealthy_nodes.clear();
        let at = self.now.truncate_to_second();
        self.status.admission_checks.iter_mut().for_each(|c| reset_check(c, at));
        self.close_gates(&full, message);
        let counts = &mut self.status.evictions;
        match counts.iter_mut().find(|e| e.reason == reason && e.cause == cause) {
            Some(e) => e.count = e.count.saturating_add(1),
            None => counts.push(EvictionCount { reason: reason.into(), cause: cause.into(), count: 1 }),
        }
    }

    /// Second phase: the job has stopped. The reservation goes, and unless the cause of the eviction
    /// lasts, the workload may be queued again.
    pub(crate) fn stopped(&mut self, explicit_status: bool) -> bool {
        let Some(evicted) = self.status.condition(cond::EVICTED).filter(|c| c.status) else { return false };
        if !self.status.is_true(cond::QUOTA_RESERVED) {
            return false;
        }
        let (reason, message) = (evicted.reason.clone(), evicted.message.clone());
        let again = reason == "Preempted" || reason == "NodeFailures" || reason == super::OUTSIDE;
        self.set(cond::REQUEUED, again, &reason, &message);
        self.unset_reservation(explicit_status, "PendingEvaluation", &message);
        true
    }
}

fn reset_check(check: &mut AdmissionCheckState, at: Time) {
    if check.state == CheckState::Pending {
        return;
    }
    check.retry_count =
        (check.state == CheckState::Retry).then(|| check.retry_count.unwrap_or(0).saturating_add(1));
    check.message = format!("Reset to Pending after eviction. Previously: {}", check.state.as_str());
    check.updates.clear();
    check.state = CheckState::Pending;
    check.transition = at;
}

/// The write that turns `old` into the status `wl` has now; `None` when nothing changed.
pub(crate) fn difference(old: &WorkloadStatus, wl: &Workload) -> Option<WorkloadUpdate> {
    let new = &wl.status;
    fn changed<T: PartialEq + Clone>(old: &T, new: &T) -> Option<T> {
        (old != new).then(|| new.clone())
    }
    let update = WorkloadUpdate {
        key: wl.key.clone(),
        uid: wl.uid.clone(),
        conditions: new.conditions.iter().filter(|c| !old.conditions.contains(c)).cloned().collect(),
        removed_conditions: old
            .conditions
            .iter()
            .filter(|c| new.condition(&c.kind).is_none())
            .map(|c| c.kind.clone())
            .collect(),
        admission: changed(&old.admission, &new.admission),
        requeue_state: changed(&old.requeue_state, &new.requeue_state),
        admission_checks: changed(&old.admission_checks, &new.admission_checks),
        resource_requests: changed(&old.resource_requests, &new.resource_requests),
        evictions: changed(&old.evictions, &new.evictions),
        past_execution_seconds: changed(&old.past_execution_seconds, &new.past_execution_seconds),
        preemption_gates: changed(&old.preemption_gates, &new.preemption_gates),
        unhealthy_nodes: changed(&old.unhealthy_nodes, &new.unhealthy_nodes),
        ..WorkloadUpdate::default()
    };
    (!update.is_empty()).then_some(update)
}

impl WorkloadUpdate {
    /// Says again, as it is to be now, what an earlier write says that is on its way: should that one fail and this one
    /// not, this must not be half of something. Not what others write, too.
    pub(crate) fn complete(&mut self, earlier: &Self, now: &WorkloadStatus) {
        let kinds = earlier.conditions.iter().map(|c| &c.kind).chain(&earlier.removed_conditions);
        for kind in kinds {
            if self.conditions.iter().any(|c| c.kind == *kind) || self.removed_conditions.contains(kind) {
                continue;
            }
            match now.condition(kind) {
                Some(c) => self.conditions.push(c.clone()),
                None => self.removed_conditions.push(kind.clone()),
            }
        }
        fn again<T: Clone>(new: &mut Option<T>, earlier: &Option<T>, now: &T) {
            if new.is_none() && earlier.is_some() {
                *new = Some(now.clone());
            }
        }
        again(&mut self.admission, &earlier.admission, &now.admission);
        again(&mut self.requeue_state, &earlier.requeue_state, &now.requeue_state);
        again(&mut self.evictions, &earlier.evictions, &now.evictions);
        again(&mut self.past_execution_seconds, &earlier.past_execution_seconds, &now.past_execution_seconds);
        again(&mut self.unhealthy_nodes, &earlier.unhealthy_nodes, &now.unhealthy_nodes);
    }

    fn is_empty(&self) -> bool {
        self.conditions.is_empty()
            && self.removed_conditions.is_empty()
            && self.admission.is_none()
            && self.requeue_state.is_none()
            && self.admission_checks.is_none()
            && self.resource_requests.is_none()
            && self.evictions.is_none()
            && self.past_execution_seconds.is_none()
            && self.preemption_gates.is_none()
            && self.unhealthy_nodes.is_none()
    }

    /// Changes `status` as the API server will.
    pub fn apply(&self, status: &mut WorkloadStatus) {
        for c in &self.conditions {
            match status.conditions.iter_mut().find(|o| o.kind == c.kind) {
                Some(old) => old.clone_from(c),
                None => status.conditions.push(c.clone()),
            }
        }
        status.conditions.retain(|c| !self.removed_conditions.contains(&c.kind));
        if let Some(v) = &self.admission {
            status.admission.clone_from(v);
        }
        if let Some(v) = &self.requeue_state {
            status.requeue_state.clone_from(v);
        }
        if let Some(v) = &self.admission_checks {
            status.admission_checks.clone_from(v);
        }
        if let Some(v) = &self.resource_requests {
            status.resource_requests.clone_from(v);
        }
        if let Some(v) = &self.evictions {
            status.evictions.clone_from(v);
        }
        if let Some(v) = &self.past_execution_seconds {
            status.past_execution_seconds = *v;
        }
        if let Some(v) = &self.preemption_gates {
            status.preemption_gates.clone_from(v);
        }
        if let Some(v) = &self.unhealthy_nodes {
            status.unhealthy_nodes.clone_from(v);
        }
    }

    /// Whether `status` already shows what this write does.
    pub(crate) fn shows_in(&self, status: &WorkloadStatus) -> bool {
        let mut after = status.clone();
        self.apply(&mut after);
        after == *status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_keeps_the_reservation_until_the_job_stopped() {
        let mut status = WorkloadStatus::default();
        let mut e = Edit { status: &mut status, generation: 3, now: Time::from_seconds(100) };
        e.set_reservation(Admission { cluster_queue: "a".into(), ..Admission::default() });
        assert!(e.sync_admitted(false));
        e.now = Time::from_seconds(130);
        e.evict("Preempted", "", "make room");
        assert!(e.status.is_true(cond::ADMITTED) && e.status.admission.is_some());
        assert!(e.stopped(false) && !e.stopped(false));
        assert!(e.status.admission.is_none() && e.status.is_true(cond::REQUEUED));
        let reserved = e.status.condition(cond::QUOTA_RESERVED).map(|c| (c.status, c.reason.as_str()));
        assert_eq!(reserved, Some((false, "PendingEvaluation")));
        assert_eq!(e.status.past_execution_seconds, Some(30));
        e.set_reservation(Admission { cluster_queue: "a".into(), ..Admission::default() });
        let evicted = e.status.condition(cond::EVICTED).map(|c| (c.status, c.message.as_str()));
        assert_eq!(evicted, Some((false, "Previously: make room")));
    }

    #[test]
    fn a_difference_applied_gives_the_new_status() {
        let old = WorkloadStatus::default();
        let mut wl = Workload::default();
        let mut e = Edit { status: &mut wl.status, generation: 1, now: Time::from_seconds(1) };
        e.set_reservation(Admission::default());
        e.evict("Deactivated", "AdmissionCheck", "no");
        let update = difference(&old, &wl).expect("something changed");
        let mut copy = old.clone();
        update.apply(&mut copy);
        assert_eq!(copy, wl.status);
        assert!(update.shows_in(&copy) && !update.shows_in(&old));
        assert!(difference(&wl.status, &wl).is_none());
        assert_eq!(
            copy.condition(cond::EVICTED).map(|c| c.reason.as_str()),
            Some("DeactivatedDueToAdmissionCheck")
        );
    }
}
