//! Searches of one cycle, which keep what leaves take, find what searches of their own find.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;

use super::tests::{Harness, job, request};
use super::{PlaceLimits, TasView};
use crate::ids::WorkloadId;
use crate::model::WorkloadKey;
use crate::simulate::Simulation;
use crate::tas::request::TasRequest;
use crate::{Config, TopologyRequest};

const NODES: [&str; 8] = ["a-1-x", "a-1-y", "a-2-x", "a-2-y", "b-1-x", "b-1-y", "b-2-x", "b-2-y"];

#[derive(Clone, Debug)]
enum Op {
    Remove(usize),
    Add(usize),
    Mark,
    Rollback,
    /// A number of pods, whether all workloads count as gone, limits of nodes, of all, and a guess.
    Find(i32, bool, Vec<(usize, i64)>, Option<i64>, Option<i64>),
    /// The same in one rack.
    FindWithin(i32, usize),
    Fits(i32),
    ToCome(i32),
}

fn any_op() -> impl Strategy<Value = Op> {
    let limits = prop::collection::vec((0usize..8, 0i64..3), 0..4);
    let limit = || prop::option::of(1i64..3);
    prop_oneof![
        4 => (0usize..6).prop_map(Op::Remove),
        2 => (0usize..6).prop_map(Op::Add),
        1 => Just(Op::Mark),
        1 => Just(Op::Rollback),
        6 => (1i32..9, any::<bool>(), limits, limit(), limit())
            .prop_map(|(n, empty, own, all, guess)| Op::Find(n, empty, own, all, guess)),
        2 => (1i32..9, 0usize..8).prop_map(|(n, node)| Op::FindWithin(n, node)),
        2 => (1i32..9).prop_map(Op::Fits),
        1 => (1i32..9).prop_map(Op::ToCome),
    ]
}

fn any_request() -> impl Strategy<Value = TopologyRequest> {
    prop_oneof![
        Just(request(Some("rack"), None, &[])),
        Just(request(Some("block"), None, &[])),
        Just(request(None, Some("rack"), &[])),
        Just(request(None, None, &[])),
        Just(request(Some("block"), None, &[("rack", 2)])),
        Just(request(None, Some("block"), &[("rack", 2)])),
    ]
}

fn within(node: usize) -> Vec<String> {
    let rack = NODES[node].rsplit_once('-').map_or("", |(rack, _)| rack);
    let block = rack.split('-').next().unwrap_or(rack);
    vec![block.to_owned(), rack.to_owned()]
}

fn key(name: &str) -> WorkloadKey {
    WorkloadKey { namespace: "n".into(), name: name.into() }
}

/// Compares a search with one that knows nothing.
fn compare(s: &Simulation<'_>, id: WorkloadId, r: &TasRequest, empty: bool, limits: &PlaceLimits) {
    let (steps, counted) = (Cell::new(0), RefCell::default());
    let requests = vec![r.clone()];
    let anew = TasView::new(s, &steps, &counted).find_places(id, &requests, empty, limits);
    assert_eq!(
        s.tas_view().find_places(id, &requests, empty, limits),
        anew,
        "{requests:?} {empty} {limits:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn searches_of_a_cycle_find_what_others_find(
        cpus in prop::collection::vec(1..5i64, 8),
        jobs in prop::collection::vec((1i32..4, any_request()), 1..6),
        wanted in any_request(),
        ops in prop::collection::vec(any_op(), 1..25),
    ) {
        let nodes: Vec<(&str, i64)> = NODES.iter().copied().zip(cpus.iter().copied()).collect();
        let mut harness = Harness::new(Config::default(), &[], &nodes);
        for (i, (count, request)) in jobs.iter().enumerate() {
            harness.submit(job(&format!("j{i}"), count * 2, request.clone()));
        }
        harness.submit(job("waits", 1_000, wanted));
        let queueing = harness.engine.queueing_mut().expect("queueing");
        let ids: Vec<Option<WorkloadId>> =
            (0..6).map(|i| queueing.workloads.find(&key(&format!("j{i}")))).collect();
        let id = queueing.workloads.find(&key("waits")).expect("it waits");
        let flavor = queueing.ids.find_flavor("f").expect("a flavor");
        let cpu = queueing.ids.find_resource("cpu").expect("a resource");
        let cq = queueing.cluster_queues.ids().next().expect("a ClusterQueue");
        let wants = |count| {
            TasRequest { index: 0, count, one: vec![(cpu, 1000)], flavor, implied: false, before: None }
        };
        let mut s = Simulation::begin(queueing);
        let mut marks = Vec::new();
        for op in ops {
            match op {
                Op::Remove(i) => {
                    if let Some(id) = ids[i].filter(|id| !s.is_removed(*id)) {
                        s.simulate_workload_removal(id);
                    }
                }
                Op::Add(i) => {
                    if let Some(id) = ids[i].filter(|id| s.is_removed(*id)) {
                        s.simulate_workload_addition(id);
                    }
                }
                Op::Mark => marks.push(s.mark()),
                Op::Rollback => marks.pop().into_iter().for_each(|mark| s.rollback(mark)),
                Op::Find(count, empty, own, all, guess) => {
                    let mut limits = PlaceLimits::default();
                    own.iter().for_each(|(node, pods)| limits.limit(0, NODES[*node], *pods));
                    all.iter().for_each(|pods| limits.limit_everywhere(0, *pods));
                    guess.iter().for_each(|pods| limits.guess(0, *pods));
                    compare(&s, id, &wants(count), empty, &limits);
                }
                Op::FindWithin(count, node) => {
                    let limits = PlaceLimits::within(0, flavor, within(node));
                    compare(&s, id, &wants(count), true, &limits);
                }
                // These compare with searches themselves.
                Op::Fits(count) => {
                    s.tas_view().tas_fits(id, cq, &vec![wants(count)]);
                }
                Op::ToCome(count) => {
                    s.tas_view().domains_to_come(id, &vec![wants(count)]);
                }
            }
        }
        s.end();
        harness.engine.check();
    }
}
