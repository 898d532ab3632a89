//! core/v1 Node.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path::{Errors, Path};
use super::{address, checks, golang, resources};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// core/v1 Node. Fields of the status are optional, but valid.
pub(super) fn node(node: &Obj, errors: &mut Errors) {
    let (spec, status) = (object(node, "spec"), object(node, "status"));
    // Upstream puts taints under metadata, and swap as well.
    let meta = Path::new("metadata");
    taints(list(spec, "taints"), &meta.field("taints"), errors);
    amounts(status, errors);
    let swap = object(object(status, "nodeInfo"), "swap");
    if let Some(capacity) = int(swap, "capacity").filter(|c| *c <= 0) {
        let at = meta.field("nodeSwapStatus");
        errors.invalid(&at.field("capacity"), capacity, "must be greater than zero");
    }
    features(status, errors);
    networks(list(spec, "podCIDRs"), errors);
}

/// `ValidateNodeResources`.
fn amounts(status: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    for key in ["capacity", "allocatable"] {
        let at = path.field(key);
        for (name, value) in object(status, key) {
            resources::quantity(name, value, &at.field(name), errors);
        }
    }
}

/// At most two networks for pods, one of each family.
fn networks(networks: &[Value], errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("podCIDRs");
    let all: Vec<&str> = networks.iter().map(|n| n.as_str().unwrap_or_default()).collect();
    for (i, network) in all.iter().enumerate() {
        errors.invalid_all(&at.index(i), network, &address::legacy_cidr(network));
    }
    if all.len() < 2 {
        return;
    }
    let families: Vec<_> = all.iter().map(|n| address::Network::parse(n)).collect();
    if let Some(bad) = families.iter().position(Option::is_none) {
        let why = format!("invalid CIDR address: {}", all.get(bad).copied().unwrap_or_default());
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{bad}]: <nil> ({why})"
        );
        errors.internal(&at, &detail);
    }
    let four = families.iter().flatten().filter(|f| f.is_v4()).count();
    let valid = families.iter().all(Option::is_some);
    if !(valid && four == 1 && all.len() == 2) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(&at, Value::Array(networks.to_vec()), detail);
    }
}

/// Features a node declares: names in order, each once.
fn features(status: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    let at = path.field("declaredFeatures");
    let names: Vec<&str> = list(status, "declaredFeatures").iter().filter_map(Value::as_str).collect();
    for (i, name) in names.iter().enumerate() {
        if name.len() > 253 {
            let detail = format!(
                "invalid feature name {}: must be no more than 253 characters",
                crate::go::go_quote(name)
            );
            errors.invalid(&at.index(i), *name, &detail);
        } else if !is_feature(name) {
            let detail = format!(
                "invalid feature name {}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
                crate::go::go_quote(name)
            );
            errors.invalid(&at.index(i), *name, &detail);
        }
        let Some(next) = names.get(i + 1) else { continue };
        if name == next {
            errors.duplicate(&at.index(i + 1), *next);
        } else if name > next {
            errors.invalid(&at.index(i + 1), *next, "list must be sorted alphabetically");
        }
    }
}

fn is_feature(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.split('/').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

fn taints(taints: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, taint) in taints.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.invalid_all(&at.field("key"), key, &checks::qualified_name(key));
        let faults = checks::label_value(value);
        if !faults.is_empty() {
            errors.invalid(&at.field("value"), value, &faults.join(";"));
        }
        errors.choice(&at.field("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if !seen.insert((key, effect)) {
            let shown = golang::structure("Taint", taint);
            errors.duplicate_text(&at, shown, "taints must be unique by key and effect pair");
        }
    }
}

/// Update of a node at any endpoint (`ValidateNodeUpdate`).
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let status = object(new, "status");
    amounts(status, errors);
    features(status, errors);
    addresses(status, errors);
    let path = Path::new("spec");
    let (was, is) = (list(before, "podCIDRs"), list(after, "podCIDRs"));
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    if !was.is_empty() {
        let changed =
            if was.len() == is.len() { was.iter().zip(is).filter(|(w, i)| w != i).count() } else { 1 };
        for _ in 0..changed {
            errors.forbidden(&path.field("podCIDRs"), detail);
        }
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && provider != text(after, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&path.field("providerID"), detail);
    }
    if has(after, "configSource") {
        config(object(after, "configSource"), false, &path.field("configSource"), errors);
    }
    if has(status, "config") {
        let root = Path::new("status");
        let at = root.field("config");
        for key in ["assigned", "active", "lastKnownGood"] {
            if let Some(source) = object(status, "config").get(key).and_then(Value::as_object) {
                config(source, true, &at.field(key), errors);
            }
        }
    }
    let meta = Path::new("metadata");
    taints(list(after, "taints"), &meta.field("taints"), errors);
    if text(before, "externalID") != text(after, "externalID") {
        errors.forbidden(&path.field("externalID"), "may not be updated");
    }
}

fn addresses(status: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    let at = path.field("addresses");
    let mut seen = BTreeSet::new();
    for (i, one) in list(status, "addresses").iter().enumerate() {
        if !seen.insert(["type", "address"].map(|key| text(as_obj(one), key))) {
            errors.duplicate_text(&at.index(i), golang::shown("NodeAddress", Some(one)), "");
        }
    }
}

/// The source of a kubelet's configuration, in the spec or (with UID and version) in the status.
fn config(source: &Obj, known: bool, path: &Path<'_>, errors: &mut Errors) {
    let Some(map) = source.get("configMap").and_then(Value::as_object) else {
        errors.invalid_text(
            path,
            "{\"ConfigMap\":null}".to_owned(),
            "exactly one reference subfield must be non-nil",
        );
        return;
    };
    let at = path.field("configMap");
    for key in ["uid", "resourceVersion"] {
        match (text(map, key).is_empty(), known) {
            (false, false) => errors.forbidden(&at.field(key), &format!("{key} must not be set in spec")),
            (true, true) => errors.required(&at.field(key), ""),
            _ => {}
        }
    }
    type Check = fn(&str) -> checks::Faults;
    let parts: [(&str, Check); 3] = [
        ("namespace", checks::dns_label),
        ("name", checks::dns_subdomain),
        ("kubeletConfigKey", checks::config_key),
    ];
    for (key, check) in parts {
        errors.named(&at.field(key), text(map, key), check);
    }
}
