//! PATCH: which kind of patch, and how it makes the new state.

use std::sync::Arc;

use http::header;
use plimsoll_apimachinery::apply::Served;
use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::Value;

use super::Req;
use super::endpoint::write_of;
use super::options::WriteOptions;
use super::present::present_written;
use super::reply::Reply;
use crate::convert::versions::OtherVersions;
use crate::machine::{self, PatchType};
use crate::pipeline::{self, Change};

/// The type of a patch from its content type.
///
/// # Errors
/// 415.
pub fn patch_type(req: &Req, kind: &Kind) -> Result<PatchType, ApiError> {
    let media = req.header(header::CONTENT_TYPE).unwrap_or("").split(';').next().unwrap_or("").trim();
    match media {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if kind.custom.is_none() => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ if kind.custom.is_some() => Err(machine::unsupported_patch()),
        _ => {
            let mut e = ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            e.details = Some(Box::default());
            Err(e)
        }
    }
}

/// Answers a PATCH of an object or of a subresource that is written as the object is (`status`).
pub async fn patch(req: &mut Req, kind: &Arc<Kind>, patch_type: PatchType) -> Result<Reply, ApiError> {
    let options = WriteOptions::parse(&req.query, "PatchOptions", patch_type == PatchType::Apply)?;
    let mut write = write_of(
        req,
        kind,
        &options,
        if req.info.verb == "create" { "CreateOptions" } else { "UpdateOptions" },
    );
    if patch_type == PatchType::Apply {
        return apply(req, kind, &options, write).await;
    }
    let body = req.body.clone();
    let warnings = std::sync::Mutex::new(Vec::new());
    let make = |old: &Value| {
        let (mut new, notes) = machine::apply_patch(kind, patch_type, &body, old, options.field_validation)?;
        machine::default(kind, &mut new);
        if let Ok(mut warnings) = warnings.lock() {
            *warnings = notes;
        }
        Ok(new)
    };
    let result = pipeline::update(&mut write, Change::Patch(&make)).await;
    req.warnings.extend(warnings.into_inner().unwrap_or_default());
    req.warnings.append(&mut write.warnings);
    present_written(req, kind, result?).await
}

async fn apply(
    req: &mut Req,
    kind: &Arc<Kind>,
    options: &WriteOptions,
    mut write: pipeline::Write,
) -> Result<Reply, ApiError> {
    let body = req.body.clone();
    let warnings = std::sync::Mutex::new(Vec::new());
    let (manager, now, sub) = (write.manager.clone(), write.now, write.subresource.clone());
    let force = options.force.unwrap_or(false);
    let make = |old: Option<&Value>, versions: &OtherVersions| {
        let intent = machine::parse_apply(&body)?;
        let served = Served { kind, versions: Some(versions) };
        let object = machine::apply(served, old, &intent, &manager, &sub, force, now)?;
        let notes = machine::strict_apply(&body, options.field_validation)?;
        if let Ok(mut warnings) = warnings.lock() {
            *warnings = notes;
        }
        Ok(object)
    };
    let result = pipeline::update(&mut write, Change::Apply(&make)).await;
    req.warnings.extend(warnings.into_inner().unwrap_or_default());
    req.warnings.append(&mut write.warnings);
    present_written(req, kind, result?).await
}
