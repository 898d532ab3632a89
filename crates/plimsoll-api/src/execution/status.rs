//! Statuses of ClusterQueues, LocalQueues, Cohorts and RunWindows. The engine reports them whole; the latest one wins, and
//! nothing waits for an answer.

use std::sync::Arc;

use plimsoll_queueing::{Action, QueueStatus, RunWindowStatus};
use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::conditions::set_status_condition;
use crate::json;
use crate::request::{PatchKind, Request};
use crate::resource::{CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, RUN_WINDOWS, Resource};

/// The object of a status: resource, namespace (empty for cluster scope), name.
pub type StatusKey = (Resource, String, String);

/// A status to write.
#[derive(Clone, Debug)]
pub enum Status {
    /// Of a ClusterQueue or LocalQueue.
    Queue(Arc<QueueStatus>),
    /// Of a Cohort: its weighted share.
    Share(i64),
    /// Of a RunWindow.
    Window(Box<RunWindowStatus>),
}

/// The status that an action asks for, and its object; `None` for other actions.
pub fn status_of(action: &Action) -> Option<(StatusKey, Status)> {
    Some(match action {
        Action::ClusterQueueStatus(name, status) => {
            ((CLUSTER_QUEUES, String::new(), name.clone()), Status::Queue(Arc::clone(status)))
        }
        Action::LocalQueueStatus(namespace, name, status) => {
            ((LOCAL_QUEUES, namespace.clone(), name.clone()), Status::Queue(Arc::clone(status)))
        }
        Action::CohortStatus(name, share) => ((COHORTS, String::new(), name.clone()), Status::Share(*share)),
        Action::RunWindowStatus(name, status) => {
            ((RUN_WINDOWS, String::new(), name.clone()), Status::Window(status.clone()))
        }
        Action::UpdateWorkload(_)
        | Action::DeactivateWorkload { .. }
        | Action::FailPod { .. }
        | Action::UpdateLoan(_)
        | Action::Record(..) => return None,
    })
}

/// The request that brings `object`, as last seen, to this status; `None` when it has it, because a write without a change
/// still reaches every watch. `unsure`: an earlier write failed and may have been carried out, so that `object` does not show
/// what the server has.
pub fn status_request(
    key: &StatusKey,
    status: &Status,
    object: &Value,
    unsure: bool,
    now: Time,
) -> Option<Request> {
    let (resource, namespace, name) = key;
    let status = match status {
        Status::Share(share) => json!({"fairSharing": {"weightedShare": share}}),
        Status::Queue(status) => queue_status(*resource, object, status, now),
        Status::Window(status) => window_status(object, status, now),
    };
    if !unsure && status.as_object().into_iter().flatten().all(|(k, v)| object["status"][k] == *v) {
        return None;
    }
    let body = json!({"metadata": {"uid": json::uid(object)}, "status": status});
    Some(Request::patch(*resource, namespace, name, "status", PatchKind::Merge, body))
}

fn queue_status(resource: Resource, object: &Value, status: &QueueStatus, now: Time) -> Value {
    let mut out = if resource == LOCAL_QUEUES {
        crate::kueue::local_queue_status(status)
    } else {
        crate::kueue::cluster_queue_status(status)
    };
    if let Some((active, reason, message)) = &status.active {
        out["conditions"] = conditions(object, "Active", *active, reason, message, now);
    }
    out
}

fn window_status(object: &Value, status: &RunWindowStatus, now: Time) -> Value {
    let mut out = crate::windows::run_window_status(status);
    let (valid, reason, message) = crate::windows::run_window_valid(status);
    out["conditions"] = conditions(object, "Valid", valid, reason, &message, now);
    out
}

/// The conditions of an object with one of them set.
fn conditions(object: &Value, kind: &str, status: bool, reason: &str, message: &str, now: Time) -> Value {
    let new = set_status_condition(object, kind, status, reason, message, now);
    new.map_or_else(|| json::at(object, &["status", "conditions"]).clone(), Value::Array)
}
