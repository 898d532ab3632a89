//! The objects of the load, encoded before the clock runs.

use bytes::Bytes;
use plimsoll_apimachinery::{Gvk, proto};
use serde_json::{Value, json};

use super::client::{JSON, PROTOBUF};

/// A light pod: what a batch job's pod says and no more.
pub fn pod(namespace: &str, index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name(index), "namespace": namespace, "labels": {"app": "bench"}},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "work", "image": "busybox",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    })
}

/// Name of the pod with a number.
pub fn pod_name(index: usize) -> String {
    format!("pod-{index:06}")
}

/// Body of a binding of a pod to one of `nodes` nodes.
pub fn binding(namespace: &str, index: usize, nodes: usize) -> Bytes {
    let node = format!("node-{:05}", index % nodes.max(1));
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod_name(index), "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    binding.to_string().into()
}

/// An object in a format.
pub fn encode(object: &Value, format: &'static str) -> Option<Bytes> {
    match format {
        JSON => Some(object.to_string().into()),
        PROTOBUF => {
            let text = |key: &str| object[key].as_str().unwrap_or_default();
            let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
            let gvk = Gvk { group: group.into(), version: version.into(), kind: text("kind").into() };
            proto::encode(&gvk, object).map(Bytes::from)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_the_same_in_both_formats() {
        let pod = pod("ns", 7);
        let bytes = encode(&pod, PROTOBUF).unwrap();
        let read = proto::decode_body(&bytes).unwrap();
        assert_eq!(read["spec"]["containers"][0]["resources"], pod["spec"]["containers"][0]["resources"]);
        assert_eq!(read["metadata"]["name"], "pod-000007");
    }
}
