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
