//! Annotations of pods that mean something (`ValidatePodSpecificAnnotations`).

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::{each_container, paths, scheduling};
use crate::obj::{Obj, object, text};

/// The pod of a static manifest, as its kubelet shows it.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Prefix of the annotations that gave containers an AppArmor profile before there was a field.
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Validates the annotations of a pod or template.
pub(super) fn check(annotations: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let value = |key: &str| annotations.get(key).and_then(Value::as_str);
    if let Some(mirror) = value(MIRROR)
        && text(spec, "nodeName").is_empty()
    {
        errors.invalid(&path.key(MIRROR), mirror, "must set spec.nodeName if mirror pod annotation is set");
    }
    if let Some(written) = value(TOLERATIONS).filter(|t| !t.is_empty()) {
        match serde_json::from_str::<Vec<Value>>(written) {
            Ok(all) => scheduling::tolerations(&all, &path.field(TOLERATIONS), errors),
            Err(e) => {
                let why = crate::decode::explain(written.as_bytes()).unwrap_or_else(|| e.to_string());
                errors.invalid(path, TOLERATIONS, &why);
            }
        }
    }
    if let Some(cost) = value(DELETION_COST)
        && !is_cost(cost)
    {
        errors.invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    if let Some(profile) = value(SECCOMP_POD) {
        seccomp(profile, &path.field(SECCOMP_POD), errors);
    }
    for (key, profile) in annotations {
        let profile = profile.as_str().unwrap_or_default();
        if key.starts_with(SECCOMP_CONTAINER) {
            seccomp(profile, &path.field(key), errors);
        }
        if let Some(name) = key.strip_prefix(APP_ARMOR) {
            app_armor(name, profile, spec, &path.key(key), errors);
        }
    }
}

/// An integer without a plus or needless zeros (`GetDeletionCostFromPodAnnotations`).
fn is_cost(text: &str) -> bool {
    let first = text.bytes().next();
    let plain = text == "0" || first.is_some_and(|b| b == b'-' || (b'1'..=b'9').contains(&b));
    plain && text.parse::<i32>().is_ok()
}

fn seccomp(profile: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(profile, "runtime/default" | "docker/default" | "unconfined") {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(local) => paths::descending(local, path, errors),
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

fn app_armor(name: &str, profile: &str, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let mut known = false;
    each_container(spec, path, &mut |c, _| known |= text(c, "name") == name);
    if !known {
        errors.invalid(path, name, "container not found");
    }
    let fine = matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with("localhost/");
    if !fine {
        let detail = format!("invalid AppArmor profile name: {}", crate::go::go_quote(profile));
        errors.invalid(path, profile, &detail);
    }
}

/// An annotation and a field for the same profile are equal.
pub(super) fn agree(metadata: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let annotations = object(metadata, "annotations");
    let any = |prefix: &str| annotations.keys().any(|key| key.starts_with(prefix));
    if let Some(annotation) = annotations.get(SECCOMP_POD).and_then(Value::as_str) {
        let context = path.field("securityContext");
        same(annotation, profile_of(spec, &SECCOMP), &SECCOMP, &context.field(SECCOMP.field), errors);
    }
    let of_container = |words: &Words, of_pod: Option<&Obj>, errors: &mut Errors| {
        each_container(spec, path, &mut |c, at| {
            let key = format!("{}{}", words.prefix, text(c, "name"));
            let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else { return };
            let profile = profile_of(c, words).or(of_pod);
            let context = at.field("securityContext");
            same(annotation, profile, words, &context.field(words.field), errors);
        });
    };
    if any(SECCOMP.prefix) {
        of_container(&SECCOMP, None, errors);
    }
    if any(ARMOR.prefix) && text(object(spec, "os"), "name") != "windows" {
        of_container(&ARMOR, profile_of(spec, &ARMOR), errors);
    }
}

/// The profile of a pod or container.
fn profile_of<'a>(holder: &'a Obj, words: &Words) -> Option<&'a Obj> {
    object(holder, "securityContext").get(words.field).and_then(Value::as_object)
}

/// Names of a profile in messages, of the runtime's default in annotations, and of the field with profiles.
struct Words {
    name: &'static str,
    default: &'static [&'static str],
    field: &'static str,
    /// That of the annotations of containers.
    prefix: &'static str,
}

const SECCOMP: Words = Words {
    name: "seccomp",
    default: &["runtime/default", "docker/default"],
    field: "seccompProfile",
    prefix: SECCOMP_CONTAINER,
};
const ARMOR: Words =
    Words { name: "apparmor", default: &["runtime/default"], field: "appArmorProfile", prefix: APP_ARMOR };

fn same(annotation: &str, profile: Option<&Obj>, words: &Words, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = profile else { return };
    let name = words.name;
    let fine = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => words.default.contains(&annotation),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(local) => {
                if profile.get("localhostProfile").and_then(Value::as_str) != Some(local) {
                    let detail = format!("{name} profile in annotation and field must match");
                    errors.forbidden(&path.field("localhostProfile"), &detail);
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !fine {
        let detail = format!("{name} type in annotation and field must match");
        errors.forbidden(&path.field("type"), &detail);
    }
}

/// Changes of annotations (`ValidatePodSpecificAnnotationUpdates`).
pub(super) fn update(old: &Obj, new: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let [before, after] = [old, new].map(|pod| object(object(pod, "metadata"), "annotations"));
    for (key, _) in before.iter().filter(|(key, was)| after.get(*key) != Some(was)) {
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(&path.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&path.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for key in after.keys().filter(|key| !before.contains_key(*key)) {
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(&path.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&path.key(key), "may not add mirror pod annotation");
        }
    }
    check(after, object(new, "spec"), path, errors);
}

/// Whether a pod is a kubelet's own.
pub(super) fn is_mirror(pod: &Obj) -> bool {
    object(object(pod, "metadata"), "annotations").contains_key(MIRROR)
}

#[cfg(test)]
mod tests {
    use super::is_cost;

    #[test]
    fn costs() {
        for (text, fine) in [
            ("0", true),
            ("-1", true),
            ("12", true),
            ("012", false),
            ("+1", false),
            ("", false),
            ("a", false),
            ("-0", true),
        ] {
            assert_eq!(is_cost(text), fine, "{text}");
        }
    }
}
