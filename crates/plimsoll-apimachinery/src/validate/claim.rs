//! core/v1 `PersistentVolumeClaim`, and claims in the templates of pods and sets.

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, resources, selector};
use crate::obj::{Obj, has, list, object, text};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// The annotation that named the storage class before the field existed.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Modes of access of volumes and claims: known ones, and `ReadWriteOncePod` alone.
pub(super) fn access_modes(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("accessModes");
    let modes: Vec<&str> = list(spec, "accessModes").iter().filter_map(Value::as_str).collect();
    for mode in &modes {
        errors.one_of(&at, mode, &MODES);
    }
    let others = modes.iter().any(|m| *m != "ReadWriteOncePod" && MODES.contains(m));
    if others && modes.contains(&"ReadWriteOncePod") {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// `ValidatePositiveQuantityValue`.
pub(super) fn positive(value: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let amount = resources::amount(value);
    if amount.signum() <= 0 {
        errors.invalid(path, amount.to_string(), "must be greater than zero");
    }
    amount.signum() > 0
}

/// The mode of a volume, if it has one.
pub(super) fn volume_mode(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str) {
        errors.one_of(&path.field("volumeMode"), mode, &["Block", "Filesystem"]);
    }
}

/// The name of a class, if there is one.
pub(super) fn class_name(spec: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
    let class = text(spec, key);
    if !class.is_empty() {
        errors.invalid_all(&path.field(key), class, &checks::dns_subdomain(class));
    }
}

/// core/v1 `PersistentVolumeClaim`.
pub(super) fn claim(claim: &Obj, errors: &mut Errors) {
    spec(object(claim, "spec"), &Path::new("spec"), errors);
}

/// `ValidatePersistentVolumeClaimSpec`.
pub(super) fn spec(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if list(spec, "accessModes").is_empty() {
        errors.required(&path.field("accessModes"), "at least 1 access mode is required");
    }
    if has(spec, "selector") {
        selector::label_selector(object(spec, "selector"), &path.field("selector"), errors);
    }
    access_modes(spec, path, errors);
    let at = path.field("resources");
    match object(object(spec, "resources"), "requests").get("storage") {
        None => errors.required(&at.key("storage"), ""),
        Some(amount) => {
            positive(amount, &at.key("storage"), errors);
        }
    }
    class_name(spec, "storageClassName", path, errors);
    volume_mode(spec, path, errors);
    for key in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.get(key).and_then(Value::as_object) {
            data_source(source, &path.field(key), errors);
        }
    }
    sources_agree(spec, path, errors);
    class_name(spec, "volumeAttributesClassName", path, errors);
}

fn data_source(source: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for part in ["name", "kind"] {
        if text(source, part).is_empty() {
            errors.required(&path.field(part), "");
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if !group.is_empty() {
        errors.invalid_all(&path.field("apiGroup"), group, &checks::dns_subdomain(group));
    } else if kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, kind, detail);
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        errors.invalid_all(&path.field("namespace"), namespace, &checks::dns_label(namespace));
    }
}

/// `dataSource` equals `dataSourceRef`, or is missing when that refers to another namespace. Upstream shows a path for
/// the value, which is printed as an empty object.
fn sources_agree(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "dataSource") || !has(spec, "dataSourceRef") {
        return;
    }
    let (source, reference) = (object(spec, "dataSource"), object(spec, "dataSourceRef"));
    let value = |o: &Obj, key: &str| o.get(key).filter(|v| !v.is_null()).cloned();
    if !text(reference, "namespace").is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid_text(path, "{}".to_owned(), detail);
    } else if ["apiGroup", "kind", "name"].iter().any(|key| value(source, key) != value(reference, key)) {
        errors.invalid_text(path, "{}".to_owned(), "must match dataSourceRef");
    }
}

/// Claims are immutable, except for their size once bound and fields that are still empty
/// (`ValidatePersistentVolumeClaimUpdate`).
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    let mut is = after.clone();
    let accept = |is: &mut Obj, key: &str| {
        match before.get(key) {
            Some(value) => is.insert(key.to_owned(), value.clone()),
            None => is.remove(key),
        };
    };
    if text(before, "volumeName").is_empty() {
        accept(&mut is, "volumeName");
    }
    class_change(old, new, &mut is, errors);
    let bound = text(object(new, "status"), "phase") == "Bound";
    if bound {
        accept(&mut is, "volumeAttributesClassName");
        accept_size(before, &mut is);
    }
    if !same_spec(&is, before) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&path, detail);
    }
    let amount = |o: &Obj| o.get("storage").map(resources::amount).unwrap_or_default();
    let size = |o: &Obj| amount(object(object(o, "resources"), "requests"));
    if size(after) < size(before) && size(after) <= amount(object(object(old, "status"), "capacity")) {
        let resources = path.field("resources");
        let requests = resources.field("requests");
        errors.forbidden(&requests.field("storage"), "field can not be less than status.capacity");
    }
    errors.immutable(&Path::new("volumeMode"), before, after, "volumeMode");
    if has(object(old, "status"), "currentVolumeAttributesClassName") {
        let what = match after.get("volumeAttributesClassName").and_then(Value::as_str) {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return,
        };
        if before.get("volumeAttributesClassName") != after.get("volumeAttributesClassName") {
            let detail = format!(
                "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
            );
            errors.forbidden(&path.field("volumeAttributesClassName"), &detail);
        }
    }
}

/// A class may be set where there was none, by the annotation or the field, when both are equal.
fn class_change(old: &Obj, new: &Obj, is: &mut Obj, errors: &mut Errors) {
    let annotation = |o: &Obj| -> Option<String> {
        object(object(o, "metadata"), "annotations").get(CLASS).and_then(Value::as_str).map(str::to_owned)
    };
    let class =
        |o: &Obj| object(o, "spec").get("storageClassName").and_then(Value::as_str).map(str::to_owned);
    let (was, now) = (annotation(old), annotation(new));
    let (old_class, new_class) = (class(old), class(new));
    let upgraded = was.is_some() && old_class.is_none() && new_class == was && (now.is_none() || now == was);
    if upgraded {
        is.remove("storageClassName");
        return;
    }
    if was.clone().unwrap_or_default() != now.clone().unwrap_or_default() {
        let meta = Path::new("metadata");
        let annotations = meta.field("annotations");
        errors.invalid(&annotations.field(CLASS), now.unwrap_or_default(), IMMUTABLE);
    }
    if old_class.is_none() && new_class.is_some() && (was.is_none() || was == new_class) {
        is.remove("storageClassName");
    }
}

/// The size of a bound claim may change.
fn accept_size(before: &Obj, is: &mut Obj) {
    let was = object(object(before, "resources"), "requests").get("storage").cloned();
    let requests = is
        .get_mut("resources")
        .and_then(|r| r.get_mut("requests"))
        .and_then(Value::as_object_mut)
        .filter(|r| !r.is_empty());
    if let (Some(requests), Some(was)) = (requests, was) {
        requests.insert("storage".to_owned(), was);
    }
}

/// Fields that are compared by presence.
const PARTS: [&str; 3] = ["selector", "dataSource", "dataSourceRef"];

/// Whether two specs are equal (`Semantic.DeepEqual`): `null` and empty lists and maps equal a missing field.
fn same_spec(a: &Obj, b: &Obj) -> bool {
    fn clean(value: &Value) -> Value {
        match value {
            Value::Object(o) => o
                .iter()
                .map(|(k, v)| (k.clone(), clean(v)))
                .filter(|(k, v)| match v {
                    Value::Null => false,
                    Value::Array(a) => !a.is_empty(),
                    Value::Object(o) => !o.is_empty() || PARTS.contains(&k.as_str()),
                    _ => true,
                })
                .insert_each::<Obj>()
                .into(),
            other => other.clone(),
        }
    }
    clean(&Value::Object(a.clone())) == clean(&Value::Object(b.clone()))
}

const RESIZE: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// `ValidatePersistentVolumeClaimStatusUpdate`.
pub(super) fn status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let status = object(new, "status");
    if list(object(new, "spec"), "accessModes").is_empty() {
        errors.required(&Path::new("Spec").field("accessModes"), "");
    }
    let path = Path::new("status");
    let at = path.field("capacity");
    for (name, value) in object(status, "capacity") {
        resources::basic(value, &at.key(name), errors);
    }
    let at = path.field("allocatedResourceStatuses");
    for (name, value) in object(status, "allocatedResourceStatuses") {
        resource_key(name, &at, errors);
        if !value.as_str().is_some_and(|v| RESIZE.contains(&v)) {
            errors.not_supported(&at, name.as_str(), &RESIZE);
        }
    }
    let at = path.field("allocatedResources");
    for (name, value) in object(status, "allocatedResources") {
        if resource_key(name, &at, errors) && resources::basic(value, &at.key(name), errors) {
            resources::quantity("storage", value, &at.key(name), errors);
        }
    }
}

/// `validatePersistentVolumeClaimResourceKey`.
fn resource_key(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let faults = checks::qualified_name(name);
    errors.invalid_all(path, name, &faults);
    let foreign = resources::is_native(name) && name != "storage";
    if faults.is_empty() && foreign {
        errors.not_supported(path, name, &["storage"]);
    }
    faults.is_empty() && !foreign
}
