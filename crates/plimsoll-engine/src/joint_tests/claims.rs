//! Waiting for nodes is bounded: workloads after the first that waits take only places that it can't use.

use std::collections::VecDeque;

use crate::Event;
use crate::testing::{Fixture, cluster_queue, pod_set};
use plimsoll_queueing::{ClusterQueue, Config};
use plimsoll_state::ObjectEvent;
use proptest::prelude::*;

/// A world in which single pods come and go.
pub(super) struct Churn {
    pub(super) w: Fixture,
    /// Admitted single pods, the oldest first.
    pub(super) running: VecDeque<String>,
    made: usize,
}

impl Churn {
    fn new(joint: bool, queues: &[ClusterQueue], nodes: &[i64]) -> Self {
        Self::with(joint, Config::default(), queues, nodes)
    }

    pub(super) fn with(joint: bool, config: Config, queues: &[ClusterQueue], nodes: &[i64]) -> Self {
        let mut w = Fixture::with_queues(joint, config, queues);
        for (i, cpu) in nodes.iter().enumerate() {
            w.node(&format!("n{i}"), *cpu);
        }
        Self { w, running: VecDeque::new(), made: 0 }
    }

    /// Submits a single pod of priority 0.
    pub(super) fn single(&mut self, queue: &str, cpu: i64) {
        let name = format!("s{:03}", self.made);
        self.made += 1;
        self.w.submit_to(queue, &name, 0, vec![pod_set("main", 1, cpu)]);
        self.look();
    }

    /// Notes which single pods were admitted.
    pub(super) fn look(&mut self) {
        let new: Vec<String> = self.w.admitted().into_iter().map(str::to_owned).collect();
        self.running.extend(
            new.into_iter().filter(|n| n.starts_with('s') && !self.running.contains(n)).collect::<Vec<_>>(),
        );
    }

    /// The single pod that runs longest finishes.
    pub(super) fn finish_one(&mut self) {
        if let Some(name) = self.running.pop_front() {
            self.w.finish(&name);
            self.look();
        }
    }

    pub(super) fn is_admitted(&self, name: &str) -> bool {
        self.w.admitted().contains(&name)
    }
}

fn queues() -> Vec<ClusterQueue> {
    vec![cluster_queue("c", &[("f", 8)]), cluster_queue("d", &[("f", 1_000)])]
}

/// A gang of two claims nodes once pods were placed past it: as often as it is said, or its own number of a lower priority.
#[test]
fn a_gang_claims_nodes_after_it_was_overtaken() {
    for (overtaking, priority, past) in [(0, 0, 0), (1, 0, 2), (3, 0, 6), (3, 5, 2)] {
        let config = Config { overtaking, ..Config::default() };
        let mut c = Churn::with(true, config, &[cluster_queue("c", &[("f", 1_000)])], &[1, 1]);
        (0..2).for_each(|_| c.single("c", 1));
        c.w.submit_to("c", "gang", priority, vec![pod_set("main", 2, 1)]);
        let mut finished = 0;
        while !c.is_admitted("gang") {
            assert!(finished < 20, "overtaking {overtaking}: it waits for ever");
            c.single("c", 1);
            c.finish_one();
            finished += 1;
        }
        // The two that ran before it have finished, and those that came past it.
        let admitted = finished + c.running.len();
        assert_eq!(admitted - 2, past, "overtaking {overtaking}, priority {priority}");
    }
}

/// Quota for 8, four places: a gang of four with a high priority among single pods that come later.
#[test]
fn a_gang_is_not_overtaken_for_ever_by_single_pods() {
    for joint in [false, true] {
        let mut c = Churn::new(joint, &queues(), &[1, 1, 1, 1]);
        for _ in 0..4 {
            c.single("c", 1);
        }
        c.w.submit_to("c", "gang", 1000, vec![pod_set("main", 4, 1)]);
        assert_eq!(c.is_admitted("gang"), !joint, "quota allows it");
        let mut finished = 0;
        while joint && !c.is_admitted("gang") {
            assert!(finished < 4, "the places of the four that ran are enough");
            c.single("c", 1);
            // Later ones of the same scheduling hash are skipped.
            let (_, message) = c.w.reason("s004");
            assert!(message.ends_with("n/gang waits for nodes before it."), "{message}");
            c.finish_one();
            finished += 1;
        }
        assert_eq!(c.w.stuck.is_empty(), joint);
    }
}

#[test]
fn claims_are_counted() {
    let mut c = Churn::new(true, &queues(), &[1, 1]);
    let claimed = |c: &Churn| c.w.engine.queueing().map(plimsoll_queueing::Queueing::claimed_places);
    c.single("c", 1);
    assert_eq!(claimed(&c), Some((0, 0, None)));
    c.w.submit_to("c", "gang", 1, vec![pod_set("main", 2, 1)]);
    let Some((2, 1, Some(since))) = claimed(&c) else { panic!("{:?}", claimed(&c)) };
    c.w.touch_bound_pods(0);
    assert_eq!(claimed(&c), Some((2, 1, Some(since))));
    c.finish_one();
    assert_eq!((c.is_admitted("gang"), claimed(&c)), (true, Some((0, 0, None))));
}

/// A node that never has four CPUs free at once has them for the workload that claims it.
#[test]
fn a_large_pod_gets_a_whole_node_among_small_ones() {
    let mut c = Churn::new(true, &queues(), &[4, 4]);
    for _ in 0..8 {
        c.single("d", 1);
    }
    c.w.submit_to("d", "large", 1, vec![pod_set("main", 1, 4)]);
    for turn in 0..8 {
        if c.is_admitted("large") {
            return assert!(turn >= 4, "four had to leave");
        }
        c.single("d", 1);
        c.finish_one();
    }
    assert!(c.is_admitted("large"), "all that ran have left");
}

/// The node on which places are claimed becomes one of another flavor.
#[test]
fn a_claim_leaves_a_node_that_is_of_no_use_any_more() {
    for lost in ["n0", "n1"] {
        let mut c = Churn::new(true, &[cluster_queue("d", &[("on-demand", 90)])], &[]);
        for name in ["n0", "n1"] {
            c.w.node_of(name, 4, "on-demand");
        }
        for _ in 0..8 {
            c.single("d", 1);
        }
        c.w.submit_to("d", "large", 1, vec![pod_set("main", 1, 4)]);
        c.single("d", 1);
        c.w.node_of(lost, 4, "spot");
        for _ in 0..8 {
            c.single("d", 1);
            c.finish_one();
        }
        assert!(c.is_admitted("large"), "without {lost}: {:?}", c.w.reason("large"));
    }
}

#[test]
fn others_take_places_that_the_first_cannot_use() {
    let queues = [cluster_queue("c", &[("on-demand", 90)]), cluster_queue("d", &[("spot", 90)])];
    let mut c = Churn::new(true, &queues, &[]);
    c.w.node_of("a", 2, "on-demand");
    c.w.node_of("b", 2, "on-demand");
    c.w.node_of("s", 2, "spot");
    c.single("c", 1);
    c.w.submit_to("c", "gang", 5, vec![pod_set("main", 2, 2)]);
    assert_eq!(c.w.reason("gang").0, "WaitingForNodes");
    c.single("c", 1);
    assert_eq!(c.w.reason("s001").0, "WaitingForNodes", "the gang needs both nodes");
    c.single("d", 1);
    assert!(c.is_admitted("s002"), "the gang can't use spot nodes");
    c.finish_one();
    assert!(c.is_admitted("gang"));
}

#[test]
fn what_can_never_fit_claims_nothing_and_who_leaves_gives_its_claim_up() {
    let mut c = Churn::new(true, &queues(), &[2, 2]);
    c.single("d", 1);
    c.w.submit_to("d", "huge", 9, vec![pod_set("main", 5, 1)]);
    c.single("d", 1);
    assert!(c.is_admitted("s001"), "nodes never have five places");
    c.w.submit_to("d", "gang", 5, vec![pod_set("main", 4, 1)]);
    c.single("d", 1);
    assert!(!c.is_admitted("s002"));
    c.w.finish("gang");
    c.look();
    assert!(c.is_admitted("s002"), "the claim has ended");
    c.w.submit_to("d", "gang", 5, vec![pod_set("main", 4, 1)]);
    c.single("d", 1);
    assert!(!c.is_admitted("s003"));
    c.w.events.push(Event::Object(ObjectEvent::NodeDelete("n1".into())));
    c.w.run();
    c.finish_one();
    c.look();
    assert!(c.is_admitted("s003"), "without the node the gang never fits");
}

/// Gangs of two queues that need all nodes: the second does not hold what the first waits for.
#[test]
fn claims_of_several_queues_do_not_wait_for_each_other() {
    let queues = [
        cluster_queue("c", &[("f", 90)]),
        cluster_queue("d", &[("f", 90)]),
        cluster_queue("e", &[("f", 90)]),
    ];
    let mut c = Churn::new(true, &queues, &[1, 1, 1]);
    for queue in ["c", "d", "e"] {
        c.single(queue, 1);
    }
    for queue in ["c", "d", "e"] {
        c.w.submit_to(queue, &format!("gang-{queue}"), 3, vec![pod_set("main", 3, 1)]);
    }
    for _ in 0..3 {
        c.finish_one();
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        let gang = c.w.admitted().iter().find(|n| n.starts_with("gang")).map(|n| (*n).to_owned());
        let Some(gang) = gang else { break };
        c.w.finish(&gang);
        order.push(gang);
    }
    assert_eq!(order, ["gang-c", "gang-d", "gang-e"], "the oldest first");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Once all that ran when it came have left, the first workload that waits has started, whatever came later.
    #[test]
    fn waiting_is_bounded(
        nodes in prop::collection::vec(1i64..5, 1..5),
        before in prop::collection::vec((0u8..2, 1i64..4), 0..12),
        gang in (1usize..4, 1i64..5),
        later in prop::collection::vec((0u8..2, 1i64..4), 1..20),
        touches in any::<bool>(),
    ) {
        let (count, cpu) = gang;
        let places: i64 = nodes.iter().map(|n| n / cpu).sum();
        let queues = [cluster_queue("c", &[("f", 1_000)]), cluster_queue("d", &[("f", 1_000)])];
        let mut c = Churn::new(true, &queues, &nodes);
        let queue = |q: u8| ["c", "d"][q as usize];
        for (q, cpu) in before {
            c.single(queue(q), cpu);
        }
        c.w.submit_to("c", "gang", 7, vec![pod_set("main", i32::try_from(count).unwrap_or(1), cpu)]);
        let ran = c.running.len();
        for turn in 0..ran {
            let (q, cpu) = later[turn % later.len()];
            c.single(queue(q), cpu);
            if touches {
                c.w.touch_bound_pods(turn);
            }
            c.finish_one();
        }
        prop_assert_eq!(c.is_admitted("gang"), places >= i64::try_from(count).unwrap_or(1), "{:?}", c.w.reason("gang"));
        prop_assert!(c.w.stuck.is_empty(), "{:?}", c.w.stuck);
        // What comes last starts, too, when nothing new comes.
        c.w.finish("gang");
        c.look();
        for _ in 0..200 {
            c.finish_one();
        }
        let most = nodes.iter().copied().max().unwrap_or(0);
        for (name, w) in &c.w.workloads {
            let fits = w.pod_sets[0].spec.containers[0].requests["cpu"] <= most;
            prop_assert!(!fits, "{} waits: {:?}", name, c.w.reason(name));
        }
    }
}

/// A claim that has moved to another flavor keeps places of the former one until there are others. Those are not reserved for the gang.
#[test]
fn a_gang_gets_no_nodes_that_it_claimed_in_another_flavor() {
    let queue = cluster_queue("c", &[("g", 100), ("h", 100)]);
    let mut w = Fixture::with_queues(true, Config { overtaking: 0, ..Config::default() }, &[queue]);
    for (name, flavor) in [("g1", "g"), ("g2", "g"), ("h1", "h"), ("h2", "h")] {
        w.node_of(name, 4, flavor);
    }
    (0..4).for_each(|i| w.submit(&format!("full-{i}"), 1, 4));
    w.submit("first", 2, 4);
    // The first one has claimed the nodes of `g`, so this one claims those of `h`.
    w.submit("gang", 2, 4);
    w.finish("first");
    (0..4).for_each(|i| w.end(&format!("full-{i}")));
    w.run();
    assert_eq!(w.flavors("gang"), ["g"]);
    let (reserved, _, message) = super::quota_alone::nodes(&w, "gang");
    assert!(reserved && message == "main: [g1,g2]", "{message}");
}
