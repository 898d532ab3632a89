//! What the handlers of a resource do alike: negotiation, keys, decoding, the write that a request describes.

use std::sync::Arc;

use http::header;
use plimsoll_apimachinery::{ApiError, Details, Kind};
use serde_json::Value;

use super::negotiate::{Accepted, Endpoint, negotiate};
use super::options::{DeleteOptions, WriteOptions};
use super::{Req, body_format, method_not_allowed};
use crate::machine;
use crate::store::Key;
use crate::write::{Admission, Write};

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

/// The key of the object that the path names.
pub fn key(req: &Req, kind: &Kind) -> Key {
    let namespace = if kind.namespaced { req.info.namespace.as_str() } else { "" };
    Key::new(kind.storage.as_str(), namespace, req.info.name.as_str())
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
pub fn decode_bare(req: &mut Req, kind: &Kind, options: &WriteOptions) -> Result<Value, ApiError> {
    let format = body_format(req, machine::has_protobuf(kind))?;
    let decoded = machine::decode(kind, &req.body, format, options.field_validation);
    if decoded.is_err() {
        req.warnings.extend(machine::unread(kind, &req.body, options.field_validation));
    }
    let (object, warnings) = decoded?;
    req.warnings.extend(warnings);
    Ok(object)
}

/// DeleteOptions from the body if there is one, else from the query.
pub fn delete_options(req: &Req) -> Result<DeleteOptions, ApiError> {
    if req.body.is_empty() {
        return DeleteOptions::from_query(&req.query);
    }
    let format = body_format(req, true)?;
    DeleteOptions::from_value(&machine::decode_delete_options(&req.body, format)?)
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
