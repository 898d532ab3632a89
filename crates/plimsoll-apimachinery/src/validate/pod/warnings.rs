//! Warnings about pods and templates that are accepted (`warningsForPodSpecAndMeta`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::super::path::Path;
use super::super::{address, deprecated};
use super::annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use super::{checks, each_container};
use crate::go::go_quote;
use crate::obj::{Obj, as_obj, has, int, list, object, text};

const SECCOMP_FIELD: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

/// Most warnings about things that are in each other's way, far more than an answer has room for.
const MOST: usize = 1000;

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
    let written = object(meta, "annotations");
    let written_path = metadata.field("annotations");
    node_labels(spec, &at, found);
    spread(spec, &at, found);
    annotations(written, &written_path, found);
    volumes(list(spec, "volumes"), &at.field("volumes"), found);
    paths(list(spec, "volumes"), found);
    duplicates(spec, &at, found);
    for name in ["memory", "ephemeral-storage"] {
        deprecated::fractional(object(spec, "overhead"), name, &at.field("overhead"), found);
    }
    if !has(object(spec, "securityContext"), "seccompProfile") && written.contains_key(SECCOMP_POD) {
        found.push(format!("{}: {SECCOMP_FIELD}", written_path.key(SECCOMP_POD)));
    }
    each_container(spec, &at, &mut |c, at| {
        if !written.is_empty() {
            profiles(c, spec, written, template, &written_path, found);
        }
        let at_resources = at.field("resources");
        let resources = object(c, "resources");
        for name in ["memory", "ephemeral-storage"] {
            for key in ["limits", "requests"] {
                deprecated::fractional(object(resources, key), name, &at_resources.field(key), found);
            }
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

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn node_labels(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    let at = path.field("nodeSelector");
    for key in object(spec, "nodeSelector").keys() {
        found.extend(deprecated::label(key).map(|why| format!("{}: {why}", at.key(key))));
    }
    let affinity = path.field("affinity");
    let at = affinity.field("nodeAffinity");
    let node = object(object(spec, "affinity"), "nodeAffinity");
    let required = at.field(REQUIRED);
    let terms = required.field("nodeSelectorTerms");
    for (i, term) in list(object(node, REQUIRED), "nodeSelectorTerms").iter().map(as_obj).enumerate() {
        deprecated::expressions(term, false, &terms.index(i), found);
    }
    let preferred = at.field(PREFERRED);
    for (i, term) in list(node, PREFERRED).iter().map(as_obj).enumerate() {
        let at = preferred.index(i);
        deprecated::expressions(object(term, "preference"), true, &at.field("preference"), found);
    }
}

fn spread(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    let at = path.field("topologySpreadConstraints");
    for (i, c) in list(spec, "topologySpreadConstraints").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let key = text(c, "topologyKey");
        found.extend(
            deprecated::label(key).map(|why| format!("{}: {key} is {why}", here.field("topologyKey"))),
        );
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

fn annotations(written: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
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
        if written.contains_key(key) {
            found.push(format!("{}: {why}", path.key(key)));
        }
    }
}

fn volumes(volumes: &[Value], path: &Path<'_>, found: &mut Vec<String>) {
    for (i, volume) in volumes.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        for source in deprecated::SOURCES.iter().filter(|s| has(volume, s.key)) {
            found.push(format!("{}: {}", at.field(source.shown), source.why));
        }
        if let Some(ephemeral) = volume.get("ephemeral").and_then(Value::as_object) {
            let inner = at.field("ephemeral");
            let holder = inner.field("volumeClaimTemplate");
            let template = object(ephemeral, "volumeClaimTemplate");
            deprecated::claim(object(template, "spec"), &holder.field("spec"), found);
        }
    }
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

/// The source of a file in a volume, and its name, if it has one.
#[derive(Clone, Copy)]
struct Origin<'a>(&'static str, Option<&'a str>);

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(name) => write!(f, "{} {}", self.0, go_quote(name)),
            None => f.write_str(self.0),
        }
    }
}

/// Files of one volume that are in each other's way (`warningsForOverlappingVirtualPaths`).
fn paths(volumes: &[Value], found: &mut Vec<String>) {
    for volume in volumes.iter().map(as_obj) {
        let name = text(volume, "name");
        for (key, what, named) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let Some(source) = volume.get(key).and_then(Value::as_object) else { continue };
            let origin = Origin(what, (!named.is_empty()).then(|| text(source, named)));
            let mut files = Files { volume: name, what: origin, known: Vec::new() };
            for item in list(source, "items").iter().map(as_obj) {
                files.add(text(item, "path"), None, found);
            }
        }
        let Some(projected) = volume.get("projected").and_then(Value::as_object) else { continue };
        let mut files = Files { volume: name, what: Origin("Projected", None), known: Vec::new() };
        for source in list(projected, "sources").iter().map(as_obj) {
            if source.is_empty() {
                found.push(format!("volume {} (Projected) has no sources provided", go_quote(name)));
            }
            projected_files(source, &mut files, found);
        }
    }
}

/// The files of a source of a projected volume.
fn projected_files<'a>(source: &'a Obj, files: &mut Files<'a>, found: &mut Vec<String>) {
    for (key, what) in [("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")] {
        let of = object(source, key);
        if has(of, "items") {
            let origin = Origin(what, (key != "downwardAPI").then(|| text(of, "name")));
            for item in list(of, "items").iter().map(as_obj) {
                files.add(text(item, "path"), Some(origin), found);
            }
            return;
        }
    }
    if let Some(token) = source.get("serviceAccountToken").and_then(Value::as_object) {
        files.add(text(token, "path"), Some(Origin("ServiceAccountToken", None)), found);
    }
}

/// Files of a volume, or of one source of it.
struct Files<'a> {
    volume: &'a str,
    what: Origin<'a>,
    known: Vec<(&'a str, Option<Origin<'a>>)>,
}

impl<'a> Files<'a> {
    /// One more; its path should be none of the others', nor above or below one of them.
    fn add(&mut self, path: &'a str, origin: Option<Origin<'a>>, found: &mut Vec<String>) {
        let path = path.trim_end_matches('/');
        if path.is_empty() || found.len() >= MOST {
            return;
        }
        let within = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let shown = |(path, origin): (&str, Option<Origin<'_>>)| match origin {
            Some(origin) => format!("{} ({origin})", go_quote(path)),
            None => go_quote(path),
        };
        for (other, theirs) in
            self.known.iter().filter(|(other, _)| within(other, path) || within(path, other))
        {
            found.push(format!(
                "volume {} ({}): overlapping paths: {} with {}",
                go_quote(self.volume),
                self.what,
                shown((path, origin)),
                shown((other, *theirs))
            ));
        }
        self.known.push((path, origin));
    }
}

fn duplicates(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    for (key, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let at = path.field(key);
        let values = || list(spec, key).iter().map(|o| text(as_obj(o), field)).enumerate();
        let mut seen = BTreeSet::new();
        for (i, value) in values() {
            if !seen.insert(value) {
                found.push(format!("{}: duplicate {field} {}", at.index(i).field(field), go_quote(value)));
            }
        }
        for (i, _) in values().filter(|(_, value)| field == "name" && value.is_empty()) {
            found.push(format!("{}: invalid empty name \"\"", at.index(i).field(field)));
        }
    }
}

/// Annotations with profiles that no field of a container repeats.
fn profiles(c: &Obj, spec: &Obj, written: &Obj, template: bool, path: &Path<'_>, found: &mut Vec<String>) {
    let has_field = |key: &str| has(object(c, "securityContext"), key);
    let key = format!("{SECCOMP_CONTAINER}{}", text(c, "name"));
    if !has_field("seccompProfile") && written.contains_key(&key) {
        found.push(format!("{}: {SECCOMP_FIELD}", path.key(&key)));
    }
    let key = format!("{APP_ARMOR}{}", text(c, "name"));
    let profile = written.get(&key).and_then(Value::as_str);
    // A pod's field is filled from the annotation by now.
    if let Some(profile) = profile.filter(|_| !(template && has_field("appArmorProfile"))) {
        let of_pod = object(spec, "securityContext").get("appArmorProfile");
        if of_pod.is_none() || of_pod != crate::strategy::app_armor_profile(profile).as_ref() {
            found.push(format!(
                "{}: deprecated since v1.30; use the \"appArmorProfile\" field instead",
                path.key(&key)
            ));
        }
    }
}

/// Variables that hide earlier ones without using them.
fn hidden(env: &[Value], path: &Path<'_>, found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (i, variable) in env.iter().map(as_obj).enumerate() {
        let name = text(variable, "name");
        if seen.insert(name) {
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

/// The position of a port: the list of containers, the container and the port in it.
type Place = (&'static str, usize, usize);

/// Duplicate ports, by number or by name.
fn ports(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    let shown = |(key, container, port): Place| {
        let at = path.field(key);
        let at = at.index(container);
        let at = at.field("ports");
        at.index(port).to_string()
    };
    let number = |port: &Obj, key: &str| int(port, key).unwrap_or(0);
    let mut known: BTreeMap<(i64, &str), Vec<(Place, &Obj)>> = BTreeMap::new();
    for (place, port) in all_ports(spec) {
        let (host, ip) = (number(port, "hostPort"), text(port, "hostIP"));
        if !ip.is_empty() && host == 0 {
            found.push(format!(
                "{}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                shown(place),
                text(port, "name"),
                number(port, "containerPort"),
                text(port, "protocol")
            ));
        }
        let alike = known.entry((number(port, "containerPort"), text(port, "protocol"))).or_default();
        for (theirs, other) in alike.iter() {
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
            if found.len() >= MOST {
                return;
            }
            found.push(format!("{}: {what} port definition with {}", shown(place), shown(*theirs)));
        }
        alike.push((place, port));
    }
    let mut names: BTreeMap<&str, Place> = BTreeMap::new();
    for (place, port) in all_ports(spec).filter(|(_, port)| !text(port, "name").is_empty()) {
        let name = text(port, "name");
        let first = *names.entry(name).or_insert(place);
        if first != place {
            let first = shown(first);
            found.push(format!(
                "{}: duplicate port name {} with {first}, services and probes that select ports by name will use {first}",
                shown(place),
                go_quote(name)
            ));
        }
    }
}

fn all_ports(spec: &Obj) -> impl Iterator<Item = (Place, &Obj)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |key| {
        list(spec, key).iter().enumerate().flat_map(move |(i, c)| {
            list(as_obj(c), "ports").iter().enumerate().map(move |(j, port)| ((key, i, j), as_obj(port)))
        })
    })
}
