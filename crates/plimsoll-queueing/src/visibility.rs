//! Which workloads wait for quota in a queue, and where they are in it: what Kueue's visibility API shows
//! (`pkg/visibility/storage/pending_workloads_cq.go`, `pending_workloads_lq.go`).

use std::collections::BTreeMap;

use crate::Queueing;
use crate::ids::{ClusterQueueId, LocalQueueId, WorkloadId};
use crate::model::WorkloadKey;
use crate::state::WorkloadInfo;
use plimsoll_state::time::Time;

/// A queue by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueName {
    /// A ClusterQueue.
    Cluster(String),
    /// A LocalQueue: namespace and name.
    Local(String, String),
}

/// A part of the workloads that wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many are left out at the beginning.
    pub offset: usize,
    /// How many are listed at most.
    pub limit: usize,
}

/// A workload that waits for quota, and its positions, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWorkload {
    /// Namespace and name.
    pub key: WorkloadKey,
    /// UID.
    pub uid: String,
    /// Creation time.
    pub creation: Time,
    /// Resolved priority, without a boost.
    pub priority: i32,
    /// LocalQueue that it names.
    pub local_queue: String,
    /// Position among all that wait in the ClusterQueue.
    pub position_in_cluster_queue: usize,
    /// Position among those of its LocalQueue.
    pub position_in_local_queue: usize,
}

impl Queueing {
    /// The workloads that wait in a queue, in the order in which it would take them: those that are inadmissible or may not
    /// run yet keep their places. `None`: there is no such queue. A LocalQueue whose ClusterQueue is missing has none.
    pub fn pending_workloads(&self, queue: &QueueName, page: Page) -> Option<Vec<PendingWorkload>> {
        match queue {
            QueueName::Cluster(name) => {
                let cq = self.cluster_queues.find(name.as_str())?;
                self.cq(cq).spec.as_ref()?;
                Some(self.pending_in_cluster_queue(cq, page))
            }
            QueueName::Local(namespace, name) => {
                let lq = self.local_queues.find(&(namespace.clone(), name.clone()))?;
                self.lq(lq).spec.as_ref()?;
                let cq = self.lq(lq).cq.filter(|&cq| self.cq(cq).spec.is_some());
                Some(cq.map(|cq| self.pending_in_local_queue(cq, lq, page)).unwrap_or_default())
            }
        }
    }

    fn pending_in_cluster_queue(&self, cq: ClusterQueueId, page: Page) -> Vec<PendingWorkload> {
        let mut positions: BTreeMap<LocalQueueId, usize> = BTreeMap::new();
        let mut listed = Vec::new();
        let end = page.offset.saturating_add(page.limit);
        for (in_cluster_queue, wl) in self.waiting_in(cq).take(end).enumerate() {
            let next = positions.entry(wl.lq()).or_default();
            if in_cluster_queue >= page.offset {
                listed.push(shown(wl, in_cluster_queue, *next));
            }
            *next += 1;
        }
        listed
    }

    fn pending_in_local_queue(
        &self,
        cq: ClusterQueueId,
        lq: LocalQueueId,
        page: Page,
    ) -> Vec<PendingWorkload> {
        let all = self.waiting_in(cq).enumerate();
        let own = all.filter(|(_, wl)| wl.lq() == lq).enumerate();
        let listed = own.skip(page.offset).take(page.limit);
        listed
            .map(|(in_local_queue, (in_cluster_queue, wl))| shown(wl, in_cluster_queue, in_local_queue))
            .collect()
    }

    /// All that wait in a ClusterQueue, in order.
    fn waiting_in(&self, cq: ClusterQueueId) -> impl Iterator<Item = &WorkloadInfo> {
        self.waiting_ids(cq).filter_map(|id| self.wl(id))
    }

    /// Their ids.
    pub(crate) fn waiting_ids(&self, cq: ClusterQueueId) -> impl Iterator<Item = WorkloadId> {
        let queue = self.cq(cq);
        let usage = |lq: LocalQueueId| self.local_usage(lq);
        let usage: Option<&dyn Fn(LocalQueueId) -> f64> =
            if queue.rules.fair_admission { Some(&usage) } else { None };
        let delayed = |id: WorkloadId| self.wl(id).map(|wl| (self.rank(wl, id), wl.lq()));
        queue.pending.in_order(usage, delayed)
    }
}

fn shown(wl: &WorkloadInfo, in_cluster_queue: usize, in_local_queue: usize) -> PendingWorkload {
    PendingWorkload {
        key: wl.obj.key.clone(),
        uid: wl.obj.uid.clone(),
        creation: wl.obj.creation,
        priority: wl.obj.priority,
        local_queue: wl.obj.queue.clone(),
        position_in_cluster_queue: in_cluster_queue,
        position_in_local_queue: in_local_queue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outside::{cluster_queue, workload};
    use crate::{Config, Event, LocalQueue, ResourceFlavor, StopPolicy};
    use plimsoll_state::model::StringMap;

    fn queueing() -> Queueing {
        let mut q = Queueing::new(Config::default());
        let local = |n: usize| {
            Event::LocalQueueUpsert(Box::new(LocalQueue {
                namespace: "n".into(),
                name: format!("l{n}"),
                cluster_queue: "cq".into(),
                stop_policy: StopPolicy::None,
                ..LocalQueue::default()
            }))
        };
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        for event in [
            Event::NamespaceUpsert("n".into(), StringMap::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
            Event::ClusterQueueUpsert(Box::new(cluster_queue("cq", "", 2, None, false))),
            local(0),
            local(1),
        ] {
            q.handle(Time(0), event);
        }
        q
    }

    fn list(
        q: &Queueing,
        queue: &QueueName,
        offset: usize,
        limit: usize,
    ) -> Option<Vec<(String, usize, usize)>> {
        let all = q.pending_workloads(queue, Page { offset, limit })?;
        let row = |w: PendingWorkload| (w.key.name, w.position_in_cluster_queue, w.position_in_local_queue);
        Some(all.into_iter().map(row).collect())
    }

    #[test]
    fn positions_count_all_that_wait() {
        let mut q = queueing();
        // Number, LocalQueue, priority: none fits into the quota of 2.
        for (n, queue, priority) in [(0, 0, 1), (1, 1, 5), (2, 0, 5), (3, 1, 0)] {
            q.handle(Time(0), Event::WorkloadUpsert(Box::new(workload(n, queue, priority, 3))));
        }
        let row = |name: &str, cq: usize, lq: usize| (name.to_owned(), cq, lq);
        let all = vec![row("w1", 0, 0), row("w2", 1, 0), row("w0", 2, 1), row("w3", 3, 1)];
        let cq = QueueName::Cluster("cq".into());
        for _ in 0..3 {
            // Cycles make them inadmissible one after the other, which is no reason to lose a place.
            q.decide(Time(0), &mut |_| ());
            assert_eq!(list(&q, &cq, 0, 1000).unwrap(), all);
        }
        assert_eq!(list(&q, &cq, 1, 2).unwrap(), all[1..3]);
        assert_eq!(list(&q, &cq, 9, 2).unwrap(), []);
        let local = |name: &str| QueueName::Local("n".into(), name.into());
        assert_eq!(list(&q, &local("l1"), 0, 1000).unwrap(), [row("w1", 0, 0), row("w3", 3, 1)]);
        assert_eq!(list(&q, &local("l0"), 1, 5).unwrap(), [row("w0", 2, 1)]);
        assert_eq!(list(&q, &local("l0"), 0, 0).unwrap(), []);
        assert_eq!(list(&q, &local("l2"), 0, 9), None);
        assert_eq!(list(&q, &QueueName::Cluster("other".into()), 0, 9), None);
        q.handle(Time(0), Event::ClusterQueueDelete("cq".into()));
        q.decide(Time(0), &mut |_| ());
        assert_eq!(list(&q, &cq, 0, 9), None);
        assert_eq!(list(&q, &local("l1"), 0, 9).unwrap(), []);
    }

    #[test]
    fn a_replica_that_follows_knows_the_same_order() {
        let mut q = queueing();
        for (n, queue, priority) in [(0, 0, 1), (1, 1, 5)] {
            q.handle(Time(0), Event::WorkloadUpsert(Box::new(workload(n, queue, priority, 3))));
        }
        q.follow(Time(0));
        let names = list(&q, &QueueName::Cluster("cq".into()), 0, 9).unwrap();
        assert_eq!(names, [("w1".to_owned(), 0, 0), ("w0".to_owned(), 1, 0)]);
    }
}
