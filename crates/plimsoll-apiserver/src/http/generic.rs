//! One handler for every resource: which verb, which form, then to the store or the pipeline.

use std::sync::Arc;

use http::{Method, header};
use plimsoll_apimachinery::{ApiError, Details, Kind};
use serde_json::{Value, json};

use super::negotiate::{Accepted, Endpoint, Format, MetaVersion, Transform, negotiate};
use super::options::{DeleteOptions, WriteOptions};
use super::reply::Reply;
use super::{Req, body_format, components, list, method_not_allowed, not_served, patch, subresource, watch};
use crate::auth;
use crate::pipeline::{self, Admission, Change, Deleted, Updated, Write};
use crate::store::Key;
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

/// 405 for a resource of a definition, which upstream's own handler words (`NewMethodNotSupported`).
pub fn not_supported(req: &Req, kind: &Kind) -> ApiError {
    if kind.custom.is_none() {
        return method_not_allowed();
    }
    let mut e = ApiError::new(
        405,
        "MethodNotAllowed",
        format!("{} is not supported on resources of kind \"{}\"", req.info.verb, kind.qualified_resource()),
    );
    let details = Details { group: kind.gvk.group.clone(), kind: kind.plural.clone(), ..Details::default() };
    e.details = Some(Box::new(details));
    e
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

/// What a resource can be answered in.
pub fn endpoint(req: &Req, kind: &Kind) -> Endpoint {
    let reading = matches!(req.info.verb.as_str(), "list" | "watch");
    let lists = kind.verbs.iter().any(|v| v == "list") || kind.custom.is_some();
    // Registries of these have no tables (`ConvertToTable`).
    let bare = match req.info.subresource.as_str() {
        "resize" | "ephemeralcontainers" | "finalize" | "approval" => true,
        "status" => kind.gvk.group == "resource.k8s.io",
        _ => false,
    };
    Endpoint {
        table: lists && !bare,
        partial: lists,
        protobuf: kind.custom.is_some() || machine::has_protobuf(kind),
        watchable: reading,
        watching: false,
        custom: kind.custom.is_some(),
        direct: false,
    }
}

/// Negotiates the form of the answer.
pub fn negotiate_for(req: &mut Req, kind: &Kind) -> Result<(), ApiError> {
    req.accepted = match req.header(header::ACCEPT) {
        // Every endpoint has that.
        None | Some("application/json") => Accepted::default(),
        accept => negotiate(accept, endpoint(req, kind))?,
    };
    Ok(())
}

/// `*core.ConfigMap`: how Go names the type in messages.
fn go_type(kind: &Kind, list: bool) -> String {
    if kind.custom.is_some() {
        return format!("*unstructured.Unstructured{}", if list { "List" } else { "" });
    }
    let package = kind.gvk.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    format!("*{package}.{}", if list { &kind.list_kind } else { &kind.gvk.kind })
}

/// Puts one object into the form asked for.
pub fn present(req: &Req, kind: &Arc<Kind>, status: u16, object: Value) -> Result<Reply, ApiError> {
    if object["kind"] == "Status" && object["apiVersion"] == "v1" {
        return Ok(Reply::object(status, object));
    }
    Ok(match req.accepted.transform {
        Transform::None => Reply::object(status, object),
        Transform::Table(version) => {
            let options = machine::table_options(&req.query, Value::Null, false)?;
            Reply::object(status, machine::table(kind, &[object], &options, version, req.server.now()))
        }
        Transform::Partial(version) => Reply::object(status, partial(&object, version)),
        Transform::PartialList(_) if kind.custom.is_some() => {
            return Err(ApiError::new(500, "", "content is not a list"));
        }
        Transform::PartialList(_) => {
            return Err(ApiError::new(
                406,
                "NotAcceptable",
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                    go_type(kind, false)
                ),
            ));
        }
    })
}

/// 406 for a list asked for as one object.
pub fn list_as_object(kind: &Kind) -> ApiError {
    ApiError::new(
        406,
        "NotAcceptable",
        format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({})",
            go_type(kind, true)
        ),
    )
}

/// Metadata only.
pub fn partial(object: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": object["metadata"],
    })
}

/// The key of the object that the path names.
pub fn key(req: &Req, kind: &Kind) -> Key {
    let namespace = if kind.namespaced { req.info.namespace.as_str() } else { "" };
    Key::new(kind.storage.as_str(), namespace, req.info.name.as_str())
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

/// Whether the answer is the object itself as JSON.
fn is_plain(req: &Req) -> bool {
    req.accepted.transform == Transform::None && req.accepted.format == Format::Json
}

/// Answers what was written: as it is stored, if that is what the client wants to see.
pub async fn present_written(req: &Req, kind: &Arc<Kind>, done: Updated) -> Result<Reply, ApiError> {
    let status = if done.created { 201 } else { 200 };
    if wants_nothing(req) {
        return Ok(Reply::nothing(status));
    }
    if is_plain(req)
        && let Some(json) = done.record.as_deref().and_then(|r| representation::raw(kind, r))
    {
        return Ok(Reply::json(status, json.clone()));
    }
    let object = done.into_object(&req.server, kind).await?;
    present(req, kind, status, object)
}

/// `Prefer: return=minimal` (RFC 7240): the client doesn't look at the body of a success. Upstream sends it anyway.
pub fn wants_nothing(req: &Req) -> bool {
    req.headers.get("prefer").is_some_and(|v| v.as_bytes() == b"return=minimal")
}

/// A write as the request describes it.
pub fn write_of(req: &Req, kind: &Arc<Kind>, options: &WriteOptions, options_kind: &str) -> Write {
    let manager =
        if options.field_manager.is_empty() { req.manager_of_agent() } else { options.field_manager.clone() };
    Write {
        server: Arc::clone(&req.server),
        table: Arc::clone(&req.table),
        kind: Arc::clone(kind),
        subresource: req.info.subresource.clone(),
        namespace: if kind.namespaced { req.info.namespace.clone() } else { String::new() },
        name: req.info.name.clone(),
        user: req.user.clone(),
        manager,
        dry_run: options.dry_run,
        options: options.to_value(options_kind),
        admission: Admission::default(),
        may_create: req.info.verb == "create",
        warnings: Vec::new(),
        annotations: Arc::clone(&req.annotations),
        follows_template: false,
        now: req.server.now(),
    }
}

/// Decodes the body as an object of `kind` and fills in defaults.
pub fn decode(req: &mut Req, kind: &Kind, options: &WriteOptions) -> Result<Value, ApiError> {
    let mut object = decode_bare(req, kind, options)?;
    machine::default(kind, &mut object);
    Ok(object)
}

/// As [`decode`], without defaults.
fn decode_bare(req: &mut Req, kind: &Kind, options: &WriteOptions) -> Result<Value, ApiError> {
    let format = body_format(req, machine::has_protobuf(kind))?;
    let decoded = machine::decode(kind, &req.body, format, options.field_validation);
    if decoded.is_err() {
        req.warnings.extend(machine::unread(kind, &req.body, options.field_validation));
    }
    let (object, warnings) = decoded?;
    req.warnings.extend(warnings);
    Ok(object)
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

async fn update(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    body_format(req, machine::has_protobuf(kind))?;
    let options = WriteOptions::parse(&req.query, "UpdateOptions", false)?;
    let mut object = decode(req, kind, &options)?;
    let mut write = write_of(req, kind, &options, "UpdateOptions");
    pipeline::check_identity(&write, &mut object)?;
    let result = pipeline::update(&mut write, Change::Replace(object)).await;
    req.warnings.append(&mut write.warnings);
    present_written(req, kind, result?).await
}

/// DeleteOptions from the body if there is one, else from the query.
pub fn delete_options(req: &Req) -> Result<DeleteOptions, ApiError> {
    if req.body.is_empty() {
        return DeleteOptions::from_query(&req.query);
    }
    let format = body_format(req, true)?;
    DeleteOptions::from_value(&machine::decode_delete_options(&req.body, format)?)
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

/// Jobs leave their pods behind unless told otherwise; clients are told.
pub fn warn_of_orphans(req: &mut Req, kind: &Kind, options: &DeleteOptions) {
    if kind.gvk.group == "batch"
        && kind.plural == "jobs"
        && options.propagation.is_none()
        && options.orphan.is_none()
    {
        req.warnings.push(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
             remove them or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        );
    }
}
