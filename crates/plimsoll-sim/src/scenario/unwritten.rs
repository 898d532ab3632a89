//! Scenarios of writes about pods that all fail, for as long as the faults last: why a pod is unschedulable, that it is not
//! nominated any more, preemption. No queue manages the pods. Some fit on no node, and all others run longer than it takes to
//! look: when the faults have ended, pods say what was decided of them.

use plimsoll_state::rng::Rng;

use super::{Bounds, Ending, Faults, Form, JobSpec, NodeSpec, Operation, Plan, Scenario, Settings, Timed};
use crate::dice::{Dice, Draw};

/// CPUs of a node.
const NODE: i64 = 4;
/// How long the pods run, in milliseconds: longer than what is repeated after the faults is waited for.
const RUNS: i64 = 300_000;

/// The scenario of a seed.
pub fn unwritten(seed: u64) -> Scenario {
    let mut rng = Dice::new(seed).about("unwritten").rng();
    let mut operations: Vec<Timed> = Vec::new();
    let (mut at, mut made) = (0, 0);
    for _ in 0..rng.range(2, 30) {
        at += if rng.chance(300) { rng.range(0, 90_000) } else { rng.range(0, 500) };
        let operation = match rng.below(7) {
            0 if made > 0 => Operation::Delete { job: rng.below(made) as usize },
            _ => {
                made += 1;
                Operation::Submit { job: made as usize - 1, spec: pod(&mut rng) }
            }
        };
        operations.push(Timed { at, operation });
    }
    // One kind at least.
    let mut faults = Faults::default();
    let which = 1 + rng.below(7);
    for (bit, rate) in
        [&mut faults.explanations, &mut faults.nominations, &mut faults.preemptions].into_iter().enumerate()
    {
        *rate = if which >> bit & 1 == 1 { 1_000 } else { 0 };
    }
    let node = |rack| NodeSpec { rack, cpus: NODE, ready: true };
    Scenario {
        seed,
        settings: Settings { placement: true, explain_every: 1_000, ..Settings::default() },
        faults,
        plan: Plan { nodes: vec![node(0), node(1)], ..Plan::default() },
        calm: at + rng.range(0, 120_000),
        crash_after: None,
        ending: Ending::Crash,
        bounds: Bounds::default(),
        operations,
    }
}

fn pod(rng: &mut Rng) -> JobSpec {
    JobSpec {
        form: Form::Unmanaged,
        priority: i32::try_from(rng.range(0, 3)).unwrap_or(0),
        pods: 1,
        cpus: [1, 2, NODE, NODE + 2][rng.below(4) as usize],
        runs: RUNS,
        ..JobSpec::default()
    }
}
