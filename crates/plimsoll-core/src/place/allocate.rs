//! Giving devices to claims on one node: exhaustive first fit with backtracking (spec section 5.10).

use super::cluster::{Cluster, NodeId};
use super::devices::{DeviceId, Devices, Slice};
use crate::model::{
    AllocatedDevice, AttributeValue, Counters, Device, DeviceAlternative, DeviceConstraint, DeviceCount,
    DeviceRequest, TaintEffect,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most steps of one search; upstream bounds it by time, which would not be the same in every run.
const MAX_STEPS: u32 = 200_000;

/// Largest number of devices of one claim (API limit `AllocationResultsMaxSize`).
const MAX_DEVICES: usize = 32;

/// Why a search ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no way.
    Impossible,
    /// It took too long.
    TooLong,
    /// A selector or a claim is wrong.
    Broken(String),
}

/// What is asked for: a claim's requests and constraints.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub requests: Vec<DeviceRequest>,
    pub constraints: Vec<DeviceConstraint>,
}

/// What one claim gets: its devices, and the alternative chosen for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub devices: Vec<AllocatedDevice>,
    pub alternatives: Vec<usize>,
}

/// Slices of the newest generation of each pool, and whether all of them are there.
#[derive(Debug)]
pub(crate) struct Pools {
    /// Slices by driver and pool.
    pools: BTreeMap<(String, String), Pool>,
    in_use: BTreeSet<DeviceId>,
}

#[derive(Debug, Default)]
struct Pool {
    generation: i64,
    slices: Vec<Arc<Slice>>,
    complete: bool,
    /// What is left of the counter sets.
    counters: BTreeMap<String, Counters>,
}

impl Pools {
    pub fn new(devices: &Devices) -> Self {
        let mut pools: BTreeMap<(String, String), Pool> = BTreeMap::new();
        for slice in devices.slices.values() {
            let pool = pools.entry((slice.raw.driver.clone(), slice.raw.pool.clone())).or_default();
            if slice.raw.generation > pool.generation || pool.slices.is_empty() {
                pool.slices.clear();
                pool.generation = slice.raw.generation;
            }
            if slice.raw.generation == pool.generation {
                pool.slices.push(Arc::clone(slice));
            }
        }
        let in_use = devices.in_use();
        for ((driver, name), pool) in &mut pools {
            let count = pool.slices.first().map_or(0, |s| s.raw.slice_count);
            pool.complete = pool.slices.len() as i64 == count;
            for (set, amounts) in pool.slices.iter().flat_map(|s| &s.raw.counters) {
                pool.counters.insert(set.clone(), amounts.clone());
            }
            for device in pool.slices.iter().flat_map(|s| &s.raw.devices) {
                if in_use.contains(&(driver.clone(), name.clone(), device.name.clone())) {
                    take(&mut pool.counters, device, 1);
                }
            }
        }
        Self { pools, in_use }
    }
}

/// Takes what a device consumes (`sign` 1), or gives it back (-1).
fn take(counters: &mut BTreeMap<String, Counters>, device: &Device, sign: i128) {
    for (set, amounts) in &device.consumes {
        for (name, amount) in amounts {
            if let Some(left) = counters.get_mut(set).and_then(|s| s.get_mut(name)) {
                *left -= amount * sign;
            }
        }
    }
}

/// Whether the counters allow a device.
fn enough(counters: &BTreeMap<String, Counters>, device: &Device) -> bool {
    device.consumes.iter().all(|(set, amounts)| {
        amounts.iter().all(|(name, amount)| {
            counters.get(set).and_then(|s| s.get(name)).is_some_and(|left| left >= amount)
        })
    })
}

/// A device that the node reaches.
struct Reachable<'a> {
    id: DeviceId,
    pool: usize,
    complete: bool,
    slice: &'a Arc<Slice>,
    index: usize,
    device: &'a Device,
}

struct Search<'a> {
    devices: &'a Devices,
    wanted: &'a [Wanted],
    reachable: Vec<Reachable<'a>>,
    counters: Vec<BTreeMap<String, Counters>>,
    used: BTreeSet<DeviceId>,
    given: Vec<Given>,
    /// Values that constraints have settled on, by claim and constraint, with the number of devices.
    settled: Vec<Vec<Option<(AttributeValue, u32)>>>,
    steps: u32,
}

fn tolerated(device: &Device, alternative: &DeviceAlternative) -> bool {
    device.taints.iter().all(|taint| {
        let Some(effect) = taint.effect.filter(|e| *e != TaintEffect::PreferNoSchedule) else { return true };
        alternative.tolerations.iter().any(|t| {
            t.effect.is_none_or(|e| e == effect)
                && ((t.exists && t.key.is_empty())
                    || (t.key == taint.key && (t.exists || t.value == taint.value)))
        })
    })
}

/// An attribute by its full name; attributes of the driver's own domain are stored without it.
fn attribute<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a AttributeValue> {
    device.attributes.get(name).or_else(|| {
        let (domain, rest) = name.split_once('/')?;
        (domain == driver).then(|| device.attributes.get(rest)).flatten()
    })
}

impl<'a> Search<'a> {
    /// Whether class and request select a device.
    fn selects(&self, alternative: &DeviceAlternative, device: &Reachable<'a>) -> Result<bool, Failure> {
        let class = self.devices.classes.get(&alternative.class);
        let Some(class) = class else {
            let text = format!("could not retrieve device class {}", alternative.class);
            return Err(Failure::Broken(text));
        };
        for expression in class.selectors.iter().chain(&alternative.selectors) {
            match self.devices.ask(expression, device.slice).get(device.index) {
                Some(Ok(true)) => {}
                Some(Ok(false)) | None => return Ok(false),
                Some(Err(text)) => return Err(Failure::Broken(text.clone())),
            }
        }
        Ok(true)
    }

    /// Constraints that are about a request of a claim.
    fn constraints(&self, claim: usize, request: &str, sub: &str) -> Vec<usize> {
        let full = format!("{request}/{sub}");
        let list = self.wanted[claim].constraints.iter().enumerate();
        list.filter(|(_, c)| c.requests.is_empty() || c.requests.iter().any(|r| r == request || *r == full))
            .map(|(i, _)| i)
            .collect()
    }

    /// Gives a device to a request if nothing speaks against it.
    fn take(&mut self, claim: usize, request: &str, alternative: &DeviceAlternative, at: usize) -> bool {
        let d = &self.reachable[at];
        if !alternative.admin && self.used.contains(&d.id) {
            return false;
        }
        if !tolerated(d.device, alternative) || self.given[claim].devices.len() >= MAX_DEVICES {
            return false;
        }
        if !alternative.admin && !enough(&self.counters[d.pool], d.device) {
            return false;
        }
        let about = self.constraints(claim, request, &alternative.name);
        for c in &about {
            let Some(name) = &self.wanted[claim].constraints[*c].match_attribute else { return false };
            let Some(value) = attribute(d.device, &d.id.0, name) else { return false };
            if self.settled[claim][*c].as_ref().is_some_and(|(v, _)| v != value) {
                return false;
            }
        }
        for c in about {
            let name = self.wanted[claim].constraints[c].match_attribute.as_deref().unwrap_or_default();
            let value = attribute(d.device, &d.id.0, name);
            match (&mut self.settled[claim][c], value) {
                (Some((_, n)), _) => *n += 1,
                (slot, Some(value)) => *slot = Some((value.clone(), 1)),
                (_, None) => {}
            }
        }
        if !alternative.admin {
            self.used.insert(d.id.clone());
            take(&mut self.counters[d.pool], d.device, 1);
        }
        let name = &alternative.name;
        let request = if name.is_empty() { request.to_owned() } else { format!("{request}/{name}") };
        let (driver, pool, device) = d.id.clone();
        self.given[claim].devices.push(AllocatedDevice {
            request,
            driver,
            pool,
            device,
            admin: alternative.admin,
        });
        true
    }

    /// Takes back what [`Self::take`] gave last.
    fn give_back(&mut self, claim: usize, request: &str, alternative: &DeviceAlternative, at: usize) {
        for c in self.constraints(claim, request, &alternative.name) {
            let slot = &mut self.settled[claim][c];
            match slot {
                Some((_, n)) if *n > 1 => *n -= 1,
                _ => *slot = None,
            }
        }
        let d = &self.reachable[at];
        if !alternative.admin {
            self.used.remove(&d.id);
            take(&mut self.counters[d.pool], d.device, -1);
        }
        self.given[claim].devices.pop();
    }

    /// Satisfies all requests from this one on.
    fn request(&mut self, claim: usize, request: usize) -> Result<bool, Failure> {
        let Some(wanted) = self.wanted.get(claim) else { return Ok(true) };
        let Some(r) = wanted.requests.get(request) else { return self.request(claim + 1, 0) };
        for (i, alternative) in r.alternatives.iter().enumerate() {
            self.given[claim].alternatives.push(i);
            let mut matching = Vec::new();
            for (at, d) in self.reachable.iter().enumerate() {
                if self.selects(alternative, d)? {
                    matching.push(at);
                }
            }
            let done = match alternative.count {
                DeviceCount::All => self.all(claim, request, alternative, &matching)?,
                DeviceCount::Exactly(n) => {
                    matching.retain(|at| self.reachable[*at].complete);
                    let n = usize::try_from(n).unwrap_or(0);
                    self.some(claim, request, alternative, (&matching, n))?
                }
            };
            if done {
                return Ok(true);
            }
            self.given[claim].alternatives.pop();
        }
        Ok(false)
    }

    fn all(
        &mut self,
        claim: usize,
        request: usize,
        alternative: &DeviceAlternative,
        matching: &[usize],
    ) -> Result<bool, Failure> {
        if matching.is_empty() || matching.iter().any(|at| !self.reachable[*at].complete) {
            return Ok(false);
        }
        let name = self.wanted[claim].requests[request].name.clone();
        let mut taken = 0;
        let mut ok = true;
        for at in matching {
            if !self.take(claim, &name, alternative, *at) {
                ok = false;
                break;
            }
            taken += 1;
        }
        if ok && self.request(claim, request + 1)? {
            return Ok(true);
        }
        for at in matching[..taken].iter().rev() {
            self.give_back(claim, &name, alternative, *at);
        }
        Ok(false)
    }

    /// Takes `n` of the matching devices, in every combination until the rest works out.
    fn some(
        &mut self,
        claim: usize,
        request: usize,
        alternative: &DeviceAlternative,
        (matching, n): (&[usize], usize),
    ) -> Result<bool, Failure> {
        if n == 0 {
            return self.request(claim, request + 1);
        }
        let name = self.wanted[claim].requests[request].name.clone();
        for (i, at) in matching.iter().enumerate() {
            if matching.len() - i < n {
                break;
            }
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(Failure::TooLong);
            }
            if !self.take(claim, &name, alternative, *at) {
                continue;
            }
            if self.some(claim, request, alternative, (&matching[i + 1..], n - 1))? {
                return Ok(true);
            }
            self.give_back(claim, &name, alternative, *at);
        }
        Ok(false)
    }
}

/// Gives devices that the node reaches to all claims, or says why not.
pub(crate) fn allocate(
    cluster: &Cluster,
    pools: &Pools,
    wanted: &[Wanted],
    node: NodeId,
) -> Result<Vec<Given>, Failure> {
    let row = &cluster.nodes[node];
    let mut reachable = Vec::new();
    for (p, ((driver, name), pool)) in pools.pools.iter().enumerate() {
        for slice in &pool.slices {
            for (index, device) in slice.raw.devices.iter().enumerate() {
                if slice.reaches(index, row, &cluster.strings) {
                    let id = (driver.clone(), name.clone(), device.name.clone());
                    reachable.push(Reachable { id, pool: p, complete: pool.complete, slice, index, device });
                }
            }
        }
    }
    let mut search = Search {
        devices: &cluster.objects.devices,
        wanted,
        reachable,
        counters: pools.pools.values().map(|p| p.counters.clone()).collect(),
        used: pools.in_use.clone(),
        given: vec![Given::default(); wanted.len()],
        settled: wanted.iter().map(|w| vec![None; w.constraints.len()]).collect(),
        steps: 0,
    };
    if search.request(0, 0)? { Ok(search.given) } else { Err(Failure::Impossible) }
}
