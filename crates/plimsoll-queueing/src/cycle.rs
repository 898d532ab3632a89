//! The scheduling cycle: one head of every ClusterQueue, in order, against one state (Kueue
//! `pkg/scheduler/scheduler.go`, `schedule`).
//!
//! A cycle reads the state, simulates on it what the entries before took ([`Simulation`]), and owns everything else that it
//! needs. Its result is a [`Plan`]: the simulation is undone before the plan is committed.

pub(crate) mod assign;
mod checked;
mod claim_order;
mod claim_plans;
mod claimants;
mod claims;
mod commit;
mod dry_runs;
mod entry;
mod forecast;
mod joint;
mod migrate;
mod new_nodes;
mod nominate;
mod order;
mod overtake;
mod places;
mod plan;
pub(crate) mod preempt;
mod put_off;
mod remembered;
mod reserve;
mod second;
mod topology;
mod verdict;
pub(crate) mod victim;

pub(crate) use claims::NodeClaims;
pub(crate) use dry_runs::FailedDryRuns;
pub(crate) use order::EntryOrder;
pub(crate) use second::SecondPasses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use assign::{FlavorAssigner, Mode};
use dry_runs::DryRuns;
use entry::{Entry, Outcome, RequeueReason};
use plan::{AdmittedNodes, ClaimsChanged, Decision, NodesPlan, Plan, Recomputation, StillInadmissible};
use preempt::{CachedSearch, CandidateSearch, NodeSearch};
use reserve::ReservedCapacity;

use super::cond;
use super::config::Config;
use super::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::Queueing;
use crate::joint::{NodeReservations, Nodes, NodesDecision};
use crate::pending::Shortage;
use crate::simulate::Simulation;
use crate::tree::{DominantResourceShare, FairShare};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::time::Time;

/// What decides in a cycle where Kueue has more than one way; chosen once, by the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Strategies {
    /// Which flavors podsets get.
    flavors: Arc<dyn FlavorAssigner>,
    /// The order of entries of different ClusterQueues.
    order: Arc<dyn EntryOrder>,
    /// Which workloads are preempted.
    candidates: Arc<dyn CandidateSearch>,
    /// The value that fair sharing compares.
    pub(crate) share: Arc<dyn FairShare>,
}

impl Strategies {
    /// Kueue's: fair sharing if it is configured, priorities otherwise.
    pub(crate) fn of(config: &Config) -> Self {
        let (order, candidates): (Arc<dyn EntryOrder>, Arc<dyn CandidateSearch>) = match &config.fair_sharing
        {
            Some(fair) => (
                Arc::new(order::FairSharingOrder),
                Arc::new(preempt::FairSharingSearch::new(fair.strategies.clone())),
            ),
            None => (Arc::new(order::ClassicalOrder), Arc::new(preempt::ClassicalSearch)),
        };
        let share = Arc::new(DominantResourceShare);
        Self { flavors: Arc::new(assign::OrderedFlavors), order, candidates, share }
    }
}

/// A workload that a cycle decides about.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    id: WorkloadId,
    cq: ClusterQueueId,
    /// In a second pass the number of the attempt, from 1.
    second: Option<u32>,
    /// The level of borrowing with which it fits, if that is known without a nomination. It is in its queue still.
    fits: Option<u32>,
    /// What is missing, if that is known without a nomination.
    shortage: Option<Shortage>,
    /// Columns on which nothing can be preempted for it, as far as that is known without a nomination.
    unreclaimable: Vec<FlavorResource>,
}

impl Head {
    /// A head on which nothing is known.
    fn new(id: WorkloadId, cq: ClusterQueueId) -> Self {
        Self { id, cq, second: None, fits: None, shortage: None, unreclaimable: Vec::new() }
    }
}

/// One run of the scheduling cycle: the state it reads and simulates on, and its scratch.
pub(crate) struct Cycle<'a> {
    state: Simulation<'a>,
    now: Time,
    /// Joint admission: reserves nodes for the pods of workloads that are to be admitted.
    nodes: Option<&'a mut dyn NodeReservations>,
    /// What became of the nodes of entries that are to be admitted, and for which of them some are reserved.
    nodes_decided: BTreeMap<WorkloadId, NodesDecision>,
    nodes_reserved: BTreeSet<WorkloadId>,
    /// Of earlier cycles: dry runs that need not be tried again, and claims on nodes.
    failed: FailedDryRuns,
    claims: NodeClaims,
    nodes_changed: ClaimsChanged,
    dry_runs: DryRuns,
    node_search: NodeSearch,
    strategies: Strategies,
    /// Workloads that are to be preempted. They run until they have stopped.
    preempted: BTreeSet<WorkloadId>,
    /// Slices of elastic jobs that an admitted workload replaces.
    replaced: BTreeSet<WorkloadId>,
    /// Capacity kept for workloads that are not admitted in this cycle.
    reserved: Vec<ReservedCapacity>,
    /// Workloads that were admitted: until there are some every entry that fitted when it was nominated fits beside all
    /// others.
    admitted: usize,
    /// How many pods they have, for which nodes were looked for.
    admitted_pods: i64,
    /// Whether a workload was admitted while no other one's pods were awaited; kept with `blockAdmission` only.
    admitted_without_ready_pods: bool,
    /// The first workload that has to wait for them, with `blockAdmission`.
    blocked: Option<WorkloadId>,
    /// Whether the entry that the cycle came to is put off, and whether none is any more.
    left_one: bool,
    leaves_none: bool,
    /// Searches for victims of the present nomination.
    searches: Option<Vec<CachedSearch>>,
    /// [`Head::unreclaimable`] of the present nomination.
    unreclaimable: Vec<FlavorResource>,
    /// Entries that needed victims of others, by ClusterQueue.
    skips: Vec<(ClusterQueueId, u32)>,
    recomputations: Vec<Recomputation>,
    /// Entries that leave their queues.
    heads: Vec<(WorkloadId, ClusterQueueId)>,
    still_inadmissible: Vec<StillInadmissible>,
    lowest_priorities: Vec<(ClusterQueueId, Option<i64>)>,
}

impl Queueing {
    /// Runs one scheduling cycle and carries out what it decides.
    pub(crate) fn run_cycle(&mut self, now: Time, nodes: Option<Nodes<'_, '_>>) {
        let queues = self.take_queues_due(nodes.is_some());
        let nodes = nodes.map(|n| n as &mut dyn NodeReservations);
        let plan = Cycle::new(self, now, nodes).run(queues);
        self.commit(plan, now);
    }
}

impl<'a> Cycle<'a> {
    fn new(state: &'a mut Queueing, now: Time, nodes: Option<&'a mut dyn NodeReservations>) -> Self {
        let strategies = state.strategies.clone();
        let failed = std::mem::take(&mut state.joint.failed);
        let claims = std::mem::take(&mut state.joint.claims);
        Self {
            state: Simulation::begin(state),
            now,
            nodes,
            nodes_decided: BTreeMap::new(),
            nodes_reserved: BTreeSet::new(),
            failed,
            claims,
            nodes_changed: ClaimsChanged::default(),
            dry_runs: DryRuns::default(),
            node_search: NodeSearch::default(),
            strategies,
            preempted: BTreeSet::new(),
            replaced: BTreeSet::new(),
            reserved: Vec::new(),
            admitted: 0,
            admitted_pods: 0,
            admitted_without_ready_pods: false,
            blocked: None,
            left_one: false,
            leaves_none: false,
            searches: None,
            unreclaimable: Vec::new(),
            skips: Vec::new(),
            recomputations: Vec::new(),
            heads: Vec::new(),
            still_inadmissible: Vec::new(),
            lowest_priorities: Vec::new(),
        }
    }

    /// Decides about the heads of these ClusterQueues, and about second passes that are due. The state is as before.
    fn run(mut self, queues: Vec<ClusterQueueId>) -> Plan {
        let mut heads = self.state.second_passes_due(self.now);
        heads.extend(self.heads_of(&queues));
        let (mut decisions, mut unfinished) = (Vec::new(), Vec::new());
        if !heads.is_empty() || !self.still_inadmissible.is_empty() {
            self.skips = heads.iter().map(|h| (h.cq, 0)).collect();
            let Some((entries, left)) = self.decide(heads) else {
                self.state.end();
                let nodes =
                    NodesPlan { failed: self.failed, claims: self.claims, changed: self.nodes_changed };
                return Plan::put_off(queues, nodes);
            };
            unfinished = queues.iter().copied().filter(|q| left.contains(q)).collect();
            decisions = entries.into_iter().map(|e| self.decision(e)).collect();
        }
        self.state.end();
        Plan {
            queues,
            unfinished,
            put_off: false,
            heads: self.heads,
            still_inadmissible: self.still_inadmissible,
            lowest_priorities: self.lowest_priorities,
            decisions,
            blocked: self.blocked,
            skips: self.skips,
            recomputations: self.recomputations,
            nodes: NodesPlan { failed: self.failed, claims: self.claims, changed: self.nodes_changed },
        }
    }

    /// Decides about heads. Gives the entries, and the ClusterQueues whose heads it did not come to. `None`: too many nodes have to be
    /// looked at for one step, so the next one tries the same heads.
    fn decide(&mut self, heads: Vec<Head>) -> Option<(Vec<Entry>, BTreeSet<ClusterQueueId>)> {
        self.find_shares(&heads);
        if !self.put_up_claims() {
            return None;
        }
        let (mut entries, inadmissible) = self.nominate_in_steps(heads)?;
        let mut left: Vec<usize> = self.classical_order(&entries);
        let in_vain = self.in_vain(&entries);
        let mut put_off = false;
        while !self.may_break_off(&entries, &left)
            && let Some(i) = self.next_entry(&entries, &mut left, &in_vain)
        {
            self.process(&mut entries[i]);
            if std::mem::take(&mut self.left_one) {
                left.push(i);
                put_off = self.may_leave(&entries, &left);
                if put_off {
                    break;
                }
                left.pop();
                self.leaves_none = true;
                self.process(&mut entries[i]);
            }
        }
        self.drop_found_dry_runs();
        self.take_down_claims();
        let unfinished = left.iter().map(|&i| entries[i].cq).insert_each();
        if put_off {
            // Nothing is known of those left that would have to be explained.
            left.sort_unstable();
            left.iter().rev().for_each(|&i| drop(entries.remove(i)));
        }
        entries.extend(inadmissible);
        Some((entries, unfinished))
    }

    fn decision(&mut self, e: Entry) -> Decision {
        let decision = self.nodes_decided.remove(&e.id);
        let reserved = self.nodes_reserved.remove(&e.id);
        e.decide(AdmittedNodes { decision, reserved })
    }

    /// The number of this cycle among those that looked at a ClusterQueue.
    fn cycle_number(&self, cq: ClusterQueueId) -> i64 {
        self.state.cq(cq).cycles + 1
    }

    /// Counts an entry of a ClusterQueue that needed a victim of another entry.
    fn count_skip(&mut self, cq: ClusterQueueId) {
        if let Some((_, n)) = self.skips.iter_mut().find(|(c, _)| *c == cq) {
            *n += 1;
        }
    }

    /// Decides about one entry, after those before it.
    fn process(&mut self, e: &mut Entry) {
        if self.waits_for_others(e) || self.yields_to_sibling(e) {
            return;
        }
        let fits = self.refresh(e);
        let keep = self.state.config.gates.preserve_scan_progress;
        if e.second.is_some()
            && e.mode() != Mode::Fit
            && self.state.config.gates.replace_fail_fast
            && self.state.wl(e.id).is_some_and(|w| w.needs_other_node())
        {
            e.outcome = Outcome::Evicted;
            return;
        }
        if self.decided_by_mode(e) {
            return;
        }
        let before = self.state.chain_before(e.id);
        let (taken, claimed) = (&self.replaced, &self.preempted);
        let overlaps = e.targets.iter().any(|t| claimed.contains(&t.id) || taken.contains(&t.id))
            || before.iter().any(|o| claimed.contains(o))
            || taken.contains(&e.id);
        if overlaps {
            e.skip(keep, "Workload has overlapping preemption targets with another workload");
            self.count_skip(e.cq);
            return;
        }
        if !fits || (e.mode() == Mode::Fit && !self.fits_beside_victims(e)) {
            e.skip(keep, entry::NO_LONGER_FITS);
            return;
        }
        if self.migrates(e) {
            return;
        }
        if e.mode() == Mode::Fit
            && e.second.is_none()
            && let Err(text) = self.reserve_nodes(e)
        {
            if self.dry_runs.others_placed {
                // One before it took the nodes: the next cycle finds others, or another flavor.
                e.skip(false, entry::NO_LONGER_FITS);
                return;
            }
            e.message = format!("couldn't place all pods: {text}");
            e.reason = "WaitingForNodes";
            e.requeue = RequeueReason::NoFit;
            e.last_assignment = None;
            e.awaits_nodes = true;
            self.claim_nodes(e);
            return;
        }
        if e.mode() == Mode::Preempt && !self.preempts_now(e) {
            return;
        }
        self.preempted.extend(e.targets.iter().map(|t| t.id));
        if e.mode() == Mode::Preempt {
            self.reserve_capacity(e);
            e.reason = "WaitingForPreemptedWorkloads";
            e.requeue = RequeueReason::PendingPreemption;
            e.last_assignment = None;
            e.message.push_str(&format!(". Pending the preemption of {} workload(s)", e.targets.len()));
            return;
        }
        self.state.add_usage(e.cq, e.usage());
        self.state.tas_charge_assignment(e.id, e.assignment.as_ref(), true, 1);
        self.count_admission(e);
        if e.second.is_none() && self.blocked_by_pods(e) {
            return;
        }
        self.replaced.extend(before);
        e.outcome = Outcome::Admitted;
    }

    /// Whether an entry gets nothing in this cycle, by its assignment alone; then it is decided.
    fn decided_by_mode(&mut self, e: &mut Entry) -> bool {
        match e.mode() {
            Mode::NoFit => {
                e.requeue = RequeueReason::NoFit;
                let reason = e.assignment.as_ref().map_or("", |a| a.no_fit_reason);
                // Kueue computes no reason for some mixtures and can't publish the message then.
                e.reason = if reason.is_empty() { "NoMatchingFlavor" } else { reason };
                self.claim_or_drop(e);
                true
            }
            Mode::Preempt if e.targets.is_empty() => {
                e.requeue = RequeueReason::NoCandidates;
                e.reason = "WaitingForQuota";
                self.claim_or_drop(e);
                self.reserve_capacity_for_unreclaimable_preemption(e);
                true
            }
            Mode::Preempt if self.state.wl(e.id).is_some_and(|w| w.obj.has_closed_gate()) => {
                e.message = super::preemption_gates::MESSAGE.to_owned();
                e.reason = "PendingEvaluation";
                e.requeue = RequeueReason::PreemptionGated;
                e.last_assignment = None;
                true
            }
            Mode::DeferredFit => {
                e.message = "Workload has overlapping preemption targets with another workload, but will \
                             fit after these preemptions complete"
                    .to_owned();
                e.reason = "WaitingForPreemptedWorkloads";
                e.requeue = RequeueReason::PendingPreemption;
                e.last_assignment = None;
                self.reserve_capacity(e);
                true
            }
            Mode::Preempt | Mode::Fit => false,
        }
    }

    /// With `blockAdmission`, whether a workload has to wait until the pods of all admitted ones are ready.
    fn blocked_by_pods(&mut self, e: &mut Entry) -> bool {
        if !self.state.config.blocks_admission() {
            return false;
        }
        let waits = |id: WorkloadId| {
            self.state.wl(id).is_some_and(|w| {
                w.obj.status.is_true(cond::ADMITTED) && !w.obj.status.is_true(cond::PODS_READY)
            })
        };
        if !self.admitted_without_ready_pods && !self.state.quota.iter().map(|(_, r)| r.owner).any(waits) {
            self.admitted_without_ready_pods = true;
            return false;
        }
        self.withdraw_nodes(e);
        self.blocked = self.blocked.or(Some(e.id));
        // Kueue waits within the cycle and then admits as assigned (`waitForPodsReadyIfNeeded`): the next try must find
        // the same flavor, not the one after it.
        e.skip(false, "waiting for all admitted workloads to be in PodsReady condition");
        e.reason = "WaitingForPodsReady";
        true
    }

    /// Computes the assignment again if the one found no longer holds: an entry before this one preempts its victims, or
    /// took its places. Whether it fits now.
    fn refresh(&mut self, e: &mut Entry) -> bool {
        let (quota, places) = self.fits(e);
        let overlap = self.state.config.gates.recompute_on_overlap
            && e.targets.iter().any(|t| self.preempted.contains(&t.id));
        let moved = quota && !places && self.state.config.gates.tas_recompute;
        if !overlap && !moved {
            return quota && places;
        }
        let pod_sets = self.state.wl(e.id).map_or(0, |w| w.obj.pod_sets.len());
        let pins = e.assignment.as_ref().map(|a| a.pins(pod_sets));
        let mark = self.state.mark();
        let gone = if overlap { self.preempted.clone() } else { BTreeSet::new() };
        gone.iter().for_each(|&id| self.state.simulate_workload_removal(id));
        let out = self.take_out_victims_of_others(&gone);
        let found = self.find_assignment(e.id, e.cq, pins.as_ref(), None);
        e.record(found);
        self.put_back_victims_of_others(&out);
        self.state.rollback(mark);
        if overlap {
            let result =
                if e.targets.is_empty() && e.mode() == Mode::Preempt { "no_candidates" } else { "success" };
            self.recomputations.push((e.cq, result));
        }
        if overlap && let Some(a) = e.assignment.as_mut().filter(|a| a.mode() == Mode::Fit) {
            a.set_mode(Mode::DeferredFit);
        }
        let (quota, places) = self.fits(e);
        quota && places
    }

    /// Whether the entry fits by quota and by places, once its victims and those of others are gone.
    fn fits(&mut self, e: &Entry) -> (bool, bool) {
        self.expect_to_shrink(&e.targets);
        let mark = self.state.mark();
        let mut gone = self.preempted.clone();
        gone.extend(e.targets.iter().map(|t| t.id));
        gone.iter().for_each(|&id| self.state.simulate_usage_removal(id));
        let quota = self.state.quota_fits(e.cq, e.usage());
        let places = self.state.tas_view().tas_assignment_fits(e.id, e.cq, e.assignment.as_ref());
        self.state.rollback(mark);
        (quota, places)
    }

    /// Whether an entry goes on with preemption: it need not back off, and what its victims leave can be kept for it.
    fn preempts_now(&mut self, e: &mut Entry) -> bool {
        if e.second.is_none() && self.backs_off(e) {
            return false;
        }
        let kept = self.claim_for_preemption(e);
        if !kept {
            e.skip(false, entry::NO_LONGER_FITS);
        }
        kept
    }

    /// Whether an entry may not preempt now, after too many rounds. It gets another chance in time.
    fn backs_off(&self, e: &mut Entry) -> bool {
        let until = self.state.wl(e.id).and_then(|w| w.rounds.waits_until());
        let Some((until, rounds)) = until.filter(|(until, _)| *until > self.now) else { return false };
        e.retry_at = Some(until);
        e.message.push_str(&format!(
            ". Preemption is put off: workloads were preempted {rounds} times in short succession for this one, \
             and preempt it or take its place"
        ));
        e.reason = "WaitingForQuota";
        e.last_assignment = None;
        true
    }
}
