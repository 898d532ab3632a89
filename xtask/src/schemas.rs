//! `cargo xtask schemas`: the table of built-in kinds, from the recorded OpenAPI and discovery documents.
//!
//! Reads `vectors/api`, writes two compressed JSON files into `crates/plimsoll-apimachinery/data`:
//! `kubernetes-1.36.json.zst` (schemas by name, groups with their resources; read at every start) and
//! `kubernetes-1.36-paths.json.zst` (paths and operations per group version; read when OpenAPI is served).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Map, Value, json};

const DATA: &str = "crates/plimsoll-apimachinery/data";

/// Writes the table.
pub fn run(root: &Path) -> Result<()> {
    let vectors = root.join("vectors/api");
    let (schemas, mut documents) = schemas(&read(&vectors.join("openapi-schemas.jsonl.zst"))?)?;
    paths(&read(&vectors.join("openapi-paths.jsonl.zst"))?, &mut documents)?;
    let fields = read(&vectors.join("openapi-fields.jsonl.zst"))?;
    check_fields(&fields, &schemas)?;
    let groups = groups(&read(&vectors.join("discovery.jsonl.zst"))?)?;
    let table = json!({ "schemas": schemas, "groups": groups });
    write(&root.join(DATA).join("kubernetes-1.36.json.zst"), &table)?;
    write(&root.join(DATA).join("kubernetes-1.36-paths.json.zst"), &Value::Object(documents))
}

fn read(path: &Path) -> Result<Vec<Value>> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(file)
        .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?
        .read_to_string(&mut text)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn write(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_vec(value)?;
    std::fs::write(path, compress_to_vec(text.as_slice(), CompressionLevel::Fastest))
        .with_context(|| path.display().to_string())
}

/// `api/v1` of a row `openapi/schemas/api/v1`.
fn document_name(row: &Value) -> Result<String> {
    let id = row["id"].as_str().context("row without id")?;
    Ok(id.splitn(3, '/').nth(2).context("short id")?.to_owned())
}

/// All schemas by name, and per document the names in it; a schema that reads differently in a document (those
/// that list the group versions they serve) is repeated there.
fn schemas(rows: &[Value]) -> Result<(Map<String, Value>, Map<String, Value>)> {
    let (mut all, mut documents) = (Map::new(), Map::new());
    for row in rows {
        let found = row["steps"][0]["response"]["reduced"]["schemas"].as_object().context("no schemas")?;
        let mut own = Map::new();
        for (name, schema) in found {
            let first = all.entry(name.clone()).or_insert_with(|| schema.clone());
            if first != schema {
                own.insert(name.clone(), schema.clone());
            }
        }
        let names: Vec<&String> = found.keys().collect();
        documents.insert(document_name(row)?, json!({ "schemas": names, "own": own }));
    }
    Ok((all, documents))
}

fn paths(rows: &[Value], documents: &mut Map<String, Value>) -> Result<()> {
    for row in rows {
        let name = document_name(row)?;
        let Some(document) = documents.get_mut(&name) else { bail!("{name} has paths but no schemas") };
        document["paths"] = row["steps"][0]["response"]["reduced"]["paths"].clone();
    }
    Ok(())
}

/// The flat field maps must name schemas and top-level fields that are in the table.
fn check_fields(rows: &[Value], schemas: &Map<String, Value>) -> Result<()> {
    for row in rows {
        let name = row["schema"].as_str().context("no schema name")?;
        let schema = schemas.get(name).with_context(|| format!("{name} is missing"))?;
        for field in row["fields"].as_object().context("no fields")?.keys() {
            if !field.contains(['.', '[']) && schema["properties"].get(field).is_none() {
                bail!("{name} has no field {field}");
            }
        }
    }
    Ok(())
}

/// Groups in discovery order, versions preferred first, each with its resources as legacy discovery lists them.
fn groups(rows: &[Value]) -> Result<Vec<Value>> {
    let mut bodies = BTreeMap::new();
    for row in rows {
        for step in row["steps"].as_array().into_iter().flatten() {
            let body = &step["response"]["body"];
            if let Some(version) = body["groupVersion"].as_str() {
                bodies.insert(version.to_owned(), body["resources"].clone());
            }
        }
    }
    let mut groups = Vec::new();
    for path in ["/api", "/apis"] {
        for group in aggregated(rows, path)?["items"].as_array().context("no groups")? {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            let mut versions = Vec::new();
            for version in group["versions"].as_array().context("no versions")? {
                let version = version["version"].as_str().context("unnamed version")?;
                let key = if name.is_empty() { version.to_owned() } else { format!("{name}/{version}") };
                let resources = bodies.get(&key).with_context(|| format!("{key}: no resource list"))?;
                versions.push(json!({ "version": version, "resources": resources }));
            }
            groups.push(json!({ "group": name, "versions": versions }));
        }
    }
    Ok(groups)
}

fn aggregated<'a>(rows: &'a [Value], path: &str) -> Result<&'a Value> {
    rows.iter()
        .flat_map(|row| row["steps"].as_array().into_iter().flatten())
        .filter(|step| step["request"]["path"] == path)
        .map(|step| &step["response"]["body"])
        .find(|body| body["kind"] == "APIGroupDiscoveryList")
        .with_context(|| format!("no aggregated discovery of {path}"))
}
