//! OwnerReferencesPermissionEnforcement (`plugin/pkg/admission/gc`): a user that sets owners can delete the object, and one that lets it
//! hold up the deletion of an owner can set the finalizers of that one.

use plimsoll_apimachinery::{ApiError, Gvk};
use serde_json::Value;

use super::{Operation, forbidden, resource_group};
use crate::auth::Attributes;
use crate::write::Write;

/// Refuses owners that the user may not set.
///
/// # Errors
/// 403 with upstream's words.
pub fn check(w: &Write, object: &Value, old: Option<&Value>, operation: Operation) -> Result<(), ApiError> {
    let group = resource_group(w);
    // Kubelets of old corrupt them; the strategy keeps what was there.
    let ignored = group.is_empty() && w.kind.plural == "pods" && w.subresource == "status";
    let (new, old) = (owners(object), old.map_or(&[][..], owners));
    if !matches!(operation, Operation::Create | Operation::Update) || ignored || new == old {
        return Ok(());
    }
    if operation == Operation::Update {
        let delete = Attributes {
            subresource: w.subresource.clone(),
            namespace: w.namespace.clone(),
            ..attributes("delete", group, &w.kind.plural, &w.name)
        };
        if let Some(reason) = denied(w, &delete) {
            let why = format!("cannot set an ownerRef on a resource you can't delete: {reason}, <nil>");
            return Err(forbidden(w, object, &why));
        }
    }
    let was_blocking = |owner: &Value| {
        let before = old.iter().rev().find(|o| o["uid"] == owner["uid"]);
        before.is_some_and(|o| o["blockOwnerDeletion"] == true)
    };
    let blocking = new.iter().filter(|o| o["blockOwnerDeletion"] == true && !was_blocking(o));
    let blocking: Vec<&Value> = blocking.collect();
    if blocking.is_empty() || denied(w, &finalizers("*", "*", "*")).is_none() {
        return Ok(());
    }
    blocking.into_iter().try_for_each(|owner| may_finalize(w, object, owner))
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

fn attributes(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
    Attributes {
        is_resource: true,
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

fn finalizers(group: &str, resource: &str, name: &str) -> Attributes {
    Attributes { subresource: "finalizers".to_owned(), ..attributes("update", group, resource, name) }
}

/// Why the user may not do it; `None`: it may be done.
fn denied(w: &Write, what: &Attributes) -> Option<String> {
    let decision = w.server.rbac().authorize(&w.user, what);
    (!decision.allowed).then_some(decision.reason)
}

fn may_finalize(w: &Write, object: &Value, owner: &Value) -> Result<(), ApiError> {
    let text = |field: &str| owner[field].as_str().unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() };
    let Some(kind) = w.table.kind(&gvk) else {
        let (version, kind) = (text("apiVersion"), text("kind"));
        let why = format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind \
             {kind}: no matches for kind \"{kind}\" in version \"{version}\""
        );
        return Err(forbidden(w, object, &why));
    };
    let mut what = finalizers(group, &kind.plural, text("name"));
    if kind.namespaced {
        what.namespace.clone_from(&w.namespace);
    }
    match denied(w, &what) {
        None => Ok(()),
        Some(reason) => {
            let why = format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: \
                 {reason}, <nil>"
            );
            Err(forbidden(w, object, &why))
        }
    }
}
