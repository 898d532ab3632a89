//! Objects and discovery documents of the visibility API, as upstream's `k8s.io/apiserver` makes them.

use plimsoll_queueing::PendingWorkload;
use serde_json::{Value, json};

use crate::clock;

/// The group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, preferred first.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
const KIND: &str = "PendingWorkloadsSummary";
/// Resources: plural, singular, whether they are in a namespace. They can't be read; their subresource can.
const RESOURCES: [(&str, &str, bool); 2] =
    [("clusterqueues", "clusterqueue", false), ("localqueues", "localqueue", true)];
const SUBRESOURCE: &str = "pendingworkloads";
/// Plimsoll's own subresource of LocalQueues: a Workload is posted, and the answer is when it could start.
pub const FORECASTS: &str = "admissionforecasts";
/// Kind of the answer.
pub const FORECAST_KIND: &str = "AdmissionForecast";

/// The PendingWorkloadsSummary with these items.
pub fn summary(version: &str, items: &[Value]) -> Value {
    json!({"kind": KIND, "apiVersion": format!("{GROUP}/{version}"), "metadata": {}, "items": items})
}

/// A PendingWorkload. Of its owners it has what upstream's `newPendingWorkload` copies.
pub fn item(workload: &PendingWorkload, owners: &Value) -> Value {
    let owner = |o: &Value| json!({"apiVersion": o["apiVersion"], "kind": o["kind"], "name": o["name"], "uid": o["uid"]});
    let owners: Vec<Value> = owners.as_array().into_iter().flatten().map(owner).collect();
    let mut metadata = json!({"name": workload.key.name, "namespace": workload.key.namespace,
                              "creationTimestamp": clock::text(workload.creation)});
    if !owners.is_empty() {
        metadata["ownerReferences"] = json!(owners);
    }
    json!({
        "metadata": metadata, "priority": workload.priority, "localQueueName": workload.local_queue,
        "positionInClusterQueue": workload.position_in_cluster_queue,
        "positionInLocalQueue": workload.position_in_local_queue,
    })
}

fn entry() -> Value {
    let version = |v: &&str| json!({"groupVersion": format!("{GROUP}/{v}"), "version": v});
    let versions: Vec<Value> = VERSIONS.iter().map(version).collect();
    json!({"name": GROUP, "preferredVersion": versions[0], "versions": versions})
}

/// The APIGroupList of a server that serves nothing else.
pub fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [entry()]})
}

/// The APIGroup.
pub fn group() -> Value {
    let mut group = entry();
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

/// The APIResourceList of a version.
pub fn resources(version: &str) -> Value {
    let row = |name: String, singular: &str, namespaced: bool, verbs: &[&str]| json!({"name": name, "singularName": singular, "namespaced": namespaced, "kind": KIND, "verbs": verbs});
    let mut rows: Vec<Value> = RESOURCES
        .iter()
        .flat_map(|(plural, singular, namespaced)| {
            [
                row((*plural).to_owned(), singular, *namespaced, &[]),
                row(format!("{plural}/{SUBRESOURCE}"), "", *namespaced, &["get"]),
            ]
        })
        .collect();
    rows.push(json!({"name": format!("localqueues/{FORECASTS}"), "singularName": "", "namespaced": true,
                     "kind": FORECAST_KIND, "verbs": ["create"]}));
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
           "resources": rows})
}

/// The APIGroupDiscoveryList of a server that serves nothing else.
pub fn aggregated() -> Value {
    let kind = json!({"group": "", "version": "", "kind": KIND});
    let resource = |(plural, singular, namespaced): &(&str, &str, bool)| {
        let mut subresources =
            vec![json!({"subresource": SUBRESOURCE, "responseKind": kind, "verbs": ["get"]})];
        if *namespaced {
            let kind = json!({"group": "", "version": "", "kind": FORECAST_KIND});
            subresources.push(json!({"subresource": FORECASTS, "responseKind": kind, "verbs": ["create"]}));
        }
        json!({"resource": plural, "responseKind": kind, "singularResource": singular, "verbs": [],
               "scope": if *namespaced { "Namespaced" } else { "Cluster" }, "subresources": subresources})
    };
    let resources: Vec<Value> = RESOURCES.iter().map(resource).collect();
    let version = |v: &&str| json!({"version": v, "resources": resources, "freshness": "Current"});
    let versions: Vec<Value> = VERSIONS.iter().map(version).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
           "items": [{"metadata": {"name": GROUP}, "versions": versions}]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_queueing::WorkloadKey;
    use plimsoll_state::Time;

    #[test]
    fn an_item_has_the_owners_without_their_flags() {
        let workload = PendingWorkload {
            key: WorkloadKey { namespace: "n".into(), name: "w".into() },
            uid: "u".into(),
            creation: Time::from_seconds(60),
            priority: 7,
            local_queue: "l".into(),
            position_in_cluster_queue: 3,
            position_in_local_queue: 1,
        };
        let owners =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "x", "controller": true}]);
        assert_eq!(
            item(&workload, &owners),
            json!({"metadata": {"name": "w", "namespace": "n", "creationTimestamp": "1970-01-01T00:01:00Z",
                    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "x"}]},
                   "priority": 7, "localQueueName": "l", "positionInClusterQueue": 3, "positionInLocalQueue": 1})
        );
        assert_eq!(item(&workload, &Value::Null)["metadata"].get("ownerReferences"), None);
    }
}
