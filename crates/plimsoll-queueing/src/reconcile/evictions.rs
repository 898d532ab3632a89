//! Evictions of workloads that hold quota: failed checks, stopped queues, pods that are not ready in time, execution
//! time.

use super::event_of;
use crate::Queueing;
use crate::Reporter::WorkloadController;
use crate::account::has_failed_checks;
use crate::cond;
use crate::ids::WorkloadId;
use crate::model::{CheckState, StopPolicy};
use crate::phase::Phase;
use plimsoll_state::time::{Duration, Time};

/// `base` times 2 to the power of `count` - 1, at most `max`.
fn backoff(base: Duration, max: Duration, count: i32) -> Duration {
    let doublings = u32::try_from(count - 1).unwrap_or(0).min(62);
    Duration(base.0.saturating_mul(1 << doublings)).min(max)
}

impl Queueing {
    /// Evictions of workloads that hold quota: checks, stopped queues.
    pub(super) fn reconcile_holding(&mut self, id: WorkloadId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let s = &wl.obj.status;
        if !Phase::of(s).holds_quota() || !wl.obj.active {
            return;
        }
        if !s.is_true(cond::EVICTED) && !wl.obj.has_variants && has_failed_checks(&wl.obj) {
            self.reconcile_failed_checks(id, now);
            return;
        }
        let admitted = Phase::of(s) == Phase::Admitted;
        let evicted = s.is_true(cond::EVICTED);
        let lq = self.lq(wl.lq());
        let local = lq.spec.as_ref().map(|s| (s.stop_policy, s.deleting));
        // The ClusterQueue is known by its LocalQueue, and a stopped one is not there for Kueue: a workload that came
        // through a LocalQueue on hold runs on, whatever the ClusterQueue's policy.
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
                    let message = format!("The {kind} is stopped");
                    self.evict(id, (reason, ""), &message, WorkloadController, now);
                    return;
                }
                continue;
            }
            let (why, message) = match state {
                None | Some((_, true)) => {
                    ("Misconfigured", format!("{kind} {name} is terminating or missing"))
                }
                Some((StopPolicy::Hold | StopPolicy::HoldAndDrain, false)) => {
                    ("Suspended", format!("{kind} {name} is stopped"))
                }
                Some((StopPolicy::None, false)) => continue,
            };
            let explicit = self.config.gates.explicit_status;
            self.edit(id, now, Vec::new(), |e| {
                e.unset_reservation(explicit, why, &message);
            });
            return;
        }
        // The pods are those of the parent, and deactivating it deactivates its variants.
        if self.wl(id).is_some_and(|w| w.obj.variant_of.is_empty()) {
            self.reconcile_readiness(id, now);
            self.reconcile_execution_time(id, now);
        }
    }

    /// Evicts a workload whose pods are not ready in time, and deactivates one that was evicted for that
    /// too often (Kueue `reconcileNotReadyTimeout`).
    fn reconcile_readiness(&mut self, id: WorkloadId, now: Time) {
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
            self.timers.workloads.insert((end, id));
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
        let events = event_of(false, "EvictedDueToPodsReadyTimeout", message.clone());
        self.edit(id, now, events, |e| {
            let state = e.status.requeue_state.get_or_insert_default();
            state.count = count;
            state.requeue_at = state.requeue_at.max(Some(now.plus(wait).truncate_to_second()));
            e.evict("PodsReadyTimeout", cause, &message);
        });
    }

    fn reconcile_failed_checks(&mut self, id: WorkloadId, now: Time) {
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
            let events = event_of(true, "AdmissionCheckRejected", format!("Deactivated due to {message}"));
            self.edit(id, now, events, |e| {
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
        self.evict(id, ("AdmissionCheck", ""), &text, WorkloadController, now);
    }

    fn reconcile_execution_time(&mut self, id: WorkloadId, now: Time) {
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
            self.timers.workloads.insert((end, id));
            return;
        }
        let reason = "MaximumExecutionTimeExceeded";
        let events = event_of(true, reason, format!("The maximum execution time ({max}s) exceeded"));
        self.edit(id, now, events, |e| {
            e.set(cond::DEACTIVATION_TARGET, true, reason, "exceeding the maximum execution time");
            e.status.past_execution_seconds = None;
        });
    }
}
