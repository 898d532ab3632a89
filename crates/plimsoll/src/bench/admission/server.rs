//! The API server of a run in virtual time: one write after the other, each at its price, in the product's order.
//!
//! Decisions and explanations come in the order of [`Lanes`]; statuses of queues and events come after them. A status is
//! written at most once a second, and the last one always (`plimsoll-runtime`, `status.rs`). An event that waits for a
//! minute is dropped, and after a second one that a newer one about its workload or the workload's end has overtaken
//! (`event_recorder.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use plimsoll_api::lanes::{Group, Lane, Lanes, explains};
use plimsoll_engine::Action;
use plimsoll_queueing::{WorkloadKey, WorkloadUpdate};
use plimsoll_state::time::{Duration, Time};

/// Kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Status of a workload: an admission, an eviction and so on.
    Decision,
    /// Status of a workload: why it waits.
    Explanation,
    /// Start or stop of a job. Kueue's performance test has no jobs, so no limit applies to them.
    Job,
    /// Status of a ClusterQueue or LocalQueue.
    QueueStatus,
    /// An event.
    Event,
}

impl Kind {
    /// All kinds, in the order of [`Written`].
    pub const ALL: [Self; 5] = [Self::Decision, Self::Explanation, Self::Job, Self::QueueStatus, Self::Event];

    /// What it is called in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decision => "decisions",
            Self::Explanation => "explanations",
            Self::Job => "jobs",
            Self::QueueStatus => "queueStatuses",
            Self::Event => "eventWrites",
        }
    }

    /// CPU time of kube-apiserver and etcd for one write, in microseconds. Sources:
    ///
    /// | kind | figure | source |
    /// |---|---|---|
    /// | status of a custom resource | 4,950 | `docs/admission-speed.md`, on a real API server: 60 s and 27 s of CPU for 1,500 workloads with 6.06 and 1.62 writes each |
    /// | event | 1,024 | `docs/api-speed.md`, beside kube-apiserver: 1,953 bindings/s on two cores. Assumed: an event costs what a binding costs |
    /// | update of a Job | 1,225 | the same: 1,633 pods/s created on two cores. Assumed: an update costs what a creation costs |
    fn cpu_micros(self) -> i64 {
        match self {
            Self::Decision | Self::Explanation | Self::QueueStatus => 4_950,
            Self::Event => 1_024,
            Self::Job => 1_225,
        }
    }
}

/// Number of writes by kind.
pub type Written = [usize; Kind::ALL.len()];

/// What a write takes of the server's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// Nothing: what is left is the engine.
    Free,
    /// The client makes so many a second, as in Kueue's test.
    PerSecond(u32),
    /// What a kube-apiserver and etcd on so many processors take for a write of the kind.
    Server(u32),
}

impl Price {
    fn of(self, kind: Kind) -> Duration {
        match self {
            Self::Free => Duration::ZERO,
            Self::PerSecond(_) if kind == Kind::Job => Duration::ZERO,
            Self::PerSecond(n) => Duration(1_000_000_000 / i64::from(n.max(1))),
            Self::Server(processors) => Duration(kind.cpu_micros() * 1_000 / i64::from(processors.max(1))),
        }
    }
}

/// From one write of a status to the next.
const STATUS_PERIOD: Duration = Duration::from_seconds(1);
/// An event that could not be written for so long is dropped.
const EVENT_PATIENCE: Duration = Duration::from_seconds(60);
/// An event that has waited for so long may have been overtaken.
const EVENT_HELD_UP: Duration = Duration::from_seconds(1);

/// Writes that wait, and the server's time.
pub struct Server {
    price: Price,
    /// When the next write may get through.
    free_at: Time,
    lanes: Lanes,
    jobs: usize,
    /// Statuses that changed: when each may be written next.
    statuses: BTreeSet<(Time, String)>,
    wanted: BTreeSet<String>,
    written_at: BTreeMap<String, Time>,
    events: VecDeque<(Time, WorkloadKey)>,
    /// How many events about a workload wait.
    events_about: HashMap<WorkloadKey, usize>,
    ended: HashSet<WorkloadKey>,
    /// Writes so far.
    pub written: Written,
    /// Events that were dropped.
    pub dropped: usize,
}

impl Server {
    /// A server with nothing to do.
    pub fn new(price: Price, now: Time) -> Self {
        Self {
            price,
            free_at: now,
            lanes: Lanes::default(),
            jobs: 0,
            statuses: BTreeSet::new(),
            wanted: BTreeSet::new(),
            written_at: BTreeMap::new(),
            events: VecDeque::new(),
            events_about: HashMap::new(),
            ended: HashSet::new(),
            written: Written::default(),
            dropped: 0,
        }
    }

    /// A write to a workload.
    pub fn push(&mut self, action: Action) {
        if let Some(lane) = Lane::of(&action) {
            self.lanes.push(lane, action);
        }
    }

    /// A job is to start or to stop.
    pub fn job(&mut self) {
        self.jobs += 1;
    }

    /// The status of a queue changed.
    pub fn status(&mut self, queue: String, now: Time) {
        if self.wanted.insert(queue.clone()) {
            let at = self.written_at.get(&queue).map_or(now, |t| now.max(t.plus(STATUS_PERIOD)));
            self.statuses.insert((at, queue));
        }
    }

    /// Events about a workload were recorded.
    pub fn events(&mut self, about: &WorkloadKey, number: usize, now: Time) {
        self.events.extend(std::iter::repeat_n((now, about.clone()), number));
        *self.events_about.entry(about.clone()).or_default() += number;
    }

    /// A workload has finished.
    pub fn ended(&mut self, workload: WorkloadKey) {
        self.ended.insert(workload);
    }

    /// Takes out the event in front; whether it is still to be written.
    fn take_event(&mut self, now: Time) -> Option<bool> {
        let (since, about) = self.events.pop_front()?;
        let left = self.events_about.get_mut(&about).map_or(0, |n| {
            *n -= 1;
            *n
        });
        let waited = now.since(since);
        let overtaken = waited >= EVENT_HELD_UP && (left > 0 || self.ended.contains(&about));
        Some(waited < EVENT_PATIENCE && !overtaken)
    }

    /// Whether a decision waits to be written.
    pub fn has_decision(&mut self) -> bool {
        self.lanes.has_decision(Group::Workloads)
    }

    /// When the next write gets through, if one waits.
    pub fn next(&mut self) -> Option<Time> {
        let at_once = self.jobs > 0 || !self.events.is_empty() || self.lanes.has(Group::Workloads);
        let status = self.statuses.first().map(|(t, _)| *t);
        let earliest = if at_once { Some(self.free_at) } else { status };
        earliest.map(|t| t.max(self.free_at))
    }

    /// Makes the next write, if one gets through by `now`: the kind, and the update of a workload.
    pub fn write(&mut self, now: Time) -> Option<(Kind, Option<Box<WorkloadUpdate>>)> {
        if self.next().is_none_or(|t| t > now) {
            return None;
        }
        let (kind, update) = self.take(now)?;
        self.written[kind as usize] += 1;
        self.free_at = self.free_at.max(now).plus(self.price.of(kind));
        Some((kind, update))
    }

    fn take(&mut self, now: Time) -> Option<(Kind, Option<Box<WorkloadUpdate>>)> {
        if self.jobs > 0 {
            self.jobs -= 1;
            return Some((Kind::Job, None));
        }
        while let Some((lane, action)) = self.lanes.next(Group::Workloads) {
            self.lanes.done(lane);
            let kind = if explains(&action) { Kind::Explanation } else { Kind::Decision };
            if let Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(update)) = action {
                return Some((kind, Some(update)));
            }
        }
        if self.statuses.first().is_some_and(|(t, _)| *t <= now)
            && let Some((_, queue)) = self.statuses.pop_first()
        {
            self.wanted.remove(&queue);
            self.written_at.insert(queue, now);
            return Some((Kind::QueueStatus, None));
        }
        while let Some(write) = self.take_event(now) {
            if write {
                return Some((Kind::Event, None));
            }
            self.dropped += 1;
        }
        None
    }

    /// Writes after the end of the run: the last status of each queue, and the events that wait.
    pub fn finish(&mut self, now: Time) {
        self.written[Kind::QueueStatus as usize] += self.statuses.len();
        while let Some(write) = self.take_event(now) {
            let count = if write { &mut self.written[Kind::Event as usize] } else { &mut self.dropped };
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_takes_its_time_and_statuses_wait_a_second() {
        let at = Time::from_seconds;
        let mut server = Server::new(Price::PerSecond(2), at(100));
        let about = |name: &str| WorkloadKey { namespace: "n".into(), name: name.into() };
        server.events(&about("a"), 2, at(100));
        server.status("a".into(), at(100));
        server.status("a".into(), at(100));
        let mut kinds = Vec::new();
        let mut now = at(100);
        while let Some(next) = server.next().filter(|t| *t < at(110)) {
            now = next;
            let Some((kind, _)) = server.write(now) else { break };
            kinds.push((kind, now.since(at(100)).0 / 1_000_000));
            if kinds.len() == 1 {
                server.status("a".into(), now);
            }
        }
        let status = Kind::QueueStatus;
        assert_eq!(kinds, [(status, 0), (Kind::Event, 500), (status, 1000), (Kind::Event, 1500)]);
        server.events(&about("a"), 1, now);
        assert_eq!(server.write(at(200)), None);
        assert_eq!((server.dropped, server.written), (1, [0, 0, 0, 2, 2]));
        // Of two about one workload the newer, and none about one that has ended.
        server.events(&about("a"), 2, at(200));
        server.events(&about("b"), 1, at(200));
        server.ended(about("b"));
        assert_eq!(server.write(at(202)), Some((Kind::Event, None)));
        assert_eq!(server.write(at(203)), None);
        assert_eq!((server.dropped, server.written[Kind::Event as usize]), (3, 3));
    }
}
