//! Slices write by write: one that fails or is not answered where a test says so, and annotations that no job makes. Jobs that
//! grow and shrink while anything fails are played by the simulator (`plimsoll-sim`, `check/slices.rs`).

use plimsoll_state::ObjectEvent;
use proptest::prelude::*;

use super::super::*;
use crate::model::REPLACED;
use crate::testing::outside::{cluster_queue, workload};
use plimsoll_state::time::Duration;
use plimsoll_state::time::Time;

/// A slice of a job: `pods` of 1 CPU each, in the place of the slice `old`.
fn slice(n: usize, queue: usize, pods: i32, old: Option<usize>) -> Workload {
    let mut w = workload(n, queue, 0, 1000);
    w.pod_sets[0].count = pods;
    w.job_uid = "job".into();
    w.replaces = old.map(|o| WorkloadKey { namespace: "n".into(), name: format!("w{o}") });
    w
}

pub(crate) fn key(n: usize) -> WorkloadKey {
    WorkloadKey { namespace: "n".into(), name: format!("w{n}") }
}

fn flavor(name: &str) -> Event {
    Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: name.into(), ..Default::default() }))
}

fn local(n: usize) -> Event {
    Event::LocalQueueUpsert(Box::new(LocalQueue {
        namespace: "n".into(),
        name: format!("l{n}"),
        cluster_queue: format!("c{n}"),
        fair_weight_nano: 1_000_000_000,
        ..LocalQueue::default()
    }))
}

/// The ClusterQueue `c0` with these flavors and CPUs.
fn queue(quotas: &[(&str, i64)]) -> Event {
    let mut cq = cluster_queue("c0", "", quotas[0].1 * 1000, None, false);
    cq.preemption.within_cluster_queue = PreemptionPolicy::LowerOrNewerEqualPriority;
    cq.resource_groups[0].flavors = quotas
        .iter()
        .map(|(name, cpus)| FlavorQuotas {
            flavor: (*name).into(),
            resources: vec![ResourceQuota {
                resource: "cpu".into(),
                nominal: cpus * 1000,
                ..ResourceQuota::default()
            }],
        })
        .collect();
    Event::ClusterQueueUpsert(Box::new(cq))
}

/// An API server that does what it is asked to, unless told to fail.
pub(crate) struct Harness {
    pub(crate) q: Queueing,
    pub(crate) all: Vec<Workload>,
    version: u64,
    now: Time,
    /// Texts of events and conditions, in order.
    pub(crate) said: Vec<String>,
    /// How many writes to this workload still fail.
    failing: Option<(usize, usize)>,
    /// The workload whose writes are on their way and not answered.
    silent: Option<usize>,
}

impl Harness {
    pub(crate) fn with(config: Config, quotas: &[(&str, i64)]) -> Self {
        let q = Queueing::new(config);
        let now = Time::from_seconds(1_000);
        let mut w =
            Self { q, all: Vec::new(), version: 1, now, said: Vec::new(), failing: None, silent: None };
        let mut events = vec![Event::NamespaceUpsert("n".into(), StringMap::new())];
        events.extend(quotas.iter().map(|(name, _)| flavor(name)));
        events.extend([queue(quotas), local(0)]);
        w.tell(events);
        w
    }

    fn new(quotas: &[(&str, i64)]) -> Self {
        Self::with(Config::default(), quotas)
    }

    fn tell(&mut self, mut events: Vec<Event>) {
        for _ in 0..50 {
            let mut out = Vec::new();
            for event in std::mem::take(&mut events) {
                self.q.handle(self.now, event);
            }
            self.q.decide(self.now, &mut |a| out.push(a));
            self.q.check();
            for action in out {
                let Action::UpdateWorkload(u) = action else { continue };
                let Some(at) = self.all.iter().position(|w| w.key == u.key) else { continue };
                if self.silent == Some(at) {
                    continue;
                }
                if let Some((n, left)) = &mut self.failing
                    && *n == at
                    && *left > 0
                {
                    *left -= 1;
                    events.push(Event::WriteFailed { key: u.key.clone(), id: u.id, message: "no".into() });
                    continue;
                }
                self.version += 1;
                let w = &mut self.all[at];
                u.apply(&mut w.status);
                w.version = self.version;
                let name = &u.key.name;
                self.said.extend(
                    u.conditions.iter().map(|c| format!("{name} {}={} {}", c.kind, c.status, c.reason)),
                );
                self.said.extend(u.events.iter().map(|n| format!("{name} {}: {}", n.reason, n.message)));
                events.push(Event::Written { key: u.key.clone(), id: u.id, version: self.version });
                events.push(Event::WorkloadUpsert(Box::new(w.clone())));
            }
            if events.is_empty() && self.q.next_wake().is_none_or(|t| t > self.now) {
                return;
            }
        }
        panic!("goes on for ever: {:?}", self.said);
    }

    /// The quotas of the ClusterQueue change.
    pub(crate) fn set_quotas(&mut self, quotas: &[(&str, i64)]) {
        self.tell(vec![queue(quotas)]);
    }

    /// Creates or changes a workload.
    pub(crate) fn put(&mut self, n: usize, mut w: Workload) {
        self.version += 1;
        w.version = self.version;
        if n < self.all.len() {
            self.all[n] = w.clone();
        } else {
            self.all.push(w.clone());
        }
        self.tell(vec![Event::WorkloadUpsert(Box::new(w))]);
    }

    pub(crate) fn resize(&mut self, n: usize, pods: i32) {
        let mut w = self.all[n].clone();
        w.pod_sets[0].count = pods;
        self.put(n, w);
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now = self.now.plus(Duration::from_seconds(seconds));
        self.tell(Vec::new());
    }

    pub(crate) fn stop(&mut self, n: usize) {
        self.tell(vec![Event::WorkloadStopped(key(n))]);
    }

    pub(crate) fn usage(&self) -> i64 {
        let tree = self.q.quota_tree();
        tree.iter().filter(|n| n.name == "c0").flat_map(|n| &n.cells).map(|c| c.usage).sum::<i64>() / 1000
    }

    pub(crate) fn admitted(&self, n: usize) -> bool {
        let s = &self.all[n].status;
        s.is_true(cond::ADMITTED) && !s.is_true(cond::FINISHED)
    }

    pub(crate) fn why(&self, n: usize) -> String {
        let c = self.all[n].status.condition(cond::QUOTA_RESERVED);
        c.map_or(String::new(), |c| format!("{}: {}", c.reason, c.message))
    }
}

#[test]
fn a_replacement_needs_the_difference_only_and_ends_the_old_slice() {
    let mut w = Harness::new(&[("f", 5)]);
    w.put(0, slice(0, 0, 3, None));
    w.put(1, slice(1, 0, 5, Some(0)));
    assert!(w.admitted(1) && w.usage() == 5, "{:?}", w.said);
    let psa = &w.all[1].status.admission.as_ref().expect("reserved").assignments[0];
    assert_eq!((psa.count, psa.resource_usage.get("cpu")), (5, Some(&5000)), "the whole is recorded");
    let text =
        "Replaced to accommodate a workload (UID: uid-1, JobUID: job) due to workload slice aggregation";
    let end = w.all[0].status.condition(cond::FINISHED).expect("finished");
    assert_eq!((end.reason.as_str(), end.message.as_str()), (REPLACED, text));
    assert!(w.said.contains(&format!("w0 {REPLACED}: {text}")), "{:?}", w.said);
    let at = |t: &str| w.said.iter().position(|s| s.starts_with(t));
    assert!(at("w1 QuotaReserved=true") < at("w0 Finished=true"));
    let families = w.q.metrics();
    let family = families.iter().find(|f| f.name == "kueue_replaced_workload_slices_total").expect("there");
    assert_eq!(family.samples.len(), 1);
    // Fewer pods: the same slice shrinks, and others get what is free.
    w.put(2, workload(2, 0, 0, 2000));
    assert_eq!(
        w.why(2),
        "WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 2 more needed"
    );
    w.resize(1, 3);
    assert!(w.admitted(2) && w.usage() == 5);
}

const HOST: &str = "kubernetes.io/hostname";

/// A harness whose only flavor has nodes of 3, 2 and 3 CPUs.
fn with_nodes() -> Harness {
    let mut w = Harness::new(&[("f", 9)]);
    for (name, cpu) in [("x", 3000), ("y", 2000), ("z", 3000)] {
        w.node(name, cpu);
    }
    let with_topology = ResourceFlavor { name: "f".into(), topology: "t".into(), ..Default::default() };
    w.tell(vec![
        Event::TopologyUpsert(Box::new(Topology { name: "t".into(), levels: vec![HOST.into()] })),
        Event::ResourceFlavorUpsert(Box::new(with_topology)),
    ]);
    w
}

impl Harness {
    fn node(&mut self, name: &str, cpu: i64) {
        let mut node = plimsoll_state::model::Node { name: name.into(), ready: true, ..Default::default() };
        node.allocatable = [("cpu".to_owned(), cpu), ("pods".to_owned(), 20)].into();
        node.labels.insert(HOST.into(), name.into());
        self.q.handle_object(self.now, &ObjectEvent::NodeUpsert(Box::new(node)));
        self.tell(Vec::new());
    }

    /// Places of a workload, as `node=pods`.
    fn places(&self, n: usize) -> String {
        let assigned = self.all[n].status.admission.iter().flat_map(|a| &a.assignments);
        let domains = assigned.filter_map(|a| a.topology.as_ref()).flat_map(|t| &t.domains);
        domains.map(|(values, n)| format!("{}={n}", values.join("/"))).collect::<Vec<_>>().join(" ")
    }
}

/// Kueue `TestElasticWorkload`: pods stay where they are, and the new ones get what is free beside them.
#[test]
fn a_slice_keeps_the_places_of_the_one_before() {
    let mut w = with_nodes();
    w.put(0, slice(0, 0, 2, None));
    assert_eq!(w.places(0), "y=2", "the node that fits best");
    w.put(1, slice(1, 0, 3, Some(0)));
    assert!(w.admitted(1) && w.usage() == 3, "{:?}", w.said);
    assert_eq!(w.places(1), "x=1 y=2");
    w.put(2, slice(2, 0, 8, Some(1)));
    assert!(w.admitted(2) && w.usage() == 8, "{:?}", w.said);
    assert_eq!(w.places(2), "x=3 y=2 z=3");
    // Everything is given out, and what the first slices held is given out once.
    w.put(3, slice(3, 0, 1, None));
    assert!(!w.admitted(3), "{:?}", w.said);
    let mut ended = w.all[2].clone();
    ended.status.conditions.push(Condition {
        kind: cond::FINISHED.into(),
        status: true,
        ..Default::default()
    });
    w.put(2, ended);
    w.wait(2);
    assert!(w.admitted(3) && w.usage() == 1, "{:?}", w.said);
}

/// Pods that have ended keep their places, because which they were is not known here.
#[test]
fn a_slice_that_shrank_grows_into_its_places() {
    let mut w = with_nodes();
    w.put(0, slice(0, 0, 4, None));
    let places = w.places(0);
    w.resize(0, 1);
    w.put(1, slice(1, 0, 3, Some(0)));
    assert!(w.admitted(1) && w.usage() == 3, "{:?}", w.said);
    assert_eq!(w.places(1), places);
}

#[test]
fn a_slice_waits_for_places_of_what_it_has_more() {
    // Another domain than before can't be required of pods that run.
    let mut w = with_nodes();
    w.put(0, slice(0, 0, 2, None));
    let mut required = slice(1, 0, 3, Some(0));
    required.pod_sets[0].topology =
        Some(crate::model::TopologyRequest { required: Some(HOST.into()), ..Default::default() });
    w.put(1, required);
    let want = "required topology is not supported with ElasticJobsViaWorkloadSlices";
    assert!(!w.admitted(1) && w.why(1).contains(want), "{}", w.why(1));
    // What the new pods lack is said of them alone.
    w.put(2, slice(2, 0, 9, Some(0)));
    assert!(!w.admitted(2) && w.why(2).contains("out of 7 pod(s)"), "{}", w.why(2));
}

#[test]
fn a_replacement_that_does_not_fit_waits_and_the_old_slice_goes_on() {
    let mut w = Harness::new(&[("f", 5)]);
    w.put(0, slice(0, 0, 3, None));
    w.put(1, slice(1, 0, 6, Some(0)));
    assert!(w.admitted(0) && !w.admitted(1) && w.usage() == 3);
    assert_eq!(
        w.why(1),
        "WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 1 more needed"
    );
    w.resize(1, 4);
    assert!(w.admitted(1) && w.usage() == 4);
}

#[test]
fn the_flavor_stays() {
    let mut w = Harness::new(&[("f", 4), ("g", 9)]);
    w.put(0, slice(0, 0, 3, None));
    w.put(1, slice(1, 0, 6, Some(0)));
    assert!(!w.admitted(1));
    let why = w.why(1);
    assert!(why.contains("could not assign g flavor since the original workload is assigned: f"), "{why}");
    w.resize(1, 4);
    assert!(w.admitted(1));
    let psa = &w.all[1].status.admission.as_ref().expect("reserved").assignments[0];
    assert_eq!(psa.flavors, [("cpu".to_owned(), "f".to_owned())]);
}

#[test]
fn a_replacement_preempts_others_but_never_its_own_slice() {
    let mut w = Harness::new(&[("f", 5)]);
    w.put(0, slice(0, 0, 3, None));
    w.put(1, Workload { priority: -1, ..workload(1, 0, 0, 2000) });
    // A higher priority alone would make the old slice a candidate.
    w.put(2, Workload { priority: 5, ..slice(2, 0, 5, Some(0)) });
    let s = &w.all[1].status;
    assert!(s.is_true(cond::PREEMPTED) && !w.all[0].status.is_true(cond::EVICTED), "{:?}", w.said);
    assert!(w.why(2).ends_with("2 more needed. Pending the preemption of 1 workload(s)"), "{}", w.why(2));
    w.stop(1);
    assert!(w.admitted(2) && !w.admitted(0) && w.usage() == 5);
}

#[test]
fn nothing_takes_the_place_of_a_slice_that_is_being_evicted() {
    let mut w = Harness::new(&[("f", 5)]);
    w.put(0, slice(0, 0, 3, None));
    w.put(1, slice(1, 0, 6, Some(0)));
    w.put(2, Workload { priority: 9, ..workload(2, 0, 0, 4000) });
    assert!(w.all[0].status.is_true(cond::EVICTED));
    w.resize(1, 4);
    assert!(!w.admitted(1) && !w.admitted(2));
    w.stop(0);
    w.stop(0);
    assert!(w.admitted(2) && w.usage() == 4, "{:?}", w.said);
    assert!(!w.admitted(0) && !w.admitted(1));
}

#[test]
fn the_old_slice_ends_even_if_writing_that_fails_for_long_or_the_engine_starts_anew() {
    let mut w = Harness::new(&[("f", 5)]);
    w.put(0, slice(0, 0, 3, None));
    w.failing = Some((0, 4));
    w.put(1, slice(1, 0, 5, Some(0)));
    assert!(w.admitted(1) && w.all[0].status.condition(cond::FINISHED).is_none());
    assert_eq!(w.usage(), 5, "both hold, and are charged once");
    // Neither may be preempted in the place of the other now, and nothing else fits.
    w.put(2, workload(2, 0, 0, 1000));
    assert!(!w.admitted(2));
    let mut anew = Harness::new(&[("f", 5)]);
    for (n, old) in w.all.iter().enumerate() {
        anew.put(n, old.clone());
        assert!(anew.usage() <= 5);
    }
    assert!(anew.all[0].status.is_true(cond::FINISHED) && anew.usage() == 5);
    for _ in 0..10 {
        w.wait(20);
    }
    assert!(w.all[0].status.is_true(cond::FINISHED) && w.usage() == 5);
}

#[test]
fn garbage_in_the_annotation_gives_nothing_away() {
    // In a circle, and two for one place: each counts in full.
    let mut w = Harness::new(&[("f", 9)]);
    w.put(0, slice(0, 0, 3, Some(1)));
    w.put(1, slice(1, 0, 4, Some(0)));
    assert!(w.usage() <= 9);
    let mut w = Harness::new(&[("f", 9)]);
    w.put(0, slice(0, 0, 3, None));
    w.failing = Some((0, 9));
    w.put(1, slice(1, 0, 5, Some(0)));
    w.put(2, slice(2, 0, 5, Some(0)));
    assert!(w.admitted(1) && !w.admitted(2), "{:?}", w.said);
    let mut w = Harness::new(&[("f", 9)]);
    w.put(0, Workload { replaces: Some(key(0)), ..slice(0, 0, 3, None) });
    assert!(w.admitted(0) && w.usage() == 3);
}

#[test]
fn nothing_takes_the_place_of_a_workload_elsewhere() {
    // In another namespace: the annotation is anybody's to write.
    let mut w = Harness::new(&[("f", 9)]);
    let mut theirs = slice(0, 0, 3, None);
    theirs.key.namespace = "v".into();
    let queue = LocalQueue {
        namespace: "v".into(),
        ..match local(0) {
            Event::LocalQueueUpsert(q) => *q,
            other => panic!("{other:?}"),
        }
    };
    let v = Event::NamespaceUpsert("v".into(), StringMap::new());
    w.tell(vec![v, Event::LocalQueueUpsert(Box::new(queue))]);
    let old = theirs.key.clone();
    w.put(0, theirs);
    w.put(1, Workload { replaces: Some(old), ..slice(1, 0, 5, None) });
    assert!(w.admitted(0) && w.admitted(1) && w.usage() == 8, "{:?}", w.said);
    // In another ClusterQueue.
    let mut w = Harness::new(&[("f", 9)]);
    let other = cluster_queue("c1", "", 9000, None, false);
    w.tell(vec![Event::ClusterQueueUpsert(Box::new(other)), flavor("default"), local(1)]);
    w.put(0, slice(0, 0, 3, None));
    w.put(1, slice(1, 1, 5, Some(0)));
    assert!(w.admitted(0) && w.admitted(1) && w.usage() == 3, "{:?}", w.said);
}

#[test]
fn quota_stays_charged_while_the_end_of_a_reservation_is_on_its_way() {
    let mut w = Harness::new(&[("f", 5)]);
    w.put(0, slice(0, 0, 3, None));
    w.failing = Some((0, 1000));
    w.put(1, slice(1, 0, 5, Some(0)));
    assert!(w.admitted(1) && w.usage() == 5);
    w.put(2, workload(2, 0, 9, 2000));
    assert!(w.all[1].status.is_true(cond::EVICTED), "{:?}", w.said);
    // Its pods are gone, and the write that says so is not answered yet, when the old slice goes.
    w.silent = Some(1);
    w.stop(1);
    w.tell(vec![Event::WorkloadDelete(key(0))]);
    assert_eq!(w.usage(), 5, "{:?}", w.said);
    assert!(!w.admitted(2), "{:?}", w.said);
}

#[test]
fn without_the_gate_slices_are_workloads_like_any_other() {
    let gates = Gates { elastic_jobs: false, ..Gates::default() };
    let mut w = Harness::with(Config { gates, ..Config::default() }, &[("f", 9)]);
    w.put(0, slice(0, 0, 3, None));
    w.put(1, slice(1, 0, 5, Some(0)));
    assert!(w.admitted(0) && w.admitted(1) && w.usage() == 8);
}

#[test]
fn boosts_count_with_their_gate() {
    let gates = Gates { priority_boost: true, ..Gates::default() };
    for (gates, preempted) in [(gates, true), (Gates::default(), false)] {
        let mut w = Harness::with(Config { gates, ..Config::default() }, &[("f", 3)]);
        w.put(0, workload(0, 0, 5, 3000));
        w.put(1, Workload { priority_boost: 4, ..workload(1, 0, 2, 3000) });
        assert_eq!(w.all[0].status.is_true(cond::PREEMPTED), preempted);
        if preempted {
            let text = "; preemptor effective priority: 6 (base: 2, boost: 4); preemptee effective priority: 5 (base: 5, boost: 0)";
            assert!(
                w.said.iter().any(|s| s.starts_with("w0 Preempted:") && s.ends_with(text)),
                "{:?}",
                w.said
            );
        } else {
            // What waits is looked at again when the boost changes.
            let other = Workload { priority: 7, ..w.all[1].clone() };
            w.put(1, other);
            assert!(w.all[0].status.is_true(cond::PREEMPTED));
        }
    }
}

#[test]
fn a_closed_gate_keeps_from_preempting_until_it_opens_and_closes_at_eviction() {
    let gates = Gates { preemption_gates: true, ..Gates::default() };
    let mut w = Harness::with(Config { gates, ..Config::default() }, &[("f", 3)]);
    w.put(0, workload(0, 0, 0, 3000));
    let gated = Workload { preemption_gates: vec!["g".into()], ..workload(1, 0, 5, 2000) };
    w.put(1, gated.clone());
    let s = &w.all[1].status;
    let blocked = s.condition(cond::BLOCKED_ON_GATES).expect("blocked");
    let text = "Workload requires preemption, but it's gated";
    assert_eq!(
        (blocked.status, blocked.reason.as_str(), blocked.message.as_str()),
        (true, "PreemptionGated", text)
    );
    assert_eq!(w.why(1), format!("PendingEvaluation: {text}"));
    assert_eq!(s.preemption_gates.len(), 1, "known in the status, closed");
    assert!(!s.preemption_gates[0].open && !w.all[0].status.is_true(cond::EVICTED));
    let mut opened = w.all[1].clone();
    opened.status.preemption_gates[0].open = true;
    w.put(1, opened);
    assert!(w.all[0].status.is_true(cond::PREEMPTED), "{:?}", w.said);
    w.stop(0);
    assert!(w.admitted(1));
    let s = &w.all[1].status;
    let blocked = s.condition(cond::BLOCKED_ON_GATES).expect("there");
    assert_eq!((blocked.status, blocked.reason.as_str()), (false, "QuotaReserved"));
    assert!(s.preemption_gates[0].open);
    w.put(2, Workload { priority: 9, ..workload(2, 0, 0, 3000) });
    let s = &w.all[1].status;
    assert!(s.is_true(cond::EVICTED) && !s.preemption_gates[0].open, "closed again");
    // A gate that the spec no longer lists goes from the status.
    let mut free = w.all[1].clone();
    free.preemption_gates.clear();
    w.put(1, free);
    assert!(w.all[1].status.preemption_gates.is_empty());
    // It needs nobody's place: no gate is asked.
    let mut w = Harness::with(Config { gates, ..Config::default() }, &[("f", 3)]);
    w.put(0, Workload { key: key(0), ..gated });
    assert!(w.admitted(0));
}

#[test]
fn who_takes_the_place_of_an_ended_slice_takes_what_that_one_had_taken() {
    let mut w = Harness::new(&[("f", 3)]);
    w.put(0, slice(0, 0, 1, None));
    w.put(1, workload(1, 0, 0, 1000));
    // The end of the first slice can't be written until the second has ended, too.
    w.failing = Some((0, 2));
    w.put(2, slice(2, 0, 1, Some(0)));
    assert!(w.admitted(0) && w.admitted(2) && w.usage() == 2, "{:?}", w.said);
    w.put(3, slice(3, 0, 2, Some(2)));
    assert!(w.admitted(3) && !w.admitted(2), "{:?}", w.said);
    assert_eq!(w.usage(), 3);
    w.failing = None;
    w.wait(70);
    let end = w.all[0].status.condition(cond::FINISHED).expect("finished");
    assert!(end.reason == REPLACED && end.message.contains("UID: uid-3"), "{}", end.message);
    assert_eq!(w.usage(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever the annotation says, in rows, forks and of workloads that come and go: the books agree with the
    /// objects, and no more is charged than there is, unless who was admitted in the place of another claims a
    /// different one later.
    #[test]
    fn any_graph_of_slices_is_charged_consistently(
        graph in proptest::collection::vec((1..5i32, proptest::option::of(0..6usize)), 2..7),
        quota in 3..20i64,
        ops in proptest::collection::vec((0..7usize, 0..5u8, proptest::option::weighted(0.5, (0..6usize, 1..5usize))), 0..16),
    ) {
        let mut w = Harness::new(&[("f", quota)]);
        for (n, (pods, old)) in graph.iter().enumerate() {
            w.failing = Some((n / 2, 2));
            w.put(n, slice(n, 0, *pods, *old));
            prop_assert!(w.usage() <= quota);
        }
        let mut strict = true;
        for (n, op, fails) in ops {
            let n = n % w.all.len();
            w.failing = fails;
            match op {
                0 => {
                    let mut done = w.all[n].clone();
                    done.status.conditions.push(Condition { kind: cond::FINISHED.into(), status: true, ..Default::default() });
                    w.put(n, done);
                }
                1 => w.stop(n),
                2 => w.resize(n, 1),
                3 => w.wait(70),
                _ => {
                    strict = false;
                    let to = (n + 1) % w.all.len();
                    w.put(n, Workload { replaces: Some(key(to)), ..w.all[n].clone() });
                }
            }
            prop_assert!(!strict || w.usage() <= quota, "{} of {quota}: {:#?}", w.usage(), w.said);
        }
    }
}
