//! Which pools of devices a node reaches, and what is wrong with them (upstream
//! `GatherPools`).

use super::Failure;
use crate::cluster::devices::{Claim, DeviceId, Devices, Reach, Slice};
use crate::cluster::{Cluster, NodeId};
use plimsoll_state::cast::signed;
use plimsoll_state::intern::Sym;
use plimsoll_state::model::{Counters, Device};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All slices, by where they have to be looked for, and the devices in use.
#[derive(Debug)]
pub(crate) struct Pools {
    /// By name of the slice.
    slices: Vec<Arc<Slice>>,
    /// Slices of one node without counters.
    by_node: BTreeMap<Sym, Vec<usize>>,
    /// Slices that any node may reach, and those with counters.
    shared: Vec<usize>,
    /// By driver and pool.
    by_pool: BTreeMap<(String, String), Vec<usize>>,
    in_use: BTreeSet<DeviceId>,
}

/// What is the matter with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// Not all of its slices are there.
    Incomplete,
    /// Names or counters don't fit together.
    Invalid,
}

/// A pool as a node sees it.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub driver: &'a str,
    pub name: &'a str,
    pub health: Health,
    /// Slices that the node reaches, by name; without those that only have counters.
    pub slices: Vec<&'a Arc<Slice>>,
    /// What is left of the counter sets.
    pub left: BTreeMap<&'a str, Counters>,
}

impl Pools {
    /// Counts the devices of a claim that will be deleted as free.
    pub fn free(&mut self, claim: &Claim) {
        for d in claim.raw.allocation.iter().flat_map(|a| &a.devices).filter(|d| !d.admin) {
            self.in_use.remove(&(d.driver.clone(), d.pool.clone(), d.device.clone()));
        }
    }

    pub fn new(devices: &Devices) -> Self {
        let mut out = Self {
            slices: devices.slices.values().cloned().collect(),
            by_node: BTreeMap::new(),
            shared: Vec::new(),
            by_pool: BTreeMap::new(),
            in_use: devices.in_use(),
        };
        for (i, slice) in out.slices.iter().enumerate() {
            match &slice.reach {
                Some(Reach::Node(node)) if slice.raw.counters.is_empty() => {
                    out.by_node.entry(*node).or_default().push(i);
                }
                Some(Reach::Node(_) | Reach::All | Reach::Selected(_)) | None => out.shared.push(i),
            }
            out.by_pool.entry((slice.raw.driver.clone(), slice.raw.pool.clone())).or_default().push(i);
        }
        out
    }

    /// Whether a claim holds the device already.
    pub(super) fn is_in_use(&self, pool: &Pool<'_>, device: &str) -> bool {
        !self.in_use.is_empty()
            && self.in_use.contains(&(pool.driver.to_owned(), pool.name.to_owned(), device.to_owned()))
    }

    /// The pools with devices or counters for a node, by driver and name.
    pub(super) fn of_node(&self, cluster: &Cluster, node: NodeId) -> Vec<Pool<'_>> {
        let row = &cluster.nodes[node];
        let own = self.by_node.get(&row.name).into_iter().flatten();
        let reached = |i: &&usize| {
            let slice = &self.slices[**i];
            let counters = !slice.raw.counters.is_empty();
            let mut devices = 0..slice.raw.devices.len();
            counters
                || match &slice.reach {
                    Some(r) => r.includes(row, &cluster.strings),
                    None => devices.any(|d| slice.reaches(d, row, &cluster.strings)),
                }
        };
        let mut groups: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for i in own.chain(&self.shared).filter(reached) {
            let raw = &self.slices[*i].raw;
            let group = groups.entry((&raw.driver, &raw.pool)).or_default();
            let newest = group.first().map_or(i64::MIN, |g| self.slices[*g].raw.generation);
            if raw.generation > newest {
                group.clear();
            }
            if raw.generation >= newest {
                group.push(*i);
            }
        }
        groups.into_iter().filter_map(|(id, group)| self.pool(id, group)).collect()
    }

    /// A pool with the slices that the node reaches; `None` when the driver is replacing them.
    fn pool<'a>(&'a self, (driver, name): (&'a str, &'a str), mut group: Vec<usize>) -> Option<Pool<'a>> {
        let first = &self.slices[*group.first()?].raw;
        let (generation, count) = (first.generation, first.slice_count);
        let mut rest: Vec<&Arc<Slice>> = Vec::new();
        let mut pool = Pool { driver, name, health: Health::Good, slices: Vec::new(), left: BTreeMap::new() };
        if signed(group.len()) != count {
            let key = (driver.to_owned(), name.to_owned());
            let all = self.by_pool.get(&key).map_or(&[][..], Vec::as_slice);
            if all.iter().any(|i| self.slices[*i].raw.generation > generation) {
                return None;
            }
            let same = all.iter().filter(|i| self.slices[**i].raw.generation == generation);
            let same: Vec<usize> = same.copied().collect();
            if signed(same.len()) != count {
                pool.health = Health::Incomplete;
                return Some(pool);
            }
            rest = same.iter().filter(|i| !group.contains(i)).map(|i| &self.slices[*i]).collect();
        }
        // Slices are in the order of their names.
        group.sort_unstable();
        let group: Vec<&Arc<Slice>> = group.iter().map(|i| &self.slices[*i]).collect();
        if !pool.fill(&group, &rest) {
            pool.health = Health::Invalid;
            pool.slices.clear();
            return Some(pool);
        }
        if !pool.left.is_empty() {
            for device in group.iter().chain(&rest).flat_map(|s| &s.raw.devices) {
                if self.is_in_use(&pool, &device.name) {
                    take(&mut pool.left, device, 1);
                }
            }
        }
        Some(pool)
    }
}

impl<'a> Pool<'a> {
    /// Takes in slices; false when names or counters don't fit together.
    fn fill(&mut self, group: &[&'a Arc<Slice>], rest: &[&'a Arc<Slice>]) -> bool {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for slice in group {
            if slice.raw.counters.is_empty() {
                if !slice.raw.devices.iter().all(|d| names.insert(&d.name)) {
                    return false;
                }
                self.slices.push(slice);
            }
            for (set, amounts) in &slice.raw.counters {
                if self.left.insert(set, amounts.clone()).is_some() {
                    return false;
                }
            }
        }
        let mut devices = group.iter().chain(rest).flat_map(|s| &s.raw.devices);
        devices.all(|d| {
            d.consumes.iter().all(|(set, amounts)| {
                self.left
                    .get(set.as_str())
                    .is_some_and(|there| amounts.keys().all(|name| there.contains_key(name)))
            })
        })
    }

    /// Why all devices of the pool can't be had now.
    pub(super) fn refusal(&self, claim: &str, request: &str) -> Option<Failure> {
        let state = match self.health {
            Health::Good => return None,
            Health::Incomplete => "being updated",
            Health::Invalid => "invalid",
        };
        let (driver, name) = (self.driver, self.name);
        Some(Failure::Broken(format!(
            "claim {claim}, request {request}: asks for all devices, but resource pool {driver}/{name} is \
             currently {state}"
        )))
    }
}

/// Takes what a device consumes (`sign` 1), or gives it back (-1).
pub(super) fn take(left: &mut BTreeMap<&str, Counters>, device: &Device, sign: i128) {
    for (set, amounts) in &device.consumes {
        for (name, amount) in amounts {
            if let Some(left) = left.get_mut(set.as_str()).and_then(|s| s.get_mut(name)) {
                *left -= amount * sign;
            }
        }
    }
}
