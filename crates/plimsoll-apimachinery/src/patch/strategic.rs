//! Strategic merge patch: lists merge by key; directives delete, replace, retain and reorder.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{go_map, go_text, parse_map, unprocessable};
use crate::decode::json_kind;
use crate::error::ApiError;
use crate::go::normalise_numbers;
use crate::obj::go_type;
use crate::schema::{Schema, SchemaId, Schemas, TypedSchema};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ORDER: &str = "$setElementOrder";
/// Deepest nesting of a patch that is followed.
const MAX_DEPTH: usize = crate::decode::depth::MAX_DEPTH;

type Object = Map<String, Value>;
type Failure = Box<ApiError>;

/// The result of a strategic merge patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The patched object.
    pub document: Value,
    /// The patch after merging, which messages about the object show: without directives that were applied and nulls
    /// that deleted nothing.
    pub patch: Value,
}

/// Applies a strategic merge patch to an object of a built-in kind.
///
/// # Errors
/// 400 for a malformed patch or directive, 422 for lists of lists, 500 (as upstream) for other values that cannot be
/// merged.
pub fn strategic(schema: &TypedSchema, object: &Value, body: &[u8]) -> Result<Merged, ApiError> {
    let mut patch = parse_map(body, "")?;
    // Upstream's converter takes whole floats for integers.
    patch.values_mut().for_each(normalise_numbers);
    let original = object.as_object().cloned().unwrap_or_default();
    let root = Node { schemas: &schema.schemas, id: Some(schema.root) };
    let document = maps(root, original, &mut patch, 0).map_err(|e| *e)?;
    Ok(Merged { document: Value::Object(document), patch: Value::Object(patch) })
}

fn failure(message: impl Into<String>) -> Failure {
    Box::new(ApiError::new(500, "", message))
}

fn bad_format(what: &str) -> Failure {
    Box::new(ApiError::bad_request(format!("invalid patch format of {what}")))
}

fn no_merge_key(item: &Object, key: &str) -> Failure {
    failure(format!("map: {} does not contain declared merge key: {key}", go_map(item)))
}

fn bad_directive(directive: &Value, item: &Object) -> Failure {
    // The value as Go's `%s` prints it when it is no string.
    let shown = match directive {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(b) => format!("%!s(bool={b})"),
        Value::Number(n) if n.is_f64() => format!("%!s(float64={n})"),
        Value::Number(n) => format!("%!s(int64={n})"),
        other => go_text(other),
    };
    failure(format!("unknown patch type: {shown} in map: {}", go_map(item)))
}

/// The position of the merge in the schema; without an id the schema is unknown.
#[derive(Clone, Copy)]
struct Node<'a> {
    schemas: &'a Schemas,
    id: Option<SchemaId>,
}

/// The merge rule of a field.
struct Rule<'a> {
    node: Node<'a>,
    merge: bool,
    replace: bool,
    key: &'a str,
}

impl<'a> Node<'a> {
    fn schema(self) -> Option<&'a Schema> {
        self.id.map(|id| self.schemas.get(id))
    }

    fn items(self) -> Self {
        Self { id: self.schema().and_then(|s| s.items), ..self }
    }

    fn rule(self, field: &str) -> Result<Rule<'a>, Failure> {
        let id = match self.schema() {
            None => None,
            Some(schema) => match (schema.properties.get(field), schema.additional) {
                (Some(property), _) => Some(property.id),
                (None, Some(additional)) => Some(additional),
                (None, None) if schema.properties.is_empty() => None,
                (None, None) => {
                    let name = schema.name.as_deref().and_then(|n| n.rsplit('.').next()).unwrap_or_default();
                    return Err(failure(format!(
                        "unable to find api field in struct {name} for the json field {field:?}"
                    )));
                }
            },
        };
        let node = Self { id, ..self };
        let schema = node.schema();
        let has = |word: &str| schema.is_some_and(|s| s.patch_strategy.split(',').any(|w| w == word));
        let key = schema.map_or("", |s| s.patch_merge_key.as_str());
        Ok(Rule { node, merge: has("merge"), replace: has("replace"), key })
    }
}

fn maps(node: Node<'_>, mut original: Object, patch: &mut Object, depth: usize) -> Result<Object, Failure> {
    if depth > MAX_DEPTH {
        return Err(failure("the patch is nested too deeply"));
    }
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch.clone())
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(bad_directive(directive, patch)),
        };
    }
    if let Some(keys) = patch.remove(RETAIN) {
        retain(&mut original, patch, &keys)?;
    }
    reorder(node, &mut original, patch, depth)?;
    for (key, new) in patch.iter_mut() {
        let (key, delete) = match key.split_once('/') {
            Some((DELETE_FROM, list)) => (list, true),
            _ if key.starts_with(DELETE_FROM) => return Err(bad_format("primitive list")),
            _ => (key.as_str(), false),
        };
        field(node, &mut original, key, new, delete, depth)?;
    }
    Ok(original)
}

fn field(
    node: Node<'_>,
    original: &mut Object,
    key: &str,
    new: &mut Value,
    delete: bool,
    depth: usize,
) -> Result<(), Failure> {
    if new.is_null() {
        original.remove(key);
        return Ok(());
    }
    let merged = match (original.get_mut(key), new) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            let rule = node.rule(key)?;
            let old = std::mem::take(old);
            Some(Value::Object(if rule.replace {
                new.clone()
            } else {
                maps(rule.node, old, new, depth + 1)?
            }))
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let rule = node.rule(key)?;
            let old = std::mem::take(old);
            Some(Value::Array(lists(&rule, old, new, delete, depth)?))
        }
        (_, _) if delete => return Ok(()),
        (_, new) => {
            discard_nulls(new, 0);
            without_directives(new)
        }
    };
    match merged {
        Some(merged) => original.insert(key.to_owned(), merged),
        None => original.remove(key),
    };
    Ok(())
}

/// A new value without its maps that have a directive; `None`: the value is such a map.
fn without_directives(value: &mut Value) -> Option<Value> {
    if let Value::Array(list) = value {
        // The patch in messages keeps its list.
        let kept = list.iter_mut().filter_map(|item| strip_directives(item, 0).then(|| item.clone()));
        return Some(Value::Array(kept.collect()));
    }
    strip_directives(value, 0).then(|| value.clone())
}

/// Removes maps with a directive from a value; `false` if it is one itself.
fn strip_directives(value: &mut Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => return false,
        Value::Object(map) => map.retain(|_, v| strip_directives(v, depth + 1)),
        Value::Array(list) => list.retain_mut(|v| strip_directives(v, depth + 1)),
        _ => {}
    }
    true
}

fn discard_nulls(value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(|v| discard_nulls(v, depth + 1));
        }
        Value::Array(list) => list.iter_mut().for_each(|v| discard_nulls(v, depth + 1)),
        _ => {}
    }
}

/// `$retainKeys`: removes the other keys.
fn retain(original: &mut Object, patch: &Object, keys: &Value) -> Result<(), Failure> {
    let Value::Array(keys) = keys else { return Err(bad_format("retainKeys")) };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let exempt = |k: &str, v: &Value| v.is_null() || k.starts_with(DELETE_FROM) || k.starts_with(ORDER);
    if patch.iter().any(|(k, v)| !exempt(k, v) && !keys.contains(k.as_str())) {
        return Err(bad_format("retainKeys"));
    }
    original.retain(|k, _| keys.contains(k.as_str()));
    Ok(())
}

/// `$setElementOrder`: merges the lists it names and puts them in order.
fn reorder(node: Node<'_>, original: &mut Object, patch: &mut Object, depth: usize) -> Result<(), Failure> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else { return Err(not_a_list(&order)) };
        let Some((ORDER, field)) = directive.split_once('/') else {
            return Err(bad_format("setElementOrder list"));
        };
        let old = list_of(original.get(field))?;
        let new = list_of(patch.get(field))?;
        let rule = node.rule(field)?;
        check_order(new.unwrap_or(&[]), &order, rule.key)?;
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old.to_vec(),
            (None, Some(new)) => {
                let mut new = new.to_vec();
                new.retain_mut(|item| strip_directives(item, 0));
                new
            }
            (Some(old), Some(new)) => lists(&rule, old.to_vec(), &mut new.to_vec(), false, depth)?,
        };
        let old = old.unwrap_or(&[]);
        let maps = element_kind([old, new.unwrap_or(&[])])? == "object";
        let (patched, server) = partition(merged, &order, rule.key)?;
        let ordered = interleave(patched, server, &order, old, rule.key, maps)?;
        original.insert(field.to_owned(), Value::Array(ordered));
        patch.remove(field);
    }
    Ok(())
}

fn not_a_list(value: &Value) -> Failure {
    failure(format!("expected a []interface {{}}, but received a {}", shown_type(value)))
}

/// A type as Go's `%s` prints it, which has a special text for nil.
fn shown_type(value: &Value) -> &'static str {
    if value.is_null() { "%!s(<nil>)" } else { go_type(value) }
}

fn list_of(value: Option<&Value>) -> Result<Option<&[Value]>, Failure> {
    match value {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(not_a_list(other)),
    }
}

fn is_deletion(item: &Value) -> bool {
    item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete")
}

/// The items of a patch must come in the order of the directive, and be in it.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), Failure> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let items: Vec<&Value> = patch.iter().filter(|i| key.is_empty() || !is_deletion(i)).collect();
    let (mut at, mut next) = (0, 0);
    while let (Some(item), Some(ordered)) = (items.get(at), order.get(next)) {
        if item.get(DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        if same(item, ordered, key)? {
            at += 1;
        }
        next += 1;
    }
    if at < items.len() && next >= order.len() {
        let text = |list: &[Value]| go_text(&Value::Array(list.to_vec()));
        return Err(failure(format!(
            "The order in patch list:\n{}\n doesn't match {ORDER} list:\n{}\n",
            text(patch),
            text(order)
        )));
    }
    Ok(())
}

fn same(a: &Value, b: &Value, key: &str) -> Result<bool, Failure> {
    if key.is_empty() {
        return Ok(a == b);
    }
    Ok(key_value(a, key)? == key_value(b, key)?)
}

fn key_value<'v>(item: &'v Value, key: &str) -> Result<&'v Value, Failure> {
    let Value::Object(map) = item else {
        return Err(failure(format!(
            "expected a map[string]interface {{}}, but received a {}",
            shown_type(item)
        )));
    };
    map.get(key).ok_or_else(|| no_merge_key(map, key))
}

/// JSON type that all elements have.
fn element_kind(lists: [&[Value]; 2]) -> Result<&'static str, Failure> {
    let mut kind = None;
    for item in lists.iter().flat_map(|l| l.iter()) {
        match kind {
            None if item.is_array() => {
                let mut e = unprocessable();
                e.details = None;
                return Err(Box::new(e));
            }
            None => kind = Some(json_kind(item)),
            Some(k) if k == json_kind(item) => {}
            Some(_) => {
                let text: Vec<String> = lists.iter().map(|l| go_text(&Value::Array(l.to_vec()))).collect();
                return Err(failure(format!("list element types are not identical: [{}]", text.join(" "))));
            }
        }
    }
    kind.ok_or_else(|| failure("no elements in any of the given slices"))
}

fn lists(
    rule: &Rule<'_>,
    original: Vec<Value>,
    patch: &mut [Value],
    delete: bool,
    depth: usize,
) -> Result<Vec<Value>, Failure> {
    if !rule.merge && !delete {
        return Ok(patch.to_vec());
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if element_kind([&original, patch])? != "object" {
        if delete {
            return Ok(original.into_iter().filter(|v| !patch.contains(v)).collect());
        }
        let mut merged: Vec<Value> = Vec::new();
        for item in original.iter().chain(patch.iter()) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        let (patched, server) = partition(merged, patch, "")?;
        return interleave(patched, server, patch, &original, "", false);
    }
    if rule.key.is_empty() {
        return Err(failure("cannot merge lists without merge key for type struct"));
    }
    let (original, patch) = directives(original, patch, rule.key)?;
    let mut merged = original.clone();
    let mut named = Vec::with_capacity(patch.len());
    for item in patch {
        named.push(item.clone());
        let Value::Object(new) = item else { continue };
        let value = new.get(rule.key).ok_or_else(|| no_merge_key(new, rule.key))?;
        match merged.iter_mut().find(|old| old.get(rule.key) == Some(value)) {
            Some(Value::Object(old)) => {
                let old_map = std::mem::take(old);
                *old = maps(rule.node.items(), old_map, new, depth + 1)?;
            }
            // nulls and directives in it stay: only fields of maps are freed of them
            _ => merged.push(item.clone()),
        }
    }
    let patch = named;
    let (patched, server) = partition(merged, &patch, rule.key)?;
    interleave(patched, server, &patch, &original, rule.key, true)
}

/// Applies the directives among the items of a patch; returns the remaining items of both lists.
fn directives<'p>(
    mut original: Vec<Value>,
    patch: &'p mut [Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<&'p mut Value>), Failure> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        if item.is_object() && item.get(DIRECTIVE).is_none() {
            rest.push(item);
            continue;
        }
        let Value::Object(map) = &*item else { continue };
        let Some(directive) = map.get(DIRECTIVE) else { continue };
        match directive.as_str() {
            Some("delete") => {
                let value = map.get(key).ok_or_else(|| no_merge_key(map, key))?;
                original.retain(|old| old.get(key) != Some(value));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(failure("merging lists cannot yet be specified in the patch")),
            _ => return Err(bad_directive(directive, map)),
        }
    }
    Ok(if replace { (rest.into_iter().map(|v| v.clone()).collect(), Vec::new()) } else { (original, rest) })
}

/// Splits a list into the items that another one contains and the rest.
fn partition(list: Vec<Value>, by: &[Value], key: &str) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let mut named = Vec::new();
    let mut rest = Vec::new();
    for item in list {
        let found = if key.is_empty() {
            by.contains(&item)
        } else {
            let value = key_value(&item, key)?;
            let mut found = false;
            for (i, other) in by.iter().enumerate() {
                let Value::Object(other) = other else {
                    return Err(failure(format!("value for key {i} is not a map.")));
                };
                if other.get(key) == Some(value) {
                    found = true;
                    break;
                }
            }
            found
        };
        if found { named.push(item) } else { rest.push(item) }
    }
    Ok((named, rest))
}

/// Sorts the items of the patch by the patch's order and the others by the server's, and interleaves both.
fn interleave(
    mut patched: Vec<Value>,
    mut server: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: &str,
    maps: bool,
) -> Result<Vec<Value>, Failure> {
    if maps && !key.is_empty() {
        for item in patch_order.iter().chain(server_order) {
            key_value(item, key)?;
        }
    }
    let position = |order: &[Value], item: &Value| {
        order.iter().position(|o| if key.is_empty() { o == item } else { o.get(key) == item.get(key) })
    };
    patched.sort_by_cached_key(|item| position(patch_order, item));
    server.sort_by_cached_key(|item| position(server_order, item));
    let mut out = Vec::with_capacity(patched.len() + server.len());
    let mut left = server.into_iter().peekable();
    let mut right = patched.into_iter().peekable();
    loop {
        let from_left = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => {
                let (l, r) = (position(server_order, l), position(server_order, r));
                matches!((l, r), (Some(l), Some(r)) if l < r)
            }
        };
        out.extend(if from_left { left.next() } else { right.next() });
    }
    Ok(out)
}
