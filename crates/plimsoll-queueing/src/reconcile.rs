//! What has to be said about a workload between cycles: why it waits, that it has to stop, that it may be
//! queued again (Kueue's workload controller, spec sections 3.1, 3.2 and 3.5).

use super::account::{Phase, has_failed_checks, is_on_hold};
use super::assign::why;
use super::depend::WAITING;
use super::model::{Admission, AdmissionCheckState, CheckState, StopPolicy, WorkloadStatus};
use super::pending::WlId;
use super::state::Queueing;
use super::windows::OUTSIDE;
use super::{Action, Note, cond};
use plimsoll_state::time::{Duration, Time};

/// Rounds of changes per workload and call; each makes one write.
pub(crate) const MAX_ROUNDS: usize = 8;

/// Reasons of QuotaReserved=False that the cycle gave and that stay until it gives another.
const KEPT: [&str; 10] = [
    "WaitingForQuota",
    "NoMatchingFlavor",
    "ExceedsMaxQuota",
    "TopologyPlacementFailed",
    "WaitingForPreemptedWorkloads",
    "WaitingForPodsReady",
    "WaitingForNodes",
    "FlavorOutsideRunWindow",
    "PendingEvaluation",
    "AdmissionGated",
];

/// `base` times 2 to the power of `count` - 1, at most `max`.
fn backoff(base: Duration, max: Duration, count: i32) -> Duration {
    let doublings = u32::try_from(count - 1).unwrap_or(0).min(62);
    Duration(base.0.saturating_mul(1 << doublings)).min(max)
}

fn note(warning: bool, reason: &str, message: impl Into<String>) -> Vec<Note> {
    vec![Note { warning, reason: reason.to_owned(), message: message.into() }]
}

impl Queueing {
    /// Looks at all workloads that changed, until nothing more changes. What changes in every round is left for the next
    /// step ([`Queueing::next_wake`]), so that others get their turn.
    pub(crate) fn reconcile_dirty(&mut self, now: Time) {
        self.devices_settle(now);
        self.depend_settle(now);
        for _ in 0..self.rounds {
            let dirty = std::mem::take(&mut self.dirty);
            if dirty.is_empty() {
                return;
            }
            for id in dirty {
                self.plan_second_pass(id, now);
                if self.wl(id).is_some_and(|w| w.hold_off.is_none_or(|t| t <= now)) {
                    self.reconcile(id, now);
                }
            }
        }
    }

    /// Makes at most one write; [`Queueing::edit`] marks the workload for another look.
    fn reconcile(&mut self, id: WlId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let obj = &wl.obj;
        if Phase::of(&obj.status) == Phase::Finished {
            return;
        }
        if self.reconcile_replaced(id, now) {
            return;
        }
        let Some(wl) = self.wl(id) else { return };
        let obj = &wl.obj;
        let done = if obj.active { self.reconcile_active(id, now) } else { self.reconcile_inactive(id, now) };
        if done
            || self.release_again(id, now)
            || self.reset_checks_again(id, now)
            || self.reconcile_devices(id, now)
            || self.reconcile_windows(id, now)
            || self.reconcile_requeued(id, now)
            || self.reconcile_dependencies(id, now)
            || self.reconcile_checks(id, now)
            || self.reconcile_preemption_gates(id, now)
        {
            return;
        }
        self.look_for_opening(id);
        let Some(wl) = self.wl(id) else { return };
        let phase = Phase::of(&wl.obj.status);
        if phase != Phase::Admitted {
            let explicit = self.config.gates.explicit_status;
            let why = if phase == Phase::Pending { self.why_waiting(id) } else { None };
            let before = Phase::of(&wl.obj.status);
            let untold = |s: &WorkloadStatus| s.condition(cond::ADMITTED).is_none_or(|c| !c.status);
            if why.is_none() && before == Phase::Pending && !explicit && untold(&wl.obj.status) {
                return;
            }
            let mut notes = self.admitted_note(id, now);
            notes.extend(why.as_ref().and_then(|(reason, message)| self.held_back_note(id, reason, message)));
            self.edit(id, now, notes, |e| {
                if let Some((reason, message)) = why {
                    e.set(cond::QUOTA_RESERVED, false, &reason, &message);
                }
                e.sync_admitted(explicit);
            });
            if before == Phase::Pending {
                return;
            }
        }
        self.reconcile_holding(id, now);
    }

    fn admitted_note(&self, id: WlId, now: Time) -> Vec<Note> {
        let Some(wl) = self.wl(id).filter(|w| Phase::of(&w.obj.status) == Phase::Reserved) else {
            return Vec::new();
        };
        let s = &wl.obj.status;
        if s.awaits_topology() || s.admission_checks.iter().any(|c| c.state != CheckState::Ready) {
            return Vec::new();
        }
        let (Some(a), Some(c)) = (&s.admission, s.condition(cond::QUOTA_RESERVED)) else { return Vec::new() };
        let waited = now.since(c.transition).seconds();
        let queue = &a.cluster_queue;
        note(
            false,
            "Admitted",
            format!("Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s"),
        )
    }

    /// The event for a workload that is kept out of its queue for a reason that Kueue doesn't have, once per reason.
    pub(crate) fn held_back_note(&self, id: WlId, reason: &str, message: &str) -> Option<Note> {
        let wl = self.wl(id)?;
        let told = wl.obj.status.condition(cond::QUOTA_RESERVED).is_some_and(|c| c.reason == reason);
        let passes = reason == WAITING || reason == OUTSIDE;
        let ours =
            passes || self.why_depends(wl).or_else(|| self.why_outside(wl)).is_some_and(|(r, _)| r == reason);
        (!told && ours).then(|| Note {
            warning: !passes,
            reason: reason.to_owned(),
            message: message.to_owned(),
        })
    }

    /// Backoffs and reactivation; whether a write was made or there is nothing more to do now.
    fn reconcile_active(&mut self, id: WlId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        let s = &wl.obj.status;
        if s.is_true(cond::DEACTIVATION_TARGET) {
            let (key, uid) = (wl.obj.key.clone(), wl.obj.uid.clone());
            self.out.push(Action::DeactivateWorkload { key, uid });
            return true;
        }
        let requeue_at = s.requeue_state.as_ref().and_then(|r| r.requeue_at);
        if let Some(at) = requeue_at {
            if at > now {
                self.timers.insert((at, id));
                return true;
            }
            if Phase::of(s) == Phase::Pending {
                return self.edit(id, now, Vec::new(), |e| {
                    if let Some(r) = &mut e.status.requeue_state {
                        r.requeue_at = None;
                    }
                });
            }
        }
        let Some(c) = s.condition(cond::REQUEUED).filter(|c| !c.status) else { return false };
        let (reason, message) = match c.reason.as_str() {
            // Also `DeactivatedDueTo` something.
            r if r.starts_with("Deactivated") => ("Reactivated", "The workload was reactivated"),
            "PodsReadyTimeout" | "AdmissionCheck" => ("BackoffFinished", "The workload backoff was finished"),
            _ => return false,
        };
        self.edit(id, now, Vec::new(), |e| {
            if let Some(r) = &mut e.status.requeue_state {
                r.requeue_at = None;
            }
            e.set(cond::REQUEUED, true, reason, message);
        })
    }

    /// Eviction of a deactivated workload; whether a write was made.
    fn reconcile_inactive(&mut self, id: WlId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        let s = &wl.obj.status;
        let target = s.condition(cond::DEACTIVATION_TARGET).cloned();
        if s.is_true(cond::EVICTED) {
            return s.requeue_state.is_some()
                && self.edit(id, now, Vec::new(), |e| e.status.requeue_state = None);
        }
        let cause = target.as_ref().map_or(String::new(), |c| c.reason.clone());
        let message = match &target {
            Some(c) => format!("The workload is deactivated due to {}", c.message),
            None => "The workload is deactivated".to_owned(),
        };
        self.evict(id, "Deactivated", &cause, &message, now)
    }

    /// First phase of an eviction, with its event.
    pub(crate) fn evict(&mut self, id: WlId, reason: &str, cause: &str, message: &str, now: Time) -> bool {
        let holds = self.wl(id).is_some_and(|w| w.obj.status.admission.is_some());
        let full = if reason == "Deactivated" && !cause.is_empty() {
            format!("EvictedDueTo{reason}DueTo{cause}")
        } else {
            format!("EvictedDueTo{reason}")
        };
        let notes = if holds { note(false, &full, message) } else { Vec::new() };
        let deactivated = reason == "Deactivated";
        self.edit(id, now, notes, |e| {
            if deactivated {
                e.status.conditions.retain(|c| c.kind != cond::DEACTIVATION_TARGET);
                e.status.requeue_state = None;
            }
            e.evict(reason, cause, message);
        })
    }

    /// Workloads of queues that run again may be queued again; whether a write was made.
    fn reconcile_requeued(&mut self, id: WlId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        let lq = self.lq(wl.lq);
        let requeued = wl.obj.status.condition(cond::REQUEUED).filter(|c| !c.status);
        if let Some(reason) = requeued.map(|c| c.reason.as_str()) {
            let local_runs = lq.spec.as_ref().is_some_and(|s| s.stop_policy == StopPolicy::None);
            if reason == "LocalQueueStopped" && local_runs {
                return self.requeued(id, "LocalQueueRestarted", "The LocalQueue", now);
            }
            let queue = lq.cq.filter(|_| local_runs).and_then(|c| self.cq(c).spec.as_ref());
            if reason == "ClusterQueueStopped" && queue.is_some_and(|q| q.stop_policy == StopPolicy::None) {
                return self.requeued(id, "ClusterQueueRestarted", "The ClusterQueue", now);
            }
        }
        let gate = wl.obj.admission_gated_by.clone();
        // A closed preemption gate has the same reason.
        let gated =
            wl.obj.status.condition(cond::QUOTA_RESERVED).is_some_and(|c| c.reason == "AdmissionGated")
                && !wl.obj.status.is_true(cond::BLOCKED_ON_GATES);
        let explicit = self.config.gates.explicit_status;
        if gate.is_empty() && gated {
            let notes =
                note(false, "AdmissionGateCleared", "Admission gate cleared, workload is now admissible");
            return self.edit(id, now, notes, |e| {
                let message = "AdmissionGatedBy cleared, waiting for quota reservation";
                e.unset_reservation(explicit, "PendingEvaluation", message);
            });
        }
        if !gate.is_empty() && !gated {
            let notes = note(false, "AdmissionGated", format!("Workload admission is gated by: {gate}"));
            return self.edit(id, now, notes, |e| {
                e.unset_reservation(explicit, "AdmissionGated", &format!("Admission is gated by: {gate}"));
            });
        }
        false
    }

    fn requeued(&mut self, id: WlId, reason: &str, what: &str, now: Time) -> bool {
        let message = format!("{what} was restarted after being stopped");
        self.edit(id, now, Vec::new(), |e| {
            e.set(cond::REQUEUED, true, reason, &message);
        })
    }

    /// Keeps the list of admission checks what it has to be (spec section 2.11); whether a write was made.
    fn reconcile_checks(&mut self, id: WlId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        // One whose queue was changed while it got its quota is held against the checks of who gave it.
        let cq = wl.held.or(self.lq(wl.lq).cq);
        let Some(cq) = cq.filter(|&c| self.cq(c).spec.is_some()) else { return false };
        let wanted = self.checks_of(cq, wl.obj.status.admission.as_deref());
        let have = &wl.obj.status.admission_checks;
        if have.len() == wanted.len() && have.iter().all(|c| wanted.contains(&c.name)) {
            return false;
        }
        let at = now.truncate_to_second();
        self.edit(id, now, Vec::new(), |e| {
            let checks = &mut e.status.admission_checks;
            checks.retain(|c| wanted.contains(&c.name));
            for name in wanted {
                if !checks.iter().any(|c| c.name == name) {
                    checks.push(AdmissionCheckState {
                        name,
                        transition: at,
                        ..AdmissionCheckState::default()
                    });
                }
            }
            checks.sort_by(|a, b| a.name.cmp(&b.name));
        })
    }

    /// Names of the checks a workload has to pass: with an admission those of its flavors, before that
    /// those that apply to every flavor.
    pub(crate) fn checks_of(&self, cq: super::state::CqId, admission: Option<&Admission>) -> Vec<String> {
        let Some(spec) = &self.cq(cq).spec else { return Vec::new() };
        let all: Vec<&str> =
            spec.resource_groups.iter().flat_map(|g| g.flavors.iter().map(|f| f.flavor.as_str())).collect();
        let applies = |on: &[String]| {
            if on.is_empty() {
                return true;
            }
            match admission {
                Some(a) => a.assignments.iter().flat_map(|p| &p.flavors).any(|(_, f)| on.contains(f)),
                None => all.iter().all(|f| on.iter().any(|o| o == f)),
            }
        };
        spec.admission_checks.iter().filter(|(_, on)| applies(on)).map(|(n, _)| n.clone()).collect()
    }

    /// Why a workload without a reservation waits, as far as that is known without a cycle.
    fn why_waiting(&self, id: WlId) -> Option<(String, String)> {
        let wl = self.wl(id)?;
        let obj = &wl.obj;
        let said = |reason: &str, message: String| Some((reason.to_owned(), message));
        let condition = obj.status.condition(cond::QUOTA_RESERVED);
        if !obj.active {
            return said("Deactivated", "The workload is deactivated".into());
        }
        if is_on_hold(obj) {
            return None;
        }
        let lq = self.lq(wl.lq);
        let Some(spec) = &lq.spec else {
            return said("Misconfigured", format!("LocalQueue {} doesn't exist", obj.queue));
        };
        if spec.stop_policy != StopPolicy::None {
            return said("Suspended", format!("LocalQueue {} is inactive", obj.queue));
        }
        let Some(cq) = lq.cq.filter(|&c| self.cq(c).spec.is_some()) else {
            return said("Misconfigured", format!("ClusterQueue {} doesn't exist", spec.cluster_queue));
        };
        if !self.cq(cq).is_active() {
            return said("Suspended", format!("ClusterQueue {} is inactive", self.cq(cq).name));
        }
        if self.namespaces.contains_key(&obj.key.namespace) && !self.namespace_matches(cq, &obj.key.namespace)
        {
            return said("Misconfigured", "workload namespace doesn't match ClusterQueue selector".into());
        }
        if let Some(problem) = &wl.invalid_as_written {
            return said("Misconfigured", problem.clone());
        }
        if !obj.admission_gated_by.is_empty() {
            return said("AdmissionGated", format!("Admission is gated by: {}", obj.admission_gated_by));
        }
        if let Some((reason, message)) = self.why_depends(wl) {
            return said(reason, message);
        }
        if let Some((reason, message)) = self.why_outside(wl) {
            return said(reason, message);
        }
        let reason = condition.map(|c| c.reason.as_str());
        if self.may_ask_shape(reason)
            && let Some(stopped) = self.stopped_reason(id)
        {
            let message = "Bypassed scheduling evaluation because an equivalent workload recently failed";
            let shut = if stopped == why::WINDOW { self.shut_flavors_text(wl) } else { None };
            return said(stopped, shut.unwrap_or_else(|| message.into()));
        }
        match reason {
            Some(r) if KEPT.contains(&r) => None,
            None if !self.config.gates.explicit_status => None,
            _ => said("PendingEvaluation", "Workload is pending evaluation in the scheduling queue".into()),
        }
    }

    /// Whether a verdict on an equal workload could change what is said about this one.
    pub(crate) fn may_hear_of_shape(&self, id: WlId) -> bool {
        let said = self.wl(id).map(|w| w.obj.status.condition(cond::QUOTA_RESERVED));
        said.is_some_and(|c| self.may_ask_shape(c.map(|c| c.reason.as_str())))
    }

    /// Whether the verdict on an equal workload may replace this reason.
    fn may_ask_shape(&self, reason: Option<&str>) -> bool {
        self.config.gates.equivalence_hashing
            && match reason {
                None => self.config.gates.explicit_status,
                Some(r) => ["", "Deactivated", "PendingEvaluation", "Suspended", "Pending"].contains(&r),
            }
    }

    /// Why workloads of this one's shape are parked, if they and it are.
    fn stopped_reason(&self, id: WlId) -> Option<&'static str> {
        let wl = self.wl(id)?;
        let pending = &self.cq(wl.queued?).pending;
        if pending.spot(id) == Some(super::pending::Spot::Active) {
            return None;
        }
        pending.stopped(wl.shape).map(|(reason, _)| reason)
    }

    /// Evictions of workloads that hold quota: checks, stopped queues.
    fn reconcile_holding(&mut self, id: WlId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let s = &wl.obj.status;
        if !Phase::of(s).holds_quota() || !wl.obj.active {
            return;
        }
        if !s.is_true(cond::EVICTED) && has_failed_checks(&wl.obj) {
            self.reconcile_failed_checks(id, now);
            return;
        }
        let admitted = Phase::of(s) == Phase::Admitted;
        let evicted = s.is_true(cond::EVICTED);
        let lq = self.lq(wl.lq);
        let local = lq.spec.as_ref().map(|s| (s.stop_policy, s.deleting));
        // The ClusterQueue is known by its LocalQueue, and a stopped one is not there for Kueue: whoever came through
        // a LocalQueue on hold runs on, whatever is said of the ClusterQueue.
        let runs = local.is_some_and(|(p, _)| p == StopPolicy::None);
        let queue = lq.cq.filter(|_| runs).and_then(|c| self.cq(c).spec.as_ref());
        let queue = queue.map(|s| (s.stop_policy, s.deleting));
        let name = wl.obj.queue.clone();
        let queue_name = lq.cq.map_or(String::new(), |c| self.cq(c).name.clone());
        let stops = [
            (local, "LocalQueueStopped", "LocalQueue", name),
            (queue, "ClusterQueueStopped", "ClusterQueue", queue_name),
        ];
        for (state, reason, kind, name) in stops {
            if admitted {
                if state.is_some_and(|(p, _)| p == StopPolicy::HoldAndDrain) && !evicted {
                    self.evict(id, reason, "", &format!("The {kind} is stopped"), now);
                    return;
                }
                continue;
            }
            let (why, message) = match state {
                None | Some((_, true)) => {
                    ("Misconfigured", format!("{kind} {name} is terminating or missing"))
                }
                Some((p, _)) if p != StopPolicy::None => ("Suspended", format!("{kind} {name} is stopped")),
                _ => continue,
            };
            let explicit = self.config.gates.explicit_status;
            self.edit(id, now, Vec::new(), |e| {
                e.unset_reservation(explicit, why, &message);
            });
            return;
        }
        self.reconcile_readiness(id, now);
        self.reconcile_execution_time(id, now);
    }

    /// Evicts a workload whose pods are not ready in time, and deactivates one that was evicted for that
    /// too often (spec section 2.10).
    fn reconcile_readiness(&mut self, id: WlId, now: Time) {
        let Some(rules) = self.config.wait_for_pods_ready.clone() else { return };
        let Some(wl) = self.wl(id) else { return };
        let s = &wl.obj.status;
        if s.is_true(cond::EVICTED) || s.is_true(cond::DEACTIVATION_TARGET) {
            return;
        }
        let Some(admitted) = s.condition(cond::ADMITTED).filter(|c| c.status) else { return };
        let (cause, since, timeout) = match s.condition(cond::PODS_READY) {
            Some(c) if c.status => return,
            Some(c) if c.reason == "WaitForRecovery" => {
                let Some(timeout) = rules.recovery_timeout else { return };
                ("WaitForRecovery", c.transition, timeout)
            }
            None => ("WaitForStart", admitted.transition, rules.timeout),
            Some(c) if c.reason == "WaitForStart" || c.reason == "PodsReady" => {
                ("WaitForStart", admitted.transition, rules.timeout)
            }
            Some(_) => return,
        };
        let end = since.plus(timeout);
        if end > now {
            self.timers.insert((end, id));
            return;
        }
        let count = s.requeue_state.as_ref().map_or(0, |r| r.count).saturating_add(1);
        if rules.backoff_limit.is_some_and(|limit| count > limit) {
            self.edit(id, now, Vec::new(), |e| {
                let message = "exceeding the maximum number of re-queuing retries";
                e.set(cond::DEACTIVATION_TARGET, true, "RequeuingLimitExceeded", message);
            });
            return;
        }
        let wait = backoff(rules.backoff_base, rules.backoff_max, count);
        let message = format!("Exceeded the PodsReady timeout {}", wl.obj.key);
        let notes = note(false, "EvictedDueToPodsReadyTimeout", message.clone());
        self.edit(id, now, notes, |e| {
            let state = e.status.requeue_state.get_or_insert_default();
            state.count = count;
            state.requeue_at = state.requeue_at.max(Some(now.plus(wait).truncate_to_second()));
            e.evict("PodsReadyTimeout", cause, &message);
        });
    }

    fn reconcile_failed_checks(&mut self, id: WlId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let checks = &wl.obj.status.admission_checks;
        let texts = |state: CheckState| -> Vec<String> {
            checks
                .iter()
                .filter(|c| c.state == state)
                .map(|c| match c.message.as_str() {
                    "" => format!("{:?}", c.name),
                    m => format!("{:?} ({m})", c.name),
                })
                .collect()
        };
        let message = |state: CheckState, texts: &[String]| {
            let noun = if texts.len() > 1 { "AdmissionChecks" } else { "AdmissionCheck" };
            format!("{noun} in {} state: {}", state.as_str(), texts.join("; "))
        };
        let rejected = texts(CheckState::Rejected);
        if !rejected.is_empty() {
            let message = message(CheckState::Rejected, &rejected);
            let notes = note(true, "AdmissionCheckRejected", format!("Deactivated due to {message}"));
            self.edit(id, now, notes, |e| {
                e.set(cond::DEACTIVATION_TARGET, true, "AdmissionCheck", &message);
            });
            return;
        }
        let text = format!("Evicted due to {}", message(CheckState::Retry, &texts(CheckState::Retry)));
        let wait = checks
            .iter()
            .filter(|c| c.state == CheckState::Retry)
            .filter_map(|c| {
                c.requeue_after_seconds.map(|s| c.transition.plus(Duration::from_seconds(s.into())))
            })
            .max();
        if let Some(at) = wait {
            self.edit(id, now, Vec::new(), |e| {
                let state = e.status.requeue_state.get_or_insert_default();
                state.requeue_at = state.requeue_at.max(Some(at));
            });
        }
        self.evict(id, "AdmissionCheck", "", &text, now);
    }

    fn reconcile_execution_time(&mut self, id: WlId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let s = &wl.obj.status;
        let (Some(max), Some(c)) = (wl.obj.max_execution_seconds, s.condition(cond::ADMITTED)) else {
            return;
        };
        if !c.status || s.is_true(cond::DEACTIVATION_TARGET) {
            return;
        }
        let left = i64::from(max) - i64::from(s.past_execution_seconds.unwrap_or(0));
        let end = c.transition.plus(Duration::from_seconds(left));
        if end > now {
            self.timers.insert((end, id));
            return;
        }
        let reason = "MaximumExecutionTimeExceeded";
        let notes = note(true, reason, format!("The maximum execution time ({max}s) exceeded"));
        self.edit(id, now, notes, |e| {
            e.set(cond::DEACTIVATION_TARGET, true, reason, "exceeding the maximum execution time");
            e.status.past_execution_seconds = None;
        });
    }
}
