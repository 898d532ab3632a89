//! `scale`: the number of replicas of whatever has one.

use std::sync::{Arc, Mutex};

use plimsoll_apimachinery::{ApiError, Kind, Subresource};
use serde_json::Value;

use super::super::endpoint::{decode, write_of};
use super::super::options::WriteOptions;
use super::super::patch::patch_type;
use super::super::present::present;
use super::super::reply::Reply;
use super::super::{Req, body_format};
use super::{own_kind, read};
use crate::convert::versions::OtherVersions;
use crate::machine::scale::{owned_scale, scale_of, with_owned};
use crate::machine::{self, PatchType};
use crate::pipeline::{self, Change};

/// Answers GET, PUT and PATCH of a Scale.
pub async fn handle(req: &mut Req, kind: &Arc<Kind>, sub: &Subresource) -> Result<Reply, ApiError> {
    let own = own_kind(req, sub)?;
    if req.info.verb == "get" {
        let scale = scale_of(kind, &read(req, kind).await?)?;
        return present(req, &own, 200, scale);
    }
    let object = if req.info.verb == "update" {
        body_format(req, true)?;
        let options = WriteOptions::parse(&req.query, "UpdateOptions", false)?;
        let mut scale = decode(req, &own, &options).map_err(|e| unread(kind, e))?;
        let mut write = write_of(req, kind, &options, "UpdateOptions");
        pipeline::check_identity(&write, &mut scale)?;
        let (manager, now) = (write.manager.clone(), write.now);
        let make = |old: &Value| {
            let (live, mut scale) = (owned_scale(kind, old), scale.clone());
            machine::own_update(&own, Some(&live), &mut scale, &manager, "scale", now)?;
            with_owned(kind, old, &scale)
        };
        let result = pipeline::update(&mut write, Change::Patch(&make)).await;
        req.warnings.append(&mut write.warnings);
        result?.into_object(&req.server, kind).await?
    } else {
        patch(req, kind, &own).await?
    };
    present(req, &own, 200, scale_of(kind, &object)?)
}

/// What isn't read as a Scale of a custom resource: upstream doesn't know what it wanted to read.
fn unread(kind: &Kind, error: ApiError) -> ApiError {
    if kind.custom.is_none() || error.code != 400 {
        return error;
    }
    ApiError::bad_request(
        "no kind is registered for the type v1.Scale in scheme \
         \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"",
    )
}

async fn patch(req: &mut Req, kind: &Arc<Kind>, own: &Arc<Kind>) -> Result<Value, ApiError> {
    let patch_type = patch_type(req, kind)?;
    let apply = patch_type == PatchType::Apply;
    let options = WriteOptions::parse(&req.query, "PatchOptions", apply)?;
    let mut write = write_of(req, kind, &options, "PatchOptions");
    let (manager, now) = (write.manager.clone(), write.now);
    // The patch is made anew after each conflict; the warnings are those of the last time.
    let warnings = Mutex::new(Vec::new());
    let warn = |notes: Vec<String>| {
        if let Ok(mut warnings) = warnings.lock() {
            *warnings = notes;
        }
    };
    if apply {
        let force = options.force.unwrap_or(false);
        let make = |old: Option<&Value>, _: &OtherVersions| {
            let old =
                old.ok_or_else(|| ApiError::not_found(&kind.gvk.group, &kind.plural, &req.info.name))?;
            let scale = machine::parse_apply(&req.body)?;
            machine::check_apply(own, &scale)?;
            let live = owned_scale(kind, old);
            let scale = machine::apply(own, Some(&live), &scale, &manager, "scale", force, now)?;
            warn(machine::strict_apply(&req.body, options.field_validation)?);
            with_owned(kind, old, &scale)
        };
        let result = pipeline::update(&mut write, Change::Apply(&make)).await;
        req.warnings.extend(warnings.into_inner().unwrap_or_default());
        req.warnings.append(&mut write.warnings);
        return result?.into_object(&req.server, kind).await;
    }
    let body = req.body.clone();
    let make = |old: &Value| {
        let live = owned_scale(kind, old);
        let (mut scale, notes) =
            machine::apply_patch(own, patch_type, &body, &live, options.field_validation)?;
        warn(notes);
        machine::own_update(own, Some(&live), &mut scale, &manager, "scale", now)?;
        with_owned(kind, old, &scale)
    };
    let result = pipeline::update(&mut write, Change::Patch(&make)).await;
    req.warnings.extend(warnings.into_inner().unwrap_or_default());
    req.warnings.append(&mut write.warnings);
    result?.into_object(&req.server, kind).await
}
