//! Saying why a workload waits: once while nothing has changed, never before what was said before is written, and not
//! more often than somebody can read it.

use super::super::account::{Phase, is_admissible};
use super::super::pending::WlId;
use super::super::state::{Queueing, Unsaid};
use super::super::{Note, cond, preemption_gates};
use super::Entry;
use crate::time::Time;

impl Queueing {
    /// Notes why a head waits, and says it.
    pub(super) fn say_why(&mut self, e: &Entry, now: Time) {
        let Some(wl) = self.wl(e.id) else { return };
        let requests: Vec<_> = wl
            .obj
            .pod_sets
            .iter()
            .zip(&wl.totals)
            .map(|(ps, t)| {
                let amounts =
                    t.requests.iter().map(|(r, v)| (self.ids.resource_name(*r).to_owned(), *v)).collect();
                (ps.name.clone(), amounts)
            })
            .collect();
        let unsaid = Unsaid { reason: e.reason, message: e.message.clone(), requests };
        let repeats = !wl.writes.is_empty()
            && Phase::of(&wl.obj.status) == Phase::Pending
            && wl.obj.status.is_false(cond::QUOTA_RESERVED);
        if let Some(wl) = self.wl_mut(e.id) {
            wl.unsaid = Some(Box::new(unsaid));
        }
        if !repeats {
            self.say_unsaid(e.id, now);
        }
    }

    /// Writes why a workload waits, unless an earlier write is on its way or was made a moment ago.
    pub(crate) fn say_unsaid(&mut self, id: WlId, now: Time) {
        let explicit = self.config.gates.explicit_status;
        let pause = self.config.explain_every;
        let Some(wl) = self.wl_mut(id) else { return };
        let waits = wl.obj.status.is_false(cond::QUOTA_RESERVED);
        if wl.unsaid.is_none() || (!wl.writes.is_empty() && waits) {
            return;
        }
        if let Some(at) = wl.said.map(|t| t.plus(pause)).filter(|at| waits && *at > now) {
            self.say_later.insert((at, id));
            return;
        }
        let Some(unsaid) = wl.unsaid.take() else { return };
        if Phase::of(&wl.obj.status) != Phase::Pending || !is_admissible(&wl.obj) {
            return;
        }
        let Unsaid { reason, message, requests } = *unsaid;
        let notes = vec![Note { warning: true, reason: reason.into(), message: message.clone() }];
        let gated = reason == "AdmissionGated";
        let written = self.edit(id, now, notes, |edit| {
            edit.unset_reservation(explicit, reason, &message);
            if gated {
                edit.set(cond::BLOCKED_ON_GATES, true, preemption_gates::GATED, &message);
            }
            edit.status.resource_requests = requests;
        });
        if let Some(wl) = self.wl_mut(id).filter(|_| written) {
            wl.said = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{queue, workload};
    use super::super::super::{Action, Condition, Config, Event, ResourceFlavor, Workload};
    use super::*;
    use crate::engine::{self, Engine, EngineConfig};
    use crate::time::Duration;

    /// An engine of one queue of ten CPUs, and an API server that takes every write at once.
    struct World {
        engine: Engine,
        workloads: Vec<Workload>,
        now: Time,
        /// Reasons written for the last workload.
        said: Vec<String>,
    }

    impl World {
        fn new(pause: Duration) -> Self {
            let config = Config { explain_every: pause, ..Config::default() };
            let engine = Engine::new(EngineConfig { place: None, queueing: Some(config), joint: false });
            let mut w =
                Self { engine, workloads: Vec::new(), now: Time::from_seconds(100), said: Vec::new() };
            let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
            let flavor = Event::ResourceFlavorUpsert(Box::new(flavor));
            let namespace = Event::NamespaceUpsert("n".into(), Default::default());
            w.step([flavor, namespace].into_iter().chain(queue(0, 10, None, false)).collect());
            w
        }

        fn create(&mut self, cpus: i64) {
            let w = workload(self.workloads.len(), 0, 0, cpus * 1000);
            self.workloads.push(w.clone());
            self.step(vec![Event::WorkloadUpsert(Box::new(w))]);
        }

        /// A workload ends.
        fn finish(&mut self, i: usize) {
            let kind = cond::FINISHED.into();
            let done = Condition { kind, status: true, ..Condition::default() };
            self.workloads[i].status.conditions.push(done);
            self.workloads[i].version += 1;
            self.step(vec![Event::WorkloadUpsert(Box::new(self.workloads[i].clone()))]);
        }

        fn step(&mut self, mut news: Vec<Event>) {
            while !news.is_empty() || self.engine.next_wake().is_some_and(|t| t <= self.now) {
                let mut batch = news.drain(..).map(engine::Event::Queueing).collect();
                let mut actions = Vec::new();
                self.engine.step(self.now, &mut batch, &mut actions);
                for action in actions {
                    let engine::Action::Queueing(Action::UpdateWorkload(u)) = action else { continue };
                    let Some(i) = self.workloads.iter().position(|w| w.key == u.key) else { continue };
                    let w = &mut self.workloads[i];
                    u.apply(&mut w.status);
                    w.version += 1;
                    let w = w.clone();
                    if i + 1 == self.workloads.len() && u.explains() {
                        self.said.extend(w.status.condition(cond::QUOTA_RESERVED).map(|c| c.message.clone()));
                    }
                    news.push(Event::Written { key: u.key.clone(), id: u.id, version: w.version });
                    news.push(Event::WorkloadUpsert(Box::new(w)));
                }
            }
        }

        fn wait(&mut self, millis: i64) {
            self.now = self.now.plus(Duration::from_millis(millis));
            self.step(Vec::new());
        }
    }

    /// How often a reason is written that changes ten times within a tenth of a second, and the last one.
    fn spoken(pause: Duration) -> (usize, String) {
        let mut w = World::new(pause);
        (0..10).for_each(|_| w.create(1));
        w.create(10);
        for i in 0..9 {
            w.wait(10);
            w.finish(i);
        }
        w.wait(2_000);
        (w.said.len(), w.said.last().cloned().unwrap_or_default())
    }

    #[test]
    fn reasons_that_change_all_the_time_are_written_once_in_a_while() {
        let (at_once, last) = spoken(Duration::ZERO);
        assert_eq!(at_once, 10, "{last}");
        let (paced, also) = spoken(Duration::from_seconds(1));
        assert_eq!((paced, also.as_str()), (2, last.as_str()));
        assert!(last.contains("1 more needed"), "{last}");
    }
}
