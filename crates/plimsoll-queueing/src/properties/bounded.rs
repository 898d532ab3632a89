//! Steps with a bound come to what steps without one come to.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Steps with little work each come to the same decisions as those without a bound. What one long cycle decides is
    /// carried out in the order of ClusterQueues, what several short ones decide in the order of these: in the end it is
    /// the same.
    #[test]
    fn bounded_steps_change_no_decision(
        cohorts in proptest::collection::vec(any_spec(), 1..4),
        queues in proptest::collection::vec(any_spec(), 1..8),
        (simple, apart, fair) in (0..4u8, any::<bool>(), 0..5u8),
        (work, admissions, rounds) in (1..4usize, 1..3usize, prop_oneof![Just(1), Just(8)]),
        ops in proptest::collection::vec(any_op(), 1..40),
    ) {
        let mut queues = queues;
        if simple > 0 {
            queues.iter_mut().for_each(|q| (q.rules, q.strict) = ((2, q.rules.1, false), false));
        }
        let run = |bounds: Option<(usize, usize, usize)>| {
            let mut trees = Trees::new(&cohorts, &queues, fair == 0);
            (trees.apart, trees.patient) = (apart, true);
            let events = trees.setup();
            trees.step(events);
            if let (Some(q), Some(bounds)) = (trees.engine.queueing_mut(), bounds) {
                (q.bounded.most, q.queues_per_cycle, q.rounds) = bounds;
            }
            ops.iter().for_each(|op| trees.apply(*op));
            trees.settle();
            trees.decisions.sort_unstable();
            trees.decisions
        };
        prop_assert_eq!(run(Some((work, admissions, rounds))), run(None));
    }
}

/// Trees beyond the bound of a cycle get their turn in the next ones.
#[test]
fn bounded_cycles_reach_every_tree() {
    let spec = Spec {
        parent: 0,
        nominal: 2000,
        borrowing: None,
        lending: None,
        rules: (2, 1, false),
        strict: false,
    };
    let queues: Vec<Spec> = (0..5).map(|parent| Spec { parent, ..spec.clone() }).collect();
    let mut trees = Trees::new(&vec![spec; 5], &queues, false);
    trees.apart = true;
    let mut events = trees.setup();
    for n in 0..20 {
        events.push(trees.outside.create(n % 5, 0, 1000));
    }
    trees.engine.queueing_mut().unwrap().queues_per_cycle = 1;
    let (_, moved) = trees.step_once(events);
    assert!(moved && trees.decisions.len() == 1, "one tree in a step: {:?}", trees.decisions);
    assert!(trees.engine.next_wake().is_some_and(|t| t <= trees.now));
    assert!(trees.settle().is_some());
    // Each cohort has the quota of one ClusterQueue and its own.
    assert_eq!(trees.admitted().len(), 20, "{:?}", trees.decisions);
    // Also when all of them are due again all the time.
    let queueing = trees.engine.queueing_mut().unwrap();
    let turn = |_| {
        queueing.due.everywhere();
        queueing.take_queues_due(false)
    };
    let turns: std::collections::BTreeSet<_> = (0..5).map(turn).collect();
    assert_eq!(turns.len(), 5, "{turns:?}");
}

/// What concerns all workloads reaches each of them, a few in a step, and nothing is decided before.
#[test]
fn bounded_changes_reach_every_workload() {
    let spec = Spec {
        parent: 0,
        nominal: 8000,
        borrowing: None,
        lending: None,
        rules: (2, 1, false),
        strict: false,
    };
    let mut trees = Trees::new(std::slice::from_ref(&spec), std::slice::from_ref(&spec), false);
    let closed = RunWindow {
        name: "night".into(),
        invalid: "never open".into(),
        finish: true,
        local_queues: Chosen { selector: Some(Default::default()), ..Chosen::default() },
        ..RunWindow::default()
    };
    let mut events = vec![Event::RunWindowUpsert(Box::new(closed))];
    for n in 0..6 {
        let mut w = workload(n, 0, 0, 1000);
        w.pod_sets[0].spec.containers[0].requests.clear();
        trees.outside.workloads.push(w.clone());
        events.push(Event::WorkloadUpsert(Box::new(w)));
    }
    trees.step(events);
    trees.engine.queueing_mut().unwrap().bounded.most = 2;
    let item =
        LimitRangeItem { default_request: [("cpu".to_owned(), 4000)].into(), ..LimitRangeItem::default() };
    let range = LimitRange { namespace: "n".into(), name: "r".into(), pod: None, container: Some(item) };
    let events = vec![Event::RunWindowDelete("night".into()), Event::LimitRangeUpsert(Box::new(range))];
    let (_, moved) = trees.step_once(events);
    assert!(!moved && trees.decisions.is_empty(), "before all are queued: {:?}", trees.decisions);
    assert!(trees.engine.next_wake().is_some_and(|t| t <= trees.now));
    assert!(trees.settle().is_some());
    // Of 16 cores, four each.
    assert_eq!(trees.admitted().len(), 4, "{:?}", trees.decisions);
}
