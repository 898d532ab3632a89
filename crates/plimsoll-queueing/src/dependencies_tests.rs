//! Dependencies, step by step: outcomes, texts and counts of writes, where every write works at once. Random orders, faults and
//! restarts are played by the simulator (`plimsoll-sim`, `check/dependencies.rs`).

use super::super::{Action, Config, Event, LocalQueue, WorkloadKey};
use super::*;
use crate::testing::outside::{cluster_queue, workload};
use plimsoll_state::model::StringMap;

fn depends(n: usize, on: &str) -> Workload {
    let mut w = workload(n, 0, 0, 1);
    w.depends_on = on
        .split_whitespace()
        .map(|text| {
            let (name, outcome) = text.split_once(':').unwrap_or((text, "succeeded"));
            let outcome = Outcome::WORDS.iter().find(|(_, w)| *w == outcome).map(|(o, _)| *o);
            Dependency { kind: None, name: name.into(), outcome: outcome.expect("an outcome") }
        })
        .collect();
    w
}

/// Queueing with one large queue; each write is confirmed at once.
struct Harness {
    q: Queueing,
    all: BTreeMap<WorkloadKey, Workload>,
    version: u64,
    writes: usize,
}

impl Harness {
    fn new() -> Self {
        let mut w = Self { q: Queueing::new(Config::default()), all: BTreeMap::new(), version: 1, writes: 0 };
        let queue = LocalQueue {
            namespace: "n".into(),
            name: "l0".into(),
            cluster_queue: "c".into(),
            ..LocalQueue::default()
        };
        let flavor = super::super::ResourceFlavor { name: "f".into(), ..Default::default() };
        w.tell(vec![
            Event::NamespaceUpsert("n".into(), StringMap::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
            Event::ClusterQueueUpsert(Box::new(cluster_queue("c", "", 1_000_000, None, false))),
            Event::LocalQueueUpsert(Box::new(queue)),
        ]);
        w
    }

    fn tell(&mut self, mut events: Vec<Event>) {
        let now = Time::from_seconds(1_000_000);
        while !events.is_empty() {
            let mut out = Vec::new();
            for event in std::mem::take(&mut events) {
                self.q.handle(now, event);
            }
            self.q.decide(now, &mut |a| out.push(a));
            self.q.check();
            for action in out {
                let Action::UpdateWorkload(u) = action else { continue };
                let Some(w) = self.all.get_mut(&u.key) else { continue };
                u.apply(&mut w.status);
                self.version += 1;
                self.writes += 1;
                w.version = self.version;
                events.push(Event::WorkloadUpsert(Box::new(w.clone())));
            }
        }
    }

    fn put(&mut self, mut w: Workload) {
        self.version += 1;
        w.version = self.version;
        self.all.insert(w.key.clone(), w.clone());
        self.tell(vec![Event::WorkloadUpsert(Box::new(w))]);
    }

    fn set(&mut self, name: &str, kind: &str, reason: &str) {
        let key = WorkloadKey { namespace: "n".into(), name: name.into() };
        let mut w = self.all[&key].clone();
        w.status.conditions.push(super::super::Condition {
            kind: kind.into(),
            status: true,
            reason: reason.into(),
            ..Default::default()
        });
        self.put(w);
    }

    fn remove(&mut self, name: &str) {
        let key = WorkloadKey { namespace: "n".into(), name: name.into() };
        self.all.remove(&key);
        self.tell(vec![Event::WorkloadDelete(key)]);
    }

    fn status(&self, name: &str) -> &WorkloadStatus {
        &self.all[&WorkloadKey { namespace: "n".into(), name: name.into() }].status
    }

    fn runs(&self, name: &str) -> bool {
        self.status(name).is_true(cond::QUOTA_RESERVED)
    }

    fn says(&self, name: &str) -> (&str, &str) {
        self.status(name).condition(DEPENDENCIES_MET).map_or(("", ""), |c| (&c.reason, &c.message))
    }
}

#[test]
fn outcomes_release_or_forbid() {
    for (wanted, ends, want) in [
        ("succeeded", "Succeeded", "DependenciesMet"),
        ("succeeded", "Failed", "DependencyNeverMet"),
        ("failed", "Failed", "DependenciesMet"),
        ("failed", "Succeeded", "DependencyNeverMet"),
        ("finished", "Failed", "DependenciesMet"),
        ("finished", "Succeeded", "DependenciesMet"),
        ("ready", "Succeeded", "DependenciesMet"),
        ("ready", "Failed", "DependencyNeverMet"),
    ] {
        let mut w = Harness::new();
        w.put(workload(0, 0, 0, 1));
        w.put(depends(1, &format!("w0:{wanted}")));
        assert_eq!(w.says("w1"), ("WaitingForDependencies", format!("Waiting for w0:{wanted}").as_str()));
        assert!(w.runs("w0") && !w.runs("w1"));
        w.set("w0", cond::FINISHED, ends);
        assert_eq!(w.says("w1").0, want, "{wanted} {ends}");
        assert_eq!(w.runs("w1"), want == "DependenciesMet");
    }
}

#[test]
fn readiness_counts_while_it_runs() {
    let mut w = Harness::new();
    w.put(depends(1, "w0:ready"));
    assert_eq!(
        w.says("w1").1,
        "Waiting for w0:ready, which no workload in the namespace answers to",
        "missing names are said"
    );
    w.put(workload(0, 0, 0, 1));
    assert_eq!(w.says("w1").1, "Waiting for w0:ready");
    w.set("w0", cond::PODS_READY, "Started");
    assert!(w.runs("w1"));
}

#[test]
fn what_came_true_stays_true() {
    let mut w = Harness::new();
    w.put(workload(0, 0, 0, 1));
    w.put(workload(1, 0, 0, 1));
    w.put(depends(2, "w0 w1"));
    w.set("w0", cond::FINISHED, "Succeeded");
    w.remove("w0");
    assert_eq!(w.says("w2").1, "Waiting for w1:succeeded. Done: w0:succeeded");
    // A new process knows only what the API shows.
    let objects: Vec<Workload> = w.all.values().cloned().collect();
    let mut w = Harness::new();
    objects.into_iter().for_each(|o| w.put(o));
    w.set("w1", cond::FINISHED, "Succeeded");
    assert!(w.runs("w2"));
    w.remove("w1");
    assert_eq!(w.says("w2").0, "DependenciesMet");
}

#[test]
fn a_failure_goes_down_the_chain_and_can_be_mended() {
    let mut w = Harness::new();
    w.put(workload(0, 0, 0, 1));
    for n in 1..20 {
        w.put(depends(n, &format!("w{}", n - 1)));
    }
    w.set("w0", cond::FINISHED, "Failed");
    assert_eq!(w.says("w19").0, "DependencyNeverMet");
    w.remove("w0");
    assert_eq!(w.says("w19").0, "WaitingForDependencies");
    w.put(workload(0, 0, 0, 1));
    w.set("w0", cond::FINISHED, "Succeeded");
    assert!(w.runs("w1") && !w.runs("w2"));
}

#[test]
fn circles_are_named_and_can_be_cut() {
    let mut w = Harness::new();
    w.put(depends(0, "w2"));
    w.put(depends(1, "w0"));
    w.put(depends(2, "w1"));
    w.put(depends(3, "w3"));
    assert_eq!(
        w.says("w0"),
        ("DependencyCycle", "The dependencies go round in a circle: w0 -> w2 -> w1 -> w0")
    );
    assert_eq!(
        (w.says("w1").0, w.says("w2").0, w.says("w3").0),
        ("DependencyCycle", "DependencyCycle", "DependencyCycle")
    );
    w.remove("w2");
    assert_eq!((w.says("w0").0, w.says("w1").0), ("WaitingForDependencies", "WaitingForDependencies"));
}

#[test]
fn long_chains_and_wide_fans_write_no_more_than_they_must() {
    let mut w = Harness::new();
    w.put(workload(0, 0, 0, 1));
    for n in 1..=300 {
        w.put(depends(n, "w0"));
    }
    let before = w.writes;
    w.set("w0", cond::FINISHED, "Succeeded");
    assert!((1..=300).all(|n| w.runs(&format!("w{n}"))));
    assert!(w.writes - before <= 300 * 3, "{}", w.writes - before);
}
