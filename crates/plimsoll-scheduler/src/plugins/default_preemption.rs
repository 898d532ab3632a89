//! DefaultPreemption: PreEnqueue, PostFilter and its queueing hint (upstream `plugins/defaultpreemption/default_preemption.go`).
//! The search for victims is in `preemption`.

use super::preemption;
use crate::args::PreemptionArgs;
use crate::cluster::{Cluster, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource};
use crate::framework::{Incoming, Plugin, PostFilterHandle, PostFilterResult, Status};

/// The plugin with its minima of candidates: a share in percent, and a number.
#[derive(Debug)]
pub(crate) struct DefaultPreemption {
    percentage: u32,
    absolute: u32,
}

impl DefaultPreemption {
    pub(crate) fn new(args: &PreemptionArgs) -> Self {
        Self { percentage: args.min_candidate_nodes_percentage, absolute: args.min_candidate_nodes_absolute }
    }
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
