//! The scheduling cycle: one head of every ClusterQueue, in order, against one state (spec sections 2.1 to
//! 2.3, 2.8).
//!
//! Everything a cycle decides is collected while it works on a simulation of what the earlier heads took;
//! then the simulation is undone and the decisions are carried out.

mod explain;
mod joint;
mod nominate;
mod order;
mod plans;
mod room;
mod second;

pub(crate) use room::Rounds;
pub(crate) use second::SecondPasses;

use std::collections::BTreeSet;

use plans::Plans;

use super::account::is_admissible;
use super::amount::Amount;
use super::assign::{Assignment, LastTry, Mode, considered};
use super::ids::Fr;
use super::model::{Admission, Delayed, PodSetAssignment, QueueingStrategy};
use super::pending::WlId;
use super::preempt::Target;
use super::state::{CqId, Queueing};
use super::{Note, cond};
use crate::joint::{NodeReservations, Nodes};
use plimsoll_state::time::{Duration, Time};

/// When a search among flavors starts anew that ended with flavors tried before others gave something back. In Kueue
/// it waits for the next event, which may never come; whatever wakes others comes first here, too.
const SCAN_AGAIN: Duration = Duration::from_seconds(10);

/// How an entry left the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing was tried, or it waits for its victims.
    NotNominated,
    /// Others were faster.
    Skipped,
    /// It gets its quota.
    Admitted,
    /// It has to stop.
    Evicted,
}

/// Why a workload goes back to its queue; decides where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requeue {
    Generic,
    FailedAfterNomination,
    NamespaceMismatch,
    PendingPreemption,
    PreemptionGated,
    NoFit,
    NoCandidates,
}

/// A head in the cycle.
struct Entry {
    id: WlId,
    cq: CqId,
    assignment: Option<Assignment>,
    targets: Vec<Target>,
    last: Option<LastTry>,
    outcome: Outcome,
    requeue: Requeue,
    reason: &'static str,
    message: String,
    /// Whether somebody was newly asked to make room for it.
    asked: bool,
    /// Whether the flavors tried before this cycle were tried when less was free.
    stale: bool,
    /// In a second pass the number of the attempt.
    second: Option<u32>,
}

impl Entry {
    fn mode(&self) -> Mode {
        self.assignment.as_ref().map_or(Mode::NoFit, Assignment::mode)
    }

    fn usage(&self) -> &[(Fr, Amount)] {
        self.assignment.as_ref().map_or(&[], |a| &a.usage)
    }

    fn skip(&mut self, keep_progress: bool, message: &str) {
        self.outcome = Outcome::Skipped;
        message.clone_into(&mut self.message);
        self.reason = "WaitingForQuota";
        if !keep_progress {
            self.last = None;
        }
    }

    fn record(&mut self, (assignment, targets): (Assignment, Vec<Target>)) {
        self.message = assignment.message();
        self.last = Some(assignment.last.clone());
        self.assignment = Some(assignment);
        self.targets = targets;
    }
}

impl Queueing {
    /// Runs one scheduling cycle.
    pub(crate) fn run_cycle(&mut self, now: Time, mut nodes: Option<Nodes<'_, '_>>) {
        let mut heads = self.pop_second_passes(now);
        heads.extend(self.pop_heads().into_iter().map(|(id, cq)| (id, cq, 0)));
        if heads.is_empty() {
            return;
        }
        self.cycle += 1;
        for &(_, cq, _) in &heads {
            self.cq_mut(cq).skips = 0;
        }
        self.admitted_now = false;
        self.slices.taken.clear();
        self.tas.balanced_steps.set(0);
        let start = self.mark();
        let (mut entries, inadmissible) = self.nominate(heads);
        let mut plans = Plans::default();
        let mut left: Vec<usize> = self.classical_order(&entries);
        let in_vain = self.in_vain(&entries);
        while let Some(i) = self.next_entry(&entries, &mut left, &in_vain) {
            let entry = &mut entries[i];
            // Reborrowed by hand: `as_deref_mut` can't shorten the lifetime within the trait object.
            let nodes = nodes.as_mut().map(|n| &mut **n as &mut dyn NodeReservations);
            self.process(entry, &mut plans, nodes, now);
        }
        self.rollback(start);
        self.tree.commit();
        self.tas.commit();
        let moved = |e: &Entry| matches!(e.outcome, Outcome::Admitted | Outcome::Evicted);
        let admitted = entries.iter().any(moved);
        let result = if admitted { "success" } else { "inadmissible" };
        self.metrics.count("kueue_admission_attempts_total", &[result], 1);
        let [success, nothing] = &mut self.attempts;
        *(if admitted { success } else { nothing }) += 1;
        for entry in entries.into_iter().chain(inadmissible) {
            self.carry_out(entry, now);
        }
    }

    fn process(&mut self, e: &mut Entry, plans: &mut Plans, nodes: Option<Nodes<'_, '_>>, now: Time) {
        let fits = self.refresh(e, &plans.claimed);
        let keep = self.config.gates.preserve_scan_progress;
        if e.second.is_some()
            && e.mode() != Mode::Fit
            && self.config.gates.replace_fail_fast
            && self.wl(e.id).is_some_and(|w| w.needs_other_node())
        {
            e.outcome = Outcome::Evicted;
            return;
        }
        match e.mode() {
            Mode::NoFit => {
                e.requeue = Requeue::NoFit;
                let reason = e.assignment.as_ref().map_or("", |a| a.no_fit_reason);
                // Kueue computes no reason for some mixtures and can't publish the message then.
                e.reason = if reason.is_empty() { "NoMatchingFlavor" } else { reason };
                return;
            }
            Mode::Preempt if e.targets.is_empty() => {
                e.requeue = Requeue::NoCandidates;
                e.reason = "WaitingForQuota";
                self.reserve_for_later(e, plans);
                return;
            }
            Mode::Preempt if self.wl(e.id).is_some_and(|w| w.obj.has_closed_gate()) => {
                e.message = super::preemption_gates::MESSAGE.to_owned();
                e.reason = "AdmissionGated";
                e.requeue = Requeue::PreemptionGated;
                e.last = None;
                return;
            }
            Mode::DeferredFit => {
                e.message = "Workload has overlapping preemption targets with another workload, but will \
                             fit after these preemptions complete"
                    .to_owned();
                e.reason = "WaitingForPreemptedWorkloads";
                e.requeue = Requeue::PendingPreemption;
                e.last = None;
                self.keep_back(e, plans);
                return;
            }
            Mode::Preempt | Mode::Fit => {}
        }
        let before = self.chain_before(e.id);
        let (taken, claimed) = (&self.slices.taken, &plans.claimed);
        let overlaps = e.targets.iter().any(|t| claimed.contains(&t.id) || taken.contains(&t.id))
            || before.iter().any(|o| claimed.contains(o))
            || taken.contains(&e.id);
        if overlaps {
            e.skip(keep, "Workload has overlapping preemption targets with another workload");
            self.cq_mut(e.cq).skips += 1;
            return;
        }
        if !fits || (e.mode() == Mode::Fit && !self.fits_beside_victims(e, plans)) {
            e.skip(keep, "Workload no longer fits after processing another workload");
            return;
        }
        if e.mode() == Mode::Fit
            && e.second.is_none()
            && let Some(nodes) = nodes
            && let Err(text) = self.promised(e, nodes, now)
        {
            e.message = format!("couldn't place all pods: {text}");
            e.reason = "WaitingForNodes";
            e.requeue = Requeue::NoFit;
            e.last = None;
            self.nodes_awaited.insert(e.cq);
            return;
        }
        if e.mode() == Mode::Preempt && e.second.is_none() && self.puts_off(e, now) {
            return;
        }
        plans.claimed.extend(e.targets.iter().map(|t| t.id));
        if e.mode() == Mode::Preempt {
            self.keep_back(e, plans);
            e.reason = "WaitingForPreemptedWorkloads";
            e.requeue = Requeue::PendingPreemption;
            e.last = None;
            e.message.push_str(&format!(". Pending the preemption of {} workload(s)", e.targets.len()));
            return;
        }
        self.add_usage(e.cq, e.usage());
        self.tas_charge_assignment(e.id, e.assignment.as_ref(), true, 1);
        plans.admitted = true;
        if e.second.is_none() && self.blocked_by_pods(e) {
            return;
        }
        self.slices.taken.extend(before);
        e.outcome = Outcome::Admitted;
    }

    /// With `blockAdmission`, whether a workload has to wait until the pods of all admitted ones are ready.
    fn blocked_by_pods(&mut self, e: &mut Entry) -> bool {
        if !self.config.wait_for_pods_ready.as_ref().is_some_and(|w| w.block_admission) {
            return false;
        }
        let waits = |id: &WlId| {
            self.wl(*id).is_some_and(|w| {
                w.obj.status.is_true(cond::ADMITTED) && !w.obj.status.is_true(cond::PODS_READY)
            })
        };
        if !self.admitted_now && !self.cqs.iter().flat_map(|c| &c.holders).any(waits) {
            self.admitted_now = true;
            return false;
        }
        e.skip(true, "waiting for all admitted workloads to be in PodsReady condition");
        e.reason = "WaitingForPodsReady";
        true
    }

    /// Computes the assignment again if what was found no longer holds: its victims were claimed by
    /// somebody else, or its places were taken. Whether it fits now.
    fn refresh(&mut self, e: &mut Entry, claimed: &BTreeSet<WlId>) -> bool {
        let (quota, places) = self.fits(e, claimed);
        let overlap =
            self.config.gates.recompute_on_overlap && e.targets.iter().any(|t| claimed.contains(&t.id));
        let moved = quota && !places && self.config.gates.tas_recompute;
        if !overlap && !moved {
            return quota && places;
        }
        let pod_sets = self.wl(e.id).map_or(0, |w| w.obj.pod_sets.len());
        let pins = e.assignment.as_ref().map(|a| a.pins(pod_sets));
        let mark = self.mark();
        if overlap {
            claimed.iter().for_each(|&id| self.take_out(id));
        }
        let found = self.find_assignment(e.id, e.cq, pins.as_ref(), None);
        e.record(found);
        self.rollback(mark);
        if overlap {
            let result =
                if e.targets.is_empty() && e.mode() == Mode::Preempt { "no_candidates" } else { "success" };
            let queue = self.cq(e.cq).name.clone();
            self.metrics.count("kueue_preemption_target_recomputations_total", &[&queue, result], 1);
        }
        if overlap && let Some(a) = e.assignment.as_mut().filter(|a| a.mode() == Mode::Fit) {
            a.set_mode(Mode::DeferredFit);
        }
        let (quota, places) = self.fits(e, claimed);
        quota && places
    }

    /// Whether the entry fits by quota and by places, once its victims and those of others are gone.
    fn fits(&mut self, e: &Entry, claimed: &BTreeSet<WlId>) -> (bool, bool) {
        let mark = self.mark();
        let mut gone = claimed.clone();
        gone.extend(e.targets.iter().map(|t| t.id));
        gone.iter().for_each(|&id| self.take_usage(id));
        let quota = self.quota_fits(e.cq, e.usage());
        let places = self.tas_assignment_fits(e.id, e.cq, e.assignment.as_ref());
        self.rollback(mark);
        (quota, places)
    }

    /// Does what the cycle decided about one entry.
    fn carry_out(&mut self, mut e: Entry, now: Time) {
        match e.outcome {
            Outcome::Admitted => return self.admit(&e, now),
            Outcome::Evicted => return self.give_up_on_nodes(e.id, now),
            Outcome::NotNominated | Outcome::Skipped => {}
        }
        if e.mode() == Mode::Preempt && e.requeue == Requeue::PendingPreemption {
            for t in &e.targets {
                e.asked |= self.preempt(&e, *t, now);
            }
            if e.asked {
                self.round(e.id, now);
            }
        }
        match e.second {
            Some(attempt) => self.second_pass_failed(&e, attempt, now),
            None => self.requeue(e, now),
        }
    }

    fn admit(&mut self, e: &Entry, now: Time) {
        let (Some(a), Some(wl)) = (&e.assignment, self.wl(e.id)) else { return };
        if e.second.is_some() {
            return self.admit_again(e.id, e.cq, a, now);
        }
        let admission = self.admission_of(e.cq, a);
        let name = admission.cluster_queue.clone();
        let queued = wl.obj.status.condition(cond::REQUEUED).map_or(wl.obj.creation, |c| c.transition);
        let mut text = format!(
            "Quota reserved in ClusterQueue {name}, wait time since queued was {}s",
            now.since(queued).seconds()
        );
        let tried = considered(a, &self.ids);
        if !tried.is_empty() {
            text.push_str(&format!("; Flavors considered: {tried}"));
        }
        let complete = self.has_all_checks(e.id, e.cq, &admission);
        let placed = admission.assignments.iter().all(|p| p.delayed != Some(Delayed::Pending));
        let checks = &wl.obj.status.admission_checks;
        let ready = placed && checks.iter().all(|c| c.state == super::CheckState::Ready);
        let mut notes = vec![Note { warning: false, reason: "QuotaReserved".into(), message: text }];
        if complete && ready {
            notes.push(Note {
                warning: false,
                reason: "Admitted".into(),
                message: format!("Admitted by ClusterQueue {name}, wait time since reservation was 0s"),
            });
        }
        let explicit = self.config.gates.explicit_status;
        if let Some(wl) = self.wl_mut(e.id) {
            wl.last = None;
        }
        self.round_won(e.id);
        self.charge_entry(e.id, e.cq);
        self.edit(e.id, now, notes, |edit| {
            edit.set_reservation(admission);
            if complete {
                edit.sync_admitted(explicit);
            }
        });
    }

    fn admission_of(&self, cq: CqId, a: &Assignment) -> Admission {
        let mut assignments: Vec<(usize, PodSetAssignment)> = a
            .pod_sets
            .iter()
            .map(|ps| {
                let mut flavors: Vec<(String, String)> = ps
                    .picks
                    .iter()
                    .map(|p| {
                        (self.ids.resource_name(p.res).to_owned(), self.ids.flavor_name(p.flavor).to_owned())
                    })
                    .collect();
                flavors.sort();
                let asked = |res| ps.requests.iter().find(|(r, _)| *r == res).map_or(0, |(_, v)| *v);
                let resource_usage = ps
                    .picks
                    .iter()
                    .map(|p| (self.ids.resource_name(p.res).to_owned(), asked(p.res)))
                    .collect();
                let assignment = PodSetAssignment {
                    name: ps.name.clone(),
                    flavors,
                    resource_usage,
                    count: ps.count,
                    topology: ps.topology.clone(),
                    delayed: ps.delayed,
                };
                (ps.index, assignment)
            })
            .collect();
        assignments.sort_by_key(|(i, _)| *i);
        Admission {
            cluster_queue: self.cq(cq).name.clone(),
            assignments: assignments.into_iter().map(|(_, a)| a).collect(),
        }
    }

    fn path(&self, cq: CqId) -> String {
        let Some(node) = self.cq(cq).node else { return format!("/{}", self.cq(cq).name) };
        let mut names: Vec<&str> = std::iter::once(node)
            .chain(self.tree.ancestors(node))
            .map(|n| self.tree.node(n).name.as_str())
            .collect();
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Asks a workload to make room; whether it was not already leaving.
    fn preempt(&mut self, e: &Entry, t: Target, now: Time) -> bool {
        let (Some(preemptor), Some(victim)) = (self.wl(e.id), self.wl(t.id)) else { return false };
        let Some(held) = victim.held.filter(|_| !victim.obj.status.is_true(cond::EVICTED)) else {
            return false;
        };
        let or_unknown = |s: &str| if s.is_empty() { "UNKNOWN".to_owned() } else { s.to_owned() };
        let message = format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; \
             preemptee path: {}",
            or_unknown(&preemptor.obj.uid),
            or_unknown(&preemptor.obj.job_uid),
            t.reason.text(),
            self.path(e.cq),
            self.path(held),
        );
        let of = |w: &super::Workload| {
            format!(
                "effective priority: {} (base: {}, boost: {})",
                w.effective_priority(),
                w.priority,
                w.priority_boost
            )
        };
        let priorities = format!("; preemptor {}; preemptee {}", of(&preemptor.obj), of(&victim.obj));
        let told = Note {
            warning: false,
            reason: "PreemptedWorkload".into(),
            message: format!(
                "Preempted workload {} (UID: {}) in ClusterQueue {}{priorities}",
                victim.obj.key,
                victim.obj.uid,
                self.cq(held).name
            ),
        };
        let key = preemptor.obj.key.clone();
        let note = |reason: &str, message: String| Note { warning: false, reason: reason.into(), message };
        let notes = vec![
            note("EvictedDueToPreempted", message.clone()),
            note("Preempted", format!("{message}{priorities}")),
        ];
        let by = Some(self.cq(e.cq).name.clone());
        self.edit_by(t.id, by, now, notes, |edit| {
            edit.set(cond::PREEMPTED, true, t.reason.as_str(), &message);
            edit.evict("Preempted", "", &message);
        });
        self.out.push(super::Action::Record(key, vec![told]));
        true
    }

    /// Puts a head back where it belongs and says why it waits.
    fn requeue(&mut self, mut e: Entry, now: Time) {
        if e.outcome == Outcome::Skipped && e.requeue == Requeue::Generic {
            e.requeue = Requeue::FailedAfterNomination;
        }
        let Some(wl) = self.wl(e.id) else { return };
        if !is_admissible(&wl.obj) || !Self::depends_on_nothing(wl) || self.kept_out(wl) {
            self.unqueue(e.id);
            return;
        }
        let (rank, shape, lq) = (self.rank(wl, e.id), wl.shape, wl.lq);
        let more = e.last.as_ref().is_some_and(LastTry::has_more);
        let ready = self.is_ready(e.id, now);
        if let Some(wl) = self.wl_mut(e.id) {
            wl.last = e.last.take();
        }
        let hashing = self.config.gates.equivalence_hashing;
        let queue = self.cq_mut(e.cq);
        let best_effort = queue.rules.strategy == QueueingStrategy::BestEffortFifo;
        if e.requeue == Requeue::PendingPreemption {
            queue.pending.sticky = best_effort.then_some(e.id);
        }
        let at_once = if best_effort {
            matches!(e.requeue, Requeue::FailedAfterNomination | Requeue::PendingPreemption)
        } else {
            e.requeue != Requeue::NamespaceMismatch
        };
        let mut parked = Vec::new();
        if e.stale && ready && !more {
            // The flavors before may fit by now, and nothing else would tell: Kueue leaves it there.
            self.wake_later.insert((now.plus(SCAN_AGAIN), e.cq));
        }
        let queue = self.cq_mut(e.cq);
        if !ready {
            queue.pending.delay(e.id);
        } else if at_once || more {
            queue.pending.activate(rank, shape, lq);
        } else {
            queue.pending.park(rank, shape, lq);
            if hashing && best_effort && matches!(e.requeue, Requeue::NoFit | Requeue::NoCandidates) {
                parked = queue.pending.stop_shape(shape, e.reason, &e.message);
            }
        }
        // One that waits for victims already asked would only be told the same again.
        if more || !parked.is_empty() || (best_effort && !at_once) || e.asked {
            // Another head comes first next time, or the same one with other flavors.
            self.cycle_due = true;
        }
        for &id in &parked {
            self.explain_skipped(id, now);
        }
        parked.retain(|&id| self.may_hear_of_shape(id));
        self.dirty.extend(parked);
        self.touch(e.cq, lq);
        self.say_why(&e, now);
    }
}
