//! The one entry into the engine and the two closed enums around it.

use std::collections::BTreeSet;

use plimsoll_queueing::{Forecast, NodeReservations, Queueing, Workload};
use plimsoll_scheduler::Scheduler;
use plimsoll_state::model::{Node, Pod, Protection, WorkloadKey};
use plimsoll_state::reservation::{DryRunFailure, DryRunId, PodsAt, ReservedNode};
use plimsoll_state::{ObjectEvent, Time};

/// What the engine needs to know before the first event.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Scheduler: profiles, backoff, seed. `None` leaves placement to another scheduler.
    pub scheduler: Option<plimsoll_scheduler::Config>,
    /// Queueing: fair sharing, resource rules. `None` leaves queueing to another controller.
    pub queueing: Option<plimsoll_queueing::Config>,
    /// Joint admission, where the engine does both: a workload is admitted only when nodes are reserved for all its pods.
    pub joint: bool,
}

/// Everything the outside can tell the engine.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node, a pod, or an object that pods refer to changed.
    Object(ObjectEvent),
    /// The answer to an action of the scheduler.
    Scheduler(plimsoll_scheduler::Event),
    /// A queue, a quota or a workload changed, or the answer to an action of queueing.
    Queueing(plimsoll_queueing::Event),
}

/// Everything the engine can ask the outside to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A write that the scheduler asks for.
    Scheduler(plimsoll_scheduler::Action),
    /// A write that queueing asks for.
    Queueing(plimsoll_queueing::Action),
}

/// The scheduler, as queueing sees it in joint admission.
struct Reservations<'a>(&'a mut Scheduler);

impl NodeReservations for Reservations<'_> {
    fn dry_run(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[(Pod, usize)],
    ) -> (DryRunId, Result<(), DryRunFailure>) {
        let (run, failure) = self.0.dry_run(now, workload, pods);
        (run, failure.map_or(Ok(()), Err))
    }

    fn dry_run_each(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[PodsAt<'_>],
        how: (bool, bool),
    ) -> (DryRunId, Vec<usize>, Option<DryRunFailure>) {
        self.0.dry_run_each(now, workload, pods, how)
    }

    fn fits_anywhere(&mut self, now: Time, pod: &Pod, count: usize) -> bool {
        self.0.fits_anywhere(now, pod, count)
    }

    fn unusable_nodes(&mut self, now: Time, pod: &Pod, alone: bool) -> Vec<String> {
        self.0.unusable_nodes(now, pod, alone)
    }

    fn fits_new_node(&mut self, now: Time, pod: &Pod, node: &Node) -> Result<(), String> {
        self.0.fits_new_node(now, pod, node)
    }

    fn lift(&mut self, run: DryRunId) {
        self.0.lift_dry_run(run);
    }

    fn restore(&mut self, run: DryRunId, checked: bool) -> bool {
        self.0.restore_dry_run(run, checked)
    }

    fn end(&mut self, run: DryRunId) {
        self.0.end_dry_run(run);
    }

    fn reserve_nodes(&mut self, now: Time, workload: &WorkloadKey, runs: &[DryRunId]) -> Vec<ReservedNode> {
        self.0.reserve_nodes(now, workload, runs)
    }

    fn rebuild(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        since: Time,
        pods: &[(Pod, usize)],
        places: &[ReservedNode],
    ) {
        self.0.rebuild_reservations(now, workload, since, pods, places);
    }

    fn plan(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[(Pod, usize)],
        before: Option<DryRunId>,
    ) -> Option<DryRunId> {
        self.0.plan_claim(now, workload, pods, before)
    }

    fn planned_on(&self, plan: DryRunId) -> Vec<usize> {
        self.0.planned_on(plan)
    }

    fn blockers(&mut self, plan: DryRunId) -> Option<BTreeSet<WorkloadKey>> {
        self.0.claim_blockers(plan)
    }

    fn simulate_removal(&mut self, workload: Option<&WorkloadKey>) -> usize {
        self.0.simulate_removal(workload)
    }

    fn simulate_addition(&mut self, workload: Option<&WorkloadKey>) {
        self.0.simulate_addition(workload);
    }

    fn extend(&mut self, now: Time, run: DryRunId, workload: &WorkloadKey, pods: &[(Pod, usize)]) -> bool {
        self.0.extend_dry_run(now, run, workload, pods)
    }

    fn put_back_beside(&mut self, run: DryRunId, workload: &WorkloadKey) -> bool {
        self.0.put_back_beside(run, workload)
    }

    fn protection(&self, workload: &WorkloadKey, priority: i64) -> Protection {
        self.0.protection(workload, priority)
    }

    fn withdraw(&mut self, workload: &WorkloadKey) {
        self.0.withdraw_nodes(workload);
    }

    fn release(&mut self, workload: &WorkloadKey) {
        self.0.release_nodes(workload);
    }

    fn take_freed(&mut self) -> bool {
        self.0.take_freed()
    }

    fn take_pods_came(&mut self) -> bool {
        self.0.take_pods_came()
    }

    fn capacity_version(&self) -> u64 {
        self.0.capacity_version()
    }

    fn could_help(&mut self, since: u64, pods: &[(Pod, usize)]) -> bool {
        self.0.could_help(since, pods)
    }

    fn whole_version(&self) -> u64 {
        self.0.whole_version()
    }

    fn node_version(&self) -> u64 {
        self.0.node_version()
    }

    fn begin_attempt(&mut self) {
        self.0.begin_attempt();
    }

    fn attempt_is_put_off(&self) -> bool {
        self.0.attempt_is_put_off()
    }

    fn end_attempt(&mut self) -> bool {
        self.0.end_attempt()
    }

    fn rank_nodes(&mut self, now: Time, pods: &[(Pod, usize)]) -> bool {
        self.0.rank_nodes(now, pods)
    }
}

/// The engine: queueing and placement over one state.
#[derive(Debug)]
pub struct Engine {
    scheduler: Option<Scheduler>,
    queueing: Option<Queueing>,
    joint: bool,
}

impl Engine {
    /// An engine with no objects.
    pub fn new(config: EngineConfig) -> Self {
        Self {
            scheduler: config.scheduler.map(Scheduler::new),
            queueing: config.queueing.map(Queueing::new),
            joint: config.joint,
        }
    }

    /// Handles `events` (drained), then decides once; appends what is to be done to `actions`.
    ///
    /// Work per call is bounded by the configured batch sizes, so a caller calls again at
    /// [`Engine::next_wake`], which is `now` while work is left.
    pub fn step(&mut self, now: Time, events: &mut Vec<Event>, actions: &mut Vec<Action>) {
        self.handle(now, events);
        if let Some(queueing) = &mut self.queueing {
            let mut nodes = self.scheduler.as_mut().filter(|_| self.joint).map(Reservations);
            if let Some(nodes) = &mut nodes {
                queueing.sync_node_reservations(nodes);
                queueing.rebuild_node_reservations(now, nodes);
                queueing.reserve_nodes_of_checked(now, nodes);
            }
            let nodes = nodes.as_mut().map(|n| n as &mut dyn NodeReservations);
            queueing.decide_with(now, nodes, &mut |a| actions.push(Action::Queueing(a)));
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.decide(now, &mut |a| actions.push(Action::Scheduler(a)));
        }
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Handles `events` (drained) and decides nothing: for a replica that follows what its leader does, and for start-up,
    /// while not everything was seen. The next [`Engine::step`] decides from all of it. Memory is bounded by what is there.
    pub fn observe(&mut self, now: Time, events: &mut Vec<Event>) {
        self.handle(now, events);
        if let Some(queueing) = &mut self.queueing {
            if let Some(scheduler) = self.scheduler.as_mut().filter(|_| self.joint) {
                queueing.sync_node_reservations(&mut Reservations(scheduler));
            }
            queueing.follow(now);
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.follow();
        }
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Admits nothing from now on, or goes on: see [`Queueing::hold_admissions`]. Pods get nodes as before.
    pub const fn hold_admissions(&mut self, hold: bool) {
        if let Some(queueing) = &mut self.queueing {
            queueing.hold_admissions(hold);
        }
    }

    /// Makes no write that says only why a workload waits, or goes on: see [`Queueing::hold_explanations`].
    pub const fn hold_explanations(&mut self, hold: bool) {
        if let Some(queueing) = &mut self.queueing {
            queueing.hold_explanations(hold);
        }
    }

    /// Handles `events` (drained) and brings conditions and statuses up to date, without deciding anything new: the first
    /// half of [`Engine::step`]. For tests.
    pub fn settle(&mut self, now: Time, events: &mut Vec<Event>, actions: &mut Vec<Action>) {
        self.handle(now, events);
        if let Some(queueing) = &mut self.queueing {
            queueing.settle(now, &mut |a| actions.push(Action::Queueing(a)));
        }
        #[cfg(debug_assertions)]
        self.check();
    }

    fn handle(&mut self, now: Time, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Object(e) => {
                    if let Some(queueing) = &mut self.queueing {
                        queueing.handle_object(now, &e);
                    }
                    if let Some(scheduler) = &mut self.scheduler {
                        scheduler.handle_object(now, &e);
                    }
                }
                Event::Scheduler(e) => {
                    if let Some(scheduler) = &mut self.scheduler {
                        scheduler.handle(now, e);
                    }
                }
                Event::Queueing(e) => {
                    if let Some(queueing) = &mut self.queueing {
                        queueing.handle(now, e);
                    }
                }
            }
        }
    }

    /// The earliest time at which [`Engine::step`] has something to do without a new event.
    pub fn next_wake(&self) -> Option<Time> {
        if self.joint && self.nodes_freed_for_waiting() {
            return Some(Time(i64::MIN));
        }
        let scheduler = self.scheduler.as_ref().and_then(Scheduler::next_wake);
        let queueing = self.queueing.as_ref().and_then(Queueing::next_wake);
        [scheduler, queueing].into_iter().flatten().min()
    }

    /// Whether the scheduler freed capacity on nodes that workloads wait for, or pods came that they want to be beside.
    fn nodes_freed_for_waiting(&self) -> bool {
        let (Some(scheduler), Some(queueing)) = (&self.scheduler, &self.queueing) else { return false };
        scheduler.has_freed() && queueing.awaits_nodes()
            || scheduler.have_pods_come() && queueing.awaits_pods()
    }

    /// Rebuilds the derived state from the ground state and compares. Without debug assertions it does nothing.
    ///
    /// # Panics
    /// When they differ: that is a bug in the engine, and going on would over-commit.
    pub fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        if let Some(scheduler) = &self.scheduler {
            scheduler.check();
        }
        if let Some(queueing) = &self.queueing {
            queueing.check();
        }
        if let (Some(scheduler), Some(queueing)) = (&self.scheduler, &self.queueing) {
            for workload in scheduler.reserving_workloads() {
                assert!(queueing.may_reserve_nodes(workload), "{workload}: nodes reserved without quota");
            }
        }
    }

    /// Scheduler, for questions (explain, metrics).
    pub fn scheduler(&self) -> Option<&Scheduler> {
        self.scheduler.as_ref()
    }

    /// When a workload could have its quota ([`Queueing::forecast`]); `None`: there is no such queue, or nothing is queued here.
    /// Only after a call of [`Engine::step`] or [`Engine::observe`], which bring the state up to date.
    pub fn forecast(&mut self, now: Time, workload: Workload) -> Option<Forecast> {
        self.queueing.as_mut()?.forecast(workload, now)
    }

    /// Queueing, for questions (explain, metrics, statuses).
    pub fn queueing(&self) -> Option<&Queueing> {
        self.queueing.as_ref()
    }
}
