//! Single decisions that must not take long whatever the size of the queues.

use std::time::{Duration as Real, Instant};

use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{
    self, Admission, Cohort, Condition, PodSetAssignment, PreemptionPolicy, PreemptionRules, Workload, cond,
};
use plimsoll_state::time::{Duration, Time};

use super::shape::{Shape, cluster_queue, local_queue, workload};
use crate::bench::report::Row;

const NOW: Time = Time::from_seconds(1_700_000_000);
/// How often each is measured; the least counts, as other processes only add.
const ROUNDS: usize = 5;
/// Steps without a result after which a run is given up.
const MAX_STEPS: usize = 10_000;

fn engine() -> Engine {
    Engine::new(EngineConfig {
        scheduler: None,
        queueing: Some(plimsoll_queueing::Config::usual()),
        joint: false,
    })
}

fn handle(engine: &mut Engine, events: Vec<plimsoll_queueing::Event>, now: Time) -> Vec<Action> {
    let mut batch = events.into_iter().map(Event::Queueing).collect();
    let mut actions = Vec::new();
    engine.step(now, &mut batch, &mut actions);
    actions
}

/// A workload that already holds `cpu` millicores in a ClusterQueue.
fn holding(mut w: Workload, queue: usize, cpu: i64, at: Time) -> plimsoll_queueing::Event {
    let given = |kind: &str| Condition {
        kind: kind.into(),
        status: true,
        reason: kind.into(),
        transition: at,
        ..Condition::default()
    };
    w.status.conditions = [cond::QUOTA_RESERVED, cond::ADMITTED].map(given).to_vec();
    w.status.admission = Some(Box::new(Admission {
        cluster_queue: format!("cq-{queue}"),
        assignments: vec![PodSetAssignment {
            name: "main".into(),
            flavors: vec![("cpu".into(), "default".into())],
            resource_usage: [("cpu".to_owned(), cpu)].into(),
            count: 1,
            ..PodSetAssignment::default()
        }],
    }));
    plimsoll_queueing::Event::WorkloadUpsert(Box::new(w))
}

/// What a flavor and a namespace need, without queues.
fn basics() -> anyhow::Result<Vec<plimsoll_queueing::Event>> {
    let mut none = Shape::read(
        "{name: x, cohorts: 1, queuesPerCohort: 1, nominalCpu: 1, borrowingCpu: 0, classes: [\
                            {name: a, perQueue: 1, everyMs: 1, runMs: 1, priority: 0, cpuMilli: 1}]}",
    )?;
    none.cohorts = 0;
    Ok(none.setup().0)
}

/// A queue 10,000 deep with 50 shapes, of which only the last in order fits once something ends: how long from
/// the end to the admission.
fn deep_queue() -> anyhow::Result<(Real, usize)> {
    let (deep, shapes) = (10_000usize, 50usize);
    let mut engine = engine();
    let mut events = basics()?;
    let rules = PreemptionRules::default();
    events.push(plimsoll_queueing::Event::ClusterQueueUpsert(Box::new(cluster_queue(
        0, "", 1_000_000, None, rules,
    ))));
    events.push(plimsoll_queueing::Event::LocalQueueUpsert(Box::new(local_queue(0))));
    events.push(holding(workload("long", 0, 0, 999_000, NOW), 0, 999_000, NOW));
    let short = workload("short", 0, 0, 1000, NOW);
    events.push(holding(short.clone(), 0, 1000, NOW));
    for i in 0..deep {
        // The smallest shape has the lowest priority.
        let shape = i % shapes;
        let cpu = if shape == 0 { 500 } else { 2000 + shape as i64 };
        let at = NOW.plus(Duration::from_seconds(-(i as i64)));
        let w = workload(&format!("w{i}"), 0, shape as i32, cpu, at);
        events.push(plimsoll_queueing::Event::WorkloadUpsert(Box::new(w)));
    }
    handle(&mut engine, events, NOW);
    for _ in 0..MAX_STEPS {
        if engine.next_wake().is_none_or(|t| t > NOW) {
            break;
        }
        handle(&mut engine, Vec::new(), NOW);
    }
    let gone = vec![plimsoll_queueing::Event::WorkloadDelete(short.key)];
    let later = NOW.plus(Duration::from_seconds(1));
    let began = Instant::now();
    let mut actions = handle(&mut engine, gone, later);
    let mut steps = 1;
    while !actions.iter().any(admits) && steps < MAX_STEPS {
        actions = handle(&mut engine, Vec::new(), later);
        steps += 1;
    }
    anyhow::ensure!(steps < MAX_STEPS, "nothing was found in the deep queue");
    Ok((began.elapsed(), steps))
}

fn admits(a: &Action) -> bool {
    matches!(a, Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u)) if matches!(u.admission, Some(Some(_))))
}

/// A preemptor within its quota, 1,000 candidates that borrow in a tree of 100 ClusterQueues: how long one step
/// takes that decides who goes, and how many go.
fn preemption(fair: bool) -> anyhow::Result<(Real, usize)> {
    let config = plimsoll_queueing::Config {
        fair_sharing: fair.then(Default::default),
        ..plimsoll_queueing::Config::usual()
    };
    let mut engine = Engine::new(EngineConfig { scheduler: None, queueing: Some(config), joint: false });
    let mut events = basics()?;
    for c in 0..10 {
        let cohort = Cohort {
            name: format!("co-{c}"),
            parent: "root".into(),
            fair_weight_nano: 1_000_000_000,
            ..Cohort::default()
        };
        events.push(plimsoll_queueing::Event::CohortUpsert(Box::new(cohort)));
    }
    let rules = PreemptionRules {
        reclaim_within_cohort: PreemptionPolicy::Any,
        within_cluster_queue: PreemptionPolicy::LowerPriority,
        ..Default::default()
    };
    for q in 0..100 {
        // The first has all the quota, the others borrow.
        let nominal = if q == 0 { 1_000_000 } else { 0 };
        events.push(plimsoll_queueing::Event::ClusterQueueUpsert(Box::new(cluster_queue(
            q,
            &format!("co-{}", q / 10),
            nominal,
            None,
            rules,
        ))));
        events.push(plimsoll_queueing::Event::LocalQueueUpsert(Box::new(local_queue(q))));
    }
    for i in 0..1000 {
        let at = NOW.plus(Duration::from_seconds(-(i as i64)));
        let queue = 1 + i % 99;
        events.push(holding(workload(&format!("v{i}"), queue, (i % 7) as i32, 1000, at), queue, 1000, at));
    }
    handle(&mut engine, events, NOW);
    let head = workload("head", 0, 100, 500_000, NOW);
    let began = Instant::now();
    let actions = handle(&mut engine, vec![plimsoll_queueing::Event::WorkloadUpsert(Box::new(head))], NOW);
    let took = began.elapsed();
    let evicts = |a: &&Action| {
        matches!(a, Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u))
            if u.conditions.iter().any(|c| c.kind == cond::PREEMPTED && c.status))
    };
    let victims = actions.iter().filter(evicts).count();
    anyhow::ensure!(victims == 500, "{victims} victims instead of 500");
    Ok((took, victims))
}

fn least(mut run: impl FnMut() -> anyhow::Result<(Real, usize)>) -> anyhow::Result<(Real, usize)> {
    let mut best = run()?;
    for _ in 1..ROUNDS {
        best = best.min(run()?);
    }
    Ok(best)
}

/// All of them.
pub fn rows() -> anyhow::Result<Vec<Row>> {
    let millis = |d: Real| d.as_secs_f64() * 1e3;
    let (deep, steps) = least(deep_queue)?;
    let (classic, victims) = least(|| preemption(false))?;
    let (fair, _) = least(|| preemption(true))?;
    Ok(vec![
        Row::less("10,000 waiting in 50 shapes: the one that fits is found", millis(deep), "ms", Some(1.0))
            .with("steps", steps as f64),
        Row::less("1,000 candidates in 100 queues: victims are chosen", millis(classic), "ms", Some(5.0))
            .with("victims", victims as f64),
        Row::less("the same with fair sharing", millis(fair), "ms", Some(5.0))
            .with("victims", victims as f64),
    ])
}
