//! Object metadata (apimachinery `api/validation/objectmeta.go`).

use serde_json::{Value, json};

use super::checks::{self, Faults};
use super::path::{Errors, IMMUTABLE, NOT_NEGATIVE, Path};
use crate::kinds::Kind;
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

/// Most bytes of annotations an object may have.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// How a kind's objects are named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Subdomain,
    Label,
    Path,
}

fn names_of(kind: &Kind) -> Names {
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Namespace" | "Service") => Names::Label,
        ("rbac.authorization.k8s.io", _) => Names::Path,
        ("", "Event") | ("events.k8s.io", _) => Names::Path,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Names::Subdomain,
        ("networking.k8s.io", "IPAddress") => Names::Path,
        ("apps", "StatefulSet") => Names::Label,
        ("certificates.k8s.io", _) => Names::Path,
        _ => Names::Subdomain,
    }
}

fn name_faults(kind: &Kind, name: &str, prefix: bool) -> Faults {
    let masked = if prefix { checks::as_prefix(name) } else { name.to_owned() };
    match names_of(kind) {
        Names::Subdomain => checks::dns_subdomain(&masked),
        Names::Label => checks::dns_label(&masked),
        Names::Path => checks::path_segment(name, prefix),
    }
}

/// Metadata of a new object.
pub(super) fn create(kind: &Kind, object: &Obj, errors: &mut Errors) {
    create_with(kind, object, &|name, prefix| name_faults(kind, name, prefix), errors);
}

/// Metadata of a new object as the registry checks it once more, whatever the kind: a name is one segment of a path.
pub(super) fn registry_create(kind: &Kind, object: &Obj, errors: &mut Errors) {
    create_with(kind, object, &checks::path_segment, errors);
}

fn create_with(kind: &Kind, object: &Obj, faults: &dyn Fn(&str, bool) -> Faults, errors: &mut Errors) {
    let meta = crate::obj::object(object, "metadata");
    let path = Path::new("metadata");
    let prefix = text(meta, "generateName");
    // Some kinds look at the name that was made only (`ValidateObjectMetaWithOpts`).
    let made = (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) == ("resource.k8s.io", "DeviceClass");
    if !prefix.is_empty() && !made {
        errors.invalid_all(&path.field("generateName"), prefix, &faults(prefix, true));
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.required(&path.field("name"), "name or generateName is required");
    } else {
        errors.invalid_all(&path.field("name"), name, &faults(name, false));
    }
    let namespace = text(meta, "namespace");
    if kind.namespaced {
        if namespace.is_empty() {
            errors.required(&path.field("namespace"), "");
        } else {
            errors.invalid_all(&path.field("namespace"), namespace, &checks::dns_label(namespace));
        }
    } else if !namespace.is_empty() {
        errors.forbidden(&path.field("namespace"), "not allowed on this type");
    }
    common(meta, &path, errors);
    if kind.custom.is_some() {
        // Only core's validation knows standard names; definitions' handlers ask for qualified ones.
        errors.0.retain(|e| e.detail != NOT_STANDARD);
    }
}

/// Metadata of a resource inside another one: it may have any name or none, and a namespace or none.
pub(super) fn embedded(meta: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (key, prefix) in [("generateName", true), ("name", false)] {
        let name = text(meta, key);
        errors.invalid_all(&path.field(key), name, &checks::path_segment(name, prefix));
    }
    let namespace = text(meta, "namespace");
    if !namespace.is_empty() {
        errors.invalid_all(&path.field("namespace"), namespace, &checks::dns_label(namespace));
    }
    plain(meta, path, errors);
    let names = list(meta, "finalizers");
    let at = path.field("finalizers");
    for name in names.iter().map(|f| f.as_str().unwrap_or_default()) {
        errors.invalid_all(&at, name, &checks::qualified_name(name));
    }
    finalizer_pair(names, &at, errors);
}

/// Metadata that is checked alike on create and update.
fn common(meta: &Obj, path: &Path<'_>, errors: &mut Errors) {
    plain(meta, path, errors);
    finalizers(list(meta, "finalizers"), &path.field("finalizers"), errors);
}

/// As [`common`], without finalizers.
fn plain(meta: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(generation) = int(meta, "generation").filter(|g| *g < 0) {
        errors.invalid(&path.field("generation"), generation, NOT_NEGATIVE);
    }
    labels(object(meta, "labels"), &path.field("labels"), errors);
    annotations(object(meta, "annotations"), &path.field("annotations"), errors);
    owners(list(meta, "ownerReferences"), &path.field("ownerReferences"), errors);
}

/// Labels (`ValidateLabels`).
pub(super) fn labels(labels: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in labels {
        errors.invalid_all(path, key, &checks::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_all(path, value, &checks::label_value(value));
    }
}

/// Annotations (`ValidateAnnotations`).
pub(super) fn annotations(annotations: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations {
        if key.bytes().any(|b| b.is_ascii_uppercase()) {
            errors.invalid_all(path, key, &checks::qualified_name(&key.to_lowercase()));
        } else {
            errors.invalid_all(path, key, &checks::qualified_name(key));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MAX_ANNOTATIONS {
        errors.too_long(path, MAX_ANNOTATIONS);
    }
}

/// Metadata of something that objects are made from: only labels and annotations
/// (`ValidateTemplateObjectMeta`).
pub(super) fn of_template(meta: &Obj, path: &Path<'_>, errors: &mut Errors) {
    annotations(object(meta, "annotations"), &path.field("annotations"), errors);
    labels(object(meta, "labels"), &path.field("labels"), errors);
    let others = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    for key in others.into_iter().filter(|key| has(meta, key)) {
        // Upstream derives the name from Go's.
        let name = if key == "uid" { "uID" } else { key };
        errors.forbidden(&path.field(name), "cannot be set");
    }
}

fn owners(owners: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for owner in owners.iter().map(as_obj) {
        let version = text(owner, "apiVersion");
        if version.rsplit('/').next().unwrap_or_default().is_empty() {
            errors.invalid(&path.field("apiVersion"), version, "version must not be empty");
        }
        for key in ["kind", "name", "uid"] {
            if text(owner, key).is_empty() {
                errors.invalid(&path.field(key), text(owner, key), "must not be empty");
            }
        }
        if version == "v1" && text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.invalid(path, Value::Object(owner.clone()), detail);
        }
        if flag(owner, "controller") {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    errors.invalid_text(path, owner_list(owners), &detail);
                }
                None => controller = Some(name),
            }
        }
    }
}

/// References in the order of Go's fields.
fn owner_list(owners: &[Value]) -> String {
    let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let one = |owner: &Obj| {
        let fields: Vec<String> =
            order.iter().filter_map(|key| Some(format!("\"{key}\":{}", owner.get(*key)?))).collect();
        format!("{{{}}}", fields.join(","))
    };
    let all: Vec<String> = owners.iter().map(|o| one(as_obj(o))).collect();
    format!("[{}]", all.join(","))
}

fn finalizers(finalizers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, finalizer) in finalizers.iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        errors.0.extend(finalizer_errors(finalizer, &path.index(i)));
    }
    finalizer_pair(finalizers, path, errors);
}

/// Two finalizers that ask for the opposite.
fn finalizer_pair(finalizers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let has = |name: &str| finalizers.iter().any(|f| f == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(path, json!(finalizers), "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

const NOT_STANDARD: &str = "name is neither a standard finalizer name nor is it fully qualified";

/// `ValidateFinalizerName` of core.
pub(super) fn finalizer_errors(finalizer: &str, path: &Path<'_>) -> Vec<crate::FieldError> {
    let mut errors = Errors::default();
    errors.invalid_all(path, finalizer, &checks::qualified_name(finalizer));
    // The last one is what definitions get while they are being deleted; they may be written then, too.
    let standard =
        ["kubernetes", "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io"];
    if errors.0.is_empty() && !finalizer.contains('/') && !standard.contains(&finalizer) {
        errors.invalid(path, finalizer, NOT_STANDARD);
    }
    errors.0
}

/// Metadata as the registry checks it on every update, whatever the kind.
pub(super) fn registry(new: &Obj, errors: &mut Errors) {
    common(object(new, "metadata"), &Path::new("metadata"), errors);
}

/// Metadata of a new version of an object.
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, meta) = (object(old, "metadata"), object(new, "metadata"));
    let path = Path::new("metadata");
    if has(meta, "deletionTimestamp") {
        let known = list(before, "finalizers");
        let mut added: Vec<String> =
            list(meta, "finalizers").iter().filter(|f| !known.contains(f)).map(|f| f.to_string()).collect();
        added.sort();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.forbidden(&path.field("finalizers"), &detail);
        }
    }
    if text(meta, "resourceVersion").is_empty() {
        errors.invalid(&path.field("resourceVersion"), "", "must be specified for an update");
    }
    if let (Some(was), Some(is)) = (int(before, "generation"), int(meta, "generation"))
        && is < was
    {
        errors.invalid(&path.field("generation"), is, "must not be decremented");
    }
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let none = Value::Null;
        let (was, is) = (before.get(key).unwrap_or(&none), meta.get(key).unwrap_or(&none));
        if was != is {
            errors.invalid(&path.field(key), is.clone(), IMMUTABLE);
        }
    }
    labels(object(meta, "labels"), &path.field("labels"), errors);
    annotations(object(meta, "annotations"), &path.field("annotations"), errors);
    owners(list(meta, "ownerReferences"), &path.field("ownerReferences"), errors);
}
