//! Nodes as a part of flavor assignment.

use crate::testing::{Fixture, cluster_queue, pod_set};
use plimsoll_queueing::{ClusterQueue, Config, PodSet};

/// Two flavors in this order, with quota for 9 CPUs and nodes with these CPUs each.
fn world(joint: bool, on_demand: i64, spot: i64) -> Fixture {
    let queue = cluster_queue("c", &[("on-demand", 9), ("spot", 9)]);
    let mut w = Fixture::with_queues(joint, Config::default(), &[queue]);
    w.node_of("a", on_demand, "on-demand");
    w.node_of("b", spot, "spot");
    w
}

/// Kueue's example of shared quota on two nodes of 8 CPUs: jobs of three pods with 1 CPU each.
#[test]
fn a_flavor_without_nodes_counts_as_one_without_quota() {
    for joint in [false, true] {
        let mut w = world(joint, 8, 8);
        for i in 0..5 {
            w.submit(&format!("w{i}"), 3, 1);
        }
        let running = w
            .workloads
            .keys()
            .filter(|n| w.pods.get(*n).is_some_and(|p| p.iter().all(|p| w.bound.contains(&p.uid))));
        assert_eq!(running.count(), 4, "two on each node");
        if joint {
            assert_eq!((w.admitted().len(), w.stuck.len()), (4, 0));
            let (reason, message) = w.reason("w4");
            assert_eq!(reason, "WaitingForNodes");
            let part = "couldn't place all pods in flavor spot: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match \
                        Pod's node affinity/selector.";
            assert!(message.contains(part), "{message}");
        } else {
            assert!(!w.stuck.is_empty(), "quota for six");
        }
    }
}

#[test]
fn the_message_names_quota_and_nodes() {
    let queue = cluster_queue("c", &[("on-demand", 9), ("spot", 1)]);
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    w.node_of("a", 1, "on-demand");
    w.submit("w", 2, 1);
    let (reason, message) = w.reason("w");
    assert_eq!(reason, "WaitingForNodes");
    assert_eq!(
        message,
        "couldn't assign flavors to pod set main: couldn't place all pods in flavor on-demand: 0/1 nodes are \
         available: 1 Insufficient cpu., insufficient quota for cpu in flavor spot, previously considered podsets \
         requests (0) + current podset request (2m) > maximum capacity (1m)"
    );
}

#[test]
fn podsets_share_nodes_or_get_different_flavors() {
    let mut w = world(true, 4, 4);
    w.submit_to("c", "w", 0, vec![pod_set("driver", 1, 1), pod_set("workers", 2, 2)]);
    assert_eq!(w.flavors("w"), ["on-demand", "spot"], "beside the driver there are 3 CPUs");
    assert_eq!((w.bound.len(), w.stuck.len()), (3, 0));
    w.submit_to("c", "x", 0, vec![pod_set("driver", 1, 1), pod_set("workers", 2, 1)]);
    assert_eq!(w.flavors("x"), ["on-demand", "on-demand"]);
    assert_eq!((w.bound.len(), w.stuck.len()), (6, 0));
}

#[test]
fn fewer_pods_are_admitted_where_fewer_fit_on_nodes() {
    let mut w = world(true, 2, 3);
    let set = PodSet { min_count: Some(2), ..pod_set("main", 5, 1) };
    w.submit_to("c", "w", 0, vec![set]);
    assert_eq!((w.flavors("w"), w.bound.len(), w.stuck.len()), (vec!["spot"], 3, 0));
}

/// A second workload in the same cycle takes what the first left, or waits for the next one.
#[test]
fn entries_of_one_cycle_do_not_share_a_node() {
    let queues: Vec<ClusterQueue> =
        ["c", "d", "e"].map(|name| cluster_queue(name, &[("on-demand", 9), ("spot", 9)])).into();
    let mut w = Fixture::with_queues(true, Config::default(), &queues);
    for queue in ["c", "d", "e"] {
        w.submit_to(queue, queue, 0, vec![pod_set("main", 2, 1)]);
    }
    w.node_of("a", 2, "on-demand");
    assert_eq!(w.admitted().len(), 1);
    w.node_of("b", 3, "spot");
    assert_eq!((w.admitted().len(), w.bound.len(), w.stuck.len()), (2, 4, 0));
}
