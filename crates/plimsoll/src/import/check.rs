//! What an import needs to know of a cluster, and the Workload that it makes of a pod (upstream's `cmd/importer/cache` and
//! `cmd/importer/pod/check.go`).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::convert::pod_spec_from_value;
use plimsoll_api::json;
use plimsoll_jobs::workload::{Priority, set_priority};
use plimsoll_jobs::{Config, Env, ObjectStore, names};
use plimsoll_queueing::{Admission, PodSetAssignment};
use plimsoll_state::Time;
use plimsoll_state::model::requests::{PodResourcesOptions, pod_requests};
use serde_json::{Value, json};

use super::mapping::{Rule, Target, target};

/// A ClusterQueue: the first flavor of each resource, and the flavors that it names.
#[derive(Debug, Default)]
struct ClusterQueue {
    groups: usize,
    flavor_of: BTreeMap<String, String>,
    flavors: BTreeSet<String>,
}

/// Objects that pods are checked against.
#[derive(Debug, Default)]
pub struct Cluster {
    cluster_queues: BTreeMap<String, ClusterQueue>,
    /// ClusterQueues of LocalQueues by (namespace, name).
    local_queues: BTreeMap<(String, String), String>,
    flavors: BTreeSet<String>,
    priority_classes: BTreeMap<String, i64>,
}

/// How pods are imported.
#[derive(Debug, Default)]
pub struct Rules {
    /// From pods to LocalQueues.
    pub mapping: Vec<Rule>,
    /// More labels for pods and workloads.
    pub add_labels: BTreeMap<String, String>,
    /// Prefixes of resources without quota.
    pub excluded: Vec<String>,
}

/// A pod that can be imported.
#[derive(Debug)]
pub struct Checked {
    /// Its Workload, without status.
    pub workload: Value,
    /// Labels that the pod has after the import.
    pub labels: BTreeMap<String, String>,
    /// ClusterQueue.
    pub cluster_queue: String,
    /// `status.admission` of the Workload.
    pub admission: Value,
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    json::list(list, &["items"]).iter()
}

impl Cluster {
    /// Takes lists of ClusterQueues, LocalQueues, ResourceFlavors and PriorityClasses.
    pub fn new(cluster_queues: &Value, local_queues: &[Value], flavors: &Value, classes: &Value) -> Self {
        let names = |list: &Value| items(list).map(|o| json::name(o).to_owned()).collect();
        let local = local_queues.iter().flat_map(items).map(|queue| {
            let key = (json::namespace(queue).to_owned(), json::name(queue).to_owned());
            (key, json::text(queue, &["spec", "clusterQueue"]).to_owned())
        });
        Self {
            cluster_queues: items(cluster_queues)
                .map(|q| (json::name(q).to_owned(), ClusterQueue::new(q)))
                .collect(),
            local_queues: local.collect(),
            flavors: names(flavors),
            priority_classes: items(classes)
                .map(|c| (json::name(c).to_owned(), c["value"].as_i64().unwrap_or(0)))
                .collect(),
        }
    }

    /// The Workload of a pod and its admission; `None`: a rule leaves the pod as it is.
    ///
    /// # Errors
    /// Why the pod can't be imported, in upstream's words.
    pub fn check(&self, pod: &Value, rules: &Rules) -> Result<Option<Checked>, String> {
        let queue = match target(&rules.mapping, pod) {
            Target::Skip => return Ok(None),
            Target::None => return Err("no mapping found".to_owned()),
            Target::LocalQueue(queue) => queue,
        };
        let key = (json::namespace(pod).to_owned(), queue.to_owned());
        let Some(name) = self.local_queues.get(&key) else {
            return Err(format!("{queue}: localqueue not found"));
        };
        let Some(cluster_queue) = self.cluster_queues.get(name) else {
            return Err(format!("cluster queue not found in cache: {name}: clusterqueue not found"));
        };
        if let Some(old) = json::label_opt(pod, names::QUEUE).filter(|old| *old != queue) {
            return Err(format!("another local queue name is set {old:?} expecting {queue:?}"));
        }
        self.check_flavors(name, cluster_queue)?;
        let mut labels = rules.add_labels.clone();
        labels.insert(names::QUEUE.to_owned(), queue.to_owned());
        let mut workload = workload_of(pod, queue, &labels);
        for (label, value) in &rules.add_labels {
            json::set(&mut workload, &["metadata", "labels", label], json!(value));
        }
        let admission = cluster_queue.admission(name, pod, &rules.excluded)?;
        let class = json::text(pod, &["spec", "priorityClassName"]);
        if !class.is_empty() {
            let Some(&value) = self.priority_classes.get(class) else {
                return Err(format!("{class:?}: priorityclass not found"));
            };
            let class = ("scheduling.k8s.io", "PriorityClass", class.to_owned());
            set_priority(&mut workload, &Priority { class: Some(class), value });
        }
        labels.insert(names::MANAGED.to_owned(), "true".to_owned());
        Ok(Some(Checked { workload, labels, cluster_queue: name.clone(), admission }))
    }

    fn check_flavors(&self, name: &str, queue: &ClusterQueue) -> Result<(), String> {
        if queue.groups == 0 {
            return Err(format!("{name:?} has no resource groups: clusterqueue invalid"));
        }
        let missing: Vec<&str> = queue.flavors.difference(&self.flavors).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("{name:?} missing flavors [{}]: clusterqueue invalid", missing.join(" ")))
    }
}

/// The Workload of a pod with these labels.
fn workload_of(pod: &Value, queue: &str, labels: &BTreeMap<String, String>) -> Value {
    let mut labelled = pod.clone();
    for (label, value) in labels {
        json::set(&mut labelled, &["metadata", "labels", label], json!(value));
    }
    let (objects, config) = (ObjectStore::default(), Config::default());
    let env = Env { objects: &objects, config: &config, now: Time::from_seconds(0) };
    plimsoll_jobs::single_pod_workload(&labelled, queue, env)
}

impl ClusterQueue {
    fn new(object: &Value) -> Self {
        let mut out = Self::default();
        for group in json::list(object, &["spec", "resourceGroups"]) {
            out.groups += 1;
            let flavors: Vec<&str> =
                json::list(group, &["flavors"]).iter().map(|f| json::text(f, &["name"])).collect();
            let Some(first) = flavors.first() else { continue };
            for resource in json::list(group, &["coveredResources"]).iter().filter_map(Value::as_str) {
                out.flavor_of.entry(resource.to_owned()).or_insert_with(|| (*first).to_owned());
            }
            out.flavors.extend(flavors.into_iter().map(str::to_owned));
        }
        out
    }

    /// `status.admission` of the Workload of a pod: the first flavor of each resource.
    fn admission(&self, name: &str, pod: &Value, excluded: &[String]) -> Result<Value, String> {
        let spec = pod_spec_from_value(&pod["spec"]).map_err(|e| format!("construct workload: {e}"))?;
        let mut requests = pod_requests(&spec, &PodResourcesOptions::default());
        requests.retain(|resource, _| !excluded.iter().any(|p| resource.starts_with(p.as_str())));
        let mut assignment =
            PodSetAssignment { name: "main".into(), count: 1, ..PodSetAssignment::default() };
        for resource in requests.iter().filter(|(_, amount)| **amount != 0).map(|(resource, _)| resource) {
            let Some(flavor) = self.flavor_of.get(resource) else {
                return Err(format!("resource {resource:?} is not covered by ClusterQueue {name:?}"));
            };
            assignment.flavors.push((resource.clone(), flavor.clone()));
        }
        assignment.resource_usage = requests.into();
        let admission = Admission { cluster_queue: name.to_owned(), assignments: vec![assignment] };
        Ok(plimsoll_api::kueue::admission(&admission))
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::from_file;
    use super::*;

    fn cluster() -> Cluster {
        let queue = |name: &str, groups: Value| json!({"metadata": {"name": name}, "spec": {"resourceGroups": groups}});
        let group = |resources: &[&str], flavors: &[&str]| {
            let flavors: Vec<Value> = flavors.iter().map(|f| json!({"name": f})).collect();
            json!({"coveredResources": resources, "flavors": flavors})
        };
        let queues = json!({"items": [
            queue("cq", json!([group(&["cpu", "memory"], &["f1", "f2"]), group(&["example.com/gpu"], &["f2"])])),
            queue("empty", json!([])),
            queue("broken", json!([group(&["cpu"], &["f1", "f4", "f3"])])),
        ]});
        let local = |name: &str, cluster_queue: &str| json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"clusterQueue": cluster_queue}});
        let locals = json!({"items": [local("lq", "cq"), local("empty", "empty"), local("broken", "broken"), local("none", "none")]});
        let flavors = json!({"items": [{"metadata": {"name": "f1"}}, {"metadata": {"name": "f2"}}]});
        let classes = json!({"items": [{"metadata": {"name": "high"}, "value": 7}]});
        Cluster::new(&queues, &[locals], &flavors, &classes)
    }

    fn rules() -> Rules {
        let mapping = "[{match: {labels: {to: skip}}, skip: true}, {match: {labels: {to: lq}}, toLocalQueue: lq},
            {match: {labels: {to: empty}}, toLocalQueue: empty}, {match: {labels: {to: broken}}, toLocalQueue: broken},
            {match: {labels: {to: none}}, toLocalQueue: none}, {match: {labels: {to: absent}}, toLocalQueue: absent}]";
        Rules {
            mapping: from_file(mapping).expect("rules"),
            add_labels: [("team".to_owned(), "a".to_owned())].into(),
            excluded: vec!["network.".to_owned()],
        }
    }

    fn pod(to: &str, requests: &Value) -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u", "labels": {"to": to}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], "nodeName": "n"},
        })
    }

    #[test]
    fn pods_become_admitted_workloads() {
        let requests =
            json!({"cpu": "1500m", "memory": "1Gi", "network.example/x": "1", "example.com/gpu": "0"});
        let mut pod = pod("lq", &requests);
        pod["spec"]["priorityClassName"] = json!("high");
        let checked = cluster().check(&pod, &rules()).expect("it can be imported").expect("no rule skips it");
        let w = &checked.workload;
        assert_eq!(json::name(w), plimsoll_api::kueue::WorkloadNames::Long.of("Pod", "", "p", "u"));
        assert_eq!((&w["spec"]["queueName"], &w["spec"]["priority"]), (&json!("lq"), &json!(7)));
        assert_eq!(w["spec"]["priorityClassRef"]["kind"], "PriorityClass");
        assert_eq!(w["metadata"]["labels"], json!({"kueue.x-k8s.io/job-uid": "u", "team": "a"}));
        assert_eq!(w["metadata"]["ownerReferences"][0]["name"], "p");
        assert_eq!(w["spec"]["podSets"][0]["template"]["spec"]["nodeName"], "n");
        let labels = [("kueue.x-k8s.io/managed", "true"), ("kueue.x-k8s.io/queue-name", "lq"), ("team", "a")];
        assert_eq!(checked.labels, BTreeMap::from(labels.map(|(k, v)| (k.to_owned(), v.to_owned()))));
        assert_eq!(
            checked.admission,
            json!({"clusterQueue": "cq", "podSetAssignments": [{
                "name": "main", "count": 1, "flavors": {"cpu": "f1", "memory": "f1"},
                "resourceUsage": {"cpu": "1500m", "memory": "1Gi", "example.com/gpu": "0"}}]})
        );
        json::set(&mut pod, &["metadata", "annotations", names::PREBUILT], json!("mine"));
        let checked = cluster().check(&pod, &rules()).expect("valid").expect("mapped");
        assert_eq!(json::name(&checked.workload), "mine");
    }

    #[test]
    fn what_a_pod_lacks_is_named() {
        let cpu = json!({"cpu": "1"});
        let mut queued = pod("lq", &cpu);
        json::set(&mut queued, &["metadata", "labels", names::QUEUE], json!("other"));
        let mut class = pod("lq", &cpu);
        class["spec"]["priorityClassName"] = json!("low");
        let table = [
            (pod("", &cpu), "no mapping found"),
            (pod("absent", &cpu), "absent: localqueue not found"),
            (pod("none", &cpu), "cluster queue not found in cache: none: clusterqueue not found"),
            (pod("empty", &cpu), "\"empty\" has no resource groups: clusterqueue invalid"),
            (pod("broken", &cpu), "\"broken\" missing flavors [f3 f4]: clusterqueue invalid"),
            (
                pod("lq", &json!({"example.com/x": "1"})),
                "resource \"example.com/x\" is not covered by ClusterQueue \"cq\"",
            ),
            (queued, "another local queue name is set \"other\" expecting \"lq\""),
            (class, "\"low\": priorityclass not found"),
        ];
        for (pod, want) in table {
            assert_eq!(cluster().check(&pod, &rules()).map(|_| ()), Err(want.to_owned()));
        }
        assert!(cluster().check(&pod("skip", &cpu), &rules()).expect("valid").is_none());
    }
}
