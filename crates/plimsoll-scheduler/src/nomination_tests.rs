//! Nominated nodes: whether a pod may preempt again, and when its nomination ends.

use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{Pod, PodCondition};

use super::tests::{engine, node, pod, step, upsert, volume_world};
use super::*;
use crate::testing::Event;

fn on_node(name: &str, node: &str, priority: i32) -> Pod {
    let mut one = pod(name, 800);
    one.spec.node_name = node.into();
    one.spec.priority = priority;
    one
}

fn high() -> Pod {
    let mut one = pod("high", 800);
    one.spec.priority = 10;
    one
}

fn victims(actions: &[Action]) -> Vec<&str> {
    let victims = actions.iter().filter_map(|action| match action {
        Action::Preempt { victim, .. } => Some(victim.name.as_str()),
        _ => None,
    });
    victims.collect()
}

/// The nominated nodes that are written.
fn nominations(actions: &[Action]) -> Vec<&str> {
    let nominations = actions.iter().filter_map(|action| match action {
        Action::Unschedulable { nominated_node: Some(node), .. } => Some(node.as_str()),
        _ => None,
    });
    nominations.collect()
}

/// A victim that terminates on the nominated node keeps the pod from preempting others, but not when that node is gone.
#[test]
fn a_pod_whose_nominated_node_is_gone_preempts_elsewhere() {
    for gone in [false, true] {
        let mut e = engine();
        let low = upsert(on_node("low-a", "a", 0));
        let others = vec![node("a", 1000), node("b", 1000), low, upsert(on_node("low-b", "b", 5))];
        step(&mut e, 0, others);
        let out = step(&mut e, 1, vec![upsert(high())]);
        assert_eq!((victims(&out), nominations(&out)), (vec!["low-a"], vec!["a"]), "{out:?}");
        let mut leaving = on_node("low-a", "a", 0);
        leaving.deleting = true;
        let (kind, reason) = ("DisruptionTarget".to_owned(), "PreemptionByScheduler".to_owned());
        leaving.status.conditions = vec![PodCondition { kind, is_true: true, reason }];
        let mut events = vec![upsert(leaving)];
        if gone {
            events.push(Event::Object(ObjectEvent::NodeDelete("a".into())));
        }
        step(&mut e, 2, events);
        // It has waited for an event for too long.
        let out = step(&mut e, 400, vec![]);
        let want = if gone { (vec!["low-b"], vec!["b"]) } else { (vec![], vec![]) };
        assert_eq!((victims(&out), nominations(&out)), want, "{out:?}");
    }
}

/// A pod that preempts ends the nominations of less important pods to the node, but not where all its victims terminate already.
#[test]
fn nominations_end_when_a_more_important_pod_preempts() {
    for terminates in [false, true] {
        let mut e = engine();
        let mut low = on_node("low", "a", 0);
        low.deleting = terminates;
        let mut middle = pod("middle", 800);
        middle.spec.priority = 5;
        let out = step(&mut e, 0, vec![node("a", 1000), upsert(low), upsert(middle)]);
        assert_eq!(nominations(&out), ["a"], "{out:?}");
        let out = step(&mut e, 1, vec![upsert(high())]);
        assert_eq!(nominations(&out), ["a"], "{out:?}");
        let cleared = out.iter().any(|action| matches!(action, Action::Nominate { .. }));
        assert_eq!(cleared, !terminates, "{out:?}");
        // The second one has chosen a victim that is asked already.
        let counted = if terminates { vec![] } else { vec![(1, 2)] };
        assert_eq!(e.preemption_victims().collect::<Vec<_>>(), counted);
    }
}

/// Preemption that can help nowhere ends the nomination, and so does a failure where no plugin is at PostFilter.
#[test]
fn a_failed_attempt_clears_the_nomination() {
    for disabled in [Vec::new(), vec!["*".to_owned()]] {
        let off = UserSet { disabled, ..UserSet::default() };
        let user = UserPlugins { points: vec![("postFilter".to_owned(), off)], ..UserPlugins::default() };
        let plugins = PluginSet::new(&Registry::in_tree(), &user, &FeatureGates::default()).expect("valid");
        let profiles = vec![Profile { plugins, ..Profile::default() }];
        let mut e = Scheduler::new(Config { profiles, ..Config::default() });
        let mut one = high();
        one.status.nominated_node_name = "a".into();
        let out = step(&mut e, 0, vec![node("a", 100), upsert(one)]);
        assert_eq!((victims(&out), nominations(&out)), (vec![], vec![""]), "{out:?}");
    }
}

/// A pod for which PreBind has work shows its node before it is bound, and no more when PreBind has failed.
#[test]
fn a_pod_that_waits_before_it_is_bound_shows_its_node() {
    let expected = |actions: &[Action]| {
        let node = |action: &Action| match action {
            Action::Nominate { node, .. } => Some(node.clone()),
            _ => None,
        };
        actions.iter().filter_map(node).collect::<Vec<_>>()
    };
    let mut e = engine();
    assert_eq!(expected(&step(&mut e, 0, volume_world())), ["a"]);
    let out = step(&mut e, 1, vec![Event::Answer(crate::Event::Prepared("uid-p".into()))]);
    assert!(out.is_empty(), "once: {out:?}");
    let out = step(&mut e, 600, vec![]);
    assert_eq!(nominations(&out), [""], "{out:?}");
    // Others are bound soon anyway.
    let out = step(&mut engine(), 0, vec![node("a", 1000), upsert(pod("p", 100))]);
    assert_eq!(expected(&out), [""; 0], "{out:?}");
}
