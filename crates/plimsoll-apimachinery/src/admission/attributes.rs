//! A request that is being admitted, as webhooks and policies see it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::gvk::Gvk;

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creation, also by apply, and `binding` and `eviction`.
    Create,
    /// Replacement, patch, apply to an existing object.
    Update,
    /// Deletion.
    Delete,
    /// `exec`, `attach`, `proxy`, `portforward`.
    Connect,
}

impl Operation {
    /// `CREATE`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A version of a resource: what rules match and reviews name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Group, version, kind.
    pub gvk: Gvk,
    /// Group and version of the resource, where they differ from the kind's (`pods/eviction`); the kind field
    /// is not used.
    pub resource_version: Option<Gvk>,
    /// Plural name of the resource.
    pub plural: String,
}

/// A request that is being admitted.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// The requested version of the resource.
    pub target: Target,
    /// The equivalent versions, for `matchPolicy: Equivalent`.
    pub equivalents: Vec<Target>,
    /// Subresource, possibly empty.
    pub subresource: String,
    /// Name; empty for objects named by the server and for whole collections.
    pub name: String,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Operation; `None` is never matched.
    pub operation: Option<Operation>,
    /// `userInfo` of the review.
    pub user: Value,
    /// The new object; null on deletion.
    pub object: Value,
    /// The existing object; null on creation.
    pub old: Value,
    /// Whether it is a dry run.
    pub dry_run: bool,
    /// Options of the operation, see [`options`](crate::webhook::options).
    pub options: Value,
    /// Labels of the namespace; a Namespace itself has its own.
    pub namespace_labels: BTreeMap<String, String>,
}

impl Attributes {
    /// The fields of an `AdmissionRequest`, without its objects and without empty fields; `target` is the version that
    /// a webhook or policy matched.
    pub(crate) fn fields(&self, target: &Target) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |key: &str, value: Value| {
            fields.insert(key.to_owned(), value);
        };
        put("kind", kind(target));
        put("resource", resource(target));
        put("requestKind", kind(&self.target));
        put("requestResource", resource(&self.target));
        for (key, value) in [
            ("subResource", &self.subresource),
            ("requestSubResource", &self.subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !value.is_empty() {
                put(key, json!(value));
            }
        }
        put("operation", json!(self.operation.map_or("", Operation::name)));
        put("userInfo", self.user.clone());
        put("dryRun", json!(self.dry_run));
        put("options", self.options.clone());
        fields
    }
}

fn kind(target: &Target) -> Value {
    let gvk = &target.gvk;
    json!({ "group": gvk.group, "version": gvk.version, "kind": gvk.kind })
}

fn resource(target: &Target) -> Value {
    let at = target.resource_version.as_ref().unwrap_or(&target.gvk);
    json!({ "group": at.group, "version": at.version, "resource": target.plural })
}
