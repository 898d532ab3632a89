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
const ATTEMPTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
const VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

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
}

/// Counts what placement does.
#[derive(Debug)]
pub struct Observer {
    /// Names of our profiles; pods of other schedulers are none of ours.
    profiles: Vec<String>,
    waiting: HashMap<String, Waiting>,
    attempts: BTreeMap<(Outcome, Box<str>), (u64, Histogram)>,
    incoming: BTreeMap<(&'static str, &'static str), u64>,
    sli: BTreeMap<Box<str>, Histogram>,
    tries: Histogram,
    algorithm: Histogram,
    preemptions: u64,
    victims: Histogram,
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
            incoming: BTreeMap::new(),
            sli: BTreeMap::new(),
            tries: Histogram::new(ATTEMPTS),
            algorithm: Histogram::new(ATTEMPT),
            preemptions: 0,
            victims: Histogram::new(VICTIMS),
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
            // A failed binding is counted with the action that reports it ([`Observer::step`]).
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
        let known = self.waiting.get_mut(&pod.uid);
        let opened = free && known.as_ref().is_none_or(|w| w.since.is_none());
        let first = known.is_none();
        match known {
            Some(known) if opened => known.since = Some(now),
            Some(_) => {}
            None => {
                let profile = pod.spec.scheduler_name.as_str().into();
                let since = free.then_some(now);
                let waiting = Waiting { profile, since, attempts: 0, took: 0.0, binding: false };
                self.waiting.insert(pod.uid.clone(), waiting);
            }
        }
        match (first, free) {
            (true, true) => self.count("active", "UnscheduledPodAdd"),
            (true, false) => self.count("gated", "UnscheduledPodAdd"),
            (false, true) if opened => self.count("active", "UnscheduledPodUpdate"),
            _ => {}
        }
    }

    /// Sees what one step of the engine came to, and how long it took.
    pub fn step(&mut self, actions: &[Action], took: Duration) {
        let mut decided: Vec<(&str, Outcome)> = Vec::new();
        let mut victims: BTreeMap<&str, u64> = BTreeMap::new();
        for action in actions {
            let Action::Scheduler(action) = action else { continue };
            match action {
                // Counted as scheduled when the binding is written, as upstream does.
                SchedulerAction::Bind { pod, .. } | SchedulerAction::Prepare { pod, .. } => {
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
                SchedulerAction::Preempt { preemptor, .. } => {
                    *victims.entry(&preemptor.uid).or_insert(0) += 1;
                }
                SchedulerAction::Record {
                    cause: RecordCause::Scheduled | RecordCause::Preempted | RecordCause::Deleting,
                    ..
                }
                | SchedulerAction::Extend { .. }
                | SchedulerAction::Unschedulable { .. }
                | SchedulerAction::ClearNomination { .. }
                | SchedulerAction::ReleaseClaims { .. } => {}
            }
        }
        for n in victims.into_values() {
            self.preemptions += 1;
            self.victims.observe(n as f64);
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
            self.count("unschedulable", "ScheduleAttemptFailure");
            self.ended(uid, outcome);
        }
    }

    /// Whether an attempt waits for what is written before and for the binding.
    fn is_binding(&self, uid: &str) -> bool {
        self.waiting.get(uid).is_some_and(|w| w.binding)
    }

    fn count(&mut self, queue: &'static str, event: &'static str) {
        *self.incoming.entry((queue, event)).or_insert(0) += 1;
    }

    fn ended(&mut self, uid: &str, outcome: Outcome) {
        let Some(waiting) = self.waiting.get(uid) else { return };
        let key = (outcome, waiting.profile.clone());
        let (count, histogram) = self.attempts.entry(key).or_insert_with(|| (0, Histogram::new(ATTEMPT)));
        *count += 1;
        histogram.observe(waiting.took);
    }

    fn bound(&mut self, uid: &str, now: Time) {
        if !self.waiting.contains_key(uid) {
            return;
        }
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
        let incoming = self.incoming.iter().map(|((queue, event), n)| {
            number(vec![("event", (*event).into()), ("queue", (*queue).into())], *n)
        });
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
                "scheduler_preemption_attempts_total",
                "Attempts that made room by preemption",
                Counter,
                vec![number(Vec::new(), self.preemptions)],
            ),
            family("scheduler_preemption_victims", "Pods that had to go for one", H, whole(&self.victims)),
            family(
                "scheduler_queue_incoming_pods_total",
                "Pods that came into a part of the queue, by cause",
                Counter,
                incoming.collect(),
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
mod tests {
    use super::*;
    use plimsoll_scheduler::{Note, PodRef};

    fn pod(uid: &str, gates: &[&str], node: &str) -> Event {
        let json = serde_json::json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {"containers": [{"name": "c"}], "nodeName": node,
                     "schedulingGates": gates.iter().map(|g| serde_json::json!({"name": g})).collect::<Vec<_>>()},
        });
        let pod = plimsoll_api::convert::pod(json.to_string().as_bytes()).unwrap();
        Event::Object(ObjectEvent::PodUpsert(Box::new(pod)))
    }

    fn named(uid: &str) -> PodRef {
        PodRef { uid: uid.into(), namespace: "ns".into(), name: uid.into() }
    }

    fn failed(uid: &str, cause: RecordCause) -> Action {
        let (reason, action) = ("FailedScheduling", "Scheduling");
        let note = Note { warning: true, reason, action, message: String::new() };
        Action::Scheduler(SchedulerAction::Record { pod: named(uid), cause, note })
    }

    fn show(observer: &Observer) -> String {
        let mut out = String::new();
        let counts = QueueCounts { active: 1, backoff: 2, unschedulable: 3, gated: 4, in_flight: 5 };
        super::super::text::write(&mut out, &observer.families(counts), &[]);
        out
    }

    #[test]
    fn attempts_waits_and_victims_are_counted() {
        let s = |n: i64| Time(n * 1_000_000_000);
        let mut o = Observer::new(vec!["default-scheduler".into()]);
        o.event(&pod("a", &["g"], ""), s(0));
        o.event(&pod("a", &[], ""), s(100));
        o.event(&pod("b", &[], ""), s(100));
        o.step(
            &[
                failed("a", RecordCause::Failed(FailureReason::Unschedulable)),
                failed("b", RecordCause::Failed(FailureReason::SchedulerError)),
                failed("b", RecordCause::Deleting),
            ],
            Duration::ZERO,
        );
        let bind = SchedulerAction::Bind { pod: named("a"), node: "n".into() };
        let victim = |v: &str| {
            let message = String::new();
            Action::Scheduler(SchedulerAction::Preempt { victim: named(v), preemptor: named("b"), message })
        };
        o.step(&[Action::Scheduler(bind), victim("x"), victim("y")], Duration::from_millis(3));
        // The watch and the answer both tell of the binding: it counts once.
        o.event(&pod("a", &[], "n"), s(103));
        o.event(&Event::Scheduler(SchedulerEvent::Bound("a".into())), s(104));
        let text = show(&o);
        for want in [
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"error\"} 1\n",
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1\n",
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"} 1\n",
            "scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"} 3\n",
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"2\",le=\"2.56\"} 0\n",
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"2\",le=\"5.12\"} 1\n",
            "scheduler_pod_scheduling_attempts_sum 2\n",
            "scheduler_scheduling_attempt_duration_seconds_sum{profile=\"default-scheduler\",result=\"scheduled\"} 0.003\n",
            "scheduler_preemption_attempts_total 1\n",
            "scheduler_preemption_victims_sum 2\n",
            "scheduler_pending_pods{queue=\"gated\"} 4\n",
            "scheduler_queue_incoming_pods_total{event=\"ScheduleAttemptFailure\",queue=\"unschedulable\"} 2\n",
            "scheduler_queue_incoming_pods_total{event=\"UnscheduledPodAdd\",queue=\"gated\"} 1\n",
            "scheduler_queue_incoming_pods_total{event=\"UnscheduledPodUpdate\",queue=\"active\"} 1\n",
        ] {
            assert!(text.contains(want), "{want} not in\n{text}");
        }
    }

    #[test]
    fn a_failed_binding_ends_one_attempt() {
        let at = |n: i64| Time(n * 1_000_000_000);
        let mut o = Observer::new(vec!["default-scheduler".into()]);
        o.event(&pod("a", &[], ""), at(0));
        let what = Box::default();
        let prepare = SchedulerAction::Prepare { pod: named("a"), node: "n".into(), what };
        o.step(&[Action::Scheduler(prepare)], Duration::from_millis(3));
        let bind = || Action::Scheduler(SchedulerAction::Bind { pod: named("a"), node: "n".into() });
        o.step(&[bind()], Duration::from_millis(1));
        let (uid, message) = ("a".into(), "no".into());
        o.event(&Event::Scheduler(SchedulerEvent::BindFailed { uid, message }), at(1));
        o.step(&[failed("a", RecordCause::Failed(FailureReason::SchedulerError))], Duration::from_millis(1));
        o.step(&[bind()], Duration::from_millis(2));
        o.event(&Event::Scheduler(SchedulerEvent::Bound("a".into())), at(2));
        let text = show(&o);
        for want in [
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"error\"} 1\n",
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1\n",
            "scheduler_pod_scheduling_attempts_sum 2\n",
            "scheduler_scheduling_algorithm_duration_seconds_count 2\n",
            "scheduler_queue_incoming_pods_total{event=\"ScheduleAttemptFailure\",queue=\"unschedulable\"} 1\n",
        ] {
            assert!(text.contains(want), "{want} not in\n{text}");
        }
    }

    #[test]
    fn cycles_of_queueing_are_timed() {
        let mut o = Observer::new(Vec::new());
        o.cycles([0, 0], Duration::from_secs(9));
        o.cycles([1, 1], Duration::from_millis(4));
        let mut out = String::new();
        super::super::text::write(&mut out, &o.queueing_families(), &[]);
        for result in ["success", "inadmissible"] {
            let want = format!("kueue_admission_attempt_duration_seconds_sum{{result=\"{result}\"}} 0.002\n");
            assert!(out.contains(&want), "{want} not in\n{out}");
        }
    }

    #[test]
    fn nothing_is_remembered_of_pods_that_wait_no_more() {
        let mut o = Observer::new(vec!["default-scheduler".into()]);
        for uid in ["a", "b", "c"] {
            o.event(&pod(uid, &[], ""), Time(0));
        }
        o.event(&pod("a", &[], "n"), Time(0));
        o.event(&Event::Object(ObjectEvent::PodDelete("b".into())), Time(0));
        o.event(&Event::Scheduler(SchedulerEvent::Bound("c".into())), Time(0));
        assert!(o.waiting.is_empty());
        let mut other = Observer::new(vec!["mine".into()]);
        other.event(&pod("a", &[], ""), Time(0));
        assert!(other.waiting.is_empty(), "a pod of another scheduler");
    }
}
