//! Templates of manifests: what is merged over a default, and formulas in strings.

use anyhow::{Context, bail};
use serde_json::Value;

/// The manifests of all kinds.
pub fn kinds(count: usize, base: &Value, patch: &Value) -> anyhow::Result<Vec<Value>> {
    if count == 0 {
        bail!("kinds must be at least 1");
    }
    (0..count).map(|i| kind(base, patch, i, "")).collect()
}

/// The manifest of kind `i`, for the object `name`.
pub fn kind(base: &Value, patch: &Value, i: usize, name: &str) -> anyhow::Result<Value> {
    let mut one = base.clone();
    merge(&mut one, &fill(patch, i, name)?);
    Ok(one)
}

/// Objects are merged, everything else is replaced.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(patch)) => {
            for (k, v) in patch {
                merge(into.entry(k.clone()).or_insert(Value::Null), v);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// Replaces `{i…}` and `{name}` in all strings.
pub fn fill(value: &Value, i: usize, name: &str) -> anyhow::Result<Value> {
    Ok(match value {
        Value::String(s) => Value::String(text(&s.replace("{name}", name), i)?),
        Value::Array(list) => {
            Value::Array(list.iter().map(|v| fill(v, i, name)).collect::<anyhow::Result<_>>()?)
        }
        Value::Object(map) => Value::Object(
            map.iter().map(|(k, v)| Ok((k.clone(), fill(v, i, name)?))).collect::<anyhow::Result<_>>()?,
        ),
        other => other.clone(),
    })
}

fn text(template: &str, i: usize) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{i") {
        let (formula, after) = after.split_once('}').with_context(|| format!("{template:?}: no end"))?;
        out.push_str(before);
        out.push_str(&compute(formula, i).with_context(|| format!("{template:?}"))?.to_string());
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Operators with numbers, from left to right, beginning with `i`.
fn compute(formula: &str, i: usize) -> Option<usize> {
    let mut value = i;
    let mut rest = formula;
    while let Some(operator) = rest.chars().next() {
        let after = rest.get(operator.len_utf8()..)?;
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, more) = after.split_at_checked(end)?;
        let number: usize = number.parse().ok()?;
        value = match operator {
            '+' => value.checked_add(number)?,
            '*' => value.checked_mul(number)?,
            '%' => value.checked_rem(number)?,
            '/' => value.checked_div(number)?,
            _ => return None,
        };
        rest = more;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_apply_from_left_to_right() {
        for (template, i, want) in [("g{i%7}", 9, "g2"), ("{i%20*10+50}m", 21, "60m"), ("x", 1, "x")] {
            assert_eq!(text(template, i).expect(template), want);
        }
        for bad in ["{i", "{i%0}", "{i?3}", "{i+}"] {
            assert!(text(bad, 1).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_filled_in() {
        let filled = fill(&serde_json::json!({"a": ["{name}-{i+1}"]}), 2, "node-1").expect("a template");
        assert_eq!(filled["a"][0], "node-1-3");
    }
}
