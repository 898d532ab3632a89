//! What the volume plugins share: which claims a pod uses.

use crate::cluster::Pair;
use crate::cluster::objects::{Claim, ObjectChange};
use crate::cluster::{Cluster, PodId, Shape};
use plimsoll_state::intern::Sym;
use plimsoll_state::model::{BindingMode, PersistentVolumeClaim, Volume, VolumeSource};
use std::sync::Arc;

/// Whether any volume is more than the content of an image.
pub(super) fn uses_volumes(shape: &Shape) -> bool {
    shape.spec.source.volumes.iter().any(|v| !matches!(v.source, VolumeSource::Image { .. }))
}

/// The claim that a volume of a pod uses, and whether it is made for the pod.
pub(super) fn claim_name(pod: &str, volume: &Volume) -> Option<(String, bool)> {
    match &volume.source {
        VolumeSource::Claim { name, .. } => Some((name.clone(), false)),
        VolumeSource::Ephemeral(_) => Some((format!("{pod}-{}", volume.name), true)),
        VolumeSource::Csi { .. }
        | VolumeSource::GcePersistentDisk { .. }
        | VolumeSource::AwsElasticBlockStore { .. }
        | VolumeSource::Iscsi { .. }
        | VolumeSource::Rbd { .. }
        | VolumeSource::Image { .. } => None,
    }
}

/// The claim that will be made for a volume of a pod that does not exist yet.
pub(super) fn to_come<'a>(cluster: &'a Cluster, pod: PodId, volume: &Volume) -> Option<&'a Arc<Claim>> {
    cluster.to_come.get(&pod)?.volume_claim(&volume.name)
}

/// All claims that a pod uses, by name.
pub(super) fn claim_names(cluster: &Cluster, pod: PodId) -> impl Iterator<Item = (String, bool)> + '_ {
    let name = &cluster.pods[pod].name;
    let volumes = &cluster.shape(pod).spec.source.volumes;
    volumes.iter().filter_map(move |v| claim_name(name, v))
}

/// Whether a claim was made for the pod (ephemeral helper `VolumeIsForPod`).
pub(super) fn is_for(cluster: &Cluster, pod: PodId, claim: &PersistentVolumeClaim) -> bool {
    let uid = &*cluster.pods[pod].uid;
    claim.owners.iter().any(|o| o.controller && o.uid == uid)
}

/// Whether the claim's class waits for the first pod; an error when the class has no binding mode.
pub(super) fn waits_for_consumer(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Result<bool, String> {
    if claim.storage_class.is_empty() {
        return Ok(false);
    }
    match cluster.objects.classes.get(&claim.storage_class) {
        None => Ok(false),
        Some(class) => match class.raw.binding_mode {
            None => Err(format!("VolumeBindingMode not set for StorageClass {:?}", claim.storage_class)),
            Some(mode) => Ok(mode == BindingMode::WaitForFirstConsumer),
        },
    }
}

/// Whether the change is about a claim that the pod uses.
pub(super) fn is_own_claim(cluster: &Cluster, pod: PodId, pair: &Pair<Claim>) -> bool {
    let Some(claim) = pair.1.as_ref().or(pair.0.as_ref()) else { return false };
    cluster.strings.get(&claim.raw.namespace) == Some(cluster.shape(pod).namespace)
        && claim_names(cluster, pod).any(|(n, _)| n == claim.raw.name)
}

/// The claim of a change, if it is one.
pub(super) fn claim_change(change: &ObjectChange) -> Option<&Pair<Claim>> {
    match change {
        ObjectChange::Claim(pair) => Some(pair),
        ObjectChange::Volume(_)
        | ObjectChange::Class(_)
        | ObjectChange::CsiNode(_)
        | ObjectChange::CsiDriver(_)
        | ObjectChange::Capacity(_)
        | ObjectChange::Attachment(_)
        | ObjectChange::DeviceClaim(_)
        | ObjectChange::DeviceSlice(_)
        | ObjectChange::DeviceClass(_)
        | ObjectChange::PodGroup(..) => None,
    }
}

/// A claim of the pod's namespace.
pub(super) fn find<'a>(cluster: &'a Cluster, namespace: Sym, name: &str) -> Option<&'a Arc<Claim>> {
    cluster.objects.claim(namespace, name)
}
