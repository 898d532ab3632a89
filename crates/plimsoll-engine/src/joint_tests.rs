//! Joint admission as a whole: an outside that makes pods of admitted workloads and binds what it is told to.

use plimsoll_state::ObjectEvent;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{WorkloadKey, cond};
use plimsoll_state::model::{Container, LabelSelector, Node, Pod, PodSpec, StringMap};
use plimsoll_state::time::{Duration, Time};

fn spec(cpu: i64) -> PodSpec {
    let container = Container { requests: [("cpu".to_owned(), cpu)].into(), ..Container::default() };
    PodSpec { scheduler_name: "default-scheduler".into(), containers: vec![container], ..PodSpec::default() }
}

struct World {
    engine: Engine,
    now: i64,
    version: u64,
    workloads: BTreeMap<String, plimsoll_queueing::Workload>,
    /// Pods that exist, by workload.
    pods: BTreeMap<String, Vec<Pod>>,
    bound: BTreeSet<String>,
    /// Pods that are not created when their workload is admitted.
    late: BTreeSet<String>,
    stuck: Vec<String>,
    events: Vec<Event>,
}

impl World {
    fn new(joint: bool) -> Self {
        Self::with(joint, plimsoll_queueing::Config::default())
    }

    fn with(joint: bool, queueing: plimsoll_queueing::Config) -> Self {
        let engine = Engine::new(EngineConfig {
            scheduler: Some(plimsoll_scheduler::Config::default()),
            queueing: Some(queueing),
            joint,
        });
        let quota = plimsoll_queueing::ResourceQuota {
            resource: "cpu".into(),
            nominal: 1_000_000,
            borrowing_limit: None,
            lending_limit: None,
        };
        let flavor = plimsoll_queueing::FlavorQuotas { flavor: "f".into(), resources: vec![quota] };
        let cq = plimsoll_queueing::ClusterQueue {
            name: "c".into(),
            resource_groups: vec![plimsoll_queueing::ResourceGroup {
                covered: vec!["cpu".into()],
                flavors: vec![flavor],
            }],
            namespace_selector: Some(LabelSelector::default()),
            fair_weight_nano: 1_000_000_000,
            ..Default::default()
        };
        let lq = plimsoll_queueing::LocalQueue {
            namespace: "n".into(),
            name: "l".into(),
            cluster_queue: "c".into(),
            ..Default::default()
        };
        let flavor = plimsoll_queueing::ResourceFlavor { name: "f".into(), ..Default::default() };
        let events = [
            plimsoll_queueing::Event::NamespaceUpsert("n".into(), StringMap::default()),
            plimsoll_queueing::Event::ResourceFlavorUpsert(Box::new(flavor)),
            plimsoll_queueing::Event::ClusterQueueUpsert(Box::new(cq)),
            plimsoll_queueing::Event::LocalQueueUpsert(Box::new(lq)),
        ];
        let mut w = Self {
            engine,
            now: 0,
            version: 1,
            workloads: BTreeMap::new(),
            pods: BTreeMap::new(),
            bound: BTreeSet::new(),
            late: BTreeSet::new(),
            stuck: Vec::new(),
            events: events.map(Event::Queueing).into(),
        };
        w.run();
        w
    }

    fn node(&mut self, name: &str, cpu: i64) {
        let mut n = Node { name: name.into(), uid: format!("uid-{name}"), ready: true, ..Node::default() };
        n.allocatable.insert("cpu".into(), cpu);
        n.allocatable.insert("pods".into(), 100);
        self.events.push(Event::Object(ObjectEvent::NodeUpsert(Box::new(n))));
        self.run();
    }

    fn submit(&mut self, name: &str, count: i32, cpu: i64) {
        let podset =
            plimsoll_queueing::PodSet { name: "main".into(), count, spec: spec(cpu), ..Default::default() };
        let w = plimsoll_queueing::Workload {
            key: WorkloadKey { namespace: "n".into(), name: name.into() },
            uid: name.into(),
            version: 1,
            generation: 1,
            creation: Time::from_seconds(self.now),
            queue: "l".into(),
            active: true,
            pod_sets: vec![podset],
            ..Default::default()
        };
        self.workloads.insert(name.into(), w);
        self.tell(name);
    }

    fn tell(&mut self, name: &str) {
        self.version += 1;
        if let Some(w) = self.workloads.get_mut(name) {
            w.version = self.version;
            let event = plimsoll_queueing::Event::WorkloadUpsert(Box::new(w.clone()));
            self.events.push(Event::Queueing(event));
        }
        self.run();
    }

    /// Updates pods that are on nodes, without a change that concerns scheduling.
    fn touch_bound_pods(&mut self, n: usize) {
        for pod in self.pods.values_mut().flatten().filter(|p| !p.spec.node_name.is_empty()) {
            pod.labels.insert("touched".into(), n.to_string());
            self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod.clone()))));
        }
        self.run();
    }

    fn create_late_pods(&mut self) {
        let late = std::mem::take(&mut self.late);
        for pod in self.pods.values().flatten().filter(|p| late.contains(&p.uid)) {
            self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod.clone()))));
        }
        self.run();
    }

    fn finish(&mut self, name: &str) {
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
        self.tell(name);
        self.workloads.remove(name);
    }

    /// Steps until nothing more is asked for.
    fn run(&mut self) {
        for _ in 0..200 {
            self.now += 1;
            let mut actions = Vec::new();
            self.engine.step(Time::from_seconds(self.now), &mut self.events, &mut actions);
            let quiet = actions.is_empty();
            for action in actions {
                self.carry_out(action);
            }
            let due = self.engine.next_wake().is_some_and(|t| t <= Time::from_seconds(self.now));
            if quiet && !due && self.events.is_empty() {
                return;
            }
        }
        panic!("no rest");
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u)) => {
                let name = u.key.name.clone();
                let Some(w) = self.workloads.get_mut(&name) else { return };
                u.apply(&mut w.status);
                self.version += 1;
                w.version = self.version;
                let (admitted, count, seen) =
                    (w.status.is_true(cond::ADMITTED), w.pod_sets[0].count, w.clone());
                let spec = w.pod_sets[0].spec.clone();
                self.events.push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(seen))));
                if !admitted || self.pods.contains_key(&name) {
                    return;
                }
                let pods: Vec<Pod> = (0..count).map(|i| pod(&name, i, &spec)).collect();
                let created = pods.iter().filter(|p| !self.late.contains(&p.uid));
                let upserts = created.map(|p| Event::Object(ObjectEvent::PodUpsert(Box::new(p.clone()))));
                self.events.extend(upserts);
                self.pods.insert(name, pods);
            }
            Action::Scheduler(plimsoll_scheduler::Action::Bind { pod, node }) => {
                self.bound.insert(pod.uid.clone());
                self.events.push(Event::Scheduler(plimsoll_scheduler::Event::Bound(pod.uid.clone())));
                let mine = self.pods.values_mut().flatten().find(|p| p.uid == pod.uid);
                if let Some(p) = mine {
                    p.spec.node_name = node;
                    self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(p.clone()))));
                }
            }
            Action::Scheduler(plimsoll_scheduler::Action::Unschedulable { pod, .. }) => {
                self.stuck.push(pod.uid);
            }
            _ => {}
        }
    }

    fn reason(&self, name: &str) -> (String, String) {
        let w = self.workloads.get(name);
        let c = w.and_then(|w| w.status.condition(cond::QUOTA_RESERVED).cloned()).unwrap_or_default();
        (c.reason, c.message)
    }
}

fn pod(workload: &str, i: i32, spec: &PodSpec) -> Pod {
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

#[test]
fn a_gang_without_room_waits_whole_and_quota_alone_would_start_half_of_it() {
    for joint in [false, true] {
        let mut w = World::new(joint);
        w.node("a", 2);
        w.node("b", 2);
        w.submit("first", 3, 1);
        w.submit("second", 3, 1);
        if !joint {
            assert!(!w.stuck.is_empty(), "this is what joint admission is for");
            continue;
        }
        assert!(w.stuck.is_empty());
        assert_eq!(w.bound.len(), 3);
        let (reason, message) = w.reason("second");
        assert_eq!(reason, "WaitingForNodes");
        assert_eq!(message, "couldn't place all pods: 0/2 nodes are available: 2 Insufficient cpu.");
        w.node("c", 2);
        assert_eq!((w.bound.len(), w.stuck.len()), (6, 0));
    }
}

#[test]
fn reservations_are_released_when_the_workload_finishes_before_its_pods_are_created() {
    let mut w = World::new(true);
    w.node("a", 2);
    // Its pods never come.
    w.pods.insert("lazy".into(), Vec::new());
    w.submit("lazy", 2, 1);
    w.submit("next", 2, 1);
    assert_eq!(w.reason("next").0, "WaitingForNodes");
    w.finish("lazy");
    assert_eq!(w.bound.len(), 2);
}

#[test]
fn reservations_expire() {
    let mut w = World::new(true);
    w.node("a", 2);
    w.pods.insert("lazy".into(), Vec::new());
    w.submit("lazy", 2, 1);
    w.submit("next", 2, 1);
    w.now += 301;
    w.run();
    assert_eq!(w.bound.len(), 2);
}

/// Three pods of a gang need a node each; the last pod is created late.
fn gang_with_a_late_pod() -> World {
    let mut w = World::new(true);
    w.node("a", 1);
    w.node("b", 1);
    w.node("c", 1);
    w.late.insert("gang-2".into());
    w.submit("gang", 3, 1);
    assert_eq!(w.bound.len(), 2);
    w
}

#[test]
fn an_update_of_a_bound_pod_takes_no_reservation_from_its_siblings() {
    let mut w = gang_with_a_late_pod();
    for n in 0..3 {
        let mut bound = w.pods["gang"][0].clone();
        bound.labels.insert("touched".into(), n.to_string());
        w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(bound))));
        w.run();
    }
    w.submit("other", 1, 1);
    assert_eq!(w.reason("other").0, "WaitingForNodes", "the node is reserved for the late pod");
    let late = w.pods["gang"][2].clone();
    w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(late))));
    w.run();
    assert_eq!((w.bound.len(), w.stuck.len()), (3, 0));
}

#[test]
fn a_pod_that_another_scheduler_binds_releases_one_reservation_once() {
    let mut w = gang_with_a_late_pod();
    w.node("d", 1);
    let mut late = w.pods["gang"][2].clone();
    late.spec.node_name = "d".into();
    for n in 0..2 {
        late.labels.insert("touched".into(), n.to_string());
        w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(late.clone()))));
        w.run();
    }
    w.submit("other", 1, 1);
    assert_eq!((w.bound.len(), w.stuck.len()), (3, 0), "the reserved node is free again");
}

#[test]
fn a_workload_that_has_to_wait_for_ready_pods_reserves_no_nodes() {
    let rules = plimsoll_queueing::WaitForPodsReady {
        timeout: Duration::from_seconds(100_000),
        recovery_timeout: None,
        block_admission: true,
        backoff_limit: None,
        backoff_base: Duration::from_seconds(60),
        backoff_max: Duration::from_seconds(3600),
    };
    let config = plimsoll_queueing::Config { wait_for_pods_ready: Some(rules), ..Default::default() };
    let mut w = World::with(true, config);
    w.node("a", 2);
    w.submit("first", 1, 1);
    assert_eq!(w.bound.len(), 1);
    w.submit("second", 1, 1);
    assert_eq!(w.reason("second").0, "WaitingForPodsReady");
    // A pod that is not queued gets the node at once.
    let single = Pod { workload: String::new(), pod_set: String::new(), ..pod("single", 0, &spec(1)) };
    w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(single))));
    w.run();
    assert_eq!((w.bound.len(), w.stuck.len()), (2, 0));
}

#[test]
fn a_workload_that_is_evicted_gives_its_reservations_back_before_its_quota() {
    let mut w = World::new(true);
    w.node("a", 2);
    w.pods.insert("lazy".into(), Vec::new());
    w.submit("lazy", 2, 1);
    w.submit("next", 2, 1);
    assert_eq!(w.reason("next").0, "WaitingForNodes");
    if let Some(lazy) = w.workloads.get_mut("lazy") {
        let evicted = plimsoll_queueing::Condition {
            kind: cond::EVICTED.into(),
            status: true,
            reason: "Preempted".into(),
            ..Default::default()
        };
        lazy.status.conditions.push(evicted);
    }
    w.tell("lazy");
    assert!(w.workloads["lazy"].status.is_true(cond::QUOTA_RESERVED), "its pods have not stopped");
    assert_eq!((w.bound.len(), w.stuck.len()), (2, 0));
}

/// The engine's own check compares reservations with what nodes have.
#[test]
fn reservations_that_exceed_their_node_are_released() {
    for cause in ["shrinks", "goes", "gets a pod of another scheduler"] {
        let mut w = World::new(true);
        w.node("a", 2);
        w.pods.insert("lazy".into(), Vec::new());
        w.submit("lazy", 2, 1);
        match cause {
            "shrinks" => w.node("a", 1),
            "goes" => w.events.push(Event::Object(ObjectEvent::NodeDelete("a".into()))),
            _ => {
                let single =
                    Pod { workload: String::new(), pod_set: String::new(), ..pod("other", 0, &spec(1)) };
                let spec = PodSpec { node_name: "a".into(), ..spec(1) };
                w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(Pod { spec, ..single }))));
            }
        }
        w.run();
        w.node("a", 3);
        w.submit("next", 2, 1);
        let whole = if cause == "gets a pod of another scheduler" { 0 } else { 2 };
        assert_eq!((w.bound.len(), w.stuck.len()), (whole, 0), "the node {cause}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// While no node goes, no pod of an admitted workload ever waits for one, and what can't be admitted says why.
    #[test]
    fn admitted_gangs_are_placed_whole(
        nodes in prop::collection::vec(1i64..5, 1..5),
        steps in prop::collection::vec((0u8..7, 1i32..5, 1i64..4), 1..30),
    ) {
        let mut w = World::new(true);
        for (i, cpu) in nodes.iter().enumerate() {
            w.node(&format!("n{i}"), *cpu);
        }
        for (i, (what, count, cpu)) in steps.into_iter().enumerate() {
            match what {
                0..=2 => w.submit(&format!("w{i}"), count, cpu),
                3 => {
                    let running = w.pods.keys().next().cloned();
                    if let Some(name) = running {
                        w.finish(&name);
                    }
                }
                4 => w.node(&format!("m{i}"), cpu),
                5 => w.touch_bound_pods(i),
                // The next gang's first pod is created late, or at the end of the run.
                _ => {
                    w.create_late_pods();
                    w.late.insert(format!("w{}-0", i + 1));
                }
            }
            if i % 8 == 7 {
                // Before reservations expire.
                w.create_late_pods();
            }
            prop_assert!(w.stuck.is_empty(), "{:?}", w.stuck);
            for (name, wl) in &w.workloads {
                if wl.status.is_true(cond::ADMITTED) {
                    let pods = w.pods.get(name).map_or(0, Vec::len);
                    let of_workload = || w.pods.get(name).into_iter().flatten();
                    let placed = of_workload().filter(|p| !p.spec.node_name.is_empty());
                    let late = of_workload().filter(|p| w.late.contains(&p.uid));
                    prop_assert_eq!(placed.count() + late.count(), pods);
                }
            }
        }
        w.create_late_pods();
        prop_assert!(w.stuck.is_empty(), "{:?}", w.stuck);
    }
}
