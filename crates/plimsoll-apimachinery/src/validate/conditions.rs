//! Conditions of objects (`metav1/validation` `ValidateConditions`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, has, int, text};

/// A list of `metav1.Condition`.
pub(super) fn conditions(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut types = BTreeSet::new();
    for (i, one) in all.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(one, "type");
        if !types.insert(name) {
            errors.duplicate(&at.field("type"), name);
        }
        condition(one, &at, errors);
    }
}

fn condition(condition: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const REASON: usize = 1024;
    const MESSAGE: usize = 32 * 1024;
    let name = text(condition, "type");
    errors.invalid_all(&path.field("type"), name, &checks::qualified_name(name));
    errors.one_of(&path.field("status"), text(condition, "status"), &["False", "True", "Unknown"]);
    if let Some(generation) = int(condition, "observedGeneration").filter(|g| *g < 0) {
        let at = path.field("observedGeneration");
        errors.invalid(&at, generation, "must be greater than or equal to zero");
    }
    if !has(condition, "lastTransitionTime") {
        errors.required(&path.field("lastTransitionTime"), "");
    }
    let (reason, at) = (text(condition, "reason"), path.field("reason"));
    if reason.is_empty() {
        errors.required(&at, "");
    } else {
        if !is_reason(reason) {
            let detail = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
            errors.invalid(&at, reason, detail);
        }
        if reason.len() > REASON {
            errors.too_long(&at, REASON);
        }
    }
    if text(condition, "message").len() > MESSAGE {
        errors.too_long(&path.field("message"), MESSAGE);
    }
}

fn is_reason(reason: &str) -> bool {
    let b = reason.as_bytes();
    let word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    b.first().is_some_and(u8::is_ascii_alphabetic)
        && b.last().is_some_and(word)
        && b.iter().all(|c| word(c) || matches!(c, b',' | b':'))
}
