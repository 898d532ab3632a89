//! Reading the recorded transcripts in unit tests.

use std::io::Read;

use serde_json::Value;

/// The scenarios of one family.
pub fn family(name: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/api/{name}.jsonl.zst", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).expect(&path);
    let mut text = String::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file.as_slice()).expect("zstd");
    decoder.read_to_string(&mut text).expect("utf-8");
    for n in 1..9 {
        // node ports stand both for whole integers and inside texts
        let port = format!("3000{n}");
        text = text.replace(&format!("\"<nodeport:{n}>\""), &port).replace(&format!("<nodeport:{n}>"), &port);
    }
    text.lines().map(|l| serde_json::from_str(l).expect("json")).collect()
}

/// Replaces `<time>` by a time, everywhere.
pub fn with_times(v: &Value) -> Value {
    match v {
        Value::String(s) if s == "<time>" => Value::from("2026-11-20T10:00:00Z"),
        Value::String(s) if s == "<microtime>" => Value::from("2026-11-20T10:00:00.000000Z"),
        Value::Array(a) => a.iter().map(with_times).collect(),
        Value::Object(m) => m.iter().map(|(k, v)| (k.clone(), with_times(v))).collect(),
        other => other.clone(),
    }
}
