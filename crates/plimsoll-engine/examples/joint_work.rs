//! What trials of joint admission cost, in microseconds:
//!
//!     joint_work gang NODES PODS
//!     joint_work queue NODES WORKLOADS SHAPES
//!
//! `gang` tries a gang of pods on nodes of which half have pods already: where all fit, where one doesn't, and where none
//! does. `queue` lets workloads of several shapes wait for full nodes in one queue, ends one after the other, and prints the
//! steps of the engine that follow: trials, admission and placement together.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for measuring")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{
    ClusterQueue, Condition, FlavorQuotas, LocalQueue, PodSet, ResourceFlavor, ResourceGroup, ResourceQuota,
    Workload, WorkloadKey, cond,
};
use plimsoll_scheduler::Scheduler;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{Container, LabelSelector, Node, Pod, PodSpec, StringMap};
use plimsoll_state::time::{Duration, Time};

fn spec(cpu: i64) -> PodSpec {
    let container = Container { requests: [("cpu".to_owned(), cpu)].into(), ..Container::default() };
    PodSpec { scheduler_name: "default-scheduler".into(), containers: vec![container], ..PodSpec::default() }
}

fn node(i: usize, cpu: i64) -> ObjectEvent {
    let name = format!("node-{i}");
    let mut n = Node { uid: name.clone(), name: name.clone(), ready: true, ..Node::default() };
    n.labels.insert("kubernetes.io/hostname".into(), name);
    n.labels.insert("topology.kubernetes.io/zone".into(), format!("zone-{}", i % 3));
    n.allocatable.insert("cpu".into(), cpu);
    n.allocatable.insert("pods".into(), 110);
    ObjectEvent::NodeUpsert(Box::new(n))
}

fn pod(workload: &str, i: usize, cpu: i64) -> Pod {
    Pod {
        uid: format!("{workload}-{i}"),
        namespace: "n".into(),
        name: format!("{workload}-{i}"),
        labels: [("kueue.x-k8s.io/podset".to_owned(), "main".to_owned())].into_iter().collect(),
        workload: workload.into(),
        pod_set: "main".into(),
        spec: spec(cpu),
        ..Pod::default()
    }
}

/// The median of some runs, in microseconds.
fn median(mut run: impl FnMut() -> u128) -> u128 {
    let mut took: Vec<u128> = (0..21).map(|_| run()).collect();
    took.sort_unstable();
    took[took.len() / 2]
}

fn gang(nodes: usize, pods: usize) {
    let mut scheduler = Scheduler::new(plimsoll_scheduler::Config::default());
    let now = Time::from_seconds(1);
    for i in 0..nodes {
        scheduler.handle_object(now, &node(i, 8_000));
    }
    // On every second node something runs.
    for i in (0..nodes).step_by(2) {
        let mut pod = pod("other", i, 3_000);
        pod.spec.node_name = format!("node-{i}");
        scheduler.handle_object(now, &ObjectEvent::PodUpsert(Box::new(pod)));
    }
    let key = WorkloadKey { namespace: "n".into(), name: "gang".into() };
    // Each of the other nodes has a place for one pod of eight CPUs.
    let places = nodes / 2;
    for (what, cpu, count) in [
        ("all fit", 1_000, pods),
        ("all fit, one on each node", 8_000, pods.min(places)),
        ("one does not fit", 8_000, places + 1),
        ("none fits", 9_000, pods),
    ] {
        let like = pod("gang", 0, cpu);
        let mut trial = || {
            let start = Instant::now();
            let (run, failure) = scheduler.dry_run(now, &key, &[(like.clone(), count)]);
            scheduler.end_dry_run(run);
            assert_eq!(failure.is_none(), what.starts_with("all"), "{failure:?}");
            start.elapsed().as_micros()
        };
        let first = trial();
        println!("{what}: {count} pods on {nodes} nodes, first {first} us, then {} us", median(trial));
    }
}

/// The outside of an engine, which carries out at once what it is asked for.
struct World {
    engine: Engine,
    now: Time,
    version: u64,
    workloads: BTreeMap<String, Workload>,
    pods: BTreeMap<String, Vec<Pod>>,
    running: VecDeque<String>,
    events: Vec<Event>,
}

impl World {
    fn new(nodes: usize) -> Self {
        let quota = ResourceQuota {
            resource: "cpu".into(),
            nominal: 1_000_000_000,
            borrowing_limit: None,
            lending_limit: None,
        };
        let flavors = vec![FlavorQuotas { flavor: "f".into(), resources: vec![quota] }];
        let queue = ClusterQueue {
            name: "c".into(),
            resource_groups: vec![ResourceGroup { covered: vec!["cpu".into()], flavors }],
            namespace_selector: Some(LabelSelector::default()),
            fair_weight_nano: 1_000_000_000,
            ..ClusterQueue::default()
        };
        let local = LocalQueue {
            namespace: "n".into(),
            name: "c".into(),
            cluster_queue: "c".into(),
            ..LocalQueue::default()
        };
        use plimsoll_queueing::Event as Q;
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        let objects = vec![
            Q::NamespaceUpsert("n".into(), StringMap::default()),
            Q::ResourceFlavorUpsert(Box::new(flavor)),
            Q::ClusterQueueUpsert(Box::new(queue)),
            Q::LocalQueueUpsert(Box::new(local)),
        ];
        let mut events: Vec<Event> = objects.into_iter().map(Event::Queueing).collect();
        events.extend((0..nodes).map(|i| Event::Object(node(i, 8_000))));
        let queueing = plimsoll_queueing::Config {
            explain_every: Duration::from_seconds(10),
            ..plimsoll_queueing::Config::default()
        };
        let config = EngineConfig {
            scheduler: Some(plimsoll_scheduler::Config::default()),
            queueing: Some(queueing),
            joint: true,
        };
        Self {
            engine: Engine::new(config),
            now: Time::from_seconds(1),
            version: 1,
            workloads: BTreeMap::new(),
            pods: BTreeMap::new(),
            running: VecDeque::new(),
            events,
        }
    }

    fn submit(&mut self, i: usize, count: i32, cpu: i64) {
        let name = format!("w{i:06}");
        self.version += 1;
        let w = Workload {
            key: WorkloadKey { namespace: "n".into(), name: name.clone() },
            uid: name.clone(),
            version: self.version,
            generation: 1,
            creation: Time::from_seconds(1 + i64::try_from(i).unwrap()),
            queue: "c".into(),
            active: true,
            pod_sets: vec![PodSet { name: "main".into(), count, spec: spec(cpu), ..PodSet::default() }],
            ..Workload::default()
        };
        self.workloads.insert(name, w.clone());
        self.events.push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(w))));
    }

    /// The workload that has run longest ends.
    fn finish_one(&mut self) {
        let Some(name) = self.running.pop_front() else { return };
        let Some(mut w) = self.workloads.remove(&name) else { return };
        let reason = "Succeeded".into();
        w.status.conditions.push(Condition {
            kind: cond::FINISHED.into(),
            status: true,
            reason,
            ..Condition::default()
        });
        self.version += 1;
        w.version = self.version;
        for pod in self.pods.remove(&name).unwrap_or_default() {
            self.events.push(Event::Object(ObjectEvent::PodDelete(pod.uid)));
        }
        self.events.push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(w))));
    }

    /// Steps until nothing more is asked for; the times of all steps, in microseconds.
    fn run(&mut self) -> Vec<u128> {
        let mut took = Vec::new();
        loop {
            self.now = self.now.plus(Duration::from_millis(1));
            let mut actions = Vec::new();
            let start = Instant::now();
            self.engine.step(self.now, &mut self.events, &mut actions);
            took.push(start.elapsed().as_micros());
            let quiet = actions.is_empty();
            actions.into_iter().for_each(|a| self.carry_out(a));
            if quiet && self.events.is_empty() && self.engine.next_wake().is_none_or(|t| t > self.now) {
                return took;
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u)) => {
                let name = u.key.name.clone();
                let Some(w) = self.workloads.get_mut(&name) else { return };
                u.apply(&mut w.status);
                self.version += 1;
                w.version = self.version;
                let seen = w.clone();
                let admitted = w.status.is_true(cond::ADMITTED);
                let count = w.pod_sets[0].count;
                let cpu = w.pod_sets[0].spec.containers[0].requests["cpu"];
                self.events.push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(seen))));
                if admitted && !self.pods.contains_key(&name) {
                    let pods: Vec<Pod> =
                        (0..usize::try_from(count).unwrap()).map(|i| pod(&name, i, cpu)).collect();
                    let upserts =
                        pods.iter().map(|p| Event::Object(ObjectEvent::PodUpsert(Box::new(p.clone()))));
                    self.events.extend(upserts);
                    self.running.push_back(name.clone());
                    self.pods.insert(name, pods);
                }
            }
            Action::Scheduler(plimsoll_scheduler::Action::Bind { pod, node }) => {
                self.events.push(Event::Scheduler(plimsoll_scheduler::Event::Bound(pod.uid.clone())));
                let Some((workload, _)) = pod.uid.split_once('-') else { return };
                let mine = self.pods.get_mut(workload).into_iter().flatten().find(|p| p.uid == pod.uid);
                if let Some(p) = mine {
                    p.spec.node_name = node;
                    self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(p.clone()))));
                }
            }
            _ => {}
        }
    }
}

fn queue(nodes: usize, workloads: usize, shapes: usize) {
    let mut w = World::new(nodes);
    w.run();
    for i in 0..workloads {
        let shape = i % shapes;
        let (count, cpu) = (1 + shape % 10, 500 + 100 * i64::try_from(shape / 10).unwrap());
        w.submit(i, i32::try_from(count).unwrap(), cpu);
    }
    let started = Instant::now();
    let first = w.run();
    println!("start: {} of {workloads} admitted in {} ms", w.running.len(), started.elapsed().as_millis());
    println!("start: longest step {} us of {}", first.iter().max().unwrap(), first.len());
    let (mut took, mut admitted) = (Vec::new(), 0);
    for _ in 0..500 {
        let before = w.running.len() - 1;
        w.finish_one();
        took.extend(w.run());
        admitted += w.running.len() - before;
    }
    took.sort_unstable();
    let (n, sum) = (took.len(), took.iter().sum::<u128>());
    println!("500 ended, {admitted} admitted in {n} steps, {} us for each", sum / 500);
    println!("steps: P50 {} us, P99 {} us, longest {} us", took[n / 2], took[n * 99 / 100], took[n - 1]);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    match (args.first().map(String::as_str), number(1), number(2), number(3)) {
        (Some("gang"), Some(nodes), Some(pods), _) => gang(nodes, pods),
        (Some("queue"), Some(nodes), Some(workloads), Some(shapes)) => queue(nodes, workloads, shapes),
        _ => println!("usage: joint_work gang NODES PODS | joint_work queue NODES WORKLOADS SHAPES"),
    }
}
