//! Log events of decisions, with the messages and field names of Kueue's and kube-scheduler's own logs: each when its write
//! has been confirmed. Objects are written `namespace/name`. Nothing is formatted for a level that is off.

use plimsoll_api::event::EventRecord;
use plimsoll_api::json;
use plimsoll_jobs::plan::{JOB_CONTROLLER, UPDATED_ADMISSION_CHECK};
use plimsoll_queueing::{
    Action as QueueAction, Admission, Condition, LoanChange, RecordCause, WorkloadEvent, WorkloadKey,
    WorkloadUpdate, cond,
};
use plimsoll_scheduler::{Action as SchedulerAction, Event as SchedulerEvent, FailureReason, PodRef};
use serde_json::Value;
use tracing::{Level, Span, debug, enabled, info, info_span, warn};

use crate::clock;

/// `namespace/name` of a pod.
struct Pod<'a>(&'a PodRef);

impl std::fmt::Display for Pod<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.0.namespace, self.0.name)
    }
}

/// Flavors by podset: `main: cpu=spot memory=spot x3`.
struct Assignments<'a>(&'a Admission);

impl std::fmt::Display for Assignments<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, ps) in self.0.assignments.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{}:", ps.name)?;
            for (resource, flavor) in &ps.flavors {
                write!(f, " {resource}={flavor}")?;
            }
            write!(f, " x{}", ps.count)?;
        }
        Ok(())
    }
}

/// The span of one write of a workload's status.
pub fn span(update: &WorkloadUpdate) -> Span {
    info_span!("workload", workload = %update.key, uid = update.uid, write = update.id)
}

/// The status of a workload has been written.
pub fn written(update: &WorkloadUpdate, object: &Value) {
    if !enabled!(Level::INFO) {
        return;
    }
    debug!(
        workload = %update.key, resourceVersion = json::version(object), write = update.id,
        "Updated the status of the workload"
    );
    if let Some(Some(admission)) = &update.admission {
        info!(
            workload = %update.key, clusterQueue = admission.cluster_queue, assignments = %Assignments(admission),
            waitSeconds = waited(object), admitted = json::is_true(object, cond::ADMITTED),
            "Workload successfully admitted and assigned flavors"
        );
    }
    for condition in &update.conditions {
        changed(update, object, condition);
    }
}

fn changed(update: &WorkloadUpdate, object: &Value, condition: &Condition) {
    let (workload, reason, detail) = (&update.key, &condition.reason, &condition.message);
    match (condition.kind.as_str(), condition.status) {
        // Logged with the reservation otherwise.
        (cond::ADMITTED, true) if !matches!(update.admission, Some(Some(_))) => {
            let clusterqueue = json::text(object, &["status", "admission", "clusterQueue"]);
            info!(%workload, clusterQueue = clusterqueue, "Workload admitted, all admission checks are ready");
        }
        (cond::EVICTED, true) => info!(%workload, reason, detail, "Workload evicted"),
        (cond::REQUEUED, true) => info!(%workload, reason, "Workload re-queued"),
        // The reason of the last attempt.
        (cond::QUOTA_RESERVED, false) if condition.reason != "Pending" || !detail.is_empty() => {
            info!(%workload, requeueReason = reason, inadmissibleMsg = detail, "Workload re-queued");
        }
        (cond::FINISHED, true) => info!(%workload, reason, detail, "Workload finished"),
        (kind, status) => {
            debug!(%workload, condition = kind, status, reason, "Condition of the workload set");
        }
    }
}

/// Seconds since a workload came into its queue, or came back into it.
fn waited(object: &Value) -> i64 {
    let since = |kind: &str| {
        let found = json::condition(object, kind).filter(|c| c["status"] == "True")?;
        clock::parse(found["lastTransitionTime"].as_str()?)
    };
    let created = || clock::parse(json::text(object, &["metadata", "creationTimestamp"]));
    let queued = since(cond::REQUEUED).or_else(created);
    match (queued, since(cond::QUOTA_RESERVED)) {
        (Some(queued), Some(reserved)) => reserved.since(queued).seconds().max(0),
        _ => 0,
    }
}

/// The status of a workload could not be written; the decision is undone and made anew.
pub fn unwritten(key: &WorkloadKey, error: &str) {
    warn!(workload = %key, err = error, "Failed to update the status of the workload");
}

/// An event of a workload whose status is not written: on the preemptor, that it has preempted another one.
pub fn noted(event: &WorkloadEvent) {
    let WorkloadEvent { key, cause, event } = event;
    match cause {
        RecordCause::Preempted { victim } => {
            info!(preemptingWorkload = %key, targetWorkload = %victim, detail = event.message, "Preempted");
        }
        RecordCause::SecondPassFailed => {
            info!(workload = %key, reason = event.reason, detail = event.message, "Event of the workload");
        }
    }
}

/// An action of queueing has been carried out that has no answer of its own.
pub fn queued(action: &QueueAction) {
    match action {
        QueueAction::DeactivateWorkload { key, .. } => info!(workload = %key, "Workload deactivated"),
        QueueAction::FailPod { namespace, name, .. } => info!(
            pod = %format_args!("{namespace}/{name}"), "Terminated a pod that waited for a node on which it can't start"
        ),
        QueueAction::UpdateLoan(update) => match &update.change {
            LoanChange::Grant => info!(quotaLoan = update.name, "Quota loan granted"),
            LoanChange::Return => info!(quotaLoan = update.name, "Quota loan returned"),
            LoanChange::Explain(message) => {
                info!(quotaLoan = update.name, detail = message, "Quota loan waits");
            }
            LoanChange::Delete => info!(quotaLoan = update.name, "Quota loan deleted"),
            LoanChange::Finalizers(_) => {}
        },
        QueueAction::UpdateWorkload(_)
        | QueueAction::Record(..)
        | QueueAction::ClusterQueueStatus(..)
        | QueueAction::LocalQueueStatus(..)
        | QueueAction::CohortStatus(..)
        | QueueAction::RunWindowStatus(..) => {}
    }
}

/// A binding has been answered.
pub fn bound(pod: &PodRef, node: &str, answer: &SchedulerEvent) {
    match answer {
        SchedulerEvent::BindFailed { message, .. } => {
            warn!(pod = %Pod(pod), node, err = message, "Failed to bind pod");
        }
        SchedulerEvent::Bound(_)
        | SchedulerEvent::Prepared(_)
        | SchedulerEvent::Extended { .. }
        | SchedulerEvent::Reload(_)
        | SchedulerEvent::Answered { .. } => info!(pod = %Pod(pod), node, "Successfully bound pod to node"),
    }
}

/// An action of placement has been carried out that has no answer of its own.
pub fn placed(action: &SchedulerAction) {
    match action {
        SchedulerAction::Unschedulable { pod, reason, message, nominated_node, .. } => {
            let nominated = nominated_node.as_deref().unwrap_or_default();
            match reason {
                FailureReason::Unschedulable => info!(
                    pod = %Pod(pod), err = message, nominatedNode = nominated,
                    "Unable to schedule pod; no fit; waiting"
                ),
                FailureReason::SchedulerError => {
                    warn!(pod = %Pod(pod), err = message, "Error scheduling pod; retrying");
                }
            }
        }
        SchedulerAction::Preempt { victim, preemptor, .. } => {
            info!(preemptor = %Pod(preemptor), victim = %Pod(victim), "Preemptor Pod preempted victim Pod");
        }
        SchedulerAction::Bind { .. }
        | SchedulerAction::Prepare { .. }
        | SchedulerAction::Extend { .. }
        | SchedulerAction::Nominate { .. }
        | SchedulerAction::ReleaseClaims { .. }
        | SchedulerAction::Record { .. } => {}
    }
}

/// Logs an Event before it is recorded. The Events of the job reconcilers stand for what they have done.
pub fn event(event: &EventRecord) {
    let about = &event.regarding;
    if enabled!(Level::DEBUG) {
        debug!(
            object = %format_args!("{}/{}", about.namespace, about.name), kind = about.kind,
            r#type = if event.warning { "Warning" } else { "Normal" }, reason = event.reason,
            action = event.action, note = event.message, reportingController = &*event.reporting_controller,
            "Event occurred"
        );
    }
    if is_job_reconciled(event) {
        info!(
            job = %format_args!("{}/{}", about.namespace, about.name), kind = about.kind, reason = event.reason,
            detail = event.message, "Job reconciled"
        );
    }
}

/// What admission checks say is recorded by each reconcile while a job waits for them.
fn is_job_reconciled(event: &EventRecord) -> bool {
    event.reporting_controller.ends_with(JOB_CONTROLLER)
        && event.regarding.kind != "Workload"
        && event.reason != UPDATED_ADMISSION_CHECK
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::event::ObjectReference;
    use serde_json::json;

    #[test]
    fn what_checks_say_is_not_logged_as_done() {
        let event = |kind: &str, reason: &str| EventRecord {
            regarding: ObjectReference { kind: kind.into(), ..ObjectReference::default() },
            warning: false,
            reason: reason.into(),
            action: reason.into(),
            message: String::new(),
            reporting_controller: "batch/job-kueue-controller".into(),
            reporting_instance: String::new(),
        };
        assert!(is_job_reconciled(&event("Job", "CreatedWorkload")));
        assert!(!is_job_reconciled(&event("Job", UPDATED_ADMISSION_CHECK)));
        assert!(!is_job_reconciled(&event("Workload", "OwnerReferencesAdded")));
    }

    #[test]
    fn waits_count_from_the_last_time_in_the_queue() {
        let at = |kind: &str, time: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
        let reserved = at("QuotaReserved", "2026-01-01T00:01:00Z");
        let mut object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                                "status": {"conditions": [reserved.clone()]}});
        assert_eq!(waited(&object), 60);
        object["status"]["conditions"] = json!([reserved, at("Requeued", "2026-01-01T00:00:50Z")]);
        assert_eq!(waited(&object), 10);
        assert_eq!(waited(&json!({})), 0);
    }
}
