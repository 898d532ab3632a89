//! Victims of fair sharing in a flat cohort are those of a plain reading of Kueue's rules, with and without the gate
//! `FairSharingReevaluatePreemptionCandidates` (kubernetes-sigs/kueue pull request 14128).

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// A workload that runs: queue, priority, request.
#[derive(Clone, Copy, Debug)]
struct Runs {
    queue: usize,
    priority: i32,
    amount: i64,
}

/// One cohort of ClusterQueues without limits.
#[derive(Clone, Debug)]
struct Flat {
    nominal: Vec<i64>,
    running: Vec<Runs>,
}

/// What the first queue asks for.
#[derive(Clone, Copy, Debug)]
struct Asks {
    priority: i32,
    amount: i64,
}

/// A search for victims in plain vectors.
struct Search<'a> {
    flat: &'a Flat,
    used: Vec<i64>,
    taken: Vec<usize>,
    /// Running workloads that the first rule has refused.
    refused: Vec<usize>,
}

impl Search<'_> {
    fn borrowed(&self, queue: usize) -> i64 {
        (self.used[queue] - self.flat.nominal[queue]).max(0)
    }

    fn fits(&self) -> bool {
        self.used.iter().sum::<i64>() <= self.flat.nominal.iter().sum::<i64>()
    }

    /// Takes a workload; whether that is enough.
    fn take(&mut self, i: usize) -> bool {
        self.used[self.flat.running[i].queue] -= self.flat.running[i].amount;
        self.taken.push(i);
        self.fits()
    }

    /// The queue with the largest share that has candidates; of equal ones that with the first candidate.
    fn next(&self, left: &[VecDeque<usize>], done: &BTreeSet<usize>) -> Option<usize> {
        let may = |q: &usize| !done.contains(q) && !left[*q].is_empty() && (*q == 0 || self.borrowed(*q) > 0);
        let first = |q: usize| (q == 0, self.flat.running[left[q][0]].priority);
        (0..left.len()).filter(may).min_by_key(|q| (-self.borrowed(*q), first(*q)))
    }

    fn by_queue(&self, candidates: &[usize]) -> Vec<VecDeque<usize>> {
        let mut left = vec![VecDeque::new(); self.used.len()];
        candidates.iter().for_each(|i| left[self.flat.running[*i].queue].push_back(*i));
        left
    }

    fn first_rule(&mut self, candidates: &[usize], rule: FairStrategy) -> bool {
        let mut left = self.by_queue(candidates);
        let entitled = self.borrowed(0) == 0;
        while let Some(q) = self.next(&left, &BTreeSet::new()) {
            if q == 0 || entitled {
                let Some(i) = left[q].pop_front() else { continue };
                if self.take(i) {
                    return true;
                }
                continue;
            }
            let (mine, theirs) = (self.borrowed(0), self.borrowed(q));
            while let Some(i) = left[q].pop_front() {
                let after = (self.used[q] - self.flat.running[i].amount - self.flat.nominal[q]).max(0);
                let fair = match rule {
                    FairStrategy::LessThanOrEqualToFinalShare => mine <= after,
                    FairStrategy::LessThanInitialShare => mine < theirs,
                };
                if !fair {
                    self.refused.push(i);
                } else if self.take(i) {
                    return true;
                } else {
                    break;
                }
            }
        }
        false
    }

    fn second_rule(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refused);
        let mut left = self.by_queue(&refused);
        let mut done = BTreeSet::new();
        while let Some(q) = self.next(&left, &done) {
            let fair = self.borrowed(0) < self.borrowed(q);
            let Some(i) = left[q].pop_front() else { continue };
            if fair && self.take(i) {
                return true;
            }
            done.insert(q);
        }
        false
    }
}

/// The names of the victims.
fn plainly(flat: &Flat, asks: Asks, strategies: &[FairStrategy], again: bool) -> BTreeSet<String> {
    let mut used = vec![0; flat.nominal.len()];
    flat.running.iter().for_each(|r| used[r.queue] += r.amount);
    let may = |r: &Runs| match r.queue {
        0 => r.priority < asks.priority,
        q => used[q] > flat.nominal[q],
    };
    let mut candidates: Vec<usize> = (0..flat.running.len()).filter(|i| may(&flat.running[*i])).collect();
    candidates.sort_by_key(|i| (flat.running[*i].queue == 0, flat.running[*i].priority));
    used[0] += asks.amount;
    let mut search = Search { flat, used, taken: Vec::new(), refused: Vec::new() };
    let mut found = search.first_rule(&candidates, strategies[0]);
    if !found && again && search.taken.iter().any(|i| flat.running[*i].queue == 0) {
        let refused = std::mem::take(&mut search.refused);
        found = search.first_rule(&refused, strategies[0]);
    }
    if !found && strategies.len() > 1 {
        found = search.second_rule();
    }
    if !found {
        return BTreeSet::new();
    }
    // The last one stays a victim; others are let go where it fits with them.
    for at in (0..search.taken.len() - 1).rev() {
        let Runs { queue, amount, .. } = flat.running[search.taken[at]];
        search.used[queue] += amount;
        if search.fits() {
            search.taken.swap_remove(at);
        } else {
            search.used[queue] -= amount;
        }
    }
    search.taken.iter().map(|i| format!("w{i}")).collect()
}

/// The names of the workloads that the engine preempts first.
fn by_engine(flat: &Flat, asks: Asks, strategies: &[FairStrategy], again: bool) -> BTreeSet<String> {
    let spec = |nominal| Spec {
        parent: 0,
        nominal,
        borrowing: None,
        lending: None,
        rules: (2, 1, false),
        strict: false,
    };
    let queues: Vec<Spec> = flat.nominal.iter().map(|n| spec(*n)).collect();
    let mut trees = Trees::new(&[spec(0)], &queues, true);
    let gates = Gates { fair_reevaluate: again, ..Gates::default() };
    let fair_sharing = Some(FairSharing { strategies: strategies.to_vec() });
    trees.engine = Engine::new(Config { gates, fair_sharing, ..Config::default() });
    let events = trees.setup();
    trees.step(events);
    for r in &flat.running {
        let event = trees.outside.create(r.queue, r.priority, r.amount);
        trees.step(vec![event]);
        trees.settle();
    }
    assert_eq!(trees.admitted().len(), flat.running.len(), "all fit");
    trees.now = trees.now.plus(Duration::from_seconds(60));
    let mut events = vec![trees.outside.create(0, asks.priority, asks.amount)];
    for _ in 0..3 {
        trees.step_once(std::mem::take(&mut events));
        let evicted = |w: &&Workload| w.status.is_true(cond::PREEMPTED);
        let all: BTreeSet<String> =
            trees.outside.workloads.iter().filter(evicted).map(|w| w.key.name.clone()).collect();
        if !all.is_empty() {
            return all;
        }
    }
    BTreeSet::new()
}

/// A cohort whose queues run no more than there is, and what does not fit beside it. No two have the same priority.
fn any_case() -> impl Strategy<Value = (Flat, Asks)> {
    let running = proptest::collection::vec((0..3usize, 1..5i64), 1..7);
    let priorities = Just((0..7).collect::<Vec<i32>>()).prop_shuffle();
    (running, priorities, proptest::collection::vec(0..4i64, 3), 0..8i32, 1..6i64).prop_map(
        |(running, priorities, mut nominal, priority, amount)| {
            let running: Vec<Runs> = running
                .iter()
                .zip(priorities)
                .map(|(&(queue, amount), priority)| Runs {
                    queue,
                    priority: 2 * priority,
                    amount: amount * 1000,
                })
                .collect();
            nominal.iter_mut().for_each(|n| *n *= 1000);
            let used: i64 = running.iter().map(|r| r.amount).sum();
            // What is missing is offered by a queue that runs nothing.
            let offered = (used - nominal.iter().sum::<i64>()).max(0);
            nominal.push(offered);
            (Flat { nominal, running }, Asks { priority: 2 * priority - 1, amount: amount * 1000 })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn victims_of_fair_sharing_are_those_of_a_plain_reading((flat, asks) in any_case(), rules in 0..3usize, again in any::<bool>()) {
        use FairStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
        let strategies: &[FairStrategy] = match rules {
            0 => &[LessThanOrEqualToFinalShare],
            1 => &[LessThanInitialShare],
            _ => &[LessThanOrEqualToFinalShare, LessThanInitialShare],
        };
        let total: i64 = flat.nominal.iter().sum();
        let used: i64 = flat.running.iter().map(|r| r.amount).sum();
        prop_assume!(used + asks.amount > total);
        prop_assert_eq!(by_engine(&flat, asks, strategies, again), plainly(&flat, asks, strategies, again));
    }
}

/// The case of kubernetes-sigs/kueue issue 14122: no candidate of the other queue may be taken before the own one is, and none
/// is without the gate.
#[test]
fn a_lower_share_makes_other_candidates_fair() {
    let flat = Flat {
        nominal: vec![0, 0, 7000],
        running: vec![
            Runs { queue: 0, priority: 0, amount: 1000 },
            Runs { queue: 1, priority: 2, amount: 3000 },
            Runs { queue: 1, priority: 4, amount: 3000 },
        ],
    };
    let asks = Asks { priority: 6, amount: 3000 };
    let rule = &[FairStrategy::LessThanOrEqualToFinalShare];
    for (again, want) in [(false, None), (true, Some("w1".to_owned()))] {
        let want: BTreeSet<String> = want.into_iter().collect();
        assert_eq!(plainly(&flat, asks, rule, again), want);
        assert_eq!(by_engine(&flat, asks, rule, again), want);
    }
}
