//! How many decisions per second placement makes, in process: `cargo run --release -p plimsoll-core --example
//! placement -- [workload] [nodes] [pods]`. Workloads: `basic`, `shapes`, `churn`, `anti`, `spread`, `preempt`.

#![allow(clippy::print_stdout, reason = "the figures are the purpose")]

use plimsoll_core::Time;
use plimsoll_core::model::{
    Container, LabelSelector, Node, Operator, Pod, PodAffinity, PodAffinityTerm, PodSpec, Requirement,
    SpreadConstraint, Taint, TaintEffect, UnsatisfiableAction,
};
use plimsoll_core::place::{Action, Config, Event, Placement};
use std::time::Instant;

const GI: i64 = 1 << 30;

fn node(i: usize, workload: &str) -> Event {
    let mut n = Node { name: format!("node-{i:06}"), uid: format!("n{i}"), ready: true, ..Node::default() };
    n.labels.insert("kubernetes.io/hostname".into(), n.name.clone());
    n.labels.insert("topology.kubernetes.io/zone".into(), format!("zone-{}", i % 3));
    n.labels.insert("gen".into(), format!("g{}", i % 7));
    let size = if workload == "shapes" { 1 + i as i64 % 4 } else { 1 };
    n.allocatable.insert("cpu".into(), 4000 * size);
    n.allocatable.insert("memory".into(), 32 * GI * size);
    n.allocatable.insert("pods".into(), 110);
    if workload == "shapes" && i.is_multiple_of(5) {
        let effect = TaintEffect::PreferNoSchedule;
        n.taints.push(Taint { key: "slow".into(), value: String::new(), effect });
    }
    Event::NodeUpsert(Box::new(n))
}

fn selector(key: &str, value: &str) -> LabelSelector {
    let (key, values) = (key.into(), vec![value.into()]);
    LabelSelector { requirements: vec![Requirement { key, operator: Operator::In, values }] }
}

fn pod(i: usize, workload: &str, measured: bool) -> Pod {
    let mut c = Container { name: "c".into(), image: "pause:3".into(), ..Container::default() };
    let (mut cpu, mut memory) = (100, 500 << 20);
    if workload == "shapes" {
        cpu = 50 + 10 * (i as i64 % 20);
        memory = (100 + 20 * (i as i64 % 10)) << 20;
    }
    if workload == "preempt" {
        cpu = if measured { 3000 } else { 900 };
    }
    if workload == "churn" && measured && i.is_multiple_of(2) {
        cpu = 9000;
    }
    c.requests.insert("cpu".into(), cpu);
    c.requests.insert("memory".into(), memory);
    let mut spec =
        PodSpec { scheduler_name: "default-scheduler".into(), containers: vec![c], ..PodSpec::default() };
    spec.priority = if workload == "preempt" && measured { 10 } else { 0 };
    let term = |key: &str| PodAffinityTerm {
        selector: Some(selector("color", "green")),
        topology_key: key.into(),
        ..PodAffinityTerm::default()
    };
    let both = |key: &str| PodAffinity { required: vec![term(key)], preferred: Vec::new() };
    match workload {
        "anti" => spec.affinity.anti = Some(both("kubernetes.io/hostname")),
        "affinity" => spec.affinity.pod = Some(both("topology.kubernetes.io/zone")),
        "spread" => spec.spread.push(SpreadConstraint {
            max_skew: 5,
            topology_key: "topology.kubernetes.io/zone".into(),
            when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
            selector: Some(selector("color", "green")),
            min_domains: None,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Vec::new(),
        }),
        _ => {}
    }
    let mut pod = Pod {
        uid: format!("uid-{measured}-{i}"),
        namespace: "bench".into(),
        name: format!("pod-{measured}-{i}"),
        spec,
        ..Pod::default()
    };
    pod.labels.insert("color".into(), "green".into());
    if workload == "shapes" {
        pod.spec.node_selector.insert("gen".into(), format!("g{}", i % 7));
    }
    pod
}

fn drain(p: &mut Placement, now: Time) -> (usize, usize, usize) {
    let (mut bound, mut rejected, mut victims) = (0, 0, 0);
    loop {
        let mut any = false;
        p.decide(now, &mut |a| {
            any = true;
            match a {
                Action::Bind { .. } => bound += 1,
                Action::Unschedulable { .. } => rejected += 1,
                Action::Preempt { .. } => victims += 1,
                _ => {}
            }
        });
        if !any {
            return (bound, rejected, victims);
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let workload = args.first().map_or("basic", String::as_str);
    let number = |i: usize, default| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (nodes, pods): (usize, usize) = (number(1, 5000), number(2, 50_000));
    let mut p = Placement::new(Config::default());
    let now = Time::from_seconds(1000);
    for i in 0..nodes {
        p.absorb(now, node(i, workload));
    }
    if workload == "preempt" {
        for i in 0..4 * nodes {
            let mut low = pod(i, workload, false);
            low.spec.node_name = format!("node-{:06}", i % nodes);
            p.absorb(now, Event::PodUpsert(Box::new(low)));
        }
    }
    let start = Instant::now();
    for i in 0..pods {
        p.absorb(now, Event::PodUpsert(Box::new(pod(i, workload, true))));
    }
    let absorbed = start.elapsed();
    let start = Instant::now();
    let (bound, rejected, victims) = drain(&mut p, now);
    let spent = start.elapsed().as_secs_f64();
    println!(
        "{workload}: {nodes} nodes, {pods} pods: {bound} bound, {rejected} rejected, {victims} victims; absorbed in \
         {:.2} s, decided in {spent:.3} s: {:.0} decisions/s",
        absorbed.as_secs_f64(),
        (bound + rejected) as f64 / spent
    );
}
