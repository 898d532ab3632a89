//! Plugins that are replaced while the scheduler runs.

use std::sync::{Arc, Mutex};

use plimsoll_scheduler::framework::{
    AssumedPod, Cluster, CycleState, FilterState, Handle, Incoming, NodeId, PermitResult, Plugin, PodId,
    PreBindResult, PreFilterResult, Status, WaitingPods,
};
use plimsoll_scheduler::{
    Action, Config, Event, ExtensionPoint, FeatureGates, PluginRef, PluginSet, PreBindWork, Profile,
    Registration, Registry, Scheduler, UserPlugins, args::Args,
};
use plimsoll_state::model::{Node, Pod};
use plimsoll_state::{Duration, ObjectEvent, Time};

type Calls = Arc<Mutex<Vec<String>>>;

/// A version of a plugin. Its pods stop at the point that its arguments name.
#[derive(Debug)]
struct Gate {
    version: &'static str,
    stops: String,
    calls: Calls,
}

impl Gate {
    fn stops(&self, point: &str) -> bool {
        self.calls.lock().expect("not poisoned").push(format!("{point} {}", self.version));
        self.stops == point
    }
}

#[derive(Debug)]
struct Closed;

impl FilterState for Closed {
    fn filter(&self, _: &Cluster, _: NodeId) -> Status {
        Status::unresolvable("closed")
    }
}

impl Plugin for Gate {
    fn is_local(&self, _: &Cluster, _: &Incoming) -> bool {
        true
    }

    fn reads_objects(&self) -> bool {
        self.stops == "objects"
    }

    fn pre_enqueue(&self, _: &Cluster, _: PodId) -> Option<Status> {
        self.stops("PreEnqueue").then(|| Status::unresolvable("held"))
    }

    fn pre_filter(&self, _: &Cluster, _: &Incoming, _: &mut CycleState) -> PreFilterResult {
        if self.stops == "Filter" { PreFilterResult::go(Closed) } else { PreFilterResult::Skip }
    }

    fn unreserve(&self, _: &AssumedPod<'_>, _: &mut WaitingPods) {
        self.stops("Unreserve");
    }

    fn permit(&self, _: &AssumedPod<'_>, _: &mut WaitingPods) -> PermitResult {
        match self.stops("Permit") {
            true => PermitResult::Wait(Duration::from_seconds(60)),
            false => PermitResult::Allow,
        }
    }

    fn pre_bind(&self, _: &AssumedPod<'_>, _: &PreBindWork) -> PreBindResult {
        self.stops("PreBind");
        PreBindResult::Success
    }

    fn post_bind(&self, _: &AssumedPod<'_>) {
        self.stops("PostBind");
    }
}

/// Profiles with a version of the plugin that stops pods somewhere; `None`: without the plugin.
fn profiles(calls: &Calls, plugin: Option<(&'static str, &str)>) -> Vec<Profile> {
    use ExtensionPoint as P;
    let (mut registry, mut user, mut args) = (Registry::in_tree(), UserPlugins::default(), Args::default());
    if let Some((version, stops)) = plugin {
        let calls = Arc::clone(calls);
        let make = move |args: &Args, _: &mut Handle<'_>| -> Box<dyn Plugin> {
            let stops = args.of("Gate").unwrap_or_default().to_owned();
            Box::new(Gate { version, stops, calls: Arc::clone(&calls) })
        };
        let points = [P::PreEnqueue, P::PreFilter, P::Filter, P::Reserve, P::Permit, P::PreBind, P::PostBind];
        registry.register(Registration::new("Gate", &points, make)).expect("a new name");
        user.multi_point.enabled.push(PluginRef { name: "Gate".to_owned(), weight: 0 });
        args.set_json("Gate", stops.to_owned());
    }
    let plugins = PluginSet::new(&registry, &user, &FeatureGates::default()).expect("the registry knows it");
    vec![Profile { plugins, args, ..Profile::default() }]
}

struct Harness {
    scheduler: Scheduler,
    calls: Calls,
}

impl Harness {
    fn new(plugin: Option<(&'static str, &str)>) -> Self {
        let calls = Calls::default();
        let profiles = profiles(&calls, plugin);
        let scheduler = Scheduler::new(Config { profiles, ..Config::default() });
        let mut harness = Self { scheduler, calls };
        harness.scheduler.handle_object(Time::from_seconds(0), &node());
        harness
    }

    fn add(&mut self, at: i64, name: &str) -> Vec<Action> {
        self.scheduler.handle_object(Time::from_seconds(at), &pod(name));
        self.decide(at)
    }

    fn reload(&mut self, at: i64, plugin: Option<(&'static str, &str)>) -> Vec<Action> {
        let profiles = profiles(&self.calls, plugin);
        assert_eq!(self.scheduler.reload_problem(&profiles), None);
        self.scheduler.handle(Time::from_seconds(at), Event::Reload(profiles));
        self.decide(at)
    }

    fn decide(&mut self, at: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.scheduler.decide(Time::from_seconds(at), &mut |a| actions.push(a));
        self.scheduler.check_ranks();
        actions
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().expect("not poisoned"))
    }
}

fn node() -> ObjectEvent {
    let allocatable = [("cpu", 4000), ("memory", 1 << 32), ("pods", 10)];
    ObjectEvent::NodeUpsert(Box::new(Node {
        uid: "uid-a".to_owned(),
        name: "a".to_owned(),
        allocatable: allocatable.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        ..Node::default()
    }))
}

fn pod(name: &str) -> ObjectEvent {
    let mut pod =
        Pod { uid: name.to_owned(), namespace: "ns".to_owned(), name: name.to_owned(), ..Pod::default() };
    "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
    ObjectEvent::PodUpsert(Box::new(pod))
}

fn bound(actions: &[Action]) -> Vec<&str> {
    let name = |a: &'_ Action| match a {
        Action::Bind { pod, .. } => Some(pod.name.clone()),
        _ => None,
    };
    let mut names: Vec<String> = actions.iter().filter_map(name).collect();
    names.sort();
    names.into_iter().map(|n| &*n.leak()).collect()
}

#[test]
fn pods_that_wait_are_tried_with_the_new_version() {
    let mut w = Harness::new(Some(("v1", "Filter")));
    assert!(bound(&w.add(1, "p")).is_empty() && bound(&w.add(1, "q")).is_empty());
    assert_eq!(w.scheduler.queue_counts().unschedulable, 2);
    // After their backoff.
    assert_eq!(bound(&w.reload(10, Some(("v2", "")))), ["p", "q"]);
    assert_eq!(w.scheduler.reloads(), 1);
}

#[test]
fn pre_enqueue_runs_again() {
    let mut w = Harness::new(Some(("v1", "PreEnqueue")));
    w.add(1, "p");
    assert_eq!(w.scheduler.queue_counts().gated, 1);
    assert_eq!(bound(&w.reload(2, Some(("v2", "")))), ["p"]);
    w.scheduler.handle_object(Time::from_seconds(3), &pod("q"));
    w.reload(3, Some(("v3", "PreEnqueue")));
    assert_eq!(w.scheduler.queue_counts().gated, 1, "q was active, and v3 holds it back");
    assert_eq!(bound(&w.reload(4, None)), ["q"], "the plugin that held it is no more");
}

#[test]
fn a_pod_is_bound_by_the_version_that_reserved_its_node() {
    let mut w = Harness::new(Some(("v1", "")));
    w.add(1, "p");
    w.calls();
    for (at, version) in [(2, "v2"), (3, "v3")] {
        w.reload(at, Some((version, "")));
    }
    assert_eq!(bound(&w.add(4, "q")), ["q"]);
    w.calls();
    let at = Time::from_seconds(5);
    w.scheduler.handle(at, Event::Bound("p".to_owned()));
    w.scheduler.handle(at, Event::BindFailed { uid: "q".to_owned(), message: "no".to_owned() });
    assert_eq!(w.calls(), ["PostBind v1", "Unreserve v3", "PreEnqueue v3"]);
    // v1 has no pods any more, and is forgotten with the next reload.
    w.reload(6, Some(("v4", "")));
    w.calls();
    assert_eq!(bound(&w.decide(20)), ["q"]);
    w.scheduler.handle(at, Event::Bound("q".to_owned()));
    assert_eq!(w.calls(), ["Permit v4", "PreBind v4", "PostBind v4"]);
}

#[test]
fn pods_wait_on_permit_across_a_reload() {
    let mut w = Harness::new(Some(("v1", "Permit")));
    assert!(bound(&w.add(1, "p")).is_empty());
    w.calls();
    assert!(bound(&w.reload(2, Some(("v2", "")))).is_empty(), "v1 said wait, and nobody has allowed it");
    assert_eq!(w.scheduler.queue_counts().in_flight, 1);
    assert_eq!(bound(&w.reload(3, None)), ["p"], "the plugin is no more: nobody else would allow the pod");
    assert_eq!(w.calls(), ["PreBind v1"]);
    w.scheduler.handle(Time::from_seconds(4), Event::Bound("p".to_owned()));
    assert_eq!(w.calls(), ["PostBind v1"]);
}

#[test]
fn a_wait_on_permit_ends_after_a_reload() {
    let mut w = Harness::new(Some(("v1", "Permit")));
    w.add(1, "p");
    w.reload(2, Some(("v2", "")));
    w.calls();
    assert_eq!(bound(&w.decide(61)), ["p"], "its backoff is over, too");
    assert_eq!(w.calls(), ["Unreserve v1", "PreEnqueue v2", "Permit v2", "PreBind v2"]);
}

#[test]
fn what_a_restart_takes_is_refused_and_changes_nothing() {
    let mut w = Harness::new(None);
    let renamed =
        profiles(&w.calls, None).into_iter().map(|p| Profile { scheduler_name: "b".to_owned(), ..p });
    let cases = [
        (renamed.collect::<Vec<_>>(), "can't become b without a restart"),
        (profiles(&w.calls, Some(("v1", "objects"))), "plugin \"Gate\" reads whole objects"),
    ];
    for (profiles, want) in cases {
        let problem = w.scheduler.reload_problem(&profiles);
        assert!(problem.as_ref().is_some_and(|p| p.contains(want)), "{problem:?}");
        w.scheduler.handle(Time::from_seconds(1), Event::Reload(profiles));
    }
    assert_eq!(w.scheduler.reloads(), 0);
    assert_eq!(bound(&w.add(2, "p")), ["p"]);
}
