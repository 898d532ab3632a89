//! InterPodAffinity, score side: preferred terms of both sides (upstream
//! `plugins/interpodaffinity/scoring.go`).

use super::args::InterPodAffinityArgs;
use super::term_matches;
use crate::cluster::spec::Term;
use crate::cluster::{Cluster, NodeId, NodeInfo, Shape};
use crate::framework::{Incoming, ScoreState};
use plimsoll_state::cast::whole;
use plimsoll_state::intern::{Map, Sym};

/// Scores by topology key and value.
#[derive(Debug, Default)]
struct State(Map<Sym, Map<Sym, i64>>);

impl State {
    fn add(&mut self, node: &NodeInfo, key: Sym, by: i64) {
        if let Some(value) = node.labels.get(key) {
            let slot = self.0.entry(key).or_default().entry(value).or_default();
            *slot = slot.saturating_add(by);
        }
    }

    /// Terms of `owner` against pods of `other`, which may be on the node or the other way round.
    fn terms(
        &mut self,
        cluster: &Cluster,
        terms: &[Term],
        (owner, other): (&Shape, &Shape),
        node: &NodeInfo,
        weight: impl Fn(&Term) -> i64,
    ) {
        for t in terms {
            if term_matches(cluster, t, owner, other) {
                self.add(node, t.key, weight(t));
            }
        }
    }
}

/// Sums the weights of all pods on all nodes; `None`: nothing to score.
pub(super) fn pre_score(
    args: &InterPodAffinityArgs,
    cluster: &Cluster,
    pod: &Incoming,
) -> Option<Box<dyn ScoreState>> {
    let own = &pod.shape;
    let preferred = &own.spec.affinity.preferred;
    let anti = &own.spec.anti_affinity.preferred;
    let has_own = !preferred.is_empty() || !anti.is_empty();
    if !has_own && (args.ignore_preferred_terms_of_existing_pods || cluster.with_affinity == 0) {
        return None;
    }
    let mut state = State::default();
    for (_, node) in cluster.nodes.iter() {
        if !node.exists || (!has_own && node.with_affinity == 0) {
            continue;
        }
        for other in &node.pods {
            let other = cluster.shape(*other);
            let info = &node.info;
            state.terms(cluster, preferred, (own, other), info, |t| t.weight);
            state.terms(cluster, anti, (own, other), info, |t| -t.weight);
            let theirs = (&other.spec.affinity, &other.spec.anti_affinity);
            if args.hard_pod_affinity_weight > 0 {
                let hard = args.hard_pod_affinity_weight;
                state.terms(cluster, &theirs.0.required, (other, own), info, |_| hard);
            }
            state.terms(cluster, &theirs.0.preferred, (other, own), info, |t| t.weight);
            state.terms(cluster, &theirs.1.preferred, (other, own), info, |t| -t.weight);
        }
    }
    if state.0.is_empty() { None } else { Some(Box::new(state)) }
}

impl ScoreState for State {
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let labels = &cluster.nodes[node].info.labels;
        let values = self.0.iter().filter_map(|(key, values)| values.get(&labels.get(*key)?));
        values.fold(0, |sum, v| sum.saturating_add(*v))
    }

    fn normalize_score(&self, _cluster: &Cluster, _nodes: &[NodeId], scores: &mut [i64]) {
        normalize(scores);
    }
}

/// Stretches raw scores over 0..=100.
pub(super) fn normalize(scores: &mut [i64]) {
    let min = scores.iter().copied().min().unwrap_or(0);
    let max = scores.iter().copied().max().unwrap_or(0);
    let range = max.saturating_sub(min);
    for s in scores {
        // In floating point as upstream does it: the cut to an integer must fall the same way.
        *s = if range > 0 { whole(100.0 * ((*s - min) as f64 / range as f64)) } else { 0 };
    }
}
