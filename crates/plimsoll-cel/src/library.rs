//! Functions of CEL and of Kubernetes' libraries: the interpreter's implementations, and the types of their results.

use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value};

use crate::environment::Type;

static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Namespaces of functions (`math.abs`).
const NAMESPACES: &[&str] =
    &["math", "sets", "optional", "lists", "base64", "strings", "ip", "format", "jsonpatch", "cel"];

/// Names of types, as expressions have them.
const TYPES: &[&str] =
    &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// Whether a name is that of a type.
pub(crate) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

/// The name of a namespace of functions, if an expression is one.
pub(crate) fn namespace(expr: &IdedExpr) -> Option<&str> {
    ident(expr).filter(|name| NAMESPACES.contains(name))
}

/// The name, if an expression is one.
pub(crate) fn ident(expr: &IdedExpr) -> Option<&str> {
    match &expr.expr {
        Expr::Ident(name) => Some(name),
        _ => None,
    }
}

/// The number of arguments that name variables, for methods that are macros which the parser leaves as calls.
pub(crate) fn macro_variables(method: &str, args: usize) -> usize {
    match (method, args) {
        ("optMap" | "optFlatMap" | "sortBy", 2) => 1,
        ("all" | "exists" | "existsOne" | "exists_one", 3) => 2,
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => 2,
        _ => 0,
    }
}

/// Calls a function of the library. `namespace`: that of the function; `method`: the first value is the receiver.
pub(crate) fn call(
    name: &str,
    namespace: Option<&str>,
    method: bool,
    values: Vec<Value>,
) -> Result<Value, ExecutionError> {
    let mut scope = FUNCTIONS.new_inner_scope();
    let ident = |name: String| IdedExpr { id: 0, expr: Expr::Ident(name) };
    let mut args = Vec::with_capacity(values.len());
    for (i, value) in values.into_iter().enumerate() {
        let name = format!("@{i}");
        scope.add_variable_from_value(name.as_str(), value);
        args.push(ident(name));
    }
    let target = match namespace {
        Some(space) => Some(Box::new(ident(space.to_owned()))),
        None if method && !args.is_empty() => Some(Box::new(args.remove(0))),
        None => None,
    };
    let call = Expr::Call(CallExpr { func_name: name.to_owned(), target, args });
    Value::resolve(&IdedExpr { id: 0, expr: call }, &scope)
}

/// Calls a function of one string (`timestamp`, `quantity`).
pub(crate) fn of_string(name: &str, text: &str) -> Result<Value, ExecutionError> {
    call(name, None, false, vec![Value::String(Arc::new(text.to_owned()))])
}

/// The type of a function's or method's result, whatever its arguments are; `None`: there is no such function. The
/// methods of the authorizer are among them, because Kubernetes' base environment declares them everywhere
/// (`k8s.io/apiserver/pkg/cel/environment`, `baseOpts`); an [`Activation`](crate::Activation) implements them.
pub(crate) fn result_type(name: &str) -> Option<Type> {
    Some(match name {
        "contains"
        | "startsWith"
        | "endsWith"
        | "matches"
        | "isURL"
        | "isQuantity"
        | "isInteger"
        | "isLessThan"
        | "isGreaterThan"
        | "isIP"
        | "isCIDR"
        | "containsIP"
        | "containsCIDR"
        | "isSorted"
        | "hasValue"
        | "isSemver"
        | "bool"
        | "allowed"
        | "errored"
        | "isCanonical"
        | "isLoopback"
        | "isUnspecified"
        | "isGlobalUnicast"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "intersects"
        | "equivalent"
        | "isNaN"
        | "isInf"
        | "isFinite" => Type::Bool,
        "size" | "lastIndexOf" | "compareTo" | "int" | "asInteger" | "prefixLength" | "major" | "minor"
        | "patch" | "family" | "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
        | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" | "indexOf" => {
            Type::Int
        }
        "string" | "charAt" | "join" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim"
        | "format" | "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" | "find"
        | "quote" | "reason" | "error" | "encode" | "escapeKey" => Type::String,
        "split" | "findAll" => Type::list(Type::String),
        "dyn" => Type::Dyn,
        "uint" => Type::Uint,
        "double" | "asApproximateFloat" => Type::Double,
        "bytes" | "decode" => Type::Bytes,
        name if depends_on_arguments(name) => Type::Unknown,
        _ => return None,
    })
}

/// Whether a function's result has a type that depends on its arguments, or one that the check doesn't follow.
fn depends_on_arguments(name: &str) -> bool {
    matches!(
        name,
        "abs"
            | "add"
            | "bitAnd"
            | "bitNot"
            | "bitOr"
            | "bitShiftLeft"
            | "bitShiftRight"
            | "bitXor"
            | "byte"
            | "ceil"
            | "check"
            | "cidr"
            | "date"
            | "datetime"
            | "distinct"
            | "dns1035Label"
            | "dns1035LabelPrefix"
            | "dns1123Label"
            | "dns1123LabelPrefix"
            | "dns1123Subdomain"
            | "dns1123SubdomainPrefix"
            | "duration"
            | "fieldSelector"
            | "first"
            | "flatten"
            | "floor"
            | "getQuery"
            | "greatest"
            | "group"
            | "ip"
            | "labelSelector"
            | "labelValue"
            | "last"
            | "least"
            | "masked"
            | "max"
            | "min"
            | "name"
            | "named"
            | "namespace"
            | "none"
            | "of"
            | "ofNonZeroValue"
            | "or"
            | "orValue"
            | "path"
            | "qualifiedName"
            | "quantity"
            | "range"
            | "resource"
            | "reverse"
            | "round"
            | "semver"
            | "serviceAccount"
            | "sign"
            | "slice"
            | "sort"
            | "sqrt"
            | "sub"
            | "subresource"
            | "sum"
            | "timestamp"
            | "trunc"
            | "type"
            | "uri"
            | "url"
            | "uuid"
            | "validate"
            | "value"
    )
}
