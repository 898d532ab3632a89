//! resource.k8s.io/v1 (dynamic resource allocation; upstream: `pkg/apis/resource/validation`).

mod capacity;
mod device;
mod place;
mod request;
mod slice;
mod status;

use std::collections::BTreeSet;

use plimsoll_api::device_cel::ENVIRONMENT;
use plimsoll_cel::{Program, Type};
use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
// Drivers of devices have the same name rules as those of volumes.
use super::source::driver_name as driver;
use super::{checks, golang, meta, resources};
use crate::obj::{Obj, as_obj, list, object, text};

pub(super) use slice::{slice, slice_update, slice_warnings};
pub(super) use status::claim_status;

/// `ResourceClaim`.
pub(super) fn claim(claim: &Obj, errors: &mut Errors) {
    request::claim_spec(object(claim, "spec"), &Path::new("spec"), errors);
}

/// `ResourceClaimTemplate`.
pub(super) fn claim_template(template: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = object(template, "spec");
    let (of_claim, at) = (object(spec, "metadata"), path.field("metadata"));
    meta::of_template(of_claim, &at, errors);
    request::claim_spec(object(spec, "spec"), &path.field("spec"), errors);
}

/// `DeviceClass`.
pub(super) fn class(class: &Obj, errors: &mut Errors) {
    let spec = object(class, "spec");
    let path = Path::new("spec");
    selectors(spec, &path, errors);
    let at = path.field("config");
    if few(list(spec, "config"), 32, &at, errors) {
        for (i, config) in list(spec, "config").iter().map(as_obj).enumerate() {
            opaque(config, &at.index(i), errors);
        }
    }
    if let Some(name) = spec.get("extendedResourceName").and_then(Value::as_str)
        && !resources::is_extended(name)
    {
        errors.invalid(&path.field("extendedResourceName"), name, "must be a valid extended resource name");
    }
}

/// The spec of a claim is immutable.
pub(super) fn claim_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("spec") != new.get("spec") {
        let shown = golang::shown("ResourceClaimSpec", new.get("spec"));
        errors.invalid_text(&Path::new("spec"), shown, IMMUTABLE);
    }
}

/// The spec of a template is immutable.
pub(super) fn claim_template_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("spec") != new.get("spec") {
        let shown = golang::shown("ResourceClaimTemplateSpec", new.get("spec"));
        errors.invalid_text(&Path::new("spec"), shown, IMMUTABLE);
    }
}

/// Whether there are no more elements than allowed; otherwise the elements are not checked.
fn few(all: &[Value], max: usize, path: &Path<'_>, errors: &mut Errors) -> bool {
    if all.len() > max {
        errors.too_many(path, all.len(), max);
    }
    all.len() <= max
}

/// Reports duplicate elements.
fn duplicates(names: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.iter().enumerate() {
        if !seen.insert(name) {
            errors.duplicate(&path.index(i), *name);
        }
    }
}

fn texts<'a>(owner: &'a Obj, key: &str) -> Vec<&'a str> {
    list(owner, key).iter().map(|v| v.as_str().unwrap_or_default()).collect()
}

/// `validateSelectorSlice`.
fn selectors(owner: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const LONGEST: usize = 10 * 1024;
    let at = path.field("selectors");
    let all = list(owner, "selectors");
    if !few(all, 32, &at, errors) {
        return;
    }
    for (i, selector) in all.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let cel_path = here.field("cel");
        let Some(cel) = selector.get("cel").and_then(Value::as_object) else {
            errors.required(&cel_path, "");
            continue;
        };
        let source = text(cel, "expression");
        let field = cel_path.field("expression");
        if source.len() > LONGEST {
            errors.too_long(&field, LONGEST);
        } else {
            self::expression(source, &field, errors);
        }
    }
}

/// An expression that selects devices.
fn expression(source: &str, path: &Path<'_>, errors: &mut Errors) {
    match Program::compile(source, &ENVIRONMENT) {
        Err(why) => errors.invalid(path, source, &format!("compilation failed: {why}")),
        Ok(program) => match program.output_type() {
            Type::Unknown | Type::Bool => {}
            ty => {
                let detail = format!("must evaluate to bool or the unknown type, not {ty}");
                errors.invalid(path, source, &detail);
            }
        },
    }
}

/// `validateDeviceConfiguration`.
fn opaque(config: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("opaque");
    let Some(opaque) = config.get("opaque").and_then(Value::as_object) else {
        errors.required(&at, "");
        return;
    };
    driver(text(opaque, "driver"), &at.field("driver"), errors);
    raw(opaque.get("parameters"), &at.field("parameters"), errors);
}

/// Data of a driver: an object of at most 10 KiB (`validateRawExtension`).
fn raw(data: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    const LARGEST: usize = 10 * 1024;
    match data {
        None | Some(Value::Null) => errors.required(path, ""),
        Some(data) if data.to_string().len() > LARGEST => errors.too_long(path, LARGEST),
        Some(Value::Object(_)) => {}
        Some(_) => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

/// `validatePoolName`.
fn pool_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > 253 {
        errors.too_long(path, 253);
    }
    for part in name.split('/') {
        errors.invalid_all(path, part, &checks::dns_subdomain(part));
    }
}

/// `validateQualifiedName`: an identifier, possibly with the domain it belongs to. Names with more than one slash
/// pass, as upstream lets them.
fn qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.invalid(path, "", "the domain must not be empty");
            } else {
                driver(domain, path, errors);
            }
            if id.is_empty() {
                errors.invalid(path, "", "the name must not be empty");
            } else {
                identifier(id, path, errors);
            }
        }
        _ => {}
    }
}

/// `validateFullyQualifiedName`.
fn full_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    qualified_name(name, path, errors);
    if !name.contains('/') {
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

fn identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > 32 {
        errors.too_long(path, 32);
    }
    let b = id.as_bytes();
    let start = b.first().is_some_and(|c| c.is_ascii_alphabetic() || *c == b'_');
    if !start || !b.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_') {
        let detail = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
        errors.invalid(path, id, detail);
    }
}

/// `validateDeviceBindingParameters`.
fn binding_conditions(owner: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 4;
    let good = texts(owner, "bindingConditions");
    let bad = texts(owner, "bindingFailureConditions");
    let (good_path, bad_path) = (path.field("bindingConditions"), path.field("bindingFailureConditions"));
    for (names, at) in [(&good, &good_path), (&bad, &bad_path)] {
        if names.len() > MOST {
            errors.too_many(at, names.len(), MOST);
            continue;
        }
        for (i, name) in names.iter().enumerate() {
            errors.invalid_all(&at.index(i), name, &checks::qualified_name(name));
        }
    }
    duplicates(&good, &good_path, errors);
    let mut seen = BTreeSet::new();
    for (i, name) in bad.iter().enumerate() {
        if !seen.insert(name) {
            errors.duplicate(&bad_path.index(i), *name);
        }
        if good.contains(name) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(&bad_path.index(i), *name, detail);
        }
    }
    let given = |key: &str| owner.get(key).cloned().unwrap_or(Value::Null);
    if good.is_empty() && !bad.is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        errors.invalid(&good_path, given("bindingConditions"), detail);
    }
    if bad.is_empty() && !good.is_empty() {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        errors.invalid(&bad_path, given("bindingFailureConditions"), detail);
    }
}

/// Effects of taints of devices, in the order of messages.
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

#[cfg(test)]
mod tests;
