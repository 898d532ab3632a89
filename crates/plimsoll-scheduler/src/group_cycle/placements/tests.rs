use super::super::super::framework::{
    ExtensionPoint, FeatureGates, Placement, Plugin, PluginRef, PluginSet, PodGroupAssignments, PodGroupView,
    Profile, Registration, Registry, Status, UserPlugins,
};
use super::super::super::tests::{binds, node, object, plain_node, pod, upsert};
use super::super::super::{Action, Config};
use super::*;
use crate::testing::Event;
use plimsoll_state::ClusterObject;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model;
use plimsoll_state::time::Time;
use std::collections::BTreeMap;

fn gates() -> FeatureGates {
    FeatureGates::from_iter(["GangScheduling", "TopologyAwareWorkloadScheduling"])
}

/// One placement for each first letter of node names; the more pods fit, the better.
#[derive(Debug)]
struct ByLetter {
    /// What a pod is worth.
    score: i64,
}

impl Plugin for ByLetter {
    fn is_local(&self, _cluster: &Cluster, _pod: &crate::framework::Incoming) -> bool {
        true
    }

    fn generate_placements(
        &self,
        group: &PodGroupView<'_>,
        all: Placement,
    ) -> Result<Vec<Placement>, Status> {
        assert_eq!((group.namespace(), group.name()), ("ns", "g"));
        let mut out: BTreeMap<String, Placement> = BTreeMap::new();
        for id in all.nodes {
            let letter = group.cluster().node(id).expect("there").name()[..1].to_owned();
            if letter == "x" {
                return Err(Status::unschedulable("no placement has a letter"));
            }
            let placement = out.entry(letter.clone()).or_default();
            placement.name = letter;
            placement.nodes.insert(0, id);
        }
        out.remove("z");
        Ok(out.into_values().collect())
    }

    fn score_placement(
        &self,
        group: &PodGroupView<'_>,
        assignments: &PodGroupAssignments<'_>,
    ) -> Result<i64, Status> {
        let pods = group.scheduled().count() + assignments.proposed.len();
        Ok(i64::try_from(pods).expect("few") * self.score)
    }

    fn normalize_placement_scores(&self, _: &PodGroupView<'_>, scores: &mut [i64]) -> Result<(), Status> {
        scores.iter_mut().for_each(|s| *s *= 10);
        Ok(())
    }
}

fn scheduler(score: i64) -> Scheduler {
    let points = [ExtensionPoint::PlacementGenerate, ExtensionPoint::PlacementScore];
    let make = move |_: &crate::args::Args, _: &mut crate::framework::Handle<'_>| -> Box<dyn Plugin> {
        Box::new(ByLetter { score })
    };
    let mut registry = Registry::in_tree();
    registry.register(Registration::new("ByLetter", &points, make)).expect("a new name");
    let mut user = UserPlugins::default();
    user.multi_point.enabled.push(PluginRef { name: "ByLetter".to_owned(), weight: 1 });
    user.multi_point.disabled = ["TopologyPlacementGenerator", "PodGroupPodsCount"].map(str::to_owned).into();
    let plugins = PluginSet::new(&registry, &user, &gates()).expect("valid");
    Scheduler::new(Config { profiles: vec![Profile { plugins, ..Profile::default() }], ..Config::default() })
}

/// What becomes of a gang of at least two, three pods of 400 millicores each.
fn decide(score: i64, nodes: &[(&str, i64)]) -> (Vec<String>, Vec<String>) {
    let mut s = scheduler(score);
    let now = Time::from_seconds(1);
    for (name, cpu) in nodes {
        s.apply(now, node(name, *cpu));
    }
    s.apply(
        now,
        object(ClusterObject::PodGroup {
            namespace: "ns".into(),
            name: "g".into(),
            min_count: Some(2),
            topology_key: None,
        }),
    );
    for i in 0..3 {
        s.apply(now, upsert(model::Pod { group: "g".into(), ..pod(&format!("p{i}"), 400) }));
    }
    let mut actions = Vec::new();
    s.decide(now, &mut |a| actions.push(a));
    s.check();
    let mut at: Vec<String> = binds(&actions).into_iter().map(|(_, node)| node).collect();
    at.sort_unstable();
    let text = |a: &Action| match a {
        Action::Unschedulable { reason, message, .. } => Some(format!("{reason}: {message}")),
        _ => None,
    };
    let mut texts: Vec<String> = actions.iter().filter_map(text).collect();
    texts.sort_unstable();
    texts.dedup();
    (at, texts)
}

#[test]
fn a_group_runs_in_the_placement_with_the_highest_score() {
    // Two of its pods fit on a's nodes, all three on b's, one on c's.
    let nodes = [("a1", 500), ("a2", 500), ("b1", 500), ("b2", 500), ("b3", 500), ("c1", 500)];
    assert_eq!(decide(1, &nodes).0, ["b1", "b2", "b3"]);
    // The fewer pods, the better: one stays behind, with what it knows of that placement alone.
    let (at, texts) = decide(-1, &nodes);
    assert!(at.is_empty(), "{at:?}");
    assert_eq!(
        texts,
        [
            "SchedulerError: applying score defaultWeights on PlacementScore plugins: plugin \"ByLetter\" returns an \
             invalid score -20, it should in the range of [0, 100] after normalizing"
        ]
    );
    // Only one is feasible: it isn't scored.
    let (at, texts) = decide(-1, &[("a1", 500), ("a2", 500), ("c1", 500)]);
    assert_eq!(at, ["a1", "a2"]);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with("Unschedulable: 0/2 nodes are available: 2 Insufficient cpu."), "{texts:?}");
}

#[test]
fn a_group_that_fits_in_no_placement_does_not_run() {
    // Together they would do.
    let (at, texts) = decide(1, &[("a1", 500), ("b1", 500), ("c1", 500)]);
    assert!(at.is_empty(), "{at:?}");
    assert_eq!(texts[1], "Unschedulable: pod group is unschedulable");
    assert!(texts[0].starts_with("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."), "{texts:?}");
    assert_eq!(decide(1, &[("z1", 9000)]).1, ["Unschedulable: no feasible placements found"]);
    assert_eq!(decide(1, &[("x1", 9000)]).1, ["Unschedulable: no placement has a letter"]);
    assert_eq!(decide(1, &[("a1", 9000)]).0, ["a1", "a1", "a1"], "the only placement");
}

/// A node of 500 millicores in a zone; none for an empty name.
fn zoned(name: &str, zone: &str) -> Event {
    let mut node = plain_node(name, 500);
    if !zone.is_empty() {
        node.labels.insert("zone".to_owned(), zone.to_owned());
    }
    Event::Object(ObjectEvent::NodeUpsert(Box::new(node)))
}

fn topology(minimum: Option<u32>, gates: &FeatureGates) -> Scheduler {
    let plugins = PluginSet::new(&Registry::in_tree(), &UserPlugins::default(), gates).expect("valid");
    let profiles = vec![Profile { plugins, ..Profile::default() }];
    let mut s = Scheduler::new(Config { profiles, ..Config::default() });
    let group = ClusterObject::PodGroup {
        namespace: "ns".into(),
        name: "g".into(),
        min_count: minimum,
        topology_key: Some("zone".into()),
    };
    s.apply(Time::from_seconds(0), object(group));
    s
}

fn step(s: &mut Scheduler, at: i64, events: Vec<Event>) -> Vec<String> {
    let now = Time::from_seconds(at);
    events.into_iter().for_each(|e| s.apply(now, e));
    let mut actions = Vec::new();
    s.decide(now, &mut |a| actions.push(a));
    s.check();
    let mut at: Vec<String> = binds(&actions).into_iter().map(|(_, node)| node).collect();
    at.sort_unstable();
    at
}

fn members(from: usize, to: usize) -> Vec<Event> {
    (from..to).map(|i| upsert(model::Pod { group: "g".into(), ..pod(&format!("p{i}"), 400) })).collect()
}

#[test]
fn pods_of_a_group_share_a_topology_domain() {
    let nodes = || {
        let mut out = vec![zoned("a1", "a"), zoned("a2", "a"), zoned("none1", ""), zoned("none2", "")];
        out.extend((1..=4).map(|i| zoned(&format!("b{i}"), "b")));
        out
    };
    let mut s = topology(Some(2), &gates());
    step(&mut s, 1, nodes());
    // Zone a has room for enough pods, zone b for more of them.
    let mut at = step(&mut s, 2, members(0, 3));
    assert_eq!(at.len(), 3);
    // The next one joins them, and there is no place for another.
    at.extend(step(&mut s, 3, members(3, 4)));
    at.sort_unstable();
    assert_eq!(at, ["b1", "b2", "b3", "b4"]);
    assert!(step(&mut s, 4, members(4, 5)).is_empty());
    // A group that is no gang runs in one domain as well.
    let only_topology = FeatureGates::from_iter(["TopologyAwareWorkloadScheduling"]);
    let mut s = topology(None, &only_topology);
    step(&mut s, 1, nodes());
    let at = step(&mut s, 2, members(0, 6));
    assert_eq!(at, ["b1", "b2", "b3", "b4"]);
    // Without the gate the label means nothing.
    let mut s = topology(Some(2), &FeatureGates::from_iter(["GangScheduling"]));
    step(&mut s, 1, nodes());
    assert_eq!(step(&mut s, 2, members(0, 8)).len(), 8);
}

/// Groups with and without topology constraints, single pods and nodes come and go: a group never spans two zones.
#[test]
fn no_group_spans_two_zones() {
    for seed in 0..20 {
        let mut rng = plimsoll_state::rng::Rng::new(seed);
        let mut gates = gates();
        gates.set("GangScheduling", seed % 2 == 0);
        let mut s = topology(Some(2), &gates);
        let mut bound = 0;
        for at in 1..300 {
            let event = match rng.below(12) {
                0..=2 => {
                    let n = rng.below(8);
                    zoned(&format!("n{n}"), ["a", "b", "c", ""][n as usize % 4])
                }
                3 => Event::Object(ObjectEvent::NodeDelete(format!("n{}", rng.below(8)))),
                4 | 5 => Event::Object(ObjectEvent::PodDelete(format!("uid-p{}", rng.below(9)))),
                6 => Event::Answer(crate::Event::BindFailed {
                    uid: format!("uid-p{}", rng.below(9)),
                    message: "no".into(),
                }),
                7 => upsert(pod(&format!("single{}", rng.below(4)), 300)),
                8 => Event::Object(ObjectEvent::PodDelete(format!("uid-single{}", rng.below(4)))),
                _ => {
                    let name = format!("p{}", rng.below(9));
                    let mut one = model::Pod { group: "g".into(), ..pod(&name, 400) };
                    one.spec.priority = i32::try_from(rng.below(2)).expect("small");
                    upsert(one)
                }
            };
            bound += step(&mut s, at, vec![event]).len();
            let pods =
                s.cluster.pods.iter().filter(|(_, p)| p.extra.as_ref().is_some_and(|e| &*e.group == "g"));
            let nodes = pods.filter_map(|(id, _)| s.cluster.pod(id)?.node()).filter_map(|n| n.label("zone"));
            let zones: std::collections::BTreeSet<&str> = nodes.collect();
            assert!(zones.len() <= 1, "seed {seed}, step {at}: {zones:?}");
        }
        assert!(bound > 0, "seed {seed}");
    }
}
