//! A fixed amount of admission for `cargo xtask instructions`: the same queues and workloads in every run, no clock, no
//! randomness. Prints how many workloads were admitted, and with `--time` the time that it took.
//!
//!     admission_work (paced|at-once|steps) COHORTS QUEUES_PER_COHORT WORKLOADS_PER_QUEUE
//!
//! The classes are those of Kueue's performance test "large-scale". `paced` confirms 50
//! writes a second, each in a step of its own; `at-once` confirms all writes of a step in the next one. `steps` creates
//! all workloads at once, lets no job end, changes what concerns all of them, and prints the longest step of each change.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program for measuring")]

use std::collections::{BTreeMap, VecDeque};

use plimsoll_queueing::{
    Action, Chosen, ClusterQueue, Condition, Config, Event, FlavorQuotas, LimitRange, LimitRangeItem,
    LocalQueue, PodSet, PreemptionPolicy, PreemptionRules, Queueing, ResourceFlavor, ResourceGroup,
    ResourceQuota, RunWindow, Workload, WorkloadKey, WorkloadUpdate, cond,
};
use plimsoll_state::model::{Container, LabelSelector, PodSpec, Resources};
use plimsoll_state::time::{Duration, Time};

/// Time between two writes.
const PACE: Duration = Duration::from_millis(20);
/// Most events in one step where all is changed at once.
const BATCH: usize = 1024;
/// Parts in fifty, priority, cores, milliseconds between creations, milliseconds of work.
const CLASSES: [(usize, i32, i64, i64, i64); 3] =
    [(35, 50, 1, 60, 150), (11, 100, 5, 300, 350), (4, 200, 20, 700, 700)];

fn cpu(cores: i64) -> Resources {
    [("cpu".to_owned(), cores * 1000)].into()
}

fn queue(i: usize, per_cohort: usize) -> [Event; 2] {
    let quota = ResourceQuota {
        resource: "cpu".into(),
        nominal: 20_000,
        borrowing_limit: Some(100_000),
        lending_limit: None,
    };
    let cluster_queue = ClusterQueue {
        name: format!("cq-{i}"),
        cohort: format!("cohort-{}", i / per_cohort),
        resource_groups: vec![ResourceGroup {
            covered: vec!["cpu".into()],
            flavors: vec![FlavorQuotas { flavor: "default".into(), resources: vec![quota] }],
        }],
        namespace_selector: Some(LabelSelector::default()),
        preemption: PreemptionRules {
            reclaim_within_cohort: PreemptionPolicy::Any,
            within_cluster_queue: PreemptionPolicy::LowerPriority,
            ..PreemptionRules::default()
        },
        fair_weight_nano: 1_000_000_000,
        ..ClusterQueue::default()
    };
    let local_queue = LocalQueue {
        namespace: "ns".into(),
        name: format!("lq-{i}"),
        cluster_queue: format!("cq-{i}"),
        fair_weight_nano: 1_000_000_000,
        ..LocalQueue::default()
    };
    [Event::ClusterQueueUpsert(Box::new(cluster_queue)), Event::LocalQueueUpsert(Box::new(local_queue))]
}

fn workload(
    name: String,
    queue: usize,
    (_, priority, cores, ..): (usize, i32, i64, i64, i64),
    at: Time,
) -> Workload {
    let container = Container { name: "main".into(), requests: cpu(cores), ..Container::default() };
    let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
    Workload {
        key: WorkloadKey { namespace: "ns".into(), name: name.clone() },
        uid: name,
        version: 1,
        generation: 1,
        creation: at.truncate_to_second(),
        priority,
        queue: format!("lq-{queue}"),
        active: true,
        pod_sets: vec![PodSet { name: "main".into(), count: 1, spec, ..PodSet::default() }].into(),
        ..Workload::default()
    }
}

/// The engine, and the workloads whose writes are confirmed in order.
struct Harness {
    queueing: Queueing,
    now: Time,
    workloads: BTreeMap<WorkloadKey, (Workload, Duration)>,
    /// Creations and ends to come.
    due: BTreeMap<(Time, usize), Workload>,
    number: usize,
    version: u64,
    decisions: VecDeque<Box<WorkloadUpdate>>,
    explanations: VecDeque<Box<WorkloadUpdate>>,
    admitted: usize,
    left: usize,
    longest: std::time::Duration,
    total: std::time::Duration,
    queues: usize,
    per_cohort: usize,
}

impl Harness {
    fn new(cohorts: usize, per_cohort: usize, per_queue: usize) -> Self {
        let config = Config::usual();
        let (queueing, now) = (Queueing::new(config), Time::from_seconds(1_700_000_000));
        let mut harness = Self {
            queueing,
            now,
            workloads: BTreeMap::new(),
            due: BTreeMap::new(),
            number: 0,
            version: 1,
            decisions: VecDeque::new(),
            explanations: VecDeque::new(),
            admitted: 0,
            left: 0,
            longest: std::time::Duration::ZERO,
            total: std::time::Duration::ZERO,
            queues: cohorts * per_cohort,
            per_cohort,
        };
        let flavor = ResourceFlavor { name: "default".into(), ..ResourceFlavor::default() };
        let mut events = vec![
            Event::NamespaceUpsert("ns".into(), BTreeMap::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
        ];
        events.extend((0..cohorts * per_cohort).flat_map(|i| queue(i, per_cohort)));
        harness.step(events);
        for q in 0..cohorts * per_cohort {
            for (c, class) in CLASSES.iter().enumerate() {
                for i in 0..class.0 * per_queue / 50 {
                    let at = now.plus(Duration::from_millis(class.3 * i64::try_from(i).unwrap()));
                    let w = workload(format!("w-{q}-{c}-{i}"), q, *class, at);
                    harness.workloads.insert(w.key.clone(), (w.clone(), Duration::from_millis(class.4)));
                    harness.at(at, w);
                    harness.left += 1;
                }
            }
        }
        harness
    }

    fn at(&mut self, at: Time, w: Workload) {
        self.number += 1;
        self.due.insert((at, self.number), w);
    }

    /// Steps until nothing is left to do at this time, with at most [`BATCH`] events in one; prints the longest.
    fn settle(&mut self, what: &str, mut events: Vec<Event>) {
        (self.longest, self.total) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
        let mut steps = 0;
        let at_once = |w: &Self| w.queueing.next_wake().is_some_and(|t| t <= w.now);
        while !events.is_empty() || at_once(self) {
            let rest = events.split_off(events.len().min(BATCH));
            self.step(events);
            steps += 1;
            events = rest;
            while events.len() < BATCH
                && let Some(u) = self.decisions.pop_front()
            {
                self.write(&u, &mut events);
            }
            self.explanations.clear();
        }
        println!(
            "{what}: longest step {:?}, {steps} steps, {:?}, {} admitted",
            self.longest, self.total, self.admitted
        );
    }

    /// What concerns everything at once.
    fn changes(&mut self) {
        let due = std::mem::take(&mut self.due);
        self.settle("create", due.into_values().map(|w| Event::WorkloadUpsert(Box::new(w))).collect());
        let range = LimitRange {
            namespace: "ns".into(),
            name: "limits".into(),
            pod: None,
            container: Some(LimitRangeItem {
                default_request: [("memory".to_owned(), 1)].into(),
                ..LimitRangeItem::default()
            }),
        };
        let flavor = |label: &str| ResourceFlavor {
            name: "default".into(),
            node_labels: [(label.to_owned(), "x".to_owned())].into(),
            ..ResourceFlavor::default()
        };
        let resized = |i: usize| {
            let [Event::ClusterQueueUpsert(mut q), _] = queue(i, self.per_cohort) else { unreachable!() };
            q.resource_groups[0].flavors[0].resources[0].nominal += 1000;
            Event::ClusterQueueUpsert(q)
        };
        let closed = RunWindow {
            name: "night".into(),
            invalid: "never open".into(),
            finish: true,
            local_queues: Chosen { selector: Some(LabelSelector::default()), ..Chosen::default() },
            ..RunWindow::default()
        };
        let all = (0..self.queues).map(resized).collect();
        let list = [
            ("LimitRange", vec![Event::LimitRangeUpsert(Box::new(range))]),
            ("ResourceFlavor", vec![Event::ResourceFlavorUpsert(Box::new(flavor("a")))]),
            ("one ClusterQueue", vec![resized(0)]),
            ("all ClusterQueues", all),
            (
                "Namespace",
                vec![Event::NamespaceUpsert("ns".into(), [("a".to_owned(), "b".to_owned())].into())],
            ),
            ("RunWindow closes", vec![Event::RunWindowUpsert(Box::new(closed))]),
            ("RunWindow goes", vec![Event::RunWindowDelete("night".into())]),
        ];
        for (what, events) in list {
            self.settle(what, events);
        }
    }

    fn step(&mut self, events: Vec<Event>) {
        let began = std::time::Instant::now();
        for e in events {
            self.queueing.handle(self.now, e);
        }
        let (decisions, explanations) = (&mut self.decisions, &mut self.explanations);
        self.queueing.decide(self.now, &mut |a| {
            if let Action::UpdateWorkload(u) = a {
                if u.explains() { explanations.push_back(u) } else { decisions.push_back(u) }
            }
        });
        let took = began.elapsed();
        (self.longest, self.total) = (self.longest.max(took), self.total + took);
    }

    /// What the API server and the jobs answer to a write.
    fn write(&mut self, update: &WorkloadUpdate, events: &mut Vec<Event>) {
        self.version += 1;
        let Some((w, run)) = self.workloads.get_mut(&update.key) else { return };
        let before = w.status.is_true(cond::ADMITTED) && !w.status.is_true(cond::EVICTED);
        update.apply(&mut w.status);
        w.version = self.version;
        let (key, id, version) = (update.key.clone(), update.id, self.version);
        events.push(Event::Written { key: key.clone(), id, version });
        events.push(Event::WorkloadUpsert(Box::new(w.clone())));
        let after = w.status.is_true(cond::ADMITTED) && !w.status.is_true(cond::EVICTED);
        if before && !after {
            events.push(Event::WorkloadStopped(key));
        } else if after && !before {
            let (end, mut w) = (self.now.plus(*run), w.clone());
            w.status.conditions.push(Condition {
                kind: cond::FINISHED.into(),
                status: true,
                ..Condition::default()
            });
            self.admitted += 1;
            self.at(end, w);
        }
    }

    fn run(&mut self, paced: bool) {
        let mut free_at = self.now;
        while self.left > 0 {
            let mut events = Vec::new();
            let waits = !self.decisions.is_empty() || !self.explanations.is_empty();
            let write_at = waits.then(|| free_at.max(self.now));
            let next = [write_at, self.due.keys().next().map(|k| k.0), self.queueing.next_wake()];
            self.now = self.now.max(next.into_iter().flatten().min().expect("workloads wait for ever"));
            while let Some(entry) = self.due.first_entry().filter(|e| e.key().0 <= self.now) {
                let mut w = entry.remove();
                if w.status.is_true(cond::FINISHED) {
                    let now = &self.workloads[&w.key].0;
                    if now.status.is_true(cond::EVICTED) || now.status.is_true(cond::FINISHED) {
                        continue;
                    }
                    self.version += 1;
                    self.left -= 1;
                    w.version = self.version;
                    self.workloads.get_mut(&w.key).unwrap().0 = w.clone();
                }
                events.push(Event::WorkloadUpsert(Box::new(w)));
            }
            while free_at <= self.now {
                let Some(u) = self.decisions.pop_front().or_else(|| self.explanations.pop_front()) else {
                    break;
                };
                self.write(&u, &mut events);
                if paced {
                    free_at = self.now.plus(PACE);
                }
            }
            self.step(events);
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args[i].parse::<usize>().unwrap();
    let mut harness = Harness::new(number(2), number(3), number(4));
    if args[1] == "steps" {
        return harness.changes();
    }
    let began = std::time::Instant::now();
    harness.run(args[1] == "paced");
    println!("{} admitted", harness.admitted);
    if args.iter().any(|a| a == "--time") {
        let took = began.elapsed();
        println!(
            "{took:?}, {:?} per admission, longest step {:?}",
            took / u32::try_from(harness.admitted).unwrap(),
            harness.longest
        );
    }
}
