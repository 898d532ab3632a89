//! Follows APIServices, and looks whether the servers that they name answer (`kube-aggregator`, `available_controller.go`).

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use http_body_util::{BodyExt, Limited};
use plimsoll_apimachinery::{Gvk, Kind};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::openapi;
use super::remote::{Remote, Unreachable, own_request};
use super::served::{Backend, Documents, Served};
use crate::server::{Follower, Server};
use crate::store::{Expected, Key, Record};
use crate::webhook_client::service::Unresolved;

const SERVICES: &str = "apiregistration.k8s.io/apiservices";
/// Between two looks at servers that answer, and at those that don't.
const LOOKS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));
/// Time for the answer of a server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest discovery document that is read, in bytes.
const MAX_DOCUMENT: usize = 4 << 20;

/// Follows APIServices: the servers that they name are asked from the write on.
pub(crate) fn follower() -> Box<dyn Follower> {
    Box::new(Services)
}

struct Services;

impl Follower for Services {
    fn follows(&self, kind: &Kind) -> bool {
        kind.storage == SERVICES
    }

    fn written<'a>(&'a self, server: &'a Arc<Server>, record: &'a Arc<Record>) -> BoxFuture<'a, ()> {
        Box::pin(async move { take_on(server, record) })
    }

    fn deleted<'a>(&'a self, server: &'a Arc<Server>, record: &'a Arc<Record>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Ok(object) = record.value() {
                let (group, version) = group_version(&object);
                server.aggregation().remove_remote(&group, &version);
            }
        })
    }
}

fn group_version(object: &Value) -> (String, String) {
    let text = |field: &str| object["spec"][field].as_str().unwrap_or("").to_owned();
    (text("group"), text("version"))
}

/// Takes on what the store holds; for the start.
pub(crate) fn load(server: &Arc<Server>) {
    for record in server.store().list(SERVICES, None).iter() {
        take_on(server, record);
    }
}

/// An APIService is there. Versions that this server serves itself stay its own.
fn take_on(server: &Arc<Server>, record: &Arc<Record>) {
    let Ok(object) = record.value() else { return };
    let (group, version) = group_version(&object);
    let own = server.kinds().iter().any(|k| k.gvk.group == group && k.gvk.version == version);
    let spec = &object["spec"];
    if own || !spec["service"].is_object() {
        return server.aggregation().remove_remote(&group, &version);
    }
    let remote = Remote::new(spec, server.config().proxy_client.as_ref());
    let priority = |field: &str| spec[field].as_i64().unwrap_or(0);
    server.aggregation().set_remote(Served {
        group_priority: priority("groupPriorityMinimum"),
        version_priority: priority("versionPriority"),
        backend: Backend::Remote(Arc::new(remote)),
        resources: None,
        documents: None,
        group,
        version,
    });
}

/// Looks at the servers until `stop`.
pub(crate) async fn keep(server: Arc<Server>, stop: CancellationToken) {
    loop {
        let remotes = server.aggregation().remotes();
        let looked = tokio::select! {
            () = stop.cancelled() => return,
            looked = join_all(remotes.iter().map(|served| look(&server, served))) => looked,
        };
        let pause = if looked.into_iter().all(|answers| answers) { LOOKS.0 } else { LOOKS.1 };
        tokio::select! {
            () = stop.cancelled() => return,
            () = server.aggregation().changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Looks whether a server answers, and for what.
async fn look(server: &Arc<Server>, served: &Arc<Served>) -> bool {
    let Some(remote) = served.remote() else { return true };
    let path = format!("/apis/{}/{}", served.group, served.version);
    let answer = tokio::time::timeout(PATIENCE, discover(server, remote, &path)).await;
    let found = answer.unwrap_or_else(|_| Err(Unreachable::Server("context deadline exceeded".to_owned())));
    let (resources, verdict) = match found {
        Ok(resources) => (Some(resources), ("True", "Passed", "all checks passed".to_owned())),
        Err(e) => {
            let (reason, message) = explain(remote, &path, &e);
            (None, ("False", reason, message))
        }
    };
    let answers = resources.is_some();
    // Of one that does not answer, the last known ones stay.
    let documents = if answers { read_documents(server, served).await } else { served.documents.clone() };
    server.aggregation().looked(served, resources, documents);
    report(server, served, verdict).await;
    answers
}

/// The OpenAPI documents of a version: those that are known, if the server does not give them now.
async fn read_documents(server: &Server, served: &Served) -> Option<Arc<Documents>> {
    match tokio::time::timeout(PATIENCE, openapi::read(server.store(), served)).await {
        Ok(Ok(documents)) => Some(Arc::new(documents)),
        Ok(Err(error)) => {
            tracing::debug!(%error, group = served.group, version = served.version, "OpenAPI documents");
            served.documents.clone()
        }
        Err(_) => served.documents.clone(),
    }
}

/// The APIResourceList of a version.
async fn discover(server: &Server, remote: &Remote, path: &str) -> Result<Value, Unreachable> {
    let bad = |e: &dyn std::fmt::Display| Unreachable::Server(e.to_string());
    let response = remote.send(server.store(), own_request(path)?).await?;
    let status = response.status();
    if !status.is_success() {
        return Err(bad(&format!("bad status from {}{path}: {}", remote.url(), status.as_u16())));
    }
    let body = Limited::new(response.into_body(), MAX_DOCUMENT).collect().await.map_err(|e| bad(&e))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|e| bad(&e))
}

/// Reason and message of the condition, in upstream's words.
fn explain(remote: &Remote, path: &str, e: &Unreachable) -> (&'static str, String) {
    let (name, namespace, port) = remote.service();
    match e {
        Unreachable::Service(Unresolved::NoService(_)) => {
            ("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"))
        }
        Unreachable::Service(Unresolved::NoPort(..)) => {
            ("ServicePortError", format!("service/{name} in {namespace:?} is not listening on port {port}"))
        }
        Unreachable::Service(Unresolved::NoEndpoints(_)) => {
            ("MissingEndpoints", format!("endpoints for service/{name} in {namespace:?} have no addresses"))
        }
        Unreachable::Service(Unresolved::BadPort(_)) => ("ServiceAccessError", e.to_string()),
        Unreachable::Server(why) => (
            "FailedDiscoveryCheck",
            format!("failing or missing response from {}{path}: {why}", remote.url()),
        ),
    }
}

/// Writes the condition, if it is another one.
async fn report(server: &Arc<Server>, served: &Served, (status, reason, message): (&str, &str, String)) {
    let key = Key::new(SERVICES, "", format!("{}.{}", served.version, served.group));
    let Some(record) = server.store().get(&key) else { return };
    let Ok(old) = record.value() else { return };
    let conditions = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let present = conditions.iter().find(|c| c["type"] == "Available");
    if present.is_some_and(|c| c["status"] == status && c["reason"] == reason && c["message"] == message) {
        return;
    }
    let same = present.filter(|c| c["status"] == status).map(|c| c["lastTransitionTime"].clone());
    let since = same.unwrap_or_else(|| json!(crate::time::seconds(server.now())));
    let mut conditions: Vec<Value> = conditions.into_iter().filter(|c| c["type"] != "Available").collect();
    conditions
        .push(json!({"type": "Available", "status": status, "lastTransitionTime": since, "reason": reason,
                           "message": message}));
    let mut new = old.clone();
    new["status"] = json!({"conditions": conditions});
    let gvk = Gvk { group: "apiregistration.k8s.io".into(), version: "v1".into(), kind: "APIService".into() };
    if let Some(kind) = server.kinds().kind(&gvk)
        && let Err(e) =
            crate::machine::own_update(kind, Some(&old), &mut new, "kube-apiserver", "status", server.now())
    {
        tracing::debug!(error = %e, "ownership of an APIService's status");
    }
    if let Err(e) = server.put(key, Expected::Revision(record.revision), &new).await {
        // Another client wrote it meanwhile; the next look tries again.
        tracing::debug!(error = %e, "status of an APIService");
    }
}
