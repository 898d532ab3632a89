//! A fixed amount of placement for `cargo xtask instructions`: the same nodes and pods in every run, no clock, no
//! randomness. Says how many pods got a node.
//!
//!     placement_work WORKLOAD NODES PODS

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program for measuring")]

use plimsoll_scheduler::{Action, Config, Event, Scheduler};
use plimsoll_state::ClusterObject;
use plimsoll_state::model::{
    Container, LabelSelector, Node, Operator, Pod, PodAffinity, PodAffinityTerm, PodSpec, Requirement,
    SpreadConstraint, UnsatisfiableAction,
};
use plimsoll_state::{ObjectEvent, Time};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn node(i: usize) -> ObjectEvent {
    let name = format!("node-{i}");
    let mut node = Node { name: name.clone(), uid: name.clone(), ready: true, ..Node::default() };
    node.allocatable.insert("cpu".into(), 4000);
    node.allocatable.insert("memory".into(), 32 << 30);
    node.allocatable.insert("pods".into(), 110);
    node.labels.insert(HOST.into(), name);
    node.labels.insert(ZONE.into(), format!("zone-{}", i % 3));
    node.labels.insert("gen".into(), format!("g{}", i % 7));
    ObjectEvent::NodeUpsert(Box::new(node))
}

fn pod(i: usize, cpu: i64) -> Pod {
    let mut container = Container { name: "c".into(), image: "pause:3.10".into(), ..Container::default() };
    container.requests.insert("cpu".into(), cpu);
    container.requests.insert("memory".into(), 500 << 20);
    let spec = PodSpec {
        scheduler_name: "default-scheduler".into(),
        containers: vec![container],
        ..PodSpec::default()
    };
    let mut pod =
        Pod { uid: format!("u{i}"), namespace: "ns".into(), name: format!("p{i}"), ..Pod::default() };
    pod.spec = spec;
    pod.labels.insert("app".into(), "a".into());
    pod
}

fn selector() -> LabelSelector {
    let own = Requirement { key: "app".into(), operator: Operator::In, values: vec!["a".into()] };
    LabelSelector { requirements: vec![own] }
}

fn together(key: &str) -> Option<PodAffinity> {
    let term = PodAffinityTerm {
        selector: Some(selector()),
        topology_key: key.into(),
        ..PodAffinityTerm::default()
    };
    Some(PodAffinity { required: vec![term], preferred: Vec::new() })
}

/// Pod number `i` of a workload.
fn kind(workload: &str, i: usize) -> Pod {
    let mut one = pod(i, 100);
    match workload {
        "basic" | "default-spread" => {}
        "shapes" => {
            one = pod(i, 50 + (i % 40) as i64);
            one.spec.node_selector.insert("gen".into(), format!("g{}", i % 7));
        }
        "anti-affinity" => one.spec.affinity.anti = together(HOST),
        "affinity" => one.spec.affinity.pod = together(ZONE),
        "spread" => {
            one.spec.spread.push(SpreadConstraint {
                max_skew: 5,
                topology_key: ZONE.into(),
                when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
                selector: Some(selector()),
                min_domains: None,
                honor_node_affinity: true,
                honor_node_taints: false,
                match_label_keys: Vec::new(),
            });
        }
        "churn" if i % 2 == 1 => {
            one = pod(i, 9000);
            one.spec.priority = 10;
        }
        "churn" => {}
        "preemption" => {
            one = pod(i, 3000);
            one.spec.priority = 10;
        }
        other => panic!("no workload {other:?}"),
    }
    one
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, workload, nodes, pods] = args.as_slice() else { panic!("placement_work WORKLOAD NODES PODS") };
    let (nodes, pods): (usize, usize) = (nodes.parse().unwrap(), pods.parse().unwrap());
    let mut place = Scheduler::new(Config::default());
    let now = Time::from_seconds(1_000_000);
    (0..nodes).for_each(|i| place.handle_object(now, &node(i)));
    if workload == "default-spread" {
        let selector = [("app".to_owned(), "a".to_owned())].into();
        let service = ClusterObject::Service { namespace: "ns".into(), name: "s".into(), selector };
        place.handle_object(now, &ObjectEvent::ObjectUpsert(Box::new(service)));
    }
    if workload == "preemption" {
        for i in 0..nodes * 4 {
            let mut low = pod(1_000_000 + i, 900);
            low.spec.node_name = format!("node-{}", i % nodes);
            place.handle_object(now, &ObjectEvent::PodUpsert(Box::new(low)));
        }
    }
    let mut placed = 0;
    let mut answers = Vec::new();
    for i in 0..pods {
        place.handle_object(now, &ObjectEvent::PodUpsert(Box::new(kind(workload, i))));
        // The second round is for pods that come back when their victims have gone.
        for _ in 0..2 {
            place.decide(now, &mut |action| match action {
                Action::Bind { pod, node } => answers.push((pod.uid, Some(node))),
                Action::Preempt { victim, .. } => answers.push((victim.uid, None)),
                _ => {}
            });
            for (uid, node) in answers.drain(..) {
                let Some(node) = node else {
                    place.handle_object(now, &ObjectEvent::PodDelete(uid));
                    continue;
                };
                placed += 1;
                let mut bound = kind(workload, uid[1..].parse().unwrap());
                bound.spec.node_name = node;
                place.handle(now, Event::Bound(uid));
                place.handle_object(now, &ObjectEvent::PodUpsert(Box::new(bound)));
            }
        }
    }
    println!("{placed} of {pods} pods placed");
}
