//! PUT of an object, or of a part of it that is a subresource.

use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Kind};

use super::endpoint::{decode, write_of};
use super::options::WriteOptions;
use super::present::present_written;
use super::reply::Reply;
use super::{Req, body_format};
use crate::machine;
use crate::pipeline::{self, Change};

/// Replaces the object, or the part of it that the subresource of the request is.
pub(super) async fn update(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    body_format(req, machine::has_protobuf(kind))?;
    let options = WriteOptions::parse(&req.query, "UpdateOptions", false)?;
    let mut object = decode(req, kind, &options)?;
    let mut write = write_of(req, kind, &options, "UpdateOptions");
    pipeline::check_identity(&write, &mut object)?;
    let result = pipeline::update(&mut write, Change::Replace(object)).await;
    req.warnings.append(&mut write.warnings);
    present_written(req, kind, result?).await
}
