//! Sets, whose pods have no workload of their own.

use plimsoll_api::resource::{LEADER_WORKER_SETS, STATEFUL_SETS};

use super::*;

const LWS: Kind = leader_worker_set::KIND;

/// A workload of this kind of job, which is not its controller.
fn of_set(resource: plimsoll_api::resource::Resource, name: &str, index: Option<i64>) -> Value {
    let mut local = workload("Pending", &["QuotaReserved"]);
    let owner = json!([{"apiVersion": resource.api_version, "kind": resource.kind, "name": "a", "uid": "j"}]);
    local["metadata"]["ownerReferences"] = owner;
    local["metadata"]["name"] = json!(name);
    local["metadata"]["uid"] = json!(name);
    let kind = format!("{}, Kind={}", resource.api_version, resource.kind);
    let mut annotations = json!({names::OWNER_KIND: kind, names::OWNER_NAME: "a"});
    if let Some(index) = index {
        annotations[names::COMPONENT] = json!(index.to_string());
    }
    local["metadata"]["annotations"] = annotations;
    local
}

fn set(replicas: i64) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "a", "uid": "j", "resourceVersion": "1"},
           "spec": {"replicas": replicas}, "status": {"replicas": replicas}})
}

fn admitted(name: &str) -> Value {
    let mut copy = copy(&[("Admitted", 1)]);
    copy["metadata"]["name"] = json!(name);
    copy
}

fn first_create(plan: &Plan) -> &Value {
    let create = plan.first.iter().find_map(|step| match step {
        Step::Worker(_, Write::Create(_, made)) => Some(made),
        _ => None,
    });
    create.unwrap_or_else(|| panic!("{plan:?}"))
}

#[test]
fn a_stateful_set_keeps_the_status_of_its_own_controller() {
    let local = of_set(STATEFUL_SETS, "job-a", None);
    let mut manager = manager(local);
    manager.put(Kind::StatefulSet, set(2));
    assert!(followed(&manager.config, &manager.objects).iter().any(|(kind, _)| *kind == Kind::StatefulSet));
    let mut store = WorkerStore::default();
    store.put(Kind::Workload, copy(&[("Admitted", 1)]));
    let look =
        |store: &WorkerStore| planned(&manager, &[("one", Sight::Connected(store.copy(&key(), &[])))], None);
    let plan = look(&store);
    let made = first_create(&plan);
    assert_eq!((&made["kind"], &made["spec"]["replicas"]), (&json!("StatefulSet"), &json!(2)));
    assert_eq!(json::annotation(made, names::ORIGIN_UID), Some("j"));
    assert_eq!(json::annotation(made, names::PREBUILT), Some("job-a"));
    let mut theirs = made.clone();
    theirs["metadata"]["resourceVersion"] = json!("1");
    theirs["status"] = json!({"replicas": 2, "readyReplicas": 2});
    assert_eq!(store.put(Kind::StatefulSet, theirs), [key()]);
    let plan = look(&store);
    assert_eq!(remote(&plan), [""; 0]);
    assert!(patches(&plan).iter().all(|(kind, _)| *kind == "Workload"), "{plan:?}");
}

/// The set on the worker is found by the names that the manager gives to its workloads.
#[test]
fn a_set_belongs_to_the_workloads_with_the_names_of_the_manager() {
    let mut theirs = set(2);
    theirs["metadata"]["name"] = json!("a".repeat(100));
    theirs["metadata"]["annotations"] = json!({names::ORIGIN_UID: "j"});
    for (of_manager, length) in [(WorkloadNames::Long, 124), (WorkloadNames::Short, 63)] {
        let mut store = WorkerStore::new(of_manager);
        let concerned = store.put(LWS, theirs.clone());
        let wanted: Vec<String> = leader_worker_set::workload_names(&theirs, of_manager).collect();
        assert_eq!(concerned.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), wanted);
        assert_eq!(concerned.iter().map(|key| key.name.len()).collect::<Vec<_>>(), [length; 2]);
        assert_eq!(store.copy(&concerned[1], &[]).jobs.len(), 1);
        assert_eq!(store.remove(LWS, "ns", &"a".repeat(100), "j"), concerned);
        assert!(store.workloads().is_empty());
    }
}

#[test]
fn all_groups_of_a_leader_worker_set_run_on_the_cluster_of_the_first() {
    let names: Vec<String> = leader_worker_set::workload_names(&set(3), WorkloadNames::Long).collect();
    let mut manager = manager(of_set(LEADER_WORKER_SETS, &names[0], Some(0)));
    manager.put(LWS, set(3));
    manager.put(Kind::Workload, of_set(LEADER_WORKER_SETS, &names[2], Some(2)));
    let none = || Sight::Connected(Copy::default());
    let look = |manager: &Fixture, name: &str| {
        let workers = BTreeMap::from([("one".to_owned(), none()), ("two".to_owned(), none())]);
        plan(&named(name), &workers, &Memory::default(), manager.env(NOW))
    };
    // Not before all are there, and then the first one first.
    assert_eq!(look(&manager, &names[0]), Plan::default());
    let second = of_set(LEADER_WORKER_SETS, &names[1], Some(1));
    manager.put(Kind::Workload, second.clone());
    assert_eq!(remote(&look(&manager, &names[0])), ["one: create Workload", "two: create Workload"]);
    assert_eq!(look(&manager, &names[1]), Plan::default());
    // A change of one concerns those that wait.
    let concerned = affected(Kind::Workload, &second, &manager);
    assert_eq!(concerned, [named(&names[1]), named(&names[0]), named(&names[2])]);
    let mut first = of_set(LEADER_WORKER_SETS, &names[0], Some(0));
    first["metadata"]["resourceVersion"] = json!("10");
    first["status"]["clusterName"] = json!("two");
    manager.put(Kind::Workload, first);
    let plan = look(&manager, &names[1]);
    assert_eq!(remote(&plan), ["two: create Workload"]);
    assert_eq!(patches(&plan), [("Workload", json!({"nominatedClusterNames": ["two"]}))]);
    // While their cluster is lost, they wait for it.
    let workers = BTreeMap::from([("one".to_owned(), none())]);
    assert_eq!(
        super::plan(&named(&names[1]), &workers, &Memory::default(), manager.env(NOW)),
        Plan::default()
    );

    // The set is created once, and is that of all its workloads.
    let mut store = WorkerStore::default();
    store.put(Kind::Workload, admitted(&names[0]));
    let admits = |store: &WorkerStore, name: &str| {
        let sight = Sight::Connected(store.copy(&named(name), &[]));
        super::plan(
            &named(name),
            &BTreeMap::from([("two".to_owned(), sight)]),
            &Memory::default(),
            manager.env(NOW),
        )
    };
    let plan = admits(&store, &names[0]);
    let made = first_create(&plan);
    assert_eq!(json::annotation(made, names::ORIGIN_UID), Some("j"));
    assert!(json::annotation(made, names::PREBUILT).is_none());
    let mut theirs = made.clone();
    theirs["metadata"]["uid"] = json!("theirs");
    theirs["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(store.put(LWS, theirs).len(), 3);
    store.put(Kind::Workload, admitted(&names[1]));
    for name in &names[..2] {
        assert_eq!(remote(&admits(&store, name)), [""; 0]);
    }
}
