//! Resources by group, version and plural name.

use std::borrow::Cow;

use plimsoll_apimachinery::{Key, Kind};

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
