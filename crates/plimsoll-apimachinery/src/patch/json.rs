//! JSON patch as kube-apiserver's library implements it: `replace` adds a missing key, list indexes may be negative,
//! the text before the first slash of a path is ignored.

use serde_json::{Map, Value};

use super::{LEAD, parse, unprocessable};
use crate::decode::json_kind;
use crate::error::ApiError;

/// Most operations in a patch.
pub const MAX_OPERATIONS: usize = 10_000;
/// Most bytes that `copy` operations may add.
const MAX_COPIED: usize = 3 * 1024 * 1024;
/// Most values that are looked at for how deep those are that operations put somewhere, several times what a body has.
const MAX_MEASURED: usize = 20_000_000;

/// What the operations of a patch have used up.
#[derive(Default)]
struct Spent {
    copied: usize,
    measured: usize,
}

/// Applies a JSON patch.
///
/// # Errors
/// 400 for a malformed patch, 413 for one with too many operations, 422 when an operation fails.
pub fn json(object: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let operations = operations(parse(body, LEAD)?)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut document = object.clone();
    let mut spent = Spent::default();
    for operation in &operations {
        run(&mut document, operation, &mut spent).ok_or_else(unprocessable)?;
    }
    Ok(document)
}

/// Fields that operations don't have: `unknown field "[0].x"`.
pub(super) fn unknown_fields(body: &[u8]) -> Vec<String> {
    let Ok(Value::Array(list)) = parse(body, LEAD) else { return Vec::new() };
    let of_one = |(i, operation): (usize, &Value)| -> Vec<String> {
        let fields = operation.as_object().into_iter().flat_map(Map::keys);
        let unknown = fields.filter(|f| !matches!(f.as_str(), "op" | "path" | "from" | "value"));
        unknown.map(|field| format!("unknown field \"[{i}].{field}\"")).collect()
    };
    list.iter().enumerate().flat_map(of_one).collect()
}

fn operations(patch: Value) -> Result<Vec<Map<String, Value>>, ApiError> {
    let wrong = |what: String| ApiError::bad_request(format!("{LEAD}json: cannot unmarshal {what}"));
    let list = match patch {
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        other => {
            return Err(wrong(format!("{} into Go value of type []handlers.jsonPatchOp", json_kind(&other))));
        }
    };
    let mut operations = Vec::with_capacity(list.len());
    for item in list {
        let operation = match item {
            Value::Object(operation) => operation,
            Value::Null => Map::new(),
            other => {
                return Err(wrong(format!(
                    "{} into Go value of type handlers.jsonPatchOp",
                    json_kind(&other)
                )));
            }
        };
        for field in ["op", "path", "from"] {
            match operation.get(field) {
                None | Some(Value::String(_) | Value::Null) => {}
                Some(other) => {
                    let what = json_kind(other);
                    return Err(wrong(format!(
                        "{what} into Go struct field jsonPatchOp.{field} of type string"
                    )));
                }
            }
        }
        operations.push(operation);
    }
    Ok(operations)
}

/// Carries out one operation; `None` when it can't be.
fn run(document: &mut Value, operation: &Map<String, Value>, spent: &mut Spent) -> Option<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = text("path")?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => put(document, path, value(), add, spent),
        "remove" => {
            let (place, key) = find(document, path)?;
            take(place, &key).map(drop)
        }
        "replace" if path.is_empty() => {
            let value = value();
            (value.is_object() || value.is_array()).then(|| *document = value)
        }
        "replace" => put(document, path, value(), replace, spent),
        "move" => {
            let (place, key) = find(document, text("from")?)?;
            let moved = take(place, &key)?;
            put(document, path, moved, add, spent)
        }
        "copy" => {
            let (place, key) = find(document, text("from")?)?;
            let value = get(place, &key)?.cloned().unwrap_or(Value::Null);
            spent.copied += value.to_string().len();
            if spent.copied > MAX_COPIED {
                return None;
            }
            put(document, path, value, add, spent)
        }
        "test" if path.is_empty() => (*document == value()).then_some(()),
        "test" => {
            let (place, key) = find(document, path)?;
            let have = get(place, &key)?.unwrap_or(&Value::Null);
            crate::apply::equal(have, &value()).then_some(())
        }
        _ => None,
    }
}

/// Writes a value at a path, unless that nests deeper than bodies may be: such an object could be stored, but not be
/// read again.
fn put(
    document: &mut Value,
    path: &str,
    value: Value,
    put: fn(&mut Value, &str, Value) -> Option<()>,
    spent: &mut Spent,
) -> Option<()> {
    let depth = depth(&value, &mut spent.measured);
    if spent.measured > MAX_MEASURED
        || path.split('/').skip(1).count() + depth > crate::decode::depth::limit()
    {
        return None;
    }
    let (place, key) = find(document, path)?;
    put(place, &key, value)
}

/// Objects and lists inside one another in a value. Adds how many values those are to `measured`.
fn depth(value: &Value, measured: &mut usize) -> usize {
    *measured += 1;
    let deepest = match value {
        Value::Object(map) => map.values().map(|v| depth(v, measured)).max(),
        Value::Array(list) => list.iter().map(|v| depth(v, measured)).max(),
        _ => return 0,
    };
    deepest.unwrap_or(0) + 1
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The container of a path, and the last part of the path.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let mut parts = path.split('/').skip(1).collect::<Vec<_>>();
    let last = unescape(parts.pop()?);
    let mut place = document;
    for part in parts {
        let part = unescape(part);
        place = match place {
            Value::Object(map) => map.get_mut(&part)?,
            Value::Array(list) => {
                let i = index(&part, list.len())?;
                list.get_mut(i)?
            }
            _ => return None,
        };
    }
    (place.is_object() || place.is_array()).then_some((place, last))
}

/// A list index; negative ones count from the end.
fn index(part: &str, length: usize) -> Option<usize> {
    let i: i64 = part.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let i = if i < 0 { i + length } else { i };
    usize::try_from(i).ok()
}

/// The value at a key; the inner option tells whether an object has the key.
fn get<'d>(place: &'d Value, key: &str) -> Option<Option<&'d Value>> {
    match place {
        Value::Object(map) => Some(map.get(key)),
        Value::Array(list) => list.get(index(key, list.len())?).map(Some),
        _ => None,
    }
}

fn add(place: &mut Value, key: &str, value: Value) -> Option<()> {
    match place {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
            Some(())
        }
        Value::Array(list) if key == "-" => {
            list.push(value);
            Some(())
        }
        Value::Array(list) => {
            let i = index(key, list.len() + 1)?;
            (i <= list.len()).then(|| list.insert(i, value))
        }
        _ => None,
    }
}

fn replace(place: &mut Value, key: &str, value: Value) -> Option<()> {
    match place {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
            Some(())
        }
        Value::Array(list) => {
            let i = index(key, list.len())?;
            list.get_mut(i).map(|slot| *slot = value)
        }
        _ => None,
    }
}

fn take(place: &mut Value, key: &str) -> Option<Value> {
    match place {
        Value::Object(map) => map.remove(key),
        Value::Array(list) => {
            let i = index(key, list.len())?;
            (i < list.len()).then(|| list.remove(i))
        }
        _ => None,
    }
}
