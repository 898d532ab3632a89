//! `authorizer` (apiserver `cel/library/authz.go`): checks that are built step by step and asked of the scope.

use std::sync::Arc;

use kube_cel::cel::objects::Opaque;

use super::{Evaluated, Fail, Scope, Value};

/// Cost of one check, as upstream's estimate has it.
pub(super) const CHECK_COST: u64 = 350_000;

/// What the authorizer is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Namespace and name of the ServiceAccount who is meant; `None`: the user of the request.
    pub service_account: Option<(String, String)>,
    /// Path of a request that is for no resource.
    pub path: Option<String>,
    /// Verb.
    pub verb: String,
    /// Group.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be done.
    pub allowed: bool,
    /// Why.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Authorizer(Asked),
    Path(Asked),
    Group(Asked),
    Resource(Asked),
    Decision(Decision),
}

impl Opaque for Step {
    fn runtime_type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::Path(_) => "kubernetes.authorization.PathCheck",
            Self::Group(_) => "kubernetes.authorization.GroupCheck",
            Self::Resource(_) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

fn made(step: Step) -> Value {
    Value::Opaque(Arc::new(step))
}

/// The variable itself.
pub(super) fn root() -> Value {
    made(Step::Authorizer(Asked::default()))
}

/// A check of a resource.
pub(super) fn resource(asked: Asked) -> Value {
    made(Step::Resource(asked))
}

/// A method of one of its values; `None`: it is none.
pub(super) fn call(
    target: &dyn Opaque,
    name: &str,
    args: &[Value],
    scope: &mut dyn Scope,
) -> Option<Evaluated> {
    let step = target.downcast_ref::<Step>()?;
    let mut texts = Vec::with_capacity(args.len());
    for arg in args {
        let Value::String(text) = arg else { return Some(Fail::overload()) };
        texts.push(text.as_str());
    }
    Some(method(step, name, &texts, scope))
}

fn method(step: &Step, name: &str, args: &[&str], scope: &mut dyn Scope) -> Evaluated {
    let filled = |what: &str, text: &str| {
        if text.trim().is_empty() {
            Fail::error(format!("{what} must not be empty"))
        } else {
            Ok(text.to_owned())
        }
    };
    Ok(match (step, name, args) {
        (Step::Authorizer(asked), "serviceAccount", [namespace, name]) => {
            let service_account = Some(((*namespace).to_owned(), (*name).to_owned()));
            for (what, text) in [("namespace", namespace), ("name", name)] {
                if !crate::validate::is_subdomain(text) {
                    return Fail::error(format!("Invalid service account {what}"));
                }
            }
            made(Step::Authorizer(Asked { service_account, ..asked.clone() }))
        }
        (Step::Authorizer(asked), "path", [path]) => {
            made(Step::Path(Asked { path: Some(filled("path", path)?), ..asked.clone() }))
        }
        (Step::Authorizer(asked), "group", [group]) => {
            made(Step::Group(Asked { group: (*group).to_owned(), ..asked.clone() }))
        }
        (Step::Group(asked), "resource", [resource]) => {
            made(Step::Resource(Asked { resource: filled("resource", resource)?, ..asked.clone() }))
        }
        (Step::Resource(asked), "subresource", [text]) => {
            made(Step::Resource(Asked { subresource: (*text).to_owned(), ..asked.clone() }))
        }
        (Step::Resource(asked), "namespace", [text]) => {
            made(Step::Resource(Asked { namespace: (*text).to_owned(), ..asked.clone() }))
        }
        (Step::Resource(asked), "name", [text]) => {
            made(Step::Resource(Asked { name: (*text).to_owned(), ..asked.clone() }))
        }
        // Roles know nothing of selectors: what they limit is allowed or not all the same.
        (Step::Resource(asked), "fieldSelector" | "labelSelector", [_]) => {
            made(Step::Resource(asked.clone()))
        }
        (Step::Resource(asked) | Step::Path(asked), "check", [verb]) => {
            let asked = Asked { verb: (*verb).to_owned(), ..asked.clone() };
            made(Step::Decision(scope.authorize(&asked)))
        }
        (Step::Decision(decision), "allowed", []) => Value::Bool(decision.allowed),
        (Step::Decision(decision), "reason", []) => Value::from(decision.reason.as_str()),
        (Step::Decision(_), "errored", []) => Value::Bool(false),
        (Step::Decision(_), "error", []) => Value::from(""),
        _ => return Fail::overload(),
    })
}
