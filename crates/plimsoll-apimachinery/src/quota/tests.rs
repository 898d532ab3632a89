use serde_json::json;

use super::*;
use crate::Gvk;

/// There are no objects.
struct Nothing;

impl ObjectLister for Nothing {
    fn for_each(&self, _resource: &str, _namespace: Option<&str>, _visit: &mut dyn FnMut(Value)) {}
}

fn kind(group: &str, plural: &str) -> Kind {
    let gvk = Gvk { group: group.to_owned(), ..Gvk::default() };
    Kind { gvk, plural: plural.to_owned(), namespaced: true, ..Kind::default() }
}

#[test]
fn tracked_resources() {
    let rows = [
        ("", "pods", "count/pods", true),
        ("", "pods", "limits.memory", true),
        ("", "pods", "requests.nvidia.com/gpu", true),
        ("", "pods", "limits.nvidia.com/gpu", false),
        ("", "pods", "requests.hugepages-2Mi", true),
        ("", "pods", "limits.hugepages-2Mi", false),
        ("", "pods", "requests.storage", false),
        ("", "services", "services.nodeports", true),
        ("", "persistentvolumeclaims", "gold.storageclass.storage.k8s.io/requests.storage", true),
        ("", "persistentvolumeclaims", "gold.storageclass.storage.k8s.io/x", false),
        ("", "secrets", "secrets", true),
        ("", "events", "count/events", false),
        ("apps", "deployments", "count/deployments.apps", true),
        ("apps", "deployments", "deployments", false),
        ("resource.k8s.io", "resourceclaims", "gpu.deviceclass.resource.k8s.io/devices", true),
        ("resource.k8s.io", "resourceclaims", "requests.example.com/gpu", false),
    ];
    for (group, plural, resource, wanted) in rows {
        let kind = kind(group, plural);
        let tracker = Tracker { kind: &kind, objects: &Nothing, now: Timestamp::UNIX_EPOCH };
        assert_eq!(tracker.tracks(resource), wanted, "{plural} {resource}");
    }
}

#[test]
fn usages() {
    let gpu = "requests.example.com/gpu";
    let rows = [
        (
            ("", "pods"),
            json!({ "spec": { "containers": [{ "resources": {
                "requests": { "cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi" },
                "limits": { "memory": "1Gi", "example.com/gpu": "2" },
            } }] } }),
            json!({
                "count/pods": "1", "pods": "1", "cpu": "1", "requests.cpu": "1", gpu: "2", "limits.memory": "1Gi",
                "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi",
            }),
        ),
        (("", "pods"), json!({ "status": { "phase": "Failed" } }), json!({ "count/pods": "1" })),
        (
            ("", "pods"),
            json!({ "metadata": {
                "deletionTimestamp": "1969-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30,
            } }),
            json!({ "count/pods": "1" }),
        ),
        (
            ("", "services"),
            json!({ "spec": {
                "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{ "nodePort": 30000 }, {}],
            } }),
            json!({ "count/services": "1", "services": "1", "services.loadbalancers": "1", "services.nodeports": "1" }),
        ),
        (
            ("", "persistentvolumeclaims"),
            json!({
                "metadata": { "annotations": { "volume.beta.kubernetes.io/storage-class": "old" } },
                "spec": { "storageClassName": "new", "resources": { "requests": { "storage": "1500m" } } },
                "status": { "allocatedResources": { "storage": "3" } },
            }),
            json!({
                "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "3",
                "old.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
                "old.storageclass.storage.k8s.io/requests.storage": "3",
            }),
        ),
        (
            ("resource.k8s.io", "resourceclaims"),
            json!({ "spec": { "devices": { "requests": [
                { "exactly": { "deviceClassName": "a", "allocationMode": "ExactCount", "count": 2 } },
                { "firstAvailable": [
                    { "deviceClassName": "a", "allocationMode": "ExactCount", "count": 3 },
                    { "deviceClassName": "a", "allocationMode": "ExactCount", "count": 1 },
                    { "deviceClassName": "b", "allocationMode": "All" },
                ] },
            ] } } }),
            json!({
                "count/resourceclaims.resource.k8s.io": "1",
                "a.deviceclass.resource.k8s.io/devices": "5", "b.deviceclass.resource.k8s.io/devices": "32",
                "requests.deviceclass.resource.kubernetes.io/a": "5",
                "requests.deviceclass.resource.kubernetes.io/b": "32",
            }),
        ),
    ];
    for ((group, plural), object, wanted) in rows {
        let kind = kind(group, plural);
        let tracker = Tracker { kind: &kind, objects: &Nothing, now: Timestamp::UNIX_EPOCH };
        let found: Value =
            tracker.usage(&object).into_iter().map(|(name, q)| (name, Value::from(q.to_string()))).collect();
        assert_eq!(found, wanted, "{plural} {object}");
    }
}
