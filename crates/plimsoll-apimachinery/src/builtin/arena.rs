//! The arena of built-in schemas: one node per definition, and one per inline schema.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::schema::{Leaf, Presence, Property, Schema, SchemaId, SchemaType, Schemas};

const PRESENCE: &str = include_str!("../../data/presence.txt");
const JSON_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The schemas of definitions by name.
pub(super) fn build(definitions: &Map<String, Value>) -> Schemas {
    Arena::build(definitions)
}

/// Builds the arena.
struct Arena<'a> {
    definitions: &'a Map<String, Value>,
    schemas: Schemas,
    presence: HashMap<String, HashMap<&'static str, Presence>>,
}

impl<'a> Arena<'a> {
    fn build(definitions: &'a Map<String, Value>) -> Schemas {
        let mut arena = Self { definitions, schemas: Schemas::default(), presence: presence() };
        for name in definitions.keys() {
            arena.schemas.push(Schema { name: Some(name.clone()), ..Schema::default() });
        }
        for (name, raw) in definitions {
            if let Some(id) = arena.schemas.named(name) {
                let schema = arena.node(raw, Some(name));
                arena.schemas.set(id, schema);
            }
        }
        arena.schemas
    }

    fn id(&mut self, raw: &Value) -> SchemaId {
        if let Some(id) = raw["ref"].as_str().and_then(|name| self.schemas.named(name)) {
            return id;
        }
        let schema = self.node(raw, None);
        self.schemas.push(schema)
    }

    fn node(&mut self, raw: &Value, name: Option<&str>) -> Schema {
        let text = |key: &str| raw[key].as_str().unwrap_or_default().to_owned();
        let strings = |key: &str| {
            raw[key].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let mut schema = Schema {
            name: name.map(str::to_owned),
            kind: schema_type(&raw["type"]),
            format: text("format"),
            required: strings("required"),
            list_type: text("x-kubernetes-list-type"),
            list_map_keys: strings("x-kubernetes-list-map-keys"),
            map_type: text("x-kubernetes-map-type"),
            patch_strategy: text("x-kubernetes-patch-strategy"),
            patch_merge_key: text("x-kubernetes-patch-merge-key"),
            enumeration: raw["enum"].as_array().cloned().unwrap_or_default(),
            ..Schema::default()
        };
        let required: Vec<String> = schema.required.clone();
        for (field, property) in raw["properties"].as_object().into_iter().flatten() {
            let presence = self.field_presence(name, field, property, required.contains(field));
            let default = property.get("default").cloned();
            let id = self.property_id(property);
            schema.properties.insert(field.clone(), Property { id, default, presence });
        }
        if raw["items"].is_object() {
            schema.items = Some(self.id(&raw["items"]));
        }
        if raw["additionalProperties"].is_object() {
            schema.additional = Some(self.id(&raw["additionalProperties"]));
        }
        let always = |p: &Property| matches!(p.presence, Presence::Zero | Presence::Null);
        schema.always =
            schema.properties.iter().filter(|(_, p)| always(p)).map(|(name, _)| name.clone()).collect();
        mark_leaf(&mut schema);
        if schema.name.as_deref().is_some_and(|n| n.contains(".JSONSchemaPropsOr")) {
            schema.items = self.schemas.named(JSON_SCHEMA);
        }
        schema
    }

    /// The node of a property. A property that refers to a definition and has merge rules of its own gets a node of its
    /// own.
    fn property_id(&mut self, raw: &Value) -> SchemaId {
        let definition = raw["ref"].as_str().and_then(|name| Some((name, self.definitions.get(name)?)));
        let text = |key: &str| raw[key].as_str().map(str::to_owned);
        let (map, strategy) = (text("x-kubernetes-map-type"), text("x-kubernetes-patch-strategy"));
        let Some((name, target)) = definition.filter(|_| map.is_some() || strategy.is_some()) else {
            return self.id(raw);
        };
        let mut node = self.node(target, Some(name));
        node.name = None;
        node.map_type = map.unwrap_or(node.map_type);
        node.patch_strategy = strategy.unwrap_or(node.patch_strategy);
        self.schemas.push(node)
    }

    fn field_presence(&self, owner: Option<&str>, field: &str, raw: &Value, required: bool) -> Presence {
        if let Some(rule) = owner.and_then(|o| self.presence.get(o)).and_then(|rules| rules.get(field)) {
            return *rule;
        }
        let zero = match raw.get("default") {
            Some(Value::String(s)) => s.is_empty(),
            Some(Value::Bool(b)) => !b,
            Some(Value::Number(n)) => n.as_f64() == Some(0.0),
            Some(Value::Object(o)) => o.is_empty(),
            _ => false,
        };
        match (zero, raw["type"].as_str()) {
            (true, _) => Presence::Zero,
            (false, Some("array" | "object")) if required => Presence::Null,
            (false, Some(_)) => Presence::Omit,
            (false, None) => Presence::Keep,
        }
    }
}

fn schema_type(raw: &Value) -> SchemaType {
    match raw.as_str() {
        Some("object") => SchemaType::Object,
        Some("array") => SchemaType::Array,
        Some("string") => SchemaType::String,
        Some("integer") => SchemaType::Integer,
        Some("number") => SchemaType::Number,
        Some("boolean") => SchemaType::Boolean,
        _ => SchemaType::Any,
    }
}

fn mark_leaf(schema: &mut Schema) {
    let short = schema.name.as_deref().unwrap_or_default().strip_prefix("io.k8s.").unwrap_or_default();
    schema.leaf = match short {
        "apimachinery.pkg.api.resource.Quantity" => Leaf::Quantity,
        "apimachinery.pkg.apis.meta.v1.Time" => Leaf::Time,
        "apimachinery.pkg.apis.meta.v1.MicroTime" => Leaf::MicroTime,
        "apimachinery.pkg.util.intstr.IntOrString" => Leaf::IntOrString,
        "apimachinery.pkg.apis.meta.v1.FieldsV1"
        | "apimachinery.pkg.apis.meta.v1.Patch"
        | "apimachinery.pkg.runtime.RawExtension" => Leaf::Raw,
        s if s.starts_with("apiextensions-apiserver.") && schema.kind == SchemaType::Any => Leaf::Raw,
        _ if schema.kind == SchemaType::String && schema.format == "byte" => Leaf::Bytes,
        _ => Leaf::Plain,
    };
    match schema.leaf {
        Leaf::Quantity | Leaf::IntOrString => schema.kind = SchemaType::IntOrString,
        Leaf::Raw => schema.preserve_unknown = true,
        _ => {}
    }
}

/// The rows of `presence.txt` by full definition name.
pub(super) fn presence() -> HashMap<String, HashMap<&'static str, Presence>> {
    let mut all: HashMap<String, HashMap<&'static str, Presence>> = HashMap::new();
    for line in PRESENCE.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_ascii_whitespace();
        let (Some(rule), Some(name)) = (words.next(), words.next()) else { continue };
        let rule = match rule {
            "keep" => Presence::Keep,
            "zero" => Presence::Zero,
            "null" => Presence::Null,
            _ => Presence::Omit,
        };
        let full = match name.split_once('.') {
            Some(("meta", _)) => format!("io.k8s.apimachinery.pkg.apis.{name}"),
            Some(("apiextensions", _)) => format!("io.k8s.apiextensions-apiserver.pkg.apis.{name}"),
            _ => format!("io.k8s.api.{name}"),
        };
        all.entry(full).or_default().extend(words.map(|field| (field, rule)));
    }
    all
}
