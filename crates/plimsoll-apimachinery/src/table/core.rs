//! Rows of the core group and of networking.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::age;
use super::cell::{Ctx, access_modes, at, created, given, int, labels, list, name, or, selector, size, text};

/// Namespace.
pub fn namespace(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(text(v, &["status", "phase"])), created(v, ctx)]
}

/// Node.
pub fn node(v: &Value, ctx: Ctx) -> Vec<Value> {
    let ready = list(v, &["status", "conditions"]).iter().rev().find(|c| text(c, &["type"]) == "Ready");
    let mut status = match ready.map(|c| text(c, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(v, &["spec", "unschedulable"]) == true {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| text(v, &["status", "nodeInfo", field]);
    let address = |kind: &str| {
        let found = list(v, &["status", "addresses"])
            .iter()
            .find(|a| text(a, &["type"]) == kind)
            .map(|a| text(a, &["address"]));
        json!(found.unwrap_or("<none>"))
    };
    let kernel = match info("kernelVersion") {
        "" => "<unknown>",
        kernel => kernel,
    };
    let kernel = match info("architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    vec![
        name(v),
        json!(status),
        json!(node_roles(v)),
        created(v, ctx),
        json!(info("kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        or(info("osImage"), "<unknown>"),
        json!(kernel),
        or(info("containerRuntimeVersion"), "<unknown>"),
    ]
}

fn node_roles(v: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in at(v, &["metadata", "labels"]).as_object().into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            if !role.is_empty() {
                roles.insert(role);
            }
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str().filter(|r| !r.is_empty()));
        }
    }
    if roles.is_empty() {
        return "<none>".to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

/// Service.
pub fn service(v: &Value, ctx: Ctx) -> Vec<Value> {
    let ips = list(v, &["spec", "clusterIPs"]);
    let ip = ips.first().and_then(Value::as_str).unwrap_or_else(|| text(v, &["spec", "clusterIP"]));
    let ports: Vec<String> = list(v, &["spec", "ports"])
        .iter()
        .map(|p| {
            let (port, node) = (int(p, &["port"]), int(p, &["nodePort"]));
            let protocol = text(p, &["protocol"]);
            if node > 0 { format!("{port}:{node}/{protocol}") } else { format!("{port}/{protocol}") }
        })
        .collect();
    vec![
        name(v),
        json!(text(v, &["spec", "type"])),
        or(ip, "<none>"),
        json!(external_ips(v)),
        or(&ports.join(","), "<none>"),
        created(v, ctx),
        labels(at(v, &["spec", "selector"])),
    ]
}

fn external_ips(v: &Value) -> String {
    let own = list(v, &["spec", "externalIPs"]).iter().filter_map(Value::as_str);
    let (kind, empty) = (text(v, &["spec", "type"]), "<none>");
    let all: Vec<&str> = match kind {
        "ExternalName" => return text(v, &["spec", "externalName"]).to_owned(),
        "LoadBalancer" => load_balancer(v).into_iter().chain(own).collect(),
        _ => own.collect(),
    };
    match all.is_empty() {
        true if kind == "LoadBalancer" => "<pending>".to_owned(),
        true => empty.to_owned(),
        false => all.join(","),
    }
}

fn load_balancer(v: &Value) -> Vec<&str> {
    let mut found = BTreeSet::new();
    for i in list(v, &["status", "loadBalancer", "ingress"]) {
        let ip = text(i, &["ip"]);
        found.insert(if ip.is_empty() { text(i, &["hostname"]) } else { ip });
    }
    found.into_iter().filter(|s| !s.is_empty()).collect()
}

/// ConfigMap.
pub fn config_map(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(size(v, &["data"]) + size(v, &["binaryData"])), created(v, ctx)]
}

/// Secret.
pub fn secret(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(text(v, &["type"])), json!(size(v, &["data"])), created(v, ctx)]
}

/// Event of the core group, and of events.k8s.io with its other field names.
pub fn event(v: &Value, ctx: Ctx) -> Vec<Value> {
    let either = |a: &'static str, b: &'static str| match at(v, &[a]) {
        Value::Null => at(v, &[b]),
        found => found,
    };
    let mut first = either("firstTimestamp", "deprecatedFirstTimestamp");
    if first.is_null() {
        first = at(v, &["eventTime"]);
    }
    let mut last = either("lastTimestamp", "deprecatedLastTimestamp");
    if last.is_null() {
        last = first;
    }
    let mut count = either("count", "deprecatedCount").as_i64().filter(|c| *c != 0).unwrap_or(1);
    let series = at(v, &["series"]);
    if series.is_object() {
        last = at(series, &["lastObservedTime"]);
        count = int(series, &["count"]);
    }
    let about = either("involvedObject", "regarding");
    let (kind, target) = (text(about, &["kind"]).to_lowercase(), text(about, &["name"]));
    let source = either("source", "deprecatedSource");
    let component = match (text(source, &["component"]), text(v, &["reportingComponent"])) {
        ("", "") => text(v, &["reportingController"]),
        ("", reporting) => reporting,
        (component, _) => component,
    };
    let host = match text(source, &["host"]) {
        "" => text(v, &["reportingInstance"]),
        host => host,
    };
    vec![
        json!(age::age(last, ctx.now)),
        json!(text(v, &["type"])),
        json!(text(v, &["reason"])),
        json!(if target.is_empty() { kind } else { format!("{kind}/{target}") }),
        json!(text(about, &["fieldPath"])),
        json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }),
        json!(either("message", "note").as_str().unwrap_or_default().trim()),
        json!(age::age(first, ctx.now)),
        json!(count),
        name(v),
    ]
}

fn phase(v: &Value) -> Value {
    let deleted = !at(v, &["metadata", "deletionTimestamp"]).is_null();
    json!(if deleted { "Terminating" } else { text(v, &["status", "phase"]) })
}

fn storage_class(v: &Value) -> Value {
    let old = at(v, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    json!(old.as_str().unwrap_or_else(|| text(v, &["spec", "storageClassName"])))
}

/// PersistentVolume.
pub fn volume(v: &Value, ctx: Ctx) -> Vec<Value> {
    let claim = at(v, &["spec", "claimRef"]);
    let claim = if claim.is_object() {
        format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"]))
    } else {
        String::new()
    };
    vec![
        name(v),
        given(v, &["spec", "capacity", "storage"], "0"),
        json!(access_modes(list(v, &["spec", "accessModes"]))),
        json!(text(v, &["spec", "persistentVolumeReclaimPolicy"])),
        phase(v),
        json!(claim),
        storage_class(v),
        given(v, &["spec", "volumeAttributesClassName"], "<unset>"),
        json!(text(v, &["status", "reason"])),
        created(v, ctx),
        given(v, &["spec", "volumeMode"], "<unset>"),
    ]
}

/// PersistentVolumeClaim.
pub fn claim(v: &Value, ctx: Ctx) -> Vec<Value> {
    let bound_to = text(v, &["spec", "volumeName"]);
    let (capacity, modes) = if bound_to.is_empty() {
        (json!(""), String::new())
    } else {
        let capacity = given(v, &["status", "capacity", "storage"], "0");
        (capacity, access_modes(list(v, &["status", "accessModes"])))
    };
    vec![
        name(v),
        phase(v),
        json!(bound_to),
        capacity,
        json!(modes),
        storage_class(v),
        given(v, &["spec", "volumeAttributesClassName"], "<unset>"),
        created(v, ctx),
        given(v, &["spec", "volumeMode"], "<unset>"),
    ]
}

/// ResourceQuota: `used/hard` of each resource, limits in a column of their own.
pub fn quota(v: &Value, ctx: Ctx) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in at(v, &["status", "hard"]).as_object().into_iter().flatten() {
        let used = at(v, &["status", "used", resource]).as_str().unwrap_or("0");
        let cell = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") { limits.push(cell) } else { requests.push(cell) }
    }
    vec![name(v), json!(requests.join(", ")), json!(limits.join(", ")), created(v, ctx)]
}

/// ComponentStatus.
pub fn component_status(v: &Value, _: Ctx) -> Vec<Value> {
    let healthy = list(v, &["conditions"]).iter().find(|c| text(c, &["type"]) == "Healthy");
    let status = match healthy.map(|c| text(c, &["status"])) {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let field = |f: &str| json!(healthy.map_or("", |c| text(c, &[f])));
    vec![name(v), json!(status), field("message"), field("error")]
}

/// Endpoints.
pub fn endpoints(v: &Value, ctx: Ctx) -> Vec<Value> {
    let mut all = Vec::new();
    let subsets = list(v, &["subsets"]);
    for subset in subsets {
        let addresses = || list(subset, &["addresses"]).iter().map(|a| text(a, &["ip"]));
        let ports = list(subset, &["ports"]);
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports.iter().map(|p| int(p, &["port"])) {
            let host = |ip: &str| if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
            all.extend(addresses().map(|ip| format!("{}:{port}", host(ip))));
        }
    }
    let shown = if subsets.is_empty() { "<none>".to_owned() } else { first_three(&all) };
    vec![name(v), json!(shown), created(v, ctx)]
}

fn first_three(all: &[String]) -> String {
    let shown: Vec<&str> = all.iter().take(3).map(String::as_str).collect();
    match all.len().saturating_sub(3) {
        0 => shown.join(","),
        more => format!("{} + {more} more...", shown.join(",")),
    }
}

/// EndpointSlice.
pub fn endpoint_slice(v: &Value, ctx: Ctx) -> Vec<Value> {
    let ports: Vec<String> = list(v, &["ports"])
        .iter()
        .map(|p| match at(p, &["port"]).as_i64() {
            Some(port) => port.to_string(),
            None => at(p, &["name"]).as_str().unwrap_or("*").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(v, &["endpoints"])
        .iter()
        .flat_map(|e| list(e, &["addresses"]))
        .filter_map(|a| a.as_str().map(str::to_owned))
        .collect();
    vec![
        name(v),
        json!(text(v, &["addressType"])),
        or(&first_three(&ports), "<unset>"),
        or(&first_three(&addresses), "<unset>"),
        created(v, ctx),
    ]
}

/// Ingress.
pub fn ingress(v: &Value, ctx: Ctx) -> Vec<Value> {
    let secure = !list(v, &["spec", "tls"]).is_empty();
    vec![
        name(v),
        given(v, &["spec", "ingressClassName"], "<none>"),
        json!(hosts(list(v, &["spec", "rules"]))),
        json!(load_balancer(v).join(",")),
        json!(if secure { "80, 443" } else { "80" }),
        created(v, ctx),
    ]
}

/// The first three hosts; then how many rules there are besides, with a host or without.
fn hosts(rules: &[Value]) -> String {
    let mut named = rules.iter().enumerate().filter(|(_, r)| !text(r, &["host"]).is_empty());
    let first: Vec<(usize, &Value)> = named.by_ref().take(3).collect();
    let shown: Vec<&str> = first.iter().map(|(_, r)| text(r, &["host"])).collect();
    match (first.last(), first.len()) {
        (None, _) => "*".to_owned(),
        (Some((last, _)), 3) if last + 1 < rules.len() => {
            format!("{} + {} more...", shown.join(","), rules.len() - 3)
        }
        _ => shown.join(","),
    }
}

/// IngressClass.
pub fn ingress_class(v: &Value, ctx: Ctx) -> Vec<Value> {
    let p = at(v, &["spec", "parameters"]);
    let group = at(p, &["apiGroup"]).as_str().map(|group| format!(".{group}")).unwrap_or_default();
    let parameters = if p.is_object() {
        format!("{}{group}/{}", text(p, &["kind"]), text(p, &["name"]))
    } else {
        "<none>".to_owned()
    };
    let default =
        text(v, &["metadata", "annotations", "ingressclass.kubernetes.io/is-default-class"]) == "true";
    let own = text(v, &["metadata", "name"]);
    let name = if default { format!("{own} (default)") } else { own.to_owned() };
    vec![json!(name), json!(text(v, &["spec", "controller"])), json!(parameters), created(v, ctx)]
}

/// NetworkPolicy.
pub fn network_policy(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), selector(at(v, &["spec", "podSelector"])), created(v, ctx)]
}

/// IPAddress.
pub fn ip_address(v: &Value, ctx: Ctx) -> Vec<Value> {
    let p = at(v, &["spec", "parentRef"]);
    let [group, resource, namespace, parent] =
        ["group", "resource", "namespace", "name"].map(|f| text(p, &[f]));
    let mut shown = resource.to_owned();
    for (sign, part) in [('.', group), ('/', namespace)] {
        if !part.is_empty() {
            shown.push(sign);
            shown.push_str(part);
        }
    }
    let parent =
        if p.is_object() { format!("{}/{parent}", shown.to_lowercase()) } else { "<none>".to_owned() };
    vec![name(v), json!(parent), created(v, ctx)]
}

/// ServiceCIDR.
pub fn service_cidr(v: &Value, ctx: Ctx) -> Vec<Value> {
    let cidrs: Vec<&str> = list(v, &["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
    vec![name(v), json!(cidrs.join(",")), created(v, ctx)]
}

/// FlowSchema.
pub fn flow_schema(v: &Value, ctx: Ctx) -> Vec<Value> {
    let dangling = list(v, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "Dangling");
    vec![
        name(v),
        json!(text(v, &["spec", "priorityLevelConfiguration", "name"])),
        json!(int(v, &["spec", "matchingPrecedence"])),
        given(v, &["spec", "distinguisherMethod", "type"], "<none>"),
        created(v, ctx),
        json!(dangling.map_or("?", |c| text(c, &["status"]))),
    ]
}

/// FlowSchemas are shown in the order in which they are tried: by precedence, then by name.
pub fn flow_schema_order(a: &Value, b: &Value) -> Ordering {
    let key = |v: &Value| int(v, &["spec", "matchingPrecedence"]);
    key(a).cmp(&key(b)).then_with(|| text(a, &["metadata", "name"]).cmp(text(b, &["metadata", "name"])))
}

/// PriorityLevelConfiguration.
pub fn priority_level(v: &Value, ctx: Ctx) -> Vec<Value> {
    let cell = |path: &[&str]| match at(v, path) {
        Value::Null => json!("<none>"),
        number => number.clone(),
    };
    let q = |field: &'static str| cell(&["spec", "limited", "limitResponse", "queuing", field]);
    vec![
        name(v),
        json!(text(v, &["spec", "type"])),
        cell(&["spec", "limited", "nominalConcurrencyShares"]),
        q("queues"),
        q("handSize"),
        q("queueLengthLimit"),
        created(v, ctx),
    ]
}
