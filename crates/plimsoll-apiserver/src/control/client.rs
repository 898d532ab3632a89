//! How controllers write: through the same pipeline as everybody. They read the store.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_apimachinery::{ApiError, Kind, KindTable};
use serde_json::Value;

use crate::store::{Key, Store};

/// A resource of one version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// API group, empty for the core.
    pub group: Cow<'static, str>,
    /// Version.
    pub version: Cow<'static, str>,
    /// Plural name.
    pub plural: Cow<'static, str>,
    /// Where its objects are stored, as [`Kind::storage`].
    pub storage: Cow<'static, str>,
}

impl Resource {
    /// A built-in resource.
    pub const fn builtin(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        storage: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            storage: Cow::Borrowed(storage),
        }
    }

    /// The resource of a kind.
    pub fn of(kind: &Kind) -> Self {
        Self {
            group: Cow::Owned(kind.gvk.group.clone()),
            version: Cow::Owned(kind.gvk.version.clone()),
            plural: Cow::Owned(kind.plural.clone()),
            storage: Cow::Owned(kind.storage.clone()),
        }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Where an object of it is stored.
    pub fn key(&self, namespace: &str, name: &str) -> Key {
        Key::new(self.storage.as_ref(), namespace, name)
    }
}

/// Built-in resources that controllers deal with.
pub mod resources {
    use super::Resource;

    /// Pods.
    pub static PODS: Resource = Resource::builtin("", "v1", "pods", "/pods");
    /// Nodes.
    pub static NODES: Resource = Resource::builtin("", "v1", "nodes", "/nodes");
    /// Namespaces.
    pub static NAMESPACES: Resource = Resource::builtin("", "v1", "namespaces", "/namespaces");
    /// Events of the core group.
    pub static EVENTS: Resource = Resource::builtin("", "v1", "events", "/events");
    /// ConfigMaps.
    pub static CONFIG_MAPS: Resource = Resource::builtin("", "v1", "configmaps", "/configmaps");
    /// Service accounts.
    pub static SERVICE_ACCOUNTS: Resource =
        Resource::builtin("", "v1", "serviceaccounts", "/serviceaccounts");
    /// Resource quotas.
    pub static RESOURCE_QUOTAS: Resource = Resource::builtin("", "v1", "resourcequotas", "/resourcequotas");
    /// Jobs.
    pub static JOBS: Resource = Resource::builtin("batch", "v1", "jobs", "batch/jobs");
    /// CronJobs.
    pub static CRON_JOBS: Resource = Resource::builtin("batch", "v1", "cronjobs", "batch/cronjobs");
    /// ReplicaSets.
    pub static REPLICA_SETS: Resource = Resource::builtin("apps", "v1", "replicasets", "apps/replicasets");
    /// StatefulSets.
    pub static STATEFUL_SETS: Resource = Resource::builtin("apps", "v1", "statefulsets", "apps/statefulsets");
    /// DaemonSets.
    pub static DAEMON_SETS: Resource = Resource::builtin("apps", "v1", "daemonsets", "apps/daemonsets");
    /// ControllerRevisions.
    pub static REVISIONS: Resource =
        Resource::builtin("apps", "v1", "controllerrevisions", "apps/controllerrevisions");
    /// PersistentVolumeClaims.
    pub static CLAIMS: Resource =
        Resource::builtin("", "v1", "persistentvolumeclaims", "/persistentvolumeclaims");
    /// PersistentVolumes.
    pub static VOLUMES: Resource = Resource::builtin("", "v1", "persistentvolumes", "/persistentvolumes");
    /// Storage classes.
    pub static STORAGE_CLASSES: Resource =
        Resource::builtin("storage.k8s.io", "v1", "storageclasses", "storage.k8s.io/storageclasses");
    /// ResourceClaims.
    pub static RESOURCE_CLAIMS: Resource =
        Resource::builtin("resource.k8s.io", "v1", "resourceclaims", "resource.k8s.io/resourceclaims");
    /// Roles of the whole cluster.
    pub static CLUSTER_ROLES: Resource = Resource::builtin(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "rbac.authorization.k8s.io/clusterroles",
    );
    /// Leases.
    pub static LEASES: Resource =
        Resource::builtin("coordination.k8s.io", "v1", "leases", "coordination.k8s.io/leases");
    /// Deployments.
    pub static DEPLOYMENTS: Resource = Resource::builtin("apps", "v1", "deployments", "apps/deployments");
}

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

/// The server as controllers see it.
pub trait Client: Send + Sync + 'static {
    /// Where to read.
    fn store(&self) -> &Store;

    /// What is served now.
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

/// Attempts of [`modify`] against other writers.
const MAX_ATTEMPTS: u32 = 10;

/// Reads, changes and writes an object, again if somebody else was faster. `change` says whether there is anything to
/// write. An object with another UID counts as absent.
///
/// # Errors
/// What the server answers; 404 if the object is gone.
pub async fn modify(
    client: &dyn Client,
    target: Target<'_>,
    uid: &str,
    mut change: impl FnMut(&mut Value) -> bool + Send,
) -> Result<(), ApiError> {
    let Target { resource, namespace, name, .. } = target;
    let gone = || ApiError::not_found(&resource.group, &resource.plural, name);
    for attempt in 1.. {
        let record = client.store().latest(&resource.key(namespace, name)).filter(|r| r.uid == uid);
        let mut object = record.ok_or_else(gone)?.value().map_err(|e| ApiError::internal(&e))?;
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
