//! Writing why a workload waits: once while nothing has changed, never while an earlier write is unconfirmed, and not
//! more often than it can be read.

mod explanation;

pub(crate) use explanation::Explanation;

use super::ids::WorkloadId;
use super::pending::QueuePosition;
use super::state::WorkloadInfo;
use super::{Amounts, KubernetesEvent, cond, preemption_gates};
use crate::Queueing;
use crate::account::is_admissible;
use crate::phase::Phase;
use explanation::PendingReason;
use plimsoll_state::time::{Duration, Time};

/// How many pauses between explanations a workload is skipped before it is explained why: most that wait for less get
/// their quota first, and need no explanation.
const SKIPPED_FOR: i64 = 5;

impl Queueing {
    /// Records why a head is pending, and writes it.
    pub(crate) fn record_reason(&mut self, id: WorkloadId, reason: &'static str, message: &str, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let requests = self.requests_of(wl);
        let next = PendingReason { reason, message: message.to_owned(), requests };
        let repeats = wl.obj.is_unconfirmed()
            && Phase::of(&wl.obj.status) == Phase::Pending
            && wl.obj.status.is_false(cond::QUOTA_RESERVED);
        if let Some(wl) = self.wl_mut(id) {
            wl.explanation.next = Some(Box::new(next));
        }
        if !repeats {
            self.write_pending_reason(id, now);
        }
    }

    /// What each podset asks for, as in `status.resourceRequests`.
    fn requests_of(&self, wl: &WorkloadInfo) -> Vec<(String, Amounts)> {
        let sets = wl.obj.pod_sets.iter().zip(wl.total_requests());
        sets.map(|(ps, t)| {
            let amounts = t.requests.iter().map(|(r, v)| (self.ids.resource_name(*r), *v)).collect();
            (ps.name.clone(), amounts)
        })
        .collect()
    }

    /// Sets a timer that writes why a workload waits that is skipped because one of its scheduling hash can't run. Kueue
    /// writes nothing, and so does an engine without a pause between explanations.
    pub(crate) fn explain_skipped(&mut self, id: WorkloadId, now: Time) {
        let pause = Duration(self.config.explain_every.0.saturating_mul(SKIPPED_FOR));
        let explicit = self.config.gates.explicit_status;
        let Some(wl) = self.wl_mut(id).filter(|w| !w.explanation.due) else { return };
        // A reason that an earlier cycle gave stays: of that, one write is enough.
        if explicit || pause <= Duration::ZERO || wl.obj.status.is_false(cond::QUOTA_RESERVED) {
            return;
        }
        wl.explanation.due = true;
        self.timers.explain.insert((now.plus(pause), id));
    }

    /// Adopts the reason of its scheduling hash, if the workload still waits for that and has none.
    pub(crate) fn adopt_reason(&mut self, id: WorkloadId) {
        let due = self.wl_mut(id).is_some_and(|w| std::mem::take(&mut w.explanation.due));
        let Some(wl) = self.wl(id).filter(|w| due && w.explanation.next.is_none()) else { return };
        let Some(cq) = wl.queued().filter(|_| !wl.obj.status.is_false(cond::QUOTA_RESERVED)) else { return };
        let pending = &self.cq(cq).pending;
        let stopped = pending
            .stopped(wl.scheduling_hash())
            .filter(|_| pending.position(id) == Some(QueuePosition::Inadmissible));
        let Some((reason, message)) = stopped else {
            // It is in turn, or not known yet to wait again.
            return self.cq_mut(cq).pending.tell_again(id);
        };
        let next = PendingReason { reason, message: message.to_string(), requests: self.requests_of(wl) };
        if let Some(wl) = self.wl_mut(id) {
            wl.explanation.next = Some(Box::new(next));
        }
    }

    /// Schedules the write of the reason why a workload is pending for the next step, if that is known and not written yet.
    pub(crate) fn explain_soon(&mut self, id: WorkloadId, now: Time) {
        if self.wl(id).is_some_and(|w| w.explanation.next.is_some()) {
            self.timers.explain.insert((now, id));
        }
    }

    /// Writes why a workload waits, unless an earlier write is on its way or was made a moment ago.
    pub(crate) fn write_pending_reason(&mut self, id: WorkloadId, now: Time) {
        let explicit = self.config.gates.explicit_status;
        let pause = self.config.explain_every;
        let Some(wl) = self.wl_mut(id) else { return };
        let waits = wl.obj.status.is_false(cond::QUOTA_RESERVED);
        if wl.explanation.next.is_none() || (wl.obj.is_unconfirmed() && waits) {
            return;
        }
        if self.timers.explanations_held {
            self.timers.explain.insert((now, id));
            return;
        }
        let Some(wl) = self.wl_mut(id) else { return };
        if let Some(at) = wl.explanation.written_at.map(|t| t.plus(pause)).filter(|at| waits && *at > now) {
            self.timers.explain.insert((at, id));
            return;
        }
        let Some(next) = wl.explanation.next.take() else { return };
        if Phase::of(&wl.obj.status) != Phase::Pending || !is_admissible(&wl.obj) {
            return;
        }
        let PendingReason { reason, message, requests } = *next;
        let gated = message == preemption_gates::MESSAGE;
        let event = if gated { "AdmissionGated" } else { reason };
        let events = vec![KubernetesEvent::of_scheduler(true, event, message.clone())];
        let written = self.edit(id, now, events, |edit| {
            edit.unset_reservation(explicit, reason, &message);
            if gated {
                edit.set(cond::BLOCKED_ON_GATES, true, preemption_gates::GATED, &message);
            }
            edit.status.resource_requests = requests;
        });
        if let Some(wl) = self.wl_mut(id).filter(|_| written) {
            wl.explanation.written_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, AdmissionFairSharing, Condition, Config, Event, ResourceFlavor};
    use super::*;
    use crate::testing::outside::{Outside, queue};
    use crate::testing::{self as engine, Engine};

    /// Steps until nothing is left to do at this time; how often a reason was written for the last workload.
    fn settle(engine: &mut Engine, outside: &mut Outside, now: Time, mut news: Vec<Event>) -> usize {
        let mut said = 0;
        while !news.is_empty() || engine.next_wake().is_some_and(|t| t <= now) {
            let mut batch = news.drain(..).map(engine::Event::Queueing).collect();
            let mut actions = Vec::new();
            engine.step(now, &mut batch, &mut actions);
            let last = outside.workloads.last().map(|w| &w.key);
            let explains = |a: &&engine::Action| matches!(a, engine::Action::Queueing(Action::UpdateWorkload(u)) if u.explains() && Some(&u.key) == last);
            said += actions.iter().filter(explains).count();
            news = outside.carry_out(actions, &mut std::iter::empty());
        }
        said
    }

    /// How often a reason is written that changes ten times within a tenth of a second, and the last one.
    fn spoken(pause: Duration) -> (usize, String) {
        let config = Config { explain_every: pause, ..Config::default() };
        let mut engine = Engine::new(config);
        let mut outside = Outside::new(Vec::new());
        let mut now = Time::from_seconds(100);
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        let mut news = vec![
            Event::NamespaceUpsert("n".into(), Default::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
        ];
        news.extend(queue(0, 10, None, false));
        news.extend((0..10).map(|_| outside.create(0, 0, 1000)));
        settle(&mut engine, &mut outside, now, news);
        let one = outside.create(0, 0, 10_000);
        let mut said = settle(&mut engine, &mut outside, now, vec![one]);
        for i in 0..9 {
            now = now.plus(Duration::from_millis(10));
            let done = Condition { kind: cond::FINISHED.into(), status: true, ..Condition::default() };
            outside.version += 1;
            let w = &mut outside.workloads[i];
            w.status.conditions.push(done);
            w.version = outside.version;
            let seen = Event::WorkloadUpsert(Box::new(w.clone()));
            said += settle(&mut engine, &mut outside, now, vec![seen]);
        }
        now = now.plus(Duration::from_seconds(2));
        said += settle(&mut engine, &mut outside, now, Vec::new());
        let why = outside.workloads[10].status.condition(cond::QUOTA_RESERVED);
        (said, why.map_or_else(String::new, |c| c.message.clone()))
    }

    #[test]
    fn reasons_that_change_all_the_time_are_written_once_in_a_while() {
        let (at_once, last) = spoken(Duration::ZERO);
        assert_eq!(at_once, 10, "{last}");
        let (paced, also) = spoken(Duration::from_seconds(1));
        assert_eq!((paced, also.as_str()), (2, last.as_str()));
        assert!(last.contains("1 more needed"), "{last}");
    }

    #[test]
    fn equal_workloads_that_are_skipped_say_once_why_they_wait() {
        for (pause, want) in [(Duration::ZERO, 1), (Duration::from_seconds(1), 600)] {
            let config = Config { explain_every: pause, ..Config::default() };
            let mut engine = Engine::new(config);
            let mut outside = Outside::new(Vec::new());
            let mut now = Time::from_seconds(100);
            let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
            let mut news = vec![
                Event::NamespaceUpsert("n".into(), Default::default()),
                Event::ResourceFlavorUpsert(Box::new(flavor)),
            ];
            news.extend(queue(0, 10, None, false));
            news.extend((0..601).map(|_| outside.create(0, 0, 10_000)));
            settle(&mut engine, &mut outside, now, news);
            for _ in 0..3 {
                now = now.plus(Duration::from_seconds(5));
                settle(&mut engine, &mut outside, now, Vec::new());
            }
            let why: Vec<_> =
                outside.workloads.iter().filter_map(|w| w.status.condition(cond::QUOTA_RESERVED)).collect();
            let waiting: Vec<_> = why.iter().filter(|c| !c.status).collect();
            assert_eq!(waiting.len(), want, "{pause:?}");
            assert!(waiting.iter().all(|c| c.reason == waiting[0].reason && c.message == waiting[0].message));
            let version = outside.version;
            // One more write for nobody, also when they are tried again.
            let touched = Event::WorkloadUpsert(Box::new(outside.workloads[0].clone()));
            settle(&mut engine, &mut outside, now.plus(Duration::from_seconds(5)), vec![touched]);
            assert_eq!(outside.version, version);
        }
    }

    /// Two equal workloads of two LocalQueues that share a ClusterQueue by usage: the one that is skipped says why it waits, too.
    #[test]
    fn who_is_skipped_says_why_with_admission_fair_sharing() {
        for strict in [false, true] {
            equal_workloads_say_why(strict);
        }
    }

    fn equal_workloads_say_why(strict: bool) {
        let admission_fair_sharing = Some(AdmissionFairSharing {
            half_life: Duration::from_seconds(1),
            sampling: Duration::from_seconds(1),
            weights: Default::default(),
        });
        let config =
            Config { admission_fair_sharing, explain_every: Duration::from_seconds(1), ..Config::default() };
        let mut engine = Engine::new(config);
        let mut outside = Outside::new(Vec::new());
        let flavor = ResourceFlavor { name: "f".into(), ..ResourceFlavor::default() };
        let mut news = vec![
            Event::NamespaceUpsert("n".into(), Default::default()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
        ];
        let [mut cq, first] = queue(0, 10, None, strict);
        let [_, mut second] = queue(1, 10, None, strict);
        if let (Event::ClusterQueueUpsert(cq), Event::LocalQueueUpsert(second)) = (&mut cq, &mut second) {
            cq.admission_fair_sharing = true;
            second.cluster_queue = "c0".into();
        }
        news.extend([cq, first, second]);
        // The second has used the queue before, the first uses it now.
        news.push(outside.create(1, 0, 10_000));
        let mut now = Time::from_seconds(100);
        settle(&mut engine, &mut outside, now, news);
        now = now.plus(Duration::from_millis(1100));
        settle(&mut engine, &mut outside, now, Vec::new());
        let done = Condition { kind: cond::FINISHED.into(), status: true, ..Condition::default() };
        let key = outside.workloads[0].key.clone();
        let ended = outside.change(&key, |w| w.status.conditions.push(done));
        let news = ended.into_iter().chain([outside.create(0, 0, 10_000)]).collect();
        now = now.plus(Duration::from_millis(300));
        settle(&mut engine, &mut outside, now, news);
        for queue in 0..2 {
            let news = vec![outside.create(queue, 0, 10_000)];
            now = now.plus(Duration::from_millis(20));
            settle(&mut engine, &mut outside, now, news);
        }
        let end = now.plus(Duration::from_seconds(8));
        while let Some(at) = engine.next_wake().filter(|at| *at < end) {
            now = now.max(at);
            settle(&mut engine, &mut outside, now, Vec::new());
        }
        let said = |i: usize| outside.workloads[i].status.is_false(cond::QUOTA_RESERVED);
        assert!(said(2) && said(3), "strict: {strict}, {:?}", [said(2), said(3)]);
    }
}
