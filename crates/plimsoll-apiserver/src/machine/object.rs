//! What is done to an object between its body and the store.

use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_apimachinery::{
    ApiError, Gvk, Kind, KindTable, apply as owners, builtin, crd, decode as codec, go, strategy,
};
use serde_json::{Value, json};

/// Fills in defaults.
pub fn default(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() {
        crd::default_object(kind, object);
    } else {
        plimsoll_apimachinery::default::apply_defaults(kind, object);
    }
}

/// What happens to an object between validation and storage: custom resources lose what their schema doesn't know, and
/// what the strategy left empty gets the defaults it would have when read again. Whole numbers lose their fraction.
pub fn finish(kind: &Kind, object: &mut Value) {
    crd::prune(kind, object);
    if strategy::keeps_defaults(kind) {
        debug_assert!(is_default(kind, object), "{object}");
    } else {
        default(kind, object);
    }
    if kind.custom.is_some() {
        go::normalise_numbers(object);
    }
    strategy::finish(kind, object);
}

/// Whether an object has all its defaults.
fn is_default(kind: &Kind, object: &Value) -> bool {
    let mut again = object.clone();
    default(kind, &mut again);
    again == *object
}

/// An object as it is served: custom resources with the defaults of their version.
pub fn serve(kind: &Kind, mut object: Value) -> Value {
    if kind.custom.is_some() {
        crd::prune(kind, &mut object);
        crd::default_object(kind, &mut object);
    }
    object
}

/// An object of a kind with nothing in it, as bookmarks carry it.
pub fn empty(kind: &Kind) -> Value {
    let object = json!({"kind": kind.gvk.kind, "apiVersion": kind.gvk.api_version()});
    if kind.custom.is_some() {
        return object;
    }
    codec::conform(kind, object.clone()).map_or(object, |c| c.object)
}

/// What the kind's strategy does before a create.
pub fn prepare_create(kind: &Kind, object: &mut Value, now: Timestamp) {
    strategy::prepare_create(kind, object, now);
}

/// What the kind's strategy does before an update through a subresource (empty: the object itself).
pub fn prepare_update(kind: &Kind, subresource: &str, new: &mut Value, old: &Value, now: Timestamp) {
    strategy::prepare_update(kind, subresource, old, new, now);
}

/// Records in `new` the field managers of what changed.
pub fn own_update<'a>(
    kind: impl Into<owners::Served<'a>>,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: &str,
    now: Timestamp,
) -> Result<(), ApiError> {
    let served = kind.into();
    let kind = served.kind;
    if kind.gvk.group == "apps" && kind.gvk.kind == "DaemonSet" {
        // A field of upstream's internal type that shows as an annotation.
        const GENERATION: &str = "deprecated.daemonset.template.generation";
        if new["metadata"]["annotations"].get(GENERATION).is_none() && new["metadata"].is_object() {
            if !new["metadata"]["annotations"].is_object() {
                new["metadata"]["annotations"] = json!({});
            }
            new["metadata"]["annotations"][GENERATION] = json!("0");
        }
    }
    served.on_update(subresource, old, new, manager, &crate::time::seconds(now));
    Ok(())
}

/// Puts managed fields in the place of an object's.
pub fn replace_owners(object: &mut Value, entries: Vec<Value>) {
    owners::replace_managed(object, entries);
}

/// Times in managed fields stay as they were when nothing else changed.
pub fn settle_times(new: &mut Value, old: &Value) {
    owners::keep_times(old, new);
}

/// Whether dependents are orphaned unless the client says otherwise (`DefaultGarbageCollectionPolicy`).
pub fn orphans_by_default(kind: &Kind) -> bool {
    matches!(
        (kind.gvk.group.as_str(), kind.plural.as_str()),
        ("batch", "jobs") | ("", "replicationcontrollers")
    )
}

/// The kind of a subresource that is not its parent's.
pub fn subresource_kind(table: &KindTable, gvk: &Gvk) -> Option<Arc<Kind>> {
    table.kind(gvk).or_else(|| builtin::subresource_kind(gvk)).cloned()
}
