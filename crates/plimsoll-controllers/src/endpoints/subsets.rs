//! The older form: one Endpoints object per Service (`pkg/controller/endpoint` and `endpoints.RepackSubsets` upstream).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::members::{Member, Service};
use super::slices::HEADLESS;

/// Label: the controller of an Endpoints object.
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
    let listed: Vec<Listed<'_>> = by_members.keys().map(|who| listed(service, &members, who)).collect();
    let (ready, unready) = listed.iter().fold((0_usize, 0_usize), |(ready, unready), l| {
        (ready.saturating_add(l.ready.len()), unready.saturating_add(l.unready.len()))
    });
    let mut ready_share = Share::new(ready, CAPACITY);
    let mut unready_share = Share::new(unready, CAPACITY.saturating_sub(ready));
    let mut subsets = Vec::new();
    for (list, ports) in listed.into_iter().zip(by_members.values()) {
        let mut subset = json!({});
        let parts = [
            ("addresses", ready_share.take(list.ready)),
            ("notReadyAddresses", unready_share.take(list.unready)),
        ];
        for (key, list) in parts.into_iter().filter(|(_, list)| !list.is_empty()) {
            subset[key] = list.into_iter().map(address).collect();
        }
        // A subset without any address is not valid.
        if subset.as_object().is_none_or(serde_json::Map::is_empty) {
            continue;
        }
        if !ports.is_empty() {
            subset["ports"] = json!(ports.iter().map(|p| without_empty_name(p)).collect::<Vec<_>>());
        }
        subsets.push(subset);
    }
    (subsets, ready.saturating_add(unready) > CAPACITY)
}

/// The members of a subset, in order of their addresses.
struct Listed<'a> {
    ready: Vec<&'a Member>,
    unready: Vec<&'a Member>,
}

fn listed<'a>(service: &Service, members: &[&'a Member], who: &BTreeSet<usize>) -> Listed<'a> {
    let mut all: Vec<&Member> = who.iter().filter_map(|i| members.get(*i).copied()).collect();
    all.sort_by(|a, b| a.ip.cmp(&b.ip));
    let is_ready = |m: &&Member| m.serving || service.spec.publish_not_ready_addresses;
    let (ready, unready) = all.into_iter().partition(is_ready);
    Listed { ready, unready }
}

/// Room that subsets share in proportion to what each would list, rounded up while there is some left
/// (`truncateEndpoints`: those that aren't ready get what those that are leave).
struct Share {
    total: usize,
    room: usize,
    left: usize,
}

impl Share {
    const fn new(total: usize, room: usize) -> Self {
        Self { total, room, left: room }
    }

    fn take<'a>(&mut self, mut list: Vec<&'a Member>) -> Vec<&'a Member> {
        if self.total > self.room {
            let share = list.len().saturating_mul(self.room).div_ceil(self.total);
            list.truncate(share.min(self.left));
        }
        self.left = self.left.saturating_sub(list.len());
        list
    }
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
