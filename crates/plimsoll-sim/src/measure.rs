//! What jobs get of the nodes, and when: CPUs that work, CPUs that are held by pods whose gang is not complete, work that is
//! lost, waits. Read from the objects alone.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use crate::api::{Change, Kind, is_true, list, name_of, text};

/// How long a gang may have nodes for a part of its pods while the others are on their way, where binding takes no time of its
/// own.
pub const BINDING: Duration = Duration::from_seconds(10);

/// How long a job waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its pods.
    pub pods: i64,
    /// Its WorkloadPriorityClass.
    pub priority: String,
    /// Between its creation and the first start of its pods.
    pub first: Duration,
    /// Between its creation and the last start of its pods.
    pub waited: Duration,
}

/// A time in which a gang had nodes for a part of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfPlaced {
    /// How long.
    pub lasted: Duration,
    /// CPUs times nanoseconds that the gang held and did not use in this time.
    pub idle: i128,
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
    /// Pods that exist and have not ended.
    live: BTreeSet<String>,
    placed: BTreeMap<String, Placed>,
    succeeded: i64,
    /// Until when its CPUs are counted.
    counted: Time,
    /// When its pods began to work for the first time, and for the last time.
    started: Option<(Time, Time)>,
    /// Since when a part of its pods has nodes and the others have none, and what it has held idle since.
    half: Option<(Time, i128)>,
    /// The same while all of its pods exist.
    short: Option<Time>,
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
    /// Times in which gangs had nodes for a part of their pods.
    half_placed: Vec<HalfPlaced>,
    /// The same while all of their pods exist: without the time that the Job controller takes to create them.
    short: Vec<Duration>,
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
        let idle = i128::from(idle) * i128::from(span);
        if let Some((_, held)) = &mut self.half {
            *held += idle;
        }
        idle
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
            live: BTreeSet::new(),
            placed: BTreeMap::new(),
            succeeded: 0,
            counted: now,
            started: None,
            half: None,
            short: None,
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
            gang.live.remove(&name);
        } else {
            gang.live.insert(name.clone());
        }
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
                gang.started = Some((gang.started.map_or(now, |(first, _)| first), now));
            }
            gang.placed.values_mut().for_each(|p| p.works = p.works.or(Some(now)));
        }
        let half = gang.placed.values().any(|p| p.works.is_none());
        let short = half && gang.live.len() as i64 + gang.succeeded >= gang.pods;
        match (gang.half, half) {
            (None, true) => gang.half = Some((now, 0)),
            (Some((since, idle)), false) => {
                gang.half = None;
                self.half_placed.push(HalfPlaced { lasted: now.since(since), idle });
            }
            _ => {}
        }
        match (gang.short, short) {
            (None, true) => gang.short = Some(now),
            (Some(since), false) => {
                gang.short = None;
                self.short.push(now.since(since));
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

    /// Ends the times in which gangs are half-placed, when nothing more is measured.
    pub fn finish(&mut self, now: Time) {
        for gang in self.gangs.values_mut() {
            self.idle += gang.idle_until(now);
            let half = gang.half.take();
            self.half_placed.extend(half.map(|(since, idle)| HalfPlaced { lasted: now.since(since), idle }));
            self.short.extend(gang.short.take().map(|since| now.since(since)));
        }
    }

    /// Times longer than this in which gangs had nodes for a part of their pods.
    pub fn half_placed(&self, longer: Duration) -> impl Iterator<Item = HalfPlaced> {
        self.half_placed.iter().filter(move |h| h.lasted > longer).copied()
    }

    /// How many of these were longer than this while all pods of the gang existed.
    pub fn short(&self, longer: Duration) -> usize {
        self.short.iter().filter(|lasted| **lasted > longer).count()
    }

    /// Pods of a Job that work, and since when: all pods of the Job had nodes then.
    pub fn working<'m>(&'m self, job: &str) -> impl Iterator<Item = (&'m str, Time)> + use<'m> {
        let placed = self.gangs.get(job).into_iter().flat_map(|g| &g.placed);
        placed.filter_map(|(name, p)| Some((name.as_str(), p.works?)))
    }

    /// Jobs that are not done.
    pub fn undone(&self) -> impl Iterator<Item = &str> {
        self.gangs.iter().filter(|(_, g)| !g.done).map(|(name, _)| name.as_str())
    }

    /// How long the jobs that are done waited.
    pub fn waits(&self) -> Vec<Wait> {
        let done = self.gangs.values().filter(|g| g.done);
        let wait = |g: &Gang| {
            let (first, last) = g.started?;
            let (first, waited) = (first.since(g.created), last.since(g.created));
            Some(Wait { pods: g.pods, priority: g.priority.clone(), first, waited })
        };
        done.filter_map(wait).collect()
    }

    /// Jobs, and those that are done.
    pub fn jobs(&self) -> (usize, usize) {
        (self.gangs.len(), self.gangs.values().filter(|g| g.done).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn at(seconds: i64) -> Time {
        Time::from_seconds(1_000 + seconds)
    }

    fn see(m: &mut Measure, kind: Kind, object: Value, seconds: i64) {
        m.changed(kind, &Change { version: 0, object: Arc::new(object), deleted: false }, at(seconds));
    }

    fn pod(m: &mut Measure, name: &str, node: &str, phase: &str, seconds: i64) {
        let requests = json!({"requests": {"cpu": "2"}});
        let pod = json!({
            "metadata": {"name": name, "ownerReferences": [{"kind": "Job", "name": "w"}]},
            "spec": {"nodeName": node, "containers": [{"resources": requests}]}, "status": {"phase": phase},
        });
        see(m, Kind::Pod, pod, seconds);
    }

    #[test]
    fn half_placed_gangs_are_counted_by_how_long() {
        let mut m = Measure::default();
        see(&mut m, Kind::Job, json!({"metadata": {"name": "w"}, "spec": {"parallelism": 2}}), 0);
        pod(&mut m, "a", "n", "Pending", 10);
        pod(&mut m, "b", "", "Pending", 30);
        assert_eq!(m.working("w").count(), 0);
        pod(&mut m, "b", "n", "Pending", 50);
        assert_eq!(m.working("w").collect::<Vec<_>>(), [("a", at(50)), ("b", at(50))]);
        // Placed in half for 40 s, of which both pods existed for 20 s; two CPUs were held.
        let longer = |s| m.half_placed(Duration::from_seconds(s)).collect::<Vec<_>>();
        assert_eq!(longer(39), [HalfPlaced { lasted: Duration::from_seconds(40), idle: 80_000_000_000 }]);
        assert_eq!((longer(40).len(), m.short(Duration::from_seconds(19))), (0, 1));
        assert_eq!((m.short(Duration::from_seconds(20)), m.idle), (0, 80_000_000_000));
        // One fails and works again later: the last start is another one than the first.
        pod(&mut m, "a", "n", "Failed", 60);
        pod(&mut m, "c", "n", "Pending", 70);
        pod(&mut m, "b", "n", "Succeeded", 80);
        pod(&mut m, "c", "n", "Succeeded", 90);
        assert_eq!(m.undone().collect::<Vec<_>>(), ["w"]);
        let done = json!([{"type": "Complete", "status": "True"}]);
        see(&mut m, Kind::Job, json!({"metadata": {"name": "w"}, "status": {"conditions": done}}), 91);
        let waits = m.waits();
        assert_eq!(
            (waits[0].first, waits[0].waited),
            (Duration::from_seconds(50), Duration::from_seconds(70))
        );
        assert_eq!((m.lost, m.worked), (20_000_000_000, 100_000_000_000));
    }

    #[test]
    fn what_is_half_placed_at_the_end_counts_until_then() {
        let mut m = Measure::default();
        see(&mut m, Kind::Job, json!({"metadata": {"name": "w"}, "spec": {"parallelism": 2}}), 0);
        pod(&mut m, "a", "n", "Pending", 10);
        m.finish(at(100));
        let half: Vec<_> = m.half_placed(Duration::ZERO).collect();
        assert_eq!(half, [HalfPlaced { lasted: Duration::from_seconds(90), idle: 180_000_000_000 }]);
        assert_eq!((m.short(Duration::ZERO), m.idle), (0, 180_000_000_000));
    }
}
