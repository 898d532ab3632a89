use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::model::{Child, CronJob};
use super::schedule::Schedule;
use super::sync::{Plan, plan};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The hour before the tables' CronJobs are looked at.
const CREATED: &str = "2026-03-01T09:50:00Z";

fn cron(spec: &Value, status: &Value) -> CronJob {
    let mut all = json!({"schedule": "0 * * * *", "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}});
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    let meta = json!({"name": "c", "namespace": "ns", "uid": "cron", "creationTimestamp": CREATED});
    serde_json::from_value(json!({"metadata": meta, "spec": all, "status": status})).unwrap()
}

/// A Job from a line: name and `running`, `done=TIME` or `failed=TIME`; its UID is its name.
fn job(line: &str) -> Arc<Child> {
    let (name, state) = line.split_once(' ').unwrap();
    let (state, time) = state.split_once('=').unwrap_or((state, CREATED));
    let mut job =
        json!({"metadata": {"name": name, "uid": name, "namespace": "ns"}, "status": {"startTime": time}});
    if state != "running" {
        let kind = if state == "done" { "Complete" } else { "Failed" };
        job["status"]["conditions"] = json!([{"type": kind, "status": "True", "lastTransitionTime": time}]);
    }
    if state == "done" {
        job["status"]["completionTime"] = json!(time);
    }
    Arc::new(serde_json::from_value(job).unwrap())
}

fn active(names: &[&str]) -> Value {
    names.iter().map(|n| json!({"name": n, "uid": n})).collect()
}

fn made(plan: &Plan) -> Option<&str> {
    plan.create.as_ref().and_then(|(job, _)| job["metadata"]["name"].as_str())
}

#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
fn when_jobs_are_made() {
    let five_past = "2026-03-01T10:05:00Z";
    // 2026-03-01T10:00:00Z and an hour later, in minutes.
    let (ten, eleven) = (Some("c-29539320"), Some("c-29539380"));
    for (about, spec, status, jobs, now, expected, reasons) in [
        ("not yet", json!({}), json!({}), &[] as &[&str], "2026-03-01T09:59:59Z", None, &[] as &[&str]),
        ("just now", json!({}), json!({}), &[], "2026-03-01T10:00:00Z", ten, &[]),
        ("a little late", json!({}), json!({}), &[], five_past, ten, &[]),
        (
            "made before",
            json!({}),
            json!({"lastScheduleTime": "2026-03-01T10:00:00Z"}),
            &[],
            five_past,
            None,
            &[],
        ),
        ("some missed: only the last", json!({}), json!({}), &[], "2026-03-01T11:05:00Z", eleven, &[]),
        ("suspended", json!({"suspend": true}), json!({}), &[], five_past, None, &[]),
        ("within the deadline", json!({"startingDeadlineSeconds": 400}), json!({}), &[], five_past, ten, &[]),
        ("past the deadline", json!({"startingDeadlineSeconds": 200}), json!({}), &[], five_past, None, &[]),
        (
            "allowed beside another",
            json!({"concurrencyPolicy": "Allow"}),
            json!({"active": active(&["r"])}),
            &["r running"],
            five_past,
            ten,
            &[],
        ),
        (
            "forbidden beside another",
            json!({"concurrencyPolicy": "Forbid"}),
            json!({"active": active(&["r"])}),
            &["r running"],
            five_past,
            None,
            &["JobAlreadyActive"],
        ),
        (
            "after the other has ended",
            json!({"concurrencyPolicy": "Forbid"}),
            json!({"active": active(&["r"])}),
            &["r done=2026-03-01T10:01:00Z"],
            five_past,
            ten,
            &["SawCompletedJob"],
        ),
        (
            "after the other has vanished",
            json!({"concurrencyPolicy": "Forbid"}),
            json!({"active": active(&["r"])}),
            &[],
            five_past,
            ten,
            &["MissingJob"],
        ),
        (
            "an unknown one",
            json!({"suspend": true}),
            json!({}),
            &["u running"],
            five_past,
            None,
            &["UnexpectedJob"],
        ),
        (
            "bad schedule",
            json!({"schedule": "0 0 99 * *"}),
            json!({}),
            &[],
            five_past,
            None,
            &["UnparseableSchedule"],
        ),
        ("bad zone", json!({"timeZone": "Mars/Base"}), json!({}), &[], five_past, None, &["UnknownTimeZone"]),
        (
            "zone",
            json!({"schedule": "30 15 * * *", "timeZone": "Asia/Kolkata"}),
            json!({}),
            &[],
            five_past,
            ten,
            &[],
        ),
        (
            "very many missed",
            json!({"schedule": "* * * * *"}),
            json!({}),
            &[],
            "2026-03-02T10:00:30Z",
            Some("c-29540760"),
            &["TooManyMissedTimes"],
        ),
    ] {
        let jobs: Vec<_> = jobs.iter().map(|j| job(j)).collect();
        let plan = plan(cron(&spec, &status), &jobs, at(now));
        assert_eq!(made(&plan), expected, "{about}");
        let found: Vec<_> = plan.events.iter().map(|e| e.reason.as_str()).collect();
        assert_eq!(found, reasons, "{about}");
    }
}

#[test]
fn the_job_that_is_made() {
    let spec = json!({"schedule": "30 15 * * *", "timeZone": "Asia/Kolkata"});
    let mut plan = plan(cron(&spec, &json!({})), &[], at("2026-03-01T10:00:01Z"));
    let (job, when) = plan.create.clone().unwrap();
    assert_eq!(
        job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"],
        "2026-03-01T15:30:00+05:30"
    );
    assert_eq!((&job["metadata"]["labels"], &job["spec"]), (&json!({"a": "b"}), &json!({"x": 1})));
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    plan.created(&job, when);
    let status = serde_json::to_value(&plan.cron.status).unwrap();
    assert_eq!(status["lastScheduleTime"], "2026-03-01T10:00:00Z");
    assert_eq!(status["active"][0]["name"], "c-29539320");
    // A day later, and a little.
    assert_eq!(plan.again.map(|d| d.as_millis()), Some(24 * 3600 * 1000 - 1000 + 100));
}

#[test]
fn replaced_and_cleaned_up() {
    let spec =
        json!({"concurrencyPolicy": "Replace", "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
    let jobs: Vec<_> = [
        "a done=2026-03-01T08:00:00Z",
        "b done=2026-03-01T09:00:00Z",
        "d done=2026-03-01T07:00:00Z",
        "f failed=2026-03-01T09:30:00Z",
        "r running",
    ]
    .map(job)
    .into();
    let plan = plan(cron(&spec, &json!({"active": active(&["r"])})), &jobs, at("2026-03-01T10:00:01Z"));
    let names = |jobs: &[Arc<Child>]| jobs.iter().map(|j| j.metadata.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plan.cleanup), ["d", "a", "f"]);
    assert_eq!(plan.replace.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["r"]);
    assert!(plan.create.is_some() && plan.changed);
    assert_eq!(plan.cron.status.last_successful_time.map(|t| t.0), Some(at("2026-03-01T09:00:00Z")));
}

#[test]
fn schedules() {
    for (text, after, expected) in [
        ("*/15 * * * *", "2026-03-01T10:07:00Z", "2026-03-01T10:15:00Z"),
        ("0 0 * * MON", "2026-03-01T10:07:00Z", "2026-03-02T00:00:00Z"),
        ("0 0 13 * 5", "2026-03-01T10:07:00Z", "2026-03-06T00:00:00Z"),
        ("0 12 ? * *", "2026-03-01T10:07:00Z", "2026-03-01T12:00:00Z"),
        ("@hourly", "2026-03-01T10:07:00Z", "2026-03-01T11:00:00Z"),
        ("@daily", "2026-03-01T10:07:00Z", "2026-03-02T00:00:00Z"),
        ("@every 1h30m", "2026-03-01T10:07:00Z", "2026-03-01T11:37:00Z"),
        ("@every 90s", "2026-03-01T10:07:00.7Z", "2026-03-01T10:08:30Z"),
    ] {
        let schedule = Schedule::parse(text, TimeZone::UTC).unwrap();
        assert_eq!(schedule.next(at(after)), Some(at(expected)), "{text}");
    }
    for text in ["", "* * *", "61 * * * *", "@every x", "@every ", "@sometimes"] {
        assert!(Schedule::parse(text, TimeZone::UTC).is_err(), "{text:?}");
    }
}
