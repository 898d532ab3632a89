//! PodTopologySpread, filter side: hard constraints (upstream `plugins/podtopologyspread/filtering.go`).

mod args;
mod counts;
mod score;

use self::args::SpreadArgs;
use super::taint_toleration::is_kept_away;
use crate::cluster::objects::OwnerSelector;
use crate::cluster::spec::{Spec, Spread};
use crate::cluster::{Cluster, Labels, Node, NodeId, NodeInfo, OwnerKind, PodId, Shape};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload, PodSnapshot};
use crate::framework::{
    Counts, CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration,
    ScoreState, Status,
};
use plimsoll_state::cast::signed;
use plimsoll_state::intern::{Interner, Map, Sym};
use plimsoll_state::model::{SpreadConstraint, UnsatisfiableAction};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const REASON: &str = "node(s) didn't match pod topology spread constraints";
pub(super) const REASON_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

/// The plugin with its default constraints.
#[derive(Debug)]
pub(crate) struct PodTopologySpread {
    defaults: Vec<Spread>,
    system: bool,
    pub(super) hostname: Sym,
}

fn system_default(key: &str, max_skew: i32) -> SpreadConstraint {
    SpreadConstraint {
        max_skew,
        topology_key: key.to_owned(),
        when_unsatisfiable: UnsatisfiableAction::ScheduleAnyway,
        selector: None,
        min_domains: None,
        honor_node_affinity: true,
        honor_node_taints: false,
        match_label_keys: Vec::new(),
    }
}

impl PodTopologySpread {
    pub(crate) fn new(args: &SpreadArgs, strings: &mut Interner) -> Self {
        let system =
            [system_default("kubernetes.io/hostname", 3), system_default("topology.kubernetes.io/zone", 5)];
        let list = args.default_constraints.as_deref().unwrap_or(&system);
        Self {
            defaults: list.iter().map(|c| Spread::new(c, strings)).collect(),
            system: args.default_constraints.is_none(),
            hostname: strings.intern("kubernetes.io/hostname"),
        }
    }

    /// The hard or soft constraints of a pod: its own, else the defaults for what selects it. Says also
    /// whether nodes must have all topology keys to be scored.
    pub(super) fn constraints(
        &self,
        cluster: &Cluster,
        shape: &Shape,
        pod: PodId,
        hard: bool,
    ) -> (Vec<Spread>, bool) {
        let own = &shape.spec.spread;
        if !own.is_empty() {
            let list = own.iter().filter(|c| c.hard == hard).map(|c| with_label_keys(c, &shape.labels));
            return (list.collect(), true);
        }
        let list = || self.defaults.iter().filter(|c| c.hard == hard);
        let selector = list().next().and_then(|_| default_selector(cluster, shape, pod));
        let Some(selector) = selector else { return (Vec::new(), !self.system) };
        let list = list().map(|c| Spread { selector: Some(selector.clone()), ..c.clone() });
        (list.collect(), !self.system)
    }

    /// Whether a pod has constraints, hard or soft ones.
    fn has_constraints(&self, cluster: &Cluster, shape: &Shape, pod: PodId) -> bool {
        !shape.spec.spread.is_empty()
            || (!self.defaults.is_empty() && default_selector(cluster, shape, pod).is_some())
    }
}

/// The selector with the pod's values of the label keys; the API server has usually merged them already.
fn with_label_keys(c: &Spread, labels: &Labels) -> Spread {
    let mut c = c.clone();
    let pairs = c.label_keys.iter().filter_map(|k| Some((*k, labels.get(*k)?)));
    if !c.label_keys.is_empty() {
        c.selector = c.selector.map(|s| s.with_pairs(pairs));
    }
    c
}

/// What the Services and the owner of a pod select; `None`: nothing selects it (helper `DefaultSelector`).
fn default_selector(
    cluster: &Cluster,
    shape: &Shape,
    pod: PodId,
) -> Option<crate::cluster::labels::Selector> {
    let objects = &cluster.objects;
    let owner = cluster.pods[pod].owner;
    let found = owner.and_then(|(kind, name)| objects.owners.get(&(shape.namespace, kind, name)));
    let mut services = objects.services_of(shape.namespace, &shape.labels).peekable();
    if found.is_none() && services.peek().is_none() {
        return None;
    }
    let mut pairs: BTreeMap<Sym, Sym> = BTreeMap::new();
    for service in services {
        pairs.extend(service.iter().copied());
    }
    let mut base = crate::cluster::labels::Selector::default();
    if let Some(OwnerSelector::Selector(selector)) = found {
        base = selector.clone();
        // Upstream merges its pairs into those of the Services; other owners' conditions come on top.
        if owner.is_some_and(|(kind, _)| kind == OwnerKind::ReplicationController) {
            pairs.retain(|key, _| !base.names(*key));
        }
    }
    let selector = base.with_pairs(pairs.into_iter());
    (!selector.is_empty()).then_some(selector)
}

/// Whether a node has every topology key.
pub(super) fn has_all_keys(node: &NodeInfo, constraints: &[Spread]) -> bool {
    constraints.iter().all(|c| node.labels.get(c.key).is_some())
}

/// Whether the constraint counts a node for a pod (node affinity and taints policies).
pub(super) fn includes(cluster: &Cluster, c: &Spread, spec: &Spec, node: &Node) -> bool {
    (!c.honor_affinity || spec.selects_node(node.name, &node.info.labels, &cluster.strings))
        && (!c.honor_taints || !is_kept_away(spec, &node.info))
}

/// Pods of the namespace on the node that the constraint selects and that are not being deleted.
pub(super) fn count_on(cluster: &Cluster, c: &Spread, namespace: Sym, node: &Node) -> i64 {
    let Some(selector) = c.selector.as_ref().filter(|s| !s.is_empty()) else { return 0 };
    let counted = |p: &&PodId| {
        let shape = cluster.shape(**p);
        !cluster.pods[**p].deleting
            && shape.namespace == namespace
            && selector.matches(&shape.labels, &cluster.strings)
    };
    i64::try_from(node.pods.iter().filter(counted).count()).unwrap_or(i64::MAX)
}

/// Matching pods by domain, with the number of domains for each count.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains {
    pub counts: Map<Sym, i64>,
    histogram: BTreeMap<i64, usize>,
}

impl Domains {
    pub fn add(&mut self, value: Sym, by: i64) {
        let old = self.counts.get(&value).copied();
        if let Some(old) = old
            && let Some(n) = self.histogram.get_mut(&old)
        {
            *n -= 1;
            if *n == 0 {
                self.histogram.remove(&old);
            }
        }
        let new = old.unwrap_or(0).saturating_add(by);
        self.counts.insert(value, new);
        *self.histogram.entry(new).or_default() += 1;
    }

    /// The least count; 0 when there are fewer than `min_domains` domains.
    pub fn min(&self, min_domains: i64) -> i64 {
        if signed(self.counts.len()) < min_domains {
            return 0;
        }
        // Without any domain nothing can be skewed.
        self.histogram.keys().next().copied().unwrap_or(i64::from(i32::MAX))
    }
}

#[derive(Debug)]
struct State {
    shape: Arc<Shape>,
    constraints: Vec<Spread>,
    domains: Vec<Domains>,
}

impl State {
    fn update(&mut self, cluster: &Cluster, other: PodId, node: NodeId, by: i64) {
        let other = cluster.shape(other);
        let row = &cluster.nodes[node];
        if other.namespace != self.shape.namespace || !has_all_keys(&row.info, &self.constraints) {
            return;
        }
        for (c, domains) in self.constraints.iter().zip(&mut self.domains) {
            let selected = c.selector.as_ref().is_some_and(|s| s.matches(&other.labels, &cluster.strings));
            if selected
                && includes(cluster, c, &self.shape.spec, row)
                && let Some(value) = row.info.labels.get(c.key)
            {
                domains.add(value, by);
            }
        }
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        "PodTopologySpread",
        &[ExtensionPoint::PreFilter, ExtensionPoint::Filter, ExtensionPoint::PreScore, ExtensionPoint::Score],
        |args: &SpreadArgs, handle| Box::new(PodTopologySpread::new(args, handle.strings())),
    )
    .by_default(2)
}

impl Plugin for PodTopologySpread {
    fn is_local(&self, cluster: &Cluster, pod: &Incoming) -> bool {
        !self.has_constraints(cluster, &pod.shape, pod.id)
    }

    fn is_counted(&self) -> bool {
        true
    }

    fn counts(&self, cluster: &Cluster, pod: &Incoming) -> Option<Box<dyn Counts>> {
        counts::new(self, cluster, pod)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let (constraints, _) = self.constraints(cluster, &pod.shape, pod.id, true);
        if constraints.is_empty() {
            return PreFilterResult::Skip;
        }
        let mut domains = vec![Domains::default(); constraints.len()];
        let shape = Arc::clone(&pod.shape);
        for (_, node) in cluster.nodes.iter().filter(|(_, n)| n.exists) {
            if !has_all_keys(&node.info, &constraints) {
                continue;
            }
            for (c, d) in constraints.iter().zip(&mut domains) {
                if let Some(value) = node.info.labels.get(c.key)
                    && includes(cluster, c, &shape.spec, node)
                {
                    d.add(value, count_on(cluster, c, shape.namespace, node));
                }
            }
        }
        PreFilterResult::go(State { shape, constraints, domains })
    }

    fn pre_score(
        &self,
        cluster: &Cluster,
        pod: &Incoming,
        feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        score::pre_score(self, cluster, pod, feasible)
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(
                    EventResource::Pod,
                    ActionType::ADD
                        .or(ActionType::POD_LABEL)
                        .or(ActionType::DELETE)
                        .or(ActionType::POD_TOLERATION),
                ),
                ClusterEventWithHint::hinted(
                    EventResource::Node,
                    ActionType::ADD
                        .or(ActionType::DELETE)
                        .or(ActionType::NODE_LABEL)
                        .or(ActionType::NODE_TAINT),
                ),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let shape = cluster.shape(pod);
        let (constraints, _) = self.constraints(cluster, shape, pod, true);
        match &change.payload {
            Payload::Pod { id, old, new } => {
                let own = *id == pod;
                if own
                    && let (Some(old), Some(new)) = (old, new)
                    && old.shape.spec.tolerations != new.shape.spec.tolerations
                    && constraints.iter().any(|c| c.honor_taints)
                {
                    return true;
                }
                pod_hint(cluster, shape, &constraints, own, (old.as_deref(), new.as_deref()))
            }
            Payload::Node { old, new, .. } => node_hint(&constraints, old.as_deref(), new.as_deref()),
            Payload::Object(_) => false,
        }
    }
}

fn pod_hint(
    cluster: &Cluster,
    shape: &Shape,
    constraints: &[Spread],
    own: bool,
    change: (Option<&PodSnapshot>, Option<&PodSnapshot>),
) -> bool {
    let selects = |c: &Spread, v: &PodSnapshot| {
        c.selector.as_ref().is_some_and(|s| s.matches(&v.shape.labels, &cluster.strings))
    };
    let relevant =
        |v: &PodSnapshot| v.shape.namespace == shape.namespace && (own || v.node.is_some() || v.nominated);
    match change {
        (Some(old), Some(new)) => {
            relevant(old) && relevant(new) && constraints.iter().any(|c| selects(c, old) != selects(c, new))
        }
        (None, Some(one)) | (Some(one), None) => relevant(one) && constraints.iter().any(|c| selects(c, one)),
        (None, None) => false,
    }
}

fn node_hint(constraints: &[Spread], old: Option<&NodeInfo>, new: Option<&NodeInfo>) -> bool {
    let matches = |n: &NodeInfo| has_all_keys(n, constraints);
    match (old, new) {
        (Some(old), Some(new)) => {
            // Upstream does not ask whether the policy or the tolerations make the taints count.
            let moved = || constraints.iter().any(|c| old.labels.get(c.key) != new.labels.get(c.key));
            matches(old) != matches(new) || (matches(new) && (moved() || old.taints != new.taints))
        }
        (None, Some(one)) | (Some(one), None) => matches(one),
        (None, None) => false,
    }
}

impl FilterState for State {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let info = &cluster.nodes[node].info;
        for (c, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(value) = info.labels.get(c.key) else {
                return Status::unresolvable(REASON_LABEL);
            };
            let own = c.selector.as_ref().is_some_and(|s| s.matches(&self.shape.labels, &cluster.strings));
            let there = domains.counts.get(&value).copied().unwrap_or(0);
            if there + i64::from(own) - domains.min(c.min_domains) > c.max_skew {
                return Status::unschedulable(REASON);
            }
        }
        Status::success()
    }

    fn add_pod(&mut self, cluster: &Cluster, other: PodId, node: NodeId) {
        self.update(cluster, other, node, 1);
    }

    fn remove_pod(&mut self, cluster: &Cluster, other: PodId, node: NodeId) {
        self.update(cluster, other, node, -1);
    }
}
