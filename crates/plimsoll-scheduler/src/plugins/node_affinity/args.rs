//! `NodeAffinityArgs`: `addedAffinity`, core/v1's NodeAffinity read strictly
//! (upstream `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`).

use crate::args::{ArgsError, Fields, PluginArgs, valid};
use plimsoll_state::model::{
    NodeAffinity, NodeSelector, NodeSelectorTerm, Operator, PreferredSchedulingTerm, Requirement,
};

const OPERATORS: [(&str, Operator); 6] = [
    ("DoesNotExist", Operator::DoesNotExist),
    ("Exists", Operator::Exists),
    ("Gt", Operator::Gt),
    ("In", Operator::In),
    ("Lt", Operator::Lt),
    ("NotIn", Operator::NotIn),
];

/// Arguments of NodeAffinity.
#[derive(Debug, Default)]
pub(crate) struct NodeAffinityArgs {
    /// `addedAffinity`: added to every pod's own.
    pub added_affinity: Option<NodeAffinity>,
}

/// A condition as it is written.
struct RawRequirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// A term as it is written.
struct Term {
    expressions: Vec<RawRequirement>,
    fields: Vec<RawRequirement>,
}

impl Term {
    fn read(fields: &mut dyn Fields) -> Self {
        let requirement = |fields: &mut dyn Fields| RawRequirement {
            key: fields.string("key").unwrap_or_default(),
            operator: fields.string("operator").unwrap_or_default(),
            values: fields.strings("values").unwrap_or_default(),
        };
        Self {
            expressions: fields.list("matchExpressions", requirement).unwrap_or_default(),
            fields: fields.list("matchFields", requirement).unwrap_or_default(),
        }
    }

    fn check(self, at: &str, errors: &mut Vec<ArgsError>) -> NodeSelectorTerm {
        let mut list = |list: Vec<RawRequirement>, field: &str| {
            let mut one = |(i, raw): (usize, RawRequirement)| {
                let Some((_, operator)) = OPERATORS.iter().find(|(name, _)| *name == raw.operator) else {
                    let names = OPERATORS.map(|(name, _)| name);
                    let at = format!("{at}.{field}[{i}].operator");
                    errors.push(ArgsError::not_supported(at, &raw.operator, &names));
                    return None;
                };
                Some(Requirement { key: raw.key, operator: *operator, values: raw.values })
            };
            list.into_iter().enumerate().filter_map(&mut one).collect()
        };
        NodeSelectorTerm {
            expressions: list(self.expressions, "matchExpressions"),
            fields: list(self.fields, "matchFields"),
        }
    }
}

/// `addedAffinity` as it is written.
struct RawAffinity {
    required: Option<Vec<Term>>,
    preferred: Vec<(i32, Option<Term>)>,
}

impl RawAffinity {
    fn read(fields: &mut dyn Fields) -> Self {
        let terms =
            |fields: &mut dyn Fields| fields.list("nodeSelectorTerms", Term::read).unwrap_or_default();
        let preferred = |fields: &mut dyn Fields| {
            (fields.int32("weight").unwrap_or_default(), fields.object("preference", Term::read))
        };
        Self {
            required: fields.object("requiredDuringSchedulingIgnoredDuringExecution", terms),
            preferred: fields
                .list("preferredDuringSchedulingIgnoredDuringExecution", preferred)
                .unwrap_or_default(),
        }
    }

    fn check(self, errors: &mut Vec<ArgsError>) -> NodeAffinity {
        let at = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        let required = self.required.map(|terms| {
            let each = terms.into_iter().enumerate();
            let one = |(i, term): (usize, Term)| term.check(&format!("{at}.nodeSelectorTerms[{i}]"), errors);
            NodeSelector { terms: each.map(one).collect() }
        });
        let at = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        let each = self.preferred.into_iter().enumerate();
        let one = |(i, (weight, term)): (usize, (i32, Option<Term>))| {
            let term = term.map(|term| term.check(&format!("{at}[{i}].preference"), errors));
            PreferredSchedulingTerm { weight, term: term.unwrap_or_default() }
        };
        NodeAffinity { required, preferred: each.map(one).collect() }
    }
}

impl PluginArgs for NodeAffinityArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        let raw = fields.object("addedAffinity", RawAffinity::read);
        let mut errors = Vec::new();
        let added_affinity = raw.map(|raw| raw.check(&mut errors));
        valid(Self { added_affinity }, errors)
    }
}
