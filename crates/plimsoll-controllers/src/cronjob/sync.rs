//! What to do about a CronJob: a function of it, its Jobs and the time (`syncCronJob` upstream).

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::{Time, controller_reference};
use plimsoll_client::{Event, EventType};
use serde_json::{Value, json};

use super::model::{Child, CronJob, Reference};
use super::schedule::Schedule;

/// Annotation of Jobs: the time for which they were made.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// What to do. `cron.status` is what its status should be, apart from the Job that is to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The CronJob.
    pub cron: CronJob,
    /// Whether its status has changed.
    pub changed: bool,
    /// Events, in order.
    pub events: Vec<Event>,
    /// Jobs to delete because they are replaced.
    pub replace: Vec<Reference>,
    /// The Job to make, and the time for which.
    pub create: Option<(Value, Timestamp)>,
    /// Old Jobs to delete.
    pub cleanup: Vec<Arc<Child>>,
    /// When to reconcile again; `None`: when something changes.
    pub again: Option<SignedDuration>,
}

impl Plan {
    fn event(&mut self, kind: EventType, reason: &str, message: String) {
        self.events.push(Event::new(kind, reason, message));
    }

    /// The Job has been made (or found made): it is active now.
    pub fn created(&mut self, job: &Value, at: Timestamp) {
        let text = |key: &str| job["metadata"][key].as_str().unwrap_or_default().to_owned();
        self.cron.status.active.push(Reference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            uid: text("uid"),
        });
        self.cron.status.last_schedule_time = Some(Time::whole(at));
        self.changed = true;
    }
}

/// Reconciles a CronJob and all the Jobs that it controls.
pub fn plan(cron: CronJob, jobs: &[Arc<Child>], now: Timestamp) -> Plan {
    let cleanup = old_jobs(&cron, jobs);
    let mut plan = Plan {
        cron,
        changed: false,
        events: Vec::new(),
        replace: Vec::new(),
        create: None,
        cleanup,
        again: None,
    };
    reconcile_active(&mut plan, jobs);
    if plan.cron.metadata.deletion_timestamp.is_none() {
        schedule(&mut plan, now);
    }
    plan
}

fn reconcile_active(plan: &mut Plan, jobs: &[Arc<Child>]) {
    for job in jobs {
        let (uid, name) = (&job.metadata.uid, &job.metadata.name);
        let active = plan.cron.status.active.iter().any(|r| r.uid == *uid);
        match (active, job.finished()) {
            (false, None) => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.event(EventType::Warning, "UnexpectedJob", message);
            }
            (true, Some(condition)) => {
                plan.cron.status.active.retain(|r| r.uid != *uid);
                let message = format!("Saw completed job: {name}, condition: {}", condition.kind);
                plan.event(EventType::Normal, "SawCompletedJob", message);
                plan.changed = true;
            }
            _ => {}
        }
        let succeeded = job.finished().is_some_and(|c| c.kind == "Complete");
        let last = &mut plan.cron.status.last_successful_time;
        if let Some(at) = job.status.completion_time.filter(|at| succeeded && last.is_none_or(|l| *at > l)) {
            *last = Some(at);
            plan.changed = true;
        }
    }
    let (there, missing): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.cron.status.active)
        .into_iter()
        .partition(|r| jobs.iter().any(|j| j.metadata.uid == r.uid));
    plan.cron.status.active = there;
    for gone in missing {
        plan.event(EventType::Normal, "MissingJob", format!("Active job went missing: {}", gone.name));
        plan.changed = true;
    }
}

fn schedule(plan: &mut Plan, now: Timestamp) {
    let spec = plan.cron.spec.clone();
    let zone = match spec.time_zone.as_deref().map(TimeZone::get) {
        None => TimeZone::UTC,
        Some(Ok(zone)) => zone,
        Some(Err(error)) => {
            let zone = spec.time_zone.unwrap_or_default();
            plan.event(EventType::Warning, "UnknownTimeZone", format!("invalid timeZone: {zone:?}: {error}"));
            return;
        }
    };
    if spec.suspend == Some(true) {
        return;
    }
    let text = &spec.schedule;
    let schedule = match Schedule::parse(text, zone.clone()) {
        Ok(schedule) => schedule,
        Err(error) => {
            let message = format!("unparseable schedule: {text:?} : {error}");
            plan.event(EventType::Warning, "UnparseableSchedule", message);
            return;
        }
    };
    let due = match schedule.due(&plan.cron, now, true) {
        Ok(due) => due,
        Err(error) => {
            let message = format!("invalid schedule: {text} : {error}");
            plan.event(EventType::Warning, "InvalidSchedule", message);
            return;
        }
    };
    if due.many_missed {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.event(EventType::Warning, "TooManyMissedTimes", message.to_owned());
    }
    if let Some(at) = due.at {
        start(plan, at, now, &zone);
    }
    plan.again = schedule.wait(&plan.cron, now);
}

/// A time has come: makes the Job, unless something speaks against it.
fn start(plan: &mut Plan, at: Timestamp, now: Timestamp, zone: &TimeZone) {
    let deadline = plan.cron.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    if deadline.is_some_and(|d| at.saturating_add(d).is_ok_and(|end| end < now)) {
        let time = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {time}");
        plan.event(EventType::Warning, "MissSchedule", message);
        return;
    }
    let name = job_name(&plan.cron, at);
    let status = &plan.cron.status;
    if status.active.iter().any(|r| r.name == name) || status.last_schedule_time == Some(Time::whole(at)) {
        return;
    }
    match plan.cron.spec.concurrency_policy.as_deref() {
        Some("Forbid") if !status.active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.event(EventType::Normal, "JobAlreadyActive", message.to_owned());
            return;
        }
        Some("Replace") if !status.active.is_empty() => {
            plan.replace = std::mem::take(&mut plan.cron.status.active);
            plan.changed = true;
        }
        _ => {}
    }
    plan.create = Some((job_from(&plan.cron, &name, at, zone), at));
    // What comes after this one is counted from here.
    plan.cron.status.last_schedule_time = Some(Time::whole(at));
}

/// `<cron job>-<minutes since the epoch>`.
fn job_name(cron: &CronJob, at: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name, at.as_second().div_euclid(60))
}

fn job_from(cron: &CronJob, name: &str, at: Timestamp, zone: &TimeZone) -> Value {
    let template = &cron.spec.job_template;
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let zoned = at.to_zoned(zone.clone());
    let time = if *zone == TimeZone::UTC {
        zoned.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    };
    annotations.insert(SCHEDULED_AT.to_owned(), json!(time));
    let mut metadata = json!({
        "name": name,
        "namespace": cron.metadata.namespace,
        "annotations": annotations,
        "ownerReferences": [controller_reference("batch/v1", "CronJob", &cron.metadata)],
    });
    if let Some(labels) = template["metadata"]["labels"].as_object().filter(|l| !l.is_empty()) {
        metadata["labels"] = json!(labels);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
}

/// Finished Jobs beyond the history limits, oldest first.
fn old_jobs(cron: &CronJob, jobs: &[Arc<Child>]) -> Vec<Arc<Child>> {
    let limits = [
        ("Complete", cron.spec.successful_jobs_history_limit),
        ("Failed", cron.spec.failed_jobs_history_limit),
    ];
    let mut old = Vec::new();
    for (kind, limit) in limits {
        let Some(limit) = limit.and_then(|l| usize::try_from(l).ok()) else { continue };
        let mut ended: Vec<_> =
            jobs.iter().filter(|j| j.finished().is_some_and(|c| c.kind == kind)).cloned().collect();
        ended.sort_by(|a, b| {
            let order = |j: &Child| (j.status.start_time.is_none(), j.status.start_time);
            order(a).cmp(&order(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
        });
        let surplus = ended.len().saturating_sub(limit);
        old.extend(ended.into_iter().take(surplus));
    }
    old
}
