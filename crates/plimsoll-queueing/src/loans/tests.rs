//! Loans in one process that leads both trees, with an API that carries everything out at once.

use super::*;
use crate::testing::outside::{cluster_queue, workload};
use crate::*;
use plimsoll_state::Time;

/// Two trees, and an API server in miniature.
struct Trees {
    queueing: Queueing,
    now: Time,
    loans: BTreeMap<String, QuotaLoan>,
    workloads: BTreeMap<WorkloadKey, Workload>,
    version: u64,
    /// Changes of loans in the order of their writes.
    written: Vec<LoanChange>,
}

/// A LocalQueue of the ClusterQueue with the same number.
fn local_queue(queue: usize) -> Event {
    Event::LocalQueueUpsert(Box::new(LocalQueue {
        namespace: "n".into(),
        name: format!("l{queue}"),
        cluster_queue: format!("c{queue}"),
        fair_weight_nano: 1_000_000_000,
        ..LocalQueue::default()
    }))
}

impl Trees {
    /// The ClusterQueues `c0` of cohort `t0` and `c1` of `t1`, with 10 CPUs each.
    fn new() -> Self {
        Self::with(vec![
            cluster_queue("c0", "t0", 10, None, false),
            cluster_queue("c1", "t1", 10, None, false),
        ])
    }

    fn with(queues: Vec<ClusterQueue>) -> Self {
        let mut trees = Self {
            queueing: Queueing::new(Config::default()),
            now: Time::from_seconds(1_000),
            loans: BTreeMap::new(),
            workloads: BTreeMap::new(),
            version: 1,
            written: Vec::new(),
        };
        trees.see(Event::NamespaceUpsert("n".into(), Default::default()));
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        trees.see(Event::ResourceFlavorUpsert(Box::new(flavor)));
        for (i, cq) in queues.into_iter().enumerate() {
            trees.see(Event::ClusterQueueUpsert(Box::new(cq)));
            trees.see(local_queue(i));
        }
        trees
    }

    fn see(&mut self, event: Event) {
        self.queueing.handle(self.now, event);
    }

    fn lend(&mut self, name: &str, quantity: i64) {
        self.change(name, |loan| {
            *loan = QuotaLoan {
                name: name.into(),
                uid: format!("uid of {name}"),
                from: "t0".into(),
                to: "t1".into(),
                resources: vec![LoanedResource { flavor: "f".into(), resource: "cpu".into(), quantity }],
                ..QuotaLoan::default()
            };
        });
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut QuotaLoan)) {
        self.version += 1;
        let loan = self.loans.entry(name.into()).or_default();
        change(loan);
        loan.version = self.version;
        if loan.deleting && loan.finalizers.is_empty() {
            self.loans.remove(name);
            self.see(Event::QuotaLoanDelete(name.into()));
        } else {
            let loan = loan.clone();
            self.see(Event::QuotaLoanUpsert(Box::new(loan)));
        }
    }

    fn create(&mut self, n: usize, queue: usize, priority: i32, amount: i64) -> WorkloadKey {
        let w = workload(n, queue, priority, amount);
        self.workloads.insert(w.key.clone(), w.clone());
        self.see(Event::WorkloadUpsert(Box::new(w.clone())));
        w.key
    }

    /// Steps until nothing is written any more.
    fn run(&mut self) {
        for _ in 0..40 {
            let mut actions = Vec::new();
            self.queueing.decide(self.now, &mut |action| actions.push(action));
            self.queueing.check();
            let mut wrote = false;
            for action in actions {
                match action {
                    Action::UpdateLoan(update) => {
                        wrote = true;
                        self.written.push(update.change.clone());
                        self.change(&update.name, |loan| match &update.change {
                            LoanChange::Finalizers(finalizers) => loan.finalizers.clone_from(finalizers),
                            LoanChange::Grant => loan.phase = LoanPhase::Granted,
                            LoanChange::Return => loan.phase = LoanPhase::Returned,
                            LoanChange::Explain(message) => loan.message.clone_from(message),
                            LoanChange::Delete => loan.deleting = true,
                        });
                        let answer = Answer::Done;
                        self.see(Event::Answered { action: Box::new(Action::UpdateLoan(update)), answer });
                    }
                    Action::UpdateWorkload(update) => {
                        wrote = true;
                        self.version += 1;
                        let w = self.workloads.get_mut(&update.key).unwrap();
                        update.apply(&mut w.status);
                        w.version = self.version;
                        let (seen, version) = (w.clone(), w.version);
                        self.see(Event::Written { key: update.key.clone(), id: update.id, version });
                        self.see(Event::WorkloadUpsert(Box::new(seen)));
                    }
                    _ => {}
                }
            }
            self.now = self.now.plus(Duration::from_seconds(2));
            if !wrote {
                return;
            }
        }
        panic!("writes go on");
    }

    fn is_admitted(&self, key: &WorkloadKey) -> bool {
        self.workloads[key].status.is_true(cond::ADMITTED)
    }

    /// The jobs of evicted workloads have stopped.
    fn stop_evicted(&mut self) -> Vec<String> {
        let evicted: Vec<WorkloadKey> = self
            .workloads
            .values()
            .filter(|w| w.status.is_true(cond::EVICTED) && w.status.admission.is_some())
            .map(|w| w.key.clone())
            .collect();
        evicted.iter().for_each(|key| self.see(Event::WorkloadStopped(key.clone())));
        evicted.into_iter().map(|key| key.name).collect()
    }
}

#[test]
fn a_loan_lets_a_workload_in_and_goes_back_when_that_has_stopped() {
    let mut trees = Trees::new();
    let large = trees.create(1, 1, 0, 14);
    trees.run();
    assert!(!trees.is_admitted(&large));
    trees.lend("l", 4);
    trees.run();
    assert_eq!(trees.loans["l"].phase, LoanPhase::Granted);
    assert!(trees.is_admitted(&large));
    // The lender has less meanwhile.
    let lenders = trees.create(2, 0, 0, 7);
    trees.run();
    assert!(!trees.is_admitted(&lenders));
    trees.change("l", |loan| loan.asked_back = true);
    trees.run();
    assert_eq!(trees.loans["l"].phase, LoanPhase::Granted, "the workload has not stopped");
    assert_eq!(trees.loans["l"].message, "Waiting for workloads of cohort t1 that use it to stop");
    let message = &trees.workloads[&large].status.condition(cond::PREEMPTED).unwrap().message;
    assert!(message.starts_with("Preempted to return the quota loan l due to reclamation"), "{message}");
    assert_eq!(trees.stop_evicted(), ["w1"]);
    trees.run();
    assert!(trees.loans.is_empty() && trees.is_admitted(&lenders) && !trees.is_admitted(&large));
    let ours = || vec![LOAN_FINALIZER.to_owned()];
    let waits = || LoanChange::Explain("Waiting for workloads of cohort t1 that use it to stop".into());
    let all = [
        LoanChange::Finalizers(ours()),
        LoanChange::Grant,
        waits(),
        LoanChange::Return,
        LoanChange::Finalizers(Vec::new()),
        LoanChange::Delete,
    ];
    assert_eq!(trees.written, all);
}

#[test]
fn a_loan_waits_until_the_lender_has_it_free() {
    let mut trees = Trees::new();
    let lenders = trees.create(1, 0, 0, 8);
    trees.run();
    trees.lend("l", 4);
    trees.run();
    let loan = &trees.loans["l"];
    assert_eq!(loan.phase, LoanPhase::Requested);
    assert!(loan.message.starts_with("Cohort t0 can't lend 4m of cpu in flavor f now"), "{}", loan.message);
    let mut ended = trees.workloads[&lenders].clone();
    let finished = Condition { kind: cond::FINISHED.into(), status: true, ..Condition::default() };
    ended.status.conditions.push(finished);
    ended.version = u64::MAX;
    trees.see(Event::WorkloadUpsert(Box::new(ended)));
    trees.run();
    assert_eq!(trees.loans["l"].phase, LoanPhase::Granted);
}

/// The tree may come back with less that is free: a grant that was not begun is decided anew.
#[test]
fn a_grant_that_is_not_begun_charges_nothing() {
    let mut trees = Trees::new();
    trees.lend("l", 10);
    trees.change("l", |loan| loan.finalizers.push(LOAN_FINALIZER.into()));
    let mut actions = Vec::new();
    trees.queueing.decide(trees.now, &mut |action| actions.push(action));
    let is_grant = |a: &Action| matches!(a, Action::UpdateLoan(u) if u.change == LoanChange::Grant);
    let grant = actions.into_iter().find(is_grant).unwrap();
    trees.see(Event::Answered { action: Box::new(grant), answer: Answer::Superseded });
    let all = trees.create(1, 0, 0, 10);
    trees.run();
    assert!(trees.is_admitted(&all));
    assert_eq!(trees.loans["l"].phase, LoanPhase::Requested);
}

/// Nobody knows whether the grant was carried out: a write of the same precondition decides it.
#[test]
fn a_grant_that_was_asked_for_is_withdrawn_when_the_cohort_is_gone() {
    let mut trees = Trees::new();
    trees.lend("l", 10);
    trees.change("l", |loan| loan.finalizers.push(LOAN_FINALIZER.into()));
    let mut actions = Vec::new();
    trees.queueing.decide(trees.now, &mut |action| actions.push(action));
    let is_grant = |a: &Action| matches!(a, Action::UpdateLoan(u) if u.change == LoanChange::Grant);
    let grant = actions.into_iter().find(is_grant).unwrap();
    let answer = Answer::Failed("no response".into());
    trees.see(Event::Answered { action: Box::new(grant), answer });
    trees.see(Event::ClusterQueueDelete("c0".into()));
    trees.now = trees.now.plus(BACKOFF.1);
    trees.run();
    assert_eq!(trees.written[0], LoanChange::Finalizers(Vec::new()));
    let loan = &trees.loans["l"];
    assert_eq!((loan.phase, loan.message.as_str()), (LoanPhase::Requested, "Cohort t0 does not exist"));
}

#[test]
fn a_cohort_lends_what_its_queues_lend() {
    let mut lender = cluster_queue("c0", "t0", 10, None, false);
    lender.resource_groups[0].flavors[0].resources[0].lending_limit = Some(3);
    let mut trees = Trees::with(vec![lender, cluster_queue("c1", "t1", 10, None, false)]);
    trees.lend("four", 4);
    trees.lend("three", 3);
    trees.run();
    let phases = ["four", "three"].map(|name| trees.loans[name].phase);
    assert_eq!(phases, [LoanPhase::Requested, LoanPhase::Granted]);
}

#[test]
fn cohorts_of_one_tree_and_cohorts_that_are_not_there_lend_nothing() {
    for (from, to, says) in [
        ("t0", "t0", "Cohorts t0 and t0 are in the same tree, in which quota is borrowed without a loan"),
        ("none", "t1", "Cohort none does not exist"),
    ] {
        let mut trees = Trees::new();
        trees.lend("l", 1);
        trees.change("l", |loan| (loan.from, loan.to) = (from.into(), to.into()));
        trees.run();
        assert_eq!((trees.loans["l"].phase, trees.loans["l"].message.as_str()), (LoanPhase::Requested, says));
    }
}

#[test]
fn loans_of_cohorts_that_exist_nowhere_end_with_shards_too() {
    for absent in [false, true] {
        let mut trees = Trees::new();
        trees.queueing.config.shard = true;
        for name in ["old", "new"] {
            trees.lend(name, 4);
            trees.change(name, |loan| {
                (loan.from, loan.to) = ("none".into(), "neither".into());
                loan.absent = [absent; 2];
            });
        }
        trees.change("old", |loan| {
            (loan.phase, loan.asked_back) = (LoanPhase::Granted, true);
            loan.finalizers.push(LOAN_FINALIZER.into());
        });
        trees.run();
        assert_ne!(trees.loans.contains_key("old"), absent);
        assert_eq!(trees.loans["new"].message, if absent { "Cohort none does not exist" } else { "" });
    }
}

/// Those that borrow go, of the lowest priority first, and no more than it takes.
#[test]
fn a_loan_is_returned_at_the_cost_of_those_that_borrow() {
    let queues = vec![
        cluster_queue("c0", "t0", 10, None, false),
        cluster_queue("c1", "t1", 6, None, false),
        cluster_queue("c2", "t1", 4, None, false),
    ];
    let mut trees = Trees::with(queues);
    trees.lend("l", 5);
    trees.run();
    let own = trees.create(1, 2, -1, 4);
    let [low, middle, high] = [(2, 1, 4), (3, 2, 3), (4, 3, 4)].map(|(n, p, a)| trees.create(n, 1, p, a));
    trees.run();
    assert!([&own, &low, &middle, &high].iter().all(|key| trees.is_admitted(key)));
    trees.change("l", |loan| loan.asked_back = true);
    trees.run();
    // 15 are used of 10. `own` is within the quota of its queue; `low` alone is not enough.
    assert_eq!(trees.stop_evicted(), ["w2", "w3"]);
    trees.run();
    assert!(trees.loans.is_empty() && trees.is_admitted(&own) && trees.is_admitted(&high));
}

#[test]
fn a_loan_that_is_deleted_is_returned_first() {
    let mut trees = Trees::new();
    trees.lend("l", 4);
    trees.run();
    let large = trees.create(1, 1, 0, 14);
    trees.run();
    assert!(trees.is_admitted(&large));
    trees.change("l", |loan| loan.deleting = true);
    trees.run();
    assert!(trees.loans.contains_key("l"));
    assert_eq!(trees.stop_evicted(), ["w1"]);
    trees.run();
    assert!(trees.loans.is_empty() && !trees.is_admitted(&large));
}

/// A process that starts charges what was granted before it admits anything.
#[test]
fn a_process_that_starts_rebuilds_charges_from_the_objects() {
    let mut trees = Trees::new();
    trees.lend("l", 4);
    trees.run();
    let mut next = Trees::new();
    let loan = trees.loans["l"].clone();
    next.version = 100;
    next.loans.insert("l".into(), loan.clone());
    next.see(Event::QuotaLoanUpsert(Box::new(loan)));
    let keys = [next.create(1, 0, 0, 7), next.create(2, 0, 0, 6), next.create(3, 1, 0, 14)];
    next.run();
    assert_eq!(keys.each_ref().map(|key| next.is_admitted(key)), [false, true, true]);
}

/// Otherwise trees that lend to each other would wait for each other when both want their quota back.
#[test]
fn a_tree_lends_or_borrows() {
    let mut trees = Trees::new();
    trees.lend("there", 4);
    trees.run();
    trees.lend("back", 2);
    trees.change("back", |loan| (loan.from, loan.to) = ("t1".into(), "t0".into()));
    trees.run();
    let back = &trees.loans["back"];
    assert_eq!((trees.loans["there"].phase, back.phase), (LoanPhase::Granted, LoanPhase::Requested));
    assert_eq!(back.message, "Cohort t1 lends nothing while its tree has the quota loan there");
    // As if another leader had granted it at the same time: both are returned.
    trees.change("back", |loan| loan.phase = LoanPhase::Granted);
    let larger_than_its_own = [trees.create(1, 0, 0, 11), trees.create(2, 1, 0, 11)];
    trees.run();
    assert!(trees.loans.is_empty() && larger_than_its_own.iter().all(|key| !trees.is_admitted(key)));
}

#[test]
fn a_tree_with_the_labels_of_several_shards_neither_lends_nor_returns() {
    let queue = |name: &str, cohort: &str, conflict: &str| ClusterQueue {
        shard_stop: (!conflict.is_empty()).then(|| ShardStop::Conflict(conflict.into())),
        ..cluster_queue(name, cohort, 10, None, false)
    };
    let mut trees = Trees::with(vec![queue("c0", "t0", "a, b"), queue("c1", "t1", "")]);
    trees.lend("l", 4);
    trees.run();
    assert_eq!((trees.loans["l"].phase, trees.written.len()), (LoanPhase::Requested, 0));
    trees.see(Event::ClusterQueueUpsert(Box::new(queue("c0", "t0", ""))));
    trees.run();
    assert_eq!(trees.loans["l"].phase, LoanPhase::Granted);
    trees.see(Event::ClusterQueueUpsert(Box::new(queue("c1", "t1", "a, b"))));
    trees.change("l", |loan| loan.asked_back = true);
    trees.run();
    assert_eq!(trees.loans["l"].phase, LoanPhase::Granted);
    trees.see(Event::ClusterQueueUpsert(Box::new(queue("c1", "t1", ""))));
    trees.run();
    assert!(trees.loans.is_empty());
}

/// The tree is on its way to another shard: what it has lent and borrowed comes back, and nothing new begins.
#[test]
fn a_tree_that_moves_away_only_ends_loans() {
    let queue = |name: &str, cohort: &str, leaves: bool| ClusterQueue {
        shard_stop: leaves.then(|| ShardStop::Leaves("its tree moves to shard b".into())),
        ..cluster_queue(name, cohort, 10, None, false)
    };
    for (c0, c1) in [(true, false), (false, true)] {
        let mut trees = Trees::with(vec![queue("c0", "t0", false), queue("c1", "t1", false)]);
        trees.lend("l", 4);
        trees.run();
        assert_eq!(trees.loans["l"].phase, LoanPhase::Granted);
        trees.see(Event::ClusterQueueUpsert(Box::new(queue("c0", "t0", c0))));
        trees.see(Event::ClusterQueueUpsert(Box::new(queue("c1", "t1", c1))));
        trees.lend("new", 1);
        trees.run();
        // The lender's leader begins nothing, and the borrower's does not use what it is granted.
        assert_eq!(trees.loans["new"].phase == LoanPhase::Requested, c0);
        for loan in ["l", "new"] {
            trees.change(loan, |loan| loan.asked_back = true);
        }
        trees.run();
        assert!(trees.loans.is_empty(), "{:?}", trees.loans);
    }
    // The same for a cohort that has no ClusterQueue.
    let mut trees = Trees::new();
    let cohort = Cohort {
        name: "t0".into(),
        shard_stop: Some(ShardStop::Waits("it begins".into())),
        ..Cohort::default()
    };
    trees.see(Event::CohortUpsert(Box::new(cohort)));
    trees.lend("l", 4);
    trees.run();
    assert_eq!(trees.loans["l"].phase, LoanPhase::Requested);
}
