//! Types of built-in kinds without a recorded schema, as field ownership needs them: the structs of an empty object,
//! and the maps that are owned as a whole.

use std::sync::{Arc, LazyLock};

use crate::schema::{Presence, Property, Schema, SchemaId, SchemaType, Schemas, TypedSchema};

/// Paths of the structs that an empty object contains, and of the atomic maps.
type Row = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const ROWS: &[Row] = &[
    ("autoscaling", "HorizontalPodAutoscaler", &["spec", "spec.scaleTargetRef", "status"], &[]),
    (
        "networking.k8s.io",
        "Ingress",
        &["spec", "status", "status.loadBalancer"],
        &["spec.defaultBackend.service.port", "spec.defaultBackend.resource"],
    ),
    ("networking.k8s.io", "NetworkPolicy", &["spec", "spec.podSelector"], &["spec.podSelector"]),
];

static SCHEMAS: LazyLock<Vec<(&Row, TypedSchema)>> =
    LazyLock::new(|| ROWS.iter().map(|row| (row, build(row.2, row.3))).collect());

/// The known part of a kind's schema; fields outside of it are untyped.
pub fn schema(group: &str, kind: &str) -> Option<&'static TypedSchema> {
    SCHEMAS.iter().find(|(row, _)| row.0 == group && row.1 == kind).map(|(_, schema)| schema)
}

fn build(zero: &[&str], atomic: &[&str]) -> TypedSchema {
    let mut schemas = Schemas::default();
    let root = node(&mut schemas, "", zero, atomic);
    TypedSchema { schemas: Arc::new(schemas), root }
}

/// The node at a path, with the nodes on the paths below it.
fn node(schemas: &mut Schemas, path: &str, zero: &[&str], atomic: &[&str]) -> SchemaId {
    let mut schema = Schema { kind: SchemaType::Object, preserve_unknown: true, ..Schema::default() };
    if atomic.contains(&path) {
        schema.map_type = "atomic".to_owned();
    }
    for full in zero.iter().chain(atomic) {
        let rest = if path.is_empty() {
            Some(*full)
        } else {
            full.strip_prefix(path).and_then(|r| r.strip_prefix('.'))
        };
        let Some(name) = rest.and_then(|r| r.split('.').next()).filter(|n| !n.is_empty()) else { continue };
        if schema.properties.contains_key(name) {
            continue;
        }
        let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let id = node(schemas, &below, zero, atomic);
        let presence = if zero.contains(&below.as_str()) { Presence::Zero } else { Presence::Omit };
        schema.properties.insert(name.to_owned(), Property { id, default: None, presence });
    }
    schemas.push(schema)
}
