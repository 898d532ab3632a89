//! Workloads of the same scheduling hash: what one can't have, the others don't try. Where the labels of pods, or who places
//! them, make a difference, they do.

use crate::Event;
use crate::testing::{Fixture, pod, pod_set, spec};
use plimsoll_queueing::PodSet;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{
    Affinity, LabelSelector, Operator, Pod, PodAffinity, PodAffinityTerm, Requirement,
};

/// To pods with this label.
fn term(team: &str) -> PodAffinity {
    let (key, values) = ("team".into(), vec![team.into()]);
    let selector = LabelSelector { requirements: vec![Requirement { key, operator: Operator::In, values }] };
    let term = PodAffinityTerm {
        selector: Some(selector),
        namespaces: vec!["n".into()],
        topology_key: "flavor".into(),
        ..PodAffinityTerm::default()
    };
    PodAffinity { required: vec![term], ..PodAffinity::default() }
}

/// Pods with this label are not beside each other.
fn anti_affinity(team: &str) -> Affinity {
    Affinity { anti: Some(term(team)), ..Affinity::default() }
}

/// A pod of no queue on a node.
fn alone(name: &str) -> Pod {
    let mut pod = pod(name, 0, &spec(1));
    (pod.workload, pod.pod_set) = Default::default();
    pod.spec.node_name = "a".into();
    pod
}

fn of_team(team: &str, count: i32) -> PodSet {
    let mut set = pod_set("main", count, 1);
    set.labels.insert("team".into(), team.into());
    set
}

#[test]
fn a_workload_is_tried_whose_labels_no_pod_keeps_off() {
    let mut w = Fixture::new(true);
    w.node("a", 8);
    let mut pod = alone("alone");
    pod.spec.affinity = anti_affinity("red");
    w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod))));
    w.run();
    w.submit_to("c", "red", 0, vec![of_team("red", 1)]);
    assert_eq!(w.reason("red").0, "WaitingForNodes");
    w.submit_to("c", "blue", 0, vec![of_team("blue", 1)]);
    assert_eq!(w.admitted(), ["blue"]);
}

#[test]
fn pods_that_keep_each_other_off_are_told_from_those_that_do_not() {
    let mut w = Fixture::new(true);
    w.node("a", 8);
    let gang = |team| {
        let mut set = of_team(team, 2);
        set.spec.affinity = anti_affinity("red");
        vec![set]
    };
    w.submit_to("c", "red", 0, gang("red"));
    assert_eq!(w.reason("red").0, "WaitingForNodes");
    w.submit_to("c", "blue", 0, gang("blue"));
    assert_eq!(w.admitted(), ["blue"]);
}

#[test]
fn pods_of_another_scheduler_wait_for_no_nodes() {
    let mut w = Fixture::new(true);
    w.node("a", 1);
    w.submit("ours", 2, 1);
    assert_eq!(w.reason("ours").0, "WaitingForNodes");
    let mut theirs = pod_set("main", 2, 1);
    theirs.spec.scheduler_name = "volcano".into();
    w.submit_to("c", "theirs", 0, vec![theirs]);
    assert_eq!(w.admitted(), ["theirs"]);
    let status = &w.workloads["theirs"].status;
    let nodes = status.condition(plimsoll_queueing::cond::NODES_RESERVED).cloned().unwrap_or_default();
    assert_eq!((nodes.status, &*nodes.reason), (false, "OtherScheduler"), "{}", nodes.message);
}

#[test]
fn a_workload_is_tried_again_when_the_pod_comes_that_it_wants_to_be_beside() {
    let mut w = Fixture::new(true);
    w.node("a", 8);
    let mut web = of_team("web", 2);
    web.spec.affinity = Affinity { pod: Some(term("db")), ..Affinity::default() };
    w.submit_to("c", "web", 0, vec![web]);
    assert_eq!(w.reason("web").0, "WaitingForNodes");
    let mut db = alone("db");
    db.labels.insert("team".into(), "db".into());
    w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(db))));
    w.run();
    assert_eq!(w.admitted(), ["web"], "{:?}", w.reason("web"));
}
