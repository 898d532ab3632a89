//! Whole clusters as JSON, through the conversions into the engine.

use plimsoll_api::{convert, kueue};
use plimsoll_config::{kueue as kueue_config, scheduler};
use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_state::{Answer, Duration, Time};
use plimsoll_state::{ClusterObjectKey, ClusterObjectKind, ObjectEvent};
use serde_json::Value;

const START: Time = Time::from_seconds(1_930_000_000);
/// Most objects of one input.
const MAX_OBJECTS: usize = 200;

/// UID of an object; made from namespace and name where the input gives none.
fn uid(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    match text("/metadata/uid") {
        "" => format!("{}/{}", text("/metadata/namespace"), text("/metadata/name")),
        given => given.to_owned(),
    }
}

fn events(object: &Value) -> Vec<Event> {
    let mut object = object.clone();
    let id = uid(&object);
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.insert("uid".to_owned(), id.into());
    }
    let object = &object;
    let bytes = object.to_string();
    let bytes = bytes.as_bytes();
    let place = match object["kind"].as_str().unwrap_or_default() {
        "Node" => convert::node(bytes).ok().map(|n| ObjectEvent::NodeUpsert(Box::new(n))),
        "Pod" => convert::pod(bytes).ok().map(|p| ObjectEvent::PodUpsert(Box::new(p))),
        kind => {
            let object = convert::cluster_object(kind, bytes).ok().flatten();
            object.map(|o| ObjectEvent::ObjectUpsert(Box::new(o)))
        }
    };
    let queueing = kueue::upsert_event(object).ok().flatten();
    place.map(Event::Object).into_iter().chain(queueing.map(Event::Queueing)).collect()
}

/// Takes everything in, decides, answers half of what is asked, and takes everything away again.
fn run(engine: &mut Engine, input: &Value) {
    let list = || input["objects"].as_array().into_iter().flatten().take(MAX_OBJECTS);
    let mut now = START;
    let mut pending: Vec<Event> = list().flat_map(events).collect();
    for round in 0..4 {
        let mut actions = Vec::new();
        engine.step(now, &mut pending, &mut actions);
        engine.check();
        now = now.plus(Duration::from_seconds(if round == 2 { 400 } else { 11 }));
        pending.extend(actions.iter().enumerate().filter_map(|(i, a)| answer(a, i % 2 == 0)));
    }
    for object in list() {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        let event = match kind.as_str() {
            "Node" => Some(ObjectEvent::NodeDelete(name.clone())),
            "Pod" => Some(ObjectEvent::PodDelete(uid(object))),
            other => ClusterObjectKind::from_name(other).map(|kind| {
                let (namespace, name) = (namespace.clone(), name.clone());
                ObjectEvent::ObjectDelete(ClusterObjectKey { kind, namespace, name })
            }),
        };
        pending.extend(event.map(Event::Object));
        pending.extend(kueue::delete_event(&kind, &namespace, &name).map(Event::Queueing));
    }
    engine.step(now, &mut pending, &mut Vec::new());
    engine.check();
}

/// What an agreeable extender answers.
fn extended(what: &plimsoll_scheduler::ExtenderCall) -> plimsoll_scheduler::ExtenderAnswer {
    use plimsoll_scheduler::{ExtenderAnswer as A, ExtenderCall as C};
    match what {
        C::Filter(nodes) => {
            let kept = nodes.iter().skip(1).cloned().collect();
            let failed = nodes.first().map(|n| (n.clone(), "no".to_owned())).into_iter().collect();
            A::Filter { nodes: kept, failed, unresolvable: Vec::new() }
        }
        C::Prioritize(nodes) => A::Prioritize(nodes.iter().map(|n| (n.clone(), i64::MAX)).collect()),
        C::Preempt(plans) => {
            let uids =
                |p: &plimsoll_scheduler::ExtenderVictims| p.pods.iter().map(|v| v.uid.clone()).collect();
            A::Preempt(plans.iter().map(|p| (p.node.clone(), uids(p), i64::MIN)).collect())
        }
        C::Bind(_) => A::Bound,
    }
}

/// An answer to an action.
pub fn answer(action: &Action, good: bool) -> Option<Event> {
    let message = "Operation cannot be fulfilled".to_owned();
    Some(match action {
        Action::Scheduler(plimsoll_scheduler::Action::Prepare { pod, .. }) if good => {
            Event::Scheduler(plimsoll_scheduler::Event::Prepared(pod.uid.clone()))
        }
        Action::Scheduler(plimsoll_scheduler::Action::Bind { pod, .. }) if good => {
            Event::Scheduler(plimsoll_scheduler::Event::Bound(pod.uid.clone()))
        }
        Action::Scheduler(
            plimsoll_scheduler::Action::Bind { pod, .. } | plimsoll_scheduler::Action::Prepare { pod, .. },
        ) => Event::Scheduler(plimsoll_scheduler::Event::BindFailed { uid: pod.uid.clone(), message }),
        Action::Scheduler(plimsoll_scheduler::Action::Extend { pod, extender, call, what }) => {
            let (uid, extender, call) = (pod.uid.clone(), *extender, *call);
            let answer = if good { Ok(extended(what)) } else { Err(message) };
            Event::Scheduler(plimsoll_scheduler::Event::Extended { uid, extender, call, answer })
        }
        Action::Scheduler(
            action @ (plimsoll_scheduler::Action::Preempt { .. }
            | plimsoll_scheduler::Action::Unschedulable { .. }
            | plimsoll_scheduler::Action::Nominate { .. }
            | plimsoll_scheduler::Action::ReleaseClaims { .. }),
        ) if !good => {
            let (action, answer) = (Box::new(action.clone()), Answer::Failed(message));
            Event::Scheduler(plimsoll_scheduler::Event::Answered { action, answer })
        }
        Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(update)) if !good => {
            let (key, id) = (update.key.clone(), update.id);
            Event::Queueing(plimsoll_queueing::Event::WriteFailed { key, id, message })
        }
        _ => return None,
    })
}

/// A cluster and pods.
pub fn placement(bytes: &[u8]) {
    let Ok(input) = serde_json::from_slice::<Value>(bytes) else { return };
    let profile = input.get("profile").cloned();
    let Ok(profile) =
        profile.map_or_else(|| Ok(plimsoll_scheduler::Profile::default()), scheduler::profile_from_value)
    else {
        return;
    };
    let selector = std::sync::Arc::new(plimsoll_api::device_cel::CelSelector::default());
    let config = plimsoll_scheduler::Config {
        profiles: vec![profile],
        device_selector: Some(selector),
        ..Default::default()
    };
    run(&mut Engine::new(EngineConfig { scheduler: Some(config), queueing: None, joint: false }), &input);
}

/// Queues and workloads.
pub fn admission(bytes: &[u8]) {
    let Ok(input) = serde_json::from_slice::<Value>(bytes) else { return };
    let Ok(config) = kueue_config::queueing(&input["configuration"]) else { return };
    run(&mut Engine::new(EngineConfig { scheduler: None, queueing: Some(config), joint: false }), &input);
}
