//! Jobs that change while they run on a worker.

use plimsoll_api::resource::RAY_SERVICES;

use super::*;
use crate::custom_kind::CustomKind;

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
}
