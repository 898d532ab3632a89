//! The fixture of this crate's tests and of `examples/joint_work.rs`: builders of objects, and an engine whose actions are
//! carried out at once. Faults, clocks and kubelets are the simulator's (`plimsoll-sim`).

use std::collections::{BTreeMap, BTreeSet};

use crate::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{
    ClusterQueue, FlavorQuotas, PodSet, ResourceGroup, ResourceQuota, Workload, WorkloadKey, cond,
};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{Container, LabelSelector, Node, Pod, PodSpec, StringMap};
use plimsoll_state::time::{Duration, Time};

/// Label of the lowest level of topologies.
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(crate) fn spec(cpu: i64) -> PodSpec {
    let container = Container { requests: [("cpu".to_owned(), cpu)].into(), ..Container::default() };
    PodSpec { scheduler_name: "default-scheduler".into(), containers: vec![container], ..PodSpec::default() }
}

pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    config: EngineConfig,
    /// Nodes and what was there before the first workload.
    there: Vec<Event>,
    /// In ticks.
    pub(crate) now: i64,
    /// Time from one step to the next.
    pub(crate) tick: Duration,
    pub(crate) version: u64,
    pub(crate) workloads: BTreeMap<String, Workload>,
    /// Pods that exist, by workload.
    pub(crate) pods: BTreeMap<String, Vec<Pod>>,
    pub(crate) bound: BTreeSet<String>,
    /// Pods that are not created when their workload is admitted.
    pub(crate) late: BTreeSet<String>,
    pub(crate) stuck: Vec<String>,
    /// Pods for which something is to be written before they are bound.
    pub(crate) prepared: Vec<String>,
    /// How many writes of workloads fail from now on.
    pub(crate) refused_writes: usize,
    /// Workloads that were preempted, in this order, and for which workload each.
    pub(crate) preempted: Vec<String>,
    pub(crate) preempted_by: Vec<String>,
    /// Whether their pods stay on their nodes, being deleted.
    pub(crate) lingers: bool,
    going: Vec<String>,
    /// Whether their jobs take their time to stop: they hold quota until then.
    pub(crate) holds_quota: bool,
    stopping: Vec<String>,
    pub(crate) events: Vec<Event>,
    /// Workloads in the order in which their pods were created.
    pub(crate) started: Vec<String>,
}

impl Fixture {
    pub(crate) fn new(joint: bool) -> Self {
        Self::with(joint, plimsoll_queueing::Config::default())
    }

    pub(crate) fn with(joint: bool, queueing: plimsoll_queueing::Config) -> Self {
        Self::with_queues(joint, queueing, &[cluster_queue("c", &[("f", 1_000_000)])])
    }

    /// Flavors select nodes by the label `flavor`, except for `f`, which selects all. Each ClusterQueue has a LocalQueue of
    /// its name.
    pub(crate) fn with_queues(
        joint: bool,
        queueing: plimsoll_queueing::Config,
        queues: &[ClusterQueue],
    ) -> Self {
        let config = EngineConfig {
            scheduler: Some(plimsoll_scheduler::Config::default()),
            queueing: Some(queueing),
            joint,
        };
        let mut events = vec![plimsoll_queueing::Event::NamespaceUpsert("n".into(), StringMap::default())];
        let flavors: BTreeSet<&String> = queues
            .iter()
            .flat_map(|q| &q.resource_groups)
            .flat_map(|g| &g.flavors)
            .map(|f| &f.flavor)
            .collect();
        for name in flavors {
            let label = (name != "f").then(|| ("flavor".to_owned(), name.clone()));
            let flavor = plimsoll_queueing::ResourceFlavor {
                name: name.clone(),
                node_labels: label.into_iter().collect(),
                ..Default::default()
            };
            events.push(plimsoll_queueing::Event::ResourceFlavorUpsert(Box::new(flavor)));
        }
        for cq in queues {
            events.push(plimsoll_queueing::Event::ClusterQueueUpsert(Box::new(cq.clone())));
            let lq = plimsoll_queueing::LocalQueue {
                namespace: "n".into(),
                name: cq.name.clone(),
                cluster_queue: cq.name.clone(),
                ..Default::default()
            };
            events.push(plimsoll_queueing::Event::LocalQueueUpsert(Box::new(lq)));
        }
        let there: Vec<Event> = events.into_iter().map(Event::Queueing).collect();
        let mut w = Self {
            engine: Engine::new(config.clone()),
            config,
            there: there.clone(),
            now: 0,
            tick: Duration::from_seconds(1),
            version: 1,
            workloads: BTreeMap::new(),
            pods: BTreeMap::new(),
            bound: BTreeSet::new(),
            late: BTreeSet::new(),
            stuck: Vec::new(),
            prepared: Vec::new(),
            refused_writes: 0,
            preempted: Vec::new(),
            preempted_by: Vec::new(),
            lingers: false,
            going: Vec::new(),
            holds_quota: false,
            stopping: Vec::new(),
            events: there,
            started: Vec::new(),
        };
        w.run();
        w
    }

    /// Each step looks at so many nodes at most to rank them. Before anything else happens.
    #[cfg(test)]
    pub(crate) fn look_at_most(&mut self, looks_per_step: usize) {
        if let Some(scheduler) = &mut self.config.scheduler {
            scheduler.looks_per_step = looks_per_step;
        }
        self.restart(true);
    }

    /// A cluster autoscaler adds nodes of this flavor.
    pub(crate) fn autoscale(&mut self, flavor: &str) {
        self.autoscale_with(flavor, None);
    }

    /// The same, and what they look like.
    pub(crate) fn autoscale_with(&mut self, flavor: &str, new_node: Option<Node>) {
        let flavor = plimsoll_queueing::ResourceFlavor {
            name: flavor.to_owned(),
            node_labels: [("flavor".to_owned(), flavor.to_owned())].into_iter().collect(),
            autoscaled: true,
            new_node: new_node.map(Box::new),
            ..Default::default()
        };
        self.events.push(Event::Queueing(plimsoll_queueing::Event::ResourceFlavorUpsert(Box::new(flavor))));
        self.run();
    }

    /// Flavors with a topology of the levels `rack` and node.
    pub(crate) fn topology(&mut self, flavors: &[&str]) {
        use plimsoll_queueing::Event as Queue;
        let levels = vec!["rack".to_owned(), HOSTNAME.to_owned()];
        let topology = plimsoll_queueing::Topology { name: "t".into(), levels };
        let mut events = vec![Queue::TopologyUpsert(Box::new(topology))];
        for name in flavors {
            let flavor = plimsoll_queueing::ResourceFlavor {
                name: (*name).to_owned(),
                node_labels: [("flavor".to_owned(), (*name).to_owned())].into_iter().collect(),
                topology: "t".into(),
                ..Default::default()
            };
            events.push(Queue::ResourceFlavorUpsert(Box::new(flavor)));
        }
        let events: Vec<Event> = events.into_iter().map(Event::Queueing).collect();
        self.there.extend(events.iter().cloned());
        self.events.extend(events);
        self.run();
    }

    /// A node of a flavor with a topology.
    pub(crate) fn node_in(&mut self, rack: &str, name: &str, cpu: i64, flavor: &str) {
        let mut n = Node { name: name.into(), uid: format!("uid-{name}"), ready: true, ..Node::default() };
        n.ready_since = Some(Time::from_seconds(0));
        for (label, value) in [("flavor", flavor), ("rack", rack), (HOSTNAME, name)] {
            n.labels.insert(label.into(), value.into());
        }
        n.allocatable.insert("cpu".into(), cpu);
        n.allocatable.insert("pods".into(), 100);
        self.create_node(n);
        self.run();
    }

    /// A pod that no queue manages, on a node.
    pub(crate) fn unmanaged(&mut self, name: &str, node: &str, spec: &PodSpec) {
        let spec = PodSpec { node_name: node.into(), ..spec.clone() };
        let pod = Pod { workload: String::new(), pod_set: String::new(), ..pod(name, 0, &spec) };
        self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod))));
        self.run();
    }

    pub(crate) fn node(&mut self, name: &str, cpu: i64) {
        self.node_of(name, cpu, "f");
    }

    /// A node of a flavor.
    pub(crate) fn node_of(&mut self, name: &str, cpu: i64, flavor: &str) {
        let mut n = Node { name: name.into(), uid: format!("uid-{name}"), ready: true, ..Node::default() };
        n.labels.insert("flavor".into(), flavor.into());
        n.allocatable.insert("cpu".into(), cpu);
        n.allocatable.insert("pods".into(), 100);
        n.allocatable.insert("memory".into(), 1 << 30);
        self.create_node(n);
        self.run();
    }

    /// The engine sees the node in its next step.
    pub(crate) fn create_node(&mut self, node: Node) {
        let event = Event::Object(ObjectEvent::NodeUpsert(Box::new(node)));
        self.there.push(event.clone());
        self.events.push(event);
    }

    fn time(&self) -> Time {
        Time(self.now * self.tick.0)
    }

    /// Another process takes over: it sees pods first or last, and then decides.
    pub(crate) fn restart(&mut self, pods_first: bool) {
        self.engine = Engine::new(self.config.clone());
        let workloads = self.workloads.values().cloned();
        let upsert = |w| Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(w)));
        let mut workloads: Vec<Event> = workloads.map(upsert).collect();
        let pods = self.pods.values().flatten().filter(|p| !self.late.contains(&p.uid));
        let mut pods: Vec<Event> =
            pods.map(|p| Event::Object(ObjectEvent::PodUpsert(Box::new(p.clone())))).collect();
        let (first, last) =
            if pods_first { (&mut pods, &mut workloads) } else { (&mut workloads, &mut pods) };
        for mut events in [self.there.clone(), std::mem::take(first), std::mem::take(last)] {
            self.engine.observe(self.time(), &mut events);
        }
        self.run();
    }

    pub(crate) fn submit(&mut self, name: &str, count: i32, cpu: i64) {
        self.submit_to("c", name, 0, vec![pod_set("main", count, cpu)]);
    }

    pub(crate) fn submit_to(&mut self, queue: &str, name: &str, priority: i32, pod_sets: Vec<PodSet>) {
        self.create(queue, name, priority, pod_sets);
        self.tell(name);
    }

    /// Submits pods that run for so many seconds at most.
    pub(crate) fn submit_bounded(&mut self, name: &str, count: i32, cpu: i64, seconds: i32) {
        self.create("c", name, 0, vec![pod_set("main", count, cpu)]);
        if let Some(w) = self.workloads.get_mut(name) {
            w.max_execution_seconds = Some(seconds);
        }
        self.tell(name);
    }

    /// Workloads with the same podsets, by queue and name, that the engine sees at once.
    pub(crate) fn submit_together(&mut self, workloads: &[(&str, &str)], pod_sets: &[PodSet]) {
        for (queue, name) in workloads {
            self.create(queue, name, 0, pod_sets.to_vec());
            let upsert = plimsoll_queueing::Event::WorkloadUpsert(Box::new(self.workloads[*name].clone()));
            self.events.push(Event::Queueing(upsert));
        }
        self.run();
    }

    /// Creates a workload, of which the engine learns by [`Fixture::tell`].
    pub(crate) fn create(&mut self, queue: &str, name: &str, priority: i32, pod_sets: Vec<PodSet>) {
        let w = Workload {
            key: WorkloadKey { namespace: "n".into(), name: name.into() },
            uid: name.into(),
            version: 1,
            generation: 1,
            creation: self.time(),
            queue: queue.into(),
            active: true,
            priority,
            pod_sets: pod_sets.into(),
            ..Default::default()
        };
        self.workloads.insert(name.into(), w);
    }

    pub(crate) fn tell(&mut self, name: &str) {
        self.announce(name);
        self.run();
    }

    /// The engine sees the workload in its next step.
    pub(crate) fn announce(&mut self, name: &str) {
        self.version += 1;
        if let Some(w) = self.workloads.get_mut(name) {
            w.version = self.version;
            let event = plimsoll_queueing::Event::WorkloadUpsert(Box::new(w.clone()));
            self.events.push(Event::Queueing(event));
        }
    }

    /// Updates pods that are on nodes, without a change that concerns scheduling.
    pub(crate) fn touch_bound_pods(&mut self, n: usize) {
        for pod in self.pods.values_mut().flatten().filter(|p| !p.spec.node_name.is_empty()) {
            pod.labels.insert("touched".into(), n.to_string());
            self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod.clone()))));
        }
        self.run();
    }

    pub(crate) fn create_late_pods(&mut self) {
        let late = std::mem::take(&mut self.late);
        for pod in self.pods.values().flatten().filter(|p| late.contains(&p.uid)) {
            self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod.clone()))));
        }
        self.run();
    }

    pub(crate) fn finish(&mut self, name: &str) {
        self.end(name);
        self.run();
    }

    /// The engine sees in its next step that the workload has finished and its pods are gone.
    pub(crate) fn end(&mut self, name: &str) {
        let Some(w) = self.workloads.get_mut(name) else { return };
        let done = plimsoll_queueing::Condition {
            kind: cond::FINISHED.into(),
            status: true,
            reason: "Succeeded".into(),
            ..Default::default()
        };
        w.status.conditions.push(done);
        for pod in self.pods.remove(name).unwrap_or_default() {
            self.events.push(Event::Object(ObjectEvent::PodDelete(pod.uid)));
        }
        self.announce(name);
        self.workloads.remove(name);
    }

    /// A workload is evicted: its job stops, at once or later.
    fn evicted(&mut self, name: &str) {
        let status = self.workloads.get(name).map(|w| &w.status);
        let message = status.and_then(|s| s.condition(cond::PREEMPTED)).map_or("", |c| &c.message);
        let by = message.split("(UID: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or_default();
        self.preempted_by.push(by.to_owned());
        self.preempted.push(name.to_owned());
        if self.holds_quota {
            self.stopping.push(name.to_owned());
        } else {
            self.stop(name);
        }
    }

    /// The job of an evicted workload stops: its pods go, at once or later, and the workload has stopped.
    fn stop(&mut self, name: &str) {
        for mut pod in self.pods.remove(name).unwrap_or_default() {
            self.bound.remove(&pod.uid);
            if self.lingers {
                pod.deleting = true;
                self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod.clone()))));
                self.going.push(pod.uid);
            } else {
                self.events.push(Event::Object(ObjectEvent::PodDelete(pod.uid)));
            }
        }
        let key = WorkloadKey { namespace: "n".into(), name: name.into() };
        self.events.push(Event::Queueing(plimsoll_queueing::Event::WorkloadStopped(key)));
    }

    /// Jobs of evicted workloads have stopped, and pods that are being deleted are gone.
    pub(crate) fn let_go(&mut self) {
        let stopping = std::mem::take(&mut self.stopping);
        stopping.iter().for_each(|name| self.stop(name));
        let going = std::mem::take(&mut self.going);
        self.events.extend(going.into_iter().map(|uid| Event::Object(ObjectEvent::PodDelete(uid))));
        self.run();
    }

    /// Lets everything go until nothing is stopping any more; whether that comes to an end.
    pub(crate) fn settles(&mut self) -> bool {
        for _ in 0..100 {
            if self.stopping.is_empty() && self.going.is_empty() {
                return true;
            }
            self.let_go();
        }
        false
    }

    /// Steps until nothing more is asked for.
    pub(crate) fn run(&mut self) {
        self.run_with(200, Engine::step);
    }

    /// The same with at most so many steps, each made by `step`.
    pub(crate) fn run_with(
        &mut self,
        most: usize,
        mut step: impl FnMut(&mut Engine, Time, &mut Vec<Event>, &mut Vec<Action>),
    ) {
        for _ in 0..most {
            self.now += 1;
            let (now, mut actions) = (self.time(), Vec::new());
            step(&mut self.engine, now, &mut self.events, &mut actions);
            let quiet = actions.is_empty();
            for action in actions {
                self.carry_out(action);
            }
            let due = self.engine.next_wake().is_some_and(|t| t <= now);
            if quiet && !due && self.events.is_empty() {
                return;
            }
        }
        panic!("no rest");
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u)) if self.refused_writes > 0 => {
                self.refused_writes -= 1;
                let (key, id, message) = (u.key.clone(), u.id, "refused".to_owned());
                let failed = plimsoll_queueing::Event::WriteFailed { key, id, message };
                self.events.push(Event::Queueing(failed));
            }
            Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u)) => {
                let name = u.key.name.clone();
                let Some(w) = self.workloads.get_mut(&name) else { return };
                let evicted = w.status.is_true(cond::EVICTED);
                u.apply(&mut w.status);
                let stops = !evicted && w.status.is_true(cond::EVICTED);
                self.version += 1;
                w.version = self.version;
                let (admitted, seen) = (w.status.is_true(cond::ADMITTED), w.clone());
                let pods = self.engine_pods(&seen);
                self.events.push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(seen))));
                if stops {
                    self.evicted(&name);
                    return;
                }
                if !admitted || self.pods.contains_key(&name) {
                    return;
                }
                let created = pods.iter().filter(|p| !self.late.contains(&p.uid));
                let upserts = created.map(|p| Event::Object(ObjectEvent::PodUpsert(Box::new(p.clone()))));
                self.events.extend(upserts);
                self.started.push(name.clone());
                self.pods.insert(name, pods);
            }
            Action::Scheduler(plimsoll_scheduler::Action::Bind { pod, node }) => {
                self.bound.insert(pod.uid.clone());
                self.events.push(Event::Scheduler(plimsoll_scheduler::Event::Bound(pod.uid.clone())));
                let workload = pod.uid.rsplit_once('-').map_or("", |(workload, _)| workload);
                let mine = self.pods.get_mut(workload).into_iter().flatten().find(|p| p.uid == pod.uid);
                if let Some(p) = mine {
                    p.spec.node_name = node;
                    self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(p.clone()))));
                }
            }
            Action::Scheduler(plimsoll_scheduler::Action::Prepare { pod, .. }) => self.prepared.push(pod.uid),
            Action::Scheduler(plimsoll_scheduler::Action::Unschedulable { pod, .. }) => {
                self.stuck.push(pod.uid);
            }
            _ => {}
        }
    }

    /// The pods of a workload, with what the flavors of its admission add, as its job creates them.
    fn engine_pods(&self, w: &Workload) -> Vec<Pod> {
        let mut pods = Vec::new();
        for assigned in w.status.admission.iter().flat_map(|a| &a.assignments) {
            let Some(set) = w.pod_sets.iter().find(|p| p.name == assigned.name) else { continue };
            let mut spec = set.spec.clone();
            for (_, flavor) in assigned.flavors.iter().filter(|(_, f)| f != "f") {
                spec.node_selector.insert("flavor".into(), flavor.clone());
            }
            let places = assigned.topology.iter().flat_map(|t| {
                let on = |(values, n): &(Vec<String>, i32)| (t.levels.clone(), values.clone(), *n);
                t.domains.iter().map(on).collect::<Vec<_>>()
            });
            let mut places: Vec<StringMap> = places
                .flat_map(|(levels, values, n)| {
                    let labels: StringMap = levels.into_iter().zip(values).collect();
                    (0..n).map(move |_| labels.clone())
                })
                .collect();
            for _ in 0..assigned.count {
                let mut pod = pod(&w.key.name, pods.len(), &spec);
                pod.pod_set = set.name.clone();
                pod.topology_aware = assigned.topology.is_some();
                for (level, value) in places.pop().into_iter().flatten() {
                    pod.spec.node_selector.insert(level, value);
                }
                pod.labels.insert("kueue.x-k8s.io/podset".into(), set.name.clone());
                pods.push(pod);
            }
        }
        pods
    }

    pub(crate) fn admitted(&self) -> Vec<&str> {
        let all = self.workloads.iter().filter(|(_, w)| w.status.is_true(cond::ADMITTED));
        all.map(|(name, _)| name.as_str()).collect()
    }

    /// Flavors of a workload's podsets.
    pub(crate) fn flavors(&self, name: &str) -> Vec<&str> {
        let admission = self.workloads.get(name).and_then(|w| w.status.admission.as_ref());
        let assigned = admission.into_iter().flat_map(|a| &a.assignments).flat_map(|a| &a.flavors);
        assigned.map(|(_, f)| f.as_str()).collect()
    }

    pub(crate) fn reason(&self, name: &str) -> (String, String) {
        let w = self.workloads.get(name);
        let c = w.and_then(|w| w.status.condition(cond::QUOTA_RESERVED).cloned()).unwrap_or_default();
        (c.reason, c.message)
    }
}

pub(crate) fn pod(workload: &str, i: usize, spec: &PodSpec) -> Pod {
    Pod {
        uid: format!("{workload}-{i}"),
        namespace: "n".into(),
        name: format!("{workload}-{i}"),
        labels: [("kueue.x-k8s.io/podset".to_owned(), "main".to_owned())].into_iter().collect(),
        workload: workload.into(),
        pod_set: "main".into(),
        spec: spec.clone(),
        ..Pod::default()
    }
}

pub(crate) fn pod_set(name: &str, count: i32, cpu: i64) -> PodSet {
    PodSet { name: name.into(), count, spec: spec(cpu), ..PodSet::default() }
}

/// A ClusterQueue with quotas for CPUs, by flavor.
pub(crate) fn cluster_queue(name: &str, flavors: &[(&str, i64)]) -> ClusterQueue {
    let of = |&(flavor, nominal): &(&str, i64)| FlavorQuotas {
        flavor: flavor.into(),
        resources: vec![ResourceQuota {
            resource: "cpu".into(),
            nominal,
            borrowing_limit: None,
            lending_limit: None,
        }],
    };
    let group = ResourceGroup { covered: vec!["cpu".into()], flavors: flavors.iter().map(of).collect() };
    ClusterQueue {
        name: name.into(),
        resource_groups: vec![group],
        namespace_selector: Some(LabelSelector::default()),
        fair_weight_nano: 1_000_000_000,
        ..ClusterQueue::default()
    }
}
