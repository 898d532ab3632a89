//! Users grant only rights that they have (`pkg/registry/rbac/*/policybased`, `pkg/registry/rbac/validation`).

use std::collections::BTreeSet;

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::go::go_quote;
use serde_json::Value;

use super::{Operation, forbidden};
use crate::auth::rbac::{Rule, UserRules, compact};
use crate::auth::{Attributes, MASTERS, User};
use crate::write::Write;

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
    if old.is_some_and(|old| only_lets_go(object, old)) {
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
    let what = Attributes {
        is_resource: true,
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: w.namespace.clone(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    w.server.rbac().authorize(&w.user, &what).allowed
}

fn role(w: &Write, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    // Upstream goes by the name in the path, which a POST does not have.
    let name = if w.may_create { "" } else { w.name.as_str() };
    if may(w, "escalate", &w.kind.plural, name) {
        return Ok(());
    }
    let own = w.server.rbac().rules(&w.user, &w.namespace);
    covered(w, object, &own, &Rule::all(&object["rules"]))?;
    let gathers = |role: &Value| {
        role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|s| !s.is_empty())
    };
    if gathers(object) || old.is_some_and(gathers) {
        let everything = Rule::everything();
        if !missing(&own.rules, &everything).is_empty() {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(forbidden(w, object, why));
        }
    }
    Ok(())
}

fn binding(w: &Write, object: &Value) -> Result<(), ApiError> {
    let text = |field: &str| object["roleRef"][field].as_str().unwrap_or("");
    let (kind, name) = (text("kind"), text("name"));
    let resource = if kind == "Role" { "roles" } else { "clusterroles" };
    if may(w, "bind", resource, name) {
        return Ok(());
    }
    let lister = resource.trim_end_matches('s');
    let wanted = w.server.rbac().role(kind, &w.namespace, name);
    let wanted = wanted.map_err(|_| ApiError::not_found(GROUP, lister, name))?;
    let own = w.server.rbac().rules(&w.user, &w.namespace);
    covered(w, object, &own, &wanted)
}

fn covered(w: &Write, object: &Value, own: &UserRules, wanted: &[Rule]) -> Result<(), ApiError> {
    let missing = missing(&own.rules, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let rules: BTreeSet<String> = compact(missing).iter().map(Rule::compact_string).collect();
    let rules: Vec<String> = rules.into_iter().collect();
    let mut why = format!(
        "{} is attempting to grant RBAC permissions not currently held:\n{}",
        described(&w.user),
        rules.join("\n")
    );
    if !own.errors.is_empty() {
        why = format!("{why}; resolution errors: [{}]", own.errors);
    }
    Err(forbidden(w, object, &why))
}

fn described(user: &User) -> String {
    let groups: Vec<String> = user.groups.iter().map(|g| go_quote(g)).collect();
    format!("user {} (groups=[{}])", go_quote(&user.name), groups.join(" "))
}

/// The rules of `wanted`, each for one verb of one resource or path, that none of `own` covers (`Covers`).
fn missing(own: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let single = wanted.iter().flat_map(Rule::singles);
    single.filter(|rule| !own.iter().any(|o| o.covers(rule))).collect()
}

/// Whether a change is only one that the garbage collector makes to let go of an object (`IsOnlyMutatingGCFields`).
fn only_lets_go(object: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(meta) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields"] {
                meta.remove(field);
            }
        }
        rest
    };
    rest(object) == rest(old)
}
