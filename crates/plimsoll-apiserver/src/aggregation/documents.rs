//! Discovery documents with the groups of other servers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::served::Served;

/// The entries of versions in an APIGroup.
fn versions<'a>(served: impl Iterator<Item = &'a Arc<Served>>) -> Vec<Value> {
    served
        .map(|s| json!({"groupVersion": format!("{}/{}", s.group, s.version), "version": s.version}))
        .collect()
}

/// The APIGroup of `group` with the versions of `served` after its own.
pub fn group(group: &str, own: Option<Value>, served: &[Arc<Served>]) -> Value {
    let mut all =
        own.unwrap_or_else(|| json!({"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": []}));
    let added = versions(served.iter().filter(|s| s.group == group));
    if all["preferredVersion"].is_null() {
        all["preferredVersion"] = added.first().cloned().unwrap_or_default();
    }
    if let Some(versions) = all["versions"].as_array_mut() {
        versions.extend(added);
    }
    all
}

/// The groups of `served`, each once, in order.
fn groups(served: &[Arc<Served>]) -> Vec<&str> {
    let mut groups: Vec<&str> = served.iter().map(|s| s.group.as_str()).collect();
    groups.dedup();
    groups
}

/// Adds groups to an APIGroupList.
pub fn add_groups(list: &mut Value, served: &[Arc<Served>]) {
    let Some(all) = list["groups"].as_array_mut() else { return };
    for name in groups(served) {
        let at = all.iter().position(|g| g["name"] == name);
        let mut entry = group(name, at.map(|at| all[at].take()), served);
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("kind");
            entry.remove("apiVersion");
        }
        match at {
            Some(at) => all[at] = entry,
            None => all.push(entry),
        }
    }
}

/// Adds groups to an APIGroupDiscoveryList. A version whose resources are not known is there, and stale.
pub fn add_aggregated(list: &mut Value, served: &[Arc<Served>]) {
    let Some(all) = list["items"].as_array_mut() else { return };
    for name in groups(served) {
        let added = served.iter().filter(|s| s.group == name).map(|s| version(s));
        match all.iter_mut().find(|g| g["metadata"]["name"] == name) {
            Some(group) => {
                if let Some(versions) = group["versions"].as_array_mut() {
                    versions.extend(added);
                }
            }
            None => all.push(json!({"metadata": {"name": name}, "versions": added.collect::<Vec<_>>()})),
        }
    }
}

/// A version with its resources, made of the APIResourceList (apiserver's `ConvertGroupVersionIntoToDiscovery`).
fn version(served: &Served) -> Value {
    let Some(list) = &served.resources else {
        return json!({"version": served.version, "resources": [], "freshness": "Stale"});
    };
    let rows = || list["resources"].as_array().into_iter().flatten();
    let name = |row: &Value| row["name"].as_str().unwrap_or("").to_owned();
    let kind = |row: &Value| {
        let text = |field: &str| row[field].as_str().unwrap_or("");
        json!({"group": text("group"), "version": text("version"), "kind": text("kind")})
    };
    let subresources = |of: &str| -> Vec<Value> {
        let own = rows().filter_map(|row| {
            let name = name(row);
            let (resource, subresource) = name.split_once('/')?;
            let entry = json!({"subresource": subresource, "responseKind": kind(row), "verbs": row["verbs"]});
            (resource == of).then_some(entry)
        });
        own.collect()
    };
    let resource = |row: &Value| {
        let mut entry = json!({
            "resource": row["name"], "responseKind": kind(row), "verbs": row["verbs"],
            "scope": if row["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": row["singularName"].as_str().unwrap_or(""),
        });
        for field in ["shortNames", "categories"] {
            if row[field].is_array() {
                entry[field] = row[field].clone();
            }
        }
        let subresources = subresources(&name(row));
        if !subresources.is_empty() {
            entry["subresources"] = json!(subresources);
        }
        entry
    };
    let resources: Vec<Value> = rows().filter(|row| !name(row).contains('/')).map(resource).collect();
    json!({"version": served.version, "resources": resources, "freshness": "Current"})
}

/// Adds paths to those of `/`.
pub fn add_paths(paths: &mut Value, served: &[Arc<Served>]) {
    let Some(all) = paths["paths"].as_array_mut() else { return };
    let versions = served.iter().map(|s| format!("/apis/{}/{}", s.group, s.version));
    let groups = groups(served).into_iter().map(|group| format!("/apis/{group}"));
    for path in groups.chain(versions).map(Value::from) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
}
