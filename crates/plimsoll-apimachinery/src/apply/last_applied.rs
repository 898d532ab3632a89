//! Moving objects from `kubectl apply` to `kubectl apply --server-side`: the last-applied annotation.

use serde_json::Value;

use super::compare::{Side, compare};
use super::fields::{self, Fields};
use super::fieldset::field_set;
use super::types::Type;
use crate::kinds::Kind;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Upper bound of all annotations of an object, in bytes (`TotalAnnotationSizeLimitB`).
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|a| !a.is_empty())
}

/// Fields that kubectl applied, according to the annotation, and that are unchanged since: applying them again is no
/// conflict.
pub fn own_fields(kind: &Kind, live: &Value) -> Fields {
    let applied = annotation(live).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(applied) = applied.filter(|a| a["apiVersion"] == kind.gvk.api_version()) else {
        return Fields::new();
    };
    let ty = Type::of(kind);
    let mut set = field_set(ty, &applied);
    let difference = compare(ty, Side::Value(&applied), live, &|_, _| false);
    fields::subtract(&mut set, &difference.changed);
    fields::subtract(&mut set, &difference.removed);
    set
}

/// Updates an existing annotation to what kubectl applied.
pub fn sync(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) =
        applied.get_mut("metadata").and_then(|m| m.get_mut("annotations")).and_then(Value::as_object_mut)
    {
        // Removing the only annotation leaves an empty map.
        annotations.remove(ANNOTATION);
    }
    let text = format!("{applied}\n");
    if let Some(annotations) =
        object.get_mut("metadata").and_then(|m| m.get_mut("annotations")).and_then(Value::as_object_mut)
    {
        annotations.insert(ANNOTATION.to_owned(), Value::from(text));
        let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
        if size > MAX_ANNOTATIONS {
            annotations.remove(ANNOTATION);
        }
    }
}
