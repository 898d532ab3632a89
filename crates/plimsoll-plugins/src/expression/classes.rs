//! Nodes that are equal in what an expression reads share its result.

use std::cell::RefCell;
use std::collections::BTreeMap;

use plimsoll_cel::Value;
use plimsoll_scheduler::framework::{Cluster, NodeId};

use super::reads::Reads;
use super::values::of_node;

/// Most classes that are kept; with more, all are forgotten. Classes come and go where the expression reads what the pods
/// on a node request.
const MAX_CLASSES: usize = 16_384;

/// Results by what was read of the node. They hold for one pod, or for pods that are equal in what is read of them.
#[derive(Debug)]
pub(super) struct Classes<T>(RefCell<Kept<T>>);

#[derive(Debug)]
struct Kept<T> {
    results: BTreeMap<Box<[u8]>, T>,
    key: Vec<u8>,
}

impl<T: Clone> Classes<T> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Kept { results: BTreeMap::new(), key: Vec::new() }))
    }

    /// The result for a node; `evaluate` is called with its value unless the result is known. `None`: there is no such node.
    pub(super) fn get(
        &self,
        cluster: &Cluster,
        node: NodeId,
        reads: &Reads,
        evaluate: impl FnOnce(&Value) -> T,
    ) -> Option<T> {
        let node = of_node(cluster.node(node)?, reads);
        let mut kept = self.0.borrow_mut();
        let Kept { results, key } = &mut *kept;
        key.clear();
        node.encode(key);
        if let Some(found) = results.get(key.as_slice()) {
            return Some(found.clone());
        }
        if results.len() >= MAX_CLASSES {
            results.clear();
        }
        let result = evaluate(&node.value());
        results.insert(key.as_slice().into(), result.clone());
        Some(result)
    }
}
