//! Warnings about pods and templates that are accepted (`warningsForPodSpecAndMeta`).

use plimsoll_api::Quantity;
use serde_json::Value;

use super::super::path::Path;
use super::super::{address, resources};
use super::annotations::APP_ARMOR;
use super::{checks, each_container};
use crate::decode::go_quote;
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// Warnings about a new pod.
pub(in super::super) fn pod(pod: &Obj, found: &mut Vec<String>) {
    let faults = checks::dns_label(text(object(pod, "metadata"), "name"));
    if !faults.is_empty() {
        found.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        ));
    }
    let path = Path::new("");
    spec_and_meta(object(pod, "spec"), object(pod, "metadata"), &path, false, found);
}

/// Warnings about a template.
pub(in super::super) fn template(template: &Obj, path: &str, found: &mut Vec<String>) {
    spec_and_meta(object(template, "spec"), object(template, "metadata"), &Path::new(path), true, found);
}

fn spec_and_meta(spec: &Obj, meta: &Obj, path: &Path<'_>, template: bool, found: &mut Vec<String>) {
    let at = path.field("spec");
    let metadata = path.field("metadata");
    node_labels(spec, &at, found);
    spread(spec, &at, found);
    annotations(meta, &metadata.field("annotations"), found);
    volumes(list(spec, "volumes"), &at.field("volumes"), found);
    paths(list(spec, "volumes"), found);
    duplicates(spec, &at, found);
    whole_bytes(object(spec, "overhead"), &at.field("overhead"), found);
    profiles(spec, meta, path, template, found);
    each_container(spec, &at, &mut |c, at| {
        let at_resources = at.field("resources");
        let resources = object(c, "resources");
        for (key, name) in [
            ("limits", "memory"),
            ("requests", "memory"),
            ("limits", "ephemeral-storage"),
            ("requests", "ephemeral-storage"),
        ] {
            fractional(object(resources, key), name, &at_resources.field(key), found);
        }
        hidden(list(c, "env"), &at.field("env"), found);
    });
    ports(spec, &at, found);
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|s| s < 0) {
        found.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            at.field("terminationGracePeriodSeconds")
        ));
    }
    affinity(object(spec, "affinity"), &at.field("affinity"), found);
    let (dns, hosts) = (at.field("dnsConfig"), at.field("hostAliases"));
    for (i, ip) in list(object(spec, "dnsConfig"), "nameservers").iter().enumerate() {
        let servers = dns.field("nameservers");
        found.extend(address::warning(&servers.index(i), ip.as_str().unwrap_or_default()));
    }
    for (i, alias) in list(spec, "hostAliases").iter().map(as_obj).enumerate() {
        found.extend(address::warning(&hosts.index(i).field("ip"), text(alias, "ip")));
    }
}

/// Labels of nodes that have another name by now, and what of it (`deprecatedNodeLabels`).
fn deprecated(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn node_labels(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    let at = path.field("nodeSelector");
    for key in object(spec, "nodeSelector").keys() {
        found.extend(deprecated(key).map(|why| format!("{}: {why}", at.key(key))));
    }
    let affinity = path.field("affinity");
    let at = affinity.field("nodeAffinity");
    let node = object(object(spec, "affinity"), "nodeAffinity");
    let required = at.field(REQUIRED);
    let terms = required.field("nodeSelectorTerms");
    for (i, term) in list(object(node, REQUIRED), "nodeSelectorTerms").iter().map(as_obj).enumerate() {
        node_term(term, false, &terms.index(i), found);
    }
    let preferred = at.field(PREFERRED);
    for (i, term) in list(node, PREFERRED).iter().map(as_obj).enumerate() {
        node_term(object(term, "preference"), true, &preferred.index(i).field("preference"), found);
    }
}

/// `GetWarningsForNodeSelectorTerm`; of preferred terms also values that match nothing.
fn node_term(term: &Obj, values: bool, path: &Path<'_>, found: &mut Vec<String>) {
    let at = path.field("matchExpressions");
    for (i, e) in list(term, "matchExpressions").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let key = text(e, "key");
        found.extend(deprecated(key).map(|why| format!("{}: {key} is {why}", here.field("key"))));
        if !values {
            continue;
        }
        let places = here.field("values");
        for (j, value) in list(e, "values").iter().map(|v| v.as_str().unwrap_or_default()).enumerate() {
            found.extend(
                checks::label_value(value)
                    .iter()
                    .map(|fault| format!("{}: {value} is invalid, {fault}", places.index(j))),
            );
        }
    }
}

fn spread(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    let at = path.field("topologySpreadConstraints");
    for (i, c) in list(spec, "topologySpreadConstraints").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let key = text(c, "topologyKey");
        found.extend(deprecated(key).map(|why| format!("{}: {key} is {why}", here.field("topologyKey"))));
        no_selector(c, &here, found);
    }
}

fn no_selector(term: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    if !has(term, "labelSelector") {
        found.push(format!(
            "{}: a null labelSelector results in matching no pod",
            path.field("labelSelector")
        ));
    }
}

fn affinity(affinity: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = object(affinity, kind);
        let at = path.field(kind);
        let required = at.field(REQUIRED);
        for (i, term) in list(terms, REQUIRED).iter().map(as_obj).enumerate() {
            no_selector(term, &required.index(i), found);
        }
        let preferred = at.field(PREFERRED);
        for (i, term) in list(terms, PREFERRED).iter().map(as_obj).enumerate() {
            no_selector(object(term, "podAffinityTerm"), &preferred.index(i).field("podAffinityTerm"), found);
        }
    }
}

fn annotations(meta: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    for (key, why) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/unsafe-sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
    ] {
        if object(meta, "annotations").contains_key(key) {
            found.push(format!("{}: {why}", path.key(key)));
        }
    }
}

/// Sources of volumes that are no more, or soon won't be.
const OLD: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

fn volumes(volumes: &[Value], path: &Path<'_>, found: &mut Vec<String>) {
    for (i, volume) in volumes.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        for (key, name, why) in OLD {
            if has(volume, key) {
                found.push(format!("{}: {why}", at.field(name)));
            }
        }
        let template = object(object(volume, "ephemeral"), "volumeClaimTemplate");
        let inner = at.field("ephemeral");
        let holder = inner.field("volumeClaimTemplate");
        found.extend(claim(object(template, "spec"), &holder.field("spec")));
    }
}

/// A claim for a part of a byte (`GetWarningsForPersistentVolumeClaimSpec`).
pub(in super::super) fn claim(spec: &Obj, path: &Path<'_>) -> Option<String> {
    let asked = object(object(spec, "resources"), "requests").get("storage").map(resources::amount);
    let size = asked.filter(|q| !is_whole(*q))?;
    let resources = path.field("resources");
    let requests = resources.field("requests");
    Some(format!(
        "{}: fractional byte value \"{size}\" is invalid, must be an integer",
        requests.key("storage")
    ))
}

/// Addresses in a status that are written in an unusual way.
pub(in super::super) fn addresses(status: &Obj, found: &mut Vec<String>) {
    let path = Path::new("status");
    for key in ["podIPs", "hostIPs"] {
        let at = path.field(key);
        for (i, ip) in list(status, key).iter().map(as_obj).enumerate() {
            found.extend(address::warning(&at.index(i).field("ip"), text(ip, "ip")));
        }
    }
}

/// Files of one volume that are in each other's way (`warningsForOverlappingVirtualPaths`).
fn paths(volumes: &[Value], found: &mut Vec<String>) {
    for volume in volumes.iter().map(as_obj) {
        let name = go_quote(text(volume, "name"));
        for (key, what) in [("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")]
        {
            let Some(source) = volume.get(key).and_then(Value::as_object) else { continue };
            let of = match key {
                "configMap" => format!("{what} {}", go_quote(text(source, "name"))),
                "secret" => format!("{what} {}", go_quote(text(source, "secretName"))),
                _ => what.to_owned(),
            };
            let mut known: Vec<(String, String)> = Vec::new();
            for item in list(source, "items").iter().map(as_obj) {
                overlap(text(item, "path"), "", &mut known, &name, &of, found);
            }
        }
        let Some(projected) = volume.get("projected").and_then(Value::as_object) else { continue };
        let mut known: Vec<(String, String)> = Vec::new();
        for source in list(projected, "sources").iter().map(as_obj) {
            if source.is_empty() {
                found.push(format!("volume {name} (Projected) has no sources provided"));
            }
            for (path, of) in projected_paths(source) {
                overlap(path, &of, &mut known, &name, "Projected", found);
            }
        }
    }
}

fn projected_paths(source: &Obj) -> Vec<(&str, String)> {
    let items = |key: &str, of: String| {
        list(object(source, key), "items").iter().map(|i| (text(as_obj(i), "path"), of.clone())).collect()
    };
    let name = |key: &str| go_quote(text(object(source, key), "name"));
    if has(object(source, "configMap"), "items") {
        items("configMap", format!("ConfigMap {}", name("configMap")))
    } else if has(object(source, "secret"), "items") {
        items("secret", format!("Secret {}", name("secret")))
    } else if has(object(source, "downwardAPI"), "items") {
        items("downwardAPI", "DownwardAPI".to_owned())
    } else if has(source, "serviceAccountToken") {
        vec![(text(object(source, "serviceAccountToken"), "path"), "ServiceAccountToken".to_owned())]
    } else {
        Vec::new()
    }
}

fn overlap(
    path: &str,
    of: &str,
    known: &mut Vec<(String, String)>,
    volume: &str,
    what: &str,
    found: &mut Vec<String>,
) {
    let path = path.trim_end_matches('/');
    let shown = |(path, of): (&str, &str)| {
        if of.is_empty() { go_quote(path) } else { format!("{} ({of})", go_quote(path)) }
    };
    for (other, theirs) in known.iter().filter(|(other, _)| !other.is_empty() && !path.is_empty()) {
        let within = |a: &str, b: &str| format!("{a}/").starts_with(&format!("{b}/"));
        if within(other, path) || within(path, other) {
            found.push(format!(
                "volume {volume} ({what}): overlapping paths: {} with {}",
                shown((path, of)),
                shown((other, theirs))
            ));
        }
    }
    known.push((path.to_owned(), of.to_owned()));
}

fn duplicates(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    for (key, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let at = path.field(key);
        let all: Vec<&str> = list(spec, key).iter().map(|o| text(as_obj(o), field)).collect();
        for (i, value) in all.iter().enumerate() {
            if all.iter().take(i).any(|v| v == value) {
                found.push(format!("{}: duplicate {field} {}", at.index(i).field(field), go_quote(value)));
            }
        }
        if field == "name" {
            for (i, _) in all.iter().enumerate().filter(|(_, name)| name.is_empty()) {
                found.push(format!("{}: invalid empty name \"\"", at.index(i).field(field)));
            }
        }
    }
}

fn is_whole(amount: Quantity) -> bool {
    amount.nanos() % 1_000_000_000 == 0
}

fn whole_bytes(amounts: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        fractional(amounts, name, path, found);
    }
}

fn fractional(amounts: &Obj, name: &str, path: &Path<'_>, found: &mut Vec<String>) {
    if let Some(amount) = amounts.get(name).map(resources::amount).filter(|q| !is_whole(*q)) {
        found.push(format!(
            "{}: fractional byte value \"{amount}\" is invalid, must be an integer",
            path.key(name)
        ));
    }
}

/// Annotations with profiles that no field repeats.
fn profiles(spec: &Obj, meta: &Obj, path: &Path<'_>, template: bool, found: &mut Vec<String>) {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    const FIELD: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    let written = object(meta, "annotations");
    if written.is_empty() {
        return;
    }
    let metadata = path.field("metadata");
    let at = metadata.field("annotations");
    let context = |o: &Obj, key: &str| has(object(o, "securityContext"), key);
    if !context(spec, "seccompProfile") && written.contains_key(POD) {
        found.push(format!("{}: {FIELD}", at.key(POD)));
    }
    each_container(spec, &path.field("spec"), &mut |c, _| {
        let key = format!("{CONTAINER}{}", text(c, "name"));
        if !context(c, "seccompProfile") && written.contains_key(&key) {
            found.push(format!("{}: {FIELD}", at.key(&key)));
        }
        let key = format!("{APP_ARMOR}{}", text(c, "name"));
        let profile = written.get(&key).and_then(Value::as_str);
        // A pod's field is filled from the annotation by now.
        if let Some(profile) = profile.filter(|_| !(template && context(c, "appArmorProfile"))) {
            let of_pod = object(spec, "securityContext").get("appArmorProfile");
            if of_pod.is_none() || of_pod != crate::strategy::app_armor_profile(profile).as_ref() {
                found.push(format!(
                    "{}: deprecated since v1.30; use the \"appArmorProfile\" field instead",
                    at.key(&key)
                ));
            }
        }
    });
}

/// Variables that hide earlier ones without using them.
fn hidden(env: &[Value], path: &Path<'_>, found: &mut Vec<String>) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, variable) in env.iter().map(as_obj).enumerate() {
        let name = text(variable, "name");
        if !seen.contains(&name) {
            seen.push(name);
            continue;
        }
        let own = format!("$({name})");
        let value = text(variable, "value");
        if has(variable, "valueFrom") || value == own || !value.contains(&own) {
            found.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                path.index(i),
                go_quote(name)
            ));
        }
    }
}

/// Ports that are there twice, under one number or one name.
fn ports(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    let mut known: Vec<(String, &Obj)> = Vec::new();
    let mut names: Vec<(&str, String)> = Vec::new();
    let mut repeated = Vec::new();
    each_container(spec, path, &mut |c, at| {
        let at = at.field("ports");
        for (i, port) in list(c, "ports").iter().map(as_obj).enumerate() {
            let here = at.index(i).to_string();
            let number = |port: &Obj, key: &str| int(port, key).unwrap_or(0);
            let (host, ip) = (number(port, "hostPort"), text(port, "hostIP"));
            if !ip.is_empty() && host == 0 {
                found.push(format!(
                    "{here}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                    text(port, "name"),
                    number(port, "containerPort"),
                    text(port, "protocol")
                ));
            }
            for (place, other) in &known {
                let same = number(other, "containerPort") == number(port, "containerPort")
                    && text(other, "protocol") == text(port, "protocol");
                if !same {
                    continue;
                }
                let (their_host, their_ip) = (number(other, "hostPort"), text(other, "hostIP"));
                let what = if ip == their_ip && host == their_host {
                    "duplicate"
                } else if host == 0 || their_host == 0 {
                    "overlapping"
                } else if host == their_host && ip.is_empty() != their_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                found.push(format!("{here}: {what} port definition with {place}"));
            }
            let name = text(port, "name");
            match names.iter().find(|(known, _)| *known == name) {
                Some((_, first)) if !name.is_empty() => repeated.push(format!(
                    "{here}: duplicate port name {} with {first}, services and probes that select ports by name will use {first}",
                    go_quote(name)
                )),
                Some(_) => {}
                None => names.push((name, here.clone())),
            }
            known.push((here, port));
        }
    });
    found.append(&mut repeated);
}
