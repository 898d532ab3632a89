//! The review kinds: objects that are only created, never stored, and carry an answer in their status.

use plimsoll_apimachinery::{ApiError, FieldError, Kind};
use serde_json::{Value, json};

use super::tokens::ISSUER;
use super::{Attributes, Rbac, User};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Reads a bearer token for some audiences; an error is in words.
pub type TokenReader<'a> = dyn Fn(&str, &[String]) -> Result<(User, Vec<String>), String> + 'a;

/// Answers a review. `None`: the kind is none.
///
/// # Errors
/// 422 and 400 in upstream's words for reviews that ask for nothing or for too much.
pub fn create(
    kind: &Kind,
    object: &Value,
    namespace: &str,
    user: &User,
    user_of: &TokenReader<'_>,
    rbac: &Rbac,
) -> Option<Result<Value, ApiError>> {
    let mut review = object.clone();
    Some(match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        (AUTHORIZATION, "SelfSubjectAccessReview") => {
            access(review, None, |spec| check(spec, user, rbac)).map(|r| r.0)
        }
        (AUTHORIZATION, "SubjectAccessReview") => {
            access(review, None, |spec| check(spec, &subject(spec), rbac)).map(|r| r.0)
        }
        (AUTHORIZATION, "LocalSubjectAccessReview") => {
            access(review, Some(namespace), |spec| check(spec, &subject(spec), rbac)).map(|r| r.0)
        }
        (AUTHORIZATION, "SelfSubjectRulesReview") => rules(kind, &review, user, rbac),
        ("authentication.k8s.io", "SelfSubjectReview") => {
            review["status"] = json!({"userInfo": user.to_value()});
            Ok(review)
        }
        ("authentication.k8s.io", "TokenReview") => token(&review["spec"], user_of).map(|status| {
            review["status"] = status;
            review
        }),
        _ => return None,
    })
}

fn access(
    mut review: Value,
    local: Option<&str>,
    decide: impl FnOnce(&Value) -> Value,
) -> Result<(Value, ()), ApiError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    let shown =
        json!({"Path": path["path"].as_str().unwrap_or(""), "Verb": path["verb"].as_str().unwrap_or("")});
    if !resource.is_null() && !path.is_null() {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", &shown, detail));
    }
    if resource.is_null() && path.is_null() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, detail));
    }
    let is_self = review["kind"] == "SelfSubjectAccessReview";
    let groups = spec["groups"].as_array().is_some_and(|g| !g.is_empty());
    if !is_self && spec["user"].as_str().unwrap_or("").is_empty() && !groups {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &json!(""), detail));
    }
    errors.extend(filled_metadata(&review["metadata"], local.is_some()));
    if let Some(namespace) = local {
        let inner = resource["namespace"].as_str().unwrap_or("");
        if !resource.is_null() && inner != namespace {
            let detail = "must match metadata.namespace";
            errors.push(FieldError::invalid("spec.resourceAttributes.namespace", &json!(inner), detail));
        }
        if !path.is_null() {
            let detail = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", &shown, detail));
        }
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid(AUTHORIZATION, "", "", &errors));
    }
    review["status"] = decide(&review["spec"]);
    Ok((review, ()))
}

/// Reviews have no metadata, those of one namespace nothing but that.
fn filled_metadata(metadata: &Value, local: bool) -> Option<FieldError> {
    const ORDER: [&str; 8] = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "labels",
        "annotations",
        "managedFields",
    ];
    let map = metadata.as_object()?;
    let allowed =
        |key: &str| matches!(key, "managedFields" | "creationTimestamp") || (local && key == "namespace");
    if map.keys().all(|key| allowed(key)) {
        return None;
    }
    // Printed in the order of the Go struct.
    let fields: Vec<String> = ORDER
        .iter()
        .filter_map(|f| map.get(*f).map(|v| (*f, v)))
        .map(|(f, v)| match f {
            "managedFields" => format!("\"{f}\":[{}]", managed_fields(v)),
            _ => format!("\"{f}\":{}", crate::http::reply::go_json(v)),
        })
        .collect();
    let detail = if local { "must be empty except for namespace" } else { "must be empty" };
    let mut error = FieldError::invalid("metadata", &Value::Null, detail);
    error.value = Some(format!("{{{}}}", fields.join(",")));
    Some(error)
}

/// Entries of managed fields in the order of the Go struct.
fn managed_fields(list: &Value) -> String {
    const ORDER: [&str; 7] =
        ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
    let entry = |e: &Value| {
        let fields: Vec<String> = ORDER
            .iter()
            .filter_map(|f| e.get(*f).map(|v| format!("\"{f}\":{}", crate::http::reply::go_json(v))))
            .collect();
        format!("{{{}}}", fields.join(","))
    };
    let entries: Vec<String> = list.as_array().into_iter().flatten().map(entry).collect();
    entries.join(",")
}

fn subject(spec: &Value) -> User {
    let strings = |v: &Value| -> Vec<String> {
        v.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    User {
        name: spec["user"].as_str().unwrap_or("").to_owned(),
        uid: spec["uid"].as_str().unwrap_or("").to_owned(),
        groups: strings(&spec["groups"]),
        extra: spec["extra"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), strings(v)))
            .collect(),
    }
}

fn check(spec: &Value, user: &User, rbac: &Rbac) -> Value {
    let resource = &spec["resourceAttributes"];
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let what = if resource.is_null() {
        let path = &spec["nonResourceAttributes"];
        Attributes { verb: text(&path["verb"]), path: text(&path["path"]), ..Attributes::default() }
    } else {
        Attributes {
            is_resource: true,
            verb: text(&resource["verb"]),
            group: text(&resource["group"]),
            resource: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
            path: String::new(),
        }
    };
    let decision = rbac.authorize(user, &what);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    status
}

fn rules(kind: &Kind, review: &Value, user: &User, rbac: &Rbac) -> Result<Value, ApiError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or("");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    let found = rbac.rules(user, namespace);
    for rule in &found.rules {
        resources.extend(rule.resource_rule());
        paths.extend(rule.path_rule());
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if !found.errors.is_empty() {
        status["evaluationError"] = json!(found.errors);
    }
    Ok(json!({
        "kind": kind.gvk.kind, "apiVersion": kind.gvk.api_version(), "metadata": {}, "spec": {}, "status": status,
    }))
}

/// The status of a TokenReview (`registry/authentication/tokenreview`).
fn token(spec: &Value, user_of: &TokenReader<'_>) -> Result<Value, ApiError> {
    let token = spec["token"].as_str().unwrap_or("");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let mut wanted: Vec<String> = spec["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if wanted.is_empty() {
        wanted.push(ISSUER.to_owned());
    }
    Ok(match user_of(token, &wanted) {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user.to_value(), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    })
}
