//! VolumeAttachments, by name and by node.

use super::changes::Pair;
use plimsoll_state::model::VolumeAttachment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All VolumeAttachments.
#[derive(Debug, Default)]
pub struct Attachments {
    all: BTreeMap<String, Arc<VolumeAttachment>>,
    /// Names by node.
    on_nodes: BTreeMap<String, BTreeSet<String>>,
}

impl Attachments {
    /// A VolumeAttachment is new or has changed; what it was and is.
    pub(crate) fn put(&mut self, new: &VolumeAttachment) -> Pair<VolumeAttachment> {
        let old = self.remove(&new.name);
        self.on_nodes.entry(new.node.clone()).or_default().insert(new.name.clone());
        let new = Arc::new(new.clone());
        self.all.insert(new.name.clone(), Arc::clone(&new));
        (old, Some(new))
    }

    /// A VolumeAttachment is gone; what it was.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<VolumeAttachment>> {
        let old = self.all.remove(name)?;
        if let Some(names) = self.on_nodes.get_mut(&old.node) {
            names.remove(name);
            if names.is_empty() {
                self.on_nodes.remove(&old.node);
            }
        }
        Some(old)
    }

    /// How many are for this node.
    pub(crate) fn count(&self, node: &str) -> usize {
        self.on_nodes.get(node).map_or(0, BTreeSet::len)
    }

    /// Those for this node.
    pub(crate) fn on(&self, node: &str) -> impl Iterator<Item = &VolumeAttachment> {
        let names = self.on_nodes.get(node).into_iter().flatten();
        names.filter_map(|name| self.all.get(name)).map(|a| &**a)
    }

    /// Sorts them by node anew and compares.
    ///
    /// # Panics
    /// When that differs.
    pub(super) fn check(&self) {
        let mut on_nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, a) in &self.all {
            on_nodes.entry(a.node.clone()).or_default().insert(name.clone());
        }
        assert_eq!(on_nodes, self.on_nodes, "attachments by node");
    }
}
