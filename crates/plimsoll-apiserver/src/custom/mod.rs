//! CustomResourceDefinitions at run time: names are accepted, rows come and go, instances are cleaned up.

pub(crate) mod clean_ups;
mod definition;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_apimachinery::{ApiError, Gvk, Kind, crd};
use serde_json::{Value, json};

use crate::auth::User;
use crate::http::options::{DeleteOptions, Propagation};
use crate::pipeline;
use crate::server::{Follower, Server};
use crate::store::{Expected, Key, Record, StoreError};
use crate::write::{Admission, Write};

pub use definition::{FINALIZER, RESOURCE, is_definition};

const SERVICES: &str = "apiregistration.k8s.io/apiservices";
/// Between looks whether all instances are gone: the first time, and at most.
const CLEANUP_INTERVAL: Duration = Duration::from_millis(50);
const MAX_CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

/// Follows definitions: what they define is served from the write that changes them on.
pub(crate) fn follower() -> Box<dyn Follower> {
    Box::new(Definitions)
}

struct Definitions;

impl Follower for Definitions {
    fn follows(&self, kind: &Kind) -> bool {
        is_definition(kind)
    }

    fn written<'a>(&'a self, server: &'a Arc<Server>, record: &'a Arc<Record>) -> BoxFuture<'a, ()> {
        Box::pin(written(server, record))
    }

    fn deleted<'a>(&'a self, server: &'a Arc<Server>, record: &'a Arc<Record>) -> BoxFuture<'a, ()> {
        Box::pin(deleted(server, record))
    }
}

/// Serves what the store holds; for the start. A process that was killed between a definition and its status left one
/// that no client would write again: it is accepted now, as apiextensions' controllers look at all of them when they start.
pub async fn load(server: &Arc<Server>) {
    let records: Vec<Arc<Record>> = server.store().list(RESOURCE, None).iter().cloned().collect();
    for record in &records {
        let Ok(definition) = record.value() else { continue };
        if established(&definition) || is_deleted(&definition) {
            serve(server, &record.key, &definition);
        } else {
            written(server, record).await;
        }
    }
}

/// Goes on with deletions that the last process didn't finish.
pub fn resume(server: &Arc<Server>) {
    for record in server.store().list(RESOURCE, None).iter() {
        if record.value().is_ok_and(|d| is_deleted(&d)) {
            start_clean_up(server, &record.key.name);
        }
    }
}

fn is_deleted(definition: &Value) -> bool {
    !definition["metadata"]["deletionTimestamp"].is_null()
}

/// A definition has been written.
async fn written(server: &Arc<Server>, record: &Arc<Record>) {
    let Ok(mut definition) = record.value() else { return };
    if is_deleted(&definition) {
        serve(server, &record.key, &definition);
        start_clean_up(server, &record.key.name);
        return;
    }
    let others: Vec<Value> = server
        .store()
        .list(RESOURCE, None)
        .iter()
        .filter(|r| r.key.name != record.key.name)
        .filter_map(|r| r.value().ok())
        .collect();
    let now = crate::time::seconds(server.now());
    let others: Vec<&Value> = others.iter().collect();
    let status = crd::define::accept(&definition, &others, &now);
    register_services(server, &definition).await;
    if status != definition["status"] {
        let old = definition.clone();
        definition["status"] = status;
        let gvk = Gvk {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            kind: "CustomResourceDefinition".into(),
        };
        if let Some(kind) = server.kinds().kind(&gvk) {
            let owner = "kube-apiserver";
            if let Err(e) =
                crate::machine::own_update(kind, Some(&old), &mut definition, owner, "status", server.now())
            {
                tracing::debug!(error = %e, "ownership of a definition's status");
            }
        }
        let expected = Expected::Revision(record.revision);
        if let Err(e) = server.put(record.key.clone(), expected, &definition).await {
            // Another client wrote it meanwhile: that write came here, too.
            tracing::debug!(name = record.key.name, error = %e, "status of a definition");
        }
    }
    serve(server, &record.key, &definition);
}

/// A definition is gone.
async fn deleted(server: &Arc<Server>, record: &Arc<Record>) {
    let Ok(definition) = record.value() else { return };
    serve(server, &record.key, &definition);
    let group = definition["spec"]["group"].as_str().unwrap_or("");
    for version in versions(&definition) {
        if server.kinds().iter().any(|k| k.gvk.group == group && k.gvk.version == version) {
            continue;
        }
        let key = Key::new(SERVICES, "", format!("{version}.{group}"));
        let _ = server.remove(key, Expected::Present, None).await;
    }
}

fn versions(definition: &Value) -> Vec<String> {
    let list = definition["spec"]["versions"].as_array().into_iter().flatten();
    list.filter_map(|v| v["name"].as_str().map(str::to_owned)).collect()
}

fn established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Puts the rows of a definition into the kind table, or takes them out: those of its state in the store, whoever else
/// writes, deletes or makes it again at the same time. `known` tells which rows are its own.
fn serve(server: &Server, key: &Key, known: &Value) {
    loop {
        let record = server.store().get(key);
        let now = record.as_ref().and_then(|r| r.value().ok()).filter(established);
        let rows = now.as_ref().map(crd::kinds).unwrap_or_default();
        let revision = |r: &Option<Arc<Record>>| r.as_ref().map(|r| r.revision);
        let mut current = true;
        server.change_kinds(|table| {
            // A later write comes here as well, but perhaps has been here already.
            current = revision(&server.store().get(key)) == revision(&record);
            if current {
                remove_rows(table, known);
                for row in rows {
                    table.insert(row);
                }
            }
        });
        if current {
            return;
        }
    }
}

fn remove_rows(table: &mut plimsoll_apimachinery::KindTable, definition: &Value) {
    let group = definition["spec"]["group"].as_str().unwrap_or("");
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or("");
    let versions: Vec<String> = table
        .iter()
        .filter(|k| k.custom.is_some() && k.gvk.group == group && k.plural == plural)
        .map(|k| k.gvk.version.clone())
        .collect();
    for version in versions {
        table.remove(group, &version, plural);
    }
}

/// Each served group version has an APIService, as the aggregator makes them.
async fn register_services(server: &Arc<Server>, definition: &Value) {
    let group = definition["spec"]["group"].as_str().unwrap_or("");
    for version in versions(definition) {
        register_service(server, group, &version, (1000, 100)).await;
    }
}

/// Makes the APIService of a version that this process serves, with `groupPriorityMinimum` and `versionPriority`.
pub(crate) async fn register_service(
    server: &Arc<Server>,
    group: &str,
    version: &str,
    priorities: (i64, i64),
) {
    let table = server.kinds();
    let gvk = Gvk { group: "apiregistration.k8s.io".into(), version: "v1".into(), kind: "APIService".into() };
    let Some(kind) = table.kind(&gvk).cloned() else { return };
    let name = format!("{version}.{group}");
    if server.store().get(&Key::new(SERVICES, "", name.as_str())).is_some() {
        return;
    }
    let now = crate::time::seconds(server.now());
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {
            "name": name, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": now,
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"},
        },
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": priorities.0,
            "versionPriority": priorities.1,
        },
        "status": {"conditions": [{
            "type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
            "message": "Local APIServices are always available",
        }]},
    });
    if let Err(e) = crate::machine::own_update(&kind, None, &mut object, "kube-apiserver", "", server.now()) {
        tracing::debug!(error = %e, "ownership of an APIService");
    }
    let key = Key::new(SERVICES, "", name.as_str());
    let _ = server.put(key, Expected::Absent, &object).await;
}

/// The one that removes a definition's instances.
struct CleanUp {
    server: Arc<Server>,
    name: String,
    /// Whether the name is taken by this one.
    holds: bool,
}

impl CleanUp {
    /// `None`: another task is at it, and looks again afterwards.
    fn begin(server: &Arc<Server>, name: &str) -> Option<Self> {
        let mut names = server.clean_ups().names();
        if let Some(again) = names.get_mut(name) {
            *again = true;
            return None;
        }
        names.insert(name.to_owned(), false);
        drop(names);
        Some(Self { server: Arc::clone(server), name: name.to_owned(), holds: true })
    }

    /// Whether there were writes since the last look; gives the name back when there were none.
    fn again(&mut self) -> bool {
        let mut names = self.server.clean_ups().names();
        let again = names.get_mut(&self.name).is_some_and(std::mem::take);
        if !again {
            names.remove(&self.name);
            self.holds = false;
        }
        again
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        if self.holds {
            let mut names = self.server.clean_ups().names();
            names.remove(&self.name);
        }
    }
}

fn start_clean_up(server: &Arc<Server>, name: &str) {
    if let Some(task) = CleanUp::begin(server, name) {
        tokio::spawn(clean_up(task));
    }
}

/// Removes all instances, then the definition. Boxed, since it deletes through the pipeline that starts it.
fn clean_up(mut task: CleanUp) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        loop {
            remove_all(&task.server, &task.name).await;
            if !task.again() {
                return;
            }
        }
    })
}

async fn remove_all(server: &Arc<Server>, name: &str) {
    let key = Key::new(RESOURCE, "", name);
    let mut wait = CLEANUP_INTERVAL;
    // Revisions of definition and instances at the last look, which need no second one.
    let mut seen = None;
    loop {
        let Some(record) = server.store().latest(&key) else { return };
        let Ok(definition) = record.value() else { return };
        if !is_deleted(&definition) {
            return;
        }
        if let Some(begun) = in_progress(server, &definition) {
            // Said before the first instance goes (upstream's `CRDFinalizer`).
            match server.put(key.clone(), Expected::Revision(record.revision), &begun).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => continue,
                Err(e) => {
                    tracing::warn!(name, error = %e, "the condition of a definition could not be written");
                }
            }
        }
        let now = Some((record.revision, server.store().last_revision(&storage(&definition))));
        if seen != now {
            seen = now;
            match remove_instances(server, &definition).await {
                Ok(true) => match remove_definition(server, &record, definition).await {
                    Ok(()) => return,
                    // Written meanwhile.
                    Err(StoreError::Conflict { .. }) => seen = None,
                    Err(e) => {
                        tracing::warn!(name, error = %e, "a definition could not be removed");
                        seen = None;
                    }
                },
                Ok(false) => {}
                Err(e) => {
                    tracing::warn!(name, error = %e, "instances could not be removed");
                    seen = None;
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(MAX_CLEANUP_INTERVAL);
    }
}

/// A definition whose instances are about to be removed, if it doesn't say so yet.
fn in_progress(server: &Server, definition: &Value) -> Option<Value> {
    const REASON: &str = "InstanceDeletionInProgress";
    if !established(definition) {
        return None;
    }
    let mut new = definition.clone();
    let conditions = new["status"]["conditions"].as_array_mut()?;
    let condition = conditions.iter_mut().find(|c| c["type"] == "Terminating")?;
    if condition["reason"] == REASON {
        return None;
    }
    condition["reason"] = json!(REASON);
    condition["message"] = json!("CustomResource deletion is in progress");
    let gvk = Gvk {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        kind: "CustomResourceDefinition".into(),
    };
    let kinds = server.kinds();
    let kind = kinds.kind(&gvk)?;
    crate::machine::own_update(kind, Some(definition), &mut new, "kube-apiserver", "status", server.now())
        .ok()?;
    Some(new)
}

/// Where instances are stored.
fn storage(definition: &Value) -> String {
    let spec = &definition["spec"];
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    format!("{}/{}", text(&spec["group"]), text(&spec["names"]["plural"]))
}

/// Takes off the finalizer; with the last one the definition goes.
async fn remove_definition(
    server: &Arc<Server>,
    record: &Arc<Record>,
    mut definition: Value,
) -> Result<(), StoreError> {
    let mut rest: Vec<Value> = definition["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let all = rest.len();
    rest.retain(|f| f != FINALIZER);
    if !rest.is_empty() && rest.len() == all {
        // It waits for others.
        return Ok(());
    }
    let (key, expected) = (record.key.clone(), Expected::Revision(record.revision));
    if !rest.is_empty() {
        definition["metadata"]["finalizers"] = json!(rest);
        return server.put(key, expected, &definition).await.map(|_| ());
    }
    match server.remove(key, expected, None).await {
        Ok(gone) => deleted(server, &gone).await,
        Err(StoreError::NotFound) => {}
        Err(e) => return Err(e),
    }
    Ok(())
}

/// Deletes all instances; whether none is left.
async fn remove_instances(server: &Arc<Server>, definition: &Value) -> Result<bool, ApiError> {
    // In the version they are stored in, so that no conversion can be in the way.
    let mut kinds = crd::kinds(definition);
    kinds.sort_by_key(|k| k.custom.as_ref().is_none_or(|c| c.storage_version != k.gvk.version));
    let Some(kind) = kinds.into_iter().next() else { return Ok(true) };
    let kind = Arc::new(kind);
    let all = server.store().list(&kind.storage, None);
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    for record in all.iter() {
        let mut write = Write {
            server: Arc::clone(server),
            table: server.kinds(),
            kind: Arc::clone(&kind),
            subresource: String::new(),
            namespace: record.key.namespace.clone(),
            name: record.key.name.clone(),
            user: User::new("system:apiserver", &[crate::auth::MASTERS]),
            manager: "kube-apiserver".to_owned(),
            dry_run: false,
            options: options.to_value(),
            // As upstream's finalizer, without admission.
            admission: Admission::Done,
            may_create: false,
            warnings: Vec::new(),
            annotations: crate::audit::Annotations::default(),
            follows_template: false,
            now: server.now(),
        };
        match pipeline::delete(&mut write, &options).await {
            Ok(_) => {}
            Err(e) if e.code == 404 => {}
            Err(e) => return Err(e),
        }
    }
    // Most are gone at once; those with finalizers stay, and others may have come before the definition said that no
    // more may.
    Ok(server.store().list(&kind.storage, None).iter().next().is_none())
}
