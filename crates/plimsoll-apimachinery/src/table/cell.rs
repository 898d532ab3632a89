//! Reading fields of objects into cells.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;

/// The context of cell functions, beside the object.
#[derive(Clone, Copy)]
pub struct Ctx {
    /// The time ages are measured against.
    pub now: Timestamp,
}

static NULL: Value = Value::Null;
static EMPTY: Vec<Value> = Vec::new();

/// The value at a path of field names; null when missing.
pub fn at<'a>(v: &'a Value, path: &[&str]) -> &'a Value {
    let mut here = v;
    for name in path {
        match here.get(name) {
            Some(next) => here = next,
            None => return &NULL,
        }
    }
    here
}

/// Text at a path, empty when missing.
pub fn text<'a>(v: &'a Value, path: &[&str]) -> &'a str {
    at(v, path).as_str().unwrap_or_default()
}

/// Integer at a path, 0 when missing.
pub fn int(v: &Value, path: &[&str]) -> i64 {
    at(v, path).as_i64().unwrap_or_default()
}

/// Elements at a path, none when missing.
pub fn list<'a>(v: &'a Value, path: &[&str]) -> &'a [Value] {
    at(v, path).as_array().unwrap_or(&EMPTY)
}

/// Number of entries of the map at a path.
pub fn size(v: &Value, path: &[&str]) -> usize {
    at(v, path).as_object().map_or(0, serde_json::Map::len)
}

/// The object's name.
pub fn name(v: &Value) -> Value {
    json!(text(v, &["metadata", "name"]))
}

/// Age since creation.
pub fn created(v: &Value, ctx: Ctx) -> Value {
    json!(age::age(at(v, &["metadata", "creationTimestamp"]), ctx.now))
}

/// The text, or a stand-in when it is empty.
pub fn or(text: &str, empty: &str) -> Value {
    json!(if text.is_empty() { empty } else { text })
}

/// Text at a path, possibly empty, or `absent` when missing (a pointer upstream).
pub fn given(v: &Value, path: &[&str], absent: &str) -> Value {
    json!(at(v, path).as_str().unwrap_or(absent))
}

/// Names and images of the containers of a pod spec, comma separated.
pub fn containers(pod_spec: &Value) -> [Value; 2] {
    let column = |field: &str| {
        let all: Vec<&str> = list(pod_spec, &["containers"]).iter().map(|c| text(c, &[field])).collect();
        json!(all.join(","))
    };
    [column("name"), column("image")]
}

/// `a=b,c=d` of a label map, `<none>` when empty.
pub fn labels(map: &Value) -> Value {
    // Sorted as whole pairs (labels.Set.String), so that `app.x=1` comes before `app=1`.
    let mut pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    or(&pairs.join(","), "<none>")
}

/// A label selector as `metav1.FormatLabelSelector` prints it.
pub fn selector(selector: &Value) -> Value {
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in at(selector, &["matchLabels"]).as_object().into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for e in list(selector, &["matchExpressions"]) {
        let key = text(e, &["key"]);
        let mut values: Vec<&str> = list(e, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text(e, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return json!("<error>"),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    let joined: Vec<&str> = parts.iter().map(|(_, part)| part.as_str()).collect();
    or(&joined.join(","), "<none>")
}

/// `ReadWriteOnce` → `RWO`, comma separated, in upstream's fixed order.
pub fn access_modes(modes: &[Value]) -> String {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<&str> =
        known.iter().filter(|(long, _)| modes.iter().any(|m| m == long)).map(|(_, s)| *s).collect();
    short.join(",")
}

/// An `IntOrString` as text; `N/A` when missing.
pub fn int_or_string(v: &Value) -> String {
    match v {
        Value::Number(n) => n.to_string(),
        Value::String(s) => s.clone(),
        _ => "N/A".to_owned(),
    }
}
