//! InterPodAffinity, counted: pods that matter to one shape by topology domain, kept up to date.

use super::args::InterPodAffinityArgs;
use super::score::normalize;
use super::{DomainCounts, REASON_AFFINITY, REASON_ANTI, REASON_EXISTING, all_match, term_matches};
use crate::cluster::{Cluster, Moved, NodeId, Shape};
use crate::framework::{
    At, Axis, Counts, Dump, Incoming, MISSING, Place, Relations, Status, Topology, Touched, coordinate,
    domain,
};
use plimsoll_state::intern::Sym;
use smallvec::SmallVec;
use std::sync::Arc;

/// Pods with more terms are placed without counters.
const MAX_TERMS: usize = 64;

/// Bits of the first coordinate of a fine key: something is counted.
const AFFINITY: i64 = 1;
const ANTI: i64 = 2;
const EXISTING: i64 = 4;

type Keys = SmallVec<[Sym; 2]>;

/// What pods of another shape mean for the shape.
#[derive(Clone, Debug, Default)]
struct Relation {
    /// Topology keys of their required anti-affinity terms that select the shape.
    existing: Keys,
    /// Whether all required affinity terms of the shape select them.
    affinity: bool,
    /// Topology keys of the shape's required anti-affinity terms that select them.
    anti: Keys,
    /// What they add to scores, by topology key.
    score: SmallVec<[(Sym, i64); 2]>,
}

impl Relation {
    fn is_nothing(&self) -> bool {
        self.existing.is_empty() && !self.affinity && self.anti.is_empty() && self.score.is_empty()
    }
}

#[derive(Debug)]
struct State {
    shape: Arc<Shape>,
    hard_weight: i64,
    /// Whether preferences count at all.
    scores: bool,
    /// Whether pods of the shape would satisfy their own affinity.
    selects_itself: bool,
    existing: DomainCounts,
    affinity: DomainCounts,
    anti: DomainCounts,
    score: DomainCounts,
    axes: Vec<(Sym, Axis)>,
    settled: bool,
    relations: Relations<Relation>,
}

/// Empty counters for the shape of a pod.
pub(super) fn new(args: &InterPodAffinityArgs, cluster: &Cluster, pod: &Incoming) -> Option<Box<dyn Counts>> {
    let shape = Arc::clone(&pod.shape);
    let (own, anti) = (&shape.spec.affinity, &shape.spec.anti_affinity);
    let lists = [&own.required, &own.preferred, &anti.required, &anti.preferred];
    if lists.iter().map(|l| l.len()).sum::<usize>() > MAX_TERMS {
        return None;
    }
    let has_preferences = !own.preferred.is_empty() || !anti.preferred.is_empty();
    Some(Box::new(State {
        hard_weight: args.hard_pod_affinity_weight,
        scores: has_preferences || !args.ignore_preferred_terms_of_existing_pods,
        selects_itself: all_match(cluster, &own.required, &shape, &shape),
        existing: DomainCounts::default(),
        affinity: DomainCounts::default(),
        anti: DomainCounts::default(),
        score: DomainCounts::default(),
        axes: Vec::new(),
        settled: false,
        relations: Relations::default(),
        shape,
    }))
}

impl State {
    fn relation(&self, cluster: &Cluster, other: &Arc<Shape>) -> Relation {
        let (shape, spec) = (&self.shape, &self.shape.spec);
        let theirs = |t: &_| term_matches(cluster, t, other, shape);
        let ours = |t: &_| term_matches(cluster, t, shape, other);
        let mut score = SmallVec::new();
        if self.scores {
            score.extend(spec.affinity.preferred.iter().filter(|t| ours(t)).map(|t| (t.key, t.weight)));
            score.extend(spec.anti_affinity.preferred.iter().filter(|t| ours(t)).map(|t| (t.key, -t.weight)));
            let (affinity, anti) = (&other.spec.affinity, &other.spec.anti_affinity);
            if self.hard_weight > 0 {
                let hard = affinity.required.iter().filter(|t| theirs(t));
                score.extend(hard.map(|t| (t.key, self.hard_weight)));
            }
            score.extend(affinity.preferred.iter().filter(|t| theirs(t)).map(|t| (t.key, t.weight)));
            score.extend(anti.preferred.iter().filter(|t| theirs(t)).map(|t| (t.key, -t.weight)));
        }
        Relation {
            existing: other.spec.anti_affinity.required.iter().filter(|t| theirs(t)).map(|t| t.key).collect(),
            affinity: all_match(cluster, &spec.affinity.required, shape, other),
            anti: spec.anti_affinity.required.iter().filter(|t| ours(t)).map(|t| t.key).collect(),
            score,
        }
    }

    fn axis(&self, key: Sym) -> Option<Axis> {
        self.axes.iter().find(|(k, _)| *k == key).map(|(_, axis)| *axis)
    }

    fn flags(&self, key: Sym, value: Sym) -> i64 {
        let flag = |counts: &DomainCounts, bit| if counts.get(key, value) > 0 { bit } else { 0 };
        flag(&self.affinity, AFFINITY) | flag(&self.anti, ANTI) | flag(&self.existing, EXISTING)
    }

    /// What is counted for a key at a place; `None`: nodes there lack the label.
    fn at(&self, key: Sym, place: &[i64]) -> Option<i64> {
        match self.axis(key)? {
            Axis::Coarse(i) => domain(*place.get(i)?).map(|value| self.flags(key, value)),
            Axis::Fine(i) => place.get(i).copied().filter(|f| *f != MISSING),
        }
    }

    fn raw_score(&self, place: &[i64]) -> i64 {
        self.axes.iter().fold(0i64, |sum, (key, axis)| {
            let one = match axis {
                Axis::Coarse(i) => {
                    place.get(*i).and_then(|c| domain(*c)).map_or(0, |value| self.score.get(*key, value))
                }
                Axis::Fine(i) => place.get(*i + 1).copied().unwrap_or(0),
            };
            sum.saturating_add(one)
        })
    }
}

impl Counts for State {
    fn node(&mut self, _cluster: &Cluster, _node: NodeId) {}

    fn pod(&mut self, cluster: &Cluster, moved: &Moved, node: NodeId, touched: &mut Touched) -> bool {
        let mut relations = std::mem::take(&mut self.relations);
        let relation = relations.get(&moved.shape, || self.relation(cluster, &moved.shape));
        let known = relation.is_nothing() || self.count(cluster, relation, moved.by, node, touched);
        self.relations = relations;
        known
    }

    fn settle(&mut self, cluster: &Cluster, topology: &mut Topology) {
        let spec = &self.shape.spec;
        let lists = [&spec.affinity, &spec.anti_affinity];
        let own = lists.iter().flat_map(|l| l.required.iter().chain(&l.preferred)).map(|t| t.key);
        let counted = self.existing.iter().chain(self.score.iter()).map(|(key, ..)| key);
        let mut keys: Vec<Sym> = own.chain(counted).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut at = 0;
        for key in keys {
            let fine = topology.is_fine(cluster, key);
            self.axes.push((key, if fine { Axis::Fine(at) } else { Axis::Coarse(at) }));
            at += if fine { 2 } else { 1 };
        }
        self.settled = true;
    }

    fn heeds_taints(&self) -> bool {
        false
    }

    fn place(&self, cluster: &Cluster, node: NodeId, out: &mut Place) {
        let labels = &cluster.nodes[node].info.labels;
        for (key, axis) in &self.axes {
            let value = labels.get(*key);
            match (axis, value) {
                (Axis::Coarse(_), value) => out.push(coordinate(value)),
                (Axis::Fine(_), None) => out.extend([MISSING, 0]),
                (Axis::Fine(_), Some(value)) => {
                    out.extend([self.flags(*key, value), self.score.get(*key, value)]);
                }
            }
        }
    }

    fn verdict(&self, place: &[i64]) -> Status {
        let spec = &self.shape.spec;
        let mut exist = true;
        for term in &spec.affinity.required {
            match self.at(term.key, place) {
                None => return Status::unresolvable(REASON_AFFINITY),
                Some(flags) => exist &= flags & AFFINITY != 0,
            }
        }
        // The first pod of a group that wants to be together must be able to start somewhere.
        exist |= self.affinity.is_empty() && self.selects_itself;
        if !exist {
            return Status::unresolvable(REASON_AFFINITY);
        }
        let any = |key: Sym, bit: i64| self.at(key, place).is_some_and(|flags| flags & bit != 0);
        if spec.anti_affinity.required.iter().any(|t| any(t.key, ANTI)) {
            return Status::unschedulable(REASON_ANTI);
        }
        if !self.existing.is_empty() && self.axes.iter().any(|(key, _)| any(*key, EXISTING)) {
            return Status::unschedulable(REASON_EXISTING);
        }
        Status::success()
    }

    fn scores(&self, feasible: &[At<'_>], out: &mut Vec<i64>) {
        out.extend(feasible.iter().map(|at| self.raw_score(at.place)));
        normalize(out);
    }

    fn dump(&self) -> Dump {
        let lists = [&self.existing, &self.affinity, &self.anti, &self.score];
        let all = lists.iter().zip(0..).flat_map(|(l, i)| l.iter().map(move |(k, v, n)| (i, k, v, n)));
        let mut out: Vec<_> = all.collect();
        out.sort_unstable();
        out
    }
}

impl State {
    /// Counts pods of a relation; false when a topology key is new.
    fn count(
        &mut self,
        cluster: &Cluster,
        relation: &Relation,
        by: i64,
        node: NodeId,
        touched: &mut Touched,
    ) -> bool {
        let info = &cluster.nodes[node].info;
        let own = self.shape.spec.affinity.required.iter().filter(|_| relation.affinity).map(|t| t.key);
        let keys: Keys = own.collect();
        let lists = [
            (&mut self.existing, &relation.existing),
            (&mut self.affinity, &keys),
            (&mut self.anti, &relation.anti),
        ];
        for (counts, keys) in lists {
            for key in keys {
                counts.add(info, *key, by);
            }
        }
        for (key, weight) in &relation.score {
            self.score.add(info, *key, weight.saturating_mul(by));
        }
        if !self.settled {
            return true;
        }
        let all = relation.existing.iter().chain(&keys).chain(&relation.anti);
        for key in all.chain(relation.score.iter().map(|(key, _)| key)) {
            match self.axis(*key) {
                None => return false,
                Some(Axis::Coarse(_)) => {}
                Some(Axis::Fine(_)) => {
                    if let Some(value) = info.labels.get(*key)
                        && !touched.contains(&(*key, value))
                    {
                        touched.push((*key, value));
                    }
                }
            }
        }
        true
    }
}
