//! Quota reservations: what workloads are charged, and in which ClusterQueue.
//!
//! The record is made when a workload gets the condition `QuotaReserved` and ends when it is evicted, finished or gone.
//! Usage in the quota tree, in LocalQueues and in topologies is derived from it.

use std::collections::{BTreeMap, BTreeSet};

use super::amount::{Amount, Exact};
use super::cond;
use super::ids::{ClusterQueueId, FlavorResource, LocalQueueId, WorkloadId};
use super::phase::Phase;
use super::state::{LocalQueueState, WorkloadInfo};
use crate::Queueing;
use plimsoll_state::Time;
use plimsoll_state::reservation::{Cause, Reservation, Reservations};

/// What a workload is charged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charged {
    /// Amounts per column of the quota tree.
    pub(crate) usage: Vec<(FlavorResource, Amount)>,
    /// Whether it counts as usage of an admitted workload.
    pub(crate) admitted: bool,
}

/// All quota reservations. A workload has at most one.
pub(crate) type QuotaReservations = Reservations<WorkloadId, ClusterQueueId, Charged>;

impl Queueing {
    /// The quota reservation of a workload.
    pub(crate) fn quota_reservation(
        &self,
        id: WorkloadId,
    ) -> Option<&Reservation<WorkloadId, ClusterQueueId, Charged>> {
        self.quota.get(self.wl(id)?.quota()?)
    }

    /// The ClusterQueue in which a workload has quota reserved.
    pub(crate) fn reserved_in(&self, wl: &WorkloadInfo) -> Option<ClusterQueueId> {
        Some(self.quota.get(wl.quota()?)?.place)
    }

    /// The ClusterQueue in which a workload has quota reserved.
    pub(crate) fn cq_holding(&self, id: WorkloadId) -> Option<ClusterQueueId> {
        Some(self.quota_reservation(id)?.place)
    }

    /// Workloads with quota reserved in a ClusterQueue.
    pub(crate) fn holders(&self, cq: ClusterQueueId) -> impl Iterator<Item = WorkloadId> {
        self.quota.at(cq).map(|(_, r)| r.owner)
    }

    /// Whether a write that reserves quota in one of these ClusterQueues has no answer yet. It may be carried out.
    pub fn is_reserving_in<'a>(&self, cluster_queues: impl IntoIterator<Item = &'a String>) -> bool {
        let ids = cluster_queues.into_iter().filter_map(|name| self.cluster_queues.find(&**name));
        ids.flat_map(|id| self.holders(id)).filter_map(|id| self.wl(id)).any(|wl| wl.obj.is_reserving())
    }

    /// Reserves what the workload's admission says, if it has one.
    pub(crate) fn hold(&mut self, id: WorkloadId) {
        let wl = self.wl(id).filter(|w| !w.obj.has_variants);
        let Some(status) = wl.and_then(WorkloadInfo::status_held) else { return };
        let Some(name) = status.admission.as_ref().map(|a| a.cluster_queue.clone()) else { return };
        let admitted = status.is_true(cond::ADMITTED);
        let since = status.condition(cond::QUOTA_RESERVED).map_or_else(Time::default, |c| c.transition);
        let cq = self.cq_slot(&name);
        let total_requests = self.resources_held(id);
        let usage = self.usage_of(&total_requests);
        let usage = self.uncharged(id, cq, usage);
        if self.ids.columns() > self.tree.columns() {
            self.tree_dirty = true;
        }
        let victim_order = self.victim_order(id, &total_requests);
        let Some(wl) = self.workloads.get_mut(id) else { return };
        let lq = wl.lq();
        wl.set_victim_order(victim_order);
        let reservation = self.quota.make(Reservation {
            owner: id,
            cause: Cause::QuotaReserved,
            place: cq,
            held: Charged { usage: usage.clone(), admitted },
            since,
            expiry: None,
        });
        wl.hold(reservation, total_requests);
        self.index_evicted(id);
        self.tas_charge(id, true);
        self.tas.commit();
        self.charge_usage(cq, lq, &usage, admitted, true);
        self.recompute_replacements(id);
    }

    /// Ends a workload's reservation; whether it had one.
    pub(crate) fn release(&mut self, id: WorkloadId) -> bool {
        if self.wl(id).is_none_or(|w| w.quota().is_none()) {
            return false;
        }
        self.tas_charge(id, false);
        self.tas.commit();
        let Some(wl) = self.workloads.get_mut(id) else { return false };
        let lq = wl.lq();
        let Some(ended) = wl.release().and_then(|r| self.quota.end(r)) else { return false };
        let (cq, Charged { usage, admitted }) = (ended.place, ended.held);
        self.cq_mut(cq).evicted.remove(&id);
        self.cq_mut(cq).generation += 1;
        self.charge_usage(cq, lq, &usage, admitted, false);
        self.recompute_replacements(id);
        true
    }

    /// Notes at the ClusterQueue in which a workload has quota reserved whether it is evicted.
    pub(crate) fn index_evicted(&mut self, id: WorkloadId) {
        let Some(wl) = self.wl(id) else { return };
        let (Some(cq), evicted) = (self.reserved_in(wl), wl.obj.status.is_true(cond::EVICTED)) else {
            return;
        };
        let known = &mut self.cq_mut(cq).evicted;
        if evicted {
            known.insert(id);
        } else {
            known.remove(&id);
        }
    }

    /// Charges other amounts for the reservation that a workload has.
    pub(crate) fn recharge(&mut self, id: WorkloadId, usage: &[(FlavorResource, Amount)]) {
        let Some(wl) = self.workloads.get(id) else { return };
        let (lq, Some(reservation), Some(cq)) = (wl.lq(), wl.quota(), self.reserved_in(wl)) else { return };
        let Some(held) = self.quota.held_mut(reservation).filter(|h| h.usage != usage) else { return };
        let admitted = held.admitted;
        let before = std::mem::replace(&mut held.usage, usage.to_vec());
        self.cq_mut(cq).generation += 1;
        self.charge_usage(cq, lq, &before, admitted, false);
        self.charge_usage(cq, lq, usage, admitted, true);
    }

    fn charge_usage(
        &mut self,
        cq: ClusterQueueId,
        lq: LocalQueueId,
        usage: &[(FlavorResource, Amount)],
        admitted: bool,
        add: bool,
    ) {
        self.joint.changes += 1;
        let one = if add { 1 } else { -1 };
        if let Some(node) = self.cq(cq).node.filter(|_| !self.tree_dirty) {
            if !self.objects.uncounted_cohorts.is_empty() {
                let above = self.tree.ancestors(node).map(|n| &self.tree.node(n).name);
                above.for_each(|name| {
                    self.objects.uncounted_cohorts.remove(name);
                });
            }
            for &(fr, a) in usage {
                if add { self.tree.add(node, fr, a) } else { self.tree.remove(node, fr, a) }
            }
            self.tree.commit();
        }
        if self.lq(lq).cq == Some(cq) {
            self.lq_mut(lq).charge_usage(usage, admitted, add);
        }
        if admitted {
            let c = self.cq_mut(cq);
            c.admitted += one;
            charge(&mut c.admitted_usage, usage, add);
        }
        self.cq_mut(cq).lowest_held = None;
        self.due.tree_of(cq);
        self.touch(cq, lq);
    }

    /// Compares reservations with the statuses of workloads.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check_quota_reservations(&self) {
        self.quota.check();
        for (id, wl) in self.workloads.iter() {
            assert_eq!(
                wl.quota().is_some(),
                wl.must_hold(),
                "{}: quota held and status disagree",
                wl.obj.key
            );
            let mut of_owner = self.quota.of(id).map(|(r, _)| r);
            assert_eq!((of_owner.next(), of_owner.next()), (wl.quota(), None), "{}: reservation", wl.obj.key);
            let admission =
                wl.obj.status.admission.as_ref().filter(|_| Phase::of(&wl.obj.status).holds_quota());
            if let (Some(cq), Some(admission)) = (self.reserved_in(wl), admission) {
                assert_eq!(self.cq(cq).name, admission.cluster_queue, "{}: holds elsewhere", wl.obj.key);
            }
        }
        for (_, r) in self.quota.iter() {
            assert!(self.wl(r.owner).is_some(), "{}: a holder is gone", self.cq(r.place).name);
        }
        let is_evicted = |id: &WorkloadId| self.wl(*id).is_some_and(|w| w.obj.status.is_true(cond::EVICTED));
        for (id, cq) in self.cluster_queues.iter() {
            let evicted: BTreeSet<WorkloadId> = self.holders(id).filter(is_evicted).collect();
            assert_eq!(cq.evicted, evicted, "{}: evicted workloads", cq.name);
        }
    }
}

impl LocalQueueState {
    /// Counts what one workload holds, or takes it off.
    pub(crate) fn charge_usage(&mut self, usage: &[(FlavorResource, Amount)], admitted: bool, add: bool) {
        let one = if add { 1 } else { -1 };
        self.reserving += one;
        charge(&mut self.reserved_usage, usage, add);
        if admitted {
            self.admitted += one;
            charge(&mut self.admitted_usage, usage, add);
        }
    }
}

/// Adds to one column of a usage list.
pub(crate) fn add_usage(usage: &mut Vec<(FlavorResource, Amount)>, fr: FlavorResource, amount: Amount) {
    match usage.iter_mut().find(|(f, _)| *f == fr) {
        Some((_, sum)) => *sum = sum.add(amount),
        None => usage.push((fr, amount)),
    }
}

fn charge(metrics: &mut BTreeMap<FlavorResource, Exact>, usage: &[(FlavorResource, Amount)], add: bool) {
    for &(fr, a) in usage {
        let e = metrics.entry(fr).or_default();
        *e = if add { e.add(Exact::of(a)) } else { e.sub(Exact::of(a)) };
    }
}
