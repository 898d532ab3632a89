//! Nobody grants what they don't have (`pkg/registry/rbac/*/policybased`, `pkg/registry/rbac/validation`).

use plimsoll_machinery::ApiError;
use serde_json::{Value, json};

use super::{Attributes, MASTERS, User};
use crate::admit::{Operation, forbidden};
use crate::pipeline::Write;
use crate::store::Key;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a role with more rights than the user has, and a binding to one; unless the user may `escalate` or `bind`.
///
/// # Errors
/// 403 with what is missing; 404 for a binding to a role that isn't there.
pub fn check(w: &Write, object: &Value, old: Option<&Value>, operation: Operation) -> Result<(), ApiError> {
    let writes = matches!(operation, Operation::Create | Operation::Update);
    if !writes || w.kind.gvk.group != GROUP || !w.subresource.is_empty() || w.user.is_in(MASTERS) {
        return Ok(());
    }
    match w.kind.plural.as_str() {
        "roles" | "clusterroles" => role(w, object, old),
        "rolebindings" | "clusterrolebindings" => binding(w, object),
        _ => Ok(()),
    }
}

/// Whether the user may use a verb on a role.
fn may(w: &Write, verb: &str, resource: &str, name: &str) -> bool {
    let namespace = if resource == "roles" || verb == "bind" { w.namespace.clone() } else { String::new() };
    let what = Attributes {
        is_resource: true,
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace,
        name: name.to_owned(),
        ..Attributes::default()
    };
    w.server.rbac().authorize(&w.user, &what).allowed
}

fn role(w: &Write, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let name = object["metadata"]["name"].as_str().unwrap_or("");
    if may(w, "escalate", &w.kind.plural, name) {
        return Ok(());
    }
    let own = w.server.rbac().rules(&w.user, &w.namespace);
    let gathers = &object["aggregationRule"];
    if !gathers.is_null() && old.is_none_or(|o| o["aggregationRule"] != *gathers) {
        let everything = json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ]);
        if !missing(&own, list(&everything)).is_empty() {
            return Err(forbidden(
                w,
                object,
                "must have cluster-admin privileges to use the aggregationRule",
            ));
        }
    }
    covered(w, object, &own, list(&object["rules"]))
}

fn binding(w: &Write, object: &Value) -> Result<(), ApiError> {
    let text = |field: &str| object["roleRef"][field].as_str().unwrap_or("");
    let (resource, namespace) = match text("kind") {
        "Role" => ("roles", w.namespace.as_str()),
        _ => ("clusterroles", ""),
    };
    let name = text("name");
    if may(w, "bind", resource, name) {
        return Ok(());
    }
    let role = w.server.store().latest(&Key::new(format!("{GROUP}/{resource}"), namespace, name));
    let role = role.and_then(|r| r.value().ok()).ok_or_else(|| ApiError::not_found(GROUP, resource, name))?;
    let own = w.server.rbac().rules(&w.user, &w.namespace);
    covered(w, object, &own, list(&role["rules"]))
}

fn covered(w: &Write, object: &Value, own: &[Value], wanted: &[Value]) -> Result<(), ApiError> {
    let missing = missing(own, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let rules: Vec<String> = missing.iter().map(compact).collect();
    let why = format!(
        "{} is attempting to grant RBAC permissions not currently held:\n{}",
        described(&w.user),
        rules.join("\n")
    );
    Err(forbidden(w, object, &why))
}

fn described(user: &User) -> String {
    let groups: Vec<String> = user.groups.iter().map(|g| format!("{g:?}")).collect();
    format!("user {:?} (groups=[{}])", user.name, groups.join(" "))
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

/// The rules of `wanted`, each for one verb of one resource or path, that none of `own` covers.
fn missing(own: &[Value], wanted: &[Value]) -> Vec<Value> {
    let single = wanted.iter().flat_map(singles);
    single.filter(|rule| !own.iter().any(|o| covers(o, rule))).collect()
}

/// A rule taken apart (`BreakdownRule`).
fn singles(rule: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    let names = list(&rule["resourceNames"]);
    for verb in list(&rule["verbs"]) {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                let one = json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
                if names.is_empty() {
                    out.push(one);
                    continue;
                }
                for name in names {
                    let mut named = one.clone();
                    named["resourceNames"] = json!([name]);
                    out.push(named);
                }
            }
        }
        for url in list(&rule["nonResourceURLs"]) {
            out.push(json!({"verbs": [verb], "nonResourceURLs": [url]}));
        }
    }
    out
}

/// Whether a rule allows all that a single one does (`ruleCovers`).
fn covers(own: &Value, single: &Value) -> bool {
    let has = |field: &str| {
        let owned = list(&own[field]);
        list(&single[field]).iter().all(|v| owned.iter().any(|o| o == "*" || o == v))
    };
    if !has("verbs") {
        return false;
    }
    if let Some(url) = single["nonResourceURLs"][0].as_str() {
        return list(&own["nonResourceURLs"]).iter().filter_map(Value::as_str).any(|o| {
            o == "*" || o == url || o.strip_suffix('*').is_some_and(|prefix| url.starts_with(prefix))
        });
    }
    let resource = single["resources"][0].as_str().unwrap_or("");
    let any_of = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let resources = list(&own["resources"]).iter().filter_map(Value::as_str);
    let resources = resources.into_iter().any(|o| o == "*" || o == resource || Some(o) == any_of.as_deref());
    let names = list(&own["resourceNames"]);
    let wanted = list(&single["resourceNames"]);
    let names = names.is_empty() || (!wanted.is_empty() && wanted.iter().all(|n| names.contains(n)));
    has("apiGroups") && resources && names
}

/// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}`.
fn compact(rule: &Value) -> String {
    let fields = [
        ("apiGroups", "APIGroups"),
        ("resources", "Resources"),
        ("resourceNames", "ResourceNames"),
        ("nonResourceURLs", "NonResourceURLs"),
        ("verbs", "Verbs"),
    ];
    let quoted = |values: &[Value]| {
        let all: Vec<String> = values.iter().map(|v| format!("{:?}", v.as_str().unwrap_or(""))).collect();
        all.join(" ")
    };
    let shown = fields.iter().filter(|(f, _)| !list(&rule[*f]).is_empty());
    let shown: Vec<String> = shown.map(|(f, name)| format!("{name}:[{}]", quoted(list(&rule[*f])))).collect();
    format!("{{{}}}", shown.join(", "))
}
