//! The thread that owns the engine: events in, actions out, nothing else.
//!
//! It waits until every watch has listed once, because a decision made on half of the state could admit twice. For the
//! same reason it decides nothing while a resource is not served (see [`plimsoll_client::health`]), nor before this process leads.
//! Until then it keeps the state up to date, so that the first decision finds it built.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use plimsoll_client::{Supervisor, fault, supervise};
use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{
    AdmissionAttempts, Forecast, MetricFamily, Page, PendingWorkload, QueueName, Workload, WorkloadPolicy,
};
use plimsoll_scheduler::Profile;
use tokio::sync::oneshot;

use crate::clock;
use crate::flow::{Flow, Left};
use crate::metrics::observe::Observer;

/// Most events taken into one step: with a million nodes, each takes about 25 microseconds, and as long in what follows from it.
const BATCH: usize = 512;
/// Most batches of actions that wait for the executor; the engine waits when there are more.
const BACKLOG: usize = 64;
/// Longest sleep when nothing is due.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What replaces its like in the engine before the next decision.
#[derive(Debug)]
pub enum Reload {
    /// Profiles of placement.
    Profiles(Vec<Profile>),
    /// Rules about workloads.
    Policy(Option<Arc<dyn WorkloadPolicy>>),
}

enum Input {
    Event(Event),
    Synced,
    /// This process leads.
    Lead,
    /// A scrape: queueing's metrics, and placement's.
    Metrics(oneshot::Sender<Families>),
    /// Plugins that replace the present ones, and whom to answer whether they can.
    Reload(Reload, oneshot::Sender<Result<(), String>>),
    /// Workloads that wait in a queue, or when one could start.
    Asked(Asked),
    /// Whether to decide nothing from now on.
    Pause(bool),
    /// No decision waits to be written any more.
    Flows,
    /// A look whether the thread is still going.
    Ping(oneshot::Sender<()>),
    Stop,
}

/// What the engine knows of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfQueue<T> {
    /// Not everything has been listed once, or this process queues nothing.
    Unknown,
    /// There is no such queue.
    NotFound,
    /// This.
    Known(T),
}

impl<T> OfQueue<T> {
    fn of(answer: Option<Option<T>>) -> Self {
        match answer {
            None => Self::Unknown,
            Some(None) => Self::NotFound,
            Some(Some(known)) => Self::Known(known),
        }
    }
}

/// A question about a queue.
enum Asked {
    Pending(QueueName, Page, oneshot::Sender<OfQueue<Vec<PendingWorkload>>>),
    Forecast(Box<Workload>, oneshot::Sender<OfQueue<Forecast>>),
    Reserving(BTreeSet<String>, oneshot::Sender<bool>),
}

/// Metrics of queueing, and of placement.
type Families = (Vec<MetricFamily>, Vec<MetricFamily>);

/// The way into the engine; cheap to clone.
#[derive(Clone)]
pub struct Inbox {
    tx: Sender<Input>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl Inbox {
    /// Gives the engine an event. After a stop it is dropped.
    pub fn send(&self, event: Event) {
        let _ = self.tx.send(Input::Event(event));
    }

    /// Reports that one of the expected lists is complete.
    pub fn synced(&self) {
        let _ = self.tx.send(Input::Synced);
    }

    /// Reports that this process leads, and that its watches have shown every write of the leader before it.
    pub fn lead(&self) {
        let _ = self.tx.send(Input::Lead);
    }

    /// Asks for all metrics. The answer comes between two steps, or never when the engine has ended.
    pub fn metrics(&self) -> oneshot::Receiver<Families> {
        let (tx, rx) = oneshot::channel();
        let _ = self.tx.send(Input::Metrics(tx));
        rx
    }

    /// Replaces plugins before the next decision. The answer says why they can't be replaced; it never comes when the engine
    /// has ended.
    pub fn reload(&self, reload: Reload) -> oneshot::Receiver<Result<(), String>> {
        let (tx, rx) = oneshot::channel();
        let _ = self.tx.send(Input::Reload(reload, tx));
        rx
    }

    /// Asks which workloads wait in a queue. The answer has all events in it that were sent before; it never comes when the
    /// engine has ended.
    pub fn pending(&self, queue: QueueName, page: Page) -> oneshot::Receiver<OfQueue<Vec<PendingWorkload>>> {
        let (to, rx) = oneshot::channel();
        let _ = self.tx.send(Input::Asked(Asked::Pending(queue, page, to)));
        rx
    }

    /// Asks when a workload could have its quota. As [`Inbox::pending`].
    pub fn forecast(&self, workload: Workload) -> oneshot::Receiver<OfQueue<Forecast>> {
        let (to, rx) = oneshot::channel();
        let _ = self.tx.send(Input::Asked(Asked::Forecast(Box::new(workload), to)));
        rx
    }

    /// Asks whether a write that reserves quota in one of these ClusterQueues has no answer yet. As [`Inbox::pending`].
    pub fn reserving(&self, cluster_queues: BTreeSet<String>) -> oneshot::Receiver<bool> {
        let (to, rx) = oneshot::channel();
        let _ = self.tx.send(Input::Asked(Asked::Reserving(cluster_queues, to)));
        rx
    }

    /// Pauses the engine's decisions, or resumes them.
    pub fn pause(&self, pause: bool) {
        let _ = self.tx.send(Input::Pause(pause));
    }

    /// Says that the engine need not be held any longer.
    pub fn flows(&self) {
        let _ = self.tx.send(Input::Flows);
    }

    /// The answer comes between two steps, or never when the engine has ended.
    pub fn ping(&self) -> oneshot::Receiver<()> {
        let (tx, rx) = oneshot::channel();
        let _ = self.tx.send(Input::Ping(tx));
        rx
    }

    /// Ends the thread.
    pub fn stop(&self) {
        let _ = self.tx.send(Input::Stop);
    }
}

/// What the thread gives out.
#[derive(Debug)]
pub struct Driver {
    /// The way in.
    pub inbox: Inbox,
    /// Batches of actions.
    pub actions: tokio::sync::mpsc::Receiver<Vec<Action>>,
    /// What becomes of the decisions in them.
    pub flow: Flow,
    /// The thread.
    pub thread: std::thread::JoinHandle<()>,
}

/// Starts the thread. It decides nothing before `lists` calls of [`Inbox::synced`] and one of [`Inbox::lead`]. Its panic
/// ends the process: what it knew can't be rebuilt in the midst of its decisions.
///
/// # Errors
/// When the system gives no thread.
pub fn start(config: EngineConfig, lists: usize, supervisor: &Supervisor) -> std::io::Result<Driver> {
    let (tx, rx) = channel();
    let (out, actions) = tokio::sync::mpsc::channel(BACKLOG);
    let flow = Flow::default();
    let thread = supervisor.spawn_thread("engine", {
        let flow = flow.clone();
        move || run(config, lists, &rx, (&out, &flow))
    })?;
    Ok(Driver { inbox: Inbox { tx }, actions, flow, thread })
}

fn run(
    config: EngineConfig,
    lists: usize,
    rx: &Receiver<Input>,
    (out, flow): (&tokio::sync::mpsc::Sender<Vec<Action>>, &Flow),
) {
    let profiles =
        config.scheduler.iter().flat_map(|p| &p.profiles).map(|p| p.scheduler_name.clone()).collect();
    let mut observer = Observer::new(profiles);
    let mut engine = Engine::new(config);
    let mut gathered =
        Gathered { events: Vec::new(), asked: Vec::new(), waiting: lists, leads: false, paused: false };
    loop {
        while !gathered.may_decide() {
            match rx.recv() {
                Ok(Input::Stop) | Err(_) => return,
                Ok(input) => drop(gathered.take(input, &engine, &observer)),
            }
            if gathered.drain(rx, &engine, &observer).is_break() {
                return;
            }
            let now = clock::now();
            observer.events(&gathered.events, now);
            engine.observe(now, &mut gathered.events);
            gathered.answer(&mut engine);
        }
        let mut actions = Vec::new();
        let now = clock::now();
        observer.events(&gathered.events, now);
        fault::point("engine", "");
        let before = attempts(&engine);
        let held = flow.hold();
        engine.hold_admissions(held);
        engine.hold_explanations(flow.has_many_explanations());
        let began = Instant::now();
        engine.step(now, &mut gathered.events, &mut actions);
        let took = began.elapsed();
        observer.step(&actions, took);
        gathered.answer(&mut engine);
        let after = attempts(&engine);
        let ran = [after.success - before.success, after.inadmissible - before.inadmissible];
        observer.cycles(ran, took);
        if !actions.is_empty() {
            if Flow::counts(&actions) {
                flow.send();
            }
            if out.blocking_send(actions).is_err() {
                return;
            }
        }
        let sleep = match engine.next_wake() {
            Some(at) => {
                let left = at.since(clock::now()).0;
                Duration::from_nanos(u64::try_from(left).unwrap_or(0)).min(clock::SLICE)
            }
            None => LONGEST_SLEEP,
        };
        match rx.recv_timeout(sleep) {
            Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(input) => {
                if gathered.take(input, &engine, &observer) {
                    // One that comes alone does not wait.
                    let left = match sleep.is_zero() {
                        true => Left::Something,
                        false if held => Left::Held,
                        false => Left::Nothing,
                    };
                    std::thread::sleep(flow.gather(took, left).saturating_sub(began.elapsed()));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if gathered.drain(rx, &engine, &observer).is_break() {
            return;
        }
    }
}

/// What has come since the last step.
struct Gathered {
    events: Vec<Event>,
    /// Questions about the state after these events.
    asked: Vec<Asked>,
    /// Lists that are not complete.
    waiting: usize,
    leads: bool,
    paused: bool,
}

impl Gathered {
    /// Whether everything was seen once and is served, and this process leads.
    const fn may_decide(&self) -> bool {
        self.waiting == 0 && self.leads && !self.paused
    }

    /// Answers what was asked, after the events that came before.
    fn answer(&mut self, engine: &mut Engine) {
        let known = self.waiting == 0;
        for asked in self.asked.drain(..) {
            // The caller may have given up.
            match asked {
                Asked::Pending(queue, page, to) => {
                    let queueing = engine.queueing().filter(|_| known);
                    drop(to.send(OfQueue::of(queueing.map(|q| q.pending_workloads(&queue, page)))));
                }
                Asked::Forecast(workload, to) => {
                    let known = known && engine.queueing().is_some();
                    let forecast = known.then(|| engine.forecast(clock::now(), *workload));
                    drop(to.send(OfQueue::of(forecast)));
                }
                Asked::Reserving(queues, to) => {
                    let reserves = engine.queueing().is_some_and(|q| q.is_reserving_in(&queues));
                    let _ = to.send(reserves);
                }
            }
        }
    }

    /// Takes in what is there, up to a batch of events; breaks off at a stop.
    fn drain(&mut self, rx: &Receiver<Input>, engine: &Engine, observer: &Observer) -> ControlFlow<()> {
        while self.events.len() < BATCH {
            match rx.try_recv() {
                Ok(Input::Stop) => return ControlFlow::Break(()),
                Ok(input) => drop(self.take(input, engine, observer)),
                Err(_) => break,
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes in anything but a stop; whether it was an event.
    fn take(&mut self, input: Input, engine: &Engine, observer: &Observer) -> bool {
        match input {
            Input::Event(e) => {
                self.events.push(e);
                return true;
            }
            Input::Synced => self.waiting = self.waiting.saturating_sub(1),
            Input::Lead => self.leads = true,
            Input::Metrics(to) => answer(to, engine, observer),
            Input::Reload(reload, to) => {
                let answer = reload_event(reload, engine).map(|event| self.events.push(event));
                let reloads = answer.is_ok();
                // The caller may have given up.
                drop(to.send(answer));
                return reloads;
            }
            Input::Asked(asked) => self.asked.push(asked),
            Input::Pause(pause) => self.paused = pause,
            // The next step asks.
            Input::Flows => {}
            // The caller may have given up.
            Input::Ping(to) => drop(to.send(())),
            Input::Stop => {}
        }
        false
    }
}

/// Cycles of queueing until now.
fn attempts(engine: &Engine) -> AdmissionAttempts {
    engine.queueing().map(plimsoll_queueing::Queueing::attempts).unwrap_or_default()
}

fn answer(to: oneshot::Sender<Families>, engine: &Engine, observer: &Observer) {
    let queueing = engine.queueing().map(|q| {
        let mut families = q.metrics();
        families.extend(observer.queueing_families());
        families
    });
    let queueing = queueing.unwrap_or_default();
    let place = engine.scheduler().map(|p| {
        let mut families = crate::metrics::reserved::families(p, engine.queueing());
        families.extend(crate::metrics::plugins::families(p, observer));
        families.extend(crate::metrics::queue::families(p));
        families.extend(observer.families(p.queue_counts()));
        families.sort_by_key(|f| f.name);
        families
    });
    let place = place.unwrap_or_default();
    // The caller may have given up.
    let _ = to.send((queueing, place));
}

/// What tells the engine of a reload.
///
/// # Errors
/// Why the plugins can't be replaced.
fn reload_event(reload: Reload, engine: &Engine) -> Result<Event, String> {
    match (reload, engine.scheduler(), engine.queueing()) {
        (Reload::Profiles(profiles), Some(scheduler), _) => {
            // The plugins are made for this, and nothing of the engine changes.
            let problem = catch_unwind(AssertUnwindSafe(|| scheduler.reload_problem(&profiles)));
            match problem {
                Ok(None) => Ok(Event::Scheduler(plimsoll_scheduler::Event::Reload(profiles))),
                Ok(Some(why)) => Err(why),
                Err(panic) => Err(format!("making the plugins panicked: {}", supervise::message(&*panic))),
            }
        }
        (Reload::Policy(policy), _, Some(_)) => {
            Ok(Event::Queueing(plimsoll_queueing::Event::PolicyReplaced(policy)))
        }
        (Reload::Profiles(_), None, _) => Err("this process places no pods".to_owned()),
        (Reload::Policy(_), _, None) => Err("this process queues no workloads".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_scheduler::args::Args;
    use plimsoll_scheduler::framework::{Handle, Plugin};
    use plimsoll_scheduler::{
        ExtensionPoint, FeatureGates, PluginRef, PluginSet, Registration, Registry, UserPlugins,
    };

    use super::*;

    #[test]
    fn plugins_whose_making_panics_are_refused() {
        let (mut registry, mut user) = (Registry::in_tree(), UserPlugins::default());
        let make = |_: &Args, _: &mut Handle<'_>| -> Box<dyn Plugin> { panic!("a bug") };
        registry.register(Registration::new("Gate", &[ExtensionPoint::Filter], make)).expect("a new name");
        user.multi_point.enabled.push(PluginRef { name: "Gate".to_owned(), weight: 0 });
        let plugins = PluginSet::new(&registry, &user, &FeatureGates::default()).expect("a known plugin");
        let profiles = vec![Profile { plugins, ..Profile::default() }];
        let scheduler = Some(plimsoll_scheduler::Config::default());
        let engine = Engine::new(EngineConfig { scheduler, queueing: None, joint: false });
        let refused = reload_event(Reload::Profiles(profiles), &engine).err();
        assert_eq!(refused.as_deref(), Some("making the plugins panicked: a bug"));
    }
}
