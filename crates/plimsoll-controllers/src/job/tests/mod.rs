//! Tables of Jobs, their pods, and what is to be done about them.

mod counting;
mod failures;
mod indexes;
mod pods;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::backoff::Record;
use super::model::Job;
use super::plan::Action;
use super::sync::{Done, JobSync};
use crate::pod::Pod;

/// Seconds since the epoch at which the tables look at their Jobs.
const NOW: i64 = 1_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn time(seconds: i64) -> String {
    at(seconds).to_string()
}

fn merge(into: &mut Value, patch: &Value) {
    match (into.as_object_mut(), patch) {
        (Some(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *into = patch.clone(),
    }
}

fn job(spec: &Value, status: &Value) -> Job {
    let mut job = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job-uid"},
        "spec": {"parallelism": 2, "completions": 4, "backoffLimit": 6, "template": {"spec": {"restartPolicy": "Never"}}},
        "status": {"startTime": time(NOW - 100), "uncountedTerminatedPods": {}},
    });
    merge(&mut job["spec"], spec);
    merge(&mut job["status"], status);
    serde_json::from_value(job).unwrap()
}

/// A pod from a line: name, phase and words: `ready`, `deleting`, `counted` (no finalizer), `index=N`, `failures=N`,
/// `exit=N`, `ended=SECONDS AGO`, `disrupted`, `restarts=N`, `node`.
fn pod(line: &str) -> Arc<Pod> {
    let mut words = line.split(' ');
    let (name, phase) = (words.next().unwrap(), words.next().unwrap());
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "annotations": {}, "creationTimestamp": time(NOW - 90),
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": {},
        "status": {"phase": phase, "conditions": [], "containerStatuses": [{"name": "c", "restartCount": 0, "state": {}}]},
    });
    let mut ended = matches!(phase, "Succeeded" | "Failed").then_some(NOW - 5);
    let mut code = i64::from(phase == "Failed");
    let conditions = |pod: &mut Value, c: Value| pod["status"]["conditions"].as_array_mut().unwrap().push(c);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "ready" => conditions(&mut pod, json!({"type": "Ready", "status": "True"})),
            "disrupted" => conditions(&mut pod, json!({"type": "DisruptionTarget", "status": "True"})),
            "deleting" => pod["metadata"]["deletionTimestamp"] = json!(time(NOW)),
            "counted" => pod["metadata"]["finalizers"] = json!([]),
            "node" => pod["spec"]["nodeName"] = json!("n"),
            "index" => {
                pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(value);
            }
            "failures" => {
                pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] = json!(value);
            }
            "exit" => code = value.parse().unwrap(),
            "ended" => ended = Some(NOW - value.parse::<i64>().unwrap()),
            "restarts" => {
                pod["status"]["containerStatuses"][0]["restartCount"] = json!(value.parse::<i64>().unwrap());
            }
            other => panic!("{other}"),
        }
    }
    if let Some(ended) = ended {
        pod["status"]["containerStatuses"][0]["state"] =
            json!({"terminated": {"exitCode": code, "finishedAt": time(ended)}});
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// What is wanted, in one line.
fn describe(action: &Action) -> String {
    let names = |pods: &[Arc<Pod>]| {
        let mut names: Vec<_> = pods.iter().map(|p| p.metadata.name.clone()).collect();
        names.sort();
        names.join(",")
    };
    match action {
        Action::None => "nothing".to_owned(),
        Action::Wait => "wait".to_owned(),
        Action::DeleteKeepingFinalizers(pods) if pods.is_empty() => "nothing".to_owned(),
        Action::Delete(pods) if pods.is_empty() => "nothing".to_owned(),
        Action::DeleteKeepingFinalizers(pods) => format!("end {}", names(pods)),
        Action::Delete(pods) => format!("delete {}", names(pods)),
        Action::Create(pods) => {
            let pods: Vec<_> = pods
                .iter()
                .map(|p| match (p.index, p.failures) {
                    (Some(i), Some((f, 0))) => format!("{i}/{f}"),
                    (Some(i), Some((f, ignored))) => format!("{i}/{f}+{ignored}"),
                    (Some(i), None) => i.to_string(),
                    _ => "x".to_owned(),
                })
                .collect();
            format!("create {}", pods.join(","))
        }
    }
}

/// Carries everything out with success and gives: action, pods released, status at the end, events.
fn run(job: Job, pods: &[&str], backoff: Record) -> (String, String, Value, Vec<String>, Option<i64>) {
    let pods: Vec<_> = pods.iter().map(|p| pod(p)).collect();
    let mut sync = JobSync::begin(job, pods, at(NOW), backoff);
    let n = |len: usize| i32::try_from(len).unwrap();
    let done = match &sync.action {
        Action::None | Action::Wait => Done::default(),
        Action::Create(pods) => Done { created: n(pods.len()), ..Done::default() },
        Action::Delete(pods) | Action::DeleteKeepingFinalizers(pods) => {
            let ready = pods.iter().filter(|p| p.is_ready()).count();
            Done { deleted: n(pods.len()), deleted_ready: n(ready), created: 0 }
        }
    };
    let action = describe(&sync.action);
    let tracking = sync.track(done);
    let mut released: Vec<_> = tracking.release.iter().map(|p| p.metadata.uid.clone()).collect();
    sync.released(released.iter().map(String::as_str));
    let finish = sync.finish(&tracking);
    released.sort();
    let events = sync.events.iter().chain(&finish.events);
    let events = events.map(|e| format!("{:?} {} {}", e.kind, e.reason, e.message)).collect();
    let again = sync.again.map(|d| d.as_secs());
    (action, released.join(","), serde_json::to_value(&sync.job.status).unwrap(), events, again)
}

struct Row {
    about: &'static str,
    spec: Value,
    status: Value,
    pods: &'static [&'static str],
    action: &'static str,
    released: &'static str,
    /// active, ready, terminating, succeeded, failed
    counts: [i64; 5],
    /// `Type=Status reason: message`, in order.
    conditions: &'static [&'static str],
}

fn check(row: &Row) {
    let (action, released, status, _, _) = run(job(&row.spec, &row.status), row.pods, Record::default());
    assert_eq!(action, row.action, "{}: action", row.about);
    assert_eq!(released, row.released, "{}: released", row.about);
    let counts =
        ["active", "ready", "terminating", "succeeded", "failed"].map(|k| status[k].as_i64().unwrap_or(0));
    assert_eq!(counts, row.counts, "{}: {status}", row.about);
    let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
    let conditions: Vec<_> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            format!("{}={} {}: {}", text(c, "type"), text(c, "status"), text(c, "reason"), text(c, "message"))
        })
        .collect();
    assert_eq!(conditions, row.conditions, "{}: conditions", row.about);
}

const REACHED: &[&str] = &[
    "SuccessCriteriaMet=True CompletionsReached: Reached expected number of succeeded pods",
    "Complete=True CompletionsReached: Reached expected number of succeeded pods",
];
const BACKOFF_TARGET: &str =
    "FailureTarget=True BackoffLimitExceeded: Job has reached the specified backoff limit";
const BACKOFF_FAILED: &str = "Failed=True BackoffLimitExceeded: Job has reached the specified backoff limit";
