//! Rules about workloads that a configuration adds to Kueue's.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::Queueing;
use crate::ids::{FlavorId, Ids, WorkloadId};
use crate::model::{ResourceFlavor, Workload};
use crate::pod_sets::{FlavorScores, PodSetResources};

/// Reason of the condition `QuotaReserved` of a workload that a rule keeps from being admitted.
pub(crate) const VETOED: &str = "Vetoed";

/// Rules about workloads.
///
/// What they say depends on the workload and on what it requests, and on nothing else: a workload is asked about when it
/// changes.
pub trait WorkloadPolicy: Debug + Send + Sync {
    /// The ruling on a workload. `requests`: what its pods that still need quota request together, by resource; cpu in
    /// millicores.
    fn rule(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> Ruling;

    /// Whether [`WorkloadPolicy::score_flavors`] says anything. What it says may depend on the flavors, too: a workload that
    /// waits is asked about again when a flavor changes.
    fn scores_flavors(&self) -> bool {
        false
    }

    /// A score for each of the flavors, in their order, where there are fewer than flavors 0: those of a higher score are tried
    /// first, then those that come first in the ClusterQueue.
    fn score_flavors(
        &self,
        _workload: &Workload,
        _requests: &BTreeMap<&str, i64>,
        _flavors: &[&ResourceFlavor],
    ) -> Vec<i32> {
        Vec::new()
    }

    /// Whether [`WorkloadPolicy::victim_order`] says anything.
    fn orders_victims(&self) -> bool {
        false
    }

    /// The place of a workload with quota among the candidates for preemption: those of a lower number are preempted first,
    /// whatever their priority. Kueue's policies say who is a candidate at all; evicted workloads and those of other
    /// ClusterQueues still come first.
    fn victim_order(&self, _workload: &Workload, _requests: &BTreeMap<&str, i64>) -> i32 {
        0
    }
}

/// What rules say about a workload that waits. One that holds quota keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Why it is not admitted, if it is not.
    pub veto: Option<String>,
    /// Workloads of a lower number go first, whatever their priority.
    pub order: i32,
    /// Among workloads of equal priority those of a higher number go first.
    pub score: i32,
}

/// Several rules: the first veto counts, numbers are added.
#[derive(Debug)]
pub struct Policies(pub Vec<Arc<dyn WorkloadPolicy>>);

impl WorkloadPolicy for Policies {
    fn rule(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> Ruling {
        let mut sum = Ruling::default();
        for ruling in self.0.iter().map(|policy| policy.rule(workload, requests)) {
            sum.veto = sum.veto.or(ruling.veto);
            sum.order = sum.order.saturating_add(ruling.order);
            sum.score = sum.score.saturating_add(ruling.score);
        }
        sum
    }

    fn scores_flavors(&self) -> bool {
        self.0.iter().any(|policy| policy.scores_flavors())
    }

    fn score_flavors(
        &self,
        workload: &Workload,
        requests: &BTreeMap<&str, i64>,
        flavors: &[&ResourceFlavor],
    ) -> Vec<i32> {
        let mut sums = vec![0_i32; flavors.len()];
        for policy in self.0.iter().filter(|policy| policy.scores_flavors()) {
            let scores = policy.score_flavors(workload, requests, flavors);
            sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum = sum.saturating_add(score));
        }
        sums
    }

    fn orders_victims(&self) -> bool {
        self.0.iter().any(|policy| policy.orders_victims())
    }

    fn victim_order(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> i32 {
        let orders = self.0.iter().filter(|policy| policy.orders_victims());
        orders.map(|policy| policy.victim_order(workload, requests)).fold(0, i32::saturating_add)
    }
}

/// What the podsets request together.
pub(crate) fn requested<'a>(ids: &'a Ids, pod_sets: &[PodSetResources]) -> BTreeMap<&'a str, i64> {
    let mut out = BTreeMap::new();
    for (resource, amount) in pod_sets.iter().flat_map(|pod_set| &pod_set.requests) {
        let sum: &mut i64 = out.entry(ids.resource_name(*resource)).or_default();
        *sum = sum.saturating_add(*amount);
    }
    out
}

/// The flavors of a group in the order in which they are tried; `None`: in the order of the group.
pub(crate) fn flavor_order(group: &[FlavorId], scores: &[(FlavorId, i32)]) -> Option<Vec<FlavorId>> {
    if scores.is_empty() {
        return None;
    }
    let score =
        |flavor: &FlavorId| scores.binary_search_by_key(flavor, |(f, _)| *f).map_or(0, |at| scores[at].1);
    let mut order = group.to_vec();
    order.sort_by_key(|flavor| Reverse(score(flavor)));
    Some(order)
}

impl Queueing {
    /// How rules score the flavors for a workload that requests this.
    pub(crate) fn flavor_scores(&self, wl: &Workload, total_requests: &[PodSetResources]) -> FlavorScores {
        let Some(policy) = self.config.policy.as_ref().filter(|policy| policy.scores_flavors()) else {
            return FlavorScores::default();
        };
        let requests = requested(&self.ids, total_requests);
        let flavors: Vec<&ResourceFlavor> = self.objects.flavors.values().map(Arc::as_ref).collect();
        let scores = policy.score_flavors(wl, &requests, &flavors);
        let scores = self.objects.flavors.keys().copied().zip(scores);
        let mut scores: Vec<_> = scores.filter(|(_, score)| *score != 0).collect();
        scores.sort_unstable();
        scores.into()
    }

    /// The place of a workload among candidates for preemption by rules, of one that holds this.
    pub(crate) fn victim_order(&self, id: WorkloadId, held: &[PodSetResources]) -> i32 {
        let policy = self.config.policy.as_ref().filter(|policy| policy.orders_victims());
        match (policy, self.wl(id)) {
            (Some(policy), Some(wl)) => policy.victim_order(&wl.obj, &requested(&self.ids, held)),
            _ => 0,
        }
    }

    /// Flavors have changed: workloads that wait may be scored otherwise.
    pub(crate) fn score_flavors_again(&mut self) {
        if self.config.policy.as_ref().is_some_and(|policy| policy.scores_flavors()) {
            self.refresh_requests_where(|_| true);
        }
    }

    /// Replaces the rules: workloads that wait are ruled again, those that hold quota are ordered again among candidates for
    /// preemption.
    pub(crate) fn replace_policy(&mut self, policy: Option<Arc<dyn WorkloadPolicy>>) {
        let ordered = |policy: &Option<Arc<dyn WorkloadPolicy>>| {
            policy.as_ref().is_some_and(|policy| policy.orders_victims())
        };
        if policy.is_none() && self.config.policy.is_none() {
            return;
        }
        let order = ordered(&self.config.policy) || ordered(&policy);
        self.config.policy = policy;
        self.refresh_requests_where(|_| true);
        if order {
            let holders: Vec<WorkloadId> =
                self.workloads.iter().filter(|(_, w)| w.quota().is_some()).map(|(id, _)| id).collect();
            for id in holders {
                let order = self.wl(id).map_or(0, |w| self.victim_order(id, w.total_requests()));
                if let Some(wl) = self.wl_mut(id) {
                    wl.set_victim_order(order);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
