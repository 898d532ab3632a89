//! Label selectors in configuration files (`k8s.io/apimachinery/pkg/apis/meta/v1/validation`).

use std::collections::BTreeMap;

use plimsoll_state::model::{LabelSelector as Selector, Operator, Requirement as Condition};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct LabelSelector {
    pub(super) match_labels: BTreeMap<String, String>,
    pub(super) match_expressions: Vec<Requirement>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Requirement {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) values: Vec<String>,
}

impl LabelSelector {
    /// As the engine matches it; what is wrong goes to `errors`.
    pub(super) fn read(&self, path: &str, errors: &mut Vec<String>) -> Selector {
        let label = |(key, value): (&String, &String)| Condition {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.clone()],
        };
        let mut requirements: Vec<Condition> = self.match_labels.iter().map(label).collect();
        for (i, raw) in self.match_expressions.iter().enumerate() {
            let at = format!("{path}.matchExpressions[{i}]");
            if let Some(operator) = raw.operator(&at, errors) {
                requirements.push(Condition { key: raw.key.clone(), operator, values: raw.values.clone() });
            }
        }
        Selector { requirements }
    }
}

impl Requirement {
    fn operator(&self, at: &str, errors: &mut Vec<String>) -> Option<Operator> {
        if self.key.is_empty() {
            errors.push(format!("{at}.key: Invalid value: \"\": name part must be non-empty"));
        }
        let operator = match self.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                errors.push(format!(
                    "{at}.operator: Invalid value: {other:?}: not a valid selector operator: supported values: \"In\", \
                     \"NotIn\", \"Exists\", \"DoesNotExist\""
                ));
                return None;
            }
        };
        match (operator, self.values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => errors.push(format!(
                "{at}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
            )),
            (Operator::Exists | Operator::DoesNotExist, false) => errors.push(format!(
                "{at}.values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )),
            _ => {}
        }
        Some(operator)
    }
}
