//! Properties of queueing on random trees of cohorts, larger than those of the simulator (`plimsoll-sim`): limits hold by plain
//! recursion over the objects, cycles that leave out what can't change a verdict decide as plain ones do, and fair sharing comes
//! to what is fair.

mod bounded;
mod forecast;
mod reevaluate;

use proptest::prelude::*;

use super::*;
use crate::testing::outside::{Outside, cluster_queue, workload};
use crate::testing::{self as engine, Engine};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::Node;
use plimsoll_state::time::{Duration, Time};

/// `withinClusterQueue` by number.
const WITHIN: [PreemptionPolicy; 3] =
    [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::LowerOrNewerEqualPriority];
/// `reclaimWithinCohort` by number.
const RECLAIM: [PreemptionPolicy; 3] =
    [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any];

/// A cohort or a ClusterQueue: parent (an earlier cohort), nominal quota, limits.
#[derive(Clone, Debug)]
struct Spec {
    parent: usize,
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
    /// reclaimWithinCohort, withinClusterQueue, borrowWithinCohort.
    rules: (u8, u8, bool),
    strict: bool,
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let limits = (proptest::option::of(0..6i64), proptest::option::of(0..6i64));
    (any::<usize>(), 0..8i64, limits, (0..3u8, 0..3u8, any::<bool>()), any::<bool>()).prop_map(
        |(parent, nominal, (borrowing, lending), rules, strict)| Spec {
            parent,
            nominal: nominal * 1000,
            borrowing: borrowing.map(|b| b * 1000),
            lending: lending.map(|l| l * 1000),
            rules,
            strict,
        },
    )
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Op {
    Create(usize, i32, i64),
    Finish(usize),
    Delete(usize),
    /// A node with other capacity; without a topology nobody looks at it.
    Node(usize, i64),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<usize>(), -2..3i32, 1..7i64).prop_map(|(q, p, a)| Op::Create(q, p, a * 1000)),
        1 => any::<usize>().prop_map(Op::Finish),
        1 => any::<usize>().prop_map(Op::Delete),
        1 => (0..6usize, 0..5i64).prop_map(|(i, cpus)| Op::Node(i, cpus * 1000)),
    ]
}

/// Trees of cohorts, and how soon what queueing asks for is answered.
struct Trees {
    engine: Engine,
    outside: Outside,
    now: Time,
    cohorts: Vec<Spec>,
    queues: Vec<Spec>,
    made: usize,
    preemptions: usize,
    /// Whether every cohort is a tree of its own.
    apart: bool,
    /// Whether the flavor has a topology, from which workloads of several pods want places.
    places: bool,
    /// Whether the outside answers only when the engine has nothing left to do.
    patient: bool,
    /// Writes that the outside answers in one step; explanations are answered at once.
    at_once: usize,
    /// Admissions and evictions in the order of their writes.
    decisions: Vec<String>,
}

impl Trees {
    fn new(cohorts: &[Spec], queues: &[Spec], fair: bool) -> Self {
        let mut trees = Self {
            engine: Self::engine(fair),
            outside: Outside::new(Vec::new()),
            now: Time::from_seconds(1_000),
            cohorts: cohorts.to_vec(),
            queues: queues.to_vec(),
            made: 0,
            preemptions: 0,
            apart: false,
            places: false,
            patient: false,
            at_once: usize::MAX,
            decisions: Vec::new(),
        };
        let events = trees.setup();
        trees.step(events);
        trees
    }

    fn engine(fair: bool) -> Engine {
        let (fair_sharing, wait_for_pods_ready) = (fair.then(FairSharing::default), Some(Default::default()));
        Engine::new(Config { fair_sharing, wait_for_pods_ready, ..Config::default() })
    }

    fn parent_of_cohort(&self, i: usize) -> Option<usize> {
        (i > 0 && !self.apart).then(|| self.cohorts[i].parent % i)
    }

    fn parent_of_queue(&self, i: usize) -> usize {
        self.queues[i].parent % self.cohorts.len()
    }

    fn setup(&self) -> Vec<Event> {
        let topology = if self.places { "t".into() } else { String::new() };
        let flavor = ResourceFlavor { name: "f".into(), topology, ..Default::default() };
        let mut events = vec![
            Event::NamespaceUpsert("n".into(), StringMap::new()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
        ];
        let levels = vec!["rack".into(), "kubernetes.io/hostname".into()];
        let topology = Topology { name: "t".into(), levels };
        events.extend(self.places.then(|| Event::TopologyUpsert(Box::new(topology))));
        let groups = |s: &Spec, limits: bool| {
            let mut q = cluster_queue("x", "", s.nominal, s.borrowing.filter(|_| limits), false);
            q.resource_groups[0].flavors[0].resources[0].lending_limit = s.lending.filter(|_| limits);
            q.resource_groups
        };
        for (i, s) in self.cohorts.iter().enumerate() {
            let parent = self.parent_of_cohort(i);
            events.push(Event::CohortUpsert(Box::new(Cohort {
                name: format!("k{i}"),
                parent: parent.map_or(String::new(), |p| format!("k{p}")),
                resource_groups: groups(s, parent.is_some()),
                fair_weight_nano: 1_000_000_000,
                ..Cohort::default()
            })));
        }
        for (i, s) in self.queues.iter().enumerate() {
            let mut q = cluster_queue(
                &format!("c{i}"),
                &format!("k{}", self.parent_of_queue(i)),
                s.nominal,
                s.borrowing,
                s.strict,
            );
            q.resource_groups = groups(s, true);
            q.preemption = PreemptionRules {
                reclaim_within_cohort: RECLAIM[usize::from(s.rules.0)],
                within_cluster_queue: WITHIN[usize::from(s.rules.1)],
                borrow_within_cohort: BorrowWithinCohort {
                    lower_priority: s.rules.2 && s.rules.0 != 0,
                    max_priority_threshold: None,
                },
            };
            events.push(Event::ClusterQueueUpsert(Box::new(q)));
            events.push(Event::LocalQueueUpsert(Box::new(LocalQueue {
                namespace: "n".into(),
                name: format!("l{i}"),
                cluster_queue: format!("c{i}"),
                fair_weight_nano: 1_000_000_000,
                ..LocalQueue::default()
            })));
        }
        events
    }

    /// Steps until everything asked for is done and answered. Whether anything was admitted or evicted.
    fn step(&mut self, events: Vec<Event>) -> bool {
        let (mut moved, mut events) = (false, events);
        let (mut late, mut explained) = (std::collections::VecDeque::new(), Vec::new());
        for _ in 0..100 + 100 * self.outside.workloads.len() {
            let (answers, now_moved) = self.step_once(events);
            moved |= now_moved;
            let (at_once, later): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(explains, _)| *explains);
            late.extend(later);
            explained.extend(at_once);
            if self.patient && self.engine.next_wake().is_some_and(|t| t <= self.now) {
                events = Vec::new();
                continue;
            }
            let at_once = std::mem::take(&mut explained);
            if at_once.is_empty() && late.is_empty() {
                return moved;
            }
            self.now = self.now.plus(Duration::from_millis(10));
            let next = late.drain(..self.at_once.min(late.len()));
            events = at_once.into_iter().chain(next).flat_map(|(_, events)| events).collect();
        }
        panic!("goes on for ever: {} preemptions", self.preemptions);
    }

    /// One step: the answers to each write, with whether that only explains, and whether one admits or evicts.
    fn step_once(&mut self, events: Vec<Event>) -> (Vec<(bool, Vec<Event>)>, bool) {
        let mut batch: Vec<engine::Event> = events.into_iter().map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        self.engine.step(self.now, &mut batch, &mut actions);
        self.engine.check();
        let mut moved = false;
        let mut answers = Vec::new();
        for action in actions {
            let engine::Action::Queueing(Action::UpdateWorkload(u)) = action else { continue };
            let preempted =
                |o: &mut Outside| o.find(&u.key).is_some_and(|w| w.status.is_true(cond::PREEMPTED));
            let before = preempted(&mut self.outside);
            let Some(events) = self.outside.write(&u) else { continue };
            let mut events = events.to_vec();
            moved |= matches!(u.admission, Some(Some(_)));
            if !before && preempted(&mut self.outside) {
                self.preemptions += 1;
                moved = true;
            }
            let Some(w) = self.outside.find(&u.key) else { continue };
            if !u.explains() {
                let s = &w.status;
                let (admitted, evicted) = (s.admission.is_some(), s.is_true(cond::EVICTED));
                self.decisions.push(format!("{} {admitted} {evicted}", u.key.name));
            }
            if w.status.is_true(cond::EVICTED) && w.status.is_true(cond::QUOTA_RESERVED) {
                events.push(Event::WorkloadStopped(u.key.clone()));
            }
            answers.push((u.explains(), events));
        }
        if let Some(q) = self.engine.queueing() {
            assert_eq!(q.cluster_queues.ids().count(), self.queues.len());
        }
        (answers, moved)
    }

    /// Steps until nothing moves; how many steps that took, `None` if it doesn't end.
    fn settle(&mut self) -> Option<usize> {
        let (mut quiet, limit) = (0, 40 + 20 * self.outside.workloads.len());
        for n in 0..limit {
            let moved = self.step(Vec::new());
            let idle = self.engine.next_wake().is_none_or(|t| t > self.now);
            quiet = if moved || !idle { 0 } else { quiet + 1 };
            if quiet > 1 {
                return Some(n);
            }
        }
        None
    }

    fn apply(&mut self, op: Op) {
        let event = match op {
            Op::Create(q, priority, amount) => {
                self.made += 1;
                let creation = self.now.truncate_to_second();
                self.now = self.now.plus(Duration::from_seconds(1));
                self.create(q % self.queues.len(), priority, amount, creation)
            }
            Op::Finish(i) => {
                let runs =
                    |w: &&Workload| w.status.is_true(cond::ADMITTED) && !w.status.is_true(cond::FINISHED);
                let running: Vec<WorkloadKey> =
                    self.all().into_iter().filter(runs).map(|w| w.key.clone()).collect();
                let Some(key) = running.get(i % running.len().max(1)) else { return };
                let done = Condition { kind: cond::FINISHED.into(), status: true, ..Condition::default() };
                let Some(event) = self.outside.change(key, |w| w.status.conditions.push(done)) else {
                    return;
                };
                event
            }
            Op::Delete(i) => {
                let all = self.all();
                let Some(key) = all.get(i % all.len().max(1)).map(|w| w.key.clone()) else { return };
                self.outside.workloads.retain(|w| w.key != key);
                Event::WorkloadDelete(key)
            }
            Op::Node(i, cpus) => return self.change_node(i, cpus),
        };
        self.step(vec![event]);
    }

    /// A node of the topology, three in a rack, with so many thousandths of CPUs; 0: it goes.
    fn change_node(&mut self, i: usize, cpus: i64) {
        let name = format!("node-{i}");
        let event = if cpus == 0 {
            ObjectEvent::NodeDelete(name)
        } else {
            let labels = [("rack", format!("rack-{}", i / 3)), ("kubernetes.io/hostname", name.clone())];
            let mut node = Node { uid: name.clone(), name, ready: true, ..Node::default() };
            node.labels.extend(labels.map(|(key, value)| (key.to_owned(), value)));
            node.allocatable.extend([("cpu".to_owned(), cpus), ("pods".to_owned(), 10)]);
            ObjectEvent::NodeUpsert(Box::new(node))
        };
        if let Some(queueing) = self.engine.queueing_mut().filter(|_| self.places) {
            queueing.handle_object(self.now, &event);
            self.step(Vec::new());
        }
    }

    /// What a ClusterQueue's workloads hold, by the objects.
    fn held(&self, queue: usize) -> i64 {
        self.outside.reserved(Some(&format!("c{queue}")))
    }

    /// Quota and usage of a cohort with everything below, by recursion (Kueue KEP-79).
    fn cohort(&self, k: usize) -> (i64, i64) {
        let (mut quota, mut used) = (self.cohorts[k].nominal, 0);
        let mut add = |(q, u): (i64, i64), lending: Option<i64>| {
            let local = lending.map_or(0, |l| (q - l).max(0));
            quota += q - local;
            used += (u - local).max(0);
        };
        for (i, s) in self.queues.iter().enumerate().filter(|(i, _)| self.parent_of_queue(*i) == k) {
            add((s.nominal, self.held(i)), s.lending);
        }
        for (i, s) in self.cohorts.iter().enumerate().filter(|(i, _)| self.parent_of_cohort(*i) == Some(k)) {
            add(self.cohort(i), s.lending);
        }
        (quota, used)
    }

    /// Nobody uses more than the limits allow, and the engine's tree and statuses say what recursion says.
    fn audit(&self) {
        let Some(q) = self.engine.queueing() else { return };
        let tree = q.quota_tree();
        let cell = |name: &str| {
            tree.iter().find(|n| n.name == name).and_then(|n| n.cells.first()).cloned().unwrap_or_default()
        };
        for (i, s) in self.queues.iter().enumerate() {
            let (used, name) = (self.held(i), format!("c{i}"));
            let borrowed = (used - s.nominal).max(0);
            assert!(s.borrowing.is_none_or(|b| borrowed <= b), "{name} borrows {borrowed}: {s:?}");
            assert_eq!((cell(&name).usage, cell(&name).borrowed), (used, borrowed), "{name}");
            let status = q.status_of_cluster_queue(&name).unwrap_or_default();
            let (flavor, resource) = ("f".into(), "cpu".into());
            let row = ResourceUsage { flavor, resource, total: used, borrowed, bytes: false };
            assert_eq!(status.reservation, [row], "{name}");
        }
        for (i, s) in self.cohorts.iter().enumerate() {
            let ((quota, used), name) = (self.cohort(i), format!("k{i}"));
            let over = (used - quota).max(0);
            let most = if i == 0 { Some(0) } else { s.borrowing };
            assert!(most.is_none_or(|b| over <= b), "{name} uses {used} of {quota}: {s:?}");
            assert_eq!((cell(&name).subtree, cell(&name).usage), (quota, used), "{name}");
        }
    }

    fn create(&mut self, queue: usize, priority: i32, amount: i64, creation: Time) -> Event {
        let mut w = workload(self.made, queue, priority, if self.places { 1000 } else { amount });
        w.creation = creation;
        if self.places {
            let rack = |wanted: bool| wanted.then(|| "rack".to_owned());
            let topology = TopologyRequest {
                required: rack(self.made.is_multiple_of(3)),
                preferred: rack(self.made % 3 == 1),
                unconstrained: self.made % 3 == 2,
                ..TopologyRequest::default()
            };
            let mut pod_sets = w.pod_sets.to_vec();
            pod_sets[0].count = i32::try_from(amount / 1000).expect("a few");
            pod_sets[0].topology = Some(topology);
            w.pod_sets = pod_sets.into();
        }
        self.outside.workloads.push(w.clone());
        Event::WorkloadUpsert(Box::new(w))
    }

    /// All workloads, by name.
    fn all(&self) -> Vec<&Workload> {
        let mut all: Vec<&Workload> = self.outside.workloads.iter().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    fn admitted(&self) -> Vec<WorkloadKey> {
        let runs = |w: &&Workload| w.status.admission.is_some() && !w.status.is_true(cond::FINISHED);
        self.all().into_iter().filter(runs).map(|w| w.key.clone()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// After any sequence: usage keeps to the limits, borrowed is what the arithmetic says, preemption comes to
    /// an end, and an engine that starts anew from the objects finds nothing to change. Except that it may preempt:
    /// a workload that found no victim is not tried again when another queue begins to borrow (as in Kueue), but
    /// after a start all are.
    #[test]
    fn trees_keep_their_limits(
        cohorts in proptest::collection::vec(any_spec(), 1..5),
        queues in proptest::collection::vec(any_spec(), 1..6),
        ops in proptest::collection::vec(any_op(), 1..24),
    ) {
        let mut trees = Trees::new(&cohorts, &queues, false);
        for op in ops {
            trees.apply(op);
            trees.audit();
        }
        let steps = trees.settle();
        prop_assert!(steps.is_some(), "goes on for ever: {} preemptions", trees.preemptions);
        trees.audit();
        let (before, preemptions) = (trees.admitted(), trees.preemptions);
        trees.engine = Trees::engine(false);
        let mut events = trees.setup();
        events.extend(trees.all().into_iter().map(|w| Event::WorkloadUpsert(Box::new(w.clone()))));
        trees.step(events);
        trees.settle();
        trees.audit();
        if trees.preemptions == preemptions {
            prop_assert_eq!(before, trees.admitted());
        }
    }

    /// Cycles that leave out trees in which nothing changed, and heads on which the quota tree alone gives the verdict,
    /// decide the same in the same order as cycles that nominate the heads of all ClusterQueues.
    #[test]
    fn leaving_out_heads_changes_no_decision(
        cohorts in proptest::collection::vec(any_spec(), 1..4),
        queues in proptest::collection::vec(any_spec(), 1..8),
        (simple, apart, fair) in (0..4u8, any::<bool>(), 0..5u8),
        (places, at_once) in (any::<bool>(), 1..4usize),
        ops in proptest::collection::vec(any_op(), 1..40),
    ) {
        let mut queues = queues;
        if simple > 0 {
            // Those that need no nomination.
            queues.iter_mut().for_each(|q| (q.rules, q.strict) = ((2, q.rules.1, false), false));
        }
        let run = |all: bool| {
            let mut trees = Trees::new(&cohorts, &queues, fair == 0);
            (trees.apart, trees.at_once, trees.places) = (apart, at_once, places);
            let events = trees.setup();
            trees.step(events);
            (0..6).for_each(|i| trees.change_node(i, 3000));
            if let Some(q) = trees.engine.queueing_mut() {
                (q.looks_everywhere, q.nominates_all) = (all, all);
            }
            ops.iter().for_each(|op| trees.apply(*op));
            trees.settle();
            trees.decisions
        };
        prop_assert_eq!(run(false), run(true));
    }

    /// With fair sharing limits hold as well, and preemption comes to an end.
    #[test]
    fn fair_trees_keep_their_limits(
        cohorts in proptest::collection::vec(any_spec(), 1..5),
        queues in proptest::collection::vec(any_spec(), 1..6),
        ops in proptest::collection::vec(any_op(), 1..24),
    ) {
        let mut trees = Trees::new(&cohorts, &queues, true);
        for op in ops {
            trees.apply(op);
            trees.audit();
        }
        let steps = trees.settle();
        prop_assert!(steps.is_some(), "goes on for ever: {} preemptions", trees.preemptions);
    }

    /// Equal ClusterQueues that all want more than there is end up with equal parts, whoever came first.
    #[test]
    fn fair_sharing_converges(queues in 2..5usize, each in 2..5i64, order in any::<u64>()) {
        let free = Spec {
            parent: 0, nominal: 0, borrowing: None, lending: None, rules: (2, 1, false), strict: false,
        };
        let root = Spec { nominal: each * queues as i64 * 1000, ..free.clone() };
        let mut trees = Trees::new(&[root], &vec![free; queues], true);
        for i in 0..queues {
            let q = (i + order as usize % queues) % queues;
            for _ in 0..each * queues as i64 {
                trees.apply(Op::Create(q, 0, 1000));
            }
            prop_assert!(trees.settle().is_some());
        }
        let parts: Vec<i64> = (0..queues).map(|q| trees.held(q) / 1000).collect();
        prop_assert_eq!(parts, vec![each; queues]);
    }
}

/// A target of the preemptor's own ClusterQueue that may stay after all can make another one unfair to take:
/// then those two would preempt each other for ever (kubernetes-sigs/kueue issue 14543).
#[test]
fn fair_preemption_with_an_own_target_that_stays_ends() {
    let spec =
        |nominal, rules| Spec { parent: 0, nominal, borrowing: None, lending: None, rules, strict: true };
    let cohorts = [spec(6000, (0, 0, false))];
    let queues = [spec(3000, (2, 2, false)), spec(7000, (1, 2, false))];
    let mut trees = Trees::new(&cohorts, &queues, true);
    for (queue, priority, cpus) in [(0, -2, 3), (0, 0, 4), (1, -1, 2), (1, 2, 3), (1, 1, 1), (1, 1, 6)] {
        trees.apply(Op::Create(queue, priority, cpus * 1000));
        trees.audit();
    }
    assert!(trees.settle().is_some(), "goes on for ever: {} preemptions", trees.preemptions);
}
