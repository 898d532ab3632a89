//! Workloads that are done before a claim could start anyway overtake it.

use crate::testing::Fixture;

/// A node of two CPUs, of which one is taken for so long; a gang that needs both has a claim.
fn world(seconds: Option<i32>) -> Fixture {
    let mut w = Fixture::new(true);
    w.node("a", 2);
    match seconds {
        Some(seconds) => w.submit_bounded("running", 1, 1, seconds),
        None => w.submit("running", 1, 1),
    }
    w.submit("gang", 2, 1);
    assert_eq!(w.reason("gang").0, "WaitingForNodes");
    w
}

#[test]
fn a_workload_that_is_done_before_a_claim_could_start_overtakes_it() {
    let mut w = world(Some(10_000));
    w.submit("for-ever", 1, 1);
    w.submit_bounded("too-long", 1, 1, 20_000);
    w.submit_bounded("too-large", 2, 1, 100);
    assert_eq!(w.admitted(), ["running"]);
    w.submit_bounded("short", 1, 1, 5_000);
    assert_eq!(w.admitted(), ["running", "short"]);
    assert!(w.stuck.is_empty());
    // When both have ended the gang is next, also before they had to.
    w.finish("short");
    assert_eq!(w.admitted(), ["running"]);
    w.finish("running");
    assert_eq!(w.admitted(), ["gang"]);
    assert!(w.stuck.is_empty());
}

#[test]
fn one_after_the_other_overtakes_until_the_claim_could_have_started() {
    let mut w = world(Some(10_000));
    let start = w.now;
    for i in 0..4 {
        let name = format!("short-{i}");
        w.submit_bounded(&name, 1, 1, 3_000);
        // What would end after the workload that runs has to wait.
        assert_eq!(w.admitted().contains(&&*name), i < 3, "{i}");
        if i < 3 {
            w.now = start + 3_000 * (i + 1);
            w.finish(&name);
        }
    }
    w.finish("running");
    assert_eq!(w.admitted(), ["gang"]);
}

#[test]
fn a_claim_that_could_start_at_any_time_is_not_overtaken() {
    let mut w = world(None);
    w.submit_bounded("short", 1, 1, 1);
    assert_eq!(w.admitted(), ["running"]);
}
