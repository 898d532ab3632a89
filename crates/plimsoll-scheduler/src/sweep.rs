//! Bounds the memory of strings: label values, names and the like of objects that are gone.

use super::Scheduler;

impl Scheduler {
    /// What a replica does that follows its leader, instead of [`Scheduler::decide`].
    pub fn follow(&mut self) {
        self.reload_pending();
        self.sweep();
    }

    /// Forgets strings that nothing holds any more, when there may be many. Called between two attempts, when no cycle is
    /// under way. What was kept to save work holds strings, too, and is made afresh: decisions stay the same.
    #[inline]
    pub(super) fn sweep(&mut self) {
        if self.cluster.strings.sweep_due() || self.sweeps_always {
            self.sweep_now();
        }
    }

    #[cold]
    pub(super) fn sweep_now(&mut self) {
        self.in_flight_events.values_mut().for_each(super::in_flight::InFlightEvents::forget);
        self.ranks.clear(&mut self.cluster);
        self.cluster.sweep_strings();
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

    fn actions(history: Vec<Vec<Event>>, sweeps: bool, labels: usize) -> (String, usize) {
        let mut p = Scheduler::new(Config::default());
        p.sweeps_always = sweeps;
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
                let (plain, all) = actions(history.clone(), false, 3);
                let (swept, few) = actions(history, true, 3);
                assert_eq!(plain, swept, "seed {seed}");
                assert!(few < all, "{few} of {all}");
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
