//! What the API server refuses of a ResourceClaim's status (Kubernetes `pkg/apis/resource/validation/validation.go`,
//! `validateResourceClaimStatusUpdate`).

use serde_json::Value;

use super::{ApiError, deleting, list};

/// Most pods that a claim is reserved for (`ResourceClaimReservedForMaxSize`).
const MOST: usize = 256;

/// Whether a claim may become this from what it was.
///
/// # Errors
/// Why it may not.
pub fn validate(old: &Value, new: &Value) -> Result<(), ApiError> {
    let (before, after) = (&old["status"]["allocation"], &new["status"]["allocation"]);
    let reserved = list(new, &["status", "reservedFor"]);
    let known = |r: &Value| list(old, &["status", "reservedFor"]).iter().any(|o| o["uid"] == r["uid"]);
    let refused = |why: &str| Err(ApiError::new(422, format!("ResourceClaim: {why}")));
    if reserved.len() > MOST {
        return refused("status.reservedFor: Too many");
    }
    if !reserved.is_empty() && after.is_null() {
        return refused("status.reservedFor: Forbidden: may not be specified when `allocated` is not set");
    }
    if !before.is_null() && !after.is_null() && before != after {
        return refused("status.allocation: Invalid value: field is immutable");
    }
    if deleting(old) && before.is_null() && !after.is_null() {
        return refused("status.allocation: Forbidden: must not be set when the claim is being deleted");
    }
    if deleting(old) && !reserved.iter().all(known) {
        return refused(
            "status.reservedFor: Forbidden: new reservations are not allowed when the claim is being deleted",
        );
    }
    Ok(())
}
