//! Nodes with the taint of unreachable ones, and pods that may be deleted forcefully, by their node.
//!
//! Other nodes are not kept: failure recovery does nothing for a pod on a node that is reachable or gone.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::json;
use serde_json::Value;

use super::{Name, ObjectStore};
use crate::pod_view::awaits_forceful_deletion;

#[derive(Debug, Default)]
pub(super) struct UnreachableNodes {
    names: BTreeSet<String>,
    /// Pods that are being deleted and may be deleted forcefully, by node, whether or not it is unreachable.
    pods: BTreeMap<String, BTreeSet<Name>>,
}

impl UnreachableNodes {
    pub fn keep_pod(&mut self, name: &Name, pod: &Value) {
        if awaits_forceful_deletion(pod) {
            self.pods.entry(node_of(pod).to_owned()).or_default().insert(name.clone());
        }
    }

    pub fn forget_pod(&mut self, name: &Name, pod: &Value) {
        let node = node_of(pod);
        if let Some(pods) = self.pods.get_mut(node) {
            pods.remove(name);
            if pods.is_empty() {
                self.pods.remove(node);
            }
        }
    }
}

fn node_of(pod: &Value) -> &str {
    json::text(pod, &["spec", "nodeName"])
}

impl ObjectStore {
    /// A watch has shown a node with or without the taint `node.kubernetes.io/unreachable`. Says whether it has become
    /// unreachable.
    pub fn node_seen(&mut self, node: &str, unreachable: bool) -> bool {
        if !unreachable {
            self.unreachable.names.remove(node);
            return false;
        }
        self.unreachable.names.insert(node.to_owned())
    }

    /// A watch has shown the deletion of a node.
    pub fn node_gone(&mut self, node: &str) {
        self.unreachable.names.remove(node);
    }

    /// Whether the node is there and unreachable.
    pub fn is_unreachable(&self, node: &str) -> bool {
        self.unreachable.names.contains(node)
    }

    /// Namespace and name of the pods on a node that are being deleted and may be deleted forcefully.
    pub fn terminating_pods_on(&self, node: &str) -> impl Iterator<Item = (&str, &str)> {
        let pods = self.unreachable.pods.get(node).into_iter().flatten();
        pods.map(|(namespace, name)| (namespace.as_str(), name.as_str()))
    }
}
