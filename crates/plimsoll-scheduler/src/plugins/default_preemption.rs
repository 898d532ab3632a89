//! DefaultPreemption: PreEnqueue, PostFilter and its queueing hint (upstream `plugins/defaultpreemption/default_preemption.go`).
//! The search for victims is in `preemption`.

use super::preemption;
use crate::args::{ArgsError, Fields, PluginArgs, valid};
use crate::cluster::{Cluster, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource};
use crate::framework::{
    ExtensionPoint, Incoming, Plugin, PostFilterHandle, PostFilterResult, Registration, Status,
};

/// `DefaultPreemptionArgs` (upstream `ValidateDefaultPreemptionArgs` in `apis/config/validation/validation_pluginargs.go`).
#[derive(Debug)]
struct PreemptionArgs {
    /// Share of nodes that are tried, in percent.
    min_candidate_nodes_percentage: u32,
    /// Number of nodes that are tried at least.
    min_candidate_nodes_absolute: u32,
}

impl Default for PreemptionArgs {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

impl PluginArgs for PreemptionArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        const SHARE: &str = "minCandidateNodesPercentage";
        const ABSOLUTE: &str = "minCandidateNodesAbsolute";
        let default = Self::default();
        let mut field = |name, default: u32| fields.int32(name).map_or(i64::from(default), i64::from);
        let share = field(SHARE, default.min_candidate_nodes_percentage);
        let absolute = field(ABSOLUTE, default.min_candidate_nodes_absolute);
        let mut errors: Vec<ArgsError> =
            ArgsError::out_of_range(SHARE, share, (0, 100)).into_iter().collect();
        if absolute < 0 {
            let text = format!("Invalid value: {absolute}: not in valid range [0, inf)");
            errors.push(ArgsError::new(ABSOLUTE, text));
        }
        if share == 0 && absolute == 0 {
            for (field, other) in [(SHARE, ABSOLUTE), (ABSOLUTE, SHARE)] {
                let text = format!("Invalid value: 0: cannot be zero at the same time as {other}");
                errors.push(ArgsError::new(field, text));
            }
        }
        let args = Self {
            min_candidate_nodes_percentage: u32::try_from(share).unwrap_or(0),
            min_candidate_nodes_absolute: u32::try_from(absolute).unwrap_or(u32::MAX),
        };
        valid(args, errors)
    }
}

/// The plugin with its minima of candidates: a share in percent, and a number.
#[derive(Debug)]
pub(crate) struct DefaultPreemption {
    percentage: u32,
    absolute: u32,
}

impl DefaultPreemption {
    fn new(args: &PreemptionArgs) -> Self {
        Self { percentage: args.min_candidate_nodes_percentage, absolute: args.min_candidate_nodes_absolute }
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        "DefaultPreemption",
        &[ExtensionPoint::PreEnqueue, ExtensionPoint::PostFilter],
        |args: &PreemptionArgs, _| Box::new(DefaultPreemption::new(args)),
    )
    .by_default(0)
}

impl Plugin for DefaultPreemption {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        cluster
            .is_held_for_preemption(pod)
            .then(|| Status::unresolvable("waiting for the preemption for this pod to be finished"))
    }

    fn post_filter(&self, handle: &mut dyn PostFilterHandle) -> PostFilterResult {
        handle.count_preemption();
        let (offset, wanted) = handle.offset_and_candidates(self.percentage, self.absolute);
        if let Some(text) = preemption::not_eligible(handle) {
            let text = format!("preemption: {text}");
            return PostFilterResult::Unschedulable { text, clear_nomination: false };
        }
        let search = preemption::search(handle, offset, wanted);
        if !search.candidates.is_empty() {
            return PostFilterResult::Candidates(search.candidates);
        }
        let text = format!("preemption: {}", preemption::no_candidates(handle.cluster(), &search.failed));
        PostFilterResult::Unschedulable { text, clear_nomination: true }
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const { &[ClusterEventWithHint::hinted(EventResource::AssignedPod, ActionType::DELETE)] }
    }

    /// The plugins that rejected the pod know better when to try again.
    fn queueing_hint(&self, _cluster: &Cluster, _pod: PodId, _event: &ClusterEvent) -> bool {
        false
    }
}
