use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::model::{Deployment, ReplicaSet};
use super::plan::{Op, Rollout};
use super::progress;

const CREATED: &str = "2026-03-01T10:00:00Z";

fn deployment(spec: &Value, image: &str) -> Deployment {
    let mut all = json!({
        "replicas": 10, "selector": {"matchLabels": {"a": "b"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}},
        "template": template(image), "revisionHistoryLimit": 1,
    });
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "d", "namespace": "ns", "uid": "d"}, "spec": all}))
        .unwrap()
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A ReplicaSet from a line: image, pods wanted, pods available, pods desired by the Deployment when it was last touched.
fn set(line: &str) -> ReplicaSet {
    let words: Vec<_> = line.split(' ').collect();
    let [image, replicas, available, desired] = words.as_slice() else { panic!("{line}") };
    let number = |text: &str| text.parse::<i32>().unwrap();
    let mut template = template(image);
    template["metadata"]["labels"]["pod-template-hash"] = json!(image);
    let annotations = json!({
        "deployment.kubernetes.io/revision": image[1..],
        "deployment.kubernetes.io/desired-replicas": desired,
        "deployment.kubernetes.io/max-replicas": (number(desired) + 3).to_string(),
    });
    serde_json::from_value(json!({
        "metadata": {"name": image, "uid": image, "creationTimestamp": CREATED, "annotations": annotations},
        "spec": {"replicas": number(replicas), "template": template},
        "status": {"replicas": number(replicas), "availableReplicas": number(available)},
    }))
    .unwrap()
}

/// What is decided: sizes by ReplicaSet; `+n` for a new one, `-` for one that is deleted.
fn decide(d: &Deployment, sets: &[&str], old_pods: bool) -> String {
    let now: Timestamp = CREATED.parse().unwrap();
    let rollout = Rollout::new(d, sets.iter().map(|s| set(s)).collect(), now);
    let (plan, _, _) = rollout.decide(old_pods);
    let ops = plan.ops.iter().filter_map(|op| match op {
        Op::Create(set) => Some(format!("+{}", set["spec"]["replicas"])),
        Op::Update { set, replicas, .. } => Some(format!("{}={replicas}", set.name)),
        Op::Delete(set) => Some(format!("{}-", set.name)),
        Op::Revision(_) => None,
    });
    ops.collect::<Vec<_>>().join(" ")
}

#[test]
fn rollouts() {
    let recreate = json!({"strategy": {"type": "Recreate"}});
    for (about, spec, sets, old_pods, expected) in [
        ("first", json!({}), &[] as &[&str], false, "+10"),
        ("done", json!({}), &["v1 10 10 10"], false, ""),
        ("old pods go as far as enough are left", json!({}), &["v0 10 10 10", "v1 3 0 10"], false, "v0=8"),
        ("then new ones come", json!({}), &["v0 8 8 10", "v1 3 0 10"], false, "v1=5"),
        ("unhealthy old ones go first", json!({}), &["v0 10 6 10", "v1 3 3 10"], false, "v0=6 v0=5"),
        ("old ones have yet to go", json!({}), &["v0 8 10 10", "v1 5 1 10"], false, ""),
        (
            "sets without pods are not counted",
            json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}}),
            &["v00 0 5 10", "v0 5 5 10", "v1 5 4 10"],
            false,
            // That of `v1` changes its annotations only.
            "v1=5 v0=4",
        ),
        ("the end", json!({}), &["v0 2 2 10", "v1 8 8 10"], false, "v1=10"),
        ("the last old ones", json!({}), &["v0 2 2 10", "v1 10 10 10"], false, "v0=0"),
        ("scaled", json!({"replicas": 5}), &["v1 10 10 10"], false, "v1=5"),
        (
            "scaled in the middle: in proportion",
            json!({"replicas": 20}),
            &["v0 8 8 10", "v1 5 5 10"],
            false,
            "v0=14 v1=9",
        ),
        ("paused: only scaling", json!({"paused": true}), &["v0 10 10 10"], false, ""),
        ("recreate: old ones go", recreate.clone(), &["v0 10 10 10"], true, "v0=0"),
        ("recreate: until they are gone", recreate.clone(), &["v0 0 0 10"], true, ""),
        ("recreate: then all new ones at once", recreate, &["v0 0 0 10"], false, "+10"),
    ] {
        let found = decide(&deployment(&spec, "v1"), sets, old_pods);
        assert_eq!(found, expected, "{about}");
    }
    // The new one takes the surge, and the old one what may be unavailable.
    assert_eq!(decide(&deployment(&json!({}), "v2"), &["v1 10 10 10"], false), "+3 v1=8");
}

/// What is said of a rollout that ended long ago is not late.
#[test]
fn a_rollout_begins_with_its_own_deadline() {
    let now: Timestamp = CREATED.parse().unwrap();
    let mut d = deployment(&json!({}), "v1");
    (d.status.replicas, d.status.updated_replicas) = (10, 10);
    (d.status.ready_replicas, d.status.available_replicas) = (10, 10);
    d.status.conditions = serde_json::from_value(json!([{
        "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "",
        "lastUpdateTime": CREATED, "lastTransitionTime": CREATED}]))
    .unwrap();
    let late = now + jiff::SignedDuration::from_hours(1);
    for new in [Some(set("v1 0 0 10")), None] {
        let (status, _) = progress::status(&d, new.as_ref(), &[set("v2 10 10 10")], None, late);
        let progressing = status.conditions.iter().find(|c| c.kind == "Progressing");
        assert_eq!(progressing.map(|c| c.reason.as_str()), Some("NewReplicaSetAvailable"));
    }
}

#[test]
fn history() {
    let mut d = deployment(&json!({"replicas": 1}), "v4");
    d.status.updated_replicas = 1;
    d.status.replicas = 1;
    d.status.available_replicas = 1;
    let sets = ["v1 0 0 1", "v3 0 0 1", "v2 0 0 1", "v4 1 1 1"];
    assert_eq!(decide(&d, &sets, false), "v1- v2-");
}

#[test]
fn limits() {
    for (surge, unavailable, replicas, expected) in [
        (json!("25%"), json!("25%"), 4, (1, 1)),
        (json!("25%"), json!("25%"), 10, (3, 2)),
        (json!("25%"), json!("25%"), 1, (1, 0)),
        (json!(0), json!("10%"), 5, (0, 1)),
        (json!(2), json!(9), 5, (2, 5)),
    ] {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let d = deployment(&json!({"strategy": rolling, "replicas": replicas}), "v1");
        assert_eq!(d.limits(), expected, "{surge} {unavailable} of {replicas}");
    }
}
