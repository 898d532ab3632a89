//! Run windows second by second: texts, statuses and moments, where every write works and jobs stop at once. Random windows,
//! faults and restarts are played by the simulator (`plimsoll-sim`, `check/windows.rs`).

use super::super::{
    Condition, Config, Event, FlavorQuotas, LocalQueue, ResourceFlavor, ResourceQuota, TargetKind, Workload,
    WorkloadKey, cond,
};
use super::*;
use crate::testing::outside::{cluster_queue, workload};
use plimsoll_state::model::{LabelSelector, StringMap};
use plimsoll_state::time::Duration;

/// Open in these stretches of seconds.
#[derive(Debug)]
pub(crate) struct Spans(pub(crate) Vec<(i64, i64)>);

impl Spans {
    /// By brute force: whether the second is in any stretch.
    fn open(&self, second: i64) -> bool {
        self.0.iter().any(|(a, b)| (*a..*b).contains(&second))
    }
}

impl Calendar for Spans {
    fn at(&self, now: Time) -> Hours {
        let now = now.seconds();
        let open = self.open(now);
        let mut edges: Vec<i64> = self.0.iter().flat_map(|(a, b)| [*a, *b]).collect();
        edges.sort_unstable();
        let moves = |e: &&i64| self.open(**e) != self.open(**e - 1);
        let change = edges.iter().filter(moves).find(|e| **e > now).copied();
        let since = edges.iter().filter(moves).rfind(|e| **e <= now).copied().filter(|_| !open);
        Hours {
            open,
            since: since.map(Time::from_seconds),
            change: change.map(Time::from_seconds),
            again: None,
        }
    }

    fn text(&self, at: Time) -> String {
        format!("t={}", at.seconds())
    }
}

fn window(name: &str, spans: &[(i64, i64)]) -> RunWindow {
    RunWindow {
        name: name.into(),
        source: format!("{spans:?}"),
        calendar: Some(Arc::new(Spans(spans.to_vec()))),
        ..RunWindow::default()
    }
}

fn named(names: &[&str]) -> Chosen {
    Chosen { names: names.iter().map(|n| (*n).to_owned()).collect(), ..Chosen::default() }
}

/// A window over the LocalQueue `l0`.
fn over_queue(spans: &[(i64, i64)]) -> RunWindow {
    RunWindow { local_queues: named(&["l0"]), ..window("night", spans) }
}

/// Queueing with two flavors and two LocalQueues, in time that the tests set.
struct Harness {
    q: Queueing,
    objects: Vec<Event>,
    all: BTreeMap<WorkloadKey, Workload>,
    windows: BTreeMap<String, RunWindow>,
    statuses: BTreeMap<String, RunWindowStatus>,
    now: i64,
    version: u64,
    /// (second, workload, whether it was admitted or evicted).
    log: Vec<(i64, String, bool)>,
}

impl Harness {
    /// Flavors `f` (2 cpu) and `g` (1 cpu) in one ClusterQueue.
    fn new() -> Self {
        let mut cq = cluster_queue("c", "", 2000, None, false);
        let resources = vec![ResourceQuota { resource: "cpu".into(), nominal: 1000, ..Default::default() }];
        cq.resource_groups[0].flavors.push(FlavorQuotas { flavor: "g".into(), resources });
        let lq = |name: &str| LocalQueue {
            namespace: "n".into(),
            name: name.into(),
            cluster_queue: "c".into(),
            labels: [("when".to_owned(), name.to_owned())].into_iter().collect(),
            ..LocalQueue::default()
        };
        let flavor = |name: &str| ResourceFlavor { name: name.into(), ..ResourceFlavor::default() };
        let objects = vec![
            Event::NamespaceUpsert("n".into(), StringMap::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor("f"))),
            Event::ResourceFlavorUpsert(Box::new(flavor("g"))),
            Event::ClusterQueueUpsert(Box::new(cq)),
            Event::LocalQueueUpsert(Box::new(lq("l0"))),
            Event::LocalQueueUpsert(Box::new(lq("l1"))),
        ];
        let mut w = Self {
            q: Queueing::new(Config::default()),
            objects: objects.clone(),
            all: BTreeMap::new(),
            windows: BTreeMap::new(),
            statuses: BTreeMap::new(),
            now: 0,
            version: 1,
            log: Vec::new(),
        };
        w.tell(objects);
        w
    }

    fn tell(&mut self, mut events: Vec<Event>) {
        let now = Time::from_seconds(self.now);
        loop {
            let mut out = Vec::new();
            for event in std::mem::take(&mut events) {
                self.q.handle(now, event);
            }
            self.q.decide(now, &mut |a| out.push(a));
            self.q.check();
            for action in out {
                match action {
                    Action::UpdateWorkload(u) => {
                        let Some(w) = self.all.get_mut(&u.key) else { continue };
                        let ran = w.status.is_true(cond::ADMITTED);
                        let was_evicted = w.status.is_true(cond::EVICTED);
                        u.apply(&mut w.status);
                        self.version += 1;
                        w.version = self.version;
                        events.push(Event::WorkloadUpsert(Box::new(w.clone())));
                        if !ran && w.status.is_true(cond::ADMITTED) {
                            self.log.push((self.now, u.key.name.clone(), true));
                        }
                        if w.status.is_true(cond::EVICTED) && !was_evicted {
                            self.log.push((self.now, u.key.name.clone(), false));
                        }
                        if w.status.is_true(cond::EVICTED) && w.status.admission.is_some() {
                            events.push(Event::WorkloadStopped(u.key.clone()));
                        }
                    }
                    Action::RunWindowStatus(name, status) => drop(self.statuses.insert(name, *status)),
                    _ => {}
                }
            }
            let more = self.q.next_wake().is_some_and(|t| t <= now);
            if events.is_empty() && !more {
                return;
            }
        }
    }

    /// Goes on to a second, waking only when the engine asks for it.
    fn go(&mut self, to: i64) {
        while let Some(at) = self.q.next_wake().filter(|t| t.seconds() <= to) {
            self.now = at.seconds().max(self.now);
            self.tell(Vec::new());
        }
        self.now = to;
        self.tell(Vec::new());
    }

    fn window(&mut self, w: RunWindow) {
        self.windows.insert(w.name.clone(), w.clone());
        self.tell(vec![Event::RunWindowUpsert(Box::new(w))]);
    }

    fn no_window(&mut self, name: &str) {
        self.windows.remove(name);
        self.tell(vec![Event::RunWindowDelete(name.into())]);
    }

    fn put(&mut self, mut w: Workload) {
        self.version += 1;
        w.version = self.version;
        self.all.insert(w.key.clone(), w.clone());
        self.tell(vec![Event::WorkloadUpsert(Box::new(w))]);
    }

    fn job(&mut self, n: usize, queue: usize) {
        self.job_in(n, queue, "");
    }

    fn job_in(&mut self, n: usize, queue: usize, run_window: &str) {
        self.put(Workload { run_window: run_window.into(), ..workload(n, queue, 0, 1000) });
    }

    fn finish(&mut self, name: &str) {
        let mut w = self.get(name).clone();
        w.status.conditions.push(Condition {
            kind: cond::FINISHED.into(),
            status: true,
            reason: "Succeeded".into(),
            ..Condition::default()
        });
        self.put(w);
    }

    /// The process dies, misses what happens until `to`, and begins again from what the API server has.
    fn down_until(&mut self, to: i64) {
        self.now = to;
        self.q = Queueing::new(Config::default());
        let mut events = self.objects.clone();
        events.extend(self.windows.values().map(|w| Event::RunWindowUpsert(Box::new(w.clone()))));
        events.extend(self.all.values().map(|w| Event::WorkloadUpsert(Box::new(w.clone()))));
        self.tell(events);
    }

    fn get(&self, name: &str) -> &Workload {
        &self.all[&WorkloadKey { namespace: "n".into(), name: name.into() }]
    }

    fn runs(&self, name: &str) -> bool {
        let s = &self.get(name).status;
        s.is_true(cond::ADMITTED) && !s.is_true(cond::EVICTED)
    }

    fn says(&self, name: &str) -> (&str, &str) {
        self.get(name).status.condition(cond::QUOTA_RESERVED).map_or(("", ""), |c| (&c.reason, &c.message))
    }

    fn used(&self, flavor: &str) -> i64 {
        let held = self
            .all
            .values()
            .filter(|w| !w.status.is_true(cond::FINISHED))
            .filter_map(|w| w.status.admission.as_ref());
        let parts = held.flat_map(|a| &a.assignments);
        parts
            .filter(|p| p.flavors.iter().any(|(_, f)| f == flavor))
            .filter_map(|p| p.resource_usage.get("cpu"))
            .sum()
    }
}

#[test]
fn waits_runs_stops_and_resumes_in_its_place() {
    let mut w = Harness::new();
    w.window(over_queue(&[(100, 200), (300, 400)]));
    for n in 0..4 {
        w.job(n, 0);
    }
    w.job(9, 1);
    assert!(w.runs("w9"), "another queue is not concerned");
    w.finish("w9");
    assert!(!w.runs("w0"));
    assert_eq!(w.says("w0"), (OUTSIDE, "Run window night is closed; it opens next at t=100"));
    let s = &w.statuses["night"];
    assert_eq!(
        (s.open, s.next_opening.as_deref(), s.next_closing.as_deref()),
        (false, Some("t=100"), Some("t=200"))
    );
    assert_eq!(s.applies_to, [1, 0, 0]);
    w.go(100);
    assert!(w.runs("w0") && w.runs("w1") && w.runs("w2") && !w.runs("w3"));
    assert_eq!(w.says("w3").0, "WaitingForQuota");
    let s = &w.statuses["night"];
    assert_eq!(
        (s.open, s.next_opening.as_deref(), s.next_closing.as_deref()),
        (true, Some("t=300"), Some("t=200"))
    );
    w.go(200);
    assert!((0..4).all(|n| !w.runs(&format!("w{n}"))), "nothing runs outside");
    let evicted = w.get("w0").status.condition(cond::EVICTED).unwrap();
    assert_eq!(evicted.reason, OUTSIDE);
    assert_eq!(
        evicted.message,
        "The workload is suspended outside run window \"night\" (opens next at t=300)"
    );
    assert!(w.get("w0").status.is_true(cond::REQUEUED));
    assert_eq!(w.says("w3"), (OUTSIDE, "Run window night is closed; it opens next at t=300"));
    w.go(300);
    assert!(w.runs("w0") && w.runs("w1") && w.runs("w2") && !w.runs("w3"), "in the old order");
    assert_eq!(w.get("w0").status.past_execution_seconds, Some(100));
    w.go(500);
    assert_eq!(w.says("w0"), (OUTSIDE, "Run window night is closed and does not open again"));
    assert_eq!(w.statuses["night"].next_opening, None);
}

#[test]
fn grace_and_minimum_run_time() {
    for (grace, min_run, finish, admitted, stops) in [
        (0, 0, false, 100, Some(200)),
        (30, 0, false, 100, Some(230)),
        (30, 50, false, 190, Some(240)),
        // Longer than what is left of the window.
        (0, 60, false, 195, Some(255)),
        // So long that the next window is open before.
        (0, 250, false, 100, Some(400)),
        (150, 0, false, 100, Some(550)),
        (0, 0, true, 100, None),
    ] {
        let mut w = Harness::new();
        let policy = |spans: &[(i64, i64)]| RunWindow {
            grace: Duration::from_seconds(grace),
            min_run: Duration::from_seconds(min_run),
            finish,
            ..over_queue(spans)
        };
        w.window(policy(&[(100, 200), (300, 400)]));
        w.go(admitted);
        w.job(0, 0);
        assert!(w.runs("w0"));
        w.go(1000);
        let end = w.log.iter().find(|(_, _, started)| !started).map(|(t, _, _)| *t);
        assert_eq!(end, stops, "grace {grace}, minimum {min_run}, from {admitted}");
    }
}

#[test]
fn pods_are_left_to_finish() {
    let mut w = Harness::new();
    w.window(over_queue(&[(0, 100)]));
    w.put(Workload { answers_to: vec![(TargetKind::Pod, "p".into())], ..workload(0, 0, 0, 1000) });
    w.go(1000);
    assert!(w.runs("w0"));
}

#[test]
fn reservations_that_started_nothing_are_given_back() {
    let mut w = Harness::new();
    let Some(Event::ClusterQueueUpsert(cq)) = w.objects.get(3).cloned() else { panic!("the ClusterQueue") };
    let check = super::super::AdmissionCheck { name: "ck".into(), active: true, ..Default::default() };
    let cq = super::super::ClusterQueue { admission_checks: vec![("ck".into(), Vec::new())], ..*cq };
    w.tell(vec![Event::AdmissionCheckUpsert(Box::new(check)), Event::ClusterQueueUpsert(Box::new(cq))]);
    w.window(over_queue(&[(0, 100), (300, 400)]));
    w.job(0, 0);
    let reserved = |w: &Harness| w.get("w0").status.is_true(cond::QUOTA_RESERVED);
    assert!(reserved(&w) && !w.runs("w0"), "its check is not done");
    w.go(100);
    assert!(!reserved(&w) && w.used("f") == 0);
    assert_eq!(w.says("w0"), (OUTSIDE, "Run window night is closed; it opens next at t=300"));
    w.go(300);
    assert!(reserved(&w));
}

#[test]
fn flavors_have_quota_inside_only() {
    let mut w = Harness::new();
    w.window(RunWindow { flavors: named(&["f"]), ..window("cheap", &[(100, 200), (300, 400)]) });
    for n in 0..4 {
        w.job(n, 0);
    }
    assert_eq!((w.used("f"), w.used("g")), (0, 1000));
    let (reason, message) = w.says("w1");
    assert_eq!(reason, "WaitingForQuota", "the other flavor is only full");
    assert!(message.contains("flavor f is outside run window \"cheap\" (opens next at t=100)"), "{message}");
    w.go(100);
    assert_eq!((w.used("f"), w.used("g")), (2000, 1000));
    w.go(200);
    assert_eq!((w.used("f"), w.used("g")), (0, 1000), "what runs on the other flavor goes on");
    assert!(w.runs("w0"));
    w.finish("w0");
    assert!(
        w.runs("w1") && w.get("w1").status.admission.as_ref().unwrap().assignments[0].flavors[0].1 == "g"
    );
    w.go(300);
    assert!(w.runs("w2") && w.runs("w3"));
    w.window(RunWindow {
        flavors: Chosen { selector: Some(LabelSelector::default()), ..Chosen::default() },
        ..window("cheap", &[(500, 600)])
    });
    assert!((1..4).all(|n| !w.runs(&format!("w{n}"))), "every flavor is shut now");
    assert_eq!(w.says("w1").0, "FlavorOutsideRunWindow");
    assert!(
        w.says("w3").1.contains("flavor f is outside run window \"cheap\" (opens next at t=500)"),
        "{:?}",
        w.says("w3")
    );
    w.go(500);
    assert_eq!((w.used("f"), w.used("g")), (2000, 1000));
}

#[test]
fn both_of_two_windows_have_to_be_open() {
    let mut w = Harness::new();
    w.window(over_queue(&[(100, 300), (500, 600)]));
    w.window(window("mine", &[(200, 400), (550, 700)]));
    w.job_in(0, 0, "mine");
    w.job_in(1, 1, "mine");
    let text = "Run windows \"mine\" (opens next at t=200), \"night\" (opens next at t=100) are closed; all 2 that \
                apply are open next at t=200";
    assert_eq!(w.says("w0"), (OUTSIDE, text));
    w.go(100);
    assert!(!w.runs("w0"));
    let text = "Run window \"mine\" (opens next at t=200) is closed; all 2 that apply are open next at t=200";
    assert_eq!(w.says("w0"), (OUTSIDE, text));
    w.go(300);
    assert!(!w.runs("w0") && w.runs("w1"));
    let ran: Vec<_> = w.log.iter().filter(|(_, n, _)| n == "w0").map(|(t, _, on)| (*t, *on)).collect();
    assert_eq!(ran, [(200, true), (300, false)]);
    w.go(560);
    assert!(w.runs("w0"));
    w.window(window("mine", &[(700, 800)]));
    assert!(!w.runs("w0"));
    w.go(650);
    assert_eq!(
        w.says("w0").1,
        "Run windows \"mine\" (opens next at t=700), \"night\" (does not open again) are closed; \
        as far as can be seen the 2 that apply (mine, night) are never open together"
    );
}

#[test]
fn windows_come_change_and_go() {
    let mut w = Harness::new();
    w.job(0, 0);
    w.job_in(1, 1, "later");
    assert!(w.runs("w0"));
    assert_eq!(w.says("w1"), ("Misconfigured", "RunWindow later doesn't exist"));
    w.go(50);
    // Closed from the start: the grace begins with the window.
    let made = Time::from_seconds(50);
    let grace = Duration::from_seconds(20);
    w.window(RunWindow { creation: made, grace, ..over_queue(&[(0, 10), (500, 600)]) });
    w.go(69);
    assert!(w.runs("w0"));
    w.go(70);
    assert!(!w.runs("w0"));
    w.window(RunWindow { creation: made, grace, ..over_queue(&[(0, 90), (500, 600)]) });
    assert!(w.runs("w0"), "open since it was changed");
    w.go(100);
    assert!(w.runs("w0"), "in its grace");
    w.no_window("night");
    w.go(400);
    assert!(w.runs("w0"), "nothing holds it back any more");
    w.window(window("later", &[(0, 450), (600, 700)]));
    assert!(w.runs("w1"));
    w.no_window("later");
    w.go(450);
    assert!(w.runs("w1"), "what runs is not stopped because a window is gone");
    w.window(window("later", &[(600, 700)]));
    assert!(!w.runs("w1"));
    let broken =
        RunWindow { invalid: "spec.windows[0].start: no".into(), calendar: None, ..window("later", &[]) };
    w.window(RunWindow { source: "broken".into(), ..broken });
    assert_eq!(w.says("w1"), ("Misconfigured", "RunWindow later is invalid: spec.windows[0].start: no"));
    w.job_in(2, 1, "later");
    let mut own = w.get("w2").clone();
    assert!(!w.runs("w2"));
    own.run_window.clear();
    w.put(own);
    assert!(w.runs("w2"), "its annotation is gone");
}

#[test]
fn labels_and_cluster_queues() {
    let mut w = Harness::new();
    let mut selector = LabelSelector::default();
    selector.requirements.push(plimsoll_state::model::Requirement {
        key: "when".into(),
        operator: plimsoll_state::model::Operator::In,
        values: vec!["l1".into()],
    });
    w.window(RunWindow {
        local_queues: Chosen { selector: Some(selector), ..Chosen::default() },
        ..window("some", &[(100, 200)])
    });
    w.job(0, 0);
    w.job(1, 1);
    assert!(w.runs("w0") && !w.runs("w1"));
    w.window(RunWindow { cluster_queues: named(&["c"]), ..window("all", &[(150, 200)]) });
    assert!(!w.runs("w0"), "its ClusterQueue is closed now");
    w.go(120);
    assert!(!w.runs("w1"));
    w.go(150);
    assert!(w.runs("w0") && w.runs("w1"));
}

#[test]
fn a_controller_that_was_down_goes_by_the_clock() {
    for down_at in [50, 100, 150, 200] {
        for up_at in [201, 230, 299, 300, 350, 401] {
            let mut w = Harness::new();
            w.window(RunWindow {
                grace: Duration::from_seconds(30),
                ..over_queue(&[(100, 200), (300, 400)])
            });
            w.job(0, 0);
            w.go(down_at);
            let ran = w.runs("w0");
            w.down_until(up_at);
            let (open, in_grace) = ((300..400).contains(&up_at), (200..230).contains(&up_at) || up_at == 401);
            assert_eq!(w.runs("w0"), open || (ran && in_grace), "down {down_at}..{up_at}");
        }
    }
}
