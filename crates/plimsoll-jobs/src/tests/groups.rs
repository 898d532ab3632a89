//! Pods with prebuilt workloads, and what workloads of pods get from them.

use plimsoll_api::kueue::{QuotaRelease, QuotaReleaseStrategy};

use super::*;
use crate::affected;
use crate::generic_job::GenericJob;

fn key() -> Key {
    Key::PodGroup("ns".into(), "g".into())
}

#[test]
fn labels_of_a_group_are_copied_unless_they_differ() {
    let mut cache = cache();
    cache.config.label_keys_to_copy = vec!["team".into(), "cost".into()];
    cache.put(Kind::Pod, member("a", &json!({})));
    cache.put(Kind::Pod, member("b", &json!({"metadata|labels|team": "x"})));
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["metadata"]["labels"], json!({"team": "x"}), "from any of the pods");
    cache.put(Kind::Pod, member("a", &json!({"metadata|labels|team": "y"})));
    let text = "ErrWorkloadCompose: constructing workload: pods have different label values";
    assert_eq!(short(&run(&cache, &key())), [text]);
    cache.config.label_keys_to_copy.clear();
    cache.config.annotation_keys_to_copy = vec!["kind".into()];
    cache.put(Kind::Pod, member("a", &json!({"metadata|annotations|kind": "k"})));
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["metadata"]["annotations"]["kind"], "k");
    cache.put(Kind::Pod, member("b", &json!({"metadata|annotations|kind": "l"})));
    let text = "ErrWorkloadCompose: constructing workload: pods have different annotation values";
    assert_eq!(short(&run(&cache, &key())), [text]);
}

#[test]
fn all_members_own_a_prebuilt_workload() {
    let mut cache = cache();
    // A user who creates the workload may leave out the annotation that says that it is a group's.
    for (prebuilt, annotations) in [
        ("metadata|labels|kueue.x-k8s.io/prebuilt-workload-name", json!({names::IS_GROUP: "true"})),
        ("metadata|annotations|kueue.x-k8s.io/prebuilt-workload-name", json!({names::IS_GROUP: "true"})),
        ("metadata|labels|kueue.x-k8s.io/prebuilt-workload-name", json!({})),
    ] {
        cache.remove(Kind::Pod, "ns", "b", "");
        cache.put(Kind::Pod, member("a", &json!({prebuilt: "g"})));
        let podset = json!({"name": "aaaa", "count": 2, "template": {"spec": {}}});
        let wl = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "wl-uid", "resourceVersion": "6",
            "annotations": annotations}, "spec": {"podSets": [podset]}});
        let mut wl = admit(&wl, &json!([{"name": "aaaa", "count": 2, "flavors": {"cpu": "f"}}]));
        cache.put(Kind::Workload, wl.clone());
        for (pod, owners) in [("a", 1), ("b", 2)] {
            cache.put(Kind::Pod, member(pod, &json!({prebuilt: "g"})));
            let writes = run(&cache, &key());
            assert!(short(&writes)[1].starts_with("OwnerReferencesAdded: Added 1 "), "{writes:?}");
            let by = |write: &Write| match write {
                Write::Event(event) => event.reporting_controller.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!(by(&writes[1]), "pod-kueue-controller");
            let refs = body(&writes, 0)["metadata"]["ownerReferences"].clone();
            assert_eq!(refs.as_array().unwrap().len(), owners);
            assert!(refs.as_array().unwrap().iter().all(|o| o["controller"].is_null()), "{refs}");
            json::set(&mut wl, &["metadata", "ownerReferences"], refs);
            cache.put(Kind::Workload, wl.clone());
        }
        let keys = affected(Kind::Workload, &wl, &cache.objects);
        assert!(keys.contains(&key()), "{keys:?}");
        // Admitted whole, after the condition that says that no pod is missing any more.
        let started = (0..3).any(|_| {
            let writes = run(&cache, &key());
            if let Some(Write::Patch { subresource: "status", body, .. }) = writes.first() {
                json_patch_merge(&mut wl, body);
                cache.put(Kind::Workload, wl.clone());
            }
            short(&writes).iter().filter(|w| w.starts_with("patch pods")).count() == 2
        });
        assert!(started, "{prebuilt}");
    }
}

#[test]
fn a_group_with_fast_admission_is_whole_with_its_first_pod() {
    for (fast, waits) in [("true", false), ("false", true)] {
        let mut cache = cache();
        let fast = json!({"metadata|annotations|kueue.x-k8s.io/pod-group-fast-admission": fast});
        cache.put(Kind::Pod, member("a", &fast));
        let podset = json!({"name": "aaaa", "count": 2, "template": {"spec": {}}});
        let wl = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "wl-uid", "resourceVersion": "6",
            "annotations": {names::IS_GROUP: "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a"}]},
            "spec": {"podSets": [podset], "queueName": "q"}});
        cache.put(Kind::Workload, wl);
        let writes = run(&cache, &key());
        assert_eq!(
            short(&writes).contains(&"patch workloads g status".to_owned()),
            waits,
            "{:?}",
            short(&writes)
        );
    }
}

#[test]
fn topology_requests_name_the_label_of_the_index() {
    let mut cache = cache();
    let required = "metadata|annotations|kueue.x-k8s.io/podset-required-topology";
    cache.put(Kind::Pod, pod("p", &json!({required: "rack"})));
    let writes = run(&cache, &Key::job(POD, "ns", "p"));
    let request = |writes: &[Write]| body(writes, 0)["spec"]["podSets"][0]["topologyRequest"].clone();
    let label = "kueue.x-k8s.io/pod-group-pod-index";
    assert_eq!(request(&writes), json!({"required": "rack", "podIndexLabel": label}));
    let mut own = job();
    let path = ["spec", "template", "metadata", "annotations", "kueue.x-k8s.io/podset-required-topology"];
    json::set(&mut own, &path, json!("rack"));
    cache.put(Kind::Job, own);
    let label = "batch.kubernetes.io/job-completion-index";
    let writes = run(&cache, &super::key());
    assert_eq!(request(&writes), json!({"required": "rack", "podIndexLabel": label}), "also not indexed");
}

/// A pod in this phase; `deleted`: how long ago it was deleted, and its grace period, in seconds.
fn in_phase(name: &str, phase: &str, deleted: Option<(i64, i64)>) -> Value {
    let mut pod =
        member(name, &json!({"spec|schedulingGates": [], "spec|nodeName": "n", "status|phase": phase}));
    if let Some((ago, grace)) = deleted {
        let at = Time::from_seconds(1_700_000_000 - ago);
        json::set(&mut pod, &["metadata", "deletionTimestamp"], json!(plimsoll_api::timestamp::text(at)));
        json::set(&mut pod, &["metadata", "deletionGracePeriodSeconds"], json!(grace));
    }
    pod
}

/// Kueue's `TestIsActive` (`pod_controller_test.go`), but for pods that outlive their grace period: Kueue's default no longer
/// counts them.
#[test]
fn groups_are_active_as_long_as_their_strategy_says() {
    use QuotaReleaseStrategy::{OnQuotaReleased, OnTerminal};
    // Phases and deletions of the pods; whether the group is active with each strategy.
    type Row = (&'static [(&'static str, Option<(i64, i64)>)], bool, bool);
    let table: [Row; 9] = [
        (&[("Pending", None)], false, false),
        (&[("Succeeded", None), ("Failed", None)], false, false),
        (&[("Pending", None), ("Running", None)], true, true),
        (&[("Running", Some((60, 30)))], false, true),
        (&[("Running", Some((60, 30))), ("Succeeded", None), ("Running", Some((60, 90)))], false, true),
        (&[("Running", Some((10, 90)))], false, true),
        (&[("Running", Some((10, 90))), ("Running", None)], true, true),
        (&[("Running", Some((10, 90))), ("Running", Some((5, 300)))], false, true),
        (&[("Pending", Some((5, 30))), ("Failed", Some((5, 30)))], false, true),
    ];
    for (pods, fast, slow) in table {
        let mut cache = cache();
        for (n, (phase, deleted)) in pods.iter().enumerate() {
            cache.put(Kind::Pod, in_phase(&format!("p{n}"), phase, *deleted));
        }
        let group = crate::pod::group::Group::load("ns", "g", cache.env(NOW)).unwrap();
        let active = [OnQuotaReleased, OnTerminal].map(|release| group.is_active(release));
        assert_eq!(active, [fast, slow], "{pods:?}");
    }
}

/// Gate FastQuotaReleaseInPodIntegration.
#[test]
fn evicted_pods_release_their_quota_as_the_gate_says() {
    let mut cache = cache();
    let assigned = json!([{"name": "aaaa", "count": 2, "flavors": {"cpu": "f"}}]);
    for name in ["a", "b"] {
        cache.put(Kind::Pod, member(name, &json!({})));
    }
    let mut wl = admit(body(&run(&cache, &key()), 0), &assigned);
    condition(&mut wl, "Evicted", "Preempted", "go");
    cache.put(Kind::Workload, wl.clone());
    cache.put(Kind::Pod, in_phase("a", "Running", Some((1, 30))));
    cache.put(Kind::Pod, in_phase("b", "Running", None));
    let released = |cache: &Fixture, key: &Key| {
        let writes = short(&run(cache, key));
        writes.iter().any(|w| w.starts_with("stopped") || w.starts_with("ended"))
    };
    let fast = QuotaRelease { pods: QuotaReleaseStrategy::OnQuotaReleased, ..QuotaRelease::default() };
    for release in [QuotaRelease::default(), fast] {
        cache.config.quota_release = release;
        assert!(short(&run(&cache, &key())).contains(&"delete pods b".to_owned()), "it runs and is stopped");
        assert!(!released(&cache, &key()));
    }
    cache.put(Kind::Pod, in_phase("b", "Running", Some((0, 30))));
    assert!(released(&cache, &key()));
    cache.config.quota_release = QuotaRelease::default();
    assert!(!released(&cache, &key()));
    for name in ["a", "b"] {
        cache.put(Kind::Pod, in_phase(name, "Failed", Some((1, 30))));
    }
    // After the condition that says that pods are missing.
    let rows = body(&run(&cache, &key()), 0)["status"]["conditions"].clone();
    json::set(&mut wl, &["status", "conditions"], rows);
    cache.put(Kind::Workload, wl);
    assert!(released(&cache, &key()));
}

/// A single pod is not queued again, and its finalizer stays until it has ended, so that its end is seen.
#[test]
fn an_evicted_single_pod_releases_its_quota_once() {
    let mut cache = cache();
    cache.put(Kind::Pod, pod("p", &json!({})));
    let key = Key::job(POD, "ns", "p");
    let mut wl = admit(body(&run(&cache, &key), 0), &json!([{"name": "main", "count": 1}]));
    let mut going = pod(
        "p",
        &json!({"spec|schedulingGates": [], "spec|nodeName": "n", "status|phase": "Running",
        "metadata|deletionTimestamp": "2023-11-14T22:13:20Z"}),
    );
    json::set(&mut going, &["metadata", "finalizers"], json!([names::MANAGED]));
    cache.config.quota_release =
        QuotaRelease { pods: QuotaReleaseStrategy::OnQuotaReleased, ..QuotaRelease::default() };
    // Deleted by its user: nothing before its end.
    cache.put(Kind::Pod, going.clone());
    cache.put(Kind::Workload, wl.clone());
    assert_eq!(short(&run(&cache, &key)), [""; 0]);
    condition(&mut wl, "Evicted", "Preempted", "go");
    cache.put(Kind::Workload, wl.clone());
    assert_eq!(short(&run(&cache, &key)), [format!("ended {}", json::name(&wl))]);
    let rows = set_status_condition(&wl, "QuotaReserved", false, "PendingEvaluation", "go", NOW).unwrap();
    json::set(&mut wl, &["status", "conditions"], Value::Array(rows));
    cache.put(Kind::Workload, wl);
    assert_eq!(short(&run(&cache, &key)), [""; 0], "it still runs");
    json::set(&mut going, &["status", "phase"], json!("Failed"));
    cache.put(Kind::Pod, going);
    assert!(short(&run(&cache, &key)).contains(&"patch pods p ".to_owned()));
}

/// Terminating members would make a workload of their own.
#[test]
fn a_group_that_goes_makes_no_workload() {
    let mut cache = cache();
    cache.config.quota_release =
        QuotaRelease { pods: QuotaReleaseStrategy::OnQuotaReleased, ..QuotaRelease::default() };
    for name in ["a", "b"] {
        cache.put(Kind::Pod, in_phase(name, "Running", Some((1, 30))));
    }
    assert_eq!(short(&run(&cache, &key())), [""; 0]);
}

/// Kueue's `recordAdmissionCheckUpdate` records on each member, all else on the first one.
#[test]
fn members_are_told_what_pending_checks_say() {
    let mut cache = cache();
    for name in ["a", "b"] {
        cache.put(Kind::Pod, member(name, &json!({})));
    }
    let writes = run(&cache, &key());
    assert_eq!(short(&writes), ["create workloads g", "CreatedWorkload: Created Workload: ns/g"]);
    let mut wl = body(&writes, 0).clone();
    json::set(&mut wl, &["metadata", "resourceVersion"], json!("6"));
    json::set(&mut wl, &["metadata", "uid"], json!("wl-uid"));
    let check =
        |name: &str, state: &str, message: &str| json!({"name": name, "state": state, "message": message});
    let checks = [
        check("x", "Pending", "ETA 5m"),
        check("y", "Ready", "there"),
        check("z", "Pending", ""),
        check("w", "Pending", "asked"),
    ];
    json::set(&mut wl, &["status", "admissionChecks"], json!(checks));
    cache.put(Kind::Workload, wl.clone());
    assert_eq!(short(&run(&cache, &key())), [""; 0], "no quota is reserved");
    condition(&mut wl, "QuotaReserved", "QuotaReserved", "m");
    json::set(&mut wl, &["metadata", "resourceVersion"], json!("7"));
    cache.put(Kind::Workload, wl);
    let text = "UpdatedAdmissionCheck: x: ETA 5m; w: asked";
    assert_eq!(short(&run(&cache, &key())), [text, text]);
}
