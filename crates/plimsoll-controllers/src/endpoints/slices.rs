//! The EndpointSlices of a Service (`staging/src/k8s.io/endpointslice` upstream): pods with the same ports together, at
//! most 100 in each, and as few changes as possible.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use plimsoll_apimachinery::meta::{Meta, controller_reference, nullable};
use serde::Deserialize;
use serde_json::{Value, json};

use super::members::{Member, Service};

/// Label: the Service.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// Label: the controller of a slice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Label of what belongs to a headless Service.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Endpoints of a slice, at most (`--max-endpoints-per-slice`).
const MAX: usize = 100;
/// Type of the addresses of all slices made here.
pub(super) const ADDRESS_TYPE: &str = "IPv4";

/// A slice that is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Slice {
    pub metadata: Meta,
    /// It never changes: a slice of another type than [`ADDRESS_TYPE`] can't be used.
    pub address_type: String,
    #[serde(deserialize_with = "nullable")]
    pub endpoints: Vec<Value>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<Value>,
}

/// What a slice is to hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Content {
    pub ports: Vec<Value>,
    pub endpoints: Vec<Value>,
}

/// What there is to do.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub create: Vec<Content>,
    /// Slices by their place in the list, and what they are to hold.
    pub update: Vec<(usize, Content)>,
    pub delete: Vec<usize>,
}

/// Endpoints by what makes them the same one: address and UID of the pod.
type Wanted = BTreeMap<(String, String), Value>;

fn endpoint(member: &Member) -> Value {
    let mut e = json!({
        "addresses": [member.ip],
        "conditions": {
            "ready": member.ready, "serving": member.serving, "terminating": member.terminating,
        },
        "targetRef": member.target,
    });
    if !member.node.is_empty() {
        e["nodeName"] = json!(member.node);
    }
    for (key, value) in [("zone", &member.zone), ("hostname", &member.hostname)] {
        if let Some(value) = value {
            e[key] = json!(value);
        }
    }
    e
}

/// What makes two endpoints the same one.
fn identity(endpoint: &Value) -> (String, String) {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    (text(&endpoint["addresses"][0]), text(&endpoint["targetRef"]["uid"]))
}

/// How to get from the slices that are there to those that should be.
pub(super) fn plan(members: &[Member], existing: &[Arc<Slice>]) -> Plan {
    let mut groups: BTreeMap<String, (Vec<Value>, Wanted)> = BTreeMap::new();
    for member in members {
        let key = json!(member.ports).to_string();
        let (_, endpoints) = groups.entry(key).or_insert_with(|| (member.ports.clone(), Wanted::new()));
        let endpoint = endpoint(member);
        endpoints.insert(identity(&endpoint), endpoint);
    }
    let mut plan = Plan::default();
    let of_type = |i: &usize| existing.get(*i).is_some_and(|s| s.address_type == ADDRESS_TYPE);
    let (usable, unusable): (Vec<usize>, Vec<usize>) = (0..existing.len()).partition(of_type);
    let mut spare = VecDeque::from(usable);
    let usable = spare.len();
    for (ports, wanted) in groups.into_values() {
        place(existing, &ports, wanted, &mut spare, &mut plan);
    }
    let kept = usable.saturating_sub(spare.len());
    if kept == 0 && plan.create.is_empty() {
        // A Service without pods has one empty slice.
        plan.create.push(Content { ports: Vec::new(), endpoints: Vec::new() });
    }
    // What would be made takes the place of what would be deleted.
    for content in std::mem::take(&mut plan.create) {
        match spare.pop_front() {
            Some(i) => update(existing, i, content, &mut plan),
            None => plan.create.push(content),
        }
    }
    plan.delete.extend(spare);
    plan.delete.extend(unusable);
    plan
}

/// Endpoints with the same ports: they stay where they are, others fill the gaps.
fn place(
    existing: &[Arc<Slice>],
    ports: &[Value],
    mut wanted: Wanted,
    spare: &mut VecDeque<usize>,
    plan: &mut Plan,
) {
    let of_group = |(_, s): &(usize, &Arc<Slice>)| s.address_type == ADDRESS_TYPE && s.ports == ports;
    let mut held: Vec<(usize, Vec<Value>)> = Vec::new();
    for (i, slice) in existing.iter().enumerate().filter(of_group) {
        let kept = slice.endpoints.iter().filter_map(|e| wanted.remove(&identity(e))).take(MAX).collect();
        held.push((i, kept));
    }
    let mut rest: VecDeque<Value> = wanted.into_values().collect();
    // The fullest first, so that few slices change.
    held.sort_by_key(|(i, kept)| (std::cmp::Reverse(kept.len()), *i));
    for (i, mut kept) in held {
        let room = MAX.saturating_sub(kept.len()).min(rest.len());
        kept.extend(rest.drain(..room));
        if !kept.is_empty() {
            spare.retain(|s| *s != i);
            update(existing, i, Content { ports: ports.to_vec(), endpoints: kept }, plan);
        }
    }
    while !rest.is_empty() {
        let next = rest.drain(..rest.len().min(MAX)).collect();
        plan.create.push(Content { ports: ports.to_vec(), endpoints: next });
    }
}

fn update(existing: &[Arc<Slice>], i: usize, content: Content, plan: &mut Plan) {
    let same = |s: &Arc<Slice>| s.endpoints == content.endpoints && s.ports == content.ports;
    if !existing.get(i).is_some_and(same) {
        plan.update.push((i, content));
    }
}

/// Labels of a Service's slices: its own, and those of the controller.
pub(super) fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone();
    labels.remove(HEADLESS);
    labels.insert(SERVICE.to_owned(), service.metadata.name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// A new slice.
pub(super) fn object(service: &Service, content: &Content) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", service.metadata.name),
            "namespace": service.metadata.namespace,
            "labels": labels(service),
            "ownerReferences": [controller_reference("v1", "Service", &service.metadata)],
        },
        "addressType": ADDRESS_TYPE,
        "endpoints": content.endpoints,
        "ports": content.ports,
    })
}
