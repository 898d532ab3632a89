//! Objects besides nodes and pods that placement looks at.

use super::device;
use super::selector::label_selector;
use super::storage;
use super::{ConvertError, Result, bad, decode, names, required, string_map};
use crate::lean::objects as lean;
use plimsoll_state::model::{LabelSelector, Operator, OwnerKind, Requirement, StringMap};
use plimsoll_state::{ClusterObject, ClusterObjectKind};

/// An object of `kind` from its JSON bytes; `None` for kinds that are no [`ClusterObjectKind`].
///
/// # Errors
/// When the bytes are not of that kind, or a field has a value that can't be understood.
pub fn cluster_object(kind: &str, bytes: &[u8]) -> std::result::Result<Option<ClusterObject>, ConvertError> {
    let Some(kind) = ClusterObjectKind::from_name(kind) else { return Ok(None) };
    Ok(Some(match kind {
        ClusterObjectKind::Namespace => {
            let raw: lean::Namespace = decode("Namespace", bytes)?;
            ClusterObject::Namespace {
                name: required("metadata.name", raw.metadata.name)?,
                labels: string_map(raw.metadata.labels),
            }
        }
        ClusterObjectKind::Service => {
            let raw: lean::Paired = decode("Service", bytes)?;
            let (namespace, name) = names(raw.metadata)?;
            let selector = string_map(raw.spec.unwrap_or_default().selector);
            ClusterObject::Service { namespace, name, selector }
        }
        ClusterObjectKind::Workload(kind @ OwnerKind::ReplicationController) => {
            let raw: lean::Paired = decode("ReplicationController", bytes)?;
            let uid = raw.metadata.uid.clone().unwrap_or_default();
            let (namespace, name) = names(raw.metadata)?;
            let selector = of_pairs(string_map(raw.spec.unwrap_or_default().selector));
            ClusterObject::Workload { kind, namespace, name, uid, selector }
        }
        ClusterObjectKind::Workload(kind @ (OwnerKind::ReplicaSet | OwnerKind::StatefulSet)) => {
            let raw: lean::Selecting = decode("ReplicaSet or StatefulSet", bytes)?;
            let uid = raw.metadata.uid.clone().unwrap_or_default();
            let (namespace, name) = names(raw.metadata)?;
            let selector = selector(raw.spec)?.unwrap_or_default();
            ClusterObject::Workload { kind, namespace, name, uid, selector }
        }
        ClusterObjectKind::Budget => {
            let raw: lean::Budget = decode("PodDisruptionBudget", bytes)?;
            let (namespace, name) = names(raw.metadata)?;
            let status = raw.status.unwrap_or_default();
            ClusterObject::Budget {
                namespace,
                name,
                selector: selector(raw.spec)?,
                allowed: status.disruptions_allowed.unwrap_or(0),
                disrupted: status.disrupted_pods.unwrap_or_default().into_keys().collect(),
            }
        }
        ClusterObjectKind::PodGroup => {
            let raw: lean::PodGroup = decode("PodGroup", bytes)?;
            let (namespace, name) = names(raw.metadata)?;
            let spec = raw.spec.unwrap_or_default();
            let topology = spec.scheduling_constraints.and_then(|c| c.topology).unwrap_or_default();
            let topology_key = topology.into_iter().next().map(|t| t.key);
            let gang = spec.scheduling_policy.and_then(|p| p.gang);
            let min_count = match gang {
                None => None,
                Some(g) => match u32::try_from(g.min_count.unwrap_or(0)) {
                    Ok(n) if n > 0 => Some(n),
                    _ => {
                        return bad(
                            "spec.schedulingPolicy.gang.minCount",
                            "must be greater than or equal to 1",
                        );
                    }
                },
            };
            ClusterObject::PodGroup { namespace, name, min_count, topology_key }
        }
        ClusterObjectKind::Volume => ClusterObject::Volume(storage::volume(bytes)?),
        ClusterObjectKind::Claim => ClusterObject::Claim(storage::claim(bytes)?),
        ClusterObjectKind::StorageClass => ClusterObject::StorageClass(storage::class(bytes)?),
        ClusterObjectKind::CsiNode => ClusterObject::CsiNode(storage::csi_node(bytes)?),
        ClusterObjectKind::CsiDriver => ClusterObject::CsiDriver(storage::csi_driver(bytes)?),
        ClusterObjectKind::StorageCapacity => ClusterObject::StorageCapacity(storage::capacity(bytes)?),
        ClusterObjectKind::DeviceClaim => ClusterObject::DeviceClaim(device::claim(bytes)?),
        ClusterObjectKind::DeviceClaimTemplate => {
            ClusterObject::DeviceClaimTemplate(device::claim_template(bytes)?)
        }
        ClusterObjectKind::DeviceSlice => ClusterObject::DeviceSlice(device::slice(bytes)?),
        ClusterObjectKind::DeviceClass => ClusterObject::DeviceClass(device::class(bytes)?),
        ClusterObjectKind::VolumeAttachment => ClusterObject::VolumeAttachment(storage::attachment(bytes)?),
    }))
}

fn selector(spec: Option<lean::SelectingSpec>) -> Result<Option<LabelSelector>> {
    spec.and_then(|s| s.selector).map(|s| label_selector("spec.selector", s)).transpose()
}

fn of_pairs(pairs: StringMap) -> LabelSelector {
    let one = |(key, value)| Requirement { key, operator: Operator::In, values: vec![value] };
    LabelSelector { requirements: pairs.into_iter().map(one).collect() }
}
