//! Sets and their pods, and what their webhooks refuse. The tables follow Kueue's `statefulset_*_test.go` and
//! `leaderworkerset_*_test.go`.

use std::collections::BTreeSet;

use plimsoll_state::Time;
use serde_json::json;

use super::*;
use crate::testing::Fixture;
use crate::webhook::{Operation, mutate, validate};
use crate::{Config, CustomKind, reconcile};

const NOW: Time = Time::from_seconds(1_700_000_000);
const LWS: &str = leader_worker_set::FRAMEWORK;

fn spec(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]})
}

fn object(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1",
        "labels": {names::QUEUE: "q"}}, "spec": spec})
}

fn set(replicas: i64) -> Value {
    let metadata = json!({"annotations": {names::SUSPENDING_PARENT: config::STATEFUL_SET}});
    object("db", &json!({"replicas": replicas, "template": {"metadata": metadata, "spec": spec("1")}}))
}

fn pod(name: &str, parent: &str, owner: (&str, &str, &str)) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1",
            "annotations": {names::SUSPENDING_PARENT: parent},
            "ownerReferences": [{"apiVersion": owner.0, "kind": owner.1, "name": owner.2, "uid": owner.2, "controller": true}]},
        "spec": {"schedulingGates": [{"name": names::GATE}], "containers": spec("1")["containers"]}})
}

fn body(write: Option<&Write>) -> &Value {
    match write {
        Some(Write::Patch { body, .. }) => body,
        other => panic!("{other:?}"),
    }
}

fn created(plan: &Plan) -> Vec<&Value> {
    plan.iter().filter_map(|w| if let Write::Create(_, object) = w { Some(object) } else { None }).collect()
}

fn with_uid(wl: &Value) -> Value {
    let mut wl = wl.clone();
    wl["metadata"]["uid"] = wl["metadata"]["name"].clone();
    json::set(&mut wl, &["metadata", "resourceVersion"], "1".into());
    wl
}

fn reserved(wl: &Value) -> Value {
    let mut wl = wl.clone();
    let conditions =
        json!([{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}]);
    json::set(&mut wl, &["status"], json!({"admission": {"clusterQueue": "cq"}, "conditions": conditions}));
    wl
}

#[test]
fn sets_that_a_manager_has_dispatched_wait_for_its_workloads() {
    for (kind, framework) in [(Kind::StatefulSet, config::STATEFUL_SET), (leader_worker_set::KIND, LWS)] {
        let mut fixture = Fixture::default();
        let mut theirs = set(1);
        theirs["spec"]["leaderWorkerTemplate"] = json!({"size": 2, "workerTemplate": {"spec": spec("1")}});
        let key = Key::job(framework, "ns", "db");
        fixture.put(kind, theirs.clone());
        let own = json::name(created(&reconcile(&key, fixture.env(NOW)))[0]).to_owned();
        theirs["metadata"]["uid"] = json!("other");
        theirs["metadata"]["resourceVersion"] = json!("2");
        json::set(&mut theirs, &["metadata", "labels", names::ORIGIN], json!("multikueue"));
        json::set(&mut theirs, &["metadata", "annotations", names::ORIGIN_UID], json!("db"));
        fixture.put(kind, theirs);
        assert_eq!(reconcile(&key, fixture.env(NOW)), Plan::new());
        // It has the name that the manager's has there, and the set becomes its owner.
        let copy = json!({"metadata": {"namespace": "ns", "name": own, "uid": "w", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "other"}]},
            "spec": {"podSets": [{"name": "main", "count": if kind == Kind::StatefulSet { 1 } else { 2 }}]}});
        fixture.put(Kind::Workload, copy);
        let plan = reconcile(&key, fixture.env(NOW));
        assert!(plan.iter().all(|w| !matches!(w, Write::Delete { .. } | Write::Create(..))), "{plan:?}");
    }
}

#[test]
fn a_stateful_set_has_one_workload_for_all_pods() {
    let mut fixture = Fixture::default();
    let key = Key::job(config::STATEFUL_SET, "ns", "db");
    fixture.put(Kind::StatefulSet, set(3));
    let plan = reconcile(&key, fixture.env(NOW));
    let wl = with_uid(created(&plan)[0]);
    let name = json::name(&wl).to_owned();
    assert!(name.starts_with("statefulset-db-"), "{name}");
    let podset = &wl["spec"]["podSets"][0];
    assert_eq!((&podset["name"], &podset["count"]), (&json!("main"), &json!(3)));
    assert_eq!(podset["topologyRequest"]["podIndexLabel"], "apps.kubernetes.io/pod-index");
    assert_eq!(json::annotation(&wl, names::IS_GROUP), Some("true"));
    fixture.put(Kind::Workload, wl.clone());
    assert_eq!(reconcile(&key, fixture.env(NOW)), Plan::new());
    // Its group waits for pods, and the workload is nobody's orphan.
    let group = Key::PodGroup("ns".to_owned(), name.clone());
    assert_eq!(reconcile(&group, fixture.env(NOW)), Plan::new());

    // A pod joins the group.
    let first = pod("db-0", config::STATEFUL_SET, ("apps/v1", "StatefulSet", "db"));
    fixture.put(Kind::Pod, first.clone());
    let keys = crate::affected(Kind::Pod, &first, &fixture);
    let own = Key::job(config::POD, "ns", "db-0");
    assert!(keys.contains(&own) && keys.contains(&key), "{keys:?}");
    let plan = reconcile(&own, fixture.env(NOW));
    let metadata = &body(plan.first())["metadata"];
    assert_eq!(metadata["labels"], json!({names::MANAGED: "true", names::QUEUE: "q"}));
    let annotations = &metadata["annotations"];
    assert_eq!((&annotations[GROUP], &annotations[names::PREBUILT]), (&json!(name), &json!(name)));
    assert_eq!(
        (&annotations[names::GROUP_COUNT], &annotations[names::ROLE_HASH]),
        (&json!("3"), &json!("main"))
    );

    // Admitted from its first pod on: the others come when this one is ready.
    let mut member = first;
    for (kind, values) in [("labels", &metadata["labels"]), ("annotations", annotations)] {
        for (k, v) in values.as_object().unwrap() {
            json::set(&mut member, &["metadata", kind, k], v.clone());
        }
    }
    fixture.put(Kind::Pod, member.clone());
    let plan = reconcile(&group, fixture.env(NOW));
    assert_eq!(body(plan.first())["metadata"]["ownerReferences"][1]["uid"], "db-0", "{plan:?}");

    // No pods: quota is kept until the last one has gone, then the workload is on hold.
    let mut with_nodes = reserved(&wl);
    let nodes = json!({"type": names::NODES_RESERVED, "status": "True", "reason": "NodesReserved"});
    with_nodes["status"]["conditions"].as_array_mut().unwrap().push(nodes);
    fixture.put(Kind::Workload, with_nodes);
    fixture.put(Kind::StatefulSet, set(0));
    json::set(&mut member, &["spec", "nodeName"], json!("n"));
    fixture.put(Kind::Pod, member);
    assert_eq!(reconcile(&key, fixture.env(NOW)), Plan::new());
    fixture.remove(Kind::Pod, "ns", "db-0", "db-0");
    let plan = reconcile(&key, fixture.env(NOW));
    let status = &body(plan.first())["status"];
    assert_eq!((&status["admission"], &status["conditions"][0]["reason"]), (&Value::Null, &json!("OnHold")));
    assert!(!json::is_true(body(plan.first()), names::NODES_RESERVED), "{status}");
    assert!(json::condition(body(plan.first()), names::NODES_RESERVED).is_some(), "{status}");
    let mut held = wl.clone();
    held["status"] = status.clone();
    json::remove(&mut held, &["status", "admission"]);
    fixture.put(Kind::Workload, held);
    assert_eq!(reconcile(&key, fixture.env(NOW)), Plan::new());
    // Another number of pods is another podset, and then it is queued again.
    fixture.put(Kind::StatefulSet, set(2));
    let plan = reconcile(&key, fixture.env(NOW));
    assert_eq!(body(plan.first())["spec"]["podSets"][0]["count"], 2);
    fixture.put(Kind::StatefulSet, set(3));
    let plan = reconcile(&key, fixture.env(NOW));
    assert_eq!(body(plan.first())["status"]["conditions"][0]["reason"], "PendingEvaluation");
    // Charged for another number: it has to go first.
    fixture.put(Kind::Workload, reserved(&wl));
    fixture.put(Kind::StatefulSet, set(2));
    assert!(matches!(reconcile(&key, fixture.env(NOW)).as_slice(), [Write::Delete { .. }]));
}

/// A workload that Kueue made before names had the UID in them is taken over.
#[test]
fn a_set_keeps_the_workload_that_has_its_old_name() {
    let mut fixture = Fixture::default();
    let key = Key::job(config::STATEFUL_SET, "ns", "db");
    fixture.put(Kind::StatefulSet, set(3));
    let plan = reconcile(&key, fixture.env(NOW));
    let mut wl = with_uid(created(&plan)[0]);
    let old = plimsoll_api::kueue::WorkloadNames::Long.of("StatefulSet", "apps", "db", "");
    json::set(&mut wl, &["metadata", "name"], json!(old));
    let owners = wl["metadata"]["ownerReferences"].clone();
    json::remove(&mut wl, &["metadata", "ownerReferences"]);
    fixture.put(Kind::Workload, wl);
    let plan = reconcile(&key, fixture.env(NOW));
    assert_eq!(body(plan.first())["metadata"]["ownerReferences"], owners);
    assert_eq!(plan.len(), 1, "{plan:?}");
    fixture.put(Kind::Pod, pod("db-0", config::STATEFUL_SET, ("apps/v1", "StatefulSet", "db")));
    let plan = reconcile(&Key::job(config::POD, "ns", "db-0"), fixture.env(NOW));
    assert_eq!(body(plan.first())["metadata"]["annotations"][GROUP], old);
}

/// A gated pod of the revision that a rolling update replaces is let go.
#[test]
fn pods_that_are_replaced_are_let_go() {
    let mut fixture = Fixture::default();
    let mut set = set(1);
    let group = plimsoll_api::kueue::WorkloadNames::Long.of("StatefulSet", "apps", "db", "db");
    set["status"] = json!({"currentRevision": "a", "updateRevision": "b"});
    fixture.put(Kind::StatefulSet, set);
    let mut gated = pod("db-0", config::STATEFUL_SET, ("apps/v1", "StatefulSet", "db"));
    json::set(&mut gated, &["metadata", "annotations", GROUP], json!(group));
    json::set(&mut gated, &["metadata", "labels"], json!({names::QUEUE: "q", REVISION: "a"}));
    let gates = |fixture: &Fixture| {
        let plan = reconcile(&Key::job(config::STATEFUL_SET, "ns", "db"), fixture.env(NOW));
        plan.iter()
            .any(|w| matches!(w, Write::Patch { body, .. } if body["spec"]["schedulingGates"] == json!([])))
    };
    fixture.put(Kind::Pod, gated.clone());
    assert!(gates(&fixture));
    json::set(&mut gated, &["metadata", "labels", REVISION], json!("b"));
    fixture.put(Kind::Pod, gated);
    assert!(!gates(&fixture));
}

fn leader_worker_set(replicas: i64) -> Value {
    let template = json!({"metadata": {"labels": {"own": "x"}}, "spec": spec("1")});
    object(
        "lws",
        &json!({"replicas": replicas, "leaderWorkerTemplate":
        {"size": 4, "leaderTemplate": template, "workerTemplate": template}}),
    )
}

#[test]
fn each_group_of_a_leader_worker_set_has_a_workload() {
    let mut fixture = Fixture::default();
    let kind = Kind::Custom(CustomKind::LEADER_WORKER_SET);
    let key = Key::job(LWS, "ns", "lws");
    fixture.put(kind, leader_worker_set(2));
    let plan = reconcile(&key, fixture.env(NOW));
    let made: Vec<Value> = created(&plan).into_iter().map(with_uid).collect();
    assert_eq!(made.len(), 2);
    let counts = |wl: &Value| -> Vec<(String, i64)> {
        let podset = |p: &Value| (json::text(p, &["name"]).to_owned(), p["count"].as_i64().unwrap());
        json::list(wl, &["spec", "podSets"]).iter().map(podset).collect()
    };
    for (i, wl) in made.iter().enumerate() {
        assert!(json::name(wl).starts_with(&format!("leaderworkerset-lws-{i}-")), "{wl}");
        assert_eq!(counts(wl), [("leader".to_owned(), 1), ("worker".to_owned(), 3)]);
        assert_eq!(
            json::annotation(wl, "kueue.x-k8s.io/component-workload-index"),
            Some(i.to_string().as_str())
        );
        fixture.put(Kind::Workload, wl.clone());
    }
    assert_eq!(reconcile(&key, fixture.env(NOW)), Plan::new());

    // Leaders and workers join when their controller has labelled them.
    let join = |fixture: &mut Fixture, labels: Value, annotations: Value| {
        let mut pod = pod("p", LWS, ("apps/v1", "StatefulSet", "lws"));
        json::set(&mut pod, &["metadata", "labels"], labels);
        for (k, v) in annotations.as_object().unwrap() {
            json::set(&mut pod, &["metadata", "annotations", k], v.clone());
        }
        fixture.put(Kind::Pod, pod);
        let plan = reconcile(&Key::job(config::POD, "ns", "p"), fixture.env(NOW));
        (!plan.is_empty()).then(|| body(plan.first())["metadata"]["annotations"].clone())
    };
    let name = "leaderworkerset.sigs.k8s.io/name";
    let index = "leaderworkerset.sigs.k8s.io/group-index";
    assert_eq!(join(&mut fixture, json!({name: "lws"}), json!({})), None);
    let leader = join(&mut fixture, json!({name: "lws", index: "1"}), json!({})).unwrap();
    assert_eq!((&leader[GROUP], &leader[names::ROLE_HASH]), (&json!(json::name(&made[1])), &json!("leader")));
    assert_eq!(leader[names::GROUP_COUNT], "4");
    let of = json!({"leaderworkerset.sigs.k8s.io/leader-name": "lws-1"});
    let worker = join(&mut fixture, json!({name: "lws", index: "1"}), of).unwrap();
    assert_eq!(worker[names::ROLE_HASH], "worker");

    // Of fewer groups the last ones go.
    fixture.put(kind, leader_worker_set(1));
    let plan = reconcile(&key, fixture.env(NOW));
    assert!(
        matches!(plan.as_slice(), [Write::Delete { name, .. }] if name == json::name(&made[1])),
        "{plan:?}"
    );
    // Nothing runs for it.
    let mut going = made[1].clone();
    json::set(&mut going, &["metadata", "deletionTimestamp"], json!("2026-01-01T00:00:00Z"));
    fixture.put(Kind::Workload, going);
    let plan = reconcile(&Key::PodGroup("ns".into(), json::name(&made[1]).into()), fixture.env(NOW));
    assert_eq!(body(plan.first())["metadata"]["finalizers"], json!([]));
    fixture.put(Kind::Workload, made[1].clone());
    // Not too many at once.
    fixture.put(kind, leader_worker_set(1000));
    let plan = reconcile(&key, fixture.env(NOW));
    assert_eq!((created(&plan).len(), plan.last()), (256, Some(&Write::RequeueAfter(RETRY))));
    let mut alone = leader_worker_set(1);
    json::remove(&mut alone, &["spec", "leaderWorkerTemplate", "leaderTemplate"]);
    json::set(&mut alone, &["metadata", "uid"], json!("other"));
    fixture.put(kind, alone);
    let plan = reconcile(&key, fixture.env(NOW));
    assert_eq!(counts(created(&plan)[0]), [("main".to_owned(), 4)]);
}

fn review<'a>(group: &'a str, plural: &'a str, old: Option<&'a Value>) -> Review<'a> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    Review { group, plural, operation, namespace: "ns", old }
}

fn refusal(group: &str, plural: &str, old: &Value, new: &Value) -> String {
    let fixture = Fixture::default();
    let outcome = validate(&review(group, plural, Some(old)), new, fixture.env(NOW));
    outcome.map_or_else(|denied| denied.message, |_| String::new())
}

#[test]
fn sets_change_only_what_their_workloads_allow() {
    let with = |object: &Value, path: &[&str], value: Value| {
        let mut object = object.clone();
        json::set(&mut object, path, value);
        object
    };
    let sets = |old: &Value, new: &Value| refusal("apps", "statefulsets", old, new);
    assert_eq!(sets(&set(3), &set(0)), "");
    assert_eq!(sets(&set(0), &set(2)), "");
    assert_eq!(sets(&set(3), &set(2)), "spec.replicas: Invalid value: 2: field is immutable");
    let busy = with(&set(2), &["status", "replicas"], json!(1));
    assert_eq!(sets(&set(0), &busy), "spec.replicas: Forbidden: scaling down is still in progress");
    let mut other = set(3);
    other["spec"]["template"]["spec"] = spec("2");
    let want = "spec.template.spec.containers[0].resources.requests: Invalid value: {\"cpu\":\"2\"}: field is immutable";
    assert_eq!(sets(&set(3), &other), want);
    other["spec"]["template"]["spec"] = spec("1");
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("newer");
    assert_eq!(sets(&set(3), &other), "");
    let deleted =
        |object: &Value| with(object, &["metadata", "deletionTimestamp"], json!("2026-01-01T00:00:00Z"));
    assert_eq!(sets(&deleted(&set(3)), &deleted(&set(2))), "");
    // One of another framework is that one's.
    let path = ["spec", "template", "metadata", "annotations", names::SUSPENDING_PARENT];
    assert_eq!(sets(&set(3), &with(&set(2), &path, json!(LWS))), "");

    let lws =
        |new: &Value| refusal("leaderworkerset.x-k8s.io", "leaderworkersets", &leader_worker_set(2), new);
    assert_eq!(lws(&leader_worker_set(3)), "");
    let template = ["spec", "leaderWorkerTemplate"];
    let bigger = with(&leader_worker_set(2), &[template[0], template[1], "size"], json!(5));
    assert_eq!(lws(&bigger), "spec.leaderWorkerTemplate.size: Invalid value: 5: field is immutable");
    assert!(
        lws(&leader_worker_set(-1)).starts_with("spec.replicas: Invalid value: -1: invalid LeaderWorkerSet")
    );
    let mut alone = leader_worker_set(2);
    json::remove(&mut alone, &["spec", "leaderWorkerTemplate", "leaderTemplate"]);
    let want = "spec.leaderWorkerTemplate.leaderTemplate: Invalid value: \"null\": field is immutable";
    assert_eq!(lws(&alone), want);
    let path = [template[0], template[1], "leaderTemplate", "spec"];
    let want =
        "spec.leaderWorkerTemplate.leaderTemplate.spec.containers[0].resources.requests: Invalid value";
    assert!(lws(&with(&leader_worker_set(2), &path, spec("2"))).starts_with(want));
}

#[test]
fn a_set_is_scaled_up_when_its_workload_is_on_hold() {
    let name = plimsoll_api::kueue::WorkloadNames::Long.of("StatefulSet", "apps", "db", "db");
    let old = set(0);
    let refused = |reason: &str| {
        let mut fixture = Fixture::default();
        let conditions = json!([{"type": "QuotaReserved", "status": "False", "reason": reason}]);
        let wl = json!({"metadata": {"namespace": "ns", "name": name, "uid": "wu"}, "status": {"conditions": conditions}});
        fixture.put(Kind::Workload, wl);
        let outcome = validate(&review("apps", "statefulsets", Some(&old)), &set(2), fixture.env(NOW));
        outcome.err().map(|denied| denied.message)
    };
    assert_eq!(refused("OnHold"), None);
    let want = "spec.replicas: Forbidden: workload from previous scale-down is still being deleted";
    assert_eq!(refused("Pending").as_deref(), Some(want));
}

/// Kueue's webhooks of these kinds check the queue alone, and nothing where the framework is off.
#[test]
fn labels_that_pods_do_not_follow_are_not_checked() {
    let label = |object: &Value, key: &str, value: &str| {
        let mut object = object.clone();
        json::set(&mut object, &["metadata", "labels", key], json!(value));
        object
    };
    let none = Fixture::with_config(Config { frameworks: BTreeSet::new(), ..Config::default() });
    let mut deployment = set(3);
    json::remove(&mut deployment, &["spec", "template", "metadata"]);
    for (group, plural, object) in [
        ("apps", "deployments", deployment),
        ("apps", "statefulsets", set(3)),
        ("leaderworkerset.x-k8s.io", "leaderworkersets", leader_worker_set(2)),
    ] {
        let go = |fixture: &Fixture, object: &Value| {
            validate(&review(group, plural, None), object, fixture.env(NOW)).map_err(|denied| denied.message)
        };
        let fixture = Fixture::default();
        let other = label(&label(&object, names::MAX_EXEC_TIME, "x"), names::PREBUILT, "A b");
        assert_eq!(go(&fixture, &other), Ok(Vec::new()), "{plural}");
        let bad = label(&object, names::QUEUE, "A b");
        let want = "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"A b\": a lowercase RFC 1123";
        assert!(go(&fixture, &bad).unwrap_err().starts_with(want), "{plural}");
        let warnings = go(&none, &bad).unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains("pods run without quota"), "{warnings:?}");
    }
}

#[test]
fn templates_are_marked_and_pods_gated() {
    let fixture = Fixture::default();
    let mut made = leader_worker_set(1);
    mutate(&review("leaderworkerset.x-k8s.io", "leaderworkersets", None), &mut made, fixture.env(NOW));
    let annotations =
        |role: &str| made["spec"]["leaderWorkerTemplate"][role]["metadata"]["annotations"].clone();
    let leader = json!({names::SUSPENDING_PARENT: LWS, names::GROUP_SERVING: "true"});
    assert_eq!(annotations("leaderTemplate"), leader);
    assert_eq!(annotations("workerTemplate")["kueue.x-k8s.io/pod-index-offset"], "1");
    let labels = &made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"];
    assert_eq!(labels, &json!({"own": "x", names::QUEUE: "q"}));

    let mut made = object("db", &json!({"template": {"spec": spec("1")}}));
    mutate(&review("apps", "statefulsets", None), &mut made, fixture.env(NOW));
    let metadata = json!({"annotations": {names::SUSPENDING_PARENT: "statefulset"}});
    assert_eq!(made["spec"]["template"]["metadata"], metadata);
    // A pod of it is gated; what makes it a member follows.
    let mut pod = made["spec"]["template"].clone();
    mutate(&review("", "pods", None), &mut pod, fixture.env(NOW));
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": names::GATE}, {"name": names::TOPOLOGY_GATE}])
    );
    assert_eq!(pod["metadata"], metadata);
}
