//! Where the contents of a volume come from, one kind of source each (`validate*VolumeSource`).

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{checks, meta, storage};
use super::projected;
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

/// Texts and lists a source can't be without.
const REQUIRED: [(&str, &[&str]); 20] = [
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("gitRepo", &["repository"]),
    ("secret", &["secretName"]),
    ("configMap", &["name"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal"]),
    ("glusterfs", &["endpoints", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("storageos", &["volumeName"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

/// What is wrong with one source of a kind.
pub(super) fn check(key: &str, source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (_, fields) in REQUIRED.iter().filter(|(kind, _)| *kind == key) {
        required(source, fields, path, errors);
    }
    match key {
        "hostPath" => host_path(source, path, errors),
        "gitRepo" => descending(text(source, "directory"), &path.field("directory"), errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => partition(source, path, errors),
        "secret" | "configMap" => modes(source, path, errors),
        "nfs" if !text(source, "path").starts_with('/') => {
            errors.invalid(&path.field("path"), text(source, "path"), "must be an absolute path");
        }
        "iscsi" => iscsi(source, path, errors),
        "flocker" => flocker(source, path, errors),
        "cinder" | "storageos" => {
            storage_os(key, source, path, errors);
            secret_name(source, "secretRef", path, errors);
        }
        "quobyte" => quobyte(source, path, errors),
        "downwardAPI" => {
            mode(source, "defaultMode", path, errors);
            for file in list(source, "items").iter().map(as_obj) {
                projected::downward_file(file, path, errors);
            }
        }
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => flex(source, path, errors),
        "azureDisk" => azure_disk(source, path, errors),
        "csi" => csi(source, path, errors),
        "ephemeral" => ephemeral(source, path, errors),
        _ => {}
    }
}

pub(super) fn required(source: &Obj, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys {
        if text(source, key).is_empty() && list(source, key).is_empty() {
            errors.required(&path.field(key), "");
        }
    }
}

/// `validateHostPathVolumeSource`.
pub(in super::super) fn host_path(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let host = text(source, "path");
    if host.is_empty() {
        errors.required(&path.field("path"), "");
        return;
    }
    no_backsteps(host, &path.field("path"), errors);
    let kinds =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if let Some(kind) = source.get("type").and_then(Value::as_str) {
        errors.one_of(&path.field("type"), kind, &kinds);
    }
}

/// `validatePathNoBacksteps`.
pub(super) fn no_backsteps(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.split('/').any(|part| part == "..") {
        errors.invalid(path, text, "must not contain '..'");
    }
}

/// A path that goes down from where it starts (`validateLocalDescendingPath`).
pub(super) fn descending(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    no_backsteps(target, path, errors);
}

/// A path inside of a volume (`ValidateLocalNonReservedPath`).
pub(super) fn local_path(target: &str, path: &Path<'_>, errors: &mut Errors) {
    descending(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}

/// The mode of a file.
pub(super) fn mode(source: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = int(source, key)
        && !(0..=0o777).contains(&mode)
    {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.field(key), mode, detail);
    }
}

fn modes(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let items = path.field("items");
    for (i, item) in list(source, "items").iter().map(as_obj).enumerate() {
        key_to_path(item, &items.index(i), errors);
    }
}

/// `validateKeyToPath`.
pub(super) fn key_to_path(item: &Obj, path: &Path<'_>, errors: &mut Errors) {
    required(item, &["key", "path"], path, errors);
    local_path(text(item, "path"), &path.field("path"), errors);
    mode(item, "mode", path, errors);
}

fn byte(source: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = int(source, key).filter(|n| !(0..=255).contains(n)) {
        errors.invalid(&path.field(key), number, "must be between 0 and 255, inclusive");
    }
}

/// Zero stands for the whole disk, though the message does not say so.
fn partition(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = int(source, "partition").filter(|n| !(0..=255).contains(n)) {
        errors.invalid(&path.field("partition"), number, "must be between 1 and 255, inclusive");
    }
}

/// `validateISCSIVolumeSource`.
fn iscsi(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const START: &str = "must be valid format starting with iqn, eui, or naa";
    let name = text(source, "iqn");
    let at = path.field("iqn");
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        match is_initiator(name) {
            None => errors.invalid(&at, name, START),
            Some(false) => errors.invalid(&at, name, "must be valid format"),
            Some(true) => {}
        }
    }
    byte(source, "lun", path, errors);
    if (flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession")) && !has(source, "secretRef") {
        errors.required(&path.field("secretRef"), "");
    }
    if let Some(name) = source.get("initiatorName").and_then(Value::as_str) {
        let at = path.field("initiatorname");
        match is_initiator(name) {
            None => errors.invalid(&at, name, START),
            Some(false) => errors.invalid(&at, name, "must be valid format"),
            Some(true) => {}
        }
    }
}

/// Whether a name is one of iSCSI; `None`: not even its first three letters are.
fn is_initiator(name: &str) -> Option<bool> {
    if name.starts_with("iqn") {
        // As upstream, the form need not begin at the beginning.
        return Some(name.match_indices("iqn.").any(|(at, _)| name.get(at + 4..).is_some_and(is_iqn)));
    }
    let wanted = match name.get(..3) {
        Some("eui") => 16,
        Some("naa") => 32,
        _ => return None,
    };
    let rest: Vec<char> = name.chars().skip(4).collect();
    Some(rest.len() == wanted && rest.iter().all(char::is_ascii_alphanumeric))
}

/// `2001-04.com.example:storage:disk1`: a month, who had that domain then, and a name of theirs.
fn is_iqn(text: &str) -> bool {
    let Some((date, rest)) = text.split_at_checked(7) else { return false };
    let dated = date.bytes().enumerate().all(|(i, b)| if i == 4 { b == b'-' } else { b.is_ascii_digit() });
    let Some((domain, unique)) = rest.strip_prefix('.').and_then(|r| r.split_once(':')) else { return false };
    dated
        && !domain.is_empty()
        && domain.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        && !unique.is_empty()
        && !unique.contains(|c: char| ",;*&$|\t\n\r \u{c}".contains(c))
}

fn flocker(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (name, uid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    if name.is_empty() && uid.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid(path, "resource", detail);
    }
    if name.contains('/') {
        errors.invalid(&path.field("datasetName"), name, "must not contain '/'");
    }
}

fn storage_os(key: &str, source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if key != "storageos" {
        return;
    }
    for key in ["volumeName", "volumeNamespace"] {
        let name = text(source, key);
        if !name.is_empty() {
            errors.invalid_all(&path.field(key), name, &checks::dns_label(name));
        }
    }
}

fn secret_name(source: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
    if has(source, key) && text(object(source, key), "name").is_empty() {
        errors.required(&path.field(key).field("name"), "");
    }
}

fn quobyte(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    let at = path.field("registry");
    if registry.is_empty() {
        errors.required(&at, PAIRS);
    } else if text(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.field("tenant"), detail);
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_port(pair)) {
            errors.invalid(&at, registry, PAIRS);
        }
    }
    required(source, &["volume"], path, errors);
}

/// Whether Go's `net.SplitHostPort` takes a text.
fn is_host_port(pair: &str) -> bool {
    if let Some(rest) = pair.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else { return false };
        let port = port.strip_prefix(':');
        return port.is_some_and(|p| !p.contains([':', '[', ']'])) && !host.contains('[');
    }
    pair.split_once(':').is_some_and(|(host, port)| !port.contains(':') && !host.contains(']'))
        && !pair.contains(['[', ']'])
}

/// `validateFCVolumeSource`.
fn fibre_channel(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (names, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    let at = path.field("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&at, Value::Array(names.to_vec()), detail);
    }
    if !names.is_empty() {
        if has(source, "lun") {
            byte(source, "lun", path, errors);
        } else {
            errors.required(&path.field("lun"), "lun is required if targetWWNs is specified");
        }
    }
}

fn flex(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("options");
    for key in object(source, "options").keys() {
        let namespace = key.split_once('/').map_or(key.as_str(), |(n, _)| n).to_lowercase();
        let within = |domain: &str| format!(".{namespace}").ends_with(domain);
        if within(".kubernetes.io") || within(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&at.key(key), key.as_str(), detail);
        }
    }
}

fn azure_disk(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("diskURI");
    let uri = text(source, "diskURI");
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
    if !uri.starts_with(prefix) {
        errors.not_supported(&at, uri, &[form]);
    }
}

/// `ValidateCSIDriverName`.
fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.invalid_all(path, name, &checks::dns_subdomain(&name.to_lowercase()));
}

fn csi(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    driver_name(text(source, "driver"), &path.field("driver"), errors);
    secret_name(source, "nodePublishSecretRef", path, errors);
    let name = text(object(source, "nodePublishSecretRef"), "name");
    if !name.is_empty() {
        errors.invalid_all(&path.field("name"), name, &checks::dns_subdomain(name));
    }
}

/// `validateEphemeralVolumeSource`.
fn ephemeral(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("volumeClaimTemplate");
    if !has(source, "volumeClaimTemplate") {
        errors.required(&at, "");
        return;
    }
    let template = object(source, "volumeClaimTemplate");
    meta::of_template(object(template, "metadata"), &at.field("metadata"), errors);
    storage::claim_spec(object(template, "spec"), &at.field("spec"), errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initiators_and_registries() {
        for (name, want) in [
            ("iqn.2001-04.com.example:storage:disk1", Some(true)),
            ("iqn.2001-04.com.example", Some(false)),
            ("iqn.2001-4.com.example", Some(false)),
            ("iqn", Some(false)),
            ("eui.0123456789abcdef", Some(true)),
            ("eui", Some(false)),
            ("eui.0123", Some(false)),
            ("naa.0123456789abcdef0123456789abcdef", Some(true)),
            ("ünicode", None),
            ("", None),
        ] {
            assert_eq!(is_initiator(name), want, "{name}");
        }
        for (pair, want) in [
            ("a:1", true),
            ("a", false),
            ("a:b:c", false),
            ("[::1]:80", true),
            ("[::1]", false),
            ("::1", false),
            (":", true),
        ] {
            assert_eq!(is_host_port(pair), want, "{pair}");
        }
    }
}
