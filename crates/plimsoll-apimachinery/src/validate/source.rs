//! Sources of volumes that pods and `PersistentVolumes` share, and the ways in which theirs differ.

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use crate::obj::{Obj, flag, has, int, list, object, text};

/// The owner of the source: pods and volumes refer to secrets in different ways.
#[derive(Clone, Copy)]
pub(super) enum Holder<'a> {
    /// A pod, whose secrets are in its namespace.
    Pod,
    /// A `PersistentVolume` of this name; its references have a namespace.
    Volume(&'a str),
}

impl Holder<'_> {
    fn is_volume(self) -> bool {
        matches!(self, Self::Volume(_))
    }
}

/// Required fields of sources, in the order of upstream's checks.
const REQUIRED: [(&str, &[&str]); 15] = [
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal"]),
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

/// Checks a source of a kind that pods and volumes share (`validate*VolumeSource`, `validate*PersistentVolumeSource`).
pub(super) fn source(key: &str, source: &Obj, holder: Holder<'_>, path: &Path<'_>, errors: &mut Errors) {
    if let Some((_, fields)) = REQUIRED.iter().find(|(kind, _)| *kind == key) {
        required(source, fields, path, errors);
    }
    match key {
        "hostPath" => host_path(source, path, errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => partition(source, path, errors),
        "nfs" if !text(source, "path").starts_with('/') => {
            errors.invalid(&path.field("path"), text(source, "path"), "must be an absolute path");
        }
        "iscsi" => iscsi(source, holder, path, errors),
        "quobyte" => quobyte(source, path, errors),
        "flocker" => flocker(source, path, errors),
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => flex_options(source, path, errors),
        "azureDisk" => azure_disk(source, path, errors),
        "cinder" => secret(source, holder, path, errors),
        "storageos" => storage_os(source, holder, path, errors),
        "glusterfs" if holder.is_volume() => {
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
        "azureFile" if holder.is_volume() && source.get("secretNamespace").is_some_and(|n| n == "") => {
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

/// `validateHostPathVolumeSource`.
fn host_path(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
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
    if has_backsteps(text) {
        errors.invalid(path, text, "must not contain '..'");
    }
}

/// Whether a path has a `..` element.
pub(super) fn has_backsteps(text: &str) -> bool {
    text.split('/').any(|part| part == "..")
}

/// A reference to a secret has a name; one of a volume has a namespace, too.
fn secret(source: &Obj, holder: Holder<'_>, path: &Path<'_>, errors: &mut Errors) {
    if has(source, "secretRef") {
        let keys: &[&str] = if holder.is_volume() { &["name", "namespace"] } else { &["name"] };
        required(object(source, "secretRef"), keys, &path.field("secretRef"), errors);
    }
}

fn storage_os(source: &Obj, holder: Holder<'_>, path: &Path<'_>, errors: &mut Errors) {
    errors.named(&path.field("volumeName"), text(source, "volumeName"), checks::dns_label);
    let namespace = text(source, "volumeNamespace");
    if !namespace.is_empty() {
        errors.invalid_all(&path.field("volumeNamespace"), namespace, &checks::dns_label(namespace));
    }
    secret(source, holder, path, errors);
}

/// Numbers of units a target may have.
const LUNS: std::ops::RangeInclusive<i64> = 0..=255;

fn partition(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(partition) = int(source, "partition").filter(|p| !(0..=255).contains(p)) {
        // The text is upstream's; 0 is the whole disk.
        errors.invalid(&path.field("partition"), partition, "must be between 1 and 255, inclusive");
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
            Some(number) => errors.between(&path.field("lun"), number, LUNS),
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

/// `validateISCSI(Persistent)VolumeSource`.
fn iscsi(source: &Obj, holder: Holder<'_>, path: &Path<'_>, errors: &mut Errors) {
    let portal = text(source, "targetPortal");
    let initiator = source.get("initiatorName").and_then(Value::as_str);
    if let Holder::Volume(name) = holder
        && initiator.is_some()
        && is_long_portal(name, portal)
    {
        errors.invalid(&path.field("targetportal"), portal, LONG_PORTAL);
    }
    let iqn = text(source, "iqn");
    if iqn.is_empty() {
        errors.required(&path.field("iqn"), "");
    } else {
        iscsi_name(iqn, holder, &path.field("iqn"), errors);
    }
    errors.between(&path.field("lun"), int(source, "lun").unwrap_or(0), LUNS);
    let chap = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if chap && !has(source, "secretRef") {
        errors.required(&path.field("secretRef"), "");
    }
    if holder.is_volume() && has(source, "secretRef") {
        required(object(source, "secretRef"), &["name"], &path.field("secretRef"), errors);
    }
    if let Some(initiator) = initiator {
        iscsi_name(initiator, holder, &path.field("initiatorname"), errors);
    }
}

/// The error for a volume name and portal that are too long together.
pub(super) const LONG_PORTAL: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

/// Whether `<volume name>:<iscsi.targetPortal>` is too long for an initiator's name.
pub(super) fn is_long_portal(volume: &str, portal: &str) -> bool {
    volume.len() + 1 + portal.len() > 64
}

fn iscsi_name(name: &str, holder: Holder<'_>, path: &Path<'_>, errors: &mut Errors) {
    match is_initiator(name) {
        // Volumes have fewer rules for the beginning of a name.
        None if !holder.is_volume() => {
            errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa");
        }
        None | Some(false) => errors.invalid(path, name, "must be valid format"),
        Some(true) => {}
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
    let mut rest = name.get(3..).unwrap_or_default().chars();
    let separated = rest.next().is_some_and(|c| c != '\n');
    let rest = rest.as_str();
    Some(separated && rest.len() == wanted && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initiators_and_registries() {
        for (name, want) in [
            ("iqn.2001-04.com.example:storage:disk1", Some(true)),
            ("iqn-iqn.2001-04.com.example:disk", Some(true)),
            ("iqn.2001-04.com.example", Some(false)),
            ("iqn.2001-4.com.example", Some(false)),
            ("iqn", Some(false)),
            ("eui.0123456789abcdef", Some(true)),
            ("eui", Some(false)),
            ("eui.0123", Some(false)),
            ("eui\n0123456789abcdef", Some(false)),
            ("naa.0123456789abcdef0123456789abcdef", Some(true)),
            ("ünicode", None),
            ("", None),
        ] {
            assert_eq!(is_initiator(name), want, "{name}");
        }
        for (pair, want) in [
            ("a:1", true),
            ("a", false),
            ("", false),
            ("a:b:c", false),
            ("[::1]:80", true),
            ("[::1]", false),
            ("::1", false),
            ("[a]b:1", false),
            (":", true),
        ] {
            assert_eq!(is_host_port(pair), want, "{pair}");
        }
    }
}
