//! Any sequence of events, hostile objects and clock jumps through the engine.

use plimsoll_core::{Action, Engine, EngineConfig, Event, Time, place, queueing};

use super::{hostile, snapshot};
use crate::Cursor;

/// Most things that happen in one input.
const MAX_STEPS: usize = 300;

/// One byte of the input chooses the extenders and how much is looked at.
fn config(choice: u8) -> EngineConfig {
    let verb = |bit: u8| if choice & bit == 0 { String::new() } else { "verb".to_owned() };
    let extender = place::Extender {
        filter_verb: verb(2),
        prioritize_verb: verb(4),
        preempt_verb: verb(8),
        bind_verb: verb(16),
        weight: i64::MAX,
        ignorable: choice & 32 != 0,
        ..place::Extender::default()
    };
    let gangs = place::PluginSet::with_gates(&place::UserPlugins::default(), choice & 64 != 0);
    let second = place::Profile { scheduler_name: "second".to_owned(), ..place::Profile::default() };
    let first = place::Profile { plugins: gangs.unwrap_or_default(), ..place::Profile::default() };
    let place = place::Config {
        profiles: vec![first, second],
        decisions_per_step: 64,
        extenders: if choice & 1 == 0 { Vec::new() } else { vec![extender] },
        ..place::Config::default()
    };
    EngineConfig { place: Some(place), queueing: Some(queueing::Config::default()), joint: true }
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
            0 | 1 => events.push(place::Event::NodeUpsert(Box::new(hostile::node(&mut c)))),
            2 => events.push(place::Event::NodeDelete(hostile::node_name(&mut c))),
            3..=6 => events.push(place::Event::PodUpsert(Box::new(hostile::pod(&mut c)))),
            7 => events.push(place::Event::PodDelete(hostile::id(&mut c))),
            8 => events.push(place::Event::ObjectUpsert(Box::new(hostile::object(&mut c)))),
            9 => events.extend(answers(&mut c, &mut actions)),
            _ => {
                now = now.plus(hostile::span(&mut c));
                step(&mut engine, now, &mut events, &mut actions);
            }
        }
    }
    step(&mut engine, now, &mut events, &mut actions);
}

fn step(engine: &mut Engine, now: Time, events: &mut Vec<place::Event>, actions: &mut Vec<Action>) {
    let mut all = events.drain(..).map(Event::Place).collect();
    engine.step(now, &mut all, actions);
    engine.check();
    let _ = engine.next_wake();
}

/// Answers to some of the actions, or to something nobody asked.
fn answers(c: &mut Cursor<'_>, actions: &mut Vec<Action>) -> Vec<place::Event> {
    if actions.is_empty() {
        return vec![place::Event::BindFailed { uid: hostile::id(c), message: hostile::name(c) }];
    }
    let take = c.below(actions.len().min(255) + 1);
    let good = !c.once_in(3);
    let given = actions.drain(..take).filter_map(|a| snapshot::answer(&a, good));
    given.filter_map(|e| if let Event::Place(e) = e { Some(e) } else { None }).collect()
}
