//! Containers: regular, init and ephemeral.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{checks, resources};
use super::{Context, env, probe, security, volume};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// All containers of a pod.
pub(super) fn containers(spec: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let regular = list(spec, "containers");
    let at = path.field("containers");
    if regular.is_empty() {
        errors.required(&at, "");
    }
    let mut names = BTreeSet::new();
    for (i, c) in regular.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        common(c, context, &here, errors);
        unique(c, &mut names, &here, errors);
        running(c, context, &here, errors);
        restart(c, &here, errors);
    }
    host_ports(regular.iter().map(as_obj), &at, errors);
    init_containers(spec, context, path, errors);
    ephemeral_containers(spec, context, path, errors);
}

fn unique<'a>(c: &'a Obj, names: &mut BTreeSet<&'a str>, path: &Path<'_>, errors: &mut Errors) {
    let name = text(c, "name");
    if !names.insert(name) {
        errors.duplicate(&path.field("name"), name);
    }
}

/// Fields that only long-running containers have.
fn running(c: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(lifecycle) = c.get("lifecycle").and_then(Value::as_object) {
        probe::lifecycle(lifecycle, context.grace, &path.field("lifecycle"), errors);
    }
    probe::probes(c, context.grace, path, errors);
}

/// `validateContainerRestartPolicy`.
fn restart(c: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let rules = list(c, "restartPolicyRules");
    let at = path.field("restartPolicy");
    match c.get("restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => errors.required(&at, "must specify restartPolicy when restart rules are used"),
        Some(policy) => errors.one_of(&at, policy, &["Always", "Never", "OnFailure"]),
    }
    let at = path.field("restartPolicyRules");
    if rules.len() > 20 {
        errors.too_many(&at, rules.len(), 20);
    }
    for (i, rule) in rules.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        errors.one_of(&here.field("action"), text(rule, "action"), &["Restart", "RestartAllContainers"]);
        let codes_path = here.field("exitCodes");
        let Some(codes) = rule.get("exitCodes").and_then(Value::as_object) else {
            errors.required(&codes_path, "must be specified");
            continue;
        };
        errors.one_of(&codes_path.field("operator"), text(codes, "operator"), &["In", "NotIn"]);
        let values = list(codes, "values");
        if values.len() > 255 {
            errors.too_many(&codes_path.field("values"), values.len(), 255);
        }
    }
}

fn init_containers(spec: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("initContainers");
    let all = list(spec, "initContainers");
    if all.is_empty() {
        return;
    }
    let mut names: BTreeSet<&str> =
        list(spec, "containers").iter().map(|c| text(as_obj(c), "name")).collect();
    for (i, c) in all.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let sidecar = text(c, "restartPolicy") == "Always";
        common(c, context, &here, errors);
        if has(c, "restartPolicy") {
            restart(c, &here, errors);
        } else if !list(c, "restartPolicyRules").is_empty() {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.required(&here.field("restartPolicy"), detail);
        }
        let name = text(c, "name");
        if names.contains(name) {
            errors.duplicate(&here.field("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // One runs after the other; upstream names the first of a list of one.
        host_ports(std::iter::once(c), &at, errors);
        if sidecar {
            running(c, context, &here, errors);
            continue;
        }
        for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if has(c, key) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&here.field(key), detail);
            }
        }
        let policies = here.field("resizePolicy");
        for (j, policy) in list(c, "resizePolicy").iter().map(as_obj).enumerate() {
            if text(policy, "restartPolicy") == "RestartContainer" {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.invalid(&policies.index(j).field("restartPolicy"), "RestartContainer", detail);
            }
        }
    }
}

fn ephemeral_containers(spec: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "ephemeralContainers");
    if all.is_empty() {
        return;
    }
    let others = list(spec, "containers").iter().chain(list(spec, "initContainers"));
    let others: BTreeSet<&str> = others.map(|c| text(as_obj(c), "name")).collect();
    let mut names = others.clone();
    let at = path.field("ephemeralContainers");
    for (i, c) in all.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        common(c, context, &here, errors);
        trimmed_image(c, &here, errors);
        unique(c, &mut names, &here, errors);
        let target = text(c, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&here.field("targetContainerName"), target, "");
        }
        not_for_ephemeral(c, &here, errors);
    }
}

fn not_for_ephemeral(c: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    // In the order of the type's fields.
    let refused = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    for key in refused {
        let set = match c.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::Object(o)) => key != "resources" || !o.is_empty(),
            Some(_) => true,
        };
        if set {
            errors.forbidden(&path.field(key), DETAIL);
        }
    }
    let mounts = path.field("volumeMounts");
    for (i, mount) in list(c, "volumeMounts").iter().map(as_obj).enumerate() {
        for key in ["subPath", "subPathExpr"] {
            if !text(mount, key).is_empty() {
                errors.forbidden(&mounts.index(i).field(key), DETAIL);
            }
        }
    }
}

/// `validateContainerOnlyForPod`: templates may have images that are filled in later.
pub(super) fn trimmed_image(c: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let image = text(c, "image");
    if image.trim() != image {
        errors.invalid(&path.field("image"), image, "must not have leading or trailing whitespace");
    }
}

/// `validateContainerCommon`.
fn common(c: &Obj, context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let name = text(c, "name");
    errors.named(&path.field("name"), name, checks::dns_label);
    if text(c, "image").is_empty() {
        errors.required(&path.field("image"), "");
    }
    let at = path.field("terminationMessagePolicy");
    errors.choice(&at, text(c, "terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
    ports(c, &path.field("ports"), errors);
    env::environment(list(c, "env"), &path.field("env"), errors);
    env::sources(list(c, "envFrom"), &path.field("envFrom"), errors);
    volume::mounts(c, context, path, errors);
    super::pull_policy(c, "imagePullPolicy", path, errors);
    resources::container(object(c, "resources"), &context.claims, &path.field("resources"), errors);
    resize_policies(list(c, "resizePolicy"), context, &path.field("resizePolicy"), errors);
    security::container(
        object(c, "securityContext"),
        context.host_users,
        &path.field("securityContext"),
        errors,
    );
}

/// `validateResizePolicy`.
fn resize_policies(policies: &[Value], context: &Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, policy) in policies.iter().map(as_obj).enumerate() {
        let resource = text(policy, "resourceName");
        if !seen.insert(resource) {
            errors.duplicate(&path.index(i), resource);
        }
        errors.choice(path, resource, &["cpu", "memory"]);
        let restart = text(policy, "restartPolicy");
        errors.choice(path, restart, &["NotRequired", "RestartContainer"]);
        if context.restart == "Never" && restart != "NotRequired" {
            errors.invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// `validateContainerPorts`.
fn ports(c: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, port) in list(c, "ports").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let faults = checks::port_name(name);
            if !faults.is_empty() {
                errors.invalid_all(&at.field("name"), name, &faults);
            } else if !names.insert(name) {
                errors.duplicate(&at.field("name"), name);
            }
        }
        let number = int(port, "containerPort").unwrap_or(0);
        if number == 0 {
            errors.required(&at.field("containerPort"), "");
        } else {
            errors.port(&at.field("containerPort"), number);
        }
        if let Some(host) = int(port, "hostPort").filter(|n| *n != 0) {
            errors.port(&at.field("hostPort"), host);
        }
        errors.choice(&at.field("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

/// Ports of a pod in the host's network are host ports (`validatePodHostNetworkDeps`). In templates, 0 is a port that
/// the pod will get.
pub(super) fn host_network_ports(spec: &Obj, pod: bool, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("containers");
    for (i, c) in list(spec, "containers").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let ports = here.field("ports");
        for (j, port) in list(c, "ports").iter().map(as_obj).enumerate() {
            let number = |key: &str| int(port, key).unwrap_or(0);
            let (host, own) = (number("hostPort"), number("containerPort"));
            if (pod || host != 0) && host != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&ports.index(j).field("hostPort"), host, detail);
            }
        }
    }
}

/// Duplicate host ports (`checkHostPortConflicts`).
fn host_ports<'a>(containers: impl Iterator<Item = &'a Obj>, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: BTreeSet<(&str, &str, i64)> = BTreeSet::new();
    for (i, c) in containers.enumerate() {
        let at = path.index(i);
        let ports = at.field("ports");
        for (j, port) in list(c, "ports").iter().map(as_obj).enumerate() {
            let Some(number) = int(port, "hostPort").filter(|n| *n != 0) else { continue };
            let (protocol, ip) = (text(port, "protocol"), text(port, "hostIP"));
            if !seen.insert((protocol, ip, number)) {
                errors.duplicate(&ports.index(j).field("hostPort"), format!("{protocol}/{ip}/{number}"));
            }
        }
    }
}
