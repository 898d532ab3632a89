//! Admission checks: quota first, nodes when the checks are ready.

use super::quota_alone::nodes;
use crate::Event;
use crate::testing::{Fixture, cluster_queue};
use plimsoll_queueing::{AdmissionCheck, CheckState, Config, PodSetUpdate};
use plimsoll_state::model::{Node, StringMap, Taint, TaintEffect, Toleration, TolerationOperator};

/// A world whose ClusterQueue has an admission check.
fn world() -> Fixture {
    world_of("example.com/check")
}

/// The same with the controller of the check.
fn world_of(controller: &str) -> Fixture {
    let mut queue = cluster_queue("c", &[("f", 100)]);
    queue.admission_checks = vec![("check".into(), Vec::new())];
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    let check = AdmissionCheck { name: "check".into(), controller: controller.into(), active: true };
    w.events.push(Event::Queueing(plimsoll_queueing::Event::AdmissionCheckUpsert(Box::new(check))));
    w.run();
    w
}

/// The controller of the check says that it is ready.
fn ready(w: &mut Fixture, name: &str, updates: &[PodSetUpdate]) {
    let status = &mut w.workloads.get_mut(name).expect("a workload").status;
    for check in &mut status.admission_checks {
        (check.state, check.updates) = (CheckState::Ready, updates.to_vec());
    }
    w.tell(name);
}

#[test]
fn nodes_are_reserved_when_the_checks_are_ready() {
    let mut w = world();
    w.node("a", 2);
    w.late.extend(["gang-0".to_owned(), "gang-1".to_owned()]);
    w.submit("gang", 2, 1);
    assert!(w.admitted().is_empty());
    let (reserved, reason, message) = nodes(&w, "gang");
    assert_eq!((reserved, &*reason), (false, "AdmissionChecks"), "{message}");
    ready(&mut w, "gang", &[]);
    assert_eq!(w.admitted(), ["gang"]);
    assert_eq!(nodes(&w, "gang"), (true, "NodesReserved".into(), "main: a*2".into()));
    // Nobody takes them before the pods come.
    w.submit("other", 1, 1);
    ready(&mut w, "other", &[]);
    assert!(!w.bound.contains("other-0"));
    w.create_late_pods();
    assert!(w.bound.contains("gang-0") && w.bound.contains("gang-1"));
}

#[test]
fn a_workload_without_nodes_is_admitted_all_the_same() {
    let mut w = world();
    w.node("a", 1);
    w.submit("gang", 2, 1);
    ready(&mut w, "gang", &[]);
    assert_eq!(w.admitted(), ["gang"]);
    let (reserved, reason, message) = nodes(&w, "gang");
    assert_eq!((reserved, &*reason), (false, "AdmissionChecks"));
    assert!(message.contains("0/1 nodes are available: 1 Insufficient cpu"), "{message}");
}

#[test]
fn what_checks_change_in_the_pods_counts() {
    let mut w = world();
    w.node_of("old", 4, "f");
    w.node_of("new", 4, "g");
    w.late.insert("job-0".into());
    w.submit("job", 1, 1);
    let node_selector: StringMap = [("flavor".to_owned(), "g".to_owned())].into_iter().collect();
    let update = PodSetUpdate { name: "main".into(), node_selector, tolerations: Vec::new() };
    ready(&mut w, "job", &[update]);
    assert_eq!(nodes(&w, "job").2, "main: new");
}

/// A change of leader: the nodes are reserved again from the status.
#[test]
fn the_reservation_outlives_the_process() {
    let mut w = world();
    w.node("a", 2);
    w.late.extend(["gang-0".to_owned(), "gang-1".to_owned()]);
    w.submit("gang", 2, 1);
    ready(&mut w, "gang", &[]);
    w.restart(true);
    let reserved = w.engine.scheduler().map(|s| s.reserved_places().0);
    assert_eq!(reserved, Some(2));
}

#[test]
fn nodes_of_another_cluster_are_not_reserved_here() {
    let mut w = world_of("kueue.x-k8s.io/multikueue");
    w.node("a", 2);
    w.late.insert("job-0".to_owned());
    w.submit("job", 1, 1);
    ready(&mut w, "job", &[]);
    assert_eq!(w.admitted(), ["job"]);
    assert_eq!(nodes(&w, "job").1, "AdmissionChecks");
    assert_eq!(w.engine.scheduler().map(|s| s.reserved_places().0), Some(0));
}

#[test]
fn a_write_that_fails_is_made_again_with_the_nodes() {
    let mut w = world();
    w.node("a", 2);
    w.late.extend(["job-0".to_owned(), "job-1".to_owned()]);
    // The node has no room for them beside their own places.
    w.submit("job", 2, 1);
    w.refused_writes = 1;
    ready(&mut w, "job", &[]);
    assert_eq!((w.refused_writes, w.admitted()), (0, vec!["job"]));
    assert_eq!(nodes(&w, "job"), (true, "NodesReserved".into(), "main: a*2".into()));
    w.restart(true);
    assert_eq!(w.engine.scheduler().map(|s| s.reserved_places().0), Some(2));
}

/// Without the toleration that a check adds, the place would be lost.
#[test]
fn what_checks_change_counts_after_a_restart() {
    let mut w = world();
    w.create_node(Node {
        name: "a".into(),
        uid: "a".into(),
        ready: true,
        labels: [("flavor".to_owned(), "f".to_owned())].into_iter().collect(),
        allocatable: [("cpu".to_owned(), 2), ("pods".to_owned(), 10)].into(),
        taints: vec![Taint { key: "new".into(), value: String::new(), effect: TaintEffect::NoSchedule }],
        ..Node::default()
    });
    w.late.insert("job-0".to_owned());
    w.submit("job", 1, 1);
    let toleration =
        Toleration { key: "new".into(), operator: TolerationOperator::Exists, ..Toleration::default() };
    let update =
        PodSetUpdate { name: "main".into(), tolerations: vec![toleration], ..PodSetUpdate::default() };
    ready(&mut w, "job", &[update]);
    assert_eq!(nodes(&w, "job").2, "main: a");
    w.restart(true);
    assert_eq!(w.engine.scheduler().map(|s| s.reserved_places().0), Some(1));
}
