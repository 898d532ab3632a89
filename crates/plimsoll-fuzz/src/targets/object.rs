//! Single objects on their way to the engine.

use plimsoll_api::{convert, kueue};
use serde_json::Value;

const KINDS: &[&str] = &[
    "Namespace",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "PodDisruptionBudget",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "VolumeAttachment",
    "PodGroup",
];

/// Converts an object that placement looks at, as its own kind and as every other.
pub fn placement(bytes: &[u8]) {
    let _ = convert::node(bytes);
    let _ = convert::pod(bytes);
    for kind in KINDS {
        let _ = convert::cluster_object(kind, bytes);
    }
}

/// Converts an object that queueing looks at, between versions and for the engine.
pub fn queueing(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    let _ = kueue::upsert_event(&object);
    for version in ["v1beta1", "v1beta2"] {
        let _ = kueue::upsert_event(&kueue::convert::convert(object.clone(), version));
    }
    let _ = kueue::role_hash(&object["spec"]["podSets"][0]["template"]["spec"]);
}
