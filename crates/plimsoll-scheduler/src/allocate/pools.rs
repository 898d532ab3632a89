//! Which pools of devices a node reaches, and what is wrong with them (upstream
//! `GatherPools`).

use super::Failure;
use crate::cluster::devices::{Claim, Devices};
use crate::cluster::slices::{PoolIndex, Slice};
use crate::cluster::{Cluster, NodeId};
use plimsoll_state::cast::signed;
use plimsoll_state::model::{self, AllocatedDevice, Counters, Device, Operator, Requirement};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All slices, and the devices that a search may take though claims hold them.
#[derive(Debug)]
pub(crate) struct Pools {
    index: Arc<PoolIndex>,
    /// Driver, pool and name.
    freed: BTreeSet<(String, String, String)>,
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
    pub fn new(devices: &Devices) -> Self {
        Self { index: devices.index(), freed: BTreeSet::new() }
    }

    /// Counts the devices of a claim that will be deleted as free.
    pub fn free(&mut self, claim: &Claim) {
        for d in claim.raw.allocation.iter().flat_map(|a| &a.devices).filter(|d| !d.admin) {
            self.freed.insert((d.driver.clone(), d.pool.clone(), d.device.clone()));
        }
    }

    /// The nodes on which a claim with these devices can be used, of which this one is one; `None`: all (upstream
    /// `createNodeSelector`).
    pub fn reach_of(
        &self,
        cluster: &Cluster,
        node: NodeId,
        given: &[AllocatedDevice],
    ) -> Option<model::NodeSelector> {
        let mut term = model::NodeSelectorTerm::default();
        for d in given {
            let slices = self.index.of_pool(&d.driver, &d.pool).iter().map(|i| &self.index.slices[*i].raw);
            let device = slices
                .filter_map(|s| Some((s, s.devices.iter().find(|known| known.name == d.device)?)))
                .max_by_key(|(s, _)| s.generation);
            let reach = device.and_then(|(slice, device)| {
                let reach = slice.reach.as_ref().or(device.reach.as_ref());
                reach.filter(|_| !device.binds_to_node)
            });
            match reach {
                Some(model::Reach::All) => {}
                Some(model::Reach::Selected(nodes)) => {
                    let asked = nodes.terms.first().cloned().unwrap_or_default();
                    add_new(&mut term.fields, asked.fields);
                    add_new(&mut term.expressions, asked.expressions);
                }
                Some(model::Reach::Node(_)) | None => {
                    let name = cluster.strings.text(cluster.nodes[node].name).to_owned();
                    let values = vec![name];
                    let here = Requirement { key: "metadata.name".into(), operator: Operator::In, values };
                    term = model::NodeSelectorTerm { fields: vec![here], expressions: Vec::new() };
                    return Some(model::NodeSelector { terms: vec![term] });
                }
            }
        }
        let limited = !term.fields.is_empty() || !term.expressions.is_empty();
        limited.then(|| model::NodeSelector { terms: vec![term] })
    }

    /// Whether a claim holds a device of a pool already.
    pub(super) fn in_use<'a>(
        &'a self,
        devices: &'a Devices,
        driver: &'a str,
        pool: &'a str,
    ) -> impl Fn(&str) -> bool + 'a {
        let held = devices.in_use().of_pool(driver, pool);
        let freed =
            |device: &str| self.freed.contains(&(driver.to_owned(), pool.to_owned(), device.to_owned()));
        move |device| {
            held.is_some_and(|held| held.contains_key(device)) && (self.freed.is_empty() || !freed(device))
        }
    }

    /// The pools with devices or counters for a node, by driver and name.
    pub(super) fn of_node(&self, cluster: &Cluster, node: NodeId) -> Vec<Pool<'_>> {
        let row = &cluster.nodes[node];
        let index = &*self.index;
        let own = index.by_node.get(&row.name).into_iter().flatten();
        let reached = |i: &&usize| {
            let slice = &index.slices[**i];
            let counters = !slice.raw.counters.is_empty();
            let mut devices = 0..slice.raw.devices.len();
            counters
                || match &slice.reach {
                    Some(r) => r.includes(row, &cluster.strings),
                    None => devices.any(|d| slice.reaches(d, row, &cluster.strings)),
                }
        };
        let mut groups: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for i in own.chain(&index.shared).filter(reached) {
            let raw = &index.slices[*i].raw;
            let group = groups.entry((&raw.driver, &raw.pool)).or_default();
            let newest = group.first().map_or(i64::MIN, |g| index.slices[*g].raw.generation);
            if raw.generation > newest {
                group.clear();
            }
            if raw.generation >= newest {
                group.push(*i);
            }
        }
        let devices = &cluster.objects.devices;
        groups.into_iter().filter_map(|(id, group)| self.pool(devices, id, group)).collect()
    }

    /// A pool with the slices that the node reaches; `None` when the driver is replacing them.
    fn pool<'a>(
        &'a self,
        devices: &Devices,
        (driver, name): (&'a str, &'a str),
        mut group: Vec<usize>,
    ) -> Option<Pool<'a>> {
        let slices = &self.index.slices;
        let first = &slices[*group.first()?].raw;
        let (generation, count) = (first.generation, first.slice_count);
        let mut rest: Vec<&Arc<Slice>> = Vec::new();
        let mut pool = Pool { driver, name, health: Health::Good, slices: Vec::new(), left: BTreeMap::new() };
        if signed(group.len()) != count {
            let all = self.index.of_pool(driver, name);
            if all.iter().any(|i| slices[*i].raw.generation > generation) {
                return None;
            }
            let same = all.iter().filter(|i| slices[**i].raw.generation == generation);
            let same: Vec<usize> = same.copied().collect();
            if signed(same.len()) != count {
                pool.health = Health::Incomplete;
                return Some(pool);
            }
            rest = same.iter().filter(|i| !group.contains(i)).map(|i| &slices[*i]).collect();
        }
        // Slices are in the order of their names.
        group.sort_unstable();
        let group: Vec<&Arc<Slice>> = group.iter().map(|i| &slices[*i]).collect();
        if !pool.fill(&group, &rest) {
            pool.health = Health::Invalid;
            pool.slices.clear();
            return Some(pool);
        }
        if !pool.left.is_empty() {
            let in_use = self.in_use(devices, driver, name);
            for device in group.iter().chain(&rest).flat_map(|s| &s.raw.devices) {
                if in_use(&device.name) {
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

/// Adds what is not there yet.
fn add_new(there: &mut Vec<Requirement>, more: Vec<Requirement>) {
    for one in more {
        if !there.contains(&one) {
            there.push(one);
        }
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
