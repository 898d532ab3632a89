//! Volumes of pods, and their mounts in containers.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::source::{LONG_PORTAL, has_backsteps, is_long_portal};
use super::super::{checks, resources};
use super::{Context, Owner, paths, projected, source};
use crate::obj::{Obj, as_obj, flag, has, list, object, text};

/// Sources in upstream's order of checking; how the path of errors in one, and of an error about one too many,
/// names it.
const SOURCES: [(&str, &str, &str); 30] = [
    ("emptyDir", "emptyDir", "emptyDir"),
    ("hostPath", "hostPath", "hostPath"),
    ("gitRepo", "gitRepo", "gitRepo"),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret", "secret"),
    ("nfs", "nfs", "nfs"),
    ("iscsi", "iscsi", "iscsi"),
    ("glusterfs", "glusterfs", "glusterfs"),
    ("flocker", "flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd", "rbd"),
    ("cinder", "cinder", "cinder"),
    ("cephfs", "cephfs", "cephFS"),
    ("quobyte", "quobyte", "quobyte"),
    ("downwardAPI", "downwardAPI", "downwarAPI"),
    ("fc", "fc", "fc"),
    ("flexVolume", "flexVolume", "flexVolume"),
    ("configMap", "configMap", "configMap"),
    ("azureFile", "azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk", "azureDisk"),
    ("storageos", "storageos", "storageos"),
    ("projected", "projected", "projected"),
    ("scaleIO", "scaleIO", "scaleIO"),
    ("csi", "csi", "csi"),
    ("ephemeral", "ephemeral", "ephemeral"),
    ("image", "image", "image"),
];

/// `ValidateVolumes`; gives the volumes whose names can be referred to.
pub(super) fn volumes<'a>(
    volumes: &'a [Value],
    owner: Owner<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) -> BTreeMap<&'a str, &'a Obj> {
    let mut known: BTreeMap<&str, &Obj> = BTreeMap::new();
    let ephemeral = volumes.iter().map(as_obj).filter(|v| has(v, "ephemeral"));
    let made: BTreeSet<&str> = ephemeral.map(|v| text(v, "name")).collect();
    for (i, volume) in volumes.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(volume, "name");
        let before = errors.0.len();
        sources(volume, owner, &at, errors);
        errors.named(&at.field("name"), name, checks::dns_label);
        if known.contains_key(name) {
            errors.duplicate(&at.field("name"), name);
        }
        if errors.0.len() == before {
            known.insert(name, volume);
        }
        made_claims(volume, &made, owner, &at, errors);
    }
    known
}

/// A claim for a pod's ephemeral volume is used once.
fn made_claims(volume: &Obj, made: &BTreeSet<&str>, owner: Owner<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Some(pod) = owner.name() else { return };
    let Some(claim) = volume.get("persistentVolumeClaim").and_then(Value::as_object) else { return };
    let wanted = text(claim, "claimName");
    let of = wanted.strip_prefix(pod).and_then(|rest| rest.strip_prefix('-'));
    if of.is_some_and(|of| made.contains(of)) {
        let source = path.field("persistentVolumeClaim");
        let detail = "must not reference a PVC that gets created for an ephemeral volume";
        errors.invalid(&source.field("claimName"), wanted, detail);
    }
}

/// `validateVolumeSource`: one source, and that one well formed.
fn sources(volume: &Obj, owner: Owner<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for (key, inner, refused) in SOURCES {
        let Some(source) = volume.get(key).and_then(Value::as_object) else { continue };
        if found {
            errors.forbidden(&path.field(refused), "may not specify more than 1 volume type");
            if key == "iscsi" {
                iscsi_length(volume, source, path, errors);
            }
            continue;
        }
        found = true;
        let at = path.field(inner);
        match key {
            "emptyDir" => empty_dir(source, &at, errors),
            "projected" => projected::projected(source, &at, errors),
            "image" => image(source, owner, &at, errors),
            "iscsi" => {
                source::check(key, source, &at, errors);
                iscsi_length(volume, source, path, errors);
            }
            "ephemeral" => {
                source::check(key, source, &at, errors);
                claim_name(text(volume, "name"), owner, path, errors);
            }
            _ => source::check(key, source, &at, errors),
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn empty_dir(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if source.get("sizeLimit").is_some_and(|limit| resources::amount(limit).signum() < 0) {
        let detail = "SizeLimit field must be a valid resource quantity";
        errors.forbidden(&path.field("sizeLimit"), detail);
    }
}

fn image(source: &Obj, owner: Owner<'_>, path: &Path<'_>, errors: &mut Errors) {
    if matches!(owner, Owner::Pod(_)) && text(source, "reference").is_empty() {
        errors.required(&path.field("reference"), "");
    }
    super::pull_policy(source, "pullPolicy", path, errors);
}

/// Like upstream, this is checked also when there are other sources.
fn iscsi_length(volume: &Obj, source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let name = text(volume, "name");
    if has(source, "initiatorName") && is_long_portal(name, text(source, "targetPortal")) {
        errors.invalid(&path.field("name"), name, LONG_PORTAL);
    }
}

/// The claim of an ephemeral volume is named after pod and volume.
fn claim_name(volume: &str, owner: Owner<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Some(pod) = owner.name().filter(|_| !volume.is_empty()) else { return };
    let claim = format!("{pod}-{volume}");
    for fault in checks::dns_subdomain(&claim) {
        errors.invalid(
            &path.field("name"),
            volume,
            &format!("PVC name {}: {fault}", crate::go::go_quote(&claim)),
        );
    }
}

/// Mounts and devices of a container.
pub(super) fn mounts(c: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    volume_mounts(c, context, &path.field("volumeMounts"), errors);
    volume_devices(c, context, &path.field("volumeDevices"), errors);
}

/// `ValidateVolumeMounts`. Paths inside of a mount have no index, as upstream.
fn volume_mounts(c: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut points = BTreeSet::new();
    let devices = pairs(c, "volumeDevices", "devicePath");
    for (i, mount) in list(c, "volumeMounts").iter().map(as_obj).enumerate() {
        let here = path.index(i);
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        }
        if context.volume(name).is_none() {
            errors.not_found(&here.field("name"), name, "");
        }
        let at = here.field("mountPath");
        if point.is_empty() {
            errors.required(&at, "");
        }
        if !points.insert(point) {
            errors.invalid(&at, point, "must be unique");
        }
        if devices.contains_key(name) {
            errors.invalid(&here.field("name"), name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|target| *target == point) {
            errors.invalid(&at, point, "must not already exist as a path in volumeDevices");
        }
        sub_paths(mount, &here, path, errors);
        propagation(mount, c, &path.field("mountPropagation"), errors);
        recursive(mount, &path.field("recursiveReadOnly"), errors);
    }
}

/// Names and paths; the last of a name counts.
fn pairs<'a>(c: &'a Obj, key: &str, target: &str) -> BTreeMap<&'a str, &'a str> {
    list(c, key).iter().map(as_obj).map(|one| (text(one, "name"), text(one, target))).insert_each()
}

fn sub_paths(mount: &Obj, mount_path: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (plain, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !plain.is_empty() {
        paths::descending(plain, &path.field("subPath"), errors);
    }
    if !expression.is_empty() {
        if !plain.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&mount_path.field("subPathExpr"), expression, detail);
        }
        paths::descending(expression, &path.field("subPathExpr"), errors);
    }
}

/// `validateMountPropagation`.
fn propagation(mount: &Obj, c: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let Some(mode) = mount.get("mountPropagation").and_then(Value::as_str) else { return };
    errors.one_of(path, mode, &["Bidirectional", "HostToContainer", "None"]);
    if mode == "Bidirectional" && !flag(object(c, "securityContext"), "privileged") {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(path, detail);
    }
}

/// `validateMountRecursiveReadOnly`.
fn recursive(mount: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let Some(mode) = mount.get("recursiveReadOnly").and_then(Value::as_str) else { return };
    match mode {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !flag(mount, "readOnly") {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if has(mount, "mountPropagation") && text(mount, "mountPropagation") != "None" {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(path, detail);
            }
        }
        other => errors.not_supported(path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// `ValidateVolumeDevices`.
fn volume_devices(c: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    if list(c, "volumeDevices").is_empty() {
        return;
    }
    let (mut names, mut targets) = (BTreeSet::new(), BTreeSet::new());
    let mounts = pairs(c, "volumeMounts", "mountPath");
    for (i, device) in list(c, "volumeDevices").iter().map(as_obj).enumerate() {
        let here = path.index(i);
        let (at, target_path) = (here.field("name"), here.field("devicePath"));
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(&at, "");
        }
        if names.contains(name) {
            errors.invalid(&at, name, "must be unique");
        }
        match context.volume(name) {
            None => errors.not_found(&at, name, ""),
            Some(v) if !(has(v, "persistentVolumeClaim") || has(v, "ephemeral")) => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&at, name, detail);
            }
            Some(_) => {}
        }
        if target.is_empty() {
            errors.required(&target_path, "");
        }
        if targets.contains(target) {
            errors.invalid(&target_path, target, "must be unique");
        }
        if has_backsteps(target) {
            errors.invalid(&target_path, target, "can not contain backsteps ('..')");
        } else {
            targets.insert(target);
        }
        if mounts.contains_key(name) {
            errors.invalid(&at, name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|point| *point == target) {
            errors.invalid(&target_path, target, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
