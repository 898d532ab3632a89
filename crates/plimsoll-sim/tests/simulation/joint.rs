//! Joint admission keeps to the bounds of the scenarios that are made for it, and a broken bound is a broken rule.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::check::Rule;
use plimsoll_sim::run::run;
use plimsoll_sim::scenario::Scenario;
use plimsoll_sim::scenario::joint::{Family, joint};

#[test]
fn bounds_are_kept() {
    for family in [Family::Flavors, Family::Reservations, Family::ReadyPods] {
        for seed in 0..6 {
            let outcome = run(&family.scenario(seed));
            assert!(outcome.violation.is_none(), "{family:?} {seed}: {}", outcome.violation.unwrap());
        }
    }
}

/// Quota alone admits gangs that nodes have no capacity for.
#[test]
fn without_joint_admission_bounds_are_broken() {
    for family in [Family::Flavors, Family::Reservations] {
        let broken = (0..6).filter(|&seed| {
            let mut scenario = family.scenario(seed);
            scenario.settings.joint = false;
            run(&scenario).violation.is_some_and(|v| v.rule == Rule::Waiting)
        });
        assert!(broken.count() > 0, "{family:?}");
    }
}

#[test]
fn scenarios_with_bounds_can_be_written_and_read() {
    for seed in 0..5 {
        let scenario = joint(seed);
        assert_eq!(Scenario::from_text(&scenario.to_text()).unwrap(), scenario);
    }
}
