//! What queueing needs of the scheduler, so that quota and nodes are decided together.

use std::collections::BTreeSet;

use plimsoll_state::Time;
use plimsoll_state::model::{Node, Pod, Protection};
use plimsoll_state::reservation::{DryRunFailure, DryRunId, PodsAt, ReservedNode};

use crate::conditions::Edit;
use crate::model::WorkloadKey;
use crate::{cond, reserved_nodes};

/// Reservations of nodes for the pods of a workload (joint admission). The engine implements it with the scheduler;
/// without joint admission there is none, and a workload is admitted by quota alone.
///
/// A cycle makes dry runs: pods are placed on nodes in addition to what is there, and to the dry runs that stand.
pub trait NodeReservations {
    /// Places pods, as they will be created, each as often as the number beside it, until one fits nowhere. The dry run
    /// stands until it is lifted, reserved or ended, also when it failed.
    ///
    /// # Errors
    /// Why the first pod fits nowhere that does not.
    fn dry_run(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[(Pod, usize)],
    ) -> (DryRunId, Result<(), DryRunFailure>);

    /// The same at places of topologies, but goes on with the next place where a pod fits nowhere: how many of each place were
    /// placed, and why not all of the first one that were not. `how`: whether as if all other workloads had left, so that it does
    /// not stand, and whether the failure has to have a message.
    fn dry_run_each(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[PodsAt<'_>],
        how: (bool, bool),
    ) -> (DryRunId, Vec<usize>, Option<DryRunFailure>);

    /// Whether so many such pods have nodes now, wherever each of them is: then a dry run of them succeeds. `false`: they don't, or
    /// it takes a dry run to know.
    fn fits_anywhere(&mut self, now: Time, pod: &Pod, count: usize) -> bool;

    /// The nodes, by name, that don't take one such pod by all filters, now or once all other workloads have left (`alone`). Where
    /// that depends on the pods beside it, there are none.
    fn unusable_nodes(&mut self, now: Time, pod: &Pod, alone: bool) -> Vec<String>;

    /// Whether a pod would fit on a new node like this one.
    ///
    /// # Errors
    /// Why not.
    fn fits_new_node(&mut self, now: Time, pod: &Pod, node: &Node) -> Result<(), String>;

    /// Takes the pods of a dry run off their nodes, to restore it later.
    fn lift(&mut self, run: DryRunId);

    /// Puts the pods of a lifted dry run back on their nodes; whether all fit there. Those that don't are left out.
    /// `checked`: other pods may have come since.
    fn restore(&mut self, run: DryRunId, checked: bool) -> bool;

    /// Ends a dry run.
    fn end(&mut self, run: DryRunId);

    /// Ends dry runs that stand, and reserves their nodes for the pods of the workload. Names those nodes.
    fn reserve_nodes(&mut self, now: Time, workload: &WorkloadKey, runs: &[DryRunId]) -> Vec<ReservedNode>;

    /// Reserves nodes as they were reserved for the pods of a workload at `since`, but for pods that are on nodes already,
    /// and where they no longer fit.
    fn rebuild(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        since: Time,
        pods: &[(Pod, usize)],
        places: &[ReservedNode],
    );

    /// Plans where the pods of a workload that waits for nodes will be: as many as possible where they fit now, the rest where
    /// they will when the pods of other workloads have left, if possible as in the plan before, which ends. The plan stands
    /// like a dry run. `None`: not all pods fit even then.
    fn plan(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[(Pod, usize)],
        before: Option<DryRunId>,
    ) -> Option<DryRunId>;

    /// The nodes of a plan, as numbers, one for each pod, in order: what other workloads may use depends on these.
    fn planned_on(&self, plan: DryRunId) -> Vec<usize>;

    /// The workloads that have to leave before all pods of a plan fit on its nodes. `None`: that is not known.
    fn blockers(&mut self, plan: DryRunId) -> Option<BTreeSet<WorkloadKey>>;

    /// Takes the pods of a workload, and what is reserved for it, off their nodes, until they are added again; `None`: the pods
    /// of all workloads that are being deleted. How many there were.
    fn simulate_removal(&mut self, workload: Option<&WorkloadKey>) -> usize;

    /// Adds what was removed.
    fn simulate_addition(&mut self, workload: Option<&WorkloadKey>);

    /// Places those of these pods that a standing dry run has no place for; whether all have one then.
    fn extend(&mut self, now: Time, run: DryRunId, workload: &WorkloadKey, pods: &[(Pod, usize)]) -> bool;

    /// Adds the pods of a workload again that was removed, if the pods of a standing dry run have nodes beside them, where
    /// needed other ones than before. Otherwise nothing changes.
    fn put_back_beside(&mut self, run: DryRunId, workload: &WorkloadKey) -> bool;

    /// What speaks against preempting the pods of a workload for pods of this priority.
    fn protection(&self, workload: &WorkloadKey, priority: i64) -> Protection;

    /// Undoes [`NodeReservations::reserve_nodes`] before anything else has happened: the workload is not admitted after all.
    fn withdraw(&mut self, workload: &WorkloadKey);

    /// Releases the reservations of a workload that no pod has consumed.
    fn release(&mut self, workload: &WorkloadKey);

    /// Whether there may be more capacity on nodes than when this was last asked.
    fn take_freed(&mut self) -> bool;

    /// Whether pods have come to nodes since this was last asked: others may want to be beside them.
    fn take_pods_came(&mut self) -> bool;

    /// Changes whenever there may be more capacity on nodes than before: until then a dry run that failed fails again.
    fn capacity_version(&self) -> u64;

    /// Whether one of these pods could be placed where there is more capacity than at a version before: until then a dry run
    /// of them that failed fails again.
    fn could_help(&mut self, since: u64, pods: &[(Pod, usize)]) -> bool;

    /// Changes whenever nodes may have more capacity than before once the pods of workloads have left: until then a plan
    /// that was impossible is impossible.
    fn whole_version(&self) -> u64;

    /// Changes whenever a node came or changed: a place that was planned on one may be of no use.
    fn node_version(&self) -> u64;

    /// Begins an attempt, which is put off where it would look at more nodes than the step has work left for. What it does from there on
    /// fails and means nothing. Its caller undoes all of it and tries it again in the next step, which goes on with these nodes.
    fn begin_attempt(&mut self);

    /// Whether the present attempt is put off.
    fn attempt_is_put_off(&self) -> bool;

    /// Ends an attempt; whether it is put off. From now on nothing is.
    fn end_attempt(&mut self) -> bool;

    /// Looks at all nodes for such pods, as far as the step has work left for that, so that plans don't have to. Whether it is done;
    /// otherwise the next step goes on with it.
    fn rank_nodes(&mut self, now: Time, pods: &[(Pod, usize)]) -> bool;
}

/// What is decided of the nodes of a workload that gets its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodesDecision {
    /// These are reserved.
    Reserved(Vec<ReservedNode>),
    /// Nodes decide nothing, for a reason of the condition `plimsoll.dev/NodesReserved`, and its message.
    QuotaAlone(&'static str, String),
}

impl NodesDecision {
    /// Writes the condition `plimsoll.dev/NodesReserved`.
    pub(crate) fn write(&self, edit: &mut Edit<'_>) {
        match self {
            Self::Reserved(places) => {
                edit.set(cond::NODES_RESERVED, true, "NodesReserved", &reserved_nodes::text(places))
            }
            Self::QuotaAlone(reason, message) => edit.set(cond::NODES_RESERVED, false, reason, message),
        };
    }
}

/// The implementation that a cycle was given.
pub(crate) type Nodes<'a, 'b> = &'a mut (dyn NodeReservations + 'b);
