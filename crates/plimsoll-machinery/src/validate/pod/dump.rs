//! Pods as Go prints the structs of its internal types, and how two of them differ: some messages show that whole.

use serde_json::Value;

use super::super::selector;
use crate::obj::{Obj, as_obj};

/// Struct, then its fields: name, `=`, name on the wire (`^`: in the object around it), `:`, type.
const TYPES: &str = include_str!("../../../data/internal.txt");

/// Lines around a change that are shown.
const CONTEXT: usize = 3;
/// Most lines of either side that are compared one by one.
const MAX_LINES: usize = 2000;

/// A pod's spec on one line.
pub(in super::super) fn spec(spec: &Obj) -> String {
    let mut out = String::new();
    write_struct("PodSpec", spec, spec, None, &mut out);
    out
}

/// What changes between two specs: a unified diff of them, one field a line (apimachinery `diff.Diff`).
pub(super) fn changes(old: &Obj, new: &Obj) -> String {
    let pretty = |spec: &Obj| {
        let mut out = String::new();
        write_struct("PodSpec", spec, spec, Some(0), &mut out);
        out
    };
    let (old, new) = (pretty(old), pretty(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    unified(&old, &new)
}

fn fields(name: &str) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let row = TYPES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_default();
    row.split_ascii_whitespace().filter_map(|field| {
        let (go, rest) = field.split_once('=')?;
        let (wire, kind) = rest.split_once(':')?;
        Some((go, wire, kind))
    })
}

fn line(indent: Option<usize>, out: &mut String) {
    if let Some(depth) = indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    }
}

fn write_struct(name: &str, o: &Obj, around: &Obj, indent: Option<usize>, out: &mut String) {
    let inner = indent.map(|depth| depth + 1);
    out.push('{');
    let mut first = true;
    for (go, wire, kind) in fields(name) {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        line(inner, out);
        out.push_str(&format!("\"{go}\":{}", if indent.is_some() { " " } else { "" }));
        let value = match wire.strip_prefix('^') {
            Some(wire) => around.get(wire),
            None => o.get(wire),
        };
        write(kind, value.filter(|v| !v.is_null()), o, inner, out);
    }
    line(indent, out);
    out.push('}');
}

fn write(kind: &str, value: Option<&Value>, around: &Obj, indent: Option<usize>, out: &mut String) {
    let (pointer, kind) = kind.strip_prefix('*').map_or((false, kind), |kind| (true, kind));
    if let Some(items) = kind.strip_prefix("[]") {
        return write_list(items, value, around, indent, out);
    }
    let zero = match kind {
        _ if pointer => "null",
        "s" => "\"\"",
        "i" => "0",
        "b" => "false",
        "q" => "\"0\"",
        "map" | "raw" => "null",
        _ => "",
    };
    match (value, kind) {
        (None, _) if !zero.is_empty() => out.push_str(zero),
        (Some(value), "s" | "i" | "b" | "q") => out.push_str(&value.to_string()),
        (Some(value), "map" | "raw") => write_tagged(value, indent, out),
        (value, name) => {
            let empty = crate::obj::empty();
            write_struct(name, value.map_or(empty, as_obj), around, indent, out);
        }
    }
}

fn write_list(items: &str, value: Option<&Value>, around: &Obj, indent: Option<usize>, out: &mut String) {
    let Some(list) = value.and_then(Value::as_array) else {
        out.push_str("null");
        return;
    };
    out.push('[');
    let inner = indent.map(|depth| depth + 1);
    for (i, item) in list.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        line(inner, out);
        write(items, Some(item), around, inner, out);
    }
    if !list.is_empty() {
        line(indent, out);
    }
    out.push(']');
}

/// Maps, and types that are printed as they are on the wire: label selectors.
fn write_tagged(value: &Value, indent: Option<usize>, out: &mut String) {
    let o = as_obj(value);
    let selects = o.contains_key("matchLabels") || o.contains_key("matchExpressions");
    let compact = if selects { selector::shown(o) } else { value.to_string() };
    let Some(depth) = indent else {
        out.push_str(&compact);
        return;
    };
    // One entry a line; strings are passed over whole.
    let (mut depth, mut text, mut escaped) = (depth, false, false);
    for c in compact.chars() {
        if text {
            out.push(c);
            text = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            '{' | '[' => {
                depth += 1;
                out.push(c);
                line(Some(depth), out);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(Some(depth), out);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(Some(depth), out);
            }
            ':' => out.push_str(": "),
            c => {
                text = c == '"';
                out.push(c);
            }
        }
    }
}

/// One line of a diff: kept, gone or new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    Keep,
    Gone,
    New,
}

/// The edits that turn one list of lines into the other, with as few changes as there can be.
fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (a, b) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let a = a.get(..a.len() - tail).unwrap_or_default();
    let b = b.get(..b.len() - tail).unwrap_or_default();
    let mut all = vec![Edit::Keep; head];
    if a.len() > MAX_LINES || b.len() > MAX_LINES {
        all.extend(vec![Edit::Gone; a.len()]);
        all.extend(vec![Edit::New; b.len()]);
    } else {
        middle(a, b, &mut all);
    }
    all.extend(vec![Edit::Keep; tail]);
    all
}

/// Longest common subsequence.
fn middle(a: &[&str], b: &[&str], all: &mut Vec<Edit>) {
    let width = b.len() + 1;
    let mut best = vec![0_u16; (a.len() + 1) * width];
    let at = |best: &[u16], i: usize, j: usize| best.get(i * width + j).copied().unwrap_or(0);
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            let value = if x == y {
                at(&best, i + 1, j + 1) + 1
            } else {
                at(&best, i + 1, j).max(at(&best, i, j + 1))
            };
            if let Some(cell) = best.get_mut(i * width + j) {
                *cell = value;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a.get(i) == b.get(j) {
            all.push(Edit::Keep);
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || at(&best, i + 1, j) >= at(&best, i, j + 1)) {
            all.push(Edit::Gone);
            i += 1;
        } else {
            all.push(Edit::New);
            j += 1;
        }
    }
}

/// The changed parts with what is around them.
fn unified(old: &[&str], new: &[&str]) -> String {
    let edits = edits(old, new);
    let shown = |i: usize| {
        let from = i.saturating_sub(CONTEXT);
        let near = edits.get(from..(i + CONTEXT + 1).min(edits.len())).unwrap_or_default();
        near.iter().any(|e| *e != Edit::Keep)
    };
    let (mut out, mut hunk) = (String::new(), String::new());
    let (mut i, mut j, mut from, mut counts) = (0, 0, (0, 0), (0, 0));
    for (at, edit) in edits.iter().enumerate() {
        if shown(at) {
            if hunk.is_empty() {
                (from, counts) = ((i, j), (0, 0));
            }
            let (sign, text) = match edit {
                Edit::Keep => (' ', old.get(i)),
                Edit::Gone => ('-', old.get(i)),
                Edit::New => ('+', new.get(j)),
            };
            counts.0 += usize::from(*edit != Edit::New);
            counts.1 += usize::from(*edit != Edit::Gone);
            hunk.push(sign);
            hunk.push_str(text.copied().unwrap_or_default());
            hunk.push('\n');
        } else if !hunk.is_empty() {
            close(&mut out, &mut hunk, from, counts);
        }
        i += usize::from(*edit != Edit::New);
        j += usize::from(*edit != Edit::Gone);
    }
    close(&mut out, &mut hunk, from, counts);
    out
}

fn close(out: &mut String, hunk: &mut String, from: (usize, usize), counts: (usize, usize)) {
    let range = |from: usize, count: usize| match count {
        1 => (from + 1).to_string(),
        0 => format!("{from},0"),
        _ => format!("{},{count}", from + 1),
    };
    if !hunk.is_empty() {
        out.push_str(&format!("@@ -{} +{} @@\n{hunk}", range(from.0, counts.0), range(from.1, counts.1)));
        hunk.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_changed_field_is_shown_in_its_place() {
        let pod = |grace: i64| json!({"terminationGracePeriodSeconds": grace, "restartPolicy": "Always", "nodeSelector": {"a": "b"}});
        let (old, new) = (pod(30), pod(1));
        assert_eq!(
            changes(as_obj(&old), as_obj(&new)),
            "@@ -4,7 +4,7 @@\n  \"Containers\": null,\n  \"EphemeralContainers\": null,\n  \"RestartPolicy\": \"Always\",\n- \"TerminationGracePeriodSeconds\": 30,\n+ \"TerminationGracePeriodSeconds\": 1,\n  \"ActiveDeadlineSeconds\": null,\n  \"DNSPolicy\": \"\",\n  \"NodeSelector\": {\n"
        );
        assert!(spec(as_obj(&old)).contains("\"NodeSelector\":{\"a\":\"b\"},\"ServiceAccountName\":\"\""));
    }

    #[test]
    fn every_type_is_known() {
        for line in TYPES.lines() {
            let name = line.split(' ').next().unwrap();
            for (_, _, kind) in fields(name) {
                let kind = kind.trim_start_matches("[]").trim_start_matches('*');
                let known = matches!(kind, "s" | "i" | "b" | "q" | "map" | "raw")
                    || fields(kind).next().is_some()
                    || TYPES.lines().any(|l| l.trim() == kind);
                assert!(known, "{name}: {kind}");
            }
        }
    }
}
