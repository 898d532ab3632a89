//! Schemas: the fields of an object, their types, and how its lists and maps merge.
//!
//! One form for built-in kinds (from the OpenAPI table) and custom resources (from structural schemas).
//! Schemas may be recursive, so nodes live in an arena and refer to each other by [`SchemaId`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

/// Index of a schema in its [`Schemas`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaId(pub u32);

/// JSON type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaType {
    /// Any type.
    #[default]
    Any,
    /// A JSON object: a struct when it has properties, a map when it has additional ones.
    Object,
    /// A JSON array.
    Array,
    /// A string.
    String,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
    /// An integer or a string (`IntOrString`, and quantities on input).
    IntOrString,
}

/// The handling of a field of a built-in kind that is missing or has its type's zero value (`""`, `0`, `false`, `[]`,
/// `{}`). Custom resources keep every value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Not written when it is zero (Go's `omitempty`).
    #[default]
    Omit,
    /// Kept when it is given, even when it is zero (a pointer).
    Keep,
    /// Always written, with its zero value when it is missing.
    Zero,
    /// Always written, as `null` when it is missing or empty.
    Null,
}

/// A value with a special encoding in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaf {
    /// Nothing special.
    #[default]
    Plain,
    /// `resource.Quantity`.
    Quantity,
    /// `metav1.Time`, seconds.
    Time,
    /// `metav1.MicroTime`, microseconds.
    MicroTime,
    /// `intstr.IntOrString`.
    IntOrString,
    /// Bytes as base64.
    Bytes,
    /// Any JSON, stored unchanged.
    Raw,
}

/// One property of an object: its schema and its own default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Property {
    /// Schema of the value.
    pub id: SchemaId,
    /// Value when it is missing.
    pub default: Option<Value>,
    /// The handling of a zero value; built-in kinds only.
    pub presence: Presence,
}

/// One schema node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Name of the definition, when it has one (`io.k8s.api.core.v1.PodSpec`).
    pub name: Option<String>,
    /// JSON type.
    pub kind: SchemaType,
    /// `format`, possibly empty.
    pub format: String,
    /// Special encoding in JSON; built-in kinds only.
    pub leaf: Leaf,
    /// Fields of a struct.
    pub properties: BTreeMap<String, Property>,
    /// Fields that are always written ([`Presence::Zero`], [`Presence::Null`]); built-in kinds only.
    pub always: Vec<String>,
    /// Schema of map values.
    pub additional: Option<SchemaId>,
    /// Schema of list elements.
    pub items: Option<SchemaId>,
    /// Names of required properties.
    pub required: Vec<String>,
    /// `x-kubernetes-list-type`: `atomic`, `set`, `map`; empty: atomic.
    pub list_type: String,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`: `granular` (also when empty) or `atomic`.
    pub map_type: String,
    /// `x-kubernetes-patch-strategy`, such as `merge` or `merge,retainKeys`.
    pub patch_strategy: String,
    /// `x-kubernetes-patch-merge-key`.
    pub patch_merge_key: String,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    /// `nullable`.
    pub nullable: bool,
    /// Allowed values.
    pub enumeration: Vec<Value>,
    /// The schema as written, for value checks (pattern, bounds, CEL rules) and OpenAPI output. Empty for
    /// built-in kinds: see [`crate::builtin::data`].
    pub raw: Value,
}

/// An arena of schemas.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    nodes: Vec<Schema>,
    names: HashMap<String, SchemaId>,
    /// By id: see [`Schemas::has_null_lists`].
    null_lists: OnceLock<Vec<bool>>,
}

impl Schemas {
    /// The schema of this id.
    ///
    /// # Panics
    /// When the id comes from another arena.
    pub fn get(&self, id: SchemaId) -> &Schema {
        &self.nodes[id.0 as usize]
    }

    /// The definition of this name.
    pub fn named(&self, name: &str) -> Option<SchemaId> {
        self.names.get(name).copied()
    }

    /// Whether there are lists in values of a schema that are written as `null` when they are empty.
    pub fn has_null_lists(&self, id: SchemaId) -> bool {
        let all = self.null_lists.get_or_init(|| self.find_null_lists());
        all.get(id.0 as usize).copied().unwrap_or(false)
    }

    fn find_null_lists(&self) -> Vec<bool> {
        let mut found = vec![false; self.nodes.len()];
        // Definitions may contain themselves: until nothing is added.
        loop {
            let mut added = false;
            for (at, node) in self.nodes.iter().enumerate() {
                let below = |id: &SchemaId| found.get(id.0 as usize) == Some(&true);
                let null =
                    |p: &Property| p.presence == Presence::Null && self.get(p.id).kind == SchemaType::Array;
                let has = node.properties.values().any(|p| null(p) || below(&p.id))
                    || node.items.iter().chain(&node.additional).any(below);
                added |= has && !std::mem::replace(&mut found[at], has);
            }
            if !added {
                return found;
            }
        }
    }

    /// Adds a node.
    pub fn push(&mut self, schema: Schema) -> SchemaId {
        let id = SchemaId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        if let Some(name) = &schema.name {
            self.names.insert(name.clone(), id);
        }
        self.nodes.push(schema);
        self.null_lists = OnceLock::new();
        id
    }

    /// Replaces a node; for building recursive definitions.
    pub fn set(&mut self, id: SchemaId, schema: Schema) {
        if let Some(name) = &schema.name {
            self.names.insert(name.clone(), id);
        }
        self.nodes[id.0 as usize] = schema;
        self.null_lists = OnceLock::new();
    }
}

/// A schema together with the arena it lives in.
#[derive(Clone, Debug)]
pub struct TypedSchema {
    /// The arena.
    pub schemas: Arc<Schemas>,
    /// Root of the object.
    pub root: SchemaId,
}

impl TypedSchema {
    /// The root node.
    pub fn schema(&self) -> &Schema {
        self.schemas.get(self.root)
    }
}
