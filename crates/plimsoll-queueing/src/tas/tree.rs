//! The domains of a flavor's topology.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::{Amounts, HOSTNAME, add_times};
use crate::ids::Map;
use plimsoll_state::cast::index32;
use plimsoll_state::model::{Node, StringMap, Taint, Toleration};

/// Number of a domain in its tree.
pub(super) type DomainId = u32;

/// Sorts domains. Compiled once for all orders: comparing paths takes longer than a call.
pub(super) fn sort_domains(domains: &mut [DomainId], order: &dyn Fn(DomainId, DomainId) -> Ordering) {
    domains.sort_by(|a, b| order(*a, *b));
}

/// A domain.
#[derive(Debug)]
pub(super) struct Domain {
    /// Values of the levels from the coarsest to its own.
    pub(super) values: Vec<String>,
    /// Its place by those among all domains of its level.
    pub(super) rank: u32,
    pub(super) children: Vec<DomainId>,
    pub(super) parent: Option<DomainId>,
    /// For a leaf: number of its [`Leaf`].
    pub(super) leaf: Option<u32>,
}

/// A domain of the lowest level.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) domain: DomainId,
    /// Name of the domain.
    pub(super) id: String,
    /// Allocatable less non-TAS usage.
    pub(super) free_capacity: Amounts,
    /// Slots of what workloads hold here: of this flavor, and where the leaf is a node of all flavors.
    pub(super) slots: [Option<u32>; 2],
    /// Slot of what is admitted on the node by all flavors in the present cycle.
    pub(super) admitted: Option<u32>,
    /// The node, where the lowest level is the node.
    pub(super) node: Option<LeafNode>,
}

/// What placement rules look at.
#[derive(Debug)]
pub(super) struct LeafNode {
    pub(super) name: String,
    pub(super) labels: StringMap,
    pub(super) taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub(super) unschedulable: bool,
}

/// The tree of a flavor.
#[derive(Debug)]
pub(super) struct FlavorTree {
    pub(super) topology: String,
    pub(super) levels: Vec<String>,
    /// Whether the lowest level is the node.
    pub(super) by_node: bool,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) domains: Vec<Domain>,
    pub(super) per_level: Vec<Vec<DomainId>>,
    pub(super) leaves: Vec<Leaf>,
    /// Names of its nodes.
    pub(super) members: BTreeSet<String>,
    by_id: Map<String, u32>,
    /// Where the lowest level is the node.
    by_node_name: Map<String, u32>,
    by_slot: Map<u32, u32>,
    by_values: Map<Vec<String>, DomainId>,
}

impl FlavorTree {
    pub(super) fn new(topology: String, levels: Vec<String>, tolerations: Vec<Toleration>) -> Self {
        let by_node = levels.last().is_some_and(|l| l == HOSTNAME);
        let per_level = vec![Vec::new(); levels.len()];
        Self {
            topology,
            levels,
            by_node,
            tolerations,
            domains: Vec::new(),
            per_level,
            leaves: Vec::new(),
            members: BTreeSet::new(),
            by_id: Map::default(),
            by_node_name: Map::default(),
            by_slot: Map::default(),
            by_values: Map::default(),
        }
    }

    /// Adds a node that has all level labels.
    pub(super) fn add_node(&mut self, node: &Node, free_capacity: &Amounts) {
        let values: Vec<String> =
            self.levels.iter().map(|l| node.labels.get(l).cloned().unwrap_or_default()).collect();
        let Some(last) = values.last().cloned() else { return };
        self.members.insert(node.name.clone());
        let id = if self.by_node { last } else { super::domain_id(&values) };
        if let Some(leaf) = self.by_id.get(&id).and_then(|&i| self.leaves.get_mut(i as usize)) {
            add_times(&mut leaf.free_capacity, free_capacity, 1);
            return;
        }
        let keep = LeafNode {
            name: node.name.clone(),
            labels: node.labels.clone(),
            taints: node.taints.clone(),
            unschedulable: node.unschedulable,
        };
        let domain = self.domain(&values);
        self.domains[domain as usize].leaf = Some(index32(self.leaves.len()));
        let node = self.by_node.then_some(keep);
        if let Some(node) = &node {
            self.by_node_name.insert(node.name.clone(), index32(self.leaves.len()));
        }
        self.by_id.insert(id.clone(), index32(self.leaves.len()));
        self.leaves.push(Leaf {
            domain,
            id,
            free_capacity: free_capacity.clone(),
            slots: [None; 2],
            admitted: None,
            node,
        });
    }

    /// The domain with these values, made with its ancestors if needed.
    fn domain(&mut self, values: &[String]) -> DomainId {
        let level = values.len() - 1;
        if let Some(&d) = self.by_values.get(values) {
            return d;
        }
        let id = index32(self.domains.len());
        self.domains.push(Domain {
            values: values.to_vec(),
            rank: 0,
            children: Vec::new(),
            parent: None,
            leaf: None,
        });
        self.by_values.insert(values.to_vec(), id);
        self.per_level[level].push(id);
        if level > 0 {
            let parent = self.domain(&values[..level]);
            self.domains[parent as usize].children.push(id);
            self.domains[id as usize].parent = Some(parent);
        }
        id
    }

    /// Puts everything in the order of values.
    pub(super) fn finish(&mut self) {
        let values: Vec<Vec<String>> = self.domains.iter().map(|d| d.values.clone()).collect();
        let by_values = |list: &mut Vec<DomainId>| {
            sort_domains(list, &|a, b| values[a as usize].cmp(&values[b as usize]));
        };
        self.per_level.iter_mut().for_each(by_values);
        self.domains.iter_mut().map(|d| &mut d.children).for_each(by_values);
        for domains in &self.per_level {
            for (rank, domain) in domains.iter().enumerate() {
                self.domains[*domain as usize].rank = index32(rank);
            }
        }
    }

    /// The domain with these values, if there is one.
    pub(super) fn domain_of(&self, values: &[String]) -> Option<DomainId> {
        self.by_values.get(values).copied()
    }

    /// The domain of a level in which a domain lies.
    pub(super) fn ancestor(&self, domain: DomainId, level: usize) -> DomainId {
        let mut at = domain;
        while let Domain { parent: Some(parent), values, .. } = &self.domains[at as usize]
            && values.len() > level + 1
        {
            at = *parent;
        }
        at
    }

    /// Name of the leaf a node belongs to, if it has all level labels.
    pub(super) fn leaf_id(&self, node: &Node) -> Option<String> {
        let values: Option<Vec<String>> = self.levels.iter().map(|l| node.labels.get(l).cloned()).collect();
        let values = values?;
        if self.by_node { values.last().cloned() } else { Some(super::domain_id(&values)) }
    }

    /// The leaf of this name.
    pub(super) fn leaf(&self, id: &str) -> Option<&Leaf> {
        self.leaves.get(*self.by_id.get(id)? as usize)
    }

    /// The leaf with these values, all or those of the lowest level.
    pub(super) fn leaf_at(&self, values: &[String]) -> Option<&Leaf> {
        match values {
            [only] => self.leaf(only),
            _ => self.leaf(&super::domain_id(values)),
        }
    }

    /// Notes the slots of the leaves.
    pub(super) fn index_slots(&mut self) {
        let slots =
            |(i, leaf): (usize, &Leaf)| leaf.slots.into_iter().flatten().map(move |slot| (slot, index32(i)));
        self.by_slot = self.leaves.iter().enumerate().flat_map(slots).collect();
    }

    /// The number of the leaf in which a slot has what workloads hold.
    pub(super) fn leaf_of_slot(&self, slot: u32) -> Option<usize> {
        self.by_slot.get(&slot).map(|leaf| *leaf as usize)
    }

    /// The leaf that is the node of this name.
    pub(super) fn leaf_of_node(&self, name: &str) -> Option<&Leaf> {
        self.leaves.get(*self.by_node_name.get(name)? as usize)
    }

    /// The same, to be changed.
    pub(super) fn leaf_mut(&mut self, id: &str) -> Option<&mut Leaf> {
        self.leaves.get_mut(*self.by_id.get(id)? as usize)
    }

    /// Index of a level.
    pub(super) fn level(&self, key: &str) -> Option<usize> {
        self.levels.iter().position(|l| l == key)
    }
}

/// Whether two states of a node differ in its size only.
pub(super) fn is_same_place(a: &Node, b: &Node) -> bool {
    a.labels == b.labels && a.taints == b.taints && a.ready == b.ready && a.unschedulable == b.unschedulable
}
