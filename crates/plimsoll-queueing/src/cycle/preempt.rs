//! Preemption: which workloads to preempt so that another one fits (Kueue `pkg/scheduler/preemption/preemption.go`).

mod classical;
mod configurable;
mod fair;
mod nodes;
mod partial;
mod places;
mod sort;

pub(super) use nodes::{NodeSearch, NodesNeeded};

use std::cmp::{Ordering, Reverse};
use std::fmt::Debug;
use std::sync::Arc;

use super::Cycle;
use super::assign::{Assignment, Possibility};
use super::victim::{Reason, Target};
use crate::amount::Amount;
use crate::cond;
use crate::config::FairStrategy;
use crate::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::model::PreemptionPolicy;
use crate::state::WorkloadInfo;
use crate::tas::TasRequests;
use crate::tree::NodeId;
use plimsoll_state::time::Time;

/// What capacity is looked for.
pub(crate) struct PreemptionContext {
    pub(super) id: WorkloadId,
    pub(super) cq: ClusterQueueId,
    pub(super) node: NodeId,
    /// Columns on which others have to give way.
    pub(super) frs: Vec<FlavorResource>,
    pub(super) usage: Vec<(FlavorResource, Amount)>,
    pub(super) tas: TasRequests,
    /// The pods, where nodes decide as well (joint admission).
    pub(super) nodes: Option<NodesNeeded>,
}

/// How the workloads to preempt are searched (Kueue `Preemptor.getTargets`).
pub(crate) trait CandidateSearch: Debug + Send + Sync {
    /// Workloads without which the need fits, none if there are none. Undoes nothing: the caller rolls the simulation
    /// back.
    fn targets(&self, cycle: &mut Cycle<'_>, need: &PreemptionContext) -> Vec<Target>;
}

/// By priority and hierarchy.
#[derive(Debug)]
pub(super) struct ClassicalSearch;

impl CandidateSearch for ClassicalSearch {
    fn targets(&self, cycle: &mut Cycle<'_>, need: &PreemptionContext) -> Vec<Target> {
        cycle.classical_targets(need)
    }
}

/// By shares, with the strategies of KEP-1714 in their order.
#[derive(Debug)]
pub(super) struct FairSharingSearch(Vec<FairStrategy>);

impl FairSharingSearch {
    pub(super) fn new(strategies: Vec<FairStrategy>) -> Self {
        Self(strategies)
    }
}

impl CandidateSearch for FairSharingSearch {
    fn targets(&self, cycle: &mut Cycle<'_>, need: &PreemptionContext) -> Vec<Target> {
        cycle.fair_targets(need, &self.0)
    }
}

/// A search that was done, and what it found.
#[derive(Debug)]
pub(crate) struct CachedSearch {
    id: WorkloadId,
    frs: Vec<FlavorResource>,
    usage: Vec<(FlavorResource, Amount)>,
    targets: Vec<Target>,
}

/// How far it is on its way already, whether it is in the preemptor's ClusterQueue, its place by rules of the configuration,
/// priority, how many pods it has of which some can go, the work that would be lost where that decides, since when, UID.
type CandidateKey<'w> = (Leaving, bool, i32, i64, Reverse<i32>, i128, Reverse<Time>, &'w str);

/// How far a candidate is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leaving {
    /// It is evicted.
    Whole,
    /// It was asked to shrink.
    Part,
    Stays,
}

/// How many searches are remembered.
const MAX_SEARCHES: usize = 16;

impl Cycle<'_> {
    /// Workloads to preempt so that the assignment fits; none when that can't be done.
    ///
    /// Kueue forgets the resource `pods` here: neither shares nor what fits count it, and if the number of pods takes
    /// more victims, it finds that nothing fits, cycle after cycle. Its choice stands where it is enough. Where nodes decide, too, all
    /// of the need counts from the start: otherwise nothing would be preempted where only the number of pods is exhausted.
    pub(crate) fn preemption_targets(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        a: &Assignment,
    ) -> Vec<Target> {
        self.node_search.lacked = false;
        let Some(node) = self.state.cq(cq).node else { return Vec::new() };
        let tas = self.state.tas_view().tas_requests(id, cq, a);
        let usage = self.requested_usage(a);
        let pods: Vec<FlavorResource> = self.columns_of_pods(a);
        let known = usage.iter().filter(|(fr, _)| !pods.contains(fr)).copied().collect();
        let nodes = self.nodes_needed(id, cq, a);
        let frs = a.columns_to_preempt(&self.state.ids);
        let first = if nodes.is_some() { usage.clone() } else { known };
        let mut need = PreemptionContext { id, cq, node, frs, usage: first, tas, nodes };
        let targets = self.find_targets(&need);
        if targets.is_empty() || need.usage.len() == usage.len() {
            return targets;
        }
        self.expect_to_shrink(&targets);
        let mark = self.state.mark();
        targets.iter().for_each(|t| self.state.simulate_usage_removal(t.id));
        let enough = self.state.quota_fits(cq, &usage);
        self.state.rollback(mark);
        if enough {
            return targets;
        }
        need.usage = usage;
        let more = self.find_targets(&need);
        if more.is_empty() { targets } else { more }
    }

    /// Columns of the resource `pods` in an assignment.
    fn columns_of_pods(&self, a: &Assignment) -> Vec<FlavorResource> {
        let Some(pods) = self.state.ids.find_resource("pods") else { return Vec::new() };
        let flavors = a.pod_sets.iter().filter_map(|ps| ps.flavor_of(pods));
        flavors.filter_map(|f| self.state.ids.find_pair(f, pods)).collect()
    }

    /// Whether others could give way on a single column, and the borrow level once they did.
    pub(crate) fn simulate_preemption(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        fr: FlavorResource,
        amount: Amount,
    ) -> (Possibility, u32) {
        let Some(node) = self.state.cq(cq).node else { return (Possibility::NoCandidates, 0) };
        let need = PreemptionContext {
            id,
            cq,
            node,
            frs: vec![fr],
            usage: vec![(fr, amount)],
            tas: TasRequests::default(),
            nodes: None,
        };
        let targets = self.find_targets(&need);
        if targets.is_empty() {
            return (Possibility::NoCandidates, self.state.tree.borrow_level(node, fr, amount).0);
        }
        self.expect_to_shrink(&targets);
        let mark = self.state.mark();
        targets.iter().for_each(|t| self.state.simulate_usage_removal(t.id));
        let (borrow, _) = self.state.tree.borrow_level(node, fr, amount);
        self.state.rollback(mark);
        let own = targets.iter().any(|t| self.state.cq_holding(t.id) == Some(cq));
        (if own { Possibility::Preempt } else { Possibility::Reclaim }, borrow)
    }

    /// Searches of one nomination all start from the same state: what was searched for a single column often
    /// is all that is needed, and is not searched again.
    fn find_targets(&mut self, need: &PreemptionContext) -> Vec<Target> {
        if need.usage.iter().any(|(fr, _)| self.unreclaimable.contains(fr)) {
            return Vec::new();
        }
        let same = |s: &&CachedSearch| s.id == need.id && s.frs == need.frs && s.usage == need.usage;
        let cached = self.searches.as_ref().filter(|_| need.tas.is_empty() && need.nodes.is_none());
        if let Some(known) = cached.and_then(|s| s.iter().find(same)) {
            return known.targets.clone();
        }
        let targets = self.search_targets(need);
        let kept = need.tas.is_empty() && need.nodes.is_none();
        let log = self.searches.as_mut().filter(|s| kept && s.len() < MAX_SEARCHES);
        if let Some(searches) = log {
            let (id, frs, usage) = (need.id, need.frs.clone(), need.usage.clone());
            searches.push(CachedSearch { id, frs, usage, targets: targets.clone() });
        }
        targets
    }

    fn search_targets(&mut self, need: &PreemptionContext) -> Vec<Target> {
        if let Some(targets) = self.awaited_targets(need) {
            return targets;
        }
        self.forget_shrinking();
        let targets = self.search_candidates(need);
        if !targets.is_empty() || !self.state.config.gates.partial_preemption {
            return targets;
        }
        // Where it is not enough that they shrink, they are evicted.
        self.state.evicts_whole = true;
        let targets = self.search_candidates(need);
        self.state.evicts_whole = false;
        targets
    }

    fn search_candidates(&mut self, need: &PreemptionContext) -> Vec<Target> {
        let search = Arc::clone(&self.strategies.candidates);
        for within_budgets in [true, false] {
            let mark = self.state.mark();
            let mut targets = Vec::new();
            // What is leaving anyway may be enough.
            if !self.begin_node_search(need, within_budgets) {
                targets = search.targets(self, need);
            }
            let again = self.end_node_search(need, !targets.is_empty());
            self.state.rollback(mark);
            if !again {
                return targets;
            }
        }
        Vec::new()
    }

    /// What the assignment's podsets ask for, per column.
    fn requested_usage(&mut self, a: &Assignment) -> Vec<(FlavorResource, Amount)> {
        if a.replaced.is_some() {
            return a.usage.iter().filter(|(_, v)| *v != Amount::ZERO).copied().collect();
        }
        let mut usage = Vec::new();
        for ps in &a.pod_sets {
            for &(res, amount) in ps.requests.iter().filter(|(_, v)| *v != 0) {
                if let Some(flavor) = ps.flavor_of(res) {
                    let fr = self.state.ids.column(flavor, res);
                    crate::quota::add_usage(&mut usage, fr, Amount(amount));
                }
            }
        }
        usage
    }

    /// Whether the policy lets `id` preempt `other` (Kueue `SatisfiesPreemptionPolicy`).
    fn may_preempt(&self, id: WorkloadId, other: WorkloadId, policy: PreemptionPolicy) -> bool {
        let (Some(a), Some(b)) = (self.state.wl(id), self.state.wl(other)) else { return false };
        if self.goes_anyway(id, other) {
            return false;
        }
        let (p, q) = (a.obj.effective_priority(), b.obj.effective_priority());
        match policy {
            PreemptionPolicy::Never => false,
            PreemptionPolicy::LowerPriority => p > q,
            PreemptionPolicy::LowerOrNewerEqualPriority => {
                p > q
                    || (p == q
                        && self.state.queue_order_timestamp(&a.obj)
                            < self.state.queue_order_timestamp(&b.obj))
            }
            PreemptionPolicy::Any => true,
        }
    }

    /// Whether `other` is a slice whose place `id`, or another one, takes or will take: it goes without being preempted.
    fn goes_anyway(&self, id: WorkloadId, other: WorkloadId) -> bool {
        self.state.chain_before(id).contains(&other) || self.state.replacement(other).is_some()
    }

    /// Whether a workload holds flavors of any of these columns.
    fn uses_any(&self, wl: &WorkloadInfo, frs: &[FlavorResource]) -> bool {
        wl.total_requests()
            .iter()
            .flat_map(|t| &t.flavors)
            .any(|(r, f)| self.state.ids.find_pair(*f, *r).is_some_and(|fr| frs.contains(&fr)))
    }

    /// Workloads of a ClusterQueue that are there in the present simulation.
    fn holders_of(&self, cq: ClusterQueueId) -> impl Iterator<Item = WorkloadId> {
        self.state.holders(cq).filter(|&h| !self.state.is_removed(h))
    }

    /// Order of candidates: already evicted first, then those that were asked to shrink, other ClusterQueues before the own one,
    /// more usage of the LocalQueue, lower priority, those that can shrink, the largest first, reserved more recently, UID.
    fn compare_candidates(
        &self,
        a: WorkloadId,
        b: WorkloadId,
        cq: ClusterQueueId,
        with_usage: bool,
    ) -> Ordering {
        let by_id = a.cmp(&b);
        let (Some(a), Some(b)) = (self.state.wl(a), self.state.wl(b)) else { return Ordering::Equal };
        let (x, y) = (self.candidate_key(a, cq), self.candidate_key(b, cq));
        (x.0, x.1, x.2)
            .cmp(&(y.0, y.1, y.2))
            .then_with(|| if with_usage { self.compare_usage(a, b) } else { Ordering::Equal })
            .then_with(|| x.cmp(&y))
            .then(by_id)
    }

    /// What [`Cycle::compare_candidates`] compares, except the usage of LocalQueues.
    fn candidate_key<'w>(&self, w: &'w WorkloadInfo, cq: ClusterQueueId) -> CandidateKey<'w> {
        let evicted = w.obj.status.is_true(cond::EVICTED);
        let reserved = w
            .obj
            .status
            .condition(cond::QUOTA_RESERVED)
            .filter(|c| c.status)
            .map_or(Time(i64::MAX), |c| c.transition);
        let own = self.state.reserved_in(w) == Some(cq);
        let lost = if self.node_search.only_nodes { self.work_lost(w) } else { 0 };
        let shrinkable = self.state.shrinkable_of(w);
        let leaving = match shrinkable {
            _ if evicted => Leaving::Whole,
            Some(s) if s.asked => Leaving::Part,
            _ => Leaving::Stays,
        };
        (
            leaving,
            own,
            w.victim_order(),
            w.obj.effective_priority(),
            Reverse(shrinkable.map_or(0, |s| s.effective)),
            lost,
            Reverse(reserved),
            w.uid(),
        )
    }

    /// What a workload has done since it was admitted, in pods times nanoseconds: that is lost when it is preempted.
    fn work_lost(&self, w: &WorkloadInfo) -> i128 {
        let admitted = w.obj.status.condition(cond::ADMITTED).filter(|c| c.status);
        let ran = admitted.map_or(0, |c| self.now.since(c.transition).0.max(0));
        w.total_requests().iter().map(|t| i128::from(t.count)).sum::<i128>() * i128::from(ran)
    }

    /// LocalQueues of the same ClusterQueue that used more come first.
    fn compare_usage(&self, a: &WorkloadInfo, b: &WorkloadInfo) -> Ordering {
        if a.lq() == b.lq() {
            return Ordering::Equal;
        }
        let Some(cq) = self.state.reserved_in(a).filter(|cq| self.state.reserved_in(b) == Some(*cq)) else {
            return Ordering::Equal;
        };
        if !self.state.cq(cq).rules.fair_admission {
            return Ordering::Equal;
        }
        self.state.local_usage(b.lq()).total_cmp(&self.state.local_usage(a.lq()))
    }

    /// Whether the need fits now, by quota, by placement, and on nodes.
    fn need_fits(&mut self, need: &PreemptionContext, borrow: bool) -> bool {
        self.quota_need_fits(need, borrow) && self.nodes_fit(need)
    }

    /// Whether the need fits now, by quota and by placement.
    fn quota_need_fits(&self, need: &PreemptionContext, borrow: bool) -> bool {
        self.amounts_fit(need, borrow) && self.state.tas_view().tas_fits(need.id, need.cq, &need.tas)
    }

    /// Whether the need fits now, by quota.
    fn amounts_fit(&self, need: &PreemptionContext, borrow: bool) -> bool {
        need.usage.iter().all(|&(fr, a)| {
            (borrow || !self.state.tree.borrowing_with(need.node, fr, a))
                && a <= self.state.tree.available(need.node, fr)
        })
    }

    /// Removes unnecessary targets, from the last but one backwards (Kueue `fillBackWorkloads`), as far as `legal` allows,
    /// which sees all targets and the index of the one that would stay. The last target takes its index.
    fn fill_back(
        &mut self,
        need: &PreemptionContext,
        targets: &mut Vec<Target>,
        borrow: bool,
        legal: impl Fn(&mut Self, &[Target], usize) -> bool,
    ) {
        for i in (0..targets.len().saturating_sub(1)).rev() {
            let mark = self.state.mark();
            self.state.simulate_workload_addition(targets[i].id);
            if self.quota_need_fits(need, borrow)
                && legal(self, targets, i)
                && self.put_back_beside(need, targets[i].id)
            {
                targets.swap_remove(i);
            } else {
                self.state.rollback(mark);
            }
        }
    }
}
