//! Slices of devices over interned strings, and where they have to be looked for.

use super::Node;
use super::labels::NodeSelector;
use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes that reach devices.
#[derive(Debug)]
pub enum Reach {
    /// One node.
    Node(Sym),
    /// All nodes.
    All,
    /// Some nodes.
    Selected(NodeSelector),
}

impl Reach {
    fn new(raw: &model::Reach, strings: &mut Interner) -> Self {
        match raw {
            model::Reach::Node(n) => Self::Node(strings.intern(n)),
            model::Reach::All => Self::All,
            model::Reach::Selected(s) => Self::Selected(NodeSelector::new(s, strings)),
        }
    }

    /// Marks what it holds.
    pub(super) fn mark(&self, marks: &mut Marks) {
        match self {
            Self::Node(name) => marks.mark(*name),
            Self::All => {}
            Self::Selected(s) => s.mark(marks),
        }
    }

    /// Whether the node is one of them.
    pub fn includes(&self, node: &Node, strings: &Interner) -> bool {
        match self {
            Self::Node(name) => *name == node.name,
            Self::All => true,
            Self::Selected(s) => s.matches(node.name, &node.info.labels, strings),
        }
    }
}

/// A ResourceSlice.
#[derive(Debug)]
pub struct Slice {
    /// The object.
    pub raw: model::ResourceSlice,
    /// Nodes that reach all devices; `None`: each device has its own.
    pub reach: Option<Reach>,
    /// Nodes that reach each device, when the slice leaves it to them.
    pub device_reach: Vec<Option<Reach>>,
}

impl Slice {
    /// Interns a slice.
    pub fn new(raw: &model::ResourceSlice, strings: &mut Interner) -> Self {
        let reach = raw.reach.as_ref().map(|r| Reach::new(r, strings));
        let device_reach =
            raw.devices.iter().map(|d| d.reach.as_ref().map(|r| Reach::new(r, strings))).collect();
        Self { reach, device_reach, raw: raw.clone() }
    }

    /// Whether a node reaches a device.
    pub fn reaches(&self, device: usize, node: &Node, strings: &Interner) -> bool {
        match &self.reach {
            Some(r) => r.includes(node, strings),
            None => self
                .device_reach
                .get(device)
                .and_then(Option::as_ref)
                .is_some_and(|r| r.includes(node, strings)),
        }
    }
}

/// All slices, by where they have to be looked for.
#[derive(Debug, Default)]
pub struct PoolIndex {
    /// By name of the slice.
    pub slices: Vec<Arc<Slice>>,
    /// Slices of one node without counters.
    pub by_node: BTreeMap<Sym, Vec<usize>>,
    /// Slices that any node may reach, and those with counters.
    pub shared: Vec<usize>,
    /// By driver and pool.
    by_pool: BTreeMap<String, BTreeMap<String, Vec<usize>>>,
}

impl PoolIndex {
    /// Slices in the order of their names.
    pub fn new<'a>(slices: impl Iterator<Item = &'a Arc<Slice>>) -> Self {
        let mut out = Self { slices: slices.cloned().collect(), ..Self::default() };
        for (i, slice) in out.slices.iter().enumerate() {
            match &slice.reach {
                Some(Reach::Node(node)) if slice.raw.counters.is_empty() => {
                    out.by_node.entry(*node).or_default().push(i);
                }
                Some(Reach::Node(_) | Reach::All | Reach::Selected(_)) | None => out.shared.push(i),
            }
            let pools = out.by_pool.entry(slice.raw.driver.clone()).or_default();
            pools.entry(slice.raw.pool.clone()).or_default().push(i);
        }
        out
    }

    /// The slices of a pool, as numbers.
    pub fn of_pool(&self, driver: &str, pool: &str) -> &[usize] {
        self.by_pool.get(driver).and_then(|pools| pools.get(pool)).map_or(&[], Vec::as_slice)
    }
}
