//! VolumeRestrictions: disks and claims that can't be shared (upstream
//! `plugins/volumerestrictions/volume_restrictions.go`).

use super::volumes::{claim_change, claim_name, find, is_own_claim, uses_volumes};
use crate::cluster::spec::Spec;
use crate::cluster::{Cluster, NodeId, PodId, Shape};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration, Status,
};
use plimsoll_state::cast::signed;
use plimsoll_state::intern::Sym;
use plimsoll_state::model::{AccessMode, Volume, VolumeSource};
use std::sync::Arc;

const REASON_DISK: &str = "node(s) had no available disk";
const REASON_ONCE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
                           already in-use by another pod";

/// The plugin.
#[derive(Debug)]
pub(crate) struct VolumeRestrictions;

#[derive(Debug)]
struct State {
    spec: Arc<Spec>,
    namespace: Sym,
    /// Claims for one pod only.
    once: Vec<String>,
    /// How many uses of them by other pods there are.
    in_use: i64,
}

fn is_disk(v: &Volume) -> bool {
    matches!(
        v.source,
        VolumeSource::GcePersistentDisk { .. }
            | VolumeSource::AwsElasticBlockStore { .. }
            | VolumeSource::Iscsi { .. }
            | VolumeSource::Rbd { .. }
    )
}

/// Whether two inline disks can't be on one node at once.
fn disks_conflict(a: &VolumeSource, b: &VolumeSource) -> bool {
    use VolumeSource as V;
    match a {
        V::GcePersistentDisk { name: a, read_only: ro } => {
            matches!(b, V::GcePersistentDisk { name, read_only } if a == name && !(*ro && *read_only))
        }
        V::AwsElasticBlockStore { id: a, .. } => {
            matches!(b, V::AwsElasticBlockStore { id, .. } if a == id)
        }
        V::Iscsi { iqn: a, read_only: ro } => {
            matches!(b, V::Iscsi { iqn, read_only } if a == iqn && !(*ro && *read_only))
        }
        V::Rbd { monitors: am, pool: ap, image: ai, read_only: ro } => matches!(
            b,
            V::Rbd { monitors, pool, image, read_only }
                if am.iter().any(|m| monitors.contains(m)) && ap == pool && ai == image && !(*ro && *read_only)
        ),
        V::Claim { .. } | V::Ephemeral(_) | V::Csi { .. } | V::Image { .. } => false,
    }
}

fn any_conflict(a: &[Volume], b: &[Volume]) -> bool {
    a.iter().any(|x| b.iter().any(|y| disks_conflict(&x.source, &y.source)))
}

/// Claims named in volumes, without generated ones.
fn named_claims(shape: &Shape) -> impl Iterator<Item = &str> {
    shape.spec.source.volumes.iter().filter_map(|v| match &v.source {
        VolumeSource::Claim { name, .. } => Some(name.as_str()),
        VolumeSource::Ephemeral(_)
        | VolumeSource::Csi { .. }
        | VolumeSource::GcePersistentDisk { .. }
        | VolumeSource::AwsElasticBlockStore { .. }
        | VolumeSource::Iscsi { .. }
        | VolumeSource::Rbd { .. }
        | VolumeSource::Image { .. } => None,
    })
}

fn uses(shape: &Shape, namespace: Sym, names: &[String]) -> usize {
    if shape.namespace != namespace {
        return 0;
    }
    named_claims(shape).filter(|n| names.iter().any(|o| o == n)).count()
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("VolumeRestrictions", &[ExtensionPoint::PreFilter, ExtensionPoint::Filter], |_, _| {
        Box::new(VolumeRestrictions)
    })
    .by_default(0)
}

impl Plugin for VolumeRestrictions {
    fn is_local(&self, _cluster: &Cluster, pod: &Incoming) -> bool {
        !uses_volumes(&pod.shape)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let volumes = &pod.shape.spec.source.volumes;
        let namespace = pod.shape.namespace;
        let mut once = Vec::new();
        for name in named_claims(&pod.shape) {
            let Some(claim) = find(cluster, namespace, name) else {
                let text = format!("persistentvolumeclaim {name:?} not found");
                return PreFilterResult::Reject(Status::unresolvable(text));
            };
            if claim.raw.access_modes.contains(&AccessMode::ReadWriteOncePod) {
                once.push(name.to_owned());
            }
        }
        once.sort_unstable();
        once.dedup();
        let mut in_use = 0;
        for name in &once {
            let used = |s: &Shape| uses(s, namespace, std::slice::from_ref(name)) > 0;
            // Upstream's index of used claims counts a claim once, however many pods use it.
            in_use +=
                i64::from(cluster.pods.iter().any(|(id, p)| p.node.is_some() && used(cluster.shape(id))));
        }
        if in_use == 0 && !volumes.iter().any(is_disk) {
            return PreFilterResult::Skip;
        }
        PreFilterResult::go(State { spec: Arc::clone(&pod.shape.spec), namespace, once, in_use })
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(EventResource::AssignedPod, ActionType::DELETE),
                ClusterEventWithHint::always(EventResource::Node, ActionType::ADD),
                ClusterEventWithHint::hinted(EventResource::PersistentVolumeClaim, ActionType::ADD),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let shape = cluster.shape(pod);
        match &change.payload {
            Payload::Pod { old: Some(old), .. } => {
                let name = &cluster.pods[pod].name;
                let mine = shape.spec.source.volumes.iter().filter_map(|v| claim_name(name, v));
                let mine: Vec<String> = mine.map(|(n, _)| n).collect();
                old.shape.namespace == shape.namespace
                    && (any_conflict(&shape.spec.source.volumes, &old.shape.spec.source.volumes)
                        || uses(&old.shape, shape.namespace, &mine) > 0)
            }
            Payload::Object(change) => {
                claim_change(change).is_some_and(|pair| is_own_claim(cluster, pod, pair))
            }
            Payload::Node { .. } | Payload::Pod { .. } => false,
        }
    }
}

impl FilterState for State {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let mine = &self.spec.source.volumes;
        if mine.iter().any(is_disk) {
            for other in &cluster.nodes[node].pods {
                if any_conflict(mine, &cluster.shape(*other).spec.source.volumes) {
                    return Status::unschedulable(REASON_DISK);
                }
            }
        }
        if self.in_use > 0 {
            return Status::unschedulable(REASON_ONCE);
        }
        Status::success()
    }

    fn add_pod(&mut self, cluster: &Cluster, other: PodId, _node: NodeId) {
        self.in_use += signed(uses(cluster.shape(other), self.namespace, &self.once));
    }

    fn remove_pod(&mut self, cluster: &Cluster, other: PodId, _node: NodeId) {
        self.in_use -= signed(uses(cluster.shape(other), self.namespace, &self.once));
    }
}
