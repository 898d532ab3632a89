//! DefaultTolerationSeconds.

use serde_json::{Value, json};

use super::subject;
use crate::pipeline::Write;

const SECONDS: i64 = 300;

/// Pods tolerate a node that is not ready or unreachable for five minutes, unless they say otherwise.
pub fn default_tolerations(w: &Write, pod: &mut Value) {
    if !subject(w).is("", "pods") || !pod["spec"].is_object() {
        return;
    }
    let tolerated = |pod: &Value, key: &str| {
        pod["spec"]["tolerations"].as_array().into_iter().flatten().any(|t| {
            let text = |f: &str| t[f].as_str().unwrap_or("");
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
        })
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if tolerated(pod, key) {
            continue;
        }
        let toleration =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
        match pod["spec"]["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => pod["spec"]["tolerations"] = json!([toleration]),
        }
    }
}
