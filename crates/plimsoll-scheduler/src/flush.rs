//! Pods whose time is over: their backoff, or the time that they wait for an event.

use super::Scheduler;
use super::queue::MoveCause;

impl Scheduler {
    /// Moves such pods, as many as a step has time for. None is scheduled until all are moved, since those that are left may come first.
    pub(super) fn flush_queue(&mut self) {
        let no_backoff_left = self.queue.flush_backoff(self.now);
        let (late, all) = self.queue.unschedulable_leftover(self.now);
        for id in late {
            if let Some(row) = self.queue.get_mut(id) {
                row.flushed = true;
            }
            self.retry(id);
            self.queue.came(id, MoveCause::UnschedulableTimeout);
        }
        self.queue.is_behind = !(no_backoff_left && all);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{binds, busy_history, decide, node, pod, upsert};
    use super::super::{Action, Config};
    use super::*;
    use crate::testing::Event;
    use plimsoll_state::ObjectEvent;
    use plimsoll_state::time::{Duration, Time};

    /// Steps that move a pod each come to what one does that moves all of them.
    #[test]
    fn pods_that_are_moved_in_parts_are_scheduled_as_those_moved_at_once() {
        for seed in 0..6 {
            let config = Config { max_in_unschedulable: Duration::from_seconds(20), ..Config::default() };
            let (mut long, mut short) = (Scheduler::new(config.clone()), Scheduler::new(config));
            short.queue.moves_per_step = 1;
            let mut parts = 0;
            for (at, events) in busy_history(seed, 250).into_iter().enumerate() {
                let now = Time::from_seconds(at as i64);
                for event in events {
                    long.apply(now, event.clone());
                    short.apply(now, event);
                }
                let (want, mut got) = (decide(&mut long, now), decide(&mut short, now));
                while short.queue.is_behind {
                    assert_eq!(short.next_wake(), Some(now), "goes on at once");
                    parts += 1;
                    got.append(&mut decide(&mut short, now));
                }
                assert_eq!(want, got, "seed {seed}, step {at}");
                for action in &want {
                    if let Action::Preempt { victim, .. } = action {
                        let gone = Event::Object(ObjectEvent::PodDelete(victim.uid.clone()));
                        long.apply(now, gone.clone());
                        short.apply(now, gone);
                    }
                }
                short.check();
            }
            assert!(parts > 10, "seed {seed}: {parts}");
        }
    }

    /// What has waited for too long comes back in parts, and nothing is scheduled before all of it is back.
    #[test]
    fn no_step_moves_more_pods_than_it_should() {
        let mut p = Scheduler::new(Config::default());
        p.queue.moves_per_step = 10;
        p.apply(Time::from_seconds(1), node("n", 1000));
        for i in 0..35 {
            p.apply(Time::from_seconds(1), upsert(pod(&format!("p{i}"), 2000)));
        }
        decide(&mut p, Time::from_seconds(1));
        assert_eq!(p.queue_counts().unschedulable, 35);
        let later = Time::from_seconds(400);
        for left in [25, 15, 5] {
            assert!(binds(&decide(&mut p, later)).is_empty());
            let counts = p.queue_counts();
            assert_eq!((counts.unschedulable, counts.active), (left, 35 - left));
        }
        decide(&mut p, later);
        assert_eq!((p.queue_counts().unschedulable, p.queue.is_behind), (35, false));
    }
}
