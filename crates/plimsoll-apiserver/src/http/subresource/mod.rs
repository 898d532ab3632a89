//! Subresources: those that are the object seen from another side (`status`, `resize`, …), and those that are
//! something of their own.

mod binding;
mod eviction;
mod log;
pub(crate) mod scale;
mod token;

use std::sync::Arc;

use http::Method;
use plimsoll_apimachinery::{ApiError, Details, Gvk, Kind, KindTable, Subresource};
use serde_json::Value;

use super::endpoint::{decode, key, negotiate_for, not_supported};
use super::options::WriteOptions;
use super::present::present;
use super::replace::update;
use super::reply::Reply;
use super::{Req, method_not_allowed, not_served, patch};
use crate::admission::{self, Operation};
use crate::auth::Attributes;
use crate::pipeline;
use crate::{machine, representation};

pub use binding::old_path as old_binding;

/// Answers a request for a subresource.
pub async fn handle(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    let Some(sub) = kind.subresource(&req.info.subresource).cloned() else { return Err(not_served()) };
    let core_pod = kind.gvk.group.is_empty() && kind.plural == "pods";
    if core_pod && matches!(sub.name.as_str(), "exec" | "attach" | "portforward" | "proxy") {
        return connect(req, kind, &sub.name).await;
    }
    if sub.name == "proxy" {
        let missing = match kind.plural.as_str() {
            "nodes" => "simulated nodes have no kubelet to connect to",
            _ => "no simulated pod listens behind a Service",
        };
        return Err(not_implemented(&format!("proxy: {missing}")));
    }
    if !req.info.rest.is_empty() {
        return Err(not_served());
    }
    let verb = req.info.verb.clone();
    let head = req.method == Method::HEAD && kind.custom.is_none();
    if head || !sub.verbs.contains(&verb) {
        return Err(not_supported(req, kind));
    }
    if core_pod && sub.name == "log" {
        return log::log(req, kind).await;
    }
    negotiate_for(req, kind)?;
    match (core_pod, sub.name.as_str()) {
        (true, "binding") => binding::create(req, kind, &sub).await,
        (true, "eviction") => eviction::create(req, kind, &sub).await,
        (false, "token") => token::create(req, kind, &sub).await,
        (_, "scale") => scale::handle(req, kind, &sub).await,
        _ if sub.kind == kind.gvk => side(req, kind, &verb).await,
        _ => Err(not_implemented(&sub.name)),
    }
}

fn not_implemented(what: &str) -> ApiError {
    ApiError::new(501, "NotImplemented", format!("the server does not implement {what}"))
}

/// Subresources that are the object itself with other rules of writing.
async fn side(req: &mut Req, kind: &Arc<Kind>, verb: &str) -> Result<Reply, ApiError> {
    match verb {
        "get" => {
            let object = read(req, kind).await?;
            present(req, kind, 200, object)
        }
        "update" => update(req, kind).await,
        "patch" => {
            let patch_type = patch::patch_type(req, kind)?;
            patch::patch(req, kind, patch_type).await
        }
        _ => Err(method_not_allowed()),
    }
}

/// Admission of an object that is created at a subresource (a Binding, an Eviction).
async fn admit_part(write: &mut pipeline::Write, part: &mut Value) -> Result<(), ApiError> {
    if part["metadata"].is_object() && part["metadata"]["namespace"].as_str().unwrap_or("").is_empty() {
        part["metadata"]["namespace"] = Value::from(write.namespace.as_str());
    }
    if part["kind"] == "Binding" && !admission::webhooks::any(write, Operation::Create) {
        // Only the plugins look at it, and they know it by its resource.
        return admitted(write, part).await;
    }
    let own = kind_of_part(&write.table, &write.kind, part);
    machine::own_update(&own, None, part, &write.manager, &write.subresource, write.now)?;
    let parent = std::mem::replace(&mut write.kind, own);
    let result = admitted(write, part).await;
    write.kind = parent;
    result
}

/// What admission knows an object by that is created at a subresource: its own kind at the parent's resource.
fn kind_of_part(table: &KindTable, parent: &Kind, part: &Value) -> Arc<Kind> {
    let mut kind = Kind::clone(parent);
    let api_version = part["apiVersion"].as_str().unwrap_or("v1");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    kind.gvk = Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: part["kind"].as_str().unwrap_or("").to_owned(),
    };
    kind.schema = machine::subresource_kind(table, &kind.gvk).and_then(|k| k.schema.clone());
    Arc::new(kind)
}

async fn admitted(write: &mut pipeline::Write, part: &mut Value) -> Result<(), ApiError> {
    admission::mutate(write, part, None, Operation::Create).await?;
    let _ = admission::validate(write, Some(part), None, Operation::Create).await?;
    Ok(())
}

/// The object that the path names, in the served version.
async fn read(req: &Req, kind: &Kind) -> Result<Value, ApiError> {
    let record = req.server.store().get(&key(req, kind));
    let record = record.ok_or_else(|| ApiError::not_found(&kind.gvk.group, &kind.plural, &req.info.name))?;
    representation::in_version(&req.server, kind, &record).await
}

/// Decodes the body as the subresource's own kind.
fn decode_own(req: &mut Req, sub: &Subresource, options: &WriteOptions) -> Result<Value, ApiError> {
    let kind = own_kind(req, sub)?;
    let object = decode(req, &kind, options)?;
    let given = object["metadata"]["namespace"].as_str().unwrap_or("");
    // Filled in later, where it is needed.
    if req.method == Method::POST && !given.is_empty() && given != req.info.namespace {
        pipeline::ensure_namespace(&mut object.clone(), true, &req.info.namespace)?;
    }
    Ok(object)
}

fn own_kind(req: &Req, sub: &Subresource) -> Result<Arc<Kind>, ApiError> {
    machine::subresource_kind(&req.table, &sub.kind).ok_or_else(|| not_implemented(&sub.name))
}

/// A GET runs commands over a WebSocket as a POST does over SPDY, and needs the right to create as well
/// (`ensureAuthorizedForVerb` in `pkg/registry/core/pod/rest`).
fn may_create(req: &Req) -> Result<(), ApiError> {
    let what = Attributes { verb: "create".to_owned(), ..Attributes::of(&req.info) };
    let decision = req.server.rbac().authorize(&req.user, &what);
    if req.info.verb == "create" || decision.allowed {
        return Ok(());
    }
    let (name, reason) = (&req.info.name, &decision.reason);
    let mut e = ApiError::new(403, "Forbidden", format!("pods \"{name}\" is forbidden: {reason}"));
    e.details = Some(Box::new(Details { name: name.clone(), kind: "pods".to_owned(), ..Details::default() }));
    Err(e)
}

/// exec, attach, port-forward and proxy need a kubelet with containers.
async fn connect(req: &Req, kind: &Kind, what: &str) -> Result<Reply, ApiError> {
    if what != "proxy" {
        if !matches!(req.method, Method::GET | Method::POST) {
            return Err(method_not_allowed());
        }
        may_create(req)?;
    }
    let pod = read(req, kind).await?;
    if pod["spec"]["nodeName"].as_str().unwrap_or("").is_empty() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", req.info.name)));
    }
    Err(not_implemented(&format!("{what}: simulated pods have no containers to connect to")))
}
