//! Rules about workloads decide with Kueue's.

use super::*;
use crate::testing::outside::{Outside, queue};
use crate::testing::{self as engine, Engine};
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
