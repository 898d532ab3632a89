//! What is generated: queues, nodes, and classes of workloads, from a file.

use std::collections::BTreeMap;

use anyhow::Context;
use plimsoll_queueing::{
    ClusterQueue, Event, FlavorQuotas, LocalQueue, PodSet, PreemptionPolicy, PreemptionRules, ResourceFlavor,
    ResourceGroup, ResourceQuota, Topology, TopologyRequest, Workload, WorkloadKey,
};
use plimsoll_state::model::{Container, LabelSelector, Node, PodSpec, Resources};
use plimsoll_state::time::{Duration, Time};
use serde::Deserialize;

/// Node label of a rack.
pub const RACK: &str = "cloud.provider.com/topology-rack";
/// Node label of a block.
pub const BLOCK: &str = "cloud.provider.com/topology-block";
/// Node label of the node itself.
pub const HOST: &str = "kubernetes.io/hostname";
const FLAVOR: &str = "default";
const NAMESPACE: &str = "bench";

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Shape {
    /// What it is called.
    pub name: String,
    /// Number of cohorts.
    pub cohorts: usize,
    /// ClusterQueues in each.
    pub queues_per_cohort: usize,
    /// Nominal quota of a ClusterQueue in cores.
    pub nominal_cpu: i64,
    /// How much more it may borrow, in cores.
    pub borrowing_cpu: i64,
    /// Nodes, for a flavor with a topology.
    pub nodes: Option<Nodes>,
    /// What Kueue's maintainers measured.
    pub published: Option<Published>,
    /// CPU time of the engine per admission that shall not be exceeded, in microseconds.
    pub micros_per_admission: Option<f64>,
    /// What is created in every ClusterQueue.
    pub classes: Vec<Class>,
}

/// Nodes in racks in blocks.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nodes {
    /// Number of blocks.
    pub blocks: usize,
    /// Racks in each.
    pub racks_per_block: usize,
    /// Nodes in each of those.
    pub nodes_per_rack: usize,
    /// Cores of a node.
    pub cpu: i64,
    /// Memory of a node in GiB.
    pub memory_gi: i64,
}

/// Published figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Published {
    /// From the first creation to the end of the last workload.
    pub makespan_seconds: f64,
    /// Of the ClusterQueues' nominal quota, over time.
    pub usage_percent: f64,
    /// Time to admission by class.
    #[serde(default)]
    pub average_seconds: BTreeMap<String, f64>,
}

/// Equal workloads.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Class {
    /// What it is called; what comes before a dash groups classes in the report.
    pub name: String,
    /// How many in each ClusterQueue.
    pub per_queue: usize,
    /// Time between creations.
    pub every_ms: i64,
    /// How long one runs.
    pub run_ms: i64,
    /// Priority.
    pub priority: i32,
    /// What a pod asks for, in millicores.
    pub cpu_milli: i64,
    /// Number of pods.
    #[serde(default = "one")]
    pub pods: i32,
    /// What it asks of the racks.
    pub topology: Option<Level>,
    /// Pods per slice that stay in one rack.
    pub slice: Option<i32>,
}

fn one() -> i32 {
    1
}

/// How strictly pods have to share a rack.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// All in one.
    Required,
    /// If possible.
    Preferred,
}

/// A workload to be created.
pub struct Job {
    /// When.
    pub at: Time,
    /// Index of its class.
    pub class: usize,
    /// The object.
    pub workload: Workload,
}

/// Shapes that come with the program.
const BUILT_IN: [&str; 3] = [
    include_str!("data/baseline.yaml"),
    include_str!("data/large-scale.yaml"),
    include_str!("data/tas.yaml"),
];

impl Shape {
    /// Reads a file.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let shape: Self = serde_saphyr::from_str(text).context("reading the description")?;
        let sane = (1..=1_000_000).contains(&shape.workloads())
            && shape.queues() <= 100_000
            && shape.nominal_cpu > 0
            && shape.classes.iter().all(|c| c.pods > 0 && c.run_ms >= 0 && c.every_ms >= 0);
        anyhow::ensure!(sane, "{}: sizes out of range", shape.name);
        Ok(shape)
    }

    /// Those that come with the program.
    pub fn built_in() -> anyhow::Result<Vec<Self>> {
        BUILT_IN.iter().map(|t| Self::read(t)).collect()
    }

    /// Makes everything that is per queue smaller.
    pub fn scale(&mut self, factor: f64) {
        for c in &mut self.classes {
            c.per_queue = ((c.per_queue as f64 * factor).ceil() as usize).max(1);
        }
    }

    /// Number of ClusterQueues.
    pub fn queues(&self) -> usize {
        self.cohorts.saturating_mul(self.queues_per_cohort)
    }

    /// Number of workloads.
    pub fn workloads(&self) -> usize {
        let per_queue: usize = self.classes.iter().map(|c| c.per_queue).sum();
        per_queue.saturating_mul(self.queues())
    }

    /// Waits of each class, by what comes before the dash in the names of classes, sorted.
    pub fn by_class(&self, waits: &[Vec<f64>]) -> Vec<(String, Vec<f64>)> {
        let mut out: Vec<(String, Vec<f64>)> = Vec::new();
        for (class, waits) in self.classes.iter().zip(waits) {
            let name = class.name.split('-').next().unwrap_or_default();
            match out.iter_mut().find(|(n, _)| n == name) {
                Some((_, all)) => all.extend(waits),
                None => out.push((name.to_owned(), waits.clone())),
            }
        }
        out.iter_mut().for_each(|(_, w)| w.sort_by(f64::total_cmp));
        out
    }

    /// Least possible time from the first creation to the last end: all quota in use all the time, and no class
    /// done before its last workload was created and ran. In seconds.
    pub fn floor(&self) -> f64 {
        let per_queue: f64 = self
            .classes
            .iter()
            .map(|c| c.per_queue as f64 * f64::from(c.pods) * c.cpu_milli as f64 * c.run_ms as f64 / 1e6)
            .sum();
        let created = self
            .classes
            .iter()
            .map(|c| (c.per_queue.saturating_sub(1) as f64 * c.every_ms as f64 + c.run_ms as f64) / 1e3)
            .fold(0.0, f64::max);
        (per_queue / self.nominal_cpu as f64).max(created)
    }

    /// Everything but workloads.
    pub fn setup(&self) -> (Vec<Event>, Vec<Node>) {
        let topology = if self.nodes.is_some() { "racks" } else { "" };
        let node_labels = self.nodes.iter().map(|_| ("node-group".to_owned(), "tas".to_owned())).collect();
        let flavor = ResourceFlavor {
            name: FLAVOR.into(),
            topology: topology.into(),
            node_labels,
            ..Default::default()
        };
        let mut events = vec![
            Event::NamespaceUpsert(NAMESPACE.into(), Default::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
        ];
        if self.nodes.is_some() {
            let levels = [BLOCK, RACK, HOST].map(str::to_owned).to_vec();
            events.push(Event::TopologyUpsert(Box::new(Topology { name: topology.into(), levels })));
        }
        for q in 0..self.queues() {
            let cohort = format!("cohort-{}", q / self.queues_per_cohort);
            let rules = PreemptionRules {
                reclaim_within_cohort: PreemptionPolicy::Any,
                within_cluster_queue: PreemptionPolicy::LowerPriority,
                ..Default::default()
            };
            let queue =
                cluster_queue(q, &cohort, self.nominal_cpu * 1000, Some(self.borrowing_cpu * 1000), rules);
            events.push(Event::ClusterQueueUpsert(Box::new(queue)));
            events.push(Event::LocalQueueUpsert(Box::new(local_queue(q))));
        }
        (events, self.nodes.iter().flat_map(nodes).collect())
    }

    /// All workloads, in order of creation.
    pub fn jobs(&self, start: Time) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(self.workloads());
        for q in 0..self.queues() {
            for (class, c) in self.classes.iter().enumerate() {
                for i in 0..c.per_queue {
                    let at = start.plus(Duration::from_millis(c.every_ms.saturating_mul(i as i64)));
                    let mut w = workload(&format!("{}-{q}-{i}", c.name), q, c.priority, c.cpu_milli, at);
                    w.pod_sets[0].count = c.pods;
                    w.pod_sets[0].topology = c.topology.map(|level| TopologyRequest {
                        required: matches!(level, Level::Required).then(|| RACK.to_owned()),
                        preferred: matches!(level, Level::Preferred).then(|| RACK.to_owned()),
                        slices: c.slice.iter().map(|n| (RACK.to_owned(), *n)).collect(),
                        ..TopologyRequest::default()
                    });
                    jobs.push(Job { at, class, workload: w });
                }
            }
        }
        jobs.sort_by_key(|j| j.at);
        jobs
    }
}

fn nodes(n: &Nodes) -> Vec<Node> {
    let mut out = Vec::new();
    for block in 0..n.blocks {
        for rack in 0..n.racks_per_block {
            for i in 0..n.nodes_per_rack {
                let name = format!("node-{block}-{rack}-{i}");
                let labels = [
                    ("node-group", "tas".to_owned()),
                    (BLOCK, format!("block-{block}")),
                    (RACK, format!("rack-{block}-{rack}")),
                    (HOST, name.clone()),
                ];
                let memory = n.memory_gi.saturating_mul(1 << 30);
                out.push(Node {
                    uid: name.clone(),
                    name,
                    labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
                    allocatable: amounts(&[("cpu", n.cpu * 1000), ("memory", memory), ("pods", 110)]),
                    ready: true,
                    ..Node::default()
                });
            }
        }
    }
    out
}

fn amounts(list: &[(&str, i64)]) -> Resources {
    list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect()
}

/// A ClusterQueue with one flavor; amounts in millicores.
pub fn cluster_queue(
    number: usize,
    cohort: &str,
    nominal: i64,
    borrowing_limit: Option<i64>,
    preemption: PreemptionRules,
) -> ClusterQueue {
    let quota = ResourceQuota { resource: "cpu".into(), nominal, borrowing_limit, lending_limit: None };
    ClusterQueue {
        name: format!("cq-{number}"),
        cohort: cohort.into(),
        resource_groups: vec![ResourceGroup {
            covered: vec!["cpu".into()],
            flavors: vec![FlavorQuotas { flavor: FLAVOR.into(), resources: vec![quota] }],
        }],
        namespace_selector: Some(LabelSelector::default()),
        preemption,
        fair_weight_nano: 1_000_000_000,
        ..ClusterQueue::default()
    }
}

/// The LocalQueue of a ClusterQueue.
pub fn local_queue(number: usize) -> LocalQueue {
    LocalQueue {
        namespace: NAMESPACE.into(),
        name: format!("lq-{number}"),
        cluster_queue: format!("cq-{number}"),
        fair_weight_nano: 1_000_000_000,
        ..LocalQueue::default()
    }
}

/// A workload of one pod.
pub fn workload(name: &str, queue: usize, priority: i32, cpu_milli: i64, at: Time) -> Workload {
    let container =
        Container { name: "main".into(), requests: amounts(&[("cpu", cpu_milli)]), ..Container::default() };
    Workload {
        key: WorkloadKey { namespace: NAMESPACE.into(), name: name.to_owned() },
        uid: format!("uid-{name}"),
        version: 1,
        generation: 1,
        creation: at.truncate_to_second(),
        priority,
        queue: format!("lq-{queue}"),
        active: true,
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: 1,
            spec: PodSpec { containers: vec![container], ..PodSpec::default() },
            ..PodSet::default()
        }]
        .into(),
        ..Workload::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_their_published_sizes() {
        let sizes: Vec<_> = Shape::built_in()
            .unwrap()
            .iter()
            .map(|s| (s.name.clone(), s.queues(), s.workloads(), s.floor().round(), s.setup().1.len()))
            .collect();
        assert_eq!(
            sizes,
            [
                ("baseline".into(), 30, 15_000, 66.0, 0),
                ("large-scale".into(), 1000, 50_000, 4.0, 0),
                ("tas".into(), 30, 15_000, 66.0, 640)
            ]
        );
        assert!(Shape::read("name: x\nwrong: 1").is_err());
    }
}
