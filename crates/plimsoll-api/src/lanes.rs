//! The order of writes: one at a time for each object, in the order the engine asked for them; between objects those
//! that decide something before those that only explain, and what was overtaken while it waited is left out.

use std::collections::{HashMap, VecDeque};

use plimsoll_engine::Action;
use plimsoll_queueing::{Action as QueueAction, WorkloadKey};
use plimsoll_scheduler::{Action as SchedulerAction, ExtenderCall};

/// Of so many writes one explains something where explanations wait, however many decisions do.
const EXPLAINED: u32 = 16;

/// Object that a write is about: pods by UID, workloads and loans by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// A pod.
    Pod(String),
    /// A workload.
    Workload(WorkloadKey),
    /// A QuotaLoan, by name.
    Loan(String),
    /// A question to an extender about a pod; questions to different extenders don't wait for each other.
    Extender(String, usize),
}

/// What an action leads to: each has a queue, and may have a limit, of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Writes to workloads and loans.
    Workloads,
    /// Writes to pods.
    Pods,
    /// What is written for pods before they are bound. It may take long to find out whether a claim for devices is allocated:
    /// bindings of other pods do not wait for that.
    PreBind,
    /// Questions to extenders.
    Extenders,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Workloads, Self::Pods, Self::PreBind, Self::Extenders];

    /// The group of an action that has a lane.
    const fn of(action: &Action, lane: &Lane) -> Self {
        match (action, lane) {
            (Action::Scheduler(SchedulerAction::Prepare { .. }), _) => Self::PreBind,
            (_, Lane::Pod(_)) => Self::Pods,
            (_, Lane::Workload(_) | Lane::Loan(_)) => Self::Workloads,
            (_, Lane::Extender(..)) => Self::Extenders,
        }
    }
}

impl Lane {
    /// Where an action belongs; `None`: it needs no lane.
    pub fn of(action: &Action) -> Option<Self> {
        match action {
            Action::Scheduler(
                SchedulerAction::Bind { pod, .. }
                | SchedulerAction::Prepare { pod, .. }
                | SchedulerAction::Unschedulable { pod, .. }
                | SchedulerAction::Nominate { pod, .. }
                | SchedulerAction::ReleaseClaims { pod, .. },
            ) => Some(Self::Pod(pod.uid.clone())),
            Action::Scheduler(SchedulerAction::Extend { pod, extender, what, .. }) => Some(match what {
                ExtenderCall::Bind(_) => Self::Pod(pod.uid.clone()),
                _ => Self::Extender(pod.uid.clone(), *extender),
            }),
            Action::Scheduler(SchedulerAction::Preempt { victim, .. }) => Some(Self::Pod(victim.uid.clone())),
            Action::Queueing(QueueAction::UpdateWorkload(update)) => Some(Self::Workload(update.key.clone())),
            Action::Queueing(QueueAction::DeactivateWorkload { key, .. }) => {
                Some(Self::Workload(key.clone()))
            }
            Action::Queueing(QueueAction::FailPod { uid, .. }) => Some(Self::Pod(uid.clone())),
            Action::Queueing(QueueAction::UpdateLoan(update)) => Some(Self::Loan(update.name.clone())),
            Action::Scheduler(SchedulerAction::Record { .. }) | Action::Queueing(_) => None,
        }
    }
}

/// Whether a write says only why something waits.
pub fn explains(action: &Action) -> bool {
    match action {
        Action::Queueing(QueueAction::UpdateWorkload(update)) => update.explains(),
        Action::Scheduler(SchedulerAction::Unschedulable { nominated_node, .. }) => nominated_node.is_none(),
        _ => false,
    }
}

/// What becomes of an explanation that still waits when another write comes.
enum Overtaken {
    /// It is written before that one.
    Stays(Action),
    /// That one is written instead.
    Superseded(Action),
    /// That one writes both, and answers for both.
    Joined,
}

fn overtake(waiting: Action, next: &mut Action) -> Overtaken {
    match (waiting, next) {
        (
            Action::Queueing(QueueAction::UpdateWorkload(waiting)),
            Action::Queueing(QueueAction::UpdateWorkload(next)),
        ) if waiting.uid == next.uid => {
            next.coalesce(*waiting);
            Overtaken::Joined
        }
        // A pod that gets a node, or another reason, waits for the former reason no more.
        (
            waiting @ Action::Scheduler(SchedulerAction::Unschedulable { .. }),
            Action::Scheduler(SchedulerAction::Unschedulable { .. } | SchedulerAction::Bind { .. }),
        ) => Overtaken::Superseded(waiting),
        (waiting, _) => Overtaken::Stays(waiting),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Decides,
    Explains,
}

/// The writes of one object.
#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Action>,
    /// Whether one is under way.
    busy: bool,
    /// The list in which it stands: that of the next write. Entries elsewhere are old.
    listed: Option<(Group, Kind)>,
}

/// Lanes whose next write may begin.
#[derive(Debug, Default)]
struct Ready {
    decide: VecDeque<Lane>,
    explain: VecDeque<Lane>,
    /// How many entries of `explain` stand.
    explanations: usize,
    turn: u32,
}

/// What is to be written.
#[derive(Debug, Default)]
pub struct Lanes {
    queues: HashMap<Lane, Queue>,
    ready: [Ready; Group::ALL.len()],
}

impl Lanes {
    /// Adds a write to its lane. Returns one that it replaces, if that has to be answered.
    pub fn push(&mut self, lane: Lane, mut action: Action) -> Option<Action> {
        let new = || Queue { waiting: VecDeque::new(), busy: false, listed: None };
        let queue = self.queues.entry(lane.clone()).or_insert_with(new);
        let mut superseded = None;
        if let Some(last) = queue.waiting.pop_back_if(|last| explains(last)) {
            match overtake(last, &mut action) {
                Overtaken::Stays(last) => queue.waiting.push_back(last),
                Overtaken::Superseded(last) => superseded = Some(last),
                Overtaken::Joined => {}
            }
        }
        queue.waiting.push_back(action);
        self.list(lane);
        superseded
    }

    /// The next write of a group to begin with, a decision. [`Lanes::done`] tells that it has ended.
    pub fn next_decision(&mut self, group: Group) -> Option<(Lane, Action)> {
        self.take(group, &[Kind::Decides])
    }

    /// The next write of a group to begin with, an explanation. [`Lanes::done`] tells that it has ended.
    pub fn next_explanation(&mut self, group: Group) -> Option<(Lane, Action)> {
        self.take(group, &[Kind::Explains])
    }

    /// The next write of a group to begin with, of either kind. [`Lanes::done`] tells that it has ended.
    pub fn next(&mut self, group: Group) -> Option<(Lane, Action)> {
        let ready = &mut self.ready[group as usize];
        ready.turn = (ready.turn + 1) % EXPLAINED;
        let order = match ready.turn {
            0 => [Kind::Explains, Kind::Decides],
            _ => [Kind::Decides, Kind::Explains],
        };
        self.take(group, &order)
    }

    fn take(&mut self, group: Group, order: &[Kind]) -> Option<(Lane, Action)> {
        let ready = &mut self.ready[group as usize];
        for kind in order.iter().copied() {
            loop {
                let list = if kind == Kind::Decides { &mut ready.decide } else { &mut ready.explain };
                let Some(lane) = list.pop_front() else { break };
                let at = Some((group, kind));
                let Some(queue) = self.queues.get_mut(&lane).filter(|q| q.listed == at) else { continue };
                queue.listed = None;
                ready.explanations -= usize::from(kind == Kind::Explains);
                if let Some(action) = queue.waiting.pop_front() {
                    queue.busy = true;
                    return Some((lane, action));
                }
            }
        }
        None
    }

    /// A write has ended: the next one to its object may begin.
    pub fn done(&mut self, lane: Lane) {
        let Some(queue) = self.queues.get_mut(&lane) else { return };
        queue.busy = false;
        if queue.waiting.is_empty() {
            self.queues.remove(&lane);
        } else {
            self.list(lane);
        }
    }

    /// Whether a write of a group may begin. Old entries on the way to the first that stands are dropped.
    pub fn has(&mut self, group: Group) -> bool {
        self.has_decision(group) || self.has_explanation(group)
    }

    /// Whether a decision may begin, of a group.
    pub fn has_decision(&mut self, group: Group) -> bool {
        first(&self.queues, &mut self.ready[group as usize].decide, (group, Kind::Decides))
    }

    /// Whether an explanation may begin, of a group.
    pub fn has_explanation(&mut self, group: Group) -> bool {
        first(&self.queues, &mut self.ready[group as usize].explain, (group, Kind::Explains))
    }

    /// How many objects have only explanations that may begin, of a group.
    pub fn explanations(&self, group: Group) -> usize {
        self.ready[group as usize].explanations
    }

    /// Puts a lane where its next write belongs.
    fn list(&mut self, lane: Lane) {
        let Some(queue) = self.queues.get_mut(&lane).filter(|q| !q.busy) else { return };
        let Some(next) = queue.waiting.front() else { return };
        // What decides something does not wait for room together with the explanation before it.
        let kind = if queue.waiting.iter().all(explains) { Kind::Explains } else { Kind::Decides };
        let at = (Group::of(next, &lane), kind);
        let before = queue.listed.replace(at);
        if before == Some(at) {
            return;
        }
        if let Some((group, Kind::Explains)) = before {
            self.ready[group as usize].explanations -= 1;
        }
        let ready = &mut self.ready[at.0 as usize];
        match kind {
            Kind::Decides => ready.decide.push_back(lane),
            Kind::Explains => {
                ready.explanations += 1;
                ready.explain.push_back(lane);
            }
        }
    }
}

/// Whether a list has an entry that stands; those before it are dropped.
fn first(queues: &HashMap<Lane, Queue>, list: &mut VecDeque<Lane>, at: (Group, Kind)) -> bool {
    while let Some(lane) = list.front() {
        if queues.get(lane).is_some_and(|q| q.listed == Some(at)) {
            return true;
        }
        list.pop_front();
    }
    false
}

#[cfg(test)]
mod tests {
    use plimsoll_queueing::{Admission, Condition, KubernetesEvent, Reporter, WorkloadUpdate, cond};
    use plimsoll_scheduler::PodRef;
    use proptest::prelude::*;

    use super::*;

    fn update(name: u8, id: u64, decides: bool) -> Action {
        let why = Condition { kind: cond::QUOTA_RESERVED.into(), status: decides, ..Condition::default() };
        let event = KubernetesEvent {
            reporter: Reporter::Scheduler,
            warning: false,
            reason: id.to_string(),
            message: String::new(),
        };
        Action::Queueing(QueueAction::UpdateWorkload(Box::new(WorkloadUpdate {
            id,
            key: WorkloadKey { namespace: "n".into(), name: name.to_string() },
            uid: name.to_string(),
            conditions: vec![why],
            admission: decides.then(|| Some(Box::new(Admission::default()))),
            events: vec![event],
            ..WorkloadUpdate::default()
        })))
    }

    fn put(lanes: &mut Lanes, action: Action) -> Option<Action> {
        lanes.push(Lane::of(&action).unwrap(), action)
    }

    /// The next write to a workload: its lane, its numbers, whether it decides something.
    fn take(lanes: &mut Lanes) -> Option<(Lane, Vec<u64>, bool)> {
        let (lane, action) = lanes.next(Group::Workloads)?;
        let Action::Queueing(QueueAction::UpdateWorkload(u)) = action else { panic!("{action:?}") };
        let events: Vec<u64> = u.events.iter().map(|n| n.reason.parse().unwrap()).collect();
        let ids: Vec<u64> = u.ids().collect();
        assert_eq!(ids, events);
        Some((lane, ids, u.admission.is_some()))
    }

    #[test]
    fn decisions_come_before_explanations_which_still_come() {
        let mut lanes = Lanes::default();
        for (range, decides) in [(0..40, false), (100..140, true)] {
            assert!(range.into_iter().all(|n| put(&mut lanes, update(n, u64::from(n), decides)).is_none()));
        }
        let order: Vec<bool> =
            std::iter::from_fn(|| take(&mut lanes)).map(|(_, _, decides)| decides).collect();
        assert_eq!(order.len(), 80);
        let explained = order[..40].iter().filter(|decides| !**decides).count();
        assert_eq!(explained, 2, "{order:?}");
        assert!(!lanes.has(Group::Workloads) && !lanes.has(Group::Pods));
    }

    #[test]
    fn what_is_overtaken_while_it_waits_is_not_written_alone() {
        let mut lanes = Lanes::default();
        drop(put(&mut lanes, update(1, 1, false)));
        drop(put(&mut lanes, update(2, 2, false)));
        drop(put(&mut lanes, update(1, 3, false)));
        drop(put(&mut lanes, update(1, 4, true)));
        let (lane, ids, decides) = take(&mut lanes).unwrap();
        assert_eq!((ids, decides), (vec![1, 3, 4], true));
        // One at a time for each object, and what is under way is not overtaken.
        drop(put(&mut lanes, update(1, 5, false)));
        drop(put(&mut lanes, update(1, 6, true)));
        assert_eq!(take(&mut lanes).unwrap().1, [2]);
        assert!(take(&mut lanes).is_none());
        lanes.done(lane);
        assert_eq!(take(&mut lanes).unwrap().1, [5, 6]);
    }

    #[test]
    fn a_pod_that_gets_a_node_waits_for_nothing() {
        let pod = |uid: &str| PodRef { uid: uid.into(), ..PodRef::default() };
        let why = |uid: &str, nominated: Option<&str>| {
            Action::Scheduler(SchedulerAction::Unschedulable {
                pod: pod(uid),
                reason: plimsoll_scheduler::FailureReason::Unschedulable,
                message: "0/1 nodes are available".into(),
                nominated_node: nominated.map(str::to_owned),
                again: false,
                generation: 1,
            })
        };
        let bind = |uid: &str| Action::Scheduler(SchedulerAction::Bind { pod: pod(uid), node: "n".into() });
        let mut lanes = Lanes::default();
        let mut all = [why("a", None), bind("a"), why("b", Some("n")), bind("b"), why("c", None)];
        let superseded: Vec<Action> = all.clone().into_iter().filter_map(|a| put(&mut lanes, a)).collect();
        assert_eq!(superseded, all[..1]);
        let mut seen = Vec::new();
        while let Some((lane, action)) = lanes.next(Group::Pods) {
            seen.push(action);
            lanes.done(lane);
        }
        all[0] = why("c", None);
        assert_eq!(seen, [all[1].clone(), all[2].clone(), all[3].clone(), all[0].clone()]);
    }

    /// Writes of PreBind that take long delay no other pod's binding, and writes about one pod keep their order.
    #[test]
    fn what_comes_before_bindings_has_places_of_its_own() {
        let pod = |uid: &str| PodRef { uid: uid.into(), ..PodRef::default() };
        let prepare = |uid: &str| {
            let what = Box::default();
            Action::Scheduler(SchedulerAction::Prepare { pod: pod(uid), node: "n".into(), what })
        };
        let bind = |uid: &str| Action::Scheduler(SchedulerAction::Bind { pod: pod(uid), node: "n".into() });
        let release = |uid: &str| {
            let claims = Vec::new();
            Action::Scheduler(SchedulerAction::ReleaseClaims { pod: pod(uid), claims, deallocate: false })
        };
        let mut lanes = Lanes::default();
        for action in [prepare("a"), bind("a"), bind("b"), release("c"), prepare("c")] {
            assert!(put(&mut lanes, action).is_none());
        }
        let (a, action) = lanes.next(Group::PreBind).unwrap();
        assert_eq!(action, prepare("a"));
        let (b, action) = lanes.next(Group::Pods).unwrap();
        assert_eq!(action, bind("b"));
        // Of the third pod, one write waits for the other.
        assert!(!lanes.has(Group::PreBind));
        let (c, action) = lanes.next(Group::Pods).unwrap();
        assert_eq!(action, release("c"));
        assert!(!Group::ALL.iter().any(|group| lanes.has(*group)));
        [a, b, c].into_iter().for_each(|lane| lanes.done(lane));
        assert_eq!(lanes.next(Group::PreBind).unwrap().1, prepare("c"));
        assert_eq!(lanes.next(Group::Pods).unwrap().1, bind("a"));
    }

    proptest! {
        /// Whatever comes and ends in between: nothing is lost or done twice, and writes to one object keep their order.
        #[test]
        fn nothing_is_lost_and_order_is_kept(
            steps in proptest::collection::vec((0..5u8, any::<bool>(), 0..4u8), 0..80),
        ) {
            let mut lanes = Lanes::default();
            let mut wanted: HashMap<u8, Vec<u64>> = HashMap::new();
            let mut written: HashMap<u8, Vec<u64>> = HashMap::new();
            let mut under_way: VecDeque<Lane> = VecDeque::new();
            let mut begin = |lanes: &mut Lanes, under_way: &mut VecDeque<Lane>| {
                let Some((lane, ids, _)) = take(lanes) else { return false };
                let Lane::Workload(key) = &lane else { panic!("{lane:?}") };
                assert!(!under_way.contains(&lane), "two writes to one object");
                written.entry(key.name.parse().unwrap()).or_default().extend(ids);
                under_way.push_back(lane);
                true
            };
            for (id, (name, decides, what)) in (0..).zip(steps) {
                match what {
                    0 | 1 => {
                        wanted.entry(name).or_default().push(id);
                        assert!(put(&mut lanes, update(name, id, decides)).is_none());
                    }
                    2 => drop(begin(&mut lanes, &mut under_way)),
                    _ => under_way.pop_front().into_iter().for_each(|lane| lanes.done(lane)),
                }
                let at = Some((Group::Workloads, Kind::Explains));
                let explaining = lanes.queues.values().filter(|q| q.listed == at).count();
                prop_assert_eq!(lanes.explanations(Group::Workloads), explaining);
            }
            loop {
                let began = begin(&mut lanes, &mut under_way);
                let ended = under_way.pop_front().map(|lane| lanes.done(lane)).is_some();
                if !began && !ended {
                    break;
                }
            }
            prop_assert_eq!(wanted, written);
            prop_assert!(lanes.queues.is_empty());
        }
    }
}
