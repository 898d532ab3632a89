//! OpenAPI documents: the index, one document per group version, and the old single one.
//!
//! Documents of built-in kinds are expanded from the generated table ([`crate::builtin::documents`]); those of custom
//! resources, and of built-in kinds without a recorded document, are made from their rows. Nothing is cached here; a
//! document's [`hash`] changes when the document does.

mod binary;
mod describe;
mod merge;
mod paths;
mod schemas;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_state::collect::InsertEach as _;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub use self::binary::{v2 as v2_binary, v3 as document_binary};
pub use self::merge::{add_v2, v2_below};
use crate::builtin;
use crate::discovery;
use crate::kinds::{Kind, KindTable};

/// Documents that aren't about resources.
const OTHERS: [&str; 5] = [".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version"];

/// Names of all documents: `api/v1`, `apis/apps/v1`, `apis/apps`, …
fn names(table: &KindTable) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = OTHERS.iter().map(|s| (*s).to_owned()).collect();
    names.insert("api/v1".to_owned());
    for (group, versions) in discovery::groups(table) {
        let custom = rows(table, &group, None).iter().all(|k| k.custom.is_some());
        if !custom {
            names.insert(format!("apis/{group}"));
        }
        names.extend(versions.iter().map(|v| format!("apis/{group}/{v}")));
    }
    names
}

/// SHA-256 in hexadecimal, upper case: the hash of a document's bytes.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02X}")).collect()
}

/// `/openapi/v3`: all documents with their hashes.
pub fn index(table: &KindTable) -> Value {
    let paths: Map<String, Value> = names(table)
        .into_iter()
        .map(|name| {
            let url = format!("/openapi/v3/{name}?hash={}", hash(table, &name).unwrap_or_default());
            (name, json!({ "serverRelativeURL": url }))
        })
        .insert_each();
    json!({ "paths": paths })
}

/// The hash of a document: it changes whenever the document does. `None`: there is no such document.
///
/// The hash of the inputs of a document, so that the index is cheap.
pub fn hash(table: &KindTable, name: &str) -> Option<String> {
    if !names(table).contains(name) {
        return None;
    }
    let mut sum = Sha256::new();
    sum.update(concat!(env!("CARGO_PKG_VERSION"), "\n"));
    sum.update(name);
    sum.update(describe::hash());
    if let Some((group, version)) = group_version(name) {
        for row in rows(table, &group, Some(&version)) {
            sum.update([0]);
            sum.update(&row.plural);
            sum.update(&row.gvk.kind);
            if let (Some(custom), Some(schema)) = (&row.custom, &row.schema) {
                sum.update(schema.schema().raw.to_string());
                sum.update([
                    u8::from(row.namespaced),
                    u8::from(custom.status),
                    u8::from(custom.scale.is_some()),
                ]);
            }
        }
    }
    Some(sum.finalize().iter().map(|b| format!("{b:02X}")).collect())
}

/// One document; `version` is the server's (`v1.36.0`). `None`: there is no such document.
pub fn document(table: &KindTable, name: &str, version: &str) -> Option<Value> {
    if !names(table).contains(name) {
        return None;
    }
    let (paths, schemas) = match group_version(name) {
        Some((group, gv)) => resources(table, name, &group, &gv),
        None => paths::other(name),
    };
    Some(whole(&paths, &schemas, version))
}

fn whole(paths: &Value, schemas: &Value, version: &str) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": version },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "BearerToken": {
                "type": "apiKey", "description": "Bearer Token authentication",
                "name": "authorization", "in": "header",
            } },
        },
    })
}

/// A document with these paths and schemas, and with the built-in schemas that they refer to; `title` and `version` are
/// the server's.
pub fn document_of(title: &str, version: &str, paths: &Value, schemas: &Map<String, Value>) -> Value {
    let mut document = whole(paths, &schemas::with_built_in(paths, schemas), version);
    document["info"]["title"] = json!(title);
    document
}

fn resources(table: &KindTable, name: &str, group: &str, version: &str) -> (Value, Value) {
    if let Some(recorded) = builtin::documents().get(name) {
        return (paths::recorded(recorded), schemas::recorded(recorded));
    }
    let rows = rows(table, group, Some(version));
    (paths::of_rows(&rows), schemas::of_rows(&rows))
}

/// `/openapi/v2`: everything in one Swagger 2.0 document.
pub fn v2(table: &KindTable, version: &str) -> Value {
    v2_of("Kubernetes", version, names(table).iter().filter_map(|name| document(table, name, version)))
}

/// These documents as one Swagger 2.0 document.
pub fn v2_of(title: &str, version: &str, documents: impl Iterator<Item = Value>) -> Value {
    let (mut all_paths, mut definitions) = (Map::new(), Map::new());
    for document in documents {
        let merge = |into: &mut Map<String, Value>, from: &Value| {
            for (key, value) in from.as_object().into_iter().flatten() {
                into.entry(key.clone()).or_insert_with(|| value.clone());
            }
        };
        merge(&mut definitions, &document["components"]["schemas"]);
        if let Value::Object(mut paths) = paths::to_v2(&document["paths"]) {
            all_paths.append(&mut paths);
        }
    }
    let mut document = json!({
        "swagger": "2.0",
        "info": { "title": title, "version": version },
        "paths": all_paths,
        "definitions": definitions,
        "parameters": {},
        "securityDefinitions": { "BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
        } },
        "security": [{ "BearerToken": [] }],
    });
    schemas::to_v2(&mut document);
    document
}

fn group_version(name: &str) -> Option<(String, String)> {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => Some((String::new(), (*version).to_owned())),
        ["apis", group, version] => Some(((*group).to_owned(), (*version).to_owned())),
        _ => None,
    }
}

fn rows(table: &KindTable, group: &str, version: Option<&str>) -> Vec<Arc<Kind>> {
    let wanted = |k: &&Arc<Kind>| k.gvk.group == group && version.is_none_or(|v| k.gvk.version == v);
    table.iter().filter(wanted).cloned().collect()
}
