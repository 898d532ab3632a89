use std::sync::Arc;

use super::*;
use crate::testing::outside::{Outside, cluster_queue, cpu, workload};
use crate::testing::{Action as EngineAction, Engine, Event as EngineEvent};
use crate::{
    Calendar, Chosen, Config, Event, Hours, LocalQueue, PreemptionPolicy, ResourceFlavor, RunWindow,
};
use plimsoll_state::model::StringMap;

/// A ClusterQueue of 2 CPUs with one LocalQueue, and workloads that get theirs as the engine decides.
struct Harness {
    engine: Engine,
    outside: Outside,
    now: i64,
}

impl Harness {
    fn new(strict: bool, preempts: bool) -> Self {
        let mut cq = cluster_queue("cq", "", 2000, None, strict);
        if !preempts {
            cq.preemption.within_cluster_queue = PreemptionPolicy::Never;
        }
        let local = LocalQueue {
            namespace: "n".into(),
            name: "l0".into(),
            cluster_queue: "cq".into(),
            ..LocalQueue::default()
        };
        let mut harness =
            Self { engine: Engine::new(Config::default()), outside: Outside::new(Vec::new()), now: 100 };
        harness.go(vec![
            Event::NamespaceUpsert("n".into(), StringMap::default()),
            Event::ResourceFlavorUpsert(Box::new(ResourceFlavor {
                name: "f".into(),
                ..ResourceFlavor::default()
            })),
            Event::ClusterQueueUpsert(Box::new(cq)),
            Event::LocalQueueUpsert(Box::new(local)),
        ]);
        harness
    }

    fn go(&mut self, mut events: Vec<Event>) {
        for _ in 0..8 {
            let mut actions = Vec::new();
            let mut wrapped = events.drain(..).map(EngineEvent::Queueing).collect();
            self.engine.step(Time::from_seconds(self.now), &mut wrapped, &mut actions);
            events = self
                .outside
                .carry_out(actions.into_iter().collect::<Vec<EngineAction>>(), &mut std::iter::empty());
        }
    }

    /// A workload that asks for so many CPUs and runs for at most so many seconds.
    fn create(&mut self, priority: i32, cpus: i64, seconds: Option<i32>) {
        let Event::WorkloadUpsert(mut w) = self.outside.create(0, priority, cpus * 1000) else { return };
        w.max_execution_seconds = seconds;
        if let Some(stored) = self.outside.find(&w.key) {
            stored.max_execution_seconds = seconds;
        }
        self.go(vec![Event::WorkloadUpsert(w)]);
    }

    /// Seconds, preempted workloads, workloads ahead of it.
    fn ask(&mut self, priority: i32, cpus: i64) -> (Option<i64>, usize, usize) {
        let mut w = workload(999, 0, priority, 0);
        w.pod_sets[0].spec.containers[0].requests = cpu(cpus * 1000);
        let now = Time::from_seconds(self.now);
        let forecast = self.engine.queueing_mut().unwrap().forecast(w, now).unwrap();
        assert_eq!(forecast.message, "");
        self.engine.check();
        (forecast.start.map(Time::seconds), forecast.preempted, forecast.ahead)
    }
}

#[test]
fn a_workload_starts_when_those_in_its_way_have_ended() {
    let mut h = Harness::new(false, false);
    assert_eq!(h.ask(0, 2), (Some(100), 0, 0), "nothing is in its way");
    h.create(0, 1, Some(60));
    assert_eq!(h.ask(0, 1), (Some(100), 0, 0));
    assert_eq!(h.ask(0, 2), (Some(160), 0, 0));
    // The second one waits for the first one, and runs before this one.
    h.create(0, 2, Some(30));
    assert_eq!(h.ask(0, 2), (Some(190), 0, 1));
    // Another one that fits goes before the second one, as it does in BestEffortFIFO.
    assert_eq!(h.ask(0, 1), (Some(100), 0, 1));
    assert_eq!(h.ask(9, 2), (Some(160), 0, 0), "a higher priority is before it");
    // It may run for ever.
    h.create(0, 1, None);
    assert_eq!(h.ask(0, 2), (None, 0, 1));
    assert_eq!(h.ask(0, 1), (Some(160), 0, 1));
}

#[test]
fn in_a_strict_queue_nothing_goes_before_the_first() {
    let mut h = Harness::new(true, false);
    h.create(0, 1, Some(60));
    h.create(0, 2, Some(30));
    assert_eq!(h.ask(0, 1), (Some(190), 0, 1));
}

#[test]
fn a_workload_that_could_preempt_says_how_many() {
    let mut h = Harness::new(false, true);
    h.create(0, 1, None);
    h.create(0, 1, Some(60));
    assert_eq!(h.ask(0, 1), (Some(160), 0, 0));
    assert_eq!(h.ask(5, 1), (Some(160), 1, 0));
    assert_eq!(h.ask(5, 2), (None, 2, 0));
    assert_eq!(h.ask(5, 3), (None, 0, 0), "more than there is");
}

#[derive(Debug)]
struct Opens(i64);

impl Calendar for Opens {
    fn at(&self, now: Time) -> Hours {
        let open = now.seconds() >= self.0;
        Hours { open, since: None, change: (!open).then(|| Time::from_seconds(self.0)), again: None }
    }

    fn text(&self, at: Time) -> String {
        at.seconds().to_string()
    }
}

#[test]
fn a_closed_run_window_opens_first() {
    let mut h = Harness::new(false, false);
    h.go(vec![Event::RunWindowUpsert(Box::new(RunWindow {
        name: "night".into(),
        source: "night".into(),
        calendar: Some(Arc::new(Opens(500))),
        local_queues: Chosen { names: vec!["l0".into()], ..Chosen::default() },
        ..RunWindow::default()
    }))]);
    assert_eq!(h.ask(0, 2), (Some(500), 0, 0));
}

#[test]
fn a_queue_that_takes_nothing_says_why() {
    let mut h = Harness::new(false, false);
    let ask = |h: &mut Harness, queue: &str| {
        let w = Workload { queue: queue.into(), ..workload(999, 0, 0, 1000) };
        let forecast = h.engine.queueing_mut().unwrap().forecast(w, Time::from_seconds(100));
        forecast.map(|f| (f.start, f.message))
    };
    assert_eq!(ask(&mut h, "other"), None);
    let stopped = LocalQueue {
        namespace: "n".into(),
        name: "l0".into(),
        cluster_queue: "cq".into(),
        stop_policy: StopPolicy::Hold,
        ..LocalQueue::default()
    };
    h.go(vec![Event::LocalQueueUpsert(Box::new(stopped.clone()))]);
    assert_eq!(ask(&mut h, "l0"), Some((None, "LocalQueue l0 is inactive".into())));
    let lost = LocalQueue { stop_policy: StopPolicy::None, cluster_queue: "none".into(), ..stopped };
    h.go(vec![Event::LocalQueueUpsert(Box::new(lost))]);
    assert_eq!(ask(&mut h, "l0"), Some((None, "LocalQueue l0 has no ClusterQueue".into())));
}
