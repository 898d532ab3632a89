//! Addresses and node ports of Services (`registry/core/service/storage`), one address family.

mod families;
mod ports;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use plimsoll_apimachinery::{ApiError, FieldError};
use rand::RngExt;
use serde_json::{Value, json};

use super::Write;
use crate::machine;

/// Random tries before a range is searched in order.
const RANDOM_TRIES: usize = 64;

fn kind_of(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

/// Types with an address of their own; unknown ones count, until validation refuses them.
fn wants_address(service: &Value) -> bool {
    kind_of(service) != "ExternalName"
}

fn address(service: &Value) -> &str {
    service["spec"]["clusterIP"].as_str().unwrap_or("")
}

/// A list of texts in the spec.
fn texts<'a>(service: &'a Value, field: &str) -> Vec<&'a str> {
    service["spec"][field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Gives a new Service its addresses and ports.
pub fn allocate(w: &Write, service: &mut Value) -> Result<(), ApiError> {
    if !address(service).is_empty() && texts(service, "clusterIPs").is_empty() {
        service["spec"]["clusterIPs"] = json!([address(service)]);
    }
    families::complete(w, service, None)?;
    take_addresses(w, service)?;
    ports::allocate(w, service)
}

/// Keeps allocations in an update, and takes new ones as the type changes.
pub fn reallocate(w: &Write, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    carry_over(new, old);
    normalize(new, old);
    families::complete(w, new, Some(old))?;
    if !wants_address(old) {
        take_addresses(w, new)?;
    }
    ports::reallocate(w, new, old)
}

/// `patchAllocatedValues`: what the client left out stays.
fn carry_over(new: &mut Value, old: &Value) {
    if wants_address(new) && wants_address(old) {
        if address(new).is_empty() && !address(old).is_empty() {
            new["spec"]["clusterIP"] = old["spec"]["clusterIP"].clone();
        }
        if texts(new, "clusterIPs").is_empty() && !texts(old, "clusterIPs").is_empty() {
            new["spec"]["clusterIPs"] = old["spec"]["clusterIPs"].clone();
        }
    }
    ports::carry_over(new, old);
}

/// The one address and the list of addresses say the same, whichever of them a client knows (`normalizeClusterIPs`).
fn normalize(new: &mut Value, old: &Value) {
    if address(new) == address(old) {
        if texts(new, "clusterIPs").is_empty() && !texts(old, "clusterIPs").is_empty() {
            new["spec"]["clusterIPs"] = old["spec"]["clusterIPs"].clone();
        }
    } else if texts(new, "clusterIPs") == texts(old, "clusterIPs") {
        if address(new).is_empty() {
            if let Some(spec) = new["spec"].as_object_mut() {
                spec.remove("clusterIPs");
            }
        } else {
            new["spec"]["clusterIPs"] = json!([address(new)]);
        }
    }
}

/// All Services. A new one finds taken what one of its name has.
fn services(w: &Write) -> Vec<Value> {
    w.server.store().list("/services", None).iter().filter_map(|r| r.value().ok()).collect()
}

fn refuse(w: &Write, errors: &[FieldError]) -> ApiError {
    machine::invalid(&w.kind, &w.name, errors)
}

/// An address for a Service that has a type with one (`allocClusterIPs`).
fn take_addresses(w: &Write, service: &mut Value) -> Result<(), ApiError> {
    let wanted = texts(service, "clusterIPs").first().copied().unwrap_or_default().to_owned();
    if !wants_address(service) || wanted == "None" {
        return Ok(());
    }
    let given = take_address(w, service, &wanted)?;
    service["spec"]["clusterIP"] = json!(given);
    service["spec"]["clusterIPs"] = json!([given]);
    Ok(())
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
            Err(refuse(w, &[FieldError::invalid("spec.clusterIPs", &service["spec"]["clusterIPs"], detail)]))
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
