//! Concurrent admission: no workload is admitted twice, and pods run only while a variant is charged for them, whatever goes
//! wrong.

#![allow(clippy::unwrap_used)]

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::{Profile, generate, with_variants};

#[test]
fn workloads_are_admitted_by_one_variant_at_a_time() {
    let mut migrations = 0;
    for seed in 0..6 {
        let outcome = run(&with_variants(generate(seed, Profile::default())));
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        migrations += outcome.migrations;
    }
    assert!(migrations > 10, "{migrations}");
}
