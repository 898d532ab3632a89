//! Sources of volumes that pods and `PersistentVolumes` share, and the ways in which theirs differ.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use crate::obj::{Obj, flag, has, int, list, object, text};

/// Fields without which a source is none, in the order in which they are asked for.
const REQUIRED: [(&str, &[&str]); 14] = [
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("nfs", &["server", "path"]),
    ("glusterfs", &["endpoints", "path"]),
    ("rbd", &["monitors", "image"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

/// Checks a source of a kind that is no more than data (`validate*VolumeSource`). Pods and volumes refer to secrets
/// in different ways: `whole` for references with a namespace.
pub(super) fn source(key: &str, source: &Obj, whole: bool, path: &Path<'_>, errors: &mut Errors) {
    if let Some((_, fields)) = REQUIRED.iter().find(|(kind, _)| *kind == key) {
        required(source, fields, path, errors);
    }
    match key {
        "gcePersistentDisk" | "awsElasticBlockStore" => partition(source, path, errors),
        "nfs" if !text(source, "path").starts_with('/') => {
            errors.invalid(&path.field("path"), text(source, "path"), "must be an absolute path");
        }
        "quobyte" => quobyte(source, path, errors),
        "flocker" => flocker(source, path, errors),
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => flex_options(source, path, errors),
        "azureDisk" => azure_disk(source, path, errors),
        "cinder" => secret(source, whole, path, errors),
        "storageos" => {
            let name = text(source, "volumeName");
            if name.is_empty() {
                errors.required(&path.field("volumeName"), "");
            } else {
                errors.invalid_all(&path.field("volumeName"), name, &checks::dns_label(name));
            }
            let namespace = text(source, "volumeNamespace");
            if !namespace.is_empty() {
                errors.invalid_all(&path.field("volumeNamespace"), namespace, &checks::dns_label(namespace));
            }
            secret(source, whole, path, errors);
        }
        "glusterfs" if whole => {
            if let Some(namespace) = source.get("endpointsNamespace").and_then(Value::as_str) {
                let at = path.field("endpointsNamespace");
                if namespace.is_empty() {
                    let detail = "if the endpointnamespace is set, it must be a valid namespace name";
                    errors.invalid(&at, namespace, detail);
                } else {
                    errors.invalid_all(&at, namespace, &checks::dns_label(namespace));
                }
            }
        }
        "azureFile" if whole && source.get("secretNamespace").is_some_and(|n| n == "") => {
            errors.required(&path.field("secretNamespace"), "");
        }
        _ => {}
    }
}

/// Texts and lists that may not be empty.
pub(super) fn required(source: &Obj, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys.iter().filter(|key| text(source, key).is_empty() && list(source, key).is_empty()) {
        errors.required(&path.field(key), "");
    }
}

/// A reference to a secret says its name, and where there is one, its namespace.
fn secret(source: &Obj, whole: bool, path: &Path<'_>, errors: &mut Errors) {
    if !has(source, "secretRef") {
        return;
    }
    let keys: &[&str] = if whole { &["name", "namespace"] } else { &["name"] };
    required(object(source, "secretRef"), keys, &path.field("secretRef"), errors);
}

fn partition(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(partition) = int(source, "partition").filter(|p| !(0..=255).contains(p)) {
        // The text is upstream's, whose 0 stands for the whole disk.
        errors.invalid(&path.field("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

fn lun(lun: i64, path: &Path<'_>, errors: &mut Errors) {
    if !(0..=255).contains(&lun) {
        errors.invalid(&path.field("lun"), lun, "must be between 0 and 255, inclusive");
    }
}

fn quobyte(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, at) = (text(source, "registry"), path.field("registry"));
    if registry.is_empty() {
        errors.required(&at, DETAIL);
    } else if text(source, "tenant").len() >= 65 {
        errors.required(&path.field("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_port(pair)) {
            errors.invalid(&at, registry, DETAIL);
        }
    }
    required(source, &["volume"], path, errors);
}

/// Whether Go's `net.SplitHostPort` takes a text.
fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_ok = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').is_some_and(|h| !h.contains(['[', ']'])),
        None => !host.contains([':', '[', ']']),
    };
    host_ok && !port.contains(['[', ']'])
}

fn flocker(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid(path, "resource", detail);
    }
    if name.contains('/') {
        errors.invalid(&path.field("datasetName"), name, "must not contain '/'");
    }
}

fn fibre_channel(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (targets, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    let at = path.field("targetWWNs");
    if targets.is_empty() && ids.is_empty() {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&at, Value::Array(targets.to_vec()), detail);
    }
    if !targets.is_empty() {
        match int(source, "lun") {
            None => errors.required(&path.field("lun"), "lun is required if targetWWNs is specified"),
            Some(number) => lun(number, path, errors),
        }
    }
}

fn flex_options(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("options");
    for key in object(source, "options").keys() {
        let domain = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&at.key(key), key.as_str(), detail);
        }
    }
}

fn azure_disk(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = source.get("cachingMode").and_then(Value::as_str) {
        errors.one_of(&path.field("cachingMode"), mode, &["None", "ReadOnly", "ReadWrite"]);
    }
    let Some(kind) = source.get("kind").and_then(Value::as_str) else { return };
    errors.one_of(&path.field("kind"), kind, &["Dedicated", "Managed", "Shared"]);
    let (prefix, form) = if kind == "Managed" {
        (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    let uri = text(source, "diskURI");
    if !uri.starts_with(prefix) {
        errors.not_supported(&path.field("diskURI"), uri, &[form]);
    }
}

/// Names of iSCSI targets and initiators, by how they begin. The regular expressions are upstream's, `iqn` open at
/// its beginning.
static ISCSI_NAMES: LazyLock<[(&str, Option<Regex>); 3]> = LazyLock::new(|| {
    [
        ("iqn", Regex::new(r"iqn\.\d{4}-\d{2}\.([0-9A-Za-z\-.]+)(:[^,;*&$|\s]+)$").ok()),
        ("eui", Regex::new(r"^eui.[0-9A-Za-z]{16}$").ok()),
        ("naa", Regex::new(r"^naa.[0-9A-Za-z]{32}$").ok()),
    ]
});

/// iSCSI of a pod, or of the volume with this name (`validateISCSI(Persistent)VolumeSource`).
pub(super) fn iscsi(source: &Obj, volume: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    // Volumes say less about what a name has to begin with.
    let beginning = if volume.is_some() {
        "must be valid format"
    } else {
        "must be valid format starting with iqn, eui, or naa"
    };
    required(source, &["targetPortal"], path, errors);
    let portal = text(source, "targetPortal");
    let initiator = source.get("initiatorName").and_then(Value::as_str);
    if volume.is_some_and(|name| initiator.is_some() && name.len() + 1 + portal.len() > 64) {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.invalid(&path.field("targetportal"), portal, detail);
    }
    let iqn = text(source, "iqn");
    if iqn.is_empty() {
        errors.required(&path.field("iqn"), "");
    } else {
        iscsi_name(iqn, beginning, &path.field("iqn"), errors);
    }
    lun(int(source, "lun").unwrap_or(0), path, errors);
    let chap = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if chap && !has(source, "secretRef") {
        errors.required(&path.field("secretRef"), "");
    }
    if volume.is_some() {
        secret(source, false, path, errors);
    }
    if let Some(initiator) = initiator {
        iscsi_name(initiator, beginning, &path.field("initiatorname"), errors);
    }
}

fn iscsi_name(name: &str, beginning: &str, path: &Path<'_>, errors: &mut Errors) {
    match ISCSI_NAMES.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        None => errors.invalid(path, name, beginning),
        Some((_, form)) if !form.as_ref().is_some_and(|f| f.is_match(name)) => {
            errors.invalid(path, name, "must be valid format");
        }
        Some(_) => {}
    }
}

/// The name of a CSI driver (`ValidateCSIDriverName`).
pub(super) fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.invalid_all(path, name, &checks::dns_subdomain(&name.to_lowercase()));
}
