//! Preemption: which pods to delete so that a more important one fits (upstream `framework/preemption/preemption.go`,
//! and `SelectVictimsOnNode` of `plugins/defaultpreemption/default_preemption.go`).

use crate::cluster::objects::Budget;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::framework::{Candidate, CandidateRank, Code, DryRun, PostFilterHandle, Status};
use crate::message::Fit;
use plimsoll_state::intern::{Map, Sym};
use plimsoll_state::slab::Id;
use plimsoll_state::time::Time;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// Outcomes of dry runs by node, which hold until the node changes; empty while none was made.
pub(crate) type DryRuns = Vec<Option<DryRun>>;

/// Outcome of a search for candidates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    pub candidates: Vec<Arc<Candidate>>,
    /// Whether one of them violates no budget.
    clean: bool,
    /// Distinct failures and how many nodes had them.
    pub failed: Vec<(Status, usize)>,
}

/// Importance for sorting: most important first.
type Importance = (Reverse<i32>, Time, PodId);

fn importance(cluster: &Cluster, pod: PodId) -> Importance {
    // A pod that has not started yet counts as started now.
    (Reverse(cluster.priority(pod)), cluster.pods[pod].start_time.unwrap_or(Time(i64::MAX)), pod)
}

/// Why the pod may not preempt others; `None`: it may (upstream `PodEligibleToPreemptOthers`).
pub(crate) fn not_eligible(handle: &dyn PostFilterHandle) -> Option<&'static str> {
    let (cluster, pod) = (handle.cluster(), handle.pod());
    let spec = &pod.shape.spec;
    if spec.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = cluster.pods[pod.id].nominated?;
    if handle.nominated_verdict() == Some(Code::Unresolvable) {
        return None;
    }
    let leaving = |p: &PodId| {
        let pod = &cluster.pods[*p];
        pod.deleting
            && pod.extra.as_ref().is_some_and(|e| e.preempted)
            && cluster.priority(*p) < spec.priority
    };
    cluster.nodes[node]
        .pods
        .iter()
        .any(leaving)
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

/// Dry-runs preemption on the nodes on which it might help, from number `offset` on, until `wanted` candidates are found,
/// one of them without a violated budget (upstream `DryRunPreemption`).
pub(crate) fn search(handle: &mut dyn PostFilterHandle, offset: usize, wanted: usize) -> Search {
    let mut out = Search::default();
    let mut next = 0;
    while let Some(node) = out.add_known(&*handle, (offset, &mut next), wanted) {
        let new = victims_on(handle, node).map(Arc::new);
        handle.remember(node, &new);
        if out.add(&new, wanted) {
            break;
        }
    }
    out
}

impl Search {
    /// Adds what is known of nodes, up to the first one of which nothing is; `None`: the search has ended.
    fn add_known(
        &mut self,
        handle: &dyn PostFilterHandle,
        (offset, next): (usize, &mut usize),
        wanted: usize,
    ) -> Option<NodeId> {
        let (nodes, known) = (handle.nodes(), handle.known());
        let (before, after) = nodes.split_at(offset.min(nodes.len()));
        for node in after.iter().chain(before).skip(*next) {
            *next += 1;
            match known.get(node.index()) {
                Some(Some(outcome)) => {
                    if self.add(outcome, wanted) {
                        return None;
                    }
                }
                Some(None) | None => return Some(*node),
            }
        }
        None
    }

    /// Adds the outcome of a dry run; whether there are enough candidates now.
    fn add(&mut self, outcome: &DryRun, wanted: usize) -> bool {
        match outcome {
            Ok(c) => {
                self.clean |= c.violations == 0;
                self.candidates.push(Arc::clone(c));
                self.candidates.len() >= wanted && self.clean
            }
            Err(status) => {
                match self.failed.iter_mut().find(|(s, _)| s == status) {
                    Some((_, n)) => *n += 1,
                    None => self.failed.push((status.clone(), 1)),
                }
                false
            }
        }
    }
}

/// The text when there is no candidate; for nodes without a dry run preemption is not helpful.
pub(crate) fn no_candidates(cluster: &Cluster, failed: &[(Status, usize)]) -> String {
    let mut fit = Fit { nodes: cluster.node_count, ..Fit::default() };
    let mut tried = 0;
    for (status, nodes) in failed {
        fit.count(status, *nodes, &cluster.strings);
        tried += nodes;
    }
    let rest = cluster.node_count.saturating_sub(tried);
    if rest > 0 {
        *fit.reasons.entry(NOT_HELPFUL.to_owned()).or_default() += rest;
    }
    fit.short()
}

/// The fewest and least important pods on a node whose removal lets the pod in (upstream `SelectVictimsOnNode`).
fn victims_on(handle: &mut dyn PostFilterHandle, node: NodeId) -> Result<Candidate, Status> {
    let priority = handle.pod().shape.spec.priority;
    let cluster = handle.cluster();
    let mut lower: Vec<PodId> =
        cluster.nodes[node].pods.iter().copied().filter(|p| cluster.priority(*p) < priority).collect();
    if lower.is_empty() {
        return Err(Status::unresolvable(NO_VICTIMS));
    }
    lower.sort_unstable_by_key(|p| importance(cluster, *p));
    for p in &lower {
        handle.remove_pod(*p);
    }
    let status = handle.filter(node);
    if !status.is_success() {
        for p in &lower {
            handle.add_pod(*p, node);
        }
        return Err(status);
    }
    let violating = violations(handle.cluster(), &lower);
    let mut victims = Vec::new();
    let mut count = 0;
    for round in [true, false] {
        for (p, violates) in lower.iter().zip(&violating) {
            if *violates != round {
                continue;
            }
            handle.add_pod(*p, node);
            if !handle.filter(node).is_success() {
                handle.remove_pod(*p);
                victims.push(*p);
                count += i64::from(round);
            }
        }
    }
    for p in &victims {
        handle.add_pod(*p, node);
    }
    let cluster = handle.cluster();
    victims.sort_unstable_by_key(|p| importance(cluster, *p));
    if victims.is_empty() {
        let name = cluster.strings.text(cluster.nodes[node].name);
        return Err(Status::error(format!("expected at least one victim pod on node {name:?}")));
    }
    let rank = rank(cluster, &victims, count);
    Ok(Candidate { node, victims, violations: count, rank })
}

/// For each pod, in this order, whether deleting it would violate a budget.
pub(crate) fn violations(cluster: &Cluster, pods: &[PodId]) -> Vec<bool> {
    let mut left = BudgetsLeft::new(cluster);
    pods.iter().map(|p| left.delete(*p)).collect()
}

/// What budgets allow, while pods are deleted one after the other (upstream `filterPodsWithPDBViolation`).
#[derive(Debug)]
pub(crate) struct BudgetsLeft<'c> {
    cluster: &'c Cluster,
    allowed: Vec<(&'c Budget, i64)>,
    /// Which of them are of a namespace.
    by_namespace: Map<Sym, Range<usize>>,
}

impl<'c> BudgetsLeft<'c> {
    pub(crate) fn new(cluster: &'c Cluster) -> Self {
        Self { cluster, allowed: Vec::new(), by_namespace: Map::default() }
    }

    /// Deletes a pod; whether that violates a budget.
    pub(crate) fn delete(&mut self, pod: PodId) -> bool {
        let Self { cluster, allowed, by_namespace } = self;
        let shape = cluster.shape(pod);
        let range = by_namespace.entry(shape.namespace).or_insert_with(|| {
            let start = allowed.len();
            let budgets = cluster.objects.budgets.get(&shape.namespace);
            allowed.extend(budgets.into_iter().flat_map(|m| m.values()).map(|b| (b, b.allowed)));
            start..allowed.len()
        });
        let mut violated = false;
        let has_labels = shape.labels.iter().next().is_some();
        for (budget, left) in allowed.get_mut(range.clone()).into_iter().flatten() {
            let name = &cluster.pods[pod].name;
            if !has_labels
                || budget.selector.is_empty()
                || !budget.selector.matches(&shape.labels, &cluster.strings)
                || budget.disrupted.iter().any(|d| d == name)
            {
                continue;
            }
            *left -= 1;
            violated |= *left < 0;
        }
        violated
    }
}

fn rank(cluster: &Cluster, victims: &[PodId], violations: i64) -> CandidateRank {
    let priorities = || victims.iter().map(|p| cluster.priority(*p));
    let top = priorities().max().unwrap_or(i32::MIN);
    let sum = priorities().map(|p| i64::from(p) + (1 << 31)).sum();
    let started = |p: &PodId| cluster.pods[*p].start_time.unwrap_or(Time(i64::MAX));
    let earliest =
        victims.iter().filter(|p| cluster.priority(**p) == top).map(started).min().unwrap_or(Time(i64::MAX));
    (violations, top, sum, victims.len(), Reverse(earliest))
}

/// A candidate with these victims.
pub(crate) fn candidate(
    cluster: &Cluster,
    node: NodeId,
    mut victims: Vec<PodId>,
    violations: i64,
) -> Arc<Candidate> {
    victims.sort_unstable_by_key(|p| importance(cluster, *p));
    let rank = rank(cluster, &victims, violations);
    Arc::new(Candidate { node, victims, violations, rank })
}

/// The best candidates: all that are equal after every criterion, in the given order.
pub(crate) fn best(candidates: &[Arc<Candidate>]) -> Vec<usize> {
    let Some(least) = candidates.iter().map(|c| c.rank).min() else { return Vec::new() };
    candidates.iter().enumerate().filter(|(_, c)| c.rank == least).map(|(i, _)| i).collect()
}
