//! Objects of nodes and pods, for plugins that hand them on
//! ([`Plugin::reads_objects`](crate::framework::Plugin::reads_objects)), and annotations of nodes. Objects are kept only where a
//! plugin asks for them.

use super::{NodeId, PodId};
use plimsoll_state::model::{self, StringMap};
use plimsoll_state::parted::PartedMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Objects by row.
#[derive(Debug, Default)]
pub struct Sources {
    /// Whether objects are kept.
    pub keep: bool,
    /// Keys of the annotations of nodes that plugins read, besides those in objects.
    pub keys: BTreeSet<String>,
    /// Counts changes of nodes.
    pub version: u64,
    nodes: PartedMap<NodeId, Arc<model::Node>>,
    pods: PartedMap<PodId, Arc<model::Pod>>,
    /// Of nodes that have some. All of them are kept, so that a plugin that is loaded later finds its own.
    annotations: PartedMap<NodeId, StringMap>,
}

impl Sources {
    /// Whether an annotation that a plugin reads has changed.
    pub fn set_node(&mut self, id: NodeId, node: &model::Node) -> bool {
        if self.keep && self.nodes.get(&id).is_none_or(|old| **old != *node) {
            self.nodes.insert(id, Arc::new(node.clone()));
            self.version += 1;
        }
        let none = StringMap::new();
        let (old, new) = (self.annotations.get(&id).unwrap_or(&none), &node.annotations);
        if old == new {
            return false;
        }
        let is_read = self.keep || self.keys.iter().any(|key| old.get(key) != new.get(key));
        match new.is_empty() {
            true => self.annotations.remove(&id),
            false => self.annotations.insert(id, new.clone()),
        };
        is_read
    }

    pub fn remove_node(&mut self, id: NodeId) {
        self.annotations.remove(&id);
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

    pub fn annotation(&self, id: NodeId, key: &str) -> Option<&str> {
        self.annotations.get(&id)?.get(key).map(String::as_str)
    }
}
