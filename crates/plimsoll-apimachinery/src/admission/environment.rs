//! The typed variables of expressions about a request
//! (`k8s.io/apiserver/pkg/admission/plugin/cel/compile.go`).

use std::sync::LazyLock;

use plimsoll_cel::{Environment, ObjectType, Type};

/// The variables that every expression has.
static BASE: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", request())
        .variable("namespaceObject", namespace())
});

/// The variables of an expression, with or without `params` and `authorizer`.
pub(crate) fn environment(params: bool, authorizer: bool) -> Environment {
    let mut environment = BASE.clone();
    if params {
        environment = environment.variable("params", Type::Dyn);
    }
    if authorizer {
        environment = environment
            .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
            .variable("authorizer.requestResource", Type::Opaque("kubernetes.authorization.ResourceCheck"));
    }
    environment
}

/// `kubernetes.AdmissionRequest` (`BuildRequestType`).
fn request() -> Type {
    let gvk = Type::object(ObjectType::new(
        "kubernetes.GroupVersionKind",
        [("group", Type::String), ("version", Type::String), ("kind", Type::String)],
    ));
    let gvr = Type::object(ObjectType::new(
        "kubernetes.GroupVersionResource",
        [("group", Type::String), ("version", Type::String), ("resource", Type::String)],
    ));
    let user = Type::object(ObjectType::new(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::list(Type::String))),
        ],
    ));
    Type::object(ObjectType::new(
        "kubernetes.AdmissionRequest",
        [
            ("kind", gvk.clone()),
            ("resource", gvr.clone()),
            ("subResource", Type::String),
            ("requestKind", gvk),
            ("requestResource", gvr),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    ))
}

/// `kubernetes.Namespace` (`BuildNamespaceType`).
fn namespace() -> Type {
    let metadata = Type::object(ObjectType::new(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", Type::map(Type::String)),
            ("annotations", Type::map(Type::String)),
            ("UID", Type::String),
            ("creationTimestamp", Type::Unknown),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Unknown),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", Type::list(Type::String)),
        ],
    ));
    let spec = ObjectType::new("kubernetes.NamespaceSpec", [("finalizers", Type::list(Type::String))]);
    let status = ObjectType::new(
        "kubernetes.NamespaceStatus",
        [("conditions", Type::Unknown), ("phase", Type::String)],
    );
    Type::object(ObjectType::new(
        "kubernetes.Namespace",
        [("metadata", metadata), ("spec", Type::object(spec)), ("status", Type::object(status))],
    ))
}
