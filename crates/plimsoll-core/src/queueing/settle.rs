//! Everything a step does besides the scheduling cycle: the tree, timers, statuses.

use super::Action;
use super::amount::Amount;
use super::ids::Fr;
use super::model::{ResourceGroup, StopPolicy};
use super::state::{CqId, Queueing};
use super::tree::{NodeSpec, Quota, Tree};
use crate::place::Placement;
use crate::time::Time;

impl Queueing {
    /// Brings conditions and statuses up to date without a scheduling cycle, and gives out what is to be
    /// written. [`Queueing::decide`] does this too, before and after its cycle.
    pub fn settle(&mut self, now: Time, emit: &mut dyn FnMut(Action)) {
        self.settle_quietly(now);
        self.out.drain(..).for_each(emit);
    }

    fn settle_quietly(&mut self, now: Time) {
        self.windows_tick(now);
        self.fire_timers(now);
        self.sample_usage(now);
        self.ensure_tree();
        self.ensure_topologies();
        self.check_nodes(now);
        self.reconcile_dirty(now);
        self.report_statuses(now);
        self.report_windows();
    }

    /// Runs at most one scheduling cycle.
    pub fn decide(&mut self, now: Time, emit: &mut dyn FnMut(Action)) {
        self.decide_with(now, None, emit);
    }

    /// As [`Queueing::decide`]; with `nodes`, a workload is admitted only when all its pods are promised a place there.
    pub fn decide_with(&mut self, now: Time, nodes: Option<&mut Placement>, emit: &mut dyn FnMut(Action)) {
        self.settle_quietly(now);
        self.wake_parked();
        if std::mem::take(&mut self.cycle_due) {
            self.run_cycle(now, nodes);
            self.settle_quietly(now);
        }
        self.out.drain(..).for_each(emit);
    }

    /// When there is something to do without a new event; a time not after `now` means at once.
    pub fn next_wake(&self) -> Option<Time> {
        if self.cycle_due || !self.to_wake.is_empty() || !self.dirty.is_empty() {
            return Some(Time(i64::MIN));
        }
        let timer = self.timers.first().map(|(t, _)| *t);
        let sample = self.samples.first().map(|(t, _)| *t);
        let wake = self.wake_later.first().map(|(t, _)| *t);
        let nodes = [self.second.next(), self.tas.health.next()].into_iter().flatten().min();
        [timer, sample, wake, nodes, self.windows.next_edge()].into_iter().flatten().min()
    }

    fn fire_timers(&mut self, now: Time) {
        self.cycle_due |= self.second.next().is_some_and(|t| t <= now);
        while let Some(&(t, cq)) = self.wake_later.first().filter(|(t, _)| *t <= now) {
            self.wake_later.remove(&(t, cq));
            self.to_wake.insert(cq);
        }
        while let Some(&(t, id)) = self.timers.first().filter(|(t, _)| *t <= now) {
            self.timers.remove(&(t, id));
            let Some(wl) = self.wl_mut(id) else { continue };
            if wl.hold_off.is_some_and(|h| h <= now) {
                wl.hold_off = None;
            }
            let waits = wl.held.is_none();
            self.say_unsaid(id, now);
            self.dirty.insert(id);
            if waits {
                self.enqueue(id, false, now);
            }
        }
    }

    /// Builds the quota tree again if its shape or quotas changed.
    pub(crate) fn ensure_tree(&mut self) {
        if !std::mem::take(&mut self.tree_dirty) && self.ids.columns() <= self.tree.columns() {
            return;
        }
        let mut specs = Vec::new();
        let mut queues = Vec::new();
        for id in 0..self.cqs.len() as CqId {
            self.cqs[id as usize].node = None;
            let Some(spec) = &self.cqs[id as usize].spec else { continue };
            queues.push(id);
            specs.push(NodeSpec {
                name: spec.name.clone(),
                parent: spec.cohort.clone(),
                leaf: true,
                active: self.cqs[id as usize].is_active(),
                weight: spec.fair_weight_nano as f64 / 1e9,
                quotas: self.quotas(&spec.resource_groups),
            });
        }
        for c in self.cohorts.values() {
            specs.push(NodeSpec {
                name: c.name.clone(),
                parent: c.parent.clone(),
                leaf: false,
                active: true,
                weight: c.fair_weight_nano as f64 / 1e9,
                quotas: self.quotas(&c.resource_groups),
            });
        }
        let resource_of = (0..self.ids.columns() as Fr).map(|fr| self.ids.parts(fr).1).collect();
        self.tree = Tree::build(specs, resource_of);
        self.leaves.clone_from(&queues);
        for (node, id) in (0u32..).zip(queues) {
            self.cqs[id as usize].node = Some(node);
            let holders: Vec<u32> = self.cqs[id as usize].holders.iter().copied().collect();
            for w in holders {
                let Some(Some(wl)) = self.wls.get(w as usize) else { continue };
                for &(fr, a) in &wl.usage {
                    self.tree.add(node, fr, a);
                }
            }
            self.dirty_cqs.insert(id);
        }
        self.tree.commit();
    }

    fn quotas(&self, groups: &[ResourceGroup]) -> Vec<(Fr, Quota)> {
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

    /// Gives parked workloads around the ClusterQueues in `to_wake` another chance.
    pub(crate) fn wake_parked(&mut self) {
        if self.to_wake.is_empty() {
            return;
        }
        let asked = std::mem::take(&mut self.to_wake);
        let roots: Vec<_> = asked
            .iter()
            .filter_map(|&c| self.cq(c).node)
            .filter(|&n| !self.tree.node(n).cyclic)
            .map(|n| self.tree.root(n))
            .collect();
        for id in 0..self.cqs.len() as CqId {
            let Some(node) = self.cq(id).node.filter(|&n| !self.tree.node(n).cyclic) else { continue };
            if !roots.contains(&self.tree.root(node)) {
                continue;
            }
            let allowed: Vec<u32> = self
                .cq(id)
                .locals
                .iter()
                .copied()
                .filter(|&l| self.namespace_matches(id, &self.lq(l).namespace))
                .collect();
            if self.cq_mut(id).pending.wake(|lq| allowed.binary_search(&lq).is_ok()) {
                self.cycle_due = true;
            }
        }
    }

    /// Why a ClusterQueue takes no workloads: reason and message of its condition `Active`; `None` when it
    /// does (spec section 1.2).
    pub(crate) fn inactive_reason(&self, id: CqId) -> Option<(&'static str, String)> {
        let spec = self.cq(id).spec.as_ref()?;
        if spec.deleting {
            return Some(("Terminating", "Can't admit new workloads; clusterQueue is terminating".into()));
        }
        let mut found: Vec<(&'static str, String)> = Vec::new();
        if spec.stop_policy != StopPolicy::None {
            found.push(("Stopped", "is stopped".into()));
        }
        let listed = || self.cq(id).rules.groups.iter().flat_map(|g| &g.flavors).copied();
        let missing: Vec<&str> =
            listed().filter(|f| !self.flavors.contains_key(f)).map(|f| self.ids.flavor_name(f)).collect();
        if !missing.is_empty() {
            found.push((
                "FlavorNotFound",
                format!("references missing ResourceFlavor(s): {}", missing.join(",")),
            ));
        }
        self.check_problems(&spec.admission_checks, &mut found);
        for f in listed() {
            let Some(flavor) = self.flavors.get(&f).filter(|f| !f.topology.is_empty()) else { continue };
            if self.config.gates.topology && !self.topologies.contains_key(&flavor.topology) {
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

    fn check_problems(&self, checks: &[(String, Vec<String>)], found: &mut Vec<(&'static str, String)>) {
        let mut names: Vec<&str> = checks.iter().map(|(n, _)| n.as_str()).collect();
        names.sort_unstable();
        let (known, missing): (Vec<&str>, Vec<&str>) =
            names.into_iter().partition(|n| self.checks.contains_key(*n));
        if !missing.is_empty() {
            found.push((
                "AdmissionCheckNotFound",
                format!("references missing AdmissionCheck(s): {}", missing.join(",")),
            ));
        }
        let inactive: Vec<&str> =
            known.into_iter().filter(|n| self.checks.get(*n).is_some_and(|c| !c.active)).collect();
        if !inactive.is_empty() {
            found.push((
                "AdmissionCheckInactive",
                format!("references inactive AdmissionCheck(s): {}", inactive.join(",")),
            ));
        }
    }
}
