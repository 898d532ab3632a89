//! Paths of fields and entries of maps in a schema, as rules and selectable fields name them (apiextensions
//! `cel.ValidFieldPath`).

use serde_json::Value;

use crate::json::at;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A field.
    Field(String),
    /// An entry of a map.
    Key(String),
}

impl Step {
    /// The name of the field or entry.
    pub fn name(&self) -> &str {
        match self {
            Self::Field(name) | Self::Key(name) => name,
        }
    }
}

/// Steps as paths in errors show them.
pub fn shown(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text.push_str(&format!(".{name}")),
            Step::Key(name) => text.push_str(&format!("[{name}]")),
        }
    }
    text
}

/// A path within a schema as errors of rules show it; empty where the path is missing or doesn't resolve.
pub fn normal(path: &str, schema: &Value) -> String {
    if path.is_empty() {
        return String::new();
    }
    find(path, schema, true).map(|(steps, _)| shown(&steps)).unwrap_or_default()
}

/// Follows a path through a schema to the schema it names; `brackets`: entries may be written `['name']`.
///
/// # Errors
/// Upstream's words.
pub fn find<'a>(path: &str, schema: &'a Value, brackets: bool) -> Result<(Vec<Step>, &'a Value), String> {
    let mut here = schema;
    let mut steps = Vec::new();
    let all = tokens(path);
    let mut rest = all.iter().copied();
    while let Some(token) = rest.next() {
        let end = || "unexpected end of JSON path".to_owned();
        match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = rest.next().ok_or_else(end)?;
                let inner = quoted.strip_prefix('\'').and_then(|q| q.strip_suffix('\''));
                let Some(name) = inner.filter(|_| quoted.len() >= 2) else {
                    return Err(format!("expected single quoted string but got {quoted}"));
                };
                here = step(here, &unescape(name)?, &mut steps)?;
                let close = rest.next().ok_or_else(end)?;
                if close != "]" {
                    return Err(format!("expected ] but got {close}"));
                }
            }
            "." => here = step(here, rest.next().ok_or_else(end)?, &mut steps)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok((steps, here))
}

fn step<'a>(schema: &'a Value, name: &str, steps: &mut Vec<Step>) -> Result<&'a Value, String> {
    const NONE: &str = "does not refer to a valid field";
    let properties = at(schema, "properties").as_object().filter(|p| !p.is_empty());
    let additional = at(schema, "additionalProperties");
    match properties {
        Some(properties) => {
            let found = properties.get(name).ok_or(NONE)?;
            steps.push(Step::Field(name.to_owned()));
            Ok(found)
        }
        None if !additional.is_null() => {
            steps.push(Step::Key(name.to_owned()));
            Ok(additional)
        }
        None => Err(NONE.to_owned()),
    }
}

/// Splits a path into dots, brackets, strings in single quotes, and names.
fn tokens(path: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => quoted_end(rest),
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        found.push(token);
        rest = after;
    }
    found
}

fn quoted_end(text: &str) -> usize {
    let b = text.as_bytes();
    let close = (1..b.len()).find(|i| b.get(*i) == Some(&b'\'') && b.get(i - 1) != Some(&b'\\'));
    close.map_or(text.len(), |i| i + 1)
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(c @ ('\'' | '"' | '\\')) => out.push(c),
                _ => return Err("invalid string literal: invalid syntax".to_owned()),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let leaf = json!({"type": "string"});
        let schema = json!({"properties": {"a.b": leaf, "m": {"additionalProperties": leaf}, "s": leaf}});
        for (path, brackets, want) in [
            (".s", false, Ok(1)),
            (".m.x", false, Ok(2)),
            ("['a.b']", true, Ok(1)),
            (".m['x']", true, Ok(2)),
            ("s", false, Err("expected [ or . but got: s")),
            (".", false, Err("unexpected end of JSON path")),
            (".q", false, Err("does not refer to a valid field")),
            (".s.t", false, Err("does not refer to a valid field")),
            (".m[0]", true, Err("expected single quoted string but got 0")),
            (".m[0]", false, Err("array notation is not allowed")),
        ] {
            let found = find(path, &schema, brackets).map(|(steps, _)| steps.len());
            assert_eq!(found, want.map_err(str::to_owned), "{path}");
        }
    }
}
