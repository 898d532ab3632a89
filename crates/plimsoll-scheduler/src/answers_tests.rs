//! Writes about pods that fail for a long time: when the fault ends, the API shows what was decided.
//!
//! The simulator (`plimsoll-sim`) does not replace these tests: its runs end when every pod has run, so that no condition and
//! no nomination is left to compare, and its faults hit each write by chance. Here all writes of one kind fail, pods that
//! never fit stay, and the records of the scheduler are compared.

use crate::testing::Event;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::Pod;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::decide::condition_hash;
use super::tests::{node, pod, upsert};
use super::*;

/// Room on each node.
const ROOM: i64 = 1000;
const NODES: [&str; 2] = ["a", "b"];

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A pod of this priority and size.
    Create(i32, i64),
    Delete(usize),
    Wait(i64),
}

/// Which writes fail.
#[derive(Clone, Copy, Debug)]
struct Broken {
    explanations: bool,
    clearings: bool,
    preemptions: bool,
}

/// A pod as the API server has it.
#[derive(Clone, Debug)]
struct Stored {
    pod: Pod,
    why: Option<(crate::FailureReason, String)>,
}

struct World {
    placement: Scheduler,
    pods: BTreeMap<String, Stored>,
    made: usize,
    now: Time,
    news: Vec<Event>,
    broken: Broken,
}

impl World {
    fn new(broken: Broken) -> Self {
        Self {
            placement: Scheduler::new(Config::default()),
            pods: BTreeMap::new(),
            made: 0,
            now: Time::from_seconds(1000),
            news: NODES.iter().map(|n| node(n, ROOM)).collect(),
            broken,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Create(priority, cpu) => {
                self.made += 1;
                let mut p = pod(&format!("p{}", self.made), cpu);
                p.spec.priority = priority;
                self.news.push(upsert(p.clone()));
                self.pods.insert(p.uid.clone(), Stored { pod: p, why: None });
            }
            Op::Delete(i) => {
                if let Some(uid) = self.pods.keys().nth(i % self.pods.len().max(1)).cloned() {
                    self.delete(&uid);
                }
            }
            Op::Wait(seconds) => self.now = self.now.plus(Duration::from_seconds(seconds)),
        }
        self.drain();
    }

    fn delete(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.news.push(Event::Object(ObjectEvent::PodDelete(uid.to_owned())));
    }

    /// Steps until nothing is to be done at this time.
    fn drain(&mut self) {
        loop {
            for event in std::mem::take(&mut self.news) {
                self.placement.apply(self.now, event);
            }
            let mut actions = Vec::new();
            self.placement.decide(self.now, &mut |a| actions.push(a));
            for action in actions {
                self.carry_out(action);
            }
            let idle = self.placement.next_wake().is_none_or(|t| t > self.now);
            if self.news.is_empty() && idle {
                return;
            }
        }
    }

    fn change(&mut self, uid: &str, change: impl FnOnce(&mut Stored)) {
        let Some(stored) = self.pods.get_mut(uid) else { return };
        change(stored);
        self.news.push(upsert(stored.pod.clone()));
    }

    fn carry_out(&mut self, action: Action) {
        let fails = match &action {
            Action::Unschedulable { .. } => self.broken.explanations,
            Action::ClearNomination { .. } => self.broken.clearings,
            Action::Preempt { .. } => self.broken.preemptions,
            Action::Bind { .. }
            | Action::Prepare { .. }
            | Action::Extend { .. }
            | Action::ReleaseClaims { .. }
            | Action::Record { .. } => false,
        };
        if fails {
            let answer = Answer::Failed("the server is currently unable to handle the request".into());
            return self
                .news
                .push(Event::Answer(crate::Event::Answered { action: Box::new(action), answer }));
        }
        match action.clone() {
            Action::Bind { pod, node } => {
                self.news.push(Event::Answer(crate::Event::Bound(pod.uid.clone())));
                return self.change(&pod.uid, |s| s.pod.spec.node_name = node);
            }
            Action::Unschedulable { pod, reason, message, nominated_node } => self.change(&pod.uid, |s| {
                s.why = Some((reason, message));
                if let Some(node) = nominated_node {
                    s.pod.status.nominated_node_name = node;
                }
            }),
            Action::ClearNomination { pod } => {
                self.change(&pod.uid, |s| s.pod.status.nominated_node_name.clear());
            }
            Action::Preempt { victim, .. } => self.delete(&victim.uid),
            Action::Prepare { .. }
            | Action::Extend { .. }
            | Action::ReleaseClaims { .. }
            | Action::Record { .. } => return,
        }
        self.news
            .push(Event::Answer(crate::Event::Answered { action: Box::new(action), answer: Answer::Done }));
    }

    /// Nothing fails any more; the next ten minutes.
    fn recover(&mut self) {
        self.broken = Broken { explanations: false, clearings: false, preemptions: false };
        let end = self.now.plus(Duration::from_seconds(600));
        while let Some(at) = self.placement.next_wake().filter(|t| *t <= end) {
            self.now = self.now.max(at);
            self.drain();
        }
    }

    /// What the API shows is what was decided, and no pod waits for room that could be made.
    fn check(&self) {
        assert!(self.placement.repeats.next().is_none());
        for (uid, stored) in &self.pods {
            let spec = &stored.pod.spec;
            if !spec.node_name.is_empty() {
                continue;
            }
            let id = self.placement.cluster.pod_by_uid(uid).expect("known");
            let row = self.placement.queue.get(id).expect("queued");
            let shown = stored.why.as_ref().map(|(reason, text)| condition_hash(*reason, text));
            assert_eq!(shown, Some(row.condition), "{uid}: {:?}", stored.why);
            let nominated = self.placement.cluster.pods[id].nominated;
            let name = nominated
                .map_or("", |n| self.placement.cluster.strings.text(self.placement.cluster.nodes[n].name));
            assert_eq!(stored.pod.status.nominated_node_name, name, "{uid}");
            for node in NODES {
                let as_important = self.pods.values().map(|s| &s.pod.spec);
                let used: i64 = as_important
                    .filter(|s| s.node_name == node && s.priority >= spec.priority)
                    .map(|s| s.containers[0].requests["cpu"])
                    .sum();
                assert!(used + spec.containers[0].requests["cpu"] > ROOM, "{uid} has room on {node}");
            }
        }
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4i32, prop_oneof![Just(300i64), Just(600), Just(1000), Just(1500)]).prop_map(|(p, c)| Op::Create(p, c)),
        1 => any::<usize>().prop_map(Op::Delete),
        3 => (0..90i64).prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn lasting_failures_are_made_up_for(
        ops in proptest::collection::vec(any_op(), 1..30),
        later in proptest::collection::vec(any_op(), 0..6),
        broken in any::<[bool; 3]>(),
    ) {
        let [explanations, clearings, preemptions] = broken;
        let mut world = World::new(Broken { explanations, clearings, preemptions });
        ops.into_iter().for_each(|op| world.apply(op));
        world.recover();
        world.check();
        // What was made up for does not come back.
        later.into_iter().for_each(|op| world.apply(op));
        world.recover();
        world.check();
    }
}

#[test]
fn a_preemption_that_fails_is_tried_again_after_the_backoff() {
    let mut world = World::new(Broken { explanations: false, clearings: false, preemptions: true });
    world.apply(Op::Create(0, 1000));
    world.apply(Op::Create(0, 1000));
    world.apply(Op::Create(9, 1000));
    world.apply(Op::Wait(120));
    assert_eq!(world.pods.len(), 3);
    world.broken.preemptions = false;
    world.apply(Op::Wait(11));
    let high = &world.pods["uid-p3"];
    assert_eq!((world.pods.len(), high.pod.spec.node_name.is_empty()), (2, false), "{high:?}");
}

/// Two pods that preempt, each on a node of its own; the first victim goes long before the second.
#[test]
fn a_victim_is_asked_once_while_it_is_still_there() {
    let mut placement = Scheduler::new(Config::default());
    let now = |at| plimsoll_state::Time::from_seconds(at);
    let decide = |placement: &mut Scheduler, at| {
        let mut actions = Vec::new();
        placement.decide(now(at), &mut |a| actions.push(a));
        actions
    };
    let victims = |actions: &[Action]| -> Vec<String> {
        let victim = |a: &Action| match a {
            Action::Preempt { victim, .. } => Some(victim.uid.clone()),
            _ => None,
        };
        actions.iter().filter_map(victim).collect()
    };
    for (node_name, low) in [("a", "low-a"), ("b", "low-b")] {
        placement.apply(now(0), node(node_name, 1000));
        let mut low = pod(low, 900);
        low.spec.node_name = node_name.into();
        placement.apply(now(0), upsert(low));
    }
    for high in ["high-1", "high-2"] {
        let mut high = pod(high, 900);
        high.spec.priority = 10;
        placement.apply(now(1), upsert(high));
    }
    let asked = victims(&decide(&mut placement, 1));
    assert_eq!(asked.len(), 2, "{asked:?}");
    // The first one goes: its preemptor is bound, and the other one is not tried in vain.
    placement.apply(now(2), Event::Object(ObjectEvent::PodDelete(asked[0].clone())));
    let actions = decide(&mut placement, 2);
    let bound = actions.iter().filter(|a| matches!(a, Action::Bind { .. })).count();
    let rejected = actions.iter().filter(|a| matches!(a, Action::Unschedulable { .. })).count();
    assert_eq!((bound, rejected, victims(&actions).len()), (1, 0, 0), "{actions:?}");
    placement.apply(now(3), Event::Object(ObjectEvent::PodDelete(asked[1].clone())));
    let actions = decide(&mut placement, 3);
    assert!(actions.iter().any(|a| matches!(a, Action::Bind { .. })), "{actions:?}");
}
