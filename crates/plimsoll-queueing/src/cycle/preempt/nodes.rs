//! Nodes in preemption (joint admission): victims are those without which the pods of the preemptor have nodes as well as
//! quota. Candidates are Kueue's, in Kueue's order. A candidate that is not needed for quota goes for nodes only, where
//! kube-scheduler's rules hold: it is of a strictly lower priority, and so are its pods; those whose budgets would be violated
//! are spared if others help.

use super::PreemptionContext;
use crate::amount::Amount;
use crate::cond;
use crate::cycle::Cycle;
use crate::cycle::assign::{Assignment, FlavorAssignment, Mode, Possibility, Search};
use crate::cycle::dry_runs::Choice;
use crate::cycle::joint::can_wait_for_others;
use crate::cycle::places::Places;
use crate::cycle::victim::{Lacking, Reason, Target};
use crate::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::model::{Admission, PodSetAssignment, PreemptionPolicy, WorkloadKey};
use crate::tas::TasRequests;
use plimsoll_state::model::{Pod, PreemptionPolicy as PodPreemptionPolicy, Protection};
use plimsoll_state::reservation::DryRunId;
use std::collections::BTreeSet;

/// The pods that need nodes.
#[derive(Debug)]
pub(in crate::cycle) struct NodesNeeded {
    key: WorkloadKey,
    pods: Vec<(Pod, usize)>,
    /// The flavors that these are for.
    pub(super) admission: Admission,
    priority: i64,
}

/// What the present search has done to nodes, and what the last one found.
#[derive(Debug, Default)]
pub(in crate::cycle) struct NodeSearch {
    /// The pods that have a node so far; it stands.
    pub(super) run: Option<DryRunId>,
    /// Workloads that are removed.
    pub(super) removed: Vec<WorkloadKey>,
    /// Whether workloads whose budgets would be violated are left out.
    within_budgets: bool,
    /// Whether one was left out for that.
    spared: bool,
    /// Whether quota is enough and only nodes are missing: Kueue knows no such search, and those go first whose work is the
    /// smallest loss.
    pub(super) only_nodes: bool,
    /// Whether there was quota for the present assignment without some victims, and there were not enough nodes.
    pub(in crate::cycle) lacked: bool,
    /// The places in topologies that `run` is for.
    pub(super) places: Places,
    /// Where the pods of the preemptor fit once the victims have left, and for which assignment; lifted.
    found: Option<(u64, DryRunId, Places)>,
}

impl Cycle<'_> {
    /// The pods of an assignment, where nodes decide about it; `None` where they don't, or aren't known.
    pub(super) fn nodes_needed(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        a: &Assignment,
    ) -> Option<NodesNeeded> {
        if self.nodes.is_none() || a.replaced.is_some() {
            return None;
        }
        let admission = self.state.admission_of(cq, a);
        let needed = self.pods_needed(id, cq, &admission)?;
        // Its own dry runs are in the way.
        self.drop_dry_runs();
        Some(needed)
    }

    fn pods_needed(&self, id: WorkloadId, cq: ClusterQueueId, admission: &Admission) -> Option<NodesNeeded> {
        let wl = self.state.wl(id).filter(|w| w.quota().is_none() && can_wait_for_others(w))?;
        if !self.state.checks_of(cq, Some(admission)).is_empty() || self.state.is_autoscaled(admission) {
            return None;
        }
        let (key, pods) = (wl.obj.key.clone(), self.state.pods_of(wl, admission));
        // A template names a class; the priority of that is the workload's, unless it has one of its own.
        let highest = pods.iter().map(|(p, _)| i64::from(p.spec.priority)).max().unwrap_or(0);
        let (admission, priority) = (admission.clone(), highest.max(wl.obj.effective_priority()));
        Some(NodesNeeded { key, pods, admission, priority })
    }

    /// How workloads could be preempted so that the podsets of a search have nodes in these flavors, and quota beside
    /// `assumed`, which the podsets before them took; `None`: no preemption would help.
    pub(in crate::cycle) fn preempt_for_nodes(
        &mut self,
        s: &Search<'_>,
        tried: &[FlavorAssignment],
        assumed: &[(FlavorResource, Amount)],
        has_quota: bool,
    ) -> Option<Possibility> {
        let rules = self.state.cq(s.cq).rules.preemption;
        let never = PreemptionPolicy::Never;
        let ruled = self.state.cq(s.cq).rules.preemption_config.is_some();
        if self.nodes.is_none()
            || self.is_put_off()
            || self.dry_runs_incomplete()
            || (rules.within_cluster_queue == never && rules.reclaim_within_cohort == never && !ruled)
        {
            return None;
        }
        let node = self.state.cq(s.cq).node?;
        let (admission, own) = self.admission_tried(s, tried)?;
        // One that waits for its victims searches among those only: that says nothing about others.
        let waits = self.awaited_victims(s.id).is_some();
        let search = self.victim_search(s, own, has_quota).filter(|_| !waits);
        if let Some(lacked) = search.as_ref().and_then(|search| self.failed_before(search)) {
            self.node_search.lacked |= lacked;
            return None;
        }
        let nodes = self.pods_needed(s.id, s.cq, &admission)?;
        let never_preempts = |(p, _): &(Pod, usize)| p.spec.preemption_policy == PodPreemptionPolicy::Never;
        // Quota is preempted whatever the pods say, as in Kueue.
        if has_quota && nodes.pods.iter().any(never_preempts) {
            return None;
        }
        let tas = self.places_wanted(s, tried);
        if has_quota && !waits && self.waits_for_claims(s.id, &nodes, &tas) {
            self.node_search.lacked = true;
            if let Some(search) = search {
                self.remember_failure(search, true);
            }
            return None;
        }
        let mut usage = assumed.to_vec();
        for f in s.found.iter().chain(tried) {
            let fr = self.state.ids.column(f.flavor, f.res);
            let amount = s.requests.iter().find(|(r, _)| *r == f.res).map_or(0, |(_, v)| *v);
            crate::quota::add_usage(&mut usage, fr, Amount(amount));
        }
        let preempting = s.found.iter().chain(tried).filter(|f| f.mode == Mode::Preempt);
        let mut frs: Vec<_> = preempting.map(|f| self.state.ids.column(f.flavor, f.res)).collect();
        if frs.is_empty() {
            frs = s.found.iter().chain(tried).map(|f| self.state.ids.column(f.flavor, f.res)).collect();
        }
        self.pairs_open(s, tried, &mut frs);
        frs.sort_unstable();
        frs.dedup();
        let need = PreemptionContext { id: s.id, cq: s.cq, node, frs, usage, tas, nodes: Some(nodes) };
        self.count_victim_search();
        let targets = self.find_targets(&need);
        self.drop_found_nodes();
        if targets.is_empty() {
            if let Some(search) = search {
                self.remember_failure(search, self.node_search.lacked);
            }
            return None;
        }
        let own = targets.iter().any(|t| self.state.cq_holding(t.id) == Some(s.cq));
        Some(if own { Possibility::Preempt } else { Possibility::Reclaim })
    }

    /// Whether there is capacity for the pods, and only claims before this workload keep it: what is kept free for one is no
    /// reason to preempt another.
    fn waits_for_claims(&mut self, id: WorkloadId, needed: &NodesNeeded, tas: &TasRequests) -> bool {
        let Some(rank) = self.claims.rank_of(&self.state, id) else { return false };
        let before = self.claims.before(&rank);
        if before.is_empty() {
            return false;
        }
        self.lift_these(&before);
        let fits = if tas.is_empty() {
            self.nodes.as_mut().is_some_and(|nodes| {
                let run = nodes.dry_run(self.now, &needed.key, &[]).0;
                let fits = nodes.extend(self.now, run, &needed.key, &needed.pods);
                nodes.end(run);
                fits
            })
        } else {
            self.has_places(id, needed, tas)
        };
        self.restore_these(&before);
        fits
    }

    /// The pairs that resource groups without a flavor so far could still choose: who holds them may be in the way too.
    fn pairs_open(&mut self, s: &Search<'_>, tried: &[FlavorAssignment], frs: &mut Vec<FlavorResource>) {
        let rules = std::sync::Arc::clone(&self.state.cq(s.cq).rules);
        let chosen = |res| s.found.iter().chain(tried).any(|f| f.res == res);
        for &(res, _) in s.requests.iter().filter(|(r, v)| *v != 0 && !chosen(*r)) {
            if let Some(group) = rules.group_of(res).and_then(|g| rules.groups.get(g)) {
                frs.extend(group.flavors.iter().map(|&flavor| self.state.ids.column(flavor, res)));
            }
        }
    }

    /// Whether the nodes of these flavors decide about the podsets of a search, once others are preempted for quota.
    pub(in crate::cycle) fn nodes_decide(&self, s: &Search<'_>, tried: &[FlavorAssignment]) -> bool {
        let known = self.nodes.is_some() && !self.dry_runs_incomplete() && s.replaced.is_none();
        known
            && self
                .admission_tried(s, tried)
                .is_some_and(|(admission, _)| self.pods_needed(s.id, s.cq, &admission).is_some())
    }

    /// Before a search: it has not been found out that nodes lack capacity.
    pub(in crate::cycle) fn forget_lack_of_nodes(&mut self) {
        self.node_search.lacked = false;
    }

    /// Whether there was quota in the searches since, and nodes lacked capacity.
    pub(in crate::cycle) fn lacked_nodes(&self) -> bool {
        self.node_search.lacked
    }

    /// Begins a search; whether the need fits without any victim, once pods that are being deleted are gone.
    pub(super) fn begin_node_search(&mut self, need: &PreemptionContext, within_budgets: bool) -> bool {
        self.node_search.only_nodes = need.nodes.is_some() && self.quota_need_fits(need, true);
        let (Some(_), Some(nodes)) = (&need.nodes, self.nodes.as_mut()) else { return false };
        self.node_search.within_budgets = within_budgets;
        self.node_search.spared = false;
        nodes.simulate_removal(None);
        self.node_search.only_nodes && self.nodes_fit(need)
    }

    /// Ends a search, `found` or in vain; whether it has to be repeated without regard to budgets.
    pub(super) fn end_node_search(&mut self, need: &PreemptionContext, found: bool) -> bool {
        if need.nodes.is_none() {
            return false;
        }
        if found && let (Some(nodes), Some(run)) = (self.nodes.as_mut(), self.node_search.run.take()) {
            nodes.lift(run);
            self.drop_found_nodes();
            let places = std::mem::take(&mut self.node_search.places);
            self.node_search.found = Some((self.dry_runs_number(), run, places));
        }
        self.put_all_back();
        if let Some(nodes) = self.nodes.as_mut() {
            nodes.simulate_addition(None);
        }
        !found && self.node_search.spared && self.node_search.within_budgets
    }

    /// The victims that a workload waits for, if with them it fits: it preempts no others, and none in other flavors, until they
    /// have left. `None`: it waits for none, or they are not enough any more.
    pub(super) fn awaited_targets(&mut self, need: &PreemptionContext) -> Option<Vec<Target>> {
        need.nodes.as_ref()?;
        let (flavors, targets) = self.awaited_victims(need.id)?;
        if need.frs.iter().any(|fr| !flavors.contains(&self.state.ids.parts(*fr).0)) {
            return Some(Vec::new());
        }
        let mark = self.state.mark();
        let mut fits = self.begin_node_search(need, false);
        if !fits {
            for t in &targets {
                self.state.simulate_workload_removal(t.id);
                self.take_out_nodes(need, t.id);
            }
            fits = self.need_fits(need, true);
        }
        self.end_node_search(need, fits && !targets.is_empty());
        self.state.rollback(mark);
        fits.then_some(targets)
    }

    /// Takes the pods of a candidate out.
    pub(super) fn take_out_nodes(&mut self, need: &PreemptionContext, id: WorkloadId) {
        let (Some(_), Some(nodes)) = (&need.nodes, self.nodes.as_mut()) else { return };
        let Some(key) = self.state.workloads.get(id).map(|w| w.obj.borne_by_pods()) else { return };
        nodes.simulate_removal(Some(&key));
        // Two slices of a job have the same pods.
        if !self.node_search.removed.contains(&key) {
            self.node_search.removed.push(key);
        }
    }

    /// Whether all pods have a node beside what is not removed.
    pub(super) fn nodes_fit(&mut self, need: &PreemptionContext) -> bool {
        if !need.tas.is_empty() {
            return self.nodes_fit_in_topology(need);
        }
        let (Some(needed), Some(nodes)) = (&need.nodes, self.nodes.as_mut()) else { return true };
        // Nobody reads why not: the dry run begins with no pods, and takes them in without explanations.
        let run = self.node_search.run.get_or_insert_with(|| nodes.dry_run(self.now, &needed.key, &[]).0);
        let fits = nodes.extend(self.now, *run, &needed.key, &needed.pods);
        self.node_search.lacked |= !fits;
        fits
    }

    /// Whether one of the pods, by itself, has no node even without any of the candidates. Pods that need others near them are
    /// not judged so.
    pub(super) fn is_hopeless_on_nodes(
        &mut self,
        need: &PreemptionContext,
        candidates: impl Iterator<Item = WorkloadId>,
    ) -> bool {
        let (Some(needed), Some(nodes)) = (&need.nodes, self.nodes.as_mut()) else { return false };
        if needed.pods.iter().any(|(p, _)| !p.spec.spread.is_empty() || p.spec.affinity.pod.is_some()) {
            return false;
        }
        let key = |id| Some(self.state.workloads.get(id)?.obj.borne_by_pods());
        let keys: Vec<WorkloadKey> =
            candidates.filter_map(key).filter(|k| !self.node_search.removed.contains(k)).collect();
        self.node_search.run.into_iter().for_each(|run| nodes.lift(run));
        for key in &keys {
            nodes.simulate_removal(Some(key));
        }
        let hopeless = needed.pods.iter().filter(|(_, count)| *count > 0).any(|(pod, _)| {
            let run = nodes.dry_run(self.now, &needed.key, &[]).0;
            let fits = nodes.extend(self.now, run, &needed.key, &[(pod.clone(), 1)]);
            nodes.end(run);
            !fits
        });
        keys.iter().rev().for_each(|key| nodes.simulate_addition(Some(key)));
        if let Some(run) = self.node_search.run {
            nodes.restore(run, false);
        }
        self.node_search.lacked |= hopeless;
        hopeless
    }

    /// Puts the pods of a candidate back, if the preemptor's have nodes beside them.
    pub(super) fn put_back_beside(&mut self, need: &PreemptionContext, id: WorkloadId) -> bool {
        let (Some(_), Some(nodes)) = (&need.nodes, self.nodes.as_mut()) else { return true };
        let Some(key) = self.state.workloads.get(id).map(|w| w.obj.borne_by_pods()) else { return true };
        let Some(run) = self.node_search.run else { return true };
        if !need.tas.is_empty() {
            return self.put_back_beside_places(need, &key, run);
        }
        let done = nodes.put_back_beside(run, &key);
        if done {
            self.node_search.removed.retain(|k| *k != key);
        }
        done
    }

    /// Ends the dry run of the preemptor's pods, and puts all pods back.
    pub(super) fn put_all_back(&mut self) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        self.node_search.run.take().into_iter().for_each(|run| nodes.end(run));
        for key in self.node_search.removed.drain(..).rev() {
            nodes.simulate_addition(Some(&key));
        }
    }

    /// Says of each victim what is lacking as long as it stays; whether all of them may be preempted: a right to quota gives
    /// none to nodes, so victims that quota does not need are of a lower priority, or the workload has waited.
    pub(super) fn find_what_is_lacking(
        &mut self,
        need: &PreemptionContext,
        targets: &mut [Target],
        borrow: bool,
    ) -> bool {
        if need.nodes.is_none() {
            return true;
        }
        if self.node_search.only_nodes {
            targets.iter_mut().for_each(|t| t.lacking = Lacking::NodesOnly);
            return true;
        }
        let mut order: Vec<(bool, usize)> =
            targets.iter().enumerate().map(|(i, t)| (!self.may_give_nodes(need, t), i)).collect();
        order.sort_unstable();
        let (mark, mut legal) = (self.state.mark(), true);
        for (higher, i) in order {
            let before = self.state.mark();
            self.state.simulate_workload_addition(targets[i].id);
            if self.quota_need_fits(need, borrow) {
                targets[i].lacking = Lacking::NodesBesideQuota;
                legal &= !higher;
            } else {
                self.state.rollback(before);
            }
        }
        self.state.rollback(mark);
        // What it may reclaim must not be held by others for ever: one that was overtaken takes what its pods need.
        legal || self.may_claim(need.id)
    }

    /// Whether a victim may be preempted for nodes besides quota: by its priority, or because a rule selects it.
    fn may_give_nodes(&self, need: &PreemptionContext, t: &Target) -> bool {
        matches!(t.reason, Reason::Configured(_)) || self.is_lower(need, t.id)
    }

    /// Whether a workload is of a lower priority than the preemptor, or goes anyway.
    fn is_lower(&self, need: &PreemptionContext, id: WorkloadId) -> bool {
        let (Some(preemptor), Some(wl)) = (self.state.wl(need.id), self.state.wl(id)) else { return false };
        wl.obj.effective_priority() < preemptor.obj.effective_priority()
            || wl.obj.status.is_true(cond::EVICTED)
    }

    /// Whether a candidate that is not needed for quota is spared.
    pub(super) fn is_spared(&mut self, need: &PreemptionContext, id: WorkloadId, borrow: bool) -> bool {
        let (Some(needed), Some(nodes)) = (&need.nodes, self.nodes.as_ref()) else { return false };
        let Some(wl) = self.state.wl(id).filter(|w| !w.obj.status.is_true(cond::EVICTED)) else {
            return false;
        };
        // Its right to quota is satisfied. For a node kube-scheduler preempts pods of a lower priority only.
        if self.node_search.only_nodes && !self.is_lower(need, id) {
            return true;
        }
        let protection = nodes.protection(&wl.obj.borne_by_pods(), needed.priority);
        if protection == Protection::None || !self.quota_need_fits(need, borrow) {
            return false;
        }
        let budget = protection == Protection::Budget;
        self.node_search.spared |= budget;
        !budget || self.node_search.within_budgets
    }

    /// Whether a candidate that a rule selects and that is not needed for quota is spared: a rule overrules priorities, but
    /// not budgets as long as other candidates help.
    pub(super) fn is_spared_by_budget(
        &mut self,
        need: &PreemptionContext,
        id: WorkloadId,
        borrow: bool,
    ) -> bool {
        let (Some(needed), Some(nodes)) = (&need.nodes, self.nodes.as_ref()) else { return false };
        let Some(wl) = self.state.wl(id).filter(|w| !w.obj.status.is_true(cond::EVICTED)) else {
            return false;
        };
        if nodes.protection(&wl.obj.borne_by_pods(), needed.priority) != Protection::Budget
            || !self.quota_need_fits(need, borrow)
        {
            return false;
        }
        self.node_search.spared = true;
        self.node_search.within_budgets
    }

    /// Takes the pods of workloads that entries before preempt off their nodes, for the
    /// computation of an assignment. Gives what has to be added again.
    pub(in crate::cycle) fn take_out_victims_of_others(
        &mut self,
        victims: &BTreeSet<WorkloadId>,
    ) -> Vec<WorkloadKey> {
        let Some(nodes) = self.nodes.as_mut().filter(|_| !victims.is_empty()) else { return Vec::new() };
        let key = |id: &WorkloadId| Some(self.state.workloads.get(*id)?.obj.borne_by_pods());
        let keys: Vec<WorkloadKey> = victims.iter().filter_map(key).collect();
        for key in &keys {
            nodes.simulate_removal(Some(key));
        }
        self.dry_runs.victims_removed = true;
        keys
    }

    /// Puts them back.
    pub(in crate::cycle) fn put_back_victims_of_others(&mut self, keys: &[WorkloadKey]) {
        self.dry_runs.victims_removed = false;
        let Some(nodes) = self.nodes.as_mut() else { return };
        keys.iter().rev().for_each(|key| nodes.simulate_addition(Some(key)));
    }

    /// Ends what a search found and nothing uses.
    pub(in crate::cycle) fn drop_found_nodes(&mut self) {
        let found = self.node_search.found.take();
        if let (Some((_, run, _)), Some(nodes)) = (found, self.nodes.as_mut()) {
            nodes.end(run);
        }
    }

    /// Where the pods fit once the victims have left, if that was found for this assignment; lifted.
    pub(in crate::cycle) fn take_found_nodes(&mut self, a: &Assignment) -> Option<(DryRunId, Places)> {
        if self.node_search.found.as_ref().is_some_and(|(number, ..)| *number != a.dry_runs) {
            self.drop_found_nodes();
        }
        self.node_search.found.take().map(|(_, run, places)| (run, places))
    }

    /// The podsets of a search as they would be admitted with these flavors, and for each its flavors.
    pub(in crate::cycle) fn admission_tried(
        &self,
        s: &Search<'_>,
        tried: &[FlavorAssignment],
    ) -> Option<(Admission, Vec<Choice>)> {
        let wl = self.state.wl(s.id)?;
        let (mut choices, mut assignments) = (Vec::new(), Vec::new());
        for m in s.group {
            let Some(podset) = wl.obj.pod_sets.get(m.index) else { continue };
            let flavors: Vec<_> = s.flavors_of(m, tried).collect();
            choices.push((m.index, m.total.count, flavors.iter().map(|f| f.flavor).collect()));
            let names = |f: &&FlavorAssignment| {
                (
                    self.state.ids.resource_name(f.res).to_owned(),
                    self.state.ids.flavor_name(f.flavor).to_owned(),
                )
            };
            assignments.push(PodSetAssignment {
                name: podset.name.clone(),
                flavors: flavors.iter().map(names).collect(),
                count: m.total.count,
                ..PodSetAssignment::default()
            });
        }
        Some((Admission { cluster_queue: String::new(), assignments }, choices))
    }
}
