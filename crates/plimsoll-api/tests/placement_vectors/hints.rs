//! Queueing hints.

use crate::{Differences, scenario};
use plimsoll_scheduler::{Config, Scheduler, Seen};
use plimsoll_state::{ObjectEvent, Time};
use serde_json::Value;

pub fn run(v: &Value) -> Differences {
    match try_run(v) {
        Ok(got) => {
            let got = if got { "Queue" } else { "QueueSkip" };
            if v["expect"] == got { Vec::new() } else { vec![format!("{}: got {got}", v["about"])] }
        }
        Err(e) => vec![e],
    }
}

fn seen(v: &Value) -> Result<Option<Seen>, String> {
    if v.is_null() {
        return Ok(None);
    }
    Ok(Some(match scenario::event(v)? {
        ObjectEvent::NodeUpsert(n) => Seen::Node(n),
        ObjectEvent::PodUpsert(p) => Seen::Pod(p),
        ObjectEvent::ObjectUpsert(o) => Seen::Object(o),
        ObjectEvent::NodeDelete(_)
        | ObjectEvent::PodDelete(_)
        | ObjectEvent::ObjectDelete(..)
        | ObjectEvent::ClaimWritten(_) => {
            return Err("not an object".to_owned());
        }
    }))
}

fn try_run(v: &Value) -> Result<bool, String> {
    let mut placement = Scheduler::new(Config::default());
    let now = Time::from_seconds(1_930_000_000);
    for object in v["objects"].as_array().into_iter().flatten() {
        placement.handle_object(now, &scenario::event(object)?);
    }
    placement.handle_object(now, &scenario::event(&v["pod"])?);
    let plugin = v["plugin"].as_str().ok_or("no plugin")?;
    let event = (v["event"]["resource"].as_str().unwrap_or(""), v["event"]["action"].as_str().unwrap_or(""));
    placement
        .hint(plugin, &scenario::uid(&v["pod"]), event, seen(&v["old"])?.as_ref(), seen(&v["new"])?.as_ref())
        .ok_or_else(|| "the plugin did not register for this event".to_owned())
}
