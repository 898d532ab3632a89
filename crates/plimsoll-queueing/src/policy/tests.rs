//! Rules about workloads decide with Kueue's.

use crate::testing::outside::{Outside, queue};
use crate::testing::{self as engine, Engine};
use crate::*;
use plimsoll_state::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rules by what a workload requests: none above 5 cpus is admitted, those of 3 go first, and larger ones before smaller ones.
#[derive(Debug)]
struct BySize;

impl WorkloadPolicy for BySize {
    fn rule(&self, _: &Workload, requests: &BTreeMap<&str, i64>) -> Ruling {
        let cpus = requests["cpu"] / 1000;
        Ruling {
            veto: (cpus > 5).then(|| format!("{cpus} cpus are too many")),
            order: i32::from(cpus != 3),
            score: i32::try_from(cpus).expect("small"),
        }
    }
}

/// The order in which workloads are admitted for which there are five cpus, one after the other; `others`: each is in a queue
/// of its own that borrows from its cohort.
fn admitted(config: Config, workloads: &[(i32, i64)], others: bool) -> (Vec<usize>, Outside) {
    let mut engine = Engine::new(config);
    let mut events = vec![
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
    ];
    let queues = if others { workloads.len() } else { 0 };
    events.extend((0..queues).flat_map(|i| queue(i, 0, None, false)));
    events.extend(queue(queues, 5, None, false));
    let mut outside = Outside::new(Vec::new());
    for (i, (priority, cpus)) in workloads.iter().enumerate() {
        events.push(outside.create(if others { i } else { 0 }, *priority, cpus * 1000));
    }
    let mut order = Vec::new();
    for round in 0..3 * workloads.len() {
        let mut batch: Vec<engine::Event> = events.drain(..).map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(
            Time::from_seconds(1_000 + i64::try_from(round).expect("small")),
            &mut batch,
            &mut actions,
        );
        events = outside.carry_out(actions, &mut std::iter::empty());
        let holds = outside.workloads.iter().position(|w| w.status.is_true(cond::QUOTA_RESERVED));
        if let Some(at) = holds.filter(|at| !order.contains(at)) {
            order.push(at);
            events.push(Event::WorkloadDelete(outside.workloads[at].key.clone()));
            outside.workloads[at].status = WorkloadStatus::default();
        }
    }
    (order, outside)
}

fn ruled() -> Config {
    Config { policy: Some(Arc::new(BySize)), ..Config::default() }
}

#[test]
fn rules_order_workloads_before_and_after_their_priority() {
    let workloads = [(0, 4), (0, 5), (9, 4), (0, 3), (0, 5)];
    assert_eq!(admitted(Config::default(), &workloads, false).0, [2, 0, 1, 3, 4]);
    for others in [false, true] {
        assert_eq!(admitted(ruled(), &workloads, others).0, [3, 2, 1, 4, 0], "in several queues: {others}");
    }
}

#[test]
fn a_vetoed_workload_waits_and_says_why() {
    let (order, outside) = admitted(ruled(), &[(9, 6), (0, 4)], false);
    assert_eq!(order, [1]);
    let condition = outside.workloads[0].status.condition(cond::QUOTA_RESERVED).expect("a reason");
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("Vetoed", "6 cpus are too many"));
}

/// Rules by priority: flavors whose label `tier` is that of the workload go first, and victims with more cpus.
#[derive(Debug)]
struct ByTier(&'static str);

impl WorkloadPolicy for ByTier {
    fn rule(&self, _: &Workload, _: &BTreeMap<&str, i64>) -> Ruling {
        Ruling::default()
    }

    fn scores_flavors(&self) -> bool {
        true
    }

    fn score_flavors(&self, _: &Workload, _: &BTreeMap<&str, i64>, flavors: &[&ResourceFlavor]) -> Vec<i32> {
        let fits = |f: &&ResourceFlavor| f.node_labels.get("tier").is_some_and(|tier| tier == self.0);
        flavors.iter().map(|f| i32::from(fits(f))).collect()
    }

    fn orders_victims(&self) -> bool {
        true
    }

    fn victim_order(&self, _: &Workload, requests: &BTreeMap<&str, i64>) -> i32 {
        -i32::try_from(requests["cpu"]).expect("small")
    }
}

/// An engine and an outside with the queue `l0`, which has 4 cpus of each of these flavors: name and label `tier`.
struct Tiers {
    engine: Engine,
    outside: Outside,
    events: Vec<Event>,
    second: i64,
}

impl Tiers {
    fn new(policy: Option<Arc<dyn WorkloadPolicy>>, flavors: &[(&str, &str)]) -> Self {
        let mut events = vec![Event::NamespaceUpsert("n".into(), StringMap::new())];
        events.extend(flavors.iter().map(|(name, tier)| Self::flavor(name, tier)));
        let mut both = queue(0, 4, None, false);
        if let Event::ClusterQueueUpsert(cq) = &mut both[0] {
            let quotas = &mut cq.resource_groups[0].flavors;
            let of = |name: &&str| FlavorQuotas { flavor: (*name).to_owned(), ..quotas[0].clone() };
            *quotas = flavors.iter().map(|(name, _)| of(name)).collect();
        }
        events.extend(both);
        let engine = Engine::new(Config { policy, ..Config::default() });
        Self { engine, outside: Outside::new(Vec::new()), events, second: 1_000 }
    }

    fn flavor(name: &str, tier: &str) -> Event {
        let node_labels = [("tier".into(), tier.into())].into_iter().collect();
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor {
            name: name.into(),
            node_labels,
            ..Default::default()
        }))
    }

    fn create(&mut self, priority: i32, cpus: i64) {
        let event = self.outside.create(0, priority, cpus * 1000);
        self.events.push(event);
    }

    fn settle(&mut self) {
        for _ in 0..4 {
            let mut batch: Vec<engine::Event> = self.events.drain(..).map(engine::Event::Queueing).collect();
            let mut actions = Vec::new();
            self.second += 1;
            self.engine.step(Time::from_seconds(self.second), &mut batch, &mut actions);
            self.events = self.outside.carry_out(actions, &mut std::iter::empty());
        }
    }

    fn hold(&mut self, hold: bool) {
        self.engine.queueing_mut().expect("queueing").hold_admissions(hold);
    }

    /// The flavors of the workloads, empty for those without quota.
    fn flavors(&self) -> Vec<&str> {
        self.outside
            .workloads
            .iter()
            .map(|w| match &w.status.admission {
                Some(admission) => admission.assignments[0].flavors[0].1.as_str(),
                None => "",
            })
            .collect()
    }
}

#[test]
fn rules_choose_among_flavors_that_have_quota() {
    let flavors = [("a", "spot"), ("b", "reserved"), ("c", "spot")];
    let run = |policy: Option<Arc<dyn WorkloadPolicy>>| {
        let mut tiers = Tiers::new(policy, &flavors);
        (0..3).for_each(|_| tiers.create(0, 3));
        tiers.settle();
        tiers.flavors().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(run(None), ["a", "b", "c"]);
    assert_eq!(run(Some(Arc::new(ByTier("reserved")))), ["b", "a", "c"]);
    assert_eq!(run(Some(Arc::new(ByTier("spot")))), ["a", "c", "b"]);
}

#[test]
fn other_labels_and_other_rules_count_for_workloads_that_wait() {
    let mut tiers = Tiers::new(Some(Arc::new(ByTier("reserved"))), &[("a", "spot"), ("b", "spot")]);
    tiers.hold(true);
    tiers.create(0, 3);
    tiers.settle();
    tiers.events.push(Tiers::flavor("b", "reserved"));
    tiers.settle();
    tiers.hold(false);
    tiers.settle();
    assert_eq!(tiers.flavors(), ["b"]);
    tiers.hold(true);
    tiers.create(0, 1);
    tiers.settle();
    tiers.events.push(Event::PolicyReplaced(Some(Arc::new(ByTier("spot")))));
    tiers.hold(false);
    tiers.settle();
    assert_eq!(tiers.flavors(), ["b", "a"]);
    // A flavor that is gone has no score.
    tiers.create(0, 8);
    tiers.settle();
    tiers.events.push(Event::ResourceFlavorDelete("a".into()));
    tiers.settle();
    assert_eq!(tiers.flavors(), ["b", "a", ""]);
}

#[test]
fn rules_choose_among_victims_of_a_lower_priority() {
    let preempted = |policy: Option<Arc<dyn WorkloadPolicy>>, late: Option<Arc<dyn WorkloadPolicy>>| {
        let mut tiers = Tiers::new(policy, &[("a", "spot")]);
        [(1, 1), (2, 2), (0, 1)].into_iter().for_each(|(priority, cpus)| tiers.create(priority, cpus));
        tiers.settle();
        assert_eq!(tiers.flavors(), ["a"; 3]);
        if late.is_some() {
            tiers.events.push(Event::PolicyReplaced(late));
        }
        tiers.create(9, 1);
        tiers.settle();
        let victims = tiers.outside.workloads.iter().map(|w| w.status.is_true(cond::PREEMPTED));
        victims.collect::<Vec<_>>()
    };
    assert_eq!(preempted(None, None), [false, false, true, false]);
    let by_size = [false, true, false, false];
    assert_eq!(preempted(Some(Arc::new(ByTier(""))), None), by_size);
    assert_eq!(preempted(None, Some(Arc::new(ByTier("")))), by_size);
}
