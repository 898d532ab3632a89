//! Queues whose limits are lowered while they use what they had.

use super::tests::{Outside, queue};
use super::*;
use crate::testing::{self as engine, Engine};
use plimsoll_state::time::Time;

/// A queue whose limits were lowered uses more than it may, and one waits in it: nothing is kept back for that one, so that
/// what its queue uses above the limits counts in full for who takes it. Kueue keeps back less than nothing, and its queue
/// seems to use that much less.
#[test]
fn nothing_is_kept_back_above_lowered_limits() {
    let mut engine = Engine::new(Config::default());
    let with_rules = |i, nominal, limit, preemption| {
        let mut events = queue(i, nominal, limit, false);
        if let Event::ClusterQueueUpsert(cq) = &mut events[0] {
            cq.preemption = preemption;
        }
        events
    };
    let borrow_within_cohort = BorrowWithinCohort { lower_priority: true, max_priority_threshold: None };
    let taker = PreemptionRules {
        reclaim_within_cohort: PreemptionPolicy::Any,
        borrow_within_cohort,
        ..Default::default()
    };
    let mut events = vec![
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
    ];
    events.extend(with_rules(0, 2, Some(8), PreemptionRules::default()));
    events.extend(with_rules(1, 3, None, taker));
    events.extend(queue(2, 11, None, false));
    // All 16 are in use. Then one waits in the first queue, and behind it one that takes what that queue has borrowed.
    let all = [(0, 0, 10), (2, 9, 6), (0, 5, 1), (1, 2, 6)];
    let mut outside = Outside { workloads: Vec::new(), version: 1, late: Vec::new(), admissions: vec![0; 4] };
    let mut preempted = Vec::new();
    for (count_round, news) in [&all[..2], &[], &all[2..], &[], &[]].into_iter().enumerate() {
        if count_round == 2 {
            events.extend(with_rules(0, 2, Some(0), PreemptionRules::default()));
        }
        events.extend(
            news.iter().map(|(queue, priority, amount)| outside.create(*queue, *priority, amount * 1000)),
        );
        let mut batch: Vec<engine::Event> = events.drain(..).map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(1_000 + count_round as i64), &mut batch, &mut actions);
        events = outside.carry_out(actions, &mut std::iter::empty());
        assert!(outside.reserved() <= 16_000, "{} of 16000", outside.reserved());
        preempted.push(outside.workloads[0].status.is_true(cond::PREEMPTED));
    }
    assert_eq!(preempted, [false, false, true, true, true]);
}
