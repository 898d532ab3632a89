use super::super::framework::{FeatureGates, PluginSet, Profile, Registry, UserPlugins};
use super::super::tests::{binds, node, object, pod, upsert};
use super::super::{Action, Config};
use super::*;
use crate::testing::Event;
use plimsoll_state::model;
use plimsoll_state::time::Time;
use plimsoll_state::{ClusterObject, ClusterObjectKey, ClusterObjectKind, ObjectEvent};

fn gangs() -> FeatureGates {
    FeatureGates::from_iter(["GangScheduling"])
}

fn placement() -> Scheduler {
    let plugins = PluginSet::new(&Registry::in_tree(), &UserPlugins::default(), &gangs()).expect("valid");
    Scheduler::new(Config { profiles: vec![Profile { plugins, ..Profile::default() }], ..Config::default() })
}

fn step(p: &mut Scheduler, at: i64, events: Vec<Event>) -> Vec<Action> {
    let now = Time::from_seconds(at);
    for e in events {
        p.apply(now, e);
    }
    let mut actions = Vec::new();
    p.decide(now, &mut |a| actions.push(a));
    p.check();
    actions
}

fn group(name: &str, min_count: Option<u32>) -> Event {
    object(ClusterObject::PodGroup {
        namespace: "ns".into(),
        name: name.into(),
        min_count,
        topology_key: None,
    })
}

fn member(name: &str, group: &str, cpu: i64) -> model::Pod {
    model::Pod { group: group.into(), ..pod(name, cpu) }
}

fn add(name: &str, group: &str, cpu: i64) -> Event {
    upsert(member(name, group, cpu))
}

/// Why a pod may not enter the queue.
fn gate(p: &mut Scheduler, uid: &str) -> Option<String> {
    let verdict = p.evaluate(uid, None).expect("known and not placed");
    verdict
        .pre_enqueue
        .map(|r| format!("{} {}: {}", r.plugin.unwrap_or_default(), r.code, r.reasons.join(", ")))
}

fn texts(actions: &[Action]) -> Vec<(String, &'static str, String)> {
    let text = |a: &Action| match a {
        Action::Unschedulable { pod, reason, message, .. } => {
            Some((pod.name.clone(), reason.as_str(), message.clone()))
        }
        _ => None,
    };
    let mut out: Vec<_> = actions.iter().filter_map(text).collect();
    out.sort_unstable();
    out
}

#[test]
fn a_gang_waits_for_its_group_and_for_enough_pods() {
    let mut p = placement();
    assert!(step(&mut p, 0, vec![node("a", 1000), add("p0", "g", 100)]).is_empty());
    assert_eq!(
        gate(&mut p, "uid-p0").as_deref(),
        Some(
            "GangScheduling UnschedulableAndUnresolvable: waiting for pods's pod group \"g\" to appear in \
             scheduling queue"
        )
    );
    assert!(step(&mut p, 1, vec![group("g", Some(3)), add("p1", "g", 100)]).is_empty());
    assert_eq!(
        gate(&mut p, "uid-p1").as_deref(),
        Some(
            "GangScheduling UnschedulableAndUnresolvable: waiting for minCount pods from a gang to appear in \
             scheduling queue"
        )
    );
    assert!(step(&mut p, 2, vec![add("other", "h", 100)]).is_empty());
    assert_eq!(p.queue_counts().gated, 3);
    assert_eq!(binds(&step(&mut p, 3, vec![add("p2", "g", 100)])).len(), 3);
    // One more is let through at once.
    assert_eq!(binds(&step(&mut p, 4, vec![add("p3", "g", 100)])).len(), 1);
}

#[test]
fn a_gang_that_does_not_fit_keeps_no_room() {
    let mut p = placement();
    let gang = || (0..3).map(|i| add(&format!("p{i}"), "g", 400));
    let mut events = vec![node("a", 1000), group("g", Some(3))];
    events.extend(gang());
    let out = step(&mut p, 0, events);
    assert!(binds(&out).is_empty(), "{out:?}");
    let told = texts(&out);
    assert_eq!(told[0], ("p0".into(), "Unschedulable", "pod group is unschedulable".into()));
    assert_eq!(told[1], ("p1".into(), "Unschedulable", "pod group is unschedulable".into()));
    assert!(told[2].2.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{told:?}");
    assert_eq!(p.queue_counts().backoff, 3);
    // It is not tried again before its backoff has ended, and others have the room.
    assert_eq!(binds(&step(&mut p, 0, vec![upsert(pod("single", 900))])).len(), 1);
    assert!(binds(&step(&mut p, 1, vec![node("b", 1000), node("c", 1000)])).is_empty());
    assert_eq!(binds(&step(&mut p, 2, vec![])).len(), 3);
}

#[test]
fn pods_beyond_the_minimum_may_be_left_behind() {
    let mut p = placement();
    let mut events = vec![node("a", 1000), group("g", Some(2))];
    events.extend((0..3).map(|i| add(&format!("p{i}"), "g", 400)));
    let out = step(&mut p, 0, events);
    assert_eq!(binds(&out).len(), 2);
    assert_eq!(texts(&out).len(), 1);
}

#[test]
fn a_group_that_is_no_gang_is_placed_pod_by_pod() {
    let mut p = placement();
    let mut events = vec![node("a", 1000), group("g", None)];
    events.extend((0..3).map(|i| add(&format!("p{i}"), "g", 400)));
    assert_eq!(binds(&step(&mut p, 0, events)).len(), 2);
}

#[test]
fn a_gang_waits_for_its_victims() {
    let mut p = placement();
    let mut low = pod("low", 800);
    low.spec.node_name = "a".into();
    let high = |name: &str| {
        let mut one = member(name, "g", 600);
        one.spec.priority = 10;
        upsert(one)
    };
    let events =
        vec![node("a", 1000), node("b", 1000), group("g", Some(2)), upsert(low), high("p0"), high("p1")];
    let out = step(&mut p, 0, events);
    assert!(binds(&out).is_empty());
    assert_eq!(out.iter().filter(|a| matches!(a, Action::Preempt { .. })).count(), 1);
    let told = texts(&out);
    assert_eq!(told[0].2, "pod group is waiting for preemption to complete");
    step(&mut p, 1, vec![Event::Object(ObjectEvent::PodDelete("uid-low".into()))]);
    assert_eq!(binds(&step(&mut p, 2, vec![])).len(), 2);
}

#[test]
fn without_the_plugin_groups_mean_nothing() {
    let mut p = Scheduler::new(Config::default());
    assert_eq!(binds(&step(&mut p, 0, vec![node("a", 1000), add("p0", "g", 100)])).len(), 1);
}

#[test]
fn a_gang_with_two_schedulers_is_refused() {
    let named = |name: &str| Profile {
        scheduler_name: name.into(),
        plugins: PluginSet::new(&Registry::in_tree(), &UserPlugins::default(), &gangs()).expect("valid"),
        ..Profile::default()
    };
    let config = Config { profiles: vec![named("one"), named("two")], ..Config::default() };
    let mut p = Scheduler::new(config);
    let with = |name: &str, scheduler: &str| {
        let mut one = member(name, "g", 100);
        one.spec.scheduler_name = scheduler.into();
        upsert(one)
    };
    let out =
        step(&mut p, 0, vec![node("a", 1000), group("g", Some(2)), with("p0", "one"), with("p1", "two")]);
    let told = texts(&out);
    assert_eq!(told.len(), 2);
    assert!(
        told[0]
            .2
            .starts_with("all pods in a single pod group should have the same .spec.schedulerName set, got")
    );
}

#[test]
fn a_pod_stays_in_the_group_it_joined() {
    let mut p = placement();
    step(&mut p, 0, vec![node("a", 1000), group("g", Some(2)), add("p0", "g", 100)]);
    let mut moved = member("p0", "h", 100);
    moved.namespace = "elsewhere".into();
    step(&mut p, 1, vec![upsert(moved)]);
    assert_eq!(p.queue_counts().gated, 1);
    // The pod no longer belongs to the group; the other one alone is too few.
    assert!(binds(&step(&mut p, 2, vec![add("p1", "g", 100)])).is_empty());
    step(
        &mut p,
        3,
        vec![
            Event::Object(ObjectEvent::PodDelete("uid-p0".into())),
            Event::Object(ObjectEvent::PodDelete("uid-p1".into())),
        ],
    );
    assert!(p.cluster.groups.values().all(|g| g.pods.is_empty() && g.placed == 0));
}

/// Gangs, single pods and nodes come and go: no gang is ever bound below its minimum, and nothing leaks.
#[test]
fn gangs_are_bound_whole() {
    for seed in 0..20 {
        let mut rng = plimsoll_state::rng::Rng::new(seed);
        let mut p = placement();
        let minimum = |g: u32| 2 + g % 4;
        let mut bound = 0;
        for at in 0..300 {
            let g = rng.below(6);
            let event = match rng.below(14) {
                0 => node(&format!("n{}", rng.below(5)), i64::from(1 + rng.below(3)) * 1000),
                1 => Event::Object(ObjectEvent::NodeDelete(format!("n{}", rng.below(5)))),
                2 | 3 => Event::Object(ObjectEvent::PodDelete(format!("uid-g{g}-{}", rng.below(6)))),
                4 => Event::Answer(crate::Event::BindFailed {
                    uid: format!("uid-g{g}-{}", rng.below(6)),
                    message: "no".into(),
                }),
                5 => group(&format!("g{g}"), Some(minimum(g))),
                6 => Event::Object(ObjectEvent::ObjectDelete(ClusterObjectKey {
                    kind: ClusterObjectKind::PodGroup,
                    namespace: "ns".into(),
                    name: format!("g{g}"),
                })),
                7 => upsert(pod(&format!("single{}", rng.below(9)), 300)),
                8 => Event::Object(ObjectEvent::PodDelete(format!("uid-single{}", rng.below(9)))),
                _ => {
                    let mut one = member(&format!("g{g}-{}", rng.below(6)), &format!("g{g}"), 300);
                    one.spec.priority = i32::try_from(rng.below(2)).expect("small");
                    upsert(one)
                }
            };
            for (name, _) in binds(&step(&mut p, at, vec![event])) {
                let Some(g) = name.strip_prefix('g').and_then(|n| n[..1].parse().ok()) else { continue };
                let key = (p.cluster.strings.get("ns").expect("used"), Box::from(format!("g{g}")));
                let placed = p.cluster.groups.get(&key).map_or(0, |g| g.placed);
                assert!(placed >= minimum(g) as usize, "seed {seed}, step {at}: {placed} of g{g}");
                bound += 1;
            }
        }
        assert!(bound > 0, "seed {seed}");
        let pods: Vec<String> = p.cluster.pods.iter().map(|(_, pod)| pod.uid.to_string()).collect();
        step(&mut p, 9999, pods.into_iter().map(|uid| Event::Object(ObjectEvent::PodDelete(uid))).collect());
        assert!(p.cluster.columns.used.iter().flatten().all(|used| *used == 0), "seed {seed}: capacity");
        assert!(p.waiting.is_empty() && p.reservations.assumed_count() == 0 && p.in_flight_events.is_empty());
    }
}
