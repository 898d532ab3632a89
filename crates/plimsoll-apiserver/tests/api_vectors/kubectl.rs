//! What kubectl sent in one session, in order; answers were recorded in short.

use serde_json::Value;

use crate::bind::is_template;
use crate::client;
use crate::replay::Replay;

/// Replays a session; the differences of each row.
pub async fn session(rows: Vec<(String, Value)>) -> Vec<(String, Vec<String>)> {
    let mut results = Vec::new();
    if rows.is_empty() {
        return results;
    }
    let server = client::server().await;
    for (id, row) in rows {
        // Placeholders start again in each row.
        let mut replay = Replay::new(std::sync::Arc::clone(&server));
        let mut out = Vec::new();
        for (i, step) in row["steps"].as_array().into_iter().flatten().enumerate() {
            let request = &step["request"];
            let mut diffs = Vec::new();
            if request["query"]["watch"] == "true" {
                continue;
            }
            exchange(&mut replay, step, &mut diffs).await;
            let what = format!("step {i} {} {}", request["method"], request["path"]);
            out.extend(diffs.into_iter().map(|d| format!("{what}: {d}")));
        }
        results.push((id, out));
    }
    results
}

async fn exchange(replay: &mut Replay, step: &Value, out: &mut Vec<String>) {
    let (request, response) = (&step["request"], &step["response"]);
    let call = replay.call(request);
    if is_template(&call.uri) {
        return;
    }
    let answer = client::send(client::service(&replay.server, None), &call).await;
    if response["status"] != answer.status {
        let body: String = String::from_utf8_lossy(&answer.body).chars().take(300).collect();
        out.push(format!("status {}, want {}: {body}", answer.status, response["status"]));
    }
    if let Some(wanted) = response["headers"]["Content-Type"].as_str() {
        let found = answer.headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or("");
        if found != wanted {
            out.push(format!("content type {found}, want {wanted}"));
        }
    }
    let Some(body) = answer.json() else { return };
    if response["kind"].is_string() && response["kind"] != body["kind"] {
        out.push(format!("kind {}, want {}", body["kind"], response["kind"]));
    }
    for (field, list) in [("items", "items"), ("rows", "rows")] {
        let found = body[list].as_array().map_or(0, Vec::len) as u64;
        if response[field].is_u64() && response[field] != found {
            out.push(format!("{found} {field}, want {}", response[field]));
        }
    }
    for field in ["reason", "message"] {
        if let (Some(wanted), Some(found)) = (response[field].as_str(), body[field].as_str())
            && !replay.bindings.matches(wanted, found)
        {
            out.push(format!("{field} {found:?}, want {wanted:?}"));
        }
    }
}
