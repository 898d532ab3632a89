//! Arguments of PodTopologySpread (upstream's `ValidatePodTopologySpreadArgs`).

use plimsoll_scheduler::args::Args;
use plimsoll_state::model::UnsatisfiableAction;
use serde::Deserialize;
use serde_json::{Value, json};

use super::errors::Errors;
use crate::selector::LabelSelector;
use crate::unsupported;
use plimsoll_api::convert;

const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const POLICIES: [&str; 2] = ["Honor", "Ignore"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct TopologySpread {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    default_constraints: Option<Vec<Constraint>>,
    defaulting_type: Option<String>,
}

/// `TopologySpreadConstraint` of core/v1.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Constraint {
    max_skew: i32,
    topology_key: String,
    when_unsatisfiable: String,
    label_selector: Option<LabelSelector>,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
    match_label_keys: Option<Vec<String>>,
}

/// Reads the arguments; what is wrong goes to `e`.
pub(super) fn read(raw: TopologySpread, args: &mut Args, e: &mut Errors<'_>) {
    let list = raw.default_constraints.unwrap_or_default();
    let by_list = match raw.defaulting_type.as_deref() {
        // Upstream defaults the type to `System`; only `List` can have constraints.
        None | Some("" | "System") => false,
        Some("List") => true,
        Some(other) => {
            e.add("defaultingType", unsupported(other, &["System", "List"]));
            return;
        }
    };
    if !by_list {
        if !list.is_empty() {
            e.add(
                "defaultingType",
                "Invalid value: \"System\": when .defaultConstraints are not empty, must be \"List\"",
            );
        }
        return;
    }
    let mut out = Vec::new();
    for (i, c) in list.into_iter().enumerate() {
        let before = e.list.len();
        check(&c, &format!("defaultConstraints[{i}]"), e);
        if e.list.len() > before {
            continue;
        }
        match convert::spread_from_value(&in_pods(&c)) {
            Ok(c) => {
                let same = |o: &plimsoll_state::model::SpreadConstraint| {
                    o.topology_key == c.topology_key && o.when_unsatisfiable == c.when_unsatisfiable
                };
                if out.iter().any(same) {
                    let action = match c.when_unsatisfiable {
                        UnsatisfiableAction::DoNotSchedule => "DoNotSchedule",
                        UnsatisfiableAction::ScheduleAnyway => "ScheduleAnyway",
                    };
                    let text = format!("Duplicate value: \"{{{}, {action}}}\"", c.topology_key);
                    e.add(&format!("defaultConstraints[{i}]"), text);
                }
                out.push(c);
            }
            Err(error) => e.add(&format!("defaultConstraints[{i}]"), error),
        }
    }
    args.spread.default_constraints = Some(out);
}

fn check(c: &Constraint, field: &str, e: &mut Errors<'_>) {
    if c.max_skew <= 0 {
        let text = format!("Invalid value: {}: not in valid range (0, inf)", c.max_skew);
        e.add(&format!("{field}.maxSkew"), text);
    }
    if c.topology_key.is_empty() {
        e.add(&format!("{field}.topologyKey"), "Required value: can not be empty");
    }
    match c.when_unsatisfiable.as_str() {
        "" => e.add(&format!("{field}.whenUnsatisfiable"), "Required value: can not be empty"),
        known if ACTIONS.contains(&known) => {}
        other => e.add(&format!("{field}.whenUnsatisfiable"), unsupported(other, &ACTIONS)),
    }
    for (name, policy) in
        [("nodeAffinityPolicy", &c.node_affinity_policy), ("nodeTaintsPolicy", &c.node_taints_policy)]
    {
        if let Some(other) = policy.as_deref().filter(|p| !POLICIES.contains(p)) {
            e.add(&format!("{field}.{name}"), unsupported(other, &POLICIES));
        }
    }
    if c.label_selector.is_some() {
        e.add(
            &format!("{field}.labelSelector"),
            "Forbidden: constraint must not define a selector, as they deduced for each pod",
        );
    }
}

fn in_pods(c: &Constraint) -> Value {
    json!({
        "maxSkew": c.max_skew,
        "topologyKey": c.topology_key,
        "whenUnsatisfiable": c.when_unsatisfiable,
        "minDomains": c.min_domains,
        "nodeAffinityPolicy": c.node_affinity_policy,
        "nodeTaintsPolicy": c.node_taints_policy,
        "matchLabelKeys": c.match_label_keys,
    })
}
