//! Kinds as the API server's discovery knows them.

use std::collections::BTreeMap;

use anyhow::bail;
use plimsoll_api::json;
use plimsoll_client::rest::encode;
use serde_json::Value;

use super::client::Client;

/// A kind that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Group, empty for the core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Whether objects are in a namespace.
    pub namespaced: bool,
}

impl Served {
    /// Path of an object, or of all of them in a namespace.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let place = if self.namespaced && !namespace.is_empty() {
            format!("/namespaces/{}", encode(namespace))
        } else {
            String::new()
        };
        let name = if name.is_empty() { String::new() } else { format!("/{}", encode(name)) };
        format!("{root}/{}{place}/{}{name}", self.version, self.plural)
    }

    /// `jobs.batch`, or `pods`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// Discovery documents, each read once.
pub struct Kinds<'a> {
    client: &'a Client,
    versions: BTreeMap<String, Vec<Served>>,
}

impl<'a> Kinds<'a> {
    /// Nothing is read yet.
    pub const fn new(client: &'a Client) -> Self {
        Self { client, versions: BTreeMap::new() }
    }

    /// The kinds of a group version, `v1` or `batch/v1`; none if it is not served.
    ///
    /// # Errors
    /// The document can't be read.
    pub async fn of_version(&mut self, api_version: &str) -> anyhow::Result<&[Served]> {
        if !self.versions.contains_key(api_version) {
            let root = if api_version.contains('/') { "/apis" } else { "/api" };
            let list = self.client.find(&format!("{root}/{api_version}")).await?;
            let kinds = list.map(|list| kinds(api_version, &list)).unwrap_or_default();
            self.versions.insert(api_version.to_owned(), kinds);
        }
        Ok(self.versions.get(api_version).map(Vec::as_slice).unwrap_or_default())
    }

    /// The kind with this name in a group version.
    ///
    /// # Errors
    /// As [`Kinds::of_version`].
    pub async fn kind(&mut self, api_version: &str, kind: &str) -> anyhow::Result<Option<Served>> {
        Ok(self.of_version(api_version).await?.iter().find(|k| k.kind == kind).cloned())
    }

    /// Kind and name of `TYPE[.GROUP]/NAME`, where the type may be a kind, a plural, singular or short name. The core group
    /// comes first, then the others as the server lists them.
    ///
    /// # Errors
    /// There is no such kind, or a document can't be read.
    pub async fn decode(&mut self, text: &str) -> anyhow::Result<Option<(Served, String)>> {
        let segments: Vec<&str> = text.split('/').collect();
        let [resource, name] = segments[..] else {
            if segments.len() > 2 {
                bail!("arguments in resource/name form may not have more than one slash");
            }
            return Ok(None);
        };
        let resource = resource.to_lowercase();
        let (word, group) = resource.split_once('.').unwrap_or((&resource, ""));
        let groups = self.client.get("/apis").await?;
        let mut versions = vec![("", "v1".to_owned())];
        for entry in json::list(&groups, &["groups"]) {
            let preferred = json::text(entry, &["preferredVersion", "groupVersion"]).to_owned();
            versions.push((json::text(entry, &["name"]), preferred));
        }
        for (_, version) in versions.iter().filter(|(of, _)| group.is_empty() || fits(of, group)) {
            let short = self.short_names(version).await?;
            let named = |k: &&Served| {
                let names = [&k.plural, &k.singular, &k.kind.to_lowercase()].map(|n| *n == *word);
                names.contains(&true) || short.get(&k.plural).is_some_and(|s| s.iter().any(|s| s == word))
            };
            if let Some(kind) = self.of_version(version).await?.iter().find(named) {
                return Ok(Some((kind.clone(), name.to_owned())));
            }
        }
        bail!("the server doesn't have a resource type {resource:?}")
    }

    async fn short_names(&self, api_version: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let list = self.client.find(&format!("{root}/{api_version}")).await?.unwrap_or_default();
        let names = |row: &Value| {
            let short = json::list(row, &["shortNames"]).iter();
            (
                json::text(row, &["name"]).to_owned(),
                short.filter_map(|s| s.as_str().map(str::to_owned)).collect(),
            )
        };
        Ok(json::list(&list, &["resources"]).iter().map(names).collect())
    }
}

/// Whether a group is meant by `GROUP`, `VERSION.GROUP` or the beginning of it.
fn fits(group: &str, wanted: &str) -> bool {
    let without_version = wanted.split_once('.').map_or("", |(_, rest)| rest);
    group == wanted
        || (!without_version.is_empty() && group == without_version)
        || group.starts_with(&format!("{wanted}."))
}

fn kinds(api_version: &str, list: &Value) -> Vec<Served> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let rows = json::list(list, &["resources"]).iter().filter(|r| !json::text(r, &["name"]).contains('/'));
    let kind = |row: &Value| Served {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: json::text(row, &["kind"]).to_owned(),
        plural: json::text(row, &["name"]).to_owned(),
        singular: json::text(row, &["singularName"]).to_owned(),
        namespaced: row["namespaced"] == true,
    };
    rows.map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_may_be_short() {
        assert!(fits("kubeflow.org", "kubeflow.org") && fits("kubeflow.org", "v1.kubeflow.org"));
        assert!(fits("kueue.x-k8s.io", "kueue") && !fits("kueue.x-k8s.io", "kue") && !fits("apps", "batch"));
    }
}
