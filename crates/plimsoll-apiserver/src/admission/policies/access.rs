//! The author of a policy or a binding must be able to read its parameters, because expressions show them
//! (`pkg/registry/admissionregistration/validatingadmissionpolicy/authz.go`, `…policybinding/authz.go`).

use plimsoll_apimachinery::{FieldError, Gvk};
use serde_json::Value;

use crate::auth::{Attributes, MASTERS, User};
use crate::store::Key;
use crate::write::Write;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &str = "validatingadmissionpolicies";

/// The error for parameters that the author may not read. `object` has to be valid otherwise; `old` is the object
/// before an update.
pub fn check(w: &Write, object: &Value, old: Option<&Value>) -> Option<FieldError> {
    if w.kind.gvk.group != GROUP || !w.subresource.is_empty() || w.user.is_in(MASTERS) {
        return None;
    }
    match w.kind.plural.as_str() {
        POLICIES => {
            let kind = &object["spec"]["paramKind"];
            let same = old.is_some_and(|old| old["spec"]["paramKind"] == *kind);
            if kind.is_null() || same {
                return None;
            }
            kind_is_readable(w, kind).err().map(|why| FieldError::forbidden("spec.paramKind", why))
        }
        "validatingadmissionpolicybindings" => {
            // Upstream compares the pointers inside of paramRef, which are never the same after decoding: every
            // update of a binding with parameters is authorized.
            let params = &object["spec"]["paramRef"];
            if params.is_null() {
                return None;
            }
            object_is_readable(w, object).err().map(|why| FieldError::forbidden("spec.paramRef", why))
        }
        _ => None,
    }
}

/// The group of a `paramKind` and its resource, `*` where that is not known.
struct Target {
    group: String,
    resource: String,
    resolved: bool,
}

fn target(w: &Write, kind: &Value) -> Target {
    let text = |field: &str| kind[field].as_str().unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() };
    let plural = w.table.kind(&gvk).map(|kind| kind.plural.clone());
    let resolved = plural.is_some();
    Target { group: gvk.group, resource: plural.unwrap_or_else(|| "*".to_owned()), resolved }
}

fn may(w: &Write, verb: &str, target: &Target, namespace: &str, name: &str) -> bool {
    let what = Attributes {
        is_resource: true,
        verb: verb.to_owned(),
        group: target.group.clone(),
        resource: target.resource.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    w.server.rbac().authorize(&w.user, &what).allowed
}

fn kind_is_readable(w: &Write, kind: &Value) -> Result<(), String> {
    if may(w, "get", &target(w, kind), "*", "*") {
        return Ok(());
    }
    let text = |field: &str| kind[field].as_str().unwrap_or("");
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(&w.user),
        text("kind"),
        text("apiVersion")
    ))
}

fn object_is_readable(w: &Write, binding: &Value) -> Result<(), String> {
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let params = &binding["spec"]["paramRef"];
    let (name, namespace) = (text(&params["name"]), text(&params["namespace"]));
    let verb = if name.is_empty() { "list" } else { "get" };
    let policy_name = text(&binding["spec"]["policyName"]);
    let policy = w.server.store().latest(&Key::new(format!("{GROUP}/{POLICIES}"), "", policy_name.as_str()));
    let policy = policy.and_then(|record| record.value().ok());
    let kind = policy.as_ref().map(|p| &p["spec"]["paramKind"]).filter(|kind| !kind.is_null());
    let everything = Target { group: "*".to_owned(), resource: "*".to_owned(), resolved: true };
    let target = kind.map_or(everything, |kind| target(w, kind));
    if may(w, verb, &target, &namespace, &name) {
        return Ok(());
    }
    let user = shown(&w.user);
    let lacks_all = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
         versions and resources"
    );
    Err(match (&policy, kind) {
        (None, _) => format!("unable to get policy {policy_name} {lacks_all}"),
        (_, Some(kind)) if !target.resolved => format!(
            "unable to resolve paramKind &{{{} {}}} {lacks_all}",
            text(&kind["apiVersion"]),
            text(&kind["kind"])
        ),
        _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    })
}

/// A user as Go prints `*user.DefaultInfo` with `%v`.
fn shown(user: &User) -> String {
    let extra = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" ")));
    let extra: Vec<String> = extra.collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
