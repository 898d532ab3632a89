//! How deep a syntax tree is, and what is changed in it, without recursion.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr, operators};

/// Levels of a syntax tree.
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

/// Turns optional fields of maps into optional keys (`a.?b` into `a[?"b"]`): the interpreter takes a missing
/// field for an error, and a missing key for the absent value that CEL says it is.
pub(super) fn fields_to_keys(root: &mut IdedExpr) {
    let mut left = vec![root];
    while let Some(expr) = left.pop() {
        match &mut expr.expr {
            Expr::Call(call) => {
                if call.func_name == operators::OPT_SELECT {
                    operators::OPT_INDEX.clone_into(&mut call.func_name);
                }
                left.extend(call.target.as_deref_mut().into_iter().chain(&mut call.args));
            }
            Expr::Comprehension(c) => {
                left.extend([
                    &mut c.iter_range,
                    &mut c.accu_init,
                    &mut c.loop_cond,
                    &mut c.loop_step,
                    &mut c.result,
                ]);
            }
            Expr::List(list) => left.extend(&mut list.elements),
            Expr::Select(select) => left.push(&mut select.operand),
            Expr::Map(map) => map.entries.iter_mut().for_each(|e| parts(&mut e.expr, &mut left)),
            Expr::Struct(made) => made.entries.iter_mut().for_each(|e| parts(&mut e.expr, &mut left)),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }
}

fn parts<'e>(entry: &'e mut EntryExpr, left: &mut Vec<&'e mut IdedExpr>) {
    match entry {
        EntryExpr::StructField(field) => left.push(&mut field.value),
        EntryExpr::MapEntry(entry) => left.extend([&mut entry.key, &mut entry.value]),
    }
}
