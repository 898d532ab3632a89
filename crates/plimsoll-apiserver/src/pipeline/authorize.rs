//! Authorization of what a request turns into on its way.

use plimsoll_apimachinery::ApiError;

use super::Write;
use crate::auth::{self, Attributes};

/// Authorizes the creation that a PUT or an apply patch has become (`withAuthorization` in
/// `k8s.io/apiserver/pkg/endpoints/handlers/update.go`). Requests that were authorized as `create` pass.
///
/// # Errors
/// 403 in the words of the authorization filter.
pub fn creation(w: &Write) -> Result<(), ApiError> {
    if w.may_create {
        return Ok(());
    }
    let what = Attributes {
        is_resource: true,
        verb: "create".to_owned(),
        group: w.kind.gvk.group.clone(),
        resource: w.kind.plural.clone(),
        subresource: w.subresource.clone(),
        namespace: namespace_of(w),
        name: w.name.clone(),
        path: String::new(),
    };
    let decision = w.server.rbac().authorize(&w.user, &what);
    if decision.allowed { Ok(()) } else { Err(auth::forbidden(&w.user, &what, &decision.reason)) }
}

/// The namespace in the path of the request: a Namespace is in itself there (`RequestInfo`).
fn namespace_of(w: &Write) -> String {
    let own = w.kind.gvk.group.is_empty() && w.kind.plural == "namespaces";
    if own {
        return w.name.clone();
    }
    if w.kind.namespaced { w.namespace.clone() } else { String::new() }
}
