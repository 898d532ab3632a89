//! Sources of volumes that only pods have; those that `PersistentVolumes` have, too, are in `validate/source.rs`.

use super::super::path::{Errors, Path};
use super::super::source::{self, Holder, driver_name, required};
use super::super::{checks, claim, meta};
use super::paths::{descending, key_to_path, mode};
use super::projected;
use crate::obj::{Obj, as_obj, has, list, object, text};

/// Validates one source of a kind.
pub(super) fn check(key: &str, of: &Obj, path: &Path<'_>, errors: &mut Errors) {
    match key {
        "gitRepo" => {
            required(of, &["repository"], path, errors);
            descending(text(of, "directory"), &path.field("directory"), errors);
        }
        "secret" => files(of, "secretName", path, errors),
        "configMap" => files(of, "name", path, errors),
        "persistentVolumeClaim" => required(of, &["claimName"], path, errors),
        "downwardAPI" => {
            mode(of, "defaultMode", path, errors);
            for file in list(of, "items").iter().map(as_obj) {
                projected::downward_file(file, path, errors);
            }
        }
        "csi" => csi(of, path, errors),
        "ephemeral" => ephemeral(of, path, errors),
        _ => source::source(key, of, Holder::Pod, path, errors),
    }
}

/// Files made from the entries of an object whose name is at a key.
fn files(source: &Obj, name: &str, path: &Path<'_>, errors: &mut Errors) {
    required(source, &[name], path, errors);
    mode(source, "defaultMode", path, errors);
    let items = path.field("items");
    for (i, item) in list(source, "items").iter().map(as_obj).enumerate() {
        key_to_path(item, &items.index(i), errors);
    }
}

/// `validateCSIVolumeSource`. Like upstream, errors show the name of the secret as that of the volume.
fn csi(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    driver_name(text(source, "driver"), &path.field("driver"), errors);
    if !has(source, "nodePublishSecretRef") {
        return;
    }
    let reference = object(source, "nodePublishSecretRef");
    required(reference, &["name"], &path.field("nodePublishSecretRef"), errors);
    let name = text(reference, "name");
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
    claim::spec(object(template, "spec"), &at.field("spec"), errors);
}
