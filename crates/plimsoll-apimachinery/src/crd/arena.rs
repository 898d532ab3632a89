//! A custom resource's schema in the form built-in kinds have too.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::node::{Additional, Node};
use super::node_type::NodeType;
use crate::builtin;
use crate::schema::{Property, Schema, SchemaId, SchemaType, Schemas, TypedSchema};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Makes the arena of one version. `raw` is kept at the root.
pub fn typed(node: &Node, raw: &Value) -> TypedSchema {
    let mut builder = Builder { schemas: Schemas::default(), copied: HashMap::new() };
    let mut root = builder.schema(node, true);
    root.raw = raw.clone();
    let root = builder.schemas.push(root);
    TypedSchema { schemas: Arc::new(builder.schemas), root }
}

struct Builder {
    schemas: Schemas,
    copied: HashMap<SchemaId, SchemaId>,
}

impl Builder {
    fn push(&mut self, node: &Node) -> SchemaId {
        let schema = self.schema(node, node.embedded);
        self.schemas.push(schema)
    }

    fn schema(&mut self, node: &Node, resource: bool) -> Schema {
        let mut schema = Schema {
            kind: kind_of(node),
            format: node.format.clone(),
            required: node.required.clone(),
            list_type: node.list_type.clone(),
            list_map_keys: node.list_map_keys.clone(),
            map_type: node.map_type.clone(),
            preserve_unknown: node.preserve,
            embedded_resource: node.embedded,
            nullable: node.nullable,
            enumeration: node.enumeration.clone(),
            ..Schema::default()
        };
        for (name, property) in &node.properties {
            let id = self.push(property);
            let property = Property { id, default: property.default.clone(), ..Property::default() };
            schema.properties.insert(name.clone(), property);
        }
        schema.additional = match &node.additional {
            Additional::Schema(of) => Some(self.push(of)),
            Additional::Allowed(true) => {
                Some(self.schemas.push(Schema { preserve_unknown: true, ..Schema::default() }))
            }
            _ => None,
        };
        schema.items = node.items.as_deref().map(|items| self.push(items));
        if resource {
            self.type_and_metadata(&mut schema);
        }
        schema
    }

    fn type_and_metadata(&mut self, schema: &mut Schema) {
        for name in ["apiVersion", "kind"] {
            let id = self.schemas.push(Schema { kind: SchemaType::String, ..Schema::default() });
            schema.properties.insert(name.to_owned(), Property { id, ..Property::default() });
        }
        if let Some(id) = builtin::schemas().named(OBJECT_META) {
            let id = self.copy(id);
            schema.properties.insert("metadata".to_owned(), Property { id, ..Property::default() });
        }
    }

    /// Copies a built-in schema with everything it refers to.
    fn copy(&mut self, id: SchemaId) -> SchemaId {
        if let Some(done) = self.copied.get(&id) {
            return *done;
        }
        let mut schema = builtin::schemas().get(id).clone();
        let here = self.schemas.push(schema.clone());
        self.copied.insert(id, here);
        for property in schema.properties.values_mut() {
            property.id = self.copy(property.id);
        }
        schema.items = schema.items.map(|i| self.copy(i));
        schema.additional = schema.additional.map(|a| self.copy(a));
        self.schemas.set(here, schema);
        here
    }
}

fn kind_of(node: &Node) -> SchemaType {
    match node.kind {
        _ if node.int_or_string => SchemaType::IntOrString,
        Some(NodeType::Object) => SchemaType::Object,
        Some(NodeType::Array) => SchemaType::Array,
        Some(NodeType::String) => SchemaType::String,
        Some(NodeType::Integer) => SchemaType::Integer,
        Some(NodeType::Number) => SchemaType::Number,
        Some(NodeType::Boolean) => SchemaType::Boolean,
        None => SchemaType::Any,
    }
}
