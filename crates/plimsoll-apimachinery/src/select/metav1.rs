//! Label selectors in objects.

use std::collections::BTreeMap;

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use super::LabelSelector;

/// Whether a `metav1.LabelSelector` selects labels. An absent one selects nothing, an empty one everything.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let labels: BTreeMap<String, String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
        .insert_each();
    LabelSelector::parse(&selector_text(selector)).is_ok_and(|s| s.matches(&labels))
}

/// A `metav1.LabelSelector` (or the map of an old one) in the syntax of queries.
pub fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    let plain = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let labels = if plain { selector.as_object() } else { selector["matchLabels"].as_object() };
    for (key, value) in labels.into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or(""))));
    }
    for e in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = e["key"].as_str().unwrap_or("").to_owned();
        let mut values: Vec<&str> =
            e["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match e["operator"].as_str().unwrap_or("") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        parts.push((key, text));
    }
    // Those of one key stay in their order (`labels.ByKey`).
    parts.sort_by(|(a, _), (b, _)| a.cmp(b));
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_of_one_key_keep_their_order() {
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "app", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["y", "x"]}]});
        assert_eq!(selector_text(&selector), "a in (x,y),app=web,app");
    }
}
