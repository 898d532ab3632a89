//! The rules of a ClusterQueue with ids for names.

use super::ids::{FlavorId, ResourceId};
use super::model::{FlavorFungibility, PreemptionConfig, PreemptionRules, QueueingStrategy};
use std::sync::Arc;

/// Resources given out together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) covered: Vec<ResourceId>,
    pub(crate) flavors: Vec<FlavorId>,
}

/// A ClusterQueue's rules with numbers for names.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) groups: Vec<Group>,
    pub(crate) fungibility: FlavorFungibility,
    pub(crate) preemption: PreemptionRules,
    /// The PreemptionConfig that it names, if that exists and has rules.
    pub(crate) preemption_config: Option<Arc<PreemptionConfig>>,
    pub(crate) strategy: QueueingStrategy,
    /// Whether LocalQueues that used less go first.
    pub(crate) fair_admission: bool,
}

impl Rules {
    /// The group that covers a resource.
    pub(crate) fn group_of(&self, res: ResourceId) -> Option<usize> {
        self.groups.iter().position(|g| g.covered.contains(&res))
    }
}
