//! Object metadata (apimachinery `api/validation/objectmeta.go`).

use serde_json::{Value, json};

use super::checks::{self, Faults};
use super::golang;
use super::path::{Errors, IMMUTABLE, NOT_NEGATIVE, Path};
use crate::kinds::Kind;
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

/// Most bytes of annotations an object may have.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The rules for names of a kind's objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Subdomain,
    /// A subdomain, too, but only the stored name is checked, not its prefix (`ValidateObjectMetaWithOpts`).
    Whole,
    Label,
    Path,
    /// An IP address in canonical form.
    Address,
    /// `IsConfigMapKey`.
    Key,
    Any,
}

fn names_of(kind: &Kind) -> Names {
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => Names::Label,
        ("", "ReplicationController") | ("resource.k8s.io", "DeviceClass") => Names::Whole,
        ("rbac.authorization.k8s.io", _) => Names::Path,
        ("networking.k8s.io", "IPAddress") => Names::Address,
        ("coordination.k8s.io", "LeaseCandidate") => Names::Key,
        ("certificates.k8s.io", "CertificateSigningRequest") => Names::Any,
        ("certificates.k8s.io", "ClusterTrustBundle") => Names::Path,
        _ => Names::Subdomain,
    }
}

fn name_faults(names: Names, name: &str, prefix: bool) -> Faults {
    let masked = || if prefix { checks::as_prefix(name) } else { name.into() };
    match names {
        Names::Whole if prefix => Faults::new(),
        Names::Subdomain => checks::dns_subdomain(&masked()),
        // The newer checks count bytes, which their text mentions.
        Names::Whole => {
            let faults = checks::dns_subdomain(name);
            faults.into_iter().map(|f| f.replace("than 253 characters", "than 253 bytes")).collect()
        }
        Names::Label => checks::dns_label(&masked()),
        Names::Path => checks::path_segment(name, prefix),
        Names::Address => super::address::strict(name),
        Names::Key => checks::config_key(name),
        Names::Any => Faults::new(),
    }
}

/// Metadata of a new object, as its kind sees it.
pub(super) fn create(kind: &Kind, object: &Obj, errors: &mut Errors) {
    whole(names_of(kind), kind.namespaced, object, errors);
    if kubernetes_names(kind) {
        standard_finalizers(object, errors);
    }
}

/// Metadata as the registry checks it: names are segments of paths.
pub(super) fn generic(namespaced: bool, object: &Obj, errors: &mut Errors) {
    whole(Names::Path, namespaced, object, errors);
}

/// Metadata of a kind without further rules for it: only names are checked differently.
pub(super) fn generic_names(object: &Obj, errors: &mut Errors) {
    own_names(Names::Path, crate::obj::object(object, "metadata"), errors);
}

/// `ValidateObjectMetaAccessor`.
fn whole(names: Names, namespaced: bool, object: &Obj, errors: &mut Errors) {
    let meta = crate::obj::object(object, "metadata");
    let path = Path::new("metadata");
    own_names(names, meta, errors);
    let namespace = text(meta, "namespace");
    if namespaced {
        errors.named(&path.field("namespace"), namespace, checks::dns_label);
    } else if !namespace.is_empty() {
        errors.forbidden(&path.field("namespace"), "not allowed on this type");
    }
    common(meta, &path, errors);
}

fn own_names(names: Names, meta: &Obj, errors: &mut Errors) {
    let path = Path::new("metadata");
    let prefix = text(meta, "generateName");
    if !prefix.is_empty() {
        errors.invalid_all(&path.field("generateName"), prefix, &name_faults(names, prefix, true));
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.required(&path.field("name"), "name or generateName is required");
    } else {
        errors.invalid_all(&path.field("name"), name, &name_faults(names, name, false));
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
    common(meta, path, errors);
}

/// Metadata that is checked alike wherever it is.
fn common(meta: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(generation) = int(meta, "generation").filter(|g| *g < 0) {
        errors.invalid(&path.field("generation"), generation, NOT_NEGATIVE);
    }
    labels(crate::obj::object(meta, "labels"), &path.field("labels"), errors);
    annotations(crate::obj::object(meta, "annotations"), &path.field("annotations"), errors);
    owners(list(meta, "ownerReferences"), &path.field("ownerReferences"), errors);
    finalizers(list(meta, "finalizers"), &path.field("finalizers"), errors);
}

/// Groups whose kinds may have finalizers of any name; others must use the known names of Kubernetes' own finalizers.
fn kubernetes_names(kind: &Kind) -> bool {
    let lenient = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "policy",
    ];
    kind.custom.is_none() && !lenient.contains(&kind.gvk.group.as_str())
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
    let mut controller: Option<&Obj> = None;
    for owner in owners.iter().map(as_obj) {
        let full = text(owner, "apiVersion");
        let (group, version) = group_version(full);
        if version.is_empty() {
            errors.invalid(&path.field("apiVersion"), full, "version must not be empty");
        }
        for key in ["kind", "name", "uid"] {
            if text(owner, key).is_empty() {
                errors.invalid(&path.field(key), text(owner, key), "must not be empty");
            }
        }
        if group.is_empty() && version == "v1" && text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.invalid_text(path, golang::structure("OwnerReference", owner), detail);
        }
        if flag(owner, "controller") {
            match controller {
                Some(first) => {
                    let name = |owner: &Obj| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                        name(first),
                        name(owner)
                    );
                    errors.invalid_text(path, golang::list("OwnerReference", owners), &detail);
                }
                None => controller = Some(owner),
            }
        }
    }
}

/// Group and version of a text that may be none (`FromAPIVersionAndKind`).
fn group_version(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        None => ("", text),
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(both) => both,
    }
}

/// `ValidateFinalizers`: finalizers have qualified names.
fn finalizers(finalizers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for finalizer in finalizers {
        let finalizer = finalizer.as_str().unwrap_or_default();
        errors.invalid_all(path, finalizer, &checks::qualified_name(finalizer));
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

/// Finalizers of Kubernetes' own kinds: those without a domain are known ones (`validateKubeFinalizerName`).
fn standard_finalizers(object: &Obj, errors: &mut Errors) {
    let path = Path::new("metadata");
    let at = path.field("finalizers");
    for (i, finalizer) in list(crate::obj::object(object, "metadata"), "finalizers").iter().enumerate() {
        standard_finalizer(finalizer.as_str().unwrap_or_default(), &at.index(i), errors);
    }
}

/// Finalizers that need no domain.
pub(super) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

fn standard_finalizer(finalizer: &str, path: &Path<'_>, errors: &mut Errors) {
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path, finalizer, detail);
    }
}

/// A finalizer of a namespace's spec (`validateFinalizerName`).
pub(super) fn finalizer(finalizer: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_all(path, finalizer, &checks::qualified_name(finalizer));
    standard_finalizer(finalizer, path, errors);
}

/// How often, and how, a kind's own validation of updates checks metadata after the registry.
#[derive(Clone, Copy)]
struct Looks {
    /// As a new version of the old one (`ValidateObjectMetaUpdate`).
    changed: usize,
    /// As if it were new (`ValidateObjectMeta`).
    new: usize,
}

/// The table of [`Looks`] (upstream: `ValidateUpdate` of each strategy).
fn looks(kind: &Kind, subresource: &str) -> Looks {
    let (changed, new) = match (kind.gvk.group.as_str(), kind.gvk.kind.as_str(), subresource) {
        _ if kind.custom.is_some() => (1, 0),
        ("", "Event", _) | ("policy", _, _) | ("batch", "CronJob", "status") => (0, 0),
        ("flowcontrol.apiserver.k8s.io", _, "status") => (0, 0),
        ("flowcontrol.apiserver.k8s.io" | "admissionregistration.k8s.io" | "discovery.k8s.io", _, _)
        | ("", "LimitRange", "")
        | ("storage.k8s.io", "VolumeAttachment" | "CSINode", _) => (0, 1),
        ("", "PersistentVolume", "") => (0, 2),
        ("certificates.k8s.io", "CertificateSigningRequest", _) => (1, 1),
        (
            "",
            "Pod"
            | "ConfigMap"
            | "Secret"
            | "Endpoints"
            | "PersistentVolumeClaim"
            | "ServiceAccount"
            | "Node"
            | "Namespace",
            "",
        )
        | ("batch", "Job", "")
        | ("apps", "ControllerRevision", "")
        | ("resource.k8s.io", "DeviceClass" | "ResourceClaim" | "ResourceClaimTemplate", "")
        | ("storage.k8s.io", "StorageClass" | "CSIStorageCapacity" | "VolumeAttributesClass", "")
        | ("networking.k8s.io", "IPAddress" | "Ingress" | "IngressClass", "")
        | ("certificates.k8s.io", "ClusterTrustBundle", "")
        | ("storagemigration.k8s.io", _, "")
        | ("apiregistration.k8s.io", _, "")
        | ("rbac.authorization.k8s.io" | "node.k8s.io", _, "") => (1, 1),
        _ => (1, 0),
    };
    Looks { changed, new }
}

/// Metadata of an update, checked by the registry and by the kind. Errors occur as often as upstream reports them;
/// valid metadata is not checked again.
pub(super) fn updated(kind: &Kind, subresource: &str, old: &Obj, new: &Obj, errors: &mut Errors) {
    let found = errors.0.len();
    generic(kind.namespaced, new, errors);
    let right = errors.0.len() == found;
    let found = errors.0.len();
    update(old, new, errors);
    let changed_rightly = errors.0.len() == found;
    let looks = looks(kind, subresource);
    for _ in 0..looks.changed {
        if !changed_rightly {
            update(old, new, errors);
        }
        if kubernetes_names(kind) {
            standard_finalizers(new, errors);
        }
    }
    for _ in 0..looks.new {
        if !right {
            create(kind, new, errors);
            continue;
        }
        own_names(names_of(kind), object(new, "metadata"), errors);
        if kubernetes_names(kind) {
            standard_finalizers(new, errors);
        }
    }
}

/// Metadata of a new version of an object (`ValidateObjectMetaAccessorUpdate`).
fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, meta) = (object(old, "metadata"), object(new, "metadata"));
    let path = Path::new("metadata");
    if has(before, "deletionTimestamp") {
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
