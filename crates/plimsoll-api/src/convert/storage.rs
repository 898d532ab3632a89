//! Volumes, claims and classes.

use super::selector::{label_selector, node_selector};
use super::{Result, amount, bad, decode, names, owners, required, string_map};
use crate::lean::meta::RawResources;
use crate::lean::storage as lean;
use plimsoll_state::model::{
    AccessMode, BindingMode, ClaimRef, CsiDriver, CsiNode, CsiNodeDriver, PersistentVolume,
    PersistentVolumeClaim, StorageCapacity, StorageClass, VolumeAttachment, VolumeClaimTemplate,
};

/// Old way to name a storage class.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Annotations of the class of claims that name none (`storage/v1/util/helpers.go`).
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

fn modes(list: Option<Vec<String>>) -> Result<Vec<AccessMode>> {
    let one = |m: String| match m.as_str() {
        "ReadWriteOnce" => Ok(AccessMode::ReadWriteOnce),
        "ReadOnlyMany" => Ok(AccessMode::ReadOnlyMany),
        "ReadWriteMany" => Ok(AccessMode::ReadWriteMany),
        "ReadWriteOncePod" => Ok(AccessMode::ReadWriteOncePod),
        other => bad("spec.accessModes", format!("Unsupported value: {other:?}")),
    };
    list.unwrap_or_default().into_iter().map(one).collect()
}

fn size(field: &str, raw: RawResources) -> Result<Option<i64>> {
    Ok(amount::resources(field, raw)?.get("storage").copied())
}

pub(super) fn volume(bytes: &[u8]) -> Result<PersistentVolume> {
    let raw: lean::Volume = decode("PersistentVolume", bytes)?;
    let spec = raw.spec;
    let annotations = string_map(raw.metadata.annotations);
    let class = annotations.get(CLASS_ANNOTATION).cloned();
    let csi = spec.csi.map(|c| (c.driver.unwrap_or_default(), c.volume_handle.unwrap_or_default()));
    Ok(PersistentVolume {
        name: required("metadata.name", raw.metadata.name)?,
        labels: string_map(raw.metadata.labels),
        deleting: raw.metadata.deletion_timestamp.is_some(),
        capacity: size("spec.capacity", spec.capacity)?.unwrap_or(0),
        access_modes: modes(spec.access_modes)?,
        claim: spec.claim_ref.map(|c| ClaimRef {
            namespace: c.namespace.unwrap_or_default(),
            name: c.name.unwrap_or_default(),
            uid: c.uid.unwrap_or_default(),
        }),
        storage_class: class.or(spec.storage_class_name).unwrap_or_default(),
        attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
        node_affinity: spec
            .node_affinity
            .and_then(|a| a.required)
            .map(|r| node_selector("spec.nodeAffinity.required", r))
            .transpose()?,
        csi,
        available: raw.status.and_then(|s| s.phase).as_deref() == Some("Available"),
    })
}

pub(super) fn claim(bytes: &[u8]) -> Result<PersistentVolumeClaim> {
    let mut raw: lean::Claim = decode("PersistentVolumeClaim", bytes)?;
    let annotations = string_map(raw.metadata.annotations.take());
    let (uid, deleting) = (raw.metadata.uid.take(), raw.metadata.deletion_timestamp.is_some());
    let owners = owners(raw.metadata.owner_references.take());
    let (namespace, name) = names(raw.metadata)?;
    let spec = raw.spec;
    let class = annotations.get(CLASS_ANNOTATION).cloned();
    Ok(PersistentVolumeClaim {
        namespace,
        name,
        uid: uid.unwrap_or_default(),
        owners,
        deleting,
        access_modes: modes(spec.access_modes)?,
        request: size("spec.resources.requests", spec.resources.and_then(|r| r.requests))?,
        storage_class: class.or(spec.storage_class_name).unwrap_or_default(),
        attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
        volume_name: spec.volume_name.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
        selector: spec.selector.map(|s| label_selector("spec.selector", s)).transpose()?,
        bind_completed: annotations.contains_key("pv.kubernetes.io/bind-completed"),
        selected_node: annotations.get("volume.kubernetes.io/selected-node").cloned(),
        lost: raw.status.and_then(|s| s.phase).as_deref() == Some("Lost"),
    })
}

/// What the claim of a generic ephemeral volume is made from.
pub(super) fn claim_template(spec: lean::ClaimSpec) -> Result<VolumeClaimTemplate> {
    Ok(VolumeClaimTemplate {
        access_modes: modes(spec.access_modes)?,
        request: size(
            "volumeClaimTemplate.spec.resources.requests",
            spec.resources.and_then(|r| r.requests),
        )?,
        storage_class: spec.storage_class_name,
        attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
        selector: spec
            .selector
            .map(|s| label_selector("volumeClaimTemplate.spec.selector", s))
            .transpose()?,
    })
}

pub(super) fn class(bytes: &[u8]) -> Result<StorageClass> {
    let mut raw: lean::StorageClass = decode("StorageClass", bytes)?;
    let annotations = string_map(raw.metadata.annotations.take());
    let pair = |r: lean::TopologyRequirement| (r.key.unwrap_or_default(), r.values.unwrap_or_default());
    let term =
        |t: lean::TopologyTerm| t.match_label_expressions.unwrap_or_default().into_iter().map(pair).collect();
    Ok(StorageClass {
        name: required("metadata.name", raw.metadata.name)?,
        provisioner: raw.provisioner.unwrap_or_default(),
        binding_mode: match raw.volume_binding_mode.as_deref() {
            None | Some("") => None,
            Some("Immediate") => Some(BindingMode::Immediate),
            Some("WaitForFirstConsumer") => Some(BindingMode::WaitForFirstConsumer),
            Some(other) => return bad("volumeBindingMode", format!("Unsupported value: {other:?}")),
        },
        allowed_topologies: raw.allowed_topologies.unwrap_or_default().into_iter().map(term).collect(),
        default: DEFAULT_CLASS.iter().any(|key| annotations.get(*key).is_some_and(|value| value == "true")),
    })
}

pub(super) fn csi_node(bytes: &[u8]) -> Result<CsiNode> {
    let raw: lean::CsiNode = decode("CSINode", bytes)?;
    let annotations = string_map(raw.metadata.annotations);
    let driver = |d: lean::CsiNodeDriver| CsiNodeDriver {
        name: d.name.unwrap_or_default(),
        limit: d.allocatable.and_then(|a| a.count),
    };
    Ok(CsiNode {
        name: required("metadata.name", raw.metadata.name)?,
        drivers: raw.spec.drivers.unwrap_or_default().into_iter().map(driver).collect(),
        migrated_plugins: annotations
            .get("storage.alpha.kubernetes.io/migrated-plugins")
            .cloned()
            .unwrap_or_default(),
    })
}

pub(super) fn csi_driver(bytes: &[u8]) -> Result<CsiDriver> {
    let raw: lean::CsiDriver = decode("CSIDriver", bytes)?;
    Ok(CsiDriver {
        name: required("metadata.name", raw.metadata.name)?,
        storage_capacity: raw.spec.storage_capacity.unwrap_or(false),
    })
}

pub(super) fn capacity(bytes: &[u8]) -> Result<StorageCapacity> {
    let raw: lean::StorageCapacity = decode("CSIStorageCapacity", bytes)?;
    let (namespace, name) = names(raw.metadata)?;
    let bytes_of = |field: &str, q: Option<crate::lean::meta::RawQuantity>| {
        q.map(|q| amount::amount(field, "storage", &q)).transpose()
    };
    Ok(StorageCapacity {
        namespace,
        name,
        storage_class: raw.storage_class_name.unwrap_or_default(),
        topology: raw.node_topology.map(|t| label_selector("nodeTopology", t)).transpose()?,
        capacity: bytes_of("capacity", raw.capacity)?,
        maximum_volume_size: bytes_of("maximumVolumeSize", raw.maximum_volume_size)?,
    })
}

pub(super) fn attachment(bytes: &[u8]) -> Result<VolumeAttachment> {
    let raw: lean::Attachment = decode("VolumeAttachment", bytes)?;
    Ok(VolumeAttachment {
        name: required("metadata.name", raw.metadata.name)?,
        attacher: raw.spec.attacher.unwrap_or_default(),
        node: raw.spec.node_name.unwrap_or_default(),
        volume: raw.spec.source.and_then(|s| s.persistent_volume_name),
    })
}
