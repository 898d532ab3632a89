//! The rows of Kueue's `pkg/scheduler/scheduler_concurrent_admission_test.go`, and what else the scheduler knows of variants.

use super::*;
use crate::testing::outside::{Outside, cluster_queue, workload};
use crate::testing::{self as engine, Engine};
use crate::{
    Action, AdmissionCheck, CheckState, Config, Event, FlavorQuotas, Gates, LocalQueue, PreemptionGateState,
    ResourceFlavor, ResourceQuota, Workload, WorkloadKey,
};

const FLAVORS: [&str; 3] = ["reservation", "on-demand", "spot"];

/// Queueing with a ClusterQueue of three flavors, and an outside that carries out its writes.
struct World {
    engine: Engine,
    outside: Outside,
    now: Time,
    news: Vec<Event>,
    events: Vec<String>,
}

fn flavors(quotas: [i64; 3]) -> Vec<FlavorQuotas> {
    let quota = |(flavor, nominal): (&str, i64)| FlavorQuotas {
        flavor: flavor.into(),
        resources: vec![ResourceQuota {
            resource: "cpu".into(),
            nominal: nominal * 1000,
            ..ResourceQuota::default()
        }],
    };
    FLAVORS.into_iter().zip(quotas).map(quota).collect()
}

fn queue(quotas: [i64; 3], policy: &FlavorMigration) -> Event {
    let mut cq = cluster_queue("c", "", 0, None, false);
    cq.resource_groups[0].flavors = flavors(quotas);
    cq.concurrent_admission = Some(policy.clone());
    Event::ClusterQueueUpsert(Box::new(cq))
}

impl World {
    fn new(quotas: [i64; 3], policy: &FlavorMigration, on: bool) -> Self {
        let gates = Gates { concurrent_admission: on, ..Gates::default() };
        let mut news = vec![Event::NamespaceUpsert("n".into(), Default::default())];
        for name in FLAVORS {
            let flavor = ResourceFlavor { name: name.into(), ..ResourceFlavor::default() };
            news.push(Event::ResourceFlavorUpsert(Box::new(flavor)));
        }
        news.push(queue(quotas, policy));
        let lq = LocalQueue {
            namespace: "n".into(),
            name: "l0".into(),
            cluster_queue: "c".into(),
            fair_weight_nano: 1_000_000_000,
            ..LocalQueue::default()
        };
        news.push(Event::LocalQueueUpsert(Box::new(lq)));
        let engine = Engine::new(Config { gates, ..Config::default() });
        let (outside, now) = (Outside::new(Vec::new()), Time::from_seconds(100));
        Self { engine, outside, now, news, events: Vec::new() }
    }

    fn create(&mut self, name: &str, priority: i32, amount: i64, change: impl FnOnce(&mut Workload)) {
        let mut w = workload(self.outside.workloads.len(), 0, priority, amount * 1000);
        (w.key.name, w.uid) = (name.into(), format!("uid-{name}"));
        change(&mut w);
        self.outside.workloads.push(w.clone());
        self.news.push(Event::WorkloadUpsert(Box::new(w)));
    }

    /// A variant of `p` for a flavor, under the name of that.
    fn variant(&mut self, flavor: &str, priority: i32, amount: i64) {
        self.create(flavor, priority, amount, |w| {
            w.variant_of = "uid-p".into();
            w.allowed_flavors = Some(vec![flavor.into()]);
            w.preemption_gates = vec!["gate".into()];
        });
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let event = self.outside.change(&key(name), change);
        self.news.extend(event);
    }

    /// Steps until nothing is left to do now.
    fn settle(&mut self) {
        while !self.news.is_empty() || self.engine.next_wake().is_some_and(|t| t <= self.now) {
            let mut batch = self.news.drain(..).map(engine::Event::Queueing).collect();
            let mut actions = Vec::new();
            self.engine.step(self.now, &mut batch, &mut actions);
            for action in &actions {
                let engine::Action::Queueing(action) = action;
                if let Action::UpdateWorkload(u) = action {
                    self.events.extend(u.events.iter().map(|e| format!("{}: {}", u.key.name, e.reason)));
                }
            }
            self.news = self.outside.carry_out(actions, &mut std::iter::empty());
        }
    }

    fn status(&self, name: &str) -> &crate::WorkloadStatus {
        &self.outside.workloads.iter().find(|w| w.key.name == name).unwrap().status
    }

    /// The flavor with which a workload has quota reserved, or why it has none.
    fn state(&self, name: &str) -> String {
        let status = self.status(name);
        match (&status.admission, status.condition(cond::QUOTA_RESERVED)) {
            (Some(a), _) => a.assignments[0].flavors[0].1.clone(),
            (None, Some(c)) => format!("{}: {}", c.reason, c.message),
            (None, None) => String::new(),
        }
    }

    /// CPUs that are charged.
    fn charged(&self) -> i64 {
        let q = self.engine.queueing().unwrap();
        let usage = q.quota.iter().flat_map(|(_, r)| &r.held.usage);
        usage.map(|(_, a)| a.0 / 1000).sum()
    }
}

fn key(name: &str) -> WorkloadKey {
    WorkloadKey { namespace: "n".into(), name: name.into() }
}

fn try_preferred(last: Option<&str>) -> FlavorMigration {
    FlavorMigration { retains_first: false, last_acceptable: last.map(str::to_owned) }
}

#[test]
fn each_variant_gets_its_flavor_and_the_most_favorable_one_is_admitted() {
    let mut world = World::new([0, 10, 10], &try_preferred(None), true);
    FLAVORS.iter().for_each(|f| world.variant(f, 0, 10));
    world.settle();
    assert_eq!(world.state("on-demand"), "on-demand");
    assert_eq!(world.state("spot"), "PendingEvaluation: A more favorable variant is already admitted");
    let why = world.state("reservation");
    assert!(why.contains("insufficient quota for cpu in flavor reservation"), "{why}");
    assert!(
        why.contains("skipping flavor spot due to WorkloadAllowedResourceFlavorAnnotation annotation"),
        "{why}"
    );
    assert_eq!(world.charged(), 10);
}

/// A more favorable variant evicts its sibling, and goes first when that has stopped. If its quota is gone by then, the
/// sibling is admitted again.
#[test]
fn a_more_favorable_variant_evicts_its_sibling() {
    for taken in [false, true] {
        let policy = try_preferred(None);
        let mut world = World::new([0, 0, 10], &policy, true);
        FLAVORS.iter().for_each(|f| world.variant(f, 0, 10));
        world.settle();
        assert_eq!(world.state("spot"), "spot");
        world.news.push(queue([0, 10, 10], &policy));
        world.settle();
        let evicted = world.status("spot").condition(cond::EVICTED).unwrap();
        assert_eq!(
            (evicted.status, evicted.reason.as_str(), evicted.message.as_str()),
            (
                true,
                "FlavorMigration",
                "Evicted to accommodate a workload (UID: uid-on-demand) due to migration to more favorable resource flavor"
            )
        );
        assert_eq!(
            world.state("on-demand"),
            "WaitingForPreemptedWorkloads: . Pending the migration of 1 workload(s)"
        );
        assert!(world.events.contains(&"spot: EvictedDueToFlavorMigration".to_owned()), "{:?}", world.events);
        assert_eq!(
            (world.state("spot").as_str(), world.charged()),
            ("spot", 10),
            "until the job has stopped"
        );
        if taken {
            world.news.push(queue([0, 0, 10], &policy));
        }
        world.news.push(Event::WorkloadStopped(key("spot")));
        world.settle();
        let (flavor, other) = if taken { ("spot", "on-demand") } else { ("on-demand", "spot") };
        assert_eq!(world.state(flavor), flavor, "taken: {taken}");
        assert!(world.status(other).admission.is_none(), "taken: {taken}");
        assert_eq!(world.charged(), 10, "taken: {taken}");
    }
}

#[test]
fn no_variant_migrates_where_the_policy_does_not_want_it() {
    let retains = FlavorMigration { retains_first: true, last_acceptable: None };
    let table = [
        (try_preferred(Some("reservation")), "Target flavor is below LastAcceptableFlavorName"),
        (retains, "Another variant is already admitted"),
    ];
    for (policy, want) in table {
        let mut world = World::new([0, 0, 10], &policy, true);
        FLAVORS.iter().for_each(|f| world.variant(f, 0, 10));
        world.settle();
        world.news.push(queue([0, 10, 10], &policy));
        world.settle();
        assert_eq!(world.state("on-demand"), format!("PendingEvaluation: {want}"));
        assert!(!world.status("spot").is_true(cond::EVICTED));
        // It stands in nobody's way.
        world.create("other", -1, 10, |w| w.variant_of = "uid-q".into());
        world.settle();
        assert_eq!(world.state("other"), "on-demand", "{want}");
    }
}

#[test]
fn a_variant_with_a_closed_gate_preempts_none() {
    let mut world = World::new([0, 0, 10], &try_preferred(None), true);
    world.create("low", 0, 10, |w| w.variant_of = "uid-q".into());
    world.settle();
    world.variant("spot", 9, 10);
    world.settle();
    assert!(world.status("spot").is_true(cond::BLOCKED_ON_GATES), "{}", world.state("spot"));
    assert!(world.status("spot").preemption_gates.is_empty(), "the controller opens it");
    assert!(!world.status("low").is_true(cond::EVICTED));
    world.change("spot", |w| {
        w.status.preemption_gates = vec![PreemptionGateState {
            name: "gate".into(),
            open: true,
            transition: Time::from_seconds(100),
        }];
    });
    world.settle();
    assert!(world.status("low").is_true(cond::EVICTED));
}

/// A parent is neither queued nor charged, nor has it admission checks. Without the gate it is a workload like any other.
#[test]
fn a_parent_is_neither_queued_nor_charged() {
    for (on, labelled) in [(true, true), (true, false), (false, true)] {
        let mut world = World::new([10, 10, 10], &try_preferred(None), on);
        let check = AdmissionCheck { name: "check".into(), controller: "x".into(), active: true };
        world.news.push(Event::AdmissionCheckUpsert(Box::new(check)));
        let Event::ClusterQueueUpsert(mut cq) = queue([10, 10, 10], &try_preferred(None)) else { panic!() };
        cq.admission_checks.push(("check".into(), Vec::new()));
        world.news.push(Event::ClusterQueueUpsert(cq));
        world.create("p", 0, 10, |w| w.has_variants = labelled);
        world.settle();
        let queued = !on;
        assert_eq!(world.state("p"), if queued { "reservation" } else { "" }, "{on} {labelled}");
        assert_eq!(world.charged(), if queued { 10 } else { 0 }, "{on} {labelled}");
        if !(on && labelled) {
            // The webhook lets no policy go, where it is asked.
            let Event::ClusterQueueUpsert(mut cq) = queue([10, 10, 10], &try_preferred(None)) else {
                panic!()
            };
            cq.concurrent_admission = None;
            world.news.push(Event::ClusterQueueUpsert(cq));
            world.settle();
            assert_eq!(world.state("p"), "reservation", "{on} {labelled}");
            continue;
        }
        assert!(world.status("p").admission_checks.is_empty());
        world.variant("spot", 0, 10);
        world.settle();
        assert_eq!(world.status("spot").admission_checks[0].state, CheckState::Pending);
        world.change("spot", |w| w.status.admission_checks[0].state = CheckState::Ready);
        world.settle();
        assert!(world.status("spot").is_true(cond::ADMITTED));
        // As the controller writes it.
        let admission = world.status("spot").admission.clone();
        world.change("p", |w| {
            w.status.admission = admission;
            for kind in [cond::QUOTA_RESERVED, cond::ADMITTED] {
                let c = crate::Condition { kind: kind.into(), status: true, ..Default::default() };
                w.status.conditions.push(c);
            }
        });
        world.settle();
        assert!(world.status("p").is_true(cond::ADMITTED) && world.status("p").admission_checks.is_empty());
        assert_eq!(world.charged(), 10, "once");
        // Its job stops after an eviction: that is all that its quota says.
        world.change("p", |w| {
            let reason = "VariantEvicted".to_owned();
            let c =
                crate::Condition { kind: cond::EVICTED.into(), status: true, reason, ..Default::default() };
            w.status.conditions.push(c);
        });
        world.news.push(Event::WorkloadStopped(key("p")));
        world.settle();
        assert!(world.status("p").admission.is_none());
        assert_eq!(world.charged(), 10, "the variant holds it");
    }
}
