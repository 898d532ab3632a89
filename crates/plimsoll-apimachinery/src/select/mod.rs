//! Label and field selectors of list, watch and deletecollection requests.

mod fields;
mod labels;
mod metav1;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

pub use fields::{FieldRequirement, FieldSelector};
pub use labels::{LabelSelector, Operator, Requirement};
pub use metav1::{selector_text, selects};

use crate::error::ApiError;
use crate::kinds::Kind;

/// Both selectors of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `labelSelector`.
    pub labels: LabelSelector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
}

impl Selector {
    /// Parses the query parameters `labelSelector` and `fieldSelector` for a kind.
    ///
    /// # Errors
    /// 400 with upstream's texts for bad syntax, bad keys and values, and fields the kind can't be selected by.
    pub fn parse(kind: &Kind, label: Option<&str>, field: Option<&str>) -> Result<Self, ApiError> {
        Ok(Self {
            labels: label.map_or(Ok(LabelSelector::default()), LabelSelector::parse)?,
            fields: field.map_or(Ok(FieldSelector::default()), |f| FieldSelector::parse(kind, f))?,
        })
    }

    /// Whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object matches. `object` is called only when the labels match and a field is needed.
    pub fn matches<'a>(
        &self,
        labels: &BTreeMap<String, String>,
        object: impl FnOnce() -> Cow<'a, Value>,
    ) -> bool {
        self.labels.matches(labels) && (self.fields.is_empty() || self.fields.matches(&object()))
    }

    /// Like [`Selector::matches`] for a known name and namespace: `object` is called only when another field is needed.
    pub fn matches_named<'a>(
        &self,
        name: &str,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        object: impl FnOnce() -> Cow<'a, Value>,
    ) -> bool {
        self.labels.matches(labels)
            && self.fields.matches_name(name, namespace)
            && (!self.fields.needs_object() || self.fields.matches(&object()))
    }
}
