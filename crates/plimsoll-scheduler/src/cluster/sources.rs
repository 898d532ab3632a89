//! The objects of nodes and pods as they were handled, for plugins that hand them on
//! ([`Plugin::reads_objects`](crate::framework::Plugin::reads_objects)). Empty unless a plugin asks for them.

use super::{NodeId, PodId};
use plimsoll_state::intern::Map;
use plimsoll_state::model;
use std::sync::Arc;

/// Objects by row.
#[derive(Debug, Default)]
pub struct Sources {
    /// Whether objects are kept.
    pub keep: bool,
    /// Counts changes of nodes.
    pub version: u64,
    nodes: Map<NodeId, Arc<model::Node>>,
    pods: Map<PodId, Arc<model::Pod>>,
}

impl Sources {
    pub fn set_node(&mut self, id: NodeId, node: &model::Node) {
        if self.keep && self.nodes.get(&id).is_none_or(|old| **old != *node) {
            self.nodes.insert(id, Arc::new(node.clone()));
            self.version += 1;
        }
    }

    pub fn remove_node(&mut self, id: NodeId) {
        if self.nodes.remove(&id).is_some() {
            self.version += 1;
        }
    }

    pub fn set_pod(&mut self, id: PodId, pod: &model::Pod) {
        if self.keep {
            self.pods.insert(id, Arc::new(pod.clone()));
        }
    }

    pub fn remove_pod(&mut self, id: PodId) {
        self.pods.remove(&id);
    }

    pub fn node(&self, id: NodeId) -> Option<&Arc<model::Node>> {
        self.nodes.get(&id)
    }

    pub fn pod(&self, id: PodId) -> Option<&Arc<model::Pod>> {
        self.pods.get(&id)
    }
}
