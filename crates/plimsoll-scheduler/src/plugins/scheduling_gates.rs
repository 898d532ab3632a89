//! SchedulingGates: pods with gates wait outside the queue (KEP-3521, upstream
//! `plugins/schedulinggates/scheduling_gates.go`).

use crate::cluster::{Cluster, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{ExtensionPoint, Incoming, Plugin, Registration, Status};

/// The plugin.
#[derive(Debug)]
pub(crate) struct SchedulingGates;

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("SchedulingGates", &[ExtensionPoint::PreEnqueue], |_, _| Box::new(SchedulingGates))
        .by_default(0)
}

impl Plugin for SchedulingGates {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        let gates = &cluster.pods[pod].extra.as_ref()?.gates;
        if gates.is_empty() {
            return None;
        }
        let text = format!("waiting for scheduling gates: [{}]", gates.join(" "));
        Some(Status::unresolvable(text))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const { &[ClusterEventWithHint::hinted(EventResource::Pod, ActionType::POD_GATES_ELIMINATED)] }
    }

    fn queueing_hint(&self, _cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        matches!(&change.payload, Payload::Pod { id, .. } if *id == pod)
    }
}
