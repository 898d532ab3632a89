//! resource.k8s.io/v1 (dynamic resource allocation).

use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, expression};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// `ResourceClaim`.
pub(super) fn claim(claim: &Obj, errors: &mut Errors) {
    claim_spec(object(claim, "spec"), &Path::new("spec"), errors);
}

/// `ResourceClaimTemplate`.
pub(super) fn claim_template(template: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    claim_spec(object(object(template, "spec"), "spec"), &path.field("spec"), errors);
}

fn claim_spec(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let devices = object(spec, "devices");
    let at = path.field("devices");
    let requests = list(devices, "requests");
    let request_path = at.field("requests");
    if requests.len() > 32 {
        errors.too_many(&request_path, requests.len(), 32);
    }
    let mut names: Vec<String> = Vec::new();
    for (i, request) in requests.iter().map(as_obj).enumerate() {
        let here = request_path.index(i);
        let name = text(request, "name");
        request_of(request, &here, errors);
        if names.iter().any(|n| n == name) {
            errors.duplicate(&here, name);
        }
        names.push(name.to_owned());
        for sub in list(request, "firstAvailable").iter().map(as_obj) {
            names.push(format!("{name}/{}", text(sub, "name")));
        }
    }
    let constraint_path = at.field("constraints");
    for (i, constraint) in list(devices, "constraints").iter().map(as_obj).enumerate() {
        let here = constraint_path.index(i);
        known_requests(constraint, &names, &here, errors);
        let keys = ["matchAttribute", "distinctAttribute"];
        if keys.iter().all(|key| !has(constraint, key)) {
            errors.required(&here, "exactly one of `matchAttribute` or `distinctAttribute` is required");
        }
        for key in keys {
            if let Some(attribute) = constraint.get(key).and_then(Value::as_str) {
                full_name(attribute, &here.field(key), errors);
            }
        }
    }
    let config_path = at.field("config");
    for (i, config) in list(devices, "config").iter().map(as_obj).enumerate() {
        let here = config_path.index(i);
        known_requests(config, &names, &here, errors);
        opaque(config, &here, errors);
    }
}

fn known_requests(owner: &Obj, names: &[String], path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("requests");
    let mut seen: Vec<&str> = Vec::new();
    for (i, name) in list(owner, "requests").iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !names.iter().any(|n| n == name) {
            let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            errors.invalid(&at.index(i), name, detail);
        }
        if seen.contains(&name) {
            errors.duplicate(&at.index(i), name);
        }
        seen.push(name);
    }
}

fn opaque(config: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("opaque");
    let Some(opaque) = config.get("opaque").and_then(Value::as_object) else {
        errors.required(&at, "");
        return;
    };
    driver(text(opaque, "driver"), &at.field("driver"), errors);
    if !has(opaque, "parameters") {
        errors.required(&at.field("parameters"), "");
    }
}

fn driver(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.invalid_all(path, name, &checks::dns_subdomain(&name.to_lowercase()));
}

fn request_of(request: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let name = text(request, "name");
    errors.invalid_all(&path.field("name"), name, &checks::dns_label(name));
    let exactly = request.get("exactly").and_then(Value::as_object);
    let first = list(request, "firstAvailable");
    match (exactly, first.is_empty()) {
        (None, true) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (Some(_), false) => {
            let shown = Value::Object(request.clone());
            errors.invalid(
                path,
                shown,
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            );
        }
        (Some(exactly), true) => device_request(exactly, &path.field("exactly"), errors),
        (None, false) => {
            let at = path.field("firstAvailable");
            if first.len() > 8 {
                errors.too_many(&at, first.len(), 8);
            }
            let mut names: Vec<&str> = Vec::new();
            for (i, sub) in first.iter().map(as_obj).enumerate() {
                let here = at.index(i);
                let name = text(sub, "name");
                errors.invalid_all(&here.field("name"), name, &checks::dns_label(name));
                device_request(sub, &here, errors);
                if names.contains(&name) {
                    errors.duplicate(&here, name);
                }
                names.push(name);
            }
        }
    }
}

fn device_request(request: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let class = text(request, "deviceClassName");
    if class.is_empty() {
        errors.required(&path.field("deviceClassName"), "");
    } else {
        errors.invalid_all(&path.field("deviceClassName"), class, &checks::dns_subdomain(class));
    }
    selectors(request, path, errors);
    let count = int(request, "count").unwrap_or(0);
    let at = path.field("count");
    match text(request, "allocationMode") {
        "All" => {
            if count != 0 {
                errors.invalid(&at, count, "must not be specified when allocationMode is 'All'");
            }
        }
        "ExactCount" => {
            if count <= 0 {
                errors.invalid(&at, count, "must be greater than zero");
            }
        }
        mode => errors.not_supported(&path.field("allocationMode"), mode, &["All", "ExactCount"]),
    }
    let tolerations = path.field("tolerations");
    for (i, t) in list(request, "tolerations").iter().map(as_obj).enumerate() {
        let here = tolerations.index(i);
        errors.one_of(&here.field("operator"), text(t, "operator"), &["Equal", "Exists"]);
    }
}

fn selectors(owner: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("selectors");
    let all = list(owner, "selectors");
    if all.len() > 32 {
        errors.too_many(&at, all.len(), 32);
    }
    for (i, selector) in all.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let Some(cel) = selector.get("cel").and_then(Value::as_object) else {
            errors.required(&here.field("cel"), "");
            continue;
        };
        let source = text(cel, "expression");
        let cel_path = here.field("cel");
        let field = cel_path.field("expression");
        if source.is_empty() {
            errors.required(&field, "");
        } else if source.len() > 10 * 1024 {
            errors.too_long(&field, 10 * 1024);
        } else {
            expression::check(source, expression::Place::Device, &field, errors);
        }
    }
}

/// A name with its domain (`FullyQualifiedName`).
fn full_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    match name.split_once('/') {
        None => errors.invalid(path, name, "must include a domain"),
        Some((domain, id)) => {
            errors.invalid_all(path, name, &checks::dns_subdomain(&domain.to_lowercase()));
            identifier(id, path, errors);
        }
    }
}

fn identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    let b = id.as_bytes();
    let start = b.first().is_some_and(|c| c.is_ascii_alphabetic() || *c == b'_');
    if !start || !b.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_') {
        let detail = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
        errors.invalid(path, id, detail);
    }
}

/// `DeviceClass`.
pub(super) fn class(class: &Obj, errors: &mut Errors) {
    let spec = object(class, "spec");
    let path = Path::new("spec");
    selectors(spec, &path, errors);
    let at = path.field("config");
    for (i, config) in list(spec, "config").iter().map(as_obj).enumerate() {
        opaque(config, &at.index(i), errors);
    }
}

/// `ResourceSlice`.
pub(super) fn slice(slice: &Obj, errors: &mut Errors) {
    let spec = object(slice, "spec");
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
    let chosen: Vec<&str> = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"]
        .into_iter()
        .filter(|key| has(spec, key) && spec.get(*key) != Some(&Value::Bool(false)))
        .collect();
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match chosen.len() {
        0 => errors.required(&path, ONE),
        1 => {}
        _ => {
            let names: Vec<String> = chosen.iter().map(|c| format!("`{c}`")).collect();
            let shown = format!("{{{}}}", names.join(", "));
            errors.invalid(&path, shown, &format!("{ONE}, but multiple fields are set"));
        }
    }
    devices(list(spec, "devices"), &path.field("devices"), errors);
}

fn pool_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    } else if name.len() > 253 {
        errors.too_long(path, 253);
    } else {
        for part in name.split('/') {
            errors.invalid_all(path, part, &checks::dns_subdomain(part));
        }
    }
}

fn devices(devices: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if devices.len() > 128 {
        errors.too_many(path, devices.len(), 128);
    }
    let mut names: Vec<&str> = Vec::new();
    for (i, device) in devices.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(device, "name");
        errors.invalid_all(&at.field("name"), name, &checks::dns_label(name));
        if names.contains(&name) {
            errors.duplicate(&at, name);
        }
        names.push(name);
        let attributes = at.field("attributes");
        for (key, value) in object(device, "attributes") {
            let here = attributes.key(key);
            let set = ["bool", "int", "string", "version"].iter().filter(|k| has(as_obj(value), k)).count();
            if set != 1 {
                let shown = if set == 0 { "".to_owned() } else { value.to_string() };
                errors.invalid(&here, shown, "exactly one value must be specified");
            }
        }
    }
}

/// What a claim asks for is for good.
pub(super) fn claim_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("spec") != new.get("spec") {
        errors.invalid(&Path::new("spec"), new.get("spec").cloned().unwrap_or_default(), IMMUTABLE);
    }
}

/// Where a slice belongs is for good.
pub(super) fn slice_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    errors.immutable(&path.field("driver"), before, after, "driver");
    let pool = path.field("pool");
    errors.immutable(&pool.field("name"), object(before, "pool"), object(after, "pool"), "name");
    errors.immutable(&path.field("nodeName"), before, after, "nodeName");
}

/// A claim is reserved only while it is allocated.
pub(super) fn claim_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let status = object(new, "status");
    let path = Path::new("status");
    let reserved = list(status, "reservedFor");
    let at = path.field("reservedFor");
    if !reserved.is_empty() && !has(status, "allocation") {
        errors.forbidden(&at, "may not be specified when `allocated` is not set");
        return;
    }
    if reserved.len() > 256 {
        errors.too_many(&at, reserved.len(), 256);
    }
    for (i, consumer) in reserved.iter().map(as_obj).enumerate() {
        for key in ["resource", "name", "uid"] {
            if text(consumer, key).is_empty() {
                errors.required(&at.index(i).field(key), "");
            }
        }
    }
}
