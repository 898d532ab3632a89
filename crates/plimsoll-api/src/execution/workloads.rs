//! Actions on workloads: the update of a status, deactivation, Events.

use std::sync::Arc;

use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{
    Action as QueueAction, Event as QueueEvent, KubernetesEvent, Reporter, WorkloadKey, WorkloadUpdate,
};
use plimsoll_state::Answer;
use serde_json::{Value, json};

use super::pods::NODE_CONTROLLER;
use super::{
    BACKOFF, CONFLICTS, Outcome, Response, Step, answered, not_written, retry, retry_known, retry_write,
};
use crate::event::{EventRecord, ObjectReference};
use crate::json;
use crate::request::{PatchKind, Request};
use crate::resource::WORKLOADS;

/// The names under which Kueue's controllers record Events (Kueue `pkg/constants/constants.go`).
const fn controller(reporter: Reporter) -> &'static str {
    match reporter {
        Reporter::Scheduler => "kueue-admission",
        Reporter::WorkloadController => "kueue-workload-controller",
        Reporter::NodeController => NODE_CONTROLLER,
    }
}

/// Read, change, write until no other writer was faster.
pub(super) fn update(update: WorkloadUpdate, seen: Option<Arc<Value>>) -> Step {
    match seen {
        Some(object) => write(update, &object, CONFLICTS, Doubt::default()),
        None => read(update, CONFLICTS, Doubt::default()),
    }
}

/// Whether the API server may have applied an earlier attempt of the write, or may still apply it. In doubt the update does not fail:
/// the engine would admit another workload with the same quota.
#[derive(Debug, Default)]
struct Doubt {
    /// `resourceVersion` in an attempt that got no response. The API server can apply it as long as the workload has that version.
    version: Option<String>,
    /// An earlier attempt has written the admission.
    admitted: bool,
}

impl Doubt {
    const fn is_none(&self) -> bool {
        self.version.is_none() && !self.admitted
    }
}

fn read(update: WorkloadUpdate, left: u32, doubt: Doubt) -> Step {
    if left == 0 {
        return failed_or_unsure(update, doubt, "the workload keeps changing");
    }
    let WorkloadKey { namespace, name } = &update.key;
    if !doubt.is_none() {
        // A 404 may come from a proxy.
        return retry_known(Request::find(WORKLOADS, namespace, name), move |response| match response {
            Ok(Value::Null) => give_up(&update, "the workload is gone"),
            Ok(object) => write(update, &object, left, doubt),
            Err(e) => failed_or_unsure(update, doubt, &e.to_string()),
        });
    }
    let request = Request::get(WORKLOADS, namespace, name);
    let then = move |response: Response| match response {
        Ok(object) => write(update, &object, left, doubt),
        Err(e) => give_up(&update, &e.to_string()),
    };
    if left < CONFLICTS { retry_known(request, then) } else { retry(request, then) }
}

/// Why the update does not fit the workload as it is.
fn overtaken(update: &WorkloadUpdate, object: &Value) -> Option<&'static str> {
    if json::uid(object) != update.uid {
        Some("the workload has been replaced by another of its name")
    } else if crate::kueue::contradicts_admission(object, update) {
        Some("the workload has been admitted by a write whose answer was lost")
    } else if crate::kueue::admits_finished(object, update) {
        Some("the workload has finished since its quota was decided")
    } else if crate::kueue::admits_unready(object, update) {
        Some("an admission check is no longer ready")
    } else if crate::kueue::reserves_for_another_spec(object, update) {
        Some("the workload asks for something else since its quota was decided")
    } else {
        None
    }
}

fn write(update: WorkloadUpdate, object: &Value, left: u32, doubt: Doubt) -> Step {
    if let Some(why) = overtaken(&update, object) {
        return give_up(&update, why);
    }
    let status = crate::kueue::workload_status_patch(object, &update);
    let unsure = !doubt.is_none();
    if unsure && status.as_object().into_iter().flatten().all(|(k, v)| object["status"][k] == *v) {
        return written(&update, object.clone());
    }
    let admitted =
        unsure && update.admission.is_some() && status["admission"] == object["status"]["admission"];
    let version = json::version(object).to_owned();
    // The API server may apply an earlier attempt with the same version after it has rejected this one. That is harmless unless the
    // attempt reserves quota.
    let open = crate::kueue::admits(&update) && doubt.version.is_some_and(|named| named == version);
    let mut body = json!({"metadata": {"resourceVersion": version, "uid": update.uid}});
    // In `json!` a value is serialized.
    body["status"] = status;
    let WorkloadKey { namespace, name } = &update.key;
    let request = Request::patch(WORKLOADS, namespace, name, "status", PatchKind::Merge, body);
    retry_write(request, move |response, lost| {
        let doubt = Doubt { version: (lost || open).then_some(version), admitted };
        match response {
            Ok(object) => written(&update, object),
            Err(e) if e.is_conflict() => read(update, left - 1, doubt),
            Err(e) => failed_or_unsure(update, doubt, &e.to_string()),
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
fn failed_or_unsure(update: WorkloadUpdate, doubt: Doubt, why: &str) -> Step {
    if doubt.is_none() {
        return give_up(&update, why);
    }
    Step::Wait(BACKOFF.1, Box::new(move || read(update, CONFLICTS, doubt)))
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
            action: event.action().to_owned(),
            message: event.message.clone(),
            reporting_controller: controller(event.reporter).into(),
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
