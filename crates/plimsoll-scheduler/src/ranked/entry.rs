//! The nodes as pods of one kind see them.

mod build;
mod nodes;
mod report;

use super::counting::{Scaled, measured_sum, sum};
use super::forest::{Forest, Leaf, Root};
use crate::cluster::{Beside, Cluster, NodeId, Shape};
use crate::cycle::{Cycle, Scoring};
use crate::framework::{At, FilterState, Incoming, Place, PluginId, Status};
use crate::metrics::{Meter, Metered, Unmetered};
use crate::plugins::preemption::DryRuns;
use crate::runner::{Layer, Runner};
use plimsoll_state::intern::Map;
use plimsoll_state::{cast::index32, slab::Id};
use smallvec::SmallVec;
use std::sync::Arc;

/// Verdict of rows that are no nodes.
const NO_NODE: u16 = 0;
/// Verdict of nodes that can take the pod, as far as the node itself goes.
const FEASIBLE: u16 = 1;
/// Distinct verdicts of one spec; specs with more are not ranked.
const MAX_VERDICTS: usize = 1000;

/// A rejection that nodes share.
#[derive(Debug)]
struct Rejected {
    status: Status,
    /// Whether it is of a filter that depends only on the Node object.
    fixed: bool,
    nodes: usize,
}

/// What is known of a feasible node. In one place, and apart from the verdicts, since with many kinds of pods the
/// time goes into fetching this from memory.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// Sum of the scores that depend only on the Node object.
    fixed_sum: i64,
    class: u32,
    leaf: Leaf,
}

/// Nodes that differ only in the scores that depend on the node alone.
#[derive(Debug)]
struct Class {
    place: Place,
    root: Root,
    nodes: u32,
    /// Status by the counters, when last computed.
    status: Status,
    /// Best total, when last asked.
    total: i64,
}

/// The nodes for one kind of pods.
#[derive(Debug)]
pub(crate) struct Ranked {
    epoch: u64,
    /// Of the nodes by when they changed last; with counters, of the log of changes.
    position: u64,
    beside: Beside,
    pub last_used: u64,
    /// The step that brought it up to date last.
    pub last_step: u64,
    /// The shape it was made for, when more than its spec matters.
    shape: Option<Arc<Shape>>,
    filters: Vec<(PluginId, Box<dyn FilterState>)>,
    /// How many of the first filters depend only on the Node object.
    fixed_filters: usize,
    /// Scores that depend on the pods of a node.
    direct: Vec<Scoring>,
    /// Scores that depend only on the Node object.
    fixed: Vec<Scoring>,
    scaled: Vec<Scaled>,
    layers: Vec<Layer>,
    /// Whether there were pods with affinity when the layers were found to be all.
    beside_affinity: bool,
    /// The nodes below this number are counted, and those below this one are looked at: all, unless it is still being made.
    counted: usize,
    seen: usize,
    /// Of those that were looked at, nodes that changed so many at once that they are looked at again in parts.
    behind: Vec<(NodeId, bool)>,
    verdicts: Vec<u16>,
    rows: Vec<Row>,
    table: Vec<Rejected>,
    classes: Vec<Class>,
    spare: Vec<u32>,
    by_place: Map<Place, u32>,
    forest: Forest,
    /// Feasible classes, when last asked.
    feasible: Vec<u32>,
    /// Outcomes of preemption on nodes that did not change since.
    pub dry_runs: DryRuns,
    broken: bool,
}

/// Result of the ranks.
pub(crate) enum Best {
    /// Nothing can take the pod.
    Nothing,
    /// One node can.
    Only(NodeId),
    /// This many nodes share the best total.
    Ties(u32, i64),
}

impl Ranked {
    /// Whether pods elsewhere matter.
    pub fn is_counted(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Whether it was made for pods of this shape in this epoch.
    pub fn is_for(&self, cluster: &Cluster, shape: &Arc<Shape>) -> bool {
        self.epoch == cluster.changes.epoch && self.shape.as_ref().is_some_and(|s| Arc::ptr_eq(s, shape))
    }

    /// The verdict on a node, from filter number `from` on, and whether it is fixed.
    fn filter(
        &self,
        meter: &impl Meter,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        (node, from): (NodeId, usize),
    ) -> (Status, bool) {
        if !self.is_counted() && !cluster.nodes[node].nominated.is_empty() {
            // Nominated pods count for those that are not more important; seldom, so made afresh.
            let mut cycle = Cycle::pre_filter(&Unmetered, runner, cluster, pod.clone());
            return (cycle.filter(meter, cluster, node), false);
        }
        for (i, (plugin, state)) in self.filters.iter().enumerate().skip(from) {
            let mut status = match meter.metered() {
                None => state.filter(cluster, node),
                Some(meter) => meter.filter(*plugin, || state.filter(cluster, node)),
            };
            if !status.is_success() {
                status.plugin = Some(*plugin);
                return (status, i < self.fixed_filters);
            }
        }
        (Status::success(), false)
    }

    /// Evaluates one node again, as it is; `itself`: the Node object changed.
    fn look_at_as_it_is(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        (node, itself): (NodeId, bool),
    ) {
        let i = node.index();
        if let Some(outcome) = self.dry_runs.get_mut(i) {
            *outcome = None;
        }
        let before = self.verdicts[i];
        if before > FEASIBLE {
            let entry = &mut self.table[usize::from(before) - 2];
            if entry.fixed && !itself {
                return;
            }
            entry.nodes -= 1;
        }
        if !cluster.nodes.get(node).is_some_and(|n| n.exists) {
            self.leave_class(i);
            self.verdicts[i] = NO_NODE;
            return;
        }
        // A node that was rejected for what its pods use has passed the fixed filters.
        let known = !itself && before != NO_NODE;
        let from = if known { self.fixed_filters } else { 0 };
        let (status, fixed) = match meter {
            None => self.filter(&Unmetered, runner, cluster, pod, (node, from)),
            Some(meter) => self.filter(meter, runner, cluster, pod, (node, from)),
        };
        if !status.is_success() {
            self.leave_class(i);
            self.verdicts[i] = self.reject(status, fixed);
            return;
        }
        let sum = |list: &[Scoring]| match meter {
            None => sum(list, |s| s.state.score(cluster, node)),
            Some(meter) => measured_sum(meter, cluster, node, list),
        };
        let row = self.rows[i];
        let rescore = itself || before != FEASIBLE;
        let fixed_sum = if rescore { sum(&self.fixed) } else { row.fixed_sum };
        let base = fixed_sum.saturating_add(sum(&self.direct));
        let base = i32::try_from(base).unwrap_or_else(|_| {
            // Only with absurd weights.
            self.broken = true;
            0
        });
        if !rescore && self.layers.is_empty() {
            self.forest.update(row.leaf, i, base);
            return;
        }
        self.rows[i].fixed_sum = fixed_sum;
        let mut place = Place::new();
        if rescore {
            match meter {
                None => place.extend(self.scaled.iter().map(|s| s.scoring.state.score(cluster, node))),
                Some(meter) => place.extend(
                    self.scaled
                        .iter()
                        .map(|s| meter.score(s.scoring.plugin, || s.scoring.state.score(cluster, node))),
                ),
            }
        } else {
            let old = &self.classes[row.class as usize].place;
            place.extend_from_slice(&old[..self.scaled.len()]);
        }
        for layer in &self.layers {
            layer.counts.place(cluster, node, &mut place);
        }
        if before == FEASIBLE && self.classes[row.class as usize].place == place {
            self.forest.update(row.leaf, i, base);
            return;
        }
        self.leave_class(i);
        self.enter_class(i, place, base);
    }

    fn enter_class(&mut self, node: usize, place: Place, base: i32) {
        let id = match self.by_place.get(&place) {
            Some(id) => *id,
            None => {
                let new = Class {
                    place: place.clone(),
                    root: Root::default(),
                    nodes: 0,
                    status: Status::success(),
                    total: 0,
                };
                let id = match self.spare.pop() {
                    Some(id) => {
                        self.classes[id as usize] = new;
                        id
                    }
                    None => {
                        self.classes.push(new);
                        index32(self.classes.len() - 1)
                    }
                };
                self.by_place.insert(place, id);
                id
            }
        };
        let class = &mut self.classes[id as usize];
        class.nodes += 1;
        let row = &mut self.rows[node];
        row.leaf = self.forest.insert(&mut class.root, node, base);
        row.class = id;
        self.verdicts[node] = FEASIBLE;
    }

    /// Takes a node out of its class if it is in one.
    fn leave_class(&mut self, node: usize) {
        if self.verdicts[node] != FEASIBLE {
            return;
        }
        self.verdicts[node] = NO_NODE;
        let row = self.rows[node];
        let id = row.class;
        let class = &mut self.classes[id as usize];
        class.nodes -= 1;
        self.forest.remove(&mut class.root, row.leaf, node);
        if class.nodes == 0 {
            self.by_place.remove(&class.place);
            self.spare.push(id);
        }
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
        u16::try_from(at).unwrap_or(u16::MAX - 2) + 2
    }

    /// Asks the counters about every class. Says how many nodes are feasible.
    fn sift(&mut self) -> u32 {
        self.feasible.clear();
        let mut nodes = 0;
        for (id, class) in self.classes.iter_mut().enumerate().filter(|(_, c)| c.nodes > 0) {
            let mut from = self.scaled.len();
            class.status = Status::success();
            for layer in &self.layers {
                if layer.filters {
                    class.status = layer.counts.verdict(&class.place[from..from + layer.width]);
                    if !class.status.is_success() {
                        class.status.plugin = Some(layer.id);
                        break;
                    }
                }
                from += layer.width;
            }
            if class.status.is_success() {
                nodes += class.nodes;
                self.feasible.push(index32(id));
            }
        }
        nodes
    }

    /// Sets the totals of the feasible classes.
    fn weigh(&mut self) {
        let classes = &mut self.classes;
        for id in &self.feasible {
            let class = &mut classes[*id as usize];
            class.total = i64::from(self.forest.best(class.root).0);
        }
        if self.feasible.len() == 1 {
            // What classes add is the same for all nodes.
            return;
        }
        for (i, scaled) in self.scaled.iter().enumerate() {
            let max = self.feasible.iter().map(|c| classes[*c as usize].place[i]).max().unwrap_or(0).max(0);
            for id in &self.feasible {
                let class = &mut classes[*id as usize];
                class.total = class.total.saturating_add(scaled.score(class.place[i], max));
            }
        }
        let mut from = self.scaled.len();
        let mut scores = Vec::new();
        for layer in &self.layers {
            let to = from + layer.width;
            if let Some(weight) = layer.weight {
                scores.clear();
                let kept = &*classes;
                let at = |id: &u32| {
                    let class = &kept[*id as usize];
                    At { place: &class.place[from..to], nodes: class.nodes }
                };
                let feasible: SmallVec<[At<'_>; 8]> = self.feasible.iter().map(at).collect();
                layer.counts.scores(&feasible, &mut scores);
                drop(feasible);
                for (id, score) in self.feasible.iter().zip(&scores) {
                    let class = &mut classes[*id as usize];
                    class.total = class.total.saturating_add(score.saturating_mul(weight));
                }
            }
            from = to;
        }
    }

    fn with_total(&self, total: i64) -> impl Iterator<Item = Root> {
        let classes = self.feasible.iter().map(|id| &self.classes[*id as usize]);
        classes.filter(move |c| c.total == total).map(|c| c.root)
    }

    /// The best nodes.
    pub fn best(&mut self) -> Best {
        match self.sift() {
            0 => return Best::Nothing,
            1 => {
                let root = self.feasible.first().map(|id| self.classes[*id as usize].root);
                if let Some(node) = self.forest.nth_best(root.into_iter(), 0) {
                    return Best::Only(NodeId::new(node));
                }
            }
            _ => {}
        }
        self.weigh();
        let best = self.feasible.iter().map(|id| self.classes[*id as usize].total).max();
        let best = best.unwrap_or(i64::MIN);
        Best::Ties(self.with_total(best).map(|r| self.forest.best(r).1).sum(), best)
    }

    /// The `n`th node, in id order, of those with the best total.
    pub fn nth_best(&self, best: i64, n: u32) -> Option<NodeId> {
        self.forest.nth_best(self.with_total(best), n).map(NodeId::new)
    }
}
