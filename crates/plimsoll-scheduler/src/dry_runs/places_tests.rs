//! Pods at places together, and one by one.

use crate::cluster::NodeId;
use crate::testing::pod_of_workload as pod;
use crate::{Config, Scheduler};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{
    LabelSelector, Node, Operator, PodAffinity, PodAffinityTerm, Requirement, Taint, TaintEffect, WorkloadKey,
};
use plimsoll_state::reservation::{DryRunFailure, PodsAt};
use plimsoll_state::time::Time;
use proptest::prelude::*;
use std::sync::LazyLock;

const NOW: Time = Time::from_seconds(1);
const HOSTNAME: &str = "kubernetes.io/hostname";

static LEVELS: LazyLock<[String; 2]> = LazyLock::new(|| ["rack".into(), HOSTNAME.into()]);

/// What is odd about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Nothing,
    Tainted,
    /// The label with its name is that of another one.
    Renamed,
    OtherRack,
    /// A pod of a high priority is nominated to it.
    Nominated,
    PortTaken,
}

/// What is odd about the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Port,
    /// One on each node, by anti-affinity: they depend on each other.
    Apart,
    OtherScheduler,
}

fn any_odd() -> impl Strategy<Value = Odd> {
    prop_oneof![
        8 => Just(Odd::Nothing),
        1 => Just(Odd::Tainted),
        1 => Just(Odd::Renamed),
        1 => Just(Odd::OtherRack),
        1 => Just(Odd::Nominated),
        2 => Just(Odd::PortTaken),
    ]
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Plain),
        4 => Just(Kind::Port),
        1 => Just(Kind::Apart),
        1 => Just(Kind::OtherScheduler),
    ]
}

fn rack(i: usize) -> String {
    format!("rack-{}", i / 3)
}

fn cluster(nodes: &[(i64, Odd)]) -> Scheduler {
    let mut scheduler = Scheduler::new(Config::default());
    for (i, (cpu, odd)) in nodes.iter().enumerate() {
        let name = format!("node-{i}");
        let mut node = Node { uid: name.clone(), name: name.clone(), ready: true, ..Node::default() };
        node.allocatable.insert("cpu".into(), *cpu);
        node.allocatable.insert("pods".into(), 5);
        let hostname = if *odd == Odd::Renamed { "node-0".to_owned() } else { name.clone() };
        node.labels.insert(HOSTNAME.into(), hostname);
        node.labels.insert("rack".into(), if *odd == Odd::OtherRack { "other".into() } else { rack(i) });
        if *odd == Odd::Tainted {
            let taint = Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoSchedule };
            node.taints.push(taint);
        }
        scheduler.handle_object(NOW, &ObjectEvent::NodeUpsert(Box::new(node)));
        let mut there = pod(&format!("there-{i}"), 1, *odd == Odd::PortTaken);
        match odd {
            Odd::PortTaken => there.spec.node_name.clone_from(&name),
            Odd::Nominated => {
                there.status.nominated_node_name.clone_from(&name);
                there.spec.priority = 10;
            }
            _ => continue,
        }
        scheduler.handle_object(NOW, &ObjectEvent::PodUpsert(Box::new(there)));
    }
    scheduler
}

/// Pods of a kind with places of so many on nodes.
fn at(kind: Kind, cpu: i64, places: &[(usize, i32)]) -> PodsAt<'static> {
    let mut pod = pod("gang", cpu, kind == Kind::Port);
    pod.labels.insert("app".into(), "gang".into());
    match kind {
        Kind::Apart => {
            let requirement =
                Requirement { key: "app".into(), operator: Operator::In, values: vec!["gang".into()] };
            let selector = LabelSelector { requirements: vec![requirement] };
            let term = PodAffinityTerm {
                selector: Some(selector),
                topology_key: HOSTNAME.into(),
                ..PodAffinityTerm::default()
            };
            pod.spec.affinity.anti = Some(PodAffinity { required: vec![term], preferred: Vec::new() });
        }
        Kind::OtherScheduler => pod.spec.scheduler_name = "other".into(),
        Kind::Plain | Kind::Port => {}
    }
    let place = |(node, count): &(usize, i32)| (vec![rack(*node), format!("node-{node}")], *count);
    PodsAt { pod, levels: LEVELS.as_slice(), places: places.iter().map(place).collect() }
}

fn key() -> WorkloadKey {
    WorkloadKey { namespace: "n".into(), name: "gang".into() }
}

/// Nodes of the rows, how many of each place, and the failure.
type Outcome = (Vec<NodeId>, Vec<usize>, Option<DryRunFailure>);

fn outcome(scheduler: &mut Scheduler, pods: &[PodsAt<'_>], how: (bool, bool), one_by_one: bool) -> Outcome {
    scheduler.ranks.off = one_by_one;
    let (run, placed, failure) = scheduler.dry_run_each(NOW, &key(), pods, how);
    let rows = scheduler.dry_runs.get(run).map(|r| r.rows.iter().map(|(node, _)| *node).collect());
    // The shapes of pods that moved are those that each has by itself.
    let fits = scheduler.restore_dry_run(run, false);
    scheduler.lift_dry_run(run);
    assert!(fits && scheduler.restore_dry_run(run, !one_by_one && failure.is_none()));
    scheduler.end_dry_run(run);
    scheduler.check();
    (rows.unwrap_or_default(), placed, failure)
}

proptest! {
    #[test]
    fn pods_at_places_are_placed_as_one_by_one(
        nodes in prop::collection::vec((1i64..6, any_odd()), 1..8),
        kinds in prop::collection::vec((any_kind(), 1i64..3), 1..3),
        places in prop::collection::vec(prop::collection::vec((0usize..9, 0i32..4), 0..8), 2),
        explain in any::<bool>(),
        alone in any::<bool>(),
    ) {
        let sets: Vec<PodsAt<'_>> = kinds.iter().zip(&places).map(|((kind, cpu), p)| at(*kind, *cpu, p)).collect();
        let mut scheduler = cluster(&nodes);
        let (rows, placed, failure) = outcome(&mut scheduler, &sets, (alone, explain), false);
        let each = outcome(&mut scheduler, &sets, (alone, true), true);
        prop_assert_eq!((rows, placed), (each.0, each.1));
        prop_assert_eq!(failure.is_some(), each.2.is_some());
        if let (Some(failure), Some(each)) = (failure, each.2) {
            prop_assert_eq!(failure.by_labels, each.by_labels);
            prop_assert!(failure.message == each.message || (failure.message.is_empty() && !explain));
        }
    }

    #[test]
    fn pods_that_fit_anywhere_have_a_dry_run(
        nodes in prop::collection::vec((1i64..6, any_odd()), 1..8),
        (kind, cpu) in (any_kind(), 1i64..3),
        count in 0usize..20,
    ) {
        let mut scheduler = cluster(&nodes);
        let pod = at(kind, cpu, &[]).pod;
        let anywhere = scheduler.fits_anywhere(NOW, &pod, count);
        scheduler.check();
        let (run, failure) = scheduler.dry_run(NOW, &key(), &[(pod, count)]);
        scheduler.end_dry_run(run);
        prop_assert!(!anywhere || failure.is_none());
        let nominated = nodes.iter().any(|(_, odd)| *odd == Odd::Nominated);
        if !nominated && matches!(kind, Kind::Plain | Kind::Port) {
            prop_assert_eq!(anywhere, failure.is_none());
        }
    }
}
