//! The queue line by line (upstream `backend/queue/scheduling_queue.go`), through events: where a pod is after something happened to it.

use super::tests::{binds, node, plain_node, pod, upsert};
use super::*;
use crate::testing::Event;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::Pod;
use plimsoll_state::model::{Toleration, TolerationOperator};

/// Where one pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Placed: its binding is asked for.
    Bound,
    Backoff,
    Unschedulable,
    Gated,
    Gone,
}

fn step(p: &mut Scheduler, at_millis: i64, events: Vec<Event>) -> Vec<Action> {
    let now = Time(at_millis * 1_000_000);
    for e in events {
        p.apply(now, e);
    }
    let mut actions = Vec::new();
    p.decide(now, &mut |a| actions.push(a));
    p.check();
    actions
}

/// Handles events without deciding, so that nothing is popped.
fn handle_all(p: &mut Scheduler, at_millis: i64, events: Vec<Event>) {
    for e in events {
        p.apply(Time(at_millis * 1_000_000), e);
    }
}

fn place_of(p: &Scheduler, name: &str) -> At {
    use super::queue::Stage;
    let Some(id) = p.cluster.pod_by_uid(&format!("uid-{name}")) else { return At::Gone };
    match p.queue.get(id).map(|q| q.stage) {
        Some(Stage::Gated(_)) => At::Gated,
        Some(Stage::Unschedulable) => At::Unschedulable,
        Some(Stage::Backoff | Stage::ErrorBackoff) => At::Backoff,
        Some(Stage::InFlight) | None => At::Bound,
        Some(Stage::Active) => panic!("{name} is active"),
    }
}

fn is_active(p: &Scheduler, name: &str) -> bool {
    let id = p.cluster.pod_by_uid(&format!("uid-{name}")).expect("known");
    p.queue.get(id).is_some_and(|q| q.stage == queue::Stage::Active)
}

fn tainted(name: &str, cpu: i64) -> Event {
    let mut n = plain_node(name, cpu);
    let taint = plimsoll_state::model::TaintEffect::NoSchedule;
    n.taints.push(plimsoll_state::model::Taint { key: "t".into(), value: String::new(), effect: taint });
    Event::Object(ObjectEvent::NodeUpsert(Box::new(n)))
}

fn tolerating(name: &str, cpu: i64) -> Pod {
    let mut one = pod(name, cpu);
    one.spec.tolerations.push(Toleration {
        key: "t".into(),
        operator: TolerationOperator::Exists,
        ..Toleration::default()
    });
    one
}

/// A pod that was rejected, what happens then, and where it is after 100 ms and after its backoff of a second.
#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn events_move_what_they_may_help() {
    let on_node = |name: &str, cpu| {
        let mut one = pod(name, cpu);
        one.spec.node_name = "a".into();
        upsert(one)
    };
    // Gated, so that it stays where it is; its nomination counts from its first update on.
    let nominated = |priority: i32| {
        let mut one = pod("n", 100);
        one.spec.priority = priority;
        one.spec.scheduling_gates = vec!["g".into()];
        one.status.nominated_node_name = "a".into();
        one
    };
    let renominated = |priority: i32| {
        let mut one = nominated(priority);
        one.status.nominated_node_name = String::new();
        upsert(one)
    };
    let labelled = || {
        let mut n = plain_node("a", 1000);
        n.labels.insert("some".into(), "label".into());
        Event::Object(ObjectEvent::NodeUpsert(Box::new(n)))
    };
    let relabelled = || {
        let mut one = pod("p", 900);
        one.labels.insert("some".into(), "label".into());
        upsert(one)
    };
    let own_gates = || {
        let mut one = pod("p", 900);
        one.spec.scheduling_gates = vec!["g".into()];
        one
    };
    type Case = (&'static str, Vec<Event>, Vec<Event>, At, bool);
    // What, before, event, where afterwards (nothing popped), whether it is bound in the end.
    let full = || vec![node("a", 1000), on_node("x", 800), upsert(pod("p", 900))];
    let keeps_out = || vec![tainted("a", 1000), upsert(pod("p", 900))];
    let cases: Vec<Case> = vec![
        (
            "a pod leaves",
            full(),
            vec![Event::Object(ObjectEvent::PodDelete("uid-x".into()))],
            At::Backoff,
            true,
        ),
        ("a node that is too small comes", full(), vec![node("b", 100)], At::Unschedulable, false),
        ("a node with room comes", full(), vec![node("b", 1000)], At::Backoff, true),
        ("another scheduler's pod comes to a node", full(), vec![on_node("y", 1)], At::Unschedulable, false),
        ("labels of the node change", full(), vec![labelled()], At::Unschedulable, false),
        ("the pod asks for less", full(), vec![upsert(pod("p", 100))], At::Backoff, true),
        ("the pod's labels change", full(), vec![relabelled()], At::Unschedulable, false),
        ("another pod asks for less", full(), vec![on_node("x", 50)], At::Backoff, true),
        (
            "the pod goes",
            full(),
            vec![Event::Object(ObjectEvent::PodDelete("uid-p".into()))],
            At::Gone,
            false,
        ),
        ("the taint goes", keeps_out(), vec![node("a", 1000)], At::Backoff, true),
        ("the pod tolerates it", keeps_out(), vec![upsert(tolerating("p", 900))], At::Backoff, true),
        ("a toleration too many", full(), vec![upsert(tolerating("p", 900))], At::Unschedulable, false),
        (
            "a nominated pod that goes before it leaves",
            vec![node("a", 100), renominated(5), upsert(nominated(5)), upsert(pod("p", 100))],
            vec![Event::Object(ObjectEvent::PodDelete("uid-n".into()))],
            At::Backoff,
            true,
        ),
        (
            "a nominated pod is nominated no more",
            vec![node("a", 100), renominated(5), upsert(nominated(5)), upsert(pod("p", 100))],
            vec![renominated(5)],
            At::Backoff,
            true,
        ),
        (
            "a less important nominated pod leaves",
            vec![node("a", 100), renominated(-1), upsert(nominated(-1)), upsert(pod("p", 900))],
            vec![Event::Object(ObjectEvent::PodDelete("uid-n".into()))],
            At::Unschedulable,
            false,
        ),
        (
            "its last gate goes",
            vec![node("a", 1000), upsert(own_gates())],
            vec![upsert(pod("p", 900))],
            At::Bound,
            true,
        ),
        (
            "a gated pod is not helped by nodes",
            vec![upsert(own_gates())],
            vec![node("b", 1000)],
            At::Gated,
            false,
        ),
    ];
    for (what, before, event, want, bound) in cases {
        let mut p = Scheduler::new(Config::default());
        step(&mut p, 0, before);
        handle_all(&mut p, 100, event);
        if want == At::Bound {
            assert!(is_active(&p, "p"), "{what}");
        } else {
            assert_eq!(place_of(&p, "p"), want, "{what}");
        }
        let out = step(&mut p, 2100, vec![]);
        assert_eq!(binds(&out).iter().any(|(n, _)| n == "p"), bound, "{what}: {out:?}");
    }
}

/// Heartbeats leave the status as it is.
#[test]
fn a_condition_of_a_node_that_changes_is_an_event() {
    let mut p = Scheduler::new(Config::default());
    let mut info = |status: &str| {
        let mut n = plain_node("a", 100);
        n.conditions.insert("Ready".into(), status.into());
        cluster::NodeInfo::new(&n, &mut p.cluster.strings)
    };
    let (unknown, ready) = (info("Unknown"), info("True"));
    assert_eq!(events::node_actions(&unknown, &ready, false), [events::ActionType::NODE_CONDITION]);
    assert!(events::node_actions(&ready, &ready, false).is_empty());
}

#[test]
fn after_its_backoff_an_event_makes_a_pod_active_at_once() {
    let mut p = Scheduler::new(Config::default());
    step(&mut p, 0, vec![node("a", 100), upsert(pod("p", 900))]);
    // Until the end of the second in which the backoff of a second ends.
    for (at, active) in [(1999, false), (2000, true)] {
        let mut p = Scheduler::new(Config::default());
        step(&mut p, 500, vec![node("a", 100), upsert(pod("p", 900))]);
        handle_all(&mut p, at, vec![node("b", 1000)]);
        assert_eq!(is_active(&p, "p"), active, "after {at} ms");
    }
}

/// Of the events during its attempt the strongest moves a pod: one that helps a pending plugin skips the backoff, also after others.
#[test]
fn the_strongest_event_of_an_attempt_moves_the_pod() {
    use super::queue::Stage;
    for (pending, want) in [(false, Stage::Backoff), (true, Stage::Active)] {
        let mut p = Scheduler::new(Config::default());
        let mut other = pod("x", 50);
        other.spec.node_name = "a".into();
        step(&mut p, 0, vec![tainted("a", 100), upsert(other), upsert(pod("p", 900))]);
        let id = p.cluster.pod_by_uid("uid-p").expect("there");
        let named = |name: &str| p.runners[0].names.get(name).expect("known");
        let (fit, taints) = (named("NodeResourcesFit"), named("TaintToleration"));
        // As in its cycle.
        p.queue.take(id);
        p.in_flight_events.entry(id).or_default();
        let gone = Event::Object(ObjectEvent::PodDelete("uid-x".into()));
        handle_all(&mut p, 100, vec![gone, node("a", 100)]);
        let row = p.queue.get_mut(id).expect("queued");
        row.unschedulable_plugins.insert(fit);
        if pending {
            row.pending_plugins.insert(taints);
        }
        p.queue.enter(id, Stage::Unschedulable);
        p.replay_in_flight(id);
        assert_eq!(p.queue.get(id).map(|q| q.stage), Some(want));
        p.check();
    }
}

#[test]
fn backoff_doubles_with_each_rejection_and_errors_count_apart() {
    let mut p = Scheduler::new(Config::default());
    step(&mut p, 0, vec![node("a", 100), upsert(pod("p", 900))]);
    let mut at = 0;
    // Each time the node nearly has room; the pod is taken early because nothing else is active.
    for (round, seconds) in [2, 4, 8, 10, 10].into_iter().enumerate() {
        at += 11_000;
        step(
            &mut p,
            at,
            vec![
                node(&format!("n{round}"), 1000),
                Event::Object(ObjectEvent::NodeDelete(format!("n{round}"))),
            ],
        );
        let id = p.cluster.pod_by_uid("uid-p").expect("there");
        let row = p.queue.get(id).expect("queued");
        assert_eq!(p.config.backoff.duration(row.unschedulable).seconds(), seconds, "round {round}");
        assert_eq!(row.errors, 0);
    }
    let mut p = Scheduler::new(Config::default());
    step(&mut p, 0, vec![node("a", 1000), upsert(pod("p", 900))]);
    for (at, errors) in [(0, 1), (2_000, 2), (5_000, 3)] {
        step(&mut p, at, vec![]);
        let failed = Event::Answer(crate::Event::BindFailed { uid: "uid-p".into(), message: "no".into() });
        handle_all(&mut p, at, vec![failed]);
        let id = p.cluster.pod_by_uid("uid-p").expect("there");
        assert_eq!(p.queue.get(id).map(|q| (q.errors, q.unschedulable)), Some((errors, 0)), "at {at}");
        assert_eq!(place_of(&p, "p"), At::Backoff);
    }
}

#[test]
fn leftovers_are_flushed_and_gated_pods_are_not() {
    let mut p = Scheduler::new(Config::default());
    let mut gated = pod("g", 1);
    gated.spec.scheduling_gates = vec!["x".into()];
    let out = step(&mut p, 0, vec![node("a", 100), upsert(pod("p", 900)), upsert(gated)]);
    let attempts = |out: &[Action]| out.iter().filter(|a| matches!(a, Action::Record { .. })).count();
    assert_eq!(attempts(&out), 1);
    assert_eq!(attempts(&step(&mut p, 299_000, vec![])), 0);
    assert_eq!(p.next_wake(), Some(Time(329_000_000_000)), "looked for every 30 s");
    assert_eq!(attempts(&step(&mut p, 329_000, vec![])), 1);
    assert_eq!(place_of(&p, "g"), At::Gated);
}

#[test]
fn a_pod_being_deleted_is_skipped() {
    let mut p = Scheduler::new(Config::default());
    let mut going = pod("p", 1);
    going.deleting = true;
    let out = step(&mut p, 0, vec![node("a", 100), upsert(going)]);
    let [Action::Record { event, .. }] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(
        (event.reason, event.message.as_str()),
        ("FailedScheduling", "skip schedule deleting pod: ns/p")
    );
    assert_eq!(p.queue_counts(), QueueCounts::default());
}

#[test]
fn a_failure_ends_the_nomination() {
    let mut p = Scheduler::new(Config::default());
    let mut one = pod("p", 100);
    one.status.nominated_node_name = "a".into();
    step(&mut p, 0, vec![node("a", 1000), upsert(one)]);
    let out = step(
        &mut p,
        1,
        vec![Event::Answer(crate::Event::BindFailed { uid: "uid-p".into(), message: "no".into() })],
    );
    let cleared = out.iter().any(|a| {
        matches!(a, Action::Unschedulable { nominated_node: Some(n), reason: crate::FailureReason::SchedulerError, .. } if n.is_empty())
    });
    assert!(cleared, "{out:?}");
}

#[test]
fn moves_are_counted_by_part_and_cause() {
    let mut p = Scheduler::new(Config::default());
    let mut other = pod("x", 800);
    other.spec.node_name = "a".into();
    step(&mut p, 0, vec![node("a", 1000), upsert(other), upsert(pod("p", 900))]);
    step(&mut p, 100, vec![Event::Object(ObjectEvent::PodDelete("uid-x".into()))]);
    let failed = crate::Event::BindFailed { uid: "uid-p".into(), message: "no".into() };
    step(&mut p, 200, vec![Event::Answer(failed)]);
    step(&mut p, 2_000, vec![]);
    let bound = Event::Answer(crate::Event::Bound("uid-p".into()));
    step(&mut p, 2_100, vec![bound, upsert(pod("q", 900))]);
    step(&mut p, 400_000, vec![]);
    let moves: Vec<(&str, String, u64)> = p.incoming_pods().collect();
    let want = [
        ("active", "UnschedulablePodAdd", 2),
        ("active", "BackoffComplete", 1),
        ("active", "PopFromBackoffQ", 1),
        ("active", "UnschedulableTimeout", 1),
        ("backoff", "AssignedPodDelete", 1),
        ("backoff", "ScheduleAttemptFailure", 1),
        ("unschedulable", "ScheduleAttemptFailure", 3),
    ];
    assert_eq!(moves, want.map(|(part, cause, n)| (part, cause.to_owned(), n)));
    let rejected = ("NodeResourcesFit".to_owned(), "default-scheduler".to_owned(), 1);
    assert_eq!(p.unschedulable_pods(), [rejected]);
    // Of p, and twice of q.
    assert_eq!(p.preemption_attempts(), 3);
}

/// Whether the answer to its binding comes first, or the watch.
#[test]
fn a_pod_that_is_bound_helps_pods_that_want_to_be_beside_it() {
    use plimsoll_state::model::{LabelSelector, Operator, PodAffinity, PodAffinityTerm, Requirement};
    let requirement = Requirement { key: "app".into(), operator: Operator::In, values: vec!["web".into()] };
    let term = PodAffinityTerm {
        selector: Some(LabelSelector { requirements: vec![requirement] }),
        topology_key: "zone".into(),
        ..PodAffinityTerm::default()
    };
    let mut beside = pod("p", 100);
    beside.spec.affinity.pod = Some(PodAffinity { required: vec![term], preferred: Vec::new() });
    let mut web = pod("web", 100);
    web.labels.insert("app".into(), "web".into());
    let mut bound = web.clone();
    bound.spec.node_name = "a".into();
    let events = [Event::Answer(crate::Event::Bound("uid-web".into())), upsert(bound)];
    for order in [[0, 1], [1, 0]] {
        let mut p = Scheduler::new(Config::default());
        let mut zoned = plain_node("a", 1000);
        zoned.labels.insert("zone".into(), "z".into());
        let zoned = Event::Object(ObjectEvent::NodeUpsert(Box::new(zoned)));
        step(&mut p, 0, vec![zoned, upsert(beside.clone())]);
        step(&mut p, 100, vec![upsert(web.clone())]);
        assert_eq!(place_of(&p, "p"), At::Unschedulable);
        assert!(!p.take_pods_came());
        handle_all(&mut p, 200, order.map(|at| events[at].clone()).into());
        assert_eq!(place_of(&p, "p"), At::Backoff, "{order:?}");
        assert!(p.take_pods_came());
    }
}
