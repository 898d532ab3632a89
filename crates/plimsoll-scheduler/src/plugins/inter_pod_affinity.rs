//! InterPodAffinity, filter side: terms between pods, counted by topology (upstream
//! `plugins/interpodaffinity/filtering.go`).

mod args;
mod counts;
mod score;

use self::args::InterPodAffinityArgs;
use crate::cluster::spec::Term;
use crate::cluster::{Cluster, NodeId, NodeInfo, PodId, Shape};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload, PodSnapshot};
use crate::framework::{
    Counts, CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration,
    ScoreState, Status,
};
use plimsoll_state::intern::{Map, Sym};
use std::sync::Arc;

pub(super) const REASON_AFFINITY: &str = "node(s) didn't match pod affinity rules";
pub(super) const REASON_ANTI: &str = "node(s) didn't match pod anti-affinity rules";
pub(crate) const REASON_EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// The plugin with its arguments.
#[derive(Debug)]
pub(crate) struct InterPodAffinity(InterPodAffinityArgs);

/// Whether `term`, owned by a pod of `owner`, selects pods of `other`.
pub(super) fn term_matches(cluster: &Cluster, term: &Term, owner: &Shape, other: &Shape) -> bool {
    let Some(selector) = &term.selector else { return false };
    let namespace = if term.own_namespace {
        other.namespace == owner.namespace
    } else {
        term.namespaces.contains(&other.namespace)
            || term.namespace_selector.as_ref().is_some_and(|s| {
                s.is_empty()
                    || cluster.namespaces.get(&other.namespace).map_or_else(
                        || s.matches(&Default::default(), &cluster.strings),
                        |labels| s.matches(labels, &cluster.strings),
                    )
            })
    };
    namespace && selector.matches(&other.labels, &cluster.strings)
}

/// Whether all terms, and at least one, select pods of `other`.
pub(super) fn all_match(cluster: &Cluster, terms: &[Term], owner: &Shape, other: &Shape) -> bool {
    !terms.is_empty() && terms.iter().all(|t| term_matches(cluster, t, owner, other))
}

/// Pods by topology key and value; entries that fall to zero are dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct DomainCounts(Map<(Sym, Sym), i64>);

impl DomainCounts {
    pub fn add(&mut self, node: &NodeInfo, key: Sym, by: i64) {
        let Some(value) = node.labels.get(key) else { return };
        let n = self.0.entry((key, value)).or_default();
        *n += by;
        if *n == 0 {
            self.0.remove(&(key, value));
        }
    }

    /// Whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (Sym, Sym, i64)> {
        self.0.iter().map(|((key, value), n)| (*key, *value, *n))
    }

    /// How many in a domain.
    pub fn get(&self, key: Sym, value: Sym) -> i64 {
        self.0.get(&(key, value)).copied().unwrap_or(0)
    }
}

#[derive(Debug)]
struct State {
    shape: Arc<Shape>,
    existing_anti: DomainCounts,
    affinity: DomainCounts,
    anti: DomainCounts,
}

impl State {
    /// Counts another pod on a node, or takes it back.
    fn update(&mut self, cluster: &Cluster, other: PodId, node: NodeId, by: i64) {
        let other = Arc::clone(cluster.shape(other));
        let info = &cluster.nodes[node].info;
        let spec = &self.shape.spec;
        for term in &other.spec.anti_affinity.required {
            if term_matches(cluster, term, &other, &self.shape) {
                self.existing_anti.add(info, term.key, by);
            }
        }
        if all_match(cluster, &spec.affinity.required, &self.shape, &other) {
            for term in &spec.affinity.required {
                self.affinity.add(info, term.key, by);
            }
        }
        for term in &spec.anti_affinity.required {
            if term_matches(cluster, term, &self.shape, &other) {
                self.anti.add(info, term.key, by);
            }
        }
    }

    fn affinity_holds(&self, cluster: &Cluster, node: &NodeInfo) -> bool {
        let terms = &self.shape.spec.affinity.required;
        let mut exist = true;
        for term in terms {
            match node.labels.get(term.key) {
                None => return false,
                Some(value) => exist &= self.affinity.get(term.key, value) > 0,
            }
        }
        // The first pod of a group that wants to be together must be able to start somewhere.
        exist || (self.affinity.0.is_empty() && all_match(cluster, terms, &self.shape, &self.shape))
    }

    fn anti_hit(&self, node: &NodeInfo) -> bool {
        let terms = self.shape.spec.anti_affinity.required.iter();
        !self.anti.0.is_empty()
            && terms
                .filter_map(|t| Some((t.key, node.labels.get(t.key)?)))
                .any(|(k, v)| self.anti.get(k, v) > 0)
    }

    fn existing_hit(&self, node: &NodeInfo) -> bool {
        !self.existing_anti.0.is_empty() && node.labels.iter().any(|(k, v)| self.existing_anti.get(k, v) > 0)
    }
}

impl InterPodAffinity {
    pub(crate) fn new(args: &InterPodAffinityArgs) -> Self {
        Self(*args)
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        "InterPodAffinity",
        &[ExtensionPoint::PreFilter, ExtensionPoint::Filter, ExtensionPoint::PreScore, ExtensionPoint::Score],
        |args: &InterPodAffinityArgs, _| Box::new(InterPodAffinity::new(args)),
    )
    .by_default(2)
}

impl Plugin for InterPodAffinity {
    fn is_local(&self, cluster: &Cluster, pod: &Incoming) -> bool {
        let spec = &pod.shape.spec;
        cluster.with_affinity == 0 && spec.affinity.is_empty() && spec.anti_affinity.is_empty()
    }

    fn is_counted(&self) -> bool {
        true
    }

    fn counts(&self, cluster: &Cluster, pod: &Incoming) -> Option<Box<dyn Counts>> {
        counts::new(&self.0, cluster, pod)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let spec = &pod.shape.spec;
        let own = !spec.affinity.required.is_empty() || !spec.anti_affinity.required.is_empty();
        if !own && cluster.with_affinity == 0 {
            return PreFilterResult::Skip;
        }
        let mut state = State {
            shape: Arc::clone(&pod.shape),
            existing_anti: DomainCounts::default(),
            affinity: DomainCounts::default(),
            anti: DomainCounts::default(),
        };
        for (id, node) in cluster.nodes.iter() {
            if !node.exists || (!own && node.with_anti_affinity == 0) {
                continue;
            }
            for other in &node.pods {
                state.update(cluster, *other, id, 1);
            }
        }
        if !own && state.existing_anti.0.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::go(state)
        }
    }

    fn pre_score(
        &self,
        cluster: &Cluster,
        pod: &Incoming,
        _feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        score::pre_score(&self.0, cluster, pod)
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(
                    EventResource::Pod,
                    ActionType::ADD.or(ActionType::POD_LABEL).or(ActionType::DELETE),
                ),
                ClusterEventWithHint::hinted(EventResource::Node, ActionType::ADD.or(ActionType::NODE_LABEL)),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let shape = cluster.shape(pod);
        match &change.payload {
            Payload::Pod { id, .. } if *id == pod => true,
            Payload::Pod { old, new, .. } => pod_hint(cluster, shape, old.as_deref(), new.as_deref()),
            Payload::Node { old, new: Some(new), .. } => node_hint(shape, old.as_deref(), new),
            Payload::Node { .. } | Payload::Object(_) => false,
        }
    }
}

fn pod_hint(cluster: &Cluster, shape: &Shape, old: Option<&PodSnapshot>, new: Option<&PodSnapshot>) -> bool {
    let (affinity, anti) = (&shape.spec.affinity.required, &shape.spec.anti_affinity.required);
    let wanted = |v: &PodSnapshot| all_match(cluster, affinity, shape, &v.shape);
    let avoided = |v: &PodSnapshot| all_match(cluster, anti, shape, &v.shape);
    match (old, new) {
        (Some(old), Some(new)) => (!wanted(old) && wanted(new)) || (avoided(old) && !avoided(new)),
        (None, Some(new)) => wanted(new),
        (Some(old), None) => {
            avoided(old) || all_match(cluster, &old.shape.spec.anti_affinity.required, &old.shape, shape)
        }
        (None, None) => false,
    }
}

fn node_hint(shape: &Shape, old: Option<&NodeInfo>, new: &NodeInfo) -> bool {
    let value = |n: &NodeInfo, key| n.labels.get(key);
    let affinity = shape.spec.affinity.required.iter().any(|t| {
        let now = value(new, t.key);
        now.is_some() && old.is_none_or(|o| value(o, t.key) != now)
    });
    // A node that gets a label it hadn't opens nothing: without it, it took every pod.
    let moved = |o: &NodeInfo, key| value(o, key).is_some_and(|was| value(new, key) != Some(was));
    let anti = shape.spec.anti_affinity.required.iter().any(|t| old.is_none_or(|o| moved(o, t.key)));
    affinity || anti
}

impl FilterState for State {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let info = &cluster.nodes[node].info;
        if !self.affinity_holds(cluster, info) {
            return Status::unresolvable(REASON_AFFINITY);
        }
        if self.anti_hit(info) {
            return Status::unschedulable(REASON_ANTI);
        }
        if self.existing_hit(info) {
            return Status::unschedulable(REASON_EXISTING);
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
