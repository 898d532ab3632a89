//! Attempts with a clock that ticks when it is read.

use super::super::framework::{
    AssumedPod, Cluster, CycleState, ExtensionPoint, FeatureGates, Handle, Incoming, PermitResult, Plugin,
    PluginRef, PluginSet, PodId, PreBindResult, PreFilterResult, Profile, Registration, Registry, Status,
    UserPlugins, UserSet, WaitingPods,
};
use super::super::tests::{binds, busy_history, node, pod, related_history, upsert};
use super::super::{Action, Config, Event as Answer, PreBindWork};
use super::*;
use crate::testing::Event;
use plimsoll_state::time::{Duration, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Passes a microsecond with each reading.
#[derive(Debug, Default)]
struct Ticks(AtomicU64);

impl Stopwatch for Ticks {
    fn nanos(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

/// Rejects a pod at the point for which the pod is named.
#[derive(Debug)]
struct Named;

fn is(cluster: &Cluster, pod: PodId, name: &str) -> bool {
    cluster.pod(pod).is_some_and(|p| p.name() == name)
}

impl Plugin for Named {
    fn is_local(&self, cluster: &Cluster, pod: &Incoming) -> bool {
        !is(cluster, pod.id, "pre-filter")
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        is(cluster, pod, "pre-enqueue").then(|| Status::unresolvable("no"))
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _: &mut CycleState) -> PreFilterResult {
        if is(cluster, pod.id, "pre-filter") {
            return PreFilterResult::Reject(Status::unresolvable("no"));
        }
        PreFilterResult::Skip
    }

    fn reserve(&self, pod: &AssumedPod<'_>, _: &mut PreBindWork) -> Status {
        if is(pod.cluster(), pod.pod(), "reserve") { Status::error("no") } else { Status::success() }
    }

    fn permit(&self, pod: &AssumedPod<'_>, _: &mut WaitingPods) -> PermitResult {
        if is(pod.cluster(), pod.pod(), "wait") {
            return PermitResult::Wait(Duration::from_seconds(10));
        }
        if is(pod.cluster(), pod.pod(), "permit") {
            return PermitResult::Reject(Status::unschedulable("no"));
        }
        PermitResult::Allow
    }

    fn pre_bind(&self, pod: &AssumedPod<'_>, _: &PreBindWork) -> PreBindResult {
        if is(pod.cluster(), pod.pod(), "pre-bind") {
            return PreBindResult::Reject(Status::unschedulable("no"));
        }
        PreBindResult::Success
    }
}

/// A scheduler with a few plugins.
fn scheduler() -> Scheduler {
    use ExtensionPoint::{Permit, PostBind, PreBind, PreEnqueue, PreFilter, Reserve};
    let mut registry = Registry::in_tree();
    let points = [PreEnqueue, PreFilter, Reserve, Permit, PreBind, PostBind];
    let make = |_: &crate::args::Args, _: &mut Handle<'_>| -> Box<dyn Plugin> { Box::new(Named) };
    registry.register(Registration::new("Named", &points, make)).expect("a new name");
    let names =
        ["PrioritySort", "NodeName", "NodeResourcesFit", "DefaultPreemption", "Named", "DefaultBinder"];
    let enabled = names.map(|name| PluginRef { name: name.to_owned(), weight: 0 }).to_vec();
    let multi_point = UserSet { enabled, disabled: vec!["*".to_owned()] };
    let user = UserPlugins { multi_point, ..UserPlugins::default() };
    let plugins = PluginSet::new(&registry, &user, &FeatureGates::default()).expect("valid");
    let stopwatch: Option<Arc<dyn Stopwatch>> = Some(Arc::new(Ticks::default()));
    let profiles = vec![Profile { plugins, ..Profile::default() }];
    Scheduler::new(Config { profiles, stopwatch, ..Config::default() })
}

fn step(scheduler: &mut Scheduler, at: i64, events: Vec<Event>) -> Vec<Action> {
    let now = Time::from_seconds(at);
    events.into_iter().for_each(|event| scheduler.apply(now, event));
    let mut actions = Vec::new();
    scheduler.decide(now, &mut |a| actions.push(a));
    scheduler.check();
    actions
}

fn measured(scheduler: &Scheduler) -> Measurements {
    scheduler.measurements().expect("there is a stopwatch")
}

/// `point plugin status count`, without PreEnqueue.
fn executions(scheduler: &Scheduler) -> Vec<String> {
    let all = measured(scheduler).executions.into_iter().filter(|e| e.extension_point != "PreEnqueue");
    let row =
        |e: PluginExecution| format!("{} {} {} {}", e.extension_point, e.plugin, e.status, e.durations.count);
    all.map(row).collect::<BTreeSet<_>>().into_iter().collect()
}

/// `point status count`.
fn points(scheduler: &Scheduler) -> Vec<String> {
    let all = measured(scheduler).extension_points.into_iter();
    let row = |p: ExtensionPointRun| {
        assert_eq!(p.profile, "default-scheduler");
        format!("{} {} {}", p.extension_point, p.status, p.durations.count)
    };
    all.map(row).collect::<BTreeSet<_>>().into_iter().collect()
}

/// `point plugin count`.
fn evaluations(scheduler: &Scheduler) -> Vec<String> {
    let all = measured(scheduler).evaluations.into_iter();
    let row = |e: PluginEvaluations| {
        assert_eq!(e.profile, "default-scheduler");
        format!("{} {} {}", e.extension_point, e.plugin, e.count)
    };
    all.map(row).collect::<BTreeSet<_>>().into_iter().collect()
}

/// What the first attempt of a pod of this name records, which needs this much CPU.
fn attempt(name: &str, cpu: i64) -> Scheduler {
    let mut s = scheduler();
    let mut low = pod("low", 800);
    low.spec.node_name = "a".into();
    let mut p = pod(name, cpu);
    p.spec.priority = 10;
    let out = step(&mut s, 0, vec![node("a", 1000), node("b", 500), upsert(low), upsert(p)]);
    if !binds(&out).is_empty() {
        step(&mut s, 1, vec![Event::Answer(Answer::Bound(format!("uid-{name}")))]);
    }
    s
}

/// Rows of the cases, in one list.
fn all<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat().into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn plugins_are_measured_by_point_and_status() {
    let found: &[&str] = &[
        "Filter NodeResourcesFit Success 1",
        "PreFilter Named Skip 1",
        "PreFilter NodeResourcesFit Success 1",
        "PreScore NodeResourcesFit Success 1",
        "Score NodeResourcesFit Success 1",
    ];
    let reserved: &[&str] = &["Reserve Named Success 1"];
    let permitted: &[&str] = &["Permit Named Success 1"];
    let undone: &[&str] = &["Unreserve Named Success 1"];
    let cases: [(&str, i64, Vec<&str>); 8] = [
        (
            "p",
            100,
            all(&[found, reserved, permitted, &["PostBind Named Success 1", "PreBind Named Success 1"]]),
        ),
        ("pre-enqueue", 100, Vec::new()),
        (
            "pre-filter",
            100,
            vec![
                "PostFilter DefaultPreemption Unschedulable 1",
                "PreFilter Named UnschedulableAndUnresolvable 1",
                "PreFilter NodeResourcesFit Success 1",
            ],
        ),
        (
            "preempts",
            900,
            vec![
                "Filter NodeResourcesFit Unschedulable 1",
                "PostFilter DefaultPreemption Success 1",
                "PreFilter Named Skip 1",
                "PreFilter NodeResourcesFit Success 1",
            ],
        ),
        ("reserve", 100, all(&[found, undone, &["Reserve Named Error 1"]])),
        ("permit", 100, all(&[found, reserved, undone, &["Permit Named Unschedulable 1"]])),
        ("wait", 100, all(&[found, reserved, &["Permit Named Wait 1"]])),
        ("pre-bind", 100, all(&[found, reserved, permitted, undone, &["PreBind Named Unschedulable 1"]])),
    ];
    for (name, cpu, want) in cases {
        assert_eq!(executions(&attempt(name, cpu)), want, "{name}");
    }
}

#[test]
fn extension_points_are_measured_by_status() {
    let found: &[&str] = &[
        "Filter Success 1",
        "PreEnqueue Success 1",
        "PreFilter Success 1",
        "PreScore Success 1",
        "Score Success 1",
    ];
    let reserved: &[&str] = &["Reserve Success 1"];
    let bound: &[&str] = &["Permit Success 1", "PostBind Success 1", "PreBind Success 1"];
    let undone: &[&str] = &["Unreserve Success 1"];
    let cases: [(&str, i64, Vec<&str>); 7] = [
        ("p", 100, all(&[found, reserved, bound])),
        ("pre-enqueue", 100, vec!["PreEnqueue UnschedulableAndUnresolvable 1"]),
        (
            "pre-filter",
            100,
            vec![
                "PostFilter Unschedulable 1",
                "PreEnqueue Success 1",
                "PreFilter UnschedulableAndUnresolvable 1",
            ],
        ),
        (
            "preempts",
            900,
            vec!["Filter Success 1", "PostFilter Success 1", "PreEnqueue Success 1", "PreFilter Success 1"],
        ),
        ("reserve", 100, all(&[found, undone, &["Reserve Error 1"]])),
        ("permit", 100, all(&[found, reserved, undone, &["Permit Unschedulable 1"]])),
        ("wait", 100, all(&[found, reserved, &["Permit Wait 1"]])),
    ];
    for (name, cpu, want) in cases {
        assert_eq!(points(&attempt(name, cpu)), want, "{name}");
    }
}

#[test]
fn evaluations_are_counted_per_node() {
    let found = [
        "Filter NodeResourcesFit 2",
        "PreFilter NodeResourcesFit 1",
        "PreScore NodeResourcesFit 1",
        "Score NodeResourcesFit 2",
    ];
    assert_eq!(evaluations(&attempt("p", 100)), found);
    // PreFilter of the plugin that rejects is no skip.
    let rejected = ["PreFilter Named 1", "PreFilter NodeResourcesFit 1"];
    assert_eq!(evaluations(&attempt("pre-filter", 100)), rejected);
    // Dry runs of preemption count, as upstream: without the victim, and with it again.
    let preempts = ["Filter NodeResourcesFit 4", "PreFilter NodeResourcesFit 1"];
    assert_eq!(evaluations(&attempt("preempts", 900)), preempts);
}

#[test]
fn durations_are_those_of_the_clock() {
    let seen = measured(&attempt("p", 100));
    for one in &seen.executions {
        // The clock passes one microsecond from the reading before to the one after.
        let want = (1e-6 * one.durations.count as f64, one.durations.count);
        assert_eq!((one.durations.sum, one.durations.buckets[0].1), want, "{one:?}");
    }
    let reserve = seen.extension_points.iter().find(|p| p.extension_point == "Reserve").expect("measured");
    // Its own readings, and two for its plugin.
    assert_eq!(reserve.durations.sum, 3e-6);
}

#[test]
fn one_attempt_of_ten_is_measured_and_what_ranks_keep_is_not_run() {
    let mut s = scheduler();
    step(&mut s, 0, (0..100).map(|n| node(&format!("n{n}"), 1000)).collect());
    for i in 0..25 {
        if i == 15 {
            // A reload drops the ranks and nothing that was recorded.
            let profiles = s.config.profiles.clone();
            step(&mut s, i, vec![Event::Answer(Answer::Reload(profiles))]);
        }
        step(&mut s, i, vec![upsert(pod(&format!("p{i}"), 100))]);
    }
    // The first attempt looks at 100 nodes. The 11th and the 21st repair ranks for the node that changed before: no PreFilter,
    // no PreScore. Of 100 calls, two are timed.
    let want = [
        "Filter NodeResourcesFit Success 4",
        "Permit Named Success 3",
        "PreBind Named Success 3",
        "PreFilter Named Skip 1",
        "PreFilter NodeResourcesFit Success 1",
        "PreScore NodeResourcesFit Success 1",
        "Reserve Named Success 3",
        "Score NodeResourcesFit Success 4",
    ];
    assert_eq!(executions(&s), want);
    let want = [
        "Filter Success 3",
        "Permit Success 3",
        "PreBind Success 3",
        "PreEnqueue Success 3",
        "PreFilter Success 1",
        "PreScore Success 1",
        "Reserve Success 3",
        "Score Success 3",
    ];
    assert_eq!(points(&s), want);
    let want = [
        "Filter NodeResourcesFit 102",
        "PreFilter NodeResourcesFit 1",
        "PreScore NodeResourcesFit 1",
        "Score NodeResourcesFit 102",
    ];
    assert_eq!(evaluations(&s), want);
}

#[test]
fn nothing_is_measured_without_a_stopwatch() {
    let mut s = Scheduler::new(Config::default());
    step(&mut s, 0, vec![node("a", 1000), upsert(pod("p", 100))]);
    assert_eq!(s.measurements(), None);
}

/// Actions of a history, with reloads.
fn actions(mut scheduler: Scheduler, history: Vec<Vec<Event>>) -> Vec<Action> {
    let mut out = Vec::new();
    for (at, events) in history.into_iter().enumerate() {
        let now = Time::from_seconds(at as i64 / 3);
        events.into_iter().for_each(|event| scheduler.apply(now, event));
        if at % 67 == 5 {
            scheduler.handle(now, Answer::Reload(vec![Profile::default()]));
        }
        scheduler.decide(now, &mut |a| out.push(a));
        scheduler.check();
    }
    out
}

#[test]
fn decisions_are_the_same_with_a_stopwatch() {
    for seed in 0..4 {
        for history in [busy_history(seed, 300), related_history(seed, 300)] {
            for ranks in [true, false] {
                let decide = |stopwatch: Option<Arc<dyn Stopwatch>>| {
                    let scheduler = Scheduler::new(Config { stopwatch, ..Config::default() });
                    let scheduler = if ranks { scheduler } else { scheduler.without_ranks() };
                    format!("{:?}", actions(scheduler, history.clone()))
                };
                let (without, with) = (decide(None), decide(Some(Arc::new(Ticks::default()))));
                assert!(without == with, "seed {seed}, ranks {ranks}");
            }
        }
    }
}
