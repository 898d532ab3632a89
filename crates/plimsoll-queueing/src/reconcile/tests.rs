//! What a reconcile writes.

use super::*;
use crate::testing::outside::{cluster_queue, workload};
use crate::{Action, Admission, Condition, Config, Event, PodSetAssignment, ResourceFlavor};
use plimsoll_state::model::StringMap;
use plimsoll_state::time::Duration;

/// A client that does not own the admission, such as one with server-side apply, releases quota by the condition alone. The
/// executor refuses a pending reason beside an admission (`contradicts_admission`): the write would be repeated for ever.
#[test]
fn a_pending_reason_clears_the_admission_that_another_client_left() {
    let now = Time::from_seconds(1000);
    let mut q = Queueing::new(Config::default());
    let mut w = workload(1, 0, 0, 1000);
    w.status.conditions.push(Condition {
        kind: cond::QUOTA_RESERVED.into(),
        reason: "EvictedByTest".into(),
        ..Condition::default()
    });
    let flavors = vec![("cpu".to_owned(), "f".to_owned())];
    let assignment =
        PodSetAssignment { name: "main".into(), count: 1, flavors, ..PodSetAssignment::default() };
    w.status.admission =
        Some(Box::new(Admission { cluster_queue: "c".into(), assignments: vec![assignment] }));
    let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
    // Without a LocalQueue the reason is known at once.
    for event in [
        Event::NamespaceUpsert("n".into(), StringMap::default()),
        Event::ResourceFlavorUpsert(Box::new(flavor)),
        Event::ClusterQueueUpsert(Box::new(cluster_queue("c", "", 1000, None, false))),
        Event::WorkloadUpsert(Box::new(w)),
    ] {
        q.handle(now, event);
    }
    let mut updates = Vec::new();
    q.decide(now, &mut |action| {
        if let Action::UpdateWorkload(update) = action {
            updates.push(update);
        }
    });
    q.check();
    let said: Vec<_> = updates.iter().flat_map(|u| &u.conditions).map(|c| (&*c.kind, &*c.message)).collect();
    assert!(said.contains(&(cond::QUOTA_RESERVED, "LocalQueue l0 doesn't exist")), "{said:?}");
    assert!(updates.iter().all(|u| u.admission == Some(None)), "{updates:?}");
}

/// Another client reserves quota while the first reason to wait is being written, and the watch is faster than the answer to that
/// write: the reservation is not taken for one that was released by the condition alone.
#[test]
fn a_reservation_of_another_client_outlives_a_pending_reason_on_its_way() {
    let now = Time::from_seconds(1000);
    let mut q = Queueing::new(Config::default());
    let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
    let mut w = workload(1, 0, 0, 1000);
    let step = |q: &mut Queueing, events: Vec<Event>| {
        events.into_iter().for_each(|event| q.handle(now, event));
        let mut updates = Vec::new();
        q.decide(now, &mut |action| {
            if let Action::UpdateWorkload(update) = action {
                updates.push(update);
            }
        });
        q.check();
        updates
    };
    let said = step(
        &mut q,
        vec![
            Event::NamespaceUpsert("n".into(), StringMap::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
            Event::ClusterQueueUpsert(Box::new(cluster_queue("c", "", 1000, None, false))),
            Event::WorkloadUpsert(Box::new(w.clone())),
        ],
    );
    let ids: Vec<u64> = said.iter().flat_map(|update| update.ids()).collect();
    assert!(!ids.is_empty(), "a reason is on its way");

    let flavors = vec![("cpu".to_owned(), "f".to_owned())];
    let assignment =
        PodSetAssignment { name: "main".into(), count: 1, flavors, ..PodSetAssignment::default() };
    w.version = 2;
    w.status.admission =
        Some(Box::new(Admission { cluster_queue: "c".into(), assignments: vec![assignment] }));
    w.status.conditions.push(Condition {
        kind: cond::QUOTA_RESERVED.into(),
        status: true,
        reason: "QuotaReserved".into(),
        transition: now,
        ..Condition::default()
    });
    let cleared = |updates: &[Box<crate::WorkloadUpdate>]| updates.iter().any(|u| u.admission == Some(None));
    let updates = step(&mut q, vec![Event::WorkloadUpsert(Box::new(w.clone()))]);
    assert!(!cleared(&updates), "{updates:?}");
    let failed = |id: u64| Event::WriteFailed { key: w.key.clone(), id, message: "conflict".into() };
    let updates = step(&mut q, ids.into_iter().map(failed).collect());
    assert!(!cleared(&updates), "{updates:?}");
    let id = q.workloads.find(&w.key).unwrap();
    let wl = q.wl(id).unwrap();
    assert!(wl.obj.status.is_true(cond::QUOTA_RESERVED) && wl.quota().is_some());
}

/// What a check says of a workload without quota stands until its controller says something else (Kueue's scheduler: "The workload
/// has failed admission checks"). Of a workload that had quota it is the answer to a question of that time, and it is asked again.
#[test]
fn a_check_that_fails_before_there_is_quota_keeps_its_answer() {
    use crate::model::{AdmissionCheckState, CheckState};
    let now = Time::from_seconds(1000);
    for (state, evicted) in [
        (CheckState::Retry, false),
        (CheckState::Rejected, false),
        (CheckState::Retry, true),
        (CheckState::Rejected, true),
    ] {
        let mut q = Queueing::new(Config::default());
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        let mut cq = cluster_queue("c", "", 1000, None, false);
        cq.admission_checks = vec![("check".into(), Vec::new())];
        let mut w = workload(1, 0, 0, 1000);
        w.status.admission_checks =
            vec![AdmissionCheckState { name: "check".into(), state, ..AdmissionCheckState::default() }];
        if evicted {
            let kind = cond::EVICTED.into();
            w.status.conditions.push(Condition { kind, status: true, ..Condition::default() });
        }
        for event in [
            Event::NamespaceUpsert("n".into(), StringMap::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
            Event::ClusterQueueUpsert(Box::new(cq)),
            Event::WorkloadUpsert(Box::new(w)),
        ] {
            q.handle(now, event);
        }
        let mut reset = false;
        q.decide(now, &mut |action| {
            if let Action::UpdateWorkload(update) = action {
                let checks = update.admission_checks.iter().flatten();
                reset |= checks.into_iter().any(|check| check.state == CheckState::Pending);
            }
        });
        q.check();
        assert_eq!(reset, evicted, "{state:?}");
    }
}

/// A world with one ClusterQueue and its LocalQueue, which gives no quota when it is on hold.
fn world(config: Config, stop: StopPolicy) -> Queueing {
    let mut q = Queueing::new(config);
    let local = crate::LocalQueue {
        namespace: "n".into(),
        name: "l0".into(),
        cluster_queue: "c0".into(),
        stop_policy: stop,
        fair_weight_nano: 1_000_000_000,
        ..crate::LocalQueue::default()
    };
    for event in [
        Event::NamespaceUpsert("n".into(), StringMap::default()),
        Event::ResourceFlavorUpsert(Box::new(ResourceFlavor {
            name: "f".into(),
            ..ResourceFlavor::default()
        })),
        Event::ClusterQueueUpsert(Box::new(cluster_queue("c0", "", 9000, None, false))),
        Event::LocalQueueUpsert(Box::new(local)),
    ] {
        q.handle(Time::from_seconds(100), event);
    }
    q
}

/// The updates of a step.
fn updates(q: &mut Queueing, second: i64) -> Vec<crate::WorkloadUpdate> {
    let mut all = Vec::new();
    q.decide(Time::from_seconds(second), &mut |action| {
        if let Action::UpdateWorkload(update) = action {
            all.push(*update);
        }
    });
    q.check();
    all
}

fn answered(q: &mut Queueing, second: i64, updates: &[crate::WorkloadUpdate], fails: bool) {
    for u in updates {
        let (key, id) = (u.key.clone(), u.id);
        let event = match fails {
            true => Event::WriteFailed { key, id, message: "no".into() },
            false => Event::Written { key, id, version: 0 },
        };
        q.handle(Time::from_seconds(second), event);
    }
}

/// All writes succeed.
fn settle(q: &mut Queueing, second: i64) -> Vec<crate::WorkloadUpdate> {
    let mut all = Vec::new();
    for _ in 0..4 {
        let made = updates(q, second);
        answered(q, second, &made, false);
        all.extend(made);
    }
    all
}

/// The API shows that a workload was evicted.
fn evict(w: &mut crate::Workload, reason: &str, at: i64) {
    w.version += 1;
    w.status.conditions.retain(|c| c.kind != cond::EVICTED);
    w.status.conditions.push(Condition {
        kind: cond::EVICTED.into(),
        status: true,
        reason: reason.into(),
        transition: Time::from_seconds(at),
        ..Condition::default()
    });
}

fn releases(u: &crate::WorkloadUpdate) -> bool {
    u.admission == Some(None)
}

#[test]
fn a_backoff_does_not_delay_a_release_whose_write_failed() {
    let mut q = world(
        Config { wait_for_pods_ready: Some(crate::tests::impatient()), ..Config::default() },
        StopPolicy::None,
    );
    let w = workload(0, 0, 0, 1000);
    let key = w.key.clone();
    q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(w)));
    settle(&mut q, 100);
    settle(&mut q, 110);
    q.handle(Time::from_seconds(111), Event::WorkloadStopped(key));
    let release = updates(&mut q, 111);
    assert!(release.iter().any(releases), "{release:?}");
    answered(&mut q, 111, &release, true);
    assert!(updates(&mut q, 113).iter().any(releases), "before the end of the backoff at 170");
}

/// The workload of a pod that is gone is not queued again, whatever becomes of the first write that says so.
#[test]
fn a_release_that_is_written_again_says_whether_the_workload_is_queued_again() {
    let requeued = |updates: &[crate::WorkloadUpdate]| {
        updates.iter().flat_map(|u| &u.conditions).find(|c| c.kind == cond::REQUEUED).map(|c| c.status)
    };
    for ended in [false, true] {
        let mut q = world(Config::default(), StopPolicy::None);
        let mut w = workload(0, 0, 0, 1000);
        q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(w.clone())));
        settle(&mut q, 100).iter().for_each(|u| u.apply(&mut w.status));
        evict(&mut w, "Preempted", 105);
        let stopped = if ended { Event::WorkloadEnded } else { Event::WorkloadStopped };
        q.handle(Time::from_seconds(106), Event::WorkloadUpsert(Box::new(w.clone())));
        q.handle(Time::from_seconds(106), stopped(w.key.clone()));
        let first = updates(&mut q, 106);
        assert_eq!(requeued(&first), Some(!ended), "{first:?}");
        answered(&mut q, 106, &first, true);
        let again = updates(&mut q, 108);
        assert_eq!(requeued(&again), Some(!ended), "{again:?}");
    }
}

/// The answer to a release was lost. What was carried out: that release, an admission, and another eviction, whose job has
/// not stopped.
#[test]
fn a_release_is_written_again_for_its_own_reservation_only() {
    let mut q = world(Config::default(), StopPolicy::None);
    let mut w = workload(0, 0, 0, 1000);
    q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(w.clone())));
    settle(&mut q, 100).iter().for_each(|u| u.apply(&mut w.status));
    evict(&mut w, "Preempted", 105);
    q.handle(Time::from_seconds(106), Event::WorkloadUpsert(Box::new(w.clone())));
    q.handle(Time::from_seconds(106), Event::WorkloadStopped(w.key.clone()));
    let release = updates(&mut q, 106);
    assert!(release.iter().any(releases), "{release:?}");
    answered(&mut q, 106, &release, true);
    let reserved = w.status.conditions.iter_mut().find(|c| c.kind == cond::QUOTA_RESERVED);
    reserved.expect("quota").transition = Time::from_seconds(107);
    evict(&mut w, "Preempted", 107);
    q.handle(Time::from_seconds(107), Event::WorkloadUpsert(Box::new(w.clone())));
    let after = updates(&mut q, 108);
    assert!(!after.iter().any(releases), "{after:?}");
    q.handle(Time::from_seconds(109), Event::WorkloadStopped(w.key));
    assert!(updates(&mut q, 109).iter().any(releases));
}

#[test]
fn a_gate_and_another_reason_to_wait_do_not_replace_each_other() {
    let mut q = world(Config::default(), StopPolicy::Hold);
    let mut w = workload(0, 0, 0, 1000);
    w.admission_gated_by = "example.com/gate".into();
    q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(w)));
    let first = settle(&mut q, 100);
    let reasons: Vec<&str> = first.iter().flat_map(|u| &u.conditions).map(|c| c.reason.as_str()).collect();
    assert!(reasons.contains(&"Suspended") && !reasons.contains(&"AdmissionGated"), "{reasons:?}");
    assert!(updates(&mut q, 100).is_empty());
    assert_ne!(q.next_wake(), Some(Time(i64::MIN)));
}

/// The eviction's write failed and a later one showed it: checks are reset when the job has stopped, not before.
#[test]
fn checks_that_were_not_reset_are_reset_after_the_stop() {
    use crate::model::{AdmissionCheckState, CheckState};
    let mut q = world(Config::default(), StopPolicy::None);
    let mut w = workload(0, 0, 0, 1000);
    q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(w.clone())));
    settle(&mut q, 100).iter().for_each(|u| u.apply(&mut w.status));
    w.active = false;
    evict(&mut w, "Deactivated", 105);
    w.status.admission_checks = vec![AdmissionCheckState {
        name: "check".into(),
        state: CheckState::Ready,
        ..AdmissionCheckState::default()
    }];
    let mut cq = cluster_queue("c0", "", 9000, None, false);
    cq.admission_checks = vec![("check".into(), Vec::new())];
    q.handle(Time::from_seconds(106), Event::ClusterQueueUpsert(Box::new(cq)));
    q.handle(Time::from_seconds(106), Event::WorkloadUpsert(Box::new(w.clone())));
    let id = q.workloads.find(&w.key).expect("the workload");
    let failed =
        crate::WorkloadUpdate { admission_checks: Some(Vec::new()), ..crate::WorkloadUpdate::default() };
    q.wl_mut(id).expect("the workload").failures.remember(&failed, &w.status);
    assert!(!q.reset_checks_again(id, Time::from_seconds(106)), "it still holds quota");
    q.handle(Time::from_seconds(107), Event::WorkloadStopped(w.key.clone()));
    let after = settle(&mut q, 107);
    let states = after.iter().filter_map(|u| u.admission_checks.as_ref()).flatten();
    assert!(states.into_iter().any(|c| c.state == CheckState::Pending), "{after:?}");
}

/// Kueue's scheduler, or its workload controller once the checks are ready.
#[test]
fn an_admission_is_recorded_by_the_controller_that_makes_it() {
    let admitted = |updates: &[crate::WorkloadUpdate]| {
        let events = updates.iter().flat_map(|u| &u.events).filter(|e| e.reason == "Admitted");
        events.map(|e| e.reporter).collect::<Vec<_>>()
    };
    let mut q = world(Config::default(), StopPolicy::None);
    let mut w = workload(0, 0, 0, 1000);
    q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(w.clone())));
    assert_eq!(admitted(&settle(&mut q, 100)), [Reporter::Scheduler]);

    let mut q = world(Config::default(), StopPolicy::None);
    let mut cq = cluster_queue("c0", "", 9000, None, false);
    cq.admission_checks = vec![("check".into(), Vec::new())];
    let check =
        crate::AdmissionCheck { name: "check".into(), active: true, ..crate::AdmissionCheck::default() };
    q.handle(Time::from_seconds(100), Event::AdmissionCheckUpsert(Box::new(check)));
    q.handle(Time::from_seconds(100), Event::ClusterQueueUpsert(Box::new(cq)));
    q.handle(Time::from_seconds(100), Event::WorkloadUpsert(Box::new(w.clone())));
    let waits = settle(&mut q, 100);
    assert!(admitted(&waits).is_empty(), "{waits:?}");
    waits.iter().for_each(|u| u.apply(&mut w.status));
    w.version += 1;
    w.status.admission_checks[0].state = CheckState::Ready;
    q.handle(Time::from_seconds(110), Event::WorkloadUpsert(Box::new(w)));
    assert_eq!(admitted(&settle(&mut q, 110)), [Reporter::WorkloadController]);
}

/// A LocalQueue that is charged for a reservation whose write is on its way. `checked`: it is no admission yet.
fn charged(checked: bool) -> (Queueing, crate::ids::LocalQueueId, Vec<crate::WorkloadUpdate>) {
    let rules = crate::AdmissionFairSharing {
        half_life: Duration::from_seconds(60),
        sampling: Duration::from_seconds(60),
        weights: std::collections::BTreeMap::new(),
    };
    let mut q = world(Config { admission_fair_sharing: Some(rules), ..Config::default() }, StopPolicy::None);
    let mut cq = cluster_queue("c0", "", 9000, None, false);
    cq.admission_fair_sharing = true;
    if checked {
        cq.admission_checks = vec![("check".into(), Vec::new())];
    }
    let check =
        crate::AdmissionCheck { name: "check".into(), active: true, ..crate::AdmissionCheck::default() };
    q.handle(Time::from_seconds(100), Event::AdmissionCheckUpsert(Box::new(check)));
    let w = workload(0, 0, 0, 1000);
    let key = w.key.clone();
    for event in [Event::ClusterQueueUpsert(Box::new(cq)), Event::WorkloadUpsert(Box::new(w))] {
        q.handle(Time::from_seconds(100), event);
    }
    let reservation = updates(&mut q, 100);
    let lq = q.wl(q.workloads.find(&key).expect("the workload")).expect("the workload").lq();
    assert!(q.local_usage(lq) > 0.0, "{reservation:?}");
    (q, lq, reservation)
}

#[test]
fn the_entry_penalty_of_a_reservation_that_is_not_written_goes() {
    for checked in [true, false] {
        let (mut q, lq, reservation) = charged(checked);
        answered(&mut q, 100, &reservation, true);
        assert!(q.local_usage(lq) == 0.0, "checked: {checked}");
    }
}

#[test]
fn the_entry_penalty_is_consumed_when_the_admission_was_written() {
    for checked in [true, false] {
        let (mut q, lq, reservation) = charged(checked);
        let usage = q.local_usage(lq);
        let consumes = |q: &Queueing| q.lq(lq).consumed_resources.consumed.values().any(|n| *n > 0);
        assert!(!consumes(&q));
        answered(&mut q, 100, &reservation, false);
        assert!(consumes(&q) != checked && (q.local_usage(lq) - usage).abs() < 1e-9);
    }
}
