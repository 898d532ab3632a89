//! Merges an applied configuration into the live object, and removes fields that are no longer applied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{self, Fields, MAX_DEPTH};
use super::types::{ListType, MapType, Shape, Type};

/// The live value with the configuration's fields put in.
pub fn merge(ty: Type<'_>, live: &Value, config: &Value) -> Value {
    both(ty, Some(live), Some(config), 0).unwrap_or(Value::Null)
}

fn both(ty: Type<'_>, l: Option<&Value>, r: Option<&Value>, depth: usize) -> Option<Value> {
    let keep = || r.or(l).cloned();
    if depth > MAX_DEPTH {
        return keep();
    }
    match ty.shape(r.or(l)) {
        Shape::Map(map) if !map.atomic => {
            let (lm, rm) = (l.and_then(Value::as_object), r.and_then(Value::as_object));
            if lm.is_none_or(Map::is_empty) && rm.is_none_or(Map::is_empty) {
                return keep();
            }
            Some(Value::Object(maps(&map, lm, rm, depth)))
        }
        Shape::List(list) if list.keys.is_some() => {
            let items = |v: Option<&'_ Value>| v.and_then(Value::as_array).map_or(0, Vec::len);
            if items(l) == 0 && items(r) == 0 {
                return keep();
            }
            Some(Value::Array(lists(list, l, r, depth)))
        }
        _ => keep(),
    }
}

fn maps(
    map: &MapType<'_>,
    l: Option<&Map<String, Value>>,
    r: Option<&Map<String, Value>>,
    depth: usize,
) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in l.into_iter().flatten() {
        let other = r.and_then(|r| r.get(name));
        let merged = match other {
            None => Some(value.clone()),
            Some(_) => both(map.field(name).unwrap_or(Type::Deduced), Some(value), other, depth + 1),
        };
        out.extend(merged.map(|v| (name.clone(), v)));
    }
    for (name, value) in r.into_iter().flatten() {
        if l.is_none_or(|l| !l.contains_key(name)) {
            out.insert(name.clone(), value.clone());
        }
    }
    out
}

/// Merges keyed lists and sets. The configuration decides the order of its items; other items keep their position
/// relative to the items that both have.
fn lists(list: ListType<'_>, l: Option<&Value>, r: Option<&Value>, depth: usize) -> Vec<Value> {
    fn index<'v>(list: ListType<'_>, value: Option<&'v Value>) -> Vec<(String, &'v Value)> {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| list.element(item).ok().map(|e| (e, item))).collect()
    }
    let (left, right) = (index(list, l), index(list, r));
    let mut of_left: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
    for (element, item) in &left {
        // Items with equal keys aren't merged.
        of_left.entry(element).and_modify(|v| *v = None).or_insert(Some(*item));
    }
    let of_right: BTreeSet<&str> = right.iter().map(|(e, _)| e.as_str()).collect();
    let mut shared = right.iter().map(|(e, _)| e.as_str()).filter(|e| of_left.contains_key(e)).peekable();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let merged = |element: &str, item: &Value| {
        let live = of_left.get(element).copied().flatten();
        both(list.items, live, Some(item), depth + 1)
    };
    let (mut li, mut ri) = (0, 0);
    while li < left.len() || ri < right.len() {
        if let (Some((le, _)), Some((re, item))) = (left.get(li), right.get(ri)) {
            if le == re {
                done.insert(re);
                out.extend(merged(re, item));
                li += 1;
                ri += 1;
                shared.next();
                continue;
            }
            if of_right.contains(le.as_str()) && shared.peek().is_some_and(|next| next != le) {
                // shared, but another one comes first
                li += 1;
                continue;
            }
        }
        if let Some((le, item)) = left.get(li) {
            if !of_right.contains(le.as_str()) {
                out.push((*item).clone());
                li += 1;
                continue;
            }
            if done.contains(le.as_str()) {
                li += 1;
            }
        }
        if let Some((re, item)) = right.get(ri) {
            done.insert(re);
            out.extend(merged(re, item));
            ri += 1;
            if shared.peek().is_some_and(|next| next == re) {
                shared.next();
            }
        }
    }
    out
}

/// Takes the fields of a set away. Maps and lists that become empty on the way stay, empty.
pub fn remove(ty: Type<'_>, value: &Value, set: &Fields) -> Value {
    without(ty, value, set, 0).unwrap_or_else(|| Value::Object(Map::new()))
}

fn without(ty: Type<'_>, value: &Value, set: &Fields, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return Some(value.clone());
    }
    match (ty.shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(entries)) => {
            if map.atomic || entries.is_empty() {
                return None;
            }
            let mut out = Map::new();
            let mut reached = false;
            for (name, child) in entries {
                let ty = map.field(name).unwrap_or(Type::Deduced);
                let node = set.get(&format!("f:{name}")).and_then(Value::as_object);
                reached |= node.is_some_and(|n| !fields::is_member(n));
                out.extend(kept(ty, child, node, depth).map(|v| (name.clone(), v)));
            }
            (reached || !out.is_empty()).then_some(Value::Object(out))
        }
        (Shape::List(list), Value::Array(items)) => {
            if list.keys.is_none() || items.is_empty() {
                return None;
            }
            let mut out = Vec::new();
            let mut reached = false;
            for item in items {
                let node = list.element(item).ok().and_then(|e| set.get(&e)).and_then(Value::as_object);
                reached |= node.is_some_and(|n| !fields::is_member(n));
                out.extend(kept(list.items, item, node, depth));
            }
            (reached || !out.is_empty()).then_some(Value::Array(out))
        }
        (Shape::Scalar(_), value) => Some(value.clone()),
        _ => None,
    }
}

/// The remainder of a field or item after removal, where a set may contain it or a field below it.
fn kept(ty: Type<'_>, value: &Value, node: Option<&Fields>, depth: usize) -> Option<Value> {
    match node {
        Some(node) if fields::is_member(node) => None,
        Some(node) => Some(match without(ty, value, node, depth + 1) {
            Some(left) => left,
            None if value.is_object() => Value::Object(Map::new()),
            None if value.is_array() => Value::Array(Vec::new()),
            None => Value::Null,
        }),
        None => Some(value.clone()),
    }
}
