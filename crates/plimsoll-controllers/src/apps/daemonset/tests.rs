#![allow(clippy::needless_pass_by_value)] // Tables read better without references.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn set(strategy: Value, pod: Value) -> DaemonSet {
    let object = json!({
        "metadata": {"name": "ds", "namespace": "d", "uid": "s", "generation": 3, "annotations": {model::GENERATION: "7"}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "updateStrategy": strategy, "minReadySeconds": 10,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}},
    });
    DaemonSet::deserialize(object).unwrap()
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

fn node(name: &str, more: Value) -> Arc<Node> {
    let mut node = json!({"metadata": {"name": name, "labels": {"zone": "1"}}});
    for (key, value) in more.as_object().unwrap() {
        node[key] = value.clone();
    }
    Arc::new(Node::deserialize(node).unwrap())
}

/// A pod: name, node, and letters: `n` of the new revision, `r` ready since long, `y` since a moment, `f` failed,
/// `s` succeeded, `x` leaving, `u` not scheduled.
fn pod(name: &str, node: &str, how: &str) -> (String, Arc<Pod>) {
    let is = |letter: char| how.contains(letter);
    let since = if is('y') { at(98) } else { at(10) };
    let ready = if is('r') || is('y') { "True" } else { "False" };
    let phase = if is('f') {
        "Failed"
    } else if is('s') {
        "Succeeded"
    } else {
        "Running"
    };
    let mut object = json!({
        "metadata": {"name": name, "namespace": "d", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"a": "b", "controller-revision-hash": if is('n') { "new" } else { "old" }}},
        "spec": {"nodeName": if is('u') { "" } else { node }},
        "status": {"phase": phase, "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": since.to_string()}]},
    });
    if is('x') {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    (node.to_owned(), Arc::new(Pod::deserialize(object).unwrap()))
}

/// `TestNodeShouldRunDaemonPod` upstream, in short.
#[test]
fn where_daemons_run() {
    let taint = |key: &str, effect: &str| json!({"spec": {"taints": [{"key": key, "effect": effect}]}});
    let affinity = |terms: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": terms}}}})
    };
    let none = json!({});
    let zone = |op: &str, values: Value| {
        affinity(json!([{"matchExpressions": [{"key": "zone", "operator": op, "values": values}]}]))
    };
    // Pod, node; whether it is made, whether it may stay.
    let table = [
        (none.clone(), none.clone(), (true, true)),
        (none.clone(), taint("x", "NoSchedule"), (false, true)),
        (none.clone(), taint("x", "NoExecute"), (false, false)),
        (none.clone(), taint("x", "PreferNoSchedule"), (true, true)),
        (none.clone(), taint("node.kubernetes.io/unschedulable", "NoSchedule"), (true, true)),
        (none.clone(), taint("node.kubernetes.io/unreachable", "NoExecute"), (true, true)),
        (none, taint("node.kubernetes.io/network-unavailable", "NoSchedule"), (false, true)),
        (
            json!({"hostNetwork": true}),
            taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
            (true, true),
        ),
        (json!({"tolerations": [{"operator": "Exists"}]}), taint("x", "NoExecute"), (true, true)),
        (
            json!({"tolerations": [{"key": "x", "effect": "NoSchedule"}]}),
            taint("x", "NoExecute"),
            (false, false),
        ),
        (json!({"tolerations": [{"key": "x"}]}), taint("x", "NoExecute"), (true, true)),
        (json!({"tolerations": [{"key": "x", "value": "y"}]}), taint("x", "NoExecute"), (false, false)),
        (json!({"nodeSelector": {"zone": "1"}}), json!({}), (true, true)),
        (json!({"nodeSelector": {"zone": "2"}}), json!({}), (false, false)),
        (json!({"nodeName": "n"}), json!({}), (true, true)),
        (json!({"nodeName": "m"}), json!({}), (false, false)),
        (zone("In", json!(["1", "2"])), json!({}), (true, true)),
        (zone("NotIn", json!(["1"])), json!({}), (false, false)),
        (zone("Gt", json!(["0"])), json!({}), (true, true)),
        (zone("Lt", json!(["0"])), json!({}), (false, false)),
        (zone("DoesNotExist", json!([])), json!({}), (false, false)),
        (affinity(json!([{}])), json!({}), (false, false)),
        (affinity(json!([])), json!({}), (false, false)),
        (
            affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}])),
            json!({}),
            (true, true),
        ),
    ];
    for (spec, more, want) in table {
        let set = set(rolling(json!(0), json!(1)), spec.clone());
        let got = place::should_run(&set, &place::tolerations(&set), &node("n", more.clone()));
        assert_eq!(got, want, "{spec} on {more}");
    }
}

/// `TestManage`, `TestDaemonSetUpdates…`: nodes a and b want a pod, c is closed to it.
#[test]
fn what_is_made_and_deleted() {
    let closed = json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}});
    let nodes = [node("a", json!({})), node("b", json!({})), node("c", closed)];
    let (one, surge) = (rolling(json!(0), json!(1)), rolling(json!(1), json!(0)));
    let on_delete = json!({"type": "OnDelete"});
    type Pods = &'static [(&'static str, &'static str, &'static str)];
    // Strategy; pods; made on; deleted.
    let table: &[(&Value, Pods, &[&str], &[&str])] = &[
        (&one, &[], &["a", "b"], &[]),
        (&one, &[("a1", "a", "nr"), ("b1", "b", "x")], &[], &[]),
        (&one, &[("a1", "a", "nr"), ("b1", "b", "nr"), ("c1", "c", "nr")], &[], &["c1"]),
        (&one, &[("a1", "a", "nr"), ("a2", "a", "nr"), ("b1", "b", "nr")], &[], &["a2"]),
        (&one, &[("a1", "a", "nur"), ("a2", "a", "nr"), ("b1", "b", "nr")], &[], &["a1"]),
        (&one, &[("a1", "a", "nr"), ("b1", "b", "nr"), ("z1", "z", "u")], &[], &["z1"]),
        // A rollout: one at a time, those that aren't available at once.
        (&one, &[("a1", "a", "r"), ("b1", "b", "r")], &[], &["a1"]),
        (&one, &[("a1", "a", "ny"), ("b1", "b", "r")], &[], &[]),
        (&one, &[("a1", "a", "nr"), ("b1", "b", "r")], &[], &["b1"]),
        (&one, &[("a1", "a", ""), ("b1", "b", "")], &[], &["a1", "b1"]),
        (&one, &[("a1", "a", "rx"), ("b1", "b", "r")], &[], &[]),
        (&on_delete, &[("a1", "a", "r"), ("b1", "b", "r")], &[], &[]),
        // With surge: the new one first.
        (&surge, &[("a1", "a", "r"), ("b1", "b", "r")], &["a"], &[]),
        (&surge, &[("a1", "a", "r"), ("a2", "a", "ny"), ("b1", "b", "r")], &[], &[]),
        (&surge, &[("a1", "a", "r"), ("a2", "a", "nr"), ("b1", "b", "r")], &[], &["a1"]),
        (&surge, &[("a1", "a", ""), ("a2", "a", "ny"), ("b1", "b", "r")], &[], &["a1"]),
        (&surge, &[("a1", "a", ""), ("b1", "b", "")], &["a", "b"], &[]),
        (&surge, &[("a1", "a", "x"), ("b1", "b", "nr")], &["a"], &[]),
    ];
    for (i, (strategy, pods, made, deleted)) in table.iter().enumerate() {
        let set = set((*strategy).clone(), json!({}));
        let mut by_node = ByNode::new();
        for (name, node, how) in *pods {
            let (node, pod) = pod(name, node, how);
            by_node.entry(node).or_default().push(pod);
        }
        let plan = plan::plan(&set, &nodes, &by_node, "new", at(100));
        let gone: Vec<_> = plan.delete.iter().map(|p| p.metadata.name.as_str()).collect();
        assert_eq!(
            (plan.create.as_slice(), gone.as_slice()),
            (&made.iter().map(ToString::to_string).collect::<Vec<_>>()[..], *deleted),
            "row {i}"
        );
        assert!(plan.ended.is_empty());
    }
}

#[test]
fn what_the_status_says() {
    let nodes = [
        node("a", json!({})),
        node("b", json!({})),
        node("c", json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})),
    ];
    let set = set(rolling(json!(0), json!("100%")), json!({}));
    let mut by_node: ByNode = BTreeMap::new();
    for (node, pod) in [pod("a1", "a", "nr"), pod("b1", "b", "y"), pod("b2", "b", "f"), pod("c1", "c", "r")] {
        by_node.entry(node).or_default().push(pod);
    }
    let plan = plan::plan(&set, &nodes, &by_node, "new", at(100));
    assert_eq!(plan.ended.len(), 1);
    assert_eq!(
        json!(plan.status),
        json!({"currentNumberScheduled": 2, "numberMisscheduled": 1, "desiredNumberScheduled": 2, "numberReady": 2,
            "observedGeneration": 3, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 1})
    );
    assert_eq!(plan.again, Some(SignedDuration::from_secs(8)));
}

/// `ReplaceDaemonSetPodNodeNameNodeAffinity`, `CreatePodTemplate`.
#[test]
fn pods_go_to_their_node_only() {
    let preferred = json!([{"weight": 1, "preference": {}}]);
    let spec = json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
    for spec in [spec, json!({}), json!({"affinity": null}), json!({"affinity": {"nodeAffinity": null}})] {
        let set = set(json!({"type": "OnDelete"}), spec.clone());
        let pod = place::pod(&set, &place::tolerations(&set), "h", "n7");
        assert_eq!(place::target(&pod).as_deref(), Some("n7"), "{spec}");
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"a": "b", "controller-revision-hash": "h", "pod-template-generation": "7"})
        );
        let kept =
            &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert!(kept.is_null() || *kept == preferred);
    }
    assert_eq!(place::target(&json!({"spec": {}})), None);
}
