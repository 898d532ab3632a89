//! Devices of slices.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{checks, golang};
use super::{EFFECTS, binding_conditions, capacity, duplicates, few, place, qualified_name};
use crate::obj::{Obj, as_obj, flag, has, list, object, text};

/// Longest value of an attribute.
const LONGEST: usize = 64;
/// Longest name that is shown whole: domain, slash, identifier.
const LONGEST_KEY: usize = 63 + 1 + 32;

/// `validateDevice`; `old`: the device of that name before.
pub(super) fn device(
    device: &Obj,
    old: Option<&Obj>,
    per_device: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(device, "name");
    errors.invalid_all(&path.field("name"), name, &checks::dns_label(name));
    let (attributes, capacities) = (object(device, "attributes"), object(device, "capacity"));
    let total = attributes.len() + capacities.len();
    if total > 32 {
        errors.invalid(path, total, "the total number of attributes and capacities must not exceed 32");
    }
    let values: usize = attributes.values().map(|a| values_of(as_obj(a))).sum();
    if values > 48 {
        errors.invalid(path, values, "the total number of attribute values must not exceed 48");
    }
    let at = path.field("attributes");
    for (key, value) in attributes {
        qualified_name(key, &at, errors);
        attribute(value, &at.key(&cut(key, LONGEST_KEY)), errors);
    }
    let at = path.field("capacity");
    for (key, value) in capacities {
        qualified_name(key, &at, errors);
        let shared = flag(device, "allowMultipleAllocations");
        capacity::capacity(as_obj(value), shared, &at.key(&cut(key, LONGEST_KEY)), errors);
    }
    if old.is_none_or(|old| old.get("taints") != device.get("taints")) {
        let at = path.field("taints");
        let taints = list(device, "taints");
        if few(taints, 16, &at, errors) {
            for (i, one) in taints.iter().map(as_obj).enumerate() {
                taint(one, &at.index(i), errors);
            }
        }
    }
    consumed(device, &path.field("consumesCounters"), errors);
    place::of_device(device, per_device, path, errors);
    binding_conditions(device, path, errors);
}

fn values_of(attribute: &Obj) -> usize {
    let lists: usize =
        ["bools", "ints", "strings", "versions"].iter().map(|k| list(attribute, k).len()).sum();
    lists.max(1)
}

/// A key that is too long, its middle left out (`truncateIfTooLong`).
fn cut(key: &str, max: usize) -> String {
    const DOTS: &str = "...";
    if key.len() <= max {
        return key.to_owned();
    }
    let room = max - DOTS.len();
    let (head, tail) = (room.div_ceil(2), key.len() - room / 2);
    let part = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    format!("{}{DOTS}{}", part(key.as_bytes().get(..head)), part(key.as_bytes().get(tail..)))
}

static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const NUMBER: &str = "(0|[1-9][0-9]*)";
    const BEFORE: &str = "(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)";
    const BUILD: &str = "[0-9a-zA-Z-]+";
    Regex::new(&format!(r"^{NUMBER}\.{NUMBER}\.{NUMBER}(-{BEFORE}(\.{BEFORE})*)?(\+{BUILD}(\.{BUILD})*)?$"))
        .ok()
});

/// `validateDeviceAttribute`.
fn attribute(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let one = as_obj(value);
    let string = |text: &str, at: &Path<'_>, errors: &mut Errors| {
        if text.len() > LONGEST {
            errors.too_long(at, LONGEST);
        }
    };
    let version = |text: &str, at: &Path<'_>, errors: &mut Errors| {
        if !VERSION.as_ref().is_some_and(|v| v.is_match(text)) {
            errors.invalid(at, text, "must be a string compatible with semver.org spec 2.0.0");
        }
        string(text, at, errors);
    };
    if has(one, "string") {
        string(text(one, "string"), &path.field("string"), errors);
    }
    if has(one, "version") {
        version(text(one, "version"), &path.field("version"), errors);
    }
    for key in ["bools", "ints", "strings", "versions"] {
        let at = path.field(key);
        if has(one, key) && list(one, key).is_empty() {
            errors.invalid(&at, Value::Array(Vec::new()), "must not be empty if specified");
        }
        for (i, element) in list(one, key).iter().enumerate() {
            match (key, element.as_str()) {
                ("strings", Some(text)) => string(text, &at.index(i), errors),
                ("versions", Some(text)) => version(text, &at.index(i), errors),
                _ => {}
            }
        }
    }
    const ONE: &str = "exactly one value must be specified";
    match golang::fields("DeviceAttribute").iter().filter(|field| has(one, field.wire)).count() {
        0 => errors.invalid(path, "", ONE),
        1 => {}
        _ => errors.invalid_text(path, golang::shown("DeviceAttribute", Some(value)), ONE),
    }
}

/// `validateDeviceTaint` of a new taint.
fn taint(taint: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (key, value) = (text(taint, "key"), text(taint, "value"));
    errors.invalid_all(&path.field("key"), key, &checks::qualified_name(key));
    errors.invalid_all(&path.field("value"), value, &checks::label_value(value));
    errors.choice(&path.field("effect"), text(taint, "effect"), &EFFECTS);
}

/// `validateDeviceCounterConsumption` of all.
fn consumed(device: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let all = list(device, "consumesCounters");
    if !few(all, 2, path, errors) {
        return;
    }
    for (i, one) in all.iter().map(as_obj).enumerate() {
        let here = path.index(i);
        let set = text(one, "counterSet");
        errors.named(&here.field("counterSet"), set, checks::dns_label);
        counters(one, &here.field("counters"), errors);
    }
    let sets: Vec<&str> = all.iter().map(|c| text(as_obj(c), "counterSet")).collect();
    duplicates(&sets, path, errors);
}

/// Counters by name; any amount is valid.
pub(super) fn counters(owner: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let counters = object(owner, "counters");
    if counters.is_empty() {
        errors.required(path, "");
    } else if counters.len() > 32 {
        errors.too_many(path, counters.len(), 32);
    } else {
        for name in counters.keys() {
            errors.invalid_all(path, name, &checks::dns_label(name));
        }
    }
}
