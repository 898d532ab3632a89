//! Feasible nodes in order of score, kept per pod spec and repaired by the nodes that changed.
//!
//! A spec takes part when every plugin says that its verdicts and scores for these pods depend on the node alone
//! ([`Plugin::is_local`](super::framework::Plugin::is_local)). The result is the same as that of a full scan,
//! ties included: a property test compares both.

mod tree;

use self::tree::Tree;
use super::cluster::{Changed, Cluster, NodeId, SpecId};
use super::cycle::{Cycle, Runner};
use super::framework::{FilterState, Incoming, Normalization, ScoreState, Status};
use super::preempt::Trials;
use crate::intern::Map;
use crate::rng::Rng;
use crate::slab::Id;
use std::collections::BTreeMap;

/// Most node entries over all ranked specs (about 40 bytes each).
const MAX_ENTRIES: usize = 24_000_000;
/// Fewest and most ranked specs.
const SPECS: (usize, usize) = (4, 4096);
/// Verdict of rows that are no nodes.
const NO_NODE: u16 = 0;
/// Verdict of nodes that can take the pod.
const FEASIBLE: u16 = 1;
/// Distinct verdicts of one spec; specs with more are not ranked.
const MAX_VERDICTS: usize = 1000;

/// A score that is scaled by the largest raw score among feasible nodes.
#[derive(Debug)]
struct Scaled {
    state: Box<dyn ScoreState>,
    weight: i64,
    reverse: bool,
    raw: Vec<i64>,
    /// How many feasible nodes have a raw score.
    counts: BTreeMap<i64, u32>,
    /// The largest raw score that the totals were made with.
    max: i64,
}

impl Scaled {
    fn count(&mut self, raw: i64, more: bool) {
        let n = self.counts.entry(raw).or_default();
        if more {
            *n += 1;
        } else {
            *n -= 1;
            if *n == 0 {
                self.counts.remove(&raw);
            }
        }
    }

    fn current_max(&self) -> i64 {
        self.counts.keys().next_back().copied().unwrap_or(0).max(0)
    }

    fn score(&self, node: usize) -> i64 {
        let scaled = if self.max == 0 { 0 } else { self.raw[node].saturating_mul(100) / self.max };
        self.weight.saturating_mul(if self.reverse { 100 - scaled } else { scaled })
    }
}

/// A rejection that nodes share.
#[derive(Debug)]
struct Rejected {
    status: Status,
    /// Made by a filter for which only what the API says of the node counts.
    fixed: bool,
    nodes: usize,
}

/// The nodes for one spec.
#[derive(Debug)]
pub(crate) struct Ranked {
    epoch: u64,
    position: u64,
    last_used: u64,
    filters: Vec<Box<dyn FilterState>>,
    /// How many of the first filters depend only on what the API says of a node.
    fixed_filters: usize,
    /// Scores that depend on the pods of a node.
    direct: Vec<(Box<dyn ScoreState>, i64)>,
    /// Scores that depend only on what the API says of a node, and their weighted sums.
    fixed: Vec<(Box<dyn ScoreState>, i64)>,
    fixed_sum: Vec<i64>,
    scaled: Vec<Scaled>,
    base: Vec<i64>,
    verdicts: Vec<u16>,
    table: Vec<Rejected>,
    feasible: usize,
    tree: Tree,
    /// Outcomes of preemption on nodes that did not change since.
    pub trials: Trials,
    broken: bool,
}

impl Ranked {
    /// Ranks all nodes; `None` when the spec can't be ranked after all.
    fn build(runner: &Runner, cluster: &mut Cluster, pod: &Incoming) -> Option<Self> {
        let mut cycle = Cycle::pre_filter(runner, cluster, pod.clone());
        if !cycle.status.is_success() || cycle.names.is_some() {
            return None;
        }
        let n = cluster.nodes.bound();
        let (mut direct, mut fixed, mut scaled) = (Vec::new(), Vec::new(), Vec::new());
        for (state, weight) in cycle.score_states(cluster) {
            match state.normalization() {
                Normalization::None if state.is_fixed() => fixed.push((state, weight)),
                Normalization::None => direct.push((state, weight)),
                Normalization::ByMax { .. } if !state.is_fixed() => return None,
                Normalization::ByMax { reverse } => scaled.push(Scaled {
                    state,
                    weight,
                    reverse,
                    raw: vec![0; n],
                    counts: BTreeMap::new(),
                    max: 0,
                }),
                Normalization::Other => return None,
            }
        }
        let filters = cycle.take_filters();
        let mut new = Self {
            epoch: cluster.changes.epoch,
            position: cluster.changes.end(),
            last_used: 0,
            fixed_filters: filters.iter().take_while(|f| f.is_fixed()).count(),
            filters,
            direct,
            fixed,
            fixed_sum: vec![0; n],
            scaled,
            base: vec![0; n],
            verdicts: vec![NO_NODE; n],
            table: Vec::new(),
            feasible: 0,
            tree: Tree::new(n),
            trials: Trials::new(),
            broken: false,
        };
        for i in 0..n {
            new.look_at(runner, cluster, pod, Changed { node: NodeId::new(i), itself: true });
        }
        new.rescale();
        (!new.broken).then_some(new)
    }

    /// The verdict on a node, from filter number `from` on, and whether it is fixed.
    fn filter(
        &self,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        (node, from): (NodeId, usize),
    ) -> (Status, bool) {
        if !cluster.nodes[node].nominated.is_empty() {
            // Nominated pods count for those that are not more important; seldom, so made afresh.
            return (Cycle::pre_filter(runner, cluster, pod.clone()).filter(cluster, node), false);
        }
        for (i, state) in self.filters.iter().enumerate().skip(from) {
            let status = state.filter(cluster, node);
            if !status.is_success() {
                return (status, i < self.fixed_filters);
            }
        }
        (Status::success(), false)
    }

    /// Looks at one node afresh; says whether its total must be set.
    fn look_at(&mut self, runner: &Runner, cluster: &mut Cluster, pod: &Incoming, changed: Changed) -> bool {
        let Changed { node, itself } = changed;
        let i = node.index();
        if let Some(trial) = self.trials.get_mut(i) {
            *trial = None;
        }
        let before = self.verdicts[i];
        match before {
            NO_NODE => {}
            FEASIBLE => {
                self.feasible -= 1;
                for s in &mut self.scaled {
                    s.count(s.raw[i], false);
                }
            }
            rejected => {
                let entry = &mut self.table[usize::from(rejected) - 2];
                if entry.fixed && !itself {
                    return false;
                }
                entry.nodes -= 1;
            }
        }
        if !cluster.nodes.get(node).is_some_and(|n| n.exists) {
            self.verdicts[i] = NO_NODE;
            return true;
        }
        // A node that was rejected for what its pods use has passed the fixed filters.
        let known = !itself && before != NO_NODE;
        let from = if known { self.fixed_filters } else { 0 };
        let (status, fixed) = self.filter(runner, cluster, pod, (node, from));
        if !status.is_success() {
            self.verdicts[i] = self.reject(status, fixed);
            return before == FEASIBLE;
        }
        self.verdicts[i] = FEASIBLE;
        self.feasible += 1;
        let sum = |list: &[(Box<dyn ScoreState>, i64)]| {
            list.iter().fold(0, |sum, (s, w)| sum + s.score(cluster, node).saturating_mul(*w))
        };
        let rescore = itself || before != FEASIBLE;
        if rescore {
            self.fixed_sum[i] = sum(&self.fixed);
        }
        self.base[i] = self.fixed_sum[i] + sum(&self.direct);
        for s in &mut self.scaled {
            if rescore {
                s.raw[i] = s.state.score(cluster, node);
            }
            s.count(s.raw[i], true);
        }
        true
    }

    fn reject(&mut self, status: Status, fixed: bool) -> u16 {
        self.broken |= !status.code.is_rejected();
        let at = match self.table.iter().position(|r| r.fixed == fixed && r.status == status) {
            Some(at) => at,
            None => {
                self.table.push(Rejected { status, fixed, nodes: 0 });
                self.table.len() - 1
            }
        };
        self.broken |= at >= MAX_VERDICTS;
        let at = at.min(MAX_VERDICTS);
        self.table[at].nodes += 1;
        at as u16 + 2
    }

    fn total(&self, i: usize) -> Option<i64> {
        (self.verdicts[i] == FEASIBLE)
            .then(|| self.scaled.iter().fold(self.base[i], |sum, s| sum.saturating_add(s.score(i))))
    }

    /// Makes all totals again.
    fn rescale(&mut self) {
        for s in &mut self.scaled {
            s.max = s.current_max();
        }
        let totals: Vec<Option<i64>> = (0..self.verdicts.len()).map(|i| self.total(i)).collect();
        self.tree.fill(&totals);
    }

    /// Repairs the ranks for the nodes that changed; false: they must be made afresh.
    fn repair(&mut self, runner: &Runner, cluster: &mut Cluster, pod: &Incoming) -> bool {
        if self.epoch != cluster.changes.epoch || self.verdicts.len() != cluster.nodes.bound() {
            return false;
        }
        let Some(changed) = cluster.changes.since(self.position) else { return false };
        if changed.len() > self.verdicts.len() {
            return false;
        }
        let mut changed: smallvec::SmallVec<[Changed; 8]> = changed.into();
        self.position = cluster.changes.end();
        let mut last = None;
        // The same node often changes several times in a row.
        changed.retain(|one| last.replace(*one) != Some(*one));
        changed.retain(|one| self.look_at(runner, cluster, pod, *one));
        if self.scaled.iter().any(|s| s.max != s.current_max()) {
            self.rescale();
        } else {
            for Changed { node, .. } in &changed {
                let total = self.total(node.index());
                self.tree.set(node.index(), total);
            }
        }
        !self.broken
    }
}

/// What the ranks say.
pub(crate) enum Rank<'a> {
    /// The best node, ties broken by chance.
    Best(NodeId),
    /// No node is feasible: distinct rejections with counts, and the rejections by node.
    None(&'a mut Ranked),
    /// The spec is not ranked.
    Unknown,
}

impl Ranked {
    /// Distinct rejections and how many nodes have them.
    pub fn rejections(&self) -> impl Iterator<Item = (&Status, usize)> {
        self.table.iter().filter(|r| r.nodes > 0).map(|r| (&r.status, r.nodes))
    }

    /// Nodes whose rejection satisfies a condition, in id order.
    pub fn rejected(&self, which: impl Fn(&Status) -> bool) -> Vec<NodeId> {
        let wanted: Vec<bool> = self.table.iter().map(|r| r.nodes > 0 && which(&r.status)).collect();
        if !wanted.contains(&true) {
            return Vec::new();
        }
        let nodes = self.verdicts.iter().enumerate();
        nodes
            .filter(|(_, v)| **v > FEASIBLE && wanted[usize::from(**v) - 2])
            .map(|(i, _)| NodeId::new(i))
            .collect()
    }
}

/// Ranks by spec and profile.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    entries: Map<(SpecId, u32), Ranked>,
    /// Specs seen once; the second pod makes ranking worthwhile.
    once: Map<(SpecId, u32), ()>,
    clock: u64,
    /// One more than the largest profile seen.
    profiles: u32,
    /// For comparison in tests: look at all nodes every time.
    pub off: bool,
}

impl Ranks {
    /// The best node for a pod whose plugins are all local.
    pub fn best(
        &mut self,
        runner: &Runner,
        profile: u32,
        cluster: &mut Cluster,
        pod: &Incoming,
        rng: &mut Rng,
    ) -> Rank<'_> {
        self.profiles = self.profiles.max(profile + 1);
        for freed in cluster.shapes.take_freed_specs() {
            for p in 0..self.profiles {
                self.entries.remove(&(freed, p));
                self.once.remove(&(freed, p));
            }
        }
        if self.off || cluster.pods[pod.id].nominated.is_some() || !runner.is_local(cluster, pod) {
            return Rank::Unknown;
        }
        let key = (pod.shape.spec_id, profile);
        let usable = self.entries.get_mut(&key).is_some_and(|r| r.repair(runner, cluster, pod));
        if !usable {
            let known = self.entries.remove(&key).is_some();
            if !known && self.once.insert(key, ()).is_none() {
                self.once_bounded();
                return Rank::Unknown;
            }
            let Some(new) = Ranked::build(runner, cluster, pod) else { return Rank::Unknown };
            self.make_room(cluster.nodes.bound());
            self.entries.insert(key, new);
        }
        self.clock += 1;
        let clock = self.clock;
        let Some(ranked) = self.entries.get_mut(&key) else { return Rank::Unknown };
        ranked.last_used = clock;
        if ranked.feasible == 0 {
            return Rank::None(ranked);
        }
        // A full scan draws no number when there is only one feasible node.
        let ties = ranked.tree.ties();
        let at = if ranked.feasible == 1 { 0 } else { rng.below(ties) };
        match ranked.tree.nth_best(at) {
            Some(i) => Rank::Best(NodeId::new(i)),
            None => Rank::Unknown,
        }
    }

    fn once_bounded(&mut self) {
        if self.once.len() > 4 * SPECS.1 {
            self.once.clear();
        }
    }

    /// Drops the ranks that were not used for longest while there are too many.
    fn make_room(&mut self, nodes: usize) {
        let limit = (MAX_ENTRIES / nodes.max(1)).clamp(SPECS.0, SPECS.1);
        while self.entries.len() >= limit {
            let oldest = self.entries.iter().min_by_key(|(_, r)| r.last_used).map(|(k, _)| *k);
            let Some(oldest) = oldest else { return };
            self.entries.remove(&oldest);
        }
    }
}
