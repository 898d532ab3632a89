//! The cycle of a pod group (KEP-4671, upstream `schedule_one_podgroup.go`): all its pods in the queue are placed one after
//! another; when Permit allows one of them all are bound, otherwise all are forgotten at once.

mod placements;

use super::Scheduler;
use super::cluster::{NodeId, PodId};
use super::decide::Outcome;
use super::permit::{Back, Permitted};
use super::queue::Stage;
use super::record::FailureReason;
use std::cmp::Reverse;

/// How the group's cycle went.
#[derive(Default)]
struct Progress {
    placed: Vec<PodId>,
    /// Pods that found no node, or that Permit rejected.
    left: Vec<(PodId, Left)>,
    /// Whether Permit let a pod through: enough of them have a place.
    reached: bool,
    error: bool,
}

enum Left {
    Outcome(Outcome),
    Back(Back),
}

impl Left {
    /// Whether the pod waits for victims to go.
    fn preempts(&self) -> bool {
        matches!(self, Self::Outcome(Outcome::Rejected { candidate: Some(_), .. }))
    }
}

/// Why a group as a whole is not placed.
enum Unplaced {
    /// It has no placement.
    Rejected(String),
    /// A plugin failed.
    Error(String),
}

impl Scheduler {
    /// The pods to schedule together with this one, which was taken from the queue; `None`: it goes alone.
    pub(super) fn take_group(&mut self, id: PodId) -> Option<Vec<PodId>> {
        let profile = self.queue.get(id)?.profile as usize;
        if !self.runners.get(profile)?.schedules_pod_groups {
            return None;
        }
        let group = self.cluster.group_of(id)?;
        group.object.as_ref()?;
        let ready = |p: &PodId| {
            self.cluster.pods[*p].node.is_none()
                && self
                    .queue
                    .get(*p)
                    .is_some_and(|q| *p == id || !matches!(q.stage, Stage::Gated(_) | Stage::InFlight))
        };
        let mut pods: Vec<PodId> = group.pods.iter().copied().filter(ready).collect();
        // Extenders answer later: their pods go one by one, and wait for each other at Permit.
        if pods.iter().any(|p| self.is_extended(*p)) {
            return None;
        }
        pods.sort_unstable_by_key(|p| (Reverse(self.cluster.priority(*p)), self.queue.arrival(*p)));
        for pod in pods.iter().filter(|p| **p != id) {
            self.queue.take(*pod);
        }
        Some(pods)
    }

    /// Whether a pod belongs to a group, where that matters to its profile.
    pub(super) fn is_in_group(&self, id: PodId) -> bool {
        self.cluster.pods[id].extra.as_ref().is_some_and(|e| !e.group.is_empty())
            && self
                .queue
                .get(id)
                .and_then(|q| self.runners.get(q.profile as usize))
                .is_some_and(|r| r.schedules_pod_groups)
    }

    /// One cycle for all pods of a group.
    pub(super) fn schedule_group(&mut self, pods: &[PodId]) {
        if let Some(text) = self.several_schedulers(pods) {
            return self.group_failed(pods, FailureReason::SchedulerError, &text);
        }
        self.waiting.in_group_cycle = true;
        let progress = self.place_group(pods);
        self.waiting.in_group_cycle = false;
        match progress {
            Ok(progress) if progress.reached && !progress.error => self.bind_group(progress),
            Ok(progress) => self.give_group_back(progress),
            Err(Unplaced::Rejected(text)) => self.group_failed(pods, FailureReason::Unschedulable, &text),
            Err(Unplaced::Error(text)) => self.group_failed(pods, FailureReason::SchedulerError, &text),
        }
        self.group_cycle.clear();
    }

    fn group_failed(&mut self, pods: &[PodId], reason: FailureReason, text: &str) {
        for id in pods {
            self.failed(*id, reason, text, None);
        }
    }

    fn several_schedulers(&self, pods: &[PodId]) -> Option<String> {
        let name = |p: &PodId| self.cluster.strings.text(self.cluster.shape(*p).spec.scheduler);
        let mut names: Vec<&str> = pods.iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        (names.len() > 1).then(|| {
            let names = names.join(", ");
            format!(
                "all pods in a single pod group should have the same .spec.schedulerName set, got: {names}"
            )
        })
    }

    /// Places the pods one after another, on these nodes only (ascending; `None`: on all).
    fn place_pods(&mut self, pods: &[PodId], within: Option<&[NodeId]>) -> Progress {
        let mut progress = Progress::default();
        for id in pods.iter().copied() {
            if progress.error {
                let text = "pod group is unschedulable".to_owned();
                progress.left.push((id, Left::Back(Back::Error(text))));
                continue;
            }
            let outcome = match within {
                None => self.consume_reservation(id).or_else(|| self.find(id)),
                Some(nodes) => self.find_within(id, nodes),
            };
            match outcome {
                None => {}
                Some(Outcome::Placed(node, state)) => {
                    self.group_cycle.insert(id);
                    match self.reserve_and_permit(id, node, state) {
                        Ok(permitted) => {
                            progress.reached |= permitted == Permitted::Allowed;
                            progress.placed.push(id);
                        }
                        Err(back) => {
                            progress.error |= matches!(back, Back::Error(_));
                            self.give_back(id);
                            progress.left.push((id, Left::Back(back)));
                        }
                    }
                }
                Some(outcome) => {
                    progress.error |= matches!(outcome, Outcome::Error(_));
                    progress.left.push((id, Left::Outcome(outcome)));
                }
            }
        }
        progress
    }

    /// Each pod that has a place goes on by itself.
    fn bind_group(&mut self, progress: Progress) {
        for id in progress.placed {
            // Another plugin than the group's plugin may still hold it.
            if self.reservations.is_assumed(id) && !self.waiting.contains(id) {
                self.nominate(id, None);
                self.in_flight_events.remove(&id);
                self.pre_bind(id);
            } else if self.waiting.contains(id) {
                self.expect_binding(id);
            }
        }
        for (id, left) in progress.left {
            self.leave_behind(id, left);
        }
    }

    /// The group as a whole is unschedulable: forgets its pods.
    fn give_group_back(&mut self, progress: Progress) {
        for id in progress.placed.iter().rev() {
            self.give_back(*id);
        }
        let text = if progress.left.iter().any(|(_, left)| left.preempts()) {
            "pod group is waiting for preemption to complete"
        } else {
            "pod group is unschedulable"
        };
        for (id, left) in progress.left {
            self.leave_behind(id, left);
        }
        for id in progress.placed {
            if self.queue.get(id).is_some_and(|q| q.stage == Stage::InFlight) {
                self.failed(id, FailureReason::Unschedulable, text, None);
            }
        }
    }

    fn leave_behind(&mut self, id: PodId, left: Left) {
        match left {
            Left::Outcome(outcome) => self.conclude(id, outcome),
            Left::Back(back) => self.report_back(id, back, None),
        }
    }

    /// Unreserve and Forget for a pod of the group.
    fn give_back(&mut self, id: PodId) {
        self.waiting.forget(id);
        let assumed = self.reservations.end_assumed(id);
        self.unreserve(id, assumed.as_ref());
        self.release_work(id);
        self.cluster.unplace(id);
        self.in_flight_events.remove(&id);
    }
}

#[cfg(test)]
mod tests;
