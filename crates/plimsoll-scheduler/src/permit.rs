//! Between choosing a node and binding: Reserve, Permit and the pods that wait there (spec section 2.2, points 9 to 12).
//! A pod that waits stays counted on its node; the cycle has ended and others go on.

use super::Scheduler;
use super::cluster::{NodeId, PodId};
use super::events::{Actions, Change, Payload, PodView, Resource};
use super::framework::{PluginId, Released, Status};
use super::message::Fit;
use super::queue::Stage;

/// What became of a pod at Permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It may be bound.
    Open,
    /// It waits.
    Waits,
    /// It was taken back and its failure has been dealt with.
    Closed,
}

/// Why an assumed pod is taken back.
pub(super) enum Back {
    /// A plugin rejected it.
    Rejected(Status),
    /// Something failed.
    Error(String),
}

impl Scheduler {
    /// Runs Reserve and Permit for a pod that is counted on its node.
    pub(super) fn guard(&mut self, id: PodId, node: NodeId) -> Passage {
        match self.ask_guards(id, node) {
            Ok(passage) => passage,
            Err(back) => {
                self.take_back(id, back, false);
                Passage::Closed
            }
        }
    }

    /// As [`Placement::guard`], without taking the pod back.
    pub(super) fn ask_guards(&mut self, id: PodId, node: NodeId) -> Result<Passage, Back> {
        let profile = self.queue.get(id).map_or(0, |q| q.profile) as usize;
        let Some(runner) = self.runners.get(profile).filter(|r| r.guards()) else {
            return Ok(Passage::Open);
        };
        let back = |status: Status, point: &str, cluster: &super::Cluster| {
            if status.code.is_rejected() {
                return Back::Rejected(status);
            }
            Back::Error(super::decide::error_text(cluster, &status, point))
        };
        if let Some(status) = runner.reserve(&self.cluster, id, node) {
            return Err(back(status, "Reserve", &self.cluster));
        }
        let said = runner.permit(&self.cluster, &mut self.waiting, id, node);
        let result = match said {
            Ok(holds) if holds.is_empty() => Ok(Passage::Open),
            Ok(holds) => {
                self.waiting.hold(id, self.now, &holds);
                // The pod is in flight until it is let through: what happens meanwhile counts when it comes back.
                self.missed.entry(id).or_default();
                Ok(Passage::Waits)
            }
            Err(status) => Err(back(status, "Permit", &self.cluster)),
        };
        self.follow_waiting();
        result
    }

    /// Carries out what plugins have said about pods that wait.
    pub(super) fn follow_waiting(&mut self) {
        loop {
            let (released, activated) = self.waiting.take();
            if released.is_empty() && activated.is_empty() {
                return;
            }
            for (id, how) in released {
                if !self.binding.contains_key(&id) {
                    continue;
                }
                match how {
                    Released::Allowed => self.let_through(id),
                    Released::Rejected(status) => self.take_back(id, Back::Rejected(status), true),
                    Released::Preempted => {
                        let text = "waiting on permit for pod: preempted".to_owned();
                        self.take_back(id, Back::Error(text), true);
                    }
                }
            }
            for id in activated {
                self.activate(id);
            }
        }
    }

    /// WaitOnPermit succeeded: the pod is no longer in flight for the queue, and is bound.
    fn let_through(&mut self, id: PodId) {
        self.missed.remove(&id);
        // The pods of a group's cycle are bound when it has succeeded.
        if !self.group_cycle.contains(&id) {
            self.pre_bind(id);
        }
    }

    /// Moves a pod that waits in the queue to the active queue, if PreEnqueue lets it (`Activate`).
    pub(super) fn activate(&mut self, id: PodId) {
        match self.queue.get(id).map(|q| q.stage) {
            None | Some(Stage::Active) => {}
            Some(Stage::InFlight) => {
                if let Some(missed) = self.missed.get_mut(&id) {
                    missed.anything();
                }
            }
            Some(_) => self.admit(id),
        }
    }

    /// Unreserve and Forget, then the failure of the attempt. `told`: others are told of the room, as upstream does
    /// from the binding cycle on.
    pub(super) fn take_back(&mut self, id: PodId, back: Back, told: bool) {
        self.binding.remove(&id);
        let view = (told && self.is_watched()).then(|| Box::new(PodView::new(&self.cluster, id)));
        self.unguard(id);
        self.unreserve(id);
        self.cluster.unplace(id);
        self.freed = true;
        let change = view.map(|view| Change {
            resource: Resource::AssignedPod,
            actions: Actions::DELETE,
            payload: Payload::Pod { id, old: Some(view), new: None },
        });
        self.report_back(id, back, change);
    }

    /// The failure of a pod that was taken back, and that others have room now.
    pub(super) fn report_back(&mut self, id: PodId, back: Back, change: Option<Change>) {
        let nominated = self.clear_nomination(id);
        match back {
            Back::Rejected(status) => {
                let plugin = status.plugin.unwrap_or(PluginId::Extender);
                if let Some(row) = self.queue.get_mut(id) {
                    row.rejectors = std::iter::once(plugin).collect();
                    row.pending.clear();
                }
                let mut fit = Fit { nodes: 1, ..Fit::default() };
                fit.count(&status, 1, &self.cluster.strings);
                self.failed(id, "Unschedulable", &fit.short(), nominated);
                // After the failure, and not for the pod itself: its own leaving helps it nothing.
                if let Some(change) = change {
                    self.changed_for(&change, |_, other| other != id);
                }
            }
            Back::Error(text) => {
                if let Some(change) = change {
                    self.changed(&change);
                }
                self.failed(id, "SchedulerError", &text, nominated);
            }
        }
    }

    /// Unreserve of the plugins.
    pub(super) fn unguard(&mut self, id: PodId) {
        if !self.guarded {
            return;
        }
        let profile = self.queue.get(id).map_or(0, |q| q.profile) as usize;
        let (Some(runner), Some(node)) = (self.runners.get(profile), self.cluster.pods[id].node) else {
            return;
        };
        runner.unreserve(&self.cluster, &mut self.waiting, id, node);
    }

    /// The pod is gone, or on a node without us: it waits no more. Unreserve is run while its row is still there.
    pub(super) fn forget_waiting(&mut self, id: PodId, gone: bool) {
        if !self.guarded || !self.binding.contains_key(&id) || !(gone || self.waiting.contains(id)) {
            return;
        }
        self.unguard(id);
        if self.waiting.forget(id) {
            self.binding.remove(&id);
        }
    }

    /// Ends the nomination of a pod; `Some("")` when the API still shows one.
    pub(super) fn clear_nomination(&mut self, id: PodId) -> Option<String> {
        let had = self.cluster.pods[id].nominated.is_some();
        self.cluster.nominate(id, None);
        let shown = self.cluster.pods[id].extra.as_ref().is_some_and(|e| !e.nominated.is_empty());
        (had || shown).then(String::new)
    }

    /// Ends waiting for what took too long.
    pub(super) fn end_waiting(&mut self) {
        if self.guarded {
            self.waiting.expire(self.now);
            self.follow_waiting();
        }
    }

    /// Compares the pods that wait with what is known of them elsewhere.
    ///
    /// # Panics
    /// When they differ.
    pub(super) fn check_waiting(&self) {
        self.waiting.check(|id| {
            assert!(self.binding.contains_key(&id), "a waiting pod is assumed");
            assert!(self.cluster.pods[id].node.is_some(), "a waiting pod is on a node");
            assert!(self.missed.contains_key(&id), "a waiting pod is in flight");
            let stage = self.queue.get(id).map(|q| q.stage);
            assert_eq!(stage, Some(Stage::InFlight), "a waiting pod is popped");
        });
    }
}

#[cfg(test)]
mod tests;
