//! Ranks of nodes that are made in parts, some nodes in each step: joint admission decides as it does in long steps.

use proptest::prelude::*;

use super::*;
use plimsoll_queueing::{ClusterQueue, Config, PodSet, PreemptionPolicy};

/// What happens, each with a number that says to which of its kind.
#[derive(Clone, Debug)]
enum Happens {
    /// A gang of this many pods with this many CPUs, in a queue, with a priority.
    Gang(u8, u8, u8, u8),
    /// Gangs of one kind in all queues at once.
    Together(u8, u8),
    Finish(u8),
    /// A node comes, and all nodes have to be looked at again.
    Node(u8),
    /// A pod of no queue.
    Pod(u8),
}

fn happens() -> impl Strategy<Value = Vec<Happens>> {
    let one = prop_oneof![
        4 => (1u8..6, 1u8..5, 0u8..3, 0u8..3).prop_map(|(n, cpu, q, p)| Happens::Gang(n, cpu, q, p)),
        2 => (1u8..6, 1u8..5).prop_map(|(n, cpu)| Happens::Together(n, cpu)),
        4 => any::<u8>().prop_map(Happens::Finish),
        1 => (1u8..6).prop_map(Happens::Node),
        1 => (1u8..4).prop_map(Happens::Pod),
    ];
    prop::collection::vec(one, 4..30)
}

fn queues(preempt: bool) -> Vec<ClusterQueue> {
    let queue = |name: &str| {
        let mut queue = cluster_queue(name, &[("g", 30), ("h", 40)]);
        queue.cohort = "all".into();
        if preempt {
            queue.preemption.within_cluster_queue = PreemptionPolicy::LowerPriority;
            queue.preemption.reclaim_within_cohort = PreemptionPolicy::Any;
        }
        queue
    };
    ["a", "b", "c"].map(queue).to_vec()
}

/// What has become of everything, and how many steps put something off.
type Outcome = (Vec<String>, Vec<String>, Vec<String>, usize);

fn play(history: &[Happens], looks_per_step: usize, preempt: bool) -> Outcome {
    let mut w = Fixture::with_queues(true, Config::default(), &queues(preempt));
    w.look_at_most(looks_per_step);
    // Steps take hardly any time: how many there are makes no difference to what waits for a time.
    w.tick = Duration(1_000);
    let (mut nodes, mut gangs, mut put_off) = (0, 0, 0);
    let mut node = |w: &mut Fixture, cpu: u8| {
        nodes += 1;
        w.node_of(&format!("node-{nodes}"), i64::from(cpu), if nodes % 3 == 0 { "g" } else { "h" });
    };
    (0..12).for_each(|i| node(&mut w, 3 + i % 3));
    let mut waits = Vec::new();
    for one in history {
        match one {
            Happens::Gang(n, cpu, queue, priority) => {
                gangs += 1;
                let set = pod_set("main", i32::from(*n), i64::from(*cpu));
                let queue = ["a", "b", "c"][usize::from(*queue)];
                w.create(queue, &format!("gang-{gangs}"), i32::from(*priority), vec![set]);
                w.announce(&format!("gang-{gangs}"));
            }
            Happens::Together(n, cpu) => {
                let sets: Vec<PodSet> = vec![pod_set("main", i32::from(*n), i64::from(*cpu))];
                for queue in ["a", "b", "c"] {
                    gangs += 1;
                    w.create(queue, &format!("gang-{gangs}"), 0, sets.clone());
                    w.announce(&format!("gang-{gangs}"));
                }
            }
            Happens::Finish(which) => {
                let admitted = w.admitted();
                let name = admitted.get(usize::from(*which) % admitted.len().max(1)).map(ToString::to_string);
                name.iter().for_each(|name| w.end(name));
            }
            Happens::Node(cpu) => node(&mut w, *cpu),
            Happens::Pod(cpu) => {
                gangs += 1;
                let other = pod(&format!("other-{gangs}"), 0, &spec(i64::from(*cpu)));
                let other = Pod { workload: String::new(), pod_set: String::new(), ..other };
                w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(other))));
            }
        }
        w.run_with(2_000, |engine, now, events, actions| {
            engine.step(now, events, actions);
            put_off += usize::from(engine.scheduler().is_some_and(|s| s.is_waiting()));
        });
        let reason = |name: &String| format!("{name}: {:?}", w.reason(name));
        waits.extend(w.workloads.keys().map(reason));
    }
    let places = w.pods.values().flatten().map(|p| format!("{} on {}", p.uid, p.spec.node_name)).collect();
    (w.started.clone(), places, waits, put_off)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn gangs_get_the_nodes_that_they_get_in_long_steps(history in happens()) {
        let (started, places, waits, put_off) = play(&history, usize::MAX, false);
        prop_assert_eq!(put_off, 0);
        prop_assert!(places.iter().all(|place| !place.ends_with("on ")), "{:?}", places);
        let parts = play(&history, 3, false);
        prop_assert_eq!((started, places, waits), (parts.0, parts.1, parts.2));
    }

    /// Victims stop between the steps, so that there is no long step to compare with. Each step is checked, and they come to rest.
    #[test]
    fn cycles_that_preempt_are_put_off_as_a_whole(history in happens()) {
        let (_, places, ..) = play(&history, 3, true);
        prop_assert!(places.iter().all(|place| !place.ends_with("on ")), "{:?}", places);
    }
}

/// Work is counted in nodes looked at, so the figure is the same on every machine.
#[test]
fn no_step_looks_at_more_nodes_than_it_should() {
    const NODES: usize = 300;
    const MOST: usize = 40;
    let mut w = Fixture::with_queues(true, Config::default(), &[cluster_queue("c", &[("f", 1_000_000)])]);
    w.look_at_most(MOST);
    (0..NODES).for_each(|i| w.node(&format!("node-{i}"), 4));
    let (mut most, mut all, mut put_off) = (0, 0, 0);
    // Each round has gangs of kinds that were not there before, and more than fits: claims look at all nodes, too.
    for round in 0..4 {
        for i in 0..6 {
            let name = format!("gang-{round}-{i}");
            w.create("c", &name, 0, vec![pod_set("main", 40, 1 + (round + i) % 4)]);
            w.announce(&name);
        }
        w.run_with(2_000, |engine, now, events, actions| {
            engine.step(now, events, actions);
            let scheduler = engine.scheduler().expect("a scheduler");
            most = most.max(scheduler.nodes_looked_at());
            all += scheduler.nodes_looked_at();
            put_off += usize::from(scheduler.is_waiting());
        });
        let ends: Vec<String> = w.admitted().iter().take(3).map(ToString::to_string).collect();
        ends.iter().for_each(|name| w.end(name));
    }
    assert!(w.workloads.keys().any(|name| w.reason(name).0 == "WaitingForNodes"), "some wait");
    // A node with pods counts as more than one where claims take these off it.
    assert!(most <= MOST + 2, "{most} nodes in one step");
    assert!(all >= 8 * NODES && put_off >= 8 * (NODES / MOST) - 8, "{all} nodes, {put_off} steps");
}

/// Gangs of two nodes in many queues have claims on all nodes, and these become free one by one: each claim is planned once in a step,
/// however many gangs are tried, and admitted where they have claimed nodes.
#[test]
fn claims_are_planned_once_in_a_step() {
    const QUEUES: usize = 12;
    let names: Vec<String> = (0..QUEUES).map(|i| format!("queue-{i}")).collect();
    let queue = |name: &String| ClusterQueue { cohort: "all".into(), ..cluster_queue(name, &[("f", 1_000)]) };
    let queues: Vec<ClusterQueue> = names.iter().map(queue).collect();
    let mut w = Fixture::with_queues(true, Config { overtaking: 0, ..Config::default() }, &queues);
    (0..2 * QUEUES).for_each(|i| w.node(&format!("node-{i}"), 4));
    (0..2 * QUEUES)
        .for_each(|i| w.submit_to(&names[0], &format!("full-{i}"), 0, vec![pod_set("main", 1, 4)]));
    let gangs: Vec<String> = (0..2 * QUEUES).map(|i| format!("gang-{i}")).collect();
    for (i, gang) in gangs.iter().enumerate() {
        w.submit_to(&names[i % QUEUES], gang, 0, vec![pod_set("main", 2, 4)]);
    }
    let mut most = 0;
    let mut end = |w: &mut Fixture, names: &[String]| {
        names.iter().for_each(|name| w.end(name));
        w.run_with(2_000, |engine, now, events, actions| {
            engine.step(now, events, actions);
            most = most.max(engine.scheduler().expect("a scheduler").claims_planned());
        });
        w.admitted().iter().filter(|name| name.starts_with("gang")).count()
    };
    let admitted = (0..2 * QUEUES).map(|i| end(&mut w, &[format!("full-{i}")]));
    assert_eq!(admitted.last(), Some(QUEUES));
    // The others, several at once.
    for gangs in gangs[..QUEUES].chunks(4) {
        assert_eq!(end(&mut w, gangs), QUEUES, "as many have come as have ended");
    }
    assert_eq!(most, QUEUES);
}
