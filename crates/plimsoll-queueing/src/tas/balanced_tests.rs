//! Balanced placement: what Kueue's own cases say, as data.

use super::tests::{Harness, gates, job, request};
use crate::PodSet;
use plimsoll_state::model::Node;
use plimsoll_state::time::Time;

const HOST: &str = "kubernetes.io/hostname";

/// Nodes as `block/rack/host=cpus`, one label per level; with a `*` behind they have the label `type: preferred`.
pub(super) fn nodes(levels: &[&str], text: &str) -> Vec<Node> {
    let parse = |part: &str| {
        let (path, cpus) = part.split_once('=').expect("path=cpus");
        let mut n = Node {
            name: path.replace('/', "-"),
            ready: true,
            ready_since: Some(Time::from_seconds(0)),
            ..Node::default()
        };
        if cpus.ends_with('*') {
            n.labels.insert("type".into(), "preferred".into());
        }
        let cpus: i64 = cpus.trim_end_matches('*').parse().expect("cpus");
        n.allocatable = [("cpu".to_owned(), cpus * 1000), ("pods".to_owned(), 25)].into();
        for (level, value) in levels.iter().zip(path.split('/')) {
            n.labels.insert((*level).into(), value.into());
        }
        n
    };
    text.split_whitespace().map(parse).collect()
}

struct Case {
    name: &'static str,
    levels: &'static [&'static str],
    nodes: &'static str,
    preferred: &'static str,
    slices: Option<(&'static str, i32)>,
    count: i32,
    /// CPUs of a leader.
    leader: Option<i64>,
    /// The leader's place first.
    want: &'static str,
}

const THREE: &[&str] = &["block", "rack", HOST];
const FOUR: &[&str] = &["block", "sub", "rack", HOST];
const UPPER: &[&str] = &["block", "sub", "rack"];

const BASE: Case = Case {
    name: "",
    levels: THREE,
    nodes: "",
    preferred: "rack",
    slices: None,
    count: 0,
    leader: None,
    want: "",
};

const CASES: &[Case] = &[
    Case {
        name: "two racks get about the same",
        nodes: "b1/r1/x1=15 b1/r2/x2=15",
        count: 25,
        want: "x1=13 x2=12",
        ..BASE
    },
    Case {
        name: "the smallest two that do",
        nodes: "b1/r1/x1=15 b1/r1/x2=13 b1/r1/x3=10",
        count: 23,
        want: "x1=12 x2=11",
        ..BASE
    },
    Case {
        name: "slices: the tightest set",
        nodes: "b1/r1/x1=20 b1/r1/x2=15 b1/r1/x3=10",
        slices: Some((HOST, 5)),
        count: 25,
        want: "x2=15 x3=10",
        ..BASE
    },
    Case {
        name: "the block with the higher threshold",
        nodes: "b1/r1/x1=20 b1/r1/x2=10 b2/r2/x3=15 b2/r2/x4=15",
        count: 22,
        want: "x3=11 x4=11",
        ..BASE
    },
    Case {
        name: "never domains of two blocks",
        nodes: "b1/r1/x1=14 b1/r1/x2=11 b2/r2/x3=15 b2/r2/x4=10",
        count: 25,
        want: "x1=14 x2=11",
        ..BASE
    },
    Case {
        name: "rather one rack than two",
        nodes: "b1/r1/x1=15 b1/r2/x2=15 b1/r3/x3=15 b1/r3/x4=15",
        slices: Some((HOST, 5)),
        count: 25,
        want: "x3=15 x4=10",
        ..BASE
    },
    Case {
        name: "slices two levels below the balanced one",
        levels: FOUR,
        nodes: "b1/s1/r1/x1=18 b1/s1/r2/x2=8 b1/s2/r3/x3=15 b1/s2/r4/x4=9 b1/s2/r4/x5=7",
        preferred: "sub",
        slices: Some((HOST, 2)),
        count: 20,
        want: "x3=10 x4=8 x5=2",
        ..BASE
    },
    Case {
        name: "slices one level below the balanced one",
        levels: FOUR,
        nodes: "b1/s1/r1/x1=18 b1/s1/r2/x2=8 b1/s2/r3/x3=15 b1/s2/r4/x4=9 b1/s2/r4/x5=7",
        preferred: "sub",
        slices: Some(("rack", 2)),
        count: 20,
        want: "x3=10 x4=3 x5=7",
        ..BASE
    },
    Case {
        name: "racks as the lowest level",
        levels: UPPER,
        nodes: "b1/s1/r1=18 b1/s1/r2=8 b1/s2/r3=15 b1/s2/r4=15",
        preferred: "sub",
        slices: Some(("rack", 2)),
        count: 20,
        want: "r3=10 r4=10",
        ..BASE
    },
    Case {
        name: "slices on the balanced level",
        nodes: "b1/r1/x1=15 b1/r1/x2=13 b1/r1/x3=10 b1/r2/x4=20 b1/r2/x5=8",
        preferred: HOST,
        slices: Some((HOST, 2)),
        count: 22,
        want: "x2=12 x3=10",
        ..BASE
    },
    Case {
        name: "the lowest level",
        nodes: "b1/r1/x1=20 b1/r1/x2=8 b1/r2/x3=15 b1/r2/x4=13 b1/r2/x5=10",
        preferred: HOST,
        count: 22,
        want: "x3=11 x4=11",
        ..BASE
    },
    Case {
        name: "a leader and its workers",
        nodes: "b1/r1/x1=20 b1/r1/x2=15 b1/r1/x3=12",
        slices: Some((HOST, 5)),
        count: 25,
        leader: Some(1),
        want: "x3=1 x2=15 x3=10",
        ..BASE
    },
    Case {
        name: "of equal racks the more even one: the second",
        nodes: "b1/r1/x1=10 b1/r1/x2=5 b1/r2/x3=5 b1/r2/x4=5 b1/r2/x5=5",
        count: 15,
        want: "x3=5 x4=5 x5=5",
        ..BASE
    },
    Case {
        name: "of equal racks the more even one: the first",
        nodes: "b1/r1/x1=8 b1/r1/x2=8 b1/r1/x3=8 b1/r2/x4=16 b1/r2/x5=8",
        count: 24,
        want: "x1=8 x2=8 x3=8",
        ..BASE
    },
    Case {
        name: "the highest level",
        levels: &["rack", HOST],
        nodes: "r1/x1=21 r1/x2=9 r2/x3=11 r2/x4=10 r2/x5=10",
        count: 23,
        want: "x1=12 x3=11",
        ..BASE
    },
    Case {
        name: "small domains don't count",
        nodes: "b1/r1/x1=5 b1/r1/x2=5 b1/r2/x3=5 b1/r2/x4=5 b2/r3/x5=10 b2/r3/x6=4 b2/r3/x7=4 b2/r3/x8=4 \
                b2/r4/x9=5 b2/r5/x10=5",
        count: 20,
        want: "x1=5 x2=5 x3=5 x4=5",
        ..BASE
    },
    Case {
        name: "the leader takes what is left over",
        nodes: "b1/r1/x1=6 b1/r1/x2=5",
        count: 10,
        leader: Some(1),
        want: "x1=1 x1=5 x2=5",
        ..BASE
    },
    Case {
        name: "room for the leader on one node only",
        nodes: "b1/r1/x1=7 b1/r1/x2=5",
        count: 10,
        leader: Some(1),
        want: "x1=1 x1=5 x2=5",
        ..BASE
    },
    Case {
        name: "best fit where the threshold can't be met",
        nodes: "b1/r1/x1=3 b1/r2/x2=3 b1/r3/x3=8 b2/r1/x4=11",
        preferred: "block",
        count: 7,
        leader: Some(5),
        want: "x3=1 x1=3 x2=1 x3=3",
        ..BASE
    },
    Case {
        name: "of equal nodes the first",
        nodes: "b1/r1/x2=1 b1/r1/x1=1",
        preferred: HOST,
        count: 1,
        want: "x1=1",
        ..BASE
    },
];

#[test]
fn balanced_placement_spreads_evenly() {
    for c in CASES {
        let mut w = Harness::with(gates(|g| g.tas_balanced = true), &[], c.levels, nodes(c.levels, c.nodes));
        let slices: Vec<(&str, i32)> = c.slices.into_iter().collect();
        let mut wl = job("j", c.count, request(None, Some(c.preferred), &slices));
        if let Some(cpus) = c.leader {
            let mut leader = PodSet { name: "leader".into(), count: 1, ..wl.pod_sets[0].clone() };
            leader.spec.containers[0].requests.insert("cpu".into(), cpus * 1000);
            if let Some(t) = &mut leader.topology {
                t.slices.clear();
            }
            wl.pod_sets.insert(0, leader);
            wl.pod_sets
                .iter_mut()
                .filter_map(|p| p.topology.as_mut())
                .for_each(|t| t.group = Some("g".into()));
        }
        w.submit(wl);
        assert_eq!(w.places("j"), c.want, "{}", c.name);
    }
}

/// Required levels, and everything with the gate off, are none of its business.
#[test]
fn only_preferred_levels_are_balanced() {
    let two = "b1/r1/x1=15 b1/r1/x2=15";
    for (on, required, preferred, want) in [
        (true, None, Some("rack"), "x1=13 x2=12"),
        (true, Some("rack"), None, "x1=15 x2=10"),
        (false, None, Some("rack"), "x1=15 x2=10"),
        (true, None, None, "x1=15 x2=10"),
    ] {
        let mut w = Harness::with(gates(|g| g.tas_balanced = on), &[], THREE, nodes(THREE, two));
        w.submit(job("j", 25, request(required, preferred, &[])));
        assert_eq!(w.places("j"), want, "{on} {required:?} {preferred:?}");
    }
}
