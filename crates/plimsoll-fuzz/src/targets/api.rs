//! What the API server reads from the network: bodies, patches, applied configurations, expressions.

use std::sync::LazyLock;

use plimsoll_apimachinery::admission::authorizer::{self, Decision};
use plimsoll_apimachinery::decode::{self, FieldValidation, Format};
use plimsoll_apimachinery::{Gvk, Kind, KindTable, apply, builtin, default, patch, proto, validate};
use plimsoll_cel::{Activation, Budget, Environment, Evaluated, Opaque, Program, Type, from_json};
use serde_json::{Value, json};

static TABLE: LazyLock<KindTable> = LazyLock::new(builtin::table);

/// A time for managed fields.
const NOW: &str = "2026-01-01T00:00:00Z";

/// Kinds that a body is read as when it doesn't name one that is served.
const KINDS: [(&str, &str, &str); 4] =
    [("", "v1", "pods"), ("", "v1", "services"), ("batch", "v1", "jobs"), ("apps", "v1", "deployments")];

/// An object that patches and applied configurations meet.
static LIVE: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "b", "labels": {"x": "y"}, "finalizers": ["k.io/f"], "managedFields": [
            {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": NOW,
             "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}]},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            {"name": "d", "image": "j", "env": [{"name": "E", "value": "1"}]}],
            "tolerations": [{"key": "t", "operator": "Exists"}]},
    })
});

/// The kinds to read a body as.
fn kinds(object: Option<&Value>) -> Vec<&'static Kind> {
    let text = |key: &str| object.and_then(|o| o[key].as_str()).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let gvk = Gvk { group: group.into(), version: version.into(), kind: text("kind").into() };
    match TABLE.kind(&gvk) {
        Some(kind) => vec![kind],
        None => KINDS.iter().filter_map(|(g, v, p)| TABLE.resource(g, v, p).map(|k| &**k)).collect(),
    }
}

/// Decodes a body as JSON or YAML, fills in defaults and validates; what has a protobuf form must survive it.
pub fn body(bytes: &[u8]) {
    let object: Option<Value> = serde_json::from_slice(bytes).ok();
    let format = if object.is_some() { Format::Json } else { Format::Yaml };
    for kind in kinds(object.as_ref()) {
        for validation in [FieldValidation::Strict, FieldValidation::Warn] {
            let Ok(decoded) = decode::decode(kind, bytes, format, validation) else { continue };
            let mut object = decoded.object;
            default::apply_defaults(kind, &mut object);
            let _ = validate::validate_create(kind, &object);
            let _ = validate::validate_update(kind, "", &LIVE, &object);
            let _ = proto::encode(&kind.gvk, &object).map(|b| proto::decode_body(&b));
        }
    }
}

/// Decodes a protobuf body, whose JSON form must be stable from then on.
pub fn protobuf(bytes: &[u8]) {
    let Ok(object) = proto::decode_body(bytes) else { return };
    let Some(kind) = kinds(Some(&object)).first().copied() else { return };
    let Some(again) = proto::encode(&kind.gvk, &object) else { return };
    if let Ok(second) = proto::decode_body(&again)
        && let Some(third) = proto::encode(&kind.gvk, &second)
    {
        assert_eq!(proto::decode_body(&third).ok().as_ref(), Some(&second), "a message changes each time");
    }
}

/// Applies the body as each kind of patch.
pub fn patches(bytes: &[u8]) {
    let Some(kind) = TABLE.resource("", "v1", "pods") else { return };
    let _ = patch::json(&LIVE, bytes);
    let merged = patch::merge(&LIVE, bytes);
    let strategic =
        kind.schema.as_ref().map(|schema| patch::strategic(schema, &LIVE, bytes).map(|m| m.document));
    for object in [Some(merged), strategic].into_iter().flatten().flatten() {
        if let Ok(conformed) = decode::conform(kind, object) {
            let _ = validate::validate_update(kind, "", &LIVE, &conformed.object);
        }
    }
}

/// Applies the body server-side, to nothing and to an object, twice by the same manager.
pub fn applied(bytes: &[u8]) {
    let Ok(config) = serde_json::from_slice::<Value>(bytes) else { return };
    for kind in kinds(Some(&config)) {
        let live = (kind.plural == "pods").then_some(&*LIVE);
        for (live, force) in [(None, false), (live, false), (live, true)] {
            let Ok(object) = apply::apply(kind, "", live, &config, "fuzz", force, NOW) else { continue };
            let _ = apply::apply(kind, "", Some(&object), &config, "fuzz", false, NOW);
            let _ = apply::apply(kind, "", Some(&object), &json!({"metadata": {}}), "other", true, NOW);
        }
    }
}

/// The variables of a policy's and of a rule's expressions.
struct Live;

impl Activation for Live {
    fn resolve(&mut self, name: &str) -> Option<plimsoll_cel::Value> {
        match name {
            "object" | "self" => Some(from_json(&LIVE)),
            "oldSelf" => Some(from_json(&json!([1, 2.5, "a", null, {"b": true}]))),
            "authorizer" => Some(authorizer::variable()),
            _ => None,
        }
    }

    fn call(
        &mut self,
        target: &dyn Opaque,
        method: &str,
        args: &[plimsoll_cel::Value],
        budget: &mut Budget,
    ) -> Option<Evaluated> {
        authorizer::call(target, method, args, &|_| Decision::default(), budget)
    }
}

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .variable("object", Type::Dyn)
        .variable("oldSelf", Type::list(Type::Dyn))
        .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
        .scope("variables")
});

/// Compiles an expression, with and without a type check, and evaluates it.
pub fn expression(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(program) = Program::parse(text) else { return };
    let _ = Program::compile(text, &ENVIRONMENT);
    let _ = program.evaluate(&mut Live, &mut Budget::new(100_000));
}
