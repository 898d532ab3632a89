//! Feasible nodes in order of score, kept per pod spec and repaired by the nodes that changed.
//!
//! A spec takes part when every plugin says that its verdicts and scores for these pods depend on the node alone
//! ([`Plugin::is_local`](super::framework::Plugin::is_local)). The result is the same as that of a full scan,
//! ties included: a property test compares both.

mod tree;

use self::tree::Tree;
use super::cluster::{Cluster, NodeId, SpecId};
use super::cycle::{Cycle, Runner};
use super::framework::{FilterState, Incoming, Normalization, ScoreState, Status};
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

/// The nodes for one spec.
#[derive(Debug)]
pub(crate) struct Ranked {
    epoch: u64,
    position: u64,
    last_used: u64,
    filters: Vec<Box<dyn FilterState>>,
    direct: Vec<(Box<dyn ScoreState>, i64)>,
    scaled: Vec<Scaled>,
    base: Vec<i64>,
    verdicts: Vec<u16>,
    /// Distinct rejections and how many nodes have them.
    table: Vec<(Status, usize)>,
    feasible: usize,
    tree: Tree,
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
        let (mut direct, mut scaled) = (Vec::new(), Vec::new());
        for (state, weight) in cycle.score_states(cluster) {
            match state.normalization() {
                Normalization::None => direct.push((state, weight)),
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
        let mut new = Self {
            epoch: cluster.changes.epoch,
            position: cluster.changes.end(),
            last_used: 0,
            filters: cycle.take_filters(),
            direct,
            scaled,
            base: vec![0; n],
            verdicts: vec![NO_NODE; n],
            table: Vec::new(),
            feasible: 0,
            tree: Tree::new(n),
            broken: false,
        };
        for i in 0..n {
            new.look_at(runner, cluster, pod, NodeId::new(i));
        }
        new.rescale();
        (!new.broken).then_some(new)
    }

    fn filter(&self, runner: &Runner, cluster: &mut Cluster, pod: &Incoming, node: NodeId) -> Status {
        if !cluster.nodes[node].nominated.is_empty() {
            // Nominated pods count for those that are not more important; seldom, so made afresh.
            return Cycle::pre_filter(runner, cluster, pod.clone()).filter(cluster, node);
        }
        for state in &self.filters {
            let status = state.filter(cluster, node);
            if !status.is_success() {
                return status;
            }
        }
        Status::success()
    }

    /// Looks at one node afresh; its total is set later.
    fn look_at(&mut self, runner: &Runner, cluster: &mut Cluster, pod: &Incoming, node: NodeId) {
        let i = node.index();
        match self.verdicts[i] {
            NO_NODE => {}
            FEASIBLE => {
                self.feasible -= 1;
                for s in &mut self.scaled {
                    s.count(s.raw[i], false);
                }
            }
            rejected => self.table[usize::from(rejected) - 2].1 -= 1,
        }
        if !cluster.nodes.get(node).is_some_and(|n| n.exists) {
            self.verdicts[i] = NO_NODE;
            return;
        }
        let status = self.filter(runner, cluster, pod, node);
        if !status.is_success() {
            self.verdicts[i] = self.reject(status);
            return;
        }
        self.verdicts[i] = FEASIBLE;
        self.feasible += 1;
        self.base[i] =
            self.direct.iter().fold(0, |sum, (s, w)| sum + s.score(cluster, node).saturating_mul(*w));
        for s in &mut self.scaled {
            s.raw[i] = s.state.score(cluster, node);
            s.count(s.raw[i], true);
        }
    }

    fn reject(&mut self, status: Status) -> u16 {
        self.broken |= !status.code.is_rejected();
        let at = match self.table.iter().position(|(s, _)| *s == status) {
            Some(at) => at,
            None => {
                self.table.push((status, 0));
                self.table.len() - 1
            }
        };
        self.broken |= at >= MAX_VERDICTS;
        let at = at.min(MAX_VERDICTS);
        self.table[at].1 += 1;
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
        let changed: smallvec::SmallVec<[NodeId; 8]> = changed.into();
        self.position = cluster.changes.end();
        let mut last = None;
        for node in &changed {
            // The same node often changes several times in a row.
            if last.replace(*node) != Some(*node) {
                self.look_at(runner, cluster, pod, *node);
            }
        }
        if self.scaled.iter().any(|s| s.max != s.current_max()) {
            self.rescale();
        } else {
            for node in &changed {
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
    None(&'a Ranked),
    /// The spec is not ranked.
    Unknown,
}

impl Ranked {
    /// Distinct rejections and how many nodes have them.
    pub fn rejections(&self) -> impl Iterator<Item = (&Status, usize)> {
        self.table.iter().filter(|(_, n)| *n > 0).map(|(s, n)| (s, *n))
    }

    /// Nodes whose rejection satisfies a condition, in id order.
    pub fn rejected(&self, which: impl Fn(&Status) -> bool) -> Vec<NodeId> {
        let wanted: Vec<bool> = self.table.iter().map(|(s, n)| *n > 0 && which(s)).collect();
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
