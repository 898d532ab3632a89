//! Kueue's `TestCQReconcile`.

use plimsoll_api::quantity::Quantity;

use super::*;
use crate::multikueue::quota::{self, Quotas, local_queues_of, quotas_of};
use crate::store::ObjectStore;

type Resources<'a> = &'a [(&'a str, &'a str)];

/// A ClusterQueue with groups of flavors of resources.
fn cluster_queue(name: &str, groups: &[&[Resources<'_>]]) -> Value {
    let flavor = |(i, resources): (usize, &Resources<'_>)| {
        let resources: Vec<Value> =
            resources.iter().map(|(n, q)| json!({"name": n, "nominalQuota": q})).collect();
        json!({"name": format!("f{i}"), "resources": resources})
    };
    let group = |flavors: &&[Resources<'_>]| {
        let covered: Vec<&str> = flavors[0].iter().map(|(name, _)| *name).collect();
        let flavors: Vec<Value> = flavors.iter().enumerate().map(flavor).collect();
        json!({"coveredResources": covered, "flavors": flavors})
    };
    let groups: Vec<Value> = groups.iter().map(group).collect();
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "5", "generation": 2},
           "spec": {"resourceGroups": groups,
                    "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}}})
}

fn local_queue(name: &str, cluster_queue: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"clusterQueue": cluster_queue}})
}

/// What a worker with these queues offers.
fn offered(manager: &Fixture, locals: &[(&str, &str)], queues: &[Value]) -> Quotas {
    let mut worker = ObjectStore::default();
    for (name, queue) in locals {
        worker.put(Kind::LocalQueue, std::sync::Arc::new(local_queue(name, queue)));
    }
    for queue in queues {
        worker.put(Kind::ClusterQueue, std::sync::Arc::new(queue.clone()));
    }
    quotas_of(&worker, &local_queues_of("cq", &manager.objects))
}

/// A manager with this ClusterQueue and the LocalQueues `a` and `b`.
fn automated(queue: Value) -> Fixture {
    let mut manager = manager(workload("Pending", &[]));
    manager.config.multikueue.automates_quota = true;
    manager.put(
        Kind::MultiKueueConfig,
        json!({"metadata": {"name": "c", "resourceVersion": "9"},
               "spec": {"clusters": ["one", "two"], "quotaManagement": "Automated"}}),
    );
    manager.put(Kind::ClusterQueue, queue);
    manager.put(Kind::LocalQueue, local_queue("a", "cq"));
    manager.put(Kind::LocalQueue, local_queue("b", "cq"));
    manager.put(Kind::LocalQueue, local_queue("c", "other"));
    manager
}

/// The resources that the next write sets, or the condition, or nothing.
fn next(manager: &Fixture, workers: &[(&str, Quotas)]) -> Value {
    let workers = workers.iter().map(|(name, quotas)| ((*name).to_owned(), quotas.clone())).collect();
    match quota::plan("cq", &workers, manager.env(NOW)) {
        Some(Write::Patch { resource, subresource: "", body, .. }) => {
            assert_eq!(resource.kind, "ClusterQueue");
            let flavor = &body["spec"]["resourceGroups"][0]["flavors"][0];
            let row = |r: &Value| (json::text(r, &["name"]).to_owned(), r["nominalQuota"].clone());
            json::list(flavor, &["resources"]).iter().map(row).collect::<serde_json::Map<_, _>>().into()
        }
        Some(Write::Patch { subresource: "status", body, .. }) => {
            let conditions = json::list(&body, &["status", "conditions"]);
            conditions.first().map_or(json!([]), |c| json!([c["status"], c["reason"], c["message"]]))
        }
        None => Value::Null,
        other => panic!("{other:?}"),
    }
}

#[test]
fn quotas_of_workers_add_up() {
    let manager = automated(cluster_queue("cq", &[&[&[("cpu", "0"), ("memory", "0"), ("gpu", "0")]]]));
    let one = offered(
        &manager,
        &[("a", "w1"), ("b", "w1"), ("c", "w3")],
        &[
            cluster_queue("w1", &[&[&[("cpu", "10"), ("memory", "20Gi")]], &[&[("gpu", "1")]]]),
            cluster_queue("w2", &[&[&[("cpu", "100")]]]),
            cluster_queue("w3", &[&[&[("cpu", "100")]]]),
        ],
    );
    let two = offered(
        &manager,
        &[("a", "w1"), ("b", "w2")],
        &[
            cluster_queue("w1", &[&[&[("cpu", "5"), ("gpu", "2")], &[("cpu", "4"), ("gpu", "1")]]]),
            cluster_queue("w2", &[&[&[("cpu", "500m")]]]),
        ],
    );
    let unnamed = one.clone();
    let all = [("one", one.clone()), ("two", two), ("three", unnamed)];
    assert_eq!(next(&manager, &all), json!({"cpu": "19500m", "memory": "20Gi", "gpu": "4"}));
    // One that is not connected offers nothing.
    assert_eq!(next(&manager, &[("one", one)]), json!({"cpu": "10", "memory": "20Gi", "gpu": "1"}));
}

#[test]
fn the_condition_follows_the_quota() {
    let quotas = |cpu: &str| Quotas::from([("cpu".to_owned(), cpu.parse::<Quantity>().unwrap())]);
    let told = json!([
        "True",
        "QuotaAutomated",
        "ClusterQueue quota is automatically managed based on MultiKueue workers."
    ]);
    let mut queue = cluster_queue("cq", &[&[&[("cpu", "10")]]]);
    assert_eq!(next(&automated(queue.clone()), &[("one", quotas("10000m"))]), told);
    // Limits of the manager's own are removed.
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = json!("1");
    assert_eq!(next(&automated(queue.clone()), &[("one", quotas("10"))]), json!({"cpu": "10"}));
    queue = cluster_queue("cq", &[&[&[("cpu", "10")]]]);
    let condition = json!({"type": "MultiKueueManagerQuotaAutomation", "status": "True", "reason": told[1],
                           "message": told[2], "observedGeneration": 1});
    queue["status"]["conditions"] = json!([condition]);
    assert_eq!(next(&automated(queue.clone()), &[("one", quotas("10"))]), Value::Null);
    assert_eq!(next(&automated(queue.clone()), &[]), json!({"cpu": "0"}));
    // A queue without a check of MultiKueue loses it.
    json::remove(&mut queue, &["spec", "admissionChecksStrategy"]);
    assert_eq!(next(&automated(queue.clone()), &[]), json!([]));
    let mut off = automated(queue);
    off.config.multikueue.automates_quota = false;
    assert_eq!(next(&off, &[]), Value::Null);
}

#[test]
fn what_can_not_be_automated_is_said() {
    let message = |manager: &Fixture, workers: &[(&str, Quotas)]| {
        let told = next(manager, workers);
        assert_eq!(told[0], "False");
        format!("{}: {}", json::text(&told[1], &[]), json::text(&told[2], &[]))
    };
    let two = automated(cluster_queue("cq", &[&[&[("cpu", "0")]], &[&[("gpu", "0")]]]));
    assert_eq!(
        message(&two, &[]),
        "UnsupportedConfiguration: Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor"
    );
    let mut manager = automated(cluster_queue("cq", &[&[&[("cpu", "0")]]]));
    let more = Quotas::from(["memory", "gpu"].map(|r| (r.to_owned(), Quantity::default())));
    assert_eq!(
        message(&manager, &[("one", more)]),
        "UnsupportedConfiguration: manager-side coveredResources is missing resources configured on workers: [gpu memory]"
    );
    let manual = json!({"metadata": {"name": "c", "resourceVersion": "10"}, "spec": {"clusters": ["one"]}});
    manager.put(Kind::MultiKueueConfig, manual.clone());
    assert_eq!(
        message(&manager, &[]),
        "NotRequested: MultiKueue manager quota automation has not been requested."
    );
    manager.remove(Kind::MultiKueueConfig, "", "c", "");
    assert_eq!(
        message(&manager, &[]),
        "UnsupportedConfiguration: The referenced MultiKueueConfig was not found."
    );
}
