//! Volumes, claims, storage classes and drivers.

use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, pod, resources, selector};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let modes = list(spec, "accessModes");
    let at = path.field("accessModes");
    for mode in modes.iter().filter_map(Value::as_str) {
        errors.one_of(&at, mode, &MODES);
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// An amount of storage: there, not negative, not zero.
fn positive(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let amount = resources::amount(value);
    if amount.signum() < 0 {
        resources::non_negative(value, path, errors);
    }
    if amount.signum() <= 0 {
        errors.invalid(path, amount.to_string(), "must be greater than zero");
    }
}

fn volume_mode(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str) {
        errors.one_of(&path.field("volumeMode"), mode, &["Block", "Filesystem"]);
    }
}

/// core/v1 `PersistentVolume`.
pub(super) fn persistent_volume(volume: &Obj, errors: &mut Errors) {
    let spec = object(volume, "spec");
    let path = Path::new("spec");
    if list(spec, "accessModes").is_empty() {
        errors.required(&path.field("accessModes"), "");
    }
    access_modes(spec, &path, errors);
    let capacity = object(spec, "capacity");
    let at = path.field("capacity");
    if capacity.is_empty() {
        errors.required(&at, "");
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        errors.not_supported(&at, super::apps::shown_labels(capacity), &["storage"]);
    }
    for (name, value) in capacity {
        positive(value, &at.key(name), errors);
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        let at = path.field("persistentVolumeReclaimPolicy");
        errors.one_of(&at, policy, &["Delete", "Recycle", "Retain"]);
    }
    if let Some(required) = object(spec, "nodeAffinity").get("required").and_then(Value::as_object) {
        let affinity = path.field("nodeAffinity");
        pod::node_selector(required, &affinity.field("required"), errors);
    }
    volume_source(spec, &path, errors);
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.invalid_all(&path.field("storageClassName"), class, &checks::dns_subdomain(class));
    }
    volume_mode(spec, &path, errors);
}

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

fn volume_source(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let mut found = 0;
    for key in SOURCES {
        let Some(source) = spec.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        found += 1;
        if found > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        match key {
            "hostPath" => {
                pod::host_path(source, &at, errors);
                if text(source, "path") == "/" && text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
                    errors.forbidden(
                        &path.field("persistentVolumeReclaimPolicy"),
                        "may not be 'recycle' for a hostPath mount of '/'",
                    );
                }
            }
            "local" => {
                if text(source, "path").is_empty() {
                    errors.required(&at.field("path"), "");
                }
                if !has(spec, "nodeAffinity") {
                    errors.required(&path.field("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            "csi" => {
                for key in ["driver", "volumeHandle"] {
                    if text(source, key).is_empty() {
                        errors.required(&at.field(key), "");
                    }
                }
            }
            _ => {
                let mut inner = Obj::new();
                inner.insert(key.to_owned(), Value::Object(source.clone()));
                pod::volume_sources(&inner, path, errors);
            }
        }
    }
    if found == 0 {
        errors.required(path, "must specify a volume type");
    }
}

/// The source and mode of a volume are for good.
pub(super) fn persistent_volume_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    if SOURCES.iter().any(|key| before.get(*key) != after.get(*key)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&path.field("persistentvolumesource"), detail);
    }
    errors.immutable(&Path::new("volumeMode"), before, after, "volumeMode");
    if has(before, "nodeAffinity") && before.get("nodeAffinity") != after.get("nodeAffinity") {
        let value = after.get("nodeAffinity").cloned().unwrap_or_default();
        errors.invalid(&path.field("nodeAffinity"), value, IMMUTABLE);
    }
}

/// core/v1 `PersistentVolumeClaim`.
pub(super) fn persistent_volume_claim(claim: &Obj, errors: &mut Errors) {
    claim_spec(object(claim, "spec"), &Path::new("spec"), errors);
}

/// `ValidatePersistentVolumeClaimSpec`.
pub(super) fn claim_spec(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if list(spec, "accessModes").is_empty() {
        errors.required(&path.field("accessModes"), "at least 1 access mode is required");
    }
    if has(spec, "selector") {
        selector::label_selector(object(spec, "selector"), &path.field("selector"), errors);
    }
    access_modes(spec, path, errors);
    let at = path.field("resources");
    match object(object(spec, "resources"), "requests").get("storage") {
        None => errors.required(&at.key("storage"), ""),
        Some(amount) => positive(amount, &at.key("storage"), errors),
    }
    if let Some(class) = spec.get("storageClassName").and_then(Value::as_str).filter(|c| !c.is_empty()) {
        errors.invalid_all(&path.field("storageClassName"), class, &checks::dns_subdomain(class));
    }
    volume_mode(spec, path, errors);
    for key in ["dataSource", "dataSourceRef"] {
        let Some(source) = spec.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        for part in ["name", "kind"] {
            if text(source, part).is_empty() {
                errors.required(&at.field(part), "");
            }
        }
        if text(source, "apiGroup").is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
            let shown = Value::Object(source.clone());
            errors.invalid(
                &at,
                shown,
                "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            );
        }
    }
}

/// Claims are for good, but for their size once bound and what is still open.
pub(super) fn persistent_volume_claim_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    let mut is = after.clone();
    let mut accept = |key: &str, open: bool| {
        if open {
            match before.get(key) {
                Some(value) => is.insert(key.to_owned(), value.clone()),
                None => is.remove(key),
            };
        }
    };
    accept("volumeName", text(before, "volumeName").is_empty());
    accept("storageClassName", !has(before, "storageClassName"));
    accept("volumeAttributesClassName", true);
    let bound = text(object(old, "status"), "phase") == "Bound";
    accept(
        "resources",
        bound && object(before, "resources").get("limits") == object(after, "resources").get("limits"),
    );
    if is != *before {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&path, detail);
        return;
    }
    let size = |o: &Obj| object(object(o, "resources"), "requests").get("storage").map(resources::amount);
    let capacity = object(object(old, "status"), "capacity").get("storage").map(resources::amount);
    if let (Some(was), Some(now)) = (size(before), size(after))
        && now < was
        && capacity.is_none_or(|c| now < c)
    {
        let resources = path.field("resources");
        let requests = resources.field("requests");
        errors.forbidden(&requests.field("storage"), "field can not be less than status.capacity");
    }
}

/// storage.k8s.io/v1 `StorageClass`.
pub(super) fn storage_class(class: &Obj, errors: &mut Errors) {
    let provisioner = text(class, "provisioner");
    let at = Path::new("provisioner");
    if provisioner.is_empty() {
        errors.required(&at, "");
    } else {
        errors.invalid_all(&at, provisioner, &checks::qualified_name(&provisioner.to_lowercase()));
    }
    for key in object(class, "parameters").keys().filter(|key| key.is_empty()) {
        errors.invalid(&Path::new("parameters"), key.as_str(), "field can not be empty.");
    }
    let policy = text(class, "reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let at = Path::new("volumeBindingMode");
    match text(class, "volumeBindingMode") {
        "" => errors.required(&at, ""),
        mode => errors.one_of(&at, mode, &["Immediate", "WaitForFirstConsumer"]),
    }
}

/// What a class provisions is for good.
pub(super) fn storage_class_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(&Path::new(key), old, new, key);
    }
}

/// storage.k8s.io/v1 `CSINode`.
pub(super) fn csi_node(node: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("drivers");
    let mut names: Vec<&str> = Vec::new();
    for (i, driver) in list(object(node, "spec"), "drivers").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let name = text(driver, "name");
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        } else {
            errors.invalid_all(&here.field("name"), name, &checks::dns_subdomain(&name.to_lowercase()));
        }
        let id = text(driver, "nodeID");
        if id.is_empty() {
            errors.required(&here.field("nodeID"), "");
        } else if id.len() > 256 {
            errors.invalid(&here.field("nodeID"), id, "must be 256 characters or less");
        }
        let allocatable = here.field("allocatable");
        errors.non_negative(&allocatable.field("count"), int(object(driver, "allocatable"), "count"));
        let keys = here.field("topologyKeys");
        for key in list(driver, "topologyKeys").iter().filter_map(Value::as_str) {
            errors.invalid_all(&keys, key, &checks::qualified_name(key));
        }
        if names.contains(&name) {
            errors.duplicate(&here.field("name"), name);
        }
        names.push(name);
    }
}

/// storage.k8s.io/v1 `CSIDriver`.
pub(super) fn csi_driver(driver: &Obj, errors: &mut Errors) {
    let spec = object(driver, "spec");
    let path = Path::new("spec");
    for mode in list(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str) {
        errors.one_of(&path.field("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
    }
    if let Some(policy) = spec.get("fsGroupPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("fsGroupPolicy"), policy, &["File", "None", "ReadWriteOnceWithFSType"]);
    }
}

/// How a driver attaches is for good.
pub(super) fn csi_driver_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    errors.immutable(&path.field("attachedRequired"), before, after, "attachRequired");
    errors.immutable(&path.field("volumeLifecycleModes"), before, after, "volumeLifecycleModes");
}

/// storage.k8s.io/v1 `VolumeAttachment`.
pub(super) fn volume_attachment(attachment: &Obj, errors: &mut Errors) {
    let spec = object(attachment, "spec");
    let path = Path::new("spec");
    for key in ["attacher", "nodeName"] {
        if text(spec, key).is_empty() {
            errors.required(&path.field(key), "");
        }
    }
    let source = object(spec, "source");
    let at = path.field("source");
    match (has(source, "inlineVolumeSpec"), has(source, "persistentVolumeName")) {
        (false, false) => {
            errors.required(&at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
        }
        (true, true) => {
            errors.forbidden(&at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
        }
        _ => {}
    }
}

/// An attachment is for good.
pub(super) fn volume_attachment_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("spec") != new.get("spec") {
        errors.invalid(&Path::new("spec"), new.get("spec").cloned().unwrap_or_default(), IMMUTABLE);
    }
}
