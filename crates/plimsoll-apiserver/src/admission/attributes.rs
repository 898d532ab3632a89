//! Admission attributes: a request as webhooks and policies see it.

use std::collections::BTreeMap;

use plimsoll_apimachinery::admission::{Attributes, Operation, Target};
use plimsoll_apimachinery::{ApiError, Gvk, Kind};
use serde_json::Value;

use crate::machine::scale::scale_of;
use crate::store::Key;
use crate::write::{Admission, Write};

/// What is written at `scale` is a Scale for webhooks, not the object that it is of.
pub(super) fn is_scale(w: &Write) -> bool {
    w.subresource == "scale"
}

/// A request with its objects, as webhooks and policies see them.
pub(super) fn with_objects(
    w: &Write,
    mut attributes: Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<Attributes, ApiError> {
    let seen = |v: &Value| match v {
        Value::Null => Ok(Value::Null),
        v if is_scale(w) => scale_of(&w.kind, v),
        v => Ok(v.clone()),
    };
    attributes.object = seen(object)?;
    attributes.old = old.map(seen).transpose()?.unwrap_or_default();
    Ok(attributes)
}

/// What is written at `scale` is a Scale, whichever version of its resource it is written at.
fn as_scale(attributes: &mut Attributes) {
    for target in std::iter::once(&mut attributes.target).chain(&mut attributes.equivalents) {
        let gvk = Gvk { group: "autoscaling".to_owned(), version: "v1".to_owned(), kind: "Scale".to_owned() };
        target.resource_version = Some(std::mem::replace(&mut target.gvk, gvk));
    }
}

/// A request without its objects: most writes concern no webhook and no policy, and needn't be copied.
pub(super) fn attributes(w: &Write, operation: Operation) -> Attributes {
    let gvk = w.kind.gvk.clone();
    let rows = || w.table.iter().filter(|k| k.storage == w.kind.storage);
    // An object of another kind that is created at a subresource (a Binding, an Eviction).
    let parent = if rows().any(|k| k.gvk == gvk) { None } else { rows().next().map(|k| k.gvk.clone()) };
    let own = Target { gvk: gvk.clone(), resource_version: parent.clone(), plural: w.kind.plural.clone() };
    let served = |k: &Kind| w.subresource.is_empty() || k.subresource(&w.subresource).is_some();
    let equivalents = rows()
        .filter(|k| parent.is_none() && k.gvk != gvk && served(k))
        .map(|k| Target { gvk: k.gvk.clone(), resource_version: None, plural: k.plural.clone() })
        .collect();
    let namespace_labels = if w.namespace.is_empty() {
        BTreeMap::new()
    } else {
        let record = w.server.store().latest(&Key::new("/namespaces", "", w.namespace.as_str()));
        record.map(|r| r.labels.clone()).unwrap_or_default()
    };
    let mut attributes = Attributes {
        target: own,
        equivalents,
        subresource: w.subresource.clone(),
        name: if w.admission == Admission::Collection { String::new() } else { w.name.clone() },
        namespace: w.namespace.clone(),
        operation: Some(operation),
        user: w.user.to_value(),
        dry_run: w.dry_run,
        options: w.options.clone(),
        namespace_labels,
        ..Attributes::default()
    };
    if is_scale(w) {
        as_scale(&mut attributes);
    }
    attributes
}
