//! Jobs that change while they run on a worker.

use plimsoll_api::resource::{RAY_CLUSTERS, RAY_SERVICES};

use super::*;
use crate::custom_kind::CustomKind;
use crate::multikueue::edits::edited;

#[test]
fn edits_of_the_configuration_of_a_ray_service_reach_its_worker() {
    let kind = Kind::Custom(CustomKind::RAY_SERVICE);
    let mut local = workload("Ready", &["QuotaReserved", "Admitted"]);
    let owner = &mut local["metadata"]["ownerReferences"][0];
    (owner["apiVersion"], owner["kind"]) = (json!(RAY_SERVICES.api_version), json!(RAY_SERVICES.kind));
    local["status"]["clusterName"] = json!("one");
    let mut manager = manager(local);
    let service = |config: &str| {
        json!({"metadata": {"namespace": "ns", "name": "a", "uid": "j", "resourceVersion": "7"},
               "spec": {"managedBy": CONTROLLER, "suspend": false, "serveConfigV2": config}, "status": {"on": "worker"}})
    };
    manager.put(kind, service("new"));
    let mut store = WorkerStore::default();
    store.put(Kind::Workload, copy(&[("Admitted", 1)]));
    let mut theirs = service("old");
    json::remove(&mut theirs, &["spec", "managedBy"]);
    theirs["metadata"]["annotations"] = json!({names::PREBUILT: "job-a"});
    store.put(kind, theirs);
    let plan = planned(&manager, &[("one", Sight::Connected(store.copy(&key(), &[])))], None);
    let edit = plan.first.iter().find_map(|step| match step {
        Step::Worker(_, Write::Patch { body, subresource: "", .. }) => Some(&body["spec"]),
        _ => None,
    });
    assert_eq!(edit, Some(&json!({"serveConfigV2": "new"})));
}

/// The slice after `job-a`.
fn next_slice(pods: i64) -> Value {
    let mut next = workload("Pending", &["QuotaReserved"]);
    next["metadata"]["name"] = json!("job-b");
    next["metadata"]["uid"] = json!("w2");
    next["metadata"]["annotations"] =
        json!({names::ELASTIC: "true", plimsoll_api::kueue::REPLACEMENT_FOR: "ns/job-a"});
    next["spec"]["podSets"][0]["count"] = json!(pods);
    next
}

fn elastic_job(parallelism: i64, version: &str) -> Value {
    let mut job = job();
    job["metadata"]["annotations"][names::ELASTIC] = json!("true");
    job["metadata"]["resourceVersion"] = json!(version);
    job["spec"]["parallelism"] = json!(parallelism);
    job["spec"]["suspend"] = json!(false);
    job
}

#[test]
fn an_elastic_job_grows_and_shrinks_with_its_slices() {
    let mut old = workload("Ready", &["QuotaReserved", "Admitted"]);
    old["metadata"]["annotations"] = json!({names::ELASTIC: "true"});
    old["status"]["clusterName"] = json!("two");
    let mut manager = manager(old.clone());
    manager.put(Kind::Job, elastic_job(3, "8"));
    manager.put(Kind::Workload, next_slice(3));
    let mut store = WorkerStore::default();
    store.put(Kind::Workload, copy(&[("Admitted", 1)]));
    let mut theirs = remote_job(&json!({}));
    theirs["spec"]["parallelism"] = json!(2);
    store.put(Kind::Job, theirs);
    let look = |manager: &Fixture, store: &WorkerStore, name: &str| {
        let before = replaced(&named(name), &manager.objects);
        let (one, two) = (Copy::default(), store.copy(&named(name), &before));
        let workers = [("one", one), ("two", two)];
        let workers = workers.map(|(name, copy)| (name.to_owned(), Sight::Connected(copy))).into();
        plan(&named(name), &workers, &Memory::default(), manager.env(NOW))
    };
    // The job has outgrown its slice, which says nothing of it any more; the next one goes where the job is.
    assert_eq!(remote(&look(&manager, &store, "job-a")), [""; 0]);
    assert_eq!(remote(&look(&manager, &store, "job-b")), ["two: create Workload"]);

    // With the admission of the next slice the job grows and gets the name of that.
    let mut copy = copy(&[("Admitted", 2)]);
    copy["metadata"]["name"] = json!("job-b");
    copy["spec"] = next_slice(3)["spec"].clone();
    store.put(Kind::Workload, copy.clone());
    let plan = look(&manager, &store, "job-b");
    let edit = plan.first.iter().find_map(|step| match step {
        Step::Worker(cluster, Write::Patch { body, subresource: "", .. }) => Some((cluster.as_str(), body)),
        _ => None,
    });
    let (cluster, body) = edit.unwrap();
    assert_eq!((cluster, &body["spec"]), ("two", &json!({"parallelism": 3})));
    assert_eq!(body["metadata"]["annotations"], json!({names::PREBUILT: "job-b"}));
    let mut grown = remote_job(&json!({}));
    grown["metadata"]["resourceVersion"] = json!("5");
    grown["metadata"]["annotations"][names::PREBUILT] = json!("job-b");
    grown["spec"]["parallelism"] = json!(3);
    store.put(Kind::Job, grown);
    assert_eq!(remote(&look(&manager, &store, "job-b")), [""; 0]);

    // A slice that never replaced the one before takes nothing of the job along when it goes.
    let mut gone = next_slice(3);
    gone["metadata"]["resourceVersion"] = json!("10");
    gone["status"]["conditions"] = json!([condition("Finished", 0)]);
    let mut other = WorkerStore::default();
    other.put(Kind::Job, remote_job(&json!({})));
    let mut shrunk = manager;
    shrunk.put(Kind::Workload, gone);
    assert_eq!(remote(&look(&shrunk, &other, "job-b")), [""; 0]);

    // Fewer pods need no new slice: copy and job shrink in place.
    let mut less = next_slice(1);
    less["metadata"]["resourceVersion"] = json!("11");
    shrunk.put(Kind::Workload, less);
    shrunk.put(Kind::Job, elastic_job(1, "9"));
    let plan = look(&shrunk, &store, "job-b");
    assert_eq!(remote(&plan), ["two: patch Job ", "two: patch Workload "]);
    let spec_of = |plan: &Plan| {
        let writes = plan.apart.get("two").into_iter().flatten();
        let mut bodies =
            writes.filter_map(|w| if let Write::Patch { body, .. } = w { Some(body.clone()) } else { None });
        bodies.next_back().unwrap()
    };
    assert!(spec_of(&plan)["metadata"]["annotations"].is_null());
    // Of three pods two have ended there: the one that runs is charged while the reclaimable pods are those of the larger slice.
    copy["metadata"]["resourceVersion"] = json!("6");
    copy["status"]["reclaimablePods"] = json!([{"name": "main", "count": 2}]);
    store.put(Kind::Workload, copy);
    let body = spec_of(&look(&shrunk, &store, "job-b"));
    assert_eq!(body["spec"]["podSets"][0]["count"], 1);
    assert_eq!(body["metadata"]["annotations"], json!({plimsoll_api::kueue::CHARGED_PODS: "main=1"}));
}

/// "MultiKueue ElasticJob Should run an ElasticJob on worker if admitted": another client has admitted the slice for fewer pods
/// than it asks for. How many run is up to the worker, and the job needs no other slice here.
#[test]
fn a_slice_of_a_job_that_runs_elsewhere_has_the_pods_that_it_asks_for() {
    let mut local = workload("Ready", &["QuotaReserved", "Admitted"]);
    local["metadata"]["annotations"] = json!({names::ELASTIC: "true", names::SLICE: "job-a"});
    local["status"]["admission"]["podSetAssignments"] = json!([{"name": "main", "count": 1}]);
    let template = json!({"metadata": {"annotations": {names::SLICE: "job-a"}},
        "spec": {"schedulingGates": [{"name": names::ELASTIC_GATE}], "containers": []}});
    local["spec"]["podSets"][0]["template"] = template.clone();
    let mut manager = manager(local);
    let mut plan_of = |parallelism: i64, managed_by: Value, version: &str| {
        let mut job = elastic_job(parallelism, version);
        job["spec"]["managedBy"] = managed_by;
        job["spec"]["template"] = template.clone();
        job["metadata"]["labels"][names::QUEUE] = json!("q");
        manager.put(Kind::Job, job);
        crate::reconcile(&crate::Key::job(crate::config::BATCH_JOB, "ns", "a"), manager.env(NOW))
    };
    let creates = |plan: &[Write]| plan.iter().any(|w| matches!(w, Write::Create(..)));
    let plan = plan_of(2, json!(CONTROLLER), "8");
    assert!(!creates(&plan), "{plan:?}");
    // Here what is charged counts.
    let plan = plan_of(2, Value::Null, "9");
    assert!(creates(&plan), "{plan:?}");
    let plan = plan_of(1, json!(CONTROLLER), "10");
    let Some(Write::Patch { body, subresource: "", .. }) = plan.first() else { panic!("{plan:?}") };
    assert_eq!(body["spec"]["podSets"][0]["count"], 1);
    let plan = plan_of(3, json!(CONTROLLER), "11");
    assert!(creates(&plan), "{plan:?}");
}

/// Kueue `TestMultiKueueAdapter` of RayClusters (`raycluster_multikueue_adapter_test.go`), as far as it is about sizes.
#[test]
fn a_ray_cluster_gets_the_sizes_of_its_workload() {
    let kind = Kind::Custom(CustomKind::RAY_CLUSTER);
    let group = |name: &str, replicas: Option<i64>, hosts: Option<i64>| {
        let mut group = json!({"groupName": name, "template": {"spec": {"containers": []}}});
        for (field, value) in [("replicas", replicas), ("numOfHosts", hosts)] {
            if let Some(value) = value {
                group[field] = json!(value);
            }
        }
        group
    };
    let cluster = |groups: &[Value], workload: &str| {
        json!({"metadata": {"namespace": "ns", "name": "a", "uid": "j", "resourceVersion": "7",
                "annotations": {names::ELASTIC: "true", names::PREBUILT: workload}},
            "spec": {"suspend": false, "headGroupSpec": {}, "workerGroupSpecs": groups}})
    };
    // Groups of the manager's cluster; counts of its workload; what the worker's gets.
    type Row<'a> = (&'a [Value], &'a [i64], Option<Value>);
    let rows: [Row<'_>; 5] = [
        // It has grown, and the workload is the one before.
        (&[group("W", Some(3), None), group("h", Some(1), Some(2))], &[1, 2, 2], None),
        (
            &[group("W", Some(3), None), group("h", Some(1), Some(4))],
            &[1, 3, 4],
            Some(json!([
                group("W", Some(3), None),
                group("h", Some(1), Some(4)),
                group("own", Some(1), None)
            ])),
        ),
        // Another cluster may have other defaults.
        (
            &[group("W", None, None), group("h", None, None)],
            &[1, 1, 1],
            Some(json!([
                group("W", Some(1), None),
                group("h", Some(1), Some(1)),
                group("own", Some(1), None)
            ])),
        ),
        // The same number in another shape.
        (&[group("W", Some(1), Some(2)), group("h", Some(2), Some(1))], &[1, 2, 2], None),
        (&[group("W", Some(3), None)], &[1, 3, 2], None),
    ];
    let theirs =
        cluster(&[group("W", Some(2), None), group("h", Some(1), Some(2)), group("own", Some(1), None)], "b");
    for (groups, counts, want) in rows {
        let mut workload = workload("Ready", &["QuotaReserved", "Admitted"]);
        workload["metadata"]["name"] = json!("b");
        let owner = json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind, "name": "a"});
        workload["metadata"]["ownerReferences"] = json!([owner]);
        let pod_sets = ["head", "w", "h"].iter().zip(counts);
        workload["spec"]["podSets"] =
            pod_sets.map(|(name, count)| json!({"name": name, "count": count})).collect();
        let fixture = Fixture::default();
        let local = cluster(groups, "");
        let new = edited(kind, &local, &theirs, &workload, fixture.env(NOW));
        let got = (new != theirs).then(|| new["spec"]["workerGroupSpecs"].clone());
        assert_eq!(got, want, "{groups:?}");
        // A cluster that is not elastic keeps what it came with.
        let mut fixed = local;
        json::remove(&mut fixed, &["metadata", "annotations"]);
        assert_eq!(edited(kind, &fixed, &theirs, &workload, fixture.env(NOW)), theirs);
    }
}
