//! Arguments of NodeAffinity: `addedAffinity`, core/v1's NodeAffinity read strictly
//! (`k8s.io/component-helpers/scheduling/corev1/nodeaffinity`).

use plimsoll_state::model::NodeAffinity as Model;
use serde::Deserialize;

use super::errors::Errors;
use crate::config::selector::Requirement;
use crate::config::unsupported;
use crate::{convert, lean};

const OPERATORS: [&str; 6] = ["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Option<Vec<PreferredTerm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NodeSelector {
    node_selector_terms: Vec<Term>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Term {
    match_expressions: Vec<Requirement>,
    match_fields: Vec<Requirement>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PreferredTerm {
    weight: i32,
    preference: Term,
}

/// As the engine knows it; what is wrong goes to `e`.
pub(super) fn read(raw: NodeAffinity, e: &mut Errors<'_>) -> Option<Model> {
    let before = e.list.len();
    let at = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    let required = raw.required.map(|r| {
        let each = r.node_selector_terms.into_iter().enumerate();
        let terms = each.map(|(i, t)| term(t, &format!("{at}.nodeSelectorTerms[{i}]"), e)).collect();
        lean::selector::NodeSelector { node_selector_terms: Some(terms) }
    });
    let at = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution";
    let each = raw.preferred.unwrap_or_default().into_iter().enumerate();
    let preferred = each.map(|(i, p)| lean::pod::PreferredTerm {
        weight: Some(p.weight),
        preference: Some(term(p.preference, &format!("{at}[{i}].preference"), e)),
    });
    let affinity = lean::pod::NodeAffinity { required, preferred: Some(preferred.collect()) };
    if e.list.len() > before {
        return None;
    }
    match convert::node_affinity(affinity) {
        Ok(model) => Some(model),
        Err(error) => {
            e.add("addedAffinity", error);
            None
        }
    }
}

fn term(raw: Term, at: &str, e: &mut Errors<'_>) -> lean::selector::NodeSelectorTerm {
    let mut list = |list: Vec<Requirement>, field: &str| {
        for (i, r) in list.iter().enumerate() {
            if !OPERATORS.contains(&r.operator.as_str()) {
                e.add(&format!("{at}.{field}[{i}].operator"), unsupported(&r.operator, &OPERATORS));
            }
        }
        let lean = |r: Requirement| lean::selector::Requirement {
            key: Some(r.key),
            operator: Some(r.operator),
            values: Some(r.values),
        };
        Some(list.into_iter().map(lean).collect())
    };
    lean::selector::NodeSelectorTerm {
        match_expressions: list(raw.match_expressions, "matchExpressions"),
        match_fields: list(raw.match_fields, "matchFields"),
    }
}
