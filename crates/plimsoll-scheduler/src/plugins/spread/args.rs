//! `PodTopologySpreadArgs` (upstream `ValidatePodTopologySpreadArgs` in
//! `apis/config/validation/validation_pluginargs.go`).

use crate::args::{ArgsError, Fields, PluginArgs, valid};
use plimsoll_state::model::{SpreadConstraint, UnsatisfiableAction};

const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const POLICIES: [&str; 2] = ["Honor", "Ignore"];

/// Arguments of PodTopologySpread.
#[derive(Debug, Default)]
pub(crate) struct SpreadArgs {
    /// `List` constraints; `None`: `System`.
    pub default_constraints: Option<Vec<SpreadConstraint>>,
}

/// A constraint as it is written.
struct Constraint {
    max_skew: i32,
    topology_key: String,
    when_unsatisfiable: String,
    has_selector: bool,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
    match_label_keys: Vec<String>,
}

/// Asks for all that is in a label selector.
fn read_selector(fields: &mut dyn Fields) {
    fields.string_map("matchLabels");
    fields.list("matchExpressions", |fields| {
        fields.string("key");
        fields.string("operator");
        fields.strings("values");
    });
}

impl Constraint {
    fn read(fields: &mut dyn Fields) -> Self {
        Self {
            max_skew: fields.int32("maxSkew").unwrap_or_default(),
            topology_key: fields.string("topologyKey").unwrap_or_default(),
            when_unsatisfiable: fields.string("whenUnsatisfiable").unwrap_or_default(),
            has_selector: fields.object("labelSelector", read_selector).is_some(),
            min_domains: fields.int32("minDomains"),
            node_affinity_policy: fields.string("nodeAffinityPolicy"),
            node_taints_policy: fields.string("nodeTaintsPolicy"),
            match_label_keys: fields.strings("matchLabelKeys").unwrap_or_default(),
        }
    }

    /// The constraint; `None` where `errors` say why.
    fn check(self, field: &str, errors: &mut Vec<ArgsError>) -> Option<SpreadConstraint> {
        let before = errors.len();
        if self.max_skew <= 0 {
            let text = format!("Invalid value: {}: not in valid range (0, inf)", self.max_skew);
            errors.push(ArgsError::new(format!("{field}.maxSkew"), text));
        }
        if self.topology_key.is_empty() {
            let why = "Required value: can not be empty";
            errors.push(ArgsError::new(format!("{field}.topologyKey"), why));
        }
        let at = format!("{field}.whenUnsatisfiable");
        let action = match self.when_unsatisfiable.as_str() {
            "DoNotSchedule" => Some(UnsatisfiableAction::DoNotSchedule),
            "ScheduleAnyway" => Some(UnsatisfiableAction::ScheduleAnyway),
            "" => {
                errors.push(ArgsError::new(at, "Required value: can not be empty"));
                None
            }
            other => {
                errors.push(ArgsError::not_supported(at, other, &ACTIONS));
                None
            }
        };
        let mut honors = |name: &str, policy: Option<&str>, default: bool| match policy {
            None => default,
            Some("Honor") => true,
            Some("Ignore") => false,
            Some(other) => {
                errors.push(ArgsError::not_supported(format!("{field}.{name}"), other, &POLICIES));
                default
            }
        };
        let honor_node_affinity = honors("nodeAffinityPolicy", self.node_affinity_policy.as_deref(), true);
        let honor_node_taints = honors("nodeTaintsPolicy", self.node_taints_policy.as_deref(), false);
        if self.has_selector {
            let why = "Forbidden: constraint must not define a selector, as they deduced for each pod";
            errors.push(ArgsError::new(format!("{field}.labelSelector"), why));
        }
        let constraint = SpreadConstraint {
            max_skew: self.max_skew,
            topology_key: self.topology_key,
            when_unsatisfiable: action?,
            selector: None,
            min_domains: self.min_domains,
            honor_node_affinity,
            honor_node_taints,
            match_label_keys: self.match_label_keys,
        };
        (errors.len() == before).then_some(constraint)
    }
}

impl PluginArgs for SpreadArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        let list = fields.list("defaultConstraints", Constraint::read).unwrap_or_default();
        let mut errors = Vec::new();
        match fields.string("defaultingType").as_deref() {
            Some("List") => {}
            // Upstream defaults the type to `System`; only `List` can have constraints.
            None | Some("" | "System") if list.is_empty() => return Ok(Self::default()),
            None | Some("" | "System") => errors.push(ArgsError::new(
                "defaultingType",
                "Invalid value: \"System\": when .defaultConstraints are not empty, must be \"List\"",
            )),
            Some(other) => {
                errors.push(ArgsError::not_supported("defaultingType", other, &["System", "List"]));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut out: Vec<SpreadConstraint> = Vec::new();
        for (i, constraint) in list.into_iter().enumerate() {
            let field = format!("defaultConstraints[{i}]");
            let Some(new) = constraint.check(&field, &mut errors) else { continue };
            let is_same = |old: &SpreadConstraint| {
                old.topology_key == new.topology_key && old.when_unsatisfiable == new.when_unsatisfiable
            };
            if out.iter().any(is_same) {
                let action = match new.when_unsatisfiable {
                    UnsatisfiableAction::DoNotSchedule => "DoNotSchedule",
                    UnsatisfiableAction::ScheduleAnyway => "ScheduleAnyway",
                };
                let text = format!("Duplicate value: \"{{{}, {action}}}\"", new.topology_key);
                errors.push(ArgsError::new(field, text));
            }
            out.push(new);
        }
        valid(Self { default_constraints: Some(out) }, errors)
    }
}
