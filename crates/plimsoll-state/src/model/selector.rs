//! Label and node selectors as plain data, and the plain way to evaluate them.

use super::StringMap;

/// Operators of label selectors and node selectors; labels use the first four only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The value is one of `values`.
    In,
    /// The key is missing or its value is none of `values`.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is missing.
    DoesNotExist,
    /// The value is an integer greater than the only entry of `values`.
    Gt,
    /// The value is an integer less than the only entry of `values`.
    Lt,
}

impl Operator {
    /// How the API writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
        }
    }
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// Label key, or `metadata.name` in field matches.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// What to compare with; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether a label value (`None`: the label is missing) satisfies this requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.iter().any(|w| w == v)),
            Operator::NotIn => value.is_none_or(|v| self.values.iter().all(|w| w != v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value).is_some_and(|(v, w)| v > w),
            Operator::Lt => self.compare(value).is_some_and(|(v, w)| v < w),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        let [only] = self.values.as_slice() else { return None };
        Some((value?.parse().ok()?, only.parse().ok()?))
    }
}

/// A label selector: all requirements must hold; none at all matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSelector {
    /// `matchLabels` (as `In` with one value) and `matchExpressions`.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether `labels` satisfy every requirement.
    pub fn matches(&self, labels: &StringMap) -> bool {
        self.requirements.iter().all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
    }
}

/// One alternative of a node selector. A term without any requirement matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSelectorTerm {
    /// Conditions on node labels.
    pub expressions: Vec<Requirement>,
    /// Conditions on node fields; only `metadata.name` exists.
    pub fields: Vec<Requirement>,
}

impl NodeSelectorTerm {
    /// Whether a node with this name and these labels satisfies the term.
    pub fn matches(&self, name: &str, labels: &StringMap) -> bool {
        !(self.expressions.is_empty() && self.fields.is_empty())
            && self.expressions.iter().all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
            && self.fields.iter().all(|r| r.key == "metadata.name" && r.matches(Some(name)))
    }
}

/// A node selector: any term may match; no term at all matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSelector {
    /// The alternatives.
    pub terms: Vec<NodeSelectorTerm>,
}

impl NodeSelector {
    /// Whether any term matches.
    pub fn matches(&self, name: &str, labels: &StringMap) -> bool {
        self.terms.iter().any(|t| t.matches(name, labels))
    }
}
