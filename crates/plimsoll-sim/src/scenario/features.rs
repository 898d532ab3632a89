//! Adds to a scenario what not every one has: dependencies, run windows, elastic jobs, requests to the cluster
//! autoscaler, an extender, devices, larger trees of cohorts. The draws are none of those that make the rest of it.

use plimsoll_state::rng::Rng;

use super::devices::{Claims, MOST as MOST_DEVICES};
use super::extensions::{After, ExtenderSpec, Outcome, Over, WindowSpec};
use super::quotas::{queue, shared};
use super::{Form, JobSpec, Operation, QueueSpec, Release, Scenario, Timed};
use crate::dice::{Dice, Draw};

/// Least seconds that a window is open: any job that starts when it opens ends within.
const OPEN: i64 = 100;
/// Most pods of a job that nodes have to have capacity for.
const PODS: u8 = 4;
/// Most pods of an elastic job.
const MOST: i64 = 4;

/// Adds features by the scenario's seed.
pub fn add(scenario: &mut Scenario) {
    let mut rng = Dice::new(scenario.seed).about("features").rng();
    if rng.chance(250) {
        dependencies(scenario, &mut rng);
    }
    if rng.chance(200) {
        windows(scenario, &mut rng);
    }
    if scenario.settings.placement && !scenario.settings.topology && rng.chance(400) {
        elastic(scenario, &mut rng);
    }
    // Pods that an elastic Job gets later name the first slice's request and stay gated, as with Kueue.
    if rng.chance(200) && !submitted(scenario).any(|(_, spec)| spec.elastic) {
        // Checks are a part of most queues then.
        scenario.settings.provisioning = true;
        for queue in &mut scenario.plan.queues {
            queue.check |= rng.chance(600);
        }
    }
    if scenario.settings.placement && !scenario.settings.topology && rng.chance(200) {
        scenario.settings.extender = Some(ExtenderSpec {
            scores: rng.chance(500),
            preempts: rng.chance(500),
            binds: rng.chance(400),
            ignorable: rng.chance(300),
        });
    }
    if scenario.settings.placement && rng.chance(300) {
        devices(scenario, &mut rng);
    }
    if rng.chance(200) {
        trees(scenario, &mut rng);
    }
    if rng.chance(150) {
        lasting(scenario, &mut rng);
    }
    partial(scenario);
    release(scenario);
    late(scenario);
    scenario.operations.sort_by_key(|o| o.at);
}

/// Some jobs grow and shrink in part. The draws are of their own.
fn partial(scenario: &mut Scenario) {
    let mut rng = Dice::new(scenario.seed).about("partial").rng();
    for (_, spec) in submitted(scenario) {
        let can = spec.elastic
            || (spec.form == Form::Workload && spec.least.is_some_and(|least| least < spec.pods));
        spec.partial = can && rng.chance(500);
    }
}

/// Some of the elastic jobs that grow in part shrink when they are asked to, and evicted jobs release their quota early or late.
/// The draws are of their own.
fn release(scenario: &mut Scenario) {
    let mut rng = Dice::new(scenario.seed).about("release").rng();
    if scenario.settings.placement && rng.chance(300) {
        scenario.settings.release = Some(Release { jobs: rng.chance(500), pods: rng.chance(500) });
    }
    for (_, spec) in submitted(scenario) {
        spec.shrinks = rng.chance(500) && spec.elastic && spec.partial;
    }
}

/// In some scenarios with faults, the API server applies writes after the client has given up. The draws are of their own.
fn late(scenario: &mut Scenario) {
    let mut rng = Dice::new(scenario.seed).about("late").rng();
    if scenario.is_calm() || !rng.chance(400) {
        return;
    }
    let rate = [20, 100, 300][below(&mut rng, 3)];
    scenario.faults.late = rate;
    for timed in &mut scenario.operations {
        if let Operation::Faults { faults } = &mut timed.operation {
            faults.late = rate;
        }
    }
}

/// From some time on every request fails in the same way, until the faults end or before.
fn lasting(scenario: &mut Scenario, rng: &mut Rng) {
    let mut broken = scenario.faults;
    *[&mut broken.unavailable, &mut broken.refused, &mut broken.conflict, &mut broken.lost_answer]
        [below(rng, 4)] = 1_000;
    let from = rng.range(0, scenario.calm);
    let mut faults = vec![(from, broken)];
    if rng.chance(500) {
        faults.push((rng.range(from, scenario.calm), scenario.faults));
    }
    let happens = |(at, faults)| Timed { at, operation: Operation::Faults { faults } };
    scenario.operations.extend(faults.into_iter().map(happens));
}

/// More cohorts, each below one before it or a root, and more ClusterQueues, which get some of the jobs.
fn trees(scenario: &mut Scenario, rng: &mut Rng) {
    let plan = &mut scenario.plan;
    for _ in 0..rng.range(1, 3) {
        let cohort = shared(rng, 0, plan.cohorts.len());
        plan.cohorts.push(cohort);
    }
    let first = plan.queues.len();
    for _ in 0..rng.range(1, 3) {
        // Where the order is strict, no job is large.
        let queue = QueueSpec { strict: false, ..queue(rng, 4, plan.cohorts.len()) };
        plan.queues.push(queue);
    }
    let more = plan.queues.len() - first;
    for (_, spec) in submitted(scenario) {
        if rng.chance(500) {
            spec.queue = first + below(rng, more);
        }
    }
}

/// Jobs claim devices, those that no queue manages more often; slices, the class, templates and shared claims change.
fn devices(scenario: &mut Scenario, rng: &mut Rng) {
    scenario.settings.devices = true;
    let nodes = scenario.plan.nodes.len();
    // Enough for any pod, with a device for each shared claim that no pod uses any more: on each node that an extender may
    // leave a pod, and on the first one otherwise. For all pods of a job where it gets nodes or has to be ready as a whole.
    let whole = scenario.settings.pods_ready > 0 || scenario.settings.joint;
    let enough = 2 * MOST_DEVICES * if whole { PODS } else { 1 } + 2;
    let extended = scenario.settings.extender.is_some();
    let some = |rng: &mut Rng| if rng.chance(500) { enough } else { 1 + rng.below(4) as u8 };
    let devices = (0..nodes).map(|n| if n == 0 || extended { enough } else { some(rng) });
    scenario.plan.devices = devices.collect();
    let queued = !scenario.settings.topology && rng.chance(600);
    for (_, spec) in submitted(scenario) {
        if spec.form != Form::Unmanaged && rng.chance(400) {
            spec.form = Form::Unmanaged;
            (spec.after, spec.window, spec.elastic) = (None, None, false);
        }
        // Kueue's topologies know no devices, and its quota no claims that pods share.
        let queued = matches!(spec.form, Form::Job | Form::Pods) && queued && !spec.elastic;
        let own =
            |rng: &mut Rng| if rng.chance(600) { 1 + rng.below(u32::from(MOST_DEVICES)) as u8 } else { 0 };
        let shared = |rng: &mut Rng| !queued && rng.chance(300);
        if (queued || spec.form == Form::Unmanaged) && rng.chance(if queued { 400 } else { 800 }) {
            spec.claims = Claims { own: [own(rng), own(rng)], shared: [shared(rng), shared(rng)] };
        }
    }
    for _ in 0..rng.below(12) {
        let at = rng.range(0, scenario.calm);
        let operation = match rng.below(6) {
            0 => Operation::DeviceClass { exists: rng.chance(500) },
            1 => Operation::SharedClaim { claim: below(rng, 2), exists: rng.chance(500) },
            2 => Operation::ClaimTemplate { devices: 1 + rng.below(2) as u8, exists: rng.chance(500) },
            _ => {
                let devices = rng.chance(700).then(|| rng.below(6) as u8);
                Operation::Slice { node: below(rng, nodes), devices }
            }
        };
        scenario.operations.push(Timed { at, operation });
    }
}

/// All jobs that are submitted, in order of time, with their numbers.
fn submitted(scenario: &mut Scenario) -> impl Iterator<Item = (usize, &mut JobSpec)> {
    scenario.operations.iter_mut().filter_map(|o| match &mut o.operation {
        Operation::Submit { job, spec } => Some((*job, spec)),
        _ => None,
    })
}

fn below(rng: &mut Rng, n: usize) -> usize {
    rng.below(u32::try_from(n).unwrap_or(1)) as usize
}

/// Most jobs wait for one that was submitted before, whatever becomes of that.
fn dependencies(scenario: &mut Scenario, rng: &mut Rng) {
    let ready = scenario.settings.pods_ready > 0;
    let mut before: Vec<(usize, bool)> = Vec::new();
    for (job, spec) in submitted(scenario) {
        if !before.is_empty() && spec.form != Form::Unmanaged && rng.chance(600) {
            let (other, pod) = before.get(below(rng, before.len())).copied().unwrap_or_default();
            let outcome = match rng.below(4) {
                0 => Outcome::Finished,
                1 if ready => Outcome::Ready,
                _ => Outcome::Succeeded,
            };
            spec.after = (other != job).then_some(After { job: other, pod, outcome });
        }
        if spec.form != Form::Unmanaged {
            before.push((job, spec.form == Form::Pods && spec.pods == 1));
        }
    }
}

fn window(rng: &mut Rng, every: i64, queues: usize) -> WindowSpec {
    WindowSpec {
        every,
        open: rng.range(OPEN, 60 * every - 90),
        grace: [0, 0, 15][rng.below(3) as usize],
        min_run: [0, 0, 25][rng.below(3) as usize],
        finish: rng.chance(250),
        over: match rng.below(5) {
            0 | 1 => Over::LocalQueue(below(rng, queues)),
            2 => Over::ClusterQueue(below(rng, queues)),
            3 => Over::Flavor(rng.below(2) as usize),
            _ => Over::Named,
        },
    }
}

/// One or two windows that open together, and change.
fn windows(scenario: &mut Scenario, rng: &mut Rng) {
    let every = [4, 5, 6][rng.below(3) as usize];
    let queues = scenario.plan.queues.len();
    let count = 1 + below(rng, 2);
    scenario.plan.windows = (0..count).map(|_| window(rng, every, queues)).collect();
    for (_, spec) in submitted(scenario) {
        if rng.chance(250) {
            spec.window = Some(below(rng, count));
        }
    }
    // Long enough for edges while much goes wrong.
    let stretch = 1 + i64::from(rng.below(8));
    scenario.operations.iter_mut().for_each(|o| o.at *= stretch);
    scenario.calm *= stretch;
    for _ in 0..rng.below(4) {
        let at = rng.range(0, scenario.calm);
        let spec = rng.chance(700).then(|| window(rng, every, queues));
        scenario
            .operations
            .push(Timed { at, operation: Operation::RunWindow { window: below(rng, count), spec } });
    }
}

/// Some Jobs are elastic, and scaled.
fn elastic(scenario: &mut Scenario, rng: &mut Rng) {
    let mut jobs = Vec::new();
    for (job, spec) in submitted(scenario) {
        if spec.form == Form::Job && rng.chance(700) {
            spec.elastic = true;
            spec.least = None;
            spec.cpus = 1;
            spec.pods = spec.pods.min(3);
            jobs.push(job);
        }
    }
    for _ in 0..4 * jobs.len() {
        let at = rng.range(0, scenario.calm);
        let job = jobs.get(below(rng, jobs.len())).copied().unwrap_or_default();
        let pods = i32::try_from(rng.range(1, MOST)).unwrap_or(1);
        scenario.operations.push(Timed { at, operation: Operation::Scale { job, pods } });
    }
}
