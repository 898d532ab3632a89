//! Actions on workloads: the update of a status, deactivation, Events.

use std::sync::Arc;

use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{
    Action as QueueAction, Event as QueueEvent, KubernetesEvent, WorkloadKey, WorkloadUpdate,
};
use plimsoll_state::Answer;
use serde_json::{Value, json};

use super::{
    BACKOFF, CONFLICTS, Outcome, Response, Step, answered, not_written, retry, retry_known, retry_write,
};
use crate::event::{EventRecord, ObjectReference};
use crate::json;
use crate::request::{PatchKind, Request};
use crate::resource::WORKLOADS;

/// Reporting controller of queueing's Events (Kueue's scheduler).
const ADMISSION: &str = "kueue-admission";

/// Read, change, write until no other writer was faster.
pub(super) fn update(update: WorkloadUpdate, seen: Option<Arc<Value>>) -> Step {
    match seen {
        Some(object) => write(update, &object, CONFLICTS, false),
        None => read(update, CONFLICTS, false),
    }
}

/// `unsure`: an earlier attempt of the write may have been carried out.
fn read(update: WorkloadUpdate, left: u32, unsure: bool) -> Step {
    if left == 0 {
        return failed_or_unsure(update, unsure, "the workload keeps changing");
    }
    let request = Request::get(WORKLOADS, &update.key.namespace, &update.key.name);
    let then = move |response: Response| match response {
        Ok(object) => write(update, &object, left, unsure),
        // It is gone, and what it was given with it.
        Err(e) if e.is_not_found() => give_up(&update, &e.to_string()),
        Err(e) => failed_or_unsure(update, unsure, &e.to_string()),
    };
    if left < CONFLICTS || unsure { retry_known(request, then) } else { retry(request, then) }
}

fn write(update: WorkloadUpdate, object: &Value, left: u32, unsure: bool) -> Step {
    if json::uid(object) != update.uid {
        return give_up(&update, "the workload has been replaced by another of its name");
    }
    if crate::kueue::contradicts_admission(object, &update) {
        return give_up(&update, "the workload has been admitted by a write whose answer was lost");
    }
    if crate::kueue::admits_finished(object, &update) {
        return give_up(&update, "the workload has finished since its quota was decided");
    }
    if crate::kueue::admits_unready(object, &update) {
        return give_up(&update, "an admission check is no longer ready");
    }
    if crate::kueue::reserves_for_another_spec(object, &update) {
        return give_up(&update, "the workload asks for something else since its quota was decided");
    }
    let status = crate::kueue::workload_status_patch(object, &update);
    if unsure && status.as_object().into_iter().flatten().all(|(k, v)| object["status"][k] == *v) {
        return written(&update, object.clone());
    }
    // The admission is there, whatever becomes of the rest of the update.
    let admitted =
        unsure && update.admission.is_some() && status["admission"] == object["status"]["admission"];
    let mut body = json!({"metadata": {"resourceVersion": json::version(object), "uid": update.uid}});
    // In `json!` a value is serialized.
    body["status"] = status;
    let WorkloadKey { namespace, name } = &update.key;
    let request = Request::patch(WORKLOADS, namespace, name, "status", PatchKind::Merge, body);
    retry_write(request, move |response, lost| {
        let unsure = lost || admitted;
        match response {
            Ok(object) => written(&update, object),
            Err(e) if e.is_conflict() => read(update, left - 1, unsure),
            Err(e) => failed_or_unsure(update, unsure, &e.to_string()),
        }
    })
}

fn written(update: &WorkloadUpdate, object: Value) -> Step {
    let version = json::version(&object).parse().unwrap_or(0);
    let answer = QueueEvent::Written { key: update.key.clone(), id: update.id, version };
    Step::Done(Box::new(Outcome {
        answers: vec![Event::Queueing(answer)],
        events: workload_events(&update.key, &update.events, Some(&object)),
        workload: Some(object),
        failures: Vec::new(),
    }))
}

/// Gives up, or reads the workload until it is known whether the write was carried out.
fn failed_or_unsure(update: WorkloadUpdate, unsure: bool, why: &str) -> Step {
    if unsure {
        Step::Wait(BACKOFF.1, Box::new(move || read(update, CONFLICTS, true)))
    } else {
        give_up(&update, why)
    }
}

fn give_up(update: &WorkloadUpdate, why: &str) -> Step {
    Step::Done(Box::new(Outcome { answers: failed(update, why), ..Outcome::default() }))
}

/// One answer for each of the updates that were joined.
pub(super) fn failed(update: &WorkloadUpdate, why: &str) -> Vec<Event> {
    let failed = |id| QueueEvent::WriteFailed { key: update.key.clone(), id, message: why.to_owned() };
    update.ids().map(|id| Event::Queueing(failed(id))).collect()
}

/// Sets `spec.active` to false.
pub(super) fn deactivate(key: WorkloadKey, uid: String) -> Step {
    let body = json!({"metadata": {"uid": uid}, "spec": {"active": false}});
    let request = Request::patch(WORKLOADS, &key.namespace, &key.name, "", PatchKind::Merge, body);
    retry(request, move |response| {
        let action = QueueAction::DeactivateWorkload { key: key.clone(), uid: uid.clone() };
        let done = move |answer, workload| {
            let answers = vec![answered(Action::Queueing(action), answer)];
            Step::Done(Box::new(Outcome { answers, workload, ..Outcome::default() }))
        };
        match response {
            Ok(workload) => done(Answer::Done, Some(workload)),
            Err(e) => {
                let object = (WORKLOADS, &*key.namespace, &*key.name);
                not_written(&e, object, uid, move |answer| done(answer, None))
            }
        }
    })
}

/// Kueue's Events on a workload, and on the jobs that own it where they concern those. `object` is its last seen state.
pub fn workload_events(
    key: &WorkloadKey,
    events: &[KubernetesEvent],
    object: Option<&Value>,
) -> Vec<EventRecord> {
    let workload = ObjectReference {
        api_version: WORKLOADS.api_version.into(),
        kind: WORKLOADS.kind.into(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: object.map(|o| json::uid(o).to_owned()).unwrap_or_default(),
        resource_version: object.map(|o| json::version(o).to_owned()).unwrap_or_default(),
        field_path: String::new(),
    };
    let mut records = Vec::new();
    for event in events {
        let on = |regarding: ObjectReference| EventRecord {
            regarding,
            warning: event.warning,
            reason: event.reason.clone(),
            action: event.reason.clone(),
            message: event.message.clone(),
            reporting_controller: ADMISSION,
            reporting_instance: String::new(),
        };
        records.push(on(workload.clone()));
        let owners = object.filter(|_| event.concerns_job());
        for owner in owners.map_or(&[][..], |o| json::list(o, &["metadata", "ownerReferences"])) {
            let text = |key: &str| json::text(owner, &[key]).to_owned();
            records.push(on(ObjectReference {
                api_version: text("apiVersion"),
                kind: text("kind"),
                namespace: key.namespace.clone(),
                name: text("name"),
                uid: text("uid"),
                ..ObjectReference::default()
            }));
        }
    }
    records
}
