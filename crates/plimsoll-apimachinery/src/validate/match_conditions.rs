//! Match conditions and other expressions about a request.

use std::collections::BTreeSet;

use plimsoll_cel::{Environment, Program, Type};
use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use crate::admission::environment;
use crate::obj::{as_obj, text};

const MAX_CONDITIONS: usize = 64;

/// Checks the match conditions of a webhook or policy; `params`: the policy has parameters.
pub(super) fn conditions(all: &[Value], params: bool, path: &Path<'_>, errors: &mut Errors) {
    if all.len() > MAX_CONDITIONS {
        errors.too_many(path, all.len(), MAX_CONDITIONS);
    }
    let environment = environment(params, true);
    let mut names = BTreeSet::new();
    for (i, condition) in all.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let (name, source) = (text(condition, "name"), text(condition, "expression").trim());
        if source.is_empty() {
            errors.required(&at.field("expression"), "");
        } else {
            expression(source, source, &environment, &[Type::Bool], &at.field("expression"), errors);
        }
        if name.is_empty() {
            errors.required(&at.field("name"), "");
            continue;
        }
        errors.invalid_all(&at.field("name"), name, &checks::qualified_name(name));
        if !names.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
    }
}

/// Checks an expression, which errors show as `shown`, and returns its type. The type must be one of `wanted`, unless that
/// is empty.
pub(super) fn expression(
    source: &str,
    shown: &str,
    environment: &Environment,
    wanted: &[Type],
    path: &Path<'_>,
    errors: &mut Errors,
) -> Type {
    let found = match Program::compile(source, environment) {
        Ok(program) => program.output_type().clone(),
        Err(why) => {
            errors.invalid(path, shown, &format!("compilation failed: {why}"));
            return Type::Unknown;
        }
    };
    if !wanted.is_empty() && found != Type::Unknown && !wanted.contains(&found) {
        let detail = match wanted {
            [one] => format!("must evaluate to {one} but got {found}"),
            all => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                format!("must evaluate to one of [{}] but got {found}", all.join(" "))
            }
        };
        errors.invalid(path, shown, &detail);
    }
    found
}
