//! Finding domains for the pods of one podset, or of a leader and its workers (Kueue
//! `pkg/cache/scheduler/tas_flavor_snapshot.go`).

mod balanced;
mod count;
mod counted;
mod distribute;
mod leaf;

use std::cell::Cell;
use std::collections::BTreeMap;

use count::Wanted;
pub(crate) use counted::CountedLeaves;
use leaf::Excluded;
pub(super) use leaf::fits_beside;

use super::request::{TasRequest, TasView};
use super::tree::{DomainId, FlavorTree};
use super::{Amounts, PlaceLimits};
use crate::ids::{Map, WorkloadId};
use crate::model::{PodSet, TopologyAssignment, TopologyRequest};

/// More pods than anyone asks for.
const MANY: i64 = i32::MAX as i64;

/// Why a node can't be used that has the capacity (joint admission).
const OTHER_FILTERS: &str = "filters of the scheduler";

/// How much fits into a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    pods: i64,
    slices: i64,
    /// The same once the leader sits there.
    pods_beside: i64,
    slices_beside: i64,
    /// Whether the leader fits (0 or 1).
    leaders: i64,
    /// Weights of the preferences that its nodes meet.
    affinity: i64,
}

/// Whether pods or slices of pods are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Pods,
    Slices,
}

/// One search.
struct Search<'a> {
    tree: &'a FlavorTree,
    state: Vec<State>,
    excluded: Excluded,
    count: i64,
    leaders: i64,
    slice_size: i64,
    slice_level: usize,
    /// Slice sizes of inner layers, by level.
    inner: BTreeMap<usize, i64>,
    layers: &'a [(String, i32)],
    required: bool,
    unconstrained: bool,
    /// Take the domain with the least capacity first, instead of the one that fits best.
    least_free: bool,
    /// Whether nodes are preferred by affinity.
    affine: bool,
    /// Spread evenly where possible.
    evenly: bool,
    /// Steps of searches for balanced placements in this cycle.
    steps: &'a Cell<usize>,
}

impl TasView<'_> {
    /// Places for a group: one podset, or a leader and its workers.
    pub(super) fn place_group<'r>(
        &self,
        id: WorkloadId,
        tree: &FlavorTree,
        pod_sets: &[PodSet],
        group: &[&'r TasRequest],
        taken: &Map<String, Amounts>,
        (empty, limits): (bool, &PlaceLimits),
    ) -> Result<Vec<(&'r TasRequest, TopologyAssignment)>, String> {
        let (workers, leader) = match group {
            [a, b, ..] if b.count > a.count => (*b, Some(*a)),
            [a, b, ..] => (*a, Some(*b)),
            [a] => (*a, None),
            [] => return Ok(Vec::new()),
        };
        let Some(ps) = pod_sets.get(workers.index) else { return Ok(Vec::new()) };
        let none = TopologyRequest::default();
        let request = ps.topology.as_ref().unwrap_or(&none);
        let (mut search, level) = self.search(tree, request, workers, leader)?;
        let wanted = Wanted { ps, workers, leader, empty, within: None, without: None };
        self.fill_leaves(id, &mut search, &wanted, taken);
        limits.region(workers.index).into_iter().for_each(|region| search.keep_within(region));
        search.limit_leaves(limits, workers.index, leader.map(|l| l.index));
        search.fill_all();
        let (worker_places, leader_places) = search.run(level)?;
        let mut out = Vec::new();
        if let Some(l) = leader {
            out.push((l, search.assignment(leader_places)));
        }
        out.push((workers, search.assignment(worker_places)));
        Ok(out)
    }

    /// Places for pods of one podset, all in the domain `within` if given, none on the node `without`.
    pub(super) fn place_alone(
        &self,
        tree: &FlavorTree,
        ps: &PodSet,
        request: &TopologyRequest,
        pods: &TasRequest,
        taken: &Map<String, Amounts>,
        (within, without): (Option<&[String]>, &str),
    ) -> Result<TopologyAssignment, String> {
        let (mut search, level) = self.search(tree, request, pods, None)?;
        let without = Some(without);
        let wanted = Wanted { ps, workers: pods, leader: None, empty: false, within, without };
        let counted = self.count_leaves(tree, &wanted, taken);
        self.fill(&mut search, &counted);
        search.fill_all();
        let (places, _) = search.run(level)?;
        Ok(search.assignment(places))
    }

    /// Reads the request; errors are Kueue's texts.
    fn search<'a>(
        &'a self,
        tree: &'a FlavorTree,
        request: &'a TopologyRequest,
        workers: &TasRequest,
        leader: Option<&TasRequest>,
    ) -> Result<(Search<'a>, usize), String> {
        let slice_size = request.slices.first().map_or(1, |(_, n)| i64::from(*n));
        if slice_size <= 0 {
            return Err("slice topology requested, but slice size not provided".into());
        }
        let highest = tree.levels.first().map_or("", String::as_str);
        let lowest = tree.levels.last().map_or("", String::as_str);
        let key = match (&request.required, &request.preferred) {
            (Some(l), _) | (None, Some(l)) => l.as_str(),
            _ if request.slices_only() => highest,
            _ if request.unconstrained || workers.implied => lowest,
            _ => return Err("topology level not specified".into()),
        };
        let level = tree.level(key).ok_or_else(|| format!("no requested topology level: {key}"))?;
        let slice_key = request.slices.first().map_or(lowest, |(l, _)| l.as_str());
        let slice_level = tree
            .level(slice_key)
            .ok_or_else(|| format!("no requested topology level for slices: {slice_key}"))?;
        if level > slice_level {
            return Err(format!("podset slice topology {slice_key} is above the podset topology {key}"));
        }
        let unconstrained = request.unconstrained || workers.implied || request.slices_only();
        let search = Search {
            tree,
            state: Vec::new(),
            excluded: Excluded::default(),
            count: i64::from(workers.count),
            leaders: i64::from(leader.is_some()),
            slice_size,
            slice_level,
            inner: inner_layers(tree, &request.slices, slice_level)?,
            layers: if request.slices.len() > 1 { &request.slices } else { &[] },
            required: request.required.is_some(),
            unconstrained,
            least_free: unconstrained && self.state.config.gates.tas_profile_mixed,
            affine: self.state.config.gates.tas_preferred_affinity,
            evenly: self.state.config.gates.tas_balanced && request.required.is_none() && !unconstrained,
            steps: self.balanced_steps,
        };
        Ok((search, level))
    }
}

/// Slice sizes of the layers inside the first one, by level.
fn inner_layers(
    tree: &FlavorTree,
    layers: &[(String, i32)],
    slice_level: usize,
) -> Result<BTreeMap<usize, i64>, String> {
    let mut inner = BTreeMap::new();
    let (mut size, mut level) = (layers.first().map_or(1, |l| l.1), slice_level);
    for (key, layer_size) in layers.iter().skip(1) {
        let at = tree
            .level(key)
            .ok_or_else(|| format!("no requested topology level for additional slice layer: {key}"))?;
        if at <= level {
            let above = &tree.levels[level];
            return Err(format!(
                "additional slice layer topology {key} must be at a lower level than {above}"
            ));
        }
        if *layer_size <= 0 || size % layer_size != 0 {
            return Err(format!(
                "additional slice layer size {layer_size} must evenly divide parent layer size {size}"
            ));
        }
        inner.extend((level + 1..=at).map(|l| (l, i64::from(*layer_size))));
        (size, level) = (*layer_size, at);
    }
    Ok(inner)
}

impl Search<'_> {
    fn at(&self, d: DomainId) -> State {
        self.state[d as usize]
    }

    /// The place of a domain by its values among those of its level.
    fn rank(&self, d: DomainId) -> u32 {
        self.tree.domains[d as usize].rank
    }

    fn values(&self, d: DomainId) -> &[String] {
        &self.tree.domains[d as usize].values
    }

    /// Phase 1 for the whole tree.
    fn fill_all(&mut self) {
        let tree = self.tree;
        for &root in tree.per_level.first().map_or(&[][..], Vec::as_slice) {
            self.fill_up(root, 0);
        }
    }

    /// Phase 1: counts of a domain from those of its children.
    fn fill_up(&mut self, d: DomainId, level: usize) {
        let tree = self.tree;
        let children = &tree.domains[d as usize].children;
        if children.is_empty() {
            if level == self.slice_level {
                let s = &mut self.state[d as usize];
                s.slices = s.pods / self.slice_size;
                s.slices_beside = s.pods_beside / self.slice_size;
            }
            return;
        }
        let inner = self.inner.get(&(level + 1)).copied();
        let mut sum = State::default();
        let (mut pods_less, mut slices_less) = (None::<i64>, None::<i64>);
        for &c in children {
            self.fill_up(c, level + 1);
            let mut child = self.at(c);
            if let Some(size) = inner {
                child.pods = child.pods / size * size;
                child.pods_beside = child.pods_beside / size * size;
            }
            sum.pods = (sum.pods + child.pods).min(MANY);
            sum.slices = (sum.slices + child.slices).min(MANY);
            if self.leaders == 0 || child.leaders > 0 {
                let (p, s) = (child.pods - child.pods_beside, child.slices - child.slices_beside);
                pods_less = Some(pods_less.map_or(p, |m| m.min(p)));
                slices_less = Some(slices_less.map_or(s, |m| m.min(s)));
            }
            sum.leaders = sum.leaders.max(child.leaders);
            sum.affinity = sum.affinity.saturating_add(child.affinity);
        }
        sum.pods_beside = pods_less.map_or(0, |l| sum.pods - l);
        sum.slices_beside = slices_less.map_or(0, |l| sum.slices - l);
        if level == self.slice_level {
            sum.slices = sum.pods / self.slice_size;
            sum.slices_beside = sum.pods_beside / self.slice_size;
        }
        self.state[d as usize] = sum;
    }

    /// Phase 2: chooses domains from the requested level down. Workers' and leader's places.
    #[allow(clippy::type_complexity)]
    fn run(&mut self, level: usize) -> Result<(Vec<(DomainId, i64)>, Vec<(DomainId, i64)>), String> {
        let balanced = if self.evenly { self.balanced(level) } else { None };
        let evenly = balanced.is_some();
        let (fit_level, chosen) = match balanced {
            Some(found) => found,
            None => self.choose_level(level)?,
        };
        let (count, leaders, size) = (self.count, self.leaders, self.slice_size);
        let mut fit = self.give_out(chosen, count, leaders, size, Unit::Slices);
        let (mut at, lowest) = (fit_level, self.tree.levels.len() - 1);
        while !evenly && at < lowest.min(self.slice_level) {
            let tree = self.tree;
            let below = fit.iter().flat_map(|&d| &tree.domains[d as usize].children).copied().collect();
            let sorted = self.sorted(below);
            fit = self.give_out(sorted, count, leaders, size, Unit::Slices);
            at += 1;
        }
        while at < lowest {
            let mut size = self.slice_size;
            if at >= self.slice_level {
                size = self.inner.get(&(at + 1)).copied().unwrap_or(1);
            }
            let mut next = Vec::new();
            for &d in &fit {
                let sorted = self.sorted(self.tree.domains[d as usize].children.clone());
                if size > 1 {
                    for &c in &sorted {
                        let s = &mut self.state[c as usize];
                        (s.slices, s.slices_beside) = (s.pods / size, s.pods_beside / size);
                    }
                }
                let unit = if size > 1 { Unit::Slices } else { Unit::Pods };
                let parent = self.at(d);
                next.extend(self.give_out(sorted, parent.pods, parent.leaders, size, unit));
            }
            fit = next;
            at += 1;
        }
        let workers = fit.iter().map(|&d| (d, self.at(d).pods)).collect();
        let leader = fit.iter().map(|&d| (d, self.at(d).leaders)).collect();
        Ok((workers, if self.leaders > 0 { leader } else { Vec::new() }))
    }

    /// The level, and the domains there, that take everything.
    fn choose_level(&mut self, level: usize) -> Result<(usize, Vec<DomainId>), String> {
        let mut level = level;
        loop {
            let all = self.tree.per_level[level].clone();
            if all.is_empty() {
                return Err(format!("no topology domains at level: {}", self.tree.levels[level]));
            }
            let sorted = self.sorted_with_leader(all);
            let slices = self.count / self.slice_size;
            let fits = |s: State, leaders: i64| s.slices_beside >= slices && s.leaders >= leaders;
            let mut top = sorted[0];
            if self.least_free {
                let single = sorted.iter().copied().find(|&d| {
                    let s = self.at(d);
                    if self.leaders > 0 {
                        s.leaders >= self.leaders && s.slices_beside >= slices
                    } else {
                        s.slices >= slices
                    }
                });
                if let Some(d) = single {
                    return Ok((level, vec![d]));
                }
                if self.required {
                    let most = sorted.last().map_or(0, |&d| self.at(d).pods);
                    return Err(self.not_fit(level, most, slices));
                }
            } else if fits(self.at(top), self.leaders) {
                top = self.best_fit(&sorted, slices, self.leaders, Unit::Slices);
            }
            if fits(self.at(top), self.leaders) {
                return Ok((level, vec![top]));
            }
            if self.required {
                // One that is preferred less may be large enough.
                let next = (1..sorted.len()).find(|&i| self.affine && fits(self.at(sorted[i]), self.leaders));
                if let Some(i) = next {
                    let d = self.best_fit(&sorted[i..], slices, self.leaders, Unit::Slices);
                    return Ok((level, vec![d]));
                }
                return Err(self.not_fit(level, self.at(top).slices, slices));
            }
            if level > 0 && !self.unconstrained {
                level -= 1;
                continue;
            }
            return self.several(level, sorted, slices).map(|d| (level, d));
        }
    }

    /// Takes domains greedily until everything fits, those with the leader first.
    fn several(&mut self, level: usize, sorted: Vec<DomainId>, slices: i64) -> Result<Vec<DomainId>, String> {
        let sorted = self.leader_first(sorted, self.count, self.leaders, self.slice_size, Unit::Slices);
        let (mut left, mut leaders, mut out, mut i) = (slices, self.leaders, Vec::new(), 0);
        while leaders > 0 && i < sorted.len() && self.at(sorted[i]).leaders > 0 {
            let mut d = sorted[i];
            if !self.least_free && self.at(d).slices_beside >= left {
                d = self.best_fit(&sorted[i..], left, leaders, Unit::Slices);
            }
            out.push(d);
            leaders -= self.at(d).leaders;
            left -= self.at(d).slices_beside;
            i += 1;
        }
        if leaders > 0 {
            return Err(self.not_fit(level, self.leaders - leaders, slices));
        }
        let rest = self.sorted(sorted[i..].to_vec());
        for (i, &first) in rest.iter().enumerate() {
            if left <= 0 {
                break;
            }
            let mut d = first;
            if !self.least_free && self.at(d).slices >= left {
                d = self.best_fit(&rest[i..], left, 0, Unit::Slices);
            }
            out.push(d);
            left -= self.at(d).slices;
        }
        if left > 0 { Err(self.not_fit(level, slices - left, slices)) } else { Ok(out) }
    }

    fn primary(&self, d: DomainId, unit: Unit) -> i64 {
        let s = self.at(d);
        if unit == Unit::Slices { s.slices } else { s.pods }
    }

    fn beside(&self, d: DomainId, unit: Unit) -> i64 {
        let s = self.at(d);
        if unit == Unit::Slices { s.slices_beside } else { s.pods_beside }
    }

    fn set_primary(&mut self, d: DomainId, unit: Unit, v: i64) {
        let s = &mut self.state[d as usize];
        if unit == Unit::Slices { s.slices = v } else { s.pods = v }
    }

    /// The smallest domain that still takes `needed`; the first if none does.
    fn best_fit(&self, domains: &[DomainId], needed: i64, leaders: i64, unit: Unit) -> DomainId {
        let free_capacity =
            |d: DomainId| if leaders > 0 { self.beside(d, unit) } else { self.primary(d, unit) };
        let most = self.at(domains[0]).affinity;
        let preferred = domains.iter().copied().take_while(|&d| self.at(d).affinity == most);
        let fitting = preferred.filter(|&d| self.at(d).leaders >= leaders && free_capacity(d) >= needed);
        // Of equals the first.
        fitting.min_by_key(|&d| free_capacity(d)).unwrap_or(domains[0])
    }
}
