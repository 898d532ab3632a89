//! Several pods one after another, each counted before the next.

use crate::{Differences, scenario};
use plimsoll_state::Time;
use serde_json::Value;

pub fn run(v: &Value) -> Differences {
    match try_run(v) {
        Ok(out) => out,
        Err(e) => vec![e],
    }
}

fn try_run(v: &Value) -> Result<Differences, String> {
    let mut placement = scenario::placement(v)?;
    let now = Time::from_seconds(1_930_000_000);
    let queue = v["queue"].as_array().ok_or("no queue")?;
    for pod in queue {
        placement.handle_object(now, &scenario::event(pod)?);
    }
    let mut out = Vec::new();
    let steps = v["expect"].as_array().ok_or("no steps")?;
    for (pod, want) in queue.iter().zip(steps) {
        let verdict = placement.evaluate(&scenario::uid(pod), None).ok_or("the pod is not evaluated")?;
        let name = want["pod"].as_str().unwrap_or_default();
        match want.get("message").and_then(Value::as_str) {
            Some(text) => {
                let got = verdict.message.as_ref().map(|(short, _)| short.as_str());
                if got != Some(text) {
                    out.push(format!("{name}: want {text:?}, got {got:?}"));
                }
            }
            None => {
                let best: Value = verdict.best.clone().into();
                if best != want["best"] {
                    out.push(format!("{name}: want {}, got {best}", want["best"]));
                }
                let mut placed = pod.clone();
                placed["spec"]["nodeName"] = want["chosen"].clone();
                placement.handle_object(now, &scenario::event(&placed)?);
            }
        }
    }
    placement.check();
    Ok(out)
}
