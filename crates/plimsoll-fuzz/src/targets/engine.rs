//! Any sequence of events, hostile objects and clock jumps through the engine.

use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_state::ObjectEvent;
use plimsoll_state::Time;

use super::{hostile, snapshot};
use crate::Cursor;

/// Most things that happen in one input.
const MAX_STEPS: usize = 300;

/// One byte of the input chooses the extenders and how much is looked at.
fn config(choice: u8) -> EngineConfig {
    let verb = |bit: u8| if choice & bit == 0 { String::new() } else { "verb".to_owned() };
    let extender = plimsoll_scheduler::Extender {
        filter_verb: verb(2),
        prioritize_verb: verb(4),
        preempt_verb: verb(8),
        bind_verb: verb(16),
        weight: i64::MAX,
        ignorable: choice & 32 != 0,
        ..plimsoll_scheduler::Extender::default()
    };
    let gates = [("GangScheduling", 64), ("TopologyAwareWorkloadScheduling", 128)];
    let gangs = plimsoll_scheduler::PluginSet::new(
        &plimsoll_scheduler::Registry::in_tree(),
        &plimsoll_scheduler::UserPlugins::default(),
        &gates.into_iter().filter(|(_, bit)| choice & bit != 0).map(|(gate, _)| gate).collect(),
    );
    let second = plimsoll_scheduler::Profile {
        scheduler_name: "second".to_owned(),
        ..plimsoll_scheduler::Profile::default()
    };
    let first = plimsoll_scheduler::Profile {
        plugins: gangs.unwrap_or_default(),
        ..plimsoll_scheduler::Profile::default()
    };
    let place = plimsoll_scheduler::Config {
        profiles: vec![first, second],
        decisions_per_step: 64,
        extenders: if choice & 1 == 0 { Vec::new() } else { vec![extender] },
        ..plimsoll_scheduler::Config::default()
    };
    EngineConfig { scheduler: Some(place), queueing: Some(plimsoll_queueing::Config::default()), joint: true }
}

/// Reads the bytes as a sequence of events, steps and answers.
pub fn run(bytes: &[u8]) {
    let mut c = Cursor::new(bytes);
    let mut engine = Engine::new(config(c.byte()));
    let (mut now, mut events, mut actions) = (Time::from_seconds(1_930_000_000), Vec::new(), Vec::new());
    for _ in 0..MAX_STEPS {
        if c.is_empty() {
            break;
        }
        match c.below(12) {
            0 | 1 => events.push(Event::Object(ObjectEvent::NodeUpsert(Box::new(hostile::node(&mut c))))),
            2 => events.push(Event::Object(ObjectEvent::NodeDelete(hostile::node_name(&mut c)))),
            3..=6 => events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(hostile::pod(&mut c))))),
            7 => events.push(Event::Object(ObjectEvent::PodDelete(hostile::id(&mut c)))),
            8 => events.push(Event::Object(ObjectEvent::ObjectUpsert(Box::new(hostile::object(&mut c))))),
            9 => events.extend(answers(&mut c, &mut actions)),
            _ => {
                now = now.plus(hostile::span(&mut c));
                step(&mut engine, now, &mut events, &mut actions);
            }
        }
    }
    step(&mut engine, now, &mut events, &mut actions);
}

fn step(engine: &mut Engine, now: Time, events: &mut Vec<Event>, actions: &mut Vec<Action>) {
    engine.step(now, events, actions);
    engine.check();
    let _ = engine.next_wake();
}

/// Answers to some of the actions, or to something nobody asked.
fn answers(c: &mut Cursor<'_>, actions: &mut Vec<Action>) -> Vec<Event> {
    if actions.is_empty() {
        return vec![Event::Scheduler(plimsoll_scheduler::Event::BindFailed {
            uid: hostile::id(c),
            message: hostile::name(c),
        })];
    }
    let take = c.below(actions.len().min(255) + 1);
    let good = !c.once_in(3);
    let given = actions.drain(..take).filter_map(|a| snapshot::answer(&a, good));
    given.filter(|e| matches!(e, Event::Scheduler(_))).collect()
}
