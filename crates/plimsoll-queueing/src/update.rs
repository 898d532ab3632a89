//! Writes to the status of a workload: what differs, what two of them come to, what they do.

use super::model::{
    Admission, AdmissionCheckState, Amounts, Condition, EvictionCount, PreemptionGateState, RequeueState,
    Workload, WorkloadKey, WorkloadStatus,
};
use super::{KubernetesEvent, cond};

/// Changes to the status of one workload: one write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadUpdate {
    /// Number of the write; comes back in [`Event::Written`](super::Event::Written) and [`Event::WriteFailed`](super::Event::WriteFailed).
    pub id: u64,
    /// Numbers of earlier writes that this one does as well ([`WorkloadUpdate::coalesce`]); they have the same answer.
    pub coalesced: Vec<u64>,
    /// The workload.
    pub key: WorkloadKey,
    /// Its UID.
    pub uid: String,
    /// Conditions that change, whole.
    pub conditions: Vec<Condition>,
    /// Types of conditions that are removed.
    pub removed_conditions: Vec<String>,
    /// `Some(Some)` sets `status.admission`, `Some(None)` clears it.
    pub admission: Option<Option<Box<Admission>>>,
    /// `Some(Some)` sets `status.requeueState`, `Some(None)` clears it.
    pub requeue_state: Option<Option<RequeueState>>,
    /// `Some` replaces `status.admissionChecks` (fields the engine doesn't know are kept per name where
    /// the state stays the same).
    pub admission_checks: Option<Vec<AdmissionCheckState>>,
    /// `Some` replaces `status.resourceRequests`.
    pub resource_requests: Option<Vec<(String, Amounts)>>,
    /// `Some` replaces `status.schedulingStats.evictions`.
    pub evictions: Option<Vec<EvictionCount>>,
    /// `Some` replaces `status.accumulatedPastExecutionTimeSeconds`.
    pub past_execution_seconds: Option<Option<i32>>,
    /// `Some` replaces `status.preemptionGates`.
    pub preemption_gates: Option<Vec<PreemptionGateState>>,
    /// `Some` replaces `status.unhealthyNodes`.
    pub unhealthy_nodes: Option<Vec<String>>,
    /// Resources whose amounts are bytes, besides those that Kubernetes knows ([`crate::Config::byte_counters`]).
    pub bytes: Vec<String>,
    /// Events to record once the write is done.
    pub events: Vec<KubernetesEvent>,
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
    /// Repeats the unconfirmed fields of an earlier write with their current values, so that this write is complete by
    /// itself if the earlier one fails. Fields that other clients write, too, are not repeated.
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

    /// Whether it says only why the workload waits.
    pub fn explains(&self) -> bool {
        let Self {
            id: _,
            coalesced: _,
            key: _,
            uid: _,
            bytes: _,
            events: _,
            resource_requests: _,
            conditions,
            removed_conditions,
            admission,
            requeue_state,
            admission_checks,
            evictions,
            past_execution_seconds,
            preemption_gates,
            unhealthy_nodes,
        } = self;
        let why = |c: &Condition| match c.kind.as_str() {
            cond::QUOTA_RESERVED => !c.status,
            cond::ADMITTED => !c.status && c.reason == "NoReservation",
            cond::BLOCKED_ON_GATES => c.status,
            _ => false,
        };
        conditions.iter().all(why)
            && removed_conditions.is_empty()
            && admission.is_none()
            && requeue_state.is_none()
            && admission_checks.is_none()
            && evictions.is_none()
            && past_execution_seconds.is_none()
            && preemption_gates.is_none()
            && unhealthy_nodes.is_none()
    }

    /// Numbers of all writes that this one does.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.coalesced.iter().copied().chain([self.id])
    }

    /// Makes one write of this one and of an earlier one that was not begun. When it is done, that is the answer to both;
    /// when it fails, the failure of each has to be told.
    pub fn coalesce(&mut self, earlier: Self) {
        let mut conditions = earlier.conditions;
        conditions.retain(|c| !self.removed_conditions.contains(&c.kind));
        for c in self.conditions.drain(..) {
            match conditions.iter_mut().find(|e| e.kind == c.kind) {
                Some(e) => *e = c,
                None => conditions.push(c),
            }
        }
        self.conditions = conditions;
        for kind in earlier.removed_conditions {
            if !self.conditions.iter().any(|c| c.kind == kind) && !self.removed_conditions.contains(&kind) {
                self.removed_conditions.push(kind);
            }
        }
        fn keep<T>(mine: &mut Option<T>, earlier: Option<T>) {
            if mine.is_none() {
                *mine = earlier;
            }
        }
        keep(&mut self.admission, earlier.admission);
        keep(&mut self.requeue_state, earlier.requeue_state);
        keep(&mut self.admission_checks, earlier.admission_checks);
        keep(&mut self.resource_requests, earlier.resource_requests);
        keep(&mut self.evictions, earlier.evictions);
        keep(&mut self.past_execution_seconds, earlier.past_execution_seconds);
        keep(&mut self.preemption_gates, earlier.preemption_gates);
        keep(&mut self.unhealthy_nodes, earlier.unhealthy_nodes);
        self.events.splice(..0, earlier.events);
        self.coalesced.splice(..0, earlier.coalesced.into_iter().chain([earlier.id]));
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
    use proptest::prelude::*;

    use super::super::conditions::Edit;
    use super::*;
    use plimsoll_state::time::Time;

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

    fn any_update() -> impl Strategy<Value = WorkloadUpdate> {
        let kinds = [cond::QUOTA_RESERVED, cond::EVICTED, cond::BLOCKED_ON_GATES];
        let condition = (0..3usize, any::<bool>(), 0..3u8).prop_map(move |(k, status, text)| Condition {
            kind: kinds[k].into(),
            status,
            message: text.to_string(),
            ..Condition::default()
        });
        let conditions = proptest::collection::vec(condition, 0..3);
        let admission = proptest::option::of(proptest::option::of("[ab]"));
        let rest = (proptest::option::of(0..3i32), proptest::option::of(proptest::option::of(0..3i32)));
        (conditions, proptest::option::of(0..3usize), admission, rest, proptest::option::of("[ab]")).prop_map(
            move |(mut conditions, removed, admission, (evictions, past), node)| {
                conditions.sort_by(|a, b| a.kind.cmp(&b.kind));
                conditions.dedup_by(|a, b| a.kind == b.kind);
                let removed = removed.map(|k| kinds[k].to_owned());
                conditions.retain(|c| Some(&c.kind) != removed.as_ref());
                let admitted = |queue| Box::new(Admission { cluster_queue: queue, ..Admission::default() });
                let counted = |count| vec![EvictionCount { reason: "r".into(), cause: "".into(), count }];
                WorkloadUpdate {
                    conditions,
                    removed_conditions: removed.into_iter().collect(),
                    admission: admission.map(|a| a.map(admitted)),
                    evictions: evictions.map(counted),
                    requeue_state: past.map(|p| p.map(|_| RequeueState::default())),
                    past_execution_seconds: past,
                    unhealthy_nodes: node.map(|n| vec![n]),
                    ..WorkloadUpdate::default()
                }
            },
        )
    }

    proptest! {
        /// One write does what two would have done, one after the other.
        #[test]
        fn two_writes_come_to_one(
            before in any_update(), earlier in any_update(), later in any_update(),
        ) {
            let mut status = WorkloadStatus::default();
            before.apply(&mut status);
            let mut twice = status.clone();
            earlier.apply(&mut twice);
            later.apply(&mut twice);
            let mut both = later.clone();
            both.coalesce(earlier);
            both.apply(&mut status);
            // Their order means nothing.
            for s in [&mut status, &mut twice] {
                s.conditions.sort_by(|a, b| a.kind.cmp(&b.kind));
            }
            prop_assert_eq!(status, twice);
        }
    }

    #[test]
    fn explanations_are_told_from_decisions() {
        let mut wl = Workload::default();
        let mut before = wl.status.clone();
        let mut edit = |change: &dyn Fn(&mut Edit<'_>)| {
            change(&mut Edit { status: &mut wl.status, generation: 1, now: Time::from_seconds(1) });
            let update = difference(&before, &wl).expect("something changed");
            before = wl.status.clone();
            update.explains()
        };
        assert!(edit(&|e| {
            e.unset_reservation(false, "Pending", "no quota");
            e.status.resource_requests = vec![("main".into(), Default::default())];
        }));
        assert!(edit(&|e| {
            e.unset_reservation(false, "AdmissionGated", "closed");
            e.set(cond::BLOCKED_ON_GATES, true, "Gated", "closed");
        }));
        assert!(!edit(&|e| e.set_reservation(Admission::default())));
        assert!(!edit(&|e| e.evict("Preempted", "", "make room")));
        assert!(!edit(&|e| {
            e.stopped(false, false);
        }));
    }
}
