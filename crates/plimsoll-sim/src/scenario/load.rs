//! A mixed load for comparisons: gangs of 1 to 64 pods, two flavors, priorities, fragmentation by single pods, nodes that
//! fail. As much work as the nodes can do in the time in which it comes.

use plimsoll_state::rng::Rng;

use super::{
    Form, JobSpec, NodeSpec, Operation, Plan, QueueSpec, Quota, QuotaSpec, Scenario, Settings, Timed,
};
use crate::dice::{Dice, Draw};

/// Milliseconds of a minute.
const MINUTE: i64 = 60_000;
/// Nodes, half of them of each flavor.
pub const NODES: usize = 32;
/// CPUs of a node; each stands for a GPU.
pub const CPUS: i64 = 8;
/// Time between two jobs on average.
const PAUSE: i64 = 18_000;
/// Time between two failures of nodes, and how long a node is gone.
const FAILURES: (i64, i64) = (15 * MINUTE, 10 * MINUTE);

/// The load of a seed with so many jobs, with or without joint admission. `overtaking`: how many pods are placed past a workload
/// before it claims nodes, as a multiple of its own.
pub fn mixed(seed: u64, jobs: usize, joint: bool, overtaking: usize) -> Scenario {
    let mut rng = Dice::new(seed).about("load").rng();
    let nominal = NODES as i64 * CPUS / 4;
    let quota = Quota { nominal, ..Quota::default() };
    let shared = QuotaSpec { parent: Some(0), quotas: [quota; 2], weight: 1 };
    let queue =
        QueueSpec { quota: shared, preemption: (2, 1), next_flavor: (true, true), ..QueueSpec::default() };
    let nodes: Vec<NodeSpec> = (0..NODES).map(|rack| NodeSpec { rack, cpus: CPUS, ready: true }).collect();
    let (mut operations, mut at) = (Vec::new(), 0);
    for job in 0..jobs {
        at += rng.range(0, 2 * PAUSE);
        operations.push(Timed { at, operation: Operation::Submit { job, spec: spec(&mut rng) } });
    }
    let mut fails = FAILURES.0;
    while fails < at {
        let node = rng.below(NODES as u32) as usize;
        operations.push(Timed { at: fails, operation: Operation::Node { node, spec: None } });
        let spec = nodes.get(node).copied();
        operations.push(Timed { at: fails + FAILURES.1, operation: Operation::Node { node, spec } });
        fails += FAILURES.0;
    }
    operations.sort_by_key(|o| o.at);
    Scenario {
        seed,
        settings: Settings {
            placement: true,
            joint,
            overtaking,
            explain_every: 1_000,
            pods_ready: 5 * MINUTE,
            flavored: true,
            gangs: true,
            ..Settings::default()
        },
        plan: Plan {
            cohorts: vec![QuotaSpec::default()],
            queues: vec![queue.clone(), queue],
            nodes,
            ..Plan::default()
        },
        calm: at + FAILURES.1,
        operations,
        ..Scenario::default()
    }
}

fn spec(rng: &mut Rng) -> JobSpec {
    let (pods, cpus, minutes) = match rng.below(100) {
        0..60 => (1, rng.range(1, 3), rng.range(2, 10)),
        60..85 => (rng.range(2, 8), rng.range(1, 2), rng.range(4, 15)),
        85..97 => (rng.range(9, 32), rng.range(1, 2), rng.range(4, 15)),
        _ => (rng.range(33, 64), 1, rng.range(5, 15)),
    };
    let priority = match rng.below(10) {
        0..7 => 0,
        7..9 => 1,
        _ => 2,
    };
    JobSpec {
        form: Form::Job,
        queue: rng.below(2) as usize,
        priority,
        pods: i32::try_from(pods).unwrap_or(1),
        cpus,
        runs: minutes * MINUTE,
        ..JobSpec::default()
    }
}
