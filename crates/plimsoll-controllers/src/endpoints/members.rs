//! Which pods are behind a Service, and how they stand there (`endpointslice/util` and `endpointslice/utils` upstream).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use plimsoll_apimachinery::meta::{Meta, nullable, text};
use plimsoll_apimachinery::validate::endpoint_address;
use serde::Deserialize;
use serde_json::{Value, json};

/// A Service, as far as its endpoints need it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    pub metadata: Meta,
    pub spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ServiceSpec {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    pub selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<Value>,
    #[serde(rename = "clusterIP", deserialize_with = "nullable")]
    pub cluster_ip: String,
    #[serde(deserialize_with = "nullable")]
    pub publish_not_ready_addresses: bool,
}

impl Service {
    /// Whether its endpoints are made here: those of Services without a selector come from their author.
    pub fn is_ours(&self) -> bool {
        self.spec.kind != "ExternalName" && !self.spec.selector.is_empty()
    }

    /// Whether it selects pods with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.is_ours() && self.spec.selector.iter().all(|(k, v)| labels.get(k) == Some(v))
    }

    /// Whether it has no address of its own.
    pub fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }
}

/// A pod behind a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub ip: String,
    pub serving: bool,
    pub terminating: bool,
    /// Whether it counts as ready in an EndpointSlice.
    pub ready: bool,
    pub node: String,
    /// The zone of the node.
    pub zone: Option<String>,
    pub hostname: Option<String>,
    /// The reference to the pod.
    pub target: Value,
    /// Ports of the Service as this pod has them.
    pub ports: Vec<Value>,
}

/// A pod as a member of a Service, without its zone; `None`: it can't be reached, or never again.
pub(super) fn member(service: &Service, pod: &Value) -> Option<Member> {
    let phase = text(pod, &["status", "phase"]);
    if matches!(phase, "Succeeded" | "Failed") {
        return None;
    }
    let ip = address(pod)?;
    let serving = is_ready(pod);
    let terminating = !pod["metadata"]["deletionTimestamp"].is_null();
    let node = text(pod, &["spec", "nodeName"]).to_owned();
    let hostname = text(pod, &["spec", "hostname"]);
    let named = !hostname.is_empty() && text(pod, &["spec", "subdomain"]) == service.metadata.name;
    Some(Member {
        ip: ip.to_owned(),
        serving,
        terminating,
        ready: service.spec.publish_not_ready_addresses || (serving && !terminating),
        zone: None,
        node,
        hostname: named.then(|| hostname.to_owned()),
        target: json!({
            "kind": "Pod", "namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }),
        ports: service.spec.ports.iter().filter_map(|port| port_of(port, pod)).collect(),
    })
}

/// The first address of the pod that a slice of IPv4 may hold: validation refuses the whole slice for any other.
fn address(pod: &Value) -> Option<&str> {
    let all = pod["status"]["podIPs"].as_array().into_iter().flatten().map(|a| text(a, &["ip"]));
    let mut all = all.chain([text(pod, &["status", "podIP"])]);
    all.find(|ip| ip.parse::<Ipv4Addr>().is_ok() && endpoint_address(ip).is_some())
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// A port of the Service at a pod (`FindPort`); `None`: the pod has no port of that name.
fn port_of(port: &Value, pod: &Value) -> Option<Value> {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    let number = match &port["targetPort"] {
        Value::String(name) => named_port(pod, name, protocol)?,
        Value::Number(n) if n.as_i64() != Some(0) => n.as_i64()?,
        _ => port["port"].as_i64()?,
    };
    let mut found =
        json!({"name": port["name"].as_str().unwrap_or(""), "port": number, "protocol": protocol});
    if let Some(app) = port["appProtocol"].as_str() {
        found["appProtocol"] = json!(app);
    }
    Some(found)
}

fn named_port(pod: &Value, name: &str, protocol: &str) -> Option<i64> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let init = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let sidecars = init.filter(|c| c["restartPolicy"] == "Always");
    let mut ports = containers.chain(sidecars).flat_map(|c| c["ports"].as_array().into_iter().flatten());
    let is = |p: &&Value| p["name"] == name && p["protocol"].as_str().unwrap_or("TCP") == protocol;
    ports.find(is)?["containerPort"].as_i64()
}
