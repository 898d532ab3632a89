//! What pods use on nodes without a place in a topology: so much less is free there for those that get one (Kueue
//! `nonTasUsageCache`).

use std::sync::Arc;

use super::{Amounts, add_times};
use crate::ids::ResourceId;
use plimsoll_state::parted::PartedMap;

/// A pod on a node.
#[derive(Debug)]
pub(super) struct PodUsage {
    pub(super) node: Arc<str>,
    pub(super) usage: Box<[(ResourceId, i64)]>,
}

/// What the pods of a node use in all.
#[derive(Debug, Default)]
struct NodeUsage {
    pods: usize,
    usage: Amounts,
}

/// Pods by UID, and the sums of nodes that have some.
#[derive(Debug, Default)]
pub(super) struct NonTasUsage {
    pods: PartedMap<String, PodUsage>,
    nodes: PartedMap<Arc<str>, NodeUsage>,
}

impl NonTasUsage {
    /// What the pods of a node use.
    pub(super) fn on(&self, node: &str) -> Option<&Amounts> {
        self.nodes.get(node).map(|n| &n.usage)
    }

    /// Whether a pod is known to use this there.
    pub(super) fn has(&self, uid: &str, node: &str, usage: &Amounts) -> bool {
        self.pods.get(uid).is_some_and(|p| *p.node == *node && *p.usage == **usage)
    }

    /// Adds a pod that is not known.
    pub(super) fn add(&mut self, uid: &str, node: &str, usage: &Amounts) {
        let node: Arc<str> = self.nodes.get_key(node).cloned().unwrap_or_else(|| node.into());
        let pod = PodUsage { node: Arc::clone(&node), usage: usage.as_slice().into() };
        self.pods.insert(uid.to_owned(), pod);
        if let Some(sum) = self.nodes.get_mut(&node) {
            sum.pods += 1;
            add_times(&mut sum.usage, usage, 1);
        } else {
            self.nodes.insert(node, NodeUsage { pods: 1, usage: usage.clone() });
        }
    }

    /// Takes a pod out, if it is known.
    pub(super) fn remove(&mut self, uid: &str) -> Option<PodUsage> {
        let pod = self.pods.remove(uid)?;
        if let Some(sum) = self.nodes.get_mut(&pod.node) {
            sum.pods -= 1;
            add_times(&mut sum.usage, &pod.usage, -1);
            if sum.pods == 0 {
                self.nodes.remove(&pod.node);
            }
        }
        Some(pod)
    }
}
