//! What jobs get of the nodes, and when: CPUs that work, CPUs that are held by pods whose gang is not complete, work that is
//! lost, waits. Read from the objects alone.

use std::collections::BTreeMap;

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use crate::api::{Change, Kind, is_true, list, name_of, text};

/// How long a gang may have nodes for a part of its pods while the others are on their way.
const BINDING: Duration = Duration::from_seconds(10);

/// How long a job waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its pods.
    pub pods: i64,
    /// Its WorkloadPriorityClass.
    pub priority: String,
    /// Between its creation and the last start of its pods.
    pub waited: Duration,
}

/// Why a workload was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// For quota, by a workload of the same ClusterQueue.
    WithinClusterQueue,
    /// For quota, by a workload of another one.
    Reclaim,
    /// For nodes, by a workload for which others were preempted for quota.
    NodesBesideQuota,
    /// For nodes, by a workload for which there was quota.
    NodesOnly,
}

impl Cause {
    /// As the condition `Preempted` says it.
    fn of(preempted: &Value) -> Self {
        let message = text(preempted, &["message"]);
        if message.contains(", for nodes only") {
            Self::NodesOnly
        } else if message.contains(", for nodes besides quota") {
            Self::NodesBesideQuota
        } else if text(preempted, &["reason"]) == "InClusterQueue" {
            Self::WithinClusterQueue
        } else {
            Self::Reclaim
        }
    }
}

/// A pod that is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    cpus: i64,
    /// Since when it works: all pods of its gang have nodes.
    works: Option<Time>,
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gang {
    created: Time,
    pods: i64,
    priority: String,
    placed: BTreeMap<String, Placed>,
    succeeded: i64,
    /// Until when its CPUs are counted.
    counted: Time,
    /// When its pods began to work for the last time.
    started: Option<Time>,
    /// Since when a part of its pods has nodes and the others have none.
    half: Option<Time>,
    done: bool,
}

/// Measures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    gangs: BTreeMap<String, Gang>,
    /// When an eviction was seen last, by workload.
    evicted: BTreeMap<String, String>,
    /// CPUs times nanoseconds of pods that worked and succeeded, or still work.
    pub worked: i128,
    /// The same of pods that worked and did not succeed.
    pub lost: i128,
    /// The same of pods that held CPUs while their gang was not complete.
    pub idle: i128,
    /// How often a gang had nodes for a part of its pods for longer than binding takes.
    pub half_placed: usize,
    /// Evictions by reason.
    pub evictions: BTreeMap<String, usize>,
    /// Preemptions by what the preemptor lacked.
    pub preemptions: BTreeMap<Cause, usize>,
    /// When the last job was done.
    pub last: Time,
    /// When the first job came.
    pub first: Option<Time>,
}

impl Gang {
    fn is_whole(&self) -> bool {
        self.placed.len() as i64 + self.succeeded >= self.pods
    }

    /// CPUs times nanoseconds since the last change that were held and did nothing.
    fn idle_until(&mut self, now: Time) -> i128 {
        let span = now.since(std::mem::replace(&mut self.counted, now)).0;
        let idle: i64 = self.placed.values().filter(|p| p.works.is_none()).map(|p| p.cpus).sum();
        i128::from(idle) * i128::from(span)
    }
}

impl Measure {
    /// An object has changed, or is gone.
    pub fn changed(&mut self, kind: Kind, change: &Change, now: Time) {
        match kind {
            Kind::Job if !change.deleted => self.job(&change.object, now),
            Kind::Pod => self.pod(&change.object, change.deleted, now),
            Kind::Workload if !change.deleted => self.workload(&change.object),
            _ => {}
        }
    }

    fn job(&mut self, job: &Value, now: Time) {
        let pods = job["spec"]["parallelism"].as_i64().unwrap_or(1);
        self.first.get_or_insert(now);
        let gang = self.gangs.entry(name_of(job).1).or_insert_with(|| Gang {
            created: now,
            pods,
            priority: text(job, &["metadata", "labels", "kueue.x-k8s.io/priority-class"]).to_owned(),
            placed: BTreeMap::new(),
            succeeded: 0,
            counted: now,
            started: None,
            half: None,
            done: false,
        });
        if is_true(job, "Complete") && !gang.done {
            gang.done = true;
            self.last = now;
        }
    }

    fn pod(&mut self, pod: &Value, deleted: bool, now: Time) {
        let owner = list(pod, &["metadata", "ownerReferences"]).iter().find(|o| o["kind"] == "Job");
        let Some(gang) = owner.and_then(|o| self.gangs.get_mut(text(o, &["name"]))) else { return };
        self.idle += gang.idle_until(now);
        let name = name_of(pod).1;
        let phase = text(pod, &["status", "phase"]);
        let ended = deleted || matches!(phase, "Succeeded" | "Failed");
        if ended {
            if let Some(placed) = gang.placed.remove(&name) {
                let work = placed.works.map_or(0, |since| now.since(since).0);
                let work = i128::from(placed.cpus) * i128::from(work);
                if phase == "Succeeded" {
                    gang.succeeded += 1;
                    self.worked += work;
                } else {
                    self.lost += work;
                }
            }
        } else if !text(pod, &["spec", "nodeName"]).is_empty() {
            let containers = list(pod, &["spec", "containers"]).iter();
            let cpus =
                containers.map(|c| text(c, &["resources", "requests", "cpu"]).parse().unwrap_or(0)).sum();
            gang.placed.entry(name).or_insert(Placed { cpus, works: None });
        }
        if gang.is_whole() {
            if gang.placed.values().any(|p| p.works.is_none()) {
                gang.started = Some(now);
            }
            gang.placed.values_mut().for_each(|p| p.works = p.works.or(Some(now)));
        }
        let half = gang.placed.values().any(|p| p.works.is_none());
        match (gang.half, half) {
            (None, true) => gang.half = Some(now),
            (Some(since), false) => {
                gang.half = None;
                self.half_placed += usize::from(now.since(since) > BINDING);
            }
            _ => {}
        }
    }

    fn workload(&mut self, workload: &Value) {
        let conditions = list(workload, &["status", "conditions"]);
        let condition = |kind: &str| conditions.iter().find(|c| c["type"] == kind && c["status"] == "True");
        let Some(evicted) = condition("Evicted") else { return };
        let at = text(evicted, &["lastTransitionTime"]).to_owned();
        if self.evicted.insert(name_of(workload).1, at.clone()).as_ref() != Some(&at) {
            let reason = text(evicted, &["reason"]);
            *self.evictions.entry(reason.to_owned()).or_insert(0) += 1;
            if let Some(preempted) = condition("Preempted").filter(|_| reason == "Preempted") {
                *self.preemptions.entry(Cause::of(preempted)).or_insert(0) += 1;
            }
        }
    }

    /// How long the jobs that are done waited between creation and their last start.
    pub fn waits(&self) -> Vec<Wait> {
        let done = self.gangs.values().filter(|g| g.done);
        let wait = |g: &Gang| {
            let waited = g.started?.since(g.created);
            Some(Wait { pods: g.pods, priority: g.priority.clone(), waited })
        };
        done.filter_map(wait).collect()
    }

    /// Jobs, and those that are done.
    pub fn jobs(&self) -> (usize, usize) {
        (self.gangs.len(), self.gangs.values().filter(|g| g.done).count())
    }
}
