//! Configuration files.

use plimsoll_engine::{Engine, EngineConfig, Event};
use plimsoll_state::ObjectEvent;
use plimsoll_state::Time;

/// Reads a `KubeSchedulerConfiguration`; what is accepted must run.
pub fn scheduler(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let registry = plimsoll_plugins::registry();
    let read = plimsoll_config::scheduler::read_with_registry;
    let Ok(config) = read(text, &plimsoll_config::scheduler::Gates::default(), &registry) else { return };
    let mut engine = Engine::new(EngineConfig { scheduler: Some(config), queueing: None, joint: false });
    let mut events = Vec::new();
    for i in 0..3 {
        let node = plimsoll_state::model::Node {
            name: format!("n{i}"),
            allocatable: [("cpu", 4000), ("memory", 1 << 34), ("pods", 110)]
                .map(|(k, v)| (k.to_owned(), v))
                .into(),
            ..Default::default()
        };
        events.push(Event::Object(ObjectEvent::NodeUpsert(Box::new(node))));
        let mut pod =
            plimsoll_state::model::Pod { uid: format!("u{i}"), name: format!("p{i}"), ..Default::default() };
        pod.spec.scheduler_name = "default-scheduler".to_owned();
        events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod))));
    }
    engine.step(Time::from_seconds(1), &mut events, &mut Vec::new());
    engine.check();
}

/// Reads a Kueue `Configuration`; what is accepted must run.
pub fn kueue(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(config) = plimsoll_config::kueue::read(text, "kueue-system") else { return };
    let mut engine =
        Engine::new(EngineConfig { scheduler: None, queueing: Some(config.queueing), joint: false });
    let namespace = plimsoll_queueing::Event::NamespaceUpsert("ns".to_owned(), Default::default());
    engine.step(Time::from_seconds(1), &mut vec![Event::Queueing(namespace)], &mut Vec::new());
    engine.check();
}
