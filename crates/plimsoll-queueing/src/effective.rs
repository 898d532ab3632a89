//! The effective object of a workload: what the API showed last, and the writes that are on their way.

use std::ops::Deref;

use super::cond;
use super::conditions::Edit;
use super::metrics::{Observation, observations_of};
use super::model::{PodSets, Workload, WorkloadStatus};
use super::update::{WorkloadUpdate, difference};
use plimsoll_state::time::Time;

/// How many writes of one workload may be unconfirmed; beyond that the oldest is taken as done.
const MAX_UNCONFIRMED: usize = 32;

/// A write that is not confirmed yet.
#[derive(Debug)]
struct Write {
    update: Box<WorkloadUpdate>,
    /// What to count once it is confirmed.
    observations: Vec<Observation>,
}

/// A workload as it is once all writes on their way are done. It can be read like the object; its status changes by
/// [`EffectiveWorkload::edit`], and by what becomes of writes.
#[derive(Debug)]
pub(crate) struct EffectiveWorkload {
    obj: Box<Workload>,
    /// The status that the API showed last, while writes are on their way.
    base: Option<Box<WorkloadStatus>>,
    writes: Vec<Write>,
}

impl Deref for EffectiveWorkload {
    type Target = Workload;

    fn deref(&self) -> &Workload {
        &self.obj
    }
}

/// A write that was made.
pub(crate) struct Written {
    pub(crate) update: Box<WorkloadUpdate>,
    /// What to count of an older write that is taken as done.
    pub(crate) observations: Vec<Observation>,
}

/// Writes that were confirmed.
pub(crate) struct Confirmed {
    /// What to count of them.
    pub(crate) observations: Vec<Observation>,
    /// Whether the watch showed a later version before: the status is what that said.
    pub(crate) overtaken: bool,
}

/// What the watch showed.
pub(crate) struct Shown {
    /// What to count of writes that it has in it.
    pub(crate) observations: Vec<Observation>,
    /// Whether it has another reservation than before. A list may show the next one and not that the one before ended.
    pub(crate) reserved_anew: bool,
}

impl EffectiveWorkload {
    /// An object that was seen first.
    pub(crate) fn new(w: Workload) -> Self {
        Self { obj: Box::new(w), base: None, writes: Vec::new() }
    }

    /// The status that the API showed last.
    pub(crate) fn shown(&self) -> &WorkloadStatus {
        self.base.as_deref().unwrap_or(&self.obj.status)
    }

    /// Whether writes are on their way.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Whether a write that reserves quota is on its way.
    pub(crate) fn is_reserving(&self) -> bool {
        self.writes.iter().any(|w| matches!(w.update.admission, Some(Some(_))))
    }

    /// Whether another client has reserved quota while the write of a pending reason was on its way. That write fails, because it
    /// was made for an older version; until then the status is what neither of them wants: an admission, and no quota.
    pub(crate) fn is_reserved_by_others(&self) -> bool {
        let shown = self.shown();
        shown.is_true(cond::QUOTA_RESERVED)
            && shown.admission.is_some()
            && !self.obj.status.is_true(cond::QUOTA_RESERVED)
            && self.writes.iter().all(|w| w.update.admission.is_none())
    }

    /// The write of this number, if it is on its way.
    pub(crate) fn write(&self, id: u64) -> Option<&WorkloadUpdate> {
        self.writes.iter().find(|w| w.update.id == id).map(|w| &*w.update)
    }

    /// Changes the status, and makes the write of it: `write`, which has its number and its events, with what has changed; `None`: nothing has
    /// changed. `by`: the ClusterQueue of a preemptor.
    pub(crate) fn edit(
        &mut self,
        write: WorkloadUpdate,
        by: Option<String>,
        now: Time,
        change: impl FnOnce(&mut Edit<'_>),
    ) -> Option<Written> {
        let (old, generation) = (self.obj.status.clone(), self.obj.generation);
        change(&mut Edit { status: &mut self.obj.status, generation, now });
        let mut update = difference(&old, &self.obj)?;
        (update.id, update.events, update.bytes) = (write.id, write.events, write.bytes);
        self.writes.iter().for_each(|w| update.complete(&w.update, &self.obj.status));
        let update = Box::new(update);
        let observations = observations_of(&old, &self.obj, by, now);
        let base = self.base.get_or_insert_with(|| Box::new(old));
        let mut confirmed = Vec::new();
        if self.writes.len() >= MAX_UNCONFIRMED {
            let oldest = self.writes.remove(0);
            oldest.update.apply(base);
            confirmed = oldest.observations;
        }
        self.writes.push(Write { update: update.clone(), observations });
        Some(Written { update, observations: confirmed })
    }

    /// A write was carried out; the object had this version afterwards, 0 if that is not known. `None`: the write is not on its
    /// way.
    pub(crate) fn confirm(&mut self, write: u64, version: u64) -> Option<Confirmed> {
        let at = self.writes.iter().position(|p| p.update.id == write)?;
        // Those before it were carried out before it, and it says again what they said.
        let done: Vec<Write> = self.writes.drain(..=at).collect();
        // What the watch showed since has this write in it already, and what others changed after it.
        let overtaken = version != 0 && version <= self.obj.version;
        // What the watch still brings of older versions is older than this write.
        self.obj.version = self.obj.version.max(version);
        if let Some(mut base) = self.base.take() {
            if overtaken {
                self.obj.status.clone_from(&base);
                self.writes.iter().for_each(|w| w.update.apply(&mut self.obj.status));
            } else {
                done.iter().for_each(|w| w.update.apply(&mut base));
            }
            self.base = (!self.writes.is_empty()).then_some(base);
        }
        self.forget_capacity();
        let observations = done.into_iter().flat_map(|w| w.observations).collect();
        Some(Confirmed { observations, overtaken })
    }

    /// A write failed: the status is what the API showed plus the other writes. Whether writes were on their way.
    pub(crate) fn fail(&mut self, write: u64) -> bool {
        self.writes.retain(|p| p.update.id != write);
        let Some(mut status) = self.base.as_deref().cloned() else { return false };
        self.writes.iter().for_each(|p| p.update.apply(&mut status));
        self.obj.status = status;
        self.forget_capacity();
        if self.writes.is_empty() {
            self.base = None;
        }
        true
    }

    /// Most workloads have no writes on their way at most times: none of them keeps room for some.
    fn forget_capacity(&mut self) {
        if self.writes.is_empty() {
            self.writes = Vec::new();
        }
    }

    /// The watch showed the object: confirms the writes that it has in it, and applies those left to it. It is the effective
    /// object once it is given to [`EffectiveWorkload::replace`].
    pub(crate) fn show(&mut self, shown: &mut Workload) -> Shown {
        let mut observations = Vec::new();
        // What is new in the object was carried out, and whatever was to be done before it.
        let new = |p: &Write| {
            p.update.shows_in(&shown.status) && self.base.as_ref().is_some_and(|b| !p.update.shows_in(b))
        };
        if let Some(at) = self.writes.iter().rposition(new) {
            observations.extend(self.writes.drain(..=at).flat_map(|p| p.observations));
        }
        self.writes.retain_mut(|p| {
            let is_shown = p.update.shows_in(&shown.status);
            if is_shown {
                observations.append(&mut p.observations);
            }
            !is_shown
        });
        let reserved_anew = self.base.as_deref().is_some_and(|b| {
            b.admission.is_some() && shown.status.admission.is_some() && b.admission != shown.status.admission
        });
        self.forget_capacity();
        if self.writes.is_empty() {
            self.base = None;
        } else {
            self.base = Some(Box::new(shown.status.clone()));
            self.writes.iter().for_each(|p| p.update.apply(&mut shown.status));
        }
        Shown { observations, reserved_anew }
    }

    /// Takes what [`EffectiveWorkload::show`] made of the object as shown, and gives the object before.
    pub(crate) fn replace(&mut self, w: Workload) -> Workload {
        std::mem::replace(&mut *self.obj, w)
    }

    /// The podsets, to share with equal ones.
    pub(crate) fn pod_sets_mut(&mut self) -> &mut PodSets {
        &mut self.obj.pod_sets
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::model::{Admission, RequeueState};
    use super::*;

    /// What happens to a workload.
    #[derive(Clone, Debug)]
    enum Op {
        /// A condition is set.
        Edit(usize, bool, u8),
        /// The oldest write is carried out.
        CarryOut,
        /// The oldest answer comes.
        Answer,
        /// The oldest write fails.
        Fail,
        /// The watch shows the object.
        Show,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..3usize, any::<bool>(), 0..3u8).prop_map(|(kind, status, text)| Op::Edit(kind, status, text)),
            Just(Op::CarryOut),
            Just(Op::Answer),
            Just(Op::Fail),
            Just(Op::Show),
        ]
    }

    /// The API server, and the writes on their way to it.
    struct Server {
        shown: Workload,
        writes: VecDeque<Box<WorkloadUpdate>>,
        /// Numbers of writes that were carried out, with the versions afterwards.
        answers: VecDeque<(u64, u64)>,
    }

    impl Server {
        fn carry_out(&mut self) {
            let Some(update) = self.writes.pop_front() else { return };
            update.apply(&mut self.shown.status);
            self.shown.version += 1;
            self.answers.push_back((update.id, self.shown.version));
        }
    }

    fn sorted(status: &WorkloadStatus) -> WorkloadStatus {
        let mut status = status.clone();
        status.conditions.sort_by(|a, b| a.kind.cmp(&b.kind));
        status
    }

    proptest! {
        #[test]
        fn the_status_is_what_is_shown_and_the_writes_on_their_way(ops in proptest::collection::vec(op(), 0..60)) {
            let kinds = [cond::QUOTA_RESERVED, cond::EVICTED, cond::BLOCKED_ON_GATES];
            let first = Workload { version: 1, ..Workload::default() };
            let mut server = Server { shown: first.clone(), writes: VecDeque::new(), answers: VecDeque::new() };
            let mut wl = EffectiveWorkload::new(first);
            for (id, op) in (1u64..).zip(ops) {
                match op {
                    Op::Edit(kind, status, text) => {
                        let write = WorkloadUpdate { id, ..WorkloadUpdate::default() };
                        let made = wl.edit(write, None, Time::from_seconds(1), |e| {
                            e.set(kinds[kind], status, "Reason", &text.to_string());
                        });
                        server.writes.extend(made.map(|m| m.update));
                    }
                    Op::CarryOut => server.carry_out(),
                    Op::Answer => {
                        if let Some((id, version)) = server.answers.pop_front() {
                            wl.confirm(id, version);
                        }
                    }
                    Op::Fail => {
                        if let Some(failed) = server.writes.pop_front() {
                            wl.fail(failed.id);
                        }
                    }
                    Op::Show => {
                        let mut shown = server.shown.clone();
                        if shown.version >= wl.version {
                            wl.show(&mut shown);
                            drop(wl.replace(shown));
                        }
                    }
                }
                let mut status = wl.shown().clone();
                wl.writes.iter().for_each(|w| w.update.apply(&mut status));
                prop_assert_eq!(sorted(&status), sorted(&wl.status));
                prop_assert_eq!(wl.base.is_some(), wl.is_unconfirmed());
            }
            while !server.writes.is_empty() {
                server.carry_out();
            }
            for (id, version) in std::mem::take(&mut server.answers) {
                wl.confirm(id, version);
            }
            let mut shown = server.shown.clone();
            wl.show(&mut shown);
            drop(wl.replace(shown));
            prop_assert!(!wl.is_unconfirmed());
            prop_assert_eq!(sorted(&wl.status), sorted(&server.shown.status));
        }
    }

    /// One field of a status that the engine writes, by number.
    fn change(e: &mut Edit<'_>, field: usize, set: bool, value: u8) {
        let kinds = [cond::QUOTA_RESERVED, cond::EVICTED, cond::BLOCKED_ON_GATES];
        let status = &mut *e.status;
        match field {
            3 => {
                let admission = Admission { cluster_queue: value.to_string(), ..Admission::default() };
                status.admission = set.then(|| Box::new(admission));
            }
            4 => {
                let state = RequeueState { count: i32::from(value), ..RequeueState::default() };
                status.requeue_state = set.then_some(state);
            }
            5 => status.past_execution_seconds = set.then_some(i32::from(value)),
            6 => status.unhealthy_nodes = vec![value.to_string(); usize::from(set)],
            kind => match kinds.get(kind) {
                Some(kind) if value > 0 => {
                    e.set(kind, set, "Reason", &value.to_string());
                }
                Some(kind) => status.conditions.retain(|c| c.kind != *kind),
                None => {}
            },
        }
    }

    proptest! {
        /// Whichever of the writes on their way fail: the last one does what all of them would have done.
        #[test]
        fn a_write_is_complete_without_those_before_it(
            shown in proptest::collection::vec((0..7usize, any::<bool>(), 0..3u8), 0..6),
            edits in proptest::collection::vec((0..7usize, any::<bool>(), 0..3u8), 1..8),
            fails in proptest::collection::vec(any::<bool>(), 8),
        ) {
            let mut first = Workload { version: 1, ..Workload::default() };
            for (field, set, value) in shown {
                let now = Time::from_seconds(1);
                change(&mut Edit { status: &mut first.status, generation: 0, now }, field, set, value);
            }
            let mut server = first.status.clone();
            let mut wl = EffectiveWorkload::new(first);
            let mut writes = Vec::new();
            for (id, (field, set, value)) in (1u64..).zip(edits) {
                let write = WorkloadUpdate { id, ..WorkloadUpdate::default() };
                let made = wl.edit(write, None, Time::from_seconds(2), |e| change(e, field, set, value));
                writes.extend(made.map(|m| m.update));
            }
            let last = writes.len().saturating_sub(1);
            for (i, write) in writes.iter().enumerate() {
                if i == last || fails.get(i) == Some(&false) {
                    write.apply(&mut server);
                }
            }
            prop_assert_eq!(sorted(&server), sorted(&wl.status));
        }
    }
}
