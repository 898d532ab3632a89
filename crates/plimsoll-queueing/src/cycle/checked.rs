//! Nodes for workloads whose admission checks are ready: a check may bring the nodes, so they are looked for when it has.

use super::joint::{ADMISSION_CHECKS, all_can_be_reserved};
use crate::Queueing;
use crate::cond;
use crate::ids::WorkloadId;
use crate::joint::{NodeReservations, NodesDecision};
use crate::model::{AdmissionCheckState, CheckState, WorkloadStatus};
use crate::phase::Phase;
use crate::state::WorkloadInfo;
use crate::tas::MULTI_KUEUE;
use plimsoll_state::time::Time;

/// Whether all checks of a workload are ready that waits for nothing else, and nodes were left to its checks.
fn is_checked(status: &WorkloadStatus) -> bool {
    let left = |c: &crate::model::Condition| !c.status && c.reason == ADMISSION_CHECKS;
    Phase::of(status) == Phase::Reserved
        && !status.awaits_topology()
        && status.admission_checks.iter().all(|c| c.state == CheckState::Ready)
        && status.condition(cond::NODES_RESERVED).is_some_and(left)
}

impl Queueing {
    /// Notes a workload whose checks may have become ready.
    pub(crate) fn note_checked(&mut self, id: WorkloadId) {
        if self.wl(id).is_some_and(|w| is_checked(&w.obj.status)) {
            self.joint.checked.insert(id);
        }
    }

    /// Whether the pods of a workload run on another cluster.
    fn is_dispatched(&self, status: &WorkloadStatus) -> bool {
        let check = |c: &AdmissionCheckState| self.objects.checks.get(&c.name);
        status.admission_checks.iter().filter_map(check).any(|c| c.controller == MULTI_KUEUE)
    }

    /// Reserves nodes for the pods of workloads whose checks have become ready. Where they don't all fit now the workload is
    /// admitted all the same: it has its quota, and what its checks promised may be on its way.
    pub fn reserve_nodes_of_checked(&mut self, now: Time, nodes: &mut dyn NodeReservations) {
        for id in std::mem::take(&mut self.joint.checked) {
            let runs_here = |w: &&WorkloadInfo| {
                is_checked(&w.obj.status) && all_can_be_reserved(w) && !self.is_dispatched(&w.obj.status)
            };
            let Some(wl) = self.wl(id).filter(runs_here) else { continue };
            let Some(admission) = &wl.obj.status.admission else { continue };
            let (key, pods) = (wl.obj.key.clone(), self.pods_of(wl, admission));
            let reserved = wl.nodes_reserved();
            if reserved {
                // The write that says so failed. Beside its own places it might not fit.
                nodes.release(&key);
                self.wl_mut(id).into_iter().for_each(|w| w.set_nodes_reserved(false));
            }
            let (run, result) = nodes.dry_run(now, &key, &pods);
            let decision = match result {
                Err(failure) => {
                    nodes.end(run);
                    let lack = failure.message;
                    let text = format!("Quota alone decided: when the admission checks were ready, {lack}");
                    NodesDecision::QuotaAlone(ADMISSION_CHECKS, text)
                }
                Ok(()) => {
                    let places = nodes.reserve_nodes(now, &key, &[run]);
                    if places.is_empty() {
                        continue;
                    }
                    if let Some(wl) = self.wl_mut(id) {
                        wl.set_nodes_reserved(true);
                    }
                    NodesDecision::Reserved(places)
                }
            };
            self.joint.decided.insert(id, decision);
            self.dirty.workloads.insert(id);
        }
    }
}
