//! Waiting for nodes is bounded (joint admission): gangs among single jobs that keep coming, faster than nodes can run them.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::joint::Family;
use plimsoll_state::Duration;

#[test]
fn gangs_wait_no_longer_than_what_runs_when_they_come() {
    for seed in 0..4 {
        let outcome = run(&Family::Waiting.scenario(seed));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        let waited = |priority| outcome.waited_for_nodes.get(&priority).copied().unwrap_or_default();
        assert!(waited(2) > Duration::ZERO, "seed {seed}: nodes are full");
        assert!(waited(0) > waited(2), "seed {seed}: single jobs come faster than nodes run them");
    }
}

#[test]
fn gangs_wait_no_longer_for_a_rack() {
    for seed in 0..4 {
        let outcome = run(&Family::Racks.scenario(seed));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        let waited = |priority| outcome.waited_for_nodes.get(&priority).copied().unwrap_or_default();
        assert!(waited(2) > Duration::ZERO, "seed {seed}: racks are full");
        assert!(waited(0) > waited(2), "seed {seed}: single jobs come faster than nodes run them");
    }
}

#[test]
fn queues_over_their_share_claim_nothing_before_those_below_it() {
    for seed in 0..4 {
        let outcome = run(&Family::Shares.scenario(seed));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        let waited = |priority| outcome.waited_for_nodes.get(&priority).copied().unwrap_or_default();
        assert!(waited(0) > Duration::ZERO, "seed {seed}: nodes are full");
        assert!(waited(2) > waited(0), "seed {seed}: gangs come faster than nodes run them");
    }
}
