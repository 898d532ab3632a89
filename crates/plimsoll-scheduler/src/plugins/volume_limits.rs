//! NodeVolumeLimits: how many CSI volumes a node can attach (upstream `plugins/nodevolumelimits/csi.go`).

#[cfg(test)]
mod tests;

use super::volumes::{claim_change, claim_name, find, is_for, is_own_claim, to_come, uses_volumes};
use crate::cluster::objects::{Claim, ObjectChange};
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration, Status,
};
use plimsoll_state::cast::signed;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::intern::Sym;
use plimsoll_state::model::{CsiNode, VolumeSource};
use std::collections::BTreeMap;

const REASON: &str = "node(s) exceed max volume count";

/// The plugin.
#[derive(Debug)]
pub(crate) struct VolumeLimits;

#[derive(Debug)]
struct State {
    /// The volumes of the pod, or why it fits nowhere.
    new: Result<Attached, Status>,
    /// How many those are, by driver.
    wanted: BTreeMap<String, i64>,
}

/// Driver by volume, a volume being named by driver and handle.
type Attached = BTreeMap<(String, String), ()>;

/// Driver and handle of a claim's volume; an unbound claim stands for one volume of its own.
fn volume_of(cluster: &Cluster, claim: &Claim) -> Option<(String, String)> {
    let c = &claim.raw;
    if !c.volume_name.is_empty()
        && let Some(volume) = cluster.objects.volumes.get(&c.volume_name)
    {
        return volume.raw.csi.clone();
    }
    let class = cluster.objects.classes.get(&c.storage_class)?;
    Some((class.raw.provisioner.clone(), format!("claim {}/{}", c.namespace, c.name)))
}

/// Adds the attachable volumes of a pod. `new`: missing claims are an error.
fn attachable(cluster: &Cluster, pod: PodId, new: bool, out: &mut Attached) -> Result<(), Status> {
    let shape = cluster.shape(pod);
    let name = &cluster.pods[pod].name;
    for v in &shape.spec.source.volumes {
        if let Some(claim) = to_come(cluster, pod, v) {
            out.extend(volume_of(cluster, claim).map(|volume| (volume, ())));
            continue;
        }
        let Some((claim_name, ephemeral)) = claim_name(name, v) else { continue };
        let fail = |text: String| Status::unresolvable(text);
        let Some(claim) = find(cluster, shape.namespace, &claim_name) else {
            if new {
                let ns = cluster.strings.text(shape.namespace);
                let text = format!(
                    "looking up PVC {ns}/{claim_name}: persistentvolumeclaim {claim_name:?} not found"
                );
                return Err(fail(text));
            }
            continue;
        };
        if ephemeral && !is_for(cluster, pod, &claim.raw) {
            if new {
                return Err(fail(not_owner(cluster, shape.namespace, &claim_name, name)));
            }
            continue;
        }
        if let Some(volume) = volume_of(cluster, claim) {
            out.insert(volume, ());
        }
    }
    Ok(())
}

/// Message of the ephemeral volume helper for a claim of another owner.
pub(super) fn not_owner(cluster: &Cluster, namespace: Sym, claim: &str, pod: &str) -> String {
    let ns = cluster.strings.text(namespace);
    format!("PVC {ns}/{claim} was not created for pod {ns}/{pod} (pod is not owner)")
}

/// Whether deleting a pod with these volumes may free an attachment; inline disks that CSI drivers have
/// taken over count, as upstream has them.
fn may_attach(volumes: &[plimsoll_state::model::Volume]) -> bool {
    use VolumeSource::{AwsElasticBlockStore, GcePersistentDisk};
    uses_claims(volumes)
        || volumes.iter().any(|v| matches!(v.source, AwsElasticBlockStore { .. } | GcePersistentDisk { .. }))
}

fn uses_claims(volumes: &[plimsoll_state::model::Volume]) -> bool {
    volumes.iter().any(|v| v.source.is_claim())
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("NodeVolumeLimits", &[ExtensionPoint::PreFilter, ExtensionPoint::Filter], |_, _| {
        Box::new(VolumeLimits)
    })
    .by_default(0)
}

impl Plugin for VolumeLimits {
    fn is_local(&self, _cluster: &Cluster, pod: &Incoming) -> bool {
        !uses_volumes(&pod.shape)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        if !uses_claims(&pod.shape.spec.source.volumes) {
            return PreFilterResult::Skip;
        }
        let mut new = Attached::new();
        let new = attachable(cluster, pod.id, true, &mut new).map(|()| new);
        let mut wanted = BTreeMap::new();
        for (driver, _) in new.iter().flat_map(BTreeMap::keys) {
            *wanted.entry(driver.clone()).or_default() += 1;
        }
        PreFilterResult::go(State { new, wanted })
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(EventResource::CsiNode, ActionType::ADD.or(ActionType::UPDATE)),
                ClusterEventWithHint::hinted(EventResource::AssignedPod, ActionType::DELETE),
                ClusterEventWithHint::hinted(EventResource::PersistentVolumeClaim, ActionType::ADD),
                ClusterEventWithHint::hinted(EventResource::VolumeAttachment, ActionType::DELETE),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        match &change.payload {
            Payload::Pod { old: Some(old), .. } => {
                (old.node.is_some() || old.nominated) && may_attach(&old.shape.spec.source.volumes)
            }
            Payload::Object(ObjectChange::CsiNode((Some(old), Some(new)))) => new.drivers.iter().any(|d| {
                // Upstream takes a driver without a limit for one whose limit is 0.
                let before = old.drivers.iter().find(|o| o.name == d.name).and_then(|o| o.limit);
                d.limit.unwrap_or(0) > before.unwrap_or(0)
            }),
            Payload::Object(
                ObjectChange::CsiNode((None, Some(_))) | ObjectChange::Attachment((Some(_), None)),
            ) => true,
            Payload::Object(change) => {
                claim_change(change).is_some_and(|pair| is_own_claim(cluster, pod, pair))
            }
            Payload::Node { .. } | Payload::Pod { .. } => false,
        }
    }
}

impl State {
    /// Whether a driver reaches its limit even if each volume of the node's pods and each attachment were one of its own.
    fn may_exceed(&self, cluster: &Cluster, node: NodeId, csi_node: &CsiNode) -> bool {
        let there = i64::from(cluster.nodes[node].claims)
            + signed(cluster.objects.attachments.count(cluster.strings.text(cluster.nodes[node].name)));
        let mut limits = csi_node.drivers.iter().filter_map(|d| Some((self.wanted.get(&d.name)?, d.limit?)));
        limits.any(|(more, limit)| there + more > limit)
    }
}

impl FilterState for State {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let new = match &self.new {
            Ok(new) => new,
            Err(status) => return status.clone(),
        };
        let name = cluster.strings.text(cluster.nodes[node].name);
        let Some(csi_node) = cluster.objects.csi_nodes.get(name).filter(|_| !new.is_empty()) else {
            return Status::success();
        };
        if !self.may_exceed(cluster, node, csi_node) || fits(cluster, node, new, csi_node) {
            Status::success()
        } else {
            Status::unschedulable(REASON)
        }
    }
}

/// Whether a node can attach these volumes as well.
fn fits(cluster: &Cluster, node: NodeId, new: &Attached, csi_node: &CsiNode) -> bool {
    let limits: BTreeMap<&str, i64> =
        csi_node.drivers.iter().filter_map(|d| Some((d.name.as_str(), d.limit?))).insert_each();
    let mut attached = Attached::new();
    for other in &cluster.nodes[node].pods {
        // Claims of other pods that are missing count for nothing.
        let _ = attachable(cluster, *other, false, &mut attached);
    }
    let mut wanted: BTreeMap<&str, i64> = BTreeMap::new();
    for volume in new.keys().filter(|v| !attached.contains_key(*v)) {
        *wanted.entry(&volume.0).or_default() += 1;
    }
    // A new volume that is attached already but used by no pod of the node counts twice, as upstream.
    let name = cluster.strings.text(cluster.nodes[node].name);
    for a in cluster.objects.attachments.on(name).filter(|a| !a.attacher.is_empty()) {
        let volume = a.volume.as_ref().and_then(|v| cluster.objects.volumes.get(v));
        if let Some((_, handle)) = volume.and_then(|v| v.raw.csi.as_ref()) {
            attached.insert((a.attacher.clone(), handle.clone()), ());
        }
    }
    wanted.into_iter().all(|(driver, more)| {
        let there = signed(attached.keys().filter(|(d, _)| d == driver).count());
        limits.get(driver).is_none_or(|limit| there + more <= *limit)
    })
}
