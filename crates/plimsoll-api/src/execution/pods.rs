//! Actions on pods: Bind, Unschedulable, Nominate, Preempt, FailPod.

use plimsoll_engine::{Action, Event};
use plimsoll_queueing::Action as QueueAction;
use plimsoll_scheduler::{Action as SchedulerAction, Event as SchedulerEvent, PodEvent, PodRef};
use plimsoll_state::{Answer, Time};
use serde_json::{Value, json};

use super::{
    BACKOFF, CONFLICTS, Outcome, Response, Step, answered, is_doubtful, not_written, retry, retry_known,
    retry_write,
};
use crate::event::{EventRecord, ObjectReference};
use crate::request::{Error, PatchKind, Request};
use crate::resource::PODS;
use crate::{json, timestamp};

/// Reporting controller of the scheduler's Events (kube-scheduler's).
const SCHEDULER: &str = "default-scheduler";
/// Reporting controller of Events on pods that are terminated with their node, and on workloads that lose a second node (the
/// recorder that Kueue gives its node controller).
pub(super) const NODE_CONTROLLER: &str = "tas-resource-flavor-controller";
/// Message of the condition `TerminatedByKueue`.
const TERMINATED: &str = "Pod terminated by Kueue NodeController due to node taint";

fn patch_status(pod: &PodRef, kind: PatchKind, status: &Value) -> Request {
    let body = json!({"metadata": {"uid": pod.uid}, "status": status});
    Request::patch(PODS, &pod.namespace, &pod.name, "status", kind, body)
}

/// POST of `pods/binding`. After a failure, an attempt before whose response was lost may have bound the pod: it is read before
/// its node is given to another pod.
pub(super) fn bind(pod: PodRef, node: String) -> Step {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
    let binding =
        Request::CreateSubresource { resource: PODS, namespace, name, subresource: "binding", body };
    retry_write(binding, move |response, lost| match response {
        Ok(_) => bound(pod.uid),
        // A conflict may be the work of a process before this one; a 404 may come from a proxy.
        Err(e) if lost || e.is_conflict() || e.is_not_found() => {
            whether_bound(pod.clone(), node, lost, move |is_bound| {
                if is_bound { bound(pod.uid) } else { bind_failed(pod.uid, e.to_string()) }
            })
        }
        Err(e) => bind_failed(pod.uid, e.to_string()),
    })
}

/// Reads the pod until it is known whether it is on this node. `perhaps`: an attempt of ours may have bound it, so that one 404,
/// which may come from a proxy, says nothing.
pub(super) fn whether_bound(
    pod: PodRef,
    node: String,
    perhaps: bool,
    then: impl FnOnce(bool) -> Step + Send + 'static,
) -> Step {
    let read = Request::get(PODS, &pod.namespace, &pod.name);
    let next = move |current: Response| match current {
        Ok(found) => then(is_bound(&found, &pod, &node)),
        Err(e) if e.is_not_found() => then(false),
        Err(_) => Step::Wait(BACKOFF.1, Box::new(move || whether_bound(pod, node, perhaps, then))),
    };
    if perhaps { retry_known(read, next) } else { retry(read, next) }
}

/// Whether this is the pod, and it is on this node.
fn is_bound(found: &Value, pod: &PodRef, node: &str) -> bool {
    json::uid(found) == pod.uid && json::text(found, &["spec", "nodeName"]) == node
}

fn bound(uid: String) -> Step {
    Outcome::answer(Event::Scheduler(SchedulerEvent::Bound(uid)))
}

pub(super) fn bind_failed(uid: String, message: String) -> Step {
    Outcome::answer(Event::Scheduler(SchedulerEvent::BindFailed { uid, message }))
}

/// Begins the actions that have [`SchedulerEvent::Answered`] as their answer.
pub(super) fn begin(action: SchedulerAction, now: Time) -> Step {
    let since = timestamp::text(now);
    match &action {
        SchedulerAction::Unschedulable { pod, reason, message, nominated_node, again, generation } => {
            let mut condition = json!({
                "type": "PodScheduled", "status": "False", "reason": reason.as_str(), "message": message,
                "lastProbeTime": null,
            });
            if !*again {
                condition["lastTransitionTime"] = json!(since);
            }
            let mut status = json!({"conditions": [observed(condition, *generation)]});
            if let Some(node) = nominated_node {
                status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { json!(node) };
            }
            let request = patch_status(pod, PatchKind::Strategic, &status);
            let pod = pod.clone();
            retry(request, move |response| end(action, &pod, response, Outcome::default()))
        }
        SchedulerAction::Nominate { pod, node } => {
            let node = if node.is_empty() { Value::Null } else { json!(node) };
            let request = patch_status(pod, PatchKind::Merge, &json!({"nominatedNodeName": node}));
            let pod = pod.clone();
            retry(request, move |response| end(action, &pod, response, Outcome::default()))
        }
        SchedulerAction::Preempt { victim, message, event, generation, .. } => {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": message, "lastProbeTime": null, "lastTransitionTime": since,
            });
            let status = json!({"conditions": [observed(condition, *generation)]});
            let delete = Request::delete(PODS, &victim.namespace, &victim.name, &victim.uid);
            let mark = patch_status(victim, PatchKind::Strategic, &status);
            let (victim, event) = (victim.clone(), pod_event(victim, event));
            // The deletion decides, whatever became of the condition.
            retry(mark, move |marked| {
                let failures = match marked {
                    Err(e) if !is_doubtful(&e) => {
                        vec![format!("setting the condition DisruptionTarget: {e}")]
                    }
                    Ok(_) | Err(_) => Vec::new(),
                };
                retry(delete, move |response| {
                    // No event is about a victim that is gone already (`PreemptPod` in `framework/preemption/executor.go`).
                    let events = response.is_ok().then_some(event).into_iter().collect();
                    end(action, &victim, response, Outcome { events, failures, ..Outcome::default() })
                })
            })
        }
        SchedulerAction::Bind { .. }
        | SchedulerAction::Prepare { .. }
        | SchedulerAction::ReleaseClaims { .. }
        | SchedulerAction::Extend { .. }
        | SchedulerAction::Record { .. } => Step::Done(Box::default()),
    }
}

/// A condition of a pod of this generation (`CalculatePodConditionObservedGeneration` in `pkg/api/v1/pod/util.go`).
fn observed(mut condition: Value, generation: i64) -> Value {
    if generation > 0 {
        condition["observedGeneration"] = json!(generation);
    }
    condition
}

/// Answers the action; `outcome`: what else has come of it.
fn end(action: SchedulerAction, pod: &PodRef, response: Response, outcome: Outcome) -> Step {
    let done = move |answer| {
        let answers = vec![answered(Action::Scheduler(action), answer)];
        Step::Done(Box::new(Outcome { answers, ..outcome }))
    };
    match response {
        Ok(_) => done(Answer::Done),
        Err(e) => not_written(&e, (PODS, &pod.namespace, &pod.name), pod.uid.clone(), done),
    }
}

/// Terminates a pod that waits for a node on which it can never start (Kueue's node controller,
/// `pkg/controller/tas/node_controller.go`), unless it has a node after all or has ended when this gets its turn.
pub(super) fn fail(namespace: String, name: String, uid: String, now: Time) -> Step {
    fail_if_it_waits(PodRef { uid, namespace, name }, now, CONFLICTS)
}

fn fail_if_it_waits(pod: PodRef, now: Time, left: u32) -> Step {
    if left == 0 {
        return failed_pod(&pod, Answer::Failed("the pod keeps changing".into()));
    }
    retry(Request::get(PODS, &pod.namespace, &pod.name), move |response| match response {
        Ok(found) if json::uid(&found) == pod.uid && waits(&found) => {
            let request = fail_request(&pod, json::version(&found), now);
            retry(request, move |response| match response {
                Ok(_) => failed_pod(&pod, Answer::Done),
                Err(e) if e.is_conflict() => fail_if_it_waits(pod, now, left - 1),
                Err(e) => not_failed(pod, &e),
            })
        }
        Ok(_) => failed_pod(&pod, Answer::Superseded),
        Err(e) => not_failed(pod, &e),
    })
}

fn not_failed(pod: PodRef, error: &Error) -> Step {
    let PodRef { uid, namespace, name } = pod.clone();
    not_written(error, (PODS, &namespace, &name), uid, move |answer| failed_pod(&pod, answer))
}

fn waits(pod: &Value) -> bool {
    json::text(pod, &["spec", "nodeName"]).is_empty()
        && matches!(json::text(pod, &["status", "phase"]), "" | "Pending")
}

fn fail_request(pod: &PodRef, version: &str, now: Time) -> Request {
    let status = json!({"phase": "Failed", "conditions": [{
        "type": "TerminatedByKueue", "status": "True", "reason": "UnschedulableOnAssignedNode",
        "message": TERMINATED, "lastTransitionTime": timestamp::text(now),
    }]});
    let body = json!({"metadata": {"uid": pod.uid, "resourceVersion": version}, "status": status});
    Request::patch(PODS, &pod.namespace, &pod.name, "status", PatchKind::Strategic, body)
}

fn failed_pod(pod: &PodRef, answer: Answer) -> Step {
    let event = PodEvent {
        warning: false,
        reason: "PodTerminatedByKueue",
        action: "PodTerminated",
        message: TERMINATED.into(),
    };
    let event = EventRecord { reporting_controller: NODE_CONTROLLER.into(), ..pod_event(pod, &event) };
    let PodRef { uid, namespace, name } = pod.clone();
    let action = Action::Queueing(QueueAction::FailPod { namespace, name, uid });
    Step::Done(Box::new(Outcome {
        events: matches!(answer, Answer::Done).then_some(event).into_iter().collect(),
        answers: vec![answered(action, answer)],
        ..Outcome::default()
    }))
}

/// An Event of the scheduler on a pod.
pub fn pod_event(pod: &PodRef, event: &PodEvent) -> EventRecord {
    EventRecord {
        regarding: ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            ..ObjectReference::default()
        },
        warning: event.warning,
        reason: event.reason.into(),
        action: event.action.into(),
        message: event.message.clone(),
        reporting_controller: SCHEDULER.into(),
        reporting_instance: String::new(),
    }
}
