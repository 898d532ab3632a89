//! Work that is too much for one step, and goes on in the next ones.
//!
//! What concerns every workload (a LimitRange, a run window, a new ClusterQueue) and what many events leave behind is done in
//! parts, so that decisions and answers don't wait for it. While some is left, [`Queueing::next_wake`] says "at once".

use std::collections::BTreeSet;

use super::ids::{ClusterQueueId, LocalQueueId, WorkloadId};
use crate::Queueing;
use plimsoll_state::slab::Id;
use plimsoll_state::time::Time;

/// Most workloads, and most queues, that one part of a step brings up to date: some milliseconds of work.
const WORK_PER_STEP: usize = 1024;

/// How much work a step does, and where the next one goes on.
#[derive(Debug)]
pub(crate) struct Bounded {
    /// Most workloads and queues that one part of a step brings up to date; fewer in tests.
    pub(crate) most: usize,
    pub(crate) workloads: WorkloadId,
    pub(crate) cluster_queues: ClusterQueueId,
    pub(crate) local_queues: LocalQueueId,
}

impl Default for Bounded {
    fn default() -> Self {
        Self {
            most: WORK_PER_STEP,
            workloads: Id::new(0),
            cluster_queues: Id::new(0),
            local_queues: Id::new(0),
        }
    }
}

/// How a workload is queued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Again {
    /// From where it is.
    InPlace,
    /// As one that is new.
    Anew,
    /// As one that is new, if its claims for devices are charged otherwise.
    Recharged,
    /// As one that is new, with what it asks for computed anew.
    Refreshed,
}

impl Again {
    /// What comes to both. One that is queued again in any case is so also if its claims are charged as before.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Recharged, Self::Recharged) => Self::Recharged,
            (Self::Recharged, _) | (_, Self::Recharged) => Self::Refreshed,
            _ => self.max(other),
        }
    }
}

/// Takes as many ids out of a set as a step has time for. Where some are left, the next call goes on behind those taken, so
/// that ids that are added all the time don't keep others waiting.
pub(crate) fn take_some<I: Id + Ord>(set: &mut BTreeSet<I>, from: &mut I, most: usize) -> Vec<I> {
    if set.len() <= most {
        return std::mem::take(set).into_iter().collect();
    }
    let taken: Vec<I> = set.range(*from..).chain(set.range(..*from)).take(most).copied().collect();
    for id in &taken {
        set.remove(id);
    }
    *from = taken.last().map_or(I::new(0), |id| I::new(id.index() + 1));
    taken
}

impl Queueing {
    /// Queues workloads again that something concerns which changed for many. Cycles wait until all of them are.
    pub(crate) fn requeue_dirty(&mut self, now: Time) {
        for _ in 0..self.bounded.most {
            let Some((id, how)) = self.dirty.requeue.pop_first() else { return };
            let Some(wl) = self.wl(id) else { continue };
            let is_pending = wl.quota().is_none();
            match how {
                Again::Recharged => {
                    let (_, specs) = self.adjusted_specs(id);
                    let charge = self.device_charge(id, &specs);
                    if !is_pending || self.wl(id).is_none_or(|w| *w.devices() == charge) {
                        continue;
                    }
                }
                Again::InPlace | Again::Anew | Again::Refreshed => {}
            }
            self.dirty.workloads.insert(id);
            if !is_pending {
                continue;
            }
            if how > Again::InPlace {
                self.unqueue(id);
            }
            if how > Again::Anew {
                self.refresh_request(id);
            }
            self.enqueue(id, false, now);
        }
    }
}
