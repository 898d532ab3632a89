//! Reservations of nodes outlive the process that made them (joint admission): whenever it ends, no other workload is given
//! the nodes of pods that are still to come.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::{
    Ending, Form, JobSpec, NodeSpec, Operation, Plan, QueueSpec, Quota, QuotaSpec, Scenario, Settings, Timed,
};

/// Of the steps, how far those after which the process ends are apart.
const STRIDE: usize = 19;

/// Two gangs that each need more than half of the nodes, with quota for both.
fn scenario(standby: bool) -> Scenario {
    let quota = Quota { nominal: 1_000, ..Quota::default() };
    let shared = QuotaSpec { quotas: [quota, quota], weight: 1, ..QuotaSpec::default() };
    let queue = QueueSpec { quota: shared, ..QueueSpec::default() };
    let gang = JobSpec { form: Form::Job, pods: 3, cpus: 2, runs: 20_000, ..JobSpec::default() };
    let submit = |job| Timed { at: 200 + 10 * job as i64, operation: Operation::Submit { job, spec: gang } };
    Scenario {
        seed: 7,
        settings: Settings {
            placement: true,
            joint: true,
            explain_every: 50,
            standby,
            ..Settings::default()
        },
        plan: Plan {
            queues: vec![queue],
            nodes: vec![NodeSpec { rack: 0, cpus: 4, ready: true }; 2],
            ..Plan::default()
        },
        calm: 1_000,
        operations: vec![submit(0), submit(1)],
        ..Scenario::default()
    }
}

#[test]
fn no_gang_is_placed_in_half_whenever_the_process_ends() {
    let ways =
        [(false, Ending::Crash), (true, Ending::Crash), (true, Ending::HandOver), (true, Ending::LoseLease)];
    for (first, (standby, ending)) in (1..).step_by(5).zip(ways) {
        let whole = run(&scenario(standby));
        assert_eq!((whole.violation, whole.unschedulable), (None, 0));
        for last in (first..=whole.steps).step_by(STRIDE) {
            let outcome = run(&Scenario { crash_after: Some(last), ending, ..scenario(standby) });
            assert!(outcome.violation.is_none(), "{ending:?} after {last}: {}", outcome.violation.unwrap());
            assert_eq!(outcome.unschedulable, 0, "{ending:?} after step {last}: pods without a node");
        }
    }
}
