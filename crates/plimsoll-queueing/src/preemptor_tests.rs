//! Workloads that wait for those that they preempted, and others that could take what these leave.

use super::*;
use crate::testing::outside::{Outside, queue};
use crate::testing::{self as engine, Engine};
use plimsoll_state::time::Time;

/// Who gets what a victim leaves: the workload that preempted it, or one of a higher priority that came since.
fn winner(prioritize_preemptors: bool) -> usize {
    let gates = Gates { prioritize_preemptors, ..Gates::default() };
    let mut engine = Engine::new(Config { gates, ..Config::default() });
    let mut outside = Outside::new(Vec::new());
    let mut events = vec![
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
    ];
    for (i, nominal) in [(0, 2), (1, 2), (2, 0)] {
        let mut both = queue(i, nominal, None, false);
        if let Event::ClusterQueueUpsert(cq) = &mut both[0] {
            cq.preemption = PreemptionRules {
                reclaim_within_cohort: if i == 0 { PreemptionPolicy::Any } else { PreemptionPolicy::Never },
                borrow_within_cohort: BorrowWithinCohort {
                    lower_priority: i == 0,
                    max_priority_threshold: None,
                },
                ..Default::default()
            };
        }
        events.extend(both);
    }
    events.push(outside.create(1, 0, 4000));
    for second in 0..6 {
        match second {
            1 => events.push(outside.create(0, 5, 4000)),
            // It comes before the victim has stopped.
            2 => events.push(outside.create(2, 9, 4000)),
            3 => {
                assert!(outside.workloads[0].status.is_true(cond::PREEMPTED));
                events.push(Event::WorkloadStopped(outside.workloads[0].key.clone()));
            }
            _ => {}
        }
        let mut batch: Vec<engine::Event> = events.drain(..).map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(1_000 + second), &mut batch, &mut actions);
        events = outside.carry_out(actions, &mut std::iter::empty());
    }
    let won: Vec<usize> = (1..3).filter(|&i| outside.workloads[i].status.admission.is_some()).collect();
    assert!(!won.is_empty(), "{:?}", outside.workloads.iter().map(|w| &w.status).collect::<Vec<_>>());
    won[0]
}

#[test]
fn who_preempted_goes_first_where_the_gate_says_so() {
    assert_eq!(winner(false), 2);
    assert_eq!(winner(true), 1);
}
