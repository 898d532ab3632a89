//! Two plugins at Reserve and Permit that say what a table tells them.

use super::super::cluster::Cluster;
use super::super::framework::{
    AssumedPod, ClusterEventWithHint, Code, ExtensionPoint, FeatureGates, Handle, Incoming, PermitResult,
    Plugin, PluginId, PluginRef, PluginSet, Profile, Registration, Registry, UserPlugins, WaitingPods,
};
use super::super::tests::{binds, message, node, pod, upsert, volume_world};
use super::super::{Action, Config, QueueCounts, Scheduler};
use super::*;
use crate::testing::Event;
use plimsoll_state::ObjectEvent;
use plimsoll_state::time::{Duration, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const FIRST: &str = "TestFirst";
const SECOND: &str = "TestSecond";

/// What a plugin does to another pod while it is asked about one.
#[derive(Clone, Debug)]
enum Other {
    Allow(&'static str),
    Reject(&'static str, &'static str),
}

type Key = (&'static str, String);

#[derive(Clone, Debug, Default)]
struct Table {
    reserve: BTreeMap<Key, Status>,
    permit: BTreeMap<Key, PermitResult>,
    others: BTreeMap<Key, Vec<Other>>,
    log: Arc<Mutex<Vec<String>>>,
    random: Option<Arc<Mutex<plimsoll_state::rng::Rng>>>,
}

#[derive(Debug)]
struct Guard {
    name: &'static str,
    id: PluginId,
    table: Table,
}

impl Guard {
    fn key(&self, pod: &AssumedPod<'_>, what: &str) -> Key {
        let name = pod.cluster.pods[pod.pod].name.to_string();
        self.table.log.lock().expect("alone").push(format!("{what} {} {name}", self.name));
        (self.name, name)
    }

    fn random(&self, waiting: &mut WaitingPods, pod: PodId) -> Option<PermitResult> {
        let mut rng = self.table.random.as_ref()?.lock().expect("alone");
        for other in waiting.pods() {
            match rng.below(6) {
                0 => waiting.allow(other, self.id),
                1 => {
                    waiting.reject(other, self.id, "no more".to_owned());
                }
                2 => waiting.activate(pod),
                _ => {}
            }
        }
        Some(match rng.below(6) {
            0 | 1 => PermitResult::Allow,
            2 => PermitResult::Reject(Status::unschedulable("not now")),
            3 => PermitResult::Reject(Status::error("broken")),
            _ => PermitResult::Wait(Duration::from_seconds(i64::from(rng.below(20)))),
        })
    }
}

impl Plugin for Guard {
    fn is_local(&self, _: &Cluster, _: &Incoming) -> bool {
        true
    }

    fn reserve(&self, pod: &AssumedPod<'_>, _: &mut PreBindWork) -> Status {
        assert_eq!(pod.cluster.pods[pod.pod].node, Some(pod.node), "reserved pods are counted");
        let key = self.key(pod, "reserve");
        self.table.reserve.get(&key).cloned().unwrap_or_else(Status::success)
    }

    fn unreserve(&self, pod: &AssumedPod<'_>, _: &mut WaitingPods) {
        self.key(pod, "unreserve");
    }

    fn permit(&self, pod: &AssumedPod<'_>, waiting: &mut WaitingPods) -> PermitResult {
        if let Some(result) = self.random(waiting, pod.pod) {
            return result;
        }
        let key = self.key(pod, "permit");
        for other in self.table.others.get(&key).into_iter().flatten() {
            let id = |name: &str| pod.cluster.pod_by_uid(&format!("uid-{name}")).expect("known");
            match other {
                Other::Allow(name) => waiting.allow(id(name), self.id),
                Other::Reject(name, text) => {
                    waiting.reject(id(name), self.id, (*text).to_owned());
                }
            }
        }
        self.table.permit.get(&key).cloned().unwrap_or(PermitResult::Allow)
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        &[]
    }
}

fn placement(table: &Table) -> Scheduler {
    let mut registry = Registry::in_tree();
    let mut user = UserPlugins::default();
    for name in [FIRST, SECOND] {
        let table = table.clone();
        let make = move |_: &crate::args::Args, handle: &mut Handle<'_>| -> Box<dyn Plugin> {
            Box::new(Guard { name, id: handle.plugin(), table: table.clone() })
        };
        let points = [ExtensionPoint::Reserve, ExtensionPoint::Permit];
        registry.register(Registration::new(name, &points, make)).expect("a new name");
        user.multi_point.enabled.push(PluginRef { name: name.to_owned(), weight: 0 });
    }
    let plugins = PluginSet::new(&registry, &user, &FeatureGates::default()).expect("valid");
    Scheduler::new(Config { profiles: vec![Profile { plugins, ..Profile::default() }], ..Config::default() })
}

fn step(p: &mut Scheduler, at: i64, events: Vec<Event>) -> Vec<Action> {
    let now = Time::from_seconds(at);
    for e in events {
        p.apply(now, e);
    }
    let mut actions = Vec::new();
    p.decide(now, &mut |a| actions.push(a));
    p.check();
    actions
}

fn waits(seconds: i64) -> PermitResult {
    PermitResult::Wait(Duration::from_seconds(seconds))
}

fn log(table: &Table) -> Vec<String> {
    std::mem::take(&mut *table.log.lock().expect("alone"))
}

#[test]
fn plugins_are_asked_in_order_and_undone_in_reverse() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(30));
    t.permit.insert((SECOND, "p".into()), waits(10));
    let mut p = placement(&t);
    let out = step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 800))]);
    assert!(matches!(out.as_slice(), [Action::Nominate { .. }]), "{out:?}");
    assert_eq!(
        log(&t),
        ["reserve TestFirst p", "reserve TestSecond p", "permit TestFirst p", "permit TestSecond p"]
    );
    assert_eq!(p.next_wake(), Some(Time::from_seconds(10)));
    // It keeps its room while it waits.
    let out = step(&mut p, 1, vec![upsert(pod("q", 800))]);
    assert!(message(&out).expect("told").1.starts_with("0/1 nodes are available: 1 Insufficient cpu."));
    assert_eq!(p.queue_counts().in_flight, 1);
    let out = step(&mut p, 10, vec![]);
    let want = "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin TestSecond.";
    assert_eq!(message(&out), Some(("Unschedulable", want.to_owned())));
    assert_eq!(
        log(&t)[..2],
        ["unreserve TestSecond p".to_owned(), "unreserve TestFirst p".to_owned()],
        "before anything else"
    );
    // The room is free for the other at once; the one that was rejected waits for an event.
    assert_eq!(binds(&out), [("q".to_owned(), "a".to_owned())]);
    assert_eq!(p.queue_counts(), QueueCounts { unschedulable: 1, in_flight: 1, ..QueueCounts::default() });
}

#[test]
fn all_that_asked_to_wait_must_allow() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(60));
    t.permit.insert((SECOND, "p".into()), waits(60));
    t.others.insert((FIRST, "one".into()), vec![Other::Allow("p")]);
    t.others.insert((SECOND, "two".into()), vec![Other::Allow("p"), Other::Allow("p")]);
    let mut p = placement(&t);
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 100))]);
    assert_eq!(binds(&step(&mut p, 1, vec![upsert(pod("one", 100))])).len(), 1);
    assert_eq!(p.next_wake(), Some(Time::from_seconds(60)), "the other timer runs on");
    let out = step(&mut p, 2, vec![upsert(pod("two", 100))]);
    assert_eq!(binds(&out).iter().map(|b| b.0.as_str()).collect::<Vec<_>>(), ["p", "two"]);
    assert_eq!(p.next_wake(), None);
}

#[test]
fn a_wait_is_limited_to_a_quarter_of_an_hour() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(10_000));
    let mut p = placement(&t);
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 800))]);
    assert_eq!(p.next_wake(), Some(Time::from_seconds(900)));
    let (_, text) = message(&step(&mut p, 900, vec![])).expect("told");
    assert!(text.contains("rejected due to timeout after waiting 15m0s at plugin TestFirst"), "{text}");
}

#[test]
fn another_plugin_rejects_a_waiting_pod_and_the_first_word_counts() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(60));
    t.others.insert((SECOND, "q".into()), vec![Other::Reject("p", "not with q"), Other::Allow("p")]);
    let mut p = placement(&t);
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 500))]);
    let out = step(&mut p, 1, vec![upsert(pod("q", 500))]);
    assert_eq!(binds(&out), [("q".to_owned(), "a".to_owned())]);
    let want = "0/1 nodes are available: 1 not with q.".to_owned();
    assert_eq!(message(&out), Some(("Unschedulable", want)));
}

#[test]
fn rejections_and_errors_at_once() {
    let reject = |code, text: &str| Status::new(code, text.to_owned());
    let cases = [
        (true, Code::Unschedulable, "Unschedulable", "0/1 nodes are available: 1 no."),
        (true, Code::Error, "SchedulerError", "running Permit plugin \"TestSecond\": no"),
        (false, Code::Unresolvable, "Unschedulable", "0/1 nodes are available: 1 no."),
        (false, Code::Error, "SchedulerError", "running Reserve plugin \"TestFirst\": no"),
    ];
    for (permit, code, reason, text) in cases {
        let mut t = Table::default();
        if permit {
            t.permit.insert((SECOND, "p".into()), PermitResult::Reject(reject(code, "no")));
        } else {
            t.reserve.insert((FIRST, "p".into()), reject(code, "no"));
        }
        let mut p = placement(&t);
        let out = step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 800))]);
        assert_eq!(message(&out), Some((reason, text.to_owned())));
        let undone: Vec<String> = log(&t).into_iter().filter(|l| l.starts_with("un")).collect();
        assert_eq!(undone, ["unreserve TestSecond p", "unreserve TestFirst p"]);
        assert_eq!(p.queue_counts().in_flight, 0);
    }
}

#[test]
fn a_waiting_pod_that_goes_or_is_bound_elsewhere_gives_its_room_back() {
    for bound in [false, true] {
        let mut t = Table::default();
        t.permit.insert((FIRST, "p".into()), waits(60));
        let mut p = placement(&t);
        step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 800)), upsert(pod("q", 800))]);
        log(&t);
        let event = if bound {
            let mut elsewhere = pod("p", 800);
            elsewhere.spec.node_name = "b".into();
            upsert(elsewhere)
        } else {
            Event::Object(ObjectEvent::PodDelete("uid-p".into()))
        };
        // A deletion wakes the other; for a pod bound elsewhere there is no such event.
        let other = if bound { vec![event, node("a", 1001)] } else { vec![event] };
        let out = step(&mut p, 2, other);
        assert_eq!(binds(&out), [("q".to_owned(), "a".to_owned())]);
        assert_eq!(log(&t)[..2], ["unreserve TestSecond p", "unreserve TestFirst p"]);
        assert!(p.next_wake().is_none(), "no timer is left");
        assert!(step(&mut p, 100, vec![]).is_empty());
    }
}

/// No plugin has rejected it, so that no event brings it back.
#[test]
fn a_waiting_pod_that_is_deleted_is_not_tried_again() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(60));
    let mut p = placement(&t);
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 800))]);
    let mut leaving = pod("p", 800);
    leaving.deleting = true;
    let out = step(&mut p, 1, vec![upsert(leaving)]);
    let want = "0/1 nodes are available: 1 removed.".to_owned();
    assert_eq!(message(&out), Some(("Unschedulable", want)));
    assert_eq!(p.queue_counts().unschedulable, 1);
    let out = step(&mut p, 30, vec![node("b", 1000)]);
    assert!(out.is_empty(), "{out:?}");
}

#[test]
fn a_waiting_victim_is_taken_back_and_not_deleted() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "low".into()), waits(60));
    let mut p = placement(&t);
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("low", 800))]);
    let mut high = pod("high", 800);
    high.spec.priority = 10;
    let out = step(&mut p, 1, vec![upsert(high)]);
    assert!(!out.iter().any(|a| matches!(a, Action::Preempt { .. })), "{out:?}");
    let notes: Vec<&str> = out
        .iter()
        .filter_map(|a| match a {
            Action::Record { pod, event, .. } if pod.name == "low" => Some(event.message.as_str()),
            _ => None,
        })
        .collect();
    let want = [
        "Preempted by pod uid-high on node a (in kube-scheduler memory).",
        "waiting on permit for pod: preempted",
    ];
    assert_eq!(notes, want);
    // The victim's room is free in the same step; it comes back after the backoff of an error.
    assert_eq!(binds(&out), [("high".to_owned(), "a".to_owned())]);
    assert_eq!(p.queue_counts().backoff, 1);
}

#[test]
fn a_victim_that_waits_for_volumes_is_taken_back() {
    let mut p = Scheduler::new(Config::default());
    step(&mut p, 0, volume_world());
    let mut high = pod("high", 1000);
    high.spec.priority = 10;
    // While its writes are under way it can only be deleted.
    let out = step(&mut p, 1, vec![upsert(high.clone())]);
    assert!(out.iter().any(|a| matches!(a, Action::Preempt { .. })), "{out:?}");
    let mut p = Scheduler::new(Config::default());
    step(&mut p, 0, volume_world());
    step(&mut p, 1, vec![Event::Answer(crate::Event::Prepared("uid-p".into()))]);
    let out = step(&mut p, 2, vec![upsert(high)]);
    assert!(!out.iter().any(|a| matches!(a, Action::Preempt { .. })), "{out:?}");
    assert_eq!(binds(&out), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn what_is_reserved_is_written_after_permit() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(60));
    t.others.insert((FIRST, "q".into()), vec![Other::Allow("p")]);
    let mut p = placement(&t);
    let out = step(&mut p, 0, volume_world());
    assert!(matches!(out.as_slice(), [Action::Nominate { .. }]), "{out:?}");
    let out = step(&mut p, 50, vec![upsert(pod("q", 1))]);
    assert!(matches!(out.first(), Some(Action::Prepare { .. })), "{out:?}");
    step(&mut p, 51, vec![Event::Answer(crate::Event::Prepared("uid-p".into()))]);
    assert_eq!(p.next_wake(), Some(Time::from_seconds(650)), "from Permit on");
}

#[test]
fn waits_are_counted_by_their_end() {
    let names = ["late", "allowed", "gone"];
    let mut t = Table::default();
    for name in names {
        t.permit.insert((FIRST, name.into()), waits(10));
    }
    t.others.insert((FIRST, "q".into()), vec![Other::Allow("allowed")]);
    let mut p = placement(&t);
    let mut events = vec![node("a", 1000)];
    events.extend(names.map(|name| upsert(pod(name, 100))));
    step(&mut p, 0, events);
    assert_eq!(p.events_in_flight(), BTreeMap::from([("PodPopped".to_owned(), 3)]));
    step(&mut p, 2, vec![upsert(pod("q", 100))]);
    step(&mut p, 3, vec![Event::Object(ObjectEvent::PodDelete("uid-gone".into()))]);
    step(&mut p, 10, vec![]);
    let waits = p.permit_waits().map(|(code, waits)| (code, waits.count, waits.sum));
    assert_eq!(waits.collect::<Vec<_>>(), [("Success", 1, 2.0), ("Unschedulable", 2, 13.0)]);
    assert_eq!(p.events_in_flight(), BTreeMap::new());
}

#[test]
fn pods_that_are_bound_after_a_flush_are_counted() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(10));
    t.others.insert((FIRST, "q".into()), vec![Other::Allow("p")]);
    for watch_comes_first in [false, true] {
        let mut p = placement(&t);
        step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 100))]);
        // Rejected, and no event brings it back.
        step(&mut p, 10, vec![]);
        step(&mut p, 341, vec![]);
        step(&mut p, 342, vec![upsert(pod("q", 100))]);
        assert_eq!(p.pods_scheduled_after_flush(), 0);
        if watch_comes_first {
            let mut bound = pod("p", 100);
            bound.spec.node_name = "a".into();
            step(&mut p, 343, vec![upsert(bound)]);
        }
        let answers = ["p", "q"].map(|name| Event::Answer(crate::Event::Bound(format!("uid-{name}"))));
        step(&mut p, 344, answers.into());
        assert_eq!(p.pods_scheduled_after_flush(), 1);
    }
}

#[test]
fn events_while_waiting_count_when_the_pod_comes_back() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(10));
    let mut p = placement(&t);
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 800))]);
    // The test plugins are not registered for anything, so nothing helps, and only the flush brings it back.
    step(&mut p, 5, vec![node("b", 1000)]);
    step(&mut p, 10, vec![]);
    assert_eq!(p.queue_counts().unschedulable, 1);
    let out = step(&mut p, 341, vec![]);
    let waits = matches!(out.as_slice(), [Action::Nominate { .. }]);
    assert!(waits && p.queue_counts().in_flight == 1, "it waits again: {out:?}");
}

/// The write of its node is one: it would come back because it has waited.
#[test]
fn an_own_update_while_waiting_is_no_event() {
    let mut t = Table::default();
    t.permit.insert((FIRST, "p".into()), waits(10));
    let mut p = placement(&t);
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 800))]);
    let mut other = pod("p", 700);
    other.labels.insert("x".into(), "y".into());
    other.status.nominated_node_name = "a".into();
    step(&mut p, 5, vec![upsert(other)]);
    let id = p.cluster.pod_by_uid("uid-p").expect("there");
    assert_eq!(p.in_flight_events.get(&id).map(|events| events.len()), Some(0));
}

#[test]
fn random_permits_leak_nothing() {
    for seed in 0..30 {
        let rng = Arc::new(Mutex::new(plimsoll_state::rng::Rng::new(seed)));
        let t = Table { random: Some(Arc::clone(&rng)), ..Table::default() };
        let mut p = placement(&t);
        let mut own = plimsoll_state::rng::Rng::new(seed + 1000);
        let mut bound: Vec<String> = Vec::new();
        for at in 0..200 {
            let name = format!("p{}", own.below(25));
            let event = match own.below(10) {
                0 => node(&format!("n{}", own.below(4)), i64::from(1 + own.below(3)) * 1000),
                1 => Event::Object(ObjectEvent::PodDelete(format!("uid-{name}"))),
                2 => Event::Answer(crate::Event::BindFailed {
                    uid: format!("uid-{name}"),
                    message: "no".into(),
                }),
                3 => Event::Object(ObjectEvent::NodeDelete(format!("n{}", own.below(4)))),
                4 => {
                    let mut one = pod(&name, 500);
                    one.spec.node_name = format!("n{}", own.below(4));
                    upsert(one)
                }
                5 if !bound.is_empty() => Event::Answer(crate::Event::Bound(bound.swap_remove(0))),
                _ => {
                    let mut one = pod(&name, i64::from(1 + own.below(4)) * 200);
                    one.spec.priority = i32::try_from(own.below(3)).expect("small");
                    upsert(one)
                }
            };
            for action in step(&mut p, at, vec![event]) {
                if let Action::Bind { pod, .. } = action {
                    bound.push(pod.uid);
                }
            }
        }
        let gone: Vec<Event> =
            (0..25).map(|i| Event::Object(ObjectEvent::PodDelete(format!("uid-p{i}")))).collect();
        step(&mut p, 1000, gone);
        assert_eq!(p.queue_counts(), QueueCounts::default(), "seed {seed}");
        assert!(
            p.waiting.pods().is_empty()
                && p.reservations.assumed_count() == 0
                && p.pre_binding.pods.is_empty()
        );
        assert!(p.in_flight_events.is_empty() && p.cluster.pods.iter().next().is_none());
        assert!(p.cluster.columns.used.iter().flatten().all(|used| *used == 0), "seed {seed}: capacity");
    }
}
