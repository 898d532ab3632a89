//! What changed, for plugins that keep something about nodes and pods and repair it.

use super::{Cluster, NodeId, PodId, Shape};
use plimsoll_state::slab::Id;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Namespace, labels and spec that pods have in common: what a plugin derives from them alone is the same for all.
#[derive(Clone, Debug)]
pub struct PodShape(Arc<Shape>);

impl PartialEq for PodShape {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PodShape {}

impl Hash for PodShape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// A change of a node.
#[derive(Clone, Debug)]
pub struct NodeChange {
    /// The node.
    pub node: NodeId,
    /// The pod that came (1) or left (-1); `None`: the Node object changed.
    pub pod: Option<(PodShape, i64)>,
}

impl Cluster {
    /// The place after the last change, for [`Cluster::changes_since`].
    pub fn change_position(&self) -> u64 {
        self.changes.end()
    }

    /// The changes from a place on; `None`: the reader starts afresh, and holds no [`PodShape`] any more. A plugin that reads them
    /// says so ([`Plugin::follows_changes`](crate::framework::Plugin::follows_changes)).
    pub fn changes_since(&self, position: u64) -> Option<impl Iterator<Item = NodeChange>> {
        let changes = self.changes.since(position)?.iter();
        Some(changes.map(|change| NodeChange {
            node: change.node,
            pod: change.moved.as_ref().map(|moved| (PodShape(Arc::clone(&moved.shape)), moved.by)),
        }))
    }

    /// The numbers of all nodes are below it.
    pub fn node_bound(&self) -> usize {
        self.nodes.bound()
    }

    /// The shape of a pod.
    pub fn pod_shape(&self, pod: PodId) -> PodShape {
        PodShape(Arc::clone(self.shape(pod)))
    }

    /// The shapes of all pods that have a node, placeholders among them: one entry for each pod.
    pub fn placed_shapes(&self) -> impl Iterator<Item = PodShape> {
        let ids = (0..self.pods.bound()).map(PodId::new);
        let placed = ids.filter(|id| self.pods.get(*id).is_some_and(|pod| pod.node.is_some()));
        placed.map(|id| self.pod_shape(id))
    }

    /// `metadata.namespace` of the pods of a shape.
    pub fn namespace_of(&self, shape: &PodShape) -> &str {
        self.strings.text(shape.0.namespace)
    }

    /// The value of a label of the pods of a shape.
    pub fn label_of(&self, shape: &PodShape, key: &str) -> Option<&str> {
        shape.0.labels.get(self.strings.get(key)?).map(|value| self.strings.text(value))
    }

    /// What the specs of the pods of a shape request; cpu in millicores.
    pub fn request_of(&self, shape: &PodShape, resource: &str) -> i64 {
        super::view::amount(self, &shape.0.spec.usage.requests, resource)
    }

    /// `spec.priority` of the pods of a shape.
    pub fn priority_of(&self, shape: &PodShape) -> i32 {
        shape.0.spec.priority
    }
}
