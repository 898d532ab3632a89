//! Events from outside → ground state, derived state and the queue.

use super::Action;
use super::cluster::amounts;
use super::cluster::{Extra, OwnerKind, Pod, PodId};
use super::events::{
    ActionType, ClusterEvent, EventResource, Payload, PodSnapshot, node_actions, pod_actions,
};
use super::framework::PluginId;
use super::metrics::Unmetered;
use super::queue::{MoveCause, Stage};
use super::record::FailureReason;
use super::{Event, Scheduler};
use plimsoll_state::ObjectEvent;
use plimsoll_state::cast::index32;
use plimsoll_state::model;
use plimsoll_state::time::Time;
use std::sync::Arc;

impl Scheduler {
    /// Handles a change of an object: updates ground and derived state and the queue. Decides nothing.
    pub fn handle_object(&mut self, now: Time, event: &ObjectEvent) {
        self.set_now(now);
        match event {
            ObjectEvent::NodeUpsert(node) => self.node_upsert(node),
            ObjectEvent::NodeDelete(name) => self.node_delete(name),
            ObjectEvent::PodUpsert(pod) => self.pod_upsert(pod),
            ObjectEvent::PodDelete(uid) => self.pod_delete(uid),
            ObjectEvent::ObjectUpsert(object) => self.object_upsert(object),
            ObjectEvent::ObjectDelete(key) => self.object_delete(key),
            ObjectEvent::ClaimWritten(claim) => self.claim_written(claim),
        }
        self.settle_victims();
    }

    /// Handles the answer to an action. Decides nothing.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.set_now(now);
        match event {
            Event::Prepared(uid) => self.prepared(&uid),
            Event::Bound(uid) => self.bound(&uid),
            Event::Extended { uid, extender, call, answer } => self.extended(uid, extender, call, answer),
            Event::BindFailed { uid, message } => self.bind_failed(&uid, &message),
            Event::Answered { action, answer } => self.answered(*action, &answer),
            Event::Reload(profiles) => self.reload(profiles),
        }
        self.settle_victims();
    }

    /// Whether a pod waits for events, or is in a cycle whose failure replays them.
    pub(super) fn is_watched(&self) -> bool {
        self.queue.has_waiters() || !self.in_flight_events.is_empty()
    }

    fn node_upsert(&mut self, node: &model::Node) {
        let (id, old, annotated) = self.cluster.upsert_node(node);
        let info = &self.cluster.nodes[id].info;
        if old.as_ref().is_none_or(|o| !node_actions(o, info, annotated).is_empty()) {
            self.node_freed();
        }
        self.release_overcommitted(id);
        if !self.is_watched() {
            return;
        }
        let new = Arc::clone(&self.cluster.nodes[id].info);
        let name = self.cluster.nodes[id].name;
        let actions = match &old {
            None => vec![ActionType::ADD],
            Some(old) => node_actions(old, &new, annotated),
        };
        for actions in actions {
            let payload = Payload::Node { name, old: old.clone(), new: Some(Arc::clone(&new)) };
            self.changed(&ClusterEvent { resource: EventResource::Node, actions, payload });
        }
    }

    fn node_delete(&mut self, name: &str) {
        let Some((id, old)) = self.cluster.remove_node(name) else { return };
        // An empty domain is gone, which may allow more elsewhere (PodTopologySpread).
        self.node_freed();
        self.release_overcommitted(id);
        let Some(name) = self.cluster.strings.get(name) else { return };
        let payload = Payload::Node { name, old: Some(old), new: None };
        self.changed(&ClusterEvent { resource: EventResource::Node, actions: ActionType::DELETE, payload });
    }

    fn extra(&mut self, pod: &model::Pod) -> Option<Box<Extra>> {
        let status = &pod.status;
        let has_status = status.actuated.is_some() || status.containers.iter().any(|c| c.actuated.is_some());
        let usage = has_status.then(|| amounts::usage(&pod.spec, Some(status), &mut self.cluster.strings));
        let extra = Extra {
            usage,
            gates: pod.spec.scheduling_gates.iter().map(|g| g.as_str().into()).collect(),
            preempted: status
                .conditions
                .iter()
                .any(|c| c.kind == "DisruptionTarget" && c.is_true && c.reason == "PreemptionByScheduler"),
            claim_statuses: status
                .claim_statuses
                .iter()
                .map(|(n, c)| (n.as_str().into(), c.as_deref().map(Into::into)))
                .collect(),
            nominated: status.nominated_node_name.as_str().into(),
            group: pod.group.as_str().into(),
        };
        (extra != Extra::default()).then(|| Box::new(extra))
    }

    fn pod_upsert(&mut self, pod: &model::Pod) {
        if pod.status.phase.is_terminal() {
            self.pod_delete(&pod.uid);
            return;
        }
        match self.cluster.pod_by_uid(&pod.uid) {
            None => self.pod_added(pod),
            Some(id) => self.pod_updated(id, pod),
        }
    }

    fn pod_added(&mut self, pod: &model::Pod) {
        let shape = self.cluster.shapes.acquire(pod, &mut self.cluster.strings);
        let extra = self.extra(pod);
        let owner = pod.owners.iter().find(|o| o.controller).and_then(|o| {
            Some((OwnerKind::of(&o.api_version, &o.kind)?, self.cluster.strings.intern(&o.name)))
        });
        let mut row = Pod::new(&pod.uid, &pod.name, shape);
        row.deleting = pod.deleting;
        row.queued = !pod.workload.is_empty();
        row.start_time = pod.status.start_time;
        row.unscheduled = is_unscheduled(pod);
        row.generation = pod.generation;
        row.owner = owner;
        row.extra = extra;
        let id = self.cluster.insert_pod(row);
        self.cluster.sources.set_pod(id, pod);
        if !pod.spec.node_name.is_empty() {
            let node = self.cluster.node_row(&pod.spec.node_name);
            self.cluster.join_group(id);
            self.cluster.place(id, node);
            self.pods_came = true;
            self.note_reserved_pod(id, pod, None);
            self.release_overcommitted(node);
            self.pod_changed(id, EventResource::AssignedPod, ActionType::ADD, None);
            return;
        }
        self.note_reserved_pod(id, pod, None);
        let Some(profile) = self.profile_of(id) else { return };
        self.queue.insert(id, pod.spec.priority, index32(profile), self.now);
        self.cluster.join_group(id);
        self.admit(id);
        self.queue.came(id, MoveCause::Event(EventResource::UnschedulablePod, ActionType::ADD));
        if !pod.status.nominated_node_name.is_empty() && !self.is_gated(id) {
            self.nominate_as_seen(id, &pod.status.nominated_node_name);
        }
        if !pod.group.is_empty() {
            // Others of its group may have waited for it.
            self.pod_changed(id, EventResource::UnschedulablePod, ActionType::ADD, None);
        }
    }

    /// Whether PreEnqueue keeps the pod out.
    fn is_gated(&self, id: PodId) -> bool {
        self.queue.get(id).is_some_and(|q| matches!(q.stage, Stage::Gated(_)))
    }

    /// Follows `status.nominatedNodeName` of a waiting pod. Pods of other schedulers keep no capacity, nor do pods
    /// that arrive gated, until their next update: upstream's nominator hears of pods that enter the active
    /// queue.
    fn nominate_as_seen(&mut self, id: PodId, name: &str) {
        let counts = !name.is_empty() && self.profile_of(id).is_some();
        let node = counts.then(|| self.cluster.node_row(name));
        self.nominate(id, node);
    }

    /// Runs PreEnqueue and puts the pod into the active queue, or keeps it out.
    pub(super) fn admit(&mut self, id: PodId) {
        self.admit_to(id, Stage::Active);
    }

    pub(super) fn admit_to(&mut self, id: PodId, stage: Stage) {
        let Some(queued) = self.queue.get(id) else { return };
        let profile = queued.profile as usize;
        let gate = self.runners.get(profile).and_then(|r| match self.pre_enqueue_meter(profile) {
            None => r.pre_enqueue(&Unmetered, &self.cluster, id),
            Some(meter) => r.pre_enqueue(&meter, &self.cluster, id),
        });
        let gate = gate.and_then(|status| status.plugin);
        self.queue.enter(id, gate.map_or(stage, Stage::Gated));
        if gate.is_some() && self.cluster.is_held_for_preemption(id) {
            // Whatever changes, PreEnqueue keeps it out.
            self.queue.sleep(id);
        }
    }

    fn pod_updated(&mut self, id: PodId, pod: &model::Pod) {
        let watched = self.is_watched();
        let old = watched.then(|| Box::new(PodSnapshot::new(&self.cluster, id)));
        let was_gated = self.cluster.pods[id].extra.as_ref().is_some_and(|e| !e.gates.is_empty());
        let old_nomination =
            self.cluster.pods[id].extra.as_ref().map_or_else(Box::default, |e| e.nominated.clone());
        let shape = self.cluster.shapes.acquire(pod, &mut self.cluster.strings);
        let group = self.cluster.pods[id].extra.as_ref().map_or_else(Box::default, |e| e.group.clone());
        let mut extra = self.extra(pod);
        if !group.is_empty() || extra.as_ref().is_some_and(|e| !e.group.is_empty()) {
            // The field can't be changed.
            extra.get_or_insert_default().group = group;
        }
        self.cluster.reshape(id, shape, extra);
        self.cluster.sources.set_pod(id, pod);
        let leaves = pod.deleting && !self.cluster.pods[id].deleting;
        self.cluster.set_deleting(id, pod.deleting);
        self.cluster.set_queued(id, !pod.workload.is_empty());
        self.cluster.set_start_time(id, pod.status.start_time);
        self.cluster.pods[id].unscheduled = is_unscheduled(pod);
        self.cluster.pods[id].generation = pod.generation;
        if !pod.spec.node_name.is_empty() {
            let before = self.cluster.pods[id].node;
            self.pod_assigned(id, &pod.spec.node_name, old);
            self.note_reserved_pod(id, pod, before);
            if let Some(node) = self.cluster.pods[id].node {
                self.release_overcommitted(node);
            }
            return;
        }
        if self.cluster.pods[id].node.is_some() {
            // Other updates of an assumed pod are no events, as upstream (`updatePodInSchedulingQueue` in `eventhandlers.go`).
            if leaves {
                self.end_waits_of_leaving(id);
            }
            return;
        }
        self.note_reserved_pod(id, pod, None);
        let nomination = pod.status.nominated_node_name.as_str();
        let arrived_gated = self.is_gated(id) && self.cluster.pods[id].nominated.is_none();
        if !(nomination.is_empty() && old_nomination.is_empty())
            && (nomination != &*old_nomination || arrived_gated)
        {
            self.nominate_as_seen(id, nomination);
            if !old_nomination.is_empty() && !arrived_gated {
                self.nomination_ended(id, old.as_deref());
            }
        }
        if self.queue.get(id).is_none() {
            return;
        }
        self.queue.set_priority(id, pod.spec.priority);
        let gates_gone = was_gated && pod.spec.scheduling_gates.is_empty();
        self.own_update(id, old, gates_gone);
    }

    /// A pod is nominated elsewhere or nowhere: its capacity is free for pods that did not go before it.
    fn nomination_ended(&mut self, id: PodId, old: Option<&PodSnapshot>) {
        let Some(old) = old else { return };
        let priority = old.shape.spec.priority;
        let view = Box::new(PodSnapshot { nominated: true, ..old.clone() });
        let payload = Payload::Pod { id, old: Some(view), new: None };
        let change =
            ClusterEvent { resource: EventResource::AssignedPod, actions: ActionType::DELETE, payload };
        self.changed_for(&change, |p, other| p.cluster.priority(other) <= priority);
    }

    /// A waiting pod was updated: it may be schedulable now.
    fn own_update(&mut self, id: PodId, old: Option<Box<PodSnapshot>>, gates_gone: bool) {
        let unschedulable = |q: &super::queue::Queue| {
            q.get(id).is_some_and(|r| matches!(r.stage, Stage::Unschedulable | Stage::Gated(_)))
        };
        let in_cycle = self.in_flight_events.contains_key(&id);
        if !unschedulable(&self.queue) && !in_cycle {
            return;
        }
        let Some(old) = old else { return };
        let new = Box::new(PodSnapshot::new(&self.cluster, id));
        for actions in pod_actions(&old, &new, gates_gone) {
            let payload = Payload::Pod { id, old: Some(old.clone()), new: Some(new.clone()) };
            let change = ClusterEvent { resource: EventResource::UnschedulablePod, actions, payload };
            if in_cycle {
                // It counts when the pod comes back from its cycle.
                if let Some(in_flight) = self.in_flight_events.get_mut(&id) {
                    in_flight.push(&change);
                }
                continue;
            }
            self.reconsider(id, &change);
            if !unschedulable(&self.queue) {
                self.queue.came(id, MoveCause::Event(change.resource, change.actions));
                return;
            }
        }
    }

    /// An update shows the pod on a node.
    fn pod_assigned(&mut self, id: PodId, node_name: &str, old: Option<Box<PodSnapshot>>) {
        let node = self.cluster.node_row(node_name);
        let before = self.cluster.pods[id].node;
        let was_waiting = self.queue.get(id).is_some();
        let confirmed = self.reservations.is_assumed(id);
        self.forget_waiting(id, false);
        self.leave_pre_bind(id);
        let row = self.queue.remove(id);
        self.counters.bound(confirmed && before == Some(node) && row.is_some_and(|row| row.flushed));
        self.forget_extended(id);
        self.cluster.join_group(id);
        // Placed first: a row that only this nomination keeps would go.
        self.cluster.place(id, node);
        self.nominate(id, None);
        self.pods_came |= before != Some(node) || confirmed;
        if let Some(left) = before.filter(|before| *before != node) {
            self.capacity_freed(Some(left));
            if let Some(assumed) = self.reservations.end_assumed(id) {
                self.reservations.assume(id, node, assumed, self.now);
            }
        }
        match old {
            Some(old) if before == Some(node) && !was_waiting && !confirmed => {
                let new = Box::new(PodSnapshot::new(&self.cluster, id));
                for actions in pod_actions(&old, &new, false) {
                    let payload = Payload::Pod { id, old: Some(old.clone()), new: Some(new.clone()) };
                    self.changed(&ClusterEvent { resource: EventResource::AssignedPod, actions, payload });
                }
            }
            _ => self.pod_changed(id, EventResource::AssignedPod, ActionType::ADD, None),
        }
    }

    pub(super) fn pod_changed(
        &mut self,
        id: PodId,
        resource: EventResource,
        actions: ActionType,
        old: Option<Box<PodSnapshot>>,
    ) {
        if !self.is_watched() {
            return;
        }
        let new = Some(Box::new(PodSnapshot::new(&self.cluster, id)));
        self.changed(&ClusterEvent { resource, actions, payload: Payload::Pod { id, old, new } });
    }

    pub(super) fn pod_delete(&mut self, uid: &str) {
        let Some(id) = self.cluster.pod_by_uid(uid) else { return };
        if let Some(node) = self.cluster.pods[id].node {
            self.capacity_freed(Some(node));
            if !self.cluster.pods[id].queued {
                self.whole_version += 1;
            }
        }
        let view = self.is_watched().then(|| Box::new(PodSnapshot::new(&self.cluster, id)));
        self.forget_waiting(id, true);
        self.queue.remove(id);
        self.forget_extended(id);
        self.reservations.forget_pod(id);
        self.leave_work(id);
        self.cluster.remove_pod(id);
        let Some(view) = view.filter(|v| v.node.is_some() || v.nominated) else { return };
        let (placed, priority) = (view.node.is_some(), view.shape.spec.priority);
        let payload = Payload::Pod { id, old: Some(view), new: None };
        let change =
            ClusterEvent { resource: EventResource::AssignedPod, actions: ActionType::DELETE, payload };
        // A nominated pod kept its capacity from pods that do not go before it only (`getLEPriorityPreCheck`).
        self.changed_for(&change, |p, other| placed || p.cluster.priority(other) <= priority);
    }

    pub(super) fn bind_failed(&mut self, uid: &str, message: &str) {
        self.left_work_answered(uid, false);
        self.unbind(uid, message, true);
    }

    /// Forgets an assumed pod whose binding failed; `named`: the failing plugin is to be added to the message.
    pub(super) fn unbind(&mut self, uid: &str, message: &str, named: bool) {
        let Some(id) = self.cluster.pod_by_uid(uid) else { return };
        if self.waiting.contains(id) {
            // The answer to an earlier attempt.
            return;
        }
        let Some(mut assumed) = self.reservations.end_assumed(id) else { return };
        if self.queue.get(id).is_none() {
            // Bound by another scheduler in the meantime, or gone: there is nothing to undo.
            return;
        }
        let view = self.is_watched().then(|| Box::new(PodSnapshot::new(&self.cluster, id)));
        self.unreserve(id, Some(&assumed));
        let claims = assumed.take_claims();
        if !claims.is_empty() {
            let pod = self.pod_ref(id);
            self.outbox.push(Action::ReleaseClaims { pod, claims, deallocate: false });
        }
        let node = self.cluster.pods[id].node;
        self.cluster.unplace(id);
        self.capacity_freed(node);
        if let Some(view) = view {
            let payload = Payload::Pod { id, old: Some(view), new: None };
            self.changed(&ClusterEvent {
                resource: EventResource::AssignedPod,
                actions: ActionType::DELETE,
                payload,
            });
        }
        let (pre_bind, names) = (self.release_work(id), self.runners.first().map(|r| &r.names));
        let name = |plugin: PluginId| names.map_or("", |n| n.of(plugin));
        let text = match (pre_bind, assumed.binder()) {
            _ if !named => message.to_owned(),
            (Some(plugin), _) => format!("running PreBind plugin {:?}: {message}", name(plugin)),
            (None, Some(plugin)) => format!("running Bind plugin {:?}: {message}", name(plugin)),
            (None, None) => message.to_owned(),
        };
        let nominated = self.clear_nomination(id);
        self.failed(id, FailureReason::SchedulerError, &text, nominated);
    }
}

fn is_unscheduled(pod: &model::Pod) -> bool {
    pod.status.conditions.iter().any(|c| c.kind == "PodScheduled" && !c.is_true)
}
