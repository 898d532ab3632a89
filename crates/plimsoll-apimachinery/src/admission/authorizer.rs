//! The variable `authorizer` of expressions: checks that an expression builds step by step
//! (`k8s.io/apiserver/pkg/cel/library/authz.go`).

use std::sync::Arc;

use plimsoll_cel::{Budget, EvalError, Evaluated, Opaque, Value};

/// Cost of one check (`k8s.io/apiserver/pkg/cel/library/cost.go`, `CallCost`).
const CHECK_COST: u64 = 350_000;

/// An access check of an expression (`authorizer.AttributesRecord`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessCheck {
    /// Namespace and name of the ServiceAccount to check; `None`: the user of the request.
    pub service_account: Option<(String, String)>,
    /// Path of a request for no resource.
    pub path: Option<String>,
    /// Verb.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Resource, its plural name.
    pub resource: String,
    /// Subresource, possibly empty.
    pub subresource: String,
    /// Namespace, possibly empty.
    pub namespace: String,
    /// Name of the object, possibly empty.
    pub name: String,
}

/// The decision of the authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user has access.
    pub allowed: bool,
    /// The rule that allows it, or why none does.
    pub reason: String,
}

/// Decides access checks of expressions.
pub type Authorize<'a> = &'a dyn Fn(&AccessCheck) -> Decision;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Authorizer(AccessCheck),
    Path(AccessCheck),
    Group(AccessCheck),
    Resource(AccessCheck),
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

/// The variable `authorizer`.
pub fn variable() -> Value {
    made(Step::Authorizer(AccessCheck::default()))
}

/// The variable `authorizer.requestResource`: a check of the resource of a request.
pub fn request_resource(of: AccessCheck) -> Value {
    made(Step::Resource(of))
}

/// Calls a method of a value that [`variable`] or one of its methods made; `None`: `target` is no such value.
pub fn call(
    target: &dyn Opaque,
    name: &str,
    args: &[Value],
    authorize: Authorize<'_>,
    budget: &mut Budget,
) -> Option<Evaluated> {
    let step = target.downcast_ref::<Step>()?;
    let mut texts = Vec::with_capacity(args.len());
    for arg in args {
        let Value::String(text) = arg else { return Some(no_such_overload()) };
        texts.push(text.as_str());
    }
    let charged = budget.charge(if name == "check" { CHECK_COST } else { 1 });
    Some(charged.and_then(|()| method(step, name, &texts, authorize)))
}

fn error<T>(text: String) -> Result<T, EvalError> {
    Err(EvalError::Error(text))
}

fn no_such_overload() -> Evaluated {
    error("no such overload".to_owned())
}

fn method(step: &Step, name: &str, args: &[&str], authorize: Authorize<'_>) -> Evaluated {
    let filled = |what: &str, text: &str| {
        if text.trim().is_empty() { error(format!("{what} must not be empty")) } else { Ok(text.to_owned()) }
    };
    Ok(match (step, name, args) {
        (Step::Authorizer(check), "serviceAccount", [namespace, name]) => {
            let service_account = Some(((*namespace).to_owned(), (*name).to_owned()));
            for (what, text) in [("namespace", namespace), ("name", name)] {
                if !crate::validate::is_subdomain(text) {
                    return error(format!("Invalid service account {what}"));
                }
            }
            made(Step::Authorizer(AccessCheck { service_account, ..check.clone() }))
        }
        (Step::Authorizer(check), "path", [path]) => {
            made(Step::Path(AccessCheck { path: Some(filled("path", path)?), ..check.clone() }))
        }
        (Step::Authorizer(check), "group", [group]) => {
            made(Step::Group(AccessCheck { group: (*group).to_owned(), ..check.clone() }))
        }
        (Step::Group(check), "resource", [resource]) => {
            made(Step::Resource(AccessCheck { resource: filled("resource", resource)?, ..check.clone() }))
        }
        (Step::Resource(check), "subresource", [text]) => {
            made(Step::Resource(AccessCheck { subresource: (*text).to_owned(), ..check.clone() }))
        }
        (Step::Resource(check), "namespace", [text]) => {
            made(Step::Resource(AccessCheck { namespace: (*text).to_owned(), ..check.clone() }))
        }
        (Step::Resource(check), "name", [text]) => {
            made(Step::Resource(AccessCheck { name: (*text).to_owned(), ..check.clone() }))
        }
        // RBAC ignores selectors (KEP-4601), so they don't change the decision.
        (Step::Resource(check), "fieldSelector" | "labelSelector", [_]) => {
            made(Step::Resource(check.clone()))
        }
        (Step::Resource(check) | Step::Path(check), "check", [verb]) => {
            let check = AccessCheck { verb: (*verb).to_owned(), ..check.clone() };
            made(Step::Decision(authorize(&check)))
        }
        (Step::Decision(decision), "allowed", []) => Value::Bool(decision.allowed),
        (Step::Decision(decision), "reason", []) => Value::from(decision.reason.as_str()),
        (Step::Decision(_), "errored", []) => Value::Bool(false),
        (Step::Decision(_), "error", []) => Value::from(""),
        _ => return no_such_overload(),
    })
}
