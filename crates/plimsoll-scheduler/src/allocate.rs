//! Giving devices to claims on one node: exhaustive first fit with backtracking (upstream's
//! `incubating` allocator).

mod constraints;
mod pools;
mod prepare;

pub(crate) use pools::Pools;

use super::cluster::devices::Devices;
use super::cluster::slices::Slice;
use super::cluster::{Cluster, NodeId};
use constraints::Settled;
use plimsoll_state::model::{
    AllocatedDevice, Device, DeviceAlternative, DeviceConstraint, DeviceCount, DeviceRequest, TaintEffect,
};
use pools::{Health, Pool};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most steps of one search; upstream bounds it by time, which would not be the same in every run.
const MAX_STEPS: u32 = 200_000;

/// Most devices that one search looks at, each as often as it does; a step looks at all that come after the one before.
const MAX_LOOKS: u32 = 2_000_000;

/// Most claims, requests and devices one after the other: the search recurses into each, and how many claims a pod
/// names is for its user to say.
const MAX_DEPTH: u32 = 500;

/// Largest number of devices of one claim (API limit `AllocationResultsMaxSize`).
const MAX_DEVICES: usize = 32;

/// Why a search ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no way.
    Impossible,
    /// There is no way, and some pools could not be used.
    InvalidPools,
    /// It took too long.
    TooLong,
    /// A selector or a claim is wrong.
    Broken(String),
}

/// What is asked for: a claim's requests and constraints.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Namespace and name of the claim, for messages.
    pub claim: String,
    pub requests: Vec<DeviceRequest>,
    pub constraints: Vec<DeviceConstraint>,
}

/// What one claim gets: its devices, and the alternative chosen for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub devices: Vec<AllocatedDevice>,
    pub alternatives: Vec<usize>,
}

/// A device that the node may reach.
struct Candidate<'a> {
    pool: usize,
    slice: &'a Arc<Slice>,
    index: usize,
    device: &'a Device,
    /// A claim holds it already.
    in_use: bool,
    /// Claims of the pod that it is being given to.
    given_to: BTreeSet<usize>,
}

/// What is known beforehand of one way to satisfy a request.
struct Way {
    count: usize,
    /// The devices when all are asked for.
    all: Option<Vec<usize>>,
    /// Whether each device is selected, as far as that has been asked.
    known: Vec<Option<bool>>,
}

/// Where the search is: the next device of a way to satisfy a request of a claim.
#[derive(Clone, Copy, Default)]
struct At {
    claim: usize,
    request: usize,
    way: usize,
    device: usize,
}

/// How a step of the search ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    NoWay,
    /// The claim would get too many devices: what the requests before it got does not matter.
    TooMany,
}

struct Search<'a> {
    cluster: &'a Cluster,
    devices: &'a Devices,
    node: NodeId,
    wanted: &'a [Wanted],
    pools: Vec<Pool<'a>>,
    /// Devices of the pools that can be used, in their order.
    candidates: Vec<Candidate<'a>>,
    /// By claim, request and way.
    ways: Vec<Vec<Vec<Way>>>,
    /// By claim and constraint.
    settled: Vec<Vec<Settled>>,
    given: Vec<Given>,
    steps: u32,
    looks: u32,
    depth: u32,
}

fn tolerated(device: &Device, alternative: &DeviceAlternative) -> bool {
    device.taints.iter().all(|taint| {
        let Some(effect) = taint.effect.filter(|e| *e != TaintEffect::PreferNoSchedule) else { return true };
        alternative.tolerations.iter().any(|t| {
            t.effect.is_none_or(|e| e == effect)
                && (t.key.is_empty() || t.key == taint.key)
                && (t.exists || t.value == taint.value)
        })
    })
}

impl<'a> Search<'a> {
    /// Whether class and request select a device.
    fn selects(&self, at: At, candidate: &Candidate<'a>) -> Result<bool, Failure> {
        let wanted = &self.wanted[at.claim];
        let alternative = &wanted.requests[at.request].alternatives[at.way];
        let (claim, name) = (&wanted.claim, &alternative.class);
        let Some(class) = self.devices.classes.get(name) else {
            let request = alternative_name(&wanted.requests[at.request], alternative);
            return Err(Failure::Broken(format!(
                "claim {claim}, request {request}: could not retrieve device class {name}"
            )));
        };
        let of_class = class.selectors.iter().enumerate().map(|(i, s)| (true, i, s));
        let own = alternative.selectors.iter().enumerate().map(|(i, s)| (false, i, s));
        for (is_class, i, expression) in of_class.chain(own) {
            match self.devices.ask(expression, candidate.slice).get(candidate.index) {
                Some(Ok(true)) => {}
                Some(Ok(false)) | None => return Ok(false),
                Some(Err(text)) => {
                    let whose = if is_class { format!("class {name}") } else { format!("claim {claim}") };
                    return Err(Failure::Broken(format!("{whose}: selector #{i}: {text}")));
                }
            }
        }
        let row = &self.cluster.nodes[self.node];
        let by_device = candidate.slice.reach.is_none();
        Ok(!by_device || candidate.slice.reaches(candidate.index, row, &self.cluster.strings))
    }

    /// The same, asked once for each way to satisfy a request.
    fn is_selected(&mut self, at: At, which: usize) -> Result<bool, Failure> {
        if let Some(Some(known)) = self.ways[at.claim][at.request][at.way].known.get(which) {
            return Ok(*known);
        }
        let selected = self.selects(at, &self.candidates[which])?;
        let known = &mut self.ways[at.claim][at.request][at.way].known;
        known.resize(self.candidates.len(), None);
        known[which] = Some(selected);
        Ok(selected)
    }

    /// Gives a device to a request if nothing speaks against it. `must`: no other will do.
    fn take(&mut self, at: At, which: usize, must: bool) -> Result<bool, Failure> {
        let wanted = &self.wanted[at.claim];
        let request = &wanted.requests[at.request];
        let alternative = &request.alternatives[at.way];
        let c = &self.candidates[which];
        let held = if alternative.admin {
            c.given_to.contains(&at.claim)
        } else {
            c.in_use || !c.given_to.is_empty()
        };
        if held {
            return Ok(false);
        }
        let (device, slice, pool) = (c.device, c.slice, c.pool);
        if !device.consumes.is_empty() {
            let left = &mut self.pools[pool].left;
            pools::take(left, device, 1);
            // All counters of the pool, whether the device needs them or not, as upstream.
            if left.values().flat_map(|s| s.values()).any(|n| *n < 0) {
                pools::take(left, device, -1);
                return Ok(false);
            }
        }
        // Devices refused from here on keep what they consume until the search on this node ends, as upstream.
        if !tolerated(device, alternative) {
            return Ok(false);
        }
        let about = (request.name.as_str(), alternative.name.as_str());
        let list = &wanted.constraints;
        if !constraints::add_all(list, &mut self.settled[at.claim], about, device, &slice.raw.driver) {
            if must {
                let (driver, pool) = (&slice.raw.driver, &slice.raw.pool);
                return Err(Failure::Broken(format!(
                    "claim {}, request {}: cannot add device {driver}/{pool}/{} because a claim constraint \
                     would not be satisfied",
                    wanted.claim,
                    alternative_name(request, alternative),
                    device.name
                )));
            }
            return Ok(false);
        }
        self.given[at.claim].devices.push(AllocatedDevice {
            request: request.full_name(alternative),
            driver: slice.raw.driver.clone(),
            pool: slice.raw.pool.clone(),
            device: device.name.clone(),
            admin: alternative.admin,
        });
        self.candidates[which].given_to.insert(at.claim);
        Ok(true)
    }

    /// Reverts the last [`Self::take`].
    fn give_back(&mut self, at: At, which: usize) {
        let wanted = &self.wanted[at.claim];
        let request = &wanted.requests[at.request];
        let about = (request.name.as_str(), request.alternatives[at.way].name.as_str());
        constraints::remove_all(&wanted.constraints, &mut self.settled[at.claim], about);
        let c = &mut self.candidates[which];
        c.given_to.remove(&at.claim);
        pools::take(&mut self.pools[c.pool].left, c.device, -1);
        self.given[at.claim].devices.pop();
    }

    /// Looks for the next device, and for all that come after it (upstream `allocateOne`). `chosen`: the way to
    /// satisfy the request is settled; devices before `start` are skipped.
    fn step(&mut self, at: At, chosen: bool, start: usize) -> Result<Step, Failure> {
        self.steps += 1;
        if self.steps > MAX_STEPS || self.depth >= MAX_DEPTH {
            return Err(Failure::TooLong);
        }
        self.depth += 1;
        let end = self.step_in(at, chosen, start);
        self.depth -= 1;
        end
    }

    fn step_in(&mut self, at: At, chosen: bool, start: usize) -> Result<Step, Failure> {
        let Some(wanted) = self.wanted.get(at.claim) else { return Ok(Step::Done) };
        let Some(request) = wanted.requests.get(at.request) else {
            let rest = self.step(At { claim: at.claim + 1, ..At::default() }, false, 0)?;
            return Ok(if rest == Step::TooMany { Step::NoWay } else { rest });
        };
        if request.prioritized && !chosen {
            return self.first_way(at, request.alternatives.len());
        }
        let way = &self.ways[at.claim][at.request][at.way];
        let count = way.count;
        if way.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Step::NoWay);
        }
        if at.device >= count {
            return self.step(At { claim: at.claim, request: at.request + 1, ..At::default() }, false, 0);
        }
        if self.given[at.claim].devices.len() + count - at.device > MAX_DEVICES {
            return Ok(Step::TooMany);
        }
        if let Some(which) = way.all.as_ref().map(|all| all[at.device]) {
            if !self.take(at, which, true)? {
                return Ok(Step::NoWay);
            }
            let rest = self.step(At { device: at.device + 1, ..at }, chosen, 0)?;
            if rest != Step::Done {
                self.give_back(at, which);
            }
            return Ok(rest);
        }
        self.some(at, chosen, start)
    }

    /// The first alternative that works out.
    fn first_way(&mut self, at: At, ways: usize) -> Result<Step, Failure> {
        let mut end = Step::TooMany;
        for way in 0..ways {
            match self.step(At { way, ..at }, true, 0)? {
                Step::TooMany => {}
                Step::NoWay => end = Step::NoWay,
                Step::Done => {
                    if let Some(slot) = self.given[at.claim].alternatives.get_mut(at.request) {
                        *slot = way;
                    }
                    return Ok(Step::Done);
                }
            }
        }
        Ok(end)
    }

    /// Tries the devices from `start` on for the one that is needed next.
    fn some(&mut self, at: At, chosen: bool, start: usize) -> Result<Step, Failure> {
        let admin = self.wanted[at.claim].requests[at.request].alternatives[at.way].admin;
        for which in start..self.candidates.len() {
            self.looks += 1;
            if self.looks > MAX_LOOKS {
                return Err(Failure::TooLong);
            }
            let c = &self.candidates[which];
            let held =
                if admin { c.given_to.contains(&at.claim) } else { c.in_use || !c.given_to.is_empty() };
            if held || !self.is_selected(at, which)? || !self.take(at, which, false)? {
                continue;
            }
            let rest = self.step(At { device: at.device + 1, ..at }, chosen, which + 1)?;
            if rest == Step::Done {
                return Ok(rest);
            }
            self.give_back(at, which);
            if rest == Step::TooMany {
                return Ok(rest);
            }
        }
        Ok(Step::NoWay)
    }
}

/// The name by which messages call a way to satisfy a request.
fn alternative_name<'r>(request: &'r DeviceRequest, alternative: &'r DeviceAlternative) -> &'r str {
    if alternative.name.is_empty() { &request.name } else { &alternative.name }
}

/// Allocates devices that the node reaches to all claims, or returns why it can't.
pub(crate) fn allocate(
    cluster: &Cluster,
    pools: &Pools,
    wanted: &[Wanted],
    node: NodeId,
) -> Result<Vec<Given>, Failure> {
    let mut search = Search::new(cluster, pools, wanted, node)?;
    match search.step(At::default(), false, 0)? {
        Step::Done => Ok(search.given),
        Step::TooMany => Err(Failure::Broken("allocation max size exceeded".to_owned())),
        Step::NoWay if search.pools.iter().any(|p| p.health == Health::Invalid) => Err(Failure::InvalidPools),
        Step::NoWay => Err(Failure::Impossible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two of many devices, and one that no device is: each pair is tried with all others.
    #[test]
    fn a_search_looks_at_so_many_devices_at_most() {
        let mut cluster = Cluster::default();
        let node = cluster.node_row("n");
        let device = |i: usize| Device { name: format!("d{i}"), ..Device::default() };
        let slice = plimsoll_state::model::ResourceSlice {
            name: "s".into(),
            slice_count: 1,
            reach: Some(plimsoll_state::model::Reach::All),
            devices: (0..1024).map(device).collect(),
            ..plimsoll_state::model::ResourceSlice::default()
        };
        cluster.objects.devices.put_slice(&slice, &mut cluster.strings);
        let class = plimsoll_state::model::DeviceClass { name: "c".into(), ..Default::default() };
        cluster.objects.devices.classes.insert("c".into(), Arc::new(class));
        let request = |name: &str, count| DeviceRequest {
            name: name.to_owned(),
            prioritized: false,
            alternatives: vec![DeviceAlternative {
                name: String::new(),
                class: "c".into(),
                selectors: Vec::new(),
                count: DeviceCount::Exactly(count),
                tolerations: Vec::new(),
                admin: false,
                shares_capacity: false,
            }],
        };
        // No device has the attribute.
        let constraint = DeviceConstraint {
            requests: vec!["b".into()],
            match_attribute: Some("d/x".into()),
            distinct_attribute: None,
        };
        let wanted = Wanted {
            claim: "n/c".to_owned(),
            requests: vec![request("a", 2), request("b", 1)],
            constraints: vec![constraint],
        };
        let pools = Pools::new(&cluster.objects.devices);
        let mut search =
            Search::new(&cluster, &pools, std::slice::from_ref(&wanted), node).expect("it is valid");
        assert!(matches!(search.step(At::default(), false, 0), Err(Failure::TooLong)));
        assert!(search.looks <= MAX_LOOKS + 1 && search.steps < MAX_STEPS, "{} steps", search.steps);
    }

    #[test]
    fn claims_without_end_take_too_long() {
        let mut cluster = Cluster::default();
        let node = cluster.node_row("n");
        let pools = Pools::new(&cluster.objects.devices);
        let nothing = Wanted { claim: "n/c".to_owned(), requests: Vec::new(), constraints: Vec::new() };
        for (claims, want) in [(100, Ok(100)), (100_000, Err(Failure::TooLong))] {
            let found = allocate(&cluster, &pools, &vec![nothing.clone(); claims], node);
            assert_eq!(found.map(|given| given.len()), want);
        }
    }
}
