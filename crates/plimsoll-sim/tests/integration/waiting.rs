//! Waiting for nodes is bounded (joint admission): gangs among single jobs that keep coming, faster than nodes can run them.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::dice::Draw;
use plimsoll_sim::run::run;
use plimsoll_sim::scenario::{
    Form, JobSpec, NodeSpec, Operation, Plan, QueueSpec, Quota, QuotaSpec, Scenario, Settings, Timed,
};
use plimsoll_state::Duration;
use plimsoll_state::rng::Rng;

/// How long a job runs, in milliseconds.
const RUNS: i64 = 8_000;
/// What a job takes beside that: its pods are created, bound, end, and are seen to.
const SLACK: i64 = 4_000;

/// Quota for everything, and twice as many single jobs as fit; a gang that needs half of the nodes or more comes early.
fn scenario(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let quota = Quota { nominal: 1_000, ..Quota::default() };
    let shared = QuotaSpec { quotas: [quota, quota], weight: 1, ..QuotaSpec::default() };
    let queue = || QueueSpec { quota: shared.clone(), ..QueueSpec::default() };
    let nodes: Vec<NodeSpec> =
        (0..rng.range(1, 2)).map(|_| NodeSpec { rack: 0, cpus: 4, ready: true }).collect();
    let all = 4 * i64::try_from(nodes.len()).unwrap();
    let (gang_cpus, least) = [(1, all / 2), (2, all / 4), (4, all / 4)][rng.below(3) as usize];
    let pods = rng.range(least, all / gang_cpus);
    let gang = JobSpec {
        form: Form::Job,
        priority: 2,
        pods: i32::try_from(pods).unwrap(),
        cpus: gang_cpus,
        runs: 1_000,
        ..JobSpec::default()
    };
    let (mut operations, mut at, mut job) = (Vec::new(), 200, 0);
    let mut submit = |at, spec| {
        operations.push(Timed { at, operation: Operation::Submit { job, spec } });
        job += 1;
    };
    let pause = RUNS / all / 2;
    while at < 24_000 {
        let queue = rng.below(2) as usize;
        submit(at, JobSpec { form: Form::Job, queue, pods: 1, cpus: 1, runs: RUNS, ..JobSpec::default() });
        if at < 6_000 && at + pause >= 6_000 {
            submit(at + 1, gang);
        }
        at += pause;
    }
    Scenario {
        seed,
        settings: Settings { placement: true, joint: true, explain_every: 50, ..Settings::default() },
        plan: Plan { queues: vec![queue(), queue()], nodes, ..Plan::default() },
        calm: at + 1_000,
        operations,
        ..Scenario::default()
    }
}

#[test]
fn gangs_wait_no_longer_than_what_runs_when_they_come() {
    for seed in 0..4 {
        let outcome = run(&scenario(seed));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        let waited = |priority| outcome.waited_for_nodes.get(&priority).copied().unwrap_or_default();
        assert!(waited(2) > Duration::ZERO, "seed {seed}: nodes are full");
        assert!(
            waited(2) <= Duration::from_millis(RUNS + SLACK),
            "seed {seed}: the gang waited {:?}",
            waited(2)
        );
        assert!(waited(0) > waited(2), "seed {seed}: single jobs come faster than nodes run them");
    }
}
