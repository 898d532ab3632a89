//! Everything at once: quota in trees of cohorts, two flavors, admission checks, partial admission, reclaimable pods,
//! fair sharing, topologies; objects that people edit, stop, delete and make again while workloads hold quota; writes
//! that fail, repeat and come late; engines that start anew.
//!
//! The simulator (`plimsoll-sim`) plays the same through the API. This one stays, because it also varies how many cycles a
//! step may run, ends jobs at any time, and needs this crate alone.

mod audit;
mod checked;
mod objects;
mod world;

use proptest::prelude::*;

use objects::{Ask, NODES, Quota, SIZE, Spec};
use world::{Fate, Plan, World};

use super::{CheckState, ReclaimablePod, StopPolicy, Workload, cond};
use plimsoll_state::time::Duration;

/// What happens next.
#[derive(Clone, Debug)]
enum Op {
    Create(Ask),
    Finish(usize, bool),
    Delete(usize, bool),
    /// Under the same name.
    Again(usize, Ask),
    /// Another pod is done.
    Reclaim(usize, bool),
    Answer(usize, CheckState, bool),
    Active(usize, bool),
    Priority(usize, i32),
    Move(usize, usize, bool),
    /// A ClusterQueue changes, or goes.
    Queue(usize, Option<Spec>),
    Stop(usize, StopPolicy),
    Local(usize, Option<StopPolicy>),
    Cohort(usize, Option<Spec>),
    FlavorId(usize, bool),
    Check(Option<bool>),
    Node(usize, Option<(i64, bool)>),
    Restart,
    /// As planned again.
    Repair,
    /// Evicted jobs stop.
    Stopped,
    Wait(i64),
}

fn any_quota(nominal: std::ops::Range<i64>) -> impl Strategy<Value = Quota> {
    let limit = || proptest::option::weighted(0.4, 0..5i64);
    (nominal, limit(), limit()).prop_map(|(nominal, borrowing, lending)| Quota {
        nominal,
        borrowing,
        lending,
    })
}

/// A ClusterQueue whose first flavor has at least this quota.
fn any_spec(least: i64, parents: usize) -> impl Strategy<Value = Spec> {
    let parent = proptest::option::weighted(0.8, 0..parents.max(1));
    let check = prop_oneof![3 => Just(None), 1 => Just(Some(vec![])), 1 => Just(Some(vec![1]))];
    let rest = (any::<bool>(), (any::<bool>(), any::<bool>()), check, 0..3i64);
    (parent, any_quota(least..least + 6), any_quota(0..5), (0..3u8, 0..3u8, any::<bool>()), rest).prop_map(
        move |(parent, a, b, rules, (strict, next_flavor, check, weight))| Spec {
            parent: parent.filter(|_| parents > 0),
            quotas: [a, b],
            rules,
            strict,
            next_flavor,
            check,
            weight,
        },
    )
}

/// Jobs of at most four CPUs, and a few of more.
fn any_ask() -> impl Strategy<Value = Ask> {
    let size = prop_oneof![4 => (1..5i32, Just(1i64)), 2 => (1..3i32, Just(2i64)), 1 => (3..9i32, 1..3i64)];
    (0..3usize, -1..3i32, size, proptest::option::weighted(0.3, 1..3i32), 0..5usize).prop_map(
        |(queue, priority, (pods, cpus), fewest, topology)| Ask {
            queue,
            priority,
            pods,
            cpus,
            fewest,
            topology,
        },
    )
}

fn any_stop() -> impl Strategy<Value = StopPolicy> {
    prop_oneof![Just(StopPolicy::None), Just(StopPolicy::Hold), Just(StopPolicy::HoldAndDrain)]
}

fn any_op() -> impl Strategy<Value = Op> {
    let i = || any::<usize>();
    let state = prop_oneof![4 => Just(CheckState::Ready), 1 => Just(CheckState::Retry), 1 => Just(CheckState::Rejected)];
    let jobs = prop_oneof![
        12 => any_ask().prop_map(Op::Create),
        3 => (i(), any::<bool>()).prop_map(|(i, late)| Op::Finish(i, late)),
        1 => (i(), any::<bool>()).prop_map(|(i, late)| Op::Delete(i, late)),
        1 => (i(), any_ask()).prop_map(|(i, ask)| Op::Again(i, ask)),
        3 => (i(), any::<bool>()).prop_map(|(i, late)| Op::Reclaim(i, late)),
        4 => (i(), state, any::<bool>()).prop_map(|(i, s, late)| Op::Answer(i, s, late)),
        2 => (i(), any::<bool>()).prop_map(|(i, late)| Op::Active(i, late)),
        1 => (i(), -1..4i32).prop_map(|(i, p)| Op::Priority(i, p)),
        1 => (i(), 0..3usize, any::<bool>()).prop_map(|(i, q, late)| Op::Move(i, q, late)),
    ];
    let objects = prop_oneof![
        2 => (0..3usize, proptest::option::weighted(0.7, any_spec(0, 2))).prop_map(|(q, s)| Op::Queue(q, s)),
        2 => (0..3usize, any_stop()).prop_map(|(q, s)| Op::Stop(q, s)),
        1 => (0..3usize, proptest::option::weighted(0.7, any_stop())).prop_map(|(q, s)| Op::Local(q, s)),
        1 => (0..2usize, proptest::option::weighted(0.7, any_spec(0, 1))).prop_map(|(k, s)| Op::Cohort(k, s)),
        1 => (0..2usize, any::<bool>()).prop_map(|(f, there)| Op::FlavorId(f, there)),
        1 => proptest::option::weighted(0.7, any::<bool>()).prop_map(Op::Check),
        3 => (0..4usize, proptest::option::weighted(0.7, (1..=SIZE, any::<bool>()))).prop_map(|(n, s)| Op::Node(n, s)),
        3 => Just(Op::Repair),
    ];
    prop_oneof![
        6 => jobs,
        2 => objects,
        1 => Just(Op::Restart),
        2 => Just(Op::Stopped),
        2 => (1..20i64).prop_map(Op::Wait),
    ]
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Done),
        1 => Just(Fate::DoneButLate),
        1 => Just(Fate::DoneTwice),
        2 => Just(Fate::Fails),
        2 => Just(Fate::Waits),
    ]
}

/// Two cohorts, the second perhaps below the first; queues in which jobs of four CPUs fit.
fn any_plan(fair: bool, topologies: bool) -> impl Strategy<Value = Plan> {
    let cohorts = (any_spec(0, 0), any_spec(0, 1));
    let rounds = prop_oneof![Just(1), Just(8)];
    let queues = proptest::collection::vec(any_spec(4, 2), 3);
    (cohorts, queues, rounds).prop_map(move |((root, below), queues, rounds)| Plan {
        fair,
        topologies,
        rounds,
        cohorts: vec![root, below],
        queues,
    })
}

fn is_small(w: &Workload) -> bool {
    let p = &w.pod_sets[0];
    i64::from(p.count) * p.spec.containers[0].requests["cpu"] <= 4000
}

impl World {
    fn apply(&mut self, op: Op) {
        let running = |w: &Workload| w.status.is_true(cond::ADMITTED) && objects::holds(w);
        match op {
            Op::Create(ask) => self.create(self.fitting(ask), None),
            Op::Finish(i, late) => {
                self.pick(i, running).into_iter().for_each(|key| self.finish(&key, late));
            }
            Op::Delete(i, late) => self.pick(i, |_| true).into_iter().for_each(|key| self.delete(&key, late)),
            Op::Again(i, ask) => {
                if let Some(key) = self.pick(i, |_| true) {
                    self.remove(&key);
                    self.create(self.fitting(ask), Some(key));
                }
            }
            Op::Reclaim(i, late) => {
                let more = |w: &Workload| {
                    let done: i32 = w.status.reclaimable.iter().map(|r| r.count).sum();
                    running(w) && done < w.pod_sets[0].count
                };
                if let Some(key) = self.pick(i, more) {
                    self.change(&key, late, |w| {
                        let done: i32 = w.status.reclaimable.iter().map(|r| r.count).sum();
                        w.status.reclaimable = vec![ReclaimablePod { name: "main".into(), count: done + 1 }];
                    });
                }
            }
            Op::Answer(i, state, late) => {
                let asked = |w: &Workload| {
                    let pending = w.status.admission_checks.iter().any(|c| c.state == CheckState::Pending);
                    objects::holds(w) && pending && !w.status.is_true(cond::EVICTED)
                };
                let now = self.now.truncate_to_second();
                if let Some(key) = self.pick(i, asked) {
                    self.change(&key, late, |w| {
                        for c in &mut w.status.admission_checks {
                            (c.state, c.transition) = (state, now);
                            c.requeue_after_seconds = (state == CheckState::Retry).then_some(10);
                        }
                    });
                }
            }
            Op::Active(i, late) => {
                if let Some(key) = self.pick(i, |w| !w.status.is_true(cond::FINISHED)) {
                    // It is not known yet that one gets its quota again.
                    let late = late && self.jobs[&key].active;
                    self.change(&key, late, |w| w.active = !w.active);
                }
            }
            Op::Priority(i, p) => {
                self.pick(i, |_| true)
                    .into_iter()
                    .for_each(|key| self.change(&key, false, |w| w.priority = p));
            }
            Op::Move(i, queue, late) => {
                if let Some(key) = self.pick(i, |w| !w.status.is_true(cond::QUOTA_RESERVED) && is_small(w)) {
                    self.change(&key, late, |w| w.queue = format!("l{queue}"));
                }
            }
            op @ (Op::Queue(..)
            | Op::Stop(..)
            | Op::Local(..)
            | Op::Cohort(..)
            | Op::FlavorId(..)
            | Op::Check(_)
            | Op::Node(..)
            | Op::Restart
            | Op::Repair
            | Op::Stopped
            | Op::Wait(_)) => self.change_objects(op),
        }
    }

    fn change_objects(&mut self, op: Op) {
        match op {
            Op::Queue(q, spec) => self.queues[q].spec = spec,
            Op::Stop(q, stop) => self.queues[q].stop = stop,
            Op::Local(q, local) => self.queues[q].local = local,
            Op::Cohort(k, spec) => {
                self.cohorts[k] = spec.map(|s| Spec { parent: s.parent.filter(|_| k > 0), ..s });
            }
            Op::FlavorId(f, there) => self.flavors[f] = there,
            Op::Check(check) => self.check = check,
            Op::Node(n, state) => {
                if !self.plan.topologies {
                    return;
                }
                match state {
                    Some(state) => drop(self.nodes.insert(NODES[n].into(), state)),
                    None => drop(self.nodes.remove(NODES[n])),
                }
            }
            Op::Restart => return self.restart(),
            Op::Repair => {
                self.restore();
            }
            Op::Stopped => {
                self.stop(|| true);
                return;
            }
            Op::Wait(seconds) => {
                self.now = self.now.plus(Duration::from_seconds(seconds));
                return;
            }
            Op::Create(_)
            | Op::Finish(..)
            | Op::Delete(..)
            | Op::Again(..)
            | Op::Reclaim(..)
            | Op::Answer(..)
            | Op::Active(..)
            | Op::Priority(..)
            | Op::Move(..) => return,
        }
        self.tell_all();
    }

    /// Where the order is strict, what can never run would keep all others from running; so would what gets its
    /// quota and then waits for places that there never are.
    fn fitting(&self, ask: Ask) -> Ask {
        let most = match (self.plan.queues[ask.queue].strict, self.plan.topologies) {
            (true, _) => 4,
            (false, true) => 2 * SIZE,
            (false, false) => i64::MAX,
        };
        if i64::from(ask.pods) * ask.cpus > most { Ask { pods: 2, ..ask } } else { ask }
    }
}

fn run(plan: Plan, ops: Vec<(Op, bool)>, fates: Vec<Fate>) {
    let mut world = World::new(plan, fates);
    for (op, settle) in ops {
        world.apply(op);
        checked::step(&mut world);
        if settle {
            checked::drain(&mut world);
        }
    }
    checked::calm(&mut world, &is_small);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nobody ever gets more than there is, the books say what the objects say, and in the end all have run.
    #[test]
    fn nothing_is_given_twice_and_nobody_is_forgotten(
        plan in any_plan(false, false),
        ops in proptest::collection::vec((any_op(), proptest::bool::weighted(0.3)), 1..40),
        fates in proptest::collection::vec(any_fate(), 0..60),
    ) {
        run(plan, ops, fates);
    }

    /// The same with fair sharing.
    #[test]
    fn fair_sharing_gives_nothing_twice(
        plan in any_plan(true, false),
        ops in proptest::collection::vec((any_op(), proptest::bool::weighted(0.3)), 1..40),
        fates in proptest::collection::vec(any_fate(), 0..60),
    ) {
        run(plan, ops, fates);
    }

    /// The same with topologies: no node is given away twice either, also by second passes.
    #[test]
    fn places_are_not_given_twice(
        plan in any_plan(false, true),
        ops in proptest::collection::vec((any_op(), proptest::bool::weighted(0.3)), 1..40),
        fates in proptest::collection::vec(any_fate(), 0..60),
    ) {
        run(plan, ops, fates);
    }

    /// The same where every write and every deactivation fails for as long as anything happens: when the fault ends,
    /// all that was still wanted is done.
    #[test]
    fn lasting_failures_are_made_up_for(
        plan in any_plan(false, false),
        ops in proptest::collection::vec((any_op(), proptest::bool::weighted(0.3)), 1..40),
        good in 0..8usize,
    ) {
        // The first few writes may succeed, so that something is admitted, checked and has to be deactivated.
        let fates = [vec![Fate::Done; good * 4], vec![Fate::Fails; 400]].concat();
        run(plan, ops, fates);
    }
}
