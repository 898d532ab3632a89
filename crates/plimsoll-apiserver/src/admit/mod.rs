//! Built-in admission, in upstream's order of plugins, and webhooks.

mod amounts;
mod limits;
mod namespace;
mod objects;
mod pods;
pub mod policies;
mod priority;
pub mod quota;
mod runtime_class;
mod versions;
pub mod webhooks;

use self::quota::Charge;
use plimsoll_machinery::{ApiError, Details, Gvk};
use serde_json::Value;

use crate::pipeline::{Admission, Write};

pub(crate) use objects::default_class;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// A connecting subresource is opened.
    Connect,
}

impl Operation {
    /// Its name in reviews.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The resource and subresource of a write, for plugins to match.
pub(crate) struct Subject<'a> {
    pub group: &'a str,
    pub plural: &'a str,
    pub subresource: &'a str,
}

impl Subject<'_> {
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural && self.subresource.is_empty()
    }
}

pub(crate) fn subject(w: &Write) -> Subject<'_> {
    let Gvk { group, .. } = &w.kind.gvk;
    Subject { group, plural: &w.kind.plural, subresource: &w.subresource }
}

/// Admission that may change the object. `old`: its state before, for updates and deletions.
///
/// # Errors
/// What a plugin or a webhook refuses.
pub async fn mutate(
    w: &mut Write,
    object: &mut Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    if w.admission == Admission::Done {
        return Ok(());
    }
    namespace::check(w, if object.is_null() { old.unwrap_or(&Value::Null) } else { &*object }, operation)?;
    builtin(w, object, old, operation)?;
    if webhooks::mutate(w, object, old, operation).await? {
        // What a webhook put in gets the plugins' treatment as well.
        builtin(w, object, old, operation)?;
    }
    Ok(())
}

fn builtin(w: &Write, object: &mut Value, old: Option<&Value>, operation: Operation) -> Result<(), ApiError> {
    if !matches!(operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    limits::default(w, object, old, operation);
    objects::taint_new_node(w, object, operation);
    priority::resolve(w, object, old, operation)?;
    pods::default_tolerations(w, object);
    objects::default_storage_class(w, object, operation);
    objects::protect_storage(w, object, operation);
    runtime_class::apply(w, object, operation)?;
    objects::default_ingress_class(w, object, operation);
    pods::label_topology(w, object, operation);
    Ok(())
}

/// Admission that only looks. `object`: the new state, `None` for a deletion.
///
/// # Errors
/// What a plugin or a webhook refuses.
pub async fn validate(
    w: &mut Write,
    object: Option<&Value>,
    old: Option<&Value>,
    operation: Operation,
) -> Result<Charge, ApiError> {
    if w.admission == Admission::Done {
        return Ok(Charge::default());
    }
    priority::protect(w, operation)?;
    if let Some(object) = object {
        limits::validate(w, object, old, operation)?;
        priority::validate(w, object, operation)?;
        objects::check_claim_resize(w, object, old, operation)?;
        runtime_class::validate(w, object, operation)?;
        pods::check_resize(w, object, old, operation)?;
        crate::auth::signers::check(w, object, old, operation)?;
    }
    policies::validate(w, object, old, operation).await?;
    webhooks::validate(w, object, old, operation).await?;
    if let Some(object) = object {
        // As upstream's storage does it: after everybody who may change the object.
        crate::auth::escalation::check(w, object, old, operation)?;
        return quota::charge(w, object, old, operation).await;
    }
    Ok(Charge::default())
}

/// 403 as plugins word it: `pods "x" is forbidden: …`.
pub(crate) fn forbidden(w: &Write, object: &Value, why: &str) -> ApiError {
    let meta = &object["metadata"];
    let text = |field: &str| meta[field].as_str().filter(|t| !t.is_empty());
    let name = Some(w.name.as_str())
        .filter(|n| !n.is_empty())
        .or_else(|| text("name"))
        .or_else(|| text("generateName"))
        .unwrap_or("Unknown")
        .to_owned();
    forbidden_named(w, &name, why)
}

/// As [`forbidden`], for a name that is known.
pub(crate) fn forbidden_named(w: &Write, name: &str, why: &str) -> ApiError {
    let (group, plural) = (resource_group(w), w.kind.plural.as_str());
    let dot = if group.is_empty() { "" } else { "." };
    let message = format!("{plural}{dot}{group} \"{name}\" is forbidden: {why}");
    let mut e = ApiError::new(403, "Forbidden", message);
    e.details = Some(Box::new(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: w.kind.plural.clone(),
        ..Details::default()
    }));
    e
}

/// The group of the resource that is written: not that of what is created at a subresource of it (an Eviction).
fn resource_group(w: &Write) -> &str {
    let Gvk { group, version, .. } = &w.kind.gvk;
    match w.table.resource(group, version, &w.kind.plural) {
        Some(_) => group,
        None => w.kind.storage.split_once('/').map_or(group, |(group, _)| group),
    }
}
