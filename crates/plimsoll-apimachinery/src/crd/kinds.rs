//! Rows of the kind table from a definition.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use super::conversion::Conversion;
use super::node::Node;
use super::{arena, at, list, text};
use crate::discovery::{compare_versions, storage_version_hash};
use crate::gvk::Gvk;
use crate::kinds::{CustomKind, Kind, Subresource};

const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The rows of all served versions of a CustomResourceDefinition.
pub fn kinds(definition: &Value) -> Vec<Kind> {
    let spec = at(definition, "spec");
    list(spec, "versions")
        .iter()
        .filter(|v| at(v, "served") == &json!(true))
        .map(|v| row(definition, v))
        .collect()
}

fn row(definition: &Value, version: &Value) -> Kind {
    let spec = at(definition, "spec");
    let accepted = at(at(definition, "status"), "acceptedNames");
    let names = if text(accepted, "plural").is_empty() { at(spec, "names") } else { accepted };
    let strings = |key: &str| -> Vec<String> {
        list(names, key).iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let (group, kind) = (text(spec, "group"), text(names, "kind"));
    let gvk = Gvk { group: group.into(), version: text(version, "name").into(), kind: kind.into() };
    let raw = at(at(version, "schema"), "openAPIV3Schema");
    let node = Node::build(raw);
    let schema = arena::typed(&node, raw);
    let stored = list(spec, "versions").iter().find(|v| at(v, "storage") == &json!(true));
    let storage_version = stored.map_or("", |v| text(v, "name"));
    let custom = CustomKind {
        fingerprint: fingerprint(raw),
        terminating: list(at(definition, "status"), "conditions")
            .iter()
            .any(|c| text(c, "type") == "Terminating" && text(c, "status") == "True"),
        conversion: Conversion::of(definition).map(Arc::new),
        ..custom(spec, version, storage_version, node)
    };
    let list_kind = match text(names, "listKind") {
        "" => format!("{kind}List"),
        given => given.to_owned(),
    };
    Kind {
        list_kind,
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        short_names: strings("shortNames"),
        categories: strings("categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: VERBS.map(str::to_owned).to_vec(),
        subresources: subresources(&gvk, &custom),
        storage: format!("{group}/{}", text(names, "plural")),
        schema: Some(schema),
        storage_version_hash: Some(storage_version_hash(group, storage_version, kind)),
        custom: Some(Arc::new(custom)),
        gvk,
    }
}

fn subresources(gvk: &Gvk, custom: &CustomKind) -> Vec<Subresource> {
    let verbs = ["get", "patch", "update"].map(str::to_owned).to_vec();
    let mut all = Vec::new();
    if custom.status {
        all.push(Subresource { name: "status".into(), kind: gvk.clone(), verbs: verbs.clone() });
    }
    if custom.scale.is_some() {
        let kind = Gvk { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() };
        all.push(Subresource { name: "scale".into(), kind, verbs });
    }
    all
}

fn custom(spec: &Value, version: &Value, storage_version: &str, node: Node) -> CustomKind {
    let subresources = at(version, "subresources");
    let paths = list(version, "selectableFields").iter().map(|f| text(f, "jsonPath").to_owned());
    CustomKind {
        columns: list(version, "additionalPrinterColumns").to_vec(),
        status: subresources.get("status").is_some_and(Value::is_object),
        scale: subresources.get("scale").filter(|s| s.is_object()).cloned(),
        selectable_fields: paths.collect(),
        versions: list(spec, "versions").iter().map(|v| text(v, "name").to_owned()).collect(),
        storage_version: storage_version.to_owned(),
        deprecation: deprecation(spec, version),
        preserve_unknown: node.preserve,
        checks: Some(Arc::new(node)),
        fingerprint: 0,
        terminating: false,
        conversion: None,
    }
}

/// A number that is equal for equal schemas, and not 0.
fn fingerprint(schema: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    schema.to_string().hash(&mut hasher);
    hasher.finish().max(1)
}

/// The warning of a deprecated version; by default it names the newest served version that isn't.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if at(version, "deprecated") != &json!(true) {
        return None;
    }
    if let Some(own) = at(version, "deprecationWarning").as_str() {
        return Some(own.to_owned());
    }
    let (group, kind, name) = (text(spec, "group"), text(at(spec, "names"), "kind"), text(version, "name"));
    let newest = list(spec, "versions")
        .iter()
        .filter(|v| at(v, "served") == &json!(true) && at(v, "deprecated") != &json!(true))
        .map(|v| text(v, "name"))
        .filter(|v| compare_versions(v, name).is_lt())
        .min_by(|a, b| compare_versions(a, b));
    let other = newest.map(|v| format!("; use {group}/{v} {kind}")).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{other}"))
}
