//! PodTopologySpread, score side: soft constraints (upstream `plugins/podtopologyspread/scoring.go`).

use super::{PodTopologySpread, count_on, has_all_keys, includes};
use crate::cluster::spec::Spread;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{Incoming, ScoreState};
use fixedbitset::FixedBitSet;
use plimsoll_state::cast::whole;
use plimsoll_state::intern::{Map, Sym};
use plimsoll_state::slab::Id;

#[derive(Debug)]
struct State {
    namespace: Sym,
    hostname: Sym,
    constraints: Vec<Spread>,
    /// Matching pods by domain among candidate nodes; empty for hostnames.
    counts: Vec<Map<Sym, i64>>,
    weights: Vec<f64>,
    ignored: FixedBitSet,
}

/// Counts matching pods by domain; `None`: no soft constraint.
pub(super) fn pre_score(
    plugin: &PodTopologySpread,
    cluster: &Cluster,
    pod: &Incoming,
    feasible: &[NodeId],
) -> Option<Box<dyn ScoreState>> {
    let (constraints, all_keys) = plugin.constraints(cluster, &pod.shape, pod.id, false);
    if constraints.is_empty() {
        return None;
    }
    let mut ignored = FixedBitSet::with_capacity(cluster.nodes.bound());
    let mut counts = vec![Map::default(); constraints.len()];
    for id in feasible {
        let info = &cluster.nodes[*id].info;
        if all_keys && !has_all_keys(info, &constraints) {
            ignored.insert(id.index());
            continue;
        }
        for (c, domains) in constraints.iter().zip(&mut counts) {
            if c.key != plugin.hostname {
                // A missing label is a domain of its own when keys may be missing.
                domains.insert(info.labels.get(c.key).unwrap_or(Sym::EMPTY), 0i64);
            }
        }
    }
    let hosts = feasible.len() - ignored.count_ones(..);
    let size =
        |c: &Spread, domains: &Map<Sym, i64>| if c.key == plugin.hostname { hosts } else { domains.len() };
    let weights = constraints.iter().zip(&counts).map(|(c, d)| ((size(c, d) + 2) as f64).ln()).collect();
    for (_, node) in cluster.nodes.iter().filter(|(_, n)| n.exists) {
        if all_keys && !has_all_keys(&node.info, &constraints) {
            continue;
        }
        for (c, domains) in constraints.iter().zip(&mut counts) {
            let value = node.info.labels.get(c.key).unwrap_or(Sym::EMPTY);
            let Some(n) = domains.get_mut(&value) else { continue };
            if includes(cluster, c, &pod.shape.spec, node) {
                *n += count_on(cluster, c, pod.shape.namespace, node);
            }
        }
    }
    Some(Box::new(State {
        namespace: pod.shape.namespace,
        hostname: plugin.hostname,
        constraints,
        counts,
        weights,
        ignored,
    }))
}

impl ScoreState for State {
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        if self.ignored.contains(node.index()) {
            return 0;
        }
        let row = &cluster.nodes[node];
        let mut sum = 0.0;
        for ((c, counts), weight) in self.constraints.iter().zip(&self.counts).zip(&self.weights) {
            let Some(value) = row.info.labels.get(c.key) else { continue };
            let n = if c.key == self.hostname {
                count_on(cluster, c, self.namespace, row)
            } else {
                counts.get(&value).copied().unwrap_or(0)
            };
            sum += n as f64 * weight + (c.max_skew - 1) as f64;
        }
        whole(f64::round(sum))
    }

    fn normalize_score(&self, _cluster: &Cluster, nodes: &[NodeId], scores: &mut [i64]) {
        let counted = |(n, s): (&NodeId, &i64)| (!self.ignored.contains(n.index())).then_some(*s);
        let raws: Vec<Option<i64>> = nodes.iter().zip(scores.iter()).map(counted).collect();
        let mut out = Vec::with_capacity(raws.len());
        normalize(&raws, &mut out);
        scores.copy_from_slice(&out);
    }
}

/// Turns counts into scores, few pods being good; `None`: the node is not scored.
pub(super) fn normalize(raws: &[Option<i64>], out: &mut Vec<i64>) {
    let min = raws.iter().flatten().copied().min().unwrap_or(0);
    let max = raws.iter().flatten().copied().max().unwrap_or(0);
    out.extend(raws.iter().map(|raw| match (raw, max) {
        (None, _) => 0,
        (Some(_), 0) => 100,
        (Some(raw), _) => 100 * (max + min - raw) / max,
    }));
}
