//! Whatever happens to nodes: usage is right, no node is given out twice, and the search for another node agrees
//! with a plain one. A reference of the search alone; the simulator (`plimsoll-sim`) recounts nodes under faults.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::tests::{Harness, job, request};
use crate::model::WorkloadKey;
use crate::{Condition, Config, TopologyRequest, Workload, cond};

const NODES: [&str; 8] = ["a-1-x", "a-1-y", "a-2-x", "a-2-y", "b-1-x", "b-1-y", "b-2-x", "b-2-y"];

#[derive(Clone, Copy, Debug)]
enum Op {
    Submit(usize, i32),
    Finish(usize),
    Remove(usize),
    Add(usize),
    Break(usize),
    Repair(usize),
    Wait,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..6usize, 1..7i32).prop_map(|(kind, count)| Op::Submit(kind, count)),
        1 => any::<usize>().prop_map(Op::Finish),
        2 => (0..8usize).prop_map(Op::Remove),
        2 => (0..8usize).prop_map(Op::Add),
        2 => (0..8usize).prop_map(Op::Break),
        2 => (0..8usize).prop_map(Op::Repair),
        4 => Just(Op::Wait),
    ]
}

/// The request of a kind, and its pods.
fn wanted(kind: usize, count: i32) -> (TopologyRequest, i32) {
    match kind {
        0 => (request(Some("rack"), None, &[]), count),
        1 => (request(Some("block"), None, &[]), count),
        2 => (request(None, Some("rack"), &[]), count),
        3 => (request(None, None, &[]), count),
        4 => (request(Some("block"), None, &[("rack", 2)]), (count + 1) / 2 * 2),
        _ => (request(None, Some("block"), &[("rack", 2)]), (count + 1) / 2 * 2),
    }
}

fn rack(host: &str) -> &str {
    host.rsplit_once('-').map_or(host, |(r, _)| r)
}

fn block(host: &str) -> &str {
    host.split('-').next().unwrap_or(host)
}

fn runs(w: &Workload) -> bool {
    w.status.admission.is_some() && !w.status.is_true(cond::FINISHED)
}

/// Pods per node of a workload, checked for places that are named twice.
fn places(w: &Workload) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    let assigned = w.status.admission.iter().flat_map(|a| &a.assignments);
    for (values, n) in assigned.filter_map(|a| a.topology.as_ref()).flat_map(|t| &t.domains) {
        let host = values.last().cloned().unwrap_or_default();
        assert!(out.insert(host.clone(), i64::from(*n)).is_none(), "{}: {host} twice", w.key);
    }
    out
}

/// CPUs free on the nodes that can be used.
fn free(w: &Harness) -> BTreeMap<String, i64> {
    let usable = w.nodes.values().filter(|n| n.ready);
    let mut free: BTreeMap<String, i64> =
        usable.map(|n| (n.name.clone(), n.allocatable.get("cpu").copied().unwrap_or(0) / 1000)).collect();
    for j in w.jobs.values().filter(|j| runs(j)) {
        for (host, n) in places(j) {
            if let Some(f) = free.get_mut(&host) {
                *f -= n;
            }
        }
    }
    free
}

/// Whether a workload's failed node can be replaced: by looking at what is free, place by place.
fn can_replace(w: &Harness, j: &Workload) -> bool {
    let Some(failed) = j.status.unhealthy_nodes.first() else { return false };
    let mut rest = places(j);
    let missing = rest.remove(failed).unwrap_or(0);
    let free = free(w);
    let Some(topology) = j.pod_sets[0].topology.as_ref() else { return false };
    let size = topology.slices.first().map_or(1, |(_, n)| i64::from(*n));
    let level: fn(&str) -> &str = if topology.required.as_deref() == Some("rack") { rack } else { block };
    let sum =
        |keep: &dyn Fn(&str) -> bool| free.iter().filter(|(h, _)| keep(h)).map(|(_, n)| *n).sum::<i64>();
    if missing % size != 0 && !rest.is_empty() {
        // The rack in which a slice lacks pods.
        let racks: BTreeSet<&str> = rest.keys().map(|h| rack(h)).collect();
        let in_rack = |r: &str| rest.iter().filter(|(h, _)| rack(h) == r).map(|(_, n)| *n).sum::<i64>();
        let broken = racks.into_iter().find(|r| (in_rack(r) + missing) % size == 0);
        return broken.is_some_and(|r| sum(&|h| rack(h) == r) >= missing);
    }
    let racks: BTreeSet<&str> = free.keys().map(|h| rack(h)).collect();
    // Whole slices in the racks of a region.
    let free_capacity = |keep: &dyn Fn(&str) -> bool| -> i64 {
        let racks = racks.iter().filter(|r| keep(r));
        racks.map(|r| sum(&|h| rack(h) == *r && keep(h)) / size * size).sum()
    };
    match (topology.required.is_some(), rest.keys().next()) {
        (true, Some(stays)) => {
            let region = level(stays).to_owned();
            if size > 1 {
                free_capacity(&|h| block(h) == region) >= missing
            } else {
                sum(&|h| level(h) == region) >= missing
            }
        }
        (true, None) => {
            let regions: BTreeSet<&str> = free.keys().map(|h| level(h)).collect();
            regions.into_iter().any(|region| {
                if size > 1 {
                    free_capacity(&|h| block(h) == region) >= missing
                } else {
                    sum(&|h| level(h) == region) >= missing
                }
            })
        }
        (false, _) => {
            if size > 1 {
                free_capacity(&|_| true) >= missing
            } else {
                sum(&|_| true) >= missing
            }
        }
    }
}

/// The placement of a running workload is what it asked for.
fn is_right(j: &Workload) {
    let places = places(j);
    let count: i64 = places.values().sum();
    assert_eq!(count, i64::from(j.pod_sets[0].count), "{}: pods", j.key);
    let Some(t) = j.pod_sets[0].topology.as_ref() else { return };
    let level: Option<fn(&str) -> &str> = match t.required.as_deref() {
        Some("rack") => Some(rack),
        Some(_) => Some(block),
        None => None,
    };
    if let Some(level) = level {
        let domains: BTreeSet<&str> = places.keys().map(|h| level(h)).collect();
        assert_eq!(domains.len(), 1, "{}: {places:?}", j.key);
    }
    if let Some((_, size)) = t.slices.first() {
        let mut racks: BTreeMap<&str, i64> = BTreeMap::new();
        places.iter().for_each(|(h, n)| *racks.entry(rack(h)).or_insert(0) += n);
        assert!(racks.values().all(|n| n % i64::from(*size) == 0), "{}: {places:?}", j.key);
    }
}

struct Checked {
    harness: Harness,
    /// Of the nodes; one that comes back is as large as it was.
    cpus: Vec<i64>,
    made: usize,
    /// How often a search was compared with the plain one, and replaced something.
    compared: (usize, usize),
}

impl Checked {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Submit(kind, count) => {
                self.made += 1;
                let (topology, count) = wanted(kind, count);
                self.harness.submit(job(&format!("j{}", self.made), count, topology));
            }
            Op::Finish(i) => {
                let running: Vec<WorkloadKey> =
                    self.harness.jobs.values().filter(|j| runs(j)).map(|j| j.key.clone()).collect();
                let Some(key) = running.get(i % running.len().max(1)) else { return };
                let kind = cond::FINISHED.into();
                self.harness.change_job(&key.name, |j| {
                    j.status.conditions.push(Condition { kind, status: true, ..Condition::default() });
                });
            }
            Op::Remove(n) => self.harness.remove_node(NODES[n]),
            Op::Add(n) => {
                if !self.harness.nodes.contains_key(NODES[n]) {
                    self.harness.add_node(NODES[n], self.cpus[n]);
                }
            }
            Op::Break(n) => self.harness.change_node(NODES[n], |n| n.ready = false),
            Op::Repair(n) => self.harness.change_node(NODES[n], |n| n.ready = true),
            Op::Wait => self.wait(),
        }
        self.audit();
    }

    /// Lets second passes come due, and compares what they found where there is only one.
    fn wait(&mut self) {
        let hurt: Vec<Workload> = self
            .harness
            .jobs
            .values()
            .filter(|j| runs(j) && !j.status.unhealthy_nodes.is_empty())
            .cloned()
            .collect();
        let [old] = hurt.as_slice() else { return self.harness.wait(1) };
        let possible = can_replace(&self.harness, old);
        let evictions = |j: &Workload| j.status.evictions.iter().map(|e| e.count).sum::<i32>();
        self.harness.wait(1);
        let new = self.harness.jobs[&old.key].clone();
        assert_eq!(
            evictions(&new) == evictions(old),
            possible,
            "{}: {:?} to {:?}",
            old.key,
            places(old),
            places(&new)
        );
        self.compared.0 += 1;
        if possible {
            self.compared.1 += 1;
            let now = places(&new);
            let failed = &old.status.unhealthy_nodes[0];
            let stays =
                places(old).into_iter().filter(|(h, _)| h != failed).all(|(h, n)| now.get(&h) >= Some(&n));
            assert!(stays && !now.contains_key(failed), "{}: {:?} to {now:?}", old.key, places(old));
            assert!(new.status.unhealthy_nodes.is_empty());
        }
    }

    fn audit(&self) {
        self.harness.engine.check();
        for (host, left) in free(&self.harness) {
            assert!(left >= 0, "{host} is promised twice: {left}");
        }
        self.harness.jobs.values().filter(|j| runs(j)).for_each(is_right);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// After any sequence of failures and repairs.
    #[test]
    fn places_stay_right_when_nodes_fail(
        cpus in proptest::collection::vec(1..5i64, 8),
        ops in proptest::collection::vec(any_op(), 1..30),
    ) {
        let nodes: Vec<(&str, i64)> = NODES.iter().copied().zip(cpus.iter().copied()).collect();
        let harness = Harness::new(Config::default(), &[], &nodes);
        let mut checked = Checked { harness, cpus, made: 0, compared: (0, 0) };
        for op in ops {
            checked.apply(op);
        }
    }
}

/// The property above compares something: here each kind of request loses a node.
#[test]
fn searches_are_compared() {
    let mut total = (0, 0);
    for kind in 0..6 {
        for lost in 0..8 {
            let nodes: Vec<(&str, i64)> = NODES.iter().map(|n| (*n, 3)).collect();
            let harness = Harness::new(Config::default(), &[], &nodes);
            let mut checked = Checked { harness, cpus: vec![3; 8], made: 0, compared: (0, 0) };
            for op in [Op::Submit(kind, 5), Op::Submit(0, 2), Op::Remove(lost), Op::Wait] {
                checked.apply(op);
            }
            total.0 += checked.compared.0;
            total.1 += checked.compared.1;
        }
    }
    assert!(total.0 >= 12 && total.1 >= 6 && total.1 < total.0, "{total:?}");
}
