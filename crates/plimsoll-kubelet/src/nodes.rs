//! Objects of simulated nodes: Node and the Lease that shows it alive.

use serde_json::{Value, json};

use crate::time::{Nanos, micros_text, seconds_text};

/// How often a node renews its Lease (kubelet's default).
pub const LEASE_RENEW: Nanos = 10 * crate::SECOND;

/// Zones the default nodes are spread over, in turn.
pub const ZONES: [&str; 2] = ["zone-a", "zone-b"];

/// Size of a default node.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Cores.
    pub cpu: String,
    /// Memory, as a quantity.
    pub memory: String,
    /// Number of pods.
    pub pods: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { cpu: "8".into(), memory: "32Gi".into(), pods: 110 }
    }
}

/// A default node: `node-<index>`, ready, in zone `ZONES[index % 2]`.
pub fn node(index: usize, shape: &Shape, now: Nanos) -> Value {
    let name = format!("node-{index}");
    let zone = ZONES.get(index % ZONES.len()).copied().unwrap_or_default();
    let resources = json!({
        "cpu": shape.cpu, "memory": shape.memory, "pods": shape.pods.to_string(), "ephemeral-storage": "100Gi",
    });
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "simulated",
            "node.kubernetes.io/instance-type": "simulated",
        }},
        "status": { "capacity": resources, "allocatable": resources },
    });
    complete(&mut node, index, now);
    node
}

/// Fills in what a kubelet reports about a node: conditions, addresses, system information, missing labels and
/// missing allocatable amounts. What is already there stays.
pub fn complete(node: &mut Value, index: usize, now: Nanos) {
    let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    default_at(node, &["metadata", "labels", "kubernetes.io/hostname"], json!(name));
    default_at(node, &["metadata", "labels", "kubernetes.io/os"], json!("linux"));
    default_at(node, &["metadata", "labels", "kubernetes.io/arch"], json!("amd64"));
    let capacity = node["status"]["capacity"].clone();
    let allocatable = node["status"]["allocatable"].clone();
    let amounts = [allocatable, capacity]
        .into_iter()
        .find(Value::is_object)
        .unwrap_or_else(|| json!({"cpu": "8", "memory": "32Gi", "pods": "110"}));
    default_at(node, &["status", "capacity"], amounts.clone());
    default_at(node, &["status", "allocatable"], amounts);
    default_at(node, &["status", "conditions"], conditions(now));
    let addresses = json!([
        {"type": "InternalIP", "address": internal_ip(index)}, {"type": "Hostname", "address": name},
    ]);
    default_at(node, &["status", "addresses"], addresses);
    let info = json!({
        "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.12.0-simulated",
        "osImage": "Simulated", "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.2",
        "kubeProxyVersion": "", "bootID": "", "machineID": "", "systemUUID": "",
    });
    default_at(node, &["status", "nodeInfo"], info);
    default_at(node, &["status", "daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 10250}}));
}

/// Sets `value` at `path` unless something other than null is there; makes objects on the way.
fn default_at(root: &mut Value, path: &[&str], value: Value) {
    let mut at = root;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(*key).or_insert(Value::Null);
    }
    if at.is_null() {
        *at = value;
    }
}

/// Address of the node with this index.
pub fn internal_ip(index: usize) -> String {
    format!("172.{}.{}.{}", 20 + (index >> 16) % 12, (index >> 8) & 255, index & 255)
}

/// Conditions of a healthy node, in kubelet's order and words.
pub fn conditions(now: Nanos) -> Value {
    let at = seconds_text(now);
    let row = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
               "lastHeartbeatTime": at, "lastTransitionTime": at})
    };
    json!([
        row(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        row("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        row("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        row("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ])
}

/// The Lease of a node in `kube-node-lease`.
pub fn lease(node_name: &str, node_uid: &str, now: Nanos) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": node_name, "namespace": "kube-node-lease", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid},
        ]},
        "spec": { "holderIdentity": node_name, "leaseDurationSeconds": 40, "renewTime": micros_text(now) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays() {
        let mut node = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/arch": "arm64"}},
                              "status": {"capacity": {"cpu": "2"}}});
        complete(&mut node, 3, 0);
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/arch"], "arm64");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n");
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "2"}));
        assert_eq!(node["status"]["conditions"][3]["type"], "Ready");
        assert_eq!(node["status"]["addresses"][0]["address"], "172.20.0.3");
    }
}
