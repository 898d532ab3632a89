use super::plan::{Op, Revisions, plan};
use super::*;
use serde_json::json;

/// Pods as words: `ordinal:revision:state`, state one of pending, ready, failed, leaving.
fn pods(words: &str) -> BTreeMap<i32, Arc<Pod>> {
    let mut all = BTreeMap::new();
    for word in words.split_whitespace() {
        let mut parts = word.split(':');
        let ordinal: i32 = parts.next().unwrap().parse().unwrap();
        let (revision, state) = (parts.next().unwrap(), parts.next().unwrap());
        let phase = match state {
            "pending" => "Pending",
            "failed" => "Failed",
            _ => "Running",
        };
        let mut pod = json!({
            "metadata": {"name": format!("web-{ordinal}"), "labels": {"controller-revision-hash": revision}},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if phase == "Running" { "True" } else { "False" },
                 "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        });
        if state == "leaving" {
            pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        }
        all.insert(ordinal, Arc::new(serde_json::from_value(pod).unwrap()));
    }
    all
}

fn ops(spec: &serde_json::Value, words: &str) -> String {
    let mut set = json!({"metadata": {"name": "web", "generation": 1}, "spec": {
        "replicas": 3, "podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate"}}});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    let set: StatefulSet = serde_json::from_value(set).unwrap();
    let revisions = Revisions { current: "a", update: "b" };
    let now = Timestamp::from_second(100).unwrap();
    let ops = plan(&set, &pods(words), revisions, now).ops;
    let word = |op: &Op| match op {
        Op::Create(ordinal, new) => format!("+{ordinal}{}", if *new { "b" } else { "a" }),
        Op::Delete(ordinal) => format!("-{ordinal}"),
    };
    ops.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn one_after_the_other_or_all_at_once() {
    let parallel = json!({"podManagementPolicy": "Parallel"});
    let partition = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
    let rows = [
        (json!({}), "", "+0b"),
        (json!({}), "0:b:pending", ""),
        (json!({}), "0:b:ready", "+1b"),
        (json!({}), "0:b:ready 2:b:ready", "+1b"),
        (json!({}), "0:b:ready 1:b:leaving", ""),
        (json!({}), "0:b:failed", "-0"),
        (json!({"minReadySeconds": 200}), "0:b:ready", ""),
        (json!({"ordinals": {"start": 5}}), "", "+5b"),
        (parallel.clone(), "", "+0b +1b +2b"),
        (parallel.clone(), "0:b:pending", "+1b +2b"),
        (parallel.clone(), "0:b:failed", "-0 +1b +2b"),
        (parallel.clone(), "0:b:failed 1:b:failed 2:b:ready", "-0 -1"),
        (parallel.clone(), "0:a:ready 1:a:ready", "+2b"),
        (parallel.clone(), "0:a:ready 1:a:ready 2:a:failed", "-2"),
        // Too many go from the end.
        (json!({"replicas": 1}), "0:b:ready 1:b:ready 2:b:ready", "-2"),
        (json!({"replicas": 1}), "0:b:ready 1:b:ready 2:b:leaving", ""),
        (json!({"replicas": 1}), "0:b:ready 1:b:pending 2:b:ready", "-2"),
        (json!({"replicas": 1, "podManagementPolicy": "Parallel"}), "0:b:ready 1:b:ready 2:b:ready", "-2 -1"),
        // Updates.
        (json!({}), "0:a:ready 1:a:ready 2:a:ready", "-2"),
        (json!({}), "0:a:ready 1:a:ready 2:b:pending", ""),
        (parallel, "0:a:ready 1:a:ready 2:b:pending", ""),
        (json!({}), "0:a:ready 1:a:ready 2:b:ready", "-1"),
        (json!({}), "0:b:ready 1:b:ready 2:b:ready", ""),
        (json!({"updateStrategy": {"type": "OnDelete"}}), "0:a:ready 1:a:ready 2:a:ready", ""),
        (json!({"updateStrategy": {"type": "OnDelete"}}), "0:a:ready 1:a:ready", "+2b"),
        (partition.clone(), "0:a:ready 1:a:ready 2:b:ready", ""),
        (partition, "0:a:ready 2:b:ready", "+1a"),
    ];
    for (spec, words, wanted) in rows {
        assert_eq!(ops(&spec, words), wanted, "{spec} {words}");
    }
}

#[test]
fn names() {
    let set: StatefulSet = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
    for (name, ordinal) in [
        ("web-0", Some(0)),
        ("web-12", Some(12)),
        ("web-01", None),
        ("web-+1", None),
        ("web-x", None),
        ("we-1", None),
    ] {
        assert_eq!(set.ordinal(name), ordinal, "{name}");
    }
}
