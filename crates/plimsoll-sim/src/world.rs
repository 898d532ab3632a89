//! The world: one virtual time for the API, the network, the process under test and all other clients, and the checkers
//! that look after every step.
//!
//! A *step* is one thing that happens: a watch event or a list that is delivered, a request that reaches the API
//! server, an answer that reaches its client, a timer that is due (the engine's, a pause's, a job's end), or an operation
//! of the scenario. What was overtaken and does nothing is not counted.

mod ending;
mod rest;

use std::collections::BTreeMap;

use plimsoll_state::{Duration, Time};

use crate::agenda::Event;
use crate::api::{Kind, name_of};
use crate::check::explanations::Settled;
use crate::check::{Checkers, Rule, Violation};
use crate::cluster::Cluster;
use crate::dice::Dice;
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
/// How often users look at what they have.
const LOOK: Duration = Duration::from_seconds(1);

/// How long a watch of a replica that takes over may be behind, with a write decided then on its way.
const STALE: Duration = Duration::from_seconds(20);

/// A world.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    network: Network,
    /// The process that leads, or that of each shard.
    leaders: Vec<Process>,
    /// The replica that follows the first of them.
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
    /// When the Lease of the process before the present one is free, for each that leads.
    vacant: Vec<Time>,
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
        let count: u32 = if scenario.settings.shards { 2 } else { 1 };
        let leaders: Vec<Process> = (0..count).map(|i| Process::new(i, i, scenario.settings)).collect();
        let standby = scenario.settings.standby.then(|| Process::standby(1, 1, scenario.settings));
        let users = Users::new(scenario.seed, scenario.settings, scenario.plan.clone());
        let (cluster, gangs) = (Cluster::new(scenario.seed, &scenario.settings), scenario.settings.gangs);
        let checkers = Checkers::new(&scenario, START);
        let mut world = Self {
            scenario,
            network,
            vacant: vec![START; leaders.len()],
            leaders,
            standby,
            users,
            cluster,
            checkers,
            measured: gangs.then(Measure::default),
            seen: BTreeMap::new(),
            past: BTreeMap::new(),
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
        for life in 0..count {
            world.network.agenda.at(START, Event::Start(life));
        }
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
                self.leave(usize::try_from(self.steps).unwrap_or(0), self.scenario.ending);
            }
            if let Some(trace) = &mut self.trace {
                trace.push(format!("{:>9} {event:?}{shown}", self.network.now().since(START).0 / 1_000));
            }
        }
        self.look(decided)?;
        self.check_nodes()?;
        self.check_trees()?;
        for index in 0..self.leaders.len() {
            if self.leaders[index].stopping && !self.leaders[index].writes() {
                self.end(index, Ending::HandOver);
            }
        }
        let longest = if self.measured.is_some() { LONGEST_MEASURED } else { LONGEST };
        if self.steps > longest {
            return Err(Violation::new(Rule::Endless, format!("{} steps", self.steps)));
        }
        let network = &self.network;
        if counted && self.leaders.iter_mut().all(|process| process.is_idle(network)) {
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
        let Self { network, leaders, users, cluster, .. } = self;
        match event {
            Event::Operation(i) => {
                match self.scenario.operations.get(*i).map(|t| t.operation.clone()) {
                    Some(Operation::Crash) => self.leave(0, Ending::Crash),
                    Some(Operation::HandOver) => self.leave(0, Ending::HandOver),
                    Some(Operation::LoseLease) => self.leave(0, Ending::LoseLease),
                    Some(Operation::End { shard, ending }) => self.leave(shard, ending),
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
                let Some((caller, answer)) = network.answer(*number) else { return (None, false) };
                let process = leaders.iter_mut().find(|p| p.life == caller.life);
                let Some(process) = process else { return (None, false) };
                process.answer(caller.call, answer, network);
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
            | Event::Moves(_)
            | Event::Seek(_)
            | Event::Stopped(..) => return (None, false),
        }
        (None, true)
    }

    /// Lets something happen to a process, if it still lives; whether it was anything.
    fn live(&mut self, life: u32, event: &Event) -> bool {
        if let Event::End(_, ending) = event {
            let lives = self.leaders.iter().position(|p| p.life == life);
            if let Some(index) = lives {
                self.end(index, *ending);
            }
            return lives.is_some();
        }
        let Self { network, leaders, standby, .. } = self;
        let mut replicas = leaders.iter_mut().chain(standby);
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
            Event::Moves(_) => process.give_away(network),
            Event::Seek(_) => process.seek(network),
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
                        let own = self.leaders.iter().find(|p| p.life == life).map(|p| &p.known);
                        let known = own.or_else(|| self.past.get(&life));
                        known.map_or(&[][..], |known| known.since(serial))
                    },
                );
                self.checkers.changed(kind, &change, known, self.network.now())?;
                if let Some((life, _)) = decided {
                    self.check_binding(kind, &change, life)?;
                    self.check_admission(kind, &change, life)?;
                }
                if let Some(measured) = &mut self.measured {
                    measured.changed(kind, &change, self.network.now());
                }
                let runs = self.checkers.held(&name_of(&change.object)).is_some_and(crate::check::Held::runs);
                self.users.changed(kind, &change, runs, &mut self.network);
                self.cluster.changed(kind, &change, &mut self.network);
                for process in self.leaders.iter_mut().chain(&mut self.standby) {
                    process.changed(kind, &mut self.network);
                }
            }
        }
        Ok(())
    }

    /// Whether the process may not have seen yet which pods were bound by the leader before it: kubelets refuse what their
    /// nodes have no room for, and kube-scheduler relies on that as well.
    fn fills_nodes_blindly(&self) -> bool {
        self.leaders[0].led_since().is_some_and(|at| self.network.now().since(at) < STALE)
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
