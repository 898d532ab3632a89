//! Objects, and an outside that carries out what queueing asks for: an API server and jobs in miniature.

use plimsoll_state::Time;
use plimsoll_state::model::{Container, LabelSelector, PodSpec, Resources};

use super::Action as EngineAction;
use crate::*;

/// A request of so many thousandths of a CPU.
pub(crate) fn cpu(amount: i64) -> Resources {
    [("cpu".to_owned(), amount)].into()
}

/// A ClusterQueue with a quota of CPUs of the flavor `f`, in thousandths; `limit`: what it may borrow.
pub(crate) fn cluster_queue(
    name: &str,
    cohort: &str,
    nominal: i64,
    limit: Option<i64>,
    strict: bool,
) -> ClusterQueue {
    ClusterQueue {
        name: name.into(),
        cohort: cohort.into(),
        resource_groups: vec![ResourceGroup {
            covered: vec!["cpu".into()],
            flavors: vec![FlavorQuotas {
                flavor: "f".into(),
                resources: vec![ResourceQuota {
                    resource: "cpu".into(),
                    nominal,
                    borrowing_limit: limit,
                    lending_limit: None,
                }],
            }],
        }],
        strategy: if strict { QueueingStrategy::StrictFifo } else { QueueingStrategy::BestEffortFifo },
        namespace_selector: Some(LabelSelector::default()),
        preemption: PreemptionRules {
            reclaim_within_cohort: PreemptionPolicy::Any,
            within_cluster_queue: PreemptionPolicy::LowerPriority,
            ..Default::default()
        },
        fair_weight_nano: 1_000_000_000,
        ..ClusterQueue::default()
    }
}

/// The workload `w<n>` with one pod, in the LocalQueue `l<queue>`.
pub(crate) fn workload(n: usize, queue: usize, priority: i32, amount: i64) -> Workload {
    let container = Container { requests: cpu(amount), ..Container::default() };
    Workload {
        key: WorkloadKey { namespace: "n".into(), name: format!("w{n}") },
        uid: format!("uid-{n}"),
        version: 1,
        generation: 1,
        creation: Time::from_seconds(n as i64),
        priority,
        queue: format!("l{queue}"),
        active: true,
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: 1,
            spec: PodSpec { containers: vec![container], ..PodSpec::default() },
            ..PodSet::default()
        }]
        .into(),
        ..Workload::default()
    }
}

/// What the outside does with the next write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Done,
    DoneButLate,
    DoneTwice,
    Fails,
}

/// The workloads as they are stored.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) version: u64,
    /// What the engine is told a step later.
    pub(crate) late: Vec<Event>,
}

impl Outside {
    /// With these workloads.
    pub(crate) fn new(workloads: Vec<Workload>) -> Self {
        Self { workloads, version: 1, late: Vec::new() }
    }

    /// A new workload, as [`workload`]; the event that tells of it.
    pub(crate) fn create(&mut self, queue: usize, priority: i32, amount: i64) -> Event {
        let w = workload(self.workloads.len(), queue, priority, amount);
        self.workloads.push(w.clone());
        Event::WorkloadUpsert(Box::new(w))
    }

    /// The workload of this key, if it is there.
    pub(crate) fn find(&mut self, key: &WorkloadKey) -> Option<&mut Workload> {
        self.workloads.iter_mut().find(|w| w.key == *key)
    }

    /// Changes a workload, if it is there; the event that tells of it.
    pub(crate) fn change(&mut self, key: &WorkloadKey, change: impl FnOnce(&mut Workload)) -> Option<Event> {
        self.version += 1;
        let version = self.version;
        let w = self.find(key)?;
        change(w);
        w.version = version;
        Some(Event::WorkloadUpsert(Box::new(w.clone())))
    }

    /// Carries out a write: its answer, and the event that tells of the workload. `None`: the workload is gone.
    pub(crate) fn write(&mut self, update: &WorkloadUpdate) -> Option<[Event; 2]> {
        let seen = self.change(&update.key, |w| update.apply(&mut w.status))?;
        let written = Event::Written { key: update.key.clone(), id: update.id, version: self.version };
        Some([written, seen])
    }

    /// Carries out actions; what the engine is told next.
    pub(crate) fn carry_out(
        &mut self,
        actions: Vec<EngineAction>,
        fates: &mut impl Iterator<Item = Fate>,
    ) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.late);
        for action in actions {
            let EngineAction::Queueing(Action::UpdateWorkload(u)) = action else { continue };
            if self.find(&u.key).is_none() {
                continue;
            }
            let fate = fates.next().unwrap_or(Fate::Done);
            if matches!(fate, Fate::Fails) {
                events.push(Event::WriteFailed { key: u.key.clone(), id: u.id, message: "no".into() });
                continue;
            }
            let Some([written, seen]) = self.write(&u) else { continue };
            match fate {
                Fate::DoneButLate => self.late.extend([seen, written]),
                Fate::DoneTwice => events.extend([seen.clone(), written, seen]),
                Fate::Done | Fate::Fails => events.extend([written, seen]),
            }
        }
        events
    }

    /// What workloads that have not finished have reserved, of all ClusterQueues or of one.
    pub(crate) fn reserved(&self, queue: Option<&str>) -> i64 {
        let open = self.workloads.iter().filter(|w| !w.status.is_true(cond::FINISHED));
        let admissions = open.filter_map(|w| w.status.admission.as_ref());
        let mine = admissions.filter(|a| queue.is_none_or(|q| a.cluster_queue == q));
        mine.flat_map(|a| &a.assignments).filter_map(|p| p.resource_usage.get("cpu")).sum()
    }
}

/// A ClusterQueue of one cohort and its LocalQueue.
pub(crate) fn queue(i: usize, nominal: i64, limit: Option<i64>, strict: bool) -> [Event; 2] {
    let cq = cluster_queue(&format!("c{i}"), "pool", nominal * 1000, limit.map(|l| l * 1000), strict);
    let lq = LocalQueue {
        namespace: "n".into(),
        name: format!("l{i}"),
        cluster_queue: format!("c{i}"),
        fair_weight_nano: 1_000_000_000,
        ..LocalQueue::default()
    };
    [Event::ClusterQueueUpsert(Box::new(cq)), Event::LocalQueueUpsert(Box::new(lq))]
}
