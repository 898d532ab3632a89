//! core/v1 Service.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::path::{Errors, IMMUTABLE, Path};
use super::{address, checks, golang, meta, networking};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Whether a Service has no cluster IP (`None`).
pub(super) fn is_headless(spec: &Obj) -> bool {
    matches!(list(spec, "clusterIPs"), [ip] if ip == "None")
}

fn is_named(spec: &Obj) -> bool {
    text(spec, "type") == "ExternalName"
}

fn is_balanced(spec: &Obj) -> bool {
    text(spec, "type") == "LoadBalancer"
}

/// `apiservice.ExternallyAccessible`.
fn is_external(spec: &Obj) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

/// `apiservice.NeedsHealthCheck`.
fn needs_health_check(spec: &Obj) -> bool {
    is_balanced(spec) && text(spec, "externalTrafficPolicy") == "Local"
}

/// A new Service.
pub(super) fn service(service: &Obj, errors: &mut Errors) {
    whole(service, None, errors);
}

/// `validateService`. Values that the old object had already are not checked again.
fn whole(service: &Obj, old: Option<&Obj>, errors: &mut Errors) {
    let spec = object(service, "spec");
    let path = Path::new("spec");
    let annotations = object(object(service, "metadata"), "annotations");
    topology(annotations, errors);
    let kind = text(spec, "type");
    let all = list(spec, "ports");
    let at = path.field("ports");
    if all.is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&at, "");
    }
    match kind {
        "NodePort" | "LoadBalancer" if is_headless(spec) => {
            let ips = path.field("clusterIPs");
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&ips.index(0), "None", &detail);
        }
        "ExternalName" => external_name(spec, &path, errors),
        _ => {}
    }
    ports(all, &at, errors);
    meta::labels(object(spec, "selector"), &path.field("selector"), errors);
    affinity(spec, &path, errors);
    cluster_ips(service, old, errors);
    external_ips(spec, old, &path, errors);
    errors.choice(&path.field("type"), kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    if kind == "ClusterIP" {
        for (i, _) in all.iter().enumerate().filter(|(_, p)| int(as_obj(p), "nodePort").unwrap_or(0) != 0) {
            errors.forbidden(&at.index(i).field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    duplicates(all, &at, errors);
    source_ranges(service, old, &path, errors);
    balancer(spec, &path, errors);
    balancer_class(None, spec, &path, errors);
    traffic(spec, kind, &path, errors);
}

fn topology(annotations: &Obj, errors: &mut Errors) {
    if let (Some(hints), Some(mode)) = (annotations.get(HINTS), annotations.get(MODE))
        && hints != mode
    {
        let meta = Path::new("metadata");
        let at = meta.field("annotations");
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        errors.invalid(&at.key(MODE), mode.clone(), &detail);
    }
}

fn external_name(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !list(spec, key).is_empty() || (key == "ipFamilyPolicy" && has(spec, key)) {
            errors.forbidden(&path.field(key), "may not be set for ExternalName services");
        }
    }
    let name = text(spec, "externalName");
    let plain = name.strip_suffix('.').unwrap_or(name);
    let at = path.field("externalName");
    errors.named(&at, plain, checks::dns_subdomain);
}

fn ports(ports: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, port) in ports.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&at.field("name"), "");
            }
        } else {
            errors.invalid_all(&at.field("name"), name, &checks::dns_label(name));
            if !names.insert(name) {
                errors.duplicate(&at.field("name"), name);
            }
        }
        let number = int(port, "port").unwrap_or(0);
        errors.port(&at.field("port"), number);
        errors.choice(&at.field("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
        errors.port_or_name(&at.field("targetPort"), port.get("targetPort"));
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            errors.invalid_all(&at.field("appProtocol"), protocol, &checks::qualified_name(protocol));
        }
    }
}

fn affinity(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let affinity = text(spec, "sessionAffinity");
    errors.choice(&path.field("sessionAffinity"), affinity, &["ClientIP", "None"]);
    let config = path.field("sessionAffinityConfig");
    if affinity == "ClientIP" {
        let ip = config.field("clientIP");
        let seconds = int(object(object(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds");
        if let Some(seconds) = seconds.filter(|s| !(1..=86_400).contains(s)) {
            let detail = "must be greater than 0 and less than 86400";
            errors.invalid(&ip.field("timeoutSeconds"), seconds, detail);
        }
    } else if affinity == "None" && has(spec, "sessionAffinityConfig") {
        errors.forbidden(&config, "must not be set when session affinity is None");
    }
}

/// Addresses, their families and the policy of families (`ValidateServiceClusterIPsRelatedFields`).
pub(super) fn cluster_ips(service: &Obj, old: Option<&Obj>, errors: &mut Errors) {
    let spec = object(service, "spec");
    if is_named(spec) {
        return;
    }
    let path = Path::new("spec");
    let at = path.field("clusterIPs");
    let ips: Vec<&str> = list(spec, "clusterIPs").iter().map(|ip| ip.as_str().unwrap_or_default()).collect();
    let shown = || spec.get("clusterIPs").cloned().unwrap_or_default();
    match (text(spec, "clusterIP"), ips.first()) {
        ("", Some(_)) => errors.invalid(&at, shown(), "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.required(&at, ""),
        (single, Some(first)) if single != *first => {
            errors.invalid(&at, shown(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    families(spec, &path, errors);
    let known = old.map_or(&[][..], |o| list(object(o, "spec"), "clusterIPs"));
    let before = errors.0.len();
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                errors.invalid(&at, shown(), "'None' must be the first and only value");
            }
        } else if !known.iter().any(|k| k == ip) {
            errors.invalid_all(&at.index(i), ip, &address::legacy(ip));
        }
    }
    let broken = errors.0.len() > before;
    if ips.len() > 2 {
        errors.invalid(&at, shown(), "may only hold up to 2 values");
    }
    if broken {
        return;
    }
    let fours = ips.iter().filter(|ip| address::is_v4(ip)).count();
    let sixes = ips.iter().filter(|ip| address::is_v6(ip)).count();
    if ips.len() > 1 && (fours == 0 || sixes == 0) {
        errors.invalid(&at, shown(), "may specify no more than one IP for each IP family");
    }
    if is_headless(spec) {
        return;
    }
    for (i, (ip, family)) in ips.iter().zip(list(spec, "ipFamilies")).enumerate() {
        let wrong = match family.as_str() {
            Some("IPv4") => address::is_v6(ip),
            Some("IPv6") => !address::is_v6(ip),
            _ => false,
        };
        if wrong {
            let family = family.as_str().unwrap_or_default();
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.invalid(&at.index(i), *ip, &detail);
        }
    }
}

fn families(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("ipFamilies");
    let all = list(spec, "ipFamilies");
    let mut seen = BTreeSet::new();
    for (i, family) in all.iter().enumerate() {
        let name = family.as_str().unwrap_or_default();
        errors.one_of(&at.index(i), name, &["IPv4", "IPv6"]);
        if !seen.insert(name) {
            errors.duplicate(&at.index(i), name);
        }
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str) {
        let allowed = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        errors.one_of(&path.field("ipFamilyPolicy"), policy, &allowed);
    }
}

fn external_ips(spec: &Obj, old: Option<&Obj>, path: &Path<'_>, errors: &mut Errors) {
    let ips = path.field("externalIPs");
    let known = old.map_or(&[][..], |o| list(object(o, "spec"), "externalIPs"));
    for (i, ip) in list(spec, "externalIPs").iter().enumerate() {
        let at = ips.index(i);
        let faults =
            if known.contains(ip) { Vec::new() } else { address::legacy(ip.as_str().unwrap_or_default()) };
        let ip = ip.as_str().unwrap_or_default();
        if faults.is_empty() {
            address::endpoint(ip, &at, errors);
        }
        errors.invalid_all(&at, ip, &faults);
    }
}

fn duplicates(ports: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let mut node_ports = BTreeSet::new();
    for (i, port) in ports.iter().map(as_obj).enumerate() {
        let (protocol, number) = (text(port, "protocol"), int(port, "port").unwrap_or(0));
        let at = path.index(i);
        if let Some(node) = int(port, "nodePort").filter(|n| *n != 0)
            && !node_ports.insert((protocol, node))
        {
            errors.duplicate(&at.field("nodePort"), node);
        }
        if !seen.insert((protocol, number)) {
            let same = json!({"protocol": protocol, "port": number});
            errors.duplicate_text(&at, golang::shown("ServicePort", Some(&same)), "");
        }
    }
}

/// Networks a load balancer lets in, in the field or, as it used to be, in an annotation.
fn source_ranges(service: &Obj, old: Option<&Obj>, path: &Path<'_>, errors: &mut Errors) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let spec = object(service, "spec");
    let annotations = |o: &Obj| object(object(o, "metadata"), "annotations").get(RANGES).cloned();
    let ranges = list(spec, "loadBalancerSourceRanges");
    let known: Vec<&str> = old
        .map_or(&[][..], |o| list(object(o, "spec"), "loadBalancerSourceRanges"))
        .iter()
        .filter_map(|v| v.as_str().map(str::trim))
        .collect();
    if !ranges.is_empty() {
        let at = path.field("LoadBalancerSourceRanges");
        if !is_balanced(spec) {
            errors.forbidden(&at, ONLY);
        }
        for (i, range) in ranges.iter().enumerate() {
            let range = range.as_str().unwrap_or_default().trim();
            if !known.contains(&range) {
                errors.invalid_all(&at.index(i), range, &address::legacy_cidr(range));
            }
        }
    } else if let Some(value) = annotations(service) {
        let meta = Path::new("metadata");
        let at = meta.field("annotations");
        let at = at.key(RANGES);
        if !is_balanced(spec) {
            errors.forbidden(&at, ONLY);
        }
        if old.and_then(annotations).as_ref() != Some(&value) {
            let value = value.as_str().unwrap_or_default().trim();
            for range in value.split(',').map(str::trim).filter(|_| !value.is_empty()) {
                errors.invalid_all(&at, range, &address::legacy_cidr(range));
            }
        }
    }
}

fn balancer(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let set = has(spec, "allocateLoadBalancerNodePorts");
    if set && !is_balanced(spec) {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.forbidden(&path.field("allocateLoadBalancerNodePorts"), detail);
    }
    if !set && is_balanced(spec) {
        errors.required(&Path::new("allocateLoadBalancerNodePorts"), "");
    }
}

/// `validateLoadBalancerClassField`.
fn balancer_class(old: Option<&Obj>, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("loadBalancerClass");
    let class = spec.get("loadBalancerClass").and_then(Value::as_str);
    if let Some(old) = old.filter(|old| is_balanced(old) && is_balanced(spec))
        && old.get("loadBalancerClass") != spec.get("loadBalancerClass")
    {
        let value = spec.get("loadBalancerClass").cloned().unwrap_or_default();
        errors.invalid(&at, value, "may not change once set");
    }
    match class {
        Some(class) if is_balanced(spec) => errors.invalid_all(&at, class, &checks::qualified_name(class)),
        Some(_) => errors.forbidden(&at, "may only be used when `type` is 'LoadBalancer'"),
        None => {}
    }
}

fn traffic(spec: &Obj, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let external = text(spec, "externalTrafficPolicy");
    let at = path.field("externalTrafficPolicy");
    match (is_external(spec), external) {
        (false, "") => {}
        (false, policy) => {
            errors.invalid(&at, policy, "may only be set for externally-accessible services");
        }
        (true, "") => errors.required(&at, ""),
        (true, policy) => errors.one_of(&at, policy, &["Cluster", "Local"]),
    }
    let at = path.field("healthCheckNodePort");
    match (needs_health_check(spec), int(spec, "healthCheckNodePort").unwrap_or(0)) {
        (false, 0) => {}
        (false, port) => {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&at, port, detail);
        }
        (true, 0) => errors.required(&at, ""),
        (true, port) => {
            errors.port(&at, port);
        }
    }
    let at = path.field("internalTrafficPolicy");
    match spec.get("internalTrafficPolicy").and_then(Value::as_str) {
        None if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") => errors.required(&at, ""),
        None => {}
        Some(policy) => errors.one_of(&at, policy, &["Cluster", "Local"]),
    }
    if let Some(way) = spec.get("trafficDistribution").and_then(Value::as_str) {
        let allowed = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        errors.one_of(&path.field("trafficDistribution"), way, &allowed);
    }
}

/// A new version of a Service (`ValidateServiceUpdate`).
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    if !is_named(before) && !is_named(after) {
        changed_ips(before, after, &path, errors);
        changed_families(before, after, &path, errors);
    }
    balancer_class(Some(before), after, &path, errors);
    let port = |spec: &Obj| int(spec, "healthCheckNodePort").unwrap_or(0);
    if needs_health_check(before) && needs_health_check(after) && port(before) != port(after) {
        errors.forbidden(&path.field("healthCheckNodePort"), IMMUTABLE);
    }
    whole(new, Some(old), errors);
}

/// The first address of a service is immutable; a second one may be added and removed with the policy
/// (`validateUpgradeDowngradeClusterIPs`).
fn changed_ips(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if is_headless(before) && is_headless(after) {
        return;
    }
    let (was, is) = (list(before, "clusterIPs"), list(after, "clusterIPs"));
    let at = path.field("clusterIPs");
    let shown = after.get("clusterIPs").cloned().unwrap_or_default();
    if was.len() == is.len() {
        for (i, _) in was.iter().zip(is).enumerate().filter(|(_, (w, i))| w != i) {
            errors.invalid(&at.index(i), shown.clone(), "may not change once set");
        }
        return;
    }
    if was.len() > is.len() && is.is_empty() {
        errors.invalid(&at.index(0), shown.clone(), "primary clusterIP can not be unset");
    }
    if let (Some(was), Some(is)) = (was.first(), is.first())
        && was != is
    {
        errors.invalid(&at.index(0), shown, "may not change once set");
    }
    if was.len() > is.len() && is.len() == 1 {
        single_stack(after, "clusterIP", path, errors);
    }
}

/// As with addresses, so with families (`validateUpgradeDowngradeIPFamilies`).
fn changed_families(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if is_headless(before) || is_headless(after) {
        return;
    }
    let (was, is) = (list(before, "ipFamilies"), list(after, "ipFamilies"));
    let at = path.field("ipFamilies");
    let shown = |key: &str| after.get(key).cloned().unwrap_or_default();
    if was.len() == is.len() {
        for _ in was.iter().zip(is).filter(|(w, i)| w != i) {
            errors.invalid(&at.index(0), shown("ipFamilies"), "may not change once set");
        }
        return;
    }
    if was.len() > is.len() && list(after, "clusterIPs").is_empty() {
        errors.invalid(&at.index(0), shown("ipFamilies"), "primary ipFamily can not be unset");
    }
    if let (Some(was), Some(is)) = (was.first(), is.first())
        && was != is
    {
        // Upstream shows the addresses.
        errors.invalid(&at.index(0), shown("clusterIPs"), "may not change once set");
    }
    if was.len() > is.len() && is.len() == 1 {
        single_stack(after, "ipFamily", path, errors);
    }
}

fn single_stack(after: &Obj, what: &str, path: &Path<'_>, errors: &mut Errors) {
    if text(after, "ipFamilyPolicy") != "SingleStack" {
        let value = after.get("ipFamilyPolicy").cloned().unwrap_or_default();
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.invalid(&path.field("ipFamilyPolicy"), value, &detail);
    }
}

/// Only load balancers have addresses of load balancers (`ValidateLoadBalancerStatus`).
pub(super) fn status(old: &Obj, new: &Obj, errors: &mut Errors) {
    let ingress = |o: &Obj| list(object(object(o, "status"), "loadBalancer"), "ingress").to_vec();
    let path = Path::new("status");
    let at = path.field("loadBalancer");
    let here = at.field("ingress");
    let (known, all) = (ingress(old), ingress(new));
    if !all.is_empty() && !is_balanced(object(new, "spec")) {
        errors.forbidden(&here, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    for (i, point) in all.iter().map(as_obj).enumerate() {
        let (at, ip) = (here.index(i), text(point, "ip"));
        if !ip.is_empty() && !known.iter().any(|k| text(as_obj(k), "ip") == ip) {
            errors.invalid_all(&at.field("ip"), ip, &address::legacy(ip));
        }
        match (point.get("ipMode").and_then(Value::as_str), ip) {
            (None, "") => {}
            (None, _) => errors.required(&at.field("ipMode"), "must be specified when `ip` is set"),
            (Some(_), "") => {
                errors.forbidden(&at.field("ipMode"), "may not be specified when `ip` is not set");
            }
            (Some(mode), _) => errors.one_of(&at.field("ipMode"), mode, &["Proxy", "VIP"]),
        }
        networking::balancer_host(point, &at, errors);
    }
}
