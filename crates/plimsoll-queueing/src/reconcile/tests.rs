//! What a reconcile writes.

use super::*;
use crate::testing::outside::{cluster_queue, workload};
use crate::{Action, Admission, Condition, Config, Event, PodSetAssignment, ResourceFlavor};
use plimsoll_state::model::StringMap;

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
