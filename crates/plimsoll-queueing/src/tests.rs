//! Properties of the whole of queueing, with an outside that fails, repeats and delays.

use proptest::prelude::*;

use super::*;
use crate::testing::outside::{Fate, Outside, cluster_queue, cpu, queue, workload};
use crate::testing::{self as engine, Engine};
use plimsoll_state::model::LabelSelector;
use plimsoll_state::time::Duration;
use plimsoll_state::time::Time;

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![4 => Just(Fate::Done), 1 => Just(Fate::DoneButLate), 1 => Just(Fate::DoneTwice), 2 => Just(Fate::Fails)]
}

/// One reclaims its quota, and two others each fit beside the victim: only one of them is admitted while it runs.
#[test]
fn nobody_is_admitted_in_the_place_of_a_victim_that_still_runs() {
    let mut engine = Engine::new(Config::default());
    let mut events = vec![
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
    ];
    events.extend([2, 2, 7].into_iter().enumerate().flat_map(|(i, q)| queue(i, q, None, false)));
    // It borrows 5 of the 7 that the third queue has.
    let all = [(0, 7), (1, 1), (2, 5), (0, 3), (1, 2)];
    let mut outside = Outside::new(Vec::new());
    let held = |o: &Outside| o.workloads.iter().map(|w| w.status.admission.is_some()).collect::<Vec<_>>();
    for (count_round, news) in [&all[..2], &[], &all[2..], &[], &[]].into_iter().enumerate() {
        events.extend(news.iter().map(|(queue, amount)| outside.create(*queue, 0, amount * 1000)));
        let mut batch: Vec<engine::Event> = events.drain(..).map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(1_000 + count_round as i64), &mut batch, &mut actions);
        events = outside.carry_out(actions, &mut std::iter::empty());
        assert!(outside.reserved(None) <= 11_000, "{} of 11000", outside.reserved(None));
    }
    assert!(outside.workloads[0].status.is_true(cond::PREEMPTED));
    assert_eq!(held(&outside), [true, true, false, true, false]);
}

/// The condition `Active` of a LocalQueue follows its ClusterQueue, whichever of the two comes first.
#[test]
fn a_local_queue_follows_its_cluster_queue() {
    let mut engine = Engine::new(Config::default());
    let queue: Vec<Event> = queue(0, 2, None, false).into_iter().collect();
    let (cluster, local): (Vec<Event>, Vec<Event>) =
        queue.into_iter().partition(|e| matches!(e, Event::ClusterQueueUpsert(_)));
    let Some(Event::ClusterQueueUpsert(spec)) = cluster.first().cloned() else { panic!("{cluster:?}") };
    let mut seen = |events: Vec<Event>| {
        let mut batch: Vec<engine::Event> = events.into_iter().map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(1_000), &mut batch, &mut actions);
        let reason = |a: &engine::Action| match a {
            engine::Action::Queueing(Action::LocalQueueStatus(_, _, s)) => {
                Some((s.active.as_ref()?.1.to_string(), s.reservation.len()))
            }
            _ => None,
        };
        actions.iter().rev().find_map(reason)
    };
    let flavor =
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() }));
    let first = [vec![Event::NamespaceUpsert("n".into(), StringMap::new()), flavor], local].concat();
    assert_eq!(seen(first), Some(("ClusterQueueDoesNotExist".into(), 0)));
    assert_eq!(seen(cluster), Some(("Ready".into(), 1)));
    let mut leaving = spec.clone();
    leaving.deleting = true;
    assert_eq!(seen(vec![Event::ClusterQueueUpsert(leaving)]), Some(("ClusterQueueIsInactive".into(), 1)));
    let gone = Event::ClusterQueueDelete(spec.name.clone());
    assert_eq!(seen(vec![gone]), Some(("ClusterQueueDoesNotExist".into(), 0)));
    assert_eq!(seen(vec![Event::ClusterQueueUpsert(spec)]), Some(("Ready".into(), 1)));
}

/// The condition `Active` has the generation of the spec, which queueing does not know.
#[test]
fn a_status_is_given_out_again_for_another_spec() {
    let mut engine = Engine::new(Config::default());
    let flavor = ResourceFlavor { name: "f".into(), ..Default::default() };
    let mut first = vec![Event::ResourceFlavorUpsert(Box::new(flavor))];
    first.extend(queue(0, 2, None, false));
    let Some(Event::ClusterQueueUpsert(mut spec)) =
        first.iter().find(|e| matches!(e, Event::ClusterQueueUpsert(_))).cloned()
    else {
        panic!("{first:?}")
    };
    let mut statuses = |events: Vec<Event>| {
        let mut batch: Vec<engine::Event> = events.into_iter().map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(1_000), &mut batch, &mut actions);
        let of_queue =
            |a: &&engine::Action| matches!(a, engine::Action::Queueing(Action::ClusterQueueStatus(..)));
        actions.iter().filter(of_queue).count()
    };
    assert_eq!(statuses(first), 1);
    assert_eq!(statuses(vec![Event::ClusterQueueUpsert(spec.clone())]), 0, "nothing has changed");
    spec.namespace_selector = None;
    assert_eq!(statuses(vec![Event::ClusterQueueUpsert(spec)]), 1);
}

/// As the queue manager of Kueue counts (`PendingWorkloads`).
#[test]
fn workloads_wait_in_a_local_queue_without_a_cluster_queue() {
    let mut engine = Engine::new(Config::default());
    let mut outside = Outside::new(Vec::new());
    let [cluster, local] = queue(0, 2, None, false);
    let mut pending = |events: Vec<Event>| {
        let mut batch: Vec<engine::Event> = events.into_iter().map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(1_000), &mut batch, &mut actions);
        actions.iter().rev().find_map(|a| match a {
            engine::Action::Queueing(Action::LocalQueueStatus(_, _, s)) => Some(s.pending),
            engine::Action::Queueing(_) => None,
        })
    };
    let flavor = ResourceFlavor { name: "f".into(), ..Default::default() };
    let namespace = Event::NamespaceUpsert("n".into(), StringMap::new());
    assert_eq!(pending(vec![namespace, Event::ResourceFlavorUpsert(Box::new(flavor)), local]), Some(0));
    assert_eq!(pending(vec![outside.create(0, 0, 1000)]), Some(1));
    assert_eq!(pending(vec![outside.create(0, 0, 5000)]), Some(2));
    assert_eq!(pending(vec![outside.create(0, 0, 1000)]), Some(3));
    let mut last = outside.workloads[2].clone();
    (last.active, last.version) = (false, last.version + 1);
    assert_eq!(pending(vec![Event::WorkloadUpsert(Box::new(last))]), Some(2), "it was deactivated");
    let first = outside.workloads[0].key.clone();
    assert_eq!(pending(vec![Event::WorkloadDelete(first)]), Some(1));
    assert_eq!(pending(vec![cluster]), Some(1), "it waits in the ClusterQueue, too");
}

/// A ClusterQueue that is gone, finalizer or not: its LocalQueues count nothing.
#[test]
fn a_local_queue_without_a_cluster_queue_counts_nothing() {
    let mut engine = Engine::new(Config::default());
    let mut outside = Outside::new(Vec::new());
    let flavor = ResourceFlavor { name: "f".into(), ..Default::default() };
    let mut events = vec![
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::ResourceFlavorUpsert(Box::new(flavor)),
    ];
    events.extend(queue(0, 2, None, false));
    events.push(outside.create(0, 0, 1000));
    let mut counts = Vec::new();
    for last in [false, false, true] {
        if last {
            events.push(Event::ClusterQueueDelete("c0".into()));
        }
        let mut batch: Vec<engine::Event> = events.drain(..).map(engine::Event::Queueing).collect();
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(1_000), &mut batch, &mut actions);
        counts.extend(actions.iter().filter_map(|a| match a {
            engine::Action::Queueing(Action::LocalQueueStatus(_, _, s)) => Some((s.reserving, s.admitted)),
            engine::Action::Queueing(_) => None,
        }));
        events = outside.carry_out(actions, &mut std::iter::empty());
    }
    assert_eq!((counts.iter().max(), counts.last()), (Some(&(1, 1)), Some(&(0, 0))), "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// However writes fail, repeat or come late: the books agree with the objects (the engine checks that
    /// itself in every step), what is reserved never exceeds what the cohort has, and in the end everything
    /// that can run has run.
    #[test]
    fn quota_holds_whatever_the_outside_does(
        queues in proptest::collection::vec((1..8i64, proptest::option::of(0..6i64), any::<bool>()), 1..4),
        jobs in proptest::collection::vec((0..4usize, -1..2i32, 1..9i64), 1..14),
        fates in proptest::collection::vec(any_fate(), 0..60),
        stops in proptest::collection::vec(any::<bool>(), 80),
        windows in proptest::option::of(proptest::collection::vec((0..50i64, 1..15i64), 0..4)),
        of_flavor in any::<bool>(),
    ) {
        let mut engine = Engine::new(Config::default());
        let mut now = Time::from_seconds(1_000);
        let total: i64 = queues.iter().map(|q| q.0 * 1000).sum();
        let mut events = vec![
            Event::NamespaceUpsert("n".into(), StringMap::new()),
            Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
        ];
        for (i, (nominal, limit, strict)) in queues.iter().enumerate() {
            events.extend(queue(i, *nominal, *limit, *strict));
        }
        // In the end it is open for good, so that everything can run.
        if let Some(spans) = windows {
            let mut spans: Vec<_> = spans.into_iter().map(|(a, n)| (1_000 + a, 1_000 + a + n)).collect();
            spans.push((1_055, i64::from(i32::MAX)));
            let all = Chosen { selector: Some(LabelSelector::default()), ..Chosen::default() };
            let mut window = RunWindow {
                name: "w".into(),
                calendar: Some(std::sync::Arc::new(super::run_windows::tests::Spans(spans))),
                ..RunWindow::default()
            };
            *(if of_flavor { &mut window.flavors } else { &mut window.local_queues }) = all;
            events.push(Event::RunWindowUpsert(Box::new(window)));
        }
        let workloads: Vec<Workload> = jobs
            .iter()
            .enumerate()
            .map(|(n, (q, p, a))| workload(n, q % queues.len(), *p, a * 1000))
            .collect();
        events.extend(workloads.iter().map(|w| Event::WorkloadUpsert(Box::new(w.clone()))));
        let mut outside = Outside::new(workloads);
        let mut fates = fates.into_iter();
        let mut idle = 0;
        for count_round in 0..400 {
            let mut batch: Vec<engine::Event> = events.drain(..).map(engine::Event::Queueing).collect();
            let mut actions = Vec::new();
            engine.step(now, &mut batch, &mut actions);
            events = outside.carry_out(actions, &mut fates);
            prop_assert!(outside.reserved(None) <= total, "{} of {total} reserved", outside.reserved(None));
            // Evicted jobs stop; of those that run some finish.
            let mut finished = 0;
            for (i, w) in outside.workloads.iter_mut().enumerate() {
                let s = &mut w.status;
                if s.is_true(cond::EVICTED) && s.is_true(cond::QUOTA_RESERVED) {
                    events.push(Event::WorkloadStopped(w.key.clone()));
                } else if s.is_true(cond::ADMITTED) && !s.is_true(cond::FINISHED) && stops[(count_round + i) % stops.len()] {
                    s.conditions.push(Condition { kind: cond::FINISHED.into(), status: true, ..Default::default() });
                    s.admission = None;
                    outside.version += 1;
                    w.version = outside.version;
                    events.push(Event::WorkloadUpsert(Box::new(w.clone())));
                    finished += 1;
                }
            }
            idle = if finished == 0 && events.is_empty() && outside.late.is_empty() { idle + 1 } else { 0 };
            if idle > 70 {
                break;
            }
            now = now.plus(Duration::from_seconds(1));
        }
        for (w, (q, _, amount)) in outside.workloads.iter().zip(&jobs) {
            let (nominal, limit, _) = queues[q % queues.len()];
            let most = limit.map_or(total, |l| total.min((nominal + l) * 1000));
            let blocked = queues[q % queues.len()].2;
            if amount * 1000 <= most && !blocked {
                prop_assert!(w.status.is_true(cond::FINISHED), "{} never ran: {:?}", w.key, w.status.conditions);
            }
        }
        if let Some(q) = engine.queueing() {
            prop_assert!(q.quota_tree().iter().flat_map(|n| &n.cells).all(|c| c.usage >= 0));
        }
    }
}

/// The same events give the same actions, byte for byte.
#[test]
fn replays_are_identical() {
    let run = || {
        let mut engine = Engine::new(Config::default());
        let mut events: Vec<engine::Event> = vec![
            Event::NamespaceUpsert("n".into(), StringMap::new()),
            Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
            Event::ClusterQueueUpsert(Box::new(cluster_queue("c0", "", 5000, None, false))),
            Event::LocalQueueUpsert(Box::new(LocalQueue {
                namespace: "n".into(),
                name: "l0".into(),
                cluster_queue: "c0".into(),
                ..LocalQueue::default()
            })),
        ]
        .into_iter()
        .chain((0..20).map(|n| Event::WorkloadUpsert(Box::new(workload(n, 0, n as i32 % 3, 1000)))))
        .map(engine::Event::Queueing)
        .collect();
        let mut actions = Vec::new();
        for second in 0..10 {
            engine.step(Time::from_seconds(100 + second), &mut events, &mut actions);
        }
        format!("{actions:?}")
    };
    assert_eq!(run(), run());
    assert!(run().contains("Admitted by ClusterQueue c0"));
}

/// A stale object seen again after our write doesn't undo it.
#[test]
fn a_stale_object_does_not_undo_an_admission() {
    let mut q = Queueing::new(Config::default());
    let now = Time::from_seconds(10);
    q.handle(now, Event::NamespaceUpsert("n".into(), StringMap::new()));
    q.handle(
        now,
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
    );
    q.handle(now, Event::ClusterQueueUpsert(Box::new(cluster_queue("c0", "", 1000, None, false))));
    let lq = LocalQueue {
        namespace: "n".into(),
        name: "l0".into(),
        cluster_queue: "c0".into(),
        ..LocalQueue::default()
    };
    q.handle(now, Event::LocalQueueUpsert(Box::new(lq)));
    let first = workload(0, 0, 0, 1000);
    q.handle(now, Event::WorkloadUpsert(Box::new(first.clone())));
    q.handle(now, Event::WorkloadUpsert(Box::new(workload(1, 0, 0, 1000))));
    let mut admitted = Vec::new();
    let mut step = |q: &mut Queueing, seconds: i64| {
        q.decide(Time::from_seconds(seconds), &mut |a| {
            if let Action::UpdateWorkload(u) = a
                && matches!(u.admission, Some(Some(_)))
            {
                admitted.push(u.key.name.clone());
            }
        });
        q.check();
    };
    step(&mut q, 10);
    q.handle(now, Event::WorkloadUpsert(Box::new(Workload { version: 2, ..first.clone() })));
    step(&mut q, 11);
    q.handle(now, Event::WorkloadUpsert(Box::new(first)));
    step(&mut q, 12);
    assert_eq!(admitted, ["w0"]);
    assert_eq!(q.status_of_cluster_queue("c0").map(|s| (s.reserving, s.pending)), Some((1, 1)));
}

/// Another client reserves quota while our condition `QuotaReserved=False` is being written: the usage counts at once, and
/// once.
#[test]
fn quota_that_others_reserve_is_charged_while_a_write_is_on_its_way() {
    for success in [true, false] {
        let now = Time::from_seconds(100);
        let mut q = small_world(Config::default(), 0);
        let waiting = workload(0, 0, 0, 10_000);
        q.handle(now, Event::WorkloadUpsert(Box::new(waiting.clone())));
        let mut writes = Vec::new();
        q.decide(now, &mut |a| {
            if let Action::UpdateWorkload(u) = a {
                writes.push(u);
            }
        });
        let [write] = writes.as_slice() else { panic!("{writes:?}") };
        assert!(write.admission.is_none(), "it waits");
        let assignment = PodSetAssignment {
            name: waiting.pod_sets[0].name.clone(),
            flavors: [("cpu".to_owned(), "f".to_owned())].into(),
            resource_usage: cpu(10_000).into(),
            count: waiting.pod_sets[0].count,
            ..PodSetAssignment::default()
        };
        let mut theirs = Workload { version: 5, ..waiting };
        theirs.status.admission =
            Some(Box::new(Admission { cluster_queue: "c0".into(), assignments: vec![assignment] }));
        theirs.status.conditions.push(Condition {
            kind: cond::QUOTA_RESERVED.into(),
            status: true,
            reason: "ByOther".into(),
            transition: now,
            ..Condition::default()
        });
        q.handle(now, Event::WorkloadUpsert(Box::new(theirs)));
        q.check();
        let reserving = |q: &Queueing| q.status_of_cluster_queue("c0").map(|s| s.reserving);
        assert_eq!(reserving(&q), Some(1));
        let (key, id) = (write.key.clone(), write.id);
        // Where it succeeds nevertheless, the API server shows that the workload waits again.
        q.handle(
            now,
            match success {
                true => Event::Written { key, id, version: 6 },
                false => Event::WriteFailed { key, id, message: "conflict".into() },
            },
        );
        q.check();
        assert_eq!(reserving(&q), Some(i32::from(!success)));
    }
}

fn small_world(config: Config, workloads: usize) -> Queueing {
    let mut q = Queueing::new(config);
    let now = Time::from_seconds(100);
    let flavor = ResourceFlavor { name: "f".into(), ..Default::default() };
    let local = LocalQueue {
        namespace: "n".into(),
        name: "l0".into(),
        cluster_queue: "c0".into(),
        ..LocalQueue::default()
    };
    for e in [
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::ResourceFlavorUpsert(Box::new(flavor)),
        Event::ClusterQueueUpsert(Box::new(cluster_queue("c0", "", 9000, None, false))),
        Event::LocalQueueUpsert(Box::new(local)),
    ] {
        q.handle(now, e);
    }
    for n in 0..workloads {
        q.handle(now, Event::WorkloadUpsert(Box::new(workload(n, 0, 0, 1000))));
    }
    q
}

/// Runs cycles at the given second; every write succeeds. Returns (workload, condition, reason).
fn run(q: &mut Queueing, second: i64) -> Vec<(String, String, String)> {
    let mut seen = Vec::new();
    for _ in 0..4 {
        let mut written = Vec::new();
        q.decide(Time::from_seconds(second), &mut |a| {
            if let Action::UpdateWorkload(u) = a {
                let rows =
                    u.conditions.iter().map(|c| (u.key.name.clone(), c.kind.clone(), c.reason.clone()));
                seen.extend(rows);
                written.push(Event::Written { key: u.key.clone(), id: u.id, version: 0 });
            }
        });
        written.into_iter().for_each(|e| q.handle(Time::from_seconds(second), e));
        q.check();
    }
    seen
}

fn has(seen: &[(String, String, String)], wl: &str, kind: &str, reason: &str) -> bool {
    seen.iter().any(|(w, k, r)| w == wl && k == kind && r == reason)
}

/// Between two tries of a search among flavors the first flavor becomes free: it is tried again, though nothing else
/// happens.
/// A workload that its integration lets go is queued, though nothing else about it changed.
#[test]
fn a_workload_no_longer_on_hold_gets_its_quota() {
    let mut q = small_world(Config::default(), 0);
    let mut held = workload(0, 0, 0, 1000);
    let mut condition = Condition {
        kind: cond::QUOTA_RESERVED.into(),
        reason: "OnHold".into(),
        transition: Time::from_seconds(100),
        ..Condition::default()
    };
    held.status.conditions = vec![condition.clone()];
    q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(held.clone())));
    assert!(!has(&run(&mut q, 100), "w0", cond::QUOTA_RESERVED, "QuotaReserved"));
    condition.reason = "PendingEvaluation".into();
    held.status.conditions = vec![condition];
    held.version = 2;
    q.handle(Time::from_seconds(101), Event::WorkloadUpsert(Box::new(held)));
    assert!(has(&run(&mut q, 101), "w0", cond::QUOTA_RESERVED, "QuotaReserved"));
}

#[test]
fn a_search_that_ended_with_old_tries_starts_anew() {
    let mut q = small_world(Config::default(), 0);
    let now = Time::from_seconds(100);
    let flavor = ResourceFlavor { name: "g".into(), ..Default::default() };
    q.handle(now, Event::ResourceFlavorUpsert(Box::new(flavor)));
    // Both queues want what the other one has in the first flavor.
    let mut two = cluster_queue("c0", "pool", 0, None, false);
    let mut second = two.resource_groups[0].flavors[0].clone();
    (second.flavor, second.resources[0].nominal) = ("g".into(), 1000);
    two.resource_groups[0].flavors.push(second);
    q.handle(now, Event::ClusterQueueUpsert(Box::new(two)));
    for event in queue(1, 4, None, false) {
        q.handle(now, event);
    }
    let owner = workload(1, 1, 0, 4000);
    q.handle(now, Event::WorkloadUpsert(Box::new(owner.clone())));
    q.handle(now, Event::WorkloadUpsert(Box::new(workload(2, 0, 0, 4000))));
    // One cycle: the owner gets its quota, and the other one comes too late for the first flavor.
    let mut written = Vec::new();
    q.decide(now, &mut |a| {
        if let Action::UpdateWorkload(u) = a {
            written.push(u);
        }
    });
    let admission = written.iter().find(|u| u.key.name == "w1").expect("admitted");
    let mut done = Workload { version: 9, ..owner };
    admission.apply(&mut done.status);
    let finished = Condition { kind: cond::FINISHED.into(), status: true, ..Default::default() };
    done.status.conditions.push(finished);
    q.handle(now, Event::WorkloadUpsert(Box::new(done)));
    // Kueue goes on with the second flavor, which is too small, and leaves it at that.
    assert!(!has(&run(&mut q, 100), "w2", cond::ADMITTED, "Admitted"));
    let wake = q.next_wake().expect("it will be tried again");
    assert!(wake <= Time::from_seconds(110));
    assert!(has(&run(&mut q, 110), "w2", cond::ADMITTED, "Admitted"));
}

/// Ten seconds for pods, and growing waits from a minute on.
pub(crate) fn impatient() -> WaitForPodsReady {
    WaitForPodsReady {
        timeout: Duration::from_seconds(10),
        recovery_timeout: None,
        block_admission: false,
        backoff_limit: Some(1),
        backoff_base: Duration::from_seconds(60),
        backoff_max: Duration::from_seconds(3600),
    }
}

/// Pods that don't get ready in time send a workload back with growing waits, then deactivate it.
#[test]
fn pods_that_are_not_ready_in_time() {
    let config = Config { wait_for_pods_ready: Some(impatient()), ..Config::default() };
    let mut q = small_world(config, 1);
    assert!(has(&run(&mut q, 100), "w0", "Admitted", "Admitted"));
    assert_eq!(q.next_wake(), Some(Time::from_seconds(110)));
    assert!(has(&run(&mut q, 110), "w0", "Evicted", "PodsReadyTimeout"));
    let key = WorkloadKey { namespace: "n".into(), name: "w0".into() };
    q.handle(Time::from_seconds(111), Event::WorkloadStopped(key));
    assert!(has(&run(&mut q, 111), "w0", "Requeued", "PodsReadyTimeout"));
    assert!(!has(&run(&mut q, 169), "w0", "QuotaReserved", "QuotaReserved"));
    let again = run(&mut q, 170);
    assert!(has(&again, "w0", "Requeued", "BackoffFinished"), "{again:?}");
    assert!(has(&again, "w0", "QuotaReserved", "QuotaReserved"), "{again:?}");
    assert!(has(&run(&mut q, 180), "w0", "DeactivationTarget", "RequeuingLimitExceeded"));
}

/// One that was preempted before it could be deactivated can be activated again, and then stays active.
#[test]
fn a_preempted_workload_that_is_deactivated_can_be_activated() {
    let mut q = small_world(Config::default(), 0);
    let condition = |kind: &str, reason: &str| Condition {
        kind: kind.into(),
        status: true,
        reason: reason.into(),
        transition: Time::from_seconds(90),
        ..Condition::default()
    };
    let mut wl = workload(0, 0, 0, 1000);
    wl.status.conditions =
        vec![condition(cond::EVICTED, "Preempted"), condition(cond::DEACTIVATION_TARGET, "AdmissionCheck")];
    for (second, active) in [(100, false), (101, true)] {
        wl.version += 1;
        wl.active = active;
        q.handle(Time::from_seconds(second), Event::WorkloadUpsert(Box::new(wl.clone())));
        q.decide(Time::from_seconds(second), &mut |a| match a {
            Action::UpdateWorkload(u) => u.apply(&mut wl.status),
            Action::DeactivateWorkload { .. } => panic!("deactivated again"),
            _ => {}
        });
        assert!(wl.status.condition(cond::DEACTIVATION_TARGET).is_none());
    }
    assert!(wl.status.is_true(cond::ADMITTED));
}

/// `blockAdmission` with time enough.
fn blocking() -> WaitForPodsReady {
    WaitForPodsReady {
        timeout: Duration::from_seconds(1000),
        recovery_timeout: None,
        block_admission: true,
        backoff_limit: None,
        backoff_base: Duration::from_seconds(60),
        backoff_max: Duration::from_seconds(3600),
    }
}

/// The pods of the first workload get ready.
fn pods_get_ready(q: &mut Queueing, second: i64) {
    let mut ready = q.workloads.iter().next().map(|(_, w)| (*w.obj).clone()).expect("there");
    ready.version += 1;
    ready.status.conditions.push(Condition {
        kind: cond::PODS_READY.into(),
        status: true,
        ..Condition::default()
    });
    q.handle(Time::from_seconds(second), Event::WorkloadUpsert(Box::new(ready)));
}

/// With `blockAdmission` one workload is admitted at a time.
#[test]
fn admission_waits_for_ready_pods() {
    let mut q = small_world(Config { wait_for_pods_ready: Some(blocking()), ..Config::default() }, 2);
    let seen = run(&mut q, 100);
    assert!(
        has(&seen, "w0", "Admitted", "Admitted") && has(&seen, "w1", "QuotaReserved", "WaitingForPodsReady")
    );
    pods_get_ready(&mut q, 101);
    assert!(has(&run(&mut q, 101), "w1", "Admitted", "Admitted"));
}

/// The workload that waited for ready pods is admitted, also when one of a higher priority has come to another queue.
#[test]
fn who_waited_for_ready_pods_goes_first() {
    for fair_sharing in [None, Some(FairSharing::default())] {
        let config = Config { wait_for_pods_ready: Some(blocking()), fair_sharing, ..Config::default() };
        let mut q = small_world(config, 1);
        for i in 1..3 {
            for e in queue(i, 9, None, false) {
                q.handle(Time::from_seconds(100), e);
            }
        }
        assert!(has(&run(&mut q, 100), "w0", "Admitted", "Admitted"));
        for (i, priority) in [(1, 0), (2, 9)] {
            q.handle(
                Time::from_seconds(101),
                Event::WorkloadUpsert(Box::new(workload(i, i, priority, 1000))),
            );
            assert!(has(&run(&mut q, 101), &format!("w{i}"), "QuotaReserved", "WaitingForPodsReady"));
        }
        pods_get_ready(&mut q, 102);
        let seen = run(&mut q, 102);
        assert!(has(&seen, "w1", "Admitted", "Admitted") && !has(&seen, "w2", "Admitted", "Admitted"));
    }
}

/// Kueue finds a ClusterQueue by way of the LocalQueue, and a stopped LocalQueue leads nowhere: draining the
/// ClusterQueue doesn't reach what came through a LocalQueue on hold.
#[test]
fn a_local_queue_on_hold_keeps_what_runs() {
    for (hold, evicted) in [(StopPolicy::None, true), (StopPolicy::Hold, false)] {
        let mut q = small_world(Config::default(), 1);
        assert!(has(&run(&mut q, 100), "w0", "Admitted", "Admitted"));
        let now = Time::from_seconds(101);
        let local = LocalQueue {
            namespace: "n".into(),
            name: "l0".into(),
            cluster_queue: "c0".into(),
            stop_policy: hold,
            ..LocalQueue::default()
        };
        q.handle(now, Event::LocalQueueUpsert(Box::new(local)));
        let drained = ClusterQueue {
            stop_policy: StopPolicy::HoldAndDrain,
            ..cluster_queue("c0", "", 9000, None, false)
        };
        q.handle(now, Event::ClusterQueueUpsert(Box::new(drained)));
        assert_eq!(has(&run(&mut q, 101), "w0", "Evicted", "ClusterQueueStopped"), evicted);
    }
}

/// Kueue forgets the resource `pods` when it looks for victims, takes the first candidate and then finds that it
/// doesn't fit, again and again.
#[test]
fn as_many_go_as_the_number_of_pods_takes() {
    let mut q = small_world(Config::default(), 3);
    let now = Time::from_seconds(100);
    let mut rules = cluster_queue("c0", "", 9000, None, false);
    let group = &mut rules.resource_groups[0];
    group.covered.push("pods".into());
    let pods =
        ResourceQuota { resource: "pods".into(), nominal: 3, borrowing_limit: None, lending_limit: None };
    group.flavors[0].resources.push(pods);
    q.handle(now, Event::ClusterQueueUpsert(Box::new(rules)));
    assert!(has(&run(&mut q, 100), "w2", "Admitted", "Admitted"));
    let mut urgent = workload(3, 0, 10, 1000);
    urgent.pod_sets[0].count = 2;
    q.handle(now, Event::WorkloadUpsert(Box::new(urgent)));
    let seen = run(&mut q, 101);
    let gone = ["w0", "w1", "w2"].iter().filter(|w| has(&seen, w, "Evicted", "Preempted")).count();
    assert_eq!(gone, 2);
}

/// Pods that are done don't tell two workloads apart: what still needs quota does.
#[test]
fn what_is_left_of_a_workload_makes_its_shape() {
    let mut q = small_world(Config::default(), 0);
    let now = Time::from_seconds(100);
    let first = workload(0, 0, 0, 10_000);
    let mut second = workload(1, 0, 0, 10_000);
    second.pod_sets[0].count = 2;
    second.status.reclaimable = vec![ReclaimablePod { name: "main".into(), count: 1 }];
    for wl in [first, second] {
        q.handle(now, Event::WorkloadUpsert(Box::new(wl)));
    }
    let seen = run(&mut q, 100);
    assert!(has(&seen, "w0", cond::QUOTA_RESERVED, "ExceedsMaxQuota"), "{seen:?}");
    // It waits with the first one, without a verdict of its own.
    assert!(!seen.iter().any(|(w, _, _)| w == "w1"), "{seen:?}");
}
