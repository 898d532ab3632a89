//! Pods and pod templates (core validation).

mod container;
mod probe;
mod scheduling;
mod security;
mod update;
mod volume;

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path, go_struct};
use super::{meta, resources};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

pub(super) use scheduling::{node_selector, tolerations};
pub(super) use update::{ephemeral_containers, resize, status, update};
pub(super) use volume::{host_path, volume_sources};

/// What containers are checked against.
struct Context<'a> {
    /// Names of the pod's volumes with their sources.
    volumes: Vec<&'a Obj>,
    /// Names of its resource claims.
    claims: Vec<&'a str>,
    /// Termination grace period in seconds.
    grace: i64,
    /// Whether ports are those of the host.
    host_network: bool,
    /// Restart policy of the pod.
    restart: &'a str,
}

/// Any pod, new or changed.
pub(super) fn whole(pod: &Obj, errors: &mut Errors) {
    let spec = object(pod, "spec");
    let path = Path::new("spec");
    pod_spec(spec, &path, errors);
    if text(spec, "serviceAccountName").is_empty() {
        service_account_tokens(spec, &path, errors);
    }
}

/// What a new pod may not have yet.
pub(super) fn create(pod: &Obj, errors: &mut Errors) {
    let spec = object(pod, "spec");
    let path = Path::new("spec");
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(&path.field("ephemeralContainers"), "cannot be set on create");
    }
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.field("nodeName"), detail);
    }
}

fn service_account_tokens(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let volumes = path.field("volumes");
    for (i, volume) in list(spec, "volumes").iter().map(as_obj).enumerate() {
        let at = volumes.index(i);
        let projected = at.field("projected");
        let sources = projected.field("sources");
        for (j, source) in list(object(volume, "projected"), "sources").iter().map(as_obj).enumerate() {
            if has(source, "serviceAccountToken") {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&sources.index(j).field("serviceAccountToken"), detail);
            }
        }
    }
}

/// A pod template: labels, annotations, spec (`ValidatePodTemplateSpec`).
pub(super) fn template(template: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let metadata = object(template, "metadata");
    meta::labels(object(metadata, "labels"), &path.field("labels"), errors);
    meta::annotations(object(metadata, "annotations"), &path.field("annotations"), errors);
    let spec = object(template, "spec");
    pod_spec(spec, &path.field("spec"), errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        let at = path.field("spec");
        errors
            .forbidden(&at.field("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// `ValidatePodSpec`.
pub(super) fn pod_spec(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let volumes = volume::volumes(list(spec, "volumes"), &path.field("volumes"), errors);
    let claims = resource_claims(list(spec, "resourceClaims"), &path.field("resourceClaims"), errors);
    let context = Context {
        volumes,
        claims,
        grace: int(spec, "terminationGracePeriodSeconds").unwrap_or(30),
        host_network: flag(spec, "hostNetwork"),
        restart: text(spec, "restartPolicy"),
    };
    container::containers(spec, &context, path, errors);
    if let Some(whole) = spec.get("resources").and_then(Value::as_object) {
        pod_resources(whole, &path.field("resources"), errors);
    }
    policies(spec, path, errors);
    meta::labels(object(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    security::pod(object(spec, "securityContext"), &path.field("securityContext"), errors);
    pull_secrets(list(spec, "imagePullSecrets"), &path.field("imagePullSecrets"), errors);
    scheduling::affinity(object(spec, "affinity"), &path.field("affinity"), errors);
    dns_config(spec, path, errors);
    readiness_gates(list(spec, "readinessGates"), &path.field("readinessGates"), errors);
    scheduling_gates(list(spec, "schedulingGates"), &path.field("schedulingGates"), errors);
    scheduling::spread(
        list(spec, "topologySpreadConstraints"),
        &path.field("topologySpreadConstraints"),
        errors,
    );
    names(spec, path, errors);
    tolerations(list(spec, "tolerations"), &path.field("tolerations"), errors);
    rest(spec, path, errors);
}

fn policies(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("restartPolicy");
    match text(spec, "restartPolicy") {
        "" => errors.required(&at, ""),
        policy => errors.one_of(&at, policy, &["Always", "OnFailure", "Never"]),
    }
    let at = path.field("dnsPolicy");
    match text(spec, "dnsPolicy") {
        "" => errors.required(&at, ""),
        policy => errors.one_of(&at, policy, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]),
    }
}

fn pod_resources(whole: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if !list(whole, "claims").is_empty() {
        errors.forbidden(&path.field("claims"), "claims cannot be set for Resources at pod-level");
    }
    for key in ["limits", "requests"] {
        let at = path.field(key);
        for (name, value) in object(whole, key) {
            let here = at.key(name);
            if !(matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-")) {
                errors.not_supported(&here, name.as_str(), &["cpu", "hugepages-", "memory"]);
            }
            resources::quantity(name, value, &here, errors);
        }
    }
    for (name, value) in object(whole, "requests") {
        let Some(limit) = object(whole, "limits").get(name) else { continue };
        let (asked, limit) = (resources::amount(value), resources::amount(limit));
        if asked > limit {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.invalid(&path.field("requests"), asked.to_string(), &detail);
        }
    }
}

fn resource_claims<'a>(claims: &'a [Value], path: &Path<'_>, errors: &mut Errors) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for (i, claim) in claims.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else if names.contains(&name) {
            errors.duplicate(&at.field("name"), name);
        } else {
            errors.invalid_all(&at.field("name"), name, &checks::dns_label(name));
            names.push(name);
        }
        let claim_name = claim.get("resourceClaimName").and_then(Value::as_str);
        let template = claim.get("resourceClaimTemplateName").and_then(Value::as_str);
        let shown = || {
            go_struct(&[
                ("Name", Value::from(name)),
                ("ResourceClaimName", claim_name.into()),
                ("ResourceClaimTemplateName", template.into()),
            ])
        };
        match (claim_name, template) {
            (Some(_), Some(_)) => {
                let detail =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid_text(&at, shown(), detail);
            }
            (None, None) => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid_text(&at, shown(), detail);
            }
            _ => {}
        }
        for (key, value) in [("resourceClaimName", claim_name), ("resourceClaimTemplateName", template)] {
            if let Some(value) = value {
                errors.invalid_all(&at.field(key), value, &checks::dns_subdomain(value));
            }
        }
    }
    names
}

fn pull_secrets(secrets: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, secret) in secrets.iter().map(as_obj).enumerate() {
        if secret.keys().any(|key| key != "name") {
            let shown = Value::Object(secret.clone()).to_string();
            errors.invalid_text(&path.index(i), shown, "only name may be set");
        }
    }
}

fn dns_config(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("dnsConfig");
    let config = object(spec, "dnsConfig");
    let servers = list(config, "nameservers");
    if text(spec, "dnsPolicy") == "None" {
        if !has(spec, "dnsConfig") {
            errors.required(&at, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            errors.required(
                &at.field("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
        }
    }
    let (server_path, search_path) = (at.field("nameservers"), at.field("searches"));
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.invalid(&server_path, Value::Array(servers.to_vec()), detail);
    }
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        errors.invalid_all(&server_path.index(i), server, &checks::ip(server));
    }
    let searches = list(config, "searches");
    if searches.len() > 32 {
        errors.invalid(
            &search_path,
            Value::Array(searches.to_vec()),
            "must not have more than 32 search paths",
        );
    }
    for (i, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        let plain = search.strip_suffix('.').unwrap_or(search).replace('_', "-");
        if search != "." {
            errors.invalid_all(&search_path.index(i), search, &checks::dns_subdomain(&plain));
        }
    }
    let option_path = at.field("options");
    for (i, option) in list(config, "options").iter().map(as_obj).enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&option_path.index(i), "must not be empty");
        }
    }
}

fn readiness_gates(gates: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, gate) in gates.iter().map(as_obj).enumerate() {
        let kind = text(gate, "conditionType");
        errors.invalid_all(&path.index(i).field("conditionType"), kind, &checks::qualified_name(kind));
    }
}

fn scheduling_gates(gates: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, gate) in gates.iter().map(as_obj).enumerate() {
        let (at, name) = (path.index(i), text(gate, "name"));
        errors.invalid_all(&at, name, &checks::qualified_name(name));
        if seen.contains(&name) {
            errors.duplicate(&at, name);
        }
        seen.push(name);
    }
}

fn names(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let subdomains = ["serviceAccountName", "nodeName"];
    for key in subdomains {
        let name = text(spec, key);
        if !name.is_empty() {
            errors.invalid_all(&path.field(key), name, &checks::dns_subdomain(name));
        }
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.invalid(&path.field("activeDeadlineSeconds"), seconds, detail);
    }
    for key in ["hostname", "subdomain"] {
        let name = text(spec, key);
        if !name.is_empty() {
            errors.invalid_all(&path.field(key), name, &checks::dns_label(name));
        }
    }
}

fn rest(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let aliases = path.field("hostAliases");
    for (i, alias) in list(spec, "hostAliases").iter().map(as_obj).enumerate() {
        let at = aliases.index(i);
        let ip = text(alias, "ip");
        errors.invalid_all(&at.field("ip"), ip, &checks::ip(ip));
        let hosts = at.field("hostnames");
        for (j, host) in list(alias, "hostnames").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            errors.invalid_all(&hosts.index(j), host, &checks::dns_subdomain(host));
        }
    }
    for key in ["priorityClassName", "runtimeClassName"] {
        if let Some(name) = spec.get(key).and_then(Value::as_str) {
            errors.invalid_all(&path.field(key), name, &checks::dns_subdomain(name));
        }
    }
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        let at = path.field("preemptionPolicy");
        match policy {
            "" => errors.required(&at, ""),
            policy => errors.one_of(&at, policy, &["PreemptLowerPriority", "Never"]),
        }
    }
    let overhead = path.field("overhead");
    for (name, value) in object(spec, "overhead") {
        let at = overhead.key(name);
        resources::container_name(name, &at, errors);
        resources::quantity(name, value, &at, errors);
    }
    if has(spec, "os") {
        os(spec, path, errors);
    }
}

fn os(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let name = text(object(spec, "os"), "name");
    let os = path.field("os");
    match name {
        "" => errors.required(&os.field("name"), "cannot be empty"),
        name => errors.one_of(&os.field("name"), name, &["linux", "windows"]),
    }
    match name {
        "windows" => security::not_for_windows(spec, path, errors),
        "linux" => security::not_for_linux(spec, path, errors),
        _ => {}
    }
}
