//! Scheduling cycles: from the head of the queue to an action.

use super::cluster::{Beside, Cluster, NodeId, PodId};
use super::cycle::{Cycle, totals};
use super::evaluate;
use super::events::{ActionType, EventResource};
use super::framework::{Candidate, Code, CycleState, Incoming, Status};
use super::message::{Failure, truncate_note};
use super::metrics::{Meter, Point, Unmetered};
use super::permit::Permitted;
use super::plugins::preemption::{self, DryRuns};
use super::post_filter;
use super::queue::{MoveCause, Stage};
use super::ranked::{Rank, Wanted};
use super::record::{FailureReason, RecordCause};
use super::{Action, Scheduler};
use plimsoll_state::rng::Rng;
use plimsoll_state::time::Time;
use std::hash::BuildHasher;
use std::sync::Arc;

/// How many nodes of a cluster count as one evaluation when victims are searched, which skips most of them.
const NODES_PER_DRY_RUN: usize = 4;

/// How a cycle ended.
pub(super) enum Outcome {
    Placed(NodeId, CycleState),
    Rejected { failure: Failure, candidate: Option<Arc<Candidate>>, clear_nomination: bool },
    Error(String),
    NoNodes,
}

impl Scheduler {
    /// Decides, with bounded work. Ends a step.
    pub fn decide(&mut self, now: Time, emit: &mut dyn FnMut(Action)) {
        self.set_now(now);
        self.expire_pre_bind();
        self.retry_pre_bind();
        self.expire_node_reservations();
        self.take_extenders_answers();
        self.give_up_extending();
        self.end_waiting();
        self.settle_victims();
        self.flush_queue();
        self.repeat_due();
        self.reload_pending();
        for action in self.outbox.drain(..) {
            emit(action);
        }
        for decided in 0..self.config.decisions_per_step {
            // What was put off comes first in the next step; pods that are still to be moved may come before others.
            let work = &self.ranks.work;
            let goes_on = self.extending.is_none() && !self.queue.is_behind;
            if !goes_on || work.put_off || (decided > 0 && work.is_spent()) {
                break;
            }
            if decided == 0 || self.sweeps.always {
                self.sweep();
            }
            let Some(id) = self.queue.pop() else { break };
            self.begin_measuring();
            self.schedule(id);
            self.measuring = false;
            self.settle_victims();
            for action in self.outbox.drain(..) {
                emit(action);
            }
        }
        self.ranks.work.end_step(&mut self.cluster);
    }

    fn schedule(&mut self, id: PodId) {
        if self.cluster.pods[id].deleting {
            let text = format!("skip schedule deleting pod: {}", self.cluster.pod_name(id));
            self.record(id, RecordCause::Deleting, &text);
            self.queue.remove(id);
            return;
        }
        if let Some(pods) = self.take_group(id) {
            return self.schedule_group(&pods);
        }
        if let Some(outcome) = self.consume_reservation(id) {
            return self.conclude(id, outcome);
        }
        if self.is_extended(id) {
            return self.extend(id, false);
        }
        self.ranks.work.may_put_off = true;
        let outcome = self.find(id);
        let put_off = self.ranks.work.end_attempt();
        match outcome {
            Some(outcome) => self.conclude(id, outcome),
            None if put_off => self.queue.put_back(id),
            None => {}
        }
    }

    /// Looks for a node, and for victims where there is none. `None`: it is put off, or there is no such pod in the queue.
    pub(super) fn find(&mut self, id: PodId) -> Option<Outcome> {
        let profile = self.queue.get(id)?.profile;
        match self.meter(self.measuring, profile as usize) {
            None => self.find_metered(&Unmetered, id, profile),
            Some(meter) => self.find_metered(&meter, id, profile),
        }
    }

    fn find_metered(&mut self, meter: &impl Meter, id: PodId, profile: u32) -> Option<Outcome> {
        let runner = self.runners.get(profile as usize)?;
        let incoming = Incoming::new(&self.cluster, id);
        let sampled = evaluate::sample(runner, self.cluster.node_count).is_some();
        let rank = if self.cluster.node_count == 0 || sampled {
            Rank::Unknown
        } else {
            let wanted = Wanted { profile, beside: Beside::All, equal_follow: false };
            self.ranks.best(meter.metered(), runner, wanted, &mut self.cluster, &incoming, &mut self.rng)
        };
        let nodes = self.cluster.node_count;
        let mut evaluated = 0;
        let outcome = match rank {
            Rank::Best(node) => Outcome::Placed(node, CycleState::default()),
            Rank::PutOff => return None,
            Rank::None(ranked) => {
                evaluated = nodes / NODES_PER_DRY_RUN;
                let cycle = Cycle::pre_filter(meter, runner, &self.cluster, incoming);
                let failure = evaluate::ranked_failure(&self.cluster, ranked);
                // What pods elsewhere change is not noticed by what is kept about a node.
                let known = (!ranked.is_counted()).then_some(&mut ranked.dry_runs);
                reject(meter, cycle, &mut self.cluster, failure, (&mut self.rng, known))
            }
            Rank::Unknown => {
                evaluated = nodes;
                let sampled = sampled.then_some(&mut self.next_start);
                attempt(meter, runner, &mut self.cluster, (incoming, None), &mut self.rng, sampled)
            }
        };
        self.ranks.work.looked_at += evaluated;
        Some(outcome)
    }

    /// The same on these nodes only, ascending.
    pub(super) fn find_within(&mut self, id: PodId, nodes: &[NodeId]) -> Option<Outcome> {
        let profile = self.queue.get(id)?.profile;
        match self.meter(self.measuring, profile as usize) {
            None => self.find_within_metered(&Unmetered, id, profile, nodes),
            Some(meter) => self.find_within_metered(&meter, id, profile, nodes),
        }
    }

    fn find_within_metered(
        &mut self,
        meter: &impl Meter,
        id: PodId,
        profile: u32,
        nodes: &[NodeId],
    ) -> Option<Outcome> {
        let runner = self.runners.get(profile as usize)?;
        let incoming = Incoming::new(&self.cluster, id);
        let sampled = evaluate::sample(runner, nodes.len()).map(|_| &mut self.next_start);
        Some(attempt(meter, runner, &mut self.cluster, (incoming, Some(nodes)), &mut self.rng, sampled))
    }

    /// Carries out how a cycle ended.
    pub(super) fn conclude(&mut self, id: PodId, outcome: Outcome) {
        match outcome {
            Outcome::Placed(node, state) => self.assume(id, node, state),
            Outcome::Rejected { failure, candidate, clear_nomination } => {
                self.rejected(id, &failure, candidate, clear_nomination);
            }
            Outcome::Error(text) => {
                let nominated = self.clear_nomination(id);
                self.failed(id, FailureReason::SchedulerError, &text, nominated);
            }
            Outcome::NoNodes => {
                let nominated = self.clear_nomination(id);
                self.failed(
                    id,
                    FailureReason::Unschedulable,
                    "no nodes available to schedule pods",
                    nominated,
                );
            }
        }
    }

    /// Assumes the pod on the node, and goes on to PreBind unless it waits on Permit.
    fn assume(&mut self, id: PodId, node: NodeId, state: CycleState) {
        self.nominate(id, None);
        self.in_flight_events.remove(&id);
        match self.reserve_and_permit(id, node, state) {
            Ok(Permitted::Allowed) => self.pre_bind(id),
            Ok(Permitted::Waits) => self.expect_binding(id),
            Err(back) => self.forget_assumed(id, back, false),
        }
    }

    /// Releases victims that are not deleted, after the preemptor has entered the unschedulable pods: reservations, and pods
    /// that wait before they are bound.
    pub(super) fn settle_victims(&mut self) {
        self.wake_released();
        if !(self.preempted_reservations.is_empty() && self.cancelled.is_empty()) {
            self.release_victims();
        }
        self.run_deferred_calls();
    }

    #[cold]
    fn release_victims(&mut self) {
        for reservation in std::mem::take(&mut self.preempted_reservations) {
            self.release_node(reservation);
        }
        for id in std::mem::take(&mut self.cancelled) {
            self.end_pre_bind(id, "context canceled");
        }
    }

    fn rejected(&mut self, id: PodId, failure: &Failure, candidate: Option<Arc<Candidate>>, clear: bool) {
        if let Some(row) = self.queue.get_mut(id) {
            row.unschedulable_plugins = failure.plugins.clone();
            row.pending_plugins = failure.pending.clone();
        }
        if !failure.deallocate.is_empty() {
            let (pod, claims) = (self.pod_ref(id), failure.deallocate.clone());
            self.outbox.push(Action::ReleaseClaims { pod, claims, deallocate: true });
        }
        let text = failure.fit.full();
        let nominated = match candidate {
            Some(candidate) => {
                let node = candidate.node;
                self.preempt(id, &candidate);
                self.nominate(id, Some(node));
                Some(self.cluster.strings.text(self.cluster.nodes[node].name).to_owned())
            }
            None if clear => self.clear_nomination(id),
            None => None,
        };
        self.failed(id, FailureReason::Unschedulable, &text, nominated);
    }

    /// Asks for the deletion of the victims. Where all of them terminate already there is nothing to prepare
    /// (`prepareCandidateAsync` in `framework/preemption/executor.go`).
    fn preempt(&mut self, id: PodId, candidate: &Candidate) {
        if candidate.victims.iter().all(|victim| self.cluster.pods[*victim].deleting) {
            return;
        }
        self.counters.preempted(candidate.victims.len());
        let preemptor = self.pod_ref(id);
        let shape = self.cluster.shape(id);
        let scheduler = self.cluster.strings.text(shape.spec.scheduler).to_owned();
        let priority = shape.spec.priority;
        let node = self.cluster.strings.text(self.cluster.nodes[candidate.node].name).to_owned();
        for victim in &candidate.victims {
            if self.cluster.pods[*victim].deleting {
                continue;
            }
            if let Some(reservation) = self.reservations.of_placeholder(*victim) {
                self.preempted_reservations.push(reservation);
                continue;
            }
            if self.cluster.preempting.is_asked(*victim) {
                self.cluster.preempting.ask(*victim, id);
                continue;
            }
            let (pod, cause) = (self.pod_ref(*victim), RecordCause::Preempted);
            let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
            if self.make_way(*victim) {
                let event = cause.event(note + " (in kube-scheduler memory).");
                self.outbox.push(Action::Record { pod, cause, event });
                continue;
            }
            self.cluster.preempting.ask(*victim, id);
            self.outbox.push(Action::Preempt {
                victim: pod,
                preemptor: preemptor.clone(),
                message: format!("{scheduler}: preempting to accommodate a higher priority pod"),
                event: Box::new(cause.event(note)),
                generation: self.cluster.pods[*victim].generation,
            });
        }
        let nominated = self.cluster.nodes[candidate.node].nominated.clone();
        for other in nominated.into_iter().filter(|p| *p != id) {
            if self.cluster.priority(other) >= priority {
                continue;
            }
            self.nominate(other, None);
            let pod = self.pod_ref(other);
            self.outbox.push(Action::Nominate { pod, node: String::new() });
            if self.queue.get(other).is_some_and(|r| r.stage == Stage::Unschedulable) {
                self.retry(other);
                // As if it had left the node where it was nominated (`hasNominatedNodeNameChanged` in `eventhandlers.go`).
                self.queue.came(other, MoveCause::Event(EventResource::AssignedPod, ActionType::DELETE));
            }
        }
    }

    /// Whether a victim is not deleted: a pod that waits on Permit or in PreBind is only rejected.
    fn make_way(&mut self, victim: PodId) -> bool {
        if self.waiting.preempt(victim) {
            return true;
        }
        let cancel = self.can_cancel(victim);
        if cancel {
            self.cancelled.push(victim);
        }
        cancel
    }

    /// Puts a pod back after a failed attempt and reports it. What no plugin has rejected is an error.
    pub(super) fn failed(&mut self, id: PodId, reason: FailureReason, text: &str, nominated: Option<String>) {
        let row = self.queue.get(id);
        let error = row.is_some_and(|r| r.unschedulable_plugins.is_empty() && r.pending_plugins.is_empty());
        self.unplaced(id, (reason, text), nominated, error);
    }

    /// The same, where it is known whether the attempt ended with an error or a rejection.
    pub(super) fn unplaced(
        &mut self,
        id: PodId,
        (reason, text): (FailureReason, &str),
        nominated: Option<String>,
        error: bool,
    ) {
        self.record(id, RecordCause::Failed(reason), text);
        let condition = condition_hash(reason, text);
        let now = self.now;
        let nominated = nominated.or_else(|| self.owed_nomination(id));
        let Some(row) = self.queue.get_mut(id) else { return };
        let told = row.condition == condition && nominated.is_none();
        (row.condition, row.timestamp, row.flushed) = (condition, now, false);
        if error {
            row.errors += 1;
        } else {
            row.unschedulable += 1;
            row.errors = 0;
        }
        if error || self.is_in_group(id) {
            // Pods of a group always come back after their backoff, and wait for all of it: the group would be tried
            // again at once otherwise.
            self.admit_to(id, Stage::ErrorBackoff);
        } else {
            self.queue.enter(id, Stage::Unschedulable);
        }
        self.replay_in_flight(id);
        self.queue.came(id, MoveCause::ScheduleAttemptFailure);
        if !told {
            let pod = self.pod_ref(id);
            let message = text.to_owned();
            let row = &self.cluster.pods[id];
            let (again, generation, nominated_node) = (row.unscheduled, row.generation, nominated);
            let action = Action::Unschedulable { pod, reason, message, nominated_node, again, generation };
            self.outbox.push(action);
        }
    }

    fn record(&mut self, id: PodId, cause: RecordCause, text: &str) {
        let pod = self.pod_ref(id);
        self.outbox.push(Action::Record { pod, cause, event: cause.event(truncate_note(text)) });
    }
}

/// What is remembered of a condition that was written.
pub(super) fn condition_hash(reason: FailureReason, text: &str) -> u64 {
    foldhash::fast::FixedState::with_seed(1).hash_one((reason.as_str(), text)) | 1
}

/// How the search for a node ended.
pub(super) enum Search<'a> {
    On(Cycle<'a>, NodeId),
    Nowhere(Cycle<'a>, Failure),
    Error(String),
}

/// One attempt to find a node.
fn attempt(
    meter: &impl Meter,
    runner: &super::runner::Runner,
    cluster: &mut Cluster,
    (incoming, within): (Incoming, Option<&[NodeId]>),
    rng: &mut Rng,
    sampled: Option<&mut usize>,
) -> Outcome {
    if within.map_or(cluster.node_count, <[NodeId]>::len) == 0 {
        return Outcome::NoNodes;
    }
    match search(meter, runner, cluster, (incoming, within), rng, sampled) {
        Search::On(cycle, node) => Outcome::Placed(node, cycle.state),
        Search::Nowhere(cycle, failure) => reject(meter, cycle, cluster, failure, (rng, None)),
        Search::Error(text) => Outcome::Error(text),
    }
}

/// PreFilter to Score over all nodes, over those of a placement (ascending), or over a sample of them from `sampled` on.
pub(super) fn search<'a>(
    meter: &impl Meter,
    runner: &'a super::runner::Runner,
    cluster: &mut Cluster,
    (incoming, within): (Incoming, Option<&'a [NodeId]>),
    rng: &mut Rng,
    sampled: Option<&mut usize>,
) -> Search<'a> {
    let mut cycle = Cycle::pre_filter_within(meter, runner, cluster, incoming, within);
    let mut verdicts = Vec::new();
    if cycle.status.is_success() {
        let run = || match sampled {
            Some(start) => evaluate::filter_some(meter, &mut cycle, cluster, start).0,
            None => evaluate::filter_all(meter, &mut cycle, cluster).0,
        };
        // Upstream's Filter as a whole fails with errors only.
        verdicts = meter.point(Point::Filter, run, |found| match found.iter().any(is_error) {
            true => Code::Error,
            false => Code::Success,
        });
    } else if !cycle.status.code.is_rejected() {
        return Search::Error(runner.error_text(cluster, &cycle.status, "PreFilter"));
    }
    if let Some((_, status)) = verdicts.iter().find(|v| is_error(v)) {
        return Search::Error(runner.error_text(cluster, status, "Filter"));
    }
    let feasible: Vec<NodeId> = verdicts.iter().filter(|(_, s)| s.is_success()).map(|(n, _)| *n).collect();
    match feasible.as_slice() {
        [] => {
            let failure = evaluate::failure(&cycle, cluster, &verdicts);
            Search::Nowhere(cycle, failure)
        }
        [only] => Search::On(cycle, *only),
        many => match cycle.score(meter, cluster, many) {
            Ok(scores) => Search::On(cycle, pick(many, &totals(&scores, many.len()), rng)),
            Err(status) => Search::Error(runner.error_text(cluster, &status, "Score")),
        },
    }
}

/// Whether a plugin failed on a node.
fn is_error((_, status): &(NodeId, Status)) -> bool {
    !status.is_success() && !status.code.is_rejected()
}

fn reject(
    meter: &impl Meter,
    mut cycle: Cycle<'_>,
    cluster: &mut Cluster,
    mut failure: Failure,
    means: (&mut Rng, Option<&mut DryRuns>),
) -> Outcome {
    let (candidate, clear_nomination) = preempt(meter, &mut cycle, cluster, &mut failure, means);
    Outcome::Rejected { failure, candidate, clear_nomination }
}

/// One of the nodes with the highest score, each equally likely.
pub(super) fn pick(nodes: &[NodeId], scores: &[i64], rng: &mut Rng) -> NodeId {
    let max = scores.iter().copied().max().unwrap_or(0);
    let ties = scores.iter().filter(|s| **s == max).count();
    let mut at = rng.below(u32::try_from(ties).unwrap_or(u32::MAX));
    for (node, score) in nodes.iter().zip(scores) {
        if *score == max {
            if at == 0 {
                return *node;
            }
            at -= 1;
        }
    }
    nodes[0]
}

/// PostFilter: the candidate for preemption, and whether to clear the pod's nomination.
fn preempt(
    meter: &impl Meter,
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
    failure: &mut Failure,
    (rng, known): (&mut Rng, Option<&mut DryRuns>),
) -> (Option<Arc<Candidate>>, bool) {
    let (found, clear) = candidates(meter, cycle, cluster, failure, (rng, known));
    (choose(found, rng), clear)
}

/// PostFilter: candidates for preemption, and whether to clear the pod's nomination.
pub(super) fn candidates(
    meter: &impl Meter,
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
    failure: &mut Failure,
    (rng, known): (&mut Rng, Option<&mut DryRuns>),
) -> (Vec<Arc<Candidate>>, bool) {
    let post = post_filter::run(meter, cycle, cluster, failure, (Some(rng), known));
    failure.fit.post_filter = post.text;
    failure.deallocate = post.deallocate;
    (post.candidates, post.clear_nomination)
}

/// One of the best candidates, each equally likely.
pub(super) fn choose(mut found: Vec<Arc<Candidate>>, rng: &mut Rng) -> Option<Arc<Candidate>> {
    let best = preemption::best(&found);
    let chosen = match best.as_slice() {
        [] => None,
        many => many.get(rng.below(u32::try_from(many.len()).unwrap_or(u32::MAX)) as usize),
    };
    chosen.map(|i| found.swap_remove(*i))
}
