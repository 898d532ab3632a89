//! The finalizer of ClusterQueues, ResourceFlavors, AdmissionChecks and Topologies (Kueue `pkg/controller/core` and
//! `pkg/controller/tas/topology_controller.go`): a ClusterQueue is released when no workload has quota in it, a flavor or
//! check when no ClusterQueue refers to it, a Topology when no flavor does.

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::resource::{ADMISSION_CHECKS, CLUSTER_QUEUES, FLAVORS, Resource, TOPOLOGIES};
use serde_json::Value;

use crate::key::Key;
use crate::names;
use crate::plan::{Plan, patch, remove_finalizer};
use crate::store::{Kind, ObjectStore};

/// The objects that may be released now that `object` has changed or gone.
pub(crate) fn affected(objects: &ObjectStore, kind: Kind, object: &Value) -> Vec<Key> {
    let name = |o: &Value| json::name(o).to_owned();
    match kind {
        Kind::Workload => {
            let queue = json::text(object, &["status", "admission", "clusterQueue"]);
            // The workload's last state may no longer name the queue it was in.
            let of_queue = |q: &Arc<Value>| queue.is_empty() || json::name(q) == queue;
            objects
                .terminating(Kind::ClusterQueue)
                .filter(of_queue)
                .map(|q| Key::ClusterQueue(name(&q)))
                .collect()
        }
        Kind::ClusterQueue => {
            let mut keys = vec![Key::ClusterQueue(name(object))];
            keys.extend(objects.terminating(Kind::Flavor).map(|f| Key::ResourceFlavor(name(&f))));
            keys.extend(objects.terminating(Kind::AdmissionCheck).map(|c| Key::AdmissionCheck(name(&c))));
            keys
        }
        Kind::AdmissionCheck => vec![Key::AdmissionCheck(name(object))],
        Kind::Flavor => {
            let mut keys = vec![Key::ResourceFlavor(name(object))];
            keys.extend(objects.terminating(Kind::Topology).map(|t| Key::TopologyInUse(name(&t))));
            keys
        }
        Kind::Topology => vec![Key::TopologyInUse(name(object))],
        _ => Vec::new(),
    }
}

/// Releases a deleted ClusterQueue without reserved quota. What a deactivated workload holds doesn't count, as in Kueue's cache.
pub(crate) fn cluster_queue(objects: &ObjectStore, name: &str) -> Plan {
    let Some(queue) = objects.get(Kind::ClusterQueue, "", name).filter(|q| json::deleting(q)) else {
        return Plan::new();
    };
    let reserved = objects.reserving_workloads().any(|w| {
        json::text(&w, &["status", "admission", "clusterQueue"]) == name && w["spec"]["active"] != false
    });
    if reserved {
        return Plan::new();
    }
    remove_finalizer(CLUSTER_QUEUES, &queue, names::IN_USE).into_iter().collect()
}

/// Releases a deleted ResourceFlavor that no ClusterQueue uses.
pub(crate) fn resource_flavor(objects: &ObjectStore, name: &str) -> Plan {
    let Some(flavor) = objects.get(Kind::Flavor, "", name).filter(|f| json::deleting(f)) else {
        return Plan::new();
    };
    let uses = |q: Arc<Value>| {
        let groups = json::list(&q, &["spec", "resourceGroups"]).iter();
        groups.flat_map(|g| json::list(g, &["flavors"])).any(|f| f["name"] == name)
    };
    if objects.all(Kind::ClusterQueue).any(uses) {
        return Plan::new();
    }
    remove_finalizer(FLAVORS, &flavor, names::IN_USE).into_iter().collect()
}

/// Adds the finalizer to an AdmissionCheck, and releases a deleted one that no ClusterQueue uses.
pub(crate) fn admission_check(objects: &ObjectStore, name: &str) -> Plan {
    let Some(check) = objects.get(Kind::AdmissionCheck, "", name) else { return Plan::new() };
    if !json::deleting(&check) {
        return add(ADMISSION_CHECKS, &check);
    }
    let uses = |q: Arc<Value>| {
        let checks = json::list(&q, &["spec", "admissionChecksStrategy", "admissionChecks"]);
        checks.iter().any(|c| c["name"] == name)
    };
    if objects.all(Kind::ClusterQueue).any(uses) {
        return Plan::new();
    }
    remove_finalizer(ADMISSION_CHECKS, &check, names::IN_USE).into_iter().collect()
}

/// Adds the finalizer to a Topology, and releases a deleted one that no ResourceFlavor uses.
pub(crate) fn topology(objects: &ObjectStore, name: &str) -> Plan {
    let Some(topology) = objects.get(Kind::Topology, "", name) else { return Plan::new() };
    if !json::deleting(&topology) {
        return add(TOPOLOGIES, &topology);
    }
    if objects.all(Kind::Flavor).any(|f| json::text(&f, &["spec", "topologyName"]) == name) {
        return Plan::new();
    }
    remove_finalizer(TOPOLOGIES, &topology, names::IN_USE).into_iter().collect()
}

/// Adds the finalizer to an object that no webhook gives it to.
fn add(resource: Resource, object: &Value) -> Plan {
    if json::has_finalizer(object, names::IN_USE) {
        return Plan::new();
    }
    let mut new = object.clone();
    let mut finalizers = json::list(object, &["metadata", "finalizers"]).to_vec();
    finalizers.push(names::IN_USE.into());
    json::set(&mut new, &["metadata", "finalizers"], Value::Array(finalizers));
    patch(resource, object, &new).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::Write;

    fn leaving(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"name": name, "deletionTimestamp": "2023-11-14T22:13:20Z", "finalizers": [names::IN_USE]},
               "spec": spec})
    }

    #[test]
    fn a_check_goes_after_the_queues_that_name_it() {
        let mut objects = ObjectStore::default();
        objects.put(Kind::AdmissionCheck, json!({"metadata": {"name": "c", "finalizers": ["other"]}}));
        let queue = json!({"metadata": {"name": "q"}, "spec": {
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}});
        objects.put(Kind::ClusterQueue, queue);
        let writes = admission_check(&objects, "c");
        let [Write::Patch { body, .. }] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!(body["metadata"]["finalizers"], json!(["other", names::IN_USE]));
        let leaving = leaving("c", &json!({}));
        objects.put(Kind::AdmissionCheck, leaving.clone());
        assert!(admission_check(&objects, "c").is_empty());
        let gone = objects.remove(Kind::ClusterQueue, "", "q", "").unwrap();
        assert!(affected(&objects, Kind::ClusterQueue, &gone).contains(&Key::AdmissionCheck("c".into())));
        assert_eq!(admission_check(&objects, "c").len(), 1);
        assert_eq!(affected(&objects, Kind::AdmissionCheck, &leaving), [Key::AdmissionCheck("c".into())]);
    }

    #[test]
    fn a_topology_goes_after_the_flavors_that_name_it() {
        let mut objects = ObjectStore::default();
        objects.put(Kind::Topology, json!({"metadata": {"name": "t"}}));
        objects.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"topologyName": "t"}}));
        objects.put(Kind::Flavor, json!({"metadata": {"name": "g"}, "spec": {"topologyName": "other"}}));
        let writes = topology(&objects, "t");
        let [Write::Patch { resource: TOPOLOGIES, body, .. }] = writes.as_slice() else {
            panic!("{writes:?}")
        };
        assert_eq!(body["metadata"]["finalizers"], json!([names::IN_USE]));
        let leaving = leaving("t", &json!({}));
        objects.put(Kind::Topology, leaving.clone());
        assert!(topology(&objects, "t").is_empty());
        assert_eq!(affected(&objects, Kind::Topology, &leaving), [Key::TopologyInUse("t".into())]);
        let gone = objects.remove(Kind::Flavor, "", "f", "").unwrap();
        assert!(affected(&objects, Kind::Flavor, &gone).contains(&Key::TopologyInUse("t".into())));
        assert_eq!(topology(&objects, "t").len(), 1);
    }

    #[test]
    fn a_queue_goes_when_nothing_is_reserved_and_its_flavor_after_it() {
        let mut objects = ObjectStore::default();
        let groups = json!({"resourceGroups": [{"flavors": [{"name": "f"}]}]});
        objects.put(Kind::ClusterQueue, leaving("q", &groups));
        objects.put(Kind::Flavor, leaving("f", &json!({})));
        let wl = json!({"metadata": {"namespace": "n", "name": "w"}, "status": {"admission": {"clusterQueue": "q"}}});
        objects.put(Kind::Workload, wl.clone());
        assert!(cluster_queue(&objects, "q").is_empty());
        let mut inactive = wl.clone();
        json::set(&mut inactive, &["spec", "active"], json!(false));
        objects.put(Kind::Workload, inactive);
        assert_eq!(cluster_queue(&objects, "q").len(), 1, "its quota is free");
        objects.put(Kind::Workload, wl.clone());
        assert!(resource_flavor(&objects, "f").is_empty());
        let gone = objects.remove(Kind::Workload, "n", "w", "").unwrap();
        assert_eq!(affected(&objects, Kind::Workload, &gone), [Key::ClusterQueue("q".into())]);
        assert_eq!(cluster_queue(&objects, "q").len(), 1);
        let gone = objects.remove(Kind::ClusterQueue, "", "q", "").unwrap();
        assert!(affected(&objects, Kind::ClusterQueue, &gone).contains(&Key::ResourceFlavor("f".into())));
        assert_eq!(resource_flavor(&objects, "f").len(), 1);
    }
}
