//! What plugins count by topology domain, kept up to date by changes instead of being counted for every pod.
//!
//! Nodes that are equal for a plugin form a class; the plugin returns the coordinates in which classes differ.
//! A verdict and a score are found once per class, however many nodes it has. A topology key with few domains
//! (zones) is *coarse*: the coordinate is the domain itself, so that a change of its count moves no node. A key
//! with many domains (host names) is *fine*: the coordinate is what was counted, so that nodes with equal counts
//! share a class, and a change moves the few nodes of one domain.

use super::Status;
use crate::cluster::{Cluster, Moved, NodeId, Shape};
use plimsoll_state::intern::{Map, Sym};
use smallvec::SmallVec;
use std::fmt::Debug;
use std::sync::Arc;

/// Coordinates of a class of nodes.
pub type Place = SmallVec<[i64; 6]>;

/// Coordinate of a node without the label.
pub const MISSING: i64 = -1;

/// Coordinates of a feasible class and how many nodes it has.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// Coordinates.
    pub place: &'a [i64],
    /// Number of nodes, at least 1.
    pub nodes: u32,
}

/// Domains (topology key, value) whose count changed.
pub type Touched = SmallVec<[(Sym, Sym); 4]>;

/// Counts by kind, topology key and domain, sorted.
pub type Dump = Vec<(u32, Sym, Sym, i64)>;

/// Counters of one plugin for the pods of one shape.
pub trait Counts: Debug {
    /// Counts a node without its pods; for making counters.
    fn node(&mut self, cluster: &Cluster, node: NodeId);

    /// Counts a pod that came to a node, or left it. Domains of fine keys whose count changed go to `touched`.
    /// False: the coordinates are no longer enough, and everything must be made afresh.
    fn pod(&mut self, cluster: &Cluster, moved: &Moved, node: NodeId, touched: &mut Touched) -> bool;

    /// Everything is counted: settles the coordinates.
    fn settle(&mut self, cluster: &Cluster, topology: &mut Topology);

    /// Whether taints of nodes matter; then a change of taints means that everything must be made afresh.
    fn heeds_taints(&self) -> bool;

    /// Appends the coordinates of a node, always the same number of them.
    fn place(&self, cluster: &Cluster, node: NodeId, out: &mut Place);

    /// Filter: the verdict on all nodes of a class.
    fn verdict(&self, place: &[i64]) -> Status;

    /// Score: appends the normalised score of each class of feasible nodes.
    fn scores(&self, feasible: &[At<'_>], out: &mut Vec<i64>);

    /// All counts in a form that can be compared.
    fn dump(&self) -> Dump;
}

/// Where the coordinates of a topology key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The domain is the coordinate at this index.
    Coarse(usize),
    /// What was counted starts at this index.
    Fine(usize),
}

/// Coordinate of a domain.
pub fn coordinate(value: Option<Sym>) -> i64 {
    value.map_or(MISSING, |v| i64::from(v.number()))
}

/// Domain of a coordinate.
pub fn domain(coordinate: i64) -> Option<Sym> {
    u32::try_from(coordinate).ok().map(Sym::from_number)
}

#[derive(Debug, Default)]
struct Domains {
    nodes: Map<Sym, SmallVec<[NodeId; 2]>>,
    fine: bool,
}

/// Nodes by topology key and domain, for the keys in use; holds for one epoch.
#[derive(Debug, Default)]
pub struct Topology {
    epoch: u64,
    keys: Map<Sym, Domains>,
}

impl Topology {
    /// Whether a key has many domains rather than large ones.
    pub fn is_fine(&mut self, cluster: &Cluster, key: Sym) -> bool {
        if self.epoch != cluster.changes.epoch {
            self.keys.clear();
            self.epoch = cluster.changes.epoch;
        }
        let make = || {
            let mut domains = Domains::default();
            let mut nodes = 0;
            for (id, node) in cluster.nodes.iter().filter(|(_, n)| n.exists) {
                if let Some(value) = node.info.labels.get(key) {
                    domains.nodes.entry(value).or_default().push(id);
                    nodes += 1;
                }
            }
            // A change costs the nodes of a domain when fine, a decision the number of domains when coarse.
            domains.fine = domains.nodes.len() * domains.nodes.len() > nodes;
            domains
        };
        self.keys.entry(key).or_insert_with(make).fine
    }

    /// The nodes of a domain of a key that was asked for in this epoch.
    pub fn nodes(&self, key: Sym, value: Sym) -> &[NodeId] {
        self.keys.get(&key).and_then(|d| d.nodes.get(&value)).map_or(&[], |n| n)
    }
}

/// What pods of other shapes mean to the counters, worked out once per shape.
#[derive(Debug)]
pub struct Relations<R>(Map<usize, (Arc<Shape>, R)>);

impl<R> Default for Relations<R> {
    fn default() -> Self {
        Self(Map::default())
    }
}

/// Most relations that are remembered.
const MAX_RELATIONS: usize = 8192;

impl<R> Relations<R> {
    /// The relation to a shape.
    pub fn get(&mut self, other: &Arc<Shape>, make: impl FnOnce() -> R) -> &R {
        if self.0.len() >= MAX_RELATIONS {
            self.0.clear();
        }
        // The shape is kept alive, so that its address stands for it.
        let address = Arc::as_ptr(other) as usize;
        &self.0.entry(address).or_insert_with(|| (Arc::clone(other), make())).1
    }
}
