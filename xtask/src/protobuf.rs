//! `cargo xtask protobuf --from DIR`: field numbers of the built-in kinds, from the sources of the published crate
//! `k8s-pb` (`DIR` is its directory in the registry's cache).
//!
//! Writes `crates/plimsoll-apimachinery/data/protobuf.txt`: one message per line, its name and its fields as
//! `json=<number><type>`. Types: `s` string, `y` bytes, `b` bool, `i` varint, `d` double, `m<line>` message (counted
//! from 0). Before the type `*` means repeated, `%` a map with string keys, `^` a message whose fields stand in the
//! parent in JSON. JSON names come from the table of built-in kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

const TABLE: &str = "crates/plimsoll-apimachinery/data/kubernetes-1.36.json.zst";
const OUTPUT: &str = "crates/plimsoll-apimachinery/data/protobuf.txt";

/// Messages needed beside the kinds.
const ALWAYS: &[&str] = &[
    "apimachinery.pkg.runtime.Unknown",
    "apimachinery.pkg.apis.meta.v1.Status",
    "apimachinery.pkg.apis.meta.v1.WatchEvent",
    "apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "apimachinery.pkg.apis.meta.v1.PartialObjectMetadata",
    "apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList",
    "apimachinery.pkg.apis.meta.v1.APIGroup",
    "apimachinery.pkg.apis.meta.v1.APIGroupList",
    "apimachinery.pkg.apis.meta.v1.APIResourceList",
    "apimachinery.pkg.apis.meta.v1.APIVersions",
];

/// Embedded messages of kinds for which no schema is recorded.
const EMBEDDED: &[(&str, &str)] = &[("api.networking.v1.IngressRule", "ingress_rule_value")];

#[derive(Debug)]
struct Field {
    name: String,
    number: u32,
    kind: char,
    repeated: bool,
    map: bool,
    message: Option<String>,
}

type Messages = BTreeMap<String, Vec<Field>>;

/// Writes the table.
pub fn run(root: &Path, from: &Path) -> Result<()> {
    let mut messages = Messages::new();
    read_dir(&from.join("src"), &[], &mut messages)?;
    let table = table(&root.join(TABLE))?;
    let schemas = table["schemas"].as_object().context("no schemas")?;
    let by_key: BTreeMap<String, &str> = schemas.keys().map(|n| (schema_key(n), n.as_str())).collect();
    let roots = roots(&messages, &table["groups"]);
    let wanted = reachable(&messages, roots);
    let lines: BTreeMap<&str, usize> = wanted.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
    let spelling = spelling(schemas);
    let mut out = String::new();
    for name in &wanted {
        let known = by_key.get(&message_key(name)).copied();
        out.push_str(known.unwrap_or(&format!("io.k8s.{name}")));
        for field in messages.get(name).into_iter().flatten() {
            let sub = field.message.as_ref().and_then(|m| messages.get(m));
            let Some((json, inline)) = json_name(name, field, sub, known.map(|n| &schemas[n]), &spelling)
            else {
                eprintln!("left out: {name}.{}", field.name);
                continue;
            };
            let prefix = if inline {
                "^"
            } else if field.map {
                "%"
            } else if field.repeated {
                "*"
            } else {
                ""
            };
            let line = field.message.as_deref().and_then(|m| lines.get(m));
            let target = line.map_or(String::new(), usize::to_string);
            out.push_str(&format!(" {json}={}{prefix}{}{target}", field.number, field.kind));
        }
        out.push('\n');
    }
    std::fs::write(root.join(OUTPUT), out).context(OUTPUT)
}

fn table(path: &Path) -> Result<Value> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(file)
        .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?
        .read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

fn read_dir(dir: &Path, module: &[String], messages: &mut Messages) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            let mut inner = module.to_vec();
            inner.push(name);
            read_dir(&entry.path(), &inner, messages)?;
        } else if name == "mod.rs" {
            read_module(&std::fs::read_to_string(entry.path())?, module, messages)?;
        }
    }
    Ok(())
}

/// Reads the structs of a generated file: one attribute line per field, then its name and type.
fn read_module(text: &str, module: &[String], messages: &mut Messages) -> Result<()> {
    let mut current: Option<String> = None;
    let mut attribute: Option<&str> = None;
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            let full = path(module, name);
            messages.insert(full.clone(), Vec::new());
            current = (!rest.ends_with("{}")).then_some(full);
        } else if line == "}" {
            current = None;
        } else if let Some(inner) = line.strip_prefix("#[prost(") {
            attribute = inner.strip_suffix(")]");
        } else if let (Some(message), Some(attr), Some(rest)) =
            (&current, attribute, line.strip_prefix("pub "))
        {
            // long types go on in the next lines
            let mut rest = rest.to_owned();
            let open = |t: &str| t.matches('<').count() > t.matches('>').count();
            while !rest.ends_with(',') || open(&rest) {
                rest.push_str(lines.next().context("field without an end")?);
            }
            let (name, ty) = rest.split_once(':').context("field without a type")?;
            let field = field(name.trim_start_matches("r#"), attr, ty, module)?;
            messages.get_mut(message).context("no message")?.push(field);
            attribute = None;
        }
    }
    Ok(())
}

fn path(module: &[String], name: &str) -> String {
    let mut full = module.join(".");
    full.push('.');
    full.push_str(name);
    full
}

fn field(name: &str, attribute: &str, ty: &str, module: &[String]) -> Result<Field> {
    let number = attribute.split("tag = \"").nth(1).and_then(|t| t.split('"').next()).context("no tag")?;
    let map = attribute.strip_prefix("btree_map = \"string, ").and_then(|t| t.split('"').next());
    let word = map.unwrap_or_else(|| attribute.split([',', ' ', '=']).next().unwrap_or_default());
    let kind = match word {
        "string" => 's',
        "bytes" => 'y',
        "bool" => 'b',
        "int32" | "int64" | "uint32" | "uint64" => 'i',
        "double" => 'd',
        "message" => 'm',
        other => bail!("{name}: unknown type {other}"),
    };
    Ok(Field {
        name: name.to_owned(),
        number: number.parse()?,
        kind,
        repeated: attribute.contains("repeated"),
        map: map.is_some(),
        message: (kind == 'm').then(|| resolve(ty, module)),
    })
}

/// The message a field's type refers to: the last path in it, relative to the module.
fn resolve(ty: &str, module: &[String]) -> String {
    let inner = ty.trim_end_matches([',', '>', ' ']);
    let reference = inner.rsplit(['<', ',', ' ']).next().unwrap_or_default();
    let mut at = module.to_vec();
    let mut parts: Vec<&str> = reference.split("::").filter(|p| !p.is_empty()).collect();
    let name = parts.pop().unwrap_or_default();
    for part in parts {
        match part {
            "super" => drop(at.pop()),
            "crate" => at.clear(),
            other => at.push(other.trim_start_matches("r#").to_owned()),
        }
    }
    path(&at, name)
}

/// Names without case and punctuation: how the two worlds' names compare.
fn fold(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

fn schema_key(definition: &str) -> String {
    let tail = definition.strip_prefix("io.k8s.").unwrap_or(definition);
    // the extension server's package repeats its name
    let tail = tail.replace("apiextensions-apiserver", "apiextensionsapiserver");
    tail.split('.').map(fold).collect::<Vec<_>>().join(".")
}

fn message_key(name: &str) -> String {
    name.split('.').map(fold).collect::<Vec<_>>().join(".")
}

fn roots(messages: &Messages, groups: &Value) -> BTreeSet<String> {
    let mut packages = BTreeSet::new();
    for group in groups.as_array().into_iter().flatten() {
        let name = group["group"].as_str().unwrap_or_default();
        let short = if name.is_empty() { "core" } else { name.split('.').next().unwrap_or_default() };
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = version["version"].as_str().unwrap_or_default();
            packages.insert(format!("api.{short}.{version}."));
            if short == "apiextensions" {
                packages.insert(format!("apiextensions_apiserver.pkg.apis.apiextensions.{version}."));
            }
            if short == "apiregistration" {
                packages.insert(format!("kube_aggregator.pkg.apis.apiregistration.{version}."));
            }
        }
    }
    let wanted = |name: &str| packages.iter().any(|p| name.starts_with(p)) || ALWAYS.contains(&name);
    messages.keys().filter(|n| wanted(n)).cloned().collect()
}

fn reachable(messages: &Messages, roots: BTreeSet<String>) -> BTreeSet<String> {
    let mut queue: Vec<String> = roots.into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = queue.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        queue.extend(messages.get(&name).into_iter().flatten().filter_map(|f| f.message.clone()));
    }
    seen
}

/// How JSON names are spelt, by folded name, for messages without a schema.
fn spelling(schemas: &Map<String, Value>) -> BTreeMap<String, String> {
    let properties = schemas.values().filter_map(|s| s["properties"].as_object());
    properties.flat_map(|p| p.keys()).map(|k| (fold(k), k.clone())).collect()
}

/// JSON name of a field, and whether it is embedded; `None` when the recorded version doesn't have it.
fn json_name(
    message: &str,
    field: &Field,
    sub: Option<&Vec<Field>>,
    schema: Option<&Value>,
    spelling: &BTreeMap<String, String>,
) -> Option<(String, bool)> {
    let key = fold(&field.name);
    let camel = || {
        let mut parts = field.name.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |name, part| {
            let mut chars = part.chars();
            name + &chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect::<String>()
        })
    };
    let properties = schema.and_then(|s| s["properties"].as_object());
    let Some(properties) = properties else {
        let inline = EMBEDDED.contains(&(message, field.name.as_str()));
        return Some((spelling.get(&key).cloned().unwrap_or_else(camel), inline));
    };
    if let Some(name) = properties.keys().find(|p| fold(p) == key) {
        return Some((name.clone(), false));
    }
    let known: BTreeSet<String> = properties.keys().map(|p| fold(p)).collect();
    let embedded = sub.is_some_and(|fields| fields.iter().any(|f| known.contains(&fold(&f.name))));
    (embedded && !field.repeated && !field.map).then(|| (camel(), true))
}
