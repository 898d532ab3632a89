//! Scenarios from seeds. In every scenario each job fits into its queue as planned, so that all that is left at the end
//! has to run once the faults have ended.

use plimsoll_queueing::OVERTAKING;
use plimsoll_state::rng::Rng;

use super::quotas::{queue, shared};
use super::{
    Bounds, Ending, Faults, Form, GENERAL_FAULTS, JobSpec, NodeSpec, Operation, Plan, Scenario, Settings,
    Stop, Timed, features,
};
use crate::dice::{Dice, Draw};

/// CPUs of a node.
const NODE: i64 = 4;

/// What scenarios are like.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Most operations.
    pub operations: i64,
    /// Most queues.
    pub queues: i64,
}

impl Default for Profile {
    fn default() -> Self {
        Self { operations: 60, queues: 3 }
    }
}

/// How users, administrators and machines behave in a scenario.
struct Temper {
    /// Milliseconds between two operations, on average.
    pause: i64,
    /// Weights of: jobs, changes of jobs, changes of queues, changes of nodes, ends of the process.
    weights: [u32; 5],
}

/// The scenario of a seed.
pub fn generate(seed: u64, profile: Profile) -> Scenario {
    let mut rng = Dice::new(seed).about("scenario").rng();
    let settings = settings(&mut rng);
    let plan = plan(&mut rng, &settings, &profile);
    let faults = faults(&mut rng);
    let temper = Temper {
        pause: [20, 200, 1_000][rng.below(3) as usize],
        weights: [
            600,
            200 * rng.below(2),
            100 * rng.below(3),
            if settings.topology || settings.placement { 100 * rng.below(3) } else { 0 },
            30 * rng.below(3),
        ],
    };
    let (mut at, mut made) = (0, 0);
    let mut operations = Vec::new();
    for _ in 0..rng.range(4, profile.operations) {
        at += rng.range(0, 2 * temper.pause);
        let operation = operation(&mut rng, &temper, &settings, &plan, &mut made);
        operations.push(Timed { at, operation });
    }
    let calm = at + rng.range(0, 20_000);
    let crash_after = rng.chance(200).then(|| u64::try_from(rng.range(1, 800)).unwrap_or(1));
    let ending = ending(&mut rng);
    // Every second seed, so that other draws stay as they were.
    let overtaking = if seed.is_multiple_of(2) { OVERTAKING } else { 0 };
    let settings = Settings { standby: rng.chance(400), overtaking, ..settings };
    let bounds = Bounds::default();
    let mut scenario =
        Scenario { seed, settings, faults, plan, calm, crash_after, ending, bounds, operations };
    features::add(&mut scenario);
    scenario
}

fn settings(rng: &mut Rng) -> Settings {
    let topology = rng.chance(350);
    let placement = rng.chance(500);
    let pods_ready = if placement && rng.chance(300) { [10_000, 60_000][rng.below(2) as usize] } else { 0 };
    Settings {
        fair_sharing: rng.chance(300),
        topology,
        placement,
        joint: placement && rng.chance(500),
        overtaking: 0,
        // With 0, which the product never sets, a waiting workload may alternate between two explanations for ever.
        explain_every: [50, 1_000][rng.below(2) as usize],
        pods_ready,
        block_admission: pods_ready > 0 && rng.chance(500),
        provisioning: false,
        extender: None,
        standby: false,
        shards: false,
        devices: false,
        flavored: false,
        gangs: false,
        release: None,
    }
}

fn ending(rng: &mut Rng) -> Ending {
    [Ending::Crash, Ending::HandOver, Ending::LoseLease][rng.below(3) as usize]
}

fn faults(rng: &mut Rng) -> Faults {
    let mut faults = Faults::default();
    if rng.chance(150) {
        return faults;
    }
    for rate in faults.each().into_iter().take(GENERAL_FAULTS) {
        *rate = if rng.chance(500) { [5, 20, 100, 300][rng.below(4) as usize] } else { 0 };
    }
    faults
}

fn plan(rng: &mut Rng, settings: &Settings, profile: &Profile) -> Plan {
    let cohorts =
        (0..rng.range(1, 2)).map(|i| shared(rng, 0, usize::try_from(i).unwrap_or(0))).collect::<Vec<_>>();
    let queues = (0..rng.range(1, profile.queues)).map(|_| queue(rng, 4, cohorts.len())).collect();
    let racks = if settings.topology || settings.placement { 2 } else { 0 };
    let node = |n: usize| NodeSpec { rack: n / 2, cpus: NODE, ready: true };
    Plan { cohorts, queues, nodes: (0..racks * 2).map(node).collect(), ..Plan::default() }
}

/// A job that fits: at most four CPUs where the order is strict, and no more than the nodes have.
fn job(rng: &mut Rng, settings: &Settings, plan: &Plan) -> JobSpec {
    let queue = rng.below(u32::try_from(plan.queues.len()).unwrap_or(1)) as usize;
    let (mut pods, mut cpus) = match rng.below(7) {
        0..4 => (rng.range(1, 4), 1),
        4 | 5 => (rng.range(1, 2), 2),
        _ => (rng.range(3, 8), rng.range(1, 2)),
    };
    let strict = plan.queues.get(queue).is_some_and(|q| q.strict);
    let most = if strict || settings.placement {
        4
    } else if settings.topology {
        2 * NODE
    } else {
        i64::MAX
    };
    if pods * cpus > most {
        (pods, cpus) = (2, cpus.min(2));
    }
    let form = match rng.below(6) {
        _ if !settings.placement => Form::Workload,
        0..3 => Form::Job,
        3 | 4 => Form::Pods,
        _ => Form::Unmanaged,
    };
    JobSpec {
        form,
        queue,
        priority: i32::try_from(rng.range(-1, 2)).unwrap_or(0),
        pods: i32::try_from(pods).unwrap_or(1),
        cpus,
        least: rng.chance(300).then(|| i32::try_from(rng.range(1, 2)).unwrap_or(1)),
        topology: rng.below(5) as u8,
        runs: [0, 50, 1_000, 10_000, 60_000][rng.below(5) as usize],
        ..JobSpec::default()
    }
}

fn operation(
    rng: &mut Rng,
    temper: &Temper,
    settings: &Settings,
    plan: &Plan,
    made: &mut usize,
) -> Operation {
    let mut left = rng.below(temper.weights.iter().sum());
    let mut kind = 0;
    for (i, weight) in temper.weights.iter().enumerate() {
        if left < *weight {
            kind = i;
            break;
        }
        left -= weight;
    }
    let known = rng.below(u32::try_from(*made).unwrap_or(0)) as usize;
    match kind {
        1 if *made > 0 => change(rng, known, settings, plan),
        2 => administer(rng, settings, plan),
        3 => {
            let node = rng.below(u32::try_from(plan.nodes.len()).unwrap_or(1)) as usize;
            let spec = rng.chance(700).then(|| NodeSpec {
                rack: node / 2,
                cpus: rng.range(1, NODE),
                ready: rng.chance(500),
            });
            Operation::Node { node, spec }
        }
        4 => match ending(rng) {
            Ending::Crash => Operation::Crash,
            Ending::HandOver => Operation::HandOver,
            Ending::LoseLease => Operation::LoseLease,
        },
        _ => {
            let job_number = *made;
            *made += 1;
            Operation::Submit { job: job_number, spec: job(rng, settings, plan) }
        }
    }
}

fn change(rng: &mut Rng, known: usize, settings: &Settings, plan: &Plan) -> Operation {
    match rng.below(8) {
        0 => Operation::Delete { job: known },
        1 => Operation::Submit { job: known, spec: job(rng, settings, plan) },
        2 | 3 => Operation::Activate { job: known, active: rng.chance(500) },
        4 => Operation::Prioritize { job: known, priority: i32::try_from(rng.range(-1, 3)).unwrap_or(0) },
        5 => Operation::Move {
            job: known,
            queue: rng.below(u32::try_from(plan.queues.len()).unwrap_or(1)) as usize,
        },
        _ => Operation::Reclaim { job: known },
    }
}

fn stop(rng: &mut Rng) -> Stop {
    [Stop::None, Stop::Hold, Stop::HoldAndDrain][rng.below(3) as usize]
}

fn administer(rng: &mut Rng, settings: &Settings, plan: &Plan) -> Operation {
    let number = rng.below(u32::try_from(plan.queues.len()).unwrap_or(1)) as usize;
    let cohorts = plan.cohorts.len();
    match rng.below(17) {
        0 | 1 => {
            let spec = rng.chance(700).then(|| Box::new(queue(rng, 0, cohorts)));
            Operation::ClusterQueue { queue: number, spec }
        }
        2 | 3 => Operation::StopQueue { queue: number, stop: stop(rng) },
        4 => Operation::LocalQueue { queue: number, stop: rng.chance(700).then(|| stop(rng)) },
        5 => {
            let cohort = rng.below(u32::try_from(cohorts).unwrap_or(1)) as usize;
            Operation::Cohort { cohort, spec: rng.chance(700).then(|| Box::new(shared(rng, 0, cohort))) }
        }
        6 => Operation::Flavor { flavor: rng.below(2) as usize, exists: rng.chance(500) },
        7 => Operation::Check { active: rng.chance(700).then(|| rng.chance(500)) },
        10 | 11 => {
            let class = i32::try_from(rng.below(5)).unwrap_or(0);
            let value = rng.chance(600).then(|| i32::try_from(rng.range(-1, 4)).unwrap_or(0));
            Operation::PriorityClass { class, value }
        }
        12 if settings.topology => Operation::Topology { exists: rng.chance(500) },
        13 => Operation::Namespace { selected: rng.chance(800).then(|| rng.chance(500)) },
        8 | 9 => Operation::Answers { retry: 200 * rng.below(2), reject: 100 * rng.below(2) },
        _ => Operation::Restore,
    }
}
