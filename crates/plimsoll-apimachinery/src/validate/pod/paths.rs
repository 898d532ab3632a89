//! Paths and modes of files inside of volumes.

use super::super::path::{Errors, Path};
use super::super::source::{no_backsteps, required};
use crate::obj::{Obj, int, text};

/// A path that stays below its start (`validateLocalDescendingPath`).
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

/// `validateKeyToPath`.
pub(super) fn key_to_path(item: &Obj, path: &Path<'_>, errors: &mut Errors) {
    required(item, &["key", "path"], path, errors);
    local_path(text(item, "path"), &path.field("path"), errors);
    mode(item, "mode", path, errors);
}
