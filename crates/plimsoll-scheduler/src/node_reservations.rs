//! Reservations of nodes, of one kind whatever their cause: nodes that joint admission holds for pods to come, assumed
//! pods, and nominated pods.

use super::bind::Assumed;
use super::cluster::{Cluster, NodeId, PodId};
use plimsoll_state::model::WorkloadKey;
use plimsoll_state::parted::PartedMap;
use plimsoll_state::reservation::{Cause, Reservation, ReservationId, Reservations};
use plimsoll_state::slab::{Id, Slab, dense_id};
use plimsoll_state::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

dense_id!(
    /// A workload with reservations.
    WorkloadId
);

/// The owner that a node is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Pod(PodId),
    Workload(WorkloadId),
}

impl Id for Owner {
    fn new(index: usize) -> Self {
        match index % 2 {
            0 => Self::Pod(PodId::new(index / 2)),
            _ => Self::Workload(WorkloadId::new(index / 2)),
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Pod(id) => id.index() * 2,
            Self::Workload(id) => id.index() * 2 + 1,
        }
    }
}

/// What a reservation holds on its node.
#[derive(Debug)]
enum Held {
    /// A row that is counted on the node like a pod, for a pod to come of this podset.
    Placeholder(Placeholder),
    /// The pod itself, which is counted on the node.
    Assumed(Assumed),
    /// What the pod asks for, to pods that do not go before it.
    Nominated,
}

/// A row that stands on a node for a pod to come.
#[derive(Clone, Debug)]
pub(crate) struct Placeholder {
    pub(crate) row: PodId,
    /// The podset whose pods may consume the reservation.
    pub(crate) pod_set: Arc<str>,
}

/// A workload with reservations.
#[derive(Debug)]
struct Workload {
    key: WorkloadKey,
    /// Its pods that may consume one and have not.
    claimants: BTreeSet<PodId>,
}

/// The reservations that a pod may consume: those that its workload has for its podset.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) workload: WorkloadId,
    pub(crate) pod_set: String,
}

/// All reservations of nodes, and the pods that may consume those of workloads.
#[derive(Debug, Default)]
pub(crate) struct NodeReservations {
    table: Reservations<Owner, NodeId, Held>,
    workloads: Slab<WorkloadId, Workload>,
    by_key: BTreeMap<WorkloadKey, WorkloadId>,
    placeholders: PartedMap<PodId, ReservationId>,
    claims: PartedMap<PodId, Claim>,
}

/// A reservation, its node and its placeholder.
pub(crate) type ForPodSet = (ReservationId, NodeId, PodId);

/// A reservation, if pods of the podset may consume it.
fn for_pod_set(
    id: ReservationId,
    reservation: &Reservation<Owner, NodeId, Held>,
    pod_set: &str,
) -> Option<ForPodSet> {
    match &reservation.held {
        Held::Placeholder(p) if *p.pod_set == *pod_set => Some((id, reservation.place, p.row)),
        Held::Placeholder(_) | Held::Assumed(_) | Held::Nominated => None,
    }
}

impl NodeReservations {
    /// When the next reservation expires.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.table.next_expiry()
    }

    /// The reservations that have expired, the oldest expiry first.
    pub(crate) fn expired(&self, now: Time) -> Vec<ReservationId> {
        self.table.expired(now).collect()
    }

    /// The reservation that a row is the placeholder of; `None` for pods.
    pub(crate) fn of_placeholder(&self, id: PodId) -> Option<ReservationId> {
        self.placeholders.get(&id).copied()
    }

    /// The workload of this name, if it has reservations.
    pub(crate) fn workload(&self, key: &WorkloadKey) -> Option<WorkloadId> {
        self.by_key.get(key).copied()
    }

    /// Whether a workload has reservations.
    pub(crate) fn any_workload(&self) -> bool {
        !self.by_key.is_empty()
    }

    /// The workloads with reservations.
    pub(crate) fn workload_keys(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.by_key.keys()
    }

    /// The placeholders of workloads, in the order of their reservations' ids.
    pub(crate) fn all_placeholders(&self) -> impl Iterator<Item = PodId> {
        self.table.iter().filter_map(|(_, r)| match &r.held {
            Held::Placeholder(p) => Some(p.row),
            Held::Assumed(_) | Held::Nominated => None,
        })
    }

    /// The workload that a row is a placeholder for.
    pub(crate) fn workload_of_placeholder(&self, id: PodId) -> Option<&WorkloadKey> {
        match self.table.get(self.of_placeholder(id)?)?.owner {
            Owner::Workload(workload) => Some(&self.workloads.get(workload)?.key),
            Owner::Pod(_) => None,
        }
    }

    /// The placeholders of a workload.
    pub(crate) fn placeholders_of(&self, key: &WorkloadKey) -> Vec<PodId> {
        let rows = self.of_workload(key).into_iter().filter_map(|id| match &self.table.get(id)?.held {
            Held::Placeholder(p) => Some(p.row),
            Held::Assumed(_) | Held::Nominated => None,
        });
        rows.collect()
    }

    /// Since when the oldest reservation of a workload is there.
    pub(crate) fn oldest_placeholder(&self) -> Option<Time> {
        let placeholders = self.table.iter().filter(|(_, r)| matches!(r.held, Held::Placeholder(_)));
        placeholders.map(|(_, r)| r.since).min()
    }

    /// The last reservation made for a workload on a node: its id and its placeholder.
    pub(crate) fn last_placeholder_on(&self, node: NodeId) -> Option<(ReservationId, PodId)> {
        let on_node = self.table.at(node).filter_map(|(id, r)| match &r.held {
            Held::Placeholder(p) => Some((id, p.row)),
            Held::Assumed(_) | Held::Nominated => None,
        });
        on_node.last()
    }

    /// The reservations of a workload.
    pub(crate) fn of_workload(&self, key: &WorkloadKey) -> Vec<ReservationId> {
        let owner = self.workload(key).map(Owner::Workload);
        owner.into_iter().flat_map(|owner| self.table.of(owner)).map(|(id, _)| id).collect()
    }

    /// Reserves nodes for a workload that has no reservations.
    pub(crate) fn reserve_placeholders(
        &mut self,
        key: &WorkloadKey,
        found: Vec<(NodeId, Placeholder)>,
        since: Time,
        expiry: Time,
    ) {
        if found.is_empty() {
            return;
        }
        let workload = self.workloads.insert(Workload { key: key.clone(), claimants: BTreeSet::new() });
        self.by_key.insert(key.clone(), workload);
        for (place, placeholder) in found {
            let row = placeholder.row;
            let id = self.table.make(Reservation {
                owner: Owner::Workload(workload),
                cause: Cause::JointAdmission,
                place,
                held: Held::Placeholder(placeholder),
                since,
                expiry: Some(expiry),
            });
            self.placeholders.insert(row, id);
        }
    }

    /// Ends a reservation of a workload and returns its placeholder. The workload is forgotten with its last one.
    pub(crate) fn end(&mut self, id: ReservationId) -> Option<PodId> {
        let ended = self.table.end(id)?;
        let (Owner::Workload(workload), Held::Placeholder(placeholder)) = (ended.owner, ended.held) else {
            return None;
        };
        self.placeholders.remove(&placeholder.row);
        if self.table.count_of(ended.owner) == 0
            && let Some(workload) = self.workloads.remove(workload)
        {
            self.by_key.remove(&workload.key);
            for pod in workload.claimants {
                self.claims.remove(&pod);
            }
        }
        Some(placeholder.row)
    }

    /// Lets a pod consume a reservation of its workload.
    pub(crate) fn claim(&mut self, id: PodId, claim: Claim) {
        if let Some(workload) = self.workloads.get_mut(claim.workload) {
            workload.claimants.insert(id);
            self.claims.insert(id, claim);
        }
    }

    /// What a pod may consume.
    pub(crate) fn claim_of(&self, id: PodId) -> Option<&Claim> {
        self.claims.get(&id)
    }

    /// A pod may consume nothing any more; whether it might have.
    pub(crate) fn forget_claim(&mut self, id: PodId) -> bool {
        let Some(claim) = self.claims.remove(&id) else { return false };
        if let Some(workload) = self.workloads.get_mut(claim.workload) {
            workload.claimants.remove(&id);
        }
        true
    }

    /// The reservations of a workload for a podset, in the order in which they were made.
    pub(crate) fn for_pod_set(&self, workload: WorkloadId, pod_set: &str) -> impl Iterator<Item = ForPodSet> {
        self.table.of(Owner::Workload(workload)).filter_map(move |(id, r)| for_pod_set(id, r, pod_set))
    }

    /// Those of them that are on a node.
    pub(crate) fn for_pod_set_on(
        &self,
        workload: WorkloadId,
        pod_set: &str,
        node: NodeId,
    ) -> impl Iterator<Item = ForPodSet> {
        let on_node = self.table.at(node).filter(move |(_, r)| r.owner == Owner::Workload(workload));
        on_node.filter_map(move |(id, r)| for_pod_set(id, r, pod_set))
    }

    fn of_pod(&self, id: PodId, cause: Cause) -> Option<ReservationId> {
        self.table.of(Owner::Pod(id)).find(|(_, r)| r.cause == cause).map(|(id, _)| id)
    }

    fn reserve_for_pod(&mut self, id: PodId, cause: Cause, place: NodeId, held: Held, since: Time) {
        self.table.make(Reservation { owner: Owner::Pod(id), cause, place, held, since, expiry: None });
    }

    /// Assumes a pod on a node, where the caller counts it.
    pub(crate) fn assume(&mut self, id: PodId, node: NodeId, assumed: Assumed, now: Time) {
        self.end_assumed(id);
        self.reserve_for_pod(id, Cause::Assumed, node, Held::Assumed(assumed), now);
    }

    /// Whether a pod is assumed.
    pub(crate) fn is_assumed(&self, id: PodId) -> bool {
        self.of_pod(id, Cause::Assumed).is_some()
    }

    /// The attempt of an assumed pod.
    pub(crate) fn assumed(&self, id: PodId) -> Option<&Assumed> {
        match &self.table.get(self.of_pod(id, Cause::Assumed)?)?.held {
            Held::Assumed(assumed) => Some(assumed),
            Held::Placeholder(_) | Held::Nominated => None,
        }
    }

    /// All pods that are assumed.
    pub(crate) fn assumed_pods(&self) -> Vec<PodId> {
        let pod = |owner| match owner {
            Owner::Pod(id) => Some(id),
            Owner::Workload(_) => None,
        };
        let assumed = self.table.iter().filter(|(_, r)| r.cause == Cause::Assumed);
        assumed.filter_map(|(_, r)| pod(r.owner)).collect()
    }

    pub(crate) fn assumed_mut(&mut self, id: PodId) -> Option<&mut Assumed> {
        match self.table.held_mut(self.of_pod(id, Cause::Assumed)?)? {
            Held::Assumed(assumed) => Some(assumed),
            Held::Placeholder(_) | Held::Nominated => None,
        }
    }

    /// A pod is assumed no more: it is bound, or it is forgotten.
    pub(crate) fn end_assumed(&mut self, id: PodId) -> Option<Assumed> {
        match self.table.end(self.of_pod(id, Cause::Assumed)?)?.held {
            Held::Assumed(assumed) => Some(assumed),
            Held::Placeholder(_) | Held::Nominated => None,
        }
    }

    /// Nominates a pod to a node, or to none.
    pub(crate) fn nominate(&mut self, id: PodId, node: Option<NodeId>, now: Time) {
        if let Some(old) = self.of_pod(id, Cause::Nominated) {
            self.table.end(old);
        }
        if let Some(node) = node {
            self.reserve_for_pod(id, Cause::Nominated, node, Held::Nominated, now);
        }
    }

    /// A pod is gone: ends what it has, and lets it consume nothing.
    pub(crate) fn forget_pod(&mut self, id: PodId) {
        self.forget_claim(id);
        self.end_assumed(id);
        self.nominate(id, None, Time::default());
    }

    /// Compares reservations with the pods and placeholders on nodes.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check(&self, cluster: &Cluster) {
        self.table.check();
        let (mut placeholders, mut nominated) = (0, 0);
        for (id, r) in self.table.iter() {
            match (r.owner, &r.held) {
                (Owner::Workload(_), Held::Placeholder(p)) => {
                    assert_eq!(self.of_placeholder(p.row), Some(id), "placeholder of another reservation");
                    assert_eq!(cluster.pods[p.row].node, Some(r.place), "placeholder on another node");
                    assert!(cluster.pods[p.row].queued, "placeholder of no workload");
                    let name = cluster.strings.text(cluster.nodes[r.place].name);
                    assert!(!cluster.is_overcommitted(r.place), "{name}: reserved and used exceed the node");
                    placeholders += 1;
                }
                (Owner::Pod(pod), Held::Assumed(_)) => {
                    assert_eq!(cluster.pods[pod].node, Some(r.place), "assumed on another node");
                }
                (Owner::Pod(pod), Held::Nominated) => {
                    assert_eq!(cluster.pods[pod].nominated, Some(r.place), "nominated to another node");
                    nominated += 1;
                }
                (owner, held) => unreachable!("{owner:?} holds {held:?}"),
            }
        }
        assert_eq!(self.placeholders.len(), placeholders, "placeholders without a reservation");
        assert_eq!(cluster.nominees.len(), nominated, "nominated without a reservation");
        let mut claimants = 0;
        for (id, workload) in self.workloads.iter() {
            assert_eq!(self.workload(&workload.key), Some(id), "{}: not found by name", workload.key);
            assert!(self.table.count_of(Owner::Workload(id)) > 0, "{}: no reservation left", workload.key);
            for pod in &workload.claimants {
                let claim = self.claims.get(pod);
                assert_eq!(claim.map(|c| c.workload), Some(id), "{}: claims", workload.key);
            }
            claimants += workload.claimants.len();
        }
        assert_eq!((self.by_key.len(), self.claims.len()), (self.workloads.len(), claimants), "left over");
    }

    /// How many pods are assumed.
    #[cfg(test)]
    pub(crate) fn assumed_count(&self) -> usize {
        self.table.iter().filter(|(_, r)| r.cause == Cause::Assumed).count()
    }
}
