//! Arguments of NodeAffinity: `addedAffinity`, core/v1's NodeAffinity read strictly
//! (`k8s.io/component-helpers/scheduling/corev1/nodeaffinity`).

use plimsoll_state::model::NodeAffinity as Model;
use serde::Deserialize;
use serde_json::{Value, json};

use super::errors::Errors;
use crate::selector::Requirement;
use crate::unsupported;
use plimsoll_api::convert;

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
        let terms = each.map(|(i, t)| term(t, &format!("{at}.nodeSelectorTerms[{i}]"), e));
        json!({"nodeSelectorTerms": terms.collect::<Vec<_>>()})
    });
    let at = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution";
    let each = raw.preferred.unwrap_or_default().into_iter().enumerate();
    let preferred = each.map(|(i, p)| {
        json!({"weight": p.weight, "preference": term(p.preference, &format!("{at}[{i}].preference"), e)})
    });
    let preferred: Vec<Value> = preferred.collect();
    let affinity = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    });
    if e.list.len() > before {
        return None;
    }
    match convert::node_affinity_from_value(&affinity) {
        Ok(model) => Some(model),
        Err(error) => {
            e.add("addedAffinity", error);
            None
        }
    }
}

fn term(raw: Term, at: &str, e: &mut Errors<'_>) -> Value {
    let mut list = |list: Vec<Requirement>, field: &str| {
        for (i, r) in list.iter().enumerate() {
            if !OPERATORS.contains(&r.operator.as_str()) {
                e.add(&format!("{at}.{field}[{i}].operator"), unsupported(&r.operator, &OPERATORS));
            }
        }
        let one = |r: Requirement| json!({"key": r.key, "operator": r.operator, "values": r.values});
        list.into_iter().map(one).collect::<Vec<_>>()
    };
    json!({
        "matchExpressions": list(raw.match_expressions, "matchExpressions"),
        "matchFields": list(raw.match_fields, "matchFields"),
    })
}
