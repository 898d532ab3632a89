//! The depth of a syntax tree, without recursion.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr};

/// The number of levels of a syntax tree.
pub(super) fn depth(root: &IdedExpr) -> usize {
    let (mut deepest, mut left) = (0, vec![(root, 1_usize)]);
    while let Some((expr, level)) = left.pop() {
        deepest = deepest.max(level);
        let below = |expr| (expr, level + 1);
        match &expr.expr {
            Expr::Call(call) => left.extend(call.target.as_deref().into_iter().chain(&call.args).map(below)),
            Expr::Comprehension(c) => left.extend(
                [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result].into_iter().map(below),
            ),
            Expr::List(list) => left.extend(list.elements.iter().map(below)),
            Expr::Select(select) => left.push(below(&select.operand)),
            Expr::Map(map) => map.entries.iter().for_each(|e| entry(&e.expr, level, &mut left)),
            Expr::Struct(made) => made.entries.iter().for_each(|e| entry(&e.expr, level, &mut left)),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }
    deepest
}

fn entry<'e>(entry: &'e EntryExpr, level: usize, left: &mut Vec<(&'e IdedExpr, usize)>) {
    match entry {
        EntryExpr::StructField(field) => left.push((&field.value, level + 1)),
        EntryExpr::MapEntry(entry) => left.extend([(&entry.key, level + 1), (&entry.value, level + 1)]),
    }
}
