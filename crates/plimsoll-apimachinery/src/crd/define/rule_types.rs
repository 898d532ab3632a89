//! Type check of rules, when a definition is written.
//!
//! Not a full type checker: it follows selections from `self` through the schema, reports fields that don't exist, and
//! knows some expressions that can't have the wanted type.

use plimsoll_cel::ast::{Expr, IdedExpr, LiteralValue, operators};
use plimsoll_cel::{Program, escape_field_name};

use crate::crd::node::{Additional, Node};
use crate::crd::node_type::NodeType;

/// A type error of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeError {
    /// The rule selects a field that the schema doesn't have.
    UndefinedField(String),
    /// The value of the rule has a wrong type.
    Wrong,
}

/// The type of an expression, as far as the check follows it.
#[derive(Clone, Copy)]
enum Type<'a> {
    /// A value with a schema.
    Node(&'a Node),
    /// The metadata of a resource, of which rules see `name` and `generateName`
    /// (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema`, `WithTypeAndObjectMeta`).
    Metadata,
    /// A boolean.
    Bool,
    /// A string.
    String,
    /// A type that is certainly neither.
    Other,
    /// Not followed.
    Unknown,
}

/// Checks that a rule is a boolean. `node` is the schema of `self`; `root`: the schema is that of the object itself.
///
/// # Errors
/// The first type error.
pub fn check_rule(program: &Program, node: &Node, root: bool) -> Result<(), TypeError> {
    result_is(program, node, root, NodeType::Boolean)
}

/// Checks that a `messageExpression` is a string, like [`check_rule`].
///
/// # Errors
/// The first type error.
pub fn check_message(program: &Program, node: &Node, root: bool) -> Result<(), TypeError> {
    result_is(program, node, root, NodeType::String)
}

fn result_is(program: &Program, node: &Node, root: bool, wanted: NodeType) -> Result<(), TypeError> {
    match program.with_stack(|| type_of(program.expression(), node, root))? {
        Type::Node(n) if n.kind.is_some_and(|k| k != wanted) && !n.int_or_string => Err(TypeError::Wrong),
        Type::Bool if wanted != NodeType::Boolean => Err(TypeError::Wrong),
        Type::String if wanted != NodeType::String => Err(TypeError::Wrong),
        Type::Metadata | Type::Other => Err(TypeError::Wrong),
        _ => Ok(()),
    }
}

fn type_of<'a>(expr: &IdedExpr, this: &'a Node, root: bool) -> Result<Type<'a>, TypeError> {
    Ok(match &expr.expr {
        Expr::Ident(name) if name == "self" => Type::Node(this),
        Expr::Literal(LiteralValue::Boolean(_)) => Type::Bool,
        Expr::Literal(LiteralValue::String(_)) => Type::String,
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => Type::Other,
        Expr::Select(select) => {
            let operand = type_of(&select.operand, this, root)?;
            let own = root && matches!(&select.operand.expr, Expr::Ident(name) if name == "self");
            let found = field(operand, &select.field, own)?;
            if select.test { Type::Bool } else { found }
        }
        Expr::Call(call) => {
            for operand in call.target.as_deref().into_iter().chain(&call.args) {
                type_of(operand, this, root)?;
            }
            call_type(&call.func_name)
        }
        _ => Type::Unknown,
    })
}

fn call_type(name: &str) -> Type<'static> {
    let boolean = [
        operators::LOGICAL_AND,
        operators::LOGICAL_OR,
        operators::LOGICAL_NOT,
        operators::EQUALS,
        operators::NOT_EQUALS,
        operators::LESS,
        operators::LESS_EQUALS,
        operators::GREATER,
        operators::GREATER_EQUALS,
        operators::IN,
    ];
    match name {
        n if boolean.contains(&n) => Type::Bool,
        "string" => Type::String,
        "size" | "int" | "double" => Type::Other,
        _ => Type::Unknown,
    }
}

fn field<'a>(operand: Type<'a>, name: &str, own: bool) -> Result<Type<'a>, TypeError> {
    let node = match operand {
        Type::Node(node) => node,
        Type::Metadata if ["name", "generateName"].contains(&name) => return Ok(Type::String),
        Type::Metadata => return Err(TypeError::UndefinedField(name.to_owned())),
        _ => return Ok(Type::Unknown),
    };
    if node.int_or_string {
        return Ok(Type::Unknown);
    }
    // Every resource has these fields, whether or not the schema declares them.
    match name {
        "apiVersion" | "kind" if own || node.embedded => return Ok(Type::String),
        "metadata" if own || node.embedded => return Ok(Type::Metadata),
        _ => {}
    }
    if let Some((_, found)) = node.properties.iter().find(|(k, _)| escape_field_name(k) == name) {
        return Ok(Type::Node(found));
    }
    match (&node.additional, node.kind) {
        (Additional::Schema(of), _) => Ok(Type::Node(of)),
        (Additional::Allowed(true), _) | (_, None) => Ok(Type::Unknown),
        _ => Err(TypeError::UndefinedField(name.to_owned())),
    }
}
