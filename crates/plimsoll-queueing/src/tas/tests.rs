//! Nodes that fail, delayed placements, and what must hold whatever happens.

use plimsoll_state::{Answer, ObjectEvent};
use std::collections::{BTreeMap, BTreeSet};

use crate::testing::{self as engine, Engine};
use crate::{
    Action, Admission, AdmissionCheck, CheckState, ClusterQueue, Config, Delayed, Event, FlavorQuotas,
    KubernetesEvent, LocalQueue, PodSet, PodSetUpdate, ResourceFlavor, ResourceGroup, ResourceQuota,
    Topology, TopologyRequest, Workload, WorkloadKey, cond,
};
use plimsoll_state::model::{
    Container, LabelSelector, Node, Phase, Pod, PodSpec, Resources, Taint, TaintEffect, Toleration,
};
use plimsoll_state::time::{Duration, Time};

const LEVELS: [&str; 3] = ["block", "rack", "kubernetes.io/hostname"];

fn cpu(amount: i64) -> Resources {
    [("cpu".to_owned(), amount)].into()
}

/// A node named after its place: `a-1-x` is in block `a` and rack `a-1`.
fn node(name: &str, cpus: i64) -> Node {
    let rack = name.rsplit_once('-').map_or(name, |(r, _)| r);
    let block = rack.split('-').next().unwrap_or(rack);
    let mut n = Node {
        name: name.into(),
        ready: true,
        ready_since: Some(Time::from_seconds(0)),
        allocatable: [("cpu".to_owned(), cpus * 1000), ("pods".to_owned(), 20)].into(),
        ..Node::default()
    };
    for (key, value) in LEVELS.iter().zip([block, rack, name]) {
        n.labels.insert((*key).into(), value.into());
    }
    n
}

pub(super) fn request(
    required: Option<&str>,
    preferred: Option<&str>,
    slices: &[(&str, i32)],
) -> TopologyRequest {
    TopologyRequest {
        required: required.map(Into::into),
        preferred: preferred.map(Into::into),
        unconstrained: required.is_none() && preferred.is_none() && slices.is_empty(),
        group: None,
        slices: slices.iter().map(|(l, n)| ((*l).into(), *n)).collect(),
    }
}

/// `count` pods of one cpu.
pub(super) fn job(name: &str, count: i32, topology: TopologyRequest) -> Workload {
    let container = Container { requests: cpu(1000), ..Container::default() };
    Workload {
        key: WorkloadKey { namespace: "n".into(), name: name.into() },
        uid: format!("uid-{name}"),
        version: 1,
        generation: 1,
        creation: Time::from_seconds(1),
        queue: "l".into(),
        active: true,
        pod_sets: vec![PodSet {
            name: "main".into(),
            count,
            spec: PodSpec { containers: vec![container], ..PodSpec::default() },
            topology: Some(topology),
            ..PodSet::default()
        }]
        .into(),
        ..Workload::default()
    }
}

/// An engine, and an outside that does all it is asked to, at once and in order.
pub(super) struct Harness {
    pub(super) engine: Engine,
    pub(super) now: Time,
    pub(super) jobs: BTreeMap<WorkloadKey, Workload>,
    pub(super) nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    version: u64,
    pub(super) events: Vec<KubernetesEvent>,
    failed_pods: BTreeSet<String>,
    /// Whether no pod can be ended.
    broken: bool,
}

impl Harness {
    pub(super) fn new(config: Config, checks: &[&str], nodes: &[(&str, i64)]) -> Self {
        let nodes = nodes.iter().map(|(name, cpus)| node(name, *cpus)).collect();
        Self::with(config, checks, &LEVELS, nodes)
    }

    pub(super) fn with(config: Config, checks: &[&str], levels: &[&str], nodes: Vec<Node>) -> Self {
        let config = Config { watch_nodes: true, ..config };
        let engine = Engine::new(config);
        let mut w = Self {
            engine,
            now: Time::from_seconds(1_000),
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            version: 1,
            events: Vec::new(),
            failed_pods: BTreeSet::new(),
            broken: false,
        };
        let quota = ResourceQuota { resource: "cpu".into(), nominal: 1_000_000, ..ResourceQuota::default() };
        let check = |n: &&str| AdmissionCheck { name: (*n).into(), controller: (*n).into(), active: true };
        let mut events: Vec<Event> =
            checks.iter().map(check).map(|c| Event::AdmissionCheckUpsert(Box::new(c))).collect();
        events.extend([
            Event::NamespaceUpsert("n".into(), plimsoll_state::model::StringMap::new()),
            Event::TopologyUpsert(Box::new(Topology {
                name: "t".into(),
                levels: levels.iter().map(|l| (*l).into()).collect(),
            })),
            Event::ResourceFlavorUpsert(Box::new(Self::flavor())),
            Event::ClusterQueueUpsert(Box::new(ClusterQueue {
                name: "c".into(),
                resource_groups: vec![ResourceGroup {
                    covered: vec!["cpu".into()],
                    flavors: vec![FlavorQuotas { flavor: "f".into(), resources: vec![quota] }],
                }],
                namespace_selector: Some(LabelSelector::default()),
                admission_checks: checks.iter().map(|n| ((*n).into(), Vec::new())).collect(),
                fair_weight_nano: 1_000_000_000,
                ..ClusterQueue::default()
            })),
            Event::LocalQueueUpsert(Box::new(LocalQueue {
                namespace: "n".into(),
                name: "l".into(),
                cluster_queue: "c".into(),
                fair_weight_nano: 1_000_000_000,
                ..LocalQueue::default()
            })),
        ]);
        let mut batch: Vec<engine::Event> = events.into_iter().map(engine::Event::Queueing).collect();
        for n in nodes {
            batch.push(w.see_node(n));
        }
        w.step(batch);
        w
    }

    fn see_node(&mut self, n: Node) -> engine::Event {
        self.nodes.insert(n.name.clone(), n.clone());
        engine::Event::Object(ObjectEvent::NodeUpsert(Box::new(n)))
    }

    pub(super) fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let Some(mut n) = self.nodes.get(name).cloned() else { return };
        let ready = n.ready;
        change(&mut n);
        if n.ready != ready && n.ready_since.is_some() {
            n.ready_since = Some(self.now);
        }
        let event = self.see_node(n);
        self.step(vec![event]);
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.step(vec![engine::Event::Object(ObjectEvent::NodeDelete(name.into()))]);
        }
    }

    pub(super) fn add_node(&mut self, name: &str, cpus: i64) {
        let event = self.see_node(node(name, cpus));
        self.step(vec![event]);
    }

    pub(super) fn submit(&mut self, w: Workload) {
        self.jobs.insert(w.key.clone(), w.clone());
        self.step(vec![engine::Event::Queueing(Event::WorkloadUpsert(Box::new(w)))]);
    }

    /// Changes a workload behind the engine's back.
    pub(super) fn change_job(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let key = WorkloadKey { namespace: "n".into(), name: name.into() };
        let Some(w) = self.jobs.get_mut(&key) else { return };
        self.version += 1;
        w.version = self.version;
        change(w);
        let event = Event::WorkloadUpsert(Box::new(w.clone()));
        self.step(vec![engine::Event::Queueing(event)]);
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        self.now = self.now.plus(Duration::from_seconds(seconds));
        self.step(Vec::new());
    }

    /// Changes the only flavor.
    pub(super) fn change_flavor(&mut self, change: impl FnOnce(&mut ResourceFlavor)) {
        let mut flavor = Self::flavor();
        change(&mut flavor);
        self.step(vec![engine::Event::Queueing(Event::ResourceFlavorUpsert(Box::new(flavor)))]);
    }

    fn flavor() -> ResourceFlavor {
        ResourceFlavor { name: "f".into(), topology: "t".into(), ..ResourceFlavor::default() }
    }

    pub(super) fn show(&mut self, event: ObjectEvent) {
        self.step(vec![engine::Event::Object(event)]);
    }

    /// Steps until everything asked for is done and answered.
    fn step(&mut self, batch: Vec<engine::Event>) {
        let mut batch = batch;
        for _ in 0..400 {
            let mut actions = Vec::new();
            self.engine.step(self.now, &mut batch, &mut actions);
            let mut answers: Vec<Event> = Vec::new();
            for action in actions {
                match action {
                    engine::Action::Queueing(Action::UpdateWorkload(u)) => {
                        let Some(w) = self.jobs.get_mut(&u.key) else { continue };
                        u.apply(&mut w.status);
                        self.version += 1;
                        w.version = self.version;
                        self.events.extend(u.events.iter().cloned());
                        let (key, id, version) = (u.key.clone(), u.id, self.version);
                        answers.push(Event::Written { key, id, version });
                        answers.push(Event::WorkloadUpsert(Box::new(w.clone())));
                        if w.status.is_true(cond::EVICTED) && w.status.is_true(cond::QUOTA_RESERVED) {
                            answers.push(Event::WorkloadStopped(u.key.clone()));
                        }
                    }
                    engine::Action::Queueing(Action::Record(event)) => self.events.push(event.event),
                    engine::Action::Queueing(action @ Action::FailPod { .. }) => {
                        let answer = if self.broken { Answer::Failed("no".into()) } else { Answer::Done };
                        if let (Action::FailPod { name, .. }, false) = (&action, self.broken) {
                            self.failed_pods.insert(name.clone());
                        }
                        answers.push(Event::Answered { action: Box::new(action), answer });
                    }
                    _ => {}
                }
            }
            batch = answers.into_iter().map(engine::Event::Queueing).collect();
            let idle = self.engine.next_wake().is_none_or(|t| t > self.now);
            if batch.is_empty() && idle {
                return;
            }
        }
        panic!("goes on for ever");
    }

    /// Shows pods of a job where its placement says.
    fn run_pods(&mut self, name: &str) {
        for (host, count) in self.hosts(name) {
            for i in 0..count {
                self.show_pod(name, &format!("{name}-{host}-{i}"), &host, |p| {
                    p.spec.node_name = host.clone();
                    p.status.phase = Phase::Running;
                });
            }
        }
    }

    fn show_pod(&mut self, job: &str, name: &str, host: &str, change: impl FnOnce(&mut Pod)) {
        let mut p = self.pods.remove(name).unwrap_or_else(|| Pod {
            uid: format!("uid-{name}"),
            namespace: "n".into(),
            name: name.into(),
            workload: job.into(),
            topology_aware: true,
            ..Pod::default()
        });
        p.spec.node_selector.insert(LEVELS[2].into(), host.into());
        change(&mut p);
        self.pods.insert(name.into(), p.clone());
        self.step(vec![engine::Event::Object(ObjectEvent::PodUpsert(Box::new(p)))]);
    }

    fn end_pods_on(&mut self, host: &str) {
        let here: Vec<(String, String)> = self
            .pods
            .values()
            .filter(|p| p.spec.node_name == host)
            .map(|p| (p.workload.clone(), p.name.clone()))
            .collect();
        for (job, name) in here {
            self.show_pod(&job, &name, host, |p| p.status.phase = Phase::Failed);
        }
    }

    pub(super) fn job(&self, name: &str) -> &Workload {
        &self.jobs[&WorkloadKey { namespace: "n".into(), name: name.into() }]
    }

    /// Hosts and pods there.
    pub(super) fn hosts(&self, name: &str) -> Vec<(String, i32)> {
        let assigned = self.job(name).status.admission.iter().flat_map(|a| &a.assignments);
        let domains = assigned.filter_map(|a| a.topology.as_ref()).flat_map(|t| &t.domains);
        domains.map(|(v, n)| (v.last().cloned().unwrap_or_default(), *n)).collect()
    }

    pub(super) fn places(&self, name: &str) -> String {
        self.hosts(name).iter().map(|(h, n)| format!("{h}={n}")).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn condition(&self, name: &str, kind: &str) -> String {
        let c = self.job(name).status.condition(kind);
        c.map_or(String::new(), |c| format!("{} {}: {}", c.status, c.reason, c.message))
    }

    fn said(&self, reason: &str) -> Vec<&str> {
        self.events.iter().filter(|n| n.reason == reason).map(|n| n.message.as_str()).collect()
    }
}

pub(super) fn gates(change: impl FnOnce(&mut crate::Gates)) -> Config {
    let mut config = Config::default();
    change(&mut config.gates);
    config
}

const TWO_RACKS: [(&str, i64); 5] = [("a-1-x", 2), ("a-1-y", 2), ("a-1-z", 2), ("a-2-x", 2), ("a-2-y", 2)];

/// A node is gone: another one of the same rack stands in for it a second later, and the rest stays.
#[test]
fn a_lost_node_is_replaced_where_the_rest_is() {
    let mut w = Harness::new(Config::default(), &[], &TWO_RACKS);
    w.submit(job("j", 4, request(Some("rack"), None, &[])));
    assert_eq!(w.places("j"), "a-2-x=2 a-2-y=2");
    w.remove_node("a-2-y");
    assert_eq!(w.job("j").status.unhealthy_nodes, ["a-2-y"]);
    // Only the other rack has room.
    w.wait(1);
    assert_eq!(
        w.condition("j", cond::EVICTED),
        "false QuotaReserved: Previously: Workload was evicted as there was no replacement for unhealthy node(s): a-2-y"
    );
    assert_eq!(
        w.condition("j", cond::REQUEUED),
        "true NodeFailures: Workload was evicted as there was no replacement for unhealthy node(s): a-2-y"
    );
    assert!(w.job("j").status.unhealthy_nodes.is_empty());
    // Back in the queue it gets a rack that holds all of it.
    assert_eq!(w.places("j"), "a-1-x=2 a-1-y=2");
    w.remove_node("a-1-x");
    w.wait(1);
    assert_eq!(w.places("j"), "a-1-y=2 a-1-z=2");
    assert!(w.job("j").status.unhealthy_nodes.is_empty() && w.job("j").status.is_true(cond::ADMITTED));
    assert_eq!(w.said("QuotaReserved").len(), 2);
    assert_eq!(w.said("Admitted").len(), 2);
}

/// What fails a node for a workload with pods there, by gate and kind of failure: at once, when the pods ended, or
/// after 30 s.
#[test]
fn nodes_fail_as_the_gates_say() {
    let not_ready = |n: &mut Node| n.ready = false;
    let unknown = |n: &mut Node| (n.ready, n.ready_since) = (false, None);
    let tainted = |n: &mut Node| {
        n.taints.push(Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoExecute });
    };
    type Change = fn(&mut Node);
    let all: [(&str, Config, Change, [bool; 4]); 7] = [
        // Right away, after 31 s, when pods ended, and after 31 s more.
        ("not ready", Config::default(), not_ready, [false, false, true, true]),
        ("no condition", Config::default(), unknown, [true, true, true, true]),
        ("taint", Config::default(), tainted, [false, false, true, true]),
        ("taint, off", gates(|g| g.replace_on_taints = false), tainted, [false, false, false, false]),
        ("taint at once", gates(|g| g.replace_on_pod_termination = false), tainted, [true, true, true, true]),
        ("timer", gates(|g| g.replace_on_pod_termination = false), not_ready, [false, true, true, true]),
        ("off", gates(|g| g.replace_nodes = false), unknown, [false, false, false, false]),
    ];
    for (name, config, change, want) in all {
        let mut w = Harness::new(config, &[], &[("a-1-x", 2), ("a-1-y", 2)]);
        w.submit(job("j", 2, request(Some("rack"), None, &[])));
        assert_eq!(w.places("j"), "a-1-x=2");
        w.run_pods("j");
        let moved = |w: &Harness| !w.job("j").status.unhealthy_nodes.is_empty() || w.places("j") == "a-1-y=2";
        let mut got = Vec::new();
        w.change_node("a-1-x", change);
        got.push(moved(&w));
        w.wait(31);
        got.push(moved(&w));
        w.end_pods_on("a-1-x");
        got.push(moved(&w));
        w.wait(31);
        got.push(moved(&w));
        assert_eq!(got, want, "{name}");
        if want[3] {
            assert_eq!(w.places("j"), "a-1-y=2", "{name}");
        }
    }
}

/// Kueue `podSetTopologyRequest`: the flavors of the ClusterQueue count, not those of others.
#[test]
fn a_queue_without_a_topology_says_so() {
    let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 2)]);
    let quota = ResourceQuota { resource: "cpu".into(), nominal: 1_000_000, ..ResourceQuota::default() };
    let queue = ClusterQueue {
        name: "plain".into(),
        resource_groups: vec![ResourceGroup {
            covered: vec!["cpu".into()],
            flavors: vec![FlavorQuotas { flavor: "g".into(), resources: vec![quota] }],
        }],
        namespace_selector: Some(LabelSelector::default()),
        fair_weight_nano: 1_000_000_000,
        ..ClusterQueue::default()
    };
    let local = LocalQueue {
        namespace: "n".into(),
        name: "m".into(),
        cluster_queue: "plain".into(),
        fair_weight_nano: 1_000_000_000,
        ..LocalQueue::default()
    };
    let flavor = ResourceFlavor { name: "g".into(), ..ResourceFlavor::default() };
    let events = [
        Event::ResourceFlavorUpsert(Box::new(flavor)),
        Event::ClusterQueueUpsert(Box::new(queue)),
        Event::LocalQueueUpsert(Box::new(local)),
    ];
    w.step(events.into_iter().map(engine::Event::Queueing).collect());
    let mut j = job("j", 1, request(None, Some("rack"), &[]));
    j.queue = "m".into();
    // Any flavor will do for pods that ask for nothing.
    j.pod_sets[0].spec.containers[0].requests = Resources::default();
    w.submit(j);
    let said = w.condition("j", cond::QUOTA_RESERVED);
    assert!(said.ends_with("workload requires Topology, but there is no TAS cache information"), "{said}");
}

/// Taints: what is tolerated for ever doesn't matter; what is tolerated for a time does once the pods ended.
#[test]
fn tolerations_decide_whether_a_taint_matters() {
    for (temporary, moves) in [(None, true), (Some(false), false), (Some(true), true)] {
        let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 2), ("a-1-y", 2)]);
        let mut j = job("j", 2, request(Some("rack"), None, &[]));
        if let Some(temporary) = temporary {
            j.pod_sets[0].spec.tolerations.push(Toleration {
                key: "k".into(),
                temporary,
                ..Toleration::default()
            });
        }
        w.submit(j);
        w.run_pods("j");
        let taint = Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoExecute };
        w.change_node("a-1-x", |n| n.taints.push(taint));
        assert!(w.job("j").status.unhealthy_nodes.is_empty());
        w.end_pods_on("a-1-x");
        assert_eq!(!w.job("j").status.unhealthy_nodes.is_empty(), moves, "{temporary:?}");
        // Never to the node that failed, though a pod that tolerates its taint could go there.
        w.wait(2);
        assert_eq!(w.places("j"), if moves { "a-1-y=2" } else { "a-1-x=2" }, "{temporary:?}");
    }
}

/// Pods of all slices of an elastic job bear the name of the first one.
#[test]
fn pods_that_bear_the_first_slices_name_keep_a_tainted_node() {
    let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 2), ("a-1-y", 2)]);
    w.submit(Workload { first_slice: "first".into(), ..job("j", 2, request(Some("rack"), None, &[])) });
    for name in ["one", "two"] {
        w.show_pod("first", name, "a-1-x", |p| {
            p.spec.node_name = "a-1-x".into();
            p.status.phase = Phase::Running;
        });
    }
    let taint = Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoExecute };
    w.change_node("a-1-x", |n| n.taints.push(taint));
    assert!(w.job("j").status.unhealthy_nodes.is_empty());
    w.end_pods_on("a-1-x");
    assert_eq!(w.job("j").status.unhealthy_nodes, ["a-1-x"]);
}

/// A node that comes back before it was replaced is no longer unhealthy.
#[test]
fn a_node_that_recovers_is_kept() {
    let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 2), ("a-1-y", 2)]);
    w.submit(job("j", 2, request(Some("rack"), None, &[])));
    w.change_node("a-1-x", |n| n.ready = false);
    assert_eq!(w.job("j").status.unhealthy_nodes, ["a-1-x"]);
    w.run_pods("j");
    w.change_node("a-1-x", |n| n.ready = true);
    assert!(w.job("j").status.unhealthy_nodes.is_empty());
    w.wait(60);
    assert_eq!(w.places("j"), "a-1-x=2");
}

/// Nodes that change at one time are looked at in parts, before the next cycle, with the same outcome.
#[test]
fn many_nodes_that_fail_are_looked_at_in_parts() {
    let names: Vec<String> = (0..24).map(|n| format!("a-{}-n{n:02}", n % 3)).collect();
    let nodes: Vec<(&str, i64)> = names.iter().map(|n| (n.as_str(), 2)).collect();
    let play = |most: Option<usize>| {
        let mut w = Harness::new(Config::default(), &[], &nodes);
        let queueing = w.engine.queueing_mut().unwrap();
        queueing.bounded.most = most.unwrap_or(queueing.bounded.most);
        let jobs: Vec<String> = (0..12).map(|j| format!("j{j:02}")).collect();
        jobs.iter().for_each(|j| w.submit(job(j, 2, request(Some("rack"), None, &[]))));
        // All nodes of pods, and some others.
        let used: Vec<String> = jobs.iter().map(|j| w.hosts(j)[0].0.clone()).collect();
        let failing: Vec<String> = names.iter().filter(|n| used.contains(n)).take(9).cloned().collect();
        let events = |w: &mut Harness| -> Vec<engine::Event> {
            let failed =
                failing.iter().map(|n| Node { ready: false, ready_since: None, ..w.nodes[n].clone() });
            failed.collect::<Vec<_>>().into_iter().map(|n| w.see_node(n)).collect()
        };
        let (mut batch, mut actions) = (events(&mut w), Vec::new());
        let waiting = job("late", 2, request(Some("rack"), None, &[]));
        w.jobs.insert(waiting.key.clone(), waiting.clone());
        batch.push(engine::Event::Queueing(Event::WorkloadUpsert(Box::new(waiting))));
        w.engine.step(w.now, &mut batch, &mut actions);
        let noted = |a: &engine::Action| match a {
            engine::Action::Queueing(Action::UpdateWorkload(u)) => {
                let mut status = w.jobs[&u.key].status.clone();
                u.apply(&mut status);
                (usize::from(!status.unhealthy_nodes.is_empty()), usize::from(u.key.name == "late"))
            }
            _ => (0, 0),
        };
        let (failed, late) = actions.iter().map(noted).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        match most {
            // Four, and no cycle until all of them are looked at.
            Some(1) => {
                assert_eq!((failed > 0 && failed <= NODES_AT_ONCE, late), (true, 0), "{failed}");
                assert!(w.engine.next_wake().is_some_and(|t| t <= w.now));
            }
            _ => assert_eq!((failed, late), (failing.len(), 1)),
        }
        // What was asked for is done late: the state of the object is the one that counts.
        for action in actions {
            if let engine::Action::Queueing(Action::UpdateWorkload(u)) = action {
                w.change_job(&u.key.name.clone(), |job| u.apply(&mut job.status));
            }
        }
        w.wait(2);
        w.wait(60);
        let of = |j: &String| (w.places(j), w.job(j).status.unhealthy_nodes.clone());
        let mut out: Vec<_> = jobs.iter().map(of).collect();
        out.push(of(&"late".to_owned()));
        assert!(
            out.iter().all(|(places, bad)| bad.is_empty() && !failing.iter().any(|n| places.contains(n)))
        );
        out.iter().map(|(places, _)| !places.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(play(Some(1)), play(None));
}

/// Nodes that a step looks at where it brings one workload up to date.
const NODES_AT_ONCE: usize = 4;

/// A pod whose own template names its node is nobody's stray; one that was sent to a node it has no place on is.
#[test]
fn pods_that_choose_their_node_are_left_alone() {
    for (topology, aware, fails) in [("", false, false), ("t", false, true), ("t", true, true)] {
        let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 2), ("a-1-y", 2)]);
        let flavor = ResourceFlavor { name: "f".into(), topology: topology.into(), ..Default::default() };
        w.step(vec![engine::Event::Queueing(Event::ResourceFlavorUpsert(Box::new(flavor)))]);
        w.submit(job("j", 2, TopologyRequest::default()));
        assert!(w.job("j").status.is_true(cond::ADMITTED), "{topology}");
        w.show_pod("j", "p", "a-1-y", |p| p.topology_aware = aware);
        assert_eq!(!w.failed_pods.is_empty(), fails, "{topology} {aware}");
    }
}

/// A second node before the first was replaced ends the workload.
#[test]
fn two_failed_nodes_evict() {
    let mut w = Harness::new(Config::default(), &[], &TWO_RACKS);
    w.submit(job("j", 4, request(Some("rack"), None, &[])));
    w.remove_node("a-2-y");
    w.remove_node("a-2-x");
    assert_eq!(
        w.said("EvictedDueToNodeFailures"),
        ["Workload eviction triggered due to multiple TAS assigned node failures, including: a-2-y, a-2-x"]
    );
    assert_eq!(w.places("j"), "a-1-x=2 a-1-y=2");
    let counts = &w.job("j").status.evictions;
    assert_eq!(
        counts.iter().map(|e| (e.reason.as_str(), e.count)).collect::<Vec<_>>(),
        [("NodeFailures", 1)]
    );
}

/// Without failing fast it is tried again after 1, 2, 4 … 30 s, each time with an event.
#[test]
fn without_failing_fast_it_is_tried_again() {
    let mut w = Harness::new(gates(|g| g.replace_fail_fast = false), &[], &TWO_RACKS);
    w.submit(job("j", 4, request(Some("rack"), None, &[])));
    w.remove_node("a-2-y");
    let mut at = Vec::new();
    for second in 1..=100 {
        let before = w.said("SecondPassFailed").len();
        w.wait(1);
        if w.said("SecondPassFailed").len() > before {
            at.push(second);
        }
    }
    assert_eq!(at, [1, 3, 7, 15, 31, 61, 91]);
    assert_eq!(
        w.said("SecondPassFailed")[0],
        "couldn't assign flavors to pod set main: topology \"t\" doesn't allow to fit any of 2 pod(s). Total \
         nodes: 4; excluded: resource \"cpu\": 1, topologyDomain: 3"
    );
    assert_eq!(w.job("j").status.unhealthy_nodes, ["a-2-y"]);
    w.add_node("a-2-w", 2);
    w.wait(30);
    assert_eq!(w.places("j"), "a-2-w=2 a-2-x=2");
    assert!(!w.job("j").status.is_true(cond::EVICTED));
}

/// Request, nodes, the node that fails, and what stands for it: the placement, or the reason why not.
#[test]
fn replacements_respect_the_request() {
    let nodes =
        [("a-1-x", 2), ("a-1-y", 2), ("a-1-z", 2), ("a-2-x", 2), ("a-2-y", 1), ("b-1-x", 4), ("b-1-y", 1)];
    let table: [(TopologyRequest, i32, &str, &str, &str); 8] = [
        // A required rack without room.
        (request(Some("rack"), None, &[]), 6, "a-1-x=2 a-1-y=2 a-1-z=2", "a-1-z", "no"),
        // A preferred one: the node anywhere that fits best.
        (request(None, Some("rack"), &[]), 6, "a-1-x=2 a-1-y=2 a-1-z=2", "a-1-z", "a-1-x=2 a-1-y=2 a-2-x=2"),
        // A required block.
        (
            request(Some("block"), None, &[]),
            7,
            "a-1-x=2 a-1-y=2 a-1-z=2 a-2-y=1",
            "a-1-x",
            "a-1-y=2 a-1-z=2 a-2-x=2 a-2-y=1",
        ),
        (request(Some("block"), None, &[]), 9, "a-1-x=2 a-1-y=2 a-1-z=2 a-2-x=2 a-2-y=1", "a-1-x", "no"),
        // Whole slices may go to another rack of the block.
        (
            request(Some("block"), None, &[("rack", 2)]),
            6,
            "a-1-x=2 a-1-y=2 a-1-z=2",
            "a-1-z",
            "a-1-x=2 a-1-y=2 a-2-x=1 a-2-y=1",
        ),
        // A broken slice has to stay in its rack, even where a node of another would take the pods.
        (request(Some("block"), None, &[("rack", 4)]), 4, "b-1-x=3 b-1-y=1", "b-1-y", "b-1-x=4"),
        (request(Some("block"), None, &[("rack", 4)]), 4, "b-1-x=3 b-1-y=1", "b-1-x", "no"),
        (request(None, None, &[("rack", 4)]), 4, "b-1-x=3 b-1-y=1", "b-1-y", "b-1-x=4"),
    ];
    for (topology, count, before, lost, want) in table {
        let mut w = Harness::new(gates(|g| g.replace_fail_fast = false), &[], &nodes);
        w.submit(job("j", count, topology.clone()));
        assert_eq!(w.places("j"), before, "{topology:?}");
        w.remove_node(lost);
        w.wait(1);
        if want == "no" {
            assert_eq!(
                (w.places("j").as_str(), w.said("SecondPassFailed").len()),
                (before, 1),
                "{topology:?}"
            );
        } else {
            assert_eq!(w.places("j"), want, "{topology:?}: {:?}", w.said("SecondPassFailed"));
        }
    }
}

/// A placement that names another node that is gone can't be repaired.
#[test]
fn stale_placements_are_not_repaired() {
    let mut w = Harness::new(gates(|g| g.replace_fail_fast = false), &[], &TWO_RACKS);
    w.submit(job("j", 4, request(Some("rack"), None, &[])));
    w.run_pods("j");
    w.change_node("a-2-x", |n| n.unschedulable = true);
    w.remove_node("a-2-y");
    w.wait(1);
    assert_eq!(
        w.said("SecondPassFailed"),
        ["couldn't assign flavors to pod set main: Cannot replace the node, because the existing \
          topologyAssignment is invalid, as it contains the stale domain a-2-x"]
    );
}

/// A workload that can't outlive its only pod keeps its place.
#[test]
fn single_pods_keep_their_place() {
    let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 1), ("a-1-y", 2)]);
    w.submit(Workload { single_pod: true, ..job("j", 1, request(Some("rack"), None, &[])) });
    assert_eq!(w.places("j"), "a-1-x=1");
    w.remove_node("a-1-x");
    w.wait(1);
    assert_eq!(w.places("j"), "a-1-x=1");
    assert!(w.job("j").status.unhealthy_nodes.is_empty() && !w.job("j").status.is_true(cond::EVICTED));
}

/// A pod that was sent to a node and never started is ended when the node fails, and when the placement has moved on.
#[test]
fn pods_sent_to_a_failed_node_are_ended() {
    let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 2), ("a-1-y", 2)]);
    w.submit(job("j", 2, request(Some("rack"), None, &[])));
    w.show_pod("j", "p", "a-1-x", |_| {});
    w.show_pod("j", "gated", "a-1-x", |p| p.spec.scheduling_gates.push("kueue.x-k8s.io/topology".into()));
    assert!(w.failed_pods.is_empty());
    w.change_node("a-1-x", |n| n.ready = false);
    assert_eq!(w.failed_pods.iter().collect::<Vec<_>>(), ["p"]);
    w.wait(1);
    assert_eq!(w.places("j"), "a-1-y=2");
    w.show_pod("j", "late", "a-1-x", |_| {});
    assert_eq!(w.failed_pods.iter().collect::<Vec<_>>(), ["late", "p"]);
    w.show_pod("j", "good", "a-1-y", |_| {});
    assert_eq!(w.failed_pods.len(), 2);
}

/// Ending a pod fails for a while: it is ended afterwards, and the tries grow rarer.
#[test]
fn a_pod_that_could_not_be_ended_is_ended_later() {
    let mut w = Harness::new(Config::default(), &[], &[("a-1-x", 2), ("a-1-y", 2)]);
    w.submit(job("j", 2, request(Some("rack"), None, &[])));
    w.show_pod("j", "p", "a-1-x", |_| {});
    w.broken = true;
    w.change_node("a-1-x", |n| n.ready = false);
    for _ in 0..10 {
        w.wait(64);
        assert!(w.failed_pods.is_empty());
    }
    w.broken = false;
    w.wait(64);
    assert_eq!(w.failed_pods.iter().collect::<Vec<_>>(), ["p"]);
}

fn provisioned(w: &mut Harness, state: CheckState, selector: Option<(&str, &str)>) {
    w.change_job("j", |j| {
        for c in &mut j.status.admission_checks {
            c.state = state;
            let mut update = PodSetUpdate { name: "main".into(), ..PodSetUpdate::default() };
            if let Some((k, v)) = selector {
                update.node_selector.insert(k.into(), v.into());
            }
            c.updates = vec![update];
        }
    });
}

/// With ProvisioningRequests the quota comes first, the placement once the checks are ready and the nodes there.
#[test]
fn placements_wait_for_provisioning() {
    let mut w = Harness::new(Config::default(), &["kueue.x-k8s.io/provisioning-request"], &[("a-1-x", 1)]);
    w.submit(job("j", 4, request(Some("rack"), None, &[])));
    let delayed = |w: &Harness| {
        let admission: Option<&Admission> = w.job("j").status.admission.as_deref();
        admission.and_then(|a| a.assignments[0].delayed)
    };
    assert_eq!((delayed(&w), w.places("j").as_str()), (Some(Delayed::Pending), ""));
    assert!(w.condition("j", cond::ADMITTED).starts_with("false UnsatisfiedAdmissionChecks"));
    w.wait(5);
    provisioned(&mut w, CheckState::Ready, None);
    assert_eq!(
        w.condition("j", cond::ADMITTED),
        "false PendingDelayedTopologyRequests: There are pending delayed topology requests"
    );
    w.wait(1);
    assert!(w.said("SecondPassFailed")[0].contains("allows to fit only 1 out of 4 pod(s)"), "{:?}", w.events);
    w.add_node("a-1-y", 2);
    w.add_node("a-1-z", 2);
    w.wait(2);
    assert_eq!((delayed(&w), w.places("j").as_str()), (Some(Delayed::Ready), "a-1-y=2 a-1-z=2"));
    assert!(w.job("j").status.is_true(cond::ADMITTED));
    assert_eq!(w.said("Admitted"), ["Admitted by ClusterQueue c, wait time since reservation was 0s"]);
    assert_eq!(w.said("QuotaReserved").len(), 1);
    // From here on it is like any other.
    w.add_node("a-1-w", 2);
    w.remove_node("a-1-y");
    w.wait(1);
    assert_eq!((delayed(&w), w.places("j").as_str()), (Some(Delayed::Ready), "a-1-w=2 a-1-z=2"));
}

/// What a check adds to the pods counts for their placement.
#[test]
fn updates_of_checks_count() {
    let mut w = Harness::new(Config::default(), &["kueue.x-k8s.io/provisioning-request"], &TWO_RACKS);
    w.change_node("a-1-z", |n| _ = n.labels.insert("new".into(), "yes".into()));
    w.submit(job("j", 2, request(Some("rack"), None, &[])));
    provisioned(&mut w, CheckState::Ready, Some(("new", "yes")));
    w.wait(1);
    assert_eq!(w.places("j"), "a-1-z=2");
    // With MultiKueue another cluster decides.
    let mut w = Harness::new(Config::default(), &["kueue.x-k8s.io/multikueue"], &TWO_RACKS);
    w.submit(job("j", 2, request(Some("rack"), None, &[])));
    provisioned(&mut w, CheckState::Ready, None);
    w.wait(10);
    assert_eq!(w.places("j"), "");
}
