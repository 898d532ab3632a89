//! Status of claims.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::path::{Errors, IMMUTABLE, Path};
use super::super::{address, checks, conditions, golang, pod};
use super::request::{self, Names};
use super::{driver, few, opaque, pool_name, raw};
use crate::obj::{Obj, as_obj, has, list, object, text};

/// A device with the share of it, as messages show it: driver, pool, device, share.
type DeviceId<'a> = [&'a str; 4];

fn id(of: &Obj) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|key| text(of, key))
}

/// `ValidateResourceClaimStatusUpdate`.
pub(in super::super) fn claim_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, status) = (object(old, "status"), object(new, "status"));
    let path = Path::new("status");
    let names = Names::of(object(new, "spec"));
    reserved_for(list(status, "reservedFor"), &path.field("reservedFor"), errors);
    devices(status, &path.field("devices"), errors);
    let reserved = list(status, "reservedFor");
    if !reserved.is_empty() {
        let at = path.field("reservedFor");
        let known = list(before, "reservedFor");
        if !has(status, "allocation") {
            errors.forbidden(&at, "may not be specified when `allocated` is not set");
        } else if has(object(new, "metadata"), "deletionTimestamp")
            && reserved.iter().any(|r| !known.contains(r))
        {
            let detail =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&at, detail);
        }
    }
    let at = path.field("allocation");
    match (before.get("allocation").filter(|a| !a.is_null()), status.get("allocation")) {
        (_, None | Some(Value::Null)) => {}
        (Some(before), Some(now)) => {
            if before != now {
                errors.invalid_text(&at, golang::shown("AllocationResult", Some(now)), IMMUTABLE);
            }
        }
        (None, Some(now)) => allocation(as_obj(now), &names, &at, errors),
    }
}

fn reserved_for(reserved: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if !few(reserved, 256, path, errors) {
        return;
    }
    for (i, consumer) in reserved.iter().map(as_obj).enumerate() {
        for key in ["resource", "name", "uid"] {
            if text(consumer, key).is_empty() {
                errors.required(&path.index(i).field(key), "");
            }
        }
    }
    let uids: Vec<&str> = reserved.iter().map(|r| text(as_obj(r), "uid")).collect();
    super::duplicates(&uids, path, errors);
}

/// `validateAllocationResult`.
fn allocation(allocation: &Obj, names: &Names<'_>, path: &Path<'_>, errors: &mut Errors) {
    let devices = object(allocation, "devices");
    let at = path.field("devices");
    let (results, result_path) = (list(devices, "results"), at.field("results"));
    if few(results, 32, &result_path, errors) {
        for (i, one) in results.iter().map(as_obj).enumerate() {
            request::result(one, names, &result_path.index(i), errors);
        }
    }
    let (configs, config_path) = (list(devices, "config"), at.field("config"));
    if few(configs, 64, &config_path, errors) {
        for (i, one) in configs.iter().map(as_obj).enumerate() {
            let here = config_path.index(i);
            errors.choice(&here.field("source"), text(one, "source"), &["FromClaim", "FromClass"]);
            request::name_refs(one, names, &here, errors);
            opaque(one, &here, errors);
        }
    }
    if has(allocation, "nodeSelector") {
        pod::node_selector(object(allocation, "nodeSelector"), &path.field("nodeSelector"), errors);
    }
}

fn devices(status: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let results = list(object(object(status, "allocation"), "devices"), "results");
    let allocated: BTreeSet<DeviceId<'_>> = results.iter().map(|r| id(as_obj(r))).collect();
    let all = list(status, "devices");
    for (i, one) in all.iter().map(as_obj).enumerate() {
        device(one, &allocated, &path.index(i), errors);
    }
    let mut seen = BTreeSet::new();
    for (i, one) in all.iter().enumerate() {
        if !seen.insert(id(as_obj(one))) {
            errors.duplicate_text(&path.index(i), golang::shown("SharedDeviceID", Some(one)), "");
        }
    }
}

/// `validateDeviceStatus`.
fn device(device: &Obj, allocated: &BTreeSet<DeviceId<'_>>, path: &Path<'_>, errors: &mut Errors) {
    driver(text(device, "driver"), &path.field("driver"), errors);
    pool_name(text(device, "pool"), &path.field("pool"), errors);
    let name = text(device, "device");
    errors.invalid_all(&path.field("device"), name, &checks::dns_label(name));
    if has(device, "shareID") {
        request::uid(text(device, "shareID"), &path.field("shareID"), errors);
    }
    if !allocated.contains(&id(device)) {
        errors.invalid_text(
            path,
            golang::structure("SharedDeviceID", device),
            "must be an allocated device in the claim",
        );
    }
    let (all, at) = (list(device, "conditions"), path.field("conditions"));
    if all.len() > 8 {
        errors.too_many(&at, all.len(), 8);
    }
    conditions::conditions(all, &at, errors);
    if has(device, "data") {
        raw(device.get("data"), &path.field("data"), errors);
    }
    if has(device, "networkData") {
        network(object(device, "networkData"), &path.field("networkData"), errors);
    }
}

fn network(data: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (key, max) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if text(data, key).len() > max {
            errors.too_long(&path.field(key), max);
        }
    }
    let at = path.field("ips");
    if few(list(data, "ips"), 16, &at, errors) {
        let ips = super::texts(data, "ips");
        for (i, ip) in ips.iter().enumerate() {
            interface_address(ip, &at.index(i), errors);
        }
        super::duplicates(&ips, &at, errors);
    }
}

/// `IsValidInterfaceAddress`: an address with the length of its network's prefix, in canonical form.
fn interface_address(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(address) = address::Network::parse(text) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        errors.invalid(path, text, detail);
        return;
    };
    let canonical = address.interface();
    if canonical != text {
        let detail = format!("must be in canonical form ({})", crate::go::go_quote(&canonical));
        errors.invalid(path, text, &detail);
    }
}
