//! kube-scheduler's metrics (`pkg/scheduler/metrics/metrics.go`), from what goes into the engine and what comes out of it: the engine
//! has no clock, and a scrape can't slow it down.

use plimsoll_state::ObjectEvent;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use plimsoll_scheduler::{
    Action as SchedulerAction, Event as SchedulerEvent, FailureReason, QueueCounts, RecordCause,
};
use plimsoll_state::Time;
use plimsoll_state::model::Pod;

use super::histogram::{DEFAULT, Histogram};

/// 0.001 × 2^k, 15 of them.
#[rustfmt::skip]
const ATTEMPT: &[f64] = &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384];
/// 0.01 × 2^k, 20 of them.
#[rustfmt::skip]
const SLI: &[f64] = &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
    327.68, 655.36, 1310.72, 2621.44, 5242.88];
/// 0.0001 × 2^k, 12 of them.
#[rustfmt::skip]
const EXTENSION_POINT: &[f64] = &[0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024,
    0.2048];
const ATTEMPTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Error,
    Scheduled,
    Unschedulable,
}

impl Outcome {
    const fn of(reason: FailureReason) -> Self {
        match reason {
            FailureReason::Unschedulable => Self::Unschedulable,
            FailureReason::SchedulerError => Self::Error,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
        }
    }
}

/// A pod that waits for a node.
#[derive(Debug)]
struct Waiting {
    profile: Box<str>,
    /// When its first attempt could begin: gates don't count.
    since: Option<Time>,
    attempts: u32,
    /// Seconds that the last attempt took.
    took: f64,
    /// Whether its binding is being written.
    binding: bool,
    /// When the write of Bind began.
    bind_began: Option<Time>,
}

/// Counts what placement does.
#[derive(Debug)]
pub struct Observer {
    /// Names of our profiles; pods of other schedulers are none of ours.
    profiles: Vec<String>,
    waiting: HashMap<String, Waiting>,
    attempts: BTreeMap<(Outcome, Box<str>), (u64, Histogram)>,
    sli: BTreeMap<Box<str>, Histogram>,
    tries: Histogram,
    algorithm: Histogram,
    /// Bindings by profile and status: from the end of the step that decided until the engine learns of the answer.
    binds: BTreeMap<(Box<str>, &'static str), Histogram>,
    /// When the present step began.
    now: Time,
    /// Cycles of queueing that admitted a workload, and that did not.
    cycles: [Histogram; 2],
}

impl Observer {
    /// Nothing seen yet. `profiles` are the names of the schedulers that we are.
    pub fn new(profiles: Vec<String>) -> Self {
        Self {
            profiles,
            waiting: HashMap::new(),
            attempts: BTreeMap::new(),
            sli: BTreeMap::new(),
            tries: Histogram::new(ATTEMPTS),
            algorithm: Histogram::new(ATTEMPT),
            binds: BTreeMap::new(),
            now: Time::default(),
            cycles: [Histogram::new(DEFAULT), Histogram::new(DEFAULT)],
        }
    }

    /// Sees how many cycles of queueing a step had, that admitted a workload and that did not, and how long it took.
    pub fn cycles(&mut self, ran: [u64; 2], took: Duration) {
        let all = ran.iter().sum::<u64>();
        for (n, histogram) in ran.iter().zip(&mut self.cycles) {
            for _ in 0..*n {
                histogram.observe(took.as_secs_f64() / all as f64);
            }
        }
    }

    /// Queueing's metrics that need a clock.
    pub fn queueing_families(&self) -> Vec<MetricFamily> {
        let samples = self
            .cycles
            .iter()
            .zip(["success", "inadmissible"])
            .map(|(h, result)| MetricSample::new(vec![("result", result.to_owned())], h.value()));
        vec![MetricFamily {
            name: "kueue_admission_attempt_duration_seconds",
            help: "How long attempts to admit workloads took, one per scheduling cycle",
            kind: MetricKind::Histogram,
            samples: samples.collect(),
        }]
    }

    /// Observes events before the engine handles them.
    pub fn events(&mut self, events: &[Event], now: Time) {
        self.now = now;
        for event in events {
            self.event(event, now);
        }
    }

    /// Observes an event before the engine handles it.
    pub fn event(&mut self, event: &Event, now: Time) {
        match event {
            Event::Object(ObjectEvent::PodUpsert(pod)) => self.pod_upsert(pod, now),
            Event::Object(ObjectEvent::PodDelete(uid)) => {
                self.waiting.remove(uid);
            }
            Event::Scheduler(SchedulerEvent::Bound(uid)) => self.bound(uid, now),
            // The attempt is counted with the action that reports the failure ([`Observer::step`]).
            Event::Scheduler(SchedulerEvent::BindFailed { uid, .. }) => self.bind_ran(uid, "Error", now),
            Event::Object(_) | Event::Scheduler(_) | Event::Queueing(_) => {}
        }
    }

    fn pod_upsert(&mut self, pod: &Pod, now: Time) {
        if !pod.spec.node_name.is_empty() {
            // The watch may be faster than the answer to our write.
            match self.waiting.get(&pod.uid) {
                Some(waiting) if waiting.binding => self.bound(&pod.uid, now),
                _ => drop(self.waiting.remove(&pod.uid)),
            }
            return;
        }
        if !self.profiles.contains(&pod.spec.scheduler_name) {
            return;
        }
        let free = pod.spec.scheduling_gates.is_empty();
        match self.waiting.get_mut(&pod.uid) {
            Some(known) if free && known.since.is_none() => known.since = Some(now),
            Some(_) => {}
            None => {
                let profile = pod.spec.scheduler_name.as_str().into();
                let since = free.then_some(now);
                let waiting =
                    Waiting { profile, since, attempts: 0, took: 0.0, binding: false, bind_began: None };
                self.waiting.insert(pod.uid.clone(), waiting);
            }
        }
    }

    /// Sees what one step of the engine came to, and how long it took.
    pub fn step(&mut self, actions: &[Action], took: Duration) {
        let ended =
            self.now.plus(plimsoll_state::Duration(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX)));
        let mut decided: Vec<(&str, Outcome)> = Vec::new();
        for action in actions {
            let Action::Scheduler(action) = action else { continue };
            match action {
                // Counted as scheduled when the binding is written, as upstream does.
                SchedulerAction::Bind { pod, .. } | SchedulerAction::Prepare { pod, .. } => {
                    if matches!(action, SchedulerAction::Bind { .. })
                        && let Some(waiting) = self.waiting.get_mut(&pod.uid)
                    {
                        waiting.bind_began = Some(ended);
                    }
                    // After PreBind, the binding belongs to the same attempt.
                    if !self.is_binding(&pod.uid) {
                        decided.push((&pod.uid, Outcome::Scheduled));
                    }
                }
                SchedulerAction::Record { pod, cause: RecordCause::Failed(reason), .. } => {
                    let outcome = Outcome::of(*reason);
                    if self.is_binding(&pod.uid) {
                        self.concluded(&pod.uid, outcome);
                    } else {
                        decided.push((&pod.uid, outcome));
                    }
                }
                SchedulerAction::Record {
                    cause: RecordCause::Scheduled | RecordCause::Preempted | RecordCause::Deleting,
                    ..
                }
                | SchedulerAction::Preempt { .. }
                | SchedulerAction::Extend { .. }
                | SchedulerAction::Unschedulable { .. }
                | SchedulerAction::Nominate { .. }
                | SchedulerAction::ReleaseClaims { .. } => {}
            }
        }
        // A step decides about many pods: each gets its share of the time.
        let share = took.as_secs_f64() / decided.len().max(1) as f64;
        for (uid, outcome) in decided {
            if let Some(waiting) = self.waiting.get_mut(uid) {
                waiting.attempts = waiting.attempts.saturating_add(1);
                waiting.took = share;
            }
            self.algorithm.observe(share);
            self.concluded(uid, outcome);
        }
    }

    /// An attempt led to a binding, or failed.
    fn concluded(&mut self, uid: &str, outcome: Outcome) {
        if let Some(waiting) = self.waiting.get_mut(uid) {
            waiting.binding = outcome == Outcome::Scheduled;
        }
        if outcome != Outcome::Scheduled {
            self.ended(uid, outcome);
        }
    }

    /// Whether an attempt waits for what is written before and for the binding.
    fn is_binding(&self, uid: &str) -> bool {
        self.waiting.get(uid).is_some_and(|w| w.binding)
    }

    fn ended(&mut self, uid: &str, outcome: Outcome) {
        let Some(waiting) = self.waiting.get(uid) else { return };
        let key = (outcome, waiting.profile.clone());
        let (count, histogram) = self.attempts.entry(key).or_insert_with(|| (0, Histogram::new(ATTEMPT)));
        *count += 1;
        histogram.observe(waiting.took);
    }

    /// A write of Bind is answered, or seen by the watch.
    fn bind_ran(&mut self, uid: &str, status: &'static str, now: Time) {
        let Some(waiting) = self.waiting.get_mut(uid) else { return };
        let Some(began) = waiting.bind_began.take() else { return };
        let key = (waiting.profile.clone(), status);
        let seconds = now.since(began).0.max(0) as f64 / 1e9;
        self.binds.entry(key).or_insert_with(|| Histogram::new(EXTENSION_POINT)).observe(seconds);
    }

    /// Bindings: profile, status, and how long they took.
    pub fn binds(&self) -> impl Iterator<Item = (&str, &'static str, MetricValue)> {
        self.binds.iter().map(|((profile, status), h)| (&**profile, *status, h.value()))
    }

    fn bound(&mut self, uid: &str, now: Time) {
        if !self.waiting.contains_key(uid) {
            return;
        }
        self.bind_ran(uid, "Success", now);
        self.ended(uid, Outcome::Scheduled);
        let Some(waiting) = self.waiting.remove(uid) else { return };
        let attempts = waiting.attempts.max(1);
        self.tries.observe(f64::from(attempts));
        let label = if attempts >= 15 { "15+".into() } else { attempts.to_string().into_boxed_str() };
        let since = waiting.since.unwrap_or(now);
        let seconds = now.since(since).0.max(0) as f64 / 1e9;
        self.sli.entry(label).or_insert_with(|| Histogram::new(SLI)).observe(seconds);
    }

    /// All families, sorted by name.
    pub fn families(&self, pending: QueueCounts) -> Vec<MetricFamily> {
        let number = |labels, n: u64| MetricSample::new(labels, MetricValue::Number(n as f64));
        let whole = |h: &Histogram| vec![MetricSample::new(Vec::new(), h.value())];
        let family = |name, help, kind, samples| MetricFamily { name, help, kind, samples };
        let result = |(outcome, profile): &(Outcome, Box<str>)| {
            vec![("profile", profile.to_string()), ("result", outcome.word().to_owned())]
        };
        let queues = [
            ("active", pending.active),
            ("backoff", pending.backoff),
            ("gated", pending.gated),
            ("unschedulable", pending.unschedulable),
        ];
        let pods = queues.map(|(queue, n)| number(vec![("queue", queue.into())], n as u64));
        let sli = self
            .sli
            .iter()
            .map(|(attempts, h)| MetricSample::new(vec![("attempts", attempts.to_string())], h.value()));
        let durations = self.attempts.iter().map(|(k, (_, h))| MetricSample::new(result(k), h.value()));
        use MetricKind::{Counter, Gauge, Histogram as H};
        vec![
            family(
                "scheduler_pending_pods",
                "Pods that wait, by the part of the queue they are in",
                Gauge,
                pods.into(),
            ),
            family(
                "scheduler_pod_scheduling_attempts",
                "Attempts it took to place a pod",
                H,
                whole(&self.tries),
            ),
            family(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "Time from when a pod could first be tried until it was bound, without the time it was gated",
                H,
                sli.collect(),
            ),
            family(
                "scheduler_schedule_attempts_total",
                "Attempts to place pods, by result",
                Counter,
                self.attempts.iter().map(|(k, (n, _))| number(result(k), *n)).collect(),
            ),
            family(
                "scheduler_scheduling_algorithm_duration_seconds",
                "Time of a decision: its share of a step of the engine",
                H,
                whole(&self.algorithm),
            ),
            family(
                "scheduler_scheduling_attempt_duration_seconds",
                "Time of an attempt, by result",
                H,
                durations.collect(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
