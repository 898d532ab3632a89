//! Claims where each node by itself decides, against all pods of workloads taken off their nodes.

use crate::testing::pod_of_workload as pod;
use crate::{Config, Scheduler};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{
    LabelSelector, Node, Operator, Pod, PodAffinity, PodAffinityTerm, Requirement, Taint, TaintEffect,
    WorkloadKey,
};
use plimsoll_state::reservation::DryRunId;
use plimsoll_state::time::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: Time = Time::from_seconds(1);
const HOSTNAME: &str = "kubernetes.io/hostname";
const NODES: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Port,
    /// On one node, by its name.
    Named,
    /// One on each node, by anti-affinity: more than the node by itself decides.
    Apart,
}

#[derive(Clone, Debug)]
enum Step {
    Node {
        number: usize,
        cpu: i64,
        tainted: bool,
    },
    NodeGone(usize),
    /// A pod on a node, or nominated to it. `workload`: none, or that of this number.
    Pod {
        number: usize,
        on: usize,
        cpu: i64,
        workload: Option<usize>,
        port: bool,
        nominated: bool,
    },
    PodGone(usize),
    /// A pod that is on a node is one of this workload from now on, or of none.
    Owned(usize, Option<usize>),
    /// Nodes are reserved for a workload, if its pods fit.
    Reserve(usize, i64, usize),
    Release(usize),
    /// A claim is planned, anew or as it was before.
    Plan {
        number: usize,
        kind: Kind,
        cpu: i64,
        count: usize,
        anew: bool,
    },
    EndPlan(usize),
    /// All claims are put up, or taken down.
    Restore,
    Lift,
}

fn any_step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![5 => Just(Kind::Plain), 2 => Just(Kind::Port), 1 => Just(Kind::Named),
        1 => Just(Kind::Apart)];
    let pod = (0usize..12, 0..NODES, 1i64..5, prop::option::of(0usize..3), any::<bool>(), 0u8..6);
    prop_oneof![
        2 => (0..NODES, 2i64..9, 0u8..8)
            .prop_map(|(number, cpu, t)| Step::Node { number, cpu, tainted: t == 0 }),
        1 => (0..NODES).prop_map(Step::NodeGone),
        6 => pod.prop_map(|(number, on, cpu, workload, port, n)| {
            Step::Pod { number, on, cpu, workload, port, nominated: n == 0 }
        }),
        3 => (0usize..12).prop_map(Step::PodGone),
        2 => (0usize..12, prop::option::of(0usize..3)).prop_map(|(number, w)| Step::Owned(number, w)),
        3 => (0usize..3, 1i64..5, 1usize..4).prop_map(|(w, cpu, n)| Step::Reserve(w, cpu, n)),
        1 => (0usize..3).prop_map(Step::Release),
        8 => (0usize..3, kind, 1i64..5, 1usize..9, any::<bool>()).prop_map(
            |(number, kind, cpu, count, anew)| Step::Plan { number, kind, cpu, count, anew }
        ),
        1 => (0usize..3).prop_map(Step::EndPlan),
        1 => Just(Step::Restore),
        2 => Just(Step::Lift),
    ]
}

fn key(kind: &str, number: usize) -> WorkloadKey {
    WorkloadKey { namespace: "n".into(), name: format!("{kind}{number}") }
}

fn gang(kind: Kind, cpu: i64) -> Pod {
    let mut pod = pod("gang", cpu, kind == Kind::Port);
    match kind {
        Kind::Plain | Kind::Port => {}
        Kind::Named => {
            pod.spec.node_selector.insert(HOSTNAME.into(), "node-1".into());
        }
        Kind::Apart => {
            pod.labels.insert("app".into(), "gang".into());
            let requirement =
                Requirement { key: "app".into(), operator: Operator::In, values: vec!["gang".into()] };
            let term = PodAffinityTerm {
                selector: Some(LabelSelector { requirements: vec![requirement] }),
                topology_key: HOSTNAME.into(),
                ..PodAffinityTerm::default()
            };
            pod.spec.affinity.anti = Some(PodAffinity { required: vec![term], preferred: Vec::new() });
        }
    }
    pod
}

/// A scheduler and the claims of three workloads.
struct Player {
    scheduler: Scheduler,
    plans: [Option<DryRunId>; 3],
    standing: bool,
    /// Those on nodes.
    pods: BTreeMap<usize, Pod>,
}

impl Player {
    fn new(scheduler: Scheduler) -> Self {
        let mut new = Self { scheduler, plans: [None; 3], standing: false, pods: BTreeMap::new() };
        for number in 0..NODES {
            new.play(&Step::Node { number, cpu: 4, tainted: false });
        }
        new
    }

    fn lift(&mut self) {
        self.plans.iter().rev().flatten().for_each(|plan| self.scheduler.lift_dry_run(*plan));
        self.standing = false;
    }

    fn event(&mut self, event: &ObjectEvent) {
        // Between two steps no claim stands.
        self.lift();
        self.scheduler.handle_object(NOW, event);
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Node { number, cpu, tainted } => {
                let name = format!("node-{number}");
                let mut node = Node { uid: name.clone(), name: name.clone(), ready: true, ..Node::default() };
                node.allocatable.insert("cpu".into(), *cpu);
                node.allocatable.insert("pods".into(), 5);
                node.labels.insert(HOSTNAME.into(), name);
                if *tainted {
                    let effect = TaintEffect::NoSchedule;
                    node.taints.push(Taint { key: "k".into(), value: String::new(), effect });
                }
                self.event(&ObjectEvent::NodeUpsert(Box::new(node)));
            }
            Step::NodeGone(number) => self.event(&ObjectEvent::NodeDelete(format!("node-{number}"))),
            Step::Pod { number, on, cpu, workload, port, nominated } => {
                // It is another one: a pod neither leaves its node nor grows.
                self.play(&Step::PodGone(*number));
                let mut there = pod(&format!("pod-{number}"), *cpu, *port);
                there.workload = workload.map_or_else(String::new, |w| key("w", w).name);
                let name = format!("node-{on}");
                if *nominated {
                    there.status.nominated_node_name = name;
                    there.spec.priority = 10;
                } else {
                    there.spec.node_name = name;
                    self.pods.insert(*number, there.clone());
                }
                self.event(&ObjectEvent::PodUpsert(Box::new(there)));
            }
            Step::PodGone(number) => {
                self.pods.remove(number);
                self.event(&ObjectEvent::PodDelete(format!("pod-{number}")));
            }
            Step::Owned(number, workload) => {
                let Some(there) = self.pods.get_mut(number) else { return };
                there.workload = workload.map_or_else(String::new, |w| key("w", w).name);
                let event = ObjectEvent::PodUpsert(Box::new(there.clone()));
                self.event(&event);
            }
            Step::Reserve(workload, cpu, count) => {
                let (key, pods) = (key("w", *workload), [(pod("w", *cpu, false), *count)]);
                let (run, failure) = self.scheduler.dry_run(NOW, &key, &pods);
                match failure {
                    None => drop(self.scheduler.reserve_nodes(NOW, &key, &[run])),
                    Some(_) => self.scheduler.end_dry_run(run),
                }
            }
            Step::Release(workload) => self.scheduler.release_nodes(&key("w", *workload)),
            Step::Plan { number, kind, cpu, count, anew } => {
                let before = self.plans[*number].take();
                if let Some(before) = before.filter(|_| *anew) {
                    self.scheduler.end_dry_run(before);
                }
                let pods = [(gang(*kind, *cpu), *count)];
                let before = before.filter(|_| !*anew);
                let plan = self.scheduler.plan_claim(NOW, &key("claim", *number), &pods, before);
                self.plans[*number] = plan;
                if let Some(plan) = plan.filter(|_| !self.standing) {
                    self.scheduler.lift_dry_run(plan);
                }
            }
            Step::EndPlan(number) => {
                if let Some(plan) = self.plans[*number].take() {
                    self.scheduler.end_dry_run(plan);
                }
            }
            Step::Restore => {
                for plan in self.plans.iter().flatten() {
                    self.scheduler.restore_dry_run(*plan, false);
                }
                self.standing = true;
            }
            Step::Lift => self.lift(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The same places, ties included, and ranks that equal those made afresh.
    #[test]
    fn claims_are_planned_as_if_all_pods_of_workloads_had_left(
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut plain = Player::new(Scheduler::new(Config::default()).without_ranks());
        let mut ranked = Player::new(Scheduler::new(Config::default()));
        for step in &steps {
            plain.play(step);
            ranked.play(step);
            for (a, b) in plain.plans.iter().zip(&ranked.plans) {
                let on = |player: &Player, plan: &Option<DryRunId>| {
                    plan.map(|plan| player.scheduler.planned_on(plan))
                };
                prop_assert_eq!(on(&plain, a), on(&ranked, b), "{:?}", step);
            }
            if !ranked.standing {
                ranked.scheduler.check_ranks();
            }
        }
    }
}
