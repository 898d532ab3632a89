//! The world: one virtual time for the API, the network, the process under test and all other clients, and the checkers
//! that look after every step.
//!
//! A *step* is one thing that happens: a watch event or a list that is delivered, a request that reaches the API
//! server, an answer that reaches its client, a timer that is due (the engine's, a pause's, a job's end), or an operation
//! of the scenario. What was overtaken and does nothing is not counted.

use std::collections::BTreeMap;

use plimsoll_queueing::WorkloadKey;
use plimsoll_state::{Duration, Time};
use serde_json::Value;

use crate::agenda::Event;
use crate::api::{Kind, list, name_of, text};
use crate::check::explanations::Settled;
use crate::check::quota::Column;
use crate::check::{Checkers, Rule, Violation};
use crate::cluster::Cluster;
use crate::dice::{Dice, Draw};
use crate::measure::Measure;
use crate::network::Network;
pub use crate::outcome::Outcome;
use crate::process::{Known, Process};
use crate::scenario::{Ending, Faults, Operation, Scenario};
use crate::users::{START, Users};

/// Steps of the longest run.
const LONGEST: u64 = 400_000;
/// The same where all that gangs do is measured.
const LONGEST_MEASURED: u64 = 10_000_000;
/// What a run may take after the calm, besides the time of all its jobs one after the other.
const BOUND: Duration = Duration::from_seconds(1_200);
/// How often users look at what they have.
const LOOK: Duration = Duration::from_seconds(1);
/// How long everything has to be quiet at the end.
const QUIET: Duration = Duration::from_seconds(30);

/// How long a process that is asked to stop waits for its writes (the runtime's `execute::GRACE`).
const GRACE: Duration = Duration::from_seconds(1);
/// How long after its last renewal a leader writes (`renewDeadline`).
const RENEW: Duration = Duration::from_seconds(10);
/// Milliseconds after the last renewal in which no other replica takes the Lease (`leaseDuration`).
const EXPIRES: i64 = 15_000;
/// Milliseconds between two looks at the Lease (`retryPeriod`).
const RETRY: i64 = 2_000;
/// How long a watch of a replica that takes over may be behind, with a write decided then on its way.
const STALE: Duration = Duration::from_seconds(20);

/// A world.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    network: Network,
    process: Process,
    /// The replica that follows it.
    standby: Option<Process>,
    users: Users,
    cluster: Cluster,
    checkers: Checkers,
    /// What gangs get of the nodes, where they are gangs.
    measured: Option<Measure>,
    /// Changes of each kind that were looked at.
    seen: BTreeMap<Kind, usize>,
    /// Quotas as the process knew them in its former lives.
    past: BTreeMap<u32, Known>,
    /// When the Lease of the process before the present one is free.
    vacant: Time,
    steps: u64,
    calm: Option<Time>,
    /// Since when nothing has been left to do.
    quiet: Option<Time>,
    /// When objects have changed last, for what they say of why something waits.
    settled: Settled,
    /// Whether the books were compared since the last change: the leader's, the follower's.
    compared: [bool; 2],
    /// What happened, when that is wanted.
    trace: Option<Vec<String>>,
}

impl World {
    /// A world before its first step.
    pub fn new(scenario: Scenario, trace: bool) -> Self {
        let network = Network::new(scenario.seed, scenario.faults, START);
        let process = Process::new(0, 0, scenario.settings);
        let standby = scenario.settings.standby.then(|| Process::standby(1, 1, scenario.settings));
        let users = Users::new(scenario.seed, scenario.settings, scenario.plan.clone());
        let (cluster, gangs) = (Cluster::new(scenario.seed, &scenario.settings), scenario.settings.gangs);
        let checkers = Checkers::new(&scenario, START);
        let mut world = Self {
            scenario,
            network,
            process,
            standby,
            users,
            cluster,
            checkers,
            measured: gangs.then(Measure::default),
            seen: BTreeMap::new(),
            past: BTreeMap::new(),
            vacant: START,
            steps: 0,
            calm: None,
            quiet: None,
            settled: Settled::default(),
            compared: [false; 2],
            trace: trace.then(Vec::new),
        };
        world.users.restore(&mut world.network);
        let at = |ms: i64| START.plus(Duration::from_millis(ms));
        for (i, timed) in world.scenario.operations.iter().enumerate() {
            world.network.agenda.at(at(timed.at), Event::Operation(i));
        }
        world.network.agenda.at(at(world.scenario.calm), Event::Calm);
        world.network.agenda.at(START, Event::Start(0));
        if world.standby.is_some() {
            world.start_standby(1);
        }
        world
    }

    /// Runs to the end.
    pub fn run(&mut self) -> Outcome {
        let violation = loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(violation) => break Some(violation),
            }
        };
        let outcome = self.outcome();
        let violation = violation.or_else(|| outcome.beyond(&self.scenario.bounds));
        Outcome { violation, ..outcome }
    }

    /// How the run stands.
    pub fn outcome(&self) -> Outcome {
        let waited_for_nodes = self.checkers.waited_for_nodes().clone();
        Outcome {
            steps: self.steps,
            took: self.network.now().since(START),
            violation: None,
            digest: self.digest(),
            waited_for_nodes,
            unschedulable: self.checkers.unschedulable(),
            preemptions: self.checkers.preemptions(self.network.now()),
            migrations: self.checkers.migrations(),
            explanations: self.checkers.explanations(),
            measured: self.measured.clone(),
        }
    }

    /// What happened so far, with trace.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The next step; whether there may be more.
    fn step(&mut self) -> Result<bool, Violation> {
        let Some(event) = self.network.agenda.pop() else { return Ok(false) };
        let shown = match &event {
            Event::Arrive(number) | Event::Answer(number) if self.trace.is_some() => {
                self.network.describe(*number)
            }
            _ => String::new(),
        };
        let (decided, counted) = self.happen(&event);
        if counted {
            self.steps += 1;
            if self.scenario.crash_after == Some(self.steps) {
                self.leave(self.scenario.ending);
            }
            if let Some(trace) = &mut self.trace {
                trace.push(format!("{:>9} {event:?}{shown}", self.network.now().since(START).0 / 1_000));
            }
        }
        self.look(decided)?;
        if self.process.stopping && !self.process.writes() {
            self.end(Ending::HandOver);
        }
        let longest = if self.measured.is_some() { LONGEST_MEASURED } else { LONGEST };
        if self.steps > longest {
            return Err(Violation::new(Rule::Endless, format!("{} steps", self.steps)));
        }
        if counted && self.process.is_idle(&self.network) {
            self.compare()?;
            return self.rest();
        }
        self.quiet = None;
        self.late()?;
        Ok(true)
    }

    /// Lets something happen; what was decided before it, and whether it was anything.
    fn happen(&mut self, event: &Event) -> (Option<(u32, u64)>, bool) {
        if let Some(life) = event.life() {
            return (None, self.live(life, event));
        }
        let Self { network, process, users, cluster, .. } = self;
        match event {
            Event::Operation(i) => {
                match self.scenario.operations.get(*i).map(|t| t.operation.clone()) {
                    Some(Operation::Crash) => self.leave(Ending::Crash),
                    Some(Operation::HandOver) => self.leave(Ending::HandOver),
                    Some(Operation::LoseLease) => self.leave(Ending::LoseLease),
                    Some(Operation::Faults { faults }) => network.faults = faults,
                    Some(operation) => users.apply(&operation, network),
                    None => {}
                }
                return (None, true);
            }
            Event::Calm => {
                network.faults = Faults::default();
                users.restore(network);
                self.calm = Some(network.now());
                self.checkers.calm(network.now());
                network.agenda.after(LOOK, Event::Users);
            }
            Event::Arrive(number) => return (network.arrive(*number), true),
            Event::Answer(number) => {
                let answer = network.answer(*number, process.life);
                let Some((call, answer)) = answer else { return (None, false) };
                process.answer(call, answer, network);
            }
            Event::Job(name) => cluster.sync_job(name, network),
            Event::Kubelet(name) => cluster.look_at_pod(name, network),
            Event::Node(name) => cluster.look_at_node(name, network),
            Event::Kubelets => return (None, cluster.step_kubelets(network)),
            Event::Check(_) | Event::Shrink(_) | Event::Provide(_) => users.respond(event, network),
            Event::Finish(name, round) => users.finish(name, *round, network),
            Event::Collect => cluster.collect(network),
            Event::Claims => cluster.sync_claims(network),
            Event::Users => {
                users.look(network);
                network.agenda.after(LOOK, Event::Users);
            }
            Event::Start(_)
            | Event::End(..)
            | Event::Hold(_)
            | Event::TakeOver(_)
            | Event::List(..)
            | Event::Watch(..)
            | Event::Engine(_)
            | Event::Resume(..)
            | Event::Reconcile(_)
            | Event::Requeue(..)
            | Event::Status(..)
            | Event::Stopped(..) => return (None, false),
        }
        (None, true)
    }

    /// Lets something happen to a process, if it still lives; whether it was anything.
    fn live(&mut self, life: u32, event: &Event) -> bool {
        if let Event::End(_, ending) = event {
            let lives = life == self.process.life;
            if lives {
                self.end(*ending);
            }
            return lives;
        }
        let Self { network, process, standby, .. } = self;
        let mut replicas = std::iter::once(process).chain(standby);
        let Some(process) = replicas.find(|p| p.life == life) else { return false };
        match event {
            Event::Start(_) => process.start(network),
            Event::Hold(_) => process.hold(network),
            Event::TakeOver(_) => process.take_over(network),
            Event::List(_, kind) => process.list(*kind, network),
            Event::Watch(_, kind) => process.watch(*kind, network),
            Event::Resume(_, number) => process.resume(*number, network),
            Event::Engine(_) => return process.step(network),
            Event::Reconcile(_) => return process.reconcile(network),
            Event::Requeue(_, key) => process.requeue(key.clone(), network),
            Event::Status(_, key) => process.write_status(key.clone(), network),
            Event::Stopped(_, name) => process.stopped(name, network),
            Event::Operation(_)
            | Event::Calm
            | Event::End(..)
            | Event::Arrive(_)
            | Event::Answer(_)
            | Event::Job(_)
            | Event::Collect
            | Event::Claims
            | Event::Kubelet(_)
            | Event::Node(_)
            | Event::Kubelets
            | Event::Check(_)
            | Event::Shrink(_)
            | Event::Provide(_)
            | Event::Finish(..)
            | Event::Users => return false,
        }
        true
    }

    /// The process begins to end.
    fn leave(&mut self, ending: Ending) {
        let life = self.process.life;
        match ending {
            Ending::Crash => self.end(ending),
            Ending::HandOver => {
                self.process.stop(&mut self.network);
                self.network.agenda.after(GRACE, Event::End(life, ending));
            }
            Ending::LoseLease => self.network.agenda.after(RENEW, Event::End(life, ending)),
        }
    }

    /// The process ends. When the next one starts depends on its Lease (`plimsoll-runtime`'s `lease`); after a crash that
    /// is when nothing of this one is on its way to the server any more.
    fn end(&mut self, ending: Ending) {
        let old = self.process.life;
        let mut rng = Dice::new(self.scenario.seed).about("crash").of(u64::from(old)).rng();
        let (least, most) = match ending {
            Ending::Crash => {
                let last = self.network.forget(old);
                let left = last.map_or(Duration::ZERO, |at| at.since(self.network.now())).0 / 1_000_000;
                (left + 1, left + 3_000)
            }
            // A Lease is released when all writes were answered; otherwise it expires.
            Ending::HandOver if self.process.writes() => (EXPIRES - 2 * RETRY, EXPIRES + RETRY),
            Ending::HandOver => (1, RETRY),
            Ending::LoseLease => {
                let left = EXPIRES - RENEW.0 / 1_000_000;
                (left, left + RETRY)
            }
        };
        if ending != Ending::Crash {
            self.network.cut(|caller| caller.life == old);
        }
        let pause = Duration::from_millis(rng.range(least, most));
        // One that has not led yet ends without a Lease.
        self.vacant = self.vacant.max(self.network.now().plus(pause));
        let (replica, settings) = (self.process.replica, self.scenario.settings);
        let next = if let Some(standby) = self.standby.take() {
            let life = standby.life + 1;
            self.standby = Some(Process::standby(life, replica, settings));
            self.start_standby(life);
            self.network.agenda.at(self.vacant, Event::Hold(standby.life));
            standby
        } else {
            self.network.agenda.at(self.vacant, Event::Start(old + 1));
            Process::new(old + 1, replica, settings)
        };
        self.past.insert(old, std::mem::replace(&mut self.process, next).known);
    }

    /// The replica that follows starts soon.
    fn start_standby(&mut self, life: u32) {
        let mut rng = Dice::new(self.scenario.seed).about("standby").of(u64::from(life)).rng();
        self.network.agenda.after(Duration::from_millis(rng.range(1, 10_000)), Event::Start(life));
    }

    /// Shows all parts what has changed, checkers first.
    fn look(&mut self, decided: Option<(u32, u64)>) -> Result<(), Violation> {
        for kind in Kind::ALL {
            loop {
                let seen = self.seen.entry(kind).or_insert(0);
                let Some(change) = self.network.api.log(kind).get(*seen).cloned() else { break };
                *seen += 1;
                self.compared = [false; 2];
                let known = decided.filter(|_| kind != Kind::Pod || !self.fills_nodes_blindly()).map(
                    |(life, serial)| {
                        let own = life == self.process.life;
                        let known = if own { Some(&self.process.known) } else { self.past.get(&life) };
                        known.map_or(&[][..], |known| known.since(serial))
                    },
                );
                self.checkers.changed(kind, &change, known, self.network.now())?;
                if let Some(measured) = &mut self.measured {
                    measured.changed(kind, &change, self.network.now());
                }
                let runs = self.checkers.held(&name_of(&change.object)).is_some_and(crate::check::Held::runs);
                self.users.changed(kind, &change, runs, &mut self.network);
                self.cluster.changed(kind, &change, &mut self.network);
                self.process.changed(kind, &mut self.network);
                if let Some(standby) = &mut self.standby {
                    standby.changed(kind, &mut self.network);
                }
            }
        }
        Ok(())
    }

    /// Whether the process may not have seen yet which pods were bound by the leader before it: kubelets refuse what their
    /// nodes have no room for, and kube-scheduler relies on that as well.
    fn fills_nodes_blindly(&self) -> bool {
        self.process.led_since().is_some_and(|at| self.network.now().since(at) < STALE)
    }

    /// The engine's books say what the objects say, once it has seen all of them.
    fn compare(&mut self) -> Result<(), Violation> {
        if !std::mem::replace(&mut self.compared[0], true) {
            self.compare_books(&self.process)?;
        }
        if let Some(standby) =
            self.standby.as_ref().filter(|s| !self.compared[1] && s.has_caught_up(&self.network))
        {
            self.compare_books(standby)?;
            self.compared[1] = true;
        }
        Ok(())
    }

    fn compare_books(&self, process: &Process) -> Result<(), Violation> {
        let (books, objects) = (process.books(), self.checkers.books());
        for key in books.keys().chain(objects.keys()) {
            let have = books.get(key).copied().unwrap_or_default();
            let want = objects.get(key).copied().unwrap_or_default();
            // The engine counts in thousandths.
            let want = Column { quota: want.quota * 1000, used: want.used * 1000 };
            if have != want {
                let message = format!("the engine has {key:?} with {have:?}, objects say {want:?}");
                return Err(Violation::new(Rule::Usage, message));
            }
        }
        Ok(())
    }

    /// Whether there is more to come when nothing is under way.
    fn rest(&mut self) -> Result<bool, Violation> {
        self.late()?;
        let Some(calm) = self.calm else { return Ok(true) };
        let (version, now) = (self.network.api.version(), self.network.now());
        if self.settled.is_due(version, calm, now) {
            self.checkers.explained(&self.network.api, self.process.engine().scheduler(), now)?;
        }
        if !self.users.unfinished(&self.network).is_empty() {
            return Ok(true);
        }
        let since = *self.quiet.get_or_insert(self.network.now());
        if self.network.now().since(since) < QUIET {
            return Ok(true);
        }
        // What is left may wait for ever: it says why.
        if !self.settled.is_checked(version) && self.checkers.anything_waits(&self.network.api) {
            return Ok(true);
        }
        self.compare_statuses()?;
        Ok(false)
    }

    /// What has to run has run in time.
    fn late(&self) -> Result<(), Violation> {
        let Some(calm) = self.calm else { return Ok(()) };
        self.checkers.overdue(calm, self.network.now())?;
        let longest = self.users.longest().0.saturating_add(BOUND.0);
        if self.network.now().since(calm).0 <= longest {
            return Ok(());
        }
        let left = self.users.unfinished(&self.network);
        if left.is_empty() {
            return Err(Violation::new(Rule::Endless, "nothing is left to run, and there is no rest".into()));
        }
        let show = |w: &std::sync::Arc<Value>| {
            let (namespace, name) = name_of(w);
            let shown = format!("{} {name}", text(w, &["kind"]));
            let queueing = self.process.engine().queueing();
            let waits = queueing.and_then(|q| q.waiting(&WorkloadKey { namespace, name }));
            format!("{shown}, deleted {}, {waits:?}: {}", w["metadata"]["deletionTimestamp"], w["status"])
        };
        let all: Vec<String> = left.iter().map(show).collect();
        Err(Violation::new(
            Rule::Liveness,
            format!("{} workloads have not run: {}", left.len(), all.join("; ")),
        ))
    }

    /// Statuses of ClusterQueues say what the objects say.
    fn compare_statuses(&self) -> Result<(), Violation> {
        for queue in self.network.api.all(Kind::ClusterQueue) {
            let name = name_of(queue).1;
            for flavor in list(queue, &["status", "flavorsReservation"]) {
                let flavor_name = text(flavor, &["name"]);
                let row = list(flavor, &["resources"]).first();
                let of = |key: &str| row.map_or("", |r| text(r, &[key])).to_owned();
                let used = self.checkers.usage().of(&name, flavor_name).to_string();
                let borrowed = self.checkers.borrowed(&name, flavor_name).to_string();
                if (of("total"), of("borrowed")) != (used.clone(), borrowed.clone()) {
                    let message = format!(
                        "status of {name}, {flavor_name}: {row:?}, objects say {used}, {borrowed} of them borrowed"
                    );
                    return Err(Violation::new(Rule::Usage, message));
                }
            }
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mut dice = Dice::new(self.steps);
        for kind in Kind::ALL {
            for change in self.network.api.log(kind) {
                dice = dice.about(&change.object.to_string());
            }
        }
        dice.rng().next()
    }
}
