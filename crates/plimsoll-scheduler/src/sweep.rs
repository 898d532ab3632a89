//! Bounds the memory of strings: label values, names and the like of objects that are gone.

use super::Scheduler;

/// Rows that a step looks at to find strings in use, and strings that it forgets: some milliseconds of work.
const ROWS_PER_STEP: usize = 1 << 14;

/// Steps that it takes at most to forget strings, however many there are.
const STEPS: usize = 64;

/// When strings are swept, and how fast.
#[derive(Debug)]
pub(crate) struct Sweeps {
    pub rows_per_step: usize,
    /// Whether one begins before every attempt, for tests.
    pub always: bool,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { rows_per_step: ROWS_PER_STEP, always: false }
    }
}

impl Scheduler {
    /// What a replica does that follows its leader, instead of [`Scheduler::decide`].
    pub fn follow(&mut self) {
        self.reload_pending();
        self.sweep();
    }

    /// Forgets strings that nothing holds any more, when there may be many, some in each step. Called between two attempts, when no
    /// cycle is under way.
    #[inline]
    pub(super) fn sweep(&mut self) {
        let strings = &self.cluster.strings;
        if (strings.is_sweeping() || strings.sweep_due() || self.sweeps.always) && self.extending.is_none() {
            // With more of them it goes faster, or more could come than go.
            self.sweep_some(self.sweeps.rows_per_step.max(strings.len() / STEPS));
        }
    }

    /// Goes on with a sweep, or begins one.
    #[cold]
    fn sweep_some(&mut self, rows: usize) {
        if !self.cluster.strings.is_sweeping() {
            self.cluster.begin_sweep();
        }
        let mut left = rows;
        if !self.cluster.is_marked() {
            left = self.cluster.mark_some(rows);
            if !self.cluster.is_marked() {
                return;
            }
            // What was kept to save work holds strings of what is gone, and is made afresh (ranks by and by, when they are next used):
            // decisions stay the same. What is kept from now on is of what is there.
            self.in_flight_events.values_mut().for_each(super::in_flight::InFlightEvents::forget);
            self.cluster.forget_changes();
        }
        self.cluster.strings.free_some(left);
    }

    /// Forgets all strings that nothing holds.
    #[cold]
    pub(super) fn sweep_now(&mut self) {
        while self.cluster.strings.is_sweeping() {
            self.sweep_some(usize::MAX);
        }
        self.sweep_some(usize::MAX);
        self.ranks.clear(&mut self.cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{busy_history, node, pod, related_history, upsert};
    use super::super::{Action, Config};
    use super::*;
    use crate::testing::Event;
    use plimsoll_state::ObjectEvent;
    use plimsoll_state::time::Time;

    /// `rows`: those that are looked at before each attempt for sweeps that never end.
    fn actions(history: Vec<Vec<Event>>, rows: Option<usize>, labels: usize) -> (String, usize) {
        let mut p = Scheduler::new(Config::default());
        p.sweeps = Sweeps { rows_per_step: rows.unwrap_or(ROWS_PER_STEP), always: rows.is_some() };
        let mut out: Vec<Action> = Vec::new();
        for (at, events) in history.into_iter().enumerate() {
            let now = Time::from_seconds(at as i64 / 3);
            for mut event in events {
                if let Event::Object(ObjectEvent::PodUpsert(pod)) = &mut event {
                    // Names that occur once, in every part that can name something.
                    for i in 0..labels {
                        pod.labels.insert(format!("k{}", (at + i) % 7), format!("v{at}-{i}"));
                    }
                }
                p.apply(now, event);
            }
            p.decide(now, &mut |a| out.push(a));
            if at % 25 == 0 {
                p.check();
            }
        }
        (format!("{out:?}"), p.strings())
    }

    #[test]
    fn sweeping_changes_no_decision() {
        for seed in 0..6 {
            for history in [busy_history(seed, 250), related_history(seed, 250)] {
                let (plain, all) = actions(history.clone(), None, 3);
                // At once, and in parts.
                for rows in [usize::MAX, 50, 7] {
                    let (swept, few) = actions(history.clone(), Some(rows), 3);
                    assert_eq!(plain, swept, "seed {seed}, {rows} rows");
                    assert!(few < all, "{few} of {all}, {rows} rows");
                }
            }
        }
    }

    #[test]
    fn a_million_label_values_are_forgotten() {
        const VALUES: usize = 1_000_000;
        const EACH: usize = 50;
        let mut p = Scheduler::new(Config::default());
        let now = Time::from_seconds(1);
        p.apply(now, node("a", 1000));
        let (mut most, mut bound) = (0, 0);
        for i in 0..VALUES / EACH {
            let mut one = pod("p", 100);
            one.uid = format!("uid-{i}");
            one.labels.extend((0..EACH).map(|k| (format!("k{k}"), format!("v{i}-{k}"))));
            p.apply(now, upsert(one));
            p.decide(now, &mut |a| bound += usize::from(matches!(a, Action::Bind { .. })));
            p.apply(now, Event::Object(ObjectEvent::PodDelete(format!("uid-{i}"))));
            most = most.max(p.strings());
        }
        assert_eq!(bound, VALUES / EACH);
        assert!(most < 80_000, "{most}");
        p.check();
    }
}
