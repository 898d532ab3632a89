//! The older form: one Endpoints object per Service (`pkg/controller/endpoint` and `endpoints.RepackSubsets` upstream).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::members::{Member, Service};
use super::slices::HEADLESS;

/// Label: who looks after an Endpoints object.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub(super) const MANAGER: &str = "endpoint-controller";
/// Annotation of objects that leave out addresses.
pub(super) const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Addresses of an object, at most.
const CAPACITY: usize = 1000;

fn address(member: &Member) -> Value {
    let mut a = json!({"ip": member.ip, "targetRef": member.target});
    if !member.node.is_empty() {
        a["nodeName"] = json!(member.node);
    }
    if let Some(hostname) = &member.hostname {
        a["hostname"] = json!(hostname);
    }
    a
}

/// Members that have an address here: those on their way out only where unready ones are published too.
fn counts(service: &Service, member: &Member) -> bool {
    !member.terminating || service.spec.publish_not_ready_addresses
}

/// `subsets`: ports with the same addresses together; and whether addresses had to be left out.
pub(super) fn subsets(service: &Service, members: &[Member]) -> (Vec<Value>, bool) {
    let members: Vec<&Member> = members.iter().filter(|m| counts(service, m)).collect();
    // Ports by number, with the places of the members that have them. No port is one too, for headless Services.
    let mut by_port: BTreeMap<String, (Option<&Value>, BTreeSet<usize>)> = BTreeMap::new();
    for (i, member) in members.iter().enumerate() {
        if service.spec.ports.is_empty() && service.is_headless() {
            by_port.entry(String::new()).or_default().1.insert(i);
        }
        for port in &member.ports {
            by_port.entry(port.to_string()).or_insert((Some(port), BTreeSet::new())).1.insert(i);
        }
    }
    let mut by_members: BTreeMap<BTreeSet<usize>, Vec<&Value>> = BTreeMap::new();
    for (port, who) in by_port.into_values() {
        by_members.entry(who).or_default().extend(port);
    }
    let mut room = CAPACITY;
    let total: usize = by_members.keys().map(BTreeSet::len).sum();
    let mut subsets = Vec::new();
    for (who, ports) in &by_members {
        let ready = |yes: bool| {
            let mut list: Vec<&Member> = who.iter().filter_map(|i| members.get(*i).copied()).collect();
            list.retain(|m| yes == (m.serving || service.spec.publish_not_ready_addresses));
            list.sort_by(|a, b| a.ip.cmp(&b.ip));
            list
        };
        let mut subset = json!({});
        for (key, list) in [("addresses", ready(true)), ("notReadyAddresses", ready(false))] {
            let list: Vec<Value> = list.into_iter().take(room).map(address).collect();
            room = room.saturating_sub(list.len());
            if !list.is_empty() {
                subset[key] = json!(list);
            }
        }
        if !ports.is_empty() {
            subset["ports"] = json!(ports.iter().map(|p| without_empty_name(p)).collect::<Vec<_>>());
        }
        subsets.push(subset);
    }
    (subsets, total > CAPACITY)
}

fn without_empty_name(port: &Value) -> Value {
    let mut port = port.clone();
    if let Some(map) = port.as_object_mut()
        && map.get("name").is_some_and(|n| n == "")
    {
        map.remove("name");
    }
    port
}

/// Labels of the object: the Service's, and those of the controller.
pub(super) fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone();
    labels.remove(HEADLESS);
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}
