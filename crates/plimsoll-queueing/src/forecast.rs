//! When a workload could start that is not there: a dry run of its admission, and of those before it, now and in the time to
//! come. A MultiKueue manager asks its workers before it sends a workload to one of them.

use std::collections::BTreeSet;

use crate::Queueing;
use crate::ids::{ClusterQueueId, WorkloadId};
use crate::model::{StopPolicy, Workload, WorkloadStatus};
use crate::pending::QueuePosition;
use crate::state::WorkloadInfo;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::time::Time;

/// Name of the workload during the dry run. No object can have it.
const NAME: &str = "/forecast";

/// Most workloads of other ClusterQueues that are looked at.
const MOST_WAITING: usize = 4096;

/// A ClusterQueue with what waits in it.
#[derive(Clone, Debug)]
pub(crate) struct WaitingQueue {
    pub(crate) cq: ClusterQueueId,
    /// In order.
    pub(crate) waiting: Vec<WorkloadId>,
    /// Those that are before the workload in question, in its own ClusterQueue.
    pub(crate) before: BTreeSet<WorkloadId>,
}

/// When a workload could have its quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The earliest time without preemption at which that is certain, by the maximum execution times of the workloads that hold
    /// quota; `None`: not known, because workloads in its way may run for ever.
    pub start: Option<Time>,
    /// How many workloads it would preempt to start now; 0: none that would help.
    pub preempted: usize,
    /// How many workloads of the ClusterQueue are before it.
    pub ahead: usize,
    /// Why it can't be admitted whatever ends; empty: it can.
    pub message: String,
}

impl Queueing {
    /// When this workload could have its quota if it was created now, in its LocalQueue; `None`: there is no such queue.
    ///
    /// All that wait in the cohort are admitted in the order of cycles, but preempt nobody. What is yet to be created is not
    /// known, and nodes are not asked (joint admission): quota, topologies and run windows decide. Nothing is changed.
    pub fn forecast(&mut self, mut workload: Workload, now: Time) -> Option<Forecast> {
        let lq = self.local_queues.find(&(workload.key.namespace.clone(), workload.queue.clone()))?;
        self.lq(lq).spec.as_ref()?;
        self.drop_disabled_fields(&mut workload);
        NAME.clone_into(&mut workload.key.name);
        NAME.clone_into(&mut workload.uid);
        // It is a workload of its own: neither a slice, nor a variant, nor one that was admitted before.
        (workload.creation, workload.replaces, workload.status) = (now, None, WorkloadStatus::default());
        (workload.has_variants, workload.variant_of, workload.allowed_flavors) = (false, String::new(), None);
        let key = workload.key.clone();
        let id = self.workloads.insert(WorkloadInfo::new(workload, lq));
        self.refresh_request(id);
        let forecast = self.forecast_of(id, now);
        if let Some(hash) = self.wl(id).map(WorkloadInfo::scheduling_hash) {
            self.scheduling_hashes.give_back(hash);
        }
        self.workloads.forget_key(&key);
        self.workloads.remove(id);
        Some(forecast)
    }

    fn forecast_of(&mut self, id: WorkloadId, now: Time) -> Forecast {
        let never = |message: String| Forecast { message, ..Forecast::default() };
        let Some(wl) = self.wl(id) else { return Forecast::default() };
        let lq = self.lq(wl.lq());
        if lq.spec.as_ref().is_none_or(|spec| spec.stop_policy != StopPolicy::None) {
            return never(format!("LocalQueue {} is inactive", lq.name));
        }
        let Some(cq) = lq.cq.filter(|&c| self.cq(c).spec.is_some()) else {
            return never(format!("LocalQueue {} has no ClusterQueue", lq.name));
        };
        let opens = if self.outside_run_window(wl) { self.next_opening(wl) } else { Some(now) };
        let (Some(opens), true) = (opens, wl.devices().is_ok() && crate::account::is_admissible(&wl.obj))
        else {
            return never(format!("the workload may not be queued in ClusterQueue {}", self.cq(cq).name));
        };
        let queues = self.queues_beside(id, cq);
        self.dry_run_admissions(id, queues, (now, opens))
    }

    /// What waits in a ClusterQueue with a workload that comes to it, and in all of its cohort, if those are not too many.
    fn queues_beside(&self, id: WorkloadId, cq: ClusterQueueId) -> Vec<WaitingQueue> {
        let trees = self.trees_of(&BTreeSet::from([cq]));
        let others = trees.iter().flat_map(|tree| tree.iter()).copied().filter(|&other| other != cq);
        let mut all = vec![self.waiting_beside(id, cq)];
        let mut left = MOST_WAITING;
        for other in others {
            let waiting = self.may_be_queued(other);
            let Some(rest) = left.checked_sub(waiting.len()) else {
                all.truncate(1);
                return all;
            };
            left = rest;
            all.push(WaitingQueue { cq: other, waiting, before: BTreeSet::new() });
        }
        all
    }

    fn waiting_beside(&self, id: WorkloadId, cq: ClusterQueueId) -> WaitingQueue {
        let waiting = self.may_be_queued(cq);
        let rank = self.wl(id).map(|wl| self.rank(wl, id));
        let is_before = |&other: &WorkloadId| self.wl(other).map(|wl| self.rank(wl, other)) < rank;
        let before = waiting.iter().copied().filter(is_before).insert_each();
        WaitingQueue { cq, waiting, before }
    }

    /// The workloads that wait in a ClusterQueue, in order; those that may not be queued yet are left out.
    fn may_be_queued(&self, cq: ClusterQueueId) -> Vec<WorkloadId> {
        let pending = &self.cq(cq).pending;
        let all = self.waiting_ids(cq);
        all.filter(|&other| pending.position(other) != Some(QueuePosition::Delayed)).collect()
    }
}

#[cfg(test)]
mod tests;
