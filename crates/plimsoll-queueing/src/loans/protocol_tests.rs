//! Two processes that lead a tree each, or one that leads both, over a model of the API: watch events are late, repeated or lost,
//! answers are late or lost, writes arrive after they were given up, and processes end at any time. Whatever happens, no tree uses
//! more than it has, with what it lends and borrows as the API shows it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::testing::outside::{cluster_queue, workload};
use crate::*;
use plimsoll_state::Time;

/// ClusterQueues of each tree.
const QUEUES: usize = 2;
/// Nominal quota of a ClusterQueue.
const NOMINAL: i64 = 4_000;

/// The name of a tree's cohort.
fn cohort(tree: usize) -> String {
    format!("t{tree}")
}

/// Objects with versions, and the log of their changes.
#[derive(Default)]
struct Server {
    version: u64,
    workloads: BTreeMap<String, Workload>,
    loans: BTreeMap<String, QuotaLoan>,
    log: Vec<Event>,
    made: usize,
}

impl Server {
    fn changed_workload(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let Some(w) = self.workloads.get_mut(name) else { return };
        self.version += 1;
        change(w);
        w.version = self.version;
        self.log.push(Event::WorkloadUpsert(Box::new(w.clone())));
    }

    fn changed_loan(&mut self, name: &str, change: impl FnOnce(&mut QuotaLoan)) {
        let Some(loan) = self.loans.get_mut(name) else { return };
        self.version += 1;
        change(loan);
        loan.version = self.version;
        if loan.deleting && loan.finalizers.is_empty() {
            self.loans.remove(name);
            self.log.push(Event::QuotaLoanDelete(name.to_owned()));
        } else {
            self.log.push(Event::QuotaLoanUpsert(Box::new(loan.clone())));
        }
    }

    fn create_workload(&mut self, queue: usize, priority: i32, amount: i64) {
        self.made += 1;
        self.version += 1;
        let w = Workload { version: self.version, ..workload(self.made, queue, priority, amount) };
        self.log.push(Event::WorkloadUpsert(Box::new(w.clone())));
        self.workloads.insert(w.key.name.clone(), w);
    }

    fn create_loan(&mut self, from: usize, quantity: i64) {
        self.made += 1;
        self.version += 1;
        let name = format!("loan{}", self.made % 5);
        let loan = QuotaLoan {
            name: name.clone(),
            uid: format!("loan-uid-{}", self.made),
            version: self.version,
            creation: Time::from_seconds(i64::try_from(self.made).unwrap()),
            from: cohort(from),
            to: cohort(1 - from),
            resources: vec![LoanedResource { flavor: "f".into(), resource: "cpu".into(), quantity }],
            ..QuotaLoan::default()
        };
        if !self.loans.contains_key(&name) {
            self.log.push(Event::QuotaLoanUpsert(Box::new(loan.clone())));
            self.loans.insert(name, loan);
        }
    }

    fn delete_loan(&mut self, name: &str) {
        self.changed_loan(name, |loan| loan.deleting = true);
    }

    /// Carries out a write to a loan under its preconditions.
    fn write_loan(&mut self, update: &LoanUpdate) -> Answer {
        let Some(loan) = self.loans.get(&update.name).filter(|l| l.uid == update.uid) else {
            return Answer::Superseded;
        };
        if update.change == LoanChange::Delete {
            self.delete_loan(&update.name);
            return Answer::Done;
        }
        if loan.version != update.version {
            return Answer::Failed("conflict".into());
        }
        let phase = loan.phase;
        self.changed_loan(&update.name, |loan| match &update.change {
            LoanChange::Finalizers(finalizers) => loan.finalizers.clone_from(finalizers),
            LoanChange::Grant => {
                assert_eq!((phase, loan.is_held()), (LoanPhase::Requested, true));
                (loan.phase, loan.message) = (LoanPhase::Granted, String::new());
            }
            LoanChange::Return => {
                assert_eq!(phase, LoanPhase::Granted);
                (loan.phase, loan.message) = (LoanPhase::Returned, String::new());
            }
            LoanChange::Explain(message) => loan.message.clone_from(message),
            LoanChange::Delete => {}
        });
        Answer::Done
    }

    /// What workloads have reserved in a tree, by the objects.
    fn used(&self, tree: usize) -> i64 {
        let open = self.workloads.values().filter(|w| !w.status.is_true(cond::FINISHED));
        let admissions = open.filter_map(|w| w.status.admission.as_ref());
        let here = admissions.filter(|a| tree_of_queue(&a.cluster_queue) == tree);
        here.flat_map(|a| &a.assignments).filter_map(|p| p.resource_usage.get("cpu")).sum()
    }

    fn granted(&self, of: impl Fn(&QuotaLoan) -> &String, tree: usize) -> i64 {
        let granted = self.loans.values().filter(|l| l.phase == LoanPhase::Granted && *of(l) == cohort(tree));
        granted.flat_map(|l| &l.resources).map(|r| r.quantity).sum()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for tree in 0..2 {
            let (lent, borrowed) = (self.granted(|l| &l.from, tree), self.granted(|l| &l.to, tree));
            let (used, has) = (self.used(tree), NOMINAL * i64::try_from(QUEUES).unwrap());
            prop_assert!(
                used + lent <= has + borrowed,
                "tree {tree} uses {used} and lends {lent} of {has} and {borrowed} borrowed"
            );
        }
        Ok(())
    }
}

/// The tree of a ClusterQueue or LocalQueue by the number in its name.
fn tree_of_queue(name: &str) -> usize {
    name[1..].parse::<usize>().unwrap() / QUEUES
}

/// A process, and what is on its way to and from it.
struct Process {
    queueing: Queueing,
    trees: Vec<usize>,
    /// What the watch has handed on of the log.
    cursor: usize,
    known: BTreeSet<String>,
    writes: Vec<Action>,
    /// Writes to loans that were given up, and may still arrive.
    given_up: Vec<LoanUpdate>,
    answers: Vec<Event>,
}

impl Process {
    fn new(trees: &[usize], server: &Server, now: Time) -> Self {
        let config = Config { shard: trees.len() < 2, ..Config::default() };
        let mut process = Self {
            queueing: Queueing::new(config),
            trees: trees.to_vec(),
            cursor: 0,
            known: BTreeSet::new(),
            writes: Vec::new(),
            given_up: Vec::new(),
            answers: Vec::new(),
        };
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        let mut events = vec![
            Event::NamespaceUpsert("n".into(), Default::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
        ];
        for &tree in trees {
            for queue in tree * QUEUES..(tree + 1) * QUEUES {
                let cq = cluster_queue(&format!("c{queue}"), &cohort(tree), NOMINAL, None, false);
                events.push(Event::ClusterQueueUpsert(Box::new(cq)));
                let lq = LocalQueue {
                    namespace: "n".into(),
                    name: format!("l{queue}"),
                    cluster_queue: format!("c{queue}"),
                    fair_weight_nano: 1_000_000_000,
                    ..LocalQueue::default()
                };
                events.push(Event::LocalQueueUpsert(Box::new(lq)));
            }
        }
        events.into_iter().for_each(|event| process.queueing.handle(now, event));
        process.list(server, now);
        process
    }

    /// It ends. What is under way arrives or does not, as the bits say, before the next one has listed.
    fn end(&mut self, server: &mut Server, bits: u64, now: Time) {
        for n in 0..self.writes.len() + self.given_up.len() {
            match bits >> (n % 60) & 3 {
                0 => {}
                1 if !self.given_up.is_empty() => {
                    server.write_loan(&self.given_up.remove(0));
                }
                _ => write(server, self, n, Fate::Done),
            }
        }
        let trees = self.trees.clone();
        *self = Self::new(&trees, server, now);
    }

    fn leads(&self, w: &Workload) -> bool {
        self.trees.contains(&tree_of_queue(&w.queue))
    }

    fn hand_on(&mut self, event: &Event, now: Time) {
        match event {
            Event::WorkloadUpsert(w) if !self.leads(w) => return,
            Event::QuotaLoanUpsert(l) => {
                self.known.insert(l.name.clone());
            }
            Event::QuotaLoanDelete(name) => {
                self.known.remove(name);
            }
            _ => {}
        }
        self.queueing.handle(now, event.clone());
    }

    /// A list: what is there, and what is not there any more.
    fn list(&mut self, server: &Server, now: Time) {
        self.cursor = server.log.len();
        for gone in std::mem::take(&mut self.known) {
            if !server.loans.contains_key(&gone) {
                self.queueing.handle(now, Event::QuotaLoanDelete(gone));
            }
        }
        for w in server.workloads.values() {
            self.hand_on(&Event::WorkloadUpsert(Box::new(w.clone())), now);
        }
        for loan in server.loans.values() {
            self.hand_on(&Event::QuotaLoanUpsert(Box::new(loan.clone())), now);
        }
    }

    fn decide(&mut self, now: Time) {
        self.queueing.decide(now, &mut |action| match action {
            Action::UpdateWorkload(_) | Action::UpdateLoan(_) => self.writes.push(action),
            _ => {}
        });
        self.queueing.check();
    }
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Done,
    /// It is carried out, and the answer is lost: for a loan it counts as failed.
    AnswerLost,
    Fails,
    /// It fails, and is carried out later all the same if nothing has changed.
    Late,
}

/// What happens next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Op {
    Watch(usize, usize),
    WatchAgain(usize, usize),
    List(usize),
    Decide(usize),
    /// The watch brings everything, a step, this many writes with their answers.
    Turn(usize, usize),
    Write(usize, usize, Fate),
    /// Everything that is decided about loans is given up, a workload gets what is free in this queue, and then the writes arrive.
    GiveUp(usize, usize, i64),
    /// Each tree is to lend as much to the other one, and each queue gets a workload that is as large as its own quota.
    LendBoth(i64),
    Answer(usize),
    Arrive(usize, usize),
    End(usize, u64),
    Create(usize, i32, i64),
    Finish(usize),
    Stop(usize),
    Lend(usize, i64),
    AskBack(usize),
    Delete(usize),
    Pass(i64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let fate = prop_oneof![
        6 => Just(Fate::Done),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Fails),
        1 => Just(Fate::Late),
    ];
    let n = || any::<prop::sample::Index>().prop_map(|i| i.index(64));
    prop_oneof![
        8 => (0..2usize, 1..4usize).prop_map(|(p, n)| Op::Watch(p, n)),
        1 => (0..2usize, n()).prop_map(|(p, n)| Op::WatchAgain(p, n)),
        1 => (0..2usize).prop_map(Op::List),
        6 => (0..2usize).prop_map(Op::Decide),
        14 => (0..2usize, 0..5usize).prop_map(|(p, n)| Op::Turn(p, n)),
        10 => (0..2usize, n(), fate).prop_map(|(p, n, fate)| Op::Write(p, n, fate)),
        2 => (0..2usize, 0..2 * QUEUES, 1..7i64).prop_map(|(p, q, a)| Op::GiveUp(p, q, a * 1_000)),
        1 => (1..7i64).prop_map(|q| Op::LendBoth(q * 1_000)),
        8 => (0..2usize).prop_map(Op::Answer),
        1 => (0..2usize, n()).prop_map(|(p, n)| Op::Arrive(p, n)),
        1 => (0..2usize, any::<u64>()).prop_map(|(p, bits)| Op::End(p, bits)),
        // The second tree has more to do, the first one more to lend.
        5 => ((0..2 * QUEUES).prop_map(|q| q.max(1)), 0..3i32, 1..7i64).prop_map(|(q, p, a)| Op::Create(q, p, a * 1_000)),
        3 => n().prop_map(Op::Finish),
        4 => n().prop_map(Op::Stop),
        4 => (prop_oneof![3 => Just(0usize), 1 => Just(1)], 1..7i64).prop_map(|(from, q)| Op::Lend(from, q * 1_000)),
        2 => n().prop_map(Op::AskBack),
        1 => n().prop_map(Op::Delete),
        2 => (1..20i64).prop_map(Op::Pass),
    ]
}

struct World {
    server: Server,
    processes: Vec<Process>,
    now: Time,
    /// Loans that were granted, and used beyond what the tree has of its own.
    granted: usize,
    used: usize,
}

impl World {
    fn new(processes: usize) -> Self {
        let (server, now) = (Server::default(), Time::from_seconds(1_000));
        let trees: &[&[usize]] = if processes == 2 { &[&[0], &[1]] } else { &[&[0, 1]] };
        let processes = trees.iter().map(|trees| Process::new(trees, &server, now)).collect();
        Self { server, processes, now, granted: 0, used: 0 }
    }

    fn play(&mut self, op: Op) {
        let count = self.processes.len();
        let (server, now) = (&mut self.server, self.now);
        let nth = |names: Vec<String>, n: usize| names.get(n % names.len().max(1)).cloned();
        let loan = |server: &Server, n| nth(server.loans.keys().cloned().collect(), n);
        let of_workloads = |server: &Server, which: &dyn Fn(&Workload) -> bool, n| {
            nth(server.workloads.values().filter(|w| which(w)).map(|w| w.key.name.clone()).collect(), n)
        };
        match op {
            Op::Watch(p, n) => {
                let process = &mut self.processes[p % count];
                let from = process.cursor;
                for event in server.log.iter().skip(from).take(n) {
                    process.hand_on(event, now);
                    process.cursor += 1;
                }
            }
            Op::WatchAgain(p, n) => {
                let process = &mut self.processes[p % count];
                let seen = server.log.get(..process.cursor).unwrap_or_default();
                // A reflector knows which objects are gone, and repeats nothing about them.
                let again = seen.iter().rev().nth(n).filter(|event| match event {
                    Event::QuotaLoanUpsert(l) => {
                        server.loans.get(&l.name).is_some_and(|now| now.uid == l.uid)
                    }
                    Event::WorkloadUpsert(_) => true,
                    _ => false,
                });
                if let Some(event) = again {
                    process.hand_on(event, now);
                }
            }
            Op::List(p) => self.processes[p % count].list(server, now),
            Op::Decide(p) => self.processes[p % count].decide(now),
            Op::Turn(p, writes) => {
                self.play(Op::Watch(p, usize::MAX));
                self.play(Op::Decide(p));
                for _ in 0..writes {
                    self.play(Op::Write(p, 0, Fate::Done));
                    self.play(Op::Answer(p));
                }
            }
            Op::Write(p, n, fate) => write(server, &mut self.processes[p % count], n, fate),
            Op::GiveUp(p, queue, amount) => self.give_up(p, queue, amount),
            Op::LendBoth(quantity) => self.lend_both(quantity),
            Op::Answer(p) => {
                let process = &mut self.processes[p % count];
                if !process.answers.is_empty() {
                    let answer = process.answers.remove(0);
                    process.queueing.handle(now, answer);
                }
            }
            Op::Arrive(p, n) => {
                let late = &mut self.processes[p % count].given_up;
                if !late.is_empty() {
                    let update = late.remove(n % late.len());
                    server.write_loan(&update);
                }
            }
            Op::End(p, bits) => self.processes[p % count].end(server, bits, now),
            Op::Create(queue, priority, amount) => server.create_workload(queue, priority, amount),
            Op::Finish(n) => {
                let open =
                    |w: &Workload| w.status.is_true(cond::ADMITTED) && !w.status.is_true(cond::FINISHED);
                if let Some(name) = of_workloads(server, &open, n) {
                    server.changed_workload(&name, |w| w.status.conditions.push(finished()));
                }
            }
            Op::Stop(n) => {
                // The job of an evicted workload has no pods any more.
                let leaves = |w: &Workload| w.status.is_true(cond::EVICTED) && w.status.admission.is_some();
                if let Some(name) = of_workloads(server, &leaves, n) {
                    let w = &server.workloads[&name];
                    let process = self.processes.iter_mut().find(|p| p.leads(w)).unwrap();
                    process.queueing.handle(now, Event::WorkloadStopped(w.key.clone()));
                }
            }
            Op::Lend(from, quantity) => server.create_loan(from, quantity),
            Op::AskBack(n) => {
                if let Some(name) = loan(server, n) {
                    server.changed_loan(&name, |l| l.asked_back = true);
                }
            }
            Op::Delete(n) => {
                if let Some(name) = loan(server, n) {
                    server.delete_loan(&name);
                }
            }
            Op::Pass(seconds) => self.now = now.plus(Duration::from_seconds(seconds)),
        }
        let granted = |tree| self.server.granted(|l| &l.to, tree);
        self.granted += usize::from(granted(0) + granted(1) > 0);
        let has = NOMINAL * i64::try_from(QUEUES).unwrap();
        self.used += (0..2).filter(|&tree| self.server.used(tree) > has).count();
    }

    fn give_up(&mut self, p: usize, queue: usize, amount: i64) {
        let count = self.processes.len();
        self.play(Op::Turn(p, 0));
        let loans =
            |process: &Process| process.writes.iter().position(|w| matches!(w, Action::UpdateLoan(_)));
        while let Some(n) = loans(&self.processes[p % count]) {
            self.play(Op::Write(p, n, Fate::Late));
            self.play(Op::Answer(p));
        }
        self.server.create_workload(queue, 0, amount);
        self.play(Op::Turn(p, 4));
        for _ in 0..self.processes[p % count].given_up.len() {
            self.play(Op::Arrive(p, 0));
        }
    }

    fn lend_both(&mut self, quantity: i64) {
        for from in [0, 1] {
            self.server.create_loan(from, quantity);
            self.settle();
        }
        for queue in 0..2 * QUEUES {
            self.server.create_workload(queue, 0, NOMINAL);
        }
        self.settle();
    }

    /// All processes see and write everything, a few times.
    fn settle(&mut self) {
        for _ in 0..4 {
            (0..self.processes.len()).for_each(|p| self.play(Op::Turn(p, 8)));
            self.play(Op::Pass(2));
        }
    }

    /// No faults any more: loans that are asked back end, whatever has happened to them.
    fn loans_end(&mut self) -> Result<(), TestCaseError> {
        for name in self.server.loans.keys().cloned().collect::<Vec<_>>() {
            self.server.changed_loan(&name, |l| l.asked_back = true);
        }
        for round in 0..60 {
            for p in 0..self.processes.len() {
                let late = std::mem::take(&mut self.processes[p].given_up);
                late.iter().for_each(|update| {
                    self.server.write_loan(update);
                });
                self.play(Op::List(p));
                self.play(Op::Decide(p));
                while !self.processes[p].writes.is_empty() {
                    self.play(Op::Write(p, 0, Fate::Done));
                    self.server.check()?;
                }
                while !self.processes[p].answers.is_empty() {
                    self.play(Op::Answer(p));
                }
            }
            (0..8).for_each(|n| self.play(Op::Stop(n)));
            self.play(Op::Pass(20));
            if self.server.loans.is_empty() {
                return Ok(());
            }
            prop_assert!(round < 59, "loans are left: {:?}", self.server.loans);
        }
        Ok(())
    }
}

/// Carries out one of the writes that are first for their object.
fn write(server: &mut Server, process: &mut Process, n: usize, fate: Fate) {
    if process.writes.is_empty() {
        return;
    }
    let object = |action: &Action| match action {
        Action::UpdateWorkload(u) => u.key.name.clone(),
        Action::UpdateLoan(u) => u.name.clone(),
        _ => String::new(),
    };
    let chosen = object(&process.writes[n % process.writes.len()]);
    let first = process.writes.iter().position(|a| object(a) == chosen).unwrap();
    match process.writes.remove(first) {
        Action::UpdateWorkload(u) if fate == Fate::Fails => {
            let failed = Event::WriteFailed { key: u.key.clone(), id: u.id, message: "no".into() };
            process.answers.push(failed);
        }
        Action::UpdateWorkload(u) => {
            server.changed_workload(&u.key.name, |w| u.apply(&mut w.status));
            process.answers.push(Event::Written { key: u.key.clone(), id: u.id, version: server.version });
        }
        Action::UpdateLoan(u) => {
            let lost = Answer::Failed("no response".into());
            let answer = match fate {
                Fate::Done => server.write_loan(&u),
                Fate::AnswerLost => {
                    server.write_loan(&u);
                    lost
                }
                Fate::Fails => lost,
                Fate::Late => {
                    process.given_up.push((*u).clone());
                    lost
                }
            };
            process.answers.push(Event::Answered { action: Box::new(Action::UpdateLoan(u)), answer });
        }
        _ => {}
    }
}

fn finished() -> Condition {
    Condition { kind: cond::FINISHED.into(), status: true, ..Condition::default() }
}

fn plays(processes: usize, ops: &[Op]) -> Result<World, TestCaseError> {
    let mut world = World::new(processes);
    for op in ops {
        world.play(*op);
        world.server.check()?;
    }
    Ok(world)
}

proptest! {
    #[test]
    fn trees_of_two_leaders_use_no_more_than_they_have(ops in prop::collection::vec(any_op(), 0..200)) {
        plays(2, &ops)?.loans_end()?;
    }

    #[test]
    fn trees_of_one_leader_use_no_more_than_they_have(ops in prop::collection::vec(any_op(), 0..200)) {
        plays(1, &ops)?.loans_end()?;
    }
}

/// What the tests above play is worth playing: loans are granted, and used.
#[test]
fn loans_are_granted_and_used_in_random_runs() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec(any_op(), 200..201);
    let (mut granted, mut used) = (0, 0);
    for _ in 0..40 {
        let ops = strategy.new_tree(&mut runner).unwrap().current();
        let world = plays(2, &ops).unwrap();
        granted += usize::from(world.granted > 0);
        used += usize::from(world.used > 0);
    }
    assert!(granted >= 30 && used >= 10, "granted in {granted} of 40 runs, used in {used}");
}
