//! Nodes for the recorded scenarios that have none: enough for all pods of all workloads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// More of any resource than all workloads request.
const UNLIMITED: &str = "1P";

type Labels = BTreeMap<String, String>;

/// Adds a node for each combination of flavors and each set of labels that pods select. Pods get the scheduler that an API
/// server defaults.
pub fn add_nodes(objects: &mut Vec<Value>) {
    let (mut selected, mut resources) = (BTreeSet::from([Labels::new()]), BTreeSet::new());
    resources.insert("pods".to_owned());
    for workload in objects.iter_mut().filter(|o| o["kind"] == "Workload") {
        for pod_set in workload["spec"]["podSets"].as_array_mut().into_iter().flatten() {
            let spec = &mut pod_set["template"]["spec"];
            spec["schedulerName"] = json!("default-scheduler");
            selected.extend(selections(spec));
            requested(spec, &mut resources);
        }
    }
    let flavors = objects.iter().filter(|o| o["kind"] == "ResourceFlavor");
    let named = flavors.map(|f| (f["metadata"]["name"].to_string(), labels(&f["spec"]["nodeLabels"])));
    let of_flavors: BTreeMap<String, Labels> = named.collect();
    let amounts: BTreeMap<&String, &str> = resources.iter().map(|r| (r, UNLIMITED)).collect();
    let trees = trees(objects);
    let mut nodes = BTreeSet::new();
    // A podset has a flavor for each resource group; where their labels contradict each other, the last one's count.
    let mut together = BTreeSet::from([Labels::new()]);
    for flavor in of_flavors.values() {
        let more = together.iter().map(|labels| labels.iter().chain(flavor));
        let more: Vec<Labels> = more.map(|l| l.map(|(k, v)| (k.clone(), v.clone())).collect()).collect();
        together.extend(more);
    }
    for flavors in &together {
        for own in &selected {
            let mut labels = own.clone();
            labels.extend(flavors.clone());
            // A node in a topology, such as one with the name of another, would have topology aware scheduling find places there.
            let has = |tree: &Tree| {
                tree.0.iter().all(|(k, v)| labels.get(k) == Some(v))
                    && tree.1.iter().all(|l| labels.contains_key(l))
            };
            if !trees.iter().any(has) {
                nodes.insert(labels);
            }
        }
    }
    objects.extend(nodes.into_iter().enumerate().map(|(i, labels)| {
        json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": format!("unlimited-{i}"), "uid": format!("unlimited-{i}"), "labels": labels},
            "status": {
                "allocatable": amounts, "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }));
}

/// The labels of a flavor that has a topology, and those of its levels.
type Tree = (Labels, Vec<String>);

fn trees(objects: &[Value]) -> Vec<Tree> {
    let flavors = objects.iter().filter(|o| o["kind"] == "ResourceFlavor");
    let tree = |flavor: &Value| {
        let name = flavor["spec"]["topologyName"].as_str()?;
        let topology = objects.iter().find(|o| o["kind"] == "Topology" && o["metadata"]["name"] == name)?;
        let levels = topology["spec"]["levels"].as_array()?.iter();
        let levels = levels.filter_map(|l| l["nodeLabel"].as_str().map(str::to_owned)).collect();
        Some((labels(&flavor["spec"]["nodeLabels"]), levels))
    };
    flavors.filter_map(tree).collect()
}

fn labels(object: &Value) -> Labels {
    let pairs = object.as_object().into_iter().flatten();
    pairs.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect()
}

/// Labels of nodes that a pod may run on, by its selector and each term of its required affinity.
fn selections(spec: &Value) -> Vec<Labels> {
    let selector = labels(&spec["nodeSelector"]);
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = required["nodeSelectorTerms"].as_array().map_or(&[][..], Vec::as_slice);
    let mut out = vec![selector.clone()];
    for term in terms {
        let mut labels = selector.clone();
        for e in term["matchExpressions"].as_array().into_iter().flatten() {
            let value = e["values"][0].as_str().unwrap_or_default();
            let value = match e["operator"].as_str().unwrap_or_default() {
                "In" | "Exists" => value.to_owned(),
                "Gt" => (value.parse::<i64>().unwrap_or(0) + 1).to_string(),
                "Lt" => (value.parse::<i64>().unwrap_or(0) - 1).to_string(),
                _ => continue,
            };
            labels.entry(e["key"].as_str().unwrap_or_default().to_owned()).or_insert(value);
        }
        out.push(labels);
    }
    out
}

/// Names of the resources that a pod requests.
fn requested(spec: &Value, resources: &mut BTreeSet<String>) {
    let containers = ["containers", "initContainers"].iter().flat_map(|c| spec[c].as_array()).flatten();
    let lists =
        containers.chain([spec]).flat_map(|c| [&c["resources"]["requests"], &c["resources"]["limits"]]);
    let lists = lists.chain([&spec["overhead"]]);
    resources.extend(lists.flat_map(|l| l.as_object().into_iter().flatten()).map(|(name, _)| name.clone()));
}
