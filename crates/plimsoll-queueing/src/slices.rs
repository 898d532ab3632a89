//! Elastic jobs: a workload (a *slice*) that takes the place of an older one of the same job (Kueue KEP-77).
//!
//! The replacement is admitted with the flavors of the old slice for the difference only, and the old slice is
//! finished once the API is known to have the reservation of its replacement. While both hold quota, the two together
//! are charged what the larger of them needs, column by column. So at every moment as much is charged as there may be
//! pods, and never twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::amount::Amount;
use super::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use super::model::REPLACED;
use super::model::{Workload, WorkloadKey};
use super::phase::Phase;
use super::pod_sets::PodSetResources;
use super::state::WorkloadInfo;
use super::{KubernetesEvent, cond};
use crate::Queueing;
use plimsoll_state::time::Time;

/// How many slices are followed, back and forth. Of a job's slices two hold quota, for moments three; those whose end
/// is written stay as objects, as many as the job was scaled up, and are of interest only next to one that holds.
const MAX_CHAIN: usize = 16;

/// Which workloads replace which.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    /// Workloads by the one they are to replace.
    by_old: BTreeMap<WorkloadKey, BTreeSet<WorkloadId>>,
    /// Workloads whose pods bear the name of another one, by that.
    by_first: BTreeMap<WorkloadKey, BTreeSet<WorkloadId>>,
    /// Whether charges are being brought in line.
    settling: bool,
}

impl Queueing {
    /// Takes a new or changed workload into the index.
    pub(crate) fn slice_register(&mut self, id: WorkloadId) {
        let Some((old, first)) = self.slice_names(id) else { return };
        if let Some(old) = old {
            self.slices.by_old.entry(old).or_default().insert(id);
        }
        if let Some(first) = first {
            self.slices.by_first.entry(first).or_default().insert(id);
        }
    }

    /// The slice that a workload is to replace, and the one whose name its pods bear, if it is another one.
    fn slice_names(&self, id: WorkloadId) -> Option<(Option<WorkloadKey>, Option<WorkloadKey>)> {
        let obj = &self.wl(id)?.obj;
        let first =
            (!obj.first_slice.is_empty() && obj.first_slice != obj.key.name).then(|| obj.borne_by_pods());
        Some((obj.replaces.clone(), first))
    }

    /// Takes a workload out of the index.
    pub(crate) fn slice_forget(&mut self, id: WorkloadId) {
        let Some((old, first)) = self.slice_names(id) else { return };
        for (index, name) in [(&mut self.slices.by_old, old), (&mut self.slices.by_first, first)] {
            let Some(name) = name else { continue };
            if let Some(set) = index.get_mut(&name) {
                set.remove(&id);
                if set.is_empty() {
                    index.remove(&name);
                }
            }
        }
    }

    /// The workloads that pods with this name belong to: the one of that name, and later slices of its elastic job; not those
    /// that were replaced.
    pub(crate) fn bearing(&self, name: &WorkloadKey) -> impl Iterator<Item = WorkloadId> {
        let later = self.slices.by_first.get(name).into_iter().flatten().copied();
        let goes_on = |id: &WorkloadId| self.wl(*id).is_some_and(|w| !w.obj.status.was_replaced());
        self.workloads.find(name).into_iter().chain(later).filter(goes_on)
    }

    /// The slice whose place a workload is to take, if it is there. A replacement that names a younger slice is
    /// ignored: so no workload that comes later changes what an earlier one is charged.
    pub(crate) fn old_slice(&self, id: WorkloadId) -> Option<WorkloadId> {
        let wl = self.wl(id)?;
        let old = wl.obj.replaces.as_ref().filter(|k| k.namespace == wl.obj.key.namespace)?;
        let older =
            |o: &WorkloadId| *o != id && self.wl(*o).is_some_and(|o| o.obj.creation <= wl.obj.creation);
        self.workloads.find(old).filter(older)
    }

    /// Whether a workload ended and holds nothing. A slice that replaces it replaces those that it replaced, too: their end
    /// may not be written yet.
    fn passed_on(&self, id: WorkloadId) -> bool {
        self.wl(id).is_some_and(|w| w.quota().is_none() && w.obj.status.is_true(cond::FINISHED))
    }

    /// The workloads that are to take the place of `old`, also of what stood between and has ended.
    fn claimants(&self, old: WorkloadId) -> BTreeSet<WorkloadId> {
        let (mut level, mut found) = (vec![old], BTreeSet::new());
        for _ in 0..MAX_CHAIN {
            let mut next = Vec::new();
            for at in level {
                let key = self.wl(at).map(|w| &w.obj.key);
                for &replacement in key.and_then(|k| self.slices.by_old.get(k)).into_iter().flatten() {
                    let claims = replacement != old && self.old_slice(replacement) == Some(at);
                    if claims && found.insert(replacement) && self.passed_on(replacement) {
                        next.push(replacement);
                    }
                }
            }
            level = next;
        }
        found
    }

    /// Of the workloads that are to take the place of `old`, the one that holds quota; of several, the first that got
    /// it. `with` counts as one that holds quota.
    fn replacement_with(&self, old: WorkloadId, with: Option<WorkloadId>) -> Option<WorkloadId> {
        if self.slices.by_old.is_empty() {
            return None;
        }
        let replacements = self.claimants(old);
        // In another ClusterQueue it has a quota of its own, and replaces none.
        let cq = self.reserved_in(self.wl(old)?);
        let same = |held: Option<ClusterQueueId>| held.is_some() && (cq.is_none() || held == cq);
        let holds = |&&h: &&WorkloadId| h != old && (Some(h) == with || same(self.cq_holding(h)));
        let since = |h: &WorkloadId| {
            let wl = self.wl(*h)?;
            let reserved = wl.obj.status.condition(cond::QUOTA_RESERVED).filter(|c| c.status)?;
            Some((reserved.transition, Arc::clone(wl.uid())))
        };
        replacements.iter().filter(holds).min_by_key(|h| (since(h).is_none(), since(h))).copied()
    }

    /// The workload that has taken the place of `old`.
    pub(crate) fn replacement(&self, old: WorkloadId) -> Option<WorkloadId> {
        self.replacement_with(old, None)
    }

    /// The slice whose place a workload is to take: the nearest before it that goes on.
    pub(crate) fn slice_before(&self, id: WorkloadId) -> Option<WorkloadId> {
        self.chain_before(id).into_iter().find(|&old| !self.passed_on(old))
    }

    /// What the slice that a pending workload may replace at once holds, unless it is `gone` in the present cycle. `None`: it has
    /// to be admitted in full.
    pub(crate) fn replaced_resources(
        &self,
        id: WorkloadId,
        cq: ClusterQueueId,
        gone: impl Fn(WorkloadId) -> bool,
    ) -> Option<Vec<PodSetResources>> {
        let old = self.slice_before(id)?;
        let wl = self.wl(old).filter(|w| self.reserved_in(w) == Some(cq))?;
        let leaving = wl.obj.status.is_true(cond::EVICTED) || self.replacement(old).is_some();
        (!leaving && !gone(old)).then(|| wl.total_requests().to_vec())
    }

    /// Whether no workload is to take the place of another one.
    pub(crate) fn slices_are_none(&self) -> bool {
        self.slices.by_old.is_empty()
    }

    /// Why a waiting workload has to wait for the other slices of its job.
    pub(crate) fn slice_waits(&self, id: WorkloadId) -> Option<String> {
        if self.replacement(id).is_some() {
            return Some("Another slice of the job has taken the place of this one".to_owned());
        }
        let before = self.slice_before(id)?;
        let old = self.wl(before)?;
        if old.quota().is_some() && old.obj.status.is_true(cond::EVICTED) {
            return Some(format!("The workload slice {} has to stop first", old.obj.key));
        }
        let grows = self.grows_against_request(id, before);
        grows.then(|| format!("The workload slice {} was asked to shrink", old.obj.key))
    }

    /// Whether a waiting workload is to take the place of one that has places on nodes and quota of another ClusterQueue. The pods
    /// of the old slice would stay where they are while others get these places.
    pub(crate) fn leaves_places(&self, id: WorkloadId, cq: ClusterQueueId) -> bool {
        if self.wl(id).is_none_or(|w| w.obj.replaces.is_none()) {
            return false;
        }
        let placed = |w: &WorkloadInfo| {
            self.reserved_in(w).is_some_and(|of| of != cq)
                && w.total_requests().iter().any(|t| !t.places.is_empty())
        };
        self.chain_before(id).into_iter().any(|old| self.wl(old).is_some_and(placed))
    }

    /// The slices before a workload, nearest first, up to the first that neither holds quota nor has ended. None if
    /// they go round in a circle, which only those of one second can: then each counts in full.
    pub(crate) fn chain_before(&self, id: WorkloadId) -> Vec<WorkloadId> {
        let (mut chain, mut at) = (Vec::new(), id);
        while let Some(old) = self.old_slice(at) {
            if old == id {
                return Vec::new();
            }
            if chain.len() == MAX_CHAIN || chain.contains(&old) {
                break;
            }
            chain.push(old);
            if self.wl(old).is_none_or(|w| w.quota().is_none()) && !self.passed_on(old) {
                break;
            }
            at = old;
        }
        chain
    }

    /// What of a workload's usage is charged already for the slices whose place it takes.
    pub(crate) fn charged_before(&self, id: WorkloadId, cq: ClusterQueueId) -> Vec<(FlavorResource, Amount)> {
        let (mut sum, mut replacement) = (Vec::new(), id);
        for old in self.chain_before(id) {
            if self.passed_on(old) {
                continue;
            }
            let Some(reservation) = self.quota_reservation(old).filter(|r| r.place == cq) else { break };
            if self.replacement_with(old, Some(replacement)) != Some(replacement) {
                break;
            }
            for &(fr, a) in &reservation.held.usage {
                super::quota::add_usage(&mut sum, fr, a);
            }
            replacement = old;
        }
        sum
    }

    /// A usage less what is charged already.
    pub(crate) fn uncharged(
        &self,
        id: WorkloadId,
        cq: ClusterQueueId,
        mut usage: Vec<(FlavorResource, Amount)>,
    ) -> Vec<(FlavorResource, Amount)> {
        for (fr, before) in self.charged_before(id, cq) {
            if let Some((_, a)) = usage.iter_mut().find(|(f, _)| *f == fr) {
                *a = a.sub(before).at_least_zero();
            }
        }
        usage
    }

    /// Recomputes the usage of all slices that replace this one, directly or not.
    pub(crate) fn recompute_replacements(&mut self, id: WorkloadId) {
        if self.slices.by_old.is_empty() || self.slices.settling {
            return;
        }
        self.slices.settling = true;
        // Of several that claim one place, another one may have it now.
        let (mut todo, mut seen) = (vec![id], BTreeSet::from([id]));
        let mut at = id;
        for _ in 0..=MAX_CHAIN {
            let Some(old) = self.old_slice(at) else { break };
            todo.push(old);
            at = old;
        }
        while let Some(at) = todo.pop() {
            let key = self.wl(at).map(|w| &w.obj.key);
            let next: Vec<WorkloadId> =
                key.and_then(|k| self.slices.by_old.get(k)).into_iter().flatten().copied().collect();
            for replacement in next {
                // Also those that hold nothing lead on: with them a circle may have closed or opened.
                if seen.insert(replacement) {
                    self.recompute_usage_of(replacement);
                    todo.push(replacement);
                }
            }
        }
        self.slices.settling = false;
    }

    /// Charges what a workload holds anew. It goes on holding it, also while the end of its reservation is on its way.
    fn recompute_usage_of(&mut self, id: WorkloadId) {
        let Some(wl) = self.wl(id) else { return };
        let (Some(cq), total_requests) = (self.reserved_in(wl), wl.total_requests().to_vec()) else { return };
        let usage = self.usage_of(&total_requests);
        let usage = self.uncharged(id, cq, usage);
        if self.ids.columns() > self.tree.columns() {
            self.tree_dirty = true;
        }
        self.recharge(id, &usage);
    }

    /// Finishes a slice whose place was taken, as soon as the API has the reservation of the other. Whether there is
    /// nothing more to do for it.
    pub(crate) fn reconcile_replaced(&mut self, id: WorkloadId, now: Time) -> bool {
        for old in self.chain_before(id) {
            if self.replacement(old) == Some(id) {
                self.dirty.workloads.insert(old);
            }
        }
        let Some(replacement) = self.replacement(id).and_then(|h| self.wl(h)) else { return false };
        if !Phase::of(replacement.obj.shown()).holds_quota() {
            return false;
        }
        let message = format!(
            "Replaced to accommodate a workload (UID: {}, JobUID: {}) due to workload slice aggregation",
            replacement.obj.uid, replacement.obj.job_uid
        );
        let events = vec![KubernetesEvent::of_scheduler(false, REPLACED, message.clone())];
        self.edit(id, now, events, |e| {
            e.set(cond::FINISHED, true, REPLACED, &message);
        });
        true
    }

    /// Whether the API still shows a slice that this one has replaced as one that goes on. If this one lost its quota by
    /// then, its job would start again with the other one, whose end is on its way.
    pub(crate) fn ends_after_replaced(&self, id: WorkloadId) -> bool {
        let goes_on = |old: WorkloadId| self.wl(old).is_some_and(|w| !w.obj.shown().is_true(cond::FINISHED));
        self.chain_before(id).into_iter().any(|old| goes_on(old) && self.replacement(old) == Some(id))
    }

    /// Compares what slices are charged with a computation from their objects.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check_slices(&self) {
        assert!(!self.slices.settling, "charges of slices left half done");
        for (id, wl) in self.workloads.iter() {
            if let Some(old) = &wl.obj.replaces {
                let known = self.slices.by_old.get(old).is_some_and(|s| s.contains(&id));
                assert!(known, "{}: not in the index of slices", wl.obj.key);
            }
            if let Some((_, Some(first))) = self.slice_names(id) {
                let known = self.slices.by_first.get(&first).is_some_and(|s| s.contains(&id));
                assert!(known, "{}: not among the slices of {first}", wl.obj.key);
            }
            let (Some(reservation), Some(_)) = (self.quota_reservation(id), &wl.obj.replaces) else {
                continue;
            };
            let cq = reservation.place;
            let mut full: Vec<(FlavorResource, Amount)> = Vec::new();
            for t in wl.total_requests() {
                for &(res, amount) in &t.requests {
                    let flavor = t.flavors.iter().find(|(r, _)| *r == res).map(|(_, f)| *f);
                    if let Some(fr) = flavor.and_then(|f| self.ids.find_pair(f, res)) {
                        super::quota::add_usage(&mut full, fr, Amount(amount));
                    }
                }
            }
            assert_eq!(
                reservation.held.usage,
                self.uncharged(id, cq, full),
                "{}: charge of a slice",
                wl.obj.key
            );
        }
    }

    /// Leaves out what counts only with gates that are off.
    pub(crate) fn drop_disabled_fields(&self, w: &mut Workload) {
        let gates = &self.config.gates;
        if !gates.elastic_jobs || w.replaces.as_ref().is_some_and(|old| old.namespace != w.key.namespace) {
            w.replaces = None;
            w.first_slice.clear();
        }
        w.partial_preemption &= gates.partial_preemption;
        if !gates.priority_boost {
            w.priority_boost = 0;
        }
        if !gates.preemption_gates && !gates.concurrent_admission {
            w.preemption_gates.clear();
        }
        if !gates.configurable_preemptions {
            w.labels.clear();
        }
        if !gates.concurrent_admission {
            w.has_variants = false;
            w.variant_of.clear();
            w.allowed_flavors = None;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
