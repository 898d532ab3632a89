//! Objects that exist from the start: namespaces, system priority classes, what every user may do, the API's own
//! Service.

use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Gvk};
use serde_json::{Value, json};

use crate::auth::{User, bootstrap};
use crate::flow::keep;
use crate::machine;
use crate::pipeline;
use crate::server::{Server, ServerError};
use crate::store::Key;
use crate::write::{Admission, Write};

const MANAGER: &str = "kube-apiserver";

fn namespaces() -> impl Iterator<Item = Value> {
    ["kube-system", "kube-public", "kube-node-lease", "default"]
        .into_iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
}

fn priority_classes() -> impl Iterator<Item = Value> {
    let rows = [
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ];
    rows.into_iter().map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        })
    })
}

/// Creates what isn't there, without admission: a policy or webhook of the last run mustn't keep the server
/// from starting, where no client could remove it.
///
/// # Errors
/// The store refuses a write.
pub async fn run(server: &Arc<Server>) -> Result<(), ServerError> {
    let objects: Vec<Value> = namespaces().chain(priority_classes()).chain(bootstrap::objects()).collect();
    create_all(server, objects).await?;
    keep_flow_control(server).await?;
    crate::custom::load(server).await;
    crate::aggregation::services::load(server);
    server.store().forget_changes();
    crate::custom::resume(server);
    Ok(())
}

/// Keeps the objects that flow control can't be without, and those that are suggested, unless an operator has changed
/// them; for the start and every minute.
///
/// # Errors
/// The store refuses a write.
pub async fn keep_flow_control(server: &Arc<Server>) -> Result<(), ServerError> {
    let missing = keep::ensure(server, server.flow()).await;
    if missing.is_empty() {
        return Ok(());
    }
    keep::pause(server, server.flow(), true).await;
    let created = create_all(server, missing).await;
    keep::pause(server, server.flow(), false).await;
    created
}

async fn create_all(server: &Arc<Server>, objects: Vec<Value>) -> Result<(), ServerError> {
    for object in objects {
        let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
        match create(server, object).await {
            Ok(()) => {}
            Err(e) if e.reason == "AlreadyExists" => {}
            Err(e) => return Err(ServerError::Bootstrap { what, why: e.to_string() }),
        }
    }
    Ok(())
}

async fn create(server: &Arc<Server>, object: Value) -> Result<(), ApiError> {
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let (group, version) = match object["apiVersion"].as_str().unwrap_or("").split_once('/') {
        Some((g, v)) => (g.to_owned(), v.to_owned()),
        None => (String::new(), text(&object["apiVersion"])),
    };
    let manager = if group == keep::GROUP { keep::PRODUCER } else { MANAGER };
    let gvk = Gvk { group, version, kind: text(&object["kind"]) };
    let table = server.kinds();
    let Some(kind) = table.kind(&gvk).cloned() else {
        return Err(ApiError::internal(format!("no kind {gvk:?}")));
    };
    let namespace = text(&object["metadata"]["namespace"]);
    let key = Key::new(
        kind.storage.as_str(),
        namespace.as_str(),
        object["metadata"]["name"].as_str().unwrap_or(""),
    );
    if server.store().get(&key).is_some() {
        return Ok(());
    }
    let mut object = object;
    machine::default(&kind, &mut object);
    let mut write = Write {
        server: Arc::clone(server),
        namespace,
        name: String::new(),
        subresource: String::new(),
        user: User::new("system:apiserver", &["system:masters"]),
        manager: manager.to_owned(),
        dry_run: false,
        options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        admission: Admission::Done,
        may_create: true,
        warnings: Vec::new(),
        annotations: crate::audit::Annotations::default(),
        follows_template: false,
        now: server.now(),
        kind,
        table,
    };
    pipeline::create(&mut write, object).await.map(|_| ())
}
