//! VolumeZone: zone and region labels of bound volumes (upstream `plugins/volumezone/volume_zone.go`).

use super::volumes::{claim_change, find, is_own_claim, uses_volumes};
use crate::cluster::objects::{ObjectChange, Volume};
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration, Status,
};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::intern::{Interner, Sym};
use plimsoll_state::model::{BindingMode, VolumeSource};
use std::collections::BTreeSet;

const REASON: &str = "node(s) had no available volume zone";

/// Topology labels with the present names of old ones.
const KEYS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// The plugin with its label keys.
#[derive(Debug)]
pub(crate) struct VolumeZone([(Sym, Sym); 4]);

#[derive(Debug)]
struct State {
    keys: [(Sym, Sym); 4],
    /// Label key, its present name, and the values that will do.
    wanted: Vec<(Sym, Sym, BTreeSet<String>)>,
}

impl VolumeZone {
    pub(crate) fn new(strings: &mut Interner) -> Self {
        Self(KEYS.map(|(k, ga)| (strings.intern(k), strings.intern(ga))))
    }

    fn topology(&self, cluster: &Cluster, volume: &Volume, out: &mut Vec<(Sym, Sym, BTreeSet<String>)>) {
        for (key, ga) in self.0 {
            let Some(value) = volume.labels.get(key) else { continue };
            // Several zones are joined by `__`; an empty part makes the label useless.
            let parts: BTreeSet<String> =
                cluster.strings.text(value).split("__").map(|p| p.trim().to_owned()).insert_each();
            if !parts.contains("") {
                out.push((key, ga, parts));
            }
        }
    }

    fn reject(&self, text: String) -> PreFilterResult {
        PreFilterResult::Reject(Status::unresolvable(text))
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("VolumeZone", &[ExtensionPoint::PreFilter, ExtensionPoint::Filter], |_, handle| {
        Box::new(VolumeZone::new(handle.strings()))
    })
    .by_default(0)
}

impl Plugin for VolumeZone {
    fn is_local(&self, _cluster: &Cluster, pod: &Incoming) -> bool {
        !uses_volumes(&pod.shape)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let mut wanted = Vec::new();
        for v in &pod.shape.spec.source.volumes {
            let VolumeSource::Claim { name, .. } = &v.source else { continue };
            if name.is_empty() {
                return self.reject("PersistentVolumeClaim had no name".to_owned());
            }
            let Some(claim) = find(cluster, pod.shape.namespace, name) else {
                return self.reject(format!("persistentvolumeclaim {name:?} not found"));
            };
            let volume = &claim.raw.volume_name;
            if volume.is_empty() {
                let class = &claim.raw.storage_class;
                if class.is_empty() {
                    return self
                        .reject("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
                }
                match cluster.objects.classes.get(class).map(|c| c.raw.binding_mode) {
                    None => {
                        return self.reject(format!("storageclass.storage.k8s.io {class:?} not found"));
                    }
                    Some(None) => {
                        return self.reject(format!("VolumeBindingMode not set for StorageClass {class:?}"));
                    }
                    Some(Some(BindingMode::WaitForFirstConsumer)) => continue,
                    Some(Some(BindingMode::Immediate)) => {
                        return self.reject("PersistentVolume had no name".to_owned());
                    }
                }
            }
            let Some(volume) = cluster.objects.volumes.get(volume) else {
                return self.reject(format!("persistentvolume {volume:?} not found"));
            };
            self.topology(cluster, volume, &mut wanted);
        }
        if wanted.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::go(State { keys: self.0, wanted })
        }
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(EventResource::StorageClass, ActionType::ADD),
                ClusterEventWithHint::always(EventResource::Node, ActionType::ADD.or(ActionType::NODE_LABEL)),
                ClusterEventWithHint::hinted(
                    EventResource::PersistentVolumeClaim,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
                ClusterEventWithHint::hinted(
                    EventResource::PersistentVolume,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let Payload::Object(change) = &change.payload else { return false };
        match change {
            ObjectChange::Class((_, Some(class))) => {
                class.raw.binding_mode == Some(BindingMode::WaitForFirstConsumer)
            }
            ObjectChange::Volume((None, Some(_))) => true,
            ObjectChange::Volume((Some(old), Some(new))) => {
                self.0.iter().any(|(k, _)| old.labels.get(*k) != new.labels.get(*k))
            }
            other @ (ObjectChange::Volume(_)
            | ObjectChange::Claim(_)
            | ObjectChange::Class(_)
            | ObjectChange::CsiNode(_)
            | ObjectChange::CsiDriver(_)
            | ObjectChange::Capacity(_)
            | ObjectChange::Attachment(_)
            | ObjectChange::DeviceClaim(_)
            | ObjectChange::DeviceSlice(_)
            | ObjectChange::DeviceClass(_)
            | ObjectChange::PodGroup(..)) => {
                claim_change(other).is_some_and(|pair| is_own_claim(cluster, pod, pair))
            }
        }
    }
}

impl FilterState for State {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let labels = &cluster.nodes[node].info.labels;
        if self.keys.iter().all(|(k, _)| labels.get(*k).is_none()) {
            return Status::success();
        }
        for (key, ga, values) in &self.wanted {
            let value = labels.get(*key).or_else(|| labels.get(*ga));
            if !value.is_some_and(|v| values.contains(cluster.strings.text(v))) {
                return Status::unresolvable(REASON);
            }
        }
        Status::success()
    }
}
