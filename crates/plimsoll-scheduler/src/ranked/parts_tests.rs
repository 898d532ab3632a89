//! Ranks that are made in parts, some nodes in each step, decide as those that are made at once.

use crate::testing::Event;
use crate::tests::{binds, busy_history, decide, node, plain_node, pod, related_history, upsert};
use crate::{Action, Config, Scheduler};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{
    LabelSelector, Operator, PodAffinity, PodAffinityTerm, Requirement, SpreadConstraint, UnsatisfiableAction,
};
use plimsoll_state::time::Time;

fn scheduler(looks_per_step: usize) -> Scheduler {
    Scheduler::new(Config { looks_per_step, ..Config::default() })
}

/// Steps that break off are followed by others, with nothing in between: then all actions are those of one step.
#[test]
fn steps_that_break_off_decide_as_one_long_step() {
    const MOST: usize = 5;
    for (seed, history) in
        (0..6).flat_map(|seed| [(seed, busy_history(seed, 250)), (seed, related_history(seed, 250))])
    {
        let (mut long, mut short) = (scheduler(usize::MAX), scheduler(MOST));
        let (mut put_off, mut bound) = (0, 0);
        for (at, events) in history.into_iter().enumerate() {
            let now = Time::from_seconds(at as i64 / 3);
            for event in events {
                long.apply(now, event.clone());
                short.apply(now, event);
            }
            let (want, mut got) = (decide(&mut long, now), Vec::new());
            loop {
                got.append(&mut decide(&mut short, now));
                if short.is_waiting() {
                    put_off += 1;
                } else if short.nodes_looked_at() <= MOST {
                    break;
                }
            }
            assert_eq!(want, got, "seed {seed}, step {at}");
            bound += binds(&want).len();
            for action in &want {
                if let Action::Preempt { victim, .. } = action {
                    let gone = Event::Object(ObjectEvent::PodDelete(victim.uid.clone()));
                    long.apply(now, gone.clone());
                    short.apply(now, gone);
                }
            }
            short.check();
        }
        assert!(put_off > 50 && bound > 50, "seed {seed}: {put_off} steps put something off, {bound} bound");
    }
}

/// The cluster changes between the steps in which ranks are made.
#[test]
fn ranks_made_in_parts_equal_those_made_at_once() {
    for (seed, history) in
        (0..8).flat_map(|seed| [(seed, busy_history(seed, 300)), (seed, related_history(seed, 300))])
    {
        let mut p = scheduler(12 + seed as usize);
        let (mut put_off, mut bound) = (0, 0);
        for (at, events) in history.into_iter().enumerate() {
            let now = Time::from_seconds(at as i64 / 3);
            events.into_iter().for_each(|event| p.apply(now, event));
            let actions = decide(&mut p, now);
            put_off += usize::from(p.is_waiting());
            bound += binds(&actions).len();
            for action in &actions {
                if let Action::Preempt { victim, .. } = action {
                    p.apply(now, Event::Object(ObjectEvent::PodDelete(victim.uid.clone())));
                }
            }
            // Compares those that are whole.
            p.check_ranks();
        }
        let ranked = p.ranks.clock;
        assert!(put_off > 20 && ranked > 20 && bound > 20, "seed {seed}: {put_off}, {ranked}, {bound}");
    }
}

/// Work is counted in nodes looked at, so the figure is the same on every machine.
#[test]
fn no_step_looks_at_more_nodes_than_it_should() {
    const NODES: usize = 1000;
    const MOST: usize = 64;
    let (mut p, now) = (scheduler(MOST), Time::from_seconds(1));
    for i in 0..NODES {
        p.apply(now, node(&format!("n{i}"), 4000));
    }
    // Twelve kinds, five pods of each, in turn.
    for i in 0..60 {
        p.apply(now, upsert(pod(&format!("p{i}"), 100 + i % 12)));
    }
    let (mut bound, mut steps, mut all) = (0, 0, 0);
    while bound < 60 {
        bound += binds(&decide(&mut p, now)).len();
        steps += 1;
        all += p.nodes_looked_at();
        assert!(p.nodes_looked_at() <= MOST, "{} in step {steps}", p.nodes_looked_at());
        assert!(bound == 60 || p.next_wake() == Some(now), "goes on at once");
    }
    // Each kind looks at each node once, and again at those that got a pod meanwhile.
    assert!((12 * NODES..=12 * (NODES + 60)).contains(&all), "{all}");
    assert!(steps <= 12 * (NODES / MOST + 4), "{steps} steps");
}

/// Nodes that have changed since such pods came last are looked at again in parts, too.
#[test]
fn ranks_that_are_far_behind_are_repaired_in_parts() {
    const NODES: usize = 1000;
    const MOST: usize = 64;
    let (mut p, now) = (scheduler(MOST), Time::from_seconds(1));
    for i in 0..NODES {
        p.apply(now, node(&format!("n{i}"), 4000));
    }
    for round in 0..3 {
        // The first one alone is not worth ranks.
        (0..2).for_each(|i| p.apply(now, upsert(pod(&format!("p{round}-{i}"), 100))));
        let (mut bound, mut all) = (0, 0);
        while bound < 2 {
            bound += binds(&decide(&mut p, now)).len();
            all += p.nodes_looked_at();
            assert!(p.nodes_looked_at() <= MOST, "{} in round {round}", p.nodes_looked_at());
            if all == 5 * MOST {
                // Some change once more in the meantime.
                (0..NODES / 2).for_each(|i| p.apply(now, node(&format!("n{i}"), 4500)));
            }
        }
        assert!(all >= NODES, "{all} in round {round}");
        p.check_ranks();
        (0..NODES).for_each(|i| p.apply(now, node(&format!("n{i}"), 5000 + round)));
        // Steps without such pods.
        (0..2).for_each(|_| assert_eq!(decide(&mut p, now), []));
    }
}

/// The first pod with anti-affinity comes when there are ranks for pods with spread constraints, in which it does not count.
#[test]
fn affinity_that_comes_later_counts_in_ranks() {
    let hostname = "kubernetes.io/hostname";
    let selector = || {
        let values = vec!["a".to_owned()];
        let requirements = vec![Requirement { key: "app".into(), operator: Operator::In, values }];
        Some(LabelSelector { requirements })
    };
    let spread = |name: &str| {
        let mut one = pod(name, 100);
        one.labels.insert("app".into(), "a".into());
        one.spec.spread = vec![SpreadConstraint {
            max_skew: 1,
            topology_key: hostname.into(),
            when_unsatisfiable: UnsatisfiableAction::ScheduleAnyway,
            selector: selector(),
            min_domains: None,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Vec::new(),
        }];
        one
    };
    let nodes_of = |p: &mut Scheduler| {
        let now = Time::from_seconds(1);
        let nodes = ["n0", "n1", "n2"];
        for name in nodes {
            let mut one = plain_node(name, 64_000);
            one.labels.insert(hostname.into(), name.into());
            p.apply(now, Event::Object(ObjectEvent::NodeUpsert(Box::new(one))));
        }
        (0..6).for_each(|i| p.apply(now, upsert(spread(&format!("p{i}")))));
        let before = binds(&decide(p, now));
        let mut alone = pod("alone", 100);
        alone.spec.node_name = "n1".into();
        let term = PodAffinityTerm {
            selector: selector(),
            topology_key: hostname.into(),
            ..PodAffinityTerm::default()
        };
        alone.spec.affinity.anti = Some(PodAffinity { required: vec![term], preferred: Vec::new() });
        p.apply(now, upsert(alone));
        (6..12).for_each(|i| p.apply(now, upsert(spread(&format!("p{i}")))));
        (before, binds(&decide(p, now)))
    };
    let [mut plain, mut ranked] = [scheduler(usize::MAX).without_ranks(), scheduler(usize::MAX)];
    let (before, after) = nodes_of(&mut ranked);
    assert_eq!((before.len(), after.len()), (6, 6));
    assert!(after.iter().all(|(_, node)| node != "n1"), "{after:?}");
    assert_eq!((before, after), nodes_of(&mut plain));
}

/// Where nodes come all the time, ranks are begun again and again. A pod gets its node all the same.
#[test]
fn a_decision_is_not_put_off_for_ever() {
    let (mut p, now) = (scheduler(4), Time::from_seconds(1));
    p.ranks.work.patience = 40;
    for i in 0..20 {
        p.apply(now, node(&format!("n{i}"), 4000));
    }
    p.apply(now, upsert(pod("p", 100)));
    let mut steps = 0;
    while binds(&decide(&mut p, now)).is_empty() {
        steps += 1;
        assert!(steps < 20, "put off for ever");
        p.apply(now, node(&format!("more{steps}"), 4000));
    }
    assert!(steps > 5, "{steps}");
    assert!(!p.is_waiting());
}
