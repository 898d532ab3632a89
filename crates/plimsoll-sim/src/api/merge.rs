//! Patches as the API server applies them.

use serde_json::Value;

/// How a patch is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Strategic merge patch, as far as pods and nodes need it: conditions merge by type.
    Strategic,
}

/// Applies `patch` to `target`.
pub fn apply(target: &mut Value, patch: &Value, style: Style) {
    let Value::Object(changes) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, change) in changes {
        match change {
            Value::Null => {
                map.remove(key);
            }
            Value::Array(rows) if style == Style::Strategic && key == "conditions" => {
                let list = map.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                merge_conditions(list, rows);
            }
            Value::Object(_) => apply(map.entry(key.clone()).or_insert(Value::Null), change, style),
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                map.insert(key.clone(), change.clone());
            }
        }
    }
}

fn merge_conditions(list: &mut Value, rows: &[Value]) {
    let Value::Array(list) = list else {
        *list = Value::Array(rows.to_vec());
        return;
    };
    for row in rows {
        match list.iter_mut().find(|c| c["type"] == row["type"]) {
            Some(old) => apply(old, row, Style::Merge),
            None => list.push(row.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patches_follow_the_standard_and_strategic_ones_merge_conditions() {
        for (target, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": 1}), json!({"a": {"b": {"c": null}}}), json!({"e": 1, "a": {"b": {}}})),
        ] {
            let mut got = target;
            apply(&mut got, &patch, Style::Merge);
            assert_eq!(got, want);
        }
        let mut pod =
            json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]});
        let patch =
            json!({"conditions": [{"type": "B", "status": "False"}, {"type": "C", "status": "True"}]});
        apply(&mut pod, &patch, Style::Strategic);
        let states: Vec<_> = pod["conditions"].as_array().unwrap().iter().map(|c| &c["status"]).collect();
        assert_eq!(states, ["True", "False", "True"]);
    }
}
