//! core/v1 Service.

use serde_json::Value;

use super::path::{Errors, Path, go_struct};
use super::{address, checks, meta};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// core/v1 Service.
pub(super) fn service(service: &Obj, errors: &mut Errors) {
    let spec = object(service, "spec");
    let path = Path::new("spec");
    let kind = text(spec, "type");
    let headless =
        list(spec, "clusterIPs").first().is_some_and(|ip| ip == "None") || text(spec, "clusterIP") == "None";
    let all = list(spec, "ports");
    let at = path.field("ports");
    if all.is_empty() && !headless && kind != "ExternalName" {
        errors.required(&at, "");
    }
    match kind {
        "NodePort" | "LoadBalancer" if headless => {
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
    cluster_ips(spec, &path, errors);
    let ips = path.field("externalIPs");
    for (i, ip) in list(spec, "externalIPs").iter().enumerate() {
        let (ip, at) = (ip.as_str().unwrap_or_default(), ips.index(i));
        let faults = checks::ip(ip);
        if faults.is_empty() {
            address::endpoint(ip, &at, errors);
        }
        errors.invalid_all(&at, ip, &faults);
    }
    match kind {
        "" => errors.required(&path.field("type"), ""),
        kind => {
            errors.one_of(
                &path.field("type"),
                kind,
                &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
            );
        }
    }
    if kind == "ClusterIP" {
        for (i, _) in all.iter().enumerate().filter(|(_, p)| int(as_obj(p), "nodePort").unwrap_or(0) != 0) {
            errors.forbidden(&at.index(i).field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    duplicates(all, &at, errors);
    traffic(spec, kind, &path, errors);
}

fn external_name(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if !list(spec, "clusterIPs").is_empty() {
        errors.forbidden(&path.field("clusterIPs"), "may not be set for ExternalName services");
    }
    let name = text(spec, "externalName");
    let at = path.field("externalName");
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        let plain = name.strip_suffix('.').unwrap_or(name);
        errors.invalid_all(&at, name, &checks::dns_subdomain(plain));
    }
}

fn ports(ports: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut names: Vec<&str> = Vec::new();
    for (i, port) in ports.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&at.field("name"), "");
            }
        } else {
            errors.invalid_all(&at.field("name"), name, &checks::dns_label(name));
            if names.contains(&name) {
                errors.duplicate(&at.field("name"), name);
            }
            names.push(name);
        }
        let number = int(port, "port").unwrap_or(0);
        for fault in checks::port_number(number) {
            errors.invalid(&at.field("port"), number, &fault);
        }
        match text(port, "protocol") {
            "" => errors.required(&at.field("protocol"), ""),
            protocol => errors.one_of(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]),
        }
        let target = at.field("targetPort");
        match port.get("targetPort") {
            Some(Value::String(name)) => errors.invalid_all(&target, name, &checks::port_name(name)),
            other => {
                let number = other.and_then(Value::as_i64).unwrap_or(0);
                for fault in checks::port_number(number) {
                    errors.invalid(&target, number, &fault);
                }
            }
        }
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            errors.invalid_all(&at.field("appProtocol"), protocol, &checks::qualified_name(protocol));
        }
    }
}

fn affinity(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let affinity = text(spec, "sessionAffinity");
    match affinity {
        "" => errors.required(&path.field("sessionAffinity"), ""),
        affinity => errors.one_of(&path.field("sessionAffinity"), affinity, &["ClientIP", "None"]),
    }
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

fn cluster_ips(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let at = path.field("clusterIPs");
    let single = text(spec, "clusterIP");
    let ips = list(spec, "clusterIPs");
    let all: Vec<&str> = if ips.is_empty() && !single.is_empty() {
        vec![single]
    } else {
        ips.iter().filter_map(Value::as_str).collect()
    };
    for (i, ip) in all.iter().enumerate() {
        if *ip == "None" {
            if all.len() > 1 {
                errors.invalid(&at, Value::from(all.clone()), "'None' must be the first and only value");
            }
        } else {
            errors.invalid_all(&at.index(i), ip, &checks::ip(ip));
        }
    }
    let families = path.field("ipFamilies");
    for (i, family) in list(spec, "ipFamilies").iter().enumerate() {
        errors.one_of(&families.index(i), family.as_str().unwrap_or_default(), &["IPv4", "IPv6"]);
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str) {
        let allowed = ["SingleStack", "PreferDualStack", "RequireDualStack"];
        errors.one_of(&path.field("ipFamilyPolicy"), policy, &allowed);
    }
}

fn duplicates(ports: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<(&str, i64)> = Vec::new();
    let mut node_ports: Vec<(&str, i64)> = Vec::new();
    for (i, port) in ports.iter().map(as_obj).enumerate() {
        let (protocol, number) = (text(port, "protocol"), int(port, "port").unwrap_or(0));
        let at = path.index(i);
        if let Some(node) = int(port, "nodePort").filter(|n| *n != 0) {
            if node_ports.contains(&(protocol, node)) {
                errors.duplicate(&at.field("nodePort"), node);
            }
            node_ports.push((protocol, node));
        }
        if seen.contains(&(protocol, number)) {
            let shown = go_struct(&[
                ("Name", "".into()),
                ("Protocol", protocol.into()),
                ("AppProtocol", Value::Null),
                ("Port", number.into()),
                ("TargetPort", 0.into()),
                ("NodePort", 0.into()),
            ]);
            errors.duplicate(&at, "");
            if let Some(last) = errors.0.last_mut() {
                last.value = Some(shown);
            }
        }
        seen.push((protocol, number));
    }
}

fn traffic(spec: &Obj, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let external = text(spec, "externalTrafficPolicy");
    let at = path.field("externalTrafficPolicy");
    let reachable = matches!(kind, "LoadBalancer" | "NodePort") || !list(spec, "externalIPs").is_empty();
    if !external.is_empty() && !reachable {
        let detail = "may only be set for externally-accessible services";
        errors.invalid(&at, external, detail);
    } else if !external.is_empty() {
        errors.one_of(&at, external, &["Cluster", "Local"]);
    }
    if let Some(policy) = spec.get("internalTrafficPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("internalTrafficPolicy"), policy, &["Cluster", "Local"]);
    }
    if has(spec, "allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.forbidden(&path.field("allocateLoadBalancerNodePorts"), detail);
    }
    if has(spec, "loadBalancerClass") && kind != "LoadBalancer" {
        errors.forbidden(&path.field("loadBalancerClass"), "may only be used when `type` is 'LoadBalancer'");
    }
    let ranges = path.field("loadBalancerSourceRanges");
    for (i, range) in list(spec, "loadBalancerSourceRanges").iter().enumerate() {
        let range = range.as_str().unwrap_or_default().trim();
        errors.invalid_all(&ranges.index(i), range, &checks::cidr(range));
    }
}

/// The first address of a service is for good.
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let named = |spec: &Obj| text(spec, "type") == "ExternalName";
    if named(before) || named(after) {
        return;
    }
    let (was, is) = (list(before, "clusterIPs"), list(after, "clusterIPs"));
    let path = Path::new("spec");
    let ips = path.field("clusterIPs");
    if let Some(first) = was.first()
        && is.first() != Some(first)
    {
        // The kind's checks come after this one upstream.
        let mut own = Errors::default();
        own.invalid(&ips.index(0), Value::Array(is.to_vec()), "may not change once set");
        own.0.append(&mut errors.0);
        errors.0 = own.0;
    }
}

/// Only load balancers have addresses of load balancers.
pub(super) fn status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let balancer = object(object(new, "status"), "loadBalancer");
    let path = Path::new("status");
    let at = path.field("loadBalancer");
    let here = at.field("ingress");
    let ingress = list(balancer, "ingress");
    if !ingress.is_empty() && text(object(new, "spec"), "type") != "LoadBalancer" {
        errors.forbidden(&here, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    for (i, point) in ingress.iter().map(as_obj).enumerate() {
        let ip = text(point, "ip");
        if !ip.is_empty() {
            errors.invalid_all(&here.index(i).field("ip"), ip, &checks::ip(ip));
        }
        let host = text(point, "hostname");
        if !host.is_empty() {
            errors.invalid_all(&here.index(i).field("hostname"), host, &checks::dns_subdomain(host));
        }
    }
}
