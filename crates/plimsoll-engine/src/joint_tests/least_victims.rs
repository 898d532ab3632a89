//! No more is preempted than needed, and a right to quota is none to nodes.

use super::preemption::preempting;
use crate::testing::{Fixture, cluster_queue, pod_set};
use plimsoll_queueing::{Config, PreemptionPolicy};
use plimsoll_state::model::Pod;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A ClusterQueue `d` that borrows from `c`, which may reclaim: together they have quota for 8.
fn cohort(config: Config) -> Fixture {
    let queues = [("c", 7), ("d", 1)].map(|(name, nominal)| {
        let mut queue = cluster_queue(name, &[("f", nominal)]);
        queue.cohort = "all".into();
        queue.preemption.reclaim_within_cohort = PreemptionPolicy::Any;
        queue
    });
    Fixture::with_queues(true, config, &queues)
}

/// `d` borrows, there is quota for the pod of `c`, and no node: nothing is reclaimed, and only a higher priority preempts.
#[test]
fn a_right_to_quota_is_no_right_to_nodes() {
    for priority in [0, 1] {
        let mut w = cohort(Config::default());
        w.node("n0", 6);
        (0..6).for_each(|i| w.submit_to("d", &format!("s{i}"), 0, vec![pod_set("main", 1, 1)]));
        assert_eq!(w.bound.len(), 6);
        w.submit_to("c", "own", priority, vec![pod_set("main", 1, 2)]);
        let victims = if priority == 0 { 0 } else { 2 };
        assert_eq!(w.preempted.len(), victims, "{:?} {:?}", w.preempted, w.reason("own"));
        if priority == 0 {
            assert_eq!(w.reason("own").0, "WaitingForNodes");
            // It has claimed nodes.
            w.finish("s0");
            w.finish("s1");
        }
        assert!(w.bound.contains("own-0"), "{:?}", w.reason("own"));
    }
}

/// Quota is missing: as much is reclaimed as quota needs, where it is of use on nodes, and no more.
#[test]
fn no_more_is_reclaimed_for_nodes_than_quota_needs() {
    // The two newest are on different nodes, two of one node are of use.
    let mut w = cohort(Config::default());
    w.node("n0", 4);
    w.node("n1", 4);
    (0..8).for_each(|i| w.submit_to("d", &format!("s{i}"), 0, vec![pod_set("main", 1, 1)]));
    assert_eq!(w.bound.len(), 8);
    w.submit_to("c", "own", 0, vec![pod_set("main", 1, 2)]);
    assert_eq!(w.preempted.len(), 2, "{:?} {:?}", w.preempted, w.reason("own"));
    assert!(w.bound.contains("own-0"), "{:?}", w.reason("own"));
    // A pod that needs three of one node, and quota for two of them is free.
    for priority in [0, 1] {
        let mut w = cohort(Config { overtaking: 1, ..Config::default() });
        w.node("n0", 3);
        w.node("n1", 3);
        (0..6).for_each(|i| w.submit_to("d", &format!("s{i}"), 0, vec![pod_set("main", 1, 1)]));
        assert_eq!(w.bound.len(), 6);
        w.submit_to("c", "own", priority, vec![pod_set("main", 1, 3)]);
        let victims = if priority == 0 { 0 } else { 3 };
        assert_eq!(w.preempted.len(), victims, "{:?} {:?}", w.preempted, w.reason("own"));
    }
}

/// CPUs of the nodes, and for each workload the CPUs that its pods use on each.
struct Usage {
    nodes: BTreeMap<String, i64>,
    used: BTreeMap<String, Vec<(String, i64)>>,
}

impl Usage {
    fn of(w: &Fixture, nodes: &[i64]) -> Self {
        let cpus = |p: &Pod| p.spec.containers.iter().filter_map(|c| c.requests.get("cpu")).sum();
        let on = |pods: &Vec<Pod>| pods.iter().map(|p| (p.spec.node_name.clone(), cpus(p))).collect();
        Self {
            nodes: nodes.iter().enumerate().map(|(i, cpu)| (format!("n{i}"), *cpu)).collect(),
            used: w.pods.iter().map(|(name, pods)| (name.clone(), on(pods))).collect(),
        }
    }

    /// Whether a gang fits, in nodes and in quota, without these workloads.
    fn fits(&self, (count, cpu): (i32, i64), quota: i64, gone: &[&String]) -> bool {
        let staying: Vec<&(String, i64)> =
            self.used.iter().filter(|(name, _)| !gone.contains(name)).flat_map(|(_, pods)| pods).collect();
        let on = |node: &String| staying.iter().filter(|(n, _)| n == node).map(|(_, cpu)| cpu).sum::<i64>();
        let places: i64 = self.nodes.iter().map(|(node, cpus)| (cpus - on(node)) / cpu).sum();
        let used: i64 = staying.iter().map(|(_, cpu)| cpu).sum();
        places >= i64::from(count) && used + i64::from(count) * cpu <= quota
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With any victim less, a preemptor would not fit.
    #[test]
    fn no_more_are_preempted_than_needed(
        nodes in prop::collection::vec(1i64..8, 1..6),
        singles in prop::collection::vec(1i64..4, 0..16),
        gangs in prop::collection::vec((1i32..5, 1i64..5), 1..5),
        quota in 4i64..40,
        holds_quota in prop::bool::ANY,
    ) {
        let mut w = Fixture::with_queues(true, Config::default(), &[preempting("c", &[("f", quota)])]);
        nodes.iter().enumerate().for_each(|(i, cpu)| w.node(&format!("n{i}"), *cpu));
        for (i, cpu) in singles.iter().enumerate() {
            w.submit_to("c", &format!("s{i}"), 0, vec![pod_set("main", 1, *cpu)]);
        }
        w.holds_quota = holds_quota;
        // Each comes before all others, when nothing is on its way: neither claims nor preemptions are before it.
        for (i, gang) in gangs.iter().enumerate() {
            let (name, before) = (format!("g{i}"), Usage::of(&w, &nodes));
            w.submit_to("c", &name, i32::try_from(i).unwrap_or(0) + 1, vec![pod_set("main", gang.0, gang.1)]);
            let by = w.preempted.iter().zip(&w.preempted_by).filter(|(_, by)| **by == name);
            let victims: Vec<&String> = by.map(|(victim, _)| victim).collect();
            prop_assert!(victims.is_empty() || before.fits(*gang, quota, &victims), "{name}: {victims:?}");
            for spared in &victims {
                let others: Vec<&String> = victims.iter().copied().filter(|v| v != spared).collect();
                prop_assert!(!before.fits(*gang, quota, &others), "{name}: {victims:?}, without {spared}");
            }
            prop_assert!(w.settles(), "{name}: victims and no end");
        }
    }
}
