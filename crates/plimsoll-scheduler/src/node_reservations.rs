//! Reservations of nodes for workloads (joint admission). Before queueing admits a workload, a node is found for each of
//! its pods, with all filters. If all have one, the nodes are reserved until the pods come and consume the reservations;
//! if one has none, nothing has happened.
//!
//! What a reservation holds is a *placeholder*: a row that plugins and columns see as a pod on the node. Nothing is ever
//! written for it.

use super::Scheduler;
use super::cluster::{NodeId, Pod, PodId};
use super::cycle::Cycle;
use super::decide::{Outcome, Search, search};
use super::evaluate;
use super::framework::Incoming;
use super::ranked::Rank;
use plimsoll_state::intern::Map;
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::{Cause, Reservation, ReservationId, Reservations};
use plimsoll_state::slab::{Slab, dense_id};
use plimsoll_state::time::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long nodes are reserved for pods that do not come. The pods are scheduled like any other afterwards.
const EXPIRY: Duration = Duration::from_seconds(300);

dense_id!(
    /// A workload with reservations.
    WorkloadId
);

/// What is held on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    /// The row that is counted on the node.
    placeholder: PodId,
    /// The podset whose pods may consume the reservation.
    pod_set: Arc<str>,
}

/// A workload with reservations.
#[derive(Debug)]
struct Owner {
    key: WorkloadKey,
    /// Its pods that may consume one and have not.
    claimants: BTreeSet<PodId>,
}

/// The reservation that a pod may consume: any that its workload has for its podset.
#[derive(Clone, Debug)]
struct Claim {
    workload: WorkloadId,
    pod_set: String,
}

/// Reservations of nodes for workloads, and the pods that may consume them.
#[derive(Debug, Default)]
pub(crate) struct NodeReservations {
    table: Reservations<WorkloadId, NodeId, Held>,
    owners: Slab<WorkloadId, Owner>,
    by_key: BTreeMap<WorkloadKey, WorkloadId>,
    placeholders: Map<PodId, ReservationId>,
    claims: Map<PodId, Claim>,
    /// How many reservations were ever made, for the UIDs of placeholders.
    made: u64,
}

impl NodeReservations {
    /// The reservation that a row is the placeholder of; `None` for pods.
    pub(crate) fn of_placeholder(&self, id: PodId) -> Option<ReservationId> {
        self.placeholders.get(&id).copied()
    }

    /// When the next reservation expires.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.table.next_expiry()
    }

    fn owner(&mut self, key: &WorkloadKey) -> WorkloadId {
        *self
            .by_key
            .entry(key.clone())
            .or_insert_with(|| self.owners.insert(Owner { key: key.clone(), claimants: BTreeSet::new() }))
    }

    fn make(&mut self, workload: WorkloadId, node: NodeId, held: Held, now: Time) {
        let placeholder = held.placeholder;
        let id = self.table.make(Reservation {
            owner: workload,
            cause: Cause::JointAdmission,
            place: node,
            held,
            since: now,
            expiry: Some(now.plus(EXPIRY)),
        });
        self.placeholders.insert(placeholder, id);
    }

    /// Ends a reservation. A workload is forgotten with its last one.
    fn end(&mut self, id: ReservationId) -> Option<Held> {
        let ended = self.table.end(id)?;
        self.placeholders.remove(&ended.held.placeholder);
        if self.table.count_of(ended.owner) == 0
            && let Some(owner) = self.owners.remove(ended.owner)
        {
            self.by_key.remove(&owner.key);
            for pod in owner.claimants {
                self.claims.remove(&pod);
            }
        }
        Some(ended.held)
    }

    fn claim(&mut self, id: PodId, claim: Claim) {
        if let Some(owner) = self.owners.get_mut(claim.workload) {
            owner.claimants.insert(id);
            self.claims.insert(id, claim);
        }
    }

    /// A pod claims nothing any more; whether it did.
    pub(crate) fn forget_claim(&mut self, id: PodId) -> bool {
        let Some(claim) = self.claims.remove(&id) else { return false };
        if let Some(owner) = self.owners.get_mut(claim.workload) {
            owner.claimants.remove(&id);
        }
        true
    }

    fn of_workload(&self, workload: &WorkloadKey) -> Vec<ReservationId> {
        let owner = self.by_key.get(workload);
        owner.into_iter().flat_map(|owner| self.table.of(*owner)).map(|(id, _)| id).collect()
    }

    /// The reservations of a workload for a podset, in the order in which they were made: (reservation, node).
    fn for_pod_set(&self, workload: WorkloadId, pod_set: &str) -> Vec<(ReservationId, NodeId)> {
        let all = self.table.of(workload);
        all.filter(|(_, r)| &*r.held.pod_set == pod_set).map(|(id, r)| (id, r.place)).collect()
    }
}

impl Scheduler {
    /// Reserves a node for each of `pods`, as they will be created (their names and UIDs don't count), or changes nothing.
    /// Pods of a scheduler that is not ours, and those for which extenders have to be asked, get no reservation. What
    /// was reserved for the workload before is released.
    ///
    /// # Errors
    /// The scheduler's message about the first pod that fits nowhere.
    pub fn reserve_nodes(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[model::Pod],
    ) -> Result<(), String> {
        self.now = now;
        self.release_nodes(workload);
        let mut found: Vec<(NodeId, Held)> = Vec::with_capacity(pods.len());
        for pod in pods {
            self.node_reservations.made += 1;
            let uid = format!("reservation-{}", self.node_reservations.made);
            let shape = self.cluster.shapes.acquire(pod, &mut self.cluster.strings);
            let name = format!("{}-{}", workload.name, pod.pod_set);
            let id = self.cluster.insert_pod(Pod::new(&uid, &name, shape));
            let Some(profile) = self.profile_of(id).filter(|_| !self.is_extended(id)) else {
                self.cluster.remove_pod(id);
                continue;
            };
            match self.dry_run(id, profile) {
                Ok(node) => {
                    self.cluster.place(id, node);
                    let same = found.last().filter(|(_, h)| *h.pod_set == *pod.pod_set);
                    let pod_set =
                        same.map_or_else(|| pod.pod_set.as_str().into(), |(_, h)| Arc::clone(&h.pod_set));
                    found.push((node, Held { placeholder: id, pod_set }));
                }
                Err(text) => {
                    self.cluster.remove_pod(id);
                    found.into_iter().rev().for_each(|(_, held)| self.cluster.remove_pod(held.placeholder));
                    return Err(text);
                }
            }
        }
        if !found.is_empty() {
            let owner = self.node_reservations.owner(workload);
            for (node, held) in found {
                self.node_reservations.make(owner, node, held, now);
            }
        }
        Ok(())
    }

    /// The best node for a pod now, without preempting others.
    fn dry_run(&mut self, id: PodId, profile: usize) -> Result<NodeId, String> {
        if self.cluster.node_count == 0 {
            return Err("no nodes available to schedule pods".into());
        }
        let Some(runner) = self.runners.get(profile) else { return Err("no such profile".into()) };
        let incoming = Incoming::new(&self.cluster, id);
        let index = u32::try_from(profile).unwrap_or(u32::MAX);
        match self.ranks.best(runner, index, &mut self.cluster, &incoming, &mut self.rng) {
            Rank::Best(node) => Ok(node),
            Rank::None(ranked) => Err(evaluate::ranked_failure(&self.cluster, ranked).fit.short()),
            Rank::Unknown => match search(runner, &mut self.cluster, (incoming, None), &mut self.rng, None) {
                Search::On(_, node) => Ok(node),
                Search::Nowhere(_, failure) => Err(failure.fit.short()),
                Search::Error(text) => Err(text),
            },
        }
    }

    /// Releases what is reserved for a workload and was not consumed.
    pub fn release_nodes(&mut self, workload: &WorkloadKey) {
        for id in self.node_reservations.of_workload(workload) {
            self.release_node(id);
        }
    }

    /// Undoes [`Scheduler::reserve_nodes`], if nothing else has happened since. No capacity is freed by that: pods and
    /// workloads that wait for some would be tried again in vain.
    pub fn withdraw_nodes(&mut self, workload: &WorkloadKey) {
        for id in self.node_reservations.of_workload(workload) {
            if let Some(held) = self.node_reservations.end(id) {
                self.cluster.remove_pod(held.placeholder);
            }
        }
    }

    /// Releases reservations whose pods did not come in time.
    pub(super) fn expire_node_reservations(&mut self) {
        let expired: Vec<ReservationId> = self.node_reservations.table.expired(self.now).collect();
        for id in expired {
            self.release_node(id);
        }
    }

    /// Ends a reservation as if a pod had gone: others may have waited for the capacity.
    pub(super) fn release_node(&mut self, id: ReservationId) {
        let Some(held) = self.node_reservations.end(id) else { return };
        let uid = self.cluster.pods[held.placeholder].uid.to_string();
        self.pod_delete(&uid);
    }

    /// Notes a pod whose workload has reservations. One that is on no node yet may consume one; one that got a node
    /// otherwise releases one, the first time that is seen. `before` is the node that it was on until now.
    pub(super) fn note_reserved_pod(&mut self, id: PodId, pod: &model::Pod, before: Option<NodeId>) {
        if self.node_reservations.by_key.is_empty() || pod.workload.is_empty() || pod.pod_set.is_empty() {
            return;
        }
        let key = WorkloadKey { namespace: pod.namespace.clone(), name: pod.workload.clone() };
        let Some(&workload) = self.node_reservations.by_key.get(&key) else { return };
        if pod.spec.node_name.is_empty() {
            return self.node_reservations.claim(id, Claim { workload, pod_set: pod.pod_set.clone() });
        }
        let first = self.node_reservations.forget_claim(id) || before.is_none();
        if !first {
            return;
        }
        let node = self.cluster.pods[id].node;
        let mine = self.node_reservations.for_pod_set(workload, &pod.pod_set);
        let same = mine.iter().find(|(_, reserved)| Some(*reserved) == node);
        if let Some((reservation, _)) = same.or(mine.first()) {
            self.release_node(*reservation);
        }
    }

    /// Whether a reservation may be consumed by the pod.
    pub(super) fn has_reservation(&self, id: PodId) -> bool {
        self.node_reservations.claims.contains_key(&id)
    }

    /// Places a pod on a node that is reserved for it, and ends that reservation; `None` when there is none, or when the
    /// pod does not fit where its placeholder did.
    pub(super) fn consume_reservation(&mut self, id: PodId) -> Option<Outcome> {
        let Claim { workload, pod_set } = self.node_reservations.claims.get(&id)?.clone();
        let profile = self.queue.get(id)?.profile as usize;
        for (reservation, node) in self.node_reservations.for_pod_set(workload, &pod_set) {
            if !self.cluster.nodes[node].exists {
                self.release_node(reservation);
                continue;
            }
            let placeholder = self.node_reservations.table.get(reservation)?.held.placeholder;
            self.cluster.unplace(placeholder);
            let runner = self.runners.get(profile)?;
            let incoming = Incoming::new(&self.cluster, id);
            let cycle = Cycle::pre_filter(runner, &self.cluster, incoming);
            let fits = cycle.status.is_success()
                && cycle.allows(&self.cluster, node)
                && cycle.filter_once(&self.cluster, node).is_success();
            if fits {
                let outcome = Outcome::Placed(node, cycle.state);
                self.node_reservations.forget_claim(id);
                self.node_reservations.end(reservation);
                self.cluster.remove_pod(placeholder);
                return Some(outcome);
            }
            self.cluster.place(placeholder, node);
        }
        None
    }

    /// Compares reservations with their placeholders and the pods that may consume them.
    ///
    /// # Panics
    /// When they differ.
    pub(super) fn check_node_reservations(&self) {
        let all = &self.node_reservations;
        all.table.check();
        for (id, r) in all.table.iter() {
            let row = r.held.placeholder;
            assert_eq!(all.of_placeholder(row), Some(id), "placeholder of another reservation");
            assert_eq!(self.cluster.pods[row].node, Some(r.place), "placeholder on another node");
            assert!(self.queue.get(row).is_none(), "a placeholder is queued");
        }
        assert_eq!(all.placeholders.len(), all.table.len(), "placeholders without a reservation");
        let mut claimants = 0;
        for (id, owner) in all.owners.iter() {
            assert_eq!(all.by_key.get(&owner.key), Some(&id), "{}: not found by name", owner.key);
            assert!(all.table.count_of(id) > 0, "{}: no reservation left", owner.key);
            for pod in &owner.claimants {
                assert_eq!(all.claims.get(pod).map(|c| c.workload), Some(id), "{}: claims", owner.key);
            }
            claimants += owner.claimants.len();
        }
        assert_eq!((all.by_key.len(), all.claims.len()), (all.owners.len(), claimants), "left over");
    }
}
