//! Kueue KEP-975: what is asked of victims, in which order, and that quota is released as they shrink. The cases of the proof of
//! concept (`candidates_ordering_test.go`, `partial_preemption_test.go`) and a plain search.

use proptest::prelude::*;

use super::super::*;
use crate::slices::tests::{Harness, key};
use crate::testing::outside::workload;

fn harness(on: bool, quota: i64) -> Harness {
    let gates = Gates { partial_preemption: on, ..Gates::default() };
    Harness::with(Config { gates, ..Config::default() }, &[("f", quota)])
}

/// `pods` of 1 CPU each; with a least number of pods it may be asked to shrink.
fn job(n: usize, priority: i32, pods: i32, least: Option<i32>) -> Workload {
    let mut w = workload(n, 0, priority, 1000);
    w.pod_sets[0].count = pods;
    w.pod_sets[0].min_count = least;
    w.partial_preemption = least.is_some();
    w.job_uid = format!("job-{n}");
    w
}

impl Harness {
    fn target(&self, n: usize) -> Option<i32> {
        self.all[n].status.admission.as_ref().and_then(|a| a.assignments[0].reclaim_target)
    }

    fn evicted(&self, n: usize) -> bool {
        self.all[n].status.is_true(cond::EVICTED)
    }
}

#[test]
fn a_victim_is_asked_for_no_more_than_is_needed_and_keeps_its_quota_until_it_shrinks() {
    let mut w = harness(true, 12);
    w.put(0, job(0, 0, 10, Some(2)));
    w.put(1, job(1, 1, 5, None));
    assert_eq!((w.target(0), w.evicted(0), w.admitted(0)), (Some(7), false, true), "{:?}", w.said);
    assert!(!w.admitted(1) && w.usage() == 10, "nothing is released");
    assert!(w.why(1).contains("Pending the preemption of 1 workload(s)"), "{}", w.why(1));
    let asked = "w0 PartiallyPreempted: Asked to shrink podset main from 10 to 7 pods to accommodate a workload \
                 (UID: uid-1, JobUID: job-1) due to prioritization in the ClusterQueue; preemptor path: /c0; \
                 preemptee path: /c0";
    assert_eq!(w.said.iter().filter(|s| s.contains("PartiallyPreempted")).count(), 1);
    assert!(w.said.iter().any(|s| s == asked), "{:?}", w.said);
    // It is asked once, and what it is asked stands.
    w.wait(60);
    w.resize(0, 9);
    assert_eq!((w.target(0), w.usage(), w.admitted(1)), (Some(7), 9, false), "{:?}", w.said);
    assert_eq!(w.said.iter().filter(|s| s.contains("PartiallyPreempted")).count(), 1);
    w.resize(0, 7);
    assert_eq!((w.target(0), w.usage(), w.admitted(1)), (None, 12, true), "{:?}", w.said);
    // Another one needs more: it is asked again.
    w.put(2, job(2, 2, 2, None));
    assert_eq!((w.target(0), w.evicted(0), w.evicted(1)), (Some(5), false, false), "{:?}", w.said);
    w.resize(0, 4);
    assert_eq!((w.target(0), w.usage(), w.admitted(2)), (None, 11, true), "{:?}", w.said);
    assert!(!w.said.iter().any(|s| s.starts_with("w0 Evicted")), "{:?}", w.said);
}

#[test]
fn without_the_gate_or_more_pods_than_the_least_it_is_evicted() {
    for (on, pods, least) in [(false, 10, Some(2)), (true, 10, None), (true, 10, Some(10))] {
        let mut w = harness(on, 10);
        w.put(0, job(0, 0, pods, least));
        w.put(1, job(1, 1, 5, None));
        assert_eq!((w.target(0), w.evicted(0)), (None, true), "{on} {least:?}");
    }
    // Two podsets with a least count: nobody knows which is meant.
    let mut w = harness(true, 10);
    let mut two = job(0, 0, 5, Some(2));
    let mut other = two.pod_sets[0].clone();
    other.name = "other".into();
    two.pod_sets.push(other);
    w.put(0, two);
    w.put(1, job(1, 1, 5, None));
    assert!(w.evicted(0) && w.target(0).is_none());
}

#[test]
fn what_shrinking_does_not_free_is_taken_from_the_whole() {
    // The first shrinks to its least, the second as far as needed.
    let mut w = harness(true, 20);
    w.put(0, job(0, 0, 10, Some(4)));
    w.wait(10);
    w.put(1, job(1, 0, 10, Some(4)));
    w.put(2, job(2, 1, 8, None));
    assert_eq!([w.target(0), w.target(1)].map(Option::unwrap), [8, 4], "the one admitted last first");
    assert!(!w.evicted(0) && !w.evicted(1));
    // All that can shrink is not enough: one is evicted, the other need not be.
    let mut w = harness(true, 20);
    w.put(0, job(0, 0, 10, Some(8)));
    w.wait(10);
    w.put(1, job(1, 0, 10, Some(8)));
    w.put(2, job(2, 1, 11, None));
    assert_eq!((w.evicted(0), w.evicted(1)), (false, true), "{:?}", w.said);
    assert_eq!((w.target(0), w.target(1)), (Some(9), None), "{:?}", w.said);
    w.stop(1);
    assert!(!w.admitted(2));
    w.resize(0, 9);
    assert!(w.admitted(2), "{:?}", w.said);
}

#[test]
fn those_that_can_shrink_go_before_others_of_their_priority() {
    let mut w = harness(true, 10);
    w.put(0, job(0, 0, 5, Some(1)));
    w.wait(10);
    w.put(1, job(1, 0, 5, None));
    w.put(2, job(2, 9, 3, None));
    assert_eq!((w.target(0), w.evicted(1)), (Some(2), false), "although it was admitted before");
    // A lower priority goes first.
    let mut w = harness(true, 10);
    w.put(0, job(0, 1, 5, Some(1)));
    w.put(1, job(1, 0, 5, None));
    w.put(2, job(2, 9, 3, None));
    assert_eq!((w.target(0), w.evicted(1)), (None, true));
    // The one with more pods goes first.
    let mut w = harness(true, 10);
    w.put(0, job(0, 0, 6, Some(1)));
    w.wait(10);
    w.put(1, job(1, 0, 4, Some(1)));
    w.put(2, job(2, 9, 2, None));
    assert_eq!((w.target(0), w.target(1)), (Some(4), None));
}

/// With partial scale-up (KEP-12100): a slice that waits does not take the quota that the slice before it was asked for, and
/// with fewer pods it is admitted and asked for what is left.
#[test]
fn a_slice_that_waits_does_not_grow_against_a_request() {
    let gates = Gates { partial_preemption: true, partial_scale_up: true, ..Gates::default() };
    let mut w = Harness::with(Config { gates, ..Config::default() }, &[("f", 9)]);
    let after = |n: usize, pods| Workload { replaces: Some(key(n - 1)), ..job(n, 0, pods, Some(2)) };
    w.put(0, job(0, 0, 5, Some(2)));
    w.put(1, after(1, 10));
    w.put(2, after(2, 10));
    assert_eq!((w.admitted(0), w.admitted(1), w.admitted(2), w.usage()), (false, true, false, 9));
    w.put(3, job(3, 1, 3, None));
    assert_eq!((w.target(1), w.evicted(1)), (Some(6), false), "{:?}", w.said);

    // A request stands, whatever becomes of the preemptor, and there is quota for the slice that waits.
    let activate = |w: &mut Harness, active: bool| {
        let preemptor = Workload { active, ..w.all[3].clone() };
        w.put(3, preemptor);
    };
    activate(&mut w, false);
    w.set_quotas(&[("f", 10)]);
    w.wait(60);
    assert_eq!((w.target(1), w.admitted(2), w.usage()), (Some(6), false, 9), "{:?}", w.said);
    assert_eq!(w.why(2), "WaitingForPreemptedWorkloads: The workload slice n/w1 was asked to shrink");

    // It is admitted with no more pods than run.
    w.resize(2, 8);
    assert_eq!((w.admitted(1), w.admitted(2), w.usage()), (false, true, 8), "{:?}", w.said);
    assert_eq!(w.target(2), Some(6), "what is left of the request stands");
    activate(&mut w, true);
    assert_eq!((w.target(2), w.admitted(3)), (Some(6), false), "{:?}", w.said);
    w.resize(2, 6);
    assert_eq!((w.target(2), w.admitted(3), w.usage()), (None, true, 9), "{:?}", w.said);
    let asked = w.said.iter().filter(|s| s.contains("PartiallyPreempted"));
    assert_eq!(asked.count(), 1, "{:?}", w.said);
    let of_others = |s: &&String| s.contains("Evicted") && !s.starts_with("w3 ");
    assert_eq!(w.said.iter().find(of_others), None, "{:?}", w.said);
}

#[test]
fn a_request_ends_with_the_reservation() {
    let mut w = harness(true, 10);
    w.put(0, job(0, 0, 10, Some(2)));
    w.put(1, job(1, 1, 5, None));
    assert_eq!(w.target(0), Some(5));
    let mut off = w.all[0].clone();
    off.active = false;
    w.put(0, off);
    w.stop(0);
    assert!(w.all[0].status.admission.is_none() && w.admitted(1), "{:?}", w.said);
}

proptest! {
    /// Victims of one priority and queue against a plain account: what is asked for is enough, and not more than needed where
    /// shrinking is enough; quota is charged until the pods have gone.
    #[test]
    fn requests_are_enough_and_no_more(
        victims in proptest::collection::vec((1..7_i32, 0..7_i32), 1..4),
        wanted in 1..16_i32,
    ) {
        let total: i32 = victims.iter().map(|(pods, _)| pods).sum();
        let mut w = harness(true, i64::from(total));
        for (n, (pods, least)) in victims.iter().enumerate() {
            w.put(n, job(n, 0, *pods, Some(*least.min(pods))));
            w.wait(10);
        }
        let preemptor = victims.len();
        w.put(preemptor, job(preemptor, 1, wanted, None));
        let shrinkable: i32 = victims.iter().map(|(pods, least)| pods - least.min(pods)).sum();
        let gone = |w: &Harness, n: usize| victims[n].0 - w.target(n).unwrap_or(victims[n].0);
        let evicted: Vec<usize> = (0..preemptor).filter(|&n| w.evicted(n)).collect();
        let asked: i32 = (0..preemptor).filter(|n| !evicted.contains(n)).map(|n| gone(&w, n)).sum();
        let freed = asked + evicted.iter().map(|&n| victims[n].0).sum::<i32>();
        prop_assert_eq!(w.usage(), i64::from(total), "charged until then");
        if wanted > total {
            prop_assert!(evicted.is_empty() && asked == 0);
            return Ok(());
        }
        if wanted <= shrinkable {
            prop_assert!(evicted.is_empty(), "{:?}", w.said);
            prop_assert_eq!(asked, wanted);
            // Those with more pods first, and of those the last one admitted.
            let mut order: Vec<usize> = (0..preemptor).filter(|&n| victims[n].0 > victims[n].1).collect();
            order.sort_by_key(|&n| (-victims[n].0, std::cmp::Reverse(n)));
            let mut left = wanted;
            for n in order {
                let can = victims[n].0 - victims[n].1;
                prop_assert!(gone(&w, n) == can.min(left) || gone(&w, n) == 0 || left <= can);
                left -= gone(&w, n);
            }
        } else {
            prop_assert!(freed >= wanted, "{:?}", w.said);
        }
        for n in 0..preemptor {
            if evicted.contains(&n) {
                w.stop(n);
            } else if let Some(target) = w.target(n) {
                w.resize(n, target);
            }
        }
        prop_assert!(w.admitted(preemptor), "{:?}", w.said);
        prop_assert!(w.usage() <= i64::from(total));
    }
}
