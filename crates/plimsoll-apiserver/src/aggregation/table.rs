//! What is served beside the server's own groups.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use plimsoll_apimachinery::discovery::compare_versions;
use serde_json::Value;
use tokio::sync::Notify;

use super::documents;
use super::openapi;
use super::served::{Documents, Served};
use crate::http::info::{RequestInfo, Shape};

/// Who serves a version: a part of this process, and another server, which goes first.
#[derive(Default)]
struct Entry {
    local: Option<Arc<Served>>,
    remote: Option<Arc<Served>>,
}

impl Entry {
    const fn served(&self) -> Option<&Arc<Served>> {
        match &self.remote {
            None => self.local.as_ref(),
            remote => remote.as_ref(),
        }
    }
}

/// What is served beside the server's own groups.
#[derive(Default)]
pub(crate) struct Aggregation {
    /// By group and version.
    entries: RwLock<BTreeMap<(String, String), Entry>>,
    /// Another server is named, or is no longer.
    changed: Notify,
}

impl Aggregation {
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<(String, String), Entry>) -> T) -> T {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves a version by a part of this process.
    pub fn set_local(&self, served: Served) {
        let key = (served.group.clone(), served.version.clone());
        self.change(|all| all.entry(key).or_default().local = Some(Arc::new(served)));
    }

    /// Serves a version by another server. What is known of the one before is kept until the next look.
    pub fn set_remote(&self, served: Served) {
        let key = (served.group.clone(), served.version.clone());
        self.change(|all| {
            let entry = all.entry(key).or_default();
            let before = entry.remote.as_ref();
            let resources = before.and_then(|before| before.resources.clone());
            let documents = before.and_then(|before| before.documents.clone());
            entry.remote = Some(Arc::new(Served { resources, documents, ..served }));
        });
        self.changed.notify_one();
    }

    /// No other server serves a version.
    pub fn remove_remote(&self, group: &str, version: &str) {
        self.change(|all| {
            let key = (group.to_owned(), version.to_owned());
            let Some(entry) = all.get_mut(&key) else { return };
            entry.remote = None;
            if entry.local.is_none() {
                all.remove(&key);
            }
        });
    }

    /// What another server has answered to the look at its resources, and its documents, if it is still that server.
    pub fn looked(&self, served: &Arc<Served>, resources: Option<Value>, documents: Option<Arc<Documents>>) {
        self.change(|all| {
            let key = (served.group.clone(), served.version.clone());
            let remote = all.get_mut(&key).and_then(|entry| entry.remote.as_mut());
            if let Some(remote) = remote.filter(|now| Arc::ptr_eq(now, served)) {
                *remote = Arc::new(Served { resources, documents, ..Served::clone(remote) });
            }
        });
    }

    /// Versions that other servers serve.
    pub fn remotes(&self) -> Vec<Arc<Served>> {
        let all = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(|entry| entry.remote.clone()).collect()
    }

    /// Waits until another server is named.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What answers a request: for a version's discovery document and everything below it.
    pub fn serving(&self, info: &RequestInfo) -> Option<Arc<Served>> {
        if !info.is_resource && info.shape != Shape::Version {
            return None;
        }
        let all = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return None;
        }
        all.get(&(info.group.clone(), info.version.clone())).and_then(Entry::served).cloned()
    }

    /// Everything that is served, groups of higher priority first, preferred versions first.
    fn all(&self) -> Vec<Arc<Served>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = entries.values().filter_map(Entry::served).cloned().collect();
        drop(entries);
        let group_priority = |group: &str, all: &[Arc<Served>]| {
            all.iter().filter(|s| s.group == group).map(|s| s.group_priority).max().unwrap_or(0)
        };
        let priorities: BTreeMap<String, i64> =
            all.iter().map(|s| (s.group.clone(), group_priority(&s.group, &all))).collect();
        all.sort_by(|a, b| {
            let groups = priorities[&b.group].cmp(&priorities[&a.group]).then_with(|| a.group.cmp(&b.group));
            let versions = || b.version_priority.cmp(&a.version_priority);
            groups.then_with(versions).then_with(|| compare_versions(&a.version, &b.version))
        });
        all
    }

    /// Whether a version of a group is served beside the server's own.
    pub fn has_group(&self, group: &str) -> bool {
        self.all().iter().any(|s| s.group == group)
    }

    /// Adds the groups to `/apis`, an APIGroupList.
    pub fn add_to_groups(&self, list: &mut Value) {
        documents::add_groups(list, &self.all());
    }

    /// Adds the groups to `/apis`, an APIGroupDiscoveryList.
    pub fn add_to_aggregated(&self, list: &mut Value) {
        documents::add_aggregated(list, &self.all());
    }

    /// The APIGroup of a group, with the versions that the server has itself in `own`.
    pub fn group(&self, group: &str, own: Option<Value>) -> Option<Value> {
        let of_group: Vec<_> = self.all().into_iter().filter(|s| s.group == group).collect();
        if of_group.is_empty() { own } else { Some(documents::group(group, own, &of_group)) }
    }

    /// What answers for the OpenAPI document of this name (`apis/GROUP/VERSION`).
    pub fn documenting(&self, name: &str) -> Option<Arc<Served>> {
        let has = |s: &Arc<Served>| s.documents.as_ref().is_some_and(|d| d.index.contains_key(name));
        self.all().into_iter().find(has)
    }

    /// Adds the documents to `/openapi/v3`.
    pub fn add_to_openapi(&self, index: &mut Value) {
        openapi::add_to_index(index, &self.all());
    }

    /// Adds the paths and definitions to `/openapi/v2`.
    pub fn add_to_swagger(&self, document: &mut Value) {
        openapi::add_to_swagger(document, &self.all());
    }

    /// Adds the paths to `/`.
    pub fn add_to_paths(&self, paths: &mut Value) {
        documents::add_paths(paths, &self.all());
    }
}
