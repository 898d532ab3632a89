//! Discovery documents, made from the kind table.
//!
//! Legacy (`/api`, `/apis`, `/apis/G`, `/apis/G/V`) and aggregated (`apidiscovery.k8s.io/v2`); the older
//! `v2beta1` is refused by 1.36 and not made.

use std::cmp::Ordering;
use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::gvk::Gvk;
use crate::kinds::{Kind, KindTable, Subresource};

/// `/api`: `APIVersions`. `server` is the address for clients, `host:port`.
pub fn core_versions(server: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": server }],
    })
}

/// `/apis`: `APIGroupList`.
pub fn group_list(table: &KindTable) -> Value {
    let groups: Vec<Value> = groups(table).iter().map(|(g, versions)| group_entry(g, versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/G`: `APIGroup`; `None` when the group isn't served.
pub fn group(table: &KindTable, group: &str) -> Option<Value> {
    let (name, versions) = groups(table).into_iter().find(|(g, _)| g == group)?;
    let mut entry = group_entry(&name, &versions);
    if let Some(map) = entry.as_object_mut() {
        map.insert("kind".to_owned(), json!("APIGroup"));
        map.insert("apiVersion".to_owned(), json!("v1"));
    }
    Some(entry)
}

/// `/api/v1` and `/apis/G/V`: `APIResourceList`; `None` when the version isn't served.
pub fn resources(table: &KindTable, group: &str, version: &str) -> Option<Value> {
    let rows = rows(table, group, version);
    if rows.is_empty() {
        return None;
    }
    let mut resources = Vec::new();
    for row in &rows {
        resources.push(resource(row));
        resources.extend(row.subresources.iter().map(|s| subresource(row, s)));
    }
    let gv = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({ "kind": "APIResourceList", "groupVersion": gv, "resources": resources });
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// Aggregated discovery (`APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2`) of `/api` when `core`, else
/// of `/apis`.
pub fn aggregated(table: &KindTable, core: bool) -> Value {
    let items: Vec<Value> = if core {
        vec![aggregated_group(table, "", &["v1".to_owned()])]
    } else {
        groups(table).iter().map(|(g, versions)| aggregated_group(table, g, versions)).collect()
    };
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

/// `/`: all paths, sorted; `others` are the server's own (`/version`, `/healthz`, …).
pub fn root_paths(table: &KindTable, others: &[&str]) -> Value {
    let mut paths: Vec<String> = others.iter().map(|s| (*s).to_owned()).collect();
    paths.extend(["/api", "/api/v1", "/apis", "/apis/"].map(str::to_owned));
    for (group, versions) in groups(table) {
        paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
        paths.push(format!("/apis/{group}"));
    }
    paths.sort();
    paths.dedup();
    json!({ "paths": paths })
}

/// `storageVersionHash`: the first 8 bytes of SHA-256 of `group/version/kind`, in base64.
pub fn storage_version_hash(group: &str, storage_version: &str, kind: &str) -> String {
    let sum = Sha256::digest(format!("{group}/{storage_version}/{kind}"));
    base64::engine::general_purpose::STANDARD.encode(sum.get(..8).unwrap_or_default())
}

/// The groups except the core one, with their versions, preferred first: the built-in groups in their order, then those
/// of custom resources by name (all have the same priority), versions in the order of [`compare_versions`].
pub fn groups(table: &KindTable) -> Vec<(String, Vec<String>)> {
    let (mut built_in, mut custom) = (Vec::new(), Vec::new());
    for (group, versions) in table.groups().iter().filter(|(g, _)| !g.is_empty()) {
        let all_custom = table.iter().filter(|k| &k.gvk.group == group).all(|k| k.custom.is_some());
        if all_custom {
            let mut versions = versions.clone();
            versions.sort_by(|a, b| compare_versions(a, b));
            custom.push((group.clone(), versions));
        } else {
            built_in.push((group.clone(), versions.clone()));
        }
    }
    custom.sort();
    built_in.extend(custom);
    built_in
}

/// Order of versions, preferred first: `v2`, `v1`, `v2beta1`, `v1alpha3`, then others by name
/// (apimachinery `CompareKubeAwareVersionStrings`, reversed).
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability (2 stable, 1 beta, 0 alpha), major, minor.
fn parse_version(text: &str) -> Option<(u8, u64, u64)> {
    let rest = text.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, tail) = rest.split_at(digits);
    let number = |s: &str| {
        let fine = !s.is_empty() && !s.starts_with('0') && s.bytes().all(|b| b.is_ascii_digit());
        if fine { s.parse::<u64>().ok() } else { None }
    };
    let major = number(major)?;
    if tail.is_empty() {
        return Some((2, major, 0));
    }
    if let Some(minor) = tail.strip_prefix("beta") {
        return Some((1, major, number(minor)?));
    }
    Some((0, major, number(tail.strip_prefix("alpha")?)?))
}

fn rows<'a>(table: &'a KindTable, group: &str, version: &str) -> Vec<&'a Arc<Kind>> {
    table.iter().filter(|k| k.gvk.group == group && k.gvk.version == version).collect()
}

fn group_entry(name: &str, versions: &[String]) -> Value {
    let version = |v: &String| json!({ "groupVersion": format!("{name}/{v}"), "version": v });
    let all: Vec<Value> = versions.iter().map(version).collect();
    let preferred = all.first().cloned().unwrap_or_default();
    json!({ "name": name, "versions": all, "preferredVersion": preferred })
}

fn resource(row: &Kind) -> Value {
    let mut entry = json!({
        "name": row.plural, "singularName": row.singular, "namespaced": row.namespaced,
        "kind": row.gvk.kind, "verbs": row.verbs,
    });
    names(&mut entry, row);
    if let Some(hash) = &row.storage_version_hash {
        entry["storageVersionHash"] = json!(hash);
    }
    entry
}

fn names(entry: &mut Value, row: &Kind) {
    if !row.short_names.is_empty() {
        entry["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        entry["categories"] = json!(row.categories);
    }
}

fn subresource(row: &Kind, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", row.plural, sub.name), "singularName": "", "namespaced": row.namespaced,
        "kind": sub.kind.kind, "verbs": sub.verbs,
    });
    if foreign(row, &sub.kind) {
        entry["group"] = json!(sub.kind.group);
        entry["version"] = json!(sub.kind.version);
    }
    entry
}

/// Whether a kind belongs to another group version than the resource; unset means the resource's own.
fn foreign(row: &Kind, kind: &Gvk) -> bool {
    !kind.version.is_empty() && (kind.group != row.gvk.group || kind.version != row.gvk.version)
}

fn aggregated_group(table: &KindTable, group: &str, versions: &[String]) -> Value {
    let version = |v: &String| {
        let resources: Vec<Value> =
            rows(table, group, v).into_iter().map(|r| aggregated_resource(r)).collect();
        json!({ "version": v, "resources": resources, "freshness": "Current" })
    };
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({ "metadata": metadata, "versions": versions.iter().map(version).collect::<Vec<_>>() })
}

fn aggregated_resource(row: &Kind) -> Value {
    let mut entry = json!({
        "resource": row.plural, "responseKind": response_kind(row, &row.gvk),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular, "verbs": row.verbs,
    });
    names(&mut entry, row);
    if !row.subresources.is_empty() {
        let subs: Vec<Value> = row
            .subresources
            .iter()
            .map(|s| json!({ "subresource": s.name, "responseKind": response_kind(row, &s.kind), "verbs": s.verbs }))
            .collect();
        entry["subresources"] = json!(subs);
    }
    entry
}

/// Built-in kinds of the resource's own group version are named without it; custom resources with it.
fn response_kind(row: &Kind, kind: &Gvk) -> Value {
    if row.custom.is_some() || foreign(row, kind) {
        json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
    } else {
        json!({ "group": "", "version": "", "kind": kind.kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_order() {
        let mut all = ["v1", "foo", "v1alpha1", "v2", "v1beta2", "v10", "v3beta1", "bar", "v1alpha10"];
        all.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(all, ["v10", "v2", "v1", "v3beta1", "v1beta2", "v1alpha10", "v1alpha1", "bar", "foo"]);
    }

    /// Every recorded document that this module can make is equal to the recorded one.
    #[test]
    fn recorded_documents() {
        let table = crate::builtin::table();
        let mut seen = 0;
        for scenario in crate::test_vectors::family("discovery") {
            for step in scenario["steps"].as_array().unwrap() {
                let (path, wanted) = (step["request"]["path"].as_str().unwrap(), &step["response"]["body"]);
                let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
                let core = parts[0] == "api";
                let ours = match (wanted["kind"].as_str(), parts.as_slice()) {
                    (Some("APIVersions"), _) => Some(core_versions("<server>")),
                    (Some("APIGroupList"), _) => Some(group_list(&table)),
                    (Some("APIGroup"), [_, g]) => group(&table, g),
                    (Some("APIResourceList"), ["api", v]) => resources(&table, "", v),
                    (Some("APIResourceList"), [_, g, v]) => resources(&table, g, v),
                    (Some("APIGroupDiscoveryList"), _) => Some(aggregated(&table, core)),
                    _ => continue,
                };
                assert_eq!(ours.as_ref(), Some(wanted), "{path}");
                seen += 1;
            }
        }
        assert!(seen > 45, "{seen}");
    }

    #[test]
    fn hashes() {
        assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
        assert_eq!(storage_version_hash("example.dev", "v1", "Gadget"), "wufZJ/QTga4=");
    }
}
