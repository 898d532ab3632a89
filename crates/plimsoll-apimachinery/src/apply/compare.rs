//! Differences between two objects, as field sets.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{self, Fields, MAX_DEPTH};
use super::types::{ListType, MapType, Shape, Type};
use crate::schema::{Presence, SchemaType};

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
pub enum Side<'a> {
    /// Nothing there.
    Absent,
    /// An empty object of a built-in kind: the structs in it exist, with nothing in them.
    Zero,
    /// A value.
    Value(&'a Value),
}

impl<'a> Side<'a> {
    fn value(self) -> Option<&'a Value> {
        if let Self::Value(v) = self { Some(v) } else { None }
    }

    fn absent(self) -> bool {
        matches!(self, Self::Absent)
    }

    fn map(self) -> Option<&'a Map<String, Value>> {
        self.value().and_then(Value::as_object)
    }

    fn list(self) -> &'a [Value] {
        self.value().and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

/// The difference of two objects.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Fields that were added or have another value.
    pub changed: Fields,
    /// Fields that are gone.
    pub removed: Fields,
}

/// A node of the two sets while it is being built.
#[derive(Default)]
struct Difference {
    changed: Fields,
    changed_here: bool,
    removed: Fields,
    removed_here: bool,
}

impl Difference {
    fn child(&mut self, element: &str, prefix: &str, child: Self) {
        if let Some(node) = fields::node(child.changed_here, child.changed) {
            self.changed.insert([prefix, element].concat(), node);
        }
        if let Some(node) = fields::node(child.removed_here, child.removed) {
            self.removed.insert([prefix, element].concat(), node);
        }
    }
}

/// Compares two objects. `skip` selects the fields of the root (empty first argument) and of its metadata that the
/// comparison ignores.
pub fn compare(ty: Type<'_>, old: Side<'_>, new: &Value, skip: &dyn Fn(&str, &str) -> bool) -> Comparison {
    let mut root = Difference::default();
    let Shape::Map(map) = ty.shape(Some(new)) else { return Comparison::default() };
    each_field(&map, old, Side::Value(new), &mut |name, field, l, r| {
        if skip("", name) || unchanged(l, r) {
            return;
        }
        // of kinds without a schema at least this much is known
        let bare =
            map.deduced() && matches!(old, Side::Zero) && matches!(name, "metadata" | "spec" | "status");
        let l = if bare { Side::Zero } else { l };
        let mut child = Difference::default();
        if name == "metadata" {
            metadata(field, l, r, skip, &mut child);
        } else {
            walk(field, l, r, &mut child, 1);
        }
        root.child(name, "f:", child);
    });
    Comparison { changed: root.changed, removed: root.removed }
}

/// Most writes leave large subtrees unchanged; comparing those without the schema is far cheaper.
fn unchanged(l: Side<'_>, r: Side<'_>) -> bool {
    matches!((l, r), (Side::Value(l), Side::Value(r)) if l == r)
}

fn metadata(ty: Type<'_>, l: Side<'_>, r: Side<'_>, skip: &dyn Fn(&str, &str) -> bool, out: &mut Difference) {
    let Shape::Map(map) = ty.shape(r.value().or(l.value())) else { return };
    each_field(&map, l, r, &mut |name, field, l, r| {
        if !skip("metadata", name) && !unchanged(l, r) {
            let mut child = Difference::default();
            walk(field, l, r, &mut child, 2);
            out.child(name, "f:", child);
        }
    });
}

/// Calls a function for every field of either side.
fn each_field<'v>(
    map: &MapType<'v>,
    l: Side<'v>,
    r: Side<'v>,
    f: &mut dyn FnMut(&str, Type<'v>, Side<'v>, Side<'v>),
) {
    let side = |m: Option<&'v Map<String, Value>>, k: &str| {
        m.and_then(|m| m.get(k)).map_or(Side::Absent, Side::Value)
    };
    let (left, right) = (l.map(), r.map());
    for (name, value) in left.into_iter().flatten() {
        f(name, map.field(name).unwrap_or(Type::Deduced), Side::Value(value), side(right, name));
    }
    let zero = matches!(l, Side::Zero);
    for (name, value) in right.into_iter().flatten() {
        if left.is_some_and(|m| m.contains_key(name)) {
            continue;
        }
        let field = map.field(name).unwrap_or(Type::Deduced);
        let old = match value {
            _ if !zero => Side::Absent,
            // A field that is null in a new object is null in an empty one.
            Value::Null => Side::Value(&NULL),
            _ => zero_side(map, name, field),
        };
        f(name, field, old, Side::Value(value));
    }
}

static NULL: Value = Value::Null;
static EMPTY: Value = Value::String(String::new());
static FALSE: Value = Value::Bool(false);

/// The value of a field of an empty built-in object.
fn zero_side<'v>(map: &MapType<'v>, name: &str, field: Type<'v>) -> Side<'v> {
    match map.property(name).map(|p| p.presence) {
        Some(Presence::Null) => Side::Value(&NULL),
        Some(Presence::Zero) => match field.shape(None) {
            Shape::Map(_) => Side::Zero,
            Shape::List(_) => Side::Value(&NULL),
            Shape::Scalar(SchemaType::String) => Side::Value(&EMPTY),
            Shape::Scalar(SchemaType::Boolean) => Side::Value(&FALSE),
            Shape::Scalar(SchemaType::Integer | SchemaType::Number) => Side::Value(zero_number()),
            Shape::Scalar(_) => Side::Absent,
        },
        _ => Side::Absent,
    }
}

fn zero_number() -> &'static Value {
    static ZERO: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Value::from(0));
    &ZERO
}

fn walk(ty: Type<'_>, l: Side<'_>, r: Side<'_>, out: &mut Difference, depth: usize) {
    if depth > MAX_DEPTH || ty.raw() {
        return leaf(l, r, out);
    }
    let shape = ty.shape(r.value().or(l.value()));
    match (shape, l.value(), r.value()) {
        // An untyped value that changes its shape: the fields below are removed, the value itself is modified.
        (Shape::Scalar(_) | Shape::List(_), Some(Value::Object(_)), Some(_)) => {
            if let Shape::Map(map) = ty.shape(l.value()) {
                fields_of(&map, l, Side::Absent, out, depth);
            }
            leaf(l, r, out);
        }
        (Shape::Map(map), ..) if !map.atomic => {
            let empty = |s: Side<'_>| s.map().is_none_or(Map::is_empty);
            if empty(l) && empty(r) {
                return leaf(l, r, out);
            }
            fields_of(&map, l, r, out, depth);
            out.changed_here |= l.absent();
            out.removed_here |= r.absent();
        }
        (Shape::List(list), ..) if list.keys.is_some() => {
            if l.list().is_empty() && r.list().is_empty() {
                return leaf(l, r, out);
            }
            items(list, l, r, out, depth);
            out.changed_here |= l.absent();
            out.removed_here |= r.absent();
        }
        _ => leaf(l, r, out),
    }
}

fn leaf(l: Side<'_>, r: Side<'_>, out: &mut Difference) {
    match (l, r) {
        (Side::Absent, _) => out.changed_here = true,
        (_, Side::Absent) => out.removed_here = true,
        (Side::Value(l), Side::Value(r)) => out.changed_here |= !equal(l, r),
        // an atomic struct that was empty, or an empty one that still is
        (Side::Zero, Side::Value(r)) => {
            out.changed_here |= !(r.is_null() || r.as_object().is_some_and(Map::is_empty));
        }
        (_, Side::Zero) => {}
    }
}

fn fields_of(map: &MapType<'_>, l: Side<'_>, r: Side<'_>, out: &mut Difference, depth: usize) {
    each_field(map, l, r, &mut |name, field, l, r| {
        let mut child = Difference::default();
        walk(field, l, r, &mut child, depth + 1);
        out.child(name, "f:", child);
    });
}

fn items(list: ListType<'_>, l: Side<'_>, r: Side<'_>, out: &mut Difference, depth: usize) {
    if let (Side::Value(l), Side::Value(r)) = (l, r)
        && l == r
    {
        return;
    }
    let mut index: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in l.list() {
        if let Ok(element) = list.element(item) {
            index.entry(element).or_default().0.push(item);
        }
    }
    for item in r.list() {
        if let Ok(element) = list.element(item) {
            index.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in index {
        let one = |items: &[&Value]| items.len() <= 1;
        let mut child = Difference::default();
        match (one(&old), one(&new)) {
            (true, true) => walk(list.items, first(&old), first(&new), &mut child, depth + 1),
            // Items with equal keys are compared as a whole.
            (false, false) => {
                child.changed_here =
                    old.len() != new.len() || old.iter().zip(&new).any(|(a, b)| !equal(a, b));
            }
            (false, true) => {
                if !new.is_empty() {
                    walk(list.items, Side::Absent, first(&new), &mut child, depth + 1);
                }
                child.removed_here = true;
            }
            (true, false) => {
                if !old.is_empty() {
                    walk(list.items, first(&old), Side::Absent, &mut child, depth + 1);
                }
                child.changed_here = true;
            }
        }
        out.child(&element, "", child);
    }
}

fn first<'v>(items: &[&'v Value]) -> Side<'v> {
    items.first().map_or(Side::Absent, |v| Side::Value(v))
}

/// Equality of values; numbers by value.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(a, b)| equal(a, b)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(k, a)| y.get(k).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}
