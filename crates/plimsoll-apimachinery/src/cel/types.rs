//! Type checks of rules when a definition is made.
//!
//! Not a full CEL type checker: it follows selections from `self` through the schema and finds fields that
//! don't exist, and knows which expressions can't be booleans.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{Expr, LiteralValue, operators};

use super::{Program, escape_name};
use crate::crd::node::{Additional, Node, NodeType};

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeError {
    /// A field that isn't in the schema.
    UndefinedField(String),
    /// Its value is of another type than it must be.
    Wrong,
}

/// The type of an expression, as far as it is followed.
#[derive(Clone, Copy)]
enum Type<'a> {
    /// A value with a schema.
    Node(&'a Node),
    /// The metadata of a resource, of which rules see the name and `generateName` (`WithTypeAndObjectMeta`).
    Metadata,
    /// A boolean.
    Bool,
    /// A text.
    String,
    /// Certainly neither.
    Other,
    /// Not followed.
    Unknown,
}

/// Checks a rule on values of a schema; `root`: that of the object itself.
///
/// # Errors
/// The first thing found.
pub fn check_rule(program: &Program, node: &Node, root: bool) -> Result<(), TypeError> {
    result_is(program, node, root, NodeType::Boolean)
}

/// Checks an expression that makes a message; as [`check_rule`].
///
/// # Errors
/// The first thing found.
pub fn check_message(program: &Program, node: &Node, root: bool) -> Result<(), TypeError> {
    result_is(program, node, root, NodeType::String)
}

fn result_is(program: &Program, node: &Node, root: bool, wanted: NodeType) -> Result<(), TypeError> {
    match program.size.nested(|| type_of(program.expression(), node, root))? {
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
            let target = call.target.as_deref().map(|t| type_of(t, this, root)).transpose()?;
            for arg in &call.args {
                type_of(arg, this, root)?;
            }
            call_type(&call.func_name, target)
        }
        _ => Type::Unknown,
    })
}

fn call_type<'a>(name: &str, _target: Option<Type<'a>>) -> Type<'a> {
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
    // Whatever the schema says of them.
    match name {
        "apiVersion" | "kind" if own || node.embedded => return Ok(Type::String),
        "metadata" if own || node.embedded => return Ok(Type::Metadata),
        _ => {}
    }
    if let Some((_, found)) = node.properties.iter().find(|(k, _)| escape_name(k) == name) {
        return Ok(Type::Node(found));
    }
    match (&node.additional, node.kind) {
        (Additional::Schema(of), _) => Ok(Type::Node(of)),
        (Additional::Allowed(true), _) | (_, None) => Ok(Type::Unknown),
        _ => Err(TypeError::UndefinedField(name.to_owned())),
    }
}

/// How often the loops of a rule run at most: the part of upstream's cost estimate that matters for refusing
/// rules. `most` says how many elements a list, map or string can have.
pub fn loop_cost(program: &Program, node: &Node, most: fn(&Node) -> f64) -> f64 {
    let mut scope = vec![("self".to_owned(), Some(node)), ("oldSelf".to_owned(), Some(node))];
    program.size.nested(|| cost(program.expression(), &mut scope, most))
}

type Scope<'a> = Vec<(String, Option<&'a Node>)>;

fn node_of<'a>(expr: &IdedExpr, scope: &Scope<'a>) -> Option<&'a Node> {
    match &expr.expr {
        Expr::Ident(name) => scope.iter().rev().find(|(n, _)| n == name)?.1,
        Expr::Select(select) => {
            let node = node_of(&select.operand, scope)?;
            let found = node.properties.iter().find(|(k, _)| escape_name(k) == select.field);
            found.map(|(_, n)| n).or_else(|| node.child(&select.field))
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let node = node_of(call.args.first()?, scope)?;
            node.items.as_deref().or_else(|| node.child(""))
        }
        // filter and map of a list: as many elements as the list
        Expr::Comprehension(c) => node_of(&c.iter_range, scope),
        _ => None,
    }
}

fn cost<'a>(expr: &IdedExpr, scope: &mut Scope<'a>, most: fn(&Node) -> f64) -> f64 {
    match &expr.expr {
        Expr::Select(select) => cost(&select.operand, scope, most),
        Expr::Call(call) => {
            let target = call.target.as_deref().map_or(0.0, |t| cost(t, scope, most));
            let args: f64 = call.args.iter().map(|a| cost(a, scope, most)).sum();
            let scan = match (call.func_name.as_str(), call.args.get(1)) {
                (operators::IN, Some(of)) => node_of(of, scope).map_or(1.0, most),
                _ => 1.0,
            };
            target + args + scan
        }
        Expr::List(list) => list.elements.iter().map(|e| cost(e, scope, most)).sum(),
        Expr::Comprehension(c) => {
            let range = node_of(&c.iter_range, scope);
            let times = match &c.iter_range.expr {
                Expr::List(list) => list.elements.len() as f64,
                _ => range.map_or(1.0, most),
            };
            let element = range.and_then(|n| n.items.as_deref().or_else(|| n.child("")));
            let outer = cost(&c.iter_range, scope, most);
            scope.push((c.iter_var.clone(), element));
            let inner = cost(&c.loop_step, scope, most) + cost(&c.loop_cond, scope, most);
            scope.pop();
            outer + times * inner.max(1.0)
        }
        _ => 0.0,
    }
}
