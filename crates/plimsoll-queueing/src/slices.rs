//! Elastic jobs: a workload (a *slice*) that takes the place of an older one of the same job (Kueue KEP-77, spec
//! section 2.13).
//!
//! The replacement is admitted with the flavors of the old slice for the difference only, and the old slice is
//! finished once the API is known to have the reservation of its replacement. While both hold quota, the two together
//! are charged what the larger of them needs, column by column. So at every moment as much is charged as there may be
//! pods, and never twice.

use std::collections::{BTreeMap, BTreeSet};

use super::account::Phase;
use super::amount::Amount;
use super::ids::Fr;
use super::model::{Workload, WorkloadKey};
use super::pending::WlId;
use super::state::{CqId, Queueing, Total, Wl};
use super::{Note, cond};
use plimsoll_state::time::Time;

/// Reason of the condition Finished of a slice whose replacement was admitted.
pub(crate) const REPLACED: &str = "WorkloadSliceReplaced";
/// How many slices are followed, back and forth. Of a job's slices two hold quota, for moments three; those whose end
/// is written stay as objects, as many as the job was scaled up, and are of interest only next to one that holds.
const MAX_CHAIN: usize = 16;

/// Who is to take whose place.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    /// Workloads by the one they are to replace.
    by_old: BTreeMap<WorkloadKey, BTreeSet<WlId>>,
    /// Workloads whose place was taken in the present cycle.
    pub(super) taken: BTreeSet<WlId>,
    /// Whether charges are being brought in line.
    settling: bool,
}

/// Whether a workload ended because another slice took its place, and so says nothing of its job.
pub(crate) fn was_replaced(status: &super::WorkloadStatus) -> bool {
    status.condition(cond::FINISHED).is_some_and(|c| c.status && c.reason == REPLACED)
}

impl Queueing {
    /// Takes a new or changed workload into the index.
    pub(crate) fn slice_register(&mut self, id: WlId) {
        let old = self.wl(id).and_then(|w| w.obj.replaces.clone());
        if let Some(old) = old {
            self.slices.by_old.entry(old).or_default().insert(id);
        }
    }

    /// Takes a workload out of the index.
    pub(crate) fn slice_forget(&mut self, id: WlId) {
        let Some(old) = self.wl(id).and_then(|w| w.obj.replaces.clone()) else { return };
        if let Some(set) = self.slices.by_old.get_mut(&old) {
            set.remove(&id);
            if set.is_empty() {
                self.slices.by_old.remove(&old);
            }
        }
    }

    /// The slice whose place a workload is to take, if it is there. Who claims the place of a younger one claims
    /// nothing: so no workload that comes later changes what an earlier one is charged.
    pub(crate) fn old_slice(&self, id: WlId) -> Option<WlId> {
        let wl = self.wl(id)?;
        let old = wl.obj.replaces.as_ref().filter(|k| k.namespace == wl.obj.key.namespace)?;
        let older = |o: &WlId| *o != id && self.wl(*o).is_some_and(|o| o.obj.creation <= wl.obj.creation);
        self.wl_by_key.get(old).copied().filter(older)
    }

    /// Whether a workload ended and holds nothing. Who takes its place takes the places it had taken, too: their end
    /// may not be written yet.
    fn passed_on(&self, id: WlId) -> bool {
        self.wl(id).is_some_and(|w| w.held.is_none() && w.obj.status.is_true(cond::FINISHED))
    }

    /// The workloads that are to take the place of `old`, also of what stood between and has ended.
    fn claimants(&self, old: WlId) -> BTreeSet<WlId> {
        let (mut level, mut found) = (vec![old], BTreeSet::new());
        for _ in 0..MAX_CHAIN {
            let mut next = Vec::new();
            for at in level {
                let key = self.wl(at).map(|w| &w.obj.key);
                for &heir in key.and_then(|k| self.slices.by_old.get(k)).into_iter().flatten() {
                    let claims = heir != old && self.old_slice(heir) == Some(at);
                    if claims && found.insert(heir) && self.passed_on(heir) {
                        next.push(heir);
                    }
                }
            }
            level = next;
        }
        found
    }

    /// Of the workloads that are to take the place of `old`, the one that holds quota; of several, the first that got
    /// it. `with` counts as one that holds quota.
    fn heir_with(&self, old: WlId, with: Option<WlId>) -> Option<WlId> {
        if self.slices.by_old.is_empty() {
            return None;
        }
        let heirs = self.claimants(old);
        // In another ClusterQueue it has a quota of its own, and takes nobody's place.
        let cq = self.wl(old)?.held;
        let same = |held: Option<CqId>| held.is_some() && (cq.is_none() || held == cq);
        let holds = |&&h: &&WlId| h != old && (Some(h) == with || self.wl(h).is_some_and(|w| same(w.held)));
        let since = |h: &WlId| {
            let wl = self.wl(*h)?;
            let reserved = wl.obj.status.condition(cond::QUOTA_RESERVED).filter(|c| c.status)?;
            Some((reserved.transition, wl.uid.clone()))
        };
        heirs.iter().filter(holds).min_by_key(|h| (since(h).is_none(), since(h))).copied()
    }

    /// The workload that has taken the place of `old`.
    pub(crate) fn heir(&self, old: WlId) -> Option<WlId> {
        self.heir_with(old, None)
    }

    /// What the slice that a waiting workload may replace at once holds. `None`: it has to be admitted in full.
    pub(crate) fn replaced_totals(&self, id: WlId, cq: CqId) -> Option<Vec<Total>> {
        let chain = self.chain_before(id);
        let old = chain.iter().copied().find(|&o| !self.passed_on(o))?;
        let wl = self.wl(old).filter(|w| w.held == Some(cq) && !w.hidden)?;
        let leaving = wl.obj.status.is_true(cond::EVICTED) || self.heir(old).is_some();
        (!leaving && !self.slices.taken.contains(&old)).then(|| wl.totals.clone())
    }

    /// Why a waiting workload has to wait for the other slices of its job.
    pub(crate) fn slice_waits(&self, id: WlId) -> Option<String> {
        if self.heir(id).is_some() {
            return Some("Another slice of the job has taken the place of this one".to_owned());
        }
        let old = self.chain_before(id).into_iter().find(|&old| !self.passed_on(old))?;
        let old = self.wl(old)?;
        let leaves = old.held.is_some() && old.obj.status.is_true(cond::EVICTED);
        leaves.then(|| format!("The workload slice {} has to stop first", old.obj.key))
    }

    /// Whether a waiting workload is to take the place of one that has places on nodes. The webhook refuses such jobs if
    /// they ask for a topology, but a ClusterQueue of nothing but flavors with topologies gives places to everybody.
    /// The pods of the old slice would stay where they are while others get these places.
    pub(crate) fn replaces_places(&self, id: WlId) -> bool {
        if self.wl(id).is_none_or(|w| w.obj.replaces.is_none()) {
            return false;
        }
        let placed = |w: &Wl| w.held.is_some() && w.totals.iter().any(|t| !t.places.is_empty());
        self.chain_before(id).into_iter().any(|old| self.wl(old).is_some_and(placed))
    }

    /// The slices before a workload, nearest first, up to the first that neither holds quota nor has ended. None if
    /// they go round in a circle, which only those of one second can: then each counts in full.
    pub(crate) fn chain_before(&self, id: WlId) -> Vec<WlId> {
        let (mut chain, mut at) = (Vec::new(), id);
        while let Some(old) = self.old_slice(at) {
            if old == id {
                return Vec::new();
            }
            if chain.len() == MAX_CHAIN || chain.contains(&old) {
                break;
            }
            chain.push(old);
            if self.wl(old).is_none_or(|w| w.held.is_none()) && !self.passed_on(old) {
                break;
            }
            at = old;
        }
        chain
    }

    /// What of a workload's usage is charged already for the slices whose place it takes.
    pub(crate) fn charged_before(&self, id: WlId, cq: CqId) -> Vec<(Fr, Amount)> {
        let (mut sum, mut heir) = (Vec::new(), id);
        for old in self.chain_before(id) {
            if self.passed_on(old) {
                continue;
            }
            let Some(wl) = self.wl(old).filter(|w| w.held == Some(cq)) else { break };
            if self.heir_with(old, Some(heir)) != Some(heir) {
                break;
            }
            for &(fr, a) in &wl.usage {
                super::account::add_usage(&mut sum, fr, a);
            }
            heir = old;
        }
        sum
    }

    /// A usage less what is charged already.
    pub(crate) fn uncharged(&self, id: WlId, cq: CqId, mut usage: Vec<(Fr, Amount)>) -> Vec<(Fr, Amount)> {
        for (fr, before) in self.charged_before(id, cq) {
            if let Some((_, a)) = usage.iter_mut().find(|(f, _)| *f == fr) {
                *a = a.sub(before).at_least_zero();
            }
        }
        usage
    }

    /// Charges anew everybody who takes the place of a workload whose charge has changed, directly or not.
    pub(crate) fn recharge_heirs(&mut self, id: WlId) {
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
            let next: Vec<WlId> =
                key.and_then(|k| self.slices.by_old.get(k)).into_iter().flatten().copied().collect();
            for heir in next {
                // Also those that hold nothing lead on: with them a circle may have closed or opened.
                if seen.insert(heir) {
                    self.recharge(heir);
                    todo.push(heir);
                }
            }
        }
        self.slices.settling = false;
    }

    /// Charges what a workload holds anew. It goes on holding it, also while the end of its reservation is on its way.
    fn recharge(&mut self, id: WlId) {
        let Some((cq, totals)) = self.wl(id).and_then(|w| Some((w.held?, w.totals.clone()))) else { return };
        let usage = self.usage_of(&totals);
        let usage = self.uncharged(id, cq, usage);
        if self.ids.columns() > self.tree.columns() {
            self.tree_dirty = true;
        }
        let Some(wl) = self.wl_mut(id).filter(|w| w.usage != usage) else { return };
        let (lq, admitted) = (wl.lq, wl.counted_admitted);
        let before = std::mem::replace(&mut wl.usage, usage.clone());
        self.cq_mut(cq).generation += 1;
        self.book(cq, lq, &before, admitted, false);
        self.book(cq, lq, &usage, admitted, true);
    }

    /// Finishes a slice whose place was taken, as soon as the API has the reservation of the other. Whether there is
    /// nothing more to do for it.
    pub(crate) fn reconcile_replaced(&mut self, id: WlId, now: Time) -> bool {
        for old in self.chain_before(id) {
            if self.heir(old) == Some(id) {
                self.dirty.insert(old);
            }
        }
        let Some(heir) = self.heir(id).and_then(|h| self.wl(h)) else { return false };
        let shown = heir.base.as_deref().unwrap_or(&heir.obj.status);
        if !Phase::of(shown).holds_quota() {
            return false;
        }
        let message = format!(
            "Replaced to accommodate a workload (UID: {}, JobUID: {}) due to workload slice aggregation",
            heir.obj.uid, heir.obj.job_uid
        );
        let notes = vec![Note { warning: false, reason: REPLACED.into(), message: message.clone() }];
        self.edit(id, now, notes, |e| {
            e.set(cond::FINISHED, true, REPLACED, &message);
        });
        true
    }

    /// Compares what slices are charged with a computation from their objects.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check_slices(&self) {
        assert!(!self.slices.settling, "charges of slices left half done");
        for (id, wl) in (0u32..).zip(&self.wls) {
            let Some(wl) = wl else { continue };
            if let Some(old) = &wl.obj.replaces {
                let known = self.slices.by_old.get(old).is_some_and(|s| s.contains(&id));
                assert!(known, "{}: not in the index of slices", wl.obj.key);
            }
            let (Some(cq), Some(_)) = (wl.held, &wl.obj.replaces) else { continue };
            let mut full: Vec<(Fr, Amount)> = Vec::new();
            for t in &wl.totals {
                for &(res, amount) in &t.requests {
                    let flavor = t.flavors.iter().find(|(r, _)| *r == res).map(|(_, f)| *f);
                    if let Some(fr) = flavor.and_then(|f| self.ids.find_pair(f, res)) {
                        super::account::add_usage(&mut full, fr, Amount(amount));
                    }
                }
            }
            assert_eq!(wl.usage, self.uncharged(id, cq, full), "{}: charge of a slice", wl.obj.key);
        }
    }

    /// Leaves out what counts only with gates that are off.
    pub(crate) fn honour_gates(&self, w: &mut Workload) {
        let gates = &self.config.gates;
        if !gates.elastic_jobs || w.replaces.as_ref().is_some_and(|old| old.namespace != w.key.namespace) {
            w.replaces = None;
        }
        if !gates.priority_boost {
            w.priority_boost = 0;
        }
        if !gates.preemption_gates {
            w.preemption_gates.clear();
        }
    }
}

#[cfg(test)]
mod tests;
