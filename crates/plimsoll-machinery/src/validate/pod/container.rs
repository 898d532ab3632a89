//! Containers: regular, init and ephemeral.

use serde_json::Value;

use super::super::checks;
use super::super::path::{Errors, Path};
use super::super::resources;
use super::{Context, probe, security, volume};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// All containers of a pod.
pub(super) fn containers(spec: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let regular = list(spec, "containers");
    let at = path.field("containers");
    if regular.is_empty() {
        errors.required(&at, "");
    }
    let mut names: Vec<&str> = Vec::with_capacity(regular.len());
    for (i, c) in regular.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        common(c, context, &here, errors);
        unique(c, &mut names, &here, errors);
        probe::lifecycle(object(c, "lifecycle"), context.grace, &here.field("lifecycle"), errors);
        probe::probes(c, context.grace, &here, errors);
        restart_policy(c, &["Always", "OnFailure", "Never"], &here, errors);
    }
    host_ports(regular, &at, errors);
    init_containers(spec, context, &mut names, path, errors);
    let at = path.field("ephemeralContainers");
    for (i, c) in list(spec, "ephemeralContainers").iter().map(as_obj).enumerate() {
        ephemeral(c, context, &mut names, regular, &at.index(i), errors);
    }
}

fn unique<'a>(c: &'a Obj, names: &mut Vec<&'a str>, path: &Path<'_>, errors: &mut Errors) {
    let name = text(c, "name");
    if names.contains(&name) {
        if !name.is_empty() {
            errors.duplicate(&path.field("name"), name);
        }
    } else {
        names.push(name);
    }
}

fn restart_policy(c: &Obj, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(policy) = c.get("restartPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("restartPolicy"), policy, allowed);
    }
}

fn init_containers<'a>(
    spec: &'a Obj,
    context: &Context<'_>,
    names: &mut Vec<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.field("initContainers");
    for (i, c) in list(spec, "initContainers").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let sidecar = text(c, "restartPolicy") == "Always";
        common(c, context, &here, errors);
        restart_policy(c, &["Always", "OnFailure", "Never"], &here, errors);
        unique(c, names, &here, errors);
        host_ports(std::slice::from_ref(&Value::Object(c.clone())), &here.field("ports"), errors);
        if sidecar {
            probe::lifecycle(object(c, "lifecycle"), context.grace, &here.field("lifecycle"), errors);
            probe::probes(c, context.grace, &here, errors);
        } else {
            let detail = "may not be set for init containers without restartPolicy=Always";
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(c, key) {
                    errors.forbidden(&here.field(key), detail);
                }
            }
        }
        if !list(c, "resizePolicy").is_empty() && !sidecar {
            let detail = "must not be set for init containers";
            errors.invalid(&here.field("resizePolicy"), c["resizePolicy"].clone(), detail);
        }
    }
}

fn ephemeral<'a>(
    c: &'a Obj,
    context: &Context<'_>,
    names: &mut Vec<&'a str>,
    regular: &[Value],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    common(c, context, path, errors);
    unique(c, names, path, errors);
    let target = text(c, "targetContainerName");
    if !target.is_empty() && !regular.iter().any(|r| r["name"] == target) {
        errors.not_found(&path.field("targetContainerName"), target, "");
    }
    let mounts = path.field("volumeMounts");
    for (i, mount) in list(c, "volumeMounts").iter().map(as_obj).enumerate() {
        let at = mounts.index(i);
        for key in ["subPath", "subPathExpr"] {
            if !text(mount, key).is_empty() {
                errors.forbidden(&at.field(key), "cannot be set for an Ephemeral Container");
            }
        }
    }
    let detail = "cannot be set for an Ephemeral Container";
    for key in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "ports",
        "resizePolicy",
        "restartPolicy",
    ] {
        if has(c, key) {
            errors.forbidden(&path.field(key), detail);
        }
    }
    if !object(c, "resources").is_empty() {
        errors.forbidden(&path.field("resources"), detail);
    }
}

/// `validateContainerCommon`.
fn common(c: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let name = text(c, "name");
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    } else {
        errors.invalid_all(&path.field("name"), name, &checks::dns_label(name));
    }
    let image = text(c, "image");
    if image.is_empty() {
        errors.required(&path.field("image"), "");
    } else if image.trim() != image {
        errors.invalid(&path.field("image"), image, "must not have leading or trailing whitespace");
    }
    let policy = text(c, "terminationMessagePolicy");
    match policy {
        "" => errors.required(&path.field("terminationMessagePolicy"), ""),
        policy => {
            let allowed = ["File", "FallbackToLogsOnError"];
            errors.one_of(&path.field("terminationMessagePolicy"), policy, &allowed);
        }
    }
    ports(c, context, &path.field("ports"), errors);
    environment(list(c, "env"), &path.field("env"), errors);
    environment_sources(list(c, "envFrom"), &path.field("envFrom"), errors);
    volume::mounts(c, &context.volumes, path, errors);
    let pull = path.field("imagePullPolicy");
    match text(c, "imagePullPolicy") {
        "" => errors.required(&pull, ""),
        policy => errors.one_of(&pull, policy, &["Always", "IfNotPresent", "Never"]),
    }
    resources::container(object(c, "resources"), &context.claims, &path.field("resources"), errors);
    resize_policies(list(c, "resizePolicy"), context, &path.field("resizePolicy"), errors);
    security::container(object(c, "securityContext"), &path.field("securityContext"), errors);
}

fn resize_policies(policies: &[Value], context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, policy) in policies.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let resource = text(policy, "resourceName");
        if seen.contains(&resource) {
            errors.duplicate(path, resource);
        }
        seen.push(resource);
        match resource {
            "" => errors.required(path, ""),
            resource => errors.one_of(path, resource, &["cpu", "memory"]),
        }
        let restart = text(policy, "restartPolicy");
        match restart {
            "" => errors.required(path, ""),
            restart => errors.one_of(path, restart, &["NotRequired", "RestartContainer"]),
        }
        if context.restart == "Never" && restart == "RestartContainer" {
            errors.invalid(&at, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}

fn ports(c: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut names: Vec<&str> = Vec::new();
    for (i, port) in list(c, "ports").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let faults = checks::port_name(name);
            if !faults.is_empty() {
                errors.invalid_all(&at.field("name"), name, &faults);
            } else if names.contains(&name) {
                errors.duplicate(&at.field("name"), name);
            } else {
                names.push(name);
            }
        }
        let number = int(port, "containerPort").unwrap_or(0);
        if number == 0 {
            errors.required(&at.field("containerPort"), "");
        } else {
            for fault in checks::port_number(number) {
                errors.invalid(&at.field("containerPort"), number, &fault);
            }
        }
        let host = int(port, "hostPort").unwrap_or(0);
        if host != 0 {
            for fault in checks::port_number(host) {
                errors.invalid(&at.field("hostPort"), host, &fault);
            }
        }
        match text(port, "protocol") {
            "" => errors.required(&at.field("protocol"), ""),
            protocol => errors.one_of(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]),
        }
        // In templates 0 stands for what the pod will get.
        if context.host_network && host != 0 && host != number {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.invalid(&at.field("hostPort"), host, detail);
        }
        let ip = text(port, "hostIP");
        if !ip.is_empty() {
            errors.invalid_all(&at.field("hostIP"), ip, &checks::ip(ip));
        }
    }
}

/// The same port of the host asked for twice (`checkHostPortConflicts`).
fn host_ports(containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (i, c) in containers.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let ports = at.field("ports");
        for (j, port) in list(c, "ports").iter().map(as_obj).enumerate() {
            let Some(number) = int(port, "hostPort").filter(|n| *n != 0) else { continue };
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if seen.contains(&key) {
                errors.duplicate(&ports.index(j).field("hostPort"), key);
            } else {
                seen.push(key);
            }
        }
    }
}

fn environment(env: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, variable) in env.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else {
            errors.invalid_all(&at.field("name"), name, &checks::env_name(name));
        }
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
        if !name.is_empty() {
            errors.invalid_all(&at.field("name"), name, &checks::dns_subdomain(name));
        }
        if entry.is_empty() {
            errors.required(&at.field("key"), "");
        } else {
            errors.invalid_all(&at.field("key"), entry, &checks::config_key(entry));
        }
    }
    if from.get("fileKeyRef").is_some_and(Value::is_object) {
        sources += 1;
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
    "spec.host",
];

/// A reference to a field of the pod.
pub(super) fn field_ref(reference: &Obj, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let field = text(reference, "fieldPath");
    if text(reference, "apiVersion").is_empty() {
        errors.required(&path.field("apiVersion"), "");
        return;
    }
    let at = path.field("fieldPath");
    if field.is_empty() {
        errors.required(&at, "");
        return;
    }
    let (base, subscript) = match field.split_once("['") {
        Some((base, rest)) if rest.ends_with("']") => (base, Some(&rest[..rest.len() - 2])),
        _ => (field, None),
    };
    if let Some(key) = subscript {
        match base {
            "metadata.annotations" => {
                errors.invalid_all(&at, field, &checks::qualified_name(&key.to_lowercase()));
            }
            "metadata.labels" => errors.invalid_all(&at, field, &checks::qualified_name(key)),
            _ => errors.invalid(
                &at,
                field,
                &format!("error converting fieldPath: field label does not support subscript: {field}"),
            ),
        }
    } else if !KNOWN_FIELDS.contains(&field) {
        errors.invalid(
            &at,
            field,
            &format!("error converting fieldPath: field label not supported: {field}"),
        );
    } else if !allowed.contains(&field) {
        let mut allowed: Vec<&str> = allowed.to_vec();
        allowed.sort_unstable();
        errors.not_supported(&at, field, &allowed);
    }
}

/// A reference to a container's resources.
pub(super) fn resource_field_ref(reference: &Obj, volume: bool, path: &Path<'_>, errors: &mut Errors) {
    let resource = text(reference, "resource");
    if volume && text(reference, "containerName").is_empty() {
        errors.required(&path.field("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.field("resource"), "");
    } else {
        let known = [
            "limits.cpu",
            "limits.ephemeral-storage",
            "limits.memory",
            "requests.cpu",
            "requests.ephemeral-storage",
            "requests.memory",
        ];
        let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
        if !known.contains(&resource) && !huge {
            errors.not_supported(&path.field("resource"), resource, &known);
        }
        if let Some(divisor) = reference.get("divisor") {
            resource_divisor(resource, divisor, path, errors);
        }
    }
}

fn resource_divisor(resource: &str, divisor: &Value, path: &Path<'_>, errors: &mut Errors) {
    let allowed: &[&str] = if resource.ends_with(".cpu") {
        &["1m", "1"]
    } else {
        &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"]
    };
    let divisor = divisor.as_str().unwrap_or_default();
    if divisor != "0" && !divisor.is_empty() && !allowed.contains(&divisor) {
        let what = if resource.ends_with(".cpu") {
            "only divisor's values 1m and 1 are supported with the cpu resource"
        } else {
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource"
        };
        errors.invalid(&path.field("divisor"), resource, what);
    }
}

fn environment_sources(sources: &[Value], path: &Path<'_>, errors: &mut Errors) {
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
            if !name.is_empty() {
                errors.invalid_all(&at.field(key).field("name"), name, &checks::dns_subdomain(name));
            }
        }
        match count {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}
