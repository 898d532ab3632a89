//! Failed pods: limits, policies, backoff.

use super::*;

#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
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
