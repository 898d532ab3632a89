//! An API server, jobs and people in miniature.

use plimsoll_state::{Answer, ObjectEvent};
use std::collections::{BTreeMap, BTreeSet};

use super::objects::{self, Ask, CHECK, FLAVORS, NODES, SIZE, Spec};
use crate::testing::{self as engine, Engine};
use crate::{
    Action, CheckState, Condition, Config, Event, FairSharing, StopPolicy, Workload, WorkloadKey,
    WorkloadUpdate, cond,
};
use plimsoll_state::time::{Duration, Time};

/// What the outside does with the next write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Done,
    DoneButLate,
    DoneTwice,
    Fails,
    /// If it only explains something: waits for the next one to the same object, or until nothing else is to be written.
    Waits,
}

/// What is fixed in a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) fair: bool,
    pub(super) topologies: bool,
    /// Rounds of changes in a step.
    pub(super) rounds: usize,
    pub(super) cohorts: Vec<Spec>,
    pub(super) queues: Vec<Spec>,
}

pub(super) struct Queue {
    pub(super) spec: Option<Spec>,
    pub(super) stop: StopPolicy,
    /// The LocalQueue, if there.
    pub(super) local: Option<StopPolicy>,
}

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) plan: Plan,
    pub(super) now: Time,
    pub(super) queues: Vec<Queue>,
    pub(super) cohorts: Vec<Option<Spec>>,
    pub(super) flavors: [bool; 2],
    /// Whether the check is there, and active.
    pub(super) check: Option<bool>,
    /// CPUs and readiness.
    pub(super) nodes: BTreeMap<String, (i64, bool)>,
    pub(super) jobs: BTreeMap<WorkloadKey, Workload>,
    pub(super) finished: BTreeSet<WorkloadKey>,
    pub(super) made: usize,
    pub(super) version: u64,
    /// What the engine hears next.
    pub(super) news: Vec<engine::Event>,
    /// What it hears a step later.
    pub(super) late: Vec<engine::Event>,
    pub(super) fates: Vec<Fate>,
    fate: usize,
    steps: usize,
    /// Explanations that have not been written yet.
    waiting: BTreeMap<WorkloadKey, WorkloadUpdate>,
}

fn q(event: Event) -> engine::Event {
    engine::Event::Queueing(event)
}

fn seen(w: &Workload) -> engine::Event {
    q(Event::WorkloadUpsert(Box::new(w.clone())))
}

impl World {
    pub(super) fn new(plan: Plan, fates: Vec<Fate>) -> Self {
        let mut w = Self {
            engine: Self::fresh(&plan),
            now: Time::from_seconds(1_000),
            queues: Vec::new(),
            cohorts: Vec::new(),
            flavors: [true; 2],
            check: Some(true),
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            finished: BTreeSet::new(),
            made: 0,
            version: 1,
            news: Vec::new(),
            late: Vec::new(),
            fates,
            fate: 0,
            steps: 0,
            waiting: BTreeMap::new(),
            plan,
        };
        w.restore();
        w.restart();
        w
    }

    fn fresh(plan: &Plan) -> Engine {
        let config = Config {
            fair_sharing: plan.fair.then(FairSharing::default),
            watch_nodes: plan.topologies,
            explain_every: Duration::from_millis(if plan.fair { 500 } else { 0 }),
            ..Config::default()
        };
        let mut engine = Engine::new(config);
        if let Some(queueing) = engine.queueing_mut() {
            queueing.rounds = plan.rounds;
        }
        engine
    }

    /// Everything as it was planned.
    pub(super) fn restore(&mut self) {
        let queue =
            |s: &Spec| Queue { spec: Some(s.clone()), stop: StopPolicy::None, local: Some(StopPolicy::None) };
        self.queues = self.plan.queues.iter().map(queue).collect();
        self.cohorts = self.plan.cohorts.iter().cloned().map(Some).collect();
        (self.flavors, self.check) = ([true; 2], Some(true));
        if self.plan.topologies {
            self.nodes = NODES.iter().map(|n| ((*n).to_owned(), (SIZE, true))).collect();
        }
    }

    /// All objects but workloads, as a new engine hears of them; what is not there is deleted.
    fn all(&self) -> Vec<engine::Event> {
        let topologies = self.plan.topologies;
        let mut out = objects::fixed();
        for (i, name) in FLAVORS.iter().enumerate() {
            let gone = || Event::ResourceFlavorDelete((*name).into());
            out.push(if self.flavors[i] { objects::flavor(i, topologies) } else { gone() });
        }
        let gone = || Event::AdmissionCheckDelete(CHECK.into());
        out.push(self.check.map_or_else(gone, |active| objects::check(topologies, active)));
        for (i, s) in self.cohorts.iter().enumerate() {
            let gone = || Event::CohortDelete(format!("k{i}"));
            out.push(s.as_ref().map_or_else(gone, |s| objects::cohort(i, s)));
        }
        for (i, queue) in self.queues.iter().enumerate() {
            let gone = || Event::ClusterQueueDelete(format!("c{i}"));
            out.push(queue.spec.as_ref().map_or_else(gone, |s| objects::cluster_queue(i, s, queue.stop)));
            let gone = || Event::LocalQueueDelete("n".into(), format!("l{i}"));
            out.push(queue.local.map_or_else(gone, |stop| objects::local_queue(i, stop)));
        }
        let mut out: Vec<engine::Event> = out.into_iter().map(q).collect();
        for name in NODES {
            let place = match self.nodes.get(name) {
                Some((cpus, ready)) => {
                    ObjectEvent::NodeUpsert(Box::new(objects::node(name, *cpus, *ready, self.now)))
                }
                None => ObjectEvent::NodeDelete(name.into()),
            };
            out.push(engine::Event::Object(place));
        }
        out
    }

    /// Sends the engine all objects but workloads as they are now.
    pub(super) fn tell_all(&mut self) {
        let all = self.all();
        self.news.extend(all);
    }

    /// A new engine, which hears of everything.
    pub(super) fn restart(&mut self) {
        self.engine = Self::fresh(&self.plan);
        self.late.clear();
        self.waiting.clear();
        self.news = self.all();
        self.news.extend(self.jobs.values().map(seen));
    }

    pub(super) fn create(&mut self, ask: Ask, name: Option<WorkloadKey>) {
        self.made += 1;
        let mut w = objects::workload(self.made, ask, self.plan.topologies, self.now);
        w.key = name.unwrap_or(w.key);
        self.version += 1;
        w.version = self.version;
        self.news.push(seen(&w));
        self.jobs.insert(w.key.clone(), w);
    }

    /// Changes a workload; the engine hears of it in the next step, or in the one after.
    pub(super) fn change(&mut self, key: &WorkloadKey, late: bool, change: impl FnOnce(&mut Workload)) {
        let Some(w) = self.jobs.get_mut(key) else { return };
        change(w);
        self.version += 1;
        w.version = self.version;
        let event = seen(w);
        if late { self.late.push(event) } else { self.news.push(event) }
    }

    pub(super) fn finish(&mut self, key: &WorkloadKey, late: bool) {
        self.finished.insert(key.clone());
        self.change(key, late, |w| {
            let kind = cond::FINISHED.into();
            w.status.conditions.push(Condition { kind, status: true, ..Condition::default() });
        });
    }

    /// A watch shows nothing of an object after its end.
    pub(super) fn remove(&mut self, key: &WorkloadKey) {
        self.jobs.remove(key);
        let other = |e: &engine::Event| !matches!(e, engine::Event::Queueing(Event::WorkloadUpsert(w)) if w.key == *key);
        self.late.retain(other);
    }

    pub(super) fn delete(&mut self, key: &WorkloadKey, late: bool) {
        self.remove(key);
        let event = q(Event::WorkloadDelete(key.clone()));
        if late { self.late.push(event) } else { self.news.push(event) }
    }

    /// The `i`th, in circles, of the workloads for which something holds.
    pub(super) fn pick(&self, i: usize, which: impl Fn(&Workload) -> bool) -> Option<WorkloadKey> {
        let all: Vec<&WorkloadKey> = self.jobs.values().filter(|w| which(w)).map(|w| &w.key).collect();
        all.get(i % all.len().max(1)).map(|k| (*k).clone())
    }

    fn next_fate(&mut self) -> Fate {
        self.fate += 1;
        let all = self.fates.len().max(1);
        self.fates.get(self.fate % all).copied().unwrap_or(Fate::Done)
    }

    /// One step of the engine, and what comes of it; whether anything was written.
    pub(super) fn step(&mut self) -> bool {
        let mut batch = std::mem::take(&mut self.news);
        self.news = std::mem::take(&mut self.late);
        let mut actions = Vec::new();
        // Until all goes well, a third of the steps comes while decisions still wait to be written.
        self.steps += 1;
        let hold = !self.fates.is_empty() && self.steps % 6 < 2;
        if let Some(queueing) = self.engine.queueing_mut() {
            queueing.hold_admissions(hold);
        }
        self.engine.step(self.now, &mut batch, &mut actions);
        let mut wrote = false;
        for action in actions {
            match action {
                engine::Action::Queueing(Action::UpdateWorkload(u)) => {
                    wrote = true;
                    self.write(*u);
                }
                engine::Action::Queueing(Action::DeactivateWorkload { key, uid }) => {
                    wrote = true;
                    self.deactivate(key, uid);
                }
                engine::Action::Queueing(
                    Action::FailPod { .. }
                    | Action::Record(..)
                    | Action::ClusterQueueStatus(..)
                    | Action::LocalQueueStatus(..)
                    | Action::CohortStatus(..)
                    | Action::RunWindowStatus(..),
                ) => {}
            }
        }
        if !wrote {
            for u in std::mem::take(&mut self.waiting).into_values() {
                wrote = true;
                self.carry_out(&u, Fate::Done);
            }
        }
        self.now = self.now.plus(Duration::from_millis(100));
        wrote
    }

    fn deactivate(&mut self, key: WorkloadKey, uid: String) {
        let answer = match self.next_fate() {
            Fate::Fails => Answer::Failed("no".into()),
            Fate::Done | Fate::DoneButLate | Fate::DoneTwice | Fate::Waits => {
                let current = self.jobs.get(&key).is_some_and(|w| w.uid == uid);
                if current { Answer::Done } else { Answer::Superseded }
            }
        };
        if answer == Answer::Done {
            self.change(&key, false, |w| w.active = false);
        }
        let action = Box::new(Action::DeactivateWorkload { key, uid });
        self.news.push(q(Event::Answered { action, answer }));
    }

    fn write(&mut self, mut u: WorkloadUpdate) {
        match self.waiting.remove(&u.key) {
            Some(earlier) if earlier.uid == u.uid => u.coalesce(earlier),
            Some(earlier) => self.carry_out(&earlier, Fate::Done),
            None => {}
        }
        let fate = self.next_fate();
        if matches!(fate, Fate::Waits) && u.explains() {
            self.waiting.insert(u.key.clone(), u);
        } else {
            self.carry_out(&u, fate);
        }
    }

    fn carry_out(&mut self, u: &WorkloadUpdate, fate: Fate) {
        let (key, id) = (u.key.clone(), u.id);
        let current = self.jobs.get_mut(&u.key).filter(|w| w.uid == u.uid && !matches!(fate, Fate::Fails));
        let Some(w) = current else {
            let failed = |id| q(Event::WriteFailed { key: key.clone(), id, message: "no".into() });
            return self.news.extend(u.ids().map(failed));
        };
        let old = w.status.clone();
        u.apply(&mut w.status);
        self.version += 1;
        w.version = self.version;
        let version = self.version;
        if old.is_true(cond::QUOTA_RESERVED)
            && let (Some(a), Some(b)) = (&old.admission, &w.status.admission)
        {
            let gist = |a: &crate::Admission| {
                let each =
                    a.assignments.iter().map(|p| (p.flavors.clone(), p.resource_usage.clone(), p.count));
                (a.cluster_queue.clone(), each.collect::<Vec<_>>())
            };
            assert_eq!(gist(a), gist(b), "{} reserved twice", u.key);
        }
        let whole = w.status.is_true(cond::QUOTA_RESERVED) || !w.status.is_true(cond::ADMITTED);
        assert!(
            whole && w.status.is_true(cond::QUOTA_RESERVED) == w.status.admission.is_some(),
            "half of {u:?}"
        );
        // An eviction asks the checks anew, and says again what was said before it.
        let stays = w.status.is_true(cond::ADMITTED) && !w.status.is_true(cond::EVICTED);
        if !old.is_true(cond::ADMITTED) && stays {
            let a = w.status.admission.as_ref().expect("admitted with a reservation");
            let queue = self.queues.iter().enumerate().find(|(i, _)| format!("c{i}") == a.cluster_queue);
            let check = queue.and_then(|(_, q)| q.spec.as_ref()?.check.clone());
            let on = |f: &usize| a.assignments[0].flavors.iter().any(|(_, name)| name == FLAVORS[*f]);
            if check.is_some_and(|c| c.is_empty() || c.iter().any(on)) {
                // One that has moved is held against the checks of where it is now.
                let own = w.queue[1..] == a.cluster_queue[1..];
                let mut checks = w.status.admission_checks.iter();
                let ready = checks.any(|c| c.state == CheckState::Ready);
                assert!(!own || ready, "{} admitted unchecked", u.key);
            }
        }
        let written = q(Event::Written { key, id, version });
        let shown = seen(w);
        match fate {
            Fate::DoneButLate => self.late.extend([shown, written]),
            Fate::DoneTwice => self.news.extend([shown.clone(), written, shown]),
            Fate::Done | Fate::Fails | Fate::Waits => self.news.extend([written, shown]),
        }
    }

    /// Jobs of evicted workloads stop: those for which `now` holds.
    pub(super) fn stop(&mut self, mut now: impl FnMut() -> bool) -> bool {
        let evicted = |w: &&Workload| w.status.admission.is_some() && w.status.is_true(cond::EVICTED);
        let all: Vec<WorkloadKey> = self.jobs.values().filter(evicted).map(|w| w.key.clone()).collect();
        let stopped = all.into_iter().filter(|_| now()).map(|key| q(Event::WorkloadStopped(key)));
        let before = self.news.len();
        self.news.extend(stopped);
        self.news.len() > before
    }
}
