//! Queues whose limits are lowered while they use what they had.

use super::*;
use crate::testing::outside::{Outside, queue};
use crate::testing::{self as engine, Engine};
use plimsoll_state::time::{Duration, Time};

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
    let mut outside = Outside::new(Vec::new());
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
        assert!(outside.reserved(None) <= 16_000, "{} of 16000", outside.reserved(None));
        preempted.push(outside.workloads[0].status.is_true(cond::PREEMPTED));
    }
    assert_eq!(preempted, [false, false, true, true, true]);
}

/// Ten changes of a quota in a tenth of a second: the first is answered at once, all others together a second later.
#[test]
fn changes_of_a_quota_that_follow_each_other_requeue_together() {
    let mut engine = Engine::new(Config::default());
    let mut outside = Outside::new(Vec::new());
    let mut events = vec![
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
    ];
    events.extend(queue(0, 1, None, false));
    events.push(outside.create(0, 0, 2000));
    let mut now = Time::from_seconds(1_000);
    let mut step = |now: Time, mut events: Vec<Event>| {
        for _ in 0..4 {
            let mut batch: Vec<engine::Event> = events.drain(..).map(engine::Event::Queueing).collect();
            let mut actions = Vec::new();
            engine.step(now, &mut batch, &mut actions);
            events = outside.carry_out(actions, &mut std::iter::empty());
        }
        let admitted = outside.workloads[0].status.admission.is_some();
        (engine.queueing().map_or(0, |q| q.attempts().inadmissible), admitted, engine.next_wake())
    };
    let mut attempts = vec![step(now, events).0];
    let mut last = (0, false, None);
    now = now.plus(Duration::from_seconds(2));
    for quota in 0..10 {
        now = now.plus(Duration::from_millis(10));
        let mut changed = queue(0, 1, None, false).to_vec();
        if let Event::ClusterQueueUpsert(cq) = &mut changed[0] {
            // The last one has enough.
            cq.resource_groups[0].flavors[0].resources[0].nominal = 1_111 * (quota + 1) / 5;
        }
        last = step(now, changed);
        attempts.push(last.0);
    }
    assert_eq!(attempts[..2], [1, 2]);
    assert_eq!(attempts[2..], [2; 9]);
    let (_, admitted, wake) = last;
    assert!(!admitted);
    let end = now.plus(Duration::from_seconds(1));
    assert!(wake.is_some_and(|w| w <= end), "{wake:?}");
    assert!(step(end, Vec::new()).1);
}
