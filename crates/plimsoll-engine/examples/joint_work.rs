//! What trials of joint admission cost, in microseconds:
//!
//!     joint_work gang NODES PODS
//!     joint_work topology NODES PODS
//!     joint_work victims NODES PODS
//!     joint_work queue NODES WORKLOADS SHAPES
//!
//! `gang` tries a gang of pods on nodes of which half have pods already: where all fit, where one doesn't, and where none
//! does. `topology` submits a gang to the engine, which asks for places in a topology, and prints what the decision takes:
//! where a rack takes all pods, where a filter allows one pod on a node, and where no rack passes the filters. `victims` does
//! so on nodes that are full of workloads of a lower priority, with and without a topology. `queue` lets workloads of several
//! shapes wait for full nodes in one queue, ends one after the other, and prints the steps of the engine that follow: trials,
//! admission and placement together.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for measuring")]

#[path = "../src/testing.rs"]
#[allow(dead_code, clippy::panic, reason = "the fixture of the tests, of which this uses a part")]
mod testing;

use std::time::Instant;

use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{PodSet, PreemptionPolicy, TopologyRequest, WorkloadKey};
use plimsoll_scheduler::Scheduler;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{ContainerPort, Node, Pod};
use plimsoll_state::time::{Duration, Time};
use testing::{Fixture, cluster_queue, pod_set, spec};

fn node(i: usize, cpu: i64) -> Node {
    let name = format!("node-{i}");
    let mut n = Node { uid: name.clone(), name: name.clone(), ready: true, ..Node::default() };
    n.labels.insert("kubernetes.io/hostname".into(), name);
    n.labels.insert("topology.kubernetes.io/zone".into(), format!("zone-{}", i % 3));
    n.allocatable.insert("cpu".into(), cpu);
    n.allocatable.insert("pods".into(), 110);
    n
}

fn pod(workload: &str, i: usize, cpu: i64) -> Pod {
    testing::pod(workload, i, &spec(cpu))
}

/// The median of some runs, in microseconds.
fn median(mut run: impl FnMut() -> u128) -> u128 {
    let mut took: Vec<u128> = (0..21).map(|_| run()).collect();
    took.sort_unstable();
    took[took.len() / 2]
}

fn gang(nodes: usize, pods: usize) {
    let mut scheduler = Scheduler::new(plimsoll_scheduler::Config::default());
    let now = Time::from_seconds(1);
    for i in 0..nodes {
        scheduler.handle_object(now, &ObjectEvent::NodeUpsert(Box::new(node(i, 8_000))));
    }
    // On every second node something runs.
    for i in (0..nodes).step_by(2) {
        let mut pod = pod("other", i, 3_000);
        pod.spec.node_name = format!("node-{i}");
        scheduler.handle_object(now, &ObjectEvent::PodUpsert(Box::new(pod)));
    }
    let key = WorkloadKey { namespace: "n".into(), name: "gang".into() };
    // Each of the other nodes has a place for one pod of eight CPUs.
    let places = nodes / 2;
    for (what, cpu, count) in [
        ("all fit", 1_000, pods),
        ("all fit, one on each node", 8_000, pods.min(places)),
        ("one does not fit", 8_000, places + 1),
        ("none fits", 9_000, pods),
    ] {
        let like = pod("gang", 0, cpu);
        let mut trial = || {
            let start = Instant::now();
            let (run, failure) = scheduler.dry_run(now, &key, &[(like.clone(), count)]);
            scheduler.end_dry_run(run);
            assert_eq!(failure.is_none(), what.starts_with("all"), "{failure:?}");
            start.elapsed().as_micros()
        };
        let first = trial();
        println!("{what}: {count} pods on {nodes} nodes, first {first} us, then {} us", median(trial));
    }
}

/// Steps until nothing more is asked for; the times of all steps, in microseconds.
fn run(w: &mut Fixture) -> Vec<u128> {
    let mut took = Vec::new();
    w.run_with(usize::MAX, |engine, now, events, actions| {
        let start = Instant::now();
        engine.step(now, events, actions);
        took.push(start.elapsed().as_micros());
    });
    took
}

/// Nodes in racks of 250, in the flavor `tas` that has a topology.
fn racks(nodes: usize, queue: &plimsoll_queueing::ClusterQueue) -> Fixture {
    let mut w = Fixture::with_queues(true, plimsoll_queueing::Config::default(), std::slice::from_ref(queue));
    w.topology(&["tas"]);
    for i in 0..nodes {
        let mut n = node(i, 8_000);
        n.ready_since = Some(Time::from_seconds(0));
        n.labels.insert("flavor".into(), "tas".into());
        n.labels.insert("rack".into(), format!("rack-{}", i / 250));
        w.create_node(n);
    }
    run(&mut w);
    w
}

/// A gang that asks for places; `port`: its pods have a host port, so that each needs a node of its own.
fn gang_of(pods: usize, topology: Option<&TopologyRequest>, port: bool) -> PodSet {
    let mut set = pod_set("main", i32::try_from(pods).unwrap(), 1_000);
    if port {
        let port = ContainerPort { host_port: 80, ..ContainerPort::default() };
        set.spec.containers[0].ports.push(port);
    }
    PodSet { topology: topology.cloned(), ..set }
}

fn rack(required: bool) -> TopologyRequest {
    let rack = Some("rack".to_owned());
    match required {
        true => TopologyRequest { required: rack, ..TopologyRequest::default() },
        false => TopologyRequest { preferred: rack, ..TopologyRequest::default() },
    }
}

/// The step that decides about a gang, and the longest of those after it: its pods come and get their nodes. In microseconds.
fn submitted(w: &mut Fixture, name: &str, priority: i32, set: PodSet) -> (u128, u128) {
    w.create("c", name, priority, vec![set]);
    w.announce(name);
    let took = run(w);
    (took.first().copied().unwrap_or(0), took.into_iter().skip(1).max().unwrap_or(0))
}

fn topology(nodes: usize, pods: usize) {
    let mut w = racks(nodes, &cluster_queue("c", &[("tas", 1_000_000_000)]));
    for (what, required, port) in [
        ("a rack takes all", true, false),
        ("several racks, one pod on each node", false, true),
        ("no rack passes the filters", true, true),
    ] {
        let mut took = Vec::new();
        for i in 0..5 {
            let name = format!("gang-{i}");
            took.push(submitted(&mut w, &name, 0, gang_of(pods, Some(&rack(required)), port)));
            assert_eq!(w.admitted().is_empty(), what.starts_with("no"), "{:?}", w.reason(&name));
            w.end(&name);
            run(&mut w);
        }
        let first = took[0].0;
        let after = took.iter().map(|(_, after)| after).max().unwrap_or(&0);
        let mut decided: Vec<u128> = took.iter().map(|(decided, _)| *decided).collect();
        decided.sort_unstable();
        println!(
            "{what}: {pods} pods on {nodes} nodes, decided in {first} us, then in {} us; longest step after it {after} us",
            decided[2]
        );
    }
}

fn victims(nodes: usize, pods: usize) {
    for (what, request) in
        [("no topology", None), ("preferred rack", Some(rack(false))), ("required rack", Some(rack(true)))]
    {
        let mut queue = cluster_queue("c", &[("tas", 1_000_000_000)]);
        queue.preemption.within_cluster_queue = PreemptionPolicy::LowerPriority;
        let mut w = racks(nodes, &queue);
        for i in 0..nodes {
            let name = format!("low-{i:06}");
            w.create("c", &name, 0, vec![gang_of(8, request.as_ref(), false)]);
            w.announce(&name);
        }
        run(&mut w);
        let took = submitted(&mut w, "gang", 10, gang_of(pods, request.as_ref(), false));
        let n = w.preempted.len();
        let (decided, after) = took;
        println!(
            "{what}: {pods} pods on {nodes} full nodes, decided in {decided} us, longest step after it {after} us, {n} preempted"
        );
        assert!(w.admitted().contains(&"gang"), "{:?}", w.reason("gang"));
    }
}

fn queue(nodes: usize, workloads: usize, shapes: usize) {
    let queueing = plimsoll_queueing::Config {
        explain_every: Duration::from_seconds(10),
        ..plimsoll_queueing::Config::default()
    };
    let mut w = Fixture::with_queues(true, queueing, &[cluster_queue("c", &[("f", 1_000_000_000)])]);
    (w.now, w.tick) = (w.now * 1_000, Duration::from_millis(1));
    (0..nodes).for_each(|i| w.create_node(node(i, 8_000)));
    run(&mut w);
    for i in 0..workloads {
        let shape = i % shapes;
        let (count, cpu) = (1 + shape % 10, 500 + 100 * i64::try_from(shape / 10).unwrap());
        let name = format!("w{i:06}");
        w.create("c", &name, 0, vec![pod_set("main", i32::try_from(count).unwrap(), cpu)]);
        w.announce(&name);
    }
    let started = Instant::now();
    let first = run(&mut w);
    println!("start: {} of {workloads} admitted in {} ms", w.started.len(), started.elapsed().as_millis());
    println!("start: longest step {} us of {}", first.iter().max().unwrap(), first.len());
    let (mut took, before) = (Vec::new(), w.started.len());
    for ended in 0..500 {
        if let Some(name) = w.started.get(ended).cloned() {
            w.end(&name);
        }
        took.extend(run(&mut w));
    }
    let admitted = w.started.len() - before;
    took.sort_unstable();
    let (n, sum) = (took.len(), took.iter().sum::<u128>());
    println!("500 ended, {admitted} admitted in {n} steps, {} us for each", sum / 500);
    println!("steps: P50 {} us, P99 {} us, longest {} us", took[n / 2], took[n * 99 / 100], took[n - 1]);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    match (args.first().map(String::as_str), number(1), number(2), number(3)) {
        (Some("gang"), Some(nodes), Some(pods), _) => gang(nodes, pods),
        (Some("topology"), Some(nodes), Some(pods), _) => topology(nodes, pods),
        (Some("victims"), Some(nodes), Some(pods), _) => victims(nodes, pods),
        (Some("queue"), Some(nodes), Some(workloads), Some(shapes)) => queue(nodes, workloads, shapes),
        _ => println!(
            "usage: joint_work gang|topology|victims NODES PODS | joint_work queue NODES WORKLOADS SHAPES"
        ),
    }
}
