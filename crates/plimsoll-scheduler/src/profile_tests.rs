//! Profiles that are not the default one.

use crate::testing::Event;
use plimsoll_state::ObjectEvent;
use std::collections::BTreeSet;

use super::tests::{binds, related_history};
use super::*;

/// Plugins that say nothing at Score upstream unless they have been at PreScore.
const PREPARED: [&str; 3] = ["TaintToleration", "PodTopologySpread", "InterPodAffinity"];

fn placement(disabled: &[&str]) -> Scheduler {
    let off = UserSet { disabled: disabled.iter().map(|n| (*n).to_owned()).collect(), ..UserSet::default() };
    let user = UserPlugins { points: vec![("preScore".to_owned(), off)], ..UserPlugins::default() };
    let profile = Profile {
        plugins: PluginSet::new(&Registry::in_tree(), &user, &crate::FeatureGates::default()).expect("valid"),
        ..Profile::default()
    };
    Scheduler::new(Config { profiles: vec![profile], ..Config::default() })
}

/// The scores that are not zero.
fn scores(placement: &mut Scheduler, uid: &str) -> Option<Vec<NodeScore>> {
    let mut scores = placement.evaluate(uid, None)?.scores;
    for (_, by_plugin, _) in &mut scores {
        by_plugin.retain(|(_, score)| *score != 0);
    }
    Some(scores)
}

#[test]
fn plugins_that_are_not_at_pre_score_score_as_ever() {
    let mut seen = BTreeSet::new();
    for seed in 0..4 {
        let (mut ever, mut without) = (placement(&[]), placement(&PREPARED));
        for (at, events) in related_history(seed, 150).into_iter().enumerate() {
            let now = Time::from_seconds(at as i64 / 3);
            let mut pods = Vec::new();
            for event in events {
                if let Event::Object(ObjectEvent::PodUpsert(pod)) = &event {
                    pods.push(pod.uid.clone());
                }
                ever.apply(now, event.clone());
                without.apply(now, event);
            }
            for uid in pods {
                let want = scores(&mut ever, &uid);
                let plugins = want.iter().flatten().flat_map(|(_, by_plugin, _)| by_plugin);
                seen.extend(plugins.map(|(name, _)| name.clone()));
                assert_eq!(scores(&mut without, &uid), want, "seed {seed}, step {at}: {uid}");
            }
            let decide = |p: &mut Scheduler| {
                let mut actions = Vec::new();
                p.decide(now, &mut |a| actions.push(a));
                binds(&actions)
            };
            assert_eq!(decide(&mut without), decide(&mut ever), "seed {seed}, step {at}");
        }
    }
    assert!(PREPARED.iter().all(|name| seen.contains(*name)), "{seen:?}");
}
