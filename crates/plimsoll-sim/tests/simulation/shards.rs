//! Two leaders over one API: nodes, trees and loans go from one shard to the other, and leaders end.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::run::traced;
use plimsoll_sim::scenario::shards::sharded;

#[test]
fn two_leaders_decide_about_their_shards_alone() {
    let (mut granted, mut returned, mut nodes, mut trees) = (0, 0, 0, 0);
    for seed in 0..20 {
        let (outcome, trace) = traced(&sharded(seed), true);
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        let count = |words: [&str; 3]| {
            let arrives =
                |line: &&String| line.contains("Arrive") && words.iter().all(|word| line.contains(word));
            trace.iter().filter(arrives).count()
        };
        granted += count(["patch QuotaLoan", "Done", "Granted"]);
        returned += count(["patch QuotaLoan", "Done", "Returned"]);
        nodes += count(["patch Node", "Done", "plimsoll.dev/move-to"]);
        trees += count(["patch Cohort", "Done", "plimsoll.dev/move-to"]);
    }
    // They are worth playing.
    assert!(
        granted > 10 && returned > 10 && nodes > 30 && trees > 30,
        "{granted} granted, {returned} returned, {nodes} nodes, {trees} trees"
    );
}
