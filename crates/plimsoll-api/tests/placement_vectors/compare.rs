//! Comparing a verdict with what is expected.

use crate::Differences;
use plimsoll_scheduler::{Rejection, Verdict};
use serde_json::{Map, Value, json};

fn rejection(r: &Rejection) -> Value {
    let mut out = Map::new();
    out.insert("code".into(), r.code.into());
    if let Some(p) = &r.plugin {
        out.insert("plugin".into(), p.as_str().into());
    }
    out.insert("reasons".into(), r.reasons.clone().into());
    Value::Object(out)
}

/// Our verdict in the form of the vectors.
fn render(v: &Verdict, want: &Value) -> Value {
    let mut out = Map::new();
    if let Some(r) = &v.pre_enqueue {
        out.insert("preEnqueue".into(), rejection(r));
        return Value::Object(out);
    }
    let mut pre = match &v.pre_filter {
        Some(r) => rejection(r),
        None => json!({"code": "Success"}),
    };
    if want["preFilter"].get("nodes").is_some() {
        pre["nodes"] = v.restricted.clone().map_or(Value::Null, Into::into);
    }
    out.insert("preFilter".into(), pre);
    if v.nominated_first {
        out.insert("nominatedFirst".into(), true.into());
    }
    if v.pre_filter.is_none() {
        let node = |(n, r): &(String, Option<Rejection>)| {
            (n.clone(), r.as_ref().map_or_else(|| json!({"code": "Success"}), rejection))
        };
        out.insert("nodes".into(), Value::Object(v.nodes.iter().map(node).collect()));
    }
    if !v.scores.is_empty() {
        let score = |(n, plugins, total): &(String, Vec<(String, i64)>, i64)| {
            let plugins: Map<String, Value> = plugins.iter().map(|(p, s)| (p.clone(), (*s).into())).collect();
            (n.clone(), json!({"plugins": plugins, "total": total}))
        };
        out.insert("scores".into(), Value::Object(v.scores.iter().map(score).collect()));
        out.insert("best".into(), v.best.clone().into());
    }
    if let Some((short, full)) = &v.message {
        out.insert("message".into(), short.clone().into());
        if want.get("fullMessage").is_some() {
            out.insert("fullMessage".into(), full.clone().into());
        }
    }
    if want.get("preemption").is_some() {
        out.insert("preemption".into(), preemption(v));
    }
    Value::Object(out)
}

fn preemption(v: &Verdict) -> Value {
    if v.candidates.is_empty() {
        let text = v.message.as_ref().map_or("", |(s, f)| f[s.len().min(f.len())..].trim_start());
        return json!({"none": text});
    }
    let one = |c: &plimsoll_scheduler::Victims| {
        (c.node.clone(), json!({"victims": c.victims, "pdbViolations": c.violations}))
    };
    let all: Map<String, Value> = v.candidates.iter().map(one).collect();
    json!({"candidates": all, "best": v.best_candidates})
}

pub fn verdict(want: &Value, got: &Verdict) -> Differences {
    let mut out = Vec::new();
    diff("", want, &render(got, want), &mut out);
    out
}

fn diff(path: &str, want: &Value, got: &Value, out: &mut Differences) {
    match (want, got) {
        (Value::Object(w), Value::Object(g)) => {
            let mut keys: Vec<&String> = w.keys().chain(g.keys()).collect();
            keys.sort();
            keys.dedup();
            for k in keys {
                let missing = Value::String("(absent)".into());
                diff(&format!("{path}/{k}"), w.get(k).unwrap_or(&missing), g.get(k).unwrap_or(&missing), out);
            }
        }
        _ if want == got => {}
        _ => out.push(format!("{path}: want {want}, got {got}")),
    }
}
