//! `InterPodAffinityArgs` (upstream `ValidateInterPodAffinityArgs` in
//! `apis/config/validation/validation_pluginargs.go`).

use crate::args::{ArgsError, Fields, PluginArgs, valid};

/// Arguments of InterPodAffinity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterPodAffinityArgs {
    /// Score of required affinity terms of existing pods, 0 to 100.
    pub hard_pod_affinity_weight: i64,
    /// Leave out preferred terms of existing pods when the incoming pod has none.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

impl PluginArgs for InterPodAffinityArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        let default = Self::default();
        let weight = fields.int32("hardPodAffinityWeight").map(i64::from);
        let weight = weight.unwrap_or(default.hard_pod_affinity_weight);
        let ignore = fields.boolean("ignorePreferredTermsOfExistingPods");
        let args = Self {
            hard_pod_affinity_weight: weight,
            ignore_preferred_terms_of_existing_pods: ignore
                .unwrap_or(default.ignore_preferred_terms_of_existing_pods),
        };
        let error = ArgsError::out_of_range("hardPodAffinityWeight", weight, (0, 100));
        valid(args, error.into_iter().collect())
    }
}
