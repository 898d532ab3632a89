//! Where the endpoints of a Service are. Nothing routes to cluster addresses here, so a webhook behind a Service is
//! called at one of its endpoints, as with upstream's `--enable-aggregator-routing`.

use plimsoll_apimachinery::validate::endpoint_address;
use serde_json::Value;

use crate::store::{Key, Store};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The controller that makes slices for pods.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Why a Service leads nowhere, in the words of upstream's resolver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// There is no such Service.
    #[error("service {0:?} not found")]
    NoService(String),
    /// It does not have the port.
    #[error("no service port {0} found for service {1:?}")]
    NoPort(u64, String),
    /// It has no ready endpoints.
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    /// The port is no port number.
    #[error("invalid port {0}")]
    BadPort(u64),
}

/// Host and port behind `service` of a `clientConfig`.
///
/// # Errors
/// Why there is none.
pub fn resolve(store: &Store, reference: &Value) -> Result<(String, u16), Unresolved> {
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    let (namespace, name) = (text("namespace"), text("name"));
    let wanted = reference["port"].as_u64().unwrap_or(443);
    let record = store.get(&Key::new("/services", namespace, name));
    let service =
        record.and_then(|r| r.value().ok()).ok_or_else(|| Unresolved::NoService(name.to_owned()))?;
    if service["spec"]["type"] == "ExternalName" {
        let host = service["spec"]["externalName"].as_str().unwrap_or("");
        return Ok((host.to_owned(), port(wanted)?));
    }
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let named = ports.into_iter().find(|p| p["port"].as_u64() == Some(wanted));
    let named = named.ok_or_else(|| Unresolved::NoPort(wanted, name.to_owned()))?;
    let port_name = named["name"].as_str().unwrap_or("");
    let found = from_slices(store, namespace, name, port_name)
        .or_else(|| from_endpoints(store, namespace, name, port_name));
    let (host, number) = found.ok_or_else(|| Unresolved::NoEndpoints(name.to_owned()))?;
    Ok((host, port(number)?))
}

fn port(number: u64) -> Result<u16, Unresolved> {
    u16::try_from(number).map_err(|_| Unresolved::BadPort(number))
}

fn port_of(ports: &Value, name: &str) -> Option<u64> {
    let mut ports = ports.as_array()?.iter();
    ports.find(|p| p["name"].as_str().unwrap_or("") == name)?["port"].as_u64()
}

fn from_slices(store: &Store, namespace: &str, service: &str, port: &str) -> Option<(String, u64)> {
    let all = store.list("discovery.k8s.io/endpointslices", Some(namespace));
    let mut own: Vec<_> =
        all.iter().filter(|r| r.labels.get(SERVICE_NAME).is_some_and(|s| s == service)).collect();
    // Nothing listens at a simulated pod: a webhook that runs elsewhere has an EndpointSlice made by hand, which counts first.
    own.sort_by_key(|r| r.labels.get(MANAGED_BY).is_some_and(|m| m == MANAGER));
    own.into_iter().filter_map(|r| r.value().ok()).find_map(|slice| {
        let number = port_of(&slice["ports"], port)?;
        // Unknown counts as ready.
        let ready = slice["endpoints"].as_array()?.iter().filter(|e| e["conditions"]["ready"] != false);
        let mut addresses = ready.filter_map(|e| usable(&e["addresses"][0]));
        Some((addresses.next()?, number))
    })
}

fn from_endpoints(store: &Store, namespace: &str, service: &str, port: &str) -> Option<(String, u64)> {
    let endpoints = store.get(&Key::new("/endpoints", namespace, service))?.value().ok()?;
    endpoints["subsets"].as_array()?.iter().find_map(|subset| {
        let number = port_of(&subset["ports"], port)?;
        let mut addresses = subset["addresses"].as_array()?.iter().filter_map(|a| usable(&a["ip"]));
        Some((addresses.next()?, number))
    })
}

/// A user that may write endpoints chooses where this server calls: never itself or its neighbours, also where a store
/// holds objects from before addresses were checked. Names are no endpoints; upstream's proxies skip them too.
fn usable(address: &Value) -> Option<String> {
    Some(endpoint_address(address.as_str()?)?.to_string())
}

#[cfg(test)]
mod tests;
