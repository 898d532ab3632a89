//! Projected volumes and the downward API (`validateProjectionSources`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::source::required;
use super::env::{VOLUME_FIELDS, field_ref, resource_field_ref};
use super::paths::{key_to_path, local_path, mode};
use crate::obj::{Obj, as_obj, int, list, text};

/// `validateDownwardAPIVolumeFile`.
pub(super) fn downward_file(file: &Obj, path: &Path<'_>, errors: &mut Errors) {
    required(file, &["path"], path, errors);
    local_path(text(file, "path"), &path.field("path"), errors);
    let field = file.get("fieldRef").and_then(Value::as_object);
    let resource = file.get("resourceFieldRef").and_then(Value::as_object);
    match (field, resource) {
        (Some(field), other) => {
            field_ref(field, VOLUME_FIELDS, &path.field("fieldRef"), errors);
            if other.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, "resource", detail);
            }
        }
        (None, Some(resource)) => {
            resource_field_ref(resource, true, &path.field("resourceFieldRef"), errors);
        }
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(file, "mode", path, errors);
}

/// `validateProjectedVolumeSource`. Sources of kinds that are switched off are dropped before this.
pub(super) fn projected(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let mut paths = BTreeSet::new();
    let sources = path.field("sources");
    for (i, part) in list(source, "sources").iter().map(as_obj).enumerate() {
        let at = sources.index(i);
        let mut found = 0;
        for (key, name) in [("secret", "secret"), ("configMap", "configMap")] {
            let Some(inner) = part.get(key).and_then(Value::as_object) else { continue };
            found += 1;
            let here = at.field(name);
            required(inner, &["name"], &here, errors);
            let items = here.field("items");
            for (j, item) in list(inner, "items").iter().map(as_obj).enumerate() {
                key_to_path(item, &items.index(j), errors);
                apart(text(item, "path"), text(inner, "name"), &mut paths, path, errors);
            }
        }
        if let Some(inner) = part.get("downwardAPI").and_then(Value::as_object) {
            found += 1;
            for file in list(inner, "items").iter().map(as_obj) {
                downward_file(file, &at.field("downwardAPI"), errors);
                apart(text(file, "path"), text(file, "path"), &mut paths, path, errors);
            }
        }
        if let Some(inner) = part.get("serviceAccountToken").and_then(Value::as_object) {
            found += 1;
            token(inner, &at.field("serviceAccountToken"), path, errors);
        }
        if found > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

/// No two files at one path.
fn apart<'a>(
    file: &'a str,
    shown: &str,
    paths: &mut BTreeSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !file.is_empty() && !paths.insert(file) {
        errors.invalid(path, shown, "conflicting duplicate paths");
    }
}

/// A token of the pod's account; its path is checked at the volume, as upstream.
fn token(token: &Obj, path: &Path<'_>, volume: &Path<'_>, errors: &mut Errors) {
    errors.token_seconds(&path.field("expirationSeconds"), int(token, "expirationSeconds").unwrap_or(0));
    let target = text(token, "path");
    if target.is_empty() {
        errors.required(&volume.field("path"), "");
    } else {
        local_path(target, &volume.field("path"), errors);
    }
}
