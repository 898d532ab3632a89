//! Nothing preempts in vain (joint admission): a workload that others are preempted for starts as soon as they have left,
//! although single jobs keep coming that would take each place that becomes free.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::joint::Family;

#[test]
fn workloads_that_others_are_preempted_for_start() {
    let mut preempted = 0;
    for seed in 0..4 {
        let outcome = run(&Family::Preemption.scenario(seed));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        preempted += outcome.preemptions.0;
    }
    assert!(preempted > 10, "{preempted}");
}
