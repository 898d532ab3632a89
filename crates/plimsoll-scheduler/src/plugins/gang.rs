//! GangScheduling: pods of a PodGroup are bound only when `minCount` of them have a place (spec section 6.2).

use crate::cluster::group::{Group, PodGroup};
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{Actions, Change, Interest, Payload, Resource};
use crate::framework::{Code, Incoming, Permit, Plugin, PluginId, Reason, Status, Waiting};
use crate::objects::ObjectChange;
use plimsoll_state::time::Duration;

/// How long a pod waits for the others of its gang (upstream's `permitTimeoutDuration`).
const TIMEOUT: Duration = Duration::from_seconds(5 * 60);

/// The plugin.
#[derive(Debug)]
pub(crate) struct GangScheduling;

fn name(cluster: &Cluster, pod: PodId) -> &str {
    cluster.pods[pod].extra.as_ref().map_or("", |e| &e.group)
}

/// The pod's group and how many of its pods are needed at once; `None` when it is no gang.
fn gang(cluster: &Cluster, pod: PodId) -> Option<(&Group, usize)> {
    let group = cluster.group_of(pod)?;
    let PodGroup { min_count } = group.object.as_deref()?;
    Some((group, usize::try_from((*min_count)?).unwrap_or(usize::MAX)))
}

impl Plugin for GangScheduling {
    fn id(&self) -> PluginId {
        PluginId::GangScheduling
    }

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
            return Some(Status::new(Code::Unresolvable, self.id(), Reason::Owned(text.into())));
        }
        let (group, needed) = gang(cluster, pod)?;
        (group.pods.len() < needed).then(|| {
            let text = "waiting for minCount pods from a gang to appear in scheduling queue";
            Status::unresolvable(self.id(), text)
        })
    }

    fn permit(&self, cluster: &Cluster, waiting: &mut Waiting, pod: PodId, _node: NodeId) -> Permit {
        let name = name(cluster, pod);
        if name.is_empty() {
            return Permit::Allow;
        }
        if cluster.group_of(pod).is_none_or(|g| g.object.is_none()) {
            let text = format!("podgroup.scheduling.k8s.io {name:?} not found");
            return Permit::Reject(Status::error(self.id(), &text));
        }
        let Some((group, needed)) = gang(cluster, pod) else { return Permit::Allow };
        if group.placed < needed {
            if !waiting.in_group_cycle {
                let left = group.pods.iter().filter(|p| cluster.pods[**p].node.is_none());
                left.for_each(|p| waiting.activate(*p));
            }
            return Permit::Wait(TIMEOUT);
        }
        if !waiting.is_empty() {
            group.pods.iter().for_each(|p| waiting.allow(*p, self.id()));
        }
        Permit::Allow
    }

    fn interests(&self) -> &'static [Interest] {
        const {
            &[
                Interest::hinted(Resource::Pod, Actions::ADD),
                Interest::hinted(Resource::PodGroup, Actions::ADD),
            ]
        }
    }

    fn hint(&self, cluster: &Cluster, pod: PodId, change: &Change) -> bool {
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
