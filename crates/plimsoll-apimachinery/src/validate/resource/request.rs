//! Requests of claims.

use serde_json::Value;

use super::super::checks;
use super::super::path::{Errors, Path};
use super::{EFFECTS, driver, duplicates, few, full_name, opaque, selectors, texts};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// A request and its subrequests, by name (`gatherRequestNames`).
pub(super) struct Names<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Names<'a> {
    /// The requests of a claim's spec.
    pub fn of(spec: &'a Obj) -> Self {
        let requests = list(object(spec, "devices"), "requests").iter().map(as_obj);
        let one = |request: &'a Obj| {
            let subs = list(request, "firstAvailable").iter().map(|s| text(as_obj(s), "name")).collect();
            (text(request, "name"), subs)
        };
        Self(requests.map(one).collect())
    }

    fn has(&self, request: &str, sub: Option<&str>) -> bool {
        // The last one of several with this name counts.
        let found = self.0.iter().rev().find(|(name, _)| *name == request);
        found.is_some_and(|(_, subs)| sub.is_none_or(|sub| subs.contains(&sub)))
    }
}

/// `validateRequestNameRef`.
pub(super) fn name_ref(name: &str, names: &Names<'_>, path: &Path<'_>, errors: &mut Errors) {
    const UNKNOWN: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > 2 {
        errors.invalid(path, name, UNKNOWN);
        return;
    }
    for part in &parts {
        errors.invalid_all(path, part, &checks::dns_label(part));
    }
    if !names.has(parts.first().copied().unwrap_or_default(), parts.get(1).copied()) {
        errors.invalid(path, name, UNKNOWN);
    }
}

/// A set of references to requests.
pub(super) fn name_refs(owner: &Obj, names: &Names<'_>, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("requests");
    if !few(list(owner, "requests"), 32, &at, errors) {
        return;
    }
    let all = texts(owner, "requests");
    for (i, name) in all.iter().enumerate() {
        name_ref(name, names, &at.index(i), errors);
    }
    duplicates(&all, &at, errors);
}

/// `validateResourceClaimSpec`.
pub(super) fn claim_spec(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let devices = object(spec, "devices");
    let at = path.field("devices");
    let names = Names::of(spec);
    let requests = list(devices, "requests");
    let request_path = at.field("requests");
    if few(requests, 32, &request_path, errors) {
        for (i, one) in requests.iter().map(as_obj).enumerate() {
            request(one, &request_path.index(i), errors);
        }
        let names: Vec<&str> = requests.iter().map(|r| text(as_obj(r), "name")).collect();
        duplicates(&names, &request_path, errors);
    }
    let constraint_path = at.field("constraints");
    let constraints = list(devices, "constraints");
    if few(constraints, 32, &constraint_path, errors) {
        for (i, one) in constraints.iter().map(as_obj).enumerate() {
            constraint(one, &names, &constraint_path.index(i), errors);
        }
    }
    let config_path = at.field("config");
    let configs = list(devices, "config");
    if few(configs, 32, &config_path, errors) {
        for (i, config) in configs.iter().map(as_obj).enumerate() {
            let here = config_path.index(i);
            name_refs(config, &names, &here, errors);
            opaque(config, &here, errors);
        }
    }
}

fn constraint(constraint: &Obj, names: &Names<'_>, path: &Path<'_>, errors: &mut Errors) {
    name_refs(constraint, names, path, errors);
    for key in ["matchAttribute", "distinctAttribute"] {
        if let Some(attribute) = constraint.get(key).and_then(Value::as_str) {
            full_name(attribute, &path.field(key), errors);
            return;
        }
    }
    // Upstream has the same text for every field.
    errors.required(
        path,
        "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
    );
}

/// `validateDeviceRequest`.
fn request(request: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    let name = text(request, "name");
    errors.invalid_all(&path.field("name"), name, &checks::dns_label(name));
    let exactly = request.get("exactly").and_then(Value::as_object);
    let first = list(request, "firstAvailable");
    match (exactly, first.is_empty()) {
        (None, true) => errors.required(path, ONE),
        (Some(_), false) => {
            errors.invalid(path, Value::Null, &format!("{ONE}, but multiple fields are set"));
        }
        (Some(exactly), true) => device_request(exactly, &path.field("exactly"), errors),
        (None, false) => {
            let at = path.field("firstAvailable");
            if !few(first, 8, &at, errors) {
                return;
            }
            for (i, sub) in first.iter().map(as_obj).enumerate() {
                let here = at.index(i);
                let name = text(sub, "name");
                errors.invalid_all(&here.field("name"), name, &checks::dns_label(name));
                device_request(sub, &here, errors);
            }
            let names: Vec<&str> = first.iter().map(|s| text(as_obj(s), "name")).collect();
            duplicates(&names, &at, errors);
        }
    }
}

fn device_request(request: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let class = text(request, "deviceClassName");
    errors.named(&path.field("deviceClassName"), class, checks::dns_subdomain);
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
    for (i, one) in list(request, "tolerations").iter().map(as_obj).enumerate() {
        toleration(one, &tolerations.index(i), errors);
    }
}

/// `validateDeviceToleration`.
fn toleration(toleration: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (key, value) = (text(toleration, "key"), text(toleration, "value"));
    if !key.is_empty() {
        errors.invalid_all(&path.field("key"), key, &checks::qualified_name(key));
    }
    match text(toleration, "operator") {
        "Exists" => {
            if !value.is_empty() {
                errors.invalid(&path.field("value"), value, "must be empty for operator `Exists`");
            }
        }
        "Equal" => errors.invalid_all(&path.field("value"), value, &checks::label_value(value)),
        "" => errors.required(&path.field("operator"), ""),
        other => errors.not_supported(&path.field("operator"), other, &["Equal", "Exists"]),
    }
    let effect = text(toleration, "effect");
    if !effect.is_empty() {
        errors.one_of(&path.field("effect"), effect, &EFFECTS);
    }
}

/// The allocation of a request (`validateDeviceRequestAllocationResult`).
pub(super) fn result(result: &Obj, names: &Names<'_>, path: &Path<'_>, errors: &mut Errors) {
    name_ref(text(result, "request"), names, &path.field("request"), errors);
    driver(text(result, "driver"), &path.field("driver"), errors);
    super::pool_name(text(result, "pool"), &path.field("pool"), errors);
    let device = text(result, "device");
    errors.invalid_all(&path.field("device"), device, &checks::dns_label(device));
    super::binding_conditions(result, path, errors);
    if has(result, "shareID") {
        uid(text(result, "shareID"), &path.field("shareID"), errors);
    }
}

/// `validateUID`: a UUID in its normalized form.
pub(super) fn uid(uid: &str, path: &Path<'_>, errors: &mut Errors) {
    let bare = match uid.len() {
        45 if uid.get(..9).is_some_and(|p| p.eq_ignore_ascii_case("urn:uuid:")) => uid.get(9..),
        38 if uid.starts_with('{') && uid.ends_with('}') => uid.get(1..37),
        36 | 32 => Some(uid),
        other => {
            let detail = format!("error validating uid: invalid UUID length: {other}");
            errors.invalid(path, uid, &detail);
            return;
        }
    };
    let bare = bare.unwrap_or_default();
    let dash = |i: usize| bare.len() == 36 && matches!(i, 8 | 13 | 18 | 23);
    let fine = bare.bytes().enumerate().all(|(i, b)| if dash(i) { b == b'-' } else { b.is_ascii_hexdigit() });
    if bare.is_empty() || !fine {
        errors.invalid(path, uid, "error validating uid: invalid UUID format");
    } else if uid.len() != 36 || uid.bytes().any(|b| b.is_ascii_uppercase()) {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        errors.invalid(path, uid, detail);
    }
}
