//! Nothing preempts in vain (joint admission): a workload that others are preempted for starts as soon as they have left,
//! although single jobs keep coming that would take each place that becomes free.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::dice::Draw;
use plimsoll_sim::run::run;
use plimsoll_sim::scenario::{
    Form, JobSpec, NodeSpec, Operation, Plan, QueueSpec, Quota, QuotaSpec, Scenario, Settings, Timed,
};
use plimsoll_state::Duration;
use plimsoll_state::rng::Rng;

/// What preempted jobs take to stop, and the preemptor to start, in milliseconds.
const BOUND: i64 = 8_000;
/// How far gangs are apart.
const PAUSE: i64 = 20_000;

/// Nodes full of single jobs, with more waiting, and gangs of higher priority now and then. In one of three scenarios quota
/// is short as well.
fn scenario(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let nodes: Vec<NodeSpec> =
        (0..rng.range(2, 3)).map(|_| NodeSpec { rack: 0, cpus: 4, ready: true }).collect();
    let all = 4 * i64::try_from(nodes.len()).unwrap();
    let nominal = if rng.below(3) == 0 { all / 2 } else { 1_000 };
    let quota = Quota { nominal, ..Quota::default() };
    let shared = QuotaSpec { quotas: [quota, Quota::default()], weight: 1, ..QuotaSpec::default() };
    let queue = QueueSpec { quota: shared, preemption: (0, 1), ..QueueSpec::default() };
    let (mut operations, mut at, mut job) = (Vec::new(), 200, 0);
    let mut submit = |at, spec| {
        operations.push(Timed { at, operation: Operation::Submit { job, spec } });
        job += 1;
    };
    while at < 3 * PAUSE {
        let (cpus, runs) = (rng.range(1, 2), rng.range(10_000, 60_000));
        submit(at, JobSpec { form: Form::Job, pods: 1, cpus, runs, ..JobSpec::default() });
        if at % PAUSE < 800 && at > 800 {
            let (cpus, priority) = (rng.range(1, 4), 1 + i32::try_from(at / PAUSE).unwrap());
            let pods = i32::try_from(rng.range(1, all / cpus)).unwrap();
            submit(
                at + 1,
                JobSpec { form: Form::Job, pods, cpus, priority, runs: 5_000, ..JobSpec::default() },
            );
        }
        at += 800;
    }
    Scenario {
        seed,
        settings: Settings { placement: true, joint: true, explain_every: 50, ..Settings::default() },
        plan: Plan { queues: vec![queue], nodes, ..Plan::default() },
        calm: at + 1_000,
        operations,
        ..Scenario::default()
    }
}

#[test]
fn workloads_that_others_are_preempted_for_start() {
    let mut preempted = 0;
    for seed in 0..4 {
        let outcome = run(&scenario(seed));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        let (count, longest) = outcome.preemptions;
        assert!(longest <= Duration::from_millis(BOUND), "seed {seed}: {count} preempted, {longest:?}");
        assert_eq!(outcome.unschedulable, 0, "seed {seed}");
        preempted += count;
    }
    assert!(preempted > 10, "{preempted}");
}
