//! Counts, completions and suspension.

use super::*;

#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
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
    // A suspended job has not started (`MutableSchedulingDirectivesForSuspendedJobs`).
    let running = json!({"startTime": time(NOW - 5000)});
    let (_, _, status, _, _) =
        run(job(&json!({"suspend": true}), &running), &["a Running ready"], Record::default());
    assert_eq!((status.get("startTime"), &status["conditions"][0]["type"]), (None, &json!("Suspended")));
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
fn a_batch_of_uncounted_pods_is_bounded() {
    let lines: Vec<String> = (0..700).map(|i| format!("p{i} Succeeded")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (_, released, status, _, _) =
        run(job(&json!({"completions": 700, "parallelism": 700}), &json!({})), &lines, Record::default());
    assert_eq!((released.split(',').count(), &status["succeeded"]), (500, &json!(500)));
    assert_eq!(status["conditions"].as_array().map(Vec::len), Some(1));
}
