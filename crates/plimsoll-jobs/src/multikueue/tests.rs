use plimsoll_api::kueue::Dispatcher;
use plimsoll_api::resource::{JOBS, WORKLOADS};
use serde_json::{Value, json};

use super::*;
use crate::testing::Fixture;

mod autoscaled;
mod earliest;
mod edits;
mod lacks;
mod preemption;
mod quota;
mod sets;

const NOW: Time = Time::from_seconds(1_700_000_000);
/// What `NOW` is in objects.
const NOW_TEXT: &str = "2023-11-14T22:13:20Z";

fn key() -> WorkloadKey {
    WorkloadKey { namespace: "ns".into(), name: "job-a".into() }
}

fn named(name: &str) -> WorkloadKey {
    WorkloadKey { namespace: "ns".into(), name: name.into() }
}

fn condition(kind: &str, at: u32) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "m",
           "lastTransitionTime": format!("2023-11-14T22:00:{at:02}Z")})
}

fn job() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
           "metadata": {"namespace": "ns", "name": "a", "uid": "j", "resourceVersion": "7",
                        "labels": {"own": "x"}, "annotations": {"note": "y"}},
           "spec": {"suspend": true, "managedBy": CONTROLLER, "parallelism": 2,
                    "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "j"}},
                    "template": {"metadata": {"labels": {"controller-uid": "j", "job-name": "a", "own": "z"}}}}})
}

/// The manager's workload in this state of its check.
fn workload(state: &str, conditions: &[&str]) -> Value {
    let conditions: Vec<Value> = conditions.iter().map(|kind| condition(kind, 0)).collect();
    json!({"metadata": {"namespace": "ns", "name": "job-a", "uid": "w", "resourceVersion": "9",
                        "labels": {names::JOB_UID: "j"},
                        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true}]},
           "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 2}], "priority": 1},
           "status": {"conditions": conditions, "admission": {"clusterQueue": "cq"},
                      "admissionChecks": [{"name": "mk", "state": state, "message": ""}]}})
}

fn manager(local: Value) -> Fixture {
    let mut manager = Fixture::default();
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "c"});
    let check =
        json!({"metadata": {"name": "mk"}, "spec": {"controllerName": CONTROLLER, "parameters": parameters}});
    manager.put(Kind::AdmissionCheck, check);
    manager.put(
        Kind::MultiKueueConfig,
        json!({"metadata": {"name": "c"}, "spec": {"clusters": ["two", "one", "three", "four"]}}),
    );
    manager.put(Kind::Job, job());
    manager.put(Kind::Workload, local);
    manager
}

/// A worker's copy with these conditions, each with the second in which it came.
fn copy(conditions: &[(&str, u32)]) -> Value {
    let conditions: Vec<Value> = conditions.iter().map(|(kind, at)| condition(kind, *at)).collect();
    json!({"metadata": {"namespace": "ns", "name": "job-a", "uid": "cw", "resourceVersion": "3", "finalizers": [names::IN_USE],
                        "labels": {ORIGIN: "multikueue"}},
           "spec": workload("Pending", &[])["spec"], "status": {"conditions": conditions}})
}

fn remote_job(status: &Value) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "a", "uid": "rj", "resourceVersion": "4", "labels": {ORIGIN: "multikueue"},
                        "annotations": {names::PREBUILT: "job-a"}},
           "spec": {"suspend": false}, "status": status})
}

/// A connected worker with these objects.
fn worker(workload: Option<Value>, job: Option<Value>) -> Sight {
    let mut store = WorkerStore::default();
    for (kind, object) in [(Kind::Workload, workload), (Kind::Job, job)] {
        if let Some(object) = object {
            assert_eq!(store.put(kind, object), [key()]);
        }
    }
    Sight::Connected(store.copy(&key(), &[]))
}

fn planned(manager: &Fixture, workers: &[(&str, Sight)], round: Option<Time>) -> Plan {
    let workers = workers.iter().map(|(name, sight)| ((*name).to_owned(), sight.clone())).collect();
    plan(&key(), &workers, &Memory { round, ..Memory::default() }, manager.env(NOW))
}

/// Patches of the manager's objects, as (kind, body).
fn patches(plan: &Plan) -> Vec<(&'static str, Value)> {
    let patch = |step: &Step| match step {
        Step::Manager(Write::Patch { resource, body, subresource: "status", .. }) => {
            Some((resource.kind, body["status"].clone()))
        }
        _ => None,
    };
    plan.first.iter().filter_map(patch).collect()
}

/// What happens on workers, in short: cluster and verb with kind.
fn remote(plan: &Plan) -> Vec<String> {
    let text = |write: &Write| match write {
        Write::Create(resource, _) => format!("create {}", resource.kind),
        Write::Patch { resource, subresource, .. } => format!("patch {} {subresource}", resource.kind),
        Write::Delete { resource, .. } => format!("delete {}", resource.kind),
        other => format!("{other:?}"),
    };
    let first = plan.first.iter().filter_map(|step| match step {
        Step::Worker(cluster, write) => Some(format!("{cluster}: {}", text(write))),
        Step::Manager(_) => None,
    });
    let apart =
        plan.apart.iter().flat_map(|(c, writes)| writes.iter().map(move |w| format!("{c}: {}", text(w))));
    first.chain(apart).collect()
}

fn check_of(patches: &[(&'static str, Value)]) -> (String, String) {
    let row = &patches.iter().find(|(kind, _)| *kind == "Workload").expect("a patch").1["admissionChecks"][0];
    let text = |key: &str| json::text(row, &[key]).to_owned();
    (text("state"), text("message"))
}

const REMOVAL: [&str; 2] = ["patch Workload ", "delete Workload"];

fn removed(cluster: &str) -> Vec<String> {
    REMOVAL.iter().map(|what| format!("{cluster}: {what}")).collect()
}

#[test]
fn a_workload_with_quota_is_copied_to_all_connected_clusters() {
    let manager = manager(workload("Pending", &["QuotaReserved"]));
    let lost = Sight::Lost { since: NOW };
    let workers = [
        ("one", worker(None, None)),
        ("two", worker(None, None)),
        ("three", lost),
        ("other", worker(None, None)),
    ];
    let plan = planned(&manager, &workers, None);
    assert_eq!(patches(&plan), [("Workload", json!({"nominatedClusterNames": ["one", "two"]}))]);
    assert_eq!(remote(&plan), ["one: create Workload", "two: create Workload"]);
    let Some([Write::Create(_, made)]) = plan.apart.get("one").map(Vec::as_slice) else { panic!("{plan:?}") };
    assert_eq!(
        made["metadata"],
        json!({"name": "job-a", "namespace": "ns", "labels": {ORIGIN: "multikueue"}})
    );
    assert_eq!(made["spec"], workload("Pending", &[])["spec"]);
    // Nothing is left to do when that is done.
    let mut local = workload("Pending", &["QuotaReserved"]);
    local["status"]["nominatedClusterNames"] = json!(["two", "one"]);
    let manager = self::manager(local);
    let workers =
        [("one", worker(Some(copy(&[])), None)), ("two", worker(Some(copy(&[("QuotaReserved", 1)])), None))];
    assert_eq!(planned(&manager, &workers, None), Plan::default());
}

#[test]
fn what_keeps_a_workload_from_being_copied() {
    let mut other_check = workload("Pending", &["QuotaReserved"]);
    other_check["status"]["admissionChecks"] =
        json!([{"name": "budget", "state": "Pending"}, {"name": "mk", "state": "Pending"}]);
    for local in [
        workload("Pending", &[]),
        workload("Retry", &["QuotaReserved"]),
        workload("Rejected", &["QuotaReserved"]),
        workload("Pending", &["QuotaReserved", "Evicted"]),
        other_check,
    ] {
        let manager = manager(local.clone());
        assert_eq!(planned(&manager, &[("one", worker(None, None))], None), Plan::default(), "{local}");
    }
}

#[test]
fn the_first_worker_that_admits_its_copy_gets_the_job() {
    let mut local = workload("Pending", &["QuotaReserved"]);
    local["status"]["nominatedClusterNames"] = json!(["one", "three", "two"]);
    let manager = manager(local.clone());
    let workers = [
        ("one", worker(Some(copy(&[("Admitted", 9)])), None)),
        ("two", worker(Some(copy(&[("Admitted", 5)])), None)),
        ("three", worker(Some(copy(&[("QuotaReserved", 1)])), None)),
    ];
    let plan = planned(&manager, &workers, None);
    let mut want = vec!["two: create Job".to_owned()];
    want.extend(removed("one").into_iter().chain(removed("three")));
    assert_eq!(remote(&plan), want);
    let status = json!({"clusterName": "two", "nominatedClusterNames": null, "admissionChecks": [{"name": "mk",
        "state": "Ready", "message": "The workload was admitted on \"two\"", "lastTransitionTime": NOW_TEXT}]});
    assert_eq!(patches(&plan), [("Workload", status)]);
    assert_eq!(plan.admitted_on.as_deref(), Some("two"));
    // Another one that is admitted in the same second changes nothing.
    let mut chosen = workload("Ready", &["QuotaReserved", "Admitted"]);
    chosen["status"]["clusterName"] = json!("two");
    let both = [
        ("one", worker(Some(copy(&[("Admitted", 5)])), None)),
        ("two", worker(Some(copy(&[("Admitted", 5)])), Some(remote_job(&json!({}))))),
    ];
    assert_eq!(remote(&planned(&self::manager(chosen), &both, None)), removed("one"));
    // One that is not nominated any more is nominated first.
    local["status"]["nominatedClusterNames"] = json!(["one"]);
    let late = planned(&self::manager(local), &workers, None);
    assert_eq!(patches(&late), [("Workload", json!({"nominatedClusterNames": ["one", "two"]}))]);
    assert_eq!((remote(&late), late.admitted_on), (want, None));
    // The name of the cluster is kept; it is no other admission.
    let mut nameless = workload("Ready", &["QuotaReserved", "Admitted"]);
    nameless["status"]["nominatedClusterNames"] = json!(["two"]);
    let again = planned(&self::manager(nameless), &workers, None);
    assert_eq!(patches(&again)[0].1["clusterName"], "two");
    assert_eq!(again.admitted_on, None);
    let Some(Step::Worker(_, Write::Create(JOBS, made))) = plan.first.first() else { panic!("{plan:?}") };
    assert_eq!(
        *made,
        json!({"apiVersion": "batch/v1", "kind": "Job",
               "metadata": {"namespace": "ns", "name": "a", "labels": {"own": "x", ORIGIN: "multikueue"},
                            "annotations": {"note": "y", names::PREBUILT: "job-a"}},
               "spec": {"suspend": true, "parallelism": 2, "template": {"metadata": {"labels": {"own": "z"}}}}})
    );
}

/// The status of a Job while it is admitted, as Kueue's `determineStatusUpdate` has it.
#[test]
fn the_status_of_the_job_is_mirrored_once_it_may_be() {
    let running = json!({"active": 2, "startTime": "2023-11-14T22:00:00Z"});
    let admitted = |local: Value, remote: Value| {
        let mut wl = workload("Ready", &["QuotaReserved", "Admitted"]);
        wl["status"]["clusterName"] = json!("one");
        wl["status"]["admissionChecks"][0]["message"] = json!("The workload was admitted on \"one\"");
        let mut manager = manager(wl);
        manager.put(Kind::Job, local);
        patches(&planned(&manager, &[("one", worker(Some(copy(&[("Admitted", 1)])), Some(remote)))], None))
    };
    let mut started = job();
    started["metadata"]["resourceVersion"] = json!("8");
    started["spec"]["suspend"] = json!(false);
    assert_eq!(admitted(started.clone(), remote_job(&running)), [("Job", running.clone())]);
    started["status"] = running.clone();
    assert!(admitted(started, remote_job(&running)).is_empty());
    let suspended = admitted(job(), remote_job(&running));
    assert_eq!(suspended[0].1["conditions"][0]["type"], "Suspended", "{suspended:?}");
    assert!(suspended[0].1["startTime"].is_null());
    let complete = json!({"succeeded": 2, "conditions": [condition("Complete", 3)]});
    assert_eq!(admitted(job(), remote_job(&complete)), [("Job", complete)]);
}

#[test]
fn a_workload_finishes_with_its_copy_and_then_loses_it() {
    let complete = json!({"succeeded": 2, "conditions": [condition("Complete", 3)]});
    let mut wl = workload("Ready", &["QuotaReserved", "Admitted"]);
    wl["status"]["clusterName"] = json!("one");
    let workers =
        [("one", worker(Some(copy(&[("Admitted", 1), ("Finished", 4)])), Some(remote_job(&complete))))];
    let plan = planned(&manager(wl.clone()), &workers, None);
    let patches = self::patches(&plan);
    assert_eq!(patches[0], ("Job", complete));
    let finished = &patches[1].1["conditions"][2];
    assert_eq!(
        (&finished["type"], &finished["reason"], &finished["message"]),
        (&json!("Finished"), &json!("R"), &json!("m"))
    );
    assert!(remote(&plan).is_empty());
    let plan = planned(&manager(workload("Ready", &["Finished"])), &workers, None);
    assert_eq!(remote(&plan), ["one: delete Job", "one: patch Workload ", "one: delete Workload"]);
    // A copy that does not fit its job is no end of the job.
    let mut out_of_sync = copy(&[("Finished", 4)]);
    out_of_sync["status"]["conditions"][0]["reason"] = json!("OutOfSync");
    let plan = planned(&manager(wl), &[("one", worker(Some(out_of_sync), None))], None);
    let (state, message) = check_of(&self::patches(&plan));
    assert_eq!(state, "Retry");
    assert_eq!(
        message,
        "Remote workload on worker cluster \"one\" is out of sync with its user job, resetting for re-dispatch, Previously: \"Ready\""
    );
    let told = plan.first.iter().find_map(|step| match step {
        Step::Manager(Write::Event(event)) => Some((event.message.as_str(), &*event.reporting_controller)),
        _ => None,
    });
    assert_eq!(told, Some((message.as_str(), "kueue-workload-controller")));
}

/// The watch of Workloads may be ahead of the watch of Jobs.
#[test]
fn a_workload_finishes_after_the_final_status_of_its_job() {
    let mut wl = workload("Ready", &["QuotaReserved", "Admitted"]);
    wl["status"]["clusterName"] = json!("one");
    let kinds = |reason: &str, job: Option<Value>| {
        let mut finished = copy(&[("Admitted", 1), ("Finished", 4)]);
        finished["status"]["conditions"][1]["reason"] = json!(reason);
        let plan = planned(&manager(wl.clone()), &[("one", worker(Some(finished), job))], None);
        assert!(remote(&plan).is_empty(), "{plan:?}");
        patches(&plan).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    let with = |end: &[&str]| {
        let conditions: Vec<Value> = end.iter().map(|kind| condition(kind, 3)).collect();
        Some(remote_job(&json!({"succeeded": 2, "conditions": conditions})))
    };
    for (reason, end, finishes) in [
        ("Succeeded", with(&[]), false),
        ("Succeeded", with(&["SuccessCriteriaMet"]), false),
        ("Succeeded", with(&["SuccessCriteriaMet", "Complete"]), true),
        ("Failed", with(&["FailureTarget"]), false),
        ("Failed", with(&["FailureTarget", "Failed"]), true),
        ("R", with(&["SuccessCriteriaMet"]), false),
        ("R", with(&[]), true),
    ] {
        let want: &[&str] = if finishes { &["Job", "Workload"] } else { &["Job"] };
        assert_eq!(kinds(reason, end.clone()), want, "{reason}, {end:?}");
    }
    assert_eq!(kinds("Succeeded", None), ["Workload"], "the Job is gone");
}

#[test]
fn without_quota_or_workload_nothing_stays_on_workers() {
    let there = || {
        [
            ("one", worker(Some(copy(&[])), Some(remote_job(&json!({}))))),
            ("other", worker(Some(copy(&[])), None)),
        ]
    };
    let mut want = vec!["one: delete Job".to_owned()];
    want.extend(removed("one").into_iter().chain(removed("other")));
    let mut deleted = workload("Ready", &["QuotaReserved"]);
    deleted["metadata"]["deletionTimestamp"] = json!(NOW_TEXT);
    let mut orphan = workload("Rejected", &["Finished", "QuotaReserved"]);
    orphan["metadata"]["ownerReferences"] = json!([]);
    for local in [workload("Pending", &[]), deleted, orphan] {
        assert_eq!(remote(&planned(&manager(local), &there(), None)), want);
    }
    let mut gone = manager(workload("Ready", &[]));
    gone.remove(Kind::Workload, "ns", "job-a", "w");
    assert_eq!(remote(&planned(&gone, &there(), None)), want);
    let mut store = WorkerStore::default();
    store.put(Kind::Job, remote_job(&json!({})));
    assert_eq!(store.orphans(&gone), [key()]);
    assert!(store.orphans(&manager(workload("Pending", &[]))).is_empty());
    store.remove(Kind::Job, "ns", "a", "rj");
    assert!(store.orphans(&gone).is_empty() && store.copy(&key(), &[]).is_empty());
}

#[test]
fn a_worker_that_is_lost_has_its_time_to_come_back() {
    let mut wl = workload("Ready", &["QuotaReserved", "Admitted"]);
    wl["status"]["clusterName"] = json!("one");
    let manager = manager(wl);
    let lost = |seconds: i64| Sight::Lost { since: Time::from_seconds(NOW.seconds() - seconds) };
    let plan = planned(&manager, &[("one", lost(100)), ("two", worker(None, None))], None);
    assert_eq!(plan, Plan { requeue_after: Some(Duration::from_seconds(800)), ..Plan::default() });
    let plan = planned(&manager, &[("one", lost(900))], None);
    assert_eq!(
        check_of(&patches(&plan)),
        ("Retry".to_owned(), "Admitting remote lost, Previously: \"Ready\"".to_owned())
    );
    let plan = planned(&manager, &[("one", worker(None, None))], None);
    assert_eq!(check_of(&patches(&plan)).1, "Admitting remote no longer exists, Previously: \"Ready\"");
}

/// As in Kueue the workload is tried again at once. Its job ends on that cluster, of which nothing is mirrored any more.
#[test]
fn a_cluster_that_the_check_does_not_name_any_more_loses_the_job() {
    let running = json!({"active": 2});
    let there = [
        ("other", worker(Some(copy(&[("Admitted", 1)])), Some(remote_job(&running)))),
        ("one", worker(None, None)),
    ];
    let lost = [("other", Sight::Lost { since: NOW })];
    let mut wl = workload("Ready", &["QuotaReserved", "Admitted"]);
    wl["status"]["clusterName"] = json!("other");
    for workers in [&there[..], &lost[..]] {
        assert_eq!(
            check_of(&patches(&planned(&manager(wl.clone()), workers, None))),
            ("Retry".to_owned(), "Admitting remote no longer exists, Previously: \"Ready\"".to_owned())
        );
    }
    let mut manager = manager(workload("Retry", &["QuotaReserved", "Evicted"]));
    let mut ours = job();
    ours["metadata"]["resourceVersion"] = json!("8");
    ours["status"] = running;
    manager.put(Kind::Job, ours);
    let plan = planned(&manager, &there, None);
    let mut want = vec!["other: delete Job".to_owned()];
    want.extend(removed("other"));
    assert_eq!((remote(&plan), patches(&plan)), (want, Vec::new()));
    for workers in [&[("other", worker(None, None))][..], &lost[..]] {
        assert_eq!(patches(&planned(&manager, workers, None)), [("Job", json!({"active": null}))]);
    }
}

#[test]
fn evictions_go_both_ways() {
    let mut wl = workload("Ready", &["QuotaReserved", "Admitted"]);
    wl["status"]["clusterName"] = json!("one");
    // The worker's.
    let running = json!({"active": 2});
    let plan = planned(
        &manager(wl),
        &[("one", worker(Some(copy(&[("Admitted", 1), ("Evicted", 2)])), Some(remote_job(&running))))],
        None,
    );
    let (state, message) = check_of(&patches(&plan));
    assert_eq!(state, "Retry");
    assert_eq!(
        message,
        "Workload evicted on worker cluster: \"one\", resetting for re-admission. Previously: \"Ready\""
    );
    // The manager's.
    let evicted = workload("Pending", &["QuotaReserved", "Evicted"]);
    let workers = [("one", worker(Some(copy(&[("Admitted", 1)])), Some(remote_job(&running))))];
    let plan = planned(&manager(evicted.clone()), &workers, None);
    assert_eq!(remote(&plan), ["one: patch Workload status"]);
    // What the worker makes of that is no other copy.
    let mut deactivated = copy(&[("Admitted", 1), ("DeactivationTarget", 2)]);
    deactivated["spec"]["active"] = json!(false);
    let workers = [("one", worker(Some(deactivated), Some(remote_job(&running))))];
    let plan = planned(&manager(evicted.clone()), &workers, None);
    assert!(plan.apart.is_empty(), "{plan:?}");
    // Then the job has stopped.
    let mut manager = manager(evicted);
    let mut ours = job();
    ours["metadata"]["resourceVersion"] = json!("8");
    ours["status"] = running;
    manager.put(Kind::Job, ours);
    let mut stopped = remote_job(&json!({}));
    stopped["spec"]["suspend"] = json!(true);
    let workers = [("one", worker(Some(copy(&[("Evicted", 2)])), Some(stopped)))];
    assert_eq!(patches(&planned(&manager, &workers, None)), [("Job", json!({"active": null}))]);
    // A worker that can't be asked for so long does not keep the quota.
    let lost = |seconds: i64| [("one", Sight::Lost { since: Time::from_seconds(NOW.seconds() - seconds) })];
    assert_eq!(planned(&manager, &lost(800), None), Plan::after(Duration::from_seconds(100)));
    let plan = planned(&manager, &lost(900), None);
    assert_eq!(patches(&plan), [("Job", json!({"active": null}))]);
}

/// Another worker may have evicted its copy before it is removed: the check there has failed, and that one answered first.
#[test]
fn an_evicted_copy_on_another_worker_evicts_nothing() {
    let mut wl = workload("Ready", &["QuotaReserved", "Admitted"]);
    wl["status"]["clusterName"] = json!("one");
    wl["status"]["admissionChecks"][0]["message"] = json!("The workload was admitted on \"one\"");
    let workers = [
        ("one", worker(Some(copy(&[("Admitted", 1)])), Some(remote_job(&json!({}))))),
        ("two", worker(Some(copy(&[("QuotaReserved", 1), ("Evicted", 2)])), None)),
    ];
    let plan = planned(&manager(wl), &workers, None);
    assert!(patches(&plan).iter().all(|(kind, _)| *kind != "Workload"), "{plan:?}");
    assert_eq!(remote(&plan), removed("two"));
}

/// The gate keeps a pod from running on the manager, but it shows the phase that it had on the worker.
#[test]
fn an_evicted_pod_does_not_keep_the_phase_of_a_worker_that_is_lost() {
    let mut local = workload("Pending", &["QuotaReserved", "Evicted"]);
    local["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "p", "controller": true}]);
    let mut manager = manager(local);
    let scheduled = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"});
    manager.put(
        Kind::Pod,
        json!({"metadata": {"namespace": "ns", "name": "a", "uid": "p", "resourceVersion": "4"},
               "spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": names::GATE}]},
               "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": true}],
                          "conditions": [scheduled.clone(), condition("Ready", 2)]}}),
    );
    let lost = |seconds: i64| [("one", Sight::Lost { since: Time::from_seconds(NOW.seconds() - seconds) })];
    assert_eq!(planned(&manager, &lost(800), None), Plan::after(Duration::from_seconds(100)));
    let forgotten = json!({"phase": "Pending", "containerStatuses": null, "conditions": [scheduled]});
    assert_eq!(patches(&planned(&manager, &lost(900), None)), [("Pod", forgotten)]);
}

#[test]
fn the_end_of_a_job_is_known_of_each_kind() {
    use super::adapter::of_workload;
    let manager = manager(workload("Ready", &[]));
    let adapter = |version: &str, kind: &str| {
        let mut wl = workload("Ready", &[]);
        wl["metadata"]["ownerReferences"] =
            json!([{"apiVersion": version, "kind": kind, "name": "a", "uid": "j", "controller": true}]);
        of_workload(&wl, &manager.config, &manager.objects).expect("an adapter").0
    };
    let with = |kind: &str| json!({"status": {"conditions": [condition(kind, 1)]}});
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    for (adapter, ended, running) in [
        (adapter("batch/v1", "Job"), with("Complete"), with("SuccessCriteriaMet")),
        (adapter("jobset.x-k8s.io/v1alpha2", "JobSet"), with("Completed"), with("StartupPolicyInProgress")),
        (adapter("trainer.kubeflow.org/v1alpha1", "TrainJob"), with("Failed"), with("Suspended")),
        (adapter("v1", "Pod"), phase("Succeeded"), phase("Running")),
    ] {
        assert!(adapter.has_ended(&ended), "{adapter:?}");
        assert!(!adapter.has_ended(&running), "{adapter:?}");
    }
}

#[test]
fn copies_follow_the_workload() {
    let mut local = workload("Pending", &["QuotaReserved"]);
    local["status"]["nominatedClusterNames"] = json!(["one"]);
    let (mut other, mut priority) = (copy(&[]), copy(&[]));
    other["spec"]["podSets"][0]["count"] = json!(3);
    priority["spec"]["priority"] = json!(5);
    let manager = manager(local);
    let class_of = |kind: &str| json!({"group": "g", "kind": kind, "name": "high"});
    let mut of_pods = priority.clone();
    of_pods["spec"]["priorityClassRef"] = class_of("PriorityClass");
    // Kueue changes the priority of copies with a class of workloads only.
    for removes in [&other, &priority, &of_pods] {
        let one = worker(Some(removes.clone()), None);
        assert_eq!(remote(&planned(&manager, &[("one", one)], None)), removed("one"));
    }
    priority["spec"]["priorityClassRef"] = class_of("WorkloadPriorityClass");
    let plan = planned(&manager, &[("one", worker(Some(priority), None))], None);
    let Some([Write::Patch { resource: WORKLOADS, body, .. }]) = plan.apart.get("one").map(Vec::as_slice)
    else {
        panic!("{plan:?}")
    };
    assert_eq!(body["spec"], json!({"priority": 1, "priorityClassRef": null}));
    // One that is on its way out is not deleted again, nor replaced before it is gone.
    other["metadata"]["deletionTimestamp"] = json!(NOW_TEXT);
    assert!(remote(&planned(&manager, &[("one", worker(Some(other), None))], None)).is_empty());
}

#[test]
fn the_incremental_dispatcher_adds_clusters_in_rounds() {
    /// Nominated before, end of the round, nominated then, seconds until the next round.
    type Row<'a> = (&'a [&'a str], Option<Time>, Option<&'a [&'a str]>, Option<i64>);
    let at = |seconds: i64| Time::from_seconds(NOW.seconds() + seconds);
    let table: [Row<'_>; 4] = [
        (&[], None, Some(&["two", "one"]), Some(300)),
        (&["two", "one"], Some(at(200)), None, Some(200)),
        (&["two", "one"], Some(at(0)), Some(&["two", "one", "three", "four"]), Some(300)),
        (&["two", "one", "three", "four"], Some(at(0)), None, None),
    ];
    for (nominated, round, written, wait) in table {
        let mut local = workload("Pending", &["QuotaReserved"]);
        local["status"]["nominatedClusterNames"] = json!(nominated);
        let mut manager = manager(local);
        manager.config.multikueue.dispatcher = Dispatcher::Incremental { step: 2 };
        let plan = planned(&manager, &[("one", worker(None, None)), ("four", worker(None, None))], round);
        let names = patches(&plan).first().map(|(_, status)| status["nominatedClusterNames"].clone());
        assert_eq!(names, written.map(|w| json!(w)), "{nominated:?}");
        assert_eq!(plan.requeue_after.map(Duration::seconds), wait, "{nominated:?}");
        let all = written.unwrap_or(nominated);
        assert!(plan.apart.keys().all(|cluster| all.contains(&cluster.as_str())), "{plan:?}");
        assert!(plan.apart.contains_key("one"));
    }
}

#[test]
fn the_external_dispatcher_leaves_the_choice_to_others() {
    let mut local = workload("Pending", &["QuotaReserved"]);
    local["status"]["nominatedClusterNames"] = json!(["two"]);
    let mut manager = manager(local);
    manager.config.multikueue.dispatcher = Dispatcher::External;
    let workers = [("one", worker(Some(copy(&[])), None)), ("two", worker(None, None))];
    let plan = planned(&manager, &workers, None);
    let mut want = removed("one");
    want.push("two: create Workload".to_owned());
    assert_eq!(remote(&plan), want);
    assert!(patches(&plan).is_empty());
}

#[test]
fn jobs_that_multikueue_can_not_run_are_rejected() {
    let mut foreign = workload("Pending", &["QuotaReserved"]);
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = json!("example.com/v1");
    foreign["metadata"]["ownerReferences"][0]["kind"] = json!("Train");
    let mut ownerless = workload("Pending", &["QuotaReserved"]);
    ownerless["metadata"]["ownerReferences"] = json!([]);
    let mut own = job();
    own["metadata"]["resourceVersion"] = json!("8");
    json::remove(&mut own, &["spec", "managedBy"]);
    let table = [
        (
            workload("Pending", &["QuotaReserved"]),
            own,
            "The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"\"",
        ),
        (foreign, job(), "No multikueue adapter found for owner kind \"example.com/v1, Kind=Train\""),
        (ownerless, job(), "No multikueue adapter found"),
    ];
    for (local, job, want) in table {
        let mut manager = manager(local);
        manager.put(Kind::Job, job);
        let plan = planned(&manager, &[("one", worker(None, None))], None);
        let (state, message) = check_of(&patches(&plan));
        assert_eq!((state.as_str(), message), ("Rejected", format!("{want}, Previously: \"Pending\"")));
    }
}

#[test]
fn the_field_of_another_manager_is_named_as_in_kueue() {
    use super::adapter::of_workload;
    let manager = manager(workload("Pending", &[]));
    let problem = |version: &str, kind: &str| {
        let mut wl = workload("Pending", &[]);
        let owner = &mut wl["metadata"]["ownerReferences"][0];
        (owner["apiVersion"], owner["kind"]) = (json!(version), json!(kind));
        let adapter = of_workload(&wl, &manager.config, &manager.objects).expect("an adapter").0;
        adapter.may_dispatch(&json!({})).expect_err("not dispatched")
    };
    let not = "to be \"kueue.x-k8s.io/multikueue\" not \"\"";
    let of_mpi = problem("kubeflow.org/v2beta1", "MPIJob");
    assert_eq!(of_mpi, format!("Expecting spec.runPolicy.managedBy {not}"));
    assert_eq!(problem("kubeflow.org/v1", "PyTorchJob"), format!("Expecting spec.managedBy {not}"));
}

#[test]
fn a_check_that_is_deleted_says_whether_it_works_while_queues_hold_it() {
    let mut manager = manager(workload("Pending", &[]));
    let mut check = Value::clone(&manager.objects.get(Kind::AdmissionCheck, "", "mk").expect("the check"));
    check["metadata"]["deletionTimestamp"] = json!(NOW_TEXT);
    check["metadata"]["resourceVersion"] = json!("2");
    manager.put(Kind::AdmissionCheck, check);
    let writes = plan_check("mk", manager.env(NOW));
    let [Write::Patch { body, .. }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(body["status"]["conditions"][0]["reason"], "NoUsableClusters");
}

#[test]
fn managed_by_is_a_default_of_queues_that_dispatch() {
    let mut manager = manager(workload("Pending", &[]));
    manager.put(
        Kind::LocalQueue,
        json!({"metadata": {"namespace": "ns", "name": "q"}, "spec": {"clusterQueue": "cq"}}),
    );
    manager.put(
        Kind::LocalQueue,
        json!({"metadata": {"namespace": "ns", "name": "here"}, "spec": {"clusterQueue": "own"}}),
    );
    let checks = json!({"admissionChecks": [{"name": "budget"}, {"name": "mk"}]});
    manager.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "cq"}, "spec": {"admissionChecksStrategy": checks}}),
    );
    manager.put(Kind::ClusterQueue, json!({"metadata": {"name": "own"}, "spec": {}}));
    for (queue, before, after) in [
        ("q", Value::Null, json!(CONTROLLER)),
        ("q", json!("kubernetes.io/job-controller"), json!(CONTROLLER)),
        ("q", json!("example.com/own"), json!("example.com/own")),
        ("here", Value::Null, Value::Null),
        ("none", Value::Null, Value::Null),
    ] {
        let mut job = json!({"metadata": {"namespace": "ns", "labels": {names::QUEUE: queue}}, "spec": {"managedBy": before}});
        default_managed_by(JOBS, "ns", &mut job, manager.env(NOW));
        assert_eq!(job["spec"]["managedBy"], after, "{queue} {before}");
    }
}

/// One row for each kind: where it has `managedBy`.
#[test]
fn custom_kinds_are_dispatched_by_one_adapter() {
    use crate::custom_kind::CustomKind;
    const SPEC: &[&str] = &["spec", "managedBy"];
    const RUN_POLICY: &[&str] = &["spec", "runPolicy", "managedBy"];
    let mut manager = Fixture::default();
    manager.put(
        Kind::JobKind,
        json!({"metadata": {"name": "trains.example.com"}, "spec": {
            "group": "example.com", "versions": ["v1"], "plural": "trains", "kind": "Train", "suspendPath": ".spec.paused",
            "active": "true", "finished": "true", "succeeded": "false",
            "podSets": [{"name": "a", "templatePath": ".spec"}]}}),
    );
    let trains: Vec<CustomKind> = manager.declared_kinds().collect();
    assert_eq!(trains.len(), 1, "{:?}", manager.job_kind("trains.example.com"));
    let table = [
        (CustomKind::JOB_SET, SPEC),
        (CustomKind::PYTORCH_JOB, RUN_POLICY),
        (CustomKind::TF_JOB, RUN_POLICY),
        (CustomKind::XGBOOST_JOB, RUN_POLICY),
        (CustomKind::PADDLE_JOB, RUN_POLICY),
        (CustomKind::JAX_JOB, RUN_POLICY),
        (CustomKind::MPI_JOB, RUN_POLICY),
        (CustomKind::RAY_CLUSTER, SPEC),
        (CustomKind::RAY_JOB, SPEC),
        (CustomKind::RAY_SERVICE, SPEC),
        (CustomKind::APP_WRAPPER, SPEC),
        (CustomKind::TRAIN_JOB, SPEC),
        (trains[0], SPEC),
    ];
    for (custom, path) in table {
        let (kind, resource) = (Kind::Custom(custom), custom.preferred());
        let mut local = workload("Pending", &["QuotaReserved"]);
        let owner = &mut local["metadata"]["ownerReferences"][0];
        (owner["apiVersion"], owner["kind"]) = (json!(resource.api_version), json!(resource.kind));
        let Fixture { objects, config } = self::manager(local);
        for kind in [Kind::AdmissionCheck, Kind::MultiKueueConfig, Kind::Workload] {
            objects.all(kind).for_each(|object| manager.put(kind, object));
        }
        manager.config = config;
        assert!(followed(&manager.config, &manager.objects).iter().any(|(k, _)| *k == kind), "{resource:?}");
        let mut job = json!({"metadata": {"namespace": "ns", "name": "a", "uid": "j", "resourceVersion": "7"},
                             "spec": {"suspend": true, "own": 1}, "status": {"old": 1}});
        json::set(&mut job, path, CONTROLLER.into());
        manager.put(kind, job.clone());
        let mut store = WorkerStore::default();
        store.put(Kind::Workload, copy(&[("Admitted", 1)]));
        let plan = |store: &WorkerStore| {
            planned(&manager, &[("one", Sight::Connected(store.copy(&key(), &[])))], None)
        };
        let first = plan(&store).first;
        let Some(Step::Worker(_, Write::Create(made_as, made))) = first.first() else { panic!("{first:?}") };
        assert_eq!((*made_as, &made["kind"]), (resource, &json!(resource.kind)));
        assert!(
            json::at(made, path).is_null() && made["status"].is_null() && made["spec"]["own"] == 1,
            "{made}"
        );
        let mut theirs = made.clone();
        theirs["metadata"]["resourceVersion"] = json!("1");
        theirs["status"] = json!({"new": 2});
        store.put(kind, theirs);
        assert_eq!(patches(&plan(&store))[0], (resource.kind, json!({"old": null, "new": 2})));
    }
}
