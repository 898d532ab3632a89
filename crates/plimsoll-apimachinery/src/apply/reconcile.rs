//! Field sets after changes of the schema (`typed.ReconcileFieldSetWithSchema` of structured-merge-diff).

use serde_json::Value;

use super::fields::Fields;
use super::types::{Shape, Type};

/// Gives managers of parts of a map or list that has become atomic the whole of it. What was atomic before is taken as if
/// it had always been granular.
pub fn reconcile(ty: Type<'_>, set: &mut Fields) {
    let shape = ty.shape(None);
    for (element, node) in set.iter_mut() {
        let Value::Object(below) = node else { continue };
        if below.is_empty() {
            continue;
        }
        let child = match (shape, element.strip_prefix("f:")) {
            (Shape::Map(map), Some(name)) => map.field(name).unwrap_or(Type::Deduced),
            (Shape::List(list), _) => list.items,
            _ => continue,
        };
        if is_atomic(child) {
            below.clear();
        } else {
            reconcile(child, below);
        }
    }
}

fn is_atomic(ty: Type<'_>) -> bool {
    match ty.shape(None) {
        Shape::Map(map) => map.atomic && !map.is_untyped(),
        Shape::List(list) => list.keys.is_none(),
        Shape::Scalar(_) => false,
    }
}
