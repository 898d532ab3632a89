//! YAML as `sigs.k8s.io/yaml` writes it: sorted keys, lists not indented, long plain and quoted scalars folded
//! after column 80, several lines as a literal block.

use std::fmt::Write as _;

use serde_json::Value;

const WIDTH: usize = 80;
/// Deeper values are written in flow style; the emitter's recursion ends there.
const MAX_DEPTH: usize = 200;

/// Writes a value as a YAML document.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(m) if !m.is_empty() => mapping(&mut out, m, 0, false, 0),
        Value::Array(a) if !a.is_empty() => sequence(&mut out, a, 0, 0),
        other => {
            scalar(&mut out, other, 0);
            out.push('\n');
        }
    }
    out
}

fn mapping(
    out: &mut String,
    map: &serde_json::Map<String, Value>,
    indent: usize,
    mut inline: bool,
    depth: usize,
) {
    for (key, value) in map {
        if !std::mem::take(&mut inline) {
            pad(out, indent);
        }
        string(out, key, indent, true);
        out.push(':');
        node(out, value, indent, indent, depth);
    }
}

fn sequence(out: &mut String, list: &[Value], indent: usize, depth: usize) {
    for value in list {
        pad(out, indent);
        out.push('-');
        match value {
            Value::Object(m) if !m.is_empty() && depth < MAX_DEPTH => {
                out.push(' ');
                mapping(out, m, indent + 2, true, depth + 1);
            }
            other => node(out, other, indent + 2, indent + 2, depth),
        }
    }
}

/// A value after `key:` or `-`.
fn node(out: &mut String, value: &Value, map_indent: usize, list_indent: usize, depth: usize) {
    match value {
        _ if depth >= MAX_DEPTH => {
            let _ = writeln!(out, " {value}");
        }
        Value::Object(m) if !m.is_empty() => {
            out.push('\n');
            mapping(out, m, map_indent + 2, false, depth + 1);
        }
        Value::Array(a) if !a.is_empty() => {
            out.push('\n');
            sequence(out, a, list_indent, depth + 1);
        }
        other => {
            out.push(' ');
            scalar(out, other, map_indent + 2);
            out.push('\n');
        }
    }
}

fn pad(out: &mut String, n: usize) {
    out.extend(std::iter::repeat_n(' ', n));
}

fn scalar(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::String(s) => string(out, s, indent, false),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn string(out: &mut String, text: &str, indent: usize, key: bool) {
    if text.is_empty() {
        out.push_str("\"\"");
    } else if text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{feff}') {
        double_quoted(out, text);
    } else if text.contains('\n') {
        if key || text.starts_with(' ') || text.lines().any(|l| l.ends_with(' ')) {
            double_quoted(out, text);
        } else {
            literal(out, text, indent);
        }
    } else if resolves(text) {
        double_quoted(out, text);
    } else if plain_allowed(text) {
        folded(out, text, indent, key);
    } else {
        out.push('\'');
        folded(out, &text.replace('\'', "''"), indent, key);
        out.push('\'');
    }
}

fn folded(out: &mut String, text: &str, indent: usize, key: bool) {
    let start = out.rfind('\n').map_or(0, |i| i + 1);
    let mut column = out[start..].chars().count();
    let mut chars = text.chars().peekable();
    let mut spaces = false;
    while let Some(c) = chars.next() {
        let breaks = c == ' ' && !spaces && !key && column > WIDTH;
        if breaks && chars.peek().is_some_and(|n| *n != ' ') {
            out.push('\n');
            pad(out, indent);
            column = indent;
        } else {
            out.push(c);
            column += 1;
        }
        spaces = c == ' ';
    }
}

fn literal(out: &mut String, text: &str, indent: usize) {
    out.push('|');
    if !text.ends_with('\n') {
        out.push('-');
    } else if text.ends_with("\n\n") || text == "\n" {
        out.push('+');
    }
    for line in text.trim_end_matches('\n').split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, indent);
            out.push_str(line);
        }
    }
    let trailing = text.len() - text.trim_end_matches('\n').len();
    out.extend(std::iter::repeat_n('\n', trailing.saturating_sub(1)));
}

fn double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || c == '\u{feff}' => {
                let code = u32::from(c);
                let _ =
                    if code < 0x100 { write!(out, "\\x{code:02X}") } else { write!(out, "\\u{code:04X}") };
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Whether a reader would take the plain text for something that is not a string.
fn resolves(text: &str) -> bool {
    const WORDS: [&str; 12] =
        ["~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", "<<"];
    let lower = text.to_ascii_lowercase();
    if WORDS.contains(&lower.as_str()) || matches!(lower.trim_start_matches(['+', '-']), ".inf") {
        return true;
    }
    let digits = text.trim_start_matches(['+', '-']).replace('_', "");
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && (digits.parse::<f64>().is_ok()
            || digits.strip_prefix("0x").is_some_and(|h| i64::from_str_radix(h, 16).is_ok())
            || digits.strip_prefix("0o").is_some_and(|h| i64::from_str_radix(h, 8).is_ok())
            || digits.strip_prefix("0b").is_some_and(|h| i64::from_str_radix(h, 2).is_ok()));
    numeric || looks_like_time(text)
}

fn looks_like_time(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() >= 8
        && b.iter().take(4).all(u8::is_ascii_digit)
        && b.get(4) == Some(&b'-')
        && (text.parse::<jiff::Timestamp>().is_ok() || text.parse::<jiff::civil::Date>().is_ok())
}

fn plain_allowed(text: &str) -> bool {
    let first = text.chars().next().unwrap_or(' ');
    let indicator = "#,[]{}&*!|>'\"%@`".contains(first)
        || ("-?:".contains(first) && text.chars().nth(1).is_none_or(|c| c == ' '));
    !(indicator
        || first == ' '
        || text.ends_with(' ')
        || text.ends_with(':')
        || text.contains(": ")
        || text.contains(" #")
        || text.starts_with("---")
        || text.starts_with("..."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_as_upstream_does() {
        let value = json!({
            "a": ["x", {"b": 1, "c": {}}, []], "e": "", "n": "5", "t": "2024-01-01T00:00:00Z", "q": "a: b",
            "m": "one\ntwo", "k": {"f:x": {".": {}}},
        });
        let want = "a:\n- x\n- b: 1\n  c: {}\n- []\ne: \"\"\nk:\n  f:x:\n    .: {}\nm: |-\n  one\n  two\n\
                    \"n\": \"5\"\nq: 'a: b'\nt: \"2024-01-01T00:00:00Z\"\n";
        assert_eq!(to_yaml(&value), want);
    }

    #[test]
    fn folds_after_column_80() {
        let text = "only the following media types are accepted: application/json;stream=watch, \
                    application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(
            to_yaml(&json!({"message": text})),
            "message: 'only the following media types are accepted: application/json;stream=watch,\n  \
             application/vnd.kubernetes.protobuf;stream=watch'\n"
        );
    }
}
