//! PodTopologySpread, counted: matching pods by domain for one shape, kept up to date.

use super::{Domains, PodTopologySpread, REASON, REASON_LABEL, has_all_keys, includes};
use crate::cluster::spec::Spread;
use crate::cluster::{Cluster, Moved, NodeId, Shape};
use crate::framework::{
    At, Axis, Counts, Dump, Incoming, MISSING, Place, Relations, Status, Topology, Touched, coordinate,
    domain,
};
use plimsoll_state::cast::whole;
use plimsoll_state::intern::{Map, Sym};
use plimsoll_state::slab::Id;
use smallvec::SmallVec;
use std::sync::Arc;

/// Pods with more constraints are placed without counters.
const MAX_CONSTRAINTS: usize = 16;

#[derive(Debug)]
struct State {
    shape: Arc<Shape>,
    hostname: Sym,
    hard: Vec<Spread>,
    /// For hard constraints: pods by domain, and whether the constraint selects the shape itself.
    domains: Vec<(Domains, i64)>,
    soft: Vec<Spread>,
    /// For soft constraints: pods by domain, or by node for host names.
    counts: Vec<Soft>,
    /// Whether nodes must have all keys to be scored.
    all_keys: bool,
    /// Keys whose domains are coordinates, from the first on.
    coarse: Vec<Sym>,
    hard_axes: Vec<Axis>,
    soft_axes: Vec<Axis>,
    /// Indices of the constraints that select a shape, hard ones first.
    relations: Relations<SmallVec<[u8; 4]>>,
}

#[derive(Debug)]
enum Soft {
    Domain(Map<Sym, i64>),
    Node(Vec<i64>),
}

/// Empty counters for the shape of a pod.
pub(super) fn new(plugin: &PodTopologySpread, cluster: &Cluster, pod: &Incoming) -> Option<Box<dyn Counts>> {
    let (hard, _) = plugin.constraints(cluster, &pod.shape, pod.id, true);
    let (soft, all_keys) = plugin.constraints(cluster, &pod.shape, pod.id, false);
    if hard.len() + soft.len() > MAX_CONSTRAINTS {
        return None;
    }
    let own =
        |c: &Spread| c.selector.as_ref().is_some_and(|s| s.matches(&pod.shape.labels, &cluster.strings));
    let rows = cluster.nodes.bound();
    let counter = |c: &Spread| match c.key == plugin.hostname {
        true => Soft::Node(vec![0; rows]),
        false => Soft::Domain(Map::default()),
    };
    Some(Box::new(State {
        shape: Arc::clone(&pod.shape),
        hostname: plugin.hostname,
        domains: hard.iter().map(|c| (Domains::default(), i64::from(own(c)))).collect(),
        counts: soft.iter().map(counter).collect(),
        hard,
        soft,
        all_keys,
        coarse: Vec::new(),
        hard_axes: Vec::new(),
        soft_axes: Vec::new(),
        relations: Relations::default(),
    }))
}

impl State {
    fn relation(&self, cluster: &Cluster, other: &Shape) -> SmallVec<[u8; 4]> {
        if other.namespace != self.shape.namespace {
            return SmallVec::new();
        }
        let selects = |c: &Spread| {
            let selector = c.selector.as_ref().filter(|s| !s.is_empty());
            selector.is_some_and(|s| s.matches(&other.labels, &cluster.strings))
        };
        let all = (0u8..).zip(self.hard.iter().chain(&self.soft));
        all.filter(|(_, c)| selects(c)).map(|(i, _)| i).collect()
    }

    fn count(&mut self, cluster: &Cluster, relation: &[u8], by: i64, node: NodeId, touched: &mut Touched) {
        let row = &cluster.nodes[node];
        let labels = &row.info.labels;
        let hard_keys = has_all_keys(&row.info, &self.hard);
        let soft_keys = !self.all_keys || has_all_keys(&row.info, &self.soft);
        for i in relation {
            let i = usize::from(*i);
            if let Some(c) = self.hard.get(i) {
                if hard_keys
                    && let Some(value) = labels.get(c.key)
                    && includes(cluster, c, &self.shape.spec, row)
                {
                    self.domains[i].0.add(value, by);
                    if let Some(Axis::Fine(_)) = self.hard_axes.get(i)
                        && !touched.contains(&(c.key, value))
                    {
                        touched.push((c.key, value));
                    }
                }
                continue;
            }
            let c = &self.soft[i - self.hard.len()];
            match &mut self.counts[i - self.hard.len()] {
                Soft::Node(counts) => {
                    if let Some(n) = counts.get_mut(node.index()) {
                        *n += by;
                    }
                }
                Soft::Domain(counts) => {
                    if soft_keys && includes(cluster, c, &self.shape.spec, row) {
                        *counts.entry(labels.get(c.key).unwrap_or(Sym::EMPTY)).or_default() += by;
                    }
                }
            }
        }
    }

    fn coarse_axis(&mut self, key: Sym) -> Axis {
        let at = self.coarse.iter().position(|k| *k == key);
        Axis::Coarse(at.unwrap_or_else(|| {
            self.coarse.push(key);
            self.coarse.len() - 1
        }))
    }

    /// Whether nodes at the place are not scored.
    fn ignores(&self, place: &[i64]) -> bool {
        self.all_keys
            && self.soft_axes.iter().any(|axis| match axis {
                Axis::Coarse(i) | Axis::Fine(i) => place.get(*i).is_none_or(|c| *c == MISSING),
            })
    }

    /// How many domains a soft constraint has among feasible nodes.
    fn size(&self, i: usize, feasible: &[At<'_>]) -> usize {
        let counted = || feasible.iter().filter(|at| !self.ignores(at.place));
        match self.soft_axes[i] {
            Axis::Fine(_) => counted().map(|at| at.nodes as usize).sum(),
            Axis::Coarse(axis) => {
                // A missing label is a domain of its own when keys may be missing, that of the empty value.
                let missing = coordinate(Some(Sym::EMPTY));
                let value = |c: i64| if c == MISSING { missing } else { c };
                let mut values: SmallVec<[i64; 16]> = counted().map(|at| value(at.place[axis])).collect();
                values.sort_unstable();
                values.dedup();
                values.len()
            }
        }
    }

    fn raw_score(&self, place: &[i64], weights: &[f64]) -> i64 {
        let mut sum = 0.0;
        for (((c, counts), axis), weight) in
            self.soft.iter().zip(&self.counts).zip(&self.soft_axes).zip(weights)
        {
            let n = match (axis, counts) {
                (Axis::Fine(i), _) if place[*i] == MISSING => continue,
                (Axis::Fine(i), _) => place[*i],
                (Axis::Coarse(i), Soft::Domain(counts)) => {
                    let Some(value) = domain(place[*i]) else { continue };
                    counts.get(&value).copied().unwrap_or(0)
                }
                (Axis::Coarse(_), Soft::Node(_)) => continue,
            };
            sum += n as f64 * weight + (c.max_skew - 1) as f64;
        }
        whole(f64::round(sum))
    }
}

impl Counts for State {
    fn node(&mut self, cluster: &Cluster, node: NodeId) {
        let row = &cluster.nodes[node];
        if !has_all_keys(&row.info, &self.hard) {
            return;
        }
        for (c, (domains, _)) in self.hard.iter().zip(&mut self.domains) {
            if let Some(value) = row.info.labels.get(c.key)
                && includes(cluster, c, &self.shape.spec, row)
            {
                domains.add(value, 0);
            }
        }
    }

    fn pod(&mut self, cluster: &Cluster, moved: &Moved, node: NodeId, touched: &mut Touched) -> bool {
        if moved.deleting {
            return true;
        }
        let mut relations = std::mem::take(&mut self.relations);
        let relation = relations.get(&moved.shape, || self.relation(cluster, &moved.shape));
        if !relation.is_empty() {
            self.count(cluster, relation, moved.by, node, touched);
        }
        self.relations = relations;
        true
    }

    fn settle(&mut self, cluster: &Cluster, topology: &mut Topology) {
        let hard: Vec<(Sym, bool)> =
            self.hard.iter().map(|c| (c.key, topology.is_fine(cluster, c.key))).collect();
        // The number of domains of a soft constraint counts, so its domains are told apart.
        let soft: Vec<(Sym, bool)> = self.soft.iter().map(|c| (c.key, c.key == self.hostname)).collect();
        for (key, _) in hard.iter().chain(&soft).filter(|(_, fine)| !fine) {
            self.coarse_axis(*key);
        }
        let mut next = self.coarse.len();
        let mut axis = |(key, fine): (Sym, bool), state: &mut Self| {
            if fine {
                next += 1;
                Axis::Fine(next - 1)
            } else {
                state.coarse_axis(key)
            }
        };
        self.hard_axes = hard.into_iter().map(|k| axis(k, self)).collect();
        self.soft_axes = soft.into_iter().map(|k| axis(k, self)).collect();
    }

    fn heeds_taints(&self) -> bool {
        self.hard.iter().chain(&self.soft).any(|c| c.honor_taints)
    }

    fn place(&self, cluster: &Cluster, node: NodeId, out: &mut Place) {
        let labels = &cluster.nodes[node].info.labels;
        out.extend(self.coarse.iter().map(|key| coordinate(labels.get(*key))));
        for ((c, (domains, _)), axis) in self.hard.iter().zip(&self.domains).zip(&self.hard_axes) {
            if let Axis::Fine(_) = axis {
                let count = |v| domains.counts.get(&v).copied().unwrap_or(0);
                out.push(labels.get(c.key).map_or(MISSING, count));
            }
        }
        for (c, counts) in self.soft.iter().zip(&self.counts) {
            if let Soft::Node(counts) = counts {
                let count = |_| counts.get(node.index()).copied().unwrap_or(0);
                out.push(labels.get(c.key).map_or(MISSING, count));
            }
        }
    }

    fn verdict(&self, place: &[i64]) -> Status {
        for ((c, (domains, own)), axis) in self.hard.iter().zip(&self.domains).zip(&self.hard_axes) {
            let there = match axis {
                Axis::Fine(i) => Some(place[*i]).filter(|n| *n != MISSING),
                Axis::Coarse(i) => domain(place[*i]).map(|v| domains.counts.get(&v).copied().unwrap_or(0)),
            };
            let Some(there) = there else {
                return Status::unresolvable(REASON_LABEL);
            };
            if there + own - domains.min(c.min_domains) > c.max_skew {
                return Status::unschedulable(REASON);
            }
        }
        Status::success()
    }

    fn scores(&self, feasible: &[At<'_>], out: &mut Vec<i64>) {
        if self.soft.is_empty() {
            out.extend(feasible.iter().map(|_| 0));
            return;
        }
        let weight = |i: usize| ((self.size(i, feasible) + 2) as f64).ln();
        let weights: SmallVec<[f64; 4]> = (0..self.soft.len()).map(weight).collect();
        let raw = |at: &At<'_>| (!self.ignores(at.place)).then(|| self.raw_score(at.place, &weights));
        let raws: SmallVec<[Option<i64>; 8]> = feasible.iter().map(raw).collect();
        super::score::normalize(&raws, out);
    }

    fn dump(&self) -> Dump {
        let mut out = Vec::new();
        for ((i, c), (domains, _)) in (0..).zip(&self.hard).zip(&self.domains) {
            out.extend(domains.counts.iter().map(|(value, n)| (i, c.key, *value, *n)));
        }
        for ((i, c), counts) in (100..).zip(&self.soft).zip(&self.counts) {
            match counts {
                Soft::Domain(counts) => {
                    let counted = counts.iter().filter(|(_, n)| **n != 0);
                    out.extend(counted.map(|(value, n)| (i, c.key, *value, *n)));
                }
                Soft::Node(counts) => {
                    out.extend((0..).zip(counts).map(|(node, n)| (i, c.key, Sym::from_number(node), *n)));
                }
            }
        }
        out.sort_unstable();
        out
    }
}
