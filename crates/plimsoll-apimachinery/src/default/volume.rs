//! Volumes, claims and persistent volumes.

use serde_json::{Map, Value};

use super::container::pull_policy;
use crate::obj::{Obj, child, children, set, text, with_child};

/// A volume of a pod: nothing but a name is an `emptyDir`.
pub(super) fn volume(v: &mut Obj) {
    if v.keys().all(|key| key == "name") {
        set(v, "emptyDir", Map::new());
        return;
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child(v, key) {
            set(source, "defaultMode", 0o644);
        }
    }
    if let Some(source) = child(v, "downwardAPI") {
        field_refs(source);
    }
    if let Some(projected) = child(v, "projected") {
        for source in children(projected, "sources") {
            if let Some(token) = child(source, "serviceAccountToken") {
                set(token, "expirationSeconds", 3600);
            }
            if let Some(api) = child(source, "downwardAPI") {
                field_refs(api);
            }
        }
    }
    if let Some(template) = child(v, "ephemeral").and_then(|e| child(e, "volumeClaimTemplate")) {
        with_child(template, "spec", claim_spec);
    }
    if let Some(image) = child(v, "image") {
        let policy = pull_policy(text(image, "reference"));
        set(image, "pullPolicy", policy);
    }
    source(v);
}

fn field_refs(api: &mut Obj) {
    for item in children(api, "items") {
        if let Some(field) = child(item, "fieldRef") {
            set(field, "apiVersion", "v1");
        }
    }
}

/// Sources that pods and persistent volumes share.
fn source(v: &mut Obj) {
    let table: [(&str, &[(&str, &str)]); 4] = [
        ("hostPath", &[("type", "")]),
        ("iscsi", &[("iscsiInterface", "default")]),
        ("rbd", &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")]),
        ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
    ];
    for (key, defaults) in table {
        if let Some(source) = child(v, key) {
            for (field, value) in defaults {
                set(source, field, *value);
            }
        }
    }
    if let Some(disk) = child(v, "azureDisk") {
        set(disk, "cachingMode", "ReadWrite");
        set(disk, "kind", "Shared");
        set(disk, "fsType", "ext4");
        set(disk, "readOnly", false);
    }
}

/// core/v1 `PersistentVolume`.
pub(super) fn persistent_volume(pv: &mut Obj) {
    with_child(pv, "status", |status| set(status, "phase", "Pending"));
    with_child(pv, "spec", |spec| {
        set(spec, "persistentVolumeReclaimPolicy", "Retain");
        set(spec, "volumeMode", "Filesystem");
        source(spec);
    });
}

/// storage.k8s.io/v1 `VolumeAttachment`: the source of a volume that it brings along.
pub(super) fn attachment(attachment: &mut Obj) {
    let from = child(attachment, "spec").and_then(|s| child(s, "source"));
    if let Some(spec) = from.and_then(|s| child(s, "inlineVolumeSpec")) {
        source(spec);
    }
}

/// core/v1 `PersistentVolumeClaim`, also inside of a `StatefulSet`.
pub(super) fn persistent_volume_claim(pvc: &mut Obj) {
    with_child(pvc, "status", |status| set(status, "phase", "Pending"));
    with_child(pvc, "spec", claim_spec);
}

fn claim_spec(spec: &mut Obj) {
    set(spec, "volumeMode", "Filesystem");
    if let Some(Value::Object(source)) = spec.get_mut("dataSource") {
        source.entry("apiGroup").or_insert(Value::Null);
    }
}
