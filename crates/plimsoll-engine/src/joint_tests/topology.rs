//! Topology requests: places that topology aware scheduling finds are tried with all filters.

use super::claims::Churn;
use super::preemption::preempting;
use crate::testing::{Fixture, cluster_queue, pod_set, spec};
use plimsoll_queueing::{ClusterQueue, Config, PodSet, TopologyRequest, cond};
use plimsoll_state::model::{ContainerPort, PodSpec};
use proptest::prelude::*;

fn with_port(mut spec: PodSpec) -> PodSpec {
    spec.containers[0].ports.push(ContainerPort { host_port: 80, ..ContainerPort::default() });
    spec
}

/// Pods that have to be in one rack; with a port, no two of them on one node.
fn in_a_rack(count: i32, cpu: i64, port: bool) -> PodSet {
    let set = pod_set("main", count, cpu);
    let spec = if port { with_port(set.spec) } else { set.spec };
    let topology = Some(TopologyRequest { required: Some("rack".into()), ..TopologyRequest::default() });
    PodSet { spec, topology, ..set }
}

/// Nodes `r<rack>-<number>` of the flavor `tas`, with these CPUs.
fn world_of(joint: bool, queue: ClusterQueue, racks: &[&[i64]]) -> Fixture {
    let mut w = Fixture::with_queues(joint, Config::default(), &[queue]);
    w.topology(&["tas"]);
    for (r, nodes) in racks.iter().enumerate() {
        for (n, cpu) in nodes.iter().enumerate() {
            w.node_in(&format!("r{r}"), &format!("r{r}-{n}"), *cpu, "tas");
        }
    }
    w
}

fn world(joint: bool, racks: &[&[i64]]) -> Fixture {
    world_of(joint, cluster_queue("c", &[("tas", 1_000)]), racks)
}

fn nodes_of<'w>(w: &'w Fixture, name: &str) -> Vec<&'w str> {
    let mut nodes: Vec<&str> = w.pods[name].iter().map(|p| p.spec.node_name.as_str()).collect();
    nodes.sort_unstable();
    nodes
}

/// By free capacity the first rack fits best, and one node of it takes all pods.
#[test]
fn places_that_do_not_pass_all_filters_are_replaced() {
    for joint in [false, true] {
        let mut w = world(joint, &[&[4, 4], &[4, 4, 4, 4]]);
        w.unmanaged("other", "r0-0", &with_port(spec(1)));
        w.submit_to("c", "gang", 0, vec![in_a_rack(3, 1, true)]);
        assert_eq!((w.admitted().len(), w.stuck.is_empty()), (1, joint), "{:?}", w.reason("gang"));
        if joint {
            let nodes = nodes_of(&w, "gang");
            assert!(nodes.iter().all(|n| n.starts_with("r1-")), "{nodes:?}");
            let condition = w.workloads["gang"].status.condition(cond::NODES_RESERVED).cloned();
            let condition = condition.unwrap_or_default();
            let on: Vec<&str> = nodes.iter().filter_map(|n| n.strip_prefix("r1-")).collect();
            let places = condition.message.replace("main: r1-[0-2]", "main: r1-[0,1,2]");
            assert_eq!((condition.status, places), (true, format!("main: r1-[{}]", on.join(","))));
        }
    }
}

#[test]
fn a_flavor_whose_topology_has_no_places_counts_as_one_without_capacity() {
    let queue = cluster_queue("c", &[("tas", 1_000), ("more", 1_000)]);
    let mut w = world_of(true, queue, &[&[4, 4]]);
    w.topology(&["tas", "more"]);
    w.unmanaged("other", "r0-0", &with_port(spec(1)));
    w.submit_to("c", "gang", 0, vec![in_a_rack(2, 1, true)]);
    let (reason, message) = w.reason("gang");
    assert_eq!(reason, "WaitingForNodes");
    for part in [
        "couldn't place all pods in flavor tas: 0/2 nodes are available: ",
        "couldn't place all pods in flavor more: 0/2 nodes are available: ",
    ] {
        assert!(message.contains(part), "{message}");
    }
    for n in 0..2 {
        w.node_in("r1", &format!("r1-{n}"), 4, "more");
    }
    assert_eq!((w.flavors("gang"), w.stuck.len()), (vec!["more"], 0));
    assert_eq!(nodes_of(&w, "gang"), ["r1-0", "r1-1"]);
}

/// All pods pass somewhere in the flavor, and not together in one rack.
#[test]
fn the_message_names_filters_and_topology() {
    let mut w = world(true, &[&[4, 4], &[4, 4]]);
    w.unmanaged("other", "r0-0", &with_port(spec(1)));
    w.unmanaged("third", "r1-0", &with_port(spec(1)));
    w.submit_to("c", "gang", 0, vec![in_a_rack(2, 1, true)]);
    let (reason, message) = w.reason("gang");
    assert_eq!(reason, "WaitingForNodes");
    for part in [
        "couldn't place all pods in flavor tas: 0/4 nodes are available: ",
        "didn't have free ports for the requested pod ports",
        "Beside these, topology \"t\" allows to fit only 1 out of 2 pod(s)",
        "filters of the scheduler: 2",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// Every second node of the rack has its port taken by a workload of a lower priority, and quota is enough for all.
#[test]
fn victims_are_those_that_leave_places_that_pass_all_filters() {
    let mut w = world_of(true, preempting("c", &[("tas", 1_000)]), &[&[4, 4], &[4]]);
    w.submit_to("c", "port", 0, vec![in_a_rack(2, 1, true)]);
    assert_eq!(nodes_of(&w, "port"), ["r0-0", "r0-1"]);
    w.submit_to("c", "other", 0, vec![in_a_rack(1, 1, false)]);
    w.submit_to("c", "gang", 10, vec![in_a_rack(2, 1, true)]);
    assert_eq!((&*w.preempted, w.stuck.len()), (&["port".to_owned()][..], 0), "{:?}", w.reason("gang"));
    assert_eq!(nodes_of(&w, "gang"), ["r0-0", "r0-1"]);
}

/// Racks that never have four CPUs free at once have them for the gang that claims one.
#[test]
fn a_gang_claims_a_rack() {
    for claims in [false, true] {
        let overtaking = if claims { 0 } else { 1_000 };
        let config = Config { overtaking, ..Config::default() };
        let mut c = Churn::with(true, config, &[cluster_queue("c", &[("tas", 1_000)])], &[]);
        c.w.topology(&["tas"]);
        for name in ["r0-0", "r0-1", "r1-0", "r1-1"] {
            c.w.node_in(&name[..2], name, 2, "tas");
        }
        for _ in 0..8 {
            c.single("c", 1);
        }
        assert_eq!((c.running.len(), c.w.stuck.len()), (8, 0));
        c.w.submit_to("c", "gang", 0, vec![in_a_rack(4, 1, false)]);
        let mut finished = 0;
        while finished < 12 && !c.is_admitted("gang") {
            c.single("c", 1);
            c.finish_one();
            finished += 1;
        }
        assert_eq!(c.is_admitted("gang"), claims, "{:?}", c.w.reason("gang"));
        assert!(!claims || finished <= 8, "all that ran have left after 8: {finished}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// A gang is admitted if and only if there is a rack with a node for each of its pods, beside the port of one another and of
    /// pods that no queue manages; then all of them are bound.
    #[test]
    fn gangs_are_admitted_where_a_rack_takes_all_pods(
        racks in prop::collection::vec(prop::collection::vec((1i64..6, any::<bool>()), 1..5), 1..4),
        gang in (1i32..7, 1i64..3, any::<bool>()),
    ) {
        let (count, cpu, port) = gang;
        let mut w = world(true, &[]);
        let mut most = 0;
        for (r, nodes) in racks.iter().enumerate() {
            let mut takes = 0;
            for (n, (cpus, taken)) in nodes.iter().enumerate() {
                let name = format!("r{r}-{n}");
                w.node_in(&format!("r{r}"), &name, *cpus, "tas");
                if *taken {
                    w.unmanaged(&format!("u{r}-{n}"), &name, &with_port(spec(1)));
                }
                let free = (cpus - i64::from(*taken)) / cpu;
                takes += if port { free.min(i64::from(!taken)) } else { free };
            }
            most = most.max(takes);
        }
        w.submit_to("c", "gang", 0, vec![in_a_rack(count, cpu, port)]);
        let fits = most >= i64::from(count);
        prop_assert_eq!(!w.admitted().is_empty(), fits, "{:?}", w.reason("gang"));
        prop_assert_eq!((w.bound.len(), w.stuck.len()), (if fits { usize::try_from(count).unwrap_or(0) } else { 0 }, 0));
    }

    /// Once all that ran when it came have left, the first workload that waits for a rack has started, whatever came later.
    #[test]
    fn waiting_for_a_rack_is_bounded(
        racks in prop::collection::vec(prop::collection::vec(1i64..4, 1..4), 1..4),
        before in 0usize..12,
        gang in (1i32..6, 1i64..3, any::<bool>()),
        later in prop::collection::vec(1i64..3, 1..12),
    ) {
        let (count, cpu, port) = gang;
        let config = Config { overtaking: 0, ..Config::default() };
        let mut c = Churn::with(true, config, &[cluster_queue("c", &[("tas", 1_000)])], &[]);
        c.w.topology(&["tas"]);
        let mut most = 0;
        for (r, nodes) in racks.iter().enumerate() {
            for (n, cpus) in nodes.iter().enumerate() {
                c.w.node_in(&format!("r{r}"), &format!("r{r}-{n}"), *cpus, "tas");
            }
            let takes = |cpus: &i64| if port { (cpus / cpu).min(1) } else { cpus / cpu };
            most = most.max(nodes.iter().map(takes).sum());
        }
        for i in 0..before {
            c.single("c", later[i % later.len()]);
        }
        c.w.submit_to("c", "gang", 7, vec![in_a_rack(count, cpu, port)]);
        let ran = c.running.len();
        for turn in 0..ran {
            c.single("c", later[turn % later.len()]);
            c.finish_one();
        }
        prop_assert_eq!(c.is_admitted("gang"), most >= i64::from(count), "{:?}", c.w.reason("gang"));
        prop_assert!(c.w.stuck.is_empty(), "{:?}", c.w.stuck);
    }
}
