//! Tables of Jobs, their pods, and what is to be done about them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::backoff::Record;
use super::model::Job;
use super::plan::Action;
use super::sync::{Done, JobSync};
use super::template;
use crate::control::pod::Pod;

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

#[test]
fn counting_and_completions() {
    let none = || json!({});
    let rows = [
        Row {
            about: "first pods",
            spec: none(),
            status: none(),
            pods: &[],
            action: "create x,x",
            released: "",
            counts: [2, 0, 0, 0, 0],
            conditions: &[],
        },
        Row {
            about: "enough pods",
            spec: none(),
            status: none(),
            pods: &["a Running ready", "b Pending"],
            action: "nothing",
            released: "",
            counts: [2, 1, 0, 0, 0],
            conditions: &[],
        },
        Row {
            about: "one succeeded, replaced",
            spec: none(),
            status: none(),
            pods: &["a Succeeded", "b Running ready"],
            action: "create x",
            released: "a",
            counts: [2, 1, 0, 1, 0],
            conditions: &[],
        },
        Row {
            about: "no more than completions are left",
            spec: none(),
            status: json!({"succeeded": 3}),
            pods: &["b Running"],
            action: "nothing",
            released: "",
            counts: [1, 0, 0, 3, 0],
            conditions: &[],
        },
        Row {
            about: "a pod counted before has no finalizer",
            spec: none(),
            status: json!({"succeeded": 3}),
            pods: &["a Succeeded counted", "b Running"],
            action: "nothing",
            released: "",
            counts: [1, 0, 0, 3, 0],
            conditions: &[],
        },
        Row {
            about: "uncounted pods that lost their finalizer meanwhile",
            spec: none(),
            status: json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["z"]}}),
            pods: &["a Succeeded counted", "b Running", "c Running"],
            action: "nothing",
            released: "",
            counts: [2, 0, 0, 2, 1],
            conditions: &[],
        },
        Row {
            about: "all done",
            spec: none(),
            status: json!({"succeeded": 3}),
            pods: &["d Succeeded"],
            action: "nothing",
            released: "d",
            counts: [0, 0, 0, 4, 0],
            conditions: REACHED,
        },
        Row {
            about: "all done, one still on its way out",
            spec: none(),
            status: json!({"succeeded": 3}),
            pods: &["d Succeeded", "e Running deleting"],
            action: "nothing",
            released: "d,e",
            counts: [0, 0, 1, 4, 1],
            conditions: &REACHED[..1],
        },
        Row {
            about: "too many active",
            spec: json!({"parallelism": 1}),
            status: none(),
            pods: &["a Running ready node", "b Pending", "c Running node"],
            action: "delete b,c",
            released: "",
            counts: [1, 1, 2, 0, 0],
            conditions: &[],
        },
        Row {
            about: "parallelism zero",
            spec: json!({"parallelism": 0}),
            status: none(),
            pods: &["a Running"],
            action: "delete a",
            released: "",
            counts: [0, 0, 1, 0, 0],
            conditions: &[],
        },
        Row {
            about: "work queue",
            spec: json!({"completions": null, "parallelism": 3}),
            status: none(),
            pods: &["a Running"],
            action: "create x,x",
            released: "",
            counts: [3, 0, 0, 0, 0],
            conditions: &[],
        },
        Row {
            about: "work queue after a success",
            spec: json!({"completions": null, "parallelism": 3}),
            status: none(),
            pods: &["a Succeeded", "b Running"],
            action: "nothing",
            released: "a",
            counts: [1, 0, 0, 1, 0],
            conditions: &[],
        },
        Row {
            about: "work queue at its end",
            spec: json!({"completions": null, "parallelism": 3}),
            status: json!({"succeeded": 2}),
            pods: &["b Succeeded"],
            action: "nothing",
            released: "b",
            counts: [0, 0, 0, 3, 0],
            conditions: REACHED,
        },
        Row {
            about: "no completions wanted",
            spec: json!({"completions": 0}),
            status: none(),
            pods: &[],
            action: "nothing",
            released: "",
            counts: [0, 0, 0, 0, 0],
            conditions: REACHED,
        },
        Row {
            about: "a deleted pod counts as failed and is replaced after the backoff",
            spec: none(),
            status: none(),
            pods: &["a Running deleting", "b Running"],
            action: "wait",
            released: "a",
            counts: [0, 0, 1, 0, 1],
            conditions: &[],
        },
        Row {
            about: "with replacement of failed pods only it doesn't",
            spec: json!({"podReplacementPolicy": "Failed"}),
            status: none(),
            pods: &["a Running deleting", "b Running"],
            action: "nothing",
            released: "",
            counts: [1, 0, 1, 0, 0],
            conditions: &[],
        },
    ];
    rows.iter().for_each(check);
}

#[test]
fn failures() {
    let none = || json!({});
    let policy = |action: &str| {
        json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
            {"action": action, "onExitCodes": {"containerName": "c", "operator": "NotIn", "values": [1, 2]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]}})
    };
    let rows = [
        Row {
            about: "a failure within the limit",
            spec: none(),
            status: none(),
            pods: &["a Failed ended=60", "b Running"],
            action: "create x",
            released: "a",
            counts: [2, 0, 0, 0, 1],
            conditions: &[],
        },
        Row {
            about: "a failure just now",
            spec: none(),
            status: none(),
            pods: &["a Failed ended=3", "b Running ready"],
            action: "wait",
            released: "a",
            counts: [0, 1, 0, 0, 1],
            conditions: &[],
        },
        Row {
            about: "past the limit: the rest is ended first",
            spec: json!({"backoffLimit": 0}),
            status: none(),
            pods: &["a Failed", "b Running ready"],
            action: "end b",
            released: "a,b",
            counts: [0, 0, 1, 0, 2],
            conditions: &[BACKOFF_TARGET],
        },
        Row {
            about: "and then it has failed",
            spec: json!({"backoffLimit": 0}),
            status: json!({"failed": 2, "conditions": [{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}]}),
            pods: &[],
            action: "nothing",
            released: "",
            counts: [0, 0, 0, 0, 2],
            conditions: &[BACKOFF_TARGET, BACKOFF_FAILED],
        },
        Row {
            about: "restarts count with OnFailure",
            spec: json!({"backoffLimit": 3, "template": {"spec": {"restartPolicy": "OnFailure"}}}),
            status: none(),
            pods: &["a Running restarts=2", "b Running restarts=1"],
            action: "end a,b",
            released: "a,b",
            counts: [0, 0, 2, 0, 2],
            conditions: &[BACKOFF_TARGET],
        },
        Row {
            about: "restarts don't count with Never",
            spec: json!({"backoffLimit": 3}),
            status: none(),
            pods: &["a Running restarts=9", "b Running"],
            action: "nothing",
            released: "",
            counts: [2, 0, 0, 0, 0],
            conditions: &[],
        },
        Row {
            about: "deadline",
            spec: json!({"activeDeadlineSeconds": 100}),
            status: none(),
            pods: &["a Running"],
            action: "end a",
            released: "a",
            counts: [0, 0, 1, 0, 1],
            conditions: &[
                "FailureTarget=True DeadlineExceeded: Job was active longer than specified deadline",
            ],
        },
        Row {
            about: "no deadline while suspended",
            spec: json!({"activeDeadlineSeconds": 10, "suspend": true}),
            status: none(),
            pods: &["a Running"],
            action: "delete a",
            released: "",
            counts: [0, 0, 1, 0, 0],
            conditions: &["Suspended=True JobSuspended: Job suspended"],
        },
        Row {
            about: "policy: the Job fails",
            spec: policy("FailJob"),
            status: none(),
            pods: &["a Failed exit=3"],
            action: "nothing",
            released: "a",
            counts: [0, 0, 0, 0, 1],
            conditions: &[
                "FailureTarget=True PodFailurePolicy: Container c for pod ns/a failed with exit code 3 matching FailJob rule at index 1",
                "Failed=True PodFailurePolicy: Container c for pod ns/a failed with exit code 3 matching FailJob rule at index 1",
            ],
        },
        Row {
            about: "policy: it counts",
            spec: policy("FailJob"),
            status: none(),
            pods: &["a Failed exit=1"],
            action: "nothing",
            released: "a",
            counts: [0, 0, 0, 0, 1],
            conditions: &[BACKOFF_TARGET, BACKOFF_FAILED],
        },
        Row {
            about: "policy: a disruption is ignored",
            spec: policy("FailJob"),
            status: none(),
            pods: &["a Failed exit=2 disrupted ended=60"],
            action: "create x,x",
            released: "a",
            counts: [2, 0, 0, 0, 0],
            conditions: &[],
        },
        Row {
            about: "with a policy a pod on its way out is not failed yet",
            spec: policy("FailJob"),
            status: none(),
            pods: &["a Running deleting disrupted", "b Running"],
            action: "nothing",
            released: "",
            counts: [1, 0, 1, 0, 0],
            conditions: &[],
        },
    ];
    rows.iter().for_each(check);
}

#[test]
fn suspension() {
    let suspended = json!({"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}], "startTime": null});
    let (action, _, status, events, _) =
        run(job(&json!({"suspend": true}), &json!({"startTime": null})), &[], Record::default());
    assert_eq!((action.as_str(), &status["startTime"]), ("nothing", &Value::Null));
    assert_eq!(events, ["Normal Suspended Job suspended"]);
    let (action, _, status, events, _) =
        run(job(&json!({"suspend": false}), &suspended), &[], Record::default());
    assert_eq!((action.as_str(), status["startTime"].as_str()), ("create x,x", Some(time(NOW).as_str())));
    assert_eq!(events, ["Normal Resumed Job resumed"]);
    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["conditions"][0]["reason"], "JobResumed");
    // Resumed after a pause: the start is reset, so that the deadline begins again.
    let paused = json!({"startTime": time(NOW - 5000), "conditions": suspended["conditions"]});
    let (_, _, status, _, again) =
        run(job(&json!({"suspend": false, "activeDeadlineSeconds": 6000}), &paused), &[], Record::default());
    assert_eq!((status["startTime"].as_str(), again), (Some(time(NOW).as_str()), Some(1000)));
    // Suspending takes running pods away without counting them.
    let (action, released, status, events, _) = run(
        job(&json!({"suspend": true}), &json!({})),
        &["a Running ready", "b Succeeded"],
        Record::default(),
    );
    assert_eq!((action.as_str(), released.as_str()), ("delete a", "b"));
    assert_eq!(
        (&status["succeeded"], status.get("failed"), &status["terminating"]),
        (&json!(1), None, &json!(1))
    );
    assert_eq!(events, ["Normal Suspended Job suspended"]);
}

#[test]
fn indexes() {
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3});
        merge(&mut spec, &more);
        spec
    };
    let per_index = |more: Value| {
        let mut spec = indexed(json!({"backoffLimit": 2_147_483_647, "backoffLimitPerIndex": 1}));
        merge(&mut spec, &more);
        spec
    };
    for (about, spec, status, pods, action, released, completed, failed) in [
        ("the first ones", indexed(json!({})), json!({}), &[] as &[&str], "create 0,1,2", "", "", None),
        (
            "what is missing",
            indexed(json!({})),
            json!({"completedIndexes": "0,2"}),
            &["a Running index=3"],
            "create 1,4",
            "",
            "0,2",
            None,
        ),
        (
            "succeeded ones are added",
            indexed(json!({})),
            json!({"completedIndexes": "0"}),
            &["a Succeeded index=1", "b Running index=2"],
            "create 3,4",
            "a",
            "0,1",
            None,
        ),
        (
            "an index twice counts once",
            indexed(json!({})),
            json!({"completedIndexes": "1"}),
            &["a Succeeded index=1", "b Running index=0", "c Running index=2", "d Running index=3"],
            "nothing",
            "a",
            "1",
            None,
        ),
        (
            "running twice: the one that has got further stays",
            indexed(json!({})),
            json!({}),
            &["a Pending index=0", "b Running index=0", "c Running index=1"],
            "delete a",
            "",
            "",
            None,
        ),
        (
            "no index, or one that doesn't exist",
            indexed(json!({})),
            json!({}),
            &["a Running", "b Running index=7", "c Running index=1"],
            "delete a,b",
            "",
            "",
            None,
        ),
        (
            "at the end",
            indexed(json!({})),
            json!({"completedIndexes": "0-3"}),
            &["a Succeeded index=4"],
            "nothing",
            "a",
            "0-4",
            None,
        ),
        (
            "a failed one stays until it is replaced",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 ended=60", "b Running index=1", "c Running index=2"],
            "create 0/1",
            "",
            "",
            Some(""),
        ),
        (
            "not before its backoff",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 ended=3", "b Running index=1", "c Running index=2"],
            "wait",
            "",
            "",
            Some(""),
        ),
        (
            "others needn't wait for it",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 ended=3", "b Running index=1"],
            "create 2/0",
            "",
            "",
            Some(""),
        ),
        (
            "replaced: now it can go",
            per_index(json!({})),
            json!({}),
            &[
                "a Failed index=0 ended=60",
                "d Running index=0 failures=1",
                "b Running index=1",
                "c Running index=2",
            ],
            "nothing",
            "a",
            "",
            Some(""),
        ),
        (
            "the second failure fails the index",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 failures=1", "b Running index=1", "c Running index=2"],
            "create 3/0",
            "a",
            "",
            Some("0"),
        ),
        (
            "terminating ones hold their index if only failed ones are replaced",
            indexed(json!({"podReplacementPolicy": "Failed"})),
            json!({}),
            &["a Running index=0 deleting", "b Running index=1"],
            "create 2",
            "",
            "",
            None,
        ),
    ] {
        let (got, freed, status, _, _) = run(job(&spec, &status), pods, Record::default());
        assert_eq!((got.as_str(), freed.as_str()), (action, released), "{about}");
        assert_eq!(status["completedIndexes"].as_str().unwrap_or_default(), completed, "{about}");
        assert_eq!(status["failedIndexes"].as_str(), failed, "{about}");
    }
}

#[test]
fn ends_of_indexed_jobs() {
    let end = |spec: Value, status: Value, pods: &[&str]| {
        let mut all = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": 2_147_483_647});
        merge(&mut all, &spec);
        let (action, _, status, events, _) = run(job(&all, &status), pods, Record::default());
        let last = status["conditions"].as_array().and_then(|c| c.last().cloned()).unwrap_or_default();
        let text = |key: &str| last[key].as_str().unwrap_or_default().to_owned();
        (action, format!("{} {}: {}", text("type"), text("reason"), text("message")), events)
    };
    let (action, condition, events) =
        end(json!({"backoffLimitPerIndex": 0}), json!({"completedIndexes": "0,1"}), &["a Failed index=2"]);
    assert_eq!(
        (action.as_str(), condition.as_str()),
        ("nothing", "Failed FailedIndexes: Job has failed indexes")
    );
    assert_eq!(events, ["Warning FailedIndexes Job has failed indexes"]);
    let (action, condition, _) = end(
        json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}),
        json!({}),
        &["a Failed index=2", "b Running index=0"],
    );
    assert_eq!(
        (action.as_str(), condition.as_str()),
        (
            "end b",
            "FailureTarget MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes"
        )
    );
    let fail_index = json!({"backoffLimitPerIndex": 5, "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}}]}});
    let (_, condition, _) = end(fail_index, json!({"completedIndexes": "0,1"}), &["a Failed index=2 exit=7"]);
    assert_eq!(condition, "Failed FailedIndexes: Job has failed indexes");
    let leader = json!({"successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 2}, {"succeededIndexes": "0"}]}});
    let (action, condition, _) =
        end(leader.clone(), json!({}), &["a Succeeded index=0", "b Running index=1"]);
    assert_eq!(
        (action.as_str(), condition.as_str()),
        ("end b", "SuccessCriteriaMet SuccessPolicy: Matched rules at index 1")
    );
    let met = json!({"completedIndexes": "0", "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy", "message": "Matched rules at index 1"}]});
    let (_, condition, events) = end(leader, met, &[]);
    assert_eq!(condition, "Complete SuccessPolicy: Matched rules at index 1");
    assert_eq!(events, ["Normal Completed Job completed"]);
}

#[test]
fn failures_are_forgotten_after_a_success() {
    let before = Record { failures: 3, last: Some(at(NOW - 30)) };
    let pods = |lines: &[&str]| lines.iter().map(|l| pod(l)).collect::<Vec<_>>();
    let rows: [(&[&str], &[&str], Record); 5] = [
        (&[], &[], before),
        (&[], &["a Failed ended=20", "b Failed ended=10"], Record { failures: 5, last: Some(at(NOW - 10)) }),
        (&["a Succeeded ended=15"], &[], Record { failures: 0, last: None }),
        (
            &["a Succeeded ended=15"],
            &["b Failed ended=20", "c Failed ended=10"],
            Record { failures: 1, last: Some(at(NOW - 10)) },
        ),
        (&["a Succeeded ended=5"], &["b Failed ended=20"], Record { failures: 0, last: None }),
    ];
    for (succeeded, failed, expected) in rows {
        assert_eq!(before.after(&pods(succeeded), &pods(failed)), expected);
    }
    for (failures, ago, left) in
        [(0, 0, 0), (1, 0, 10), (1, 4, 6), (1, 11, 0), (2, 0, 20), (5, 0, 160), (7, 0, 600), (90, 100, 500)]
    {
        let record = Record { failures, last: Some(at(NOW - ago)) };
        assert_eq!(record.remaining(at(NOW)).as_secs(), left, "{failures} failures, {ago} s ago");
    }
}

#[test]
fn a_batch_of_uncounted_pods_is_bounded() {
    let lines: Vec<String> = (0..700).map(|i| format!("p{i} Succeeded")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (_, released, status, _, _) =
        run(job(&json!({"completions": 700, "parallelism": 700}), &json!({})), &lines, Record::default());
    assert_eq!((released.split(',').count(), &status["succeeded"]), (500, &json!(500)));
    assert_eq!(status["conditions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn pods_from_the_template() {
    let mut job = job(
        &json!({"template": {
            "metadata": {"labels": {"app": "x"}, "finalizers": ["mine.example/f"]},
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "a"}, {"name": "b", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]},
            ]},
        }}),
        &json!({}),
    );
    let plain = template::pod(&job, super::plan::NewPod::default());
    assert_eq!(plain["metadata"]["generateName"], "j-");
    assert_eq!(
        plain["metadata"]["finalizers"],
        json!(["mine.example/f", "batch.kubernetes.io/job-tracking"])
    );
    assert_eq!(
        plain["metadata"]["ownerReferences"][0],
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": true, "blockOwnerDeletion": true})
    );
    assert_eq!(plain["spec"], job.spec.template["spec"]);
    let new = super::plan::NewPod { index: Some(12), failures: Some((2, 0)) };
    let indexed = template::pod(&job, new);
    assert_eq!(indexed["metadata"]["generateName"], "j-12-");
    assert_eq!(
        indexed["metadata"]["labels"],
        json!({"app": "x", "batch.kubernetes.io/job-completion-index": "12"})
    );
    assert_eq!(
        indexed["metadata"]["annotations"],
        json!({"batch.kubernetes.io/job-completion-index": "12", "batch.kubernetes.io/job-index-failure-count": "2"})
    );
    assert_eq!(indexed["spec"]["hostname"], "j-12");
    let env = |i: usize| indexed["spec"]["containers"][i]["env"].clone();
    assert_eq!(
        env(0)[0]["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.labels['batch.kubernetes.io/job-completion-index']"
    );
    assert_eq!(env(1), json!([{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]));
    job.metadata.name = "x".repeat(63);
    let long = template::pod(&job, new)["metadata"]["generateName"].as_str().unwrap().to_owned();
    assert_eq!((long.len(), long.ends_with("x-12-")), (58, true));
}
