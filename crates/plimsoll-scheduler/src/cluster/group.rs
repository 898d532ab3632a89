//! Pod groups: the objects, and which pods belong to them (upstream
//! `backend/cache/podgroupstate.go`).

use super::{Cluster, PodId};
use plimsoll_state::intern::Sym;
use std::collections::{BTreeMap, BTreeSet};

/// A PodGroup object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// `spec.schedulingPolicy.gang.minCount`; `None`: not a gang.
    pub min_count: Option<u32>,
    /// `spec.schedulingConstraints.topology[0].key`.
    pub topology_key: Option<Box<str>>,
}

/// A group: its object, if it is there, and the pods that name it.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The object.
    pub object: Option<std::sync::Arc<PodGroup>>,
    /// Pods that are bound, or that one of our profiles places.
    pub pods: BTreeSet<PodId>,
    /// How many of them are on a node, bound or assumed.
    pub placed: usize,
}

/// Namespace and name of a group.
pub type GroupKey = (Sym, Box<str>);

/// Groups by namespace and name.
pub type Groups = BTreeMap<GroupKey, Group>;

impl Cluster {
    /// The group that a pod has joined.
    pub fn group_of(&self, pod: PodId) -> Option<&Group> {
        self.groups.get(self.group_keys.get(&pod)?)
    }

    /// Counts a pod in its group, if it names one; it stays there whatever later updates name.
    pub fn join_group(&mut self, pod: PodId) {
        let Some(extra) = self.pods[pod].extra.as_ref().filter(|e| !e.group.is_empty()) else { return };
        let key = (self.shape(pod).namespace, extra.group.clone());
        if self.group_keys.contains_key(&pod) {
            return;
        }
        self.group_keys.insert(pod, key.clone());
        let placed = self.pods[pod].node.is_some();
        let group = self.groups.entry(key).or_default();
        if group.pods.insert(pod) {
            group.placed += usize::from(placed);
        }
    }

    /// Takes a pod, which is on no node any more, out of its group.
    pub(super) fn leave_group(&mut self, pod: PodId) {
        let Some(key) = self.group_keys.remove(&pod) else { return };
        if let Some(group) = self.groups.get_mut(&key) {
            group.pods.remove(&pod);
            self.drop_group_if_unused(&key);
        }
    }

    /// A pod came to a node (1) or left it (-1).
    pub(super) fn count_member(&mut self, pod: PodId, by: i32) {
        let Some(key) = self.group_keys.get(&pod) else { return };
        if let Some(group) = self.groups.get_mut(key) {
            group.placed = group.placed.wrapping_add_signed(by as isize);
        }
    }

    /// Forgets a group of which nothing is left.
    pub fn drop_group_if_unused(&mut self, key: &GroupKey) {
        if self.groups.get(key).is_some_and(|g| g.object.is_none() && g.pods.is_empty()) {
            self.groups.remove(key);
        }
    }

    /// Compares with the pods.
    ///
    /// # Panics
    /// When they differ.
    pub(super) fn check_groups(&self) {
        let listed: usize = self.groups.values().map(|g| g.pods.len()).sum();
        assert_eq!(listed, self.group_keys.len(), "pods in groups");
        for (key, group) in &self.groups {
            let placed = group.pods.iter().filter(|p| self.pods[**p].node.is_some()).count();
            assert_eq!(placed, group.placed, "placed pods of a group");
            for pod in &group.pods {
                assert_eq!(self.group_keys.get(pod), Some(key), "a pod of another group");
            }
        }
    }
}
