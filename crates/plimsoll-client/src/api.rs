//! The client that controllers write through (controller-runtime's `Client`).

use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_apimachinery::{ApiError, KindTable};
use serde_json::Value;

use crate::reader::Reader;
use crate::resource::Resource;

/// What a write is about.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The resource.
    pub resource: &'a Resource,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// Name; empty for a create.
    pub name: &'a str,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
}

impl<'a> Target<'a> {
    /// An object.
    pub const fn object(resource: &'a Resource, namespace: &'a str, name: &'a str) -> Self {
        Self { resource, namespace, name, subresource: "" }
    }

    /// A new object.
    pub const fn create(resource: &'a Resource, namespace: &'a str) -> Self {
        Self::object(resource, namespace, "")
    }

    /// A part of an object.
    pub const fn part(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }
}

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    /// `propagationPolicy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub struct Deletion {
    /// Only if this is its UID.
    pub uid: Option<String>,
    /// Only if this is its resource version.
    pub resource_version: Option<String>,
    /// What becomes of dependents; `None`: the kind's default.
    pub propagation: Option<Propagation>,
    /// Grace period in seconds; `None`: the object's own.
    pub grace_seconds: Option<i64>,
}

impl Deletion {
    /// Deletes the object with this UID and no other.
    pub fn of_uid(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), ..Self::default() }
    }

    /// With this propagation.
    #[must_use]
    pub fn with(mut self, propagation: Propagation) -> Self {
        self.propagation = Some(propagation);
        self
    }
}

/// The answer to a write.
pub type Reply<'a, T> = BoxFuture<'a, Result<T, ApiError>>;

/// An API server as controllers see it.
pub trait Client: Send + Sync + 'static {
    /// Read access to the same server.
    fn reader(&self) -> &Arc<dyn Reader>;

    /// The kinds that the server serves now.
    fn kinds(&self) -> Arc<KindTable>;

    /// Whether quotas of the namespace hold charges for writes that are not committed yet.
    fn is_charging(&self, namespace: &str) -> bool;

    /// Creates an object.
    fn create<'a>(&'a self, target: Target<'a>, object: Value) -> Reply<'a, Value>;

    /// Replaces an object, or a part of it. With `metadata.resourceVersion` only that version.
    fn update<'a>(&'a self, target: Target<'a>, object: Value) -> Reply<'a, Value>;

    /// Deletes an object, or begins to.
    fn delete<'a>(&'a self, target: Target<'a>, deletion: Deletion) -> Reply<'a, ()>;
}

/// Attempts of [`modify`] before a conflict is returned.
const MAX_ATTEMPTS: u32 = 10;

/// Reads, changes and writes an object, again on a conflict. `change` returns whether there is anything to
/// write. An object with another UID counts as absent.
///
/// # Errors
/// What the server answers; 404 if the object is gone.
pub fn modify<'a>(
    client: &'a dyn Client,
    target: Target<'a>,
    uid: &'a str,
    change: impl FnMut(&mut Value) -> bool + Send + 'a,
) -> BoxFuture<'a, Result<(), ApiError>> {
    let change = Box::new(change);
    Box::pin(modify_boxed(client, target, uid, change))
}

/// Compiled once, for all changes.
async fn modify_boxed(
    client: &dyn Client,
    target: Target<'_>,
    uid: &str,
    mut change: Box<dyn FnMut(&mut Value) -> bool + Send + '_>,
) -> Result<(), ApiError> {
    let Target { resource, namespace, name, .. } = target;
    let gone = || ApiError::not_found(&resource.group, &resource.plural, name);
    for attempt in 1.. {
        let record = client.reader().latest(&resource.key(namespace, name)).filter(|r| r.uid() == uid);
        let mut object = record.ok_or_else(gone)?.value()?;
        // Stored objects may have another version of the kind.
        object["apiVersion"] = Value::String(resource.api_version());
        if !change(&mut object) {
            return Ok(());
        }
        match client.update(target, object).await {
            Err(e) if e.reason == "Conflict" && attempt < MAX_ATTEMPTS => {}
            other => return other.map(drop),
        }
    }
    Err(gone())
}
