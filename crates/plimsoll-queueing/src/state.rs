//! The tables of queueing: objects with dense numbers, and what is derived from them per object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Action;
use super::afs::Ledger;
use super::amount::{Amount, Exact};
use super::assign::LastTry;
use super::config::Config;
use super::cycle::{Rounds, SecondPasses};
use super::depend::{Depend, Progress};
use super::dra::{Charge, Devices};
use super::ids::{Flavor, Fr, Ids, Map, Res};
use super::metrics::{Books, Tally};
use super::model::{
    AdmissionCheck, ClusterQueue, Cohort, FlavorFungibility, LimitRange, LocalQueue, PodSet, PreemptionRules,
    QueueingStrategy, ResourceFlavor, Topology, TopologyAssignment, Workload, WorkloadKey, WorkloadStatus,
};
use super::pending::{LqId, Pending, ShapeId, WlId};
use super::preempt::Searched;
use super::slices::Slices;
use super::tas::Tas;
use super::tree::{NodeId, Tree};
use super::windows::{Name as WindowName, Windows};
use super::{QueueStatus, WorkloadUpdate};
use plimsoll_state::model::{PodSpec, Resources, StringMap};
use plimsoll_state::{cast::index32, time::Time};

/// Number of a ClusterQueue.
pub(crate) type CqId = u32;

/// Resources given out together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) covered: Vec<Res>,
    pub(crate) flavors: Vec<Flavor>,
}

/// A ClusterQueue's rules with numbers for names.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) groups: Vec<Group>,
    pub(crate) fungibility: FlavorFungibility,
    pub(crate) preemption: PreemptionRules,
    pub(crate) strategy: QueueingStrategy,
    /// Whether LocalQueues that used less go first.
    pub(crate) fair_admission: bool,
}

impl Rules {
    /// The group that covers a resource.
    pub(crate) fn group_of(&self, res: Res) -> Option<usize> {
        self.groups.iter().position(|g| g.covered.contains(&res))
    }
}

/// A ClusterQueue, or the place of one that something refers to.
#[derive(Debug, Default)]
pub(crate) struct Cq {
    pub(crate) name: String,
    pub(crate) spec: Option<Box<ClusterQueue>>,
    pub(crate) rules: Arc<Rules>,
    /// Its node in the tree, while it exists and the tree is up to date.
    pub(crate) node: Option<NodeId>,
    /// Why it takes no workloads: reason and message of the condition `Active`.
    pub(crate) inactive: Option<(&'static str, String)>,
    /// Rises whenever more may fit than before.
    pub(crate) generation: i64,
    /// How often its parked workloads were given another chance.
    pub(crate) wakes: i64,
    pub(crate) pending: Pending,
    /// Workloads that hold quota here.
    pub(crate) holders: BTreeSet<WlId>,
    pub(crate) admitted: i32,
    /// Usage of admitted workloads.
    pub(crate) admitted_usage: BTreeMap<Fr, Exact>,
    pub(crate) locals: BTreeSet<LqId>,
    pub(crate) reported: Option<Arc<QueueStatus>>,
    /// Heads of the last cycle that needed victims claimed by others.
    pub(crate) skips: u32,
    /// Run windows that apply to it.
    pub(crate) windows: Vec<WindowName>,
}

impl Cq {
    /// Whether it exists and takes workloads (a cycle of cohorts is another matter).
    pub(crate) fn is_active(&self) -> bool {
        self.spec.is_some() && self.inactive.is_none()
    }
}

/// A LocalQueue, or the place of one that something refers to.
#[derive(Debug, Default)]
pub(crate) struct Lq {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) spec: Option<Box<LocalQueue>>,
    pub(crate) cq: Option<CqId>,
    /// All workloads that name it.
    pub(crate) members: BTreeSet<WlId>,
    /// What it consumed, for admission fair sharing.
    pub(crate) ledger: Ledger,
    pub(crate) ledger_open: bool,
    /// How many of them wait in its ClusterQueue.
    pub(crate) waiting: i32,
    pub(crate) reserving: i32,
    pub(crate) admitted: i32,
    pub(crate) reserved_usage: BTreeMap<Fr, Exact>,
    pub(crate) admitted_usage: BTreeMap<Fr, Exact>,
    pub(crate) reported: Option<Arc<QueueStatus>>,
    /// Run windows that apply to it.
    pub(crate) windows: Vec<WindowName>,
}

/// What one podset asks for or holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Total {
    pub(crate) count: i32,
    /// For all its pods, in Kueue's order of resources.
    pub(crate) requests: Vec<(Res, i64)>,
    /// Flavors it holds.
    pub(crate) flavors: Vec<(Res, Flavor)>,
    /// What one pod needs of a node.
    pub(crate) one: Vec<(Res, i64)>,
    /// Places it holds: values of the topology's levels, and pods there.
    pub(crate) places: Vec<(Vec<String>, i32)>,
}

impl Total {
    /// How much of a resource all its pods ask for.
    pub(crate) fn request(&self, res: Res) -> i64 {
        self.requests.iter().find(|(r, _)| *r == res).map_or(0, |(_, v)| *v)
    }

    /// The same podset with another number of pods.
    pub(crate) fn scaled_to(&self, count: i32) -> Self {
        let mut out = self.clone();
        if self.count != 0 && self.count != count {
            for (_, v) in &mut out.requests {
                *v = (*v / i64::from(self.count)).saturating_mul(i64::from(count));
            }
            out.count = count;
        }
        out
    }
}

/// A write that is not confirmed yet.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) update: Box<WorkloadUpdate>,
    /// What to count once it is confirmed.
    pub(crate) tallies: Vec<Tally>,
}

/// Why a workload waits, not written yet.
#[derive(Debug)]
pub(crate) struct Unsaid {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// `status.resourceRequests`.
    pub(crate) requests: Vec<(String, Resources)>,
}

/// A workload.
#[derive(Debug)]
pub(crate) struct Wl {
    /// The effective object: what the API showed plus the writes on their way.
    pub(crate) obj: Box<Workload>,
    /// The status the API showed last, while writes are on their way.
    pub(crate) base: Option<Box<WorkloadStatus>>,
    pub(crate) writes: Vec<Write>,
    /// A newer reason why it waits, to be written once `writes` is empty: of such writes only the last counts.
    pub(crate) unsaid: Option<Box<Unsaid>>,
    /// When such a write was made last.
    pub(crate) said: Option<Time>,
    /// Whether it will be explained what is known of its shape.
    pub(crate) explain_due: bool,
    /// No write before this time, after one failed.
    pub(crate) hold_off: Option<Time>,
    pub(crate) failures: u32,
    /// Failed writes that later ones don't repeat: the reset of admission checks, the release of the reservation.
    pub(crate) checks_not_reset: bool,
    pub(crate) not_released: bool,
    pub(crate) uid: Arc<str>,
    pub(crate) lq: LqId,
    pub(crate) totals: Vec<Total>,
    pub(crate) shape: ShapeId,
    /// Why it can't be admitted: with defaults of the namespace filled in, and as written.
    pub(crate) invalid: Option<String>,
    pub(crate) invalid_as_written: Option<String>,
    /// What its claims for devices count as.
    pub(crate) devices: Charge,
    /// Quota it holds, and where.
    pub(crate) usage: Vec<(Fr, Amount)>,
    pub(crate) held: Option<CqId>,
    pub(crate) counted_admitted: bool,
    /// The ClusterQueue in which it waits.
    pub(crate) queued: Option<CqId>,
    /// How far the search among flavors got.
    pub(crate) last: Option<LastTry>,
    /// Taken out by a simulation.
    pub(crate) hidden: bool,
    /// How far its dependencies are.
    pub(crate) depend: Progress,
    /// Whether places on nodes were promised to it.
    pub(crate) promised: bool,
    /// How often others were asked to make room for it.
    pub(crate) rounds: Rounds,
}

impl Wl {
    /// Where among [`Wl::totals`] a podset of the spec is: by its name in the admission, if there is one.
    pub(crate) fn total_of(&self, pod_set: usize) -> Option<usize> {
        match self.obj.status.admission.as_ref().filter(|_| self.held.is_some()) {
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
        self.held.is_some()
            && self.obj.active
            && s.is_true(super::cond::QUOTA_RESERVED)
            && !s.is_true(super::cond::FINISHED)
            && !s.is_true(super::cond::EVICTED)
            && (self.needs_other_node() || delayed())
    }
}

/// What makes two workloads equal to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) priority: i64,
    /// The slice it is to replace: it needs only the difference.
    pub(crate) replaces: Option<WorkloadKey>,
    pub(crate) pod_sets: Vec<(PodSet, Total)>,
}

/// Shapes in use, by number. Numbers are never given out twice, as queues remember them.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    by_shape: Map<Arc<Shape>, ShapeId>,
    /// The shape of a number and how many workloads have it.
    in_use: Map<ShapeId, (Arc<Shape>, u32)>,
    next: ShapeId,
}

impl Shapes {
    /// The number of a shape for one more workload.
    pub(crate) fn take(&mut self, shape: Shape) -> ShapeId {
        let id = match self.by_shape.get(&shape) {
            Some(&id) => id,
            None => {
                let (id, shape) = (self.next, Arc::new(shape));
                self.next = self.next.wrapping_add(1);
                self.by_shape.insert(Arc::clone(&shape), id);
                self.in_use.insert(id, (shape, 0));
                id
            }
        };
        if let Some((_, n)) = self.in_use.get_mut(&id) {
            *n += 1;
        }
        id
    }

    /// One workload less has the shape; it is forgotten with the last.
    pub(crate) fn give_back(&mut self, id: ShapeId) {
        let Some((_, n)) = self.in_use.get_mut(&id) else { return };
        *n -= 1;
        if *n == 0
            && let Some((shape, _)) = self.in_use.remove(&id)
        {
            self.by_shape.remove(&shape);
        }
    }

    /// How many workloads have each shape.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (ShapeId, u32)> {
        self.in_use.iter().map(|(id, (_, n))| (*id, *n))
    }

    /// How many shapes there are.
    pub(crate) fn len(&self) -> usize {
        self.by_shape.len()
    }
}

/// The queueing half of the engine.
#[derive(Debug)]
pub struct Queueing {
    pub(crate) config: Config,
    pub(crate) ids: Ids,
    pub(crate) namespaces: BTreeMap<String, StringMap>,
    pub(crate) flavors: BTreeMap<Flavor, Arc<ResourceFlavor>>,
    pub(crate) limit_ranges: BTreeMap<(String, String), LimitRange>,
    pub(crate) runtime_classes: BTreeMap<String, Resources>,
    pub(crate) checks: BTreeMap<String, AdmissionCheck>,
    pub(crate) topologies: BTreeMap<String, Topology>,
    pub(crate) cohorts: BTreeMap<String, Cohort>,
    pub(crate) cqs: Vec<Cq>,
    pub(crate) cq_by_name: BTreeMap<String, CqId>,
    pub(crate) lqs: Vec<Lq>,
    pub(crate) lq_by_key: BTreeMap<(String, String), LqId>,
    pub(crate) wls: Vec<Option<Wl>>,
    pub(crate) free_wls: Vec<WlId>,
    pub(crate) wl_by_key: Map<WorkloadKey, WlId>,
    pub(crate) shapes: Shapes,
    pub(crate) tree: Tree,
    pub(crate) tree_dirty: bool,
    /// ClusterQueue of each leaf of the tree; leaves come first.
    pub(crate) leaves: Vec<CqId>,
    pub(crate) tas: Tas,
    /// Claim templates, classes and devices.
    pub(crate) devices: Devices,
    /// When which workloads get a second pass.
    pub(crate) second: SecondPasses,
    /// Searches for victims of the present nomination.
    pub(crate) searches: Option<Vec<Searched>>,
    /// Undo log of [`Wl::hidden`].
    pub(crate) hidden_log: Vec<(WlId, bool)>,
    /// Workloads whose conditions may have to change.
    pub(crate) dirty: BTreeSet<WlId>,
    /// Rounds of changes per step; fewer in tests.
    pub(crate) rounds: usize,
    /// ClusterQueues whose parked workloads, and those of their tree, get another chance.
    pub(crate) to_wake: BTreeSet<CqId>,
    /// Queues whose status may have changed.
    pub(crate) dirty_cqs: BTreeSet<CqId>,
    pub(crate) dirty_lqs: BTreeSet<LqId>,
    pub(crate) cohort_shares: BTreeMap<String, i64>,
    /// Times at which a workload has to be looked at again.
    pub(crate) timers: BTreeSet<(Time, WlId)>,
    /// When to sample which LocalQueue's usage.
    pub(crate) samples: BTreeSet<(Time, LqId)>,
    /// ClusterQueues to give another chance at a later time.
    pub(crate) wake_later: BTreeSet<(Time, CqId)>,
    /// When to write what is unsaid.
    pub(crate) say_later: BTreeSet<(Time, WlId)>,
    /// Number of scheduling cycles so far.
    pub(crate) cycle: i64,
    /// Whether the present cycle has admitted something, kept with `blockAdmission` only.
    pub(crate) admitted_now: bool,
    /// Whether a cycle could find something it did not find last time.
    pub(crate) cycle_due: bool,
    /// Cycles until now that admitted somebody, and that did not.
    pub(crate) attempts: [u64; 2],
    pub(crate) last_write: u64,
    pub(crate) metrics: Books,
    pub(crate) depend: Depend,
    pub(crate) windows: Windows,
    pub(crate) slices: Slices,
    /// ClusterQueues with workloads that wait for room on nodes.
    pub(crate) nodes_awaited: BTreeSet<CqId>,
    /// Workloads whose promised places are not needed any more.
    pub(crate) unpromised: Vec<WorkloadKey>,
    pub(crate) out: Vec<Action>,
}

impl Queueing {
    /// Queueing with no objects.
    pub fn new(config: Config) -> Self {
        let mut ids = Ids::default();
        // Room for pods is looked up where nothing can be interned.
        ids.resource("pods");
        Self {
            config,
            ids,
            namespaces: BTreeMap::new(),
            flavors: BTreeMap::new(),
            limit_ranges: BTreeMap::new(),
            runtime_classes: BTreeMap::new(),
            checks: BTreeMap::new(),
            topologies: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            cqs: Vec::new(),
            cq_by_name: BTreeMap::new(),
            lqs: Vec::new(),
            lq_by_key: BTreeMap::new(),
            wls: Vec::new(),
            free_wls: Vec::new(),
            wl_by_key: Map::default(),
            shapes: Shapes::default(),
            tree: Tree::default(),
            tree_dirty: true,
            leaves: Vec::new(),
            tas: Tas::default(),
            devices: Devices::default(),
            second: SecondPasses::default(),
            searches: None,
            hidden_log: Vec::new(),
            dirty: BTreeSet::new(),
            rounds: super::reconcile::MAX_ROUNDS,
            to_wake: BTreeSet::new(),
            dirty_cqs: BTreeSet::new(),
            dirty_lqs: BTreeSet::new(),
            cohort_shares: BTreeMap::new(),
            timers: BTreeSet::new(),
            samples: BTreeSet::new(),
            wake_later: BTreeSet::new(),
            say_later: BTreeSet::new(),
            cycle: 0,
            admitted_now: false,
            cycle_due: false,
            attempts: [0; 2],
            last_write: 0,
            metrics: Books::default(),
            depend: Depend::default(),
            windows: Windows::default(),
            slices: Slices::default(),
            nodes_awaited: BTreeSet::new(),
            unpromised: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Cycles until now that admitted somebody, and that did not: whoever has a clock can time them.
    pub fn attempts(&self) -> [u64; 2] {
        self.attempts
    }

    pub(crate) fn cq(&self, id: CqId) -> &Cq {
        &self.cqs[id as usize]
    }

    pub(crate) fn cq_mut(&mut self, id: CqId) -> &mut Cq {
        &mut self.cqs[id as usize]
    }

    pub(crate) fn lq(&self, id: LqId) -> &Lq {
        &self.lqs[id as usize]
    }

    pub(crate) fn lq_mut(&mut self, id: LqId) -> &mut Lq {
        &mut self.lqs[id as usize]
    }

    /// The workload, if it still exists.
    pub(crate) fn wl(&self, id: WlId) -> Option<&Wl> {
        self.wls.get(id as usize)?.as_ref()
    }

    pub(crate) fn wl_mut(&mut self, id: WlId) -> Option<&mut Wl> {
        self.wls.get_mut(id as usize)?.as_mut()
    }

    /// The number of a ClusterQueue's name, a new one if it was never seen.
    pub(crate) fn cq_slot(&mut self, name: &str) -> CqId {
        if let Some(&id) = self.cq_by_name.get(name) {
            return id;
        }
        let id = index32(self.cqs.len());
        self.cqs.push(Cq { name: name.to_owned(), ..Cq::default() });
        self.cq_by_name.insert(name.to_owned(), id);
        id
    }

    /// The number of a LocalQueue, a new one if it was never seen.
    pub(crate) fn lq_slot(&mut self, namespace: &str, name: &str) -> LqId {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(&id) = self.lq_by_key.get(&key) {
            return id;
        }
        let id = index32(self.lqs.len());
        self.lqs.push(Lq { namespace: key.0.clone(), name: key.1.clone(), ..Lq::default() });
        self.lq_by_key.insert(key, id);
        id
    }

    /// The ClusterQueue at a leaf of the tree.
    pub(crate) fn cq_of_node(&self, n: NodeId) -> Option<CqId> {
        self.leaves.get(n as usize).copied()
    }

    /// Whether the ClusterQueue's cohorts go round in a circle.
    pub(crate) fn in_cycle(&self, id: CqId) -> bool {
        self.cq(id).node.is_some_and(|n| self.tree.node(n).cyclic)
    }

    /// Whether namespaces with these workloads may use the ClusterQueue.
    pub(crate) fn namespace_matches(&self, cq: CqId, namespace: &str) -> bool {
        let selector = self.cq(cq).spec.as_ref().and_then(|s| s.namespace_selector.as_ref());
        match (self.namespaces.get(namespace), selector) {
            (Some(labels), Some(selector)) => selector.matches(labels),
            _ => false,
        }
    }
}

/// The scheduling-relevant part of a pod spec: what counts as the same for the scheduler.
pub(crate) fn shape_of(spec: &PodSpec) -> PodSpec {
    let mut s = spec.clone();
    for c in s.containers.iter_mut().chain(&mut s.init_containers) {
        c.name.clear();
        c.image.clear();
        c.limits.clear();
        // What a sidecar adds is in the sums.
        c.restart_policy = None;
    }
    s.node_name.clear();
    s.scheduler_name.clear();
    s.priority_class_name.clear();
    s.scheduling_gates.clear();
    s.pod_limits = None;
    s
}
