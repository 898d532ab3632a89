//! Worker clusters that do not serve a kind of jobs.

use plimsoll_api::resource::RAY_CLUSTERS;

use super::*;
use crate::custom_kind::CustomKind;

const KIND: Kind = Kind::Custom(CustomKind::RAY_CLUSTER);
const MESSAGE: &str = "No connected worker cluster serves kind \"RayCluster\" in version \"ray.io/v1\": ";

/// A manager with the workload of a RayCluster.
fn with_cluster(mut local: Value) -> Fixture {
    let owner = &mut local["metadata"]["ownerReferences"][0];
    (owner["apiVersion"], owner["kind"]) = (json!(RAY_CLUSTERS.api_version), json!(RAY_CLUSTERS.kind));
    let mut manager = manager(local);
    manager.put(
        KIND,
        json!({"metadata": {"namespace": "ns", "name": "a", "uid": "j", "resourceVersion": "7"},
               "spec": {"suspend": true, "managedBy": CONTROLLER}}),
    );
    manager.objects.serve(KIND, Some(RAY_CLUSTERS));
    manager
}

fn lacks(seconds_ago: i64, why: &str) -> Lacks {
    let since = Time::from_seconds(NOW.seconds() - seconds_ago);
    [(KIND, Lack { since, why: why.to_owned() })].into()
}

/// A worker that has had no RayClusters for so long.
fn without(workload: Option<Value>, seconds_ago: i64) -> Sight {
    let Sight::Connected(copy) = worker(workload, None) else { panic!("connected") };
    Sight::Connected(Copy { lacks: Arc::new(lacks(seconds_ago, "")), ..copy })
}

fn events(plan: &Plan) -> Vec<&str> {
    let events = plan.first.iter().filter_map(|step| match step {
        Step::Manager(Write::Event(event)) => Some(event.message.as_str()),
        _ => None,
    });
    events.collect()
}

#[test]
fn a_worker_without_the_kind_gets_no_copy_and_the_others_do() {
    let manager = with_cluster(workload("Pending", &["QuotaReserved"]));
    let workers = [("one", without(None, 0)), ("two", worker(None, None))];
    let plan = planned(&manager, &workers, None);
    assert_eq!(remote(&plan), ["two: create Workload"]);
    assert_eq!(patches(&plan), [("Workload", json!({"nominatedClusterNames": ["two"]}))]);
    assert_eq!(events(&plan), [""; 0], "another one can run it");
    // One that got its copy before loses it.
    let workers = [("one", without(Some(copy(&[])), 0)), ("two", worker(None, None))];
    let mut want = removed("one");
    want.push("two: create Workload".to_owned());
    assert_eq!(remote(&planned(&manager, &workers, None)), want);
    // Where only their watch is broken it keeps it: that may be for a moment.
    let Sight::Connected(known) = worker(Some(copy(&[])), None) else { panic!("connected") };
    let broken = Sight::Connected(Copy { lacks: Arc::new(lacks(5, "boom")), ..known });
    let workers = [("one", broken), ("two", worker(None, None))];
    assert_eq!(remote(&planned(&manager, &workers, None)), ["two: create Workload"]);
    // Jobs of other kinds go there.
    let other = self::manager(workload("Pending", &["QuotaReserved"]));
    let plan = planned(&other, &[("one", without(None, 0))], None);
    assert_eq!(remote(&plan), ["one: create Workload"]);
}

#[test]
fn the_check_says_that_no_worker_serves_the_kind_until_one_does() {
    let local = workload("Pending", &["QuotaReserved"]);
    let workers = [("one", without(None, 5)), ("two", without(None, 0))];
    let plan = planned(&with_cluster(local.clone()), &workers, None);
    let want = format!("{MESSAGE}[one two]");
    assert_eq!(check_of(&patches(&plan)), ("Pending".to_owned(), want.clone()));
    assert_eq!((remote(&plan), events(&plan)), (Vec::new(), vec![want.as_str()]));

    let mut told = local;
    told["status"]["admissionChecks"][0]["message"] = json!(want);
    let plan = planned(&with_cluster(told.clone()), &workers, None);
    assert_eq!(plan, Plan::default(), "once");

    let workers = [("one", without(None, 5)), ("two", worker(None, None))];
    let plan = planned(&with_cluster(told), &workers, None);
    assert_eq!(check_of(&patches(&plan)), ("Pending".to_owned(), String::new()));
    assert_eq!(patches(&plan)[0].1["nominatedClusterNames"], json!(["two"]));
    assert_eq!((remote(&plan), events(&plan)), (vec!["two: create Workload".to_owned()], Vec::new()));
}

#[test]
fn rounds_of_the_incremental_dispatcher_leave_such_workers_out() {
    let mut manager = with_cluster(workload("Pending", &["QuotaReserved"]));
    manager.config.multikueue.dispatcher = Dispatcher::Incremental { step: 2 };
    let workers = [("two", without(None, 0)), ("one", worker(None, None)), ("three", worker(None, None))];
    let plan = planned(&manager, &workers, None);
    assert_eq!(patches(&plan)[0].1["nominatedClusterNames"], json!(["one", "three"]));
}

#[test]
fn a_worker_that_loses_the_kind_has_its_time_to_serve_it_again() {
    let mut local = workload("Ready", &["QuotaReserved", "Admitted"]);
    local["status"]["clusterName"] = json!("one");
    let manager = with_cluster(local.clone());
    let there =
        |seconds| [("one", without(Some(copy(&[("Admitted", 1)])), seconds)), ("two", worker(None, None))];
    let plan = planned(&manager, &there(100), None);
    assert_eq!(plan, Plan { requeue_after: Some(Duration::from_seconds(800)), ..Plan::default() });
    let plan = planned(&manager, &there(900), None);
    assert_eq!(
        check_of(&patches(&plan)),
        ("Retry".to_owned(), "Admitting remote lost, Previously: \"Ready\"".to_owned())
    );
    // Back in time, the worker gets the job again, whose definition took it along.
    let plan = planned(&manager, &[("one", worker(Some(copy(&[("Admitted", 1)])), None))], None);
    assert_eq!(remote(&plan), ["one: create RayCluster"]);
    // Another worker without the kind keeps no eviction waiting.
    local["status"]["clusterName"] = Value::Null;
    local["status"]["conditions"] = json!([condition("QuotaReserved", 0), condition("Evicted", 1)]);
    let plan = planned(&with_cluster(local), &[("two", without(None, 0))], None);
    assert_eq!(plan.requeue_after, None);
}

#[test]
fn the_cluster_says_which_kinds_of_the_manager_it_lacks() {
    let mut manager = with_cluster(workload("Pending", &[]));
    let cluster = |conditions: Value| json!({"metadata": {"name": "one", "uid": "c", "resourceVersion": "1"}, "status": {"conditions": conditions}});
    manager.put(Kind::MultiKueueCluster, cluster(json!([])));
    let of = |manager: &Fixture, lacks: Lacks| {
        let write = plan_cluster("one", &ClusterState::Connected { lacks }, manager.env(NOW))?;
        let Write::Patch { body, .. } = write else { panic!("{write:?}") };
        let conditions = json::list(&body, &["status", "conditions"]).iter();
        let text = |c: &Value, key: &str| json::text(c, &[key]).to_owned();
        Some((
            conditions
                .map(|c| (text(c, "type"), text(c, "status"), text(c, "reason"), text(c, "message")))
                .collect::<Vec<_>>(),
            body["status"]["conditions"].clone(),
        ))
    };
    let row = |kind: &str, status: &str, reason: &str, message: &str| {
        (kind.to_owned(), status.to_owned(), reason.to_owned(), message.to_owned())
    };
    let active = row("Active", "True", "Active", "Connected");
    let served = names::JOB_KINDS_SERVED;
    let (rows, _) = of(&manager, Lacks::new()).expect("a write");
    assert_eq!(rows.as_slice(), std::slice::from_ref(&active), "nothing was ever missing");
    let no_match = "no matches for kind \"RayCluster\" in version \"ray.io/v1\"";
    let (rows, conditions) = of(&manager, lacks(1, "")).expect("a write");
    assert_eq!(rows, [active.clone(), row(served, "False", "NotServed", no_match)]);
    manager.put(Kind::MultiKueueCluster, with_version(cluster(conditions), "2"));
    assert_eq!(of(&manager, lacks(1, "")), None, "once");
    let (rows, conditions) = of(&manager, lacks(1, "boom")).expect("a write");
    assert_eq!(rows[1], row(served, "False", "NotServed", "rayclusters.ray.io can't be watched: boom"));
    manager.put(Kind::MultiKueueCluster, with_version(cluster(conditions), "3"));
    let (rows, _) = of(&manager, Lacks::new()).expect("a write");
    assert_eq!(rows, [active.clone(), row(served, "True", "Served", "All kinds of jobs are served")]);
    // What the manager has none of is no lack.
    let mut manager = with_cluster(workload("Pending", &[]));
    manager.objects.serve(KIND, None);
    manager.put(Kind::MultiKueueCluster, cluster(json!([])));
    assert_eq!(of(&manager, lacks(1, "")).expect("a write").0, [active]);
}

fn with_version(mut object: Value, version: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(version);
    object
}

/// A kind with two versions is followed in the manager's, and removed in the version in which it was read.
#[test]
fn kinds_are_followed_in_the_version_of_the_manager() {
    let mut manager = manager(workload("Pending", &[]));
    manager.put(
        Kind::JobKind,
        json!({"metadata": {"name": "trains.example.com"}, "spec": {
            "group": "example.com", "versions": ["v2", "v1"], "plural": "trains", "kind": "Train", "suspendPath": ".spec.paused",
            "active": "true", "finished": "true", "succeeded": "false",
            "podSets": [{"name": "a", "templatePath": ".spec"}]}}),
    );
    let train = manager.declared_kinds().next().expect("declared");
    let kind = Kind::Custom(train);
    let versions = |manager: &Fixture| -> Vec<&str> {
        let all = followed(&manager.config, &manager.objects);
        let of = all.iter().find(|(k, _)| *k == kind).expect("followed");
        of.1.iter().map(|resource| resource.api_version).collect()
    };
    assert_eq!(versions(&manager), ["example.com/v2", "example.com/v1"], "not served here yet");
    manager.objects.serve(kind, Some(train.versions()[1]));
    assert_eq!(versions(&manager), ["example.com/v1"]);
    let mut store = WorkerStore::default();
    let made = json!({"apiVersion": "example.com/v1", "kind": "Train",
        "metadata": {"namespace": "ns", "name": "a", "uid": "rj", "annotations": {names::PREBUILT: "job-a"}}});
    store.put(kind, made);
    let plan = planned(&manager, &[("one", Sight::Connected(store.copy(&key(), &[])))], None);
    let Some(Write::Delete { resource, .. }) = plan.apart["one"].first() else { panic!("{plan:?}") };
    assert_eq!(resource.api_version, "example.com/v1");
    store.forget(kind);
    assert!(store.copy(&key(), &[]).is_empty() && store.workloads().is_empty());
}

/// A Job that its worker removes after a while would be dispatched again (kubernetes-sigs/kueue issue 14779).
#[test]
fn jobs_stay_on_workers_until_the_manager_removes_them() {
    for (clears, want) in [(true, Value::Null), (false, json!(60))] {
        let mut manager = manager(workload("Pending", &["QuotaReserved"]));
        manager.config.multikueue.clears_ttl = clears;
        let mut own = job();
        own["metadata"]["resourceVersion"] = json!("8");
        own["spec"]["ttlSecondsAfterFinished"] = json!(60);
        manager.put(Kind::Job, own);
        let first = planned(&manager, &[("one", worker(Some(copy(&[("Admitted", 1)])), None))], None).first;
        let Some(Step::Worker(_, Write::Create(_, made))) = first.first() else { panic!("{first:?}") };
        assert_eq!(made["spec"]["ttlSecondsAfterFinished"], want);
    }
}
