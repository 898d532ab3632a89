//! The kind table: one row for each served resource, built in or from a CustomResourceDefinition.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::crd::conversion::Conversion;
use crate::crd::node::Node;
use crate::gvk::Gvk;
use crate::schema::TypedSchema;

/// A subresource such as `status`, `scale`, `binding`, `log`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subresource {
    /// Name, the part after the slash.
    pub name: String,
    /// The kind of its objects.
    pub kind: Gvk,
    /// Verbs.
    pub verbs: Vec<String>,
}

/// One served resource of one version.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// Group, version, kind.
    pub gvk: Gvk,
    /// Kind of its list.
    pub list_kind: String,
    /// Plural name, the path segment.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs, sorted.
    pub verbs: Vec<String>,
    /// Subresources, sorted by name.
    pub subresources: Vec<Subresource>,
    /// The storage location of objects: `group/plural`, equal for all versions and for `events` in both groups.
    pub storage: String,
    /// Schema; `None`: unknown, so that objects are stored unchanged.
    pub schema: Option<TypedSchema>,
    /// For custom resources: the definition they come from.
    pub custom: Option<Arc<CustomKind>>,
    /// `storageVersionHash` of discovery, when known.
    pub storage_version_hash: Option<String>,
}

/// A version of a CustomResourceDefinition, beyond its names.
#[derive(Clone, Debug, Default)]
pub struct CustomKind {
    /// Printer columns as written: objects with `name`, `type`, `jsonPath`, `priority`, `format`.
    pub columns: Vec<serde_json::Value>,
    /// Whether the status subresource is on.
    pub status: bool,
    /// `subresources.scale`, as written.
    pub scale: Option<serde_json::Value>,
    /// JSON paths of selectable fields.
    pub selectable_fields: Vec<String>,
    /// Names of all versions of the definition, served or not.
    pub versions: Vec<String>,
    /// Version in which objects are stored.
    pub storage_version: String,
    /// Warning sent with every answer when the version is deprecated.
    pub deprecation: Option<String>,
    /// Whether the definition is being deleted: nothing more may be made.
    pub terminating: bool,
    /// Whether `spec.preserveUnknownFields` or its schema equivalent keeps everything.
    pub preserve_unknown: bool,
    /// The schema compiled for pruning, defaults, checks and rules.
    pub checks: Option<Arc<Node>>,
    /// Identifies a schema; 0: unknown.
    pub fingerprint: u64,
    /// The webhook that converts between versions; `None`: they differ in `apiVersion` only.
    pub conversion: Option<Arc<Conversion>>,
}

impl Kind {
    /// `pods` or `deployments.apps`: how messages name the resource.
    pub fn qualified_resource(&self) -> String {
        if self.gvk.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.gvk.group)
        }
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

/// All served resources. Cheap to clone; a change makes a new table.
#[derive(Clone, Debug, Default)]
pub struct KindTable {
    /// By [`row`].
    rows: BTreeMap<String, Arc<Kind>>,
    by_kind: HashMap<Gvk, Arc<Kind>>,
    /// Versions of each group, preferred first, in discovery order.
    groups: Vec<(String, Vec<String>)>,
}

/// The key of a resource in the table: one string, because looking that up is faster than looking up three.
fn row(group: &str, version: &str, plural: &str) -> String {
    let mut row = String::with_capacity(group.len() + version.len() + plural.len() + 2);
    for (part, end) in [(group, "\0"), (version, "\0"), (plural, "")] {
        row.push_str(part);
        row.push_str(end);
    }
    row
}

impl KindTable {
    /// The resource at `/apis/<group>/<version>/<plural>`.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.rows.get(&row(group, version, plural))
    }

    /// The resource that serves a kind.
    pub fn kind(&self, gvk: &Gvk) -> Option<&Arc<Kind>> {
        self.by_kind.get(gvk)
    }

    /// All rows, by group, version and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.rows.values()
    }

    /// Groups with their versions, preferred first, in discovery order.
    pub fn groups(&self) -> &[(String, Vec<String>)] {
        &self.groups
    }

    /// Adds or replaces a row.
    pub fn insert(&mut self, kind: Kind) {
        let kind = Arc::new(kind);
        let Gvk { group, version, .. } = &kind.gvk;
        match self.groups.iter_mut().find(|(g, _)| g == group) {
            Some((_, versions)) => {
                if !versions.contains(version) {
                    versions.push(version.clone());
                }
            }
            None => self.groups.push((group.clone(), vec![version.clone()])),
        }
        self.by_kind.insert(kind.gvk.clone(), Arc::clone(&kind));
        self.rows.insert(row(group, version, &kind.plural), kind);
    }

    /// Removes a row; a group without versions is removed, too.
    pub fn remove(&mut self, group: &str, version: &str, plural: &str) {
        let Some(kind) = self.rows.remove(&row(group, version, plural)) else { return };
        self.by_kind.remove(&kind.gvk);
        if !self.rows.values().any(|k| k.gvk.group == group && k.gvk.version == version) {
            for (g, versions) in &mut self.groups {
                if g == group {
                    versions.retain(|v| v != version);
                }
            }
            self.groups.retain(|(_, versions)| !versions.is_empty());
        }
    }
}
