//! Nodes in flavor assignment: a flavor whose nodes have no capacity for the pods counts as one without quota.
//!
//! Where quota fits, the pods are placed in a dry run, with what the flavor adds to them, beside those of the podsets before.
//! The dry runs of a nomination are kept until its entry is processed, so that no node is searched for twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Cycle;
use super::assign::{Assignment, FlavorAssignment, Member, Mode, Refusal, Search};
use super::claim_order::ClaimRank;
use super::joint::all_can_be_reserved;
use super::remembered::Remembered;
use crate::Queueing;
use crate::ids::{ClusterQueueId, FlavorId, SchedulingHashId, WorkloadId};
use crate::pod_sets::looks_at_pods;
use crate::tas::set_places;
use plimsoll_state::reservation::{DryRunFailure, DryRunId};

/// A podset with its number of pods and its flavors.
pub(super) type Choice = (usize, i32, Vec<FlavorId>);

/// A scheduling hash, its choices, and the workload right before that claims nodes.
pub(super) type Tried = (SchedulingHashId, Vec<Choice>, Option<String>);

/// Dry runs that failed: a workload of the same scheduling hash with the same choices fails, too, until there is more capacity
/// on a node on which one of its pods could be.
#[derive(Debug, Default)]
pub(crate) struct FailedDryRuns {
    /// Of the capacity up to which it fails, and why.
    messages: Remembered<Tried, (u64, Arc<str>)>,
    /// Searches for victims that failed, with the capacity and the changes up to which they fail, and whether nodes lacked
    /// capacity.
    searches: Remembered<VictimSearch, (u64, u64, bool)>,
    /// Topologies in which no places pass all filters, with the capacity and the changes up to which that is so.
    refused: Remembered<Tried, (u64, u64, Refusal)>,
    /// How many searches for victims there were.
    searched: u64,
}

impl FailedDryRuns {
    /// Forgets everything: claims on nodes or flavors have changed.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.searches.clear();
        self.refused.clear();
    }

    /// An attempt has ended.
    pub(super) fn end_attempt(&mut self, put_off: bool) {
        self.messages.end_attempt(put_off);
        self.searches.end_attempt(put_off);
        self.refused.end_attempt(put_off);
    }
}

/// The dry runs of a cycle.
#[derive(Debug, Default)]
pub(super) struct DryRuns {
    /// Number of the present assignment.
    number: u64,
    /// Of the groups of podsets that have their flavors; they stand.
    standing: Vec<DryRunId>,
    /// Of the group that is looked at, with the flavors that it has so far; it stands.
    group: Option<DryRunId>,
    /// What `standing` was made for.
    choices: Vec<Choice>,
    /// Whether some of the pods have no dry run.
    incomplete: bool,
    /// Whether a podset before needs preemption: what nodes have then is not known.
    preempts: bool,
    /// Whether the pods have nodes, but none was chosen, since a topology will name others.
    unchosen: bool,
    /// While a claim is planned: a podset by index, and the nodes that don't take its pods even once all workloads have left.
    pub(super) unusable_alone: Option<(usize, Vec<String>)>,
    /// Flavors without capacity in their topologies, of the present assignment.
    pub(super) refused: Vec<Refusal>,
    /// What nominations found; lifted.
    found: BTreeMap<WorkloadId, Vec<DryRunId>>,
    /// The claims that workloads overtake with what their nominations found.
    pub(super) overtaken: BTreeMap<WorkloadId, Vec<ClaimRank>>,
    /// Workloads that got the places that they had claimed.
    pub(super) claimed: BTreeSet<WorkloadId>,
    /// Whether the present one is tried so.
    pub(super) overtakes: bool,
    /// The workload right before the present one that claims nodes.
    pub(super) claimant: Option<String>,
    /// Whether nodes were reserved, or claimed, since the nominations.
    pub(super) others_placed: bool,
    /// Whether a dry run of the present workload failed by the labels of its pods, which scheduling hashes leave out.
    pub(super) by_labels: bool,
    /// Whether victims of entries before are off their nodes: what failed beside them may fit.
    pub(super) victims_removed: bool,
}

/// A search for victims: what it is for, in which ClusterQueue, and whether quota is enough without victims.
pub(super) type VictimSearch = (Tried, ClusterQueueId, bool);

impl Cycle<'_> {
    /// A search for victims that is to be made, where its failure may be remembered.
    pub(super) fn victim_search(
        &self,
        s: &Search<'_>,
        own: Vec<Choice>,
        has_quota: bool,
    ) -> Option<VictimSearch> {
        let wl = self.state.wl(s.id)?;
        let mut members = s.group.iter().filter_map(|m| wl.obj.pod_sets.get(m.index));
        if self.dry_runs.victims_removed
            || self.dry_runs.overtakes
            || self.admitted > 0
            || !self.preempted.is_empty()
            || members.any(|p| looks_at_pods(&p.spec))
        {
            return None;
        }
        let mut choices = self.dry_runs.choices.clone();
        choices.extend(own);
        Some(((wl.scheduling_hash(), choices, self.dry_runs.claimant.clone()), s.cq, has_quota))
    }

    /// Whether a search failed before and nothing has changed since that could help; then also whether nodes lacked capacity.
    pub(super) fn failed_before(&self, search: &VictimSearch) -> Option<bool> {
        let version = self.nodes.as_ref()?.capacity_version();
        let (capacity, changes, lacked) = *self.failed.searches.get(search)?;
        ((capacity, changes) == (version, self.state.joint.changes)).then_some(lacked)
    }

    /// A search has failed.
    pub(super) fn remember_failure(&mut self, search: VictimSearch, lacked: bool) {
        let nodes = self.nodes.as_ref().filter(|n| !n.attempt_is_put_off());
        let Some(version) = nodes.map(|n| n.capacity_version()) else { return };
        self.failed.searches.insert(search, (version, self.state.joint.changes, lacked));
    }

    /// Counts a search.
    pub(super) fn count_victim_search(&mut self) {
        self.failed.searched += 1;
    }
}

impl Queueing {
    /// How many searches for victims on nodes there were.
    pub fn victim_searches(&self) -> u64 {
        self.joint.failed.searched
    }
}

impl DryRuns {
    /// What the groups of podsets that have their flavors were tried with.
    pub(super) fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// A dry run of all pods of the present assignment stands.
    pub(super) fn stand(&mut self, run: DryRunId) {
        self.unchosen = false;
        self.standing.push(run);
    }

    /// What the nomination of a workload found.
    pub(super) fn take(&mut self, id: WorkloadId) -> Vec<DryRunId> {
        self.found.remove(&id).unwrap_or_default()
    }
}

impl Cycle<'_> {
    /// Ends dry runs.
    pub(super) fn end_dry_runs(&mut self, runs: &[DryRunId]) {
        if let Some(nodes) = self.nodes.as_mut() {
            runs.iter().rev().for_each(|&run| nodes.end(run));
        }
    }

    /// Puts back what a nomination found; whether all of it still fits.
    pub(super) fn restore_dry_runs(&mut self, runs: &[DryRunId]) -> bool {
        let checked = self.dry_runs.others_placed;
        self.nodes.as_mut().is_some_and(|nodes| runs.iter().all(|&run| nodes.restore(run, checked)))
    }

    /// Begins an assignment; gives its number.
    pub(super) fn begin_dry_runs(&mut self) -> u64 {
        self.drop_dry_runs();
        self.dry_runs.number += 1;
        self.dry_runs.number
    }

    /// Ends what stands: other places are tried for the present assignment.
    pub(super) fn end_standing(&mut self) {
        let standing = std::mem::take(&mut self.dry_runs.standing);
        self.end_dry_runs(&standing);
    }

    /// The refusal of these choices, if nothing has changed since that could help.
    pub(super) fn refused_before(&self, tried: &Tried) -> Option<Refusal> {
        let version = self.nodes.as_ref()?.capacity_version();
        let (capacity, changes, refusal) = self.failed.refused.get(tried)?;
        ((*capacity, *changes) == (version, self.state.joint.changes)).then(|| refusal.clone())
    }

    /// No places pass.
    pub(super) fn remember_refusal(&mut self, tried: Tried, refusal: &Refusal) {
        let nodes = self.nodes.as_ref().filter(|n| !n.attempt_is_put_off());
        let Some(version) = nodes.map(|n| n.capacity_version()) else { return };
        self.failed.refused.insert(tried, (version, self.state.joint.changes, refusal.clone()));
    }

    /// Why a flavor counts as one without capacity for the podsets of a search, if places in its topology were tried.
    pub(super) fn refusal(&self, s: &Search<'_>, tried: &[FlavorAssignment]) -> Option<String> {
        let mut refused = self.dry_runs.refused.iter();
        let refusal = refused.find(|r| {
            s.group.iter().any(|m| m.index == r.index) && tried.iter().any(|f| f.flavor == r.flavor)
        })?;
        Some(refusal.text.clone())
    }

    /// Number of the present assignment.
    pub(super) fn dry_runs_number(&self) -> u64 {
        self.dry_runs.number
    }

    /// Whether it is not known what nodes have for the podsets before.
    pub(super) fn dry_runs_incomplete(&self) -> bool {
        self.dry_runs.preempts || self.dry_runs.incomplete
    }

    pub(super) fn drop_dry_runs(&mut self) {
        let runs = &mut self.dry_runs;
        let mut standing = std::mem::take(&mut runs.standing);
        standing.extend(runs.group.take());
        runs.choices.clear();
        (runs.incomplete, runs.preempts, runs.unchosen) = (false, false, false);
        self.end_dry_runs(&standing);
    }

    /// Keeps what the nomination of a workload found, if that is what the assignment needs. One that preempts gets the places in
    /// topologies where its pods have nodes.
    pub(super) fn keep_dry_runs(&mut self, id: WorkloadId, assignment: &mut Assignment) {
        let before = self.dry_runs.take(id);
        self.end_dry_runs(&before);
        let runs = &mut self.dry_runs;
        let complete = !runs.incomplete && !runs.unchosen;
        if assignment.mode() == Mode::Fit && assignment.dry_runs == runs.number && complete {
            let found = std::mem::take(&mut runs.standing);
            if let Some(nodes) = self.nodes.as_mut() {
                found.iter().rev().for_each(|&run| nodes.lift(run));
            }
            self.dry_runs.found.insert(id, found);
        } else if assignment.mode() == Mode::Preempt
            && let Some((run, places)) = self.take_found_nodes(assignment)
        {
            set_places(assignment, places);
            self.dry_runs.found.insert(id, vec![run]);
        }
        self.drop_found_nodes();
        self.drop_dry_runs();
    }

    /// Ends what the nominations of the cycle found for entries that were not admitted.
    pub(super) fn drop_found_dry_runs(&mut self) {
        for (_, runs) in std::mem::take(&mut self.dry_runs.found) {
            self.end_dry_runs(&runs);
        }
    }

    /// Places the pods of the podsets of a search with a flavor whose quota fits, and those found for their other
    /// resources. `None`: what nodes have does not decide; a cluster autoscaler may add some.
    ///
    /// # Errors
    /// Why not all of them fit on nodes now.
    pub(super) fn dry_run(
        &mut self,
        s: &Search<'_>,
        tried: &[FlavorAssignment],
    ) -> Result<Option<DryRunId>, String> {
        let result = self.try_nodes(s, tried);
        let Err(lacking) = result else { return result };
        let provisioned = self.admission_tried(s, tried).filter(|(a, _)| self.state.is_autoscaled(a));
        let Some((admission, _)) = provisioned else { return Err(lacking) };
        match self.fit_new_nodes(s.id, &admission) {
            Ok(()) => Ok(None),
            Err(why) => Err(format!("{lacking} {why}")),
        }
    }

    fn try_nodes(&mut self, s: &Search<'_>, tried: &[FlavorAssignment]) -> Result<Option<DryRunId>, String> {
        let Some(version) = self.nodes.as_ref().map(|n| n.capacity_version()) else { return Ok(None) };
        let Some(wl) = self.state.wl(s.id) else { return Ok(None) };
        if self.is_put_off() {
            return Err(String::new());
        }
        if let Some(text) = self.refusal(s, tried) {
            return Err(text);
        }
        if self.dry_runs.preempts || s.replaced.is_some() || wl.quota().is_some() || !all_can_be_reserved(wl)
        {
            return Ok(None);
        }
        let Some((admission, own)) = self.admission_tried(s, tried) else { return Ok(None) };
        let members = s.group.iter().filter_map(|m| wl.obj.pod_sets.get(m.index));
        let known = !self.dry_runs.victims_removed
            && !self.dry_runs.overtakes
            && !members.fold(false, |any, p| any | looks_at_pods(&p.spec));
        let mut choices = self.dry_runs.choices.clone();
        let alone = choices.is_empty();
        choices.extend(own);
        if !self.state.checks_of(s.cq, Some(&admission)).is_empty() {
            return Ok(None);
        }
        let failed = (wl.scheduling_hash(), choices, self.dry_runs.claimant.clone());
        let before = self.failed.messages.get(&failed).filter(|_| known).cloned();
        if let Some((_, message)) = before.as_ref().filter(|(v, _)| *v == version) {
            return Err(message.to_string());
        }
        // Whether its only podset gets other nodes than those of a dry run.
        let chosen_by_topology = wl.obj.pod_sets.len() == 1
            && self.state.tas_view().is_placed_by_topology(&wl.obj.pod_sets[0], s.cq, &admission);
        let (key, pods) = (wl.obj.key.clone(), self.state.pods_of(wl, &admission));
        let Some(nodes) = self.nodes.as_mut() else { return Ok(None) };
        // Where podsets before may be elsewhere now, more than freed nodes counts.
        if let Some((since, message)) = before.filter(|_| alone)
            && !nodes.could_help(since, &pods)
        {
            self.failed.messages.insert(failed, (version, Arc::clone(&message)));
            return Err(message.to_string());
        }
        if chosen_by_topology
            && let [(pod, count)] = &pods[..]
            && nodes.fits_anywhere(self.now, pod, *count)
        {
            let run = nodes.dry_run(self.now, &key, &[]).0;
            nodes.lift(run);
            self.dry_runs.unchosen = true;
            return Ok(Some(run));
        }
        let (run, result) = nodes.dry_run(self.now, &key, &pods);
        if let Err(DryRunFailure { mut message, by_labels }) = result {
            nodes.end(run);
            if nodes.attempt_is_put_off() {
                return Err(message);
            }
            self.dry_runs.by_labels |= by_labels;
            if let Some(claimant) = &self.dry_runs.claimant {
                message.push_str(&format!(" {claimant} waits for nodes before it."));
            }
            if known && !by_labels {
                self.failed.messages.insert(failed, (version, message.as_str().into()));
            }
            return Err(message);
        }
        nodes.lift(run);
        Ok(Some(run))
    }

    /// Lifts the dry run of the group so far, while its pods are tried with another flavor.
    pub(super) fn lift_group(&mut self) -> Option<DryRunId> {
        let group = self.dry_runs.group.take();
        if let (Some(run), Some(nodes)) = (group, self.nodes.as_mut()) {
            nodes.lift(run);
        }
        group
    }

    /// Puts the dry run with the flavor that was chosen in place of the one before, and ends the others.
    pub(super) fn choose_dry_run(
        &mut self,
        before: Option<DryRunId>,
        tried: Vec<(FlavorId, DryRunId)>,
        chosen: Option<FlavorId>,
    ) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        before.into_iter().for_each(|run| nodes.end(run));
        for (flavor, run) in tried {
            if chosen == Some(flavor) {
                nodes.restore(run, false);
                self.dry_runs.group = Some(run);
            } else {
                nodes.end(run);
            }
        }
    }

    /// A group of podsets has its flavors.
    pub(super) fn close_dry_run(&mut self, group: &[Member], flavors: &[FlavorAssignment]) {
        let runs = &mut self.dry_runs;
        runs.preempts |= flavors.iter().any(|f| f.mode != Mode::Fit);
        let Some(run) = runs.group.take() else {
            runs.incomplete = true;
            return;
        };
        runs.standing.push(run);
        for m in group {
            let asks = |f: &&FlavorAssignment| m.total.requests.iter().any(|(r, _)| *r == f.res);
            let chosen = flavors.iter().filter(asks).map(|f| f.flavor).collect();
            runs.choices.push((m.index, m.total.count, chosen));
        }
    }
}
