//! rbac.authorization.k8s.io/v1.

use serde_json::Value;

use super::golang;
use super::path::{Errors, Path};
use super::{checks, selector};
use crate::obj::{Obj, as_obj, has, list, object, text};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role.
pub(super) fn role(role: &Obj, errors: &mut Errors) {
    rules(role, true, errors);
}

/// `ClusterRole`.
pub(super) fn cluster_role(role: &Obj, errors: &mut Errors) {
    rules(role, false, errors);
    if has(role, "aggregationRule") {
        let path = Path::new("aggregationRule");
        let at = path.field("clusterRoleSelectors");
        let selectors = list(object(role, "aggregationRule"), "clusterRoleSelectors");
        if selectors.is_empty() {
            errors.required(&at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (i, s) in selectors.iter().map(as_obj).enumerate() {
            let (at, before) = (at.index(i), errors.0.len());
            selector::label_selector(s, &at, errors);
            if errors.0.len() > before {
                errors.invalid(&at, Value::Null, "invalid label selector.");
            }
        }
    }
}

fn rules(role: &Obj, namespaced: bool, errors: &mut Errors) {
    let path = Path::new("rules");
    for (i, rule) in list(role, "rules").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        if list(rule, "verbs").is_empty() {
            errors.required(&at.field("verbs"), "verbs must contain at least one value");
        }
        let urls = list(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let here = at.field("nonResourceURLs");
            let shown = Value::Array(urls.to_vec());
            if namespaced {
                errors.invalid(&here, shown.clone(), "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|key| !list(rule, key).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&here, shown, detail);
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            errors.required(&at.field("apiGroups"), "resource rules must supply at least one api group");
        }
        if list(rule, "resources").is_empty() {
            errors.required(&at.field("resources"), "resource rules must supply at least one resource");
        }
    }
}

/// `RoleBinding`.
pub(super) fn role_binding(binding: &Obj, errors: &mut Errors) {
    self::binding(binding, &["Role", "ClusterRole"], true, errors);
}

/// `ClusterRoleBinding`.
pub(super) fn cluster_role_binding(binding: &Obj, errors: &mut Errors) {
    self::binding(binding, &["ClusterRole"], false, errors);
}

fn binding(binding: &Obj, kinds: &[&str], namespaced: bool, errors: &mut Errors) {
    let role = object(binding, "roleRef");
    let path = Path::new("roleRef");
    errors.one_of(&path.field("apiGroup"), text(role, "apiGroup"), &[GROUP]);
    errors.one_of(&path.field("kind"), text(role, "kind"), kinds);
    let name = text(role, "name");
    errors.named(&path.field("name"), name, |v| checks::path_segment(v, false));
    let path = Path::new("subjects");
    for (i, subject) in list(binding, "subjects").iter().map(as_obj).enumerate() {
        self::subject(subject, namespaced, &path.index(i), errors);
    }
}

fn subject(subject: &Obj, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let (kind, name) = (text(subject, "kind"), text(subject, "name"));
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    }
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_all(&path.field("name"), name, &checks::dns_subdomain(name));
            }
            errors.one_of(&path.field("apiGroup"), text(subject, "apiGroup"), &[""]);
            if text(subject, "namespace").is_empty() && !namespaced {
                errors.required(&path.field("namespace"), "");
            }
        }
        "User" | "Group" => errors.one_of(&path.field("apiGroup"), text(subject, "apiGroup"), &[GROUP]),
        other => errors.not_supported(&path.field("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

/// The role of a binding is immutable.
pub(super) fn binding_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("roleRef") != new.get("roleRef") {
        let shown = golang::structure("RoleRef", object(new, "roleRef"));
        errors.invalid_text(&Path::new("roleRef"), shown, "cannot change roleRef");
    }
}
