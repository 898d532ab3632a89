//! One incoming pod against a snapshot.

use crate::{Differences, compare};
use plimsoll_api::convert;
use plimsoll_scheduler::{Config, Profile, Scheduler};
use plimsoll_state::{ObjectEvent, Time};
use serde_json::Value;

fn text<'a>(v: &'a Value, path: &str) -> &'a str {
    v.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// UID of an object; made from kind and name where the vector gives none.
pub fn uid(o: &Value) -> String {
    match text(o, "/metadata/uid") {
        "" => {
            format!("{}/{}/{}", text(o, "/kind"), text(o, "/metadata/namespace"), text(o, "/metadata/name"))
        }
        given => given.to_owned(),
    }
}

/// The event that tells the engine of an object.
pub fn event(object: &Value) -> Result<ObjectEvent, String> {
    let mut object = object.clone();
    let id = uid(&object);
    if let Some(m) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        m.insert("uid".to_owned(), id.into());
    }
    let bytes = serde_json::to_vec(&object).map_err(|e| e.to_string())?;
    let kind = text(&object, "/kind");
    let fail = |e: convert::ConvertError| format!("{kind}: {e}");
    Ok(match kind {
        "Node" => ObjectEvent::NodeUpsert(Box::new(convert::node(&bytes).map_err(fail)?)),
        "Pod" => ObjectEvent::PodUpsert(Box::new(convert::pod(&bytes).map_err(fail)?)),
        other => match convert::cluster_object(other, &bytes).map_err(fail)? {
            Some(object) => ObjectEvent::ObjectUpsert(Box::new(object)),
            None => return Err(format!("kind {other} is not taken in")),
        },
    })
}

/// The profile of a vector.
pub fn profile(v: &Value) -> Result<Profile, String> {
    match v.get("profile") {
        None => Ok(Profile::default()),
        Some(p) => plimsoll_config::scheduler::profile_from_value(p.clone()).map_err(|e| e.to_string()),
    }
}

/// An engine that knows the vector's objects.
pub fn placement(v: &Value) -> Result<Scheduler, String> {
    let selector = std::sync::Arc::new(plimsoll_api::device_cel::CelSelector::default());
    let config = Config { profiles: vec![profile(v)?], device_selector: Some(selector), ..Config::default() };
    let mut placement = Scheduler::new(config);
    for object in v["objects"].as_array().into_iter().flatten() {
        placement.handle_object(Time::from_seconds(1_930_000_000), &event(object)?);
    }
    placement.check();
    Ok(placement)
}

/// The object of a pod named `namespace/name`.
pub fn pod_object<'a>(v: &'a Value, name: &str) -> Option<&'a Value> {
    v["objects"].as_array()?.iter().find(|o| {
        text(o, "/kind") == "Pod"
            && format!("{}/{}", text(o, "/metadata/namespace"), text(o, "/metadata/name")) == name
    })
}

pub fn run(v: &Value) -> Differences {
    let name = text(v, "/pod");
    let mut placement = match placement(v) {
        Ok(p) => p,
        Err(e) => return vec![e],
    };
    let Some(pod) = pod_object(v, name) else { return vec![format!("no pod {name}")] };
    let as_if = v.get("asIfNodeName").and_then(Value::as_str);
    let Some(verdict) = placement.evaluate(&uid(pod), as_if) else {
        return vec!["the pod is not evaluated".to_owned()];
    };
    placement.check();
    compare::verdict(&v["expect"], &verdict)
}
