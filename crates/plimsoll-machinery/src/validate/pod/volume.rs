//! Volumes of pods, their sources and mounts.

use serde_json::Value;

use super::super::checks;
use super::super::path::{Errors, Path};
use super::super::resources;
use super::container::{VOLUME_FIELDS, field_ref, resource_field_ref};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// `ValidateVolumes`; gives the volumes whose names can be referred to.
pub(super) fn volumes<'a>(volumes: &'a [Value], path: &Path<'_>, errors: &mut Errors) -> Vec<&'a Obj> {
    let mut known: Vec<&Obj> = Vec::with_capacity(volumes.len());
    for (i, volume) in volumes.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(volume, "name");
        let before = errors.0.len();
        volume_sources(volume, &at, errors);
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else {
            errors.invalid_all(&at.field("name"), name, &checks::dns_label(name));
        }
        if known.iter().any(|v| text(v, "name") == name) {
            errors.duplicate(&at.field("name"), name);
        }
        if errors.0.len() == before {
            known.push(volume);
        }
    }
    known
}

/// Sources in upstream's order of checking.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// `validateVolumeSource`: one source, and that one well formed.
pub(in super::super) fn volume_sources(volume: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let mut found = 0;
    for key in SOURCES {
        let Some(source) = volume.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        if found > 0 {
            errors.forbidden(&at, "may not specify more than 1 volume type");
            found += 1;
            continue;
        }
        found += 1;
        one_source(key, source, &at, errors);
    }
    if found == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn one_source(key: &str, source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    match key {
        "emptyDir" => {
            if let Some(limit) = source.get("sizeLimit")
                && resources::amount(limit).signum() < 0
            {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(&path.field("sizeLimit"), detail);
            }
        }
        "hostPath" => host_path(source, path, errors),
        "secret" => {
            required(source, &["secretName"], path, errors);
            modes(source, path, errors);
        }
        "configMap" => {
            required(source, &["name"], path, errors);
            modes(source, path, errors);
        }
        "downwardAPI" => {
            mode(source, "defaultMode", path, errors);
            downward(source, path, errors);
        }
        "projected" => projected(source, path, errors),
        "nfs" => {
            required(source, &["server", "path"], path, errors);
            if !text(source, "path").is_empty() && !text(source, "path").starts_with('/') {
                errors.invalid(&path.field("path"), text(source, "path"), "must be an absolute path");
            }
        }
        "persistentVolumeClaim" => required(source, &["claimName"], path, errors),
        "csi" => required(source, &["driver"], path, errors),
        "ephemeral" => ephemeral(source, path, errors),
        "gcePersistentDisk" => required(source, &["pdName"], path, errors),
        "awsElasticBlockStore" | "cinder" => required(source, &["volumeID"], path, errors),
        "iscsi" => required(source, &["targetPortal", "iqn"], path, errors),
        "glusterfs" => required(source, &["endpoints", "path"], path, errors),
        "image" => {
            required(source, &["reference"], path, errors);
            errors.one_of(
                &path.field("pullPolicy"),
                text(source, "pullPolicy"),
                &["Always", "IfNotPresent", "Never"],
            );
        }
        _ => {}
    }
}

fn required(source: &Obj, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys {
        if text(source, key).is_empty() {
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

fn no_backsteps(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.split('/').any(|part| part == "..") {
        errors.invalid(path, text, "must not contain '..'");
    }
}

fn mode(source: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
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

fn key_to_path(item: &Obj, path: &Path<'_>, errors: &mut Errors) {
    required(item, &["key", "path"], path, errors);
    if !text(item, "path").is_empty() {
        local_path(text(item, "path"), &path.field("path"), errors);
    }
    mode(item, "mode", path, errors);
}

/// A path that stays inside of the volume.
fn local_path(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    no_backsteps(target, path, errors);
    if target.starts_with("..") && !target.split('/').any(|part| part == "..") {
        errors.invalid(path, target, "must not start with '..'");
    }
}

fn downward(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let items = path.field("items");
    for (i, file) in list(source, "items").iter().map(as_obj).enumerate() {
        let at = items.index(i);
        required(file, &["path"], &at, errors);
        if !text(file, "path").is_empty() {
            local_path(text(file, "path"), &at.field("path"), errors);
        }
        let field = file.get("fieldRef").and_then(Value::as_object);
        let resource = file.get("resourceFieldRef").and_then(Value::as_object);
        match (field, resource) {
            (Some(field), None) => field_ref(field, VOLUME_FIELDS, &at.field("fieldRef"), errors),
            (None, Some(resource)) => {
                resource_field_ref(resource, true, &at.field("resourceFieldRef"), errors);
            }
            (Some(field), Some(_)) => {
                field_ref(field, VOLUME_FIELDS, &at.field("fieldRef"), errors);
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(&at, "resource", detail);
            }
            (None, None) => {
                errors.required(&at.field("fieldRef"), "one of fieldRef and resourceFieldRef is required");
            }
        }
        mode(file, "mode", &at, errors);
    }
}

fn projected(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let sources = path.field("sources");
    for (i, part) in list(source, "sources").iter().map(as_obj).enumerate() {
        let at = sources.index(i);
        let mut found = 0;
        for key in [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ] {
            let Some(inner) = part.get(key).and_then(Value::as_object) else { continue };
            let here = at.field(key);
            found += 1;
            if found > 1 {
                errors.forbidden(&here, "may not specify more than 1 volume type per source");
                continue;
            }
            match key {
                "secret" | "configMap" => {
                    required(inner, &["name"], &here, errors);
                    modes(inner, &here, errors);
                }
                "downwardAPI" => downward(inner, &here, errors),
                "serviceAccountToken" => token(inner, &here, errors),
                _ => {}
            }
        }
        if found == 0 {
            errors.required(&at, "must specify a volume source");
        }
    }
}

fn token(token: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let seconds = int(token, "expirationSeconds").unwrap_or(0);
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.invalid(&path.field("expirationSeconds"), seconds, detail);
    } else if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&path.field("expirationSeconds"), seconds, detail);
    }
    required(token, &["path"], path, errors);
    if !text(token, "path").is_empty() {
        local_path(text(token, "path"), &path.field("path"), errors);
    }
}

fn ephemeral(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("volumeClaimTemplate");
    if !has(source, "volumeClaimTemplate") {
        errors.required(&at, "");
        return;
    }
    let template = object(source, "volumeClaimTemplate");
    super::super::storage::claim_spec(object(template, "spec"), &at.field("spec"), errors);
}

/// Mounts and devices of a container (`ValidateVolumeMounts`, `ValidateVolumeDevices`).
pub(super) fn mounts(c: &Obj, volumes: &[&Obj], path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("volumeMounts");
    let mut points: Vec<&str> = Vec::new();
    let devices = list(c, "volumeDevices");
    for (i, mount) in list(c, "volumeMounts").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        }
        if !volumes.iter().any(|v| text(v, "name") == name) {
            errors.not_found(&here.field("name"), name, "");
        }
        if point.is_empty() {
            errors.required(&here.field("mountPath"), "");
        }
        if points.contains(&point) {
            errors.invalid(&here.field("mountPath"), point, "must be unique");
        }
        points.push(point);
        if devices.iter().any(|d| d["devicePath"] == point) {
            errors.invalid(
                &here.field("mountPath"),
                point,
                "must not already exist as a path in volumeDevices",
            );
        }
        sub_paths(mount, &here, errors);
        if let Some(mode) = mount.get("mountPropagation").and_then(Value::as_str) {
            let modes = ["Bidirectional", "HostToContainer", "None"];
            errors.one_of(&here.field("mountPropagation"), mode, &modes);
        }
    }
    let at = path.field("volumeDevices");
    let mut paths: Vec<&str> = Vec::new();
    for (i, device) in devices.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        }
        match volumes.iter().find(|v| text(v, "name") == name) {
            None => errors.not_found(&here.field("name"), name, ""),
            Some(v) if !(has(v, "persistentVolumeClaim") || has(v, "ephemeral")) => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&here.field("name"), name, detail);
            }
            Some(_) => {}
        }
        if target.is_empty() {
            errors.required(&here.field("devicePath"), "");
        } else if paths.contains(&target) {
            errors.invalid(&here.field("devicePath"), target, "must be unique");
        }
        paths.push(target);
    }
}

fn sub_paths(mount: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (plain, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !plain.is_empty() {
        local_path(plain, &path.field("subPath"), errors);
    }
    if !expression.is_empty() {
        if !plain.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&path.field("subPathExpr"), expression, detail);
        }
        local_path(expression, &path.field("subPathExpr"), errors);
    }
}
