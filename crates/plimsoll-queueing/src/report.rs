//! Statuses of queues, given out when they change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Action;
use super::amount::{Amount, Exact};
use super::bounded::take_some;
use super::ids::{ClusterQueueId, FlavorResource, LocalQueueId};
use super::model::StopPolicy;
use super::pending::QueuePosition;
use crate::Queueing;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::time::Time;

/// Usage of one resource of one flavor by a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Name of the ResourceFlavor.
    pub flavor: Arc<str>,
    /// Resource name.
    pub resource: Arc<str>,
    /// How much is used, in the engine's unit of the resource.
    pub total: i64,
    /// How much of it is borrowed from the cohort; always 0 for LocalQueues.
    pub borrowed: i64,
    /// Whether it counts bytes, though Kubernetes knows no such resource ([`crate::Config::byte_counters`]).
    pub bytes: bool,
}

/// Counts and usage of a queue, as in its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Condition `Active`: status, reason, message.
    pub active: Option<(bool, Cow<'static, str>, Cow<'static, str>)>,
    /// Workloads that wait.
    pub pending: i32,
    /// Workloads that hold a reservation.
    pub reserving: i32,
    /// Workloads that are admitted.
    pub admitted: i32,
    /// Reserved, in the order of the spec.
    pub reservation: Vec<ResourceUsage>,
    /// Used by admitted workloads, the same form.
    pub usage: Vec<ResourceUsage>,
    /// `status.fairSharing.weightedShare`, when fair sharing is on.
    pub weighted_share: Option<i64>,
    /// `status.fairSharing.admissionFairSharingStatus` of a LocalQueue: resources in nano-units and the
    /// time of the last update.
    pub consumed: Option<(Vec<(String, i128)>, Time)>,
}

/// One column of a node of the quota tree. Amounts: cpu in millicores, the rest in whole units;
/// `i64::MAX` means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaCell {
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Own quota plus what children lend.
    pub subtree: i64,
    /// What counts against it.
    pub usage: i64,
    /// Usage above the subtree's quota, at least 0.
    pub borrowed: i64,
    /// What could still be used now, at least 0.
    pub available: i64,
    /// What could be used if nothing were used anywhere.
    pub potential: i64,
}

/// A node of the quota tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaNode {
    /// Name of the ClusterQueue or Cohort.
    pub name: String,
    /// Whether it is a ClusterQueue.
    pub cluster_queue: bool,
    /// Name of the parent cohort, if there is one (and no cycle).
    pub parent: Option<String>,
    /// Dominant resource share divided by the weight; may be infinite.
    pub share: f64,
    /// The same as in statuses: rounded up, `i64::MAX` for infinite.
    pub rounded_share: i64,
    /// Columns that the node or anything below it mentions.
    pub cells: Vec<QuotaCell>,
}

/// Whether a workload waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// In turn.
    Queued,
    /// Put aside until something changes.
    Inadmissible,
}

impl Queueing {
    /// How a workload waits; `None` when it is in no queue.
    pub fn waiting(&self, key: &super::WorkloadKey) -> Option<Waiting> {
        let id = self.workloads.find(key)?;
        let queue = self.cq(self.wl(id)?.queued()?);
        Some(match queue.pending.position(id)? {
            QueuePosition::Active => Waiting::Queued,
            QueuePosition::Inadmissible | QueuePosition::Delayed => Waiting::Inadmissible,
        })
    }

    /// The whole quota tree with its usage.
    pub fn quota_tree(&self) -> Vec<QuotaNode> {
        let cell = |n, fr: FlavorResource| {
            let (flavor, resource) = self.ids.parts(fr);
            let (usage, subtree) = (self.tree.usage(n, fr), self.tree.subtree_quota(n, fr));
            QuotaCell {
                flavor: self.ids.flavor_name(flavor).to_owned(),
                resource: self.ids.resource_name(resource).to_owned(),
                subtree: subtree.0,
                usage: usage.0,
                borrowed: usage.sub(subtree).at_least_zero().0,
                available: self.tree.available(n, fr).0,
                potential: self.tree.potential(n, fr).0,
            }
        };
        let columns = || FlavorResource::first(self.tree.columns());
        self.tree
            .nodes()
            .map(|(n, node)| {
                let share = self.share(n);
                QuotaNode {
                    name: node.name.clone(),
                    cluster_queue: node.leaf,
                    parent: node.parent.map(|p| self.tree.node(p).name.clone()),
                    share: share.precise(),
                    rounded_share: share.rounded(),
                    cells: columns().filter(|&fr| self.tree.present(n, fr)).map(|fr| cell(n, fr)).collect(),
                }
            })
            .collect()
    }

    /// Gives out the statuses of queues that changed since they were last given out, as many as a step has time for.
    pub(crate) fn report_statuses(&mut self, _now: Time) {
        let most = self.bounded.most;
        let queues = take_some(&mut self.dirty.cluster_queues, &mut self.bounded.cluster_queues, most);
        if !queues.is_empty() && self.config.fair_sharing.is_some() {
            self.report_shares();
        }
        for id in queues {
            let Some(status) = self.cluster_queue_status(id) else { continue };
            let slot = self.cq_mut(id);
            if slot.reported.as_deref() != Some(&status) {
                let status = Arc::new(status);
                slot.reported = Some(Arc::clone(&status));
                let name = slot.name.clone();
                self.out.push(Action::ClusterQueueStatus(name, status));
            }
        }
        for id in take_some(&mut self.dirty.local_queues, &mut self.bounded.local_queues, most) {
            let Some(status) = self.local_queue_status(id) else { continue };
            let slot = self.lq_mut(id);
            if slot.reported.as_deref() != Some(&status) {
                let status = Arc::new(status);
                slot.reported = Some(Arc::clone(&status));
                let (namespace, name) = (slot.namespace.clone(), slot.name.clone());
                self.out.push(Action::LocalQueueStatus(namespace, name, status));
            }
        }
    }

    /// The status of a ClusterQueue from its usage now; `None` if there is no such object.
    pub fn status_of_cluster_queue(&self, name: &str) -> Option<QueueStatus> {
        self.cluster_queue_status(self.cluster_queues.find(name)?)
    }

    fn cluster_queue_status(&self, id: ClusterQueueId) -> Option<QueueStatus> {
        let cq = self.cq(id);
        cq.spec.as_ref()?;
        let (node, fair) = (cq.node?, self.config.fair_sharing.is_some());
        let active = match &cq.inactive {
            None => (true, "Ready".into(), "Can admit new workloads".into()),
            Some((reason, message)) => (false, (*reason).into(), message.clone().into()),
        };
        let has_parent = self.tree.node(node).parent.is_some();
        let list = |used: &dyn Fn(FlavorResource) -> Amount| {
            self.columns_of(id)
                .map(|(f, r, fr)| {
                    let total = used(fr);
                    let over = total.sub(self.tree.quota(node, fr).nominal).at_least_zero();
                    let borrowed = if has_parent { over.0 } else { 0 };
                    ResourceUsage {
                        flavor: Arc::clone(f),
                        resource: Arc::clone(r),
                        total: total.0,
                        borrowed,
                        bytes: self.config.counts_bytes(r),
                    }
                })
                .collect()
        };
        let admitted = |fr: FlavorResource| cq.admitted_usage.get(&fr).copied().unwrap_or_default().amount();
        Some(QueueStatus {
            active: Some(active),
            pending: count(cq.pending.len()),
            reserving: count(self.quota.count_at(id)),
            admitted: cq.admitted,
            reservation: list(&|fr| self.tree.usage(node, fr)),
            usage: list(&admitted),
            weighted_share: fair.then(|| self.share(node).rounded()),
            consumed: None,
        })
    }

    /// Flavor, resource and column of every quota of a ClusterQueue, in the order of its spec.
    pub(crate) fn columns_of(
        &self,
        id: ClusterQueueId,
    ) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, FlavorResource)> {
        let groups = self.cq(id).spec.iter().flat_map(|s| &s.resource_groups);
        let quotas = groups.flat_map(|g| &g.flavors).flat_map(|f| f.resources.iter().map(move |r| (f, r)));
        quotas.filter_map(|(f, r)| self.ids.named_pair(&f.flavor, &r.resource))
    }

    pub(crate) fn local_queue_status(&self, id: LocalQueueId) -> Option<QueueStatus> {
        let lq = self.lq(id);
        let spec = lq.spec.as_ref()?;
        let cq = lq.cq.filter(|&c| self.cq(c).spec.is_some());
        let cant = "Can't submit new workloads to clusterQueue";
        let (active, reason, message) = match (spec.stop_policy, cq) {
            (StopPolicy::Hold | StopPolicy::HoldAndDrain, _) => (false, "Stopped", "LocalQueue is stopped"),
            (StopPolicy::None, None) => (false, "ClusterQueueDoesNotExist", cant),
            (StopPolicy::None, Some(c)) if !self.cq(c).is_active() => (false, "ClusterQueueIsInactive", cant),
            (StopPolicy::None, Some(_)) => (true, "Ready", "Can submit new workloads to localQueue"),
        };
        let list = |used: &BTreeMap<FlavorResource, Exact>| {
            let columns = cq.into_iter().flat_map(|c| self.columns_of(c));
            let row = |(f, r, fr)| ResourceUsage {
                flavor: Arc::clone(f),
                resource: Arc::clone(r),
                total: used.get(&fr).map_or(0, |a| a.amount().0),
                borrowed: 0,
                bytes: self.config.counts_bytes(r),
            };
            columns.map(row).collect()
        };
        Some(QueueStatus {
            active: Some((active, reason.into(), message.into())),
            pending: if cq.is_some() { lq.pending } else { self.pending_without_queue(id) },
            // Kueue's cache knows nothing of a LocalQueue whose ClusterQueue is gone.
            reserving: if cq.is_some() { lq.reserving } else { 0 },
            admitted: if cq.is_some() { lq.admitted } else { 0 },
            reservation: list(&lq.reserved_usage),
            usage: list(&lq.admitted_usage),
            weighted_share: None,
            consumed: lq.tracks_consumed.then(|| {
                (lq.consumed_resources.consumed.clone().into_iter().collect(), lq.consumed_resources.updated)
            }),
        })
    }

    /// How many workloads wait in a LocalQueue whose ClusterQueue does not exist: in no queue for quota, but Kueue counts them
    /// (`PendingWorkloads` of its queue manager).
    fn pending_without_queue(&self, id: LocalQueueId) -> i32 {
        let members = self.lq(id).members.iter().filter_map(|&w| self.wl(w));
        count(members.filter(|wl| self.may_queue(wl)).count())
    }

    fn report_shares(&mut self) {
        let cohorts =
            self.tree.nodes().filter(|(_, n)| !n.leaf && self.objects.cohorts.contains_key(&n.name));
        let shares = cohorts.map(|(i, n)| (&n.name, self.share(i).rounded()));
        let news = shares.filter(|(name, share)| self.cohort_shares.get(*name) != Some(share));
        let changed: BTreeMap<String, i64> = news.map(|(name, share)| (name.clone(), share)).insert_each();
        for (name, share) in changed {
            self.cohort_shares.insert(name.clone(), share);
            self.out.push(Action::CohortStatus(name, share));
        }
    }
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
