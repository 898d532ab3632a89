//! What is wrong with an object, and what its writer is told besides.

use plimsoll_apimachinery::{ApiError, FieldError, Kind, builtin, crd, validate};
use serde_json::Value;

use super::read::gvk_of;

/// Validates a new object.
pub fn validate_create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let wrong = crd::validate_type(kind, object);
    if !wrong.is_empty() {
        return wrong;
    }
    let mut errors = validate::validate_create(kind, object);
    if crate::custom::is_definition(kind) {
        errors.extend(crd::define::validate_create(object));
    } else if kind.custom.is_some() {
        let more = crd::validate_object(kind, None, object, &errors);
        errors.extend(more);
    }
    errors
}

/// Validates a change.
pub fn validate_update(kind: &Kind, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let wrong = crd::validate_type(kind, new);
    if !wrong.is_empty() {
        return wrong;
    }
    let mut errors = validate::validate_update(kind, subresource, old, new);
    if crate::custom::is_definition(kind) && subresource.is_empty() {
        errors.extend(crd::define::validate_update(old, new));
    } else if crate::custom::is_definition(kind) && subresource == "status" {
        errors.extend(crd::define::validate_status(new));
    } else if kind.custom.is_some() && subresource == "status" {
        errors.extend(crd::validate_status(kind, old, new));
    } else if kind.custom.is_some() {
        let more = crd::validate_object(kind, Some(old), new, &errors);
        errors.extend(more);
    }
    errors
}

/// Warnings about an object that is accepted, written through a subresource (empty: the object itself).
pub fn warnings(kind: &Kind, subresource: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
    if subresource == "status" {
        return validate::status_warnings(kind, new);
    }
    if crate::custom::is_definition(kind) {
        return crd::define::warnings(old, new);
    }
    validate::warnings(kind, old, new)
}

/// 422 for an object that was to be of a kind; a custom resource may say that it is of another.
pub fn invalid_object(kind: &Kind, object: &Value, name: &str, errors: &[FieldError]) -> ApiError {
    if kind.custom.is_none() {
        return invalid(kind, name, errors);
    }
    let said = gvk_of(object);
    ApiError::invalid(&said.group, &said.kind, name, errors)
}

/// 422 for an object of a kind.
pub fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> ApiError {
    let (group, kind) = validate::named(kind);
    ApiError::invalid(group, kind, name, errors)
}

/// What clients of a built-in kind are warned of.
pub fn deprecation(kind: &Kind) -> Option<String> {
    builtin::deprecation(&kind.gvk).map(str::to_owned)
}
