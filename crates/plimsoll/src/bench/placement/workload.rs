//! The workloads: data in `workloads.yaml`, made into manifests and into the engine's objects.

use anyhow::Context;
use plimsoll_state::model::{Node, Pod};
use plimsoll_state::{ClusterObject, ObjectEvent};
use serde::Deserialize;
use serde_json::{Value, json};

use super::template::{fill, kind, kinds};

const DATA: &str = include_str!("workloads.yaml");
/// Zones of the default node.
const ZONES: usize = 3;
/// Namespace of all pods.
pub const NAMESPACE: &str = "bench";

/// A workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Name on the command line.
    pub name: String,
    /// Test case of scheduler_perf.
    pub upstream: Option<String>,
    /// Nodes.
    pub nodes: Nodes,
    /// Manifests of other objects.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Pods that are there before.
    #[serde(default)]
    pub init: Vec<Pods>,
    /// Pods that are measured.
    pub pods: Pods,
    /// Whether the measured pods are created before the scheduler starts. Its start is measured then.
    #[serde(default)]
    pub waiting: bool,
    /// Whether the leader of two replicas ends while the pods come. How soon the other one binds is measured then.
    #[serde(default)]
    pub failover: bool,
    /// Objects that come and go meanwhile.
    pub churn: Option<Churn>,
    /// Wanted pods per second.
    pub target: Option<f64>,
    /// Wanted most MiB.
    pub memory: Option<f64>,
    /// Measured pods for the curve over nodes; 0: no curve.
    #[serde(default)]
    pub curve: usize,
}

/// Nodes of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nodes {
    /// How many.
    pub count: usize,
    #[serde(default = "one")]
    kinds: usize,
    #[serde(default)]
    node: Value,
    /// Templates of objects that each node has for itself.
    #[serde(default)]
    own: Vec<Value>,
}

/// Pods of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pods {
    /// How many.
    pub count: usize,
    #[serde(default = "one")]
    kinds: usize,
    #[serde(default)]
    pod: Value,
    /// Templates of objects that each pod has for itself. Each pod is of its own kind then.
    #[serde(default)]
    own: Vec<Value>,
    /// Every how many pods one fits on no node; 0: all pods fit.
    #[serde(default)]
    pub unfit: usize,
    /// Pods created per second; missing: as many as the API server takes.
    pub per_second: Option<f64>,
}

/// Objects that are created, and deleted when the next ones come.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Churn {
    /// Milliseconds from one to the next.
    pub every_ms: u64,
    /// Templates of manifests.
    pub objects: Vec<Value>,
}

impl Churn {
    /// The objects of turn `i`.
    pub fn make(&self, i: usize) -> anyhow::Result<Vec<Value>> {
        self.objects.iter().map(|o| fill(o, i, "")).collect()
    }
}

fn one() -> usize {
    1
}

impl Workload {
    /// All workloads.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        serde_saphyr::from_str(DATA).context("workloads.yaml")
    }

    /// Whether it needs nothing but the engine: no API server, and no objects whose changes the engine waits for.
    pub fn in_process(&self) -> bool {
        let plain = |p: &Pods| p.own.is_empty() && p.per_second.is_none() && !p.gated();
        !self.waiting
            && self.churn.is_none()
            && self.nodes.own.is_empty()
            && self.init.iter().chain([&self.pods]).all(plain)
    }

    /// Whether it measures how long a scheduler takes from its start to its first binding, in a cluster full of pods.
    pub fn is_start(&self) -> bool {
        self.waiting && !self.init.is_empty()
    }

    /// Multiplies the numbers of nodes and pods.
    pub fn scale(&mut self, factor: f64) {
        let scaled = |n: usize| ((n as f64 * factor).round() as usize).max(1);
        self.nodes.count = scaled(self.nodes.count);
        for pods in self.init.iter_mut().chain([&mut self.pods]) {
            pods.count = scaled(pods.count);
        }
    }

    /// The other objects.
    pub fn objects(&self) -> anyhow::Result<Vec<ClusterObject>> {
        let object = |o: &Value| {
            let kind = o["kind"].as_str().unwrap_or_default();
            plimsoll_api::convert::cluster_object(kind, o.to_string().as_bytes())?
                .with_context(|| format!("{kind} is not looked at"))
        };
        self.objects.iter().map(object).collect()
    }
}

impl Nodes {
    fn base() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "labels": {}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]
            }
        })
    }

    fn name(i: usize) -> String {
        format!("node-{i:06}")
    }

    /// Name and labels of node number `i`.
    fn identity(i: usize) -> (String, [(&'static str, String); 2]) {
        let name = Self::name(i);
        let zone = format!("zone-{}", i % ZONES);
        (name.clone(), [("kubernetes.io/hostname", name), ("topology.kubernetes.io/zone", zone)])
    }

    /// Makes the nodes.
    pub fn make(&self) -> anyhow::Result<impl Iterator<Item = ObjectEvent>> {
        let kinds: Vec<Node> = kinds(self.kinds, &Self::base(), &self.node)?
            .iter()
            .map(|v| plimsoll_api::convert::node(v.to_string().as_bytes()).map_err(Into::into))
            .collect::<anyhow::Result<_>>()?;
        let labelled = move |(i, kind): (usize, &Node)| {
            let (name, labels) = Self::identity(i);
            let mut node = Node { name, uid: format!("n{i}"), ..kind.clone() };
            for (key, value) in labels {
                node.labels.insert(key.into(), value);
            }
            ObjectEvent::NodeUpsert(Box::new(node))
        };
        let count = self.count;
        Ok((0..count).filter_map(move |i| Some(labelled((i, kinds.get(i % kinds.len())?)))))
    }

    /// Manifests of the nodes, and of what each has for itself.
    pub fn manifests(&self) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
        let kinds = kinds(self.kinds, &Self::base(), &self.node)?;
        let (mut nodes, mut own) = (Vec::with_capacity(self.count), Vec::new());
        for (i, kind) in (0..self.count).zip(kinds.iter().cycle()) {
            let mut node = kind.clone();
            let (name, labels) = Self::identity(i);
            for (key, value) in labels {
                node["metadata"]["labels"][key] = value.into();
            }
            for template in &self.own {
                own.push(fill(template, i, &name)?);
            }
            node["metadata"]["name"] = name.into();
            nodes.push(node);
        }
        Ok((nodes, own))
    }

    /// Name of node number `i`, around.
    pub fn nth(&self, i: usize) -> String {
        Self::name(i % self.count.max(1))
    }
}

impl Pods {
    /// So many default pods.
    pub fn plain(count: usize) -> Self {
        Self { count, kinds: 1, pod: Value::Null, own: Vec::new(), unfit: 0, per_second: None }
    }

    fn base() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": NAMESPACE},
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [{
                    "name": "c", "image": "pause:3.10",
                    "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}
                }]
            }
        })
    }

    /// Name of a pod.
    pub fn name(set: usize, i: usize) -> String {
        format!("pod-{set}-{i}")
    }

    /// Set and number of a pod.
    pub fn number(name: &str) -> Option<(usize, usize)> {
        let (set, i) = name.strip_prefix("pod-")?.split_once('-')?;
        Some((set.parse().ok()?, i.parse().ok()?))
    }

    /// Whether they wait for their gates to be removed, which never happens.
    pub fn gated(&self) -> bool {
        self.pod["spec"]["schedulingGates"].is_array()
    }

    /// Their priority, where they have one.
    pub fn priority(&self) -> Option<i64> {
        self.pod["spec"]["priority"].as_i64()
    }

    /// How many are to get a node.
    pub fn fitting(&self) -> usize {
        match self.unfit {
            _ if self.gated() => 0,
            0 => self.count,
            unfit => self.count - self.count / unfit,
        }
    }

    /// Makes the pods; `set` keeps the names of different sets apart.
    pub fn make(&self, set: usize) -> anyhow::Result<impl Iterator<Item = ObjectEvent>> {
        let kinds: Vec<Pod> = kinds(self.kinds, &Self::base(), &self.pod)?
            .iter()
            .map(|v| plimsoll_api::convert::pod(v.to_string().as_bytes()).map_err(Into::into))
            .collect::<anyhow::Result<_>>()?;
        let count = self.count;
        Ok((0..count).filter_map(move |i| {
            let kind = kinds.get(i % kinds.len())?;
            let pod = Pod { name: Self::name(set, i), uid: format!("uid-{set}-{i}"), ..kind.clone() };
            Some(ObjectEvent::PodUpsert(Box::new(pod)))
        }))
    }

    /// Manifests of the pods, and of what each has for itself.
    pub fn manifests(&self, set: usize) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
        let shared = kinds(self.kinds, &Self::base(), &self.pod)?;
        let (mut pods, mut own) = (Vec::with_capacity(self.count), Vec::new());
        for (i, shared) in (0..self.count).zip(shared.iter().cycle()) {
            let name = Self::name(set, i);
            for template in &self.own {
                own.push(fill(template, i, &name)?);
            }
            let mut pod = match self.own.is_empty() {
                true => shared.clone(),
                false => kind(&Self::base(), &self.pod, i, &name)?,
            };
            pod["metadata"]["name"] = name.into();
            pods.push(pod);
        }
        Ok((pods, own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_can_be_made() {
        let all = Workload::all().expect("data");
        for w in &all {
            w.objects().expect(&w.name);
            let few = Nodes { count: w.nodes.count.min(3), ..w.nodes.clone() };
            assert_eq!(few.make().expect(&w.name).count(), few.count, "{}", w.name);
            let (nodes, own) = few.manifests().expect(&w.name);
            assert_eq!((nodes.len(), own.len()), (few.count, few.count * few.own.len()), "{}", w.name);
            for pods in w.init.iter().chain([&w.pods]) {
                assert!(pods.make(0).expect(&w.name).next().is_some(), "{}", w.name);
                let few = Pods { count: 2, ..pods.clone() };
                let (pods, own) = few.manifests(7).expect(&w.name);
                assert_eq!(pods.get(1).map(|p| p["metadata"]["name"].clone()), Some("pod-7-1".into()));
                assert_eq!(own.len(), few.own.len() * 2, "{}", w.name);
            }
            assert!(all.iter().filter(|o| o.name == w.name).count() == 1, "{} is there once", w.name);
        }
    }

    #[test]
    fn names_of_pods_say_their_set_and_number() {
        assert_eq!(Pods::number(&Pods::name(3, 14)), Some((3, 14)));
        assert_eq!(Pods::number("churn-0"), None);
    }

    #[test]
    fn some_pods_fit_nowhere() {
        let half = Pods { unfit: 2, ..Pods::plain(5) };
        assert_eq!((half.fitting(), Pods::plain(5).fitting()), (3, 5));
    }
}
