//! Custom resources: the rows of a definition in the kind table, and pruning, defaults and validation of their objects.

mod arena;
pub(crate) mod check;
pub(crate) mod conversion;
mod conversion_review;
mod correlate;
mod default;
pub mod define;
mod embed;
mod fieldpath;
mod format;
mod kinds;
mod kueue;
mod lists;
mod meta;
pub mod node;
mod node_type;
mod pattern;
mod prune;
mod rule;
pub(crate) mod rules;
mod scale;
#[cfg(test)]
mod tests;
mod value;

use serde_json::Value;

pub use self::conversion::Conversion;
pub use self::conversion_review::Request as ConversionRequest;
pub use self::embed::expand_embeds;
pub use self::kinds::kinds;
pub use self::kueue::{definitions_to_install, kueue_definitions, load};
use crate::error::{FieldError, FieldErrorKind};
use crate::json::{at, list, text};
use crate::kinds::Kind;

fn checks(kind: &Kind) -> Option<&node::Node> {
    kind.custom.as_ref()?.checks.as_deref()
}

/// Removes unknown fields and returns their paths, sorted (`spec.template[0].junk`); does nothing to built-in kinds.
/// Fields of `metadata` stay.
pub fn prune(kind: &Kind, object: &mut Value) -> Vec<String> {
    checks(kind).map(|node| prune::prune(object, node)).unwrap_or_default()
}

/// Drops nulls the schema doesn't allow and fills in its defaults.
pub fn default_object(kind: &Kind, object: &mut Value) {
    if let Some(node) = checks(kind) {
        default::default(object, node);
    }
}

/// Fills in the defaults of an object that was applied. It was not decoded, so nulls the schema doesn't allow stay, and are
/// refused.
pub fn default_applied(kind: &Kind, object: &mut Value) {
    if let Some(node) = checks(kind) {
        default::fill(object, node);
    }
}

/// Validates `kind` and `apiVersion` of a custom resource; with errors here, callers skip most other checks
/// (`customResourceValidator.ValidateTypeMeta`). Built-in kinds have no errors.
pub fn validate_type(kind: &Kind, object: &Value) -> Vec<FieldError> {
    if kind.custom.is_none() {
        return Vec::new();
    }
    let want = kind.gvk.api_version();
    let fields = [("kind", kind.gvk.kind.as_str()), ("apiVersion", want.as_str())];
    let wrong = fields.into_iter().filter(|(field, wanted)| text(object, field) != *wanted);
    wrong
        .map(|(field, wanted)| FieldError::invalid(field, at(object, field), format!("must be {wanted}")))
        .collect()
}

/// Validates a custom resource: its values, duplicates in its lists, its rules. `old` is the object it replaces;
/// unchanged values have no errors. `known` are the errors of its metadata, with which rules don't run.
pub fn validate_object(
    kind: &Kind,
    old: Option<&Value>,
    new: &Value,
    known: &[FieldError],
) -> Vec<FieldError> {
    let (Some(node), Some(custom)) = (checks(kind), &kind.custom) else { return Vec::new() };
    let mut checker = check::Checker { base: "", errors: Vec::new() };
    checker.check(new, old, node, "");
    let mut errors = checker.errors;
    scale::check(custom, new, false, &mut errors);
    errors.extend(meta::validate(new, node, false, ""));
    lists_and_rules(node, old, new, known.iter().any(blocks_rules), &mut errors);
    errors
}

/// Validates a write through the status subresource, like [`validate_object`].
pub fn validate_status(kind: &Kind, old: &Value, new: &Value) -> Vec<FieldError> {
    let (Some(node), Some(custom)) = (checks(kind), &kind.custom) else { return Vec::new() };
    let mut checker = check::Checker { base: "status", errors: Vec::new() };
    if let (Some(status), Some(of)) = (new.get("status"), node.properties.get("status")) {
        checker.check(status, old.get("status"), of, "");
    }
    let mut errors = checker.errors;
    scale::check(custom, new, true, &mut errors);
    lists_and_rules(node, Some(old), new, false, &mut errors);
    errors
}

fn lists_and_rules(
    node: &node::Node,
    old: Option<&Value>,
    new: &Value,
    blocked: bool,
    errors: &mut Vec<FieldError>,
) {
    let mut before = Vec::new();
    if let Some(old) = old {
        lists::check(old, node, "", &mut before);
    }
    if before.is_empty() {
        lists::check(new, node, "", errors);
    }
    if !node.has_rules {
        return;
    }
    if blocked || errors.iter().any(blocks_rules) {
        errors.push(FieldError::invalid(
            "<nil>",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing \
             errors to complete validation",
        ));
    } else {
        rules::check(new, old, node, "", errors);
    }
}

/// Rules run on values of the right type and size only.
fn blocks_rules(error: &FieldError) -> bool {
    use FieldErrorKind as K;
    matches!(error.kind, K::NotSupported | K::Required | K::TooLong | K::TooMany | K::TypeInvalid)
}
