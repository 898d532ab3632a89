//! The built-in kinds of Kubernetes 1.36: kind table, schemas and API paths.
//!
//! The data is generated (`cargo xtask schemas`) from recorded discovery and OpenAPI documents and compiled in;
//! it is unpacked once, on first use.

mod arena;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::gvk::Gvk;
use crate::kinds::{Kind, KindTable, Subresource};
use crate::schema::{SchemaId, Schemas, TypedSchema};

const TABLE: &[u8] = include_bytes!("../../data/kubernetes-1.36.json.zst");
const PATHS: &[u8] = include_bytes!("../../data/kubernetes-1.36-paths.json.zst");
const EXTRA: &str = include_str!("../../data/extra-schemas.json");
const GO_TYPES: &str = include_str!("../../data/gotypes.txt");
const EMBEDDED: &str = include_str!("../../data/embedded.txt");

/// The generated table.
#[derive(Debug, Default, Deserialize)]
pub struct Data {
    /// OpenAPI schemas by definition name, without descriptions; a reference is `"ref": "<name>"` in place of
    /// `$ref` (with the default beside it, where upstream has `allOf`).
    pub schemas: Map<String, Value>,
    /// Groups in discovery order.
    pub groups: Vec<GroupData>,
}

/// One API group.
#[derive(Debug, Deserialize)]
pub struct GroupData {
    /// Name; empty for the core group.
    pub group: String,
    /// Versions, preferred first.
    pub versions: Vec<VersionData>,
}

/// One version of a group.
#[derive(Debug, Deserialize)]
pub struct VersionData {
    /// Version.
    pub version: String,
    /// Resources and subresources (`pods/status`) as in legacy discovery, in its order.
    pub resources: Vec<ResourceData>,
}

/// One resource or subresource (`metav1.APIResource`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceData {
    /// Plural name, or `plural/subresource`.
    pub name: String,
    /// Singular name; empty for subresources.
    #[serde(default)]
    pub singular_name: String,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Kind.
    pub kind: String,
    /// Group of the kind where it differs from the group version's (`pods/eviction`).
    pub group: Option<String>,
    /// Version of the kind where it differs.
    pub version: Option<String>,
    /// Verbs, sorted.
    pub verbs: Vec<String>,
    /// Short names.
    #[serde(default)]
    pub short_names: Vec<String>,
    /// Categories.
    #[serde(default)]
    pub categories: Vec<String>,
    /// Hash of the storage version.
    pub storage_version_hash: Option<String>,
}

struct Builtin {
    data: Data,
    schemas: Arc<Schemas>,
    by_gvk: HashMap<Gvk, SchemaId>,
    table: KindTable,
    subresource_kinds: HashMap<Gvk, Arc<Kind>>,
}

static BUILTIN: LazyLock<Builtin> = LazyLock::new(Builtin::load);
static DOCUMENTS: LazyLock<Map<String, Value>> = LazyLock::new(|| unpack(PATHS));

/// The table of built-in kinds. Cloning shares the rows.
pub fn table() -> KindTable {
    BUILTIN.table.clone()
}

/// The generated table.
pub fn data() -> &'static Data {
    &BUILTIN.data
}

/// The arena of built-in schemas.
pub fn schemas() -> &'static Arc<Schemas> {
    &BUILTIN.schemas
}

/// Per OpenAPI document (`api/v1`, `apis/apps/v1`): `paths` (with parameters, operations, actions and kinds, cut
/// down as recorded), `schemas` (the names in the document) and `own` (schemas that read differently there).
pub fn documents() -> &'static Map<String, Value> {
    &DOCUMENTS
}

/// The schema of a kind, also of kinds without a resource of their own (`Scale`, `Eviction`, `DeleteOptions`).
pub fn definition(gvk: &Gvk) -> Option<TypedSchema> {
    let root = *BUILTIN.by_gvk.get(gvk)?;
    Some(TypedSchema { schemas: Arc::clone(&BUILTIN.schemas), root })
}

/// A row for a kind that is only read or written at subresources (`Scale`, `Eviction`, `TokenRequest`), so that
/// such bodies decode like objects.
pub fn subresource_kind(gvk: &Gvk) -> Option<&'static Arc<Kind>> {
    BUILTIN.subresource_kinds.get(gvk)
}

/// Whether a kind is known, with or without a resource (`ConfigMapList`).
pub(crate) fn is_registered(gvk: &Gvk) -> bool {
    let list_of = gvk.kind.strip_suffix("List");
    let has = |kind: &str| {
        let gvk = Gvk { kind: kind.to_owned(), ..gvk.clone() };
        BUILTIN.table.kind(&gvk).is_some() || BUILTIN.by_gvk.contains_key(&gvk)
    };
    has(&gvk.kind) || list_of.is_some_and(has)
}

/// The Go type of a definition's field where the schema does not tell it, as it shows in messages.
pub(crate) fn go_type(definition: &str, field: &str) -> Option<&'static str> {
    let wanted = short_name(definition)?;
    let line = GO_TYPES.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(' '))?;
    line.split_ascii_whitespace().find_map(|pair| pair.strip_prefix(field)?.strip_prefix('='))
}

/// The embedded Go struct a definition's field is in, as it shows in the paths of messages; possibly several,
/// joined by dots.
pub(crate) fn embedded_in(definition: &str, field: &str) -> Option<&'static str> {
    let wanted = short_name(definition)?;
    let rows = EMBEDDED.lines().filter_map(|line| line.strip_prefix(wanted)?.strip_prefix(' '));
    rows.filter_map(|row| row.split_once(' '))
        .find(|(_, fields)| fields.split_ascii_whitespace().any(|f| f == field))
        .map(|(name, _)| name)
}

/// A definition's name as the tables of facts have it: `core.v1.Pod`, `meta.v1.ObjectMeta`.
fn short_name(definition: &str) -> Option<&str> {
    let known = ["io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.apiextensions-apiserver.pkg.apis."];
    known.iter().find_map(|prefix| definition.strip_prefix(prefix))
}

fn unpack<T: for<'de> Deserialize<'de> + Default>(packed: &[u8]) -> T {
    let mut text = Vec::new();
    // The data is part of the program and a test reads it: an error here cannot happen in a build that passed.
    ruzstd::decoding::StreamingDecoder::new(packed)
        .ok()
        .and_then(|mut decoder| decoder.read_to_end(&mut text).ok())
        .and_then(|_| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

impl Builtin {
    fn load() -> Self {
        let mut data: Data = unpack(TABLE);
        // Kinds the recorded OpenAPI documents leave out.
        let extra: Map<String, Value> = serde_json::from_str(EXTRA).unwrap_or_default();
        let known = data.schemas.clone();
        data.schemas.extend(extra);
        let schemas = Arc::new(arena::build(&data.schemas));
        let mut by_gvk = HashMap::new();
        for (name, schema) in &data.schemas {
            if let (Some(id), Some(list)) =
                (schemas.named(name), schema["x-kubernetes-group-version-kind"].as_array())
            {
                by_gvk.extend(list.iter().map(|gvk| (gvk_of(gvk), id)));
            }
        }
        let mut builtin = Self {
            data: Data::default(),
            schemas,
            by_gvk,
            table: KindTable::default(),
            subresource_kinds: HashMap::new(),
        };
        for group in &data.groups {
            for version in &group.versions {
                builtin.rows(&group.group, version);
            }
        }
        data.schemas = known;
        builtin.data = data;
        builtin
    }

    fn rows(&mut self, group: &str, version: &VersionData) {
        let mut rows: BTreeMap<&str, Kind> = BTreeMap::new();
        for r in version.resources.iter().filter(|r| !r.name.contains('/')) {
            rows.insert(&r.name, self.row(group, &version.version, r));
        }
        for r in &version.resources {
            let Some((parent, name)) = r.name.split_once('/') else { continue };
            let kind = Gvk {
                group: r.group.clone().unwrap_or_else(|| group.to_owned()),
                version: r.version.clone().unwrap_or_else(|| version.version.clone()),
                kind: r.kind.clone(),
            };
            if rows.values().all(|row| row.gvk != kind) && !self.subresource_kinds.contains_key(&kind) {
                let row = Kind {
                    gvk: kind.clone(),
                    namespaced: r.namespaced,
                    schema: self.typed(&kind),
                    ..Kind::default()
                };
                self.subresource_kinds.insert(kind.clone(), Arc::new(row));
            }
            if let Some(row) = rows.get_mut(parent) {
                row.subresources.push(Subresource { name: name.to_owned(), kind, verbs: r.verbs.clone() });
            }
        }
        for mut row in rows.into_values() {
            row.subresources.sort_by(|a, b| a.name.cmp(&b.name));
            self.table.insert(row);
        }
    }

    fn typed(&self, gvk: &Gvk) -> Option<TypedSchema> {
        let root = *self.by_gvk.get(gvk)?;
        Some(TypedSchema { schemas: Arc::clone(&self.schemas), root })
    }

    fn row(&self, group: &str, version: &str, r: &ResourceData) -> Kind {
        let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: r.kind.clone() };
        // Both kinds of events are one set of objects.
        let store_group = if group == "events.k8s.io" { "" } else { group };
        Kind {
            schema: self.typed(&gvk),
            gvk,
            list_kind: format!("{}List", r.kind),
            plural: r.name.clone(),
            singular: r.singular_name.clone(),
            short_names: r.short_names.clone(),
            categories: r.categories.clone(),
            namespaced: r.namespaced,
            verbs: r.verbs.clone(),
            subresources: Vec::new(),
            storage: format!("{store_group}/{}", r.name),
            custom: None,
            storage_version_hash: r.storage_version_hash.clone(),
        }
    }
}

fn gvk_of(v: &Value) -> Gvk {
    let text = |key: &str| v[key].as_str().unwrap_or_default().to_owned();
    Gvk { group: text("group"), version: text("version"), kind: text("kind") }
}

/// The warning for clients of a deprecated version (the types' `prerelease-lifecycle` tags).
pub fn deprecation(gvk: &Gvk) -> Option<&'static str> {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("", "v1", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        ("", "v1", "Endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Leaf, Presence};

    fn kind(group: &str, version: &str, plural: &str) -> Arc<Kind> {
        Arc::clone(table().resource(group, version, plural).unwrap())
    }

    #[test]
    fn every_served_resource_has_a_row() {
        let table = table();
        assert_eq!(table.groups().len(), data().groups.len());
        assert_eq!(table.groups()[0].0, "");
        let autoscaling = table.groups().iter().find(|(g, _)| g == "autoscaling").unwrap();
        assert_eq!(autoscaling.1, ["v2", "v1"]);
        let pods = kind("", "v1", "pods");
        assert_eq!(pods.short_names, ["po"]);
        assert_eq!(pods.categories, ["all"]);
        assert_eq!(pods.subresource("eviction").unwrap().kind.api_version(), "policy/v1");
        assert_eq!(kind("apps", "v1", "deployments").subresource("scale").unwrap().kind.kind, "Scale");
    }

    #[test]
    fn both_events_share_one_store() {
        assert_eq!(kind("", "v1", "events").storage, kind("events.k8s.io", "v1", "events").storage);
    }

    #[test]
    fn presence_rows_name_fields_that_exist() {
        for (name, fields) in arena::presence() {
            let id = schemas().named(&name).unwrap_or_else(|| panic!("no {name}"));
            for field in fields.keys() {
                assert!(schemas().get(id).properties.contains_key(*field), "{name} has no {field}");
            }
        }
    }

    #[test]
    fn schemas_know_lists_leaves_and_presence() {
        let pod = kind("", "v1", "pods").schema.clone().unwrap();
        let get = |id: SchemaId, field: &str| pod.schemas.get(id).properties[field].clone();
        let spec = get(pod.root, "spec");
        assert_eq!(spec.presence, Presence::Zero);
        let containers = pod.schemas.get(get(spec.id, "containers").id);
        assert_eq!((containers.list_type.as_str(), containers.patch_merge_key.as_str()), ("map", "name"));
        assert_eq!(get(spec.id, "containers").presence, Presence::Null);
        assert_eq!(get(spec.id, "hostNetwork").presence, Presence::Omit);
        assert_eq!(get(spec.id, "priority").presence, Presence::Keep);
        let limits = pod.schemas.get(get(get(containers.items.unwrap(), "resources").id, "limits").id);
        assert_eq!(pod.schemas.get(limits.additional.unwrap()).leaf, Leaf::Quantity);
    }

    #[test]
    fn documents_have_paths_and_known_schemas() {
        let v1 = &documents()["api/v1"];
        assert!(v1["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["operations"]["patch"].is_object());
        for name in v1["schemas"].as_array().unwrap() {
            assert!(data().schemas.contains_key(name.as_str().unwrap()));
        }
        assert!(
            subresource_kind(&Gvk { group: "policy".into(), version: "v1".into(), kind: "Eviction".into() })
                .unwrap()
                .schema
                .is_some()
        );
    }
}
