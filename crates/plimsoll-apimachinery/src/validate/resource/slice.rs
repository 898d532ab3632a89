//! `ResourceSlice`.

use super::super::checks;
use super::super::path::{Errors, Path};
use super::{device, driver, duplicates, few, place, pool_name};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

/// `ValidateResourceSlice`.
pub(in super::super) fn slice(slice: &Obj, errors: &mut Errors) {
    spec(object(slice, "spec"), None, errors);
}

/// `ValidateResourceSliceUpdate`: node, driver and pool of a slice are immutable.
pub(in super::super) fn slice_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    spec(object(new, "spec"), Some(object(old, "spec")), errors);
}

fn spec(spec: &Obj, old: Option<&Obj>, errors: &mut Errors) {
    let path = Path::new("spec");
    driver(text(spec, "driver"), &path.field("driver"), errors);
    let pool = object(spec, "pool");
    let at = path.field("pool");
    pool_name(text(pool, "name"), &at.field("name"), errors);
    let count = int(pool, "resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        errors.invalid(&at.field("resourceSliceCount"), count, "must be greater than zero");
    }
    if let Some(generation) = int(pool, "generation").filter(|g| *g < 0) {
        errors.invalid(&at.field("generation"), generation, "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        errors.immutable(&at.field("name"), object(old, "pool"), pool, "name");
        errors.immutable(&path.field("driver"), old, spec, "driver");
        errors.immutable(&path.field("nodeName"), old, spec, "nodeName");
    }
    place::of_slice(spec, &path, errors);
    if has(spec, "sharedCounters") && has(spec, "devices") {
        errors.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    devices(spec, old, &path.field("devices"), errors);
    let at = path.field("sharedCounters");
    let sets = list(spec, "sharedCounters");
    if few(sets, 8, &at, errors) {
        for (i, set) in sets.iter().map(as_obj).enumerate() {
            let here = at.index(i);
            let name = text(set, "name");
            errors.named(&here.field("name"), name, checks::dns_label);
            device::counters(set, &here.field("counters"), errors);
        }
        let names: Vec<&str> = sets.iter().map(|s| text(as_obj(s), "name")).collect();
        duplicates(&names, &at, errors);
    }
}

fn devices(spec: &Obj, old: Option<&Obj>, path: &Path<'_>, errors: &mut Errors) {
    let devices = list(spec, "devices");
    let lists = ["bools", "ints", "strings", "versions"];
    let advanced = devices.iter().map(as_obj).any(|d| {
        !list(d, "taints").is_empty()
            || !list(d, "consumesCounters").is_empty()
            || object(d, "attributes").values().any(|a| lists.iter().any(|key| has(as_obj(a), key)))
    });
    if !few(devices, if advanced { 64 } else { 128 }, path, errors) {
        return;
    }
    let before = |name: &str| {
        let old = list(old?, "devices").iter().map(as_obj);
        old.into_iter().find(|d| text(d, "name") == name)
    };
    let per_device = flag(spec, "perDeviceNodeSelection");
    for (i, one) in devices.iter().map(as_obj).enumerate() {
        device::device(one, before(text(one, "name")), per_device, &path.index(i), errors);
    }
    let names: Vec<&str> = devices.iter().map(|d| text(as_obj(d), "name")).collect();
    duplicates(&names, path, errors);
}

/// Warnings of the strategy.
pub(in super::super) fn slice_warnings(slice: &Obj, found: &mut Vec<String>) {
    let driver = text(object(slice, "spec"), "driver");
    if driver != driver.to_lowercase() {
        found.push(format!(
            "spec.driver: driver names should be lowercase; {} contains uppercase characters",
            crate::go::go_quote(driver)
        ));
    }
}
