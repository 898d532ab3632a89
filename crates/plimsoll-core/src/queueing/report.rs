//! Statuses of queues, given out when they change.

use std::collections::BTreeMap;

use super::amount::Amount;
use super::ids::Fr;
use super::model::StopPolicy;
use super::pending::LqId;
use super::state::{CqId, Queueing};
use super::{Action, QueueStatus};
use crate::time::Time;

impl Queueing {
    /// Gives out the statuses of queues that changed since they were last given out.
    pub(crate) fn report_statuses(&mut self, _now: Time) {
        let queues = std::mem::take(&mut self.dirty_cqs);
        if !queues.is_empty() && self.config.fair_sharing.is_some() {
            self.report_shares();
        }
        for id in queues {
            let Some(status) = self.cluster_queue_status(id) else { continue };
            let slot = self.cq_mut(id);
            if slot.reported.as_deref() != Some(&status) {
                let status = Box::new(status);
                slot.reported = Some(status.clone());
                let name = slot.name.clone();
                self.out.push(Action::ClusterQueueStatus(name, status));
            }
        }
        for id in std::mem::take(&mut self.dirty_lqs) {
            let Some(status) = self.local_queue_status(id) else { continue };
            let slot = self.lq_mut(id);
            if slot.reported.as_deref() != Some(&status) {
                let status = Box::new(status);
                slot.reported = Some(status.clone());
                let (namespace, name) = (slot.namespace.clone(), slot.name.clone());
                self.out.push(Action::LocalQueueStatus(namespace, name, status));
            }
        }
    }

    /// The status a ClusterQueue has by the books; `None` if there is no such object.
    pub fn status_of_cluster_queue(&self, name: &str) -> Option<QueueStatus> {
        self.cluster_queue_status(*self.cq_by_name.get(name)?)
    }

    fn cluster_queue_status(&self, id: CqId) -> Option<QueueStatus> {
        let cq = self.cq(id);
        cq.spec.as_ref()?;
        let (node, fair) = (cq.node?, self.config.fair_sharing.is_some());
        let active = match &cq.inactive {
            None => (true, "Ready".to_owned(), "Can admit new workloads".to_owned()),
            Some((reason, message)) => (false, (*reason).to_owned(), message.clone()),
        };
        let has_parent = self.tree.node(node).parent.is_some();
        let list = |used: &dyn Fn(Fr) -> Amount| {
            self.columns_of(id)
                .map(|(f, r, fr)| {
                    let total = used(fr);
                    let over = total.sub(self.tree.quota(node, fr).nominal).at_least_zero();
                    (f, r, total.0, if has_parent { over.0 } else { 0 })
                })
                .collect()
        };
        let admitted = |fr: Fr| cq.admitted_usage.get(&fr).copied().unwrap_or_default();
        Some(QueueStatus {
            active: Some(active),
            pending: count(cq.pending.len()),
            reserving: count(cq.holders.len()),
            admitted: cq.admitted,
            reservation: list(&|fr| self.tree.usage(node, fr)),
            usage: list(&admitted),
            weighted_share: fair.then(|| self.tree.share(node).rounded()),
            consumed: None,
        })
    }

    /// Flavor, resource and column of every quota of a ClusterQueue, in the order of its spec.
    fn columns_of(&self, id: CqId) -> impl Iterator<Item = (String, String, Fr)> + '_ {
        let groups = self.cq(id).spec.iter().flat_map(|s| &s.resource_groups);
        groups.flat_map(|g| &g.flavors).flat_map(|f| f.resources.iter().map(move |r| (f, r))).filter_map(
            |(f, r)| {
                let flavor = self.ids.find_flavor(&f.flavor)?;
                let fr = self.ids.find_pair(flavor, self.ids.find_resource(&r.resource)?)?;
                Some((f.flavor.clone(), r.resource.clone(), fr))
            },
        )
    }

    fn local_queue_status(&self, id: LqId) -> Option<QueueStatus> {
        let lq = self.lq(id);
        let spec = lq.spec.as_ref()?;
        let cq = lq.cq.filter(|&c| self.cq(c).spec.is_some());
        let cant = "Can't submit new workloads to clusterQueue";
        let (active, reason, message) = match cq {
            _ if spec.stop_policy != StopPolicy::None => (false, "Stopped", "LocalQueue is stopped"),
            None => (false, "ClusterQueueDoesNotExist", cant),
            Some(c) if !self.cq(c).is_active() => (false, "ClusterQueueIsInactive", cant),
            Some(_) => (true, "Ready", "Can submit new workloads to localQueue"),
        };
        let list = |books: &BTreeMap<Fr, Amount>| {
            let columns = cq.into_iter().flat_map(|c| self.columns_of(c));
            columns.map(|(f, r, fr)| (f, r, books.get(&fr).map_or(0, |a| a.0), 0)).collect()
        };
        Some(QueueStatus {
            active: Some((active, reason.to_owned(), message.to_owned())),
            pending: lq.waiting,
            reserving: lq.reserving,
            admitted: lq.admitted,
            reservation: list(&lq.reserved_usage),
            usage: list(&lq.admitted_usage),
            weighted_share: None,
            consumed: None,
        })
    }

    fn report_shares(&mut self) {
        let mut changed = Vec::new();
        for name in self.cohorts.keys() {
            let node = self.tree.nodes().find(|(_, n)| !n.leaf && n.name == *name).map(|(i, _)| i);
            let Some(node) = node else { continue };
            let share = self.tree.share(node).rounded();
            if self.cohort_shares.get(name) != Some(&share) {
                changed.push((name.clone(), share));
            }
        }
        for (name, share) in changed {
            self.cohort_shares.insert(name.clone(), share);
            self.out.push(Action::CohortStatus(name, share));
        }
    }
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
