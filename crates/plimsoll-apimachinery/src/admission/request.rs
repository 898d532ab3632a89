//! A request as expressions see it.

use plimsoll_cel::{Evaluated, Value, from_json};
use serde_json::Value as Json;

use super::attributes::{Attributes, Target};
use super::authorizer::{self, AccessCheck};

/// A request as expressions see it: made once for all policies that match it as the same version.
pub struct Request {
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
    resource: AccessCheck,
}

impl Request {
    /// A request that was matched as `target`, with its objects in that version. `namespace`: the Namespace it is
    /// in, null for none.
    pub fn new(
        attributes: &Attributes,
        target: &Target,
        object: &Json,
        old: &Json,
        namespace: &Json,
    ) -> Self {
        let at = attributes.target.resource_version.as_ref().unwrap_or(&attributes.target.gvk);
        Self {
            object: from_json(object),
            old: from_json(old),
            request: from_json(&Json::Object(attributes.fields(target))),
            namespace: from_json(&exposed(namespace)),
            resource: AccessCheck {
                group: at.group.clone(),
                resource: attributes.target.plural.clone(),
                subresource: attributes.subresource.clone(),
                namespace: attributes.namespace.clone(),
                name: attributes.name.clone(),
                ..AccessCheck::default()
            },
        }
    }

    /// The Namespace of the request, null for none.
    pub(crate) fn namespace(&self) -> Value {
        self.namespace.clone()
    }

    /// The variables of every expression about a request ([`Activation::resolve`](plimsoll_cel::Activation::resolve)).
    pub(crate) fn resolve(&self, name: &str) -> Option<Value> {
        Some(match name {
            "object" => self.object.clone(),
            "oldObject" => self.old.clone(),
            "request" => self.request.clone(),
            "authorizer" => authorizer::variable(),
            _ => return None,
        })
    }

    /// The qualified variables ([`Activation::select`](plimsoll_cel::Activation::select)).
    pub(crate) fn select(&self, variable: &str, field: &str) -> Option<Evaluated> {
        match (variable, field) {
            ("authorizer", "requestResource") => {
                Some(Ok(authorizer::request_resource(self.resource.clone())))
            }
            _ => None,
        }
    }
}

/// The fields of a Namespace that expressions see (`k8s.io/apiserver/pkg/admission/plugin/cel`,
/// `CreateNamespaceObject`).
fn exposed(namespace: &Json) -> Json {
    let mut seen = namespace.clone();
    if let Some(meta) = seen.get_mut("metadata").and_then(Json::as_object_mut) {
        for hidden in ["managedFields", "ownerReferences", "selfLink"] {
            meta.remove(hidden);
        }
    }
    seen
}
