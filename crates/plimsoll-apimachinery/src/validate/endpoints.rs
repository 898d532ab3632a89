//! core/v1 Endpoints and discovery.k8s.io/v1 `EndpointSlice` (upstream: `pkg/apis/core/validation`,
//! `pkg/apis/discovery/validation`).

use serde_json::Value;

use super::path::{Errors, Path};
use super::{address, checks, meta};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Most endpoints of a slice.
const MAX_ENDPOINTS: usize = 1000;
/// Most addresses of an endpoint.
const MAX_ADDRESSES: usize = 100;
/// Most ports of a slice.
const MAX_PORTS: usize = 20_000;
/// Most labels in `deprecatedTopology`.
const MAX_TOPOLOGY: usize = 16;
/// Most zones and most nodes in the hints of an endpoint.
const MAX_HINTS: usize = 8;

/// Endpoints (`ValidateEndpoints`).
pub(super) fn endpoints(endpoints: &Obj, errors: &mut Errors) {
    let path = Path::new("subsets");
    for (i, subset) in list(endpoints, "subsets").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let (ready, unready) = (list(subset, "addresses"), list(subset, "notReadyAddresses"));
        if ready.is_empty() && unready.is_empty() {
            errors.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for (field, addresses) in [("addresses", ready), ("notReadyAddresses", unready)] {
            let here = at.field(field);
            for (k, address) in addresses.iter().map(as_obj).enumerate() {
                endpoint_address(address, &here.index(k), errors);
            }
        }
        let ports = list(subset, "ports");
        let here = at.field("ports");
        for (k, port) in ports.iter().map(as_obj).enumerate() {
            endpoint_port(port, ports.len() > 1, &here.index(k), errors);
        }
    }
}

/// Subsets that were accepted once stay so.
pub(super) fn endpoints_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    forgive(old, new, "subsets", errors);
}

fn forgive(old: &Obj, new: &Obj, field: &str, errors: &mut Errors) {
    if list(old, field) == list(new, field) {
        let own = |path: &str| path.strip_prefix(field).is_some_and(|r| r.is_empty() || r.starts_with('['));
        errors.0.retain(|e| !own(&e.field));
    }
}

fn endpoint_address(address: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (ip, at) = (text(address, "ip"), path.field("ip"));
    errors.invalid_all(&at, ip, &address::legacy(ip));
    let hostname = text(address, "hostname");
    if !hostname.is_empty() {
        errors.invalid_all(&path.field("hostname"), hostname, &checks::dns_label(hostname));
    }
    node_name(address, path, errors);
    address::endpoint(ip, &at, errors);
}

fn node_name(o: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = o.get("nodeName").and_then(Value::as_str) {
        errors.invalid_all(&path.field("nodeName"), node, &checks::dns_subdomain(node));
    }
}

fn endpoint_port(port: &Obj, named: bool, path: &Path<'_>, errors: &mut Errors) {
    let name = text(port, "name");
    if !name.is_empty() {
        errors.invalid_all(&path.field("name"), name, &checks::dns_label(name));
    } else if named {
        errors.required(&path.field("name"), "");
    }
    let number = int(port, "port").unwrap_or(0);
    errors.port(&path.field("port"), number);
    protocols(port, path, errors);
}

fn protocols(port: &Obj, path: &Path<'_>, errors: &mut Errors) {
    errors.choice(&path.field("protocol"), text(port, "protocol"), &PROTOCOLS);
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        errors.invalid_all(&path.field("appProtocol"), protocol, &checks::qualified_name(protocol));
    }
}

/// `EndpointSlice` (`ValidateEndpointSlice`).
pub(super) fn slice(slice: &Obj, errors: &mut Errors) {
    let kind = text(slice, "addressType");
    let path = Path::new("addressType");
    errors.choice(&path, kind, &["FQDN", "IPv4", "IPv6"]);
    slice_ports(list(slice, "ports"), errors);
    let path = Path::new("endpoints");
    let endpoints = list(slice, "endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        errors.too_many(&path, endpoints.len(), MAX_ENDPOINTS);
        return;
    }
    for (i, endpoint) in endpoints.iter().map(as_obj).enumerate() {
        slice_endpoint(endpoint, kind, &path.index(i), errors);
    }
}

/// Endpoints that were accepted once stay valid; the address type of a slice is immutable.
pub(super) fn slice_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    forgive(old, new, "endpoints", errors);
    errors.immutable(&Path::new("addressType"), old, new, "addressType");
}

fn slice_ports(ports: &[Value], errors: &mut Errors) {
    let path = Path::new("ports");
    if ports.len() > MAX_PORTS {
        errors.too_many(&path, ports.len(), MAX_PORTS);
        return;
    }
    let mut names = std::collections::BTreeSet::new();
    for (i, port) in ports.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_all(&at.field("name"), name, &checks::dns_label(name));
        }
        if !names.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
        match port.get("protocol").and_then(Value::as_str) {
            None => errors.required(&at.field("protocol"), ""),
            Some(protocol) => errors.one_of(&at.field("protocol"), protocol, &PROTOCOLS),
        }
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            errors.invalid_all(&at.field("appProtocol"), protocol, &checks::qualified_name(protocol));
        }
    }
}

fn slice_endpoint(endpoint: &Obj, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let addresses = list(endpoint, "addresses");
    let at = path.field("addresses");
    if addresses.is_empty() {
        errors.required(&at, "must contain at least 1 address");
    } else if addresses.len() > MAX_ADDRESSES {
        errors.too_many(&at, addresses.len(), MAX_ADDRESSES);
    }
    for (i, address) in addresses.iter().enumerate() {
        slice_address(address.as_str().unwrap_or_default(), kind, &at, i, errors);
    }
    node_name(endpoint, path, errors);
    let topology = object(endpoint, "deprecatedTopology");
    let at = path.field("deprecatedTopology");
    if topology.len() > MAX_TOPOLOGY {
        errors.too_many(&at, topology.len(), MAX_TOPOLOGY);
    }
    meta::labels(topology, &at, errors);
    if let Some(hostname) = endpoint.get("hostname").and_then(Value::as_str) {
        errors.invalid_all(&path.field("hostname"), hostname, &checks::dns_label(hostname));
    }
    if has(endpoint, "hints") {
        hints(object(endpoint, "hints"), &path.field("hints"), errors);
    }
}

fn slice_address(address: &str, kind: &str, path: &Path<'_>, i: usize, errors: &mut Errors) {
    let at = path.index(i);
    let (faults, fits, other) = match kind {
        "IPv4" => (address::legacy(address), address::is_v4(address), "must be an IPv4 address"),
        "IPv6" => (address::strict(address), address::is_v6(address), "must be an IPv6 address"),
        "FQDN" => return full_name(address, &at, errors),
        _ => return,
    };
    if !faults.is_empty() {
        errors.invalid_all(&at, address, &faults);
        return;
    }
    if !fits {
        errors.invalid(path, address, other);
    }
    address::endpoint(address, &at, errors);
}

/// `IsFullyQualifiedDomainName`.
fn full_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let faults = checks::dns_subdomain(name);
    if !faults.is_empty() {
        errors.invalid(path, name, &faults.join(","));
    } else if !name.contains('.') {
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    } else if let Some((label, faults)) =
        name.split('.').map(|label| (label, checks::dns_label(label))).find(|(_, f)| !f.is_empty())
    {
        errors.invalid(path, label, &faults.join(","));
    }
}

fn hints(hints: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for field in ["forZones", "forNodes"] {
        let (all, at) = (list(hints, field), path.field(field));
        if all.len() > MAX_HINTS {
            errors.too_many(&at, all.len(), MAX_HINTS);
            return;
        }
        let mut names: Vec<&str> = Vec::new();
        for (i, hint) in all.iter().map(as_obj).enumerate() {
            let name = text(hint, "name");
            let here = at.index(i);
            let here = here.field("name");
            if names.contains(&name) {
                errors.duplicate(&here, name);
            } else {
                names.push(name);
            }
            let faults =
                if field == "forZones" { checks::label_value(name) } else { checks::dns_subdomain(name) };
            errors.invalid_all(&here, name, &faults);
        }
    }
}

/// Warnings for addresses that are accepted (`warnOnBadIPs`, `endpointsWarnings`), except in Endpoints that the endpoint
/// controller manages.
pub(super) fn endpoints_warnings(new: &Obj, found: &mut Vec<String>) {
    if managed_by(new, "endpoints.kubernetes.io/managed-by") == "endpoint-controller" {
        return;
    }
    let path = Path::new("subsets");
    for (i, subset) in list(new, "subsets").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        for field in ["addresses", "notReadyAddresses"] {
            let here = at.field(field);
            for (k, address) in list(subset, field).iter().map(as_obj).enumerate() {
                found.extend(address::warning(&here.index(k).field("ip"), text(address, "ip")));
            }
        }
    }
}

/// See [`endpoints_warnings`].
pub(super) fn slice_warnings(created: bool, new: &Obj, found: &mut Vec<String>) {
    if created && text(new, "addressType") == "FQDN" {
        found.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let own = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    if own.contains(&managed_by(new, "endpointslice.kubernetes.io/managed-by")) {
        return;
    }
    let path = Path::new("endpoints");
    for (i, endpoint) in list(new, "endpoints").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let at = at.field("addresses");
        for (k, address) in list(endpoint, "addresses").iter().enumerate() {
            found.extend(address::warning(&at.index(k), address.as_str().unwrap_or_default()));
        }
    }
}

fn managed_by<'a>(o: &'a Obj, label: &str) -> &'a str {
    text(object(object(o, "metadata"), "labels"), label)
}

#[cfg(test)]
mod tests;
