//! Everything a step does besides the scheduling cycle: the tree, timers, statuses.

use std::collections::BTreeSet;

use super::Action;
use super::amount::Amount;
use super::ids::{ClusterQueueId, FlavorResource};
use super::model::{ClusterQueue, ResourceGroup, ShardStop, StopPolicy};
use super::tree::{NodeId, NodeSpec, Quota, Tree};
use crate::Queueing;
use crate::joint::Nodes;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::slab::Id;
use plimsoll_state::time::{Duration, Time};

/// Controller of checks that send workloads to other clusters.
const CLUSTERS: &str = "kueue.x-k8s.io/multikueue";
/// Controller of checks that ask the cluster autoscaler.
const NODES: &str = "kueue.x-k8s.io/provisioning-request";

/// Inadmissible workloads are requeued once in so long for changes of queues, cohorts, flavors and checks (Kueue
/// `pkg/cache/queue/inadmissible_workloads.go`, `requeueBatchPeriod`).
const REQUEUE_BATCH: Duration = Duration::from_seconds(1);

/// Most explanations in one step.
const EXPLAINED_PER_STEP: usize = 256;

/// Names of the cohorts in a tree.
fn cohorts(tree: &Tree) -> impl Iterator<Item = String> {
    tree.nodes().filter(|(_, n)| !n.leaf).map(|(_, n)| n.name.clone())
}

impl Queueing {
    /// Brings conditions and statuses up to date without a scheduling cycle, and gives out what is to be
    /// written. [`Queueing::decide`] does this too: conditions before and after its cycle, statuses of queues once, at
    /// the end.
    pub fn settle(&mut self, now: Time, emit: &mut dyn FnMut(Action)) {
        self.reconcile_state(now);
        self.report(now);
        self.out.drain(..).for_each(emit);
    }

    fn reconcile_state(&mut self, now: Time) {
        self.update_run_windows(now);
        self.fire_timers(now);
        self.devices_settle();
        self.requeue_dirty(now);
        self.sample_usage(now);
        self.ensure_tree();
        self.ensure_topologies();
        self.check_nodes(now);
        self.reconcile_dirty(now);
    }

    /// Gives out statuses that changed, once a step.
    fn report(&mut self, now: Time) {
        self.report_statuses(now);
        self.report_windows();
    }

    /// What a replica does that follows its leader: keeps what is derived up to date, and lets nothing grow that only a
    /// decision uses up. Decides and asks for nothing.
    pub fn follow(&mut self, now: Time) {
        self.ensure_tree();
        self.ensure_topologies();
        self.end_waits(now);
        self.requeue_dirty(now);
        self.tas.health.follow();
    }

    /// Runs at most one scheduling cycle.
    pub fn decide(&mut self, now: Time, emit: &mut dyn FnMut(Action)) {
        self.decide_with(now, None, emit);
    }

    /// As [`Queueing::decide`]; with `nodes`, a workload is admitted only when nodes are reserved for all its pods.
    pub fn decide_with(&mut self, now: Time, nodes: Option<Nodes<'_, '_>>, emit: &mut dyn FnMut(Action)) {
        if nodes.is_none() {
            // Nothing rebuilds reservations.
            self.joint.recorded.clear();
        }
        self.reconcile_state(now);
        self.settle_loans(now);
        if !self.held {
            self.requeue_inadmissible_workloads(now);
        }
        // A workload that is still to be queued again may be in a queue in which it must no longer be, and a node that is still to be
        // looked at may be one that failed.
        let behind = !self.dirty.requeue.is_empty() || self.tas.health.is_behind(now);
        if !self.held && !self.due.is_empty() && !behind {
            self.run_cycle(now, nodes);
            self.reconcile_state(now);
        }
        self.report(now);
        self.out.drain(..).for_each(emit);
    }

    /// Runs no scheduling cycle from now on, or goes on with what is due. A caller whose decisions wait to be written holds
    /// further ones: decided later, they go to the workload that is first by then, instead of to one that has to be
    /// preempted for it before its admission was written. (In Kueue a cycle ends with the writes of its heads, so that it
    /// decides as fast as it writes: `scheduler.go`, `requeueAndUpdate` and `IssuePreemptions`.)
    pub const fn hold_admissions(&mut self, hold: bool) {
        self.held = hold;
    }

    /// Makes no write from now on that says only why a workload waits, or goes on with those that are due. A caller with many
    /// such writes holds further ones: most would be overtaken by the workload's admission, and a write takes more memory
    /// than the workload until it is answered.
    pub const fn hold_explanations(&mut self, hold: bool) {
        self.timers.explanations_held = hold;
    }

    /// When there is something to do without a new event; a time not after `now` means at once.
    pub fn next_wake(&self) -> Option<Time> {
        let cycle = !self.due.is_empty()
            || !self.dirty.inadmissible.is_empty()
            || !self.dirty.respecified.is_empty()
            || !self.dirty.freed.is_empty();
        let dirty = !self.dirty.workloads.is_empty()
            || !self.dirty.requeue.is_empty()
            || !self.dirty.cluster_queues.is_empty()
            || !self.dirty.local_queues.is_empty();
        if (cycle && !self.held) || dirty || !self.joint.no_longer_admitted.is_empty() {
            return Some(Time(i64::MIN));
        }
        let second = self.second.next().filter(|_| !self.held);
        let nodes = [second, self.tas.health.next()].into_iter().flatten().min();
        [self.timers.next(), nodes, self.run_windows.next_edge(), self.loans.next()]
            .into_iter()
            .flatten()
            .min()
    }

    fn fire_timers(&mut self, now: Time) {
        if self.second.next().is_some_and(|t| t <= now) {
            self.due.everywhere();
        }
        self.end_waits(now);
        if self.timers.explanations_held {
            return;
        }
        // The rest follows in the next step, so that decisions don't wait for it.
        for _ in 0..EXPLAINED_PER_STEP {
            let Some(&(t, id)) = self.timers.explain.first().filter(|(t, _)| *t <= now) else { break };
            self.timers.explain.remove(&(t, id));
            self.adopt_reason(id);
            self.write_pending_reason(id, now);
        }
    }

    /// Backoffs and other pauses are over: what waited for them is due again.
    fn end_waits(&mut self, now: Time) {
        while let Some(&(t, cq)) = self.timers.requeue_inadmissible.first().filter(|(t, _)| *t <= now) {
            self.timers.requeue_inadmissible.remove(&(t, cq));
            self.dirty.inadmissible.insert(cq);
            // Also where the head waits and isn't inadmissible, because the order is strict.
            self.due.tree_of(cq);
        }
        for _ in 0..self.bounded.most {
            let Some(&(t, id)) = self.timers.workloads.first().filter(|(t, _)| *t <= now) else { break };
            self.timers.workloads.remove(&(t, id));
            let Some(wl) = self.wl_mut(id) else { continue };
            wl.failures.expire(now);
            let is_pending = wl.quota().is_none();
            self.explain_soon(id, now);
            self.dirty.workloads.insert(id);
            if is_pending {
                self.enqueue(id, false, now);
            }
        }
    }

    /// Builds the quota tree again if cohorts or quotas changed.
    pub(crate) fn ensure_tree(&mut self) {
        if !std::mem::take(&mut self.tree_dirty) && self.ids.columns() <= self.tree.columns() {
            return;
        }
        let mut specs = Vec::new();
        let mut queues = Vec::new();
        for id in self.cluster_queues.ids() {
            self.cq_mut(id).node = None;
            let Some(spec) = &self.cq(id).spec else { continue };
            queues.push(id);
            specs.push(NodeSpec {
                name: spec.name.clone(),
                parent: spec.cohort.clone(),
                leaf: true,
                active: self.cq(id).is_active(),
                weight: spec.fair_weight_nano as f64 / 1e9,
                quotas: self.quotas(&spec.resource_groups),
            });
        }
        for c in self.objects.cohorts.values() {
            specs.push(NodeSpec {
                name: c.name.clone(),
                parent: c.parent.clone(),
                leaf: false,
                active: true,
                weight: c.fair_weight_nano as f64 / 1e9,
                quotas: self.quotas(&c.resource_groups),
            });
        }
        self.add_borrowed_quota(&mut specs);
        let resource_of = FlavorResource::first(self.ids.columns()).map(|fr| self.ids.parts(fr).1).collect();
        let before = std::mem::replace(&mut self.tree, Tree::build(specs, resource_of));
        let now: BTreeSet<String> = cohorts(&self.tree).insert_each();
        // Cohorts without an object end with their last child.
        for gone in cohorts(&before).filter(|name| !now.contains(name)) {
            self.metrics.forget(&[("cohort", &gone)]);
        }
        self.objects.cleared_cohorts.retain(|name| now.contains(name));
        self.objects.uncounted_cohorts.retain(|name| now.contains(name));
        self.leaves.clone_from(&queues);
        for (node, id) in queues.into_iter().enumerate().map(|(i, id)| (NodeId::new(i), id)) {
            self.cq_mut(id).node = Some(node);
            for (_, reservation) in self.quota.at(id) {
                for &(fr, a) in &reservation.held.usage {
                    self.tree.add(node, fr, a);
                }
            }
            self.dirty.cluster_queues.insert(id);
        }
        self.charge_lent_quota();
        self.tree.commit();
        self.sort_into_trees();
    }

    fn quotas(&self, groups: &[ResourceGroup]) -> Vec<(FlavorResource, Quota)> {
        let mut quotas = Vec::new();
        for f in groups.iter().flat_map(|g| &g.flavors) {
            for r in &f.resources {
                let ids = (self.ids.find_flavor(&f.flavor), self.ids.find_resource(&r.resource));
                let (Some(flavor), Some(res)) = ids else { continue };
                let Some(fr) = self.ids.find_pair(flavor, res) else { continue };
                let quota = Quota {
                    nominal: Amount(r.nominal),
                    borrowing: r.borrowing_limit.map(Amount),
                    lending: r.lending_limit.map(Amount),
                };
                quotas.push((fr, quota));
            }
        }
        quotas
    }

    /// Requeues inadmissible workloads around the ClusterQueues that asked for it.
    pub(crate) fn requeue_inadmissible_workloads(&mut self, now: Time) {
        self.requeue_respecified(now);
        let places = self.queues_awaiting_topology_capacity();
        self.dirty.freed.extend(places);
        if self.dirty.inadmissible.is_empty() && self.dirty.freed.is_empty() {
            return;
        }
        let changed = std::mem::take(&mut self.dirty.inadmissible);
        let mut asked = std::mem::take(&mut self.dirty.freed);
        asked.extend(&changed);
        let changed = self.trees_of(&changed);
        for tree in self.trees_of(&asked) {
            self.requeue_inadmissible_in(&tree, changed.contains(&tree));
        }
    }

    /// Objects have changed: the first change requeues at once, those that follow within [`REQUEUE_BATCH`] together at its end.
    fn requeue_respecified(&mut self, now: Time) {
        let respecified = std::mem::take(&mut self.dirty.respecified);
        for tree in self.trees_of(&respecified) {
            let Some(&first) = tree.first() else { continue };
            let again = self.cq(first).respecified_at.map(|last| last.plus(REQUEUE_BATCH));
            // What changes at one time, such as in the lists at the start, is one change.
            match again.filter(|&t| now < t && self.cq(first).respecified_at != Some(now)) {
                Some(at) => {
                    self.timers.requeue_inadmissible.insert((at, first));
                }
                None => {
                    tree.iter().for_each(|&id| self.cq_mut(id).respecified_at = Some(now));
                    self.dirty.inadmissible.insert(first);
                }
            }
        }
    }

    /// The same for one tree. `changed`: reasons why workloads wait may no longer hold.
    fn requeue_inadmissible_in(&mut self, tree: &[ClusterQueueId], changed: bool) {
        for &id in tree {
            if self.in_cycle(id) {
                continue;
            }
            self.cq_mut(id).inadmissible_requeues += 1;
            let mut pending = std::mem::take(&mut self.cq_mut(id).pending);
            let moved = pending
                .requeue_inadmissible(changed, |lq| self.namespace_matches(id, &self.lq(lq).namespace));
            self.cq_mut(id).pending = pending;
            if moved {
                self.due.tree_of(id);
            }
        }
    }

    /// Why a ClusterQueue takes no workloads: reason and message of its condition `Active`; `None` when it
    /// does (Kueue `pkg/cache/scheduler/clusterqueue.go`, `inactiveReason`).
    pub(crate) fn inactive_reason(&self, id: ClusterQueueId) -> Option<(&'static str, String)> {
        let spec = self.cq(id).spec.as_ref()?;
        if spec.deleting {
            return Some(("Terminating", "Can't admit new workloads; clusterQueue is terminating".into()));
        }
        let mut found: Vec<(&'static str, String)> = Vec::new();
        match &spec.shard_stop {
            Some(ShardStop::Conflict(why)) => {
                found.push(("ShardConflict", format!("its tree belongs to several shards: {why}")));
            }
            Some(ShardStop::Leaves(why) | ShardStop::Waits(why)) => {
                found.push(("ShardMove", why.clone()));
            }
            None => {}
        }
        if spec.stop_policy != StopPolicy::None {
            found.push(("Stopped", "is stopped".into()));
        }
        let listed = || self.cq(id).rules.groups.iter().flat_map(|g| &g.flavors).copied();
        let missing: Vec<&str> = listed()
            .filter(|f| !self.objects.flavors.contains_key(f))
            .map(|f| self.ids.flavor_name(f))
            .collect();
        if !missing.is_empty() {
            found.push((
                "FlavorNotFound",
                format!("references missing ResourceFlavor(s): {}", missing.join(",")),
            ));
        }
        self.check_problems(spec, &mut found);
        for f in listed() {
            let Some(flavor) = self.objects.flavors.get(&f).filter(|f| !f.topology.is_empty()) else {
                continue;
            };
            if self.config.gates.topology && !self.objects.topologies.contains_key(&flavor.topology) {
                found.push((
                    "TopologyNotFound",
                    format!("there is no Topology {:?} for TAS flavor {:?}", flavor.topology, flavor.name),
                ));
            }
        }
        let reason = found.first()?.0;
        let messages: Vec<String> = found.into_iter().map(|(_, m)| m).collect();
        Some((reason, format!("Can't admit new workloads: {}.", messages.join(", "))))
    }

    fn check_problems(&self, spec: &ClusterQueue, found: &mut Vec<(&'static str, String)>) {
        let checks = &spec.admission_checks;
        let mut names: Vec<&str> = checks.iter().map(|(n, _)| n.as_str()).collect();
        names.sort_unstable();
        let (known, missing): (Vec<&str>, Vec<&str>) =
            names.into_iter().partition(|n| self.objects.checks.contains_key(*n));
        if !missing.is_empty() {
            found.push((
                "AdmissionCheckNotFound",
                format!("references missing AdmissionCheck(s): {}", missing.join(",")),
            ));
        }
        let inactive: Vec<&str> =
            known.into_iter().filter(|n| self.objects.checks.get(*n).is_some_and(|c| !c.active)).collect();
        if !inactive.is_empty() {
            found.push((
                "AdmissionCheckInactive",
                format!("references inactive AdmissionCheck(s): {}", inactive.join(",")),
            ));
        }
        self.cluster_check_problems(spec, found);
    }

    /// Checks that send workloads to other clusters are alone and for all flavors (Kueue `inactiveReason`).
    fn cluster_check_problems(&self, spec: &ClusterQueue, found: &mut Vec<(&'static str, String)>) {
        let of = |controller: &str| {
            let mut names: Vec<&str> = spec
                .admission_checks
                .iter()
                .map(|(n, _)| n.as_str())
                .filter(|n| self.objects.checks.get(*n).is_some_and(|c| c.controller == controller))
                .collect();
            names.sort_unstable();
            names
        };
        let clusters = of(CLUSTERS);
        if clusters.is_empty() {
            return;
        }
        if clusters.len() > 1 {
            let list = clusters.join(",");
            found.push((
                "MultipleMultiKueueAdmissionChecks",
                format!(
                    "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {list}"
                ),
            ));
        }
        let all = || spec.resource_groups.iter().flat_map(|g| g.flavors.iter().map(|f| &f.flavor));
        let partial = |on: &Vec<String>| {
            !on.is_empty() && (all().any(|f| !on.contains(f)) || on.iter().any(|o| all().all(|f| f != o)))
        };
        let mut some: Vec<&str> = spec
            .admission_checks
            .iter()
            .filter(|(n, on)| clusters.contains(&n.as_str()) && partial(on))
            .map(|(n, _)| n.as_str())
            .collect();
        some.sort_unstable();
        if !some.is_empty() {
            found.push((
                "MultiKueueAdmissionCheckAppliedPerFlavor",
                format!("Cannot specify MultiKueue AdmissionCheck per flavor, found: {}", some.join(",")),
            ));
        }
        let nodes = of(NODES);
        if !nodes.is_empty() {
            found.push((
                "MultiKueueWithProvisioningRequest",
                format!(
                    "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {}, {}",
                    clusters.join(","),
                    nodes.join(",")
                ),
            ));
        }
    }
}

#[cfg(test)]
mod tests;
