//! Nodes: the objects, and columns of allocatable and requested amounts.

use super::ids::{NodeId, PodId};
use super::labels::Labels;
use super::ports::HostPort;
use super::spec::Taint;
use plimsoll_state::grow::lengthen;
use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model;
use plimsoll_state::slab::Id;
use smallvec::SmallVec;
use std::sync::Arc;

/// A Node object over interned strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// UID.
    pub uid: Box<str>,
    /// Labels.
    pub labels: Labels,
    /// Cordoned.
    pub unschedulable: bool,
    /// Taints.
    pub taints: Box<[Taint]>,
    /// Allocatable cpu, memory, ephemeral storage and pods, in the order of [`Columns`].
    pub alloc: [i64; 4],
    /// Allocatable scalar resources, sorted by name.
    pub scalars: Box<[(Sym, i64)]>,
    /// Image names with sizes in bytes.
    pub images: Box<[(Sym, i64)]>,
    /// Statuses of the conditions by type.
    pub conditions: Labels,
    /// Declared features, sorted.
    pub features: Box<[Sym]>,
}

impl NodeInfo {
    /// Interns a node.
    pub fn new(node: &model::Node, strings: &mut Interner) -> Self {
        let amounts = super::Amounts::new(&node.allocatable, strings);
        let mut images: Vec<(Sym, i64)> = Vec::new();
        for image in &node.images {
            for name in &image.names {
                // As the kubelet reports it: upstream completes the names in pods only.
                images.push((strings.intern(name), image.size_bytes));
            }
        }
        // Of several entries with one name the first counts.
        images.sort_by_key(|(name, _)| *name);
        images.dedup_by_key(|(name, _)| *name);
        let mut features: Vec<Sym> = node.declared_features.iter().map(|f| strings.intern(f)).collect();
        features.sort_unstable();
        features.dedup();
        Self {
            uid: node.uid.as_str().into(),
            labels: Labels::new(&node.labels, strings),
            unschedulable: node.unschedulable,
            taints: node
                .taints
                .iter()
                .map(|t| Taint {
                    key: strings.intern(&t.key),
                    value: strings.intern(&t.value),
                    effect: t.effect,
                })
                .collect(),
            alloc: [
                amounts.cpu,
                amounts.memory,
                amounts.ephemeral,
                node.allocatable.get("pods").copied().unwrap_or(0),
            ],
            scalars: amounts.scalars,
            images: images.into(),
            conditions: Labels::new(&node.conditions, strings),
            features: features.into(),
        }
    }

    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        let Self {
            uid: _,
            labels,
            unschedulable: _,
            taints,
            alloc: _,
            scalars,
            images,
            conditions,
            features,
        } = self;
        labels.mark(marks);
        conditions.mark(marks);
        taints.iter().for_each(|t| t.mark(marks));
        scalars.iter().chain(images).for_each(|(name, _)| marks.mark(*name));
        marks.all(features);
    }

    /// Size in bytes of an image on this node.
    pub fn image_size(&self, name: Sym) -> Option<i64> {
        self.images.binary_search_by_key(&name, |(n, _)| *n).ok().map(|i| self.images[i].1)
    }
}

/// A scalar resource of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// Resource name.
    pub name: Sym,
    /// Allocatable amount; 0 when the node has none.
    pub alloc: i64,
    /// Requested by the pods on the node.
    pub used: i64,
}

/// A node row: ground state in `info`, the rest derived from the pods on it.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name.
    pub name: Sym,
    /// The object.
    pub info: Arc<NodeInfo>,
    /// Whether the node object is there; pods can be on a node that is gone or not yet seen.
    pub exists: bool,
    /// Pods on the node, assumed ones among them, in no particular order.
    pub pods: Vec<PodId>,
    /// Ports in use, one entry per pod and port.
    pub ports: Vec<HostPort>,
    /// Scalar resources.
    pub scalars: SmallVec<[Scalar; 1]>,
    /// How many of the pods have affinity or anti-affinity terms.
    pub with_affinity: u32,
    /// How many of the pods have required anti-affinity terms.
    pub with_anti_affinity: u32,
    /// How many volumes of the pods are claims.
    pub claims: u32,
    /// Pods nominated to the node, by uid order of nomination.
    pub nominated: Vec<PodId>,
}

impl Node {
    pub(super) fn new(name: Sym) -> Self {
        Self {
            name,
            info: Arc::default(),
            exists: false,
            pods: Vec::new(),
            ports: Vec::new(),
            scalars: SmallVec::new(),
            with_affinity: 0,
            with_anti_affinity: 0,
            claims: 0,
            nominated: Vec::new(),
        }
    }

    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        let Self {
            name,
            info,
            exists: _,
            pods: _,
            ports,
            scalars,
            with_affinity: _,
            with_anti_affinity: _,
            claims: _,
            nominated: _,
        } = self;
        marks.mark(*name);
        info.mark(marks);
        ports.iter().for_each(|p| marks.mark(p.ip));
        scalars.iter().for_each(|s| marks.mark(s.name));
    }

    /// Allocatable and used amount of a scalar resource.
    pub fn scalar(&self, name: Sym) -> (i64, i64) {
        self.scalars.iter().find(|s| s.name == name).map_or((0, 0), |s| (s.alloc, s.used))
    }

    pub(super) fn scalar_mut(&mut self, name: Sym) -> &mut Scalar {
        let at = match self.scalars.iter().position(|s| s.name == name) {
            Some(at) => at,
            None => {
                self.scalars.push(Scalar { name, alloc: 0, used: 0 });
                self.scalars.len() - 1
            }
        };
        &mut self.scalars[at]
    }

    pub(super) fn set_scalar_allocs(&mut self, allocs: &[(Sym, i64)]) {
        for s in &mut self.scalars {
            s.alloc = 0;
        }
        for (name, alloc) in allocs {
            self.scalar_mut(*name).alloc = *alloc;
        }
        self.scalars.retain(|s| s.alloc != 0 || s.used != 0);
    }
}

/// Index of cpu (millicores) in [`Columns`].
pub const CPU: usize = 0;
/// Index of memory (bytes).
pub const MEMORY: usize = 1;
/// Index of ephemeral storage (bytes).
pub const EPHEMERAL: usize = 2;
/// Index of the number of pods.
pub const PODS: usize = 3;

/// Amounts by resource and node; rows that don't exist are all zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Allocatable: cpu, memory, ephemeral storage, pods.
    pub alloc: [Vec<i64>; 4],
    /// Requested by the pods on the node; for pods their number.
    pub used: [Vec<i64>; 4],
    /// Requested cpu and memory with defaults for containers without a request.
    pub nonzero: [Vec<i64>; 2],
}

impl Columns {
    pub(super) fn grow(&mut self, rows: usize) {
        for c in self.alloc.iter_mut().chain(&mut self.used).chain(&mut self.nonzero) {
            lengthen(c, rows, 0);
        }
    }

    /// Free amount of a resource on a node; negative when over-committed.
    pub fn free(&self, resource: usize, node: NodeId) -> i64 {
        self.alloc[resource][node.index()].saturating_sub(self.used[resource][node.index()])
    }
}
