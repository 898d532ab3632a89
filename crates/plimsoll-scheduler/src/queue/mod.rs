//! The scheduling queue: active, backoff, unschedulable and gated pods (upstream
//! `backend/queue/scheduling_queue.go`).
//!
//! Only the bookkeeping lives here; what an event means for a pod is decided by the caller, which knows the
//! plugins.

mod backoff;
mod incoming;

pub use backoff::Backoff;
pub(crate) use incoming::MoveCause;

use super::cluster::PodId;
use super::framework::{Plugin, PluginId, PluginIds, QueuedPod, SortKey};
use incoming::Incoming;
use plimsoll_state::parted::PartedMap;
use plimsoll_state::time::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Ready to be scheduled.
    Active,
    /// Waits for its backoff to end.
    Backoff,
    /// Waits for its backoff to end after an error; never taken early.
    ErrorBackoff,
    /// Waits for an event.
    Unschedulable,
    /// Kept out by PreEnqueue of this plugin.
    Gated(PluginId),
    /// Popped: being scheduled, or its binding is being written.
    InFlight,
}

/// A pod in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub stage: Stage,
    pub priority: i32,
    /// When it last entered the queue.
    pub timestamp: Time,
    seq: u64,
    /// Whether it is gated, and no event can change that before it is woken.
    asleep: bool,
    /// Key of QueueSort when the pod last entered a part of the queue.
    sort: SortKey,
    /// Attempts that ended with a rejection.
    pub unschedulable: u32,
    /// Errors since the last rejection.
    pub errors: u32,
    /// Plugins that rejected it in its last attempt.
    pub unschedulable_plugins: PluginIds,
    /// Plugins that wait for an external component.
    pub pending_plugins: PluginIds,
    /// Backoff expiry in whole seconds, while in a backoff queue.
    expiry: i64,
    /// Whether it was last moved because it had waited for an event for too long.
    pub flushed: bool,
    /// Whether `status.nominatedNodeName` was written because it waits before it is bound.
    pub expected: bool,
    /// Hash of the condition last written.
    pub condition: u64,
    /// Index of the profile.
    pub profile: u32,
}

/// Key of QueueSort, then order of arrival.
type ActiveKey = (SortKey, u64, PodId);

impl Queued {
    fn key(&self, id: PodId) -> ActiveKey {
        (self.sort, self.seq, id)
    }
}

/// Number of pods by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Ready to be scheduled.
    pub active: usize,
    /// Waiting for a backoff to end, after rejections and errors.
    pub backoff: usize,
    /// Waiting for an event.
    pub unschedulable: usize,
    /// Kept out by PreEnqueue.
    pub gated: usize,
    /// Popped and not yet done.
    pub in_flight: usize,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub backoff: Backoff,
    sort: Option<Arc<dyn Plugin>>,
    rows: PartedMap<PodId, Queued>,
    active_q: BTreeSet<ActiveKey>,
    backoff_q: BTreeSet<(i64, ActiveKey)>,
    error_backoff_q: BTreeSet<(i64, ActiveKey)>,
    /// Pods that wait for events, by the time since when.
    unschedulable_pods: BTreeSet<(Time, u64, PodId)>,
    /// Waiting and gated pods by the plugins that stopped them.
    by_plugin: Vec<BTreeSet<(u64, PodId)>>,
    gated: usize,
    in_flight: usize,
    next_seq: u64,
    /// Where the pod was that was popped last.
    popped: Stage,
    incoming: Incoming,
    /// How long a pod may wait for events.
    pub max_in_unschedulable_pods: Duration,
    last_flush: Time,
    /// When pods were last found that have waited for too long, while some of them are still to be moved.
    flushing: Option<Time>,
    /// Most pods that a step moves because their time is over; fewer in tests.
    pub moves_per_step: usize,
    /// Whether the last step left some of them where they were.
    pub is_behind: bool,
}

/// Most pods that a step moves because their time is over: a few milliseconds of work.
const MOVES_PER_STEP: usize = 4096;

/// How often pods that have waited for too long are moved (upstream `flushUnschedulablePodsLeftover`).
const FLUSH_PERIOD: Duration = Duration::from_seconds(30);

impl Queue {
    /// A queue for plugins with numbers below `plugins`, sorted by QueueSort of `sort`; `None`: by arrival.
    pub fn new(
        backoff: Backoff,
        max_in_unschedulable_pods: Duration,
        plugins: usize,
        sort: Option<Arc<dyn Plugin>>,
    ) -> Self {
        Self {
            backoff,
            rows: PartedMap::default(),
            active_q: BTreeSet::new(),
            backoff_q: BTreeSet::new(),
            error_backoff_q: BTreeSet::new(),
            unschedulable_pods: BTreeSet::new(),
            by_plugin: vec![BTreeSet::new(); plugins],
            sort,
            gated: 0,
            in_flight: 0,
            next_seq: 0,
            popped: Stage::Active,
            incoming: Incoming::default(),
            max_in_unschedulable_pods,
            last_flush: Time(i64::MIN),
            flushing: None,
            moves_per_step: MOVES_PER_STEP,
            is_behind: false,
        }
    }

    /// There are plugins with numbers below `plugins` now; no number has another meaning than before.
    pub fn set_plugins(&mut self, plugins: usize, sort: Option<Arc<dyn Plugin>>) {
        self.by_plugin.resize_with(plugins.max(self.by_plugin.len()), BTreeSet::new);
        self.sort = sort;
    }

    /// All pods with their places, in order of arrival.
    pub fn all(&self) -> Vec<(PodId, Stage)> {
        let mut all: Vec<_> = self.rows.iter().map(|(id, row)| (row.seq, *id, row.stage)).collect();
        all.sort_unstable_by_key(|(seq, ..)| *seq);
        all.into_iter().map(|(_, id, stage)| (id, stage)).collect()
    }

    pub fn get(&self, id: PodId) -> Option<&Queued> {
        self.rows.get(&id)
    }

    pub fn get_mut(&mut self, id: PodId) -> Option<&mut Queued> {
        self.rows.get_mut(&id)
    }

    /// Adds a pod that is new to the queue; it must be moved somewhere next.
    pub fn insert(&mut self, id: PodId, priority: i32, profile: u32, now: Time) {
        self.next_seq += 1;
        let row = Queued {
            stage: Stage::InFlight,
            priority,
            timestamp: now,
            seq: self.next_seq,
            asleep: false,
            sort: (0, 0),
            unschedulable: 0,
            errors: 0,
            unschedulable_plugins: PluginIds::default(),
            pending_plugins: PluginIds::default(),
            expiry: 0,
            flushed: false,
            expected: false,
            condition: 0,
            profile,
        };
        self.in_flight += 1;
        self.rows.insert(id, row);
    }

    /// Takes a pod out of the queue, wherever it is.
    pub fn remove(&mut self, id: PodId) -> Option<Queued> {
        self.leave(id);
        self.in_flight -= usize::from(self.rows.contains_key(&id));
        self.rows.remove(&id)
    }

    /// Takes a pod out of its place; it is in flight then.
    fn leave(&mut self, id: PodId) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        let key = row.key(id);
        match row.stage {
            Stage::Active => {
                self.active_q.remove(&key);
            }
            Stage::Backoff => {
                self.backoff_q.remove(&(row.expiry, key));
            }
            Stage::ErrorBackoff => {
                self.error_backoff_q.remove(&(row.expiry, key));
            }
            Stage::Unschedulable => {
                self.unschedulable_pods.remove(&(row.timestamp, row.seq, id));
                for plugin in row.unschedulable_plugins.iter().chain(row.pending_plugins.iter()) {
                    self.by_plugin[plugin.index()].remove(&(row.seq, id));
                }
            }
            Stage::Gated(plugin) => {
                if !std::mem::take(&mut row.asleep) {
                    self.by_plugin[plugin.index()].remove(&(row.seq, id));
                }
                self.gated -= 1;
            }
            Stage::InFlight => return,
        }
        row.stage = Stage::InFlight;
        self.in_flight += 1;
    }

    /// Moves a pod to a place. For the unschedulable pods its unschedulable plugins must be set before.
    pub fn enter(&mut self, id: PodId, stage: Stage) {
        self.leave(id);
        let Some(row) = self.rows.get_mut(&id) else { return };
        let expiry = self.backoff.expiry_second(row.timestamp, row.errors, row.unschedulable);
        row.stage = stage;
        row.expiry = expiry;
        let pod = QueuedPod { priority: row.priority, timestamp: row.timestamp };
        row.sort = self.sort.as_ref().map_or((0, 0), |plugin| plugin.queue_sort(&pod));
        let key = row.key(id);
        match stage {
            Stage::Active => {
                self.active_q.insert(key);
            }
            Stage::Backoff => {
                self.backoff_q.insert((expiry, key));
            }
            Stage::ErrorBackoff => {
                self.error_backoff_q.insert((expiry, key));
            }
            Stage::Unschedulable => {
                self.unschedulable_pods.insert((row.timestamp, row.seq, id));
                for plugin in row.unschedulable_plugins.iter().chain(row.pending_plugins.iter()) {
                    self.by_plugin[plugin.index()].insert((row.seq, id));
                }
            }
            Stage::Gated(plugin) => {
                self.by_plugin[plugin.index()].insert((row.seq, id));
                self.gated += 1;
            }
            Stage::InFlight => return,
        }
        self.in_flight -= 1;
    }

    /// Lets a gated pod be found by no event until it is woken: so many may wait that looking at each costs.
    pub fn sleep(&mut self, id: PodId) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        if let Stage::Gated(plugin) = row.stage
            && !row.asleep
        {
            row.asleep = true;
            self.by_plugin[plugin.index()].remove(&(row.seq, id));
        }
    }

    /// Lets a pod be found by events again.
    pub fn wake(&mut self, id: PodId) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        if let Stage::Gated(plugin) = row.stage
            && row.asleep
        {
            row.asleep = false;
            self.by_plugin[plugin.index()].insert((row.seq, id));
        }
    }

    /// The pods that no event finds.
    pub fn sleepers(&self) -> impl Iterator<Item = PodId> + '_ {
        self.rows.iter().filter(|(_, r)| r.asleep).map(|(id, _)| *id)
    }

    /// Changes the priority of a pod, wherever it is.
    pub fn set_priority(&mut self, id: PodId, priority: i32) {
        let Some(row) = self.rows.get(&id) else { return };
        if row.priority == priority {
            return;
        }
        let (stage, asleep) = (row.stage, row.asleep);
        self.leave(id);
        if let Some(row) = self.rows.get_mut(&id) {
            row.priority = priority;
        }
        self.enter(id, stage);
        if asleep {
            self.sleep(id);
        }
    }

    /// The next pod to schedule, now in flight: the head of the active queue, else of the backoff queue.
    pub fn pop(&mut self) -> Option<PodId> {
        let (id, stage) = match self.active_q.first() {
            Some(key) => (key.2, Stage::Active),
            None => (self.backoff_q.first()?.1.2, Stage::Backoff),
        };
        if stage == Stage::Backoff {
            self.incoming.count(Stage::Active, MoveCause::PopFromBackoffQ);
        }
        self.popped = stage;
        self.take(id);
        Some(id)
    }

    /// Puts the pod that was popped last, and not tried, back where it was: it is the next one again.
    pub fn put_back(&mut self, id: PodId) {
        if self.popped == Stage::Backoff {
            self.incoming.undo(Stage::Active, MoveCause::PopFromBackoffQ);
        }
        self.enter(id, self.popped);
    }

    /// Takes a pod out of its place as [`Queue::pop`] does with the head.
    pub fn take(&mut self, id: PodId) {
        self.leave(id);
        if let Some(row) = self.rows.get_mut(&id) {
            row.unschedulable_plugins.clear();
            row.pending_plugins.clear();
        }
    }

    /// Which pod came earlier to the queue: the smaller number.
    pub fn arrival(&self, id: PodId) -> u64 {
        self.rows.get(&id).map_or(u64::MAX, |r| r.seq)
    }

    /// Whether the pod's backoff is not over yet.
    pub fn is_backing_off(&self, id: PodId, now: Time) -> bool {
        self.rows.get(&id).is_some_and(|r| {
            self.backoff.expiry_second(r.timestamp, r.errors, r.unschedulable) >= now.seconds()
        })
    }

    /// Moves pods whose backoff is over to the active queue, as many as a step does. Whether that are all.
    pub fn flush_backoff(&mut self, now: Time) -> bool {
        for _ in 0..self.moves_per_step {
            let over = |q: &BTreeSet<(i64, ActiveKey)>| {
                q.first().filter(|(expiry, _)| *expiry < now.seconds()).map(|(_, key)| key.2)
            };
            let Some(id) = over(&self.backoff_q).or_else(|| over(&self.error_backoff_q)) else { return true };
            self.enter(id, Stage::Active);
            self.incoming.count(Stage::Active, MoveCause::BackoffComplete);
        }
        false
    }

    /// Pods that have waited for an event for too long, as many as a step moves; none between the 30 s periods
    /// (upstream `flushUnschedulablePodsLeftover`). The caller moves them, or they are found again. And whether that are all.
    pub fn unschedulable_leftover(&mut self, now: Time) -> (Vec<PodId>, bool) {
        let at = match self.flushing {
            Some(at) => at,
            None if now < self.last_flush.plus(FLUSH_PERIOD) => return (Vec::new(), true),
            None => {
                self.last_flush = now;
                now
            }
        };
        let late = self
            .unschedulable_pods
            .iter()
            .take_while(|(t, _, _)| at.since(*t) > self.max_in_unschedulable_pods);
        let late: Vec<PodId> = late.take(self.moves_per_step).map(|(_, _, id)| *id).collect();
        self.flushing = (late.len() == self.moves_per_step).then_some(at);
        (late, self.flushing.is_none())
    }

    /// Whether any pod waits for events.
    pub fn has_waiters(&self) -> bool {
        !self.unschedulable_pods.is_empty() || self.gated > 0
    }

    /// Pods stopped by a plugin, in order of arrival.
    pub fn stopped_by(&self, plugin: PluginId) -> impl Iterator<Item = (u64, PodId)> + '_ {
        self.by_plugin.get(plugin.index()).into_iter().flatten().copied()
    }

    /// When something happens by time alone; `now` if pods are ready.
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        if !self.active_q.is_empty() || !self.backoff_q.is_empty() || self.is_behind {
            return Some(now);
        }
        let error = self.error_backoff_q.first().map(|(expiry, _)| Time::from_seconds(expiry + 1));
        let leftover = self.unschedulable_pods.first().map(|(t, _, _)| {
            t.plus(self.max_in_unschedulable_pods).plus(Duration(1)).max(self.last_flush.plus(FLUSH_PERIOD))
        });
        [error, leftover].into_iter().flatten().min()
    }

    pub fn counts(&self) -> QueueCounts {
        QueueCounts {
            active: self.active_q.len(),
            backoff: self.backoff_q.len() + self.error_backoff_q.len(),
            unschedulable: self.unschedulable_pods.len(),
            gated: self.gated,
            in_flight: self.in_flight,
        }
    }

    /// Counts that a pod came to where it is.
    pub fn came(&mut self, id: PodId, cause: MoveCause) {
        if let Some(row) = self.rows.get(&id) {
            self.incoming.count(row.stage, cause);
        }
    }

    /// How many pods came to a part of the queue, by part and upstream's label of the cause.
    pub fn incoming(&self) -> impl Iterator<Item = (&'static str, String, u64)> {
        self.incoming.all()
    }

    /// How many pods each plugin has rejected or keeps out, by profile: until their next attempt.
    pub fn rejected(&self) -> BTreeMap<(u32, PluginId), u64> {
        let mut out = BTreeMap::new();
        for row in self.rows.values() {
            let mut plugins = row.unschedulable_plugins.clone();
            row.pending_plugins.iter().for_each(|plugin| plugins.insert(plugin));
            if let Stage::Gated(plugin) = row.stage {
                plugins.insert(plugin);
            }
            for plugin in plugins.iter() {
                *out.entry((row.profile, plugin)).or_insert(0) += 1;
            }
        }
        out
    }

    /// Compares the indices with the rows.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&self) {
        let c = self.counts();
        assert_eq!(
            c.active + c.backoff + c.unschedulable + c.gated + c.in_flight,
            self.rows.len(),
            "every queued pod is in one place"
        );
        let count = |f: fn(&Stage) -> bool| self.rows.values().filter(|r| f(&r.stage)).count();
        assert_eq!(c.active, count(|s| matches!(s, Stage::Active)), "active pods");
        assert_eq!(self.backoff_q.len(), count(|s| matches!(s, Stage::Backoff)), "backoff");
        assert_eq!(self.error_backoff_q.len(), count(|s| matches!(s, Stage::ErrorBackoff)), "error backoff");
        assert_eq!(c.unschedulable, count(|s| matches!(s, Stage::Unschedulable)), "unschedulable");
        for (at, pods) in self.by_plugin.iter().enumerate() {
            let stopped = |r: &Queued| match r.stage {
                Stage::Gated(plugin) => !r.asleep && plugin.index() == at,
                Stage::Unschedulable => {
                    r.unschedulable_plugins.iter().chain(r.pending_plugins.iter()).any(|p| p.index() == at)
                }
                Stage::Active | Stage::Backoff | Stage::ErrorBackoff | Stage::InFlight => false,
            };
            let rows = self.rows.iter().filter(|(_, r)| stopped(r)).map(|(id, r)| (r.seq, *id));
            assert_eq!(*pods, rows.collect::<BTreeSet<_>>(), "pods stopped by a plugin");
        }
        assert_eq!(c.gated, count(|s| matches!(s, Stage::Gated(_))), "gated");
    }
}

#[cfg(test)]
mod tests;
