//! SchedulingGates: pods with gates wait outside the queue (spec section 5.11).

use crate::cluster::{Cluster, PodId};
use crate::events::{Actions, Change, Interest, Payload, Resource};
use crate::framework::{Code, Incoming, Plugin, PluginId, Reason, Status};

/// The plugin.
#[derive(Debug)]
pub(crate) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn id(&self) -> PluginId {
        PluginId::SchedulingGates
    }

    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        let gates = &cluster.pods[pod].extra.as_ref()?.gates;
        if gates.is_empty() {
            return None;
        }
        let text = format!("waiting for scheduling gates: [{}]", gates.join(" "));
        Some(Status::new(Code::Unresolvable, self.id(), Reason::Owned(text.into())))
    }

    fn interests(&self) -> &'static [Interest] {
        const { &[Interest::hinted(Resource::Pod, Actions::POD_GATES_ELIMINATED)] }
    }

    fn hint(&self, _cluster: &Cluster, pod: PodId, change: &Change) -> bool {
        matches!(&change.payload, Payload::Pod { id, .. } if *id == pod)
    }
}
