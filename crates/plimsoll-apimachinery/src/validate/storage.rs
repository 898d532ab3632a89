//! Storage classes, drivers and attachments (storage.k8s.io).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, golang, resources, selector, source, volume};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

/// Most parameters of a class.
const MAX_PARAMETERS: usize = 512;
/// Most bytes of parameters, and of the metadata of an attachment.
const MAX_BYTES: usize = 256 * 1024;

/// storage.k8s.io/v1 `StorageClass`.
pub(super) fn storage_class(class: &Obj, errors: &mut Errors) {
    provisioner(text(class, "provisioner"), &Path::new("provisioner"), errors);
    parameters(object(class, "parameters"), &Path::new("parameters"), errors);
    let policy = text(class, "reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let at = Path::new("volumeBindingMode");
    match class.get("volumeBindingMode").and_then(Value::as_str) {
        None => errors.required(&at, ""),
        Some(mode) => errors.one_of(&at, mode, &["Immediate", "WaitForFirstConsumer"]),
    }
    topologies(list(class, "allowedTopologies"), &Path::new("allowedTopologies"), errors);
}

fn provisioner(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    } else {
        let lower = name.to_lowercase();
        errors.invalid_all(path, &lower, &checks::qualified_name(&lower));
    }
}

fn parameters(parameters: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if parameters.len() > MAX_PARAMETERS {
        errors.too_long(path, MAX_PARAMETERS);
        return;
    }
    if parameters.contains_key("") {
        errors.invalid(path, "", "field can not be empty.");
    }
    if bytes(parameters) > MAX_BYTES {
        errors.too_long(path, MAX_BYTES);
    }
}

/// Bytes of keys and values.
fn bytes(map: &Obj) -> usize {
    map.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum()
}

/// `validateAllowedTopologies`.
fn topologies(terms: &[Value], path: &Path<'_>, errors: &mut Errors) {
    type Term<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;
    // Upstream's list begins with as many empty terms as there are terms, so that an empty one is always a duplicate.
    let mut seen: BTreeMap<Term<'_>, usize> = BTreeMap::from([(Term::new(), terms.len())]);
    for (i, term) in terms.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let expressions = at.field("matchLabelExpressions");
        let mut known = Term::new();
        for (k, e) in list(term, "matchLabelExpressions").iter().map(as_obj).enumerate() {
            let here = expressions.index(k);
            let values = here.field("values");
            if list(e, "values").is_empty() {
                errors.required(&values, "");
            }
            let mut set = BTreeSet::new();
            for (n, value) in list(e, "values").iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                if !set.insert(value) {
                    errors.duplicate(&values.index(n), value);
                }
            }
            let key = text(e, "key");
            errors.invalid_all(&here.field("key"), key, &checks::qualified_name(key));
            if known.insert(key, set).is_some() {
                errors.duplicate(&here.field("key"), key);
            }
        }
        let alike = seen.entry(known).or_default();
        for _ in 0..*alike {
            errors.duplicate(&expressions, "");
        }
        *alike += 1;
    }
}

/// The parameters of a class are immutable.
pub(super) fn storage_class_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(&Path::new(key), old, new, key);
    }
}

/// storage.k8s.io/v1 `VolumeAttributesClass`.
pub(super) fn attributes_class(class: &Obj, errors: &mut Errors) {
    provisioner(text(class, "driverName"), &Path::new("driverName"), errors);
    let given = object(class, "parameters");
    parameters(given, &Path::new("parameters"), errors);
    if given.is_empty() {
        errors.required(&Path::new("parameters"), "must contain at least one key/value pair");
    }
}

/// A class is immutable.
pub(super) fn attributes_class_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    for key in ["driverName", "parameters"] {
        if old.get(key) != new.get(key) {
            errors.forbidden(&Path::new(key), &format!("updates to {key} are forbidden."));
        }
    }
}

/// storage.k8s.io/v1 `CSINode`.
pub(super) fn csi_node(node: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("drivers");
    let mut names = BTreeSet::new();
    for (i, driver) in list(object(node, "spec"), "drivers").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let name = text(driver, "name");
        source::driver_name(name, &here.field("name"), errors);
        let id = text(driver, "nodeID");
        if id.is_empty() {
            errors.required(&here.field("nodeID"), "");
        } else if id.len() > 256 {
            errors.invalid(&here.field("nodeID"), id, "must be 256 characters or less");
        }
        let allocatable = here.field("allocatable");
        errors.non_negative(&allocatable.field("count"), int(object(driver, "allocatable"), "count"));
        if !names.insert(name) {
            errors.duplicate(&here.field("name"), name);
        }
        topology_keys(list(driver, "topologyKeys"), &here, errors);
    }
}

/// Keys by which a driver tells nodes apart; errors name the driver.
fn topology_keys(keys: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for key in keys.iter().map(|k| k.as_str().unwrap_or_default()) {
        if key.is_empty() {
            errors.required(path, "");
        }
        if !seen.insert(key) {
            errors.duplicate(path, key);
        }
        errors.invalid_all(path, key, &checks::qualified_name(key));
    }
}

/// The drivers on a node are immutable, except for their limits.
pub(super) fn csi_node_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let fixed = ["name", "nodeID", "topologyKeys"];
    for was in list(object(old, "spec"), "drivers").iter().map(as_obj) {
        for is in list(object(new, "spec"), "drivers").iter().map(as_obj) {
            let same = fixed.iter().all(|key| was.get(*key) == is.get(*key));
            if text(was, "name") != text(is, "name") || same {
                continue;
            }
            let mut shown = is.clone();
            shown.remove("allocatable");
            let shown = golang::structure("CSINodeDriver", &shown);
            errors.invalid_text(&path.field("drivers"), shown, IMMUTABLE);
        }
    }
}

/// storage.k8s.io/v1 `CSIDriver`.
pub(super) fn csi_driver(driver: &Obj, errors: &mut Errors) {
    let spec = object(driver, "spec");
    let path = Path::new("spec");
    for (key, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
        ("seLinuxMount", "seLinuxMount"),
    ] {
        if !has(spec, key) {
            errors.required(&path.field(shown), "");
        }
    }
    if let Some(policy) = spec.get("fsGroupPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("fsGroupPolicy"), policy, &["File", "None", "ReadWriteOnceWithFSType"]);
    }
    token_requests(list(spec, "tokenRequests"), &path.field("tokenRequests"), errors);
    for mode in list(spec, "volumeLifecycleModes") {
        let mode = mode.as_str().unwrap_or_default();
        errors.one_of(&path.field("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
    }
    if let Some(period) = int(spec, "nodeAllocatableUpdatePeriodSeconds").filter(|p| *p < 10) {
        let detail = "must be greater than or equal to 10 seconds";
        errors.invalid(&path.field("nodeAllocatableUpdatePeriodSeconds"), period, detail);
    }
    if has(spec, "serviceAccountTokenInSecrets") && list(spec, "tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        let value = flag(spec, "serviceAccountTokenInSecrets");
        errors.invalid(&path.field("serviceAccountTokenInSecrets"), value, detail);
    }
}

/// Tokens a driver wants: one for each audience, for a while that makes sense.
fn token_requests(requests: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut audiences = BTreeSet::new();
    for (i, request) in requests.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let audience = text(request, "audience");
        if !audiences.insert(audience) {
            errors.duplicate(&at.field("audience"), audience);
            continue;
        }
        if let Some(seconds) = int(request, "expirationSeconds") {
            errors.token_seconds(&at.field("expirationSeconds"), seconds);
        }
    }
}

/// The attachment settings of a driver are immutable.
pub(super) fn csi_driver_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    errors.immutable(&path.field("attachedRequired"), before, after, "attachRequired");
    errors.immutable(&path.field("volumeLifecycleModes"), before, after, "volumeLifecycleModes");
}

/// storage.k8s.io/v1 `CSIStorageCapacity`.
pub(super) fn capacity(capacity: &Obj, errors: &mut Errors) {
    if has(capacity, "nodeTopology") {
        selector::label_selector(object(capacity, "nodeTopology"), &Path::new("nodeTopology"), errors);
    }
    let class = text(capacity, "storageClassName");
    errors.invalid_all(&Path::new("storageClassName"), class, &checks::dns_subdomain(class));
    if let Some(amount) = capacity.get("capacity").filter(|a| !a.is_null()) {
        resources::non_negative(amount, &Path::new("capacity"), errors);
    }
}

/// The topology and class of a capacity are immutable.
pub(super) fn capacity_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let topology = |o: &Obj| o.get("nodeTopology").filter(|t| !t.is_null()).cloned();
    if topology(old) != topology(new) {
        let shown = match new.get("nodeTopology").and_then(Value::as_object) {
            Some(selector) => selector::shown(selector),
            None => "null".to_owned(),
        };
        errors.invalid_text(&Path::new("nodeTopology"), shown, IMMUTABLE);
    }
    if text(old, "storageClassName") != text(new, "storageClassName") {
        errors.invalid(&Path::new("storageClassName"), text(new, "storageClassName"), IMMUTABLE);
    }
}

/// storage.k8s.io/v1 `VolumeAttachment`.
pub(super) fn volume_attachment(attachment: &Obj, errors: &mut Errors) {
    let spec = object(attachment, "spec");
    let path = Path::new("spec");
    source::driver_name(text(spec, "attacher"), &path.field("attacher"), errors);
    attachment_source(object(spec, "source"), &path.field("source"), errors);
    let node = text(spec, "nodeName");
    errors.invalid_all(&path.field("nodeName"), node, &checks::dns_subdomain(node));
    let status = object(attachment, "status");
    let path = Path::new("status");
    if bytes(object(status, "attachmentMetadata")) > MAX_BYTES {
        errors.too_long(&path.field("attachmentMetadata"), MAX_BYTES);
    }
    for key in ["attachError", "detachError"] {
        let (error, at) = (object(status, key), path.field(key));
        if text(error, "message").len() > 1024 {
            // The limit upstream names here is another's.
            errors.too_long(&at.field("message"), MAX_BYTES);
        }
        if let Some(code) = int(error, "errorCode").filter(|c| *c < 0) {
            errors.invalid(&at.field("errorCode"), code, "must be between 0 and 2147483647, inclusive");
        }
    }
}

fn attachment_source(from: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let name = from.get("persistentVolumeName").and_then(Value::as_str);
    match (from.get("inlineVolumeSpec").and_then(Value::as_object), name) {
        (None, None) => errors.required(path, ONE),
        (Some(_), Some(_)) => errors.forbidden(path, ONE),
        (None, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.required(&path.field("persistentVolumeName"), detail);
        }
        (Some(spec), None) => volume::inline(spec, &path.field("inlineVolumeSpec"), errors),
        (None, Some(_)) => {}
    }
    if let Some(name) = name {
        errors.invalid_all(&path.field("persistentVolumeName"), name, &checks::dns_subdomain(name));
    }
}

/// The spec of an attachment is immutable.
pub(super) fn volume_attachment_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("spec") != new.get("spec") {
        errors.invalid_text(
            &Path::new("spec"),
            golang::shown("VolumeAttachmentSpec", new.get("spec")),
            IMMUTABLE,
        );
    }
}

/// The status of an attachment is checked with the whole object.
pub(super) fn volume_attachment_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    volume_attachment(new, errors);
    volume_attachment_update(old, new, errors);
}
