//! The rows of queueing's tables: what is known and derived of each ClusterQueue, LocalQueue and workload.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::QueueStatus;
use super::admission_fair_sharing::ConsumedResources;
use super::amount::Exact;
use super::answers::WriteFailures;
use super::dependencies::Progress;
use super::dra::Charge;
use super::effective::EffectiveWorkload;
use super::explain::Explanation;
use super::ids::{ClusterQueueId, FlavorId, FlavorResource, LocalQueueId, SchedulingHashId, WorkloadId};
use super::model::{ClusterQueue, LocalQueue, TopologyAssignment, Workload};
use super::pending::Pending;
use super::pod_sets::{FlavorScores, PodSetResources};
use super::policy::Ruling;
use super::preemption_rounds::PreemptionRounds;
use super::rules::Rules;
use super::run_windows::Name as WindowName;
use super::tree::NodeId;
use crate::cycle::assign::LastAssignment;
use plimsoll_state::reservation::ReservationId;
use plimsoll_state::time::Time;

/// A ClusterQueue, or the place of one that something refers to.
#[derive(Debug, Default)]
pub(crate) struct ClusterQueueState {
    pub(crate) name: String,
    pub(crate) spec: Option<Box<ClusterQueue>>,
    pub(crate) rules: Arc<Rules>,
    /// Its node in the tree, while it exists and the tree is up to date.
    pub(crate) node: Option<NodeId>,
    /// Why it takes no workloads: reason and message of the condition `Active`.
    pub(crate) inactive: Option<(&'static str, String)>,
    /// Rises whenever more may fit than before.
    pub(crate) generation: i64,
    /// Cycles that looked at it.
    pub(crate) cycles: i64,
    /// How often its inadmissible workloads were requeued.
    pub(crate) inadmissible_requeues: i64,
    /// When those of its tree were last requeued because objects had changed.
    pub(crate) respecified_at: Option<Time>,
    pub(crate) pending: Pending,
    pub(crate) admitted: i32,
    /// Usage of admitted workloads.
    pub(crate) admitted_usage: BTreeMap<FlavorResource, Exact>,
    pub(crate) locals: BTreeSet<LocalQueueId>,
    pub(crate) reported: Option<Arc<QueueStatus>>,
    /// Lowest priority of the workloads that hold quota here, once it was asked for; `Some(None)`: none does.
    pub(crate) lowest_held: Option<Option<i64>>,
    /// Workloads that hold quota here and are evicted: they hold it until they have stopped.
    pub(crate) evicted: BTreeSet<WorkloadId>,
    /// Heads of the last cycle that needed victims of other entries.
    pub(crate) skips: u32,
    /// Run windows that apply to it.
    pub(crate) windows: Vec<WindowName>,
}

impl ClusterQueueState {
    /// Whether it exists and takes workloads (a cycle of cohorts is another matter).
    pub(crate) fn is_active(&self) -> bool {
        self.spec.is_some() && self.inactive.is_none()
    }
}

/// A LocalQueue, or the place of one that something refers to.
#[derive(Debug, Default)]
pub(crate) struct LocalQueueState {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) spec: Option<Box<LocalQueue>>,
    pub(crate) cq: Option<ClusterQueueId>,
    /// All workloads that name it.
    pub(crate) members: BTreeSet<WorkloadId>,
    /// What it consumed, for admission fair sharing.
    pub(crate) consumed_resources: ConsumedResources,
    pub(crate) tracks_consumed: bool,
    /// How many of them are pending in its ClusterQueue.
    pub(crate) pending: i32,
    pub(crate) reserving: i32,
    pub(crate) admitted: i32,
    pub(crate) reserved_usage: BTreeMap<FlavorResource, Exact>,
    pub(crate) admitted_usage: BTreeMap<FlavorResource, Exact>,
    pub(crate) reported: Option<Arc<QueueStatus>>,
    /// Run windows that apply to it.
    pub(crate) windows: Vec<WindowName>,
}

/// A workload. Its fields change by what is offered here, or are of types that change by what they offer.
#[derive(Debug)]
pub(crate) struct WorkloadInfo {
    /// The effective object: what the API showed plus the writes on their way.
    pub(crate) obj: EffectiveWorkload,
    /// Why it is pending, as far as that is to be written.
    pub(crate) explanation: Explanation,
    /// Writes that failed.
    pub(crate) failures: WriteFailures,
    /// How far its dependencies are.
    pub(crate) dependencies: Progress,
    /// How often others were preempted for it.
    pub(crate) rounds: PreemptionRounds,
    uid: Arc<str>,
    lq: LocalQueueId,
    request: WorkloadRequest,
    /// Its quota reservation.
    quota: Option<ReservationId>,
    /// Whether it has one, or had one before.
    has_held: bool,
    /// The ClusterQueue in which it is pending.
    queued: Option<ClusterQueueId>,
    /// How far the search among flavors got.
    last_assignment: Option<Box<LastAssignment>>,
    /// Whether nodes are reserved for its pods.
    nodes_reserved: bool,
    /// Its place among candidates for preemption by rules of the configuration, while it holds quota.
    victim_order: i32,
}

/// What a workload asks for, and what is wrong with that.
#[derive(Debug)]
pub(crate) struct WorkloadRequest {
    /// Per podset; while it holds quota what it holds.
    pub(crate) total_requests: Vec<PodSetResources>,
    pub(crate) scheduling_hash: SchedulingHashId,
    /// Why it can't be admitted: with defaults of the namespace filled in, and as written.
    pub(crate) invalid: Option<Box<str>>,
    pub(crate) invalid_as_written: Option<Box<str>>,
    /// What the configuration's rules say about it, if they say anything.
    pub(crate) ruling: Option<Box<Ruling>>,
    /// How they score flavors for it.
    pub(crate) flavor_scores: FlavorScores,
    /// What its claims for devices count as.
    pub(crate) devices: Charge,
}

impl WorkloadInfo {
    /// A workload that was seen first, in this LocalQueue. What it asks for is still to be computed.
    pub(crate) fn new(w: Workload, lq: LocalQueueId) -> Self {
        Self {
            uid: Arc::from(w.uid.as_str()),
            obj: EffectiveWorkload::new(w),
            explanation: Explanation::default(),
            failures: WriteFailures::default(),
            dependencies: Progress::default(),
            rounds: PreemptionRounds::default(),
            lq,
            request: WorkloadRequest {
                total_requests: Vec::new(),
                scheduling_hash: SchedulingHashId::NONE,
                invalid: None,
                invalid_as_written: None,
                ruling: None,
                flavor_scores: FlavorScores::default(),
                devices: Ok(Vec::new()),
            },
            quota: None,
            has_held: false,
            queued: None,
            last_assignment: None,
            nodes_reserved: false,
            victim_order: 0,
        }
    }

    pub(crate) fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    /// The LocalQueue that it names.
    pub(crate) fn lq(&self) -> LocalQueueId {
        self.lq
    }

    /// It names another LocalQueue.
    pub(crate) fn set_lq(&mut self, lq: LocalQueueId) {
        self.lq = lq;
    }

    /// What each podset asks for; while it holds quota what it holds.
    pub(crate) fn total_requests(&self) -> &[PodSetResources] {
        &self.request.total_requests
    }

    pub(crate) fn scheduling_hash(&self) -> SchedulingHashId {
        self.request.scheduling_hash
    }

    /// Why it can't be admitted, with defaults of the namespace filled in.
    pub(crate) fn invalid(&self) -> Option<&str> {
        self.request.invalid.as_deref()
    }

    /// The same as written.
    pub(crate) fn invalid_as_written(&self) -> Option<&str> {
        self.request.invalid_as_written.as_deref()
    }

    /// What its claims for devices count as.
    pub(crate) fn devices(&self) -> &Charge {
        &self.request.devices
    }

    /// What it asks for was computed. With another scheduling hash the search among flavors begins anew.
    pub(crate) fn set_request(&mut self, request: WorkloadRequest) {
        if self.request.scheduling_hash != request.scheduling_hash {
            self.restart_flavor_search();
        }
        self.request = request;
    }

    /// Its quota reservation.
    pub(crate) fn quota(&self) -> Option<ReservationId> {
        self.quota
    }

    /// It has quota reserved, for these amounts.
    pub(crate) fn hold(&mut self, reservation: ReservationId, total_requests: Vec<PodSetResources>) {
        self.quota = Some(reservation);
        self.has_held = true;
        self.request.total_requests = total_requests;
    }

    /// Whether it has held quota since it is known here.
    pub(crate) const fn has_held(&self) -> bool {
        self.has_held
    }

    /// Its place among candidates for preemption, before its priority: lower numbers are preempted first.
    pub(crate) fn victim_order(&self) -> i32 {
        self.victim_order
    }

    pub(crate) fn set_victim_order(&mut self, order: i32) {
        self.victim_order = order;
    }

    /// How rules of the configuration score flavors for it.
    pub(crate) fn flavor_scores(&self) -> &[(FlavorId, i32)] {
        &self.request.flavor_scores
    }

    /// Its reservation ends.
    pub(crate) fn release(&mut self) -> Option<ReservationId> {
        self.quota.take()
    }

    /// The ClusterQueue in which it is pending.
    pub(crate) fn queued(&self) -> Option<ClusterQueueId> {
        self.queued
    }

    /// It is pending in this ClusterQueue; whether it was in none.
    pub(crate) fn enter_queue(&mut self, cq: ClusterQueueId) -> bool {
        self.queued.replace(cq).is_none()
    }

    /// It is pending no longer. The ClusterQueue in which it was.
    pub(crate) fn leave_queue(&mut self) -> Option<ClusterQueueId> {
        self.queued.take()
    }

    /// How far the search among flavors got.
    pub(crate) fn last_assignment(&self) -> Option<&LastAssignment> {
        self.last_assignment.as_deref()
    }

    /// The next search among flavors begins anew.
    pub(crate) fn restart_flavor_search(&mut self) {
        self.last_assignment = None;
    }

    /// The next search among flavors goes on where this one ended.
    pub(crate) fn continue_flavor_search(&mut self, last: Option<LastAssignment>) {
        self.last_assignment = last.map(Box::new);
    }

    /// Whether nodes are reserved for its pods.
    pub(crate) fn nodes_reserved(&self) -> bool {
        self.nodes_reserved
    }

    pub(crate) fn set_nodes_reserved(&mut self, reserved: bool) {
        self.nodes_reserved = reserved;
    }

    /// Why a rule of the configuration keeps it from being admitted.
    pub(crate) fn veto(&self) -> Option<&String> {
        self.request.ruling.as_ref()?.veto.as_ref()
    }

    /// Its place by rules of the configuration: what comes before its priority, and what comes after it.
    pub(crate) fn ruled_order(&self) -> (i32, Reverse<i32>) {
        self.request.ruling.as_ref().map_or((0, Reverse(0)), |ruling| (ruling.order, Reverse(ruling.score)))
    }

    /// Where among [`WorkloadInfo::total_requests`] a podset of the spec is: by its name in the admission, if there is one.
    pub(crate) fn resources_of(&self, pod_set: usize) -> Option<usize> {
        match self.obj.status.admission.as_ref().filter(|_| self.quota.is_some()) {
            Some(a) => {
                let name = &self.obj.pod_sets.get(pod_set)?.name;
                a.assignments.iter().position(|p| p.name == *name)
            }
            None => Some(pod_set),
        }
    }

    /// The placement a podset has.
    pub(crate) fn placement_of(&self, pod_set: &str) -> Option<&TopologyAssignment> {
        let assigned = self.obj.status.admission.iter().flat_map(|a| &a.assignments);
        assigned.filter(|a| a.name == pod_set).find_map(|a| a.topology.as_ref())
    }

    /// Whether it is admitted with a node that has to be replaced.
    pub(crate) fn needs_other_node(&self) -> bool {
        let s = &self.obj.status;
        let placed = s.admission.iter().flat_map(|a| &a.assignments).filter_map(|a| a.topology.as_ref());
        !s.unhealthy_nodes.is_empty()
            && s.is_true(super::cond::ADMITTED)
            && placed
                .flat_map(|t| &t.domains)
                .any(|(values, _)| values.last().is_some_and(|v| s.unhealthy_nodes.contains(v)))
    }

    /// Whether the scheduler has to look for places once more (Kueue `NeedsSecondPass`), provided that its list of
    /// checks is complete. Kueue does nothing while that is empty, also when its last check is no longer asked for.
    pub(crate) fn needs_second_pass(&self) -> bool {
        let s = &self.obj.status;
        if s.unhealthy_nodes.is_empty() && !s.awaits_topology() {
            return false;
        }
        let ready = |c: &super::AdmissionCheckState| c.state == super::CheckState::Ready;
        let delayed = || {
            s.admission_checks.iter().all(ready) && s.awaits_topology() && !s.is_true(super::cond::ADMITTED)
        };
        self.quota.is_some()
            && self.obj.active
            && s.is_true(super::cond::QUOTA_RESERVED)
            && !s.is_true(super::cond::FINISHED)
            && !s.is_true(super::cond::EVICTED)
            && (self.needs_other_node() || delayed())
    }
}
