//! Preemptions that fail or last. What the API shows of pods after writes that failed for long is compared in the simulator
//! (`plimsoll-sim`, `scenario/unwritten.rs`).

use crate::testing::Event;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{Pod, PodCondition};

use super::tests::{engine, node, pod, step, upsert};
use super::*;

#[test]
fn a_preemption_that_fails_is_tried_again_after_the_backoff() {
    let mut placement = Scheduler::new(Config::default());
    let now = |at| plimsoll_state::Time::from_seconds(at);
    let preemptions = |placement: &mut Scheduler, at| -> Vec<Action> {
        let mut actions = Vec::new();
        placement.decide(now(at), &mut |a| actions.push(a));
        actions.retain(|a| matches!(a, Action::Preempt { .. }));
        actions
    };
    placement.apply(now(0), node("a", 1000));
    let mut low = pod("low", 900);
    low.spec.node_name = "a".into();
    placement.apply(now(0), upsert(low));
    let mut high = pod("high", 900);
    high.spec.priority = 10;
    placement.apply(now(1), upsert(high));
    let asked = preemptions(&mut placement, 1);
    assert_eq!(asked.len(), 1, "{asked:?}");
    for action in asked {
        let answer = Answer::Failed("the server is currently unable to handle the request".into());
        let answered = crate::Event::Answered { action: Box::new(action), answer };
        placement.apply(now(1), Event::Answer(answered));
    }
    assert_eq!(preemptions(&mut placement, 1).len(), 0, "not before the backoff");
    let due = placement.next_wake().expect("the pod comes back");
    assert!(due > now(1) && due <= now(12), "{due:?}");
    assert_eq!(preemptions(&mut placement, 12).len(), 1);
}

/// Two pods that preempt, each on a node of its own; the first victim goes long before the second.
#[test]
fn a_victim_is_asked_once_while_it_is_still_there() {
    let mut placement = Scheduler::new(Config::default());
    let now = |at| plimsoll_state::Time::from_seconds(at);
    let decide = |placement: &mut Scheduler, at| {
        let mut actions = Vec::new();
        placement.decide(now(at), &mut |a| actions.push(a));
        actions
    };
    let victims = |actions: &[Action]| -> Vec<String> {
        let victim = |a: &Action| match a {
            Action::Preempt { victim, .. } => Some(victim.uid.clone()),
            _ => None,
        };
        actions.iter().filter_map(victim).collect()
    };
    for (node_name, low) in [("a", "low-a"), ("b", "low-b")] {
        placement.apply(now(0), node(node_name, 1000));
        let mut low = pod(low, 900);
        low.spec.node_name = node_name.into();
        placement.apply(now(0), upsert(low));
    }
    for high in ["high-1", "high-2"] {
        let mut high = pod(high, 900);
        high.spec.priority = 10;
        placement.apply(now(1), upsert(high));
    }
    let asked = victims(&decide(&mut placement, 1));
    assert_eq!(asked.len(), 2, "{asked:?}");
    // The first one goes: its preemptor is bound, and the other one is not tried in vain.
    placement.apply(now(2), Event::Object(ObjectEvent::PodDelete(asked[0].clone())));
    let actions = decide(&mut placement, 2);
    let bound = actions.iter().filter(|a| matches!(a, Action::Bind { .. })).count();
    let rejected = actions.iter().filter(|a| matches!(a, Action::Unschedulable { .. })).count();
    assert_eq!((bound, rejected, victims(&actions).len()), (1, 0, 0), "{actions:?}");
    placement.apply(now(3), Event::Object(ObjectEvent::PodDelete(asked[1].clone())));
    let actions = decide(&mut placement, 3);
    assert!(actions.iter().any(|a| matches!(a, Action::Bind { .. })), "{actions:?}");
}

/// Another reason for the same condition: the time of its transition stays.
#[test]
fn a_pod_that_was_unscheduled_before_is_told_again() {
    let again = |actions: &[Action]| {
        let told = actions.iter().find_map(|a| match a {
            Action::Unschedulable { again, generation, .. } => Some((*again, *generation)),
            _ => None,
        });
        told.expect("told")
    };
    let mut e = engine();
    let first = Pod { generation: 1, ..pod("p", 800) };
    assert_eq!(again(&step(&mut e, 0, vec![node("a", 100), upsert(first)])), (false, 1));
    let mut seen = Pod { generation: 2, ..pod("p", 800) };
    seen.status.conditions =
        vec![PodCondition { kind: "PodScheduled".into(), is_true: false, reason: "Unschedulable".into() }];
    step(&mut e, 1, vec![upsert(seen)]);
    // A node for it that another scheduler fills.
    let mut other = pod("other", 900);
    other.spec.node_name = "b".into();
    assert_eq!(again(&step(&mut e, 10, vec![node("b", 900), upsert(other)])), (true, 2));
}
