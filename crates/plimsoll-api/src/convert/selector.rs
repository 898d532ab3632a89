//! Selectors.

use super::{ConvertError, Result, bad, decode_value, string_map};
use crate::lean::selector as lean;
use plimsoll_state::model::{LabelSelector, NodeSelector, NodeSelectorTerm, Operator, Requirement};

/// A label selector from its JSON form.
///
/// # Errors
/// When it is malformed or has an unknown operator.
pub fn label_selector_from_value(
    value: &serde_json::Value,
) -> std::result::Result<LabelSelector, ConvertError> {
    label_selector("labelSelector", decode_value("LabelSelector", value)?)
}

/// A node selector from its JSON form.
///
/// # Errors
/// When it is malformed or has an unknown operator.
pub fn node_selector_from_value(
    value: &serde_json::Value,
) -> std::result::Result<NodeSelector, ConvertError> {
    node_selector("nodeSelector", decode_value("NodeSelector", value)?)
}

/// `matchLabels` in key order, then `matchExpressions`.
pub(crate) fn label_selector(field: &str, raw: lean::LabelSelector) -> Result<LabelSelector> {
    let mut requirements: Vec<Requirement> = string_map(raw.match_labels)
        .into_iter()
        .map(|(key, v)| Requirement { key, operator: Operator::In, values: vec![v] })
        .collect();
    for r in raw.match_expressions.unwrap_or_default() {
        let r = requirement(field, r)?;
        if matches!(r.operator, Operator::Gt | Operator::Lt) {
            return bad(format!("{field}.matchExpressions"), "not a valid label selector operator");
        }
        requirements.push(r);
    }
    Ok(LabelSelector { requirements })
}

pub(crate) fn node_selector(field: &str, raw: lean::NodeSelector) -> Result<NodeSelector> {
    let terms = raw.node_selector_terms.unwrap_or_default();
    Ok(NodeSelector { terms: terms.into_iter().map(|t| term(field, t)).collect::<Result<_>>()? })
}

pub(crate) fn term(field: &str, raw: lean::NodeSelectorTerm) -> Result<NodeSelectorTerm> {
    let list = |l: Option<Vec<lean::Requirement>>| {
        l.unwrap_or_default().into_iter().map(|r| requirement(field, r)).collect::<Result<Vec<_>>>()
    };
    Ok(NodeSelectorTerm { expressions: list(raw.match_expressions)?, fields: list(raw.match_fields)? })
}

fn requirement(field: &str, raw: lean::Requirement) -> Result<Requirement> {
    let operator = match raw.operator.as_deref().unwrap_or_default() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        other => return bad(field, format!("{other:?} is not a valid selector operator")),
    };
    Ok(Requirement { key: raw.key.unwrap_or_default(), operator, values: raw.values.unwrap_or_default() })
}
