//! Scenarios of concurrent admission: the workloads of all ClusterQueues are admitted by variants.

use plimsoll_state::rng::Rng;
use serde::{Deserialize, Serialize};

use super::{Claims, Operation, QueueSpec, Scenario};
use crate::dice::{Dice, Draw};

/// `concurrentAdmissionPolicy.migration.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Migration {
    /// A variant with a more favorable flavor takes the place of the admitted one.
    TryPreferredFlavors,
    /// The variant that is admitted first stays.
    RetainFirstAdmission,
}

/// A scenario with a policy for each ClusterQueue, which stays as it is, and without what variants are not made for: elastic
/// jobs, topologies, devices and a strict order.
pub fn with_variants(mut scenario: Scenario) -> Scenario {
    let mut rng = Dice::new(scenario.seed).about("variants").rng();
    let mode = |rng: &mut Rng| {
        if rng.chance(600) { Migration::TryPreferredFlavors } else { Migration::RetainFirstAdmission }
    };
    let modes: Vec<Migration> = scenario.plan.queues.iter().map(|_| mode(&mut rng)).collect();
    let admits = |queue: usize, spec: &mut QueueSpec| {
        spec.strict = false;
        spec.migration = modes.get(queue).copied();
    };
    let queues = scenario.plan.queues.iter_mut().enumerate();
    queues.for_each(|(number, spec)| admits(number, spec));
    for timed in &mut scenario.operations {
        match &mut timed.operation {
            Operation::ClusterQueue { queue, spec: Some(spec) } => admits(*queue, spec),
            Operation::Submit { spec, .. } => {
                spec.elastic = false;
                spec.claims = Claims::default();
            }
            _ => {}
        }
    }
    scenario.settings.topology = false;
    scenario.settings.devices = false;
    scenario.plan.devices.clear();
    scenario
}
