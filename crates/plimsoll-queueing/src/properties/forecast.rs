//! Forecasts are what happens, if nothing else comes and everything runs as long as it may.

use super::*;
use crate::Forecast;

/// A workload: queue, priority, thousandths of a CPU, seconds that it runs.
type Job = (usize, i32, i64, Option<i32>);

fn any_job() -> impl Strategy<Value = Job> {
    let seconds = prop_oneof![8 => (1..60i32).prop_map(Some), 1 => Just(None)];
    (any::<usize>(), -1..2i32, 1..7i64, seconds).prop_map(|(q, p, a, s)| (q, p, a * 1000, s))
}

/// Nobody preempts.
fn peaceful() -> impl Strategy<Value = Spec> {
    any_spec().prop_map(|spec| Spec { rules: (0, 0, false), ..spec })
}

impl Trees {
    /// Steps at the present time until nothing is left to do.
    fn exhaust(&mut self, mut events: Vec<Event>) {
        for _ in 0..1000 {
            let (answers, _) = self.step_once(events);
            events = answers.into_iter().flat_map(|(_, events)| events).collect();
            if events.is_empty() && self.engine.next_wake().is_none_or(|wake| wake > self.now) {
                return;
            }
        }
        panic!("goes on for ever");
    }

    fn submit(&mut self, (queue, priority, amount, seconds): Job) -> WorkloadKey {
        self.made += 1;
        let mut w = workload(self.made, queue % self.queues.len(), priority, amount);
        (w.creation, w.max_execution_seconds) = (self.now, seconds);
        self.outside.workloads.push(w.clone());
        let key = w.key.clone();
        self.exhaust(vec![Event::WorkloadUpsert(Box::new(w))]);
        key
    }

    fn forecast(&mut self, (queue, priority, amount, seconds): Job) -> Forecast {
        let mut w = workload(999, queue % self.queues.len(), priority, amount);
        w.max_execution_seconds = seconds;
        let now = self.now;
        let forecast = self.engine.queueing_mut().unwrap().forecast(w, now).unwrap();
        self.engine.check();
        forecast
    }

    /// Goes on to the time at which the next workload ends, and ends all that do then. `false`: nothing ends.
    fn next_end(&mut self) -> bool {
        let end = |w: &Workload| {
            let since = w.status.condition(cond::ADMITTED).filter(|c| c.status)?.transition;
            let runs = !w.status.is_true(cond::FINISHED);
            let seconds = w.max_execution_seconds.filter(|_| runs)?;
            Some(since.plus(Duration::from_seconds(i64::from(seconds))))
        };
        let all: Vec<(Time, WorkloadKey)> =
            self.all().into_iter().filter_map(|w| Some((end(w)?, w.key.clone()))).collect();
        let Some(at) = all.iter().map(|(at, _)| *at).min() else { return false };
        self.now = at;
        let due = all.into_iter().filter(|(end, _)| *end == at);
        let done = Condition { kind: cond::FINISHED.into(), status: true, ..Condition::default() };
        let ended: Vec<Event> = due
            .filter_map(|(_, key)| self.outside.change(&key, |w| w.status.conditions.push(done.clone())))
            .collect();
        self.exhaust(ended);
        true
    }

    fn admitted_at(&mut self, key: &WorkloadKey) -> Option<Time> {
        let w = self.outside.find(key)?;
        w.status.condition(cond::ADMITTED).filter(|c| c.status).map(|c| c.transition)
    }
}

fn forecasts_come_true(cohorts: &[Spec], queues: &[Spec], fair: bool, jobs: &[Job], asked: Job) {
    let mut trees = Trees::new(cohorts, queues, fair);
    trees.now = Time::from_seconds(2_000);
    for job in jobs {
        trees.submit(*job);
        trees.now = trees.now.plus(Duration::from_seconds(1));
        // Those that have ended by now.
        let now = trees.now;
        while trees.next_end_before(now) {}
        trees.now = now;
    }
    let forecast = trees.forecast(asked);
    let key = trees.submit(asked);
    let mut start = trees.admitted_at(&key);
    while start.is_none() && trees.next_end() {
        start = trees.admitted_at(&key);
    }
    assert_eq!(forecast.message, "");
    assert_eq!(forecast.start, start);
}

impl Trees {
    /// [`Trees::next_end`], if that is at this time or before.
    fn next_end_before(&mut self, now: Time) -> bool {
        let due = |w: &&Workload| {
            let since = w.status.condition(cond::ADMITTED).filter(|c| c.status).map(|c| c.transition);
            let seconds = w.max_execution_seconds.filter(|_| !w.status.is_true(cond::FINISHED));
            since.zip(seconds).is_some_and(|(at, s)| at.plus(Duration::from_seconds(i64::from(s))) <= now)
        };
        let is_due = self.all().iter().any(due);
        is_due && self.next_end()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 128 } else { 512 }))]

    #[test]
    fn forecasts_are_what_happens(
        cohorts in proptest::collection::vec(peaceful(), 1..4),
        queues in proptest::collection::vec(peaceful(), 1..5),
        fair in any::<bool>(),
        jobs in proptest::collection::vec(any_job(), 0..9),
        asked in any_job(),
    ) {
        forecasts_come_true(&cohorts, &queues, fair, &jobs, asked);
    }
}

/// The head of a strict queue reserves its nominal quota in every cycle, not in the first one only.
#[test]
fn the_head_of_a_strict_queue_keeps_what_it_waits_for() {
    let spec = |nominal, strict| Spec {
        parent: 0,
        nominal,
        borrowing: None,
        lending: None,
        rules: (0, 0, false),
        strict,
    };
    let queues = [spec(3000, false), spec(0, false), spec(5000, true)];
    let jobs: [Job; 4] =
        [(0, 0, 1000, Some(48)), (0, 0, 5000, Some(4)), (2, 1, 5000, Some(42)), (0, 0, 4000, Some(18))];
    forecasts_come_true(&[spec(2000, false)], &queues, false, &jobs, (2, 1, 4000, Some(24)));
}
