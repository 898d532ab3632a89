//! Objects of a load, as a client sends them.

use plimsoll_runtime::api::{CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACES, NODES, Resource, TOPOLOGIES};
use plimsoll_runtime::clock;
use serde_json::{Value, json};

use crate::bench::admission::shape::{BLOCK, Class, HOST, Level, Nodes, RACK, Shape};

/// Everything but workloads.
pub fn setup(shape: &Shape, namespace: &str) -> Vec<(Resource, Value)> {
    let mut flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": "default"}, "spec": {}});
    let mut all =
        vec![(NAMESPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))];
    if let Some(nodes) = &shape.nodes {
        flavor["spec"] = json!({"nodeLabels": {"node-group": "tas"}, "topologyName": "racks"});
        let levels = [BLOCK, RACK, HOST].map(|l| json!({"nodeLabel": l}));
        let topology = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology",
            "metadata": {"name": "racks"}, "spec": {"levels": levels}});
        all.push((TOPOLOGIES, topology));
        all.extend(racks(nodes).into_iter().map(|n| (NODES, n)));
    }
    all.push((FLAVORS, flavor));
    for q in 0..shape.queues() {
        all.push((CLUSTER_QUEUES, cluster_queue(shape, q)));
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": format!("lq-{q}"), "namespace": namespace},
            "spec": {"clusterQueue": format!("cq-{q}")}});
        all.push((LOCAL_QUEUES, queue));
    }
    all
}

fn cluster_queue(shape: &Shape, number: usize) -> Value {
    let quota =
        json!({"name": "cpu", "nominalQuota": shape.nominal_cpu, "borrowingLimit": shape.borrowing_cpu});
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": format!("cq-{number}")},
        "spec": {"cohortName": format!("cohort-{}", number / shape.queues_per_cohort), "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [quota]}]}]}})
}

fn racks(nodes: &Nodes) -> Vec<Value> {
    let mut all = Vec::new();
    for block in 0..nodes.blocks {
        for rack in 0..nodes.racks_per_block {
            for i in 0..nodes.nodes_per_rack {
                let name = format!("node-{block}-{rack}-{i}");
                let labels = json!({"node-group": "tas", BLOCK: format!("block-{block}"),
                    RACK: format!("rack-{block}-{rack}"), HOST: name});
                all.push(node(&name, &labels, nodes.cpu, nodes.memory_gi));
            }
        }
    }
    all
}

/// A ready node.
pub fn node(name: &str, labels: &Value, cpu: i64, memory_gi: i64) -> Value {
    let amounts = json!({"cpu": cpu.to_string(), "memory": format!("{memory_gi}Gi"), "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}})
}

/// Workload number `i` of a class in a queue.
pub fn workload(class: &Class, queue: usize, i: usize, namespace: &str) -> Value {
    let mut set = json!({"name": "main", "count": class.pods, "template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none",
            "resources": {"requests": {"cpu": format!("{}m", class.cpu_milli)}}}]}}});
    if let Some(level) = class.topology {
        let field = match level {
            Level::Required => "required",
            Level::Preferred => "preferred",
        };
        set["topologyRequest"] = json!({field: RACK});
        if let Some(size) = class.slice {
            set["topologyRequest"]["podSetSliceRequiredTopology"] = RACK.into();
            set["topologyRequest"]["podSetSliceSize"] = size.into();
        }
    }
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": format!("{}-{queue}-{i}", class.name), "namespace": namespace},
        "spec": {"queueName": format!("lq-{queue}"), "priority": class.priority, "podSets": [set]}})
}

/// A condition from now on.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let now = clock::text(clock::now());
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now})
}
