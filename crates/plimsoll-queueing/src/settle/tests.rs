use super::super::model::AdmissionCheck;
use super::super::{Config, Event, ResourceFlavor};
use super::*;
use crate::testing::outside::{cluster_queue, queue, workload};

/// Checks with their controllers, flavors they are for, reason, message.
type Row = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static str, &'static str);

#[test]
fn checks_that_exclude_each_other_stop_a_queue() {
    let table: [Row; 5] = [
        (&[("a", NODES)], &[], "", ""),
        (&[("a", CLUSTERS)], &["f"], "", ""),
        (
            &[("b", CLUSTERS), ("a", CLUSTERS)],
            &[],
            "MultipleMultiKueueAdmissionChecks",
            "Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: a,b.",
        ),
        (
            &[("a", CLUSTERS)],
            &["other"],
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "Can't admit new workloads: Cannot specify MultiKueue AdmissionCheck per flavor, found: a.",
        ),
        (
            &[("a", NODES), ("b", CLUSTERS)],
            &[],
            "MultiKueueWithProvisioningRequest",
            "Can't admit new workloads: Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: b, a.",
        ),
    ];
    for (checks, on, reason, message) in table {
        let mut q = Queueing::new(Config::default());
        let now = Time::from_seconds(0);
        let mut cq = cluster_queue("c", "", 10, None, false);
        let on: Vec<String> = on.iter().map(|f| (*f).to_owned()).collect();
        for (name, controller) in checks {
            cq.admission_checks.push(((*name).to_owned(), on.clone()));
            let check = AdmissionCheck {
                name: (*name).to_owned(),
                controller: (*controller).to_owned(),
                active: true,
            };
            q.handle(now, Event::AdmissionCheckUpsert(Box::new(check)));
        }
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        q.handle(now, Event::ResourceFlavorUpsert(Box::new(flavor)));
        q.handle(now, Event::ClusterQueueUpsert(Box::new(cq)));
        let id = q.cq_slot("c");
        let found = q.inactive_reason(id).unwrap_or_default();
        assert_eq!((found.0, found.1.as_str()), (reason, message), "{checks:?}");
    }
}

/// Ten workloads wait, one of them as the head of its queue.
#[test]
fn held_explanations_are_made_once_they_are_let_go() {
    let mut q = Queueing::new(Config { explain_every: Duration::from_seconds(1), ..Config::default() });
    let now = Time::from_seconds(100);
    q.handle(now, Event::NamespaceUpsert("n".into(), Default::default()));
    let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
    q.handle(now, Event::ResourceFlavorUpsert(Box::new(flavor)));
    queue(0, 10, None, false).into_iter().for_each(|event| q.handle(now, event));
    for i in 0..10 {
        q.handle(now, Event::WorkloadUpsert(Box::new(workload(i, 0, 0, 11_000))));
    }
    let mut explained = Vec::new();
    q.hold_explanations(true);
    for seconds in 100..120 {
        let now = Time::from_seconds(seconds);
        for _ in 0..10 {
            q.decide(now, &mut |action| {
                assert!(!matches!(action, Action::UpdateWorkload(_)), "{action:?}");
            });
        }
        assert!(q.next_wake().is_none_or(|at| at > now), "nothing to do at {seconds}");
    }
    q.hold_explanations(false);
    let now = Time::from_seconds(120);
    assert!(q.next_wake().is_some_and(|at| at <= now));
    for _ in 0..10 {
        q.decide(now, &mut |action| match action {
            Action::UpdateWorkload(u) if u.explains() => explained.push(u.key.name),
            _ => {}
        });
    }
    explained.sort();
    assert_eq!(explained, (0..10).map(|i| format!("w{i}")).collect::<Vec<_>>());
    assert!(q.next_wake().is_none_or(|at| at > now));
}

/// A small workload comes first and a large one of a higher priority after it, while decisions wait to be written.
#[test]
fn held_admissions_go_to_the_workload_that_is_first_in_the_end() {
    let mut q = Queueing::new(Config::default());
    let now = Time::from_seconds(100);
    q.handle(now, Event::NamespaceUpsert("n".into(), Default::default()));
    let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
    q.handle(now, Event::ResourceFlavorUpsert(Box::new(flavor)));
    queue(0, 10, None, false).into_iter().for_each(|event| q.handle(now, event));
    let mut admitted = Vec::new();
    for (held, new) in
        [(true, Some(workload(0, 0, 0, 1_000))), (true, Some(workload(1, 0, 9, 10_000))), (false, None)]
    {
        new.into_iter().for_each(|w| q.handle(now, Event::WorkloadUpsert(Box::new(w))));
        q.hold_admissions(held);
        for _ in 0..10 {
            q.decide(now, &mut |action| match action {
                Action::UpdateWorkload(u) if u.admission.is_some() => admitted.push(u.key.name),
                _ => {}
            });
        }
        assert!(!held || admitted.is_empty(), "{admitted:?}");
        assert!(q.next_wake().is_none_or(|at| at > now), "nothing to do until it changes: held {held}");
    }
    assert_eq!(admitted, ["w1"]);
}
