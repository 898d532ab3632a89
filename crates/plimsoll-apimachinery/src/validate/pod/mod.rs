//! Pods and pod templates (core validation).

mod annotations;
mod container;
mod diff;
mod env;
mod paths;
mod probe;
mod projected;
mod resize;
mod scheduling;
mod security;
mod source;
mod status;
mod update;
mod volume;
pub(super) mod warnings;
mod whole;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use super::{address, golang, meta, resources};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

pub(crate) use annotations::APP_ARMOR;
pub(super) use resize::resize;
pub(super) use scheduling::{node_selector, tolerations};
pub(super) use status::status;
pub(super) use update::{ephemeral_containers, update};

/// Whose spec is checked.
#[derive(Clone, Copy)]
enum Owner<'a> {
    /// A pod's, with its name, possibly empty.
    Pod(&'a Obj),
    /// That of pods to be made.
    Template,
}

impl<'a> Owner<'a> {
    /// The pod's name, when it is known.
    fn name(self) -> Option<&'a str> {
        match self {
            Self::Pod(pod) => Some(text(object(pod, "metadata"), "name")).filter(|name| !name.is_empty()),
            Self::Template => None,
        }
    }
}

/// The pod that containers are checked in.
struct Context<'a> {
    /// The pod's volumes that are well formed.
    volumes: BTreeMap<&'a str, &'a Obj>,
    /// Names of its resource claims.
    claims: Vec<&'a str>,
    /// Termination grace period in seconds.
    grace: Option<i64>,
    /// Restart policy of the pod.
    restart: &'a str,
    /// Whether its users are the host's.
    host_users: bool,
}

impl<'a> Context<'a> {
    fn volume(&self, name: &str) -> Option<&'a Obj> {
        self.volumes.get(name).copied()
    }
}

/// Calls a function for each container and its path: init containers, regular ones, ephemeral ones
/// (`VisitContainersWithPath`).
fn each_container<'a>(spec: &'a Obj, path: &Path<'_>, f: &mut dyn FnMut(&'a Obj, &Path<'_>)) {
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        let at = path.field(key);
        for (i, c) in list(spec, key).iter().map(as_obj).enumerate() {
            f(c, &at.index(i));
        }
    }
}

/// Any pod, new or changed (`validatePodMetadataAndSpec`).
pub(super) fn whole(pod: &Obj, errors: &mut Errors) {
    let spec = object(pod, "spec");
    let path = Path::new("spec");
    let metadata = Path::new("metadata");
    let annotations = object(object(pod, "metadata"), "annotations");
    annotations::check(annotations, spec, &metadata.field("annotations"), errors);
    pod_spec(spec, Owner::Pod(pod), &path, errors);
    if text(spec, "serviceAccountName").is_empty() {
        service_account_tokens(spec, &path, errors);
    }
    for key in ["containers", "initContainers"] {
        let at = path.field(key);
        for (i, c) in list(spec, key).iter().map(as_obj).enumerate() {
            container::trimmed_image(c, &at.index(i), errors);
        }
    }
}

/// A new pod, which may not have everything yet.
pub(super) fn create(pod: &Obj, errors: &mut Errors) {
    whole(pod, errors);
    let spec = object(pod, "spec");
    let path = Path::new("spec");
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(&path.field("ephemeralContainers"), "cannot be set on create");
    }
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.field("nodeName"), detail);
    }
    annotations::agree(object(pod, "metadata"), spec, &path, errors);
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
    template_metadata(template, path, errors);
    let spec = object(template, "spec");
    let at = path.field("spec");
    pod_spec(spec, Owner::Template, &at, errors);
    annotations::agree(object(template, "metadata"), spec, &at, errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&at.field("ephemeralContainers"), detail);
    }
}

/// A template's labels and annotations alone.
pub(super) fn template_metadata(template: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let metadata = object(template, "metadata");
    let annotations = object(metadata, "annotations");
    meta::labels(object(metadata, "labels"), &path.field("labels"), errors);
    meta::annotations(annotations, &path.field("annotations"), errors);
    annotations::check(annotations, object(template, "spec"), &path.field("annotations"), errors);
}

/// `ValidatePodSpec`.
fn pod_spec(spec: &Obj, owner: Owner<'_>, path: &Path<'_>, errors: &mut Errors) {
    let grace = int(spec, "terminationGracePeriodSeconds");
    if grace.is_none() {
        errors.required(&path.field("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::volumes(list(spec, "volumes"), owner, &path.field("volumes"), errors);
    let claims = list(spec, "resourceClaims");
    resource_claims(claims, owner, &path.field("resourceClaims"), errors);
    let context = Context {
        volumes,
        claims: claims.iter().map(|c| text(as_obj(c), "name")).filter(|name| !name.is_empty()).collect(),
        grace,
        restart: text(spec, "restartPolicy"),
        host_users: spec.get("hostUsers") != Some(&Value::Bool(false)),
    };
    container::containers(spec, &context, path, errors);
    whole::pod_resources(spec, &context.claims, path, errors);
    if flag(spec, "hostNetwork") {
        container::host_network_ports(spec, matches!(owner, Owner::Pod(_)), path, errors);
    }
    policies(spec, path, errors);
    meta::labels(object(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    security::pod(object(spec, "securityContext"), spec, &path.field("securityContext"), errors);
    scheduling::affinity(object(spec, "affinity"), &path.field("affinity"), errors);
    dns_config(spec, path, errors);
    readiness_gates(list(spec, "readinessGates"), &path.field("readinessGates"), errors);
    scheduling_gates(list(spec, "schedulingGates"), &path.field("schedulingGates"), errors);
    scheduling::spread(
        list(spec, "topologySpreadConstraints"),
        &path.field("topologySpreadConstraints"),
        errors,
    );
    windows::host_process(spec, path, errors);
    whole::host_users(spec, path, errors);
    whole::host_name(spec, path, errors);
    names(spec, path, errors);
    tolerations(list(spec, "tolerations"), &path.field("tolerations"), errors);
    rest(spec, path, errors);
    windows::os(spec, path, errors);
    env::file_volumes(spec, path, errors);
}

fn policies(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("restartPolicy");
    errors.choice(&at, text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    let at = path.field("dnsPolicy");
    errors.choice(
        &at,
        text(spec, "dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
}

/// `validatePodResourceClaims`.
fn resource_claims(claims: &[Value], owner: Owner<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    let mirror = matches!(owner, Owner::Pod(pod) if annotations::is_mirror(pod));
    for (i, claim) in claims.iter().map(as_obj).enumerate() {
        if mirror {
            errors.forbidden(&Path::new(""), "static pods do not support resource claims");
            continue;
        }
        let at = path.index(i);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else if !names.insert(name) {
            errors.duplicate(&at.field("name"), name);
        } else {
            errors.invalid_all(&at.field("name"), name, &checks::dns_label(name));
        }
        let claim_name = claim.get("resourceClaimName").and_then(Value::as_str);
        let template = claim.get("resourceClaimTemplateName").and_then(Value::as_str);
        let shown = || golang::structure("PodResourceClaim", claim);
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
            return;
        }
    }
    let (server_path, search_path) = (at.field("nameservers"), at.field("searches"));
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.invalid(&server_path, Value::Array(servers.to_vec()), detail);
    }
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        errors.invalid_all(&server_path.index(i), server, &address::legacy(server));
    }
    let searches = list(config, "searches");
    if searches.len() > 32 {
        errors.invalid(
            &search_path,
            Value::Array(searches.to_vec()),
            "must not have more than 32 search paths",
        );
    }
    let length: usize = searches.iter().map(|s| s.as_str().unwrap_or_default().len() + 1).sum();
    if length > 2049 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(&search_path, Value::Array(searches.to_vec()), detail);
    }
    for (i, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        if search != "." {
            let plain = search.strip_suffix('.').unwrap_or(search);
            errors.invalid_all(&search_path.index(i), plain, &checks::loose_subdomain(plain));
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
    let mut seen = BTreeSet::new();
    for (i, gate) in gates.iter().map(as_obj).enumerate() {
        let (at, name) = (path.index(i), text(gate, "name"));
        errors.invalid_all(&at, name, &checks::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
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
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        errors.between(&path.field("activeDeadlineSeconds"), seconds, 1..=i64::from(i32::MAX));
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
        errors.invalid_all(&at.field("ip"), ip, &address::legacy(ip));
        let hosts = at.field("hostnames");
        for (j, host) in list(alias, "hostnames").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            errors.invalid_all(&hosts.index(j), host, &checks::dns_subdomain(host));
        }
    }
    let class = text(spec, "priorityClassName");
    if !class.is_empty() {
        errors.invalid_all(&path.field("priorityClassName"), class, &checks::dns_subdomain(class));
    }
    if let Some(class) = spec.get("runtimeClassName").and_then(Value::as_str) {
        errors.invalid_all(&path.field("runtimeClassName"), class, &checks::dns_subdomain(class));
    }
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        errors.choice(&path.field("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    if has(spec, "overhead") {
        resources::overhead(object(spec, "overhead"), &path.field("overhead"), errors);
    }
}

/// `validatePullPolicy`.
pub(super) fn pull_policy(o: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.choice(&path.field(key), text(o, key), &["Always", "IfNotPresent", "Never"]);
}

#[cfg(test)]
mod tests;
