//! Scenarios of joint admission with bounds, from seeds: what scenarios of [`generate`](super::generate()) seldom draw, or
//! have no bound for.

use plimsoll_queueing::OVERTAKING;
use plimsoll_state::rng::Rng;

use super::{
    Bounds, Faults, Form, JobSpec, NodeSpec, Operation, Plan, QueueSpec, Quota, QuotaSpec, Scenario,
    Settings, Timed,
};
use crate::dice::Draw;

/// CPUs of a node.
const NODE: i64 = 4;
/// How long single jobs run, in milliseconds.
const RUNS: i64 = 8_000;
/// What a job takes beside that: its pods are created, bound, end, and are seen to.
const SLACK: i64 = 4_000;
/// What preempted jobs take to stop, and the preemptor to start.
const PREEMPTION: i64 = 8_000;
/// How far preempting gangs are apart.
const PAUSE: i64 = 20_000;
/// [`JobSpec::topology`] of pods that have to be in one rack.
const REQUIRED_RACK: u8 = 2;
/// Longer than any test runs.
const FOR_EVER: i64 = 400_000;

/// What a scenario is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Gangs among single jobs that keep coming, faster than nodes run them: their wait is bounded.
    Waiting,
    /// Nothing preempts in vain: gangs start as soon as their victims have left.
    Preemption,
    /// A flavor whose nodes are full counts as one without quota.
    Flavors,
    /// A place that is reserved for a pod to come is not lost when other pods of its gang change.
    Reservations,
    /// A workload that has to wait for ready pods of others keeps no nodes.
    ReadyPods,
    /// Gangs that need a rack, among single jobs that keep coming: their wait is bounded.
    Racks,
    /// With fair sharing, a gang of a queue within its quota among gangs of one that borrows, of a higher priority: its
    /// wait is bounded.
    Shares,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Preemption,
        Self::Flavors,
        Self::Reservations,
        Self::ReadyPods,
        Self::Racks,
        Self::Shares,
    ];

    /// The scenario of a seed.
    pub fn scenario(self, seed: u64) -> Scenario {
        let mut rng = Rng::new(seed);
        match self {
            Self::Waiting => waiting(seed, &mut rng),
            Self::Preemption => preemption(seed, &mut rng),
            Self::Flavors => flavors(seed, &mut rng),
            Self::Reservations => reservations(seed, &mut rng),
            Self::ReadyPods => ready_pods(seed, &mut rng),
            Self::Racks => racks(seed, &mut rng),
            Self::Shares => shares(seed, &mut rng),
        }
    }
}

/// The scenario of a seed, of each family in turn.
pub fn joint(seed: u64) -> Scenario {
    let all = Family::ALL;
    let at = usize::try_from(seed % all.len() as u64).unwrap_or(0);
    all.get(at).copied().unwrap_or(Family::Waiting).scenario(seed / all.len() as u64)
}

/// Jobs in order of time.
#[derive(Default)]
struct Jobs(Vec<Timed>);

impl Jobs {
    fn submit(&mut self, at: i64, spec: JobSpec) {
        let job = self.0.iter().filter(|o| matches!(o.operation, Operation::Submit { .. })).count();
        self.0.push(Timed { at, operation: Operation::Submit { job, spec } });
    }

    fn scenario(self, seed: u64, plan: Plan, bounds: Bounds) -> Scenario {
        let last = self.0.last().map_or(0, |o| o.at);
        Scenario {
            seed,
            settings: settings(),
            plan,
            bounds,
            calm: last + 1_000,
            operations: self.0,
            ..Scenario::default()
        }
    }
}

fn settings() -> Settings {
    Settings {
        placement: true,
        joint: true,
        overtaking: OVERTAKING,
        explain_every: 50,
        ..Settings::default()
    }
}

fn single(cpus: i64, runs: i64) -> JobSpec {
    JobSpec { form: Form::Job, pods: 1, cpus, runs, ..JobSpec::default() }
}

fn nodes(count: i64) -> Vec<NodeSpec> {
    (0..count).map(|_| NodeSpec { rack: 0, cpus: NODE, ready: true }).collect()
}

/// A queue with this quota of the flavors.
fn queue(quotas: [i64; 2]) -> QueueSpec {
    let quotas = quotas.map(|nominal| Quota { nominal, ..Quota::default() });
    QueueSpec { quota: QuotaSpec { quotas, weight: 1, ..QuotaSpec::default() }, ..QueueSpec::default() }
}

/// Two queues with quota for everything, and twice as many single jobs as fit; a gang that needs half of the nodes or more
/// comes early.
fn waiting(seed: u64, rng: &mut Rng) -> Scenario {
    let nodes = nodes(rng.range(1, 2));
    let all = NODE * nodes.len() as i64;
    let (cpus, least) = [(1, all / 2), (2, all / 4), (4, all / 4)][rng.below(3) as usize];
    let pods = i32::try_from(rng.range(least, all / cpus)).unwrap_or(1);
    let gang = JobSpec { pods, priority: 2, ..single(cpus, 1_000) };
    let (mut jobs, mut at) = (Jobs::default(), 200);
    let pause = RUNS / all / 2;
    while at < 24_000 {
        jobs.submit(at, JobSpec { queue: rng.below(2) as usize, ..single(1, RUNS) });
        if at < 6_000 && at + pause >= 6_000 {
            jobs.submit(at + 1, gang);
        }
        at += pause;
    }
    let plan = Plan { queues: vec![queue([1_000; 2]), queue([1_000; 2])], nodes, ..Plan::default() };
    jobs.scenario(seed, plan, Bounds { waited: [(2, 2 * RUNS + SLACK)].into(), ..Bounds::default() })
}

/// Two racks of one or two nodes, twice as many single jobs as fit, and a gang that needs most of a rack or all of it.
fn racks(seed: u64, rng: &mut Rng) -> Scenario {
    let each = rng.range(1, 2);
    let node = |n: i64| NodeSpec { rack: usize::try_from(n / each).unwrap_or(0), cpus: NODE, ready: true };
    let nodes: Vec<NodeSpec> = (0..2 * each).map(node).collect();
    let (rack, all) = (NODE * each, 2 * NODE * each);
    let cpus = [1, 2][rng.below(2) as usize];
    let pods = i32::try_from(rng.range(3 * rack / cpus / 4, rack / cpus)).unwrap_or(1);
    let gang = JobSpec { pods, priority: 2, topology: REQUIRED_RACK, ..single(cpus, 1_000) };
    let (mut jobs, mut at) = (Jobs::default(), 200);
    let pause = RUNS / all / 2;
    while at < 24_000 {
        jobs.submit(at, single(1, RUNS));
        if at < 6_000 && at + pause >= 6_000 {
            jobs.submit(at + 1, gang);
        }
        at += pause;
    }
    let plan = Plan { queues: vec![queue([1_000, 0])], nodes, ..Plan::default() };
    let bounds = Bounds { waited: [(2, 2 * RUNS + SLACK)].into(), ..Bounds::default() };
    let mut scenario = jobs.scenario(seed, plan, bounds);
    scenario.settings.topology = true;
    scenario
}

/// Two queues of a cohort, one of which has quota for everything: gangs of the other one, which borrows, are twice as many as
/// fit and of a higher priority.
fn shares(seed: u64, rng: &mut Rng) -> Scenario {
    let nodes = nodes(rng.range(1, 2));
    let all = NODE * nodes.len() as i64;
    // Not all: with the CPU that the other queue has quota for, its jobs go first by their priority.
    let gang = JobSpec { pods: i32::try_from(rng.range(all / 2, all - 1)).unwrap_or(1), ..single(1, 1_000) };
    let (mut jobs, mut at) = (Jobs::default(), 200);
    while at < 40_000 {
        let pods = rng.range(1, all / 2);
        let spec =
            JobSpec { pods: i32::try_from(pods).unwrap_or(1), priority: 2, queue: 1, ..single(1, RUNS) };
        jobs.submit(at, spec);
        let pause = RUNS * pods / all / 2;
        if at < 6_000 && at + pause >= 6_000 {
            jobs.submit(at + 1, gang);
        }
        at += pause;
    }
    let shared = |nominal| {
        let mut spec = queue([nominal, 0]);
        spec.quota.parent = Some(0);
        spec
    };
    let cohort = QuotaSpec { weight: 1, ..QuotaSpec::default() };
    let plan =
        Plan { cohorts: vec![cohort], queues: vec![shared(1_000), shared(1)], nodes, ..Plan::default() };
    let bounds = Bounds { waited: [(0, 3 * RUNS + SLACK)].into(), ..Bounds::default() };
    let mut scenario = jobs.scenario(seed, plan, bounds);
    scenario.settings.fair_sharing = true;
    scenario
}

/// Nodes full of single jobs, with more waiting, and gangs of higher priority now and then. In one of three scenarios quota
/// is short as well.
fn preemption(seed: u64, rng: &mut Rng) -> Scenario {
    let nodes = nodes(rng.range(2, 3));
    let all = NODE * nodes.len() as i64;
    let nominal = if rng.below(3) == 0 { all / 2 } else { 1_000 };
    let queue = QueueSpec { preemption: (0, 1), ..queue([nominal, 0]) };
    let (mut jobs, mut at) = (Jobs::default(), 200);
    while at < 3 * PAUSE {
        jobs.submit(at, single(rng.range(1, 2), rng.range(10_000, 60_000)));
        if at % PAUSE < 800 && at > 800 {
            let cpus = rng.range(1, NODE);
            let priority = 1 + i32::try_from(at / PAUSE).unwrap_or(0);
            let pods = i32::try_from(rng.range(1, all / cpus)).unwrap_or(1);
            jobs.submit(at + 1, JobSpec { pods, priority, ..single(cpus, 5_000) });
        }
        at += 800;
    }
    let plan = Plan { queues: vec![queue], nodes, ..Plan::default() };
    jobs.scenario(seed, plan, Bounds { preempting: Some(PREEMPTION), placed: true, ..Bounds::default() })
}

/// A node of each flavor, quota for everything in both, and jobs for which there is capacity on the nodes of both together.
fn flavors(seed: u64, rng: &mut Rng) -> Scenario {
    let nodes = (0..2).map(|rack| NodeSpec { rack, cpus: NODE, ready: true }).collect();
    let (mut jobs, mut left, mut at) = (Jobs::default(), [NODE; 2], 200);
    while let Some(most) = left.iter().copied().max().filter(|most| *most > 0) {
        // The first node that has capacity takes it, as the order of flavors says.
        let size = rng.range(1, most);
        let pods = if rng.chance(500) { size } else { 1 };
        let spec = JobSpec { pods: i32::try_from(pods).unwrap_or(1), ..single(size / pods, 30_000) };
        if let Some(node) = left.iter_mut().find(|node| **node >= size) {
            *node -= size;
        }
        jobs.submit(at, spec);
        at += rng.range(500, 2_000);
    }
    let plan = Plan { queues: vec![queue([1_000; 2])], nodes, ..Plan::default() };
    let mut scenario =
        jobs.scenario(seed, plan, Bounds { waited: [(0, SLACK)].into(), placed: true, ..Bounds::default() });
    scenario.settings.flavored = true;
    scenario
}

/// Two groups of pods that each need more than half of the nodes, while requests to the API server are slow: their pods are
/// let go one after the other.
fn reservations(seed: u64, rng: &mut Rng) -> Scenario {
    let mut jobs = Jobs::default();
    for i in 0..2 {
        let spec = JobSpec { form: Form::Pods, pods: 3, ..single(2, 20_000) };
        jobs.submit(200 + i * rng.range(10, 2_000), spec);
    }
    let plan = Plan { queues: vec![queue([1_000; 2])], nodes: nodes(2), ..Plan::default() };
    let mut scenario = jobs.scenario(seed, plan, Bounds { placed: true, ..Bounds::default() });
    scenario.faults = Faults { slow: 300, ..Faults::default() };
    scenario.calm = 60_000;
    scenario
}

/// With `blockAdmission`: a job whose pod takes long to start, one that has to wait for that, and a pod that no queue manages,
/// for which the node has capacity as long as the one that waits keeps none.
fn ready_pods(seed: u64, rng: &mut Rng) -> Scenario {
    let mut jobs = Jobs::default();
    jobs.submit(200, JobSpec { starts: 20_000, ..single(1, 1_000) });
    jobs.submit(rng.range(1_500, 3_000), single(3, 1_000));
    jobs.submit(rng.range(5_000, 9_000), JobSpec { form: Form::Unmanaged, ..single(rng.range(1, 3), 1_000) });
    let plan = Plan { queues: vec![queue([1_000; 2])], nodes: nodes(1), ..Plan::default() };
    let mut scenario = jobs.scenario(seed, plan, Bounds { placed: true, ..Bounds::default() });
    (scenario.settings.pods_ready, scenario.settings.block_admission) = (FOR_EVER, true);
    scenario
}
