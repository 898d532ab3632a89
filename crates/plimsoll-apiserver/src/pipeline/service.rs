//! Addresses and node ports of Services (`registry/core/service/storage/alloc.go`), one address family.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use plimsoll_machinery::{ApiError, FieldError};
use rand::RngExt;
use serde_json::{Value, json};

use super::Write;
use crate::machine;

const FIRST_PORT: u16 = 30000;
const LAST_PORT: u16 = 32767;
/// Random tries before the range is searched in order.
const RANDOM_TRIES: usize = 64;

fn kind_of(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn wants_address(service: &Value) -> bool {
    matches!(kind_of(service), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn wants_ports(service: &Value) -> bool {
    match kind_of(service) {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn wants_health_port(service: &Value) -> bool {
    kind_of(service) == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

fn address(service: &Value) -> &str {
    service["spec"]["clusterIP"].as_str().unwrap_or("")
}

/// Gives a new Service its addresses and ports.
pub fn allocate(w: &Write, service: &mut Value) -> Result<(), ApiError> {
    complete(w, service, None)
}

/// Keeps allocations in an update, gives back and takes new ones as the type changes.
pub fn reallocate(w: &Write, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    carry_over(new, old);
    complete(w, new, Some(old))
}

/// `patchAllocatedValues`: what the client left out stays.
fn carry_over(new: &mut Value, old: &Value) {
    if wants_address(new) && wants_address(old) {
        for field in ["clusterIP", "clusterIPs"] {
            let empty = match &new["spec"][field] {
                Value::String(s) => s.is_empty(),
                Value::Array(a) => a.is_empty(),
                v => v.is_null(),
            };
            if empty && !old["spec"][field].is_null() {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if new["spec"][field].is_null() && !old["spec"][field].is_null() {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
    }
    if wants_ports(new) && wants_ports(old) {
        let known: Vec<Value> = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
        for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let twin = known.iter().find(|k| k["port"] == port["port"] && k["protocol"] == port["protocol"]);
            if let Some(node_port) = twin.map(|t| &t["nodePort"]).filter(|n| !n.is_null())
                && port["nodePort"].as_i64().unwrap_or(0) == 0
            {
                port["nodePort"] = node_port.clone();
            }
        }
    }
    if wants_health_port(new) && wants_health_port(old) && new["spec"]["healthCheckNodePort"].is_null() {
        new["spec"]["healthCheckNodePort"] = old["spec"]["healthCheckNodePort"].clone();
    }
}

fn complete(w: &Write, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !wants_address(service) {
        release(service, old);
        return Ok(());
    }
    if let Some(single) = Some(address(service)).filter(|a| !a.is_empty())
        && service["spec"]["clusterIPs"].as_array().is_none_or(Vec::is_empty)
    {
        service["spec"]["clusterIPs"] = json!([single]);
    }
    let first = service["spec"]["clusterIPs"][0].as_str().unwrap_or("").to_owned();
    if address(service).is_empty() && !first.is_empty() && old.is_none() {
        service["spec"]["clusterIP"] = json!(first);
    }
    if service["spec"]["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        service["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    if service["spec"]["ipFamilyPolicy"].is_null() {
        service["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    }
    let kept = old.map(address).unwrap_or("");
    let wanted = address(service).to_owned();
    if wanted != "None" && (wanted.is_empty() || wanted != kept) {
        let given = take_address(w, service, &wanted)?;
        service["spec"]["clusterIP"] = json!(given);
        service["spec"]["clusterIPs"] = json!([given]);
    }
    ports(w, service, old)
}

/// Without a type that needs them, fields of addresses go away.
fn release(service: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        return;
    }
    let Some(spec) = service["spec"].as_object_mut() else { return };
    for field in [
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "ipFamilyPolicy",
        "internalTrafficPolicy",
        "externalTrafficPolicy",
    ] {
        spec.remove(field);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
}

fn services(w: &Write) -> Vec<Value> {
    let all = w.server.store().list("/services", None);
    let own = |v: &Value| {
        v["metadata"]["name"] == w.name.as_str() && v["metadata"]["namespace"] == w.namespace.as_str()
    };
    all.iter().filter_map(|r| r.value().ok()).filter(|v| !own(v)).collect()
}

fn refuse(w: &Write, error: FieldError) -> ApiError {
    machine::invalid(&w.kind, &w.name, &[error])
}

fn take_address(w: &Write, service: &Value, wanted: &str) -> Result<String, ApiError> {
    let (base, size) = w.server.config().service_network;
    let base = u32::from(base);
    let used: BTreeSet<String> = services(w).iter().map(|s| address(s).to_owned()).collect();
    if !wanted.is_empty() {
        let Ok(parsed) = wanted.parse::<Ipv4Addr>() else {
            // Validation says what is wrong with it.
            return Ok(wanted.to_owned());
        };
        let error = |why: &str| {
            let detail = format!("failed to allocate IP {wanted}: {why}");
            Err(refuse(w, FieldError::invalid("spec.clusterIPs", &service["spec"]["clusterIPs"], detail)))
        };
        let offset = u32::from(parsed).checked_sub(base).filter(|o| *o > 0 && *o < size - 1);
        if offset.is_none() {
            return error("the provided network does not match the current range");
        }
        if used.contains(wanted) {
            return error("provided IP is already allocated");
        }
        return Ok(wanted.to_owned());
    }
    // The first addresses are left to those that ask for them (`min(max(16, size/16), 256)`).
    let reserved = (size / 16).clamp(16, 256).min(size / 2);
    let mut rng = rand::rng();
    let random = (0..RANDOM_TRIES).map(|_| rng.random_range(reserved..size.saturating_sub(1)));
    let free =
        random.chain(1..size - 1).map(|o| Ipv4Addr::from(base + o).to_string()).find(|a| !used.contains(a));
    free.ok_or_else(|| {
        ApiError::new(
            500,
            "InternalError",
            "Internal error occurred: failed to allocate a serviceIP: range is full",
        )
    })
}

fn ports(w: &Write, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !wants_ports(service) {
        let had = old.is_some_and(wants_ports);
        for port in service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let inherited = old.is_some_and(|o| {
                o["spec"]["ports"].as_array().into_iter().flatten().any(|p| p["nodePort"] == port["nodePort"])
            });
            if had
                && inherited
                && let Some(port) = port.as_object_mut()
            {
                port.remove("nodePort");
            }
        }
        if let Some(spec) = service["spec"].as_object_mut()
            && spec.get("type").and_then(Value::as_str) == Some("ClusterIP")
            && old.is_some()
        {
            spec.remove("externalTrafficPolicy");
        }
        return Ok(());
    }
    let mut used: BTreeSet<(String, u16)> = BTreeSet::new();
    for other in services(w) {
        for p in other["spec"]["ports"].as_array().into_iter().flatten() {
            if let Some(n) = p["nodePort"].as_u64().and_then(|n| u16::try_from(n).ok()) {
                used.insert((p["protocol"].as_str().unwrap_or("TCP").to_owned(), n));
            }
        }
    }
    let kept: Vec<u64> = old
        .into_iter()
        .flat_map(|o| o["spec"]["ports"].as_array().into_iter().flatten())
        .filter_map(|p| p["nodePort"].as_u64())
        .collect();
    let mut list = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    for (i, port) in list.iter_mut().enumerate() {
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
        let field = format!("spec.ports[{i}].nodePort");
        match port["nodePort"].as_u64().filter(|n| *n > 0) {
            Some(wanted) => {
                let Some(number) =
                    u16::try_from(wanted).ok().filter(|n| (FIRST_PORT..=LAST_PORT).contains(n))
                else {
                    let detail = format!(
                        "provided port is not in the valid range. The range of valid ports is {FIRST_PORT}-{LAST_PORT}"
                    );
                    return Err(refuse(w, FieldError::invalid(field, &json!(wanted), detail)));
                };
                if !kept.contains(&wanted) && used.contains(&(protocol.clone(), number)) {
                    let detail = "provided port is already allocated";
                    return Err(refuse(w, FieldError::invalid(field, &json!(wanted), detail)));
                }
                used.insert((protocol, number));
            }
            None => {
                let number = free_port(&used, &protocol)?;
                used.insert((protocol, number));
                port["nodePort"] = json!(number);
            }
        }
    }
    if !list.is_empty() {
        service["spec"]["ports"] = json!(list);
    }
    if wants_health_port(service) && service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0) == 0 {
        service["spec"]["healthCheckNodePort"] = json!(free_port(&used, "TCP")?);
    }
    Ok(())
}

fn free_port(used: &BTreeSet<(String, u16)>, protocol: &str) -> Result<u16, ApiError> {
    let mut rng = rand::rng();
    let random = (0..RANDOM_TRIES).map(|_| rng.random_range(FIRST_PORT..=LAST_PORT));
    let mut candidates = random.chain(FIRST_PORT..=LAST_PORT);
    candidates.find(|n| !used.contains(&(protocol.to_owned(), *n))).ok_or_else(|| {
        ApiError::new(
            500,
            "InternalError",
            "Internal error occurred: failed to allocate a nodePort: range is full",
        )
    })
}
