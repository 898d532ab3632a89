//! core/v1 `PersistentVolume`, also inside of a `VolumeAttachment`.

use serde_json::Value;

use super::claim::{access_modes, class_name, positive, volume_mode};
use super::path::{Errors, Path};
use super::source::{self, Holder};
use super::{checks, golang, pod, resources};
use crate::obj::{Obj, has, list, object, text};

/// Sources of persistent volumes, in upstream's order.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Sources that know mount options (`checkMountOption`).
const MOUNTABLE: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// core/v1 `PersistentVolume`.
pub(super) fn volume(volume: &Obj, errors: &mut Errors) {
    let spec = object(volume, "spec");
    let meta = object(volume, "metadata");
    let path = Path::new("spec");
    if list(spec, "accessModes").is_empty() {
        errors.required(&path.field("accessModes"), "");
    }
    access_modes(spec, &path, errors);
    capacity(spec, &path, errors);
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    let at = path.field("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&at, policy, &["Delete", "Recycle", "Retain"]);
    }
    if has(spec, "nodeAffinity") {
        let affinity = path.field("nodeAffinity");
        match object(spec, "nodeAffinity").get("required").and_then(Value::as_object) {
            Some(required) => pod::node_selector(required, &affinity.field("required"), errors),
            None => errors.required(&affinity.field("required"), "must specify required node constraints"),
        }
    }
    sources(spec, text(meta, "name"), false, &path, errors);
    if policy == "Recycle" && is_root(text(object(spec, "hostPath"), "path")) {
        errors.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
    }
    class_name(spec, "storageClassName", &path, errors);
    volume_mode(spec, &path, errors);
    if let Some(class) = spec.get("volumeAttributesClassName").and_then(Value::as_str) {
        if class.is_empty() {
            errors.required(&path.field("volumeAttributesClassName"), "an empty string is disallowed");
        }
        class_name(spec, "volumeAttributesClassName", &path, errors);
        if !has(spec, "csi") {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.required(&path.field("csi"), detail);
        }
    }
    let annotated = object(meta, "annotations").contains_key(MOUNT_OPTIONS);
    if annotated && !MOUNTABLE.iter().any(|key| has(spec, key)) {
        let meta = Path::new("metadata");
        let annotations = meta.field("annotations");
        let detail = "may not specify mount options for this volume type";
        errors.forbidden(&annotations.field(MOUNT_OPTIONS), detail);
    }
}

/// The inline volume of an attachment: a CSI volume without a claim (`ValidatePersistentVolumeSpec`, inline).
pub(super) fn inline(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const CONTEXT: &str = "in the context of inline volumes";
    let never = |key: &str, set: bool, errors: &mut Errors| {
        if set {
            errors.forbidden(&path.field(key), &format!("may not be specified {CONTEXT}"));
        }
    };
    never("claimRef", has(spec, "claimRef"), errors);
    never("capacity", !object(spec, "capacity").is_empty(), errors);
    if !has(spec, "csi") {
        errors.required(&path.field("csi"), &format!("has to be specified {CONTEXT}"));
    }
    if list(spec, "accessModes").is_empty() {
        errors.required(&path.field("accessModes"), "");
    }
    access_modes(spec, path, errors);
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() && policy != "Retain" {
        let at = path.field("persistentVolumeReclaimPolicy");
        errors.forbidden(&at, &format!("may only be Retain {CONTEXT}"));
    }
    never("nodeAffinity", has(spec, "nodeAffinity"), errors);
    sources(spec, "", true, path, errors);
    if policy == "Recycle" && is_root(text(object(spec, "hostPath"), "path")) {
        let at = path.field("persistentVolumeReclaimPolicy");
        errors.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
    }
    never("storageClassName", !text(spec, "storageClassName").is_empty(), errors);
    let mode = text(spec, "volumeMode");
    if !mode.is_empty() && mode != "Filesystem" {
        let detail = format!("may not specify volumeMode other than Filesystem {CONTEXT}");
        errors.forbidden(&path.field("volumeMode"), &detail);
    }
}

fn capacity(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let capacity = object(spec, "capacity");
    let at = path.field("capacity");
    if capacity.is_empty() {
        errors.required(&at, "");
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        errors.not_supported(&at, spec.get("capacity").cloned().unwrap_or_default(), &["storage"]);
    }
    for (name, value) in capacity {
        let at = at.key(name);
        resources::basic(value, &at, errors);
        positive(value, &at, errors);
    }
}

/// One source, and that one well formed.
fn sources(spec: &Obj, name: &str, inline: bool, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for key in SOURCES {
        let Some(source) = spec.get(key).and_then(Value::as_object) else { continue };
        // Upstream checks these also when there are other sources.
        if found && key != "flexVolume" {
            let shown = if key == "cephfs" { "cephFS" } else { key };
            errors.forbidden(&path.field(shown), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let at = path.field(if key == "gcePersistentDisk" { "persistentDisk" } else { key });
        match key {
            "csi" => csi(source, &at, errors),
            "local" => {
                local(source, &at, errors);
                if inline || !has(spec, "nodeAffinity") {
                    errors.required(&path.field("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            _ => source::source(key, source, Holder::Volume(name), &at, errors),
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn local(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let target = text(source, "path");
    if target.is_empty() {
        errors.required(&path.field("path"), "");
    } else {
        source::no_backsteps(target, &path.field("path"), errors);
    }
}

fn csi(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    source::driver_name(text(source, "driver"), &path.field("driver"), errors);
    source::required(source, &["volumeHandle"], path, errors);
    for key in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        if !has(source, key) {
            continue;
        }
        let (secret, at) = (object(source, key), path.field(key));
        errors.named(&at.field("name"), text(secret, "name"), checks::dns_subdomain);
        errors.named(&at.field("namespace"), text(secret, "namespace"), checks::dns_label);
    }
}

/// Whether a path is that of the root (`path.Clean`).
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

/// The source and mode of a volume are immutable, and so is its node affinity once set.
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    let same = |key: &str| {
        if key == "csi" && has(object(before, key), "controllerExpandSecretRef") {
            return before.get(key) == after.get(key);
        }
        let mut is = after.get(key).cloned();
        if let Some(csi) =
            is.as_mut().and_then(Value::as_object_mut).filter(|_| key == "csi" && has(before, key))
        {
            // It may be added later.
            csi.remove("controllerExpandSecretRef");
        }
        before.get(key) == is.as_ref()
    };
    if !SOURCES.iter().all(|key| same(key)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&path.field("persistentvolumesource"), detail);
    }
    errors.immutable(&Path::new("volumeMode"), before, after, "volumeMode");
    if has(before, "nodeAffinity") && !same_affinity(before.get("nodeAffinity"), after.get("nodeAffinity")) {
        let value = golang::shown("*VolumeNodeAffinity", after.get("nodeAffinity"));
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.invalid_text(&Path::new("nodeAffinity"), value, detail);
    }
    if has(before, "volumeAttributesClassName") && !has(after, "volumeAttributesClassName") {
        let detail = "update from non-nil value to nil is forbidden";
        errors.forbidden(&path.field("volumeAttributesClassName"), detail);
    }
}

/// Labels of nodes that have a successor.
const SUCCESSORS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Whether two affinities are equal, except for labels that are replaced by their successors.
fn same_affinity(old: Option<&Value>, new: Option<&Value>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
    match (old, new) {
        (Value::Object(o), Value::Object(n)) => {
            let succeeded = |key: &str, value: &Value| {
                key == "key"
                    && SUCCESSORS.iter().any(|(was, is)| value == was && n.get(key).is_some_and(|n| n == is))
            };
            o.len() == n.len()
                && o.iter().all(|(key, value)| {
                    n.contains_key(key) && (succeeded(key, value) || same_affinity(Some(value), n.get(key)))
                })
        }
        (Value::Array(o), Value::Array(n)) => {
            o.len() == n.len() && o.iter().zip(n).all(|(o, n)| same_affinity(Some(o), Some(n)))
        }
        _ => old == new,
    }
}
