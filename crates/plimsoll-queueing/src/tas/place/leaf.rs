//! What a single node, or a domain of the lowest level, can take.

use std::collections::BTreeMap;

use super::MANY;
use crate::ids::{Ids, ResourceId};
use crate::model::PodSet;
use crate::tas::host_ports::HostPorts;
use crate::tas::tree::{Leaf, LeafNode};
use crate::tas::{Amounts, amount_of};
use plimsoll_state::model::{Taint, TaintEffect, Toleration};

/// What is free in a leaf, read where it is kept: a search looks at every leaf.
pub(super) struct FreeIn<'a> {
    pub(super) leaf: &'a Leaf,
    /// What workloads hold there.
    pub(super) held: [Option<&'a Amounts>; 2],
    /// What those before in the same search take.
    pub(super) taken: Option<&'a Amounts>,
}

impl FreeIn<'_> {
    fn amount(&self, res: ResourceId) -> i64 {
        let used = self.held.into_iter().chain([self.taken]).flatten();
        let all = amount_of(&self.leaf.free_capacity, res);
        used.fold(all, |free, used| free.saturating_sub(amount_of(used, res)))
    }

    /// How often `one` fits, beside `beside` if given.
    pub(super) fn count(&self, one: &Amounts, beside: Option<&Amounts>) -> i64 {
        let counts = one.iter().map(|&(res, need)| {
            if need == 0 {
                return MANY;
            }
            let free = self.amount(res).saturating_sub(beside.map_or(0, |b| amount_of(b, res)));
            (free / need).clamp(0, MANY)
        });
        counts.min().unwrap_or(0)
    }

    /// The resource of which there is not enough for a single `one`, the first by name.
    pub(super) fn lacks(&self, one: &Amounts, ids: &Ids) -> Option<ResourceId> {
        let lacking = one.iter().filter(|&&(res, need)| need != 0 && self.amount(res) / need <= 0);
        lacking.map(|(res, _)| *res).min_by_key(|res| ids.resource_name(*res))
    }
}

/// How often `one` fits into a leaf beside what workloads hold there.
pub(in crate::tas) fn fits_beside(leaf: &Leaf, held: [Option<&Amounts>; 2], one: &Amounts) -> i64 {
    FreeIn { leaf, held, taken: None }.count(one, None)
}

/// Why kube-scheduler's filters exclude a node; Kueue gets no more out of its library.
const NO_FIT: &str = "schedulerLibraryNoFit";
/// The taint that stands for a cordon.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// Why nodes can't be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Excluded {
    pub(super) nodes: usize,
    reasons: BTreeMap<String, usize>,
}

impl Excluded {
    pub(super) fn count(&mut self, reason: String) {
        self.count_some(reason, 1);
    }

    pub(super) fn count_some(&mut self, reason: String, nodes: usize) {
        *self.reasons.entry(reason).or_insert(0) += nodes;
    }

    pub(super) fn text(&self) -> String {
        // Kueue's `hasExclusions` does not know that reason.
        if self.reasons.keys().all(|reason| reason == NO_FIT) {
            return String::new();
        }
        let mut list: Vec<String> = self.reasons.iter().map(|(r, n)| format!("{r}: {n}")).collect();
        list.sort_unstable();
        format!(". Total nodes: {}; excluded: {}", self.nodes, list.join(", "))
    }
}

/// Why a node can't take the podset's pods whatever is free, if it can't. `tolerations`: the flavor's. `ports`: those in use,
/// where kube-scheduler's filters decide (gate `SchedulerLibraryIntegration`): NodeUnschedulable, TaintToleration,
/// NodeAffinity and NodePorts.
pub(super) fn unsuitable(
    leaf: &Leaf,
    ps: &PodSet,
    tolerations: &[Toleration],
    ports: Option<&HostPorts>,
) -> Option<String> {
    let node = leaf.node.as_ref()?;
    let reason = broken_rule(node, ps, tolerations);
    let Some(ports) = ports else { return reason };
    let cordon = || Taint { key: CORDON.into(), value: String::new(), effect: TaintEffect::NoSchedule };
    let excluded = reason.is_some()
        || node.unschedulable && !tolerates(ps, tolerations, &cordon())
        || ports.conflict(&node.name, &ps.spec);
    excluded.then(|| NO_FIT.to_owned())
}

fn tolerates(ps: &PodSet, tolerations: &[Toleration], taint: &Taint) -> bool {
    ps.spec.tolerations.iter().chain(tolerations).any(|t| t.tolerates(taint))
}

/// Which of a podset's rules about nodes a node breaks.
fn broken_rule(node: &LeafNode, ps: &PodSet, tolerations: &[Toleration]) -> Option<String> {
    let keeps_away = |t: &&Taint| t.effect != TaintEffect::PreferNoSchedule && !tolerates(ps, tolerations, t);
    let untolerated = node.taints.iter().find(keeps_away);
    if let Some(t) = untolerated {
        return Some(format!("taint {:?}", taint_text(t)));
    }
    if !ps.spec.node_selector.iter().all(|(k, v)| node.labels.get(k) == Some(v)) {
        return Some("nodeSelector".into());
    }
    let required = ps.spec.affinity.node.as_ref().and_then(|n| n.required.as_ref());
    let mismatch = required.is_some_and(|r| !r.matches(&node.name, &node.labels));
    mismatch.then(|| "affinity".into())
}

/// How much a podset prefers a node: the weights of all terms that match (gate `TASRespectNodeAffinityPreferred`).
pub(super) fn preference(leaf: &Leaf, ps: &PodSet) -> i64 {
    let (Some(node), Some(affinity)) = (&leaf.node, &ps.spec.affinity.node) else { return 0 };
    let terms = affinity.preferred.iter();
    let given = terms.filter(|t| !t.term.expressions.is_empty() || !t.term.fields.is_empty());
    let met = given.filter(|t| t.term.matches(&node.name, &node.labels));
    met.map(|t| i64::from(t.weight)).sum()
}

/// A taint as Kubernetes prints it.
fn taint_text(t: &Taint) -> String {
    let effect = match t.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    if t.value.is_empty() { format!("{}:{effect}", t.key) } else { format!("{}={}:{effect}", t.key, t.value) }
}
