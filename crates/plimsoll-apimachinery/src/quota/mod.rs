//! ResourceQuota: the usage of each kind (`pkg/quota/v1/evaluator/core`), and that of a whole namespace.

mod claims;
mod scope;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::quantity::{Format, Quantity};
use plimsoll_state::collect::InsertEach as _;
use serde_json::{Value, json};

use crate::amounts::{Amounts, Part, View, amounts, is_set_for_pod, total};
use crate::{Kind, KindTable, ObjectLister};

pub use scope::{holds, is_terminating};

const BY_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Resources that every container must request or limit when a quota limits them.
const SPECIFIED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Measures objects of one kind.
pub struct Tracker<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// Finds device classes.
    pub objects: &'a dyn ObjectLister,
    /// When.
    pub now: Timestamp,
}

impl Tracker<'_> {
    fn key(&self) -> (&str, &str) {
        (self.kind.gvk.group.as_str(), self.kind.plural.as_str())
    }

    fn count_name(&self) -> String {
        format!("count/{}", self.kind.qualified_resource())
    }

    /// Whether the kind uses a resource that quotas name.
    pub fn tracks(&self, resource: &str) -> bool {
        if matches!(self.key(), ("" | "events.k8s.io", "events")) {
            return false;
        }
        if resource.strip_prefix("count/").is_some_and(|rest| rest == self.kind.qualified_resource()) {
            return true;
        }
        match self.key() {
            ("", "pods") => tracked_of_pods(resource),
            ("", "services") => {
                matches!(resource, "services" | "services.nodeports" | "services.loadbalancers")
            }
            ("", "persistentvolumeclaims") => {
                let of_class = resource.split_once(BY_STORAGE_CLASS).map_or("", |(_, rest)| rest);
                let known = |name: &str| matches!(name, "persistentvolumeclaims" | "requests.storage");
                known(resource) || known(of_class)
            }
            ("resource.k8s.io", "resourceclaims") => self.tracks_devices(resource),
            ("", plural @ ("configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas")) => {
                resource == plural
            }
            _ => false,
        }
    }

    fn tracks_devices(&self, resource: &str) -> bool {
        if resource.ends_with(claims::BY_CLASS) {
            return true;
        }
        if !resource.starts_with("requests.") {
            return false;
        }
        let classes = claims::extended(self.objects);
        resource.strip_prefix(claims::IMPLICIT).is_some_and(|class| classes.contains_key(class))
            || resource.strip_prefix("requests.").is_some_and(|name| classes.values().any(|n| n == name))
    }

    /// The usage of an object.
    pub fn usage(&self, object: &Value) -> Amounts {
        let mut out = Amounts::from([(self.count_name(), whole(1))]);
        match self.key() {
            ("", "pods") if is_over(object, self.now) => {}
            ("", "pods") => {
                let (requests, limits) = (
                    total(object, Part::Requests, View::Charged),
                    total(object, Part::Limits, View::Charged),
                );
                out.extend(compute(&requests, &limits));
            }
            ("", "services") => services(object, &mut out),
            ("", "persistentvolumeclaims") => storage(object, &mut out),
            ("resource.k8s.io", "resourceclaims") => {
                claims::usage(object, &claims::extended(self.objects), &mut out);
            }
            ("", plural @ ("configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas")) => {
                out.insert(plural.to_owned(), whole(1));
            }
            _ => {}
        }
        out
    }

    /// The requests and limits that containers of a pod lack, as text; `None`: none.
    pub fn unspecified(&self, object: &Value, tracked: &BTreeSet<&str>) -> Option<String> {
        if self.key() != ("", "pods") || is_set_for_pod(object) {
            return None;
        }
        let required: Vec<&str> = SPECIFIED.into_iter().filter(|r| tracked.contains(r)).collect();
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let spec = &object["spec"];
        for c in ["containers", "initContainers"].iter().filter_map(|f| spec[f].as_array()).flatten() {
            let given = compute(&amounts(&c["resources"]["requests"]), &amounts(&c["resources"]["limits"]));
            for resource in required.iter().filter(|r| !given.contains_key(**r)) {
                missing.entry(resource).or_default().insert(c["name"].as_str().unwrap_or(""));
            }
        }
        let missing_text = missing.iter().map(|(resource, names)| {
            format!("{resource} for: {}", names.iter().copied().collect::<Vec<_>>().join(","))
        });
        let missing_text: Vec<String> = missing_text.collect();
        (!missing_text.is_empty()).then(|| missing_text.join("; "))
    }
}

fn whole(n: i64) -> Quantity {
    Quantity::new(n, Format::DecimalSi)
}

/// Resources of domains other than Kubernetes' own.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

fn tracked_of_pods(resource: &str) -> bool {
    let base = ["requests.", "limits."].iter().find_map(|p| resource.strip_prefix(p)).unwrap_or(resource);
    matches!(base, "cpu" | "memory" | "ephemeral-storage")
        || resource == "pods"
        || resource.starts_with("hugepages-")
        || resource.starts_with("requests.hugepages-")
        || resource.starts_with(claims::IMPLICIT)
        || (resource.starts_with("requests.") && is_extended(resource))
}

/// Whether a pod has ended, or should have long ago (its node may be lost).
fn is_over(pod: &Value, now: Timestamp) -> bool {
    let meta = &pod["metadata"];
    let deleted = meta["deletionTimestamp"].as_str().and_then(|t| t.parse::<Timestamp>().ok());
    let grace = meta["deletionGracePeriodSeconds"].as_i64().map(SignedDuration::from_secs);
    let gone = deleted.zip(grace).and_then(|(at, grace)| at.checked_add(grace).ok());
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) || gone.is_some_and(|at| now > at)
}

/// Requests and limits under the names that quotas have for them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut out = Amounts::from([("pods".to_owned(), whole(1))]);
    for (name, amount) in requests {
        let plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if plain || name.starts_with("hugepages-") {
            out.insert(name.clone(), *amount);
        } else if !is_extended(name) && !name.starts_with("deviceclass.resource.kubernetes.io/") {
            continue;
        }
        out.insert(format!("requests.{name}"), *amount);
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            out.insert(format!("limits.{name}"), *amount);
        }
    }
    out
}

fn services(service: &Value, out: &mut Amounts) {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |n: usize| whole(i64::try_from(n).unwrap_or(i64::MAX));
    let (mut balancers, mut nodes) = (0, 0);
    match spec["type"].as_str() {
        Some("NodePort") => nodes = ports.len(),
        Some("LoadBalancer") => {
            balancers = 1;
            // Ports may not be allocated yet, so the number that will be allocated counts.
            let given = |p: &&Value| p["nodePort"].as_i64().is_some_and(|n| n != 0);
            let all = spec["allocateLoadBalancerNodePorts"] != false;
            nodes = if all { ports.len() } else { ports.iter().filter(given).count() };
        }
        _ => {}
    }
    out.insert("services".to_owned(), whole(1));
    out.insert("services.loadbalancers".to_owned(), count(balancers));
    out.insert("services.nodeports".to_owned(), count(nodes));
}

fn storage(claim: &Value, out: &mut Amounts) {
    let old = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = old.as_str().or_else(|| claim["spec"]["storageClassName"].as_str()).unwrap_or("");
    let read = |v: &Value| {
        let exact = v.as_str()?.parse::<Quantity>().ok()?;
        // Whole bytes.
        let rounded = Quantity::new(exact.value(), exact.format());
        Some(if rounded == exact { exact } else { rounded })
    };
    let mut add = |name: &str, amount: Quantity| {
        out.insert(name.to_owned(), amount);
        if !class.is_empty() {
            out.insert(format!("{class}{BY_STORAGE_CLASS}{name}"), amount);
        }
    };
    add("persistentvolumeclaims", whole(1));
    if let Some(wanted) = read(&claim["spec"]["resources"]["requests"]["storage"]) {
        let allocated = read(&claim["status"]["allocatedResources"]["storage"]);
        add("requests.storage", allocated.filter(|a| *a > wanted).unwrap_or(wanted));
    }
}

/// Kinds that a quota counts, one for each resource.
pub fn counted<'a>(
    table: &'a KindTable,
    objects: &dyn ObjectLister,
    quota: &Value,
) -> BTreeMap<&'a str, &'a Arc<Kind>> {
    let hard = quota["spec"]["hard"].as_object();
    let mut kinds = BTreeMap::new();
    for kind in table.iter().filter(|k| k.namespaced && k.verbs.iter().any(|v| v == "list")) {
        let tracker = Tracker { kind, objects, now: Timestamp::UNIX_EPOCH };
        if hard.into_iter().flatten().any(|(resource, _)| tracker.tracks(resource)) {
            kinds.entry(kind.storage.as_str()).or_insert(kind);
        }
    }
    kinds
}

/// `status` of a quota, from all current objects of its namespace. Resources that nothing counts stay as they are.
pub fn recount(table: &KindTable, objects: &dyn ObjectLister, quota: &Value, now: Timestamp) -> Value {
    let hard = &quota["spec"]["hard"];
    let mut used = amounts(&quota["status"]["used"]);
    used.retain(|name, _| hard.get(name).is_some());
    let mut counts = Amounts::new();
    let namespace = quota["metadata"]["namespace"].as_str().unwrap_or("");
    for kind in counted(table, objects, quota).into_values() {
        let tracker = Tracker { kind, objects, now };
        let tracked = hard.as_object().into_iter().flatten().map(|(name, _)| name);
        for name in tracked.filter(|name| tracker.tracks(name)) {
            counts.entry(name.clone()).or_insert(Quantity::new(0, Format::DecimalSi));
        }
        objects.for_each(&kind.storage, Some(namespace), &mut |object| {
            if !holds(kind, &object, &quota["spec"]) {
                return;
            }
            for (name, amount) in tracker.usage(&object) {
                if let Some(total) = counts.get_mut(&name) {
                    *total = total.saturating_add(amount);
                }
            }
        });
    }
    used.extend(counts);
    let used: BTreeMap<String, String> = used.into_iter().map(|(k, v)| (k, v.to_string())).insert_each();
    json!({"hard": hard, "used": used})
}

#[cfg(test)]
mod tests;
