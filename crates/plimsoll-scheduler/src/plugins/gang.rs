//! GangScheduling: pods of a PodGroup are bound only when `minCount` of them have a place (KEP-4671,
//! upstream `plugins/gangscheduling/gangscheduling.go`).

use crate::cluster::group::{Group, PodGroup};
use crate::cluster::objects::ObjectChange;
use crate::cluster::{Cluster, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    AssumedPod, ExtensionPoint, Incoming, PermitResult, Plugin, PluginId, Registration, Status, WaitingPods,
};
use plimsoll_state::time::Duration;

/// How long a pod waits for the others of its gang (upstream's `permitTimeoutDuration`).
const TIMEOUT: Duration = Duration::from_seconds(5 * 60);

/// The plugin, with its number.
#[derive(Debug)]
pub(crate) struct GangScheduling(pub PluginId);

fn name(cluster: &Cluster, pod: PodId) -> &str {
    cluster.pods[pod].extra.as_ref().map_or("", |e| &e.group)
}

/// The pod's group and how many of its pods are needed at once; `None` when it is no gang.
fn gang(cluster: &Cluster, pod: PodId) -> Option<(&Group, usize)> {
    let group = cluster.group_of(pod)?;
    let PodGroup { min_count, .. } = group.object.as_deref()?;
    Some((group, usize::try_from((*min_count)?).unwrap_or(usize::MAX)))
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("GangScheduling", &[ExtensionPoint::PreEnqueue, ExtensionPoint::Permit], |_, handle| {
        Box::new(GangScheduling(handle.plugin()))
    })
    .by_default_behind("GangScheduling", 0)
    .schedules_pod_groups()
}

impl Plugin for GangScheduling {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        let name = name(cluster, pod);
        if name.is_empty() {
            return None;
        }
        if cluster.group_of(pod).is_none_or(|g| g.object.is_none()) {
            let text = format!("waiting for pods's pod group {name:?} to appear in scheduling queue");
            return Some(Status::unresolvable(text));
        }
        let (group, needed) = gang(cluster, pod)?;
        (group.pods.len() < needed).then(|| {
            let text = "waiting for minCount pods from a gang to appear in scheduling queue";
            Status::unresolvable(text)
        })
    }

    fn permit(&self, assumed: &AssumedPod<'_>, waiting: &mut WaitingPods) -> PermitResult {
        let (cluster, pod) = (assumed.cluster, assumed.pod);
        let name = name(cluster, pod);
        if name.is_empty() {
            return PermitResult::Allow;
        }
        if cluster.group_of(pod).is_none_or(|g| g.object.is_none()) {
            let text = format!("podgroup.scheduling.k8s.io {name:?} not found");
            return PermitResult::Reject(Status::error(text));
        }
        let Some((group, needed)) = gang(cluster, pod) else { return PermitResult::Allow };
        if group.placed < needed {
            if !waiting.in_group_cycle {
                let left = group.pods.iter().filter(|p| cluster.pods[**p].node.is_none());
                left.for_each(|p| waiting.activate(*p));
            }
            return PermitResult::Wait(TIMEOUT);
        }
        if !waiting.is_empty() {
            group.pods.iter().for_each(|p| waiting.allow(*p, self.0));
        }
        PermitResult::Allow
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(EventResource::Pod, ActionType::ADD),
                ClusterEventWithHint::hinted(EventResource::PodGroup, ActionType::ADD),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let (namespace, group) = (cluster.shape(pod).namespace, name(cluster, pod));
        if group.is_empty() {
            return false;
        }
        match &change.payload {
            Payload::Pod { new: Some(new), .. } => new.shape.namespace == namespace && *new.group == *group,
            Payload::Object(ObjectChange::PodGroup(space, name)) => *space == namespace && **name == *group,
            Payload::Node { .. } | Payload::Pod { .. } | Payload::Object(_) => false,
        }
    }
}
