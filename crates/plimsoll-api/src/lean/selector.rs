//! Selectors.

use super::meta::Map;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    pub match_labels: Map<Option<String>>,
    pub match_expressions: Option<Vec<Requirement>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requirement {
    pub key: Option<String>,
    pub operator: Option<String>,
    pub values: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    pub node_selector_terms: Option<Vec<NodeSelectorTerm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    pub match_expressions: Option<Vec<Requirement>>,
    pub match_fields: Option<Vec<Requirement>>,
}
