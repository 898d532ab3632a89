//! Strategies of the registry, kind by kind (upstream: `pkg/registry/*/strategy.go`): status belongs to its
//! subresource, `generation` counts changes of the spec, the server sets some fields.
//!
//! Name, namespace, UID, times and resource version are the caller's business and already in place.

mod devices;
mod disabled;
mod endpoints;
mod job;
mod lists;
mod pod;
mod request;
mod service;
mod volume;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::obj::{Obj, children, has, list, object, set, text, with_child};

pub(crate) use pod::profile as app_armor_profile;
pub use pod::qos_class;

/// Makes a decoded and defaulted object ready for validation and storage. `metadata.uid` and
/// `metadata.creationTimestamp` are set.
pub fn prepare_create(kind: &Kind, object: &mut Value, now: Timestamp) {
    let Some(o) = object.as_object_mut() else { return };
    if kind.custom.as_ref().is_some_and(|c| c.status) || (kind.custom.is_none() && drops_status(kind)) {
        clear_status(kind, o);
    }
    if kind.custom.is_some() || !matches!(generation_of(kind), Counted::No | Counted::LateSpec) {
        with_child(o, "metadata", |meta| meta.insert("generation".to_owned(), json!(1)));
    }
    if kind.custom.is_some() {
        return;
    }
    disabled::drop(kind, o);
    lists::store(kind, o);
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::create(o, now),
        ("", "Namespace") => namespace_create(o),
        ("", "Service") => service::create(o),
        ("", "PersistentVolume") => volume::phase(o, None, now),
        ("", "PersistentVolumeClaim") => volume::data_sources(o, None),
        ("", "ServiceAccount") => secret_references(o),
        ("", "Node") => {
            drop_field(o, "spec", "configSource");
            drop_field(o, "status", "config");
        }
        ("storage.k8s.io", "CSIDriver") => drop_field(o, "spec", "preventPodSchedulingIfMissing"),
        ("apiregistration.k8s.io", "APIService") => local_service(o, now),
        ("apps", "DaemonSet") => {
            let given = given_generation(o).filter(|n| *n > 0);
            template_generation(o, given.unwrap_or(1));
        }
        ("batch", "Job") => job::create(o),
        ("coordination.k8s.io", "Lease") => lease(o, None),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::drop_topology(o, None),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => stored_versions(o),
        ("resource.k8s.io", "ResourceSlice") => {
            taint_times(o, now);
            devices::drop_disabled(None, o);
        }
        _ => {}
    }
}

/// Prepares a decoded and defaulted new version of an object: restores the fields that the endpoint (`subresource`,
/// empty for the object itself) may not change, and sets `generation`.
pub fn prepare_update(kind: &Kind, subresource: &str, old: &Value, new: &mut Value, now: Timestamp) {
    let (Some(before), Some(o)) = (old.as_object(), new.as_object_mut()) else { return };
    if kind.custom.is_none() {
        disabled::drop(kind, o);
        lists::store(kind, o);
    }
    match subresource {
        "" => {
            if kind.subresource("status").is_some() || kind.custom.as_ref().is_some_and(|c| c.status) {
                keep(o, before, "status");
            }
            main_update(kind, before, o);
            bump(kind, before, o);
        }
        "status" => status_update(kind, before, o, now),
        "finalize" => keep(o, before, "status"),
        "ephemeralcontainers" | "resize" => {
            pod::subresource(subresource, before, o);
            bump(kind, before, o);
        }
        "approval" => request::approval(before, o, now),
        _ => bump(kind, before, o),
    }
}

/// Whether no step between defaults and the store removes a default, so that defaults need not run again. The kinds
/// that are written most are listed; others get their defaults once more.
pub fn keeps_defaults(kind: &Kind) -> bool {
    kind.custom.is_none()
        && matches!(
            (kind.gvk.group.as_str(), kind.gvk.kind.as_str()),
            ("", "Pod" | "Event") | ("events.k8s.io", "Event")
        )
}

/// The last changes to an object after its validation.
pub fn finish(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() || !kind.gvk.group.is_empty() {
        return;
    }
    let Some(o) = object.as_object_mut() else { return };
    match kind.gvk.kind.as_str() {
        "Service" => service::finish(o),
        // A generated name was not known when defaults were filled in.
        "Namespace" => with_child(o, "metadata", |meta| {
            let name = text(meta, "name").to_owned();
            with_child(meta, "labels", |labels| {
                labels.insert("kubernetes.io/metadata.name".to_owned(), name.into())
            });
        }),
        _ => {}
    }
}

/// Takes a top-level field over from the old object.
fn keep(new: &mut Obj, old: &Obj, key: &str) {
    match old.get(key) {
        Some(value) => new.insert(key.to_owned(), value.clone()),
        None => new.remove(key),
    };
}

/// Kinds whose status a client cannot set on create.
fn drops_status(kind: &Kind) -> bool {
    let node = kind.gvk.group.is_empty() && kind.gvk.kind == "Node";
    kind.subresource("status").is_some() && !node && kind.gvk.group != "apiregistration.k8s.io"
}

fn clear_status(kind: &Kind, o: &mut Obj) {
    if kind.custom.is_some() {
        o.remove("status");
        return;
    }
    let zero = kind.schema.as_ref().and_then(|s| {
        let property = s.schema().properties.get("status")?;
        Some(crate::decode::zero_value(&s.schemas, property.id))
    });
    o.insert("status".to_owned(), zero.unwrap_or_else(|| json!({})));
    let phase = match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod" | "PersistentVolume" | "PersistentVolumeClaim") => "Pending",
        ("", "Namespace") => "Active",
        _ => return,
    };
    with_child(o, "status", |status| set(status, "phase", phase));
}

/// The changes that `generation` counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Nothing: it is the client's, or not set at all.
    No,
    /// Changes of `spec`, but a new object has none.
    LateSpec,
    /// It is 1 and stays.
    Fixed,
    /// Changes of these top-level fields.
    Fields(&'static [&'static str]),
    /// Changes of `spec` and of annotations.
    SpecAndAnnotations,
}

fn generation_of(kind: &Kind) -> Counted {
    use Counted::{Fields, Fixed, LateSpec, No, SpecAndAnnotations};
    const SPEC: Counted = Fields(&["spec"]);
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("apps", "Deployment") => SpecAndAnnotations,
        ("", "Pod" | "ReplicationController")
        | ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job" | "CronJob")
        | ("policy", "PodDisruptionBudget")
        | ("networking.k8s.io", "Ingress" | "NetworkPolicy" | "IngressClass" | "ServiceCIDR" | "IPAddress")
        | ("resource.k8s.io", "DeviceClass" | "ResourceSlice")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => SPEC,
        ("", "PodTemplate") => Fields(&["template"]),
        ("scheduling.k8s.io", "PriorityClass") => Fixed,
        ("storage.k8s.io", "CSIDriver") => LateSpec,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => Fields(&["webhooks"]),
        ("admissionregistration.k8s.io", _) => SPEC,
        ("discovery.k8s.io", "EndpointSlice") => Fields(&["endpoints", "ports", "addressType"]),
        _ => No,
    }
}

/// Whether `generation` counts changes of labels, too.
fn counts_labels(kind: &Kind) -> bool {
    kind.gvk.group == "discovery.k8s.io" && kind.gvk.kind == "EndpointSlice"
}

/// Counts a change of intent.
fn bump(kind: &Kind, old: &Obj, new: &mut Obj) {
    let labels = |o: &Obj| object(object(o, "metadata"), "labels").clone();
    let changed = |keys: &[&str]| keys.iter().any(|key| old.get(*key) != new.get(*key));
    let grown = if kind.custom.is_some() {
        let system = |key: &str| matches!(key, "metadata" | "status" | "apiVersion" | "kind");
        let status_apart = kind.custom.as_ref().is_some_and(|c| c.status);
        let counts = |key: &str| !system(key) || (key == "status" && !status_apart);
        old.keys().chain(new.keys()).any(|key| counts(key) && old.get(key) != new.get(key))
    } else {
        match generation_of(kind) {
            Counted::No | Counted::Fixed => false,
            Counted::LateSpec => changed(&["spec"]),
            Counted::Fields(keys) => changed(keys) || (counts_labels(kind) && labels(old) != labels(new)),
            Counted::SpecAndAnnotations => {
                let annotations = |o: &Obj| object(object(o, "metadata"), "annotations").clone();
                changed(&["spec"]) || annotations(old) != annotations(new)
            }
        }
    };
    if grown {
        let last = object(old, "metadata").get("generation").and_then(Value::as_i64).unwrap_or(0);
        with_child(new, "metadata", |meta| {
            meta.insert("generation".to_owned(), json!(last.saturating_add(1)))
        });
    }
}

/// An APIService that this server serves itself is available at once.
fn local_service(o: &mut Obj, now: Timestamp) {
    let status = if has(object(o, "spec"), "service") {
        json!({})
    } else {
        json!({ "conditions": [{
            "type": "Available", "status": "True", "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "reason": "Local",
            "message": "Local APIServices are always available",
        }] })
    };
    o.insert("status".to_owned(), status);
}

/// Drops the fields of coordinated leader election, whose feature is off by default upstream.
fn lease(o: &mut Obj, old: Option<&Obj>) {
    let used = |key: &str| old.is_some_and(|o| has(object(o, "spec"), key));
    let (holder, strategy) = (used("preferredHolder"), used("strategy"));
    with_child(o, "spec", |spec| {
        if !holder {
            spec.remove("preferredHolder");
        }
        if !strategy {
            spec.remove("strategy");
        }
    });
}

fn main_update(kind: &Kind, old: &Obj, new: &mut Obj) {
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Namespace") => keep(new, old, "spec"),
        ("", "Pod") => pod::grace(new),
        ("certificates.k8s.io", "CertificateSigningRequest") => keep(new, old, "spec"),
        ("coordination.k8s.io", "Lease") => lease(new, Some(old)),
        ("resource.k8s.io", "ResourceSlice") => devices::drop_disabled(Some(old), new),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::drop_topology(new, Some(old)),
        ("", "Service") => service::update(old, new),
        ("", "ServiceAccount") => secret_references(new),
        ("", "Node") if !has(object(old, "spec"), "configSource") => drop_field(new, "spec", "configSource"),
        ("", "Secret") if text(new, "type").is_empty() => keep(new, old, "type"),
        ("storage.k8s.io", "CSIDriver") if !has(object(old, "spec"), "preventPodSchedulingIfMissing") => {
            drop_field(new, "spec", "preventPodSchedulingIfMissing");
        }
        ("", "PersistentVolumeClaim") => volume::data_sources(new, Some(old)),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => stored_versions(new),
        ("apps", "DaemonSet") => {
            let last = given_generation(old).unwrap_or(1);
            let changed = object(old, "spec").get("template") != object(new, "spec").get("template");
            template_generation(new, if changed { last.saturating_add(1) } else { last });
        }

        _ => {}
    }
}

/// Status endpoints change the status and, depending on the kind, labels and annotations.
fn status_update(kind: &Kind, old: &Obj, new: &mut Obj, now: Timestamp) {
    if kind.custom.is_some() {
        let status = new.get("status").cloned();
        let managed = object(new, "metadata").get("managedFields").cloned();
        let version = object(new, "metadata").get("resourceVersion").cloned();
        *new = old.clone();
        match status {
            Some(status) => new.insert("status".to_owned(), status),
            None => new.remove("status"),
        };
        with_child(new, "metadata", |meta| {
            for (key, value) in [("managedFields", managed), ("resourceVersion", version)] {
                match value {
                    Some(value) => meta.insert(key.to_owned(), value),
                    None => meta.remove(key),
                };
            }
        });
        return;
    }
    let others: Vec<String> = old
        .keys()
        .chain(new.keys())
        .filter(|key| !matches!(key.as_str(), "status" | "metadata" | "apiVersion" | "kind"))
        .cloned()
        .collect();
    for key in others {
        keep(new, old, &key);
    }
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("apps", "Deployment") => {
            with_child(new, "metadata", |meta| keep(meta, object(old, "metadata"), "labels"));
        }
        ("resource.k8s.io", "ResourceClaim") => {
            with_child(new, "metadata", |meta| keep_metadata(meta, old));
            devices::drop_deallocated(old, new);
        }
        ("", "Pod") => pod::status(old, new),
        ("", "PersistentVolume") => volume::phase(new, Some(old), now),
        ("", "Node") if !has(object(old, "status"), "config") => drop_field(new, "status", "config"),
        ("certificates.k8s.io", "CertificateSigningRequest") => request::status(old, new, now),
        _ if keeps_metadata(kind) => with_child(new, "metadata", |meta| keep_metadata(meta, old)),
        _ => {}
    }
}

/// Kinds whose status endpoint leaves metadata alone (`ResetObjectMetaForStatus`).
fn keeps_metadata(kind: &Kind) -> bool {
    matches!(
        (kind.gvk.group.as_str(), kind.gvk.kind.as_str()),
        ("storage.k8s.io", "VolumeAttachment")
            | ("networking.k8s.io", "ServiceCIDR")
            | ("certificates.k8s.io", "PodCertificateRequest")
            | ("admissionregistration.k8s.io", _)
            | ("flowcontrol.apiserver.k8s.io" | "storagemigration.k8s.io" | "internal.apiserver.k8s.io", _)
            | ("apiregistration.k8s.io" | "resource.k8s.io", _)
            | ("scheduling.k8s.io", "PodGroup")
    )
}

/// Ignores a client's changes of metadata, except its managed fields.
fn keep_metadata(meta: &mut Obj, old: &Obj) {
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        keep(meta, object(old, "metadata"), key);
    }
}

fn namespace_create(o: &mut Obj) {
    with_child(o, "spec", |spec| {
        let mut finalizers = list(spec, "finalizers").to_vec();
        if !finalizers.iter().any(|f| f == "kubernetes") {
            finalizers.push(json!("kubernetes"));
        }
        spec.insert("finalizers".to_owned(), Value::Array(finalizers));
    });
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The generation of a `DaemonSet`'s template, from its annotation.
fn given_generation(o: &Obj) -> Option<i64> {
    let annotation = object(object(o, "metadata"), "annotations").get(TEMPLATE_GENERATION)?;
    annotation.as_str()?.parse().ok()
}

/// A `DaemonSet` shows the generation of its template in an annotation.
fn template_generation(o: &mut Obj, generation: i64) {
    with_child(o, "metadata", |meta| {
        with_child(meta, "annotations", |a| {
            a.insert(TEMPLATE_GENERATION.to_owned(), Value::String(generation.to_string()));
        });
    });
}

/// Drops a field of `part`, if the object has it.
fn drop_field(o: &mut Obj, part: &str, key: &str) {
    if let Some(part) = o.get_mut(part).and_then(Value::as_object_mut) {
        part.remove(key);
    }
}

/// Of the secrets a `ServiceAccount` refers to, only names count (`cleanSecretReferences`).
fn secret_references(o: &mut Obj) {
    for secret in children(o, "secrets") {
        secret.retain(|key, _| key == "name");
    }
}

/// The storage version of a definition is one of those in which objects have been stored.
fn stored_versions(o: &mut Obj) {
    let mut versions = list(object(o, "spec"), "versions").iter();
    // the first one, should there wrongly be several
    let storage = versions.find(|v| v["storage"] == json!(true)).and_then(|v| v.get("name")).cloned();
    with_child(o, "status", |status| {
        let mut stored = list(status, "storedVersions").to_vec();
        let new = storage.filter(|name| !stored.contains(name));
        stored.extend(new);
        status.insert("storedVersions".to_owned(), Value::Array(stored));
    });
}

/// Taints of devices have the time at which they were added.
fn taint_times(o: &mut Obj, now: Timestamp) {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    with_child(o, "spec", |spec| {
        for taint in children(spec, "devices").flat_map(|d| children(d, "taints")) {
            set(taint, "timeAdded", time.clone());
        }
    });
}
