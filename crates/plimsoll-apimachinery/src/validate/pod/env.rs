//! Environment variables and where their values come from (`ValidateEnv`, `ValidateEnvFrom`).

use serde_json::Value;

use super::super::checks;
use super::super::path::{Errors, Path};
use super::super::source;
use crate::obj::{Obj, as_obj, has, list, object, text};

/// The variables of a container.
pub(super) fn environment(env: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, variable) in env.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        errors.named(&at.field("name"), text(variable, "name"), checks::env_name);
        value_from(variable, &at.field("valueFrom"), errors);
    }
}

fn value_from(variable: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if !has(variable, "valueFrom") {
        return;
    }
    let from = object(variable, "valueFrom");
    let mut sources = 0;
    if let Some(field) = from.get("fieldRef").and_then(Value::as_object) {
        sources += 1;
        field_ref(field, ENV_FIELDS, &path.field("fieldRef"), errors);
    }
    if let Some(resource) = from.get("resourceFieldRef").and_then(Value::as_object) {
        sources += 1;
        resource_field_ref(resource, false, &path.field("resourceFieldRef"), errors);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = from.get(key).and_then(Value::as_object) else { continue };
        sources += 1;
        let at = path.field(key);
        let (name, entry) = (text(reference, "name"), text(reference, "key"));
        errors.invalid_all(&at.field("name"), name, &checks::dns_subdomain(name));
        errors.named(&at.field("key"), entry, checks::config_key);
    }
    if let Some(file) = from.get("fileKeyRef").and_then(Value::as_object) {
        sources += 1;
        file_key(file, &path.field("fileKeyRef"), errors);
    }
    if sources == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", detail);
    } else if !text(variable, "value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// `validateFileKeySelector`.
fn file_key(file: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (key, target) = (text(file, "key"), text(file, "path"));
    errors.named(&path.field("key"), key, checks::env_name);
    errors.named(&path.field("volumeName"), text(file, "volumeName"), checks::dns_label);
    if target.is_empty() {
        errors.required(&path.field("path"), "");
    } else {
        source::no_backsteps(target, &path.field("path"), errors);
    }
}

/// Variables from files come from empty directories of the pod (`validateFileKeyRefVolumes`).
pub(super) fn file_volumes(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let volumes = list(spec, "volumes");
    super::each_container(spec, path, &mut |c, at| {
        let env = at.field("env");
        for (i, variable) in list(c, "env").iter().map(as_obj).enumerate() {
            let from = object(variable, "valueFrom");
            let Some(file) = from.get("fileKeyRef").and_then(Value::as_object) else { continue };
            let name = text(file, "volumeName");
            let here = env.index(i);
            let (from, reference) = ("valueFrom", "fileKeyRef");
            let from = here.field(from);
            let reference = from.field(reference);
            let at = reference.field("volumeName");
            match volumes.iter().map(as_obj).rfind(|v| text(v, "name") == name) {
                None => errors.not_found(&at, name, ""),
                Some(v) if !has(v, "emptyDir") => {
                    errors.invalid(&at, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}

/// Fields of a pod an environment variable can show.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod a downward API volume can show.
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"];
/// All field labels of pods (`ConvertDownwardAPIFieldLabel`).
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// A reference to a field of the pod (`validateObjectFieldSelector`).
pub(super) fn field_ref(reference: &Obj, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    if version.is_empty() {
        errors.required(&path.field("apiVersion"), "");
        return;
    }
    let at = path.field("fieldPath");
    if field.is_empty() {
        errors.required(&at, "");
        return;
    }
    let refuse = |why: String, errors: &mut Errors| {
        errors.invalid(&at, field, &format!("error converting fieldPath: {why}"));
    };
    if version != "v1" {
        refuse(format!("unsupported pod version: {version}"), errors);
        return;
    }
    if let Some((base, key)) = subscript(field) {
        match base {
            "metadata.annotations" => {
                errors.invalid_all(path, &key.to_lowercase(), &checks::qualified_name(&key.to_lowercase()));
            }
            "metadata.labels" => errors.invalid_all(path, key, &checks::qualified_name(key)),
            _ => refuse(format!("field label does not support subscript: {field}"), errors),
        }
        return;
    }
    // The deprecated name of the node's.
    let internal = if field == "spec.host" { "spec.nodeName" } else { field };
    if !KNOWN_FIELDS.contains(&internal) {
        refuse(format!("field label not supported: {field}"), errors);
    } else if !allowed.contains(&internal) {
        let mut allowed: Vec<&str> = allowed.to_vec();
        allowed.sort_unstable();
        errors.not_supported(&at, internal, &allowed);
    }
}

/// `metadata.labels['key']` in two (`SplitMaybeSubscriptedPath`).
fn subscript(field: &str) -> Option<(&str, &str)> {
    let (base, key) = field.strip_suffix("']")?.split_once("['")?;
    (!base.is_empty()).then_some((base, key))
}

/// Resources of a container a variable or volume can show.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// A reference to a container's resources (`validateContainerResourceFieldSelector`).
pub(super) fn resource_field_ref(reference: &Obj, volume: bool, path: &Path<'_>, errors: &mut Errors) {
    let resource = text(reference, "resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|p| resource.starts_with(p));
    if volume && text(reference, "containerName").is_empty() {
        errors.required(&path.field("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.field("resource"), "");
    } else if !RESOURCES.contains(&resource) && !huge {
        errors.not_supported(&path.field("resource"), resource, &RESOURCES);
    }
    divisor(reference, resource, huge, path, errors);
}

fn divisor(reference: &Obj, resource: &str, huge: bool, path: &Path<'_>, errors: &mut Errors) {
    const BYTES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let divisor = text(reference, "divisor");
    let (allowed, what): (&[&str], &str) = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") if RESOURCES.contains(&resource) => (&["1m", "1"], "the cpu resource"),
        Some("memory") if RESOURCES.contains(&resource) => (&BYTES, "the memory resource"),
        Some("ephemeral-storage") if RESOURCES.contains(&resource) => {
            (&BYTES, "the local ephemeral storage resource")
        }
        _ if huge => (&BYTES, "the hugepages resource"),
        _ => return,
    };
    if matches!(divisor, "" | "0") || allowed.contains(&divisor) {
        return;
    }
    let values = if allowed.len() == 2 { "1m and 1".to_owned() } else { BYTES.join(", ") };
    let detail = format!("only divisor's values {values} are supported with {what}");
    errors.invalid(&path.field("divisor"), resource, &detail);
}

/// Objects all of whose entries are variables.
pub(super) fn sources(sources: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, source) in sources.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.invalid_all(&at.field("prefix"), prefix, &checks::env_name(prefix));
        }
        let mut count = 0;
        for key in ["configMapRef", "secretRef"] {
            let Some(reference) = source.get(key).and_then(Value::as_object) else { continue };
            count += 1;
            let name = text(reference, "name");
            let inner = at.field(key);
            // A name that something may still be added to.
            let check = |name: &str| checks::dns_subdomain(&checks::as_prefix(name));
            errors.named(&inner.field("name"), name, check);
        }
        match count {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}
