//! Cost estimate of rules, when a definition is written.

use plimsoll_cel::ast::{Expr, IdedExpr, operators};
use plimsoll_cel::{Program, escape_field_name};

use crate::crd::node::Node;

/// The number of steps that the loops of a rule take at most: the part of upstream's cost estimate
/// (`k8s.io/apiserver/pkg/cel/library/cost.go`) that decides whether a rule is refused. `most` gives the number of
/// elements that a list, map or string can have.
pub fn loop_cost(program: &Program, node: &Node, most: fn(&Node) -> f64) -> f64 {
    let mut scope = vec![("self".to_owned(), Some(node)), ("oldSelf".to_owned(), Some(node))];
    program.with_stack(|| cost(program.expression(), &mut scope, most))
}

type Scope<'a> = Vec<(String, Option<&'a Node>)>;

fn node_of<'a>(expr: &IdedExpr, scope: &Scope<'a>) -> Option<&'a Node> {
    match &expr.expr {
        Expr::Ident(name) => scope.iter().rev().find(|(n, _)| n == name)?.1,
        Expr::Select(select) => {
            let node = node_of(&select.operand, scope)?;
            let found = node.properties.iter().find(|(k, _)| escape_field_name(k) == select.field);
            found.map(|(_, n)| n).or_else(|| node.child(&select.field))
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let node = node_of(call.args.first()?, scope)?;
            node.items.as_deref().or_else(|| node.child(""))
        }
        // The result of filter and map has at most as many elements as the list.
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
