//! Joint admission as a whole.

mod checked;
mod claims;
mod equal;
mod flavors;
mod generated_claims;
mod least_victims;
mod overtaking;
mod parts;
mod preemption;
mod quota_alone;
mod shares;
mod topology;

use plimsoll_state::ObjectEvent;

use proptest::prelude::*;

use crate::Event;
use crate::testing::{Fixture, cluster_queue, pod, pod_set, spec};
use plimsoll_queueing::{QueueingStrategy, cond};
use plimsoll_state::model::{Pod, PodSpec, Resources};
use plimsoll_state::time::Duration;

#[test]
fn a_gang_without_room_waits_whole_and_quota_alone_would_start_half_of_it() {
    for joint in [false, true] {
        let mut w = Fixture::new(joint);
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
        assert_eq!(
            message,
            "couldn't assign flavors to pod set main: couldn't place all pods in flavor f: 0/2 nodes are available: 2 \
             Insufficient cpu."
        );
        w.node("c", 2);
        assert_eq!((w.bound.len(), w.stuck.len()), (6, 0));
    }
}

/// The head of a StrictFIFO queue waits for nodes, too, and is never inadmissible.
#[test]
fn heads_are_tried_again_when_a_pod_that_no_queue_manages_leaves_its_node() {
    for strategy in [QueueingStrategy::BestEffortFifo, QueueingStrategy::StrictFifo] {
        let mut queue = cluster_queue("c", &[("f", 1_000_000)]);
        queue.strategy = strategy;
        let mut w = Fixture::with_queues(true, plimsoll_queueing::Config::default(), &[queue]);
        w.node("a", 2);
        let mut other = Pod { workload: String::new(), pod_set: String::new(), ..pod("other", 0, &spec(1)) };
        other.spec.node_name = "a".into();
        w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(other))));
        w.submit("gang", 2, 1);
        assert_eq!(w.reason("gang").0, "WaitingForNodes");
        w.events.push(Event::Object(ObjectEvent::PodDelete("other-0".into())));
        w.run();
        assert_eq!(w.bound.len(), 2, "{strategy:?}");
    }
}

#[test]
fn reservations_are_released_when_the_workload_finishes_before_its_pods_are_created() {
    let mut w = Fixture::new(true);
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
    let mut w = Fixture::new(true);
    w.node("a", 2);
    w.pods.insert("lazy".into(), Vec::new());
    w.submit("lazy", 2, 1);
    w.submit("next", 2, 1);
    w.now += 301;
    w.run();
    assert_eq!(w.bound.len(), 2);
}

/// Three pods of a gang need a node each; the last pod is created late.
fn gang_with_a_late_pod() -> Fixture {
    let mut w = Fixture::new(true);
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
fn reservations_are_rebuilt_from_the_status_after_a_restart() {
    for pods_first in [true, false] {
        let mut w = gang_with_a_late_pod();
        let recorded = w.workloads["gang"].status.condition(cond::NODES_RESERVED).cloned();
        let recorded = recorded.unwrap_or_default();
        assert_eq!((recorded.status, &*recorded.message), (true, "main: [a,b,c]"));
        w.restart(pods_first);
        // A pod that no queue manages, and a workload.
        let single = Pod { workload: String::new(), pod_set: String::new(), ..pod("single", 0, &spec(1)) };
        w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(single))));
        w.submit("other", 1, 1);
        assert_eq!(w.reason("other").0, "WaitingForNodes", "the node is reserved for the late pod");
        w.stuck.clear();
        w.create_late_pods();
        assert_eq!((w.bound.contains("gang-2"), &w.stuck), (true, &Vec::new()));
    }
}

#[test]
fn rebuilt_reservations_expire_when_the_first_ones_would_have() {
    let mut w = gang_with_a_late_pod();
    w.now += 200;
    w.restart(true);
    w.submit("other", 1, 1);
    assert_eq!(w.reason("other").0, "WaitingForNodes");
    w.now += 101;
    w.run();
    assert!(w.bound.contains("other-0"));
}

#[test]
fn nothing_is_rebuilt_for_pods_that_are_on_nodes_or_a_workload_that_has_to_stop() {
    for evicted in [false, true] {
        let mut w = gang_with_a_late_pod();
        if evicted {
            let condition = plimsoll_queueing::Condition {
                kind: cond::EVICTED.into(),
                status: true,
                reason: "Preempted".into(),
                ..Default::default()
            };
            w.workloads.get_mut("gang").unwrap().status.conditions.push(condition);
        } else {
            w.create_late_pods();
            w.node("d", 1);
        }
        w.restart(true);
        w.submit("other", 1, 1);
        assert!(w.bound.contains("other-0"), "evicted: {evicted}");
    }
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
    let mut w = Fixture::with(true, config);
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
    let mut w = Fixture::new(true);
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
        let mut w = Fixture::new(true);
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

/// Requests come from limits, from a LimitRange or from a RuntimeClass.
#[test]
fn pods_are_tried_with_what_is_filled_in_when_they_are_created() {
    use plimsoll_queueing::{Event as Queue, LimitRange, LimitRangeItem};
    let one: Resources = [("cpu".to_owned(), 1)].into();
    for filled in ["limits", "LimitRange", "RuntimeClass"] {
        let mut w = Fixture::new(true);
        w.node("a", 2);
        let mut set = pod_set("main", 3, 0);
        let container = &mut set.spec.containers[0];
        container.requests.clear();
        match filled {
            "limits" => container.limits.clone_from(&one),
            "LimitRange" => {
                let item = LimitRangeItem { default_request: one.clone(), ..LimitRangeItem::default() };
                let (namespace, name) = ("n".into(), "defaults".into());
                let range = LimitRange { namespace, name, container: Some(item), ..LimitRange::default() };
                w.events.push(Event::Queueing(Queue::LimitRangeUpsert(Box::new(range))));
            }
            _ => {
                set.spec.runtime_class_name = "large".into();
                w.events.push(Event::Queueing(Queue::RuntimeClassUpsert("large".into(), one.clone())));
            }
        }
        w.run();
        w.submit_to("c", "gang", 0, vec![set]);
        assert_eq!(w.reason("gang").0, "WaitingForNodes", "{filled}");
        w.node("b", 1);
        assert_eq!(w.admitted(), ["gang"], "{filled}");
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
        let mut w = Fixture::new(true);
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
