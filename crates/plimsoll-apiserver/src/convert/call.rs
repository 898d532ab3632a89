//! One call of a conversion webhook.

use std::time::Duration;

use plimsoll_apimachinery::crd::{Conversion, ConversionRequest};
use plimsoll_apimachinery::webhook::http_error;
use plimsoll_apimachinery::{ApiError, Gvk};
use serde_json::Value;

use crate::store::Store;
use crate::webhook_client;

/// Time of one call, in seconds (`defaultTimeoutSeconds` of webhook clients).
const TIMEOUT: u32 = 30;

/// Converts objects to a version by a webhook.
///
/// # Errors
/// 500 with upstream's message when the webhook fails.
pub(super) async fn ask(
    store: &Store,
    hook: &Conversion,
    target: &str,
    objects: &[Value],
) -> Result<Vec<Value>, ApiError> {
    let error = |message: String| ApiError::new(500, "", message);
    let uid = uuid::Uuid::new_v4().to_string();
    let from = objects.first().map(kind_of).unwrap_or_default();
    let request = ConversionRequest { from: &from, to: target, uid: &uid, objects };
    let review = hook.review(&request).map_err(error)?;
    let url = plimsoll_apimachinery::webhook::url(&hook.client, TIMEOUT);
    let limit = Duration::from_secs(u64::from(TIMEOUT));
    let failed = |why: &str| {
        let kind = format!("{}, Kind={}", from.api_version(), from.kind);
        error(format!("conversion webhook for {kind} failed: {why}"))
    };
    match webhook_client::post(store, &url, &hook.client, &review, limit).await {
        Ok(answer) => hook.interpret(&request, &answer).map_err(error),
        Err(webhook_client::Failure::Status(status)) => {
            let why = http_error(status);
            Err(failed(why.strip_prefix("failed to call webhook: ").unwrap_or(&why)))
        }
        Err(webhook_client::Failure::Unreachable(why)) => Err(failed(&format!("Post {url:?}: {why}"))),
    }
}

fn kind_of(object: &Value) -> Gvk {
    let (group, version) = object["apiVersion"].as_str().and_then(|v| v.split_once('/')).unwrap_or_default();
    Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object["kind"].as_str().unwrap_or("").to_owned(),
    }
}
