//! A structural schema, ready for pruning, defaulting and checking.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::node_type::NodeType;
use super::rule::Rule;
use super::{format, pattern};

/// Deepest nesting of a schema that is read; deeper parts are taken as unknown.
pub const MAX_DEPTH: usize = 64;

/// `additionalProperties`.
#[derive(Debug, Default)]
pub enum Additional {
    /// Not given.
    #[default]
    Unset,
    /// `true` or `false`.
    Allowed(bool),
    /// A schema.
    Schema(Box<Node>),
}

/// Bounds of values.
#[derive(Debug, Default)]
pub struct Bounds {
    /// `minimum`, and whether it is exclusive.
    pub minimum: Option<(f64, bool)>,
    /// `maximum`, and whether it is exclusive.
    pub maximum: Option<(f64, bool)>,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `minLength`, in characters.
    pub min_length: Option<u64>,
    /// `maxLength`, in characters.
    pub max_length: Option<u64>,
    /// `minItems`.
    pub min_items: Option<u64>,
    /// `maxItems`.
    pub max_items: Option<u64>,
    /// `minProperties`.
    pub min_properties: Option<u64>,
    /// `maxProperties`.
    pub max_properties: Option<u64>,
    /// `uniqueItems`.
    pub unique: bool,
    /// `pattern` as written, and compiled (`None`: it is invalid).
    pub pattern: Option<(String, Option<Regex>)>,
}

/// One schema.
#[derive(Debug, Default)]
pub struct Node {
    /// `type`.
    pub kind: Option<NodeType>,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `nullable`.
    pub nullable: bool,
    /// `format`, as written.
    pub format: String,
    /// Whether the format means something for the type.
    pub formatted: bool,
    /// `enum`.
    pub enumeration: Vec<Value>,
    /// Bounds.
    pub bounds: Bounds,
    /// `required`.
    pub required: Vec<String>,
    /// `properties`.
    pub properties: BTreeMap<String, Node>,
    /// `additionalProperties`.
    pub additional: Additional,
    /// `items`.
    pub items: Option<Box<Node>>,
    /// `x-kubernetes-list-type`.
    pub list_type: String,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`.
    pub map_type: String,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `default`.
    pub default: Option<Value>,
    /// `allOf`.
    pub all_of: Vec<Node>,
    /// `anyOf`.
    pub any_of: Vec<Node>,
    /// `oneOf`.
    pub one_of: Vec<Node>,
    /// `not`.
    pub not: Option<Box<Node>>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
    /// Whether this schema or one inside it has rules.
    pub has_rules: bool,
    /// Whether this schema or one inside it has lists that are sets or maps.
    pub has_lists: bool,
}

impl Node {
    /// Reads a schema as written in a definition.
    pub fn build(raw: &Value) -> Self {
        Self::at_depth(raw, 0)
    }

    fn at_depth(raw: &Value, depth: usize) -> Self {
        let Some(map) = raw.as_object().filter(|_| depth <= MAX_DEPTH) else {
            return Self { preserve: true, ..Self::default() };
        };
        let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let flag = |key: &str| map.get(key) == Some(&Value::Bool(true));
        let strings = |key: &str| -> Vec<String> {
            elements(map, key).iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let child = |raw: &Value| Self::at_depth(raw, depth + 1);
        let children = |key: &str| elements(map, key).iter().map(child).collect::<Vec<_>>();
        let mut node = Self {
            kind: NodeType::parse(&text("type")),
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            formatted: format::is_supported(NodeType::parse(&text("type")), &text("format")),
            format: text("format"),
            enumeration: elements(map, "enum").to_vec(),
            bounds: Bounds::read(map),
            required: strings("required"),
            properties: BTreeMap::new(),
            additional: match map.get("additionalProperties") {
                Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
                Some(schema @ Value::Object(_)) => Additional::Schema(Box::new(child(schema))),
                _ => Additional::Unset,
            },
            items: map.get("items").filter(|i| i.is_object()).map(|i| Box::new(child(i))),
            list_type: text("x-kubernetes-list-type"),
            list_map_keys: strings("x-kubernetes-list-map-keys"),
            map_type: text("x-kubernetes-map-type"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            default: map.get("default").filter(|d| !d.is_null()).cloned(),
            all_of: children("allOf"),
            any_of: children("anyOf"),
            one_of: children("oneOf"),
            not: map.get("not").filter(|n| n.is_object()).map(|n| Box::new(child(n))),
            rules: elements(map, "x-kubernetes-validations")
                .iter()
                .map(|rule| Rule::parse(rule, raw))
                .collect(),
            has_rules: false,
            has_lists: false,
        };
        for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            node.properties.insert(name.clone(), child(property));
        }
        node.has_rules = !node.rules.is_empty() || node.inner().any(|n| n.has_rules);
        node.has_lists =
            matches!(node.list_type.as_str(), "set" | "map") || node.inner().any(|n| n.has_lists);
        node
    }

    /// Schemas of the values inside.
    fn inner(&self) -> impl Iterator<Item = &Self> {
        let additional = match &self.additional {
            Additional::Schema(node) => Some(node.as_ref()),
            _ => None,
        };
        self.properties.values().chain(self.items.as_deref()).chain(additional)
    }

    /// The schema of a map's value or struct's field; `None`: not specified.
    pub fn child(&self, key: &str) -> Option<&Self> {
        match (self.properties.get(key), &self.additional) {
            (Some(property), _) => Some(property),
            (None, Additional::Schema(of)) => Some(of),
            _ => None,
        }
    }

    /// The type as messages name it: `integer`, `integer,string`.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            _ if self.int_or_string => "integer,string",
            Some(kind) => kind.name(),
            None => "",
        }
    }
}

fn elements<'a>(map: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl Bounds {
    fn read(map: &Map<String, Value>) -> Self {
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_u64);
        let flag = |key: &str| map.get(key) == Some(&Value::Bool(true));
        let given = map.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty());
        Self {
            minimum: number("minimum").map(|n| (n, flag("exclusiveMinimum"))),
            maximum: number("maximum").map(|n| (n, flag("exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            unique: flag("uniqueItems"),
            pattern: given.map(|p| (p.to_owned(), pattern::compiled(p).ok())),
        }
    }
}
