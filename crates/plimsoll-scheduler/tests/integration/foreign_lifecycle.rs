//! A plugin from outside the crate at the extension points around Filter and Score.

use std::sync::{Arc, Mutex};

use plimsoll_scheduler::framework::{
    AssumedPod, Cluster, Handle, Incoming, PermitResult, Plugin, PodId, PostFilterHandle, PostFilterResult,
    PreBindResult, Status, WaitingPods,
};
use plimsoll_scheduler::{
    Action, Config, Event, ExtensionPoint, FeatureGates, PluginRef, PluginSet, PreBindWork, Profile,
    Registration, Registry, Scheduler, UserPlugins, args::Args,
};
use plimsoll_state::model::{Container, Node, Pod};
use plimsoll_state::{Duration, ObjectEvent, Time};

/// Stops a pod at the extension point that its label `stop` names, and logs what is called.
#[derive(Debug)]
struct Audit(Arc<Mutex<Vec<&'static str>>>);

impl Audit {
    fn stops(&self, cluster: &Cluster, pod: PodId, point: &'static str) -> bool {
        self.0.lock().expect("not poisoned").push(point);
        cluster.pod(pod).and_then(|p| p.label("stop")) == Some(point)
    }
}

impl Plugin for Audit {
    fn is_local(&self, _: &Cluster, _: &Incoming) -> bool {
        true
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        self.stops(cluster, pod, "PreEnqueue").then(|| Status::unresolvable("held"))
    }

    /// Deletes spare pods, whatever their priority.
    fn post_filter(&self, handle: &mut dyn PostFilterHandle) -> PostFilterResult {
        let cluster = handle.cluster();
        let mut nodes = handle.nodes().iter().filter_map(|n| cluster.node(*n));
        let found = nodes.find_map(|node| {
            let spare: Vec<PodId> =
                node.pods().filter(|p| p.label("spare").is_some()).map(|p| p.id()).collect();
            (!spare.is_empty()).then(|| handle.candidate(node.id(), spare, 0))
        });
        match found {
            Some(candidate) => PostFilterResult::Candidates(vec![candidate]),
            None => PostFilterResult::Unschedulable { text: "no spare pods".into(), clear_nomination: false },
        }
    }

    fn reserve(&self, pod: &AssumedPod<'_>, _: &mut PreBindWork) -> Status {
        assert_eq!(pod.cluster().pod(pod.pod()).and_then(|p| p.node()).map(|n| n.id()), Some(pod.node()));
        match self.stops(pod.cluster(), pod.pod(), "Reserve") {
            true => Status::unschedulable("not here"),
            false => Status::success(),
        }
    }

    fn unreserve(&self, _: &AssumedPod<'_>, _: &mut WaitingPods) {
        self.0.lock().expect("not poisoned").push("Unreserve");
    }

    fn permit(&self, pod: &AssumedPod<'_>, _: &mut WaitingPods) -> PermitResult {
        match self.stops(pod.cluster(), pod.pod(), "Permit") {
            true => PermitResult::Wait(Duration::from_seconds(3)),
            false => PermitResult::Allow,
        }
    }

    fn pre_bind(&self, pod: &AssumedPod<'_>, _: &PreBindWork) -> PreBindResult {
        match self.stops(pod.cluster(), pod.pod(), "PreBind") {
            true => PreBindResult::Wait { timeout: Duration::from_seconds(3), operation: "calling home" },
            false => PreBindResult::Success,
        }
    }

    fn post_bind(&self, pod: &AssumedPod<'_>) {
        self.stops(pod.cluster(), pod.pod(), "PostBind");
    }
}

/// The scheduler with the plugin, and the extension points that were called.
struct Harness {
    scheduler: Scheduler,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Harness {
    fn new() -> Self {
        use ExtensionPoint as P;
        let calls: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let log = Arc::clone(&calls);
        let make =
            move |_: &Args, _: &mut Handle<'_>| -> Box<dyn Plugin> { Box::new(Audit(Arc::clone(&log))) };
        let points = [P::PreEnqueue, P::PostFilter, P::Reserve, P::Permit, P::PreBind, P::PostBind];
        let mut registry = Registry::in_tree();
        registry.register(Registration::new("Audit", &points, make)).expect("a new name");
        let mut user = UserPlugins::default();
        user.multi_point.enabled.push(PluginRef { name: "Audit".to_owned(), weight: 0 });
        let plugins =
            PluginSet::new(&registry, &user, &FeatureGates::default()).expect("the registry knows it");
        let profiles = vec![Profile { plugins, ..Profile::default() }];
        let mut harness = Self { scheduler: Scheduler::new(Config { profiles, ..Config::default() }), calls };
        harness.step(0, &node(1000));
        harness
    }

    fn step(&mut self, at: i64, event: &ObjectEvent) -> Vec<Action> {
        self.scheduler.handle_object(Time::from_seconds(at), event);
        self.decide(at)
    }

    fn decide(&mut self, at: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.scheduler.decide(Time::from_seconds(at), &mut |a| actions.push(a));
        self.scheduler.check();
        actions
    }

    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock().expect("not poisoned"))
    }
}

fn node(cpu: i64) -> ObjectEvent {
    let allocatable = [("cpu", cpu), ("memory", 1 << 32), ("pods", 10)];
    ObjectEvent::NodeUpsert(Box::new(Node {
        uid: "uid-a".to_owned(),
        name: "a".to_owned(),
        allocatable: allocatable.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        ..Node::default()
    }))
}

fn pod(name: &str, cpu: i64, label: (&str, &str)) -> ObjectEvent {
    let mut pod =
        Pod { uid: name.to_owned(), namespace: "ns".to_owned(), name: name.to_owned(), ..Pod::default() };
    pod.labels.insert(label.0.to_owned(), label.1.to_owned());
    "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
    let mut container = Container { name: "main".to_owned(), ..Container::default() };
    container.requests.insert("cpu".to_owned(), cpu);
    pod.spec.containers = vec![container];
    ObjectEvent::PodUpsert(Box::new(pod))
}

fn is_bound(actions: &[Action]) -> bool {
    actions.iter().any(|a| matches!(a, Action::Bind { .. }))
}

/// Whether the pod waits, on a node that its status names.
fn is_expected(actions: &[Action]) -> bool {
    matches!(actions, [Action::Nominate { node, .. }] if !node.is_empty())
}

fn message(actions: &[Action]) -> String {
    let text = |a: &Action| match a {
        Action::Unschedulable { reason, message, .. } => Some(format!("{reason}: {message}")),
        _ => None,
    };
    actions.iter().find_map(text).unwrap_or_default()
}

#[test]
fn every_point_is_called_in_order() {
    let mut w = Harness::new();
    assert!(is_bound(&w.step(1, &pod("p", 100, ("stop", "")))));
    w.scheduler.handle(Time::from_seconds(2), Event::Bound("p".to_owned()));
    assert_eq!(w.calls(), ["PreEnqueue", "Reserve", "Permit", "PreBind", "PostBind"]);
}

#[test]
fn a_pod_is_stopped_where_the_plugin_says() {
    let mut w = Harness::new();
    assert!(w.step(1, &pod("p", 100, ("stop", "PreEnqueue"))).is_empty());
    assert_eq!(w.scheduler.queue_counts().gated, 1);
    assert_eq!(w.calls(), ["PreEnqueue"]);

    let mut w = Harness::new();
    let told = message(&w.step(1, &pod("p", 100, ("stop", "Reserve"))));
    assert_eq!(told, "Unschedulable: 0/1 nodes are available: 1 not here.");
    assert_eq!(w.calls(), ["PreEnqueue", "Reserve", "Unreserve"]);

    let mut w = Harness::new();
    assert!(is_expected(&w.step(1, &pod("p", 100, ("stop", "Permit")))));
    assert_eq!(w.scheduler.next_wake(), Some(Time::from_seconds(4)));
    let told = message(&w.decide(4));
    assert_eq!(
        told,
        "Unschedulable: 0/1 nodes are available: 1 rejected due to timeout after waiting 3s at plugin Audit."
    );
    assert_eq!(w.calls(), ["PreEnqueue", "Reserve", "Permit", "Unreserve"]);

    let mut w = Harness::new();
    assert!(is_expected(&w.step(1, &pod("p", 100, ("stop", "PreBind")))));
    assert_eq!(w.calls(), ["PreEnqueue", "Reserve", "Permit", "PreBind"]);
    let told = message(&w.decide(4));
    assert_eq!(
        told,
        "SchedulerError: running PreBind plugin \"Audit\": calling home: context deadline exceeded"
    );
    assert_eq!(w.calls()[0], "Unreserve");
}

#[test]
fn any_event_requeues_pods_of_a_plugin_without_hints() {
    let mut w = Harness::new();
    message(&w.step(1, &pod("p", 100, ("stop", "Reserve"))));
    w.calls();
    assert!(w.decide(10).is_empty() && w.calls().is_empty(), "nothing has happened");
    w.step(20, &node(900));
    assert_eq!(w.calls(), ["PreEnqueue", "Reserve", "Unreserve"]);
}

#[test]
fn post_filter_of_a_plugin_chooses_victims() {
    let mut w = Harness::new();
    let bound = |event| {
        let ObjectEvent::PodUpsert(mut pod) = event else { unreachable!("a pod") };
        "a".clone_into(&mut pod.spec.node_name);
        ObjectEvent::PodUpsert(pod)
    };
    w.step(1, &bound(pod("kept", 400, ("stop", ""))));
    w.step(1, &bound(pod("extra", 400, ("spare", "yes"))));
    let actions = w.step(2, &pod("p", 500, ("stop", "")));
    let victims: Vec<&str> = actions
        .iter()
        .filter_map(|a| match a {
            Action::Preempt { victim, preemptor, .. } => {
                assert_eq!(preemptor.name, "p");
                Some(victim.name.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(victims, ["extra"], "{actions:?}");
    assert!(is_bound(&w.step(3, &ObjectEvent::PodDelete("extra".to_owned()))));
    let told = message(&w.step(4, &pod("q", 500, ("stop", ""))));
    assert!(told.ends_with("preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod., no spare pods"), "{told}");
}
