//! A shape played against the engine in virtual time: an API server that never fails, jobs that run as long as
//! they said, and a clock around every step.

use plimsoll_state::ObjectEvent;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration as Real, Instant};

use indicatif::ProgressBar;
use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{Condition, Workload, WorkloadUpdate, cond};
use plimsoll_state::model::Node;
use plimsoll_state::time::{Duration, Time};

use super::server::{Price, Server, Written};
use super::shape::{Job, Shape};

/// Virtual time at which everything begins.
const START: Time = Time::from_seconds(1_700_000_000);
/// Most events in a step, as in the runtime.
const BATCH: usize = 4096;
/// A run that takes longer than this in virtual time has failed.
const LONGEST: Duration = Duration::from_seconds(24 * 3600);

/// How long it took, in virtual time unless said otherwise.
#[derive(Debug, Default)]
pub struct Outcome {
    /// From the first creation to the end of the last workload, in seconds.
    pub makespan: f64,
    /// Share of the nominal quota that ran, over time.
    pub usage: f64,
    /// Seconds from creation to the last admission, per class, sorted.
    pub waits: Vec<Vec<f64>>,
    /// Admissions, more than workloads when some were evicted.
    pub admissions: usize,
    /// Evictions.
    pub evictions: usize,
    /// Writes by kind.
    pub writes: Written,
    /// Events that waited for too long.
    pub dropped: usize,
    /// Steps of the engine.
    pub steps: usize,
    /// Real time spent in the engine.
    pub engine: Real,
    /// The longest step in real time.
    pub longest: Real,
    /// CPU time of the process, generator and all, where the system tells (Linux).
    pub process: Option<Real>,
}

/// Something that happens at a time.
enum Due {
    /// Ends, if it was not admitted again since.
    Finish(usize, u32),
}

struct Slot {
    class: usize,
    at: Time,
    workload: Workload,
    /// How often it was admitted.
    round: u32,
    running: bool,
}

/// A run.
pub struct Harness<'a> {
    shape: &'a Shape,
    engine: Engine,
    slots: Vec<Slot>,
    by_key: BTreeMap<plimsoll_queueing::WorkloadKey, usize>,
    now: Time,
    due: BTreeMap<(Time, u64), Due>,
    number: u64,
    version: u64,
    server: Server,
    /// Millicores running, since when, and milli-core-nanoseconds so far.
    running: (i64, Time, f64),
    left: usize,
    outcome: Outcome,
}

impl<'a> Harness<'a> {
    /// A harness before its first creation.
    pub fn new(shape: &'a Shape, price: Price) -> Self {
        let queueing = Some(plimsoll_queueing::Config::usual());
        let config = EngineConfig { scheduler: None, queueing, joint: false };
        Self {
            shape,
            engine: Engine::new(config),
            slots: Vec::new(),
            by_key: BTreeMap::new(),
            now: START,
            due: BTreeMap::new(),
            number: 0,
            version: 1,
            server: Server::new(price, START),
            running: (0, START, 0.0),
            left: shape.workloads(),
            outcome: Outcome { waits: vec![Vec::new(); shape.classes.len()], ..Outcome::default() },
        }
    }

    /// Plays to the end.
    pub fn run(mut self, progress: &ProgressBar) -> anyhow::Result<Outcome> {
        let (events, nodes) = self.shape.setup();
        let mut batch: Vec<Event> = events.into_iter().map(Event::Queueing).collect();
        batch.extend(nodes.into_iter().map(|n: Node| Event::Object(ObjectEvent::NodeUpsert(Box::new(n)))));
        self.step(&mut batch);
        // What was only set up does not count.
        (self.outcome.engine, self.outcome.longest, self.outcome.steps) = (Real::ZERO, Real::ZERO, 0);
        let before = process_time();
        let mut jobs: VecDeque<Job> = self.shape.jobs(START).into();
        while self.left > 0 {
            let next = [
                jobs.front().map(|j| j.at),
                self.due.first_key_value().map(|(k, _)| k.0),
                self.server.next(),
                self.engine.next_wake(),
            ];
            let Some(next) = next.into_iter().flatten().min() else {
                anyhow::bail!("{} workloads can't run", self.left);
            };
            self.now = self.now.max(next);
            let endless = self.outcome.steps > 100_000 + 200 * self.shape.workloads();
            anyhow::ensure!(self.now.since(START) < LONGEST && !endless, "{} workloads never end", self.left);
            let mut batch = Vec::new();
            while jobs.front().is_some_and(|j| j.at <= self.now) {
                if let Some(job) = jobs.pop_front() {
                    self.create(job, &mut batch);
                }
            }
            while let Some(entry) = self.due.first_entry().filter(|e| e.key().0 <= self.now) {
                match entry.remove() {
                    Due::Finish(slot, round) => self.finish(slot, round, &mut batch),
                }
            }
            while let Some((_, update)) = self.server.write(self.now) {
                if let Some(update) = update {
                    self.write(&update, &mut batch);
                }
            }
            while batch.len() > BATCH {
                let rest = batch.split_off(BATCH);
                self.step(&mut batch);
                batch = rest;
            }
            self.step(&mut batch);
            progress.set_position((self.slots.len() - self.left.min(self.slots.len())) as u64);
        }
        let end = self.now.since(START).0 as f64 / 1e9;
        self.account();
        let quota = (self.shape.nominal_cpu * 1000) as f64 * self.shape.queues() as f64;
        self.outcome.process = process_time().zip(before).map(|(a, b)| a.saturating_sub(b));
        self.server.finish(self.now);
        (self.outcome.writes, self.outcome.dropped) = (self.server.written, self.server.dropped);
        self.outcome.makespan = end;
        self.outcome.usage = self.running.2 / 1e9 / (quota * end.max(1e-9));
        self.outcome.waits.iter_mut().for_each(|w| w.sort_by(f64::total_cmp));
        Ok(self.outcome)
    }

    /// One step of the engine, and what it asks for.
    fn step(&mut self, batch: &mut Vec<Event>) {
        let mut actions = Vec::new();
        // As the runtime's driver.
        self.engine.hold_admissions(self.server.has_decision());
        let began = Instant::now();
        self.engine.step(self.now, batch, &mut actions);
        let took = began.elapsed();
        self.outcome.engine += took;
        self.outcome.longest = self.outcome.longest.max(took);
        self.outcome.steps += 1;
        for action in actions {
            match action {
                Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(_)) => self.server.push(action),
                Action::Queueing(plimsoll_queueing::Action::Record(event)) => {
                    self.server.events(&event.key, 1, self.now);
                }
                Action::Queueing(plimsoll_queueing::Action::ClusterQueueStatus(name, _)) => {
                    self.server.status(name, self.now);
                }
                Action::Queueing(plimsoll_queueing::Action::LocalQueueStatus(namespace, name, _)) => {
                    self.server.status(format!("{namespace}/{name}"), self.now);
                }
                // Nothing of this happens here.
                Action::Queueing(_) | Action::Scheduler(_) => {}
            }
        }
    }

    fn schedule(&mut self, at: Time, what: Due) {
        self.number += 1;
        self.due.insert((at, self.number), what);
    }

    fn create(&mut self, job: Job, batch: &mut Vec<Event>) {
        self.by_key.insert(job.workload.key.clone(), self.slots.len());
        batch.push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(job.workload.clone()))));
        let slot = Slot { class: job.class, at: job.at, workload: job.workload, round: 0, running: false };
        self.slots.push(slot);
    }

    fn account(&mut self) {
        let (cpu, since, sum) = self.running;
        self.running = (cpu, self.now, sum + cpu as f64 * self.now.since(since).0 as f64);
    }

    fn start_or_stop(&mut self, slot: usize, run: bool) {
        if self.slots[slot].running == run {
            return;
        }
        self.server.job();
        self.ran(slot, run);
    }

    /// A job begins or ends to run.
    fn ran(&mut self, slot: usize, run: bool) {
        self.slots[slot].running = run;
        self.account();
        let class = &self.shape.classes[self.slots[slot].class];
        let cpu = class.cpu_milli * i64::from(class.pods);
        self.running.0 += if run { cpu } else { -cpu };
    }

    /// A write got through: the object changes, and what runs starts or stops.
    fn write(&mut self, update: &WorkloadUpdate, batch: &mut Vec<Event>) {
        let Some(&i) = self.by_key.get(&update.key) else { return };
        self.server.events(&update.key, update.events.len(), self.now);
        self.version += 1;
        let slot = &mut self.slots[i];
        update.apply(&mut slot.workload.status);
        slot.workload.version = self.version;
        let key = update.key.clone();
        batch.push(Event::Queueing(plimsoll_queueing::Event::Written {
            key,
            id: update.id,
            version: self.version,
        }));
        batch
            .push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(slot.workload.clone()))));
        let s = &slot.workload.status;
        let (admitted, evicted) = (s.is_true(cond::ADMITTED), s.is_true(cond::EVICTED));
        if s.is_true(cond::FINISHED) {
            return;
        }
        if admitted && evicted && slot.running {
            slot.round += 1;
            self.outcome.evictions += 1;
            self.start_or_stop(i, false);
            batch.push(Event::Queueing(plimsoll_queueing::Event::WorkloadStopped(update.key.clone())));
        } else if admitted && !evicted && !slot.running {
            slot.round += 1;
            let (class, round, created) = (slot.class, slot.round, slot.at);
            self.outcome.admissions += 1;
            self.outcome.waits[class].push(self.now.since(created).0 as f64 / 1e9);
            self.start_or_stop(i, true);
            let end = self.now.plus(Duration::from_millis(self.shape.classes[class].run_ms));
            self.schedule(end, Due::Finish(i, round));
        }
    }

    fn finish(&mut self, i: usize, round: u32, batch: &mut Vec<Event>) {
        if self.slots[i].round != round {
            return;
        }
        self.ran(i, false);
        self.server.ended(self.slots[i].workload.key.clone());
        self.left -= 1;
        self.version += 1;
        let slot = &mut self.slots[i];
        slot.workload.version = self.version;
        slot.workload.status.conditions.push(Condition {
            kind: cond::FINISHED.into(),
            status: true,
            reason: "ByTest".into(),
            transition: self.now.truncate_to_second(),
            ..Condition::default()
        });
        batch
            .push(Event::Queueing(plimsoll_queueing::Event::WorkloadUpsert(Box::new(slot.workload.clone()))));
    }
}

/// CPU time of this process so far, to hundredths of a second.
fn process_time() -> Option<Real> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may have spaces; user and system time are the 14th and 15th field.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Real::from_millis(ticks * 10))
}
