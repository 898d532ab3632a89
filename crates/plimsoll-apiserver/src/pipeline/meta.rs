//! What the registry does to metadata before strategies see an object (`registry/rest`).

use std::collections::HashSet;

use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use rand::RngExt;
use serde_json::{Map, Value, json};

/// Letters of generated name suffixes (`util/rand`): no vowels, nothing that looks alike.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const MAX_GENERATED_PREFIX: usize = 63 - SUFFIX;

/// `metadata` as a map; made when it isn't there.
pub fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let map = object.as_object_mut()?;
    let meta = map.entry("metadata").or_insert_with(|| json!({}));
    if meta.is_null() {
        *meta = json!({});
    }
    meta.as_object_mut()
}

/// A text in `metadata`.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}

/// A new name from `generateName`.
pub fn generate_name(prefix: &str) -> String {
    let mut rng = rand::rng();
    let base: String = prefix.chars().take(MAX_GENERATED_PREFIX).collect();
    let suffix = (0..SUFFIX).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())]));
    base.chars().chain(suffix).collect()
}

/// UID and creation time of a new object; times of deletion are the server's to set.
pub fn fill_system_fields(object: &mut Value, now: Timestamp) {
    drop_deletion(object);
    let Some(meta) = metadata(object) else { return };
    meta.insert("creationTimestamp".to_owned(), json!(crate::time::seconds(now)));
    meta.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
}

/// What a client may not say of a new object; it has no field manager either.
pub fn drop_deletion(object: &mut Value) {
    let Some(meta) = metadata(object) else { return };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.remove(field);
    }
}

/// The namespace of the object is that of the request; an empty one is filled in, that of an object that has none is
/// dropped (`EnsureObjectNamespaceMatchesRequestNamespace`).
///
/// # Errors
/// 400 when they differ.
pub fn ensure_namespace(object: &mut Value, namespaced: bool, namespace: &str) -> Result<(), ApiError> {
    let Some(meta) = metadata(object) else { return Ok(()) };
    let given = meta.get("namespace").and_then(Value::as_str).unwrap_or("");
    if !namespaced {
        meta.remove("namespace");
    } else if given.is_empty() {
        meta.insert("namespace".to_owned(), json!(namespace));
    } else if given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Drops owners that are there twice; gives the warning when there are any (`dedupOwnerReferences`). What admission
/// adds is told apart from what the client sends.
pub fn dedup_owners(object: &mut Value, admitted: bool) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    if owners.len() < 2 {
        return None;
    }
    let mut seen = HashSet::with_capacity(owners.len());
    let mut twice: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let first = seen.insert(owner.clone());
        if !first {
            twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        first
    });
    let when = if admitted { " after mutating admission happens" } else { "" };
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in \
             1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) \
             observed: {}",
            twice.join(", ")
        )
    })
}

/// Drops what is empty, as encoding with `omitempty` does.
pub fn tidy(object: &mut Value) {
    let Some(meta) = metadata(object) else { return };
    meta.retain(|_, v| match v {
        Value::Null => false,
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(m) => !m.is_empty(),
        _ => true,
    });
}
