//! Types of CEL expressions, as far as they are plain: enough to refuse what cannot be a condition.

use kube_cel::cel::common::ast::{Expr, LiteralValue};

use super::path::{Errors, Path};
use crate::cel::Program;

/// Where an expression stands; messages differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A selector of devices: `device.driver` is a text.
    Device,
    /// A match condition of a webhook.
    Condition,
}

/// Refuses an expression that does not compile or is no condition.
pub(super) fn check(expression: &str, place: Place, path: &Path<'_>, errors: &mut Errors) {
    let program = match Program::compile(expression) {
        Ok(program) => program,
        Err(why) => {
            errors.invalid(path, expression, &format!("compilation failed: {why}"));
            return;
        }
    };
    if let Some(found) = plain_type(&program.expression().expr, place) {
        let detail = match place {
            Place::Device => format!("must evaluate to bool or the unknown type, not {found}"),
            Place::Condition => format!("must evaluate to bool but got {found}"),
        };
        errors.invalid(path, expression, &detail);
    }
}

/// The type of an expression that is certainly no boolean.
fn plain_type(expr: &Expr, place: Place) -> Option<&'static str> {
    match expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => None,
            LiteralValue::Int(_) => Some("int"),
            LiteralValue::UInt(_) => Some("uint"),
            LiteralValue::Double(_) => Some("double"),
            LiteralValue::String(_) => Some("string"),
            LiteralValue::Bytes(_) => Some("bytes"),
            LiteralValue::Null => Some("null_type"),
        },
        Expr::List(_) => Some("list(dyn)"),
        Expr::Map(_) => Some("map(dyn, dyn)"),
        Expr::Select(select) if place == Place::Device && !select.test && select.field == "driver" => {
            matches!(&select.operand.expr, Expr::Ident(name) if name == "device").then_some("string")
        }
        _ => None,
    }
}
