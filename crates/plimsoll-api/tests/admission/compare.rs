//! Differences between what is expected and what came out.

use plimsoll_api::Quantity;
use serde_json::Value;

/// Two values are the same if they are equal, or equal as quantities.
fn same(want: &Value, got: &Value) -> bool {
    if want == got {
        return true;
    }
    let quantity = |v: &Value| v.as_str().and_then(|s| s.parse::<Quantity>().ok());
    matches!((quantity(want), quantity(got)), (Some(a), Some(b)) if a == b)
}

/// Lists what differs, one line each, with the path.
pub fn differences(path: &str, want: &Value, got: &Value, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(w), Value::Object(g)) => {
            for (k, v) in w {
                differences(&format!("{path}.{k}"), v, g.get(k).unwrap_or(&Value::Null), out);
            }
            for (k, v) in g.iter().filter(|(k, _)| !w.contains_key(*k)) {
                differences(&format!("{path}.{k}"), &Value::Null, v, out);
            }
        }
        (Value::Array(w), Value::Array(g)) if w.len() == g.len() => {
            for (i, (w, g)) in w.iter().zip(g).enumerate() {
                differences(&format!("{path}[{i}]"), w, g, out);
            }
        }
        _ if same(want, got) => {}
        _ => out.push(format!("  {path}\n    want {want}\n    got  {got}")),
    }
}
