//! Claims with fair sharing: the share of the ClusterQueue decides before priorities do.

use super::claims::Churn;
use crate::testing::{cluster_queue, pod_set};
use plimsoll_queueing::{ClusterQueue, Config, FairSharing};
use proptest::prelude::*;

/// A ClusterQueue of the cohort `all`.
fn queue(name: &str, nominal: i64) -> ClusterQueue {
    ClusterQueue { cohort: "all".into(), ..cluster_queue(name, &[("f", nominal)]) }
}

/// `rich` borrows everything from `poor`.
fn world(fair: bool, nodes: &[i64]) -> Churn {
    let fair_sharing = fair.then(FairSharing::default);
    let config = Config { fair_sharing, overtaking: 0, ..Config::default() };
    Churn::with(true, config, &[queue("rich", 0), queue("poor", 1_000)], nodes)
}

/// A gang of each, the one of `rich` of a higher priority, while a pod of `rich` goes on: which starts first.
#[test]
fn a_queue_over_its_share_claims_nothing_before_one_below_it() {
    for fair in [false, true] {
        let mut c = world(fair, &[1, 1, 1, 1]);
        (0..4).for_each(|_| c.single("rich", 1));
        c.w.submit_to("rich", "rich-0", 5, vec![pod_set("main", 3, 1)]);
        c.w.submit_to("poor", "gang", 0, vec![pod_set("main", 3, 1)]);
        for _ in 0..3 {
            assert!(!c.is_admitted("gang") && !c.is_admitted("rich-0"));
            c.finish_one();
        }
        assert_eq!((c.is_admitted("gang"), c.is_admitted("rich-0")), (fair, !fair));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A gang of a queue that uses nothing starts once all that ran when it came have left but for one, whatever the queue that
    /// borrows submits, and with which priority.
    #[test]
    fn waiting_below_the_share_is_bounded(
        nodes in prop::collection::vec(1i64..4, 1..4),
        size in 1i32..6,
        rich in prop::collection::vec((1i32..5, 0i32..9), 1..16),
    ) {
        let mut c = world(true, &nodes);
        let all: i64 = nodes.iter().sum();
        for _ in 0..all {
            c.single("rich", 1);
        }
        c.w.submit_to("poor", "gang", 0, vec![pod_set("main", size, 1)]);
        let ran = c.running.len();
        for turn in 1..ran {
            let (pods, priority) = rich[turn % rich.len()];
            c.w.submit_to("rich", &format!("rich-{turn}"), priority, vec![pod_set("main", pods, 1)]);
            c.finish_one();
        }
        prop_assert_eq!(c.is_admitted("gang"), i64::from(size) < all, "{:?}", c.w.reason("gang"));
        prop_assert!(c.w.stuck.is_empty(), "{:?}", c.w.stuck);
    }
}
