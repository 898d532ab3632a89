//! One handler for every resource: which verb, which form, then to the store or the pipeline.

use std::sync::Arc;

use http::Method;
use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::{Value, json};

use super::endpoint::{
    decode_bare, delete_options, key, negotiate_for, not_supported, warn_of_orphans, write_of,
};
use super::options::WriteOptions;
use super::present::{is_plain, present, present_written};
use super::replace::update;
use super::reply::Reply;
use super::{Req, body_format, components, list, method_not_allowed, not_served, patch, subresource, watch};
use crate::auth;
use crate::pipeline::{self, Deleted};
use crate::write::Write;
use crate::{convert, machine, representation};

/// Answers a request for a resource.
pub async fn resource(req: &mut Req) -> Result<Reply, ApiError> {
    let info = &req.info;
    let Some(kind) = req.table.resource(&info.group, &info.version, &info.resource).cloned() else {
        let groups = req.table.groups();
        let served = groups.iter().any(|(g, _)| *g == info.group);
        let custom = req.table.iter().any(|k| k.gvk.group == info.group && k.custom.is_some());
        return if served && !custom { Err(not_served()) } else { Ok(Reply::page_not_found()) };
    };
    let writes = !matches!(info.verb.as_str(), "list" | "watch");
    if kind.custom.is_some() && kind.namespaced && info.namespace.is_empty() && writes {
        return Ok(Reply::page_not_found());
    }
    check_scope(req, &kind)?;
    if let Some(custom) = &kind.custom {
        req.warnings.extend(custom.deprecation.clone());
        if !info.subresource.is_empty() && kind.subresource(&info.subresource).is_none() {
            return Err(ApiError::not_found(&kind.gvk.group, &kind.plural, &info.name));
        }
    }
    if !req.info.subresource.is_empty() {
        return subresource::handle(req, &kind).await;
    }
    if req.info.old_watch && !kind.verbs.iter().any(|v| v == "watch") {
        return Err(not_served());
    }
    check_verb(req, &kind)?;
    // Upstream's router knows what a patch may be, and knows nothing of deprecation.
    let patch = if req.info.verb == "patch" { Some(patch::patch_type(req, &kind)?) } else { None };
    req.warnings.extend(machine::deprecation(&kind));
    negotiate_for(req, &kind)?;
    if components::is_one(&kind) {
        return components::answer(req, &kind);
    }
    if let Some(patch_type) = patch {
        return patch::patch(req, &kind, patch_type).await;
    }
    match req.info.verb.as_str() {
        "get" => get(req, &kind).await,
        "list" => list::list(req, &kind).await,
        "watch" => watch::watch(req, &kind).await,
        "create" => create(req, &kind).await,
        "update" => update(req, &kind).await,
        "delete" => delete(req, &kind).await,
        "deletecollection" => list::delete_collection(req, &kind).await,
        _ => Err(not_supported(req, &kind)),
    }
}

/// Paths with a namespace are for namespaced kinds and the other way round.
fn check_scope(req: &Req, kind: &Kind) -> Result<(), ApiError> {
    let info = &req.info;
    let own = kind.plural == "namespaces" && kind.gvk.group.is_empty();
    let of_itself = own && info.name == info.namespace;
    if !kind.namespaced && !info.namespace.is_empty() && !of_itself {
        return Err(not_served());
    }
    if kind.namespaced && info.namespace.is_empty() {
        if !info.name.is_empty() {
            return Err(not_served());
        }
        if !kind.verbs.iter().any(|v| v == "list") {
            return Err(not_served());
        }
        if !matches!(info.verb.as_str(), "list" | "watch") {
            return Err(method_not_allowed());
        }
    }
    if !info.name.is_empty() && info.subresource.is_empty() && !kind.verbs.iter().any(|v| v != "create") {
        // What can only be made has no path of its own.
        return Err(not_served());
    }
    Ok(())
}

fn check_verb(req: &Req, kind: &Kind) -> Result<(), ApiError> {
    let info = &req.info;
    let named = !info.name.is_empty();
    let fits = match info.verb.as_str() {
        "create" => !named || kind.custom.is_some(),
        "deletecollection" => !named,
        "update" | "patch" | "delete" => named,
        // Only the handler of custom resources takes HEAD.
        "get" | "list" | "watch" => req.method == Method::GET || kind.custom.is_some(),
        _ => false,
    };
    let verb = if info.verb == "watch" && named && !info.old_watch { "get" } else { info.verb.as_str() };
    if kind.custom.is_some() && !named && matches!(verb, "update" | "patch") {
        // Upstream's handler of custom resources looks at the verb only.
        if verb == "patch" {
            patch::patch_type(req, kind)?;
        }
        return Err(ApiError::bad_request("name must be provided"));
    }
    if !fits || !kind.verbs.iter().any(|v| v == verb) {
        return Err(not_supported(req, kind));
    }
    Ok(())
}

async fn get(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    let version = req.query.get("resourceVersion").unwrap_or("");
    if !version.is_empty() {
        list::parse_version(version).map_err(|e| ApiError::new(500, "", e))?;
    }
    list::wait_for_version(req, version).await?;
    let key = key(req, kind);
    let record = req.server.store().get(&key);
    let Some(record) = record else {
        return Err(ApiError::not_found(&kind.gvk.group, &kind.plural, &req.info.name));
    };
    let record = convert::webhook::record(&req.server, kind, record).await?;
    if is_plain(req)
        && let Some(json) = representation::raw(kind, &record)
    {
        return Ok(Reply::json(200, json.clone()));
    }
    let value = representation::value(kind, &record).map_err(ApiError::internal)?;
    present(req, kind, 200, value)
}

/// Whether a Job has no labels of its own where its template has some.
fn follows_template(kind: &Kind, object: &Value) -> bool {
    let labels = |meta: &Value| meta["labels"].as_object().is_some_and(|labels| !labels.is_empty());
    kind.gvk.group == "batch"
        && kind.gvk.kind == "Job"
        && !labels(&object["metadata"])
        && labels(&object["spec"]["template"]["metadata"])
}

async fn create(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    body_format(req, machine::has_protobuf(kind))?;
    let options = WriteOptions::parse(&req.query, "CreateOptions", false)?;
    let mut object = decode_bare(req, kind, &options)?;
    let follows_template = follows_template(kind, &object);
    machine::default(kind, &mut object);
    let mut write = Write { follows_template, ..write_of(req, kind, &options, "CreateOptions") };
    if let Some(answer) = review(req, kind, &mut object, &write) {
        return present(req, kind, 201, answer?);
    }
    if kind.gvk.kind == "Binding" && kind.plural == "bindings" {
        return subresource::old_binding(req, kind, object, &options).await;
    }
    if !kind.verbs.iter().any(|v| v == "get") {
        return Err(ApiError::new(
            501,
            "NotImplemented",
            format!("{} is not implemented", kind.qualified_resource()),
        ));
    }
    let result = pipeline::create(&mut write, object).await;
    req.warnings.append(&mut write.warnings);
    present_written(req, kind, result?).await
}

/// The review kinds are answered at once.
fn review(req: &Req, kind: &Arc<Kind>, object: &mut Value, w: &Write) -> Option<Result<Value, ApiError>> {
    if !matches!(kind.gvk.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io") {
        return None;
    }
    if kind.gvk.kind == "SelfSubjectReview" {
        object["metadata"] = json!({"creationTimestamp": crate::time::seconds(w.now)});
    } else if let Err(e) = machine::own_update(kind, None, object, &w.manager, "", w.now) {
        return Some(Err(e));
    }
    let server = &req.server;
    let user_of = |token: &str, wanted: &[String]| server.user_of_token(token, wanted);
    auth::create_review(kind, object, &req.info.namespace, &req.user, &user_of, server.rbac())
}

async fn delete(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    let options = delete_options(req)?;
    warn_of_orphans(req, kind, &options);
    let write_options = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
    let mut write = write_of(req, kind, &write_options, "DeleteOptions");
    write.options = options.to_value();
    let result = pipeline::delete(&mut write, &options).await;
    req.warnings.append(&mut write.warnings);
    match result? {
        Deleted::Pending(object) => {
            // Only the old way of asking for a cascade is told that it goes on.
            let status = if options.orphan == Some(false) { 202 } else { 200 };
            present(req, kind, status, machine::serve(kind, object))
        }
        Deleted::Gone(object) if pipeline::returns_object(&write) => present(req, kind, 200, object),
        Deleted::Gone(object) => {
            let mut details = json!({"name": req.info.name});
            if !kind.gvk.group.is_empty() {
                details["group"] = json!(kind.gvk.group);
            }
            details["kind"] = json!(kind.plural);
            details["uid"] = object["metadata"]["uid"].clone();
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Ok(Reply::object(200, status))
        }
    }
}
