//! Comparing what was recorded with what was answered.

use serde_json::Value;

use crate::bind::{Bindings, is_template};

/// Lists that are sets.
const SETS: [&str; 5] = ["managedFields", "causes", "resourceRules", "nonResourceRules", "finalizers"];

/// Compares JSON values; differences go to `out` with their paths.
pub fn json(
    expected: &Value,
    actual: &Value,
    path: &str,
    partial: bool,
    bindings: &mut Bindings,
    out: &mut Vec<String>,
) {
    match (expected, actual) {
        (Value::Object(e), Value::Object(a)) => {
            for (key, value) in e {
                let key_filled = bindings.fill(key, "");
                let here = format!("{path}.{key}");
                match a.get(&key_filled) {
                    Some(found) if SETS.contains(&key.as_str()) && found.is_array() && value.is_array() => {
                        set(value, found, &here, partial, bindings, out);
                    }
                    Some(found)
                        if key == "message"
                            && (e.contains_key("details")
                                || e.contains_key("field")
                                || value.as_str().is_some_and(|t| t.contains("strict decoding error"))) =>
                    {
                        message(value, found, &here, bindings, out);
                    }
                    Some(found) => json(value, found, &here, partial, bindings, out),
                    None => out.push(format!("{here}: missing, want {}", short(value))),
                }
            }
            if !partial {
                let known: Vec<String> = e.keys().map(|k| bindings.fill(k, "")).collect();
                for (key, value) in a {
                    if !known.contains(key) {
                        out.push(format!("{path}.{key}: unexpected {}", short(value)));
                    }
                }
            }
        }
        (Value::Array(e), Value::Array(a)) if partial => subsequence(e, a, path, bindings, out),
        (Value::Array(e), Value::Array(a)) => {
            if e.len() != a.len() {
                out.push(format!("{path}: {} elements, want {}: {}", a.len(), e.len(), short(actual)));
            }
            for (i, (e, a)) in e.iter().zip(a).enumerate() {
                json(e, a, &format!("{path}[{i}]"), partial, bindings, out);
            }
        }
        (Value::String(e), Value::String(a)) => {
            if !bindings.matches(e, a) {
                out.push(format!("{path}: {a:?}, want {:?}", bindings.fill(e, "")));
            }
        }
        (Value::String(e), Value::Number(a)) if is_template(e) => {
            if !bindings.matches(e, &a.to_string()) {
                out.push(format!("{path}: {a}, want {e}"));
            }
        }
        (Value::Number(e), Value::Number(a)) if e.as_f64() == a.as_f64() => {}
        (e, a) if e == a => {}
        (e, a) => out.push(format!("{path}: {}, want {}", short(a), short(e))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

/// Whether two values compare without difference; binds only if they do.
fn fits(expected: &Value, actual: &Value, partial: bool, bindings: &mut Bindings) -> bool {
    let mut trial = bindings.clone();
    let mut diffs = Vec::new();
    json(expected, actual, "", partial, &mut trial, &mut diffs);
    if diffs.is_empty() {
        *bindings = trial;
    }
    diffs.is_empty()
}

fn subsequence(e: &[Value], a: &[Value], path: &str, bindings: &mut Bindings, out: &mut Vec<String>) {
    let mut rest = a.iter();
    for (i, e) in e.iter().enumerate() {
        if !rest.any(|a| fits(e, a, true, bindings)) {
            // The same place again shows what differs, when it is by name.
            let twin = a.iter().find(|a| a["name"] == e["name"] && !e["name"].is_null());
            match twin {
                Some(twin) => json(e, twin, &format!("{path}[{i}]"), true, bindings, out),
                None => out.push(format!("{path}[{i}]: not found, want {}", short(e))),
            }
            return;
        }
    }
}

fn sort_key(value: &Value) -> String {
    let mut v = value.clone();
    if let Some(m) = v.as_object_mut() {
        m.remove("time");
    }
    v.to_string()
}

fn set(e: &Value, a: &Value, path: &str, partial: bool, bindings: &mut Bindings, out: &mut Vec<String>) {
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let (mut e, mut a) = (list(e), list(a));
    // Those that fit, whatever their order, are done; the rest is shown.
    e.retain(|e| match a.iter().position(|a| fits(e, a, partial, bindings)) {
        Some(i) => {
            a.remove(i);
            false
        }
        None => true,
    });
    e.sort_by_key(sort_key);
    a.sort_by_key(sort_key);
    for entry in &e {
        let twin = a.iter().position(|a| {
            ["manager", "operation", "subresource", "field"].iter().all(|f| a[*f] == entry[*f])
        });
        match twin {
            Some(i) => {
                let found = a.remove(i);
                json(
                    entry,
                    &found,
                    &format!("{path}[{}]", entry["manager"].as_str().unwrap_or("")),
                    partial,
                    bindings,
                    out,
                );
            }
            None => out.push(format!("{path}: no {}", short(entry))),
        }
    }
    if !partial {
        for extra in &a {
            out.push(format!("{path}: unexpected {}", short(extra)));
        }
    }
}

/// What stands before and after the dump of a patched document (the README: Go-internal text).
fn around_dump(text: &str) -> Option<(&str, &str)> {
    let (head, rest) =
        text.split_once("patch: Invalid value: \"{").or_else(|| text.split_once("Invalid value: \"{"))?;
    let (_, tail) = rest.rsplit_once("}\": ")?;
    Some((head, tail))
}

/// What stands before a dump of a Go struct, a diff of a spec or a compiler's complaint: the head that clients
/// read (the README: Go-internal text).
fn before_go_text(text: &str) -> Option<&str> {
    let specs = [
        "spec.template: Invalid value: {",
        "spec.template.spec: Invalid value: {",
        "spec: Invalid value: {\"",
        "pod updates may not change fields other than",
        "spec.persistentvolumesource is immutable after creation",
        "spec is immutable after creation except",
        "compilation failed: ",
    ];
    let starts = [
        "Invalid value: {\"labels\"",
        "Invalid value: {\"metadata\"",
        "Invalid value: {\"Spec\"",
        "Invalid value: {\"Volumes\"",
        "Invalid value: {\"containers\"",
        "Invalid value: {\"Devices\"",
        "Invalid value: {\"devices\"",
    ];
    let whole = starts.iter().find(|s| text.starts_with(**s)).map(|_| "Invalid value: {".len());
    let end = whole.or_else(|| specs.iter().filter_map(|s| text.find(s).map(|at| at + s.len())).min())?;
    text.get(..end)
}

/// Messages that list several things may list them in any order.
fn message(e: &Value, a: &Value, path: &str, bindings: &mut Bindings, out: &mut Vec<String>) {
    if fits(e, a, false, bindings) {
        return;
    }
    let (Some(e_text), Some(a_text)) = (e.as_str(), a.as_str()) else {
        return json(e, a, path, false, bindings, out);
    };
    if let (Some(e_head), Some(a_head)) = (before_go_text(e_text), before_go_text(a_text)) {
        if !bindings.matches(e_head, a_head) {
            out.push(format!("{path}: {a_head:?}, want {e_head:?}"));
        }
        return;
    }
    if let (Some(e), Some(a)) = (around_dump(e_text), around_dump(a_text)) {
        let (e, a) = (format!("{}…{}", e.0, e.1), format!("{}…{}", a.0, a.1));
        if !bindings.matches(&e, &a) {
            out.push(format!("{path}: {a:?}, want {e:?}"));
        }
        return;
    }
    let parts = |text: &str| {
        let text = text.replace(": [", ": ").replace("]", "").replace('\n', ", ");
        let text = text.replace("strict decoding error: ", "strict decoding error, ");
        let mut parts: Vec<String> = text.split(", ").map(str::to_owned).collect();
        let head = parts
            .first()
            .and_then(|f| f.split_once(" is invalid: "))
            .map(|(h, t)| (h.to_owned(), t.to_owned()));
        if let Some((head, tail)) = head {
            parts[0] = tail;
            parts.push(head);
        }
        parts.sort();
        parts
    };
    if parts(&bindings.fill(e_text, "")) != parts(a_text) {
        json(e, a, path, false, bindings, out);
    }
}

/// Compares texts; with `partial` every recorded line must be there, in order.
pub fn text(expected: &str, actual: &str, partial: bool, bindings: &mut Bindings, out: &mut Vec<String>) {
    if partial {
        let mut rest = actual.lines();
        for line in expected.lines() {
            if !rest.any(|l| bindings.matches(line, l)) {
                out.push(format!("text: no line {line:?} in {actual:?}"));
                return;
            }
        }
        return;
    }
    if expected == actual {
        return;
    }
    let (e, a): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    if e.len() != a.len() {
        out.push(format!("text: {actual:?}, want {expected:?}"));
        return;
    }
    for (e, a) in e.iter().zip(a) {
        if !bindings.matches(e, a) {
            out.push(format!("text: line {a:?}, want {e:?}"));
        }
    }
}
