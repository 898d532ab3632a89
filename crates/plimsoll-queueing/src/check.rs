//! Derived state against a rebuild from the ground state.

use std::collections::BTreeMap;

use super::amount::Amount;
use super::ids::{ClusterQueueId, FlavorResource, SchedulingHashId};
use crate::Queueing;

impl Queueing {
    /// Rebuilds derived state and compares. Without debug assertions it does nothing and is not compiled.
    ///
    /// # Panics
    /// When they differ: that is a bug in the engine, and going on would over-commit.
    pub fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        for (id, wl) in self.workloads.iter() {
            assert!(!(wl.quota().is_some() && wl.queued().is_some()), "{}: queued and holding", wl.obj.key);
            if let Some(cq) = wl.queued() {
                assert!(self.cq(cq).pending.position(id).is_some(), "{}: not in its queue", wl.obj.key);
            }
            if !wl.must_hold() && self.dirty.requeue.is_empty() {
                assert_eq!(
                    wl.queued(),
                    self.may_queue_in(wl),
                    "{}: not in the queue it may wait in",
                    wl.obj.key
                );
            }
            let scores = self.flavor_scores(&wl.obj, wl.total_requests());
            assert!(
                wl.queued().is_none() || !self.dirty.requeue.is_empty() || *wl.flavor_scores() == *scores,
                "{}: flavors are scored otherwise",
                wl.obj.key
            );
            assert!(
                wl.quota().is_none() || wl.victim_order() == self.victim_order(id, wl.total_requests()),
                "{}: another place among candidates for preemption",
                wl.obj.key
            );
        }
        self.workloads.check_pod_sets();
        self.workloads.check_keys();
        self.check_quota_reservations();
        self.check_dependencies();
        self.check_windows();
        self.check_slices();
        let mut scheduling_hashes: BTreeMap<SchedulingHashId, u32> = BTreeMap::new();
        for wl in
            self.workloads.iter().map(|(_, w)| w).filter(|w| w.scheduling_hash() != SchedulingHashId::NONE)
        {
            *scheduling_hashes.entry(wl.scheduling_hash()).or_insert(0) += 1;
        }
        assert_eq!(
            scheduling_hashes,
            self.scheduling_hashes.counts().collect(),
            "scheduling hashes and workloads disagree"
        );
        assert_eq!(scheduling_hashes.len(), self.scheduling_hashes.len(), "scheduling hashes left over");
        for id in self.cluster_queues.ids() {
            self.check_queue(id);
        }
        self.check_topologies();
        if !self.tree_dirty {
            assert!(self.tree.check_usage(), "usage of cohorts differs from that of their queues");
            self.check_loans();
        }
    }

    fn check_queue(&self, id: ClusterQueueId) {
        let cq = self.cq(id);
        assert!(cq.pending.check(), "{}: indexes of the queue disagree", cq.name);
        let mut sums: BTreeMap<FlavorResource, Amount> = BTreeMap::new();
        for (_, reservation) in self.quota.at(id) {
            for &(fr, a) in &reservation.held.usage {
                let e = sums.entry(fr).or_default();
                *e = e.add(a);
            }
        }
        let Some(node) = cq.node.filter(|_| !self.tree_dirty) else { return };
        for fr in FlavorResource::first(self.tree.columns()) {
            let want = sums.get(&fr).copied().unwrap_or_default();
            assert_eq!(self.tree.usage(node, fr), want, "{}: usage of column {fr:?}", cq.name);
        }
    }
}
