//! Where nodes decide nothing the status says why.

use crate::testing::{Fixture, cluster_queue, pod_set};
use plimsoll_queueing::{Config, cond};
use plimsoll_state::model::Node;

/// Reason of the condition that says what was decided of nodes; whether some are reserved.
pub(super) fn nodes(w: &Fixture, name: &str) -> (bool, String, String) {
    let c = w.workloads[name].status.condition(cond::NODES_RESERVED).cloned().unwrap_or_default();
    (c.status, c.reason, c.message)
}

/// A world with nodes of the flavor `fixed`, and none of `cloud`, for which an autoscaler adds some.
fn autoscaled(fixed: i64) -> Fixture {
    let queue = cluster_queue("c", &[("fixed", 8), ("cloud", 8)]);
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    w.autoscale("cloud");
    w.node_of("a", fixed, "fixed");
    w
}

#[test]
fn a_flavor_with_a_cluster_autoscaler_has_nodes_to_come() {
    let mut w = autoscaled(2);
    w.submit("first", 2, 1);
    assert_eq!(w.flavors("first"), ["fixed"]);
    assert!(nodes(&w, "first").0);
    w.submit("second", 2, 1);
    assert_eq!(w.flavors("second"), ["cloud"]);
    let (reserved, reason, message) = nodes(&w, "second");
    assert_eq!((reserved, &*reason), (false, "WaitingForProvisioning"), "{message}");
    assert!(
        message.contains("0/1 nodes are available") && message.ends_with("adds nodes of cloud"),
        "{message}"
    );
    // Its pods wait, so that the autoscaler sees them.
    assert_eq!(w.stuck.len(), 2);
    w.node_of("b", 2, "cloud");
    w.now += 600;
    w.run();
    assert!(w.bound.contains("second-0") && w.bound.contains("second-1"));
}

/// A node of the flavor `cloud` as an autoscaler adds them.
fn new_node(cpu: i64) -> Node {
    Node {
        name: "new/cloud".into(),
        labels: [("flavor".to_owned(), "cloud".to_owned())].into_iter().collect(),
        allocatable: [("cpu".to_owned(), cpu), ("pods".to_owned(), 110)].into(),
        ready: true,
        ..Node::default()
    }
}

#[test]
fn new_nodes_have_to_do_for_the_pods() {
    let mut w = autoscaled(1);
    w.autoscale_with("cloud", Some(new_node(4)));
    w.submit("large", 1, 5);
    let (reason, message) = w.reason("large");
    assert_eq!(reason, "WaitingForNodes", "{message}");
    assert!(message.contains("New nodes of cloud would not do: Insufficient cpu"), "{message}");
    // Two nodes, one after the other.
    w.submit("small", 2, 4);
    assert_eq!((w.admitted(), w.flavors("small")), (vec!["small"], vec!["cloud"]));
    assert_eq!(nodes(&w, "small").1, "WaitingForProvisioning");
    // Nothing is left of the nodes that were tried.
    w.submit("plain", 1, 1);
    assert_eq!(nodes(&w, "plain"), (true, "NodesReserved".into(), "main: a".into()));
}

#[test]
fn new_nodes_that_are_larger_are_waited_for_no_longer() {
    let mut w = autoscaled(1);
    w.autoscale_with("cloud", Some(new_node(4)));
    w.submit("large", 1, 5);
    assert!(w.admitted().is_empty());
    w.autoscale_with("cloud", Some(new_node(8)));
    assert_eq!(w.admitted(), ["large"]);
}

#[test]
fn podsets_of_other_flavors_still_need_nodes() {
    let mut queue = cluster_queue("c", &[("fixed", 8)]);
    let mut memory = cluster_queue("c", &[("cloud", 8)]).resource_groups.remove(0);
    memory.covered = vec!["memory".into()];
    memory.flavors[0].resources[0].resource = "memory".into();
    queue.resource_groups.push(memory);
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    w.autoscale("cloud");
    w.node_of("a", 2, "fixed");
    let mut elastic = pod_set("elastic", 1, 1);
    elastic.spec.containers[0].requests = [("memory".to_owned(), 1)].into();
    w.submit_to("c", "small", 0, vec![pod_set("main", 2, 1), elastic.clone()]);
    assert_eq!(w.admitted(), ["small"]);
    let (reserved, _, message) = nodes(&w, "small");
    assert!(reserved && message == "main: a*2", "{message}");
    w.submit_to("c", "large", 0, vec![pod_set("main", 3, 1), elastic]);
    assert_eq!(w.reason("large").0, "WaitingForNodes");
}
