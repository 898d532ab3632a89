//! Answers to the writes about pods that are not bindings. A write that failed is repeated with growing pauses while
//! its cause exists: the pod still waits for that reason, the victim is still in the way.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::PodId;
use super::decide::condition_hash;
use super::queue::{MoveCause, Stage};
use super::{Action, FailureReason, PodRef, Scheduler};
use plimsoll_state::Answer;
use plimsoll_state::time::{Duration, SECOND, Time};

/// Doublings of the pause between two tries, which is a second at first.
const DOUBLINGS: u32 = 6;

/// Writes to the status of a pod that are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Explanation,
    Nomination,
}

type Key = (String, Kind);

#[derive(Debug)]
struct Row {
    failures: u32,
    /// When to write what again; `None` while it is being written.
    again: Option<(Time, Action)>,
    /// Whether `status.nominatedNodeName` is not as it was decided.
    owes_nomination: bool,
}

/// Writes that failed.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    rows: BTreeMap<Key, Row>,
    due: BTreeSet<(Time, Key)>,
}

impl Repeats {
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(t, _)| *t)
    }

    fn remove(&mut self, key: &Key) -> Option<Row> {
        let row = self.rows.remove(key)?;
        if let Some((at, _)) = &row.again {
            self.due.remove(&(*at, key.clone()));
        }
        Some(row)
    }

    /// Puts a write off, instead of what was to be repeated before it.
    fn put_off(&mut self, key: Key, action: Action, now: Time) {
        let old = self.remove(&key);
        let failures = old.as_ref().map_or(0, |r| r.failures).saturating_add(1);
        let wait = SECOND.saturating_mul(1 << (failures - 1).min(DOUBLINGS));
        let at = now.plus(Duration(wait));
        let nominates = matches!(&action, Action::Unschedulable { nominated_node: Some(_), .. });
        let owes_nomination = nominates || old.is_some_and(|r| r.owes_nomination);
        self.due.insert((at, key.clone()));
        self.rows.insert(key, Row { failures, again: Some((at, action)), owes_nomination });
    }
}

impl Scheduler {
    /// What became of an action.
    pub(super) fn answered(&mut self, action: Action, answer: &Answer) {
        let failed = match answer {
            Answer::Failed(_) => true,
            Answer::Done | Answer::Superseded => false,
        };
        match &action {
            Action::Preempt { victim, .. } => {
                if failed {
                    self.preempt_failed(victim);
                }
            }
            Action::Unschedulable { pod, nominated_node, .. } => {
                let key = (pod.uid.clone(), Kind::Explanation);
                let nominates = nominated_node.is_some();
                self.settle(key, action, failed, nominates);
            }
            Action::Nominate { pod, node } if node.is_empty() => {
                let key = (pod.uid.clone(), Kind::Nomination);
                self.settle(key, action, failed, true);
            }
            Action::ReleaseClaims { pod, deallocate, .. } => {
                if failed && *deallocate {
                    self.deallocation_failed(&pod.uid);
                }
            }
            // These have events of their own, need no answer, or are not critical (`bindingCycle` in `schedule_one.go`).
            Action::Bind { .. }
            | Action::Prepare { .. }
            | Action::Extend { .. }
            | Action::Nominate { .. }
            | Action::Record { .. } => {}
        }
    }

    fn settle(&mut self, key: Key, action: Action, failed: bool, nominates: bool) {
        if failed {
            if self.cluster.pod_by_uid(&key.0).is_some() {
                self.repeats.put_off(key, action, self.now);
            } else {
                self.repeats.remove(&key);
            }
        } else if nominates || self.repeats.rows.get(&key).is_some_and(|r| !r.owes_nomination) {
            self.repeats.remove(&key);
        }
    }

    /// The pods that need the capacity are tried again, after their backoff: they may need other victims by then (upstream's
    /// preemption executor activates the preemptor).
    fn preempt_failed(&mut self, victim: &PodRef) {
        let Some(victim) = self.cluster.pod_by_uid(&victim.uid) else { return };
        for id in self.cluster.preempting.settle(victim) {
            match self.queue.get(id).map(|q| q.stage) {
                // Not taken early, as a pod in backoff is: the next try may fail as fast.
                Some(Stage::Unschedulable | Stage::Gated(_)) => {
                    self.admit_to(id, Stage::ErrorBackoff);
                    self.queue.came(id, MoveCause::ForceActivate);
                }
                Some(Stage::InFlight) => self.activate(id),
                Some(Stage::Active | Stage::Backoff | Stage::ErrorBackoff) | None => {}
            }
        }
    }

    /// The pod is tried again after its backoff, as upstream does where PostFilter fails.
    fn deallocation_failed(&mut self, uid: &str) {
        let Some(id) = self.cluster.pod_by_uid(uid) else { return };
        if self.queue.get(id).is_some_and(|q| q.stage == Stage::Unschedulable) {
            self.admit_to(id, Stage::ErrorBackoff);
            self.queue.came(id, MoveCause::ForceActivate);
        }
    }

    /// Repeats the writes that are due. A write that is put off again waits for the next call, even at the end of time,
    /// where no pause moves it past `now`.
    pub(super) fn repeat_due(&mut self) {
        let mut due = Vec::new();
        while let Some((at, key)) = self.repeats.due.pop_first() {
            if at > self.now {
                self.repeats.due.insert((at, key));
                break;
            }
            due.push(key);
        }
        for key in due {
            let Some(row) = self.repeats.rows.get_mut(&key) else { continue };
            let Some((_, action)) = row.again.take() else { continue };
            match self.still_wanted(&key, &action) {
                Wanted::Write(action) => self.outbox.push(action),
                Wanted::Later => self.repeats.put_off(key, action, self.now),
                Wanted::Never => drop(self.repeats.remove(&key)),
            }
        }
    }

    fn still_wanted(&mut self, key: &Key, action: &Action) -> Wanted {
        let Some(id) = self.cluster.pod_by_uid(&key.0) else { return Wanted::Never };
        match action {
            Action::Nominate { node, .. }
                if node.is_empty()
                    && self.cluster.pods[id].nominated.is_none()
                    && self.cluster.pods[id].node.is_none() =>
            {
                Wanted::Write(action.clone())
            }
            Action::Unschedulable { pod, reason, message, nominated_node, again, generation } => {
                let Some(row) = self.queue.get(id) else { return Wanted::Never };
                if self.cluster.pods[id].node.is_some() {
                    // Until it is bound, it may come back.
                    return Wanted::Later;
                }
                let owes = self.repeats.rows.get(key).is_some_and(|r| r.owes_nomination);
                if row.condition == condition_hash(*reason, message) {
                    let nominated_node = (owes || nominated_node.is_some()).then(|| self.nominated_name(id));
                    let (pod, reason, message, again) = (pod.clone(), *reason, message.clone(), *again);
                    return Wanted::Write(Action::Unschedulable {
                        pod,
                        reason,
                        message,
                        nominated_node,
                        again,
                        generation: *generation,
                    });
                }
                if !owes {
                    return Wanted::Never;
                }
                // Another reason was written since, without the nomination: the next attempt writes both.
                if row.stage == Stage::Unschedulable {
                    self.retry(id);
                    self.queue.came(id, MoveCause::ForceActivate);
                }
                Wanted::Later
            }
            Action::Bind { .. }
            | Action::Prepare { .. }
            | Action::Extend { .. }
            | Action::Nominate { .. }
            | Action::ReleaseClaims { .. }
            | Action::Preempt { .. }
            | Action::Record { .. } => Wanted::Never,
        }
    }

    /// The nomination that the next write about a pod has to repeat, because the write of it failed.
    pub(super) fn owed_nomination(&mut self, id: PodId) -> Option<String> {
        if self.repeats.rows.is_empty() {
            return None;
        }
        let key = (self.cluster.pods[id].uid.to_string(), Kind::Explanation);
        self.repeats.rows.get(&key).filter(|r| r.owes_nomination)?;
        self.repeats.remove(&key);
        Some(self.nominated_name(id))
    }

    /// What the status of a pod that waits for a node does not say, though it was decided; `None`: it says everything, or the
    /// pod does not wait. `condition`: reason and message of `PodScheduled=False`; `nominated`: `nominatedNodeName`. The
    /// simulator asks when no write is under way.
    pub fn unwritten(&self, uid: &str, condition: (&str, &str), nominated: &str) -> Option<String> {
        let id = self.cluster.pod_by_uid(uid)?;
        let row = self.queue.get(id).filter(|row| match row.stage {
            Stage::Unschedulable | Stage::Backoff | Stage::ErrorBackoff => true,
            Stage::Gated(_) | Stage::Active | Stage::InFlight => false,
        })?;
        let reasons = [FailureReason::Unschedulable, FailureReason::SchedulerError];
        let reason = reasons.into_iter().find(|reason| reason.as_str() == condition.0);
        if reason.is_none_or(|reason| condition_hash(reason, condition.1) != row.condition) {
            return Some("the scheduler has decided something else".to_owned());
        }
        let decided = self.nominated_name(id);
        (decided != nominated).then(|| format!("the scheduler has nominated {decided:?}, not {nominated:?}"))
    }

    fn nominated_name(&self, id: PodId) -> String {
        let node = self.cluster.pods[id].nominated;
        node.map_or_else(String::new, |n| self.cluster.strings.text(self.cluster.nodes[n].name).to_owned())
    }
}

/// What to do about a write whose time has come.
enum Wanted {
    Write(Action),
    Later,
    Never,
}
