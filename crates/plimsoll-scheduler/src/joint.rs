//! Joint admission: before queueing admits a workload, a node is found for each of its pods, with all filters. If all have
//! one, the nodes are reserved until the pods come and consume the reservations; if one has none, nothing has happened.
//!
//! A node is held by a *placeholder*: a row that plugins and columns see as a pod on it. Nothing is ever written for one.

use super::Scheduler;
use super::cluster::{Beside, NodeId, PodId};
use super::cycle::Cycle;
use super::decide::{Outcome, Search, search};
use super::dry_runs::HOSTNAME;
use super::evaluate;
use super::framework::{CycleState, Incoming};
use super::metrics::Unmetered;
use super::node_reservations::{Claim, ForPodSet, Placeholder};
use super::ranked::{Rank, Wanted};
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::{DryRunId, ReservationId, ReservedNode};
use plimsoll_state::time::{Duration, Time};
use std::collections::BTreeMap;

/// How long nodes are reserved for pods that do not come. The pods are scheduled like any other afterwards.
pub(super) const EXPIRY: Duration = Duration::from_seconds(300);

impl Scheduler {
    /// Reserves the nodes that dry runs found for the pods of a workload, and names them. The dry runs have to stand; they
    /// end. What was reserved for the workload before is released.
    pub fn reserve_nodes(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        runs: &[DryRunId],
    ) -> Vec<ReservedNode> {
        self.set_now(now);
        self.release_nodes(workload);
        let found: Vec<_> =
            runs.iter().filter_map(|&id| self.dry_runs.remove(id)).flat_map(|run| run.rows).collect();
        let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (node, placeholder) in &found {
            let node = self.cluster.strings.text(self.cluster.nodes[*node].name);
            *places.entry((&placeholder.pod_set, node)).or_default() += 1;
        }
        let of = |((pod_set, node), pods): ((&str, &str), usize)| ReservedNode {
            pod_set: pod_set.to_owned(),
            node: node.to_owned(),
            pods,
        };
        let places = places.into_iter().map(of).collect();
        self.reserve_placeholders(workload, found, (now, now.plus(EXPIRY)));
        places
    }

    /// Reserves these nodes, by placeholders that stand there, for a workload that has no reservations, from a time until another.
    pub(super) fn reserve_placeholders(
        &mut self,
        workload: &WorkloadKey,
        found: Vec<(NodeId, Placeholder)>,
        (since, expiry): (Time, Time),
    ) {
        found.iter().for_each(|(_, p)| self.cluster.set_queued(p.row, true));
        self.reservations.reserve_placeholders(workload, found, since, expiry);
    }

    /// How many places on nodes are reserved for pods to come, for how many workloads, and since when the oldest is.
    pub fn reserved_places(&self) -> (usize, usize, Option<Time>) {
        let since = self.reservations.oldest_placeholder();
        (self.reservations.all_placeholders().count(), self.reservations.workload_keys().count(), since)
    }

    /// The best node for a pod now, without preempting others. `explain`: whether the error says why there is none, which takes
    /// longer than to find that out. `equal_follow`: whether equal pods come after it.
    pub(super) fn best_node(
        &mut self,
        id: PodId,
        profile: usize,
        (explain, equal_follow): (bool, bool),
    ) -> Result<NodeId, String> {
        if self.cluster.node_count == 0 {
            return Err("no nodes available to schedule pods".into());
        }
        let Some(runner) = self.runners.get(profile) else { return Err("no such profile".into()) };
        let incoming = Incoming::new(&self.cluster, id);
        let index = u32::try_from(profile).unwrap_or(u32::MAX);
        let wanted = Wanted { profile: index, beside: Beside::All, equal_follow };
        match self.ranks.best(None, runner, wanted, &mut self.cluster, &incoming, &mut self.rng) {
            Rank::Best(node) => Ok(node),
            Rank::PutOff => Err(String::new()),
            Rank::None(_) if !explain => Err(String::new()),
            Rank::None(ranked) => Err(evaluate::ranked_fit(&self.cluster, ranked).short()),
            Rank::Unknown => {
                self.ranks.work.looked_at += self.cluster.node_count;
                match search(&Unmetered, runner, &mut self.cluster, (incoming, None), &mut self.rng, None) {
                    Search::On(_, node) => Ok(node),
                    Search::Nowhere(_, failure) => Err(failure.fit.short()),
                    Search::Error(text) => Err(text),
                }
            }
        }
    }

    /// Releases what is reserved for a workload and was not consumed.
    pub fn release_nodes(&mut self, workload: &WorkloadKey) {
        for id in self.reservations.of_workload(workload) {
            self.release_node(id);
        }
    }

    /// Undoes [`Scheduler::reserve_nodes`], if nothing else has happened since. Nothing is told of the freed capacity: pods
    /// and workloads that wait for some would be tried again in vain.
    pub fn withdraw_nodes(&mut self, workload: &WorkloadKey) {
        for id in self.reservations.of_workload(workload) {
            if let Some(placeholder) = self.reservations.end(id) {
                let node = self.cluster.pods[placeholder].node;
                self.cluster.remove_pod(placeholder);
                self.capacity_changed(node);
            }
        }
    }

    /// Releases reservations on a node that has no capacity for them any more: it is gone, it shrank, or another scheduler
    /// has bound a pod to it. The pods that they were made for are scheduled as usual.
    pub(super) fn release_overcommitted(&mut self, node: NodeId) {
        while self.reservations.any_workload()
            && let Some((id, placeholder)) = self.reservations.last_placeholder_on(node)
            && self.cluster.is_overcommitted(node)
            && !self.still_fits(placeholder, node)
        {
            self.release_node(id);
        }
    }

    /// Whether a placeholder passes the filters on the node that it is on: a profile may leave resources out.
    fn still_fits(&mut self, placeholder: PodId, node: NodeId) -> bool {
        let Some(profile) = self.profile_of(placeholder).filter(|_| self.cluster.nodes[node].exists) else {
            return false;
        };
        self.cluster.unplace(placeholder);
        let fits = self.passes_on(placeholder, node, profile).is_some();
        self.cluster.place(placeholder, node);
        fits
    }

    /// The state of the cycle of a pod, if it passes all filters on a node.
    pub(super) fn passes_on(&self, id: PodId, node: NodeId, profile: usize) -> Option<CycleState> {
        let cycle = Cycle::pre_filter(
            &Unmetered,
            self.runners.get(profile)?,
            &self.cluster,
            Incoming::new(&self.cluster, id),
        );
        let fits = cycle.status.is_success()
            && cycle.allows(&self.cluster, node)
            && cycle.filter_once(&Unmetered, &self.cluster, node).is_success();
        fits.then_some(cycle.state)
    }

    /// The workloads with reservations that no pod has consumed.
    pub fn reserving_workloads(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.reservations.workload_keys()
    }

    /// Releases reservations whose pods did not come in time.
    pub(super) fn expire_node_reservations(&mut self) {
        for id in self.reservations.expired(self.now) {
            self.release_node(id);
        }
    }

    /// Ends a reservation as if a pod had gone: others may have waited for the capacity.
    pub(super) fn release_node(&mut self, id: ReservationId) {
        let Some(placeholder) = self.reservations.end(id) else { return };
        let uid = self.cluster.pods[placeholder].uid.to_string();
        self.pod_delete(&uid);
    }

    /// Notes a pod of a workload, which may have reservations. One that is on no node yet may consume one; one that got a node
    /// otherwise releases one, the first time that is seen. `before` is the node that it was on until now.
    pub(super) fn note_reserved_pod(&mut self, id: PodId, pod: &model::Pod, before: Option<NodeId>) {
        self.cluster.workloads.join(id, pod);
        if !self.reservations.any_workload() || pod.workload.is_empty() || pod.pod_set.is_empty() {
            return;
        }
        let key = WorkloadKey { namespace: pod.namespace.clone(), name: pod.workload.clone() };
        let Some(workload) = self.reservations.workload(&key) else { return };
        if pod.spec.node_name.is_empty() {
            return self.reservations.claim(id, Claim { workload, pod_set: pod.pod_set.clone() });
        }
        let first = self.reservations.forget_claim(id) || before.is_none();
        if !first {
            return;
        }
        let node = self.cluster.pods[id].node;
        let pod_set = &pod.pod_set;
        let same = node.and_then(|node| self.reservations.for_pod_set_on(workload, pod_set, node).next());
        let mine = same.or_else(|| self.reservations.for_pod_set(workload, pod_set).next());
        if let Some((reservation, ..)) = mine {
            self.release_node(reservation);
        }
    }

    /// Whether a reservation may be consumed by the pod.
    pub(super) fn has_reservation(&self, id: PodId) -> bool {
        self.reservations.claim_of(id).is_some()
    }

    /// Places a pod on a node that is reserved for it, and ends that reservation; `None` when there is none, or when the
    /// pod does not fit where its placeholder did.
    pub(super) fn consume_reservation(&mut self, id: PodId) -> Option<Outcome> {
        let Claim { workload, pod_set } = self.reservations.claim_of(id)?.clone();
        let profile = self.queue.get(id)?.profile as usize;
        // Of a thousand reservations one is for a pod that has to be on one node, as with a place in a topology.
        let likely = match self.node_selected_by(id) {
            Some(node) => self.reservations.for_pod_set_on(workload, &pod_set, node).next(),
            None => self.reservations.for_pod_set(workload, &pod_set).next(),
        };
        if let Some(outcome) = likely.and_then(|reserved| self.consume(id, profile, reserved)) {
            return Some(outcome);
        }
        let tried = likely.map(|(reservation, ..)| reservation);
        let others = self.reservations.for_pod_set(workload, &pod_set);
        let others: Vec<ForPodSet> = others.filter(|(id, ..)| Some(*id) != tried).collect();
        others.into_iter().find_map(|reserved| self.consume(id, profile, reserved))
    }

    /// The node that a pod selects by the label of its name.
    fn node_selected_by(&self, id: PodId) -> Option<NodeId> {
        let hostname = self.cluster.strings.get(HOSTNAME)?;
        let selector = &self.cluster.shape(id).spec.node_selector;
        let (_, name) = selector.iter().find(|(label, _)| *label == hostname)?;
        self.cluster.node_by_name(*name)
    }

    /// The same with one reservation.
    fn consume(
        &mut self,
        id: PodId,
        profile: usize,
        (reservation, node, placeholder): ForPodSet,
    ) -> Option<Outcome> {
        if !self.cluster.nodes[node].exists {
            self.release_node(reservation);
            return None;
        }
        self.cluster.unplace(placeholder);
        let Some(state) = self.passes_on(id, node, profile) else {
            self.cluster.place(placeholder, node);
            return None;
        };
        self.reservations.forget_claim(id);
        self.reservations.end(reservation);
        self.cluster.remove_pod(placeholder);
        Some(Outcome::Placed(node, state))
    }
}
