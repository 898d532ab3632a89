//! Scenarios of two shards: each has a leader, trees of cohorts and nodes. Nodes and trees go from one to the other, trees lend each other
//! quota, and leaders end. Quotas stay as planned, so that no usage beyond them is anybody's right.

use plimsoll_api::shards::DEFAULT;
use plimsoll_state::rng::Rng;
use serde_json::{Value, json};

use super::{
    Bounds, Ending, Faults, Form, JobSpec, NodeSpec, Operation, Plan, QueueSpec, Quota, QuotaSpec, Scenario,
    Settings, Timed,
};
use crate::dice::{Dice, Draw};

/// Names of the shards.
pub const SHARDS: [&str; 2] = [DEFAULT, "b"];

/// The shard that an object of this number has at the start.
pub fn planned(number: usize) -> &'static str {
    SHARDS[number % SHARDS.len()]
}

/// Name of a loan.
pub fn loan_name(loan: usize) -> String {
    format!("loan{loan}")
}

/// A QuotaLoan of CPUs of the first flavor.
pub fn loan(loan: usize, from: usize, to: usize, cpus: i64) -> Value {
    let resources =
        json!([{"flavor": super::objects::FLAVORS[0], "resource": "cpu", "quantity": cpus.to_string()}]);
    json!({
        "metadata": {"name": loan_name(loan)},
        "spec": {
            "from": {"cohort": format!("k{from}")}, "to": {"cohort": format!("k{to}")}, "resources": resources,
        },
    })
}

/// The scenario of a seed.
pub fn sharded(seed: u64) -> Scenario {
    let mut rng = Dice::new(seed).about("shards").rng();
    let (plan, placement) = (plan(&mut rng), rng.chance(700));
    let mut operations: Vec<Timed> = Vec::new();
    let (mut at, mut jobs, mut loans) = (0, 0, 0);
    for _ in 0..rng.range(10, 70) {
        at += if rng.chance(250) { rng.range(0, 20_000) } else { rng.range(0, 600) };
        let operation = match rng.below(20) {
            0..=8 => {
                jobs += 1;
                Operation::Submit { job: jobs - 1, spec: job(&mut rng, plan.queues.len(), placement) }
            }
            9 if jobs > 0 => Operation::Delete { job: below(&mut rng, jobs) },
            10 | 11 => {
                Operation::MoveNode { node: below(&mut rng, plan.nodes.len()), shard: below(&mut rng, 2) }
            }
            12 | 17 => {
                let roots: Vec<usize> =
                    (0..plan.cohorts.len()).filter(|i| plan.cohorts[*i].parent.is_none()).collect();
                let cohort = roots[below(&mut rng, roots.len())];
                Operation::MoveTree { cohort, shard: below(&mut rng, 2), by_hand: rng.chance(300) }
            }
            13 | 14 if loans > 0 => {
                Operation::EndLoan { loan: below(&mut rng, loans), delete: rng.chance(300) }
            }
            15 => Operation::End { shard: below(&mut rng, 2), ending: ending(&mut rng) },
            16 => Operation::Faults { faults: faults(&mut rng) },
            _ => {
                let from = below(&mut rng, plan.cohorts.len());
                let to = (from + 1 + below(&mut rng, plan.cohorts.len() - 1)) % plan.cohorts.len();
                loans += 1;
                Operation::Lend { loan: loans - 1, from, to, cpus: rng.range(1, 6) }
            }
        };
        operations.push(Timed { at, operation });
    }
    let settings = Settings {
        shards: true,
        placement,
        fair_sharing: rng.chance(300),
        joint: rng.chance(250),
        explain_every: 1_000,
        ..Settings::default()
    };
    let mut scenario = Scenario {
        seed,
        settings: Settings { joint: settings.joint && settings.placement, ..settings },
        faults: if rng.chance(200) { Faults::default() } else { faults(&mut rng) },
        plan,
        calm: at + rng.range(0, 30_000),
        crash_after: None,
        ending: Ending::Crash,
        bounds: Bounds::default(),
        operations,
    };
    slow_down(&mut scenario);
    scenario
}

/// In half of the scenarios writes of decisions take seconds, so that nodes and trees are asked away while some are under way.
fn slow_down(scenario: &mut Scenario) {
    let mut rng = Dice::new(scenario.seed).about("slow decisions").rng();
    if !rng.chance(500) {
        return;
    }
    let rate = u32::try_from(rng.range(100, 500)).unwrap_or(0);
    scenario.faults.decisions = rate;
    for timed in &mut scenario.operations {
        if let Operation::Faults { faults } = &mut timed.operation {
            faults.decisions = rate;
        }
    }
}

fn below(rng: &mut Rng, count: usize) -> usize {
    rng.below(u32::try_from(count).unwrap_or(1).max(1)) as usize
}

fn ending(rng: &mut Rng) -> Ending {
    [Ending::Crash, Ending::HandOver, Ending::LoseLease][below(rng, 3)]
}

/// Two to four trees, of one to two cohorts each.
fn plan(rng: &mut Rng) -> Plan {
    let mut cohorts: Vec<QuotaSpec> = Vec::new();
    for _ in 0..rng.range(2, 4) {
        // A quota of its own that no queue has.
        let own = if rng.chance(300) { rng.range(1, 4) } else { 0 };
        let mut quotas = [Quota::default(); 2];
        quotas[0].nominal = own;
        cohorts.push(QuotaSpec { quotas, weight: 1, parent: None });
    }
    let roots = cohorts.len();
    for _ in 0..rng.range(0, 2) {
        let parent = Some(below(rng, roots));
        let mut child = QuotaSpec { weight: 1, parent, ..QuotaSpec::default() };
        child.quotas[0].lending = rng.chance(300).then(|| rng.range(0, 4));
        cohorts.push(child);
    }
    // Each root has a queue.
    let mut queues: Vec<QueueSpec> = (0..roots).map(|parent| queue(rng, parent)).collect();
    for _ in 0..rng.range(0, 3) {
        let parent = below(rng, cohorts.len());
        queues.push(queue(rng, parent));
    }
    let count = 2 + below(rng, 4);
    let nodes = (0..count).map(|rack| NodeSpec { rack, cpus: rng.range(4, 8), ready: true });
    Plan { cohorts, queues, nodes: nodes.collect(), ..Plan::default() }
}

fn queue(rng: &mut Rng, parent: usize) -> QueueSpec {
    let quota = Quota {
        nominal: rng.range(2, 8),
        borrowing: rng.chance(200).then(|| rng.range(0, 6)),
        lending: rng.chance(200).then(|| rng.range(0, 4)),
    };
    QueueSpec {
        quota: QuotaSpec { parent: Some(parent), quotas: [quota, Quota::default()], weight: 1 },
        preemption: (rng.below(3) as u8, rng.below(3) as u8),
        ..QueueSpec::default()
    }
}

/// A job; without placement no pods run.
fn job(rng: &mut Rng, queues: usize, placement: bool) -> JobSpec {
    let (pods, cpus) = (rng.range(1, 4), rng.range(1, 3));
    let form = [Form::Workload, Form::Job, Form::Job, Form::Pods][below(rng, 4)];
    JobSpec {
        form: if placement { form } else { Form::Workload },
        queue: below(rng, queues),
        priority: i32::try_from(rng.range(-1, 3)).unwrap_or(0),
        pods: i32::try_from(pods).unwrap_or(1),
        cpus,
        runs: rng.range(100, 40_000),
        ..JobSpec::default()
    }
}

fn faults(rng: &mut Rng) -> Faults {
    let late = if rng.chance(400) { 100 } else { 0 };
    let mut faults = Faults { late, ..Faults::default() };
    for rate in faults.each().into_iter().take(super::GENERAL_FAULTS) {
        if rng.chance(400) {
            *rate = u32::try_from(rng.range(5, 150)).unwrap_or(0);
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_of_shards_can_be_written_and_read() {
        for seed in 0..20 {
            let scenario = sharded(seed);
            assert_eq!(Scenario::from_text(&scenario.to_text()).as_ref(), Ok(&scenario));
            let planned: Vec<&str> = (0..2).map(planned).collect();
            assert_eq!(planned, SHARDS);
        }
    }
}
