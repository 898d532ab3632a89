//! Writes about pods that all fail for a while: when the faults end, the API shows what was decided.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::unwritten::unwritten;

#[test]
fn lasting_failures_are_made_up_for() {
    let (mut explained, mut unschedulable) = (0, 0);
    for seed in 0..48 {
        let outcome = run(&unwritten(seed));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        explained += outcome.explanations;
        unschedulable += outcome.unschedulable;
    }
    assert!(explained > 100 && unschedulable > 100, "{explained} explanations, {unschedulable} pods");
}
