//! The second pass: workloads that hold their quota and still need places, because a node failed or because
//! admission checks had to bring the nodes first (Kueue KEP-2724,
//! `pkg/cache/queue/second_pass_queue.go`).

use std::collections::BTreeMap;

use super::Head;
use super::assign::Assignment;
use crate::Queueing;
use crate::ids::{ClusterQueueId, WorkloadId};
use crate::model::Admission;
use crate::state::WorkloadInfo;
use crate::{Action, CheckState, KubernetesEvent, RecordCause, Reporter, WorkloadEvent};
use plimsoll_state::time::{Duration, Time};

/// The longest wait before another attempt, in seconds; the first takes one.
const LONGEST_WAIT: i64 = 30;

/// When which workloads get a second pass, and the number of that attempt.
#[derive(Debug, Default)]
pub(crate) struct SecondPasses(BTreeMap<WorkloadId, (Time, u32)>);

impl SecondPasses {
    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.values().map(|(t, _)| *t).min()
    }

    /// Removes those that were due: a cycle has decided about them.
    pub(super) fn remove_due(&mut self, now: Time) {
        self.0.retain(|_, (t, _)| *t > now);
    }

    /// The workload is gone.
    pub(crate) fn forget(&mut self, id: WorkloadId) {
        self.0.remove(&id);
    }
}

/// How long the attempt of this number has to wait.
fn wait(attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(10);
    Duration::from_seconds(LONGEST_WAIT.min(1 << doublings))
}

impl Queueing {
    /// Sees to it that a workload that needs a second pass gets one.
    pub(crate) fn plan_second_pass(&mut self, id: WorkloadId, now: Time) {
        let Some(wl) = self.wl(id).filter(|w| self.may_pass_again(id, w)) else { return };
        // Not before a write that failed may be tried again.
        let first = wl.failures.hold_off().map_or(now.plus(wait(1)), |t| t.max(now.plus(wait(1))));
        self.second.0.entry(id).or_insert((first, 1));
    }

    fn may_pass_again(&self, id: WorkloadId, wl: &WorkloadInfo) -> bool {
        wl.needs_second_pass()
            && self.reserved_in(wl).is_some_and(|cq| {
                let admission = wl.obj.status.admission.as_ref();
                wl.needs_other_node() || admission.is_some_and(|a| self.has_all_checks(id, cq, a))
            })
    }

    /// The workloads whose second pass is due, with the number of the attempt.
    pub(super) fn second_passes_due(&self, now: Time) -> Vec<Head> {
        let due = self.second.0.iter().filter(|(_, (t, _))| *t <= now);
        due.filter_map(|(&id, &(_, attempt))| {
            let wl = self.wl(id).filter(|w| self.may_pass_again(id, w))?;
            Some(Head { second: Some(attempt), ..Head::new(id, self.reserved_in(wl)?) })
        })
        .collect()
    }

    /// Why the workload was given no places, and another attempt later.
    pub(super) fn second_pass_failed(&mut self, id: WorkloadId, message: String, attempt: u32, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let key = wl.obj.key.clone();
        let next = attempt.saturating_add(1);
        self.second.0.insert(id, (now.plus(wait(next)), next));
        let event = KubernetesEvent::of_scheduler(true, "SecondPassFailed", message);
        let event = WorkloadEvent { key, cause: RecordCause::SecondPassFailed, event };
        self.out.push(Action::Record(Box::new(event)));
    }

    /// Ends a workload for one of whose nodes there is no other.
    pub(super) fn give_up_on_nodes(&mut self, id: WorkloadId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let nodes = wl.obj.status.unhealthy_nodes.join(",");
        let message =
            format!("Workload was evicted as there was no replacement for unhealthy node(s): {nodes}");
        self.evict(id, ("NodeFailures", ""), &message, Reporter::Scheduler, now);
    }

    /// Writes the places a second pass found.
    pub(super) fn admit_again(&mut self, id: WorkloadId, cq: ClusterQueueId, a: &Assignment, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let Some(mut admission) = wl.obj.status.admission.clone() else { return };
        for ps in &a.pod_sets {
            if let Some(assigned) = admission.assignments.iter_mut().find(|p| p.name == ps.name) {
                assigned.topology.clone_from(&ps.topology);
                assigned.delayed = ps.delayed;
            }
        }
        let s = &wl.obj.status;
        let (replaced, name) = (!s.unhealthy_nodes.is_empty(), admission.cluster_queue.clone());
        let complete = self.has_all_checks(id, cq, &admission);
        let ready = s.admission_checks.iter().all(|c| c.state == CheckState::Ready);
        let mut events = Vec::new();
        let explicit = self.config.gates.explicit_status;
        if complete && ready && !replaced {
            let message = format!("Admitted by ClusterQueue {name}, wait time since reservation was 0s");
            events.push(KubernetesEvent::of_scheduler(false, "Admitted", message));
        }
        self.edit(id, now, events, |edit| {
            edit.set_reservation(*admission);
            edit.status.unhealthy_nodes.clear();
            if complete {
                edit.sync_admitted(explicit);
            }
        });
    }

    /// Whether every check that the admission needs is in the workload's list.
    pub(super) fn has_all_checks(&self, id: WorkloadId, cq: ClusterQueueId, admission: &Admission) -> bool {
        let have = self.wl(id).map_or(&[][..], |w| w.obj.status.admission_checks.as_slice());
        self.checks_of(cq, Some(admission)).iter().all(|n| have.iter().any(|c| c.name == *n))
    }
}
