//! Preferred node affinity within a topology: what Kueue's own cases say, as data.

use super::balanced_tests::nodes;
use super::tests::{Harness, gates, job, request};
use crate::TopologyRequest;
use plimsoll_state::model::{NodeAffinity, NodeSelectorTerm, Operator, PreferredSchedulingTerm, Requirement};

const HOST: &str = "kubernetes.io/hostname";
const RACKS: &[&str] = &["rack", HOST];
const BLOCKS: &[&str] = &["block", "rack", HOST];
const FLAT: &[&str] = &[HOST];
const PREFERRED: &[(i32, &str, &str)] = &[(10, "type", "preferred")];

fn terms(wanted: &[(i32, &str, &str)]) -> Option<NodeAffinity> {
    let term = |(weight, key, value): &(i32, &str, &str)| {
        let has = Requirement { key: (*key).into(), operator: Operator::In, values: vec![(*value).into()] };
        let term = NodeSelectorTerm { expressions: vec![has], fields: Vec::new() };
        PreferredSchedulingTerm { weight: *weight, term }
    };
    Some(NodeAffinity { required: None, preferred: wanted.iter().map(term).collect() })
}

#[test]
fn preferred_nodes_come_first() {
    let preferred = |level, slices| request(None, Some(level), slices);
    let two: &[(&str, i32)] = &[(HOST, 2)];
    let unconstrained =
        |slices: &[(&str, i32)]| TopologyRequest { unconstrained: true, ..request(None, None, slices) };
    let none: &[(&str, i32)] = &[];
    type Row = (&'static [&'static str], &'static str, TopologyRequest, i32, &'static str, &'static str);
    // Levels, nodes, request, pods, places with the gate and without.
    let table: Vec<Row> = vec![
        (RACKS, "a/other=1 b/good=1*", preferred("rack", none), 1, "good=1", "other=1"),
        // Whatever fits best.
        (FLAT, "best=2 good=8*", preferred(HOST, none), 1, "good=1", "best=1"),
        // One that is preferred less is taken where the other is too small,
        (RACKS, "a/good=2* b/x=4 b/y=4", request(Some("rack"), None, none), 4, "x=4", "x=4"),
        // and a level above rather than that where one is only preferred.
        (BLOCKS, "a/s1/good=2* a/s2/large=4", preferred("rack", none), 4, "good=2 large=2", "large=4"),
        (FLAT, "a=2* b=1* c=2 d=1", preferred(HOST, none), 5, "a=2 b=1 c=2", "a=2 b=1 c=2"),
        (FLAT, "a=2* b=1* c=2 d=1 e=1", unconstrained(none), 5, "a=2 b=1 d=1 e=1", "a=2 b=1 d=1 e=1"),
        (FLAT, "a=2* b=1* c=2 d=2 e=1", preferred(HOST, two), 4, "a=2 c=2", "a=2 c=2"),
        (FLAT, "a=2* b=1* c=2 d=2 e=1", unconstrained(two), 4, "a=2 c=2", "a=2 c=2"),
    ];
    for (levels, text, topology, count, on, off) in table {
        for (gate, want) in [(true, on), (false, off)] {
            let mut w =
                Harness::with(gates(|g| g.tas_preferred_affinity = gate), &[], levels, nodes(levels, text));
            let mut wl = job("j", count, topology.clone());
            wl.pod_sets[0].spec.affinity.node = terms(PREFERRED);
            w.submit(wl);
            assert_eq!(w.places("j"), want, "{text} {gate}");
        }
    }
}

/// Weights of several terms add up.
#[test]
fn weights_of_preferences_add_up() {
    let both = [(10, "block", "b2"), (100, "rack", "r2")];
    for (wanted, want) in [(&both[..], "c=1"), (&both[..1], "a=1"), (&both[1..], "b=1")] {
        let all = "b2/r1/a=1 b1/r2/b=1 b2/r2/c=1";
        let mut w =
            Harness::with(gates(|g| g.tas_preferred_affinity = true), &[], BLOCKS, nodes(BLOCKS, all));
        let mut wl = job("j", 1, request(None, Some("rack"), &[]));
        wl.pod_sets[0].spec.affinity.node = terms(wanted);
        w.submit(wl);
        assert_eq!(w.places("j"), want);
    }
}
