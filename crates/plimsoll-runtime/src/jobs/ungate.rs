//! Hands the domains of a topology assignment out to gated pods (Kueue KEP-2724, spec section 2.6, "Ungater"): by rank
//! where every pod has one, otherwise in order of names.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::queueing::TopologyAssignment;
use serde_json::{Value, json};

use super::{Env, Write, names, patch};
use crate::api::PODS;
use crate::cache::Kind;
use crate::json;

/// Label whose value is the node of a domain when assignments go down to nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Annotation: what the ranks of a podset begin with.
const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// Whether the pod waits for its topology domain.
fn gated(pod: &Value) -> bool {
    json::list(pod, &["spec", "schedulingGates"]).iter().any(|g| g["name"] == names::TOPOLOGY_GATE)
}

/// Whether the workload has a topology assignment.
pub fn concerns(wl: &Value) -> bool {
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]);
    assigned.iter().any(|a| a["topologyAssignment"].is_object())
}

/// Writes that let gated pods of an admitted workload go to their domains.
pub fn plan(namespace: &str, workload: &str, env: Env<'_>) -> Vec<Write> {
    let Some(wl) = env.cache.get(Kind::Workload, namespace, workload) else { return Vec::new() };
    if !json::is_true(&wl, "Admitted") || json::is_true(&wl, "Evicted") || json::is_true(&wl, "Finished") {
        return Vec::new();
    }
    let pods = env.cache.of_workload(namespace, workload);
    if !pods.iter().any(|p| gated(p)) {
        return Vec::new();
    }
    let unhealthy: Vec<&str> =
        json::list(&wl, &["status", "unhealthyNodes"]).iter().map(|n| json::text(n, &["name"])).collect();
    let mut writes = Vec::new();
    for assigned in json::list(&wl, &["status", "admission", "podSetAssignments"]) {
        let Some(topology) = plimsoll_api::kueue::topology_assignment(&assigned["topologyAssignment"]) else {
            continue;
        };
        let name = json::text(assigned, &["name"]);
        let mine: Vec<&Arc<Value>> =
            pods.iter().filter(|p| json::label(p, names::PODSET) == name && !super::pod::ended(p)).collect();
        let podset = json::list(&wl, &["spec", "podSets"]).iter().find(|p| p["name"] == name);
        let request = podset.map_or(&Value::Null, |p| &p["topologyRequest"]);
        let places = by_rank(&mine, &topology, request).unwrap_or_else(|| in_order(&mine, &topology));
        for (pod, domain) in places {
            let host = topology.levels.iter().position(|l| l == HOSTNAME).and_then(|i| domain.get(i));
            // A node that is being replaced gets no more pods.
            if host.is_none_or(|h| !unhealthy.contains(&h.as_str())) {
                writes.extend(ungate(pod, &topology.levels, domain));
            }
        }
    }
    writes
}

fn ungate(pod: &Value, levels: &[String], domain: &[String]) -> Option<Write> {
    let mut new = pod.clone();
    let left: Vec<Value> = json::list(pod, &["spec", "schedulingGates"])
        .iter()
        .filter(|g| g["name"] != names::TOPOLOGY_GATE)
        .cloned()
        .collect();
    if left.is_empty() {
        json::remove(&mut new, &["spec", "schedulingGates"]);
    } else {
        json::set(&mut new, &["spec", "schedulingGates"], Value::Array(left));
    }
    for (level, value) in levels.iter().zip(domain) {
        json::set(&mut new, &["spec", "nodeSelector", level], json!(value));
    }
    patch(PODS, pod, &new)
}

type Places<'a> = Vec<(&'a Value, &'a [String])>;

/// Rank `r` goes to the domain that holds the `r`-th place. `None` when ranks are unknown, double or too large.
fn by_rank<'a>(
    pods: &[&'a Arc<Value>],
    topology: &'a TopologyAssignment,
    request: &Value,
) -> Option<Places<'a>> {
    let label = request["podIndexLabel"].as_str()?;
    let total: i64 = topology.domains.iter().map(|d| i64::from(d.1)).sum();
    let groups = request["subGroupCount"].as_i64().filter(|n| *n > 0);
    let mut ranks: BTreeMap<i64, &'a Value> = BTreeMap::new();
    for pod in pods {
        let index: i64 = json::label_opt(pod, label)?.parse().ok()?;
        let offset = json::annotation(pod, INDEX_OFFSET).map_or(Some(0), |o| o.parse::<i64>().ok())?;
        let mut rank = index.checked_sub(offset)?;
        if let (Some(groups), Some(label)) = (groups, request["subGroupIndexLabel"].as_str()) {
            let group: i64 = json::label_opt(pod, label)?.parse().ok()?;
            rank = rank.checked_add((total / groups).checked_mul(group)?)?;
        }
        if !(0..total).contains(&rank) || ranks.insert(rank, pod).is_some() {
            return None;
        }
    }
    let mut out = Vec::new();
    let mut first = 0;
    for (values, count) in &topology.domains {
        let end = first + i64::from((*count).max(0));
        for (_, pod) in ranks.range(first..end).filter(|(_, p)| gated(p)) {
            out.push((*pod, values.as_slice()));
        }
        first = end;
    }
    Some(out)
}

/// Gated pods by name fill what the pods that went before have left.
fn in_order<'a>(pods: &[&'a Arc<Value>], topology: &'a TopologyAssignment) -> Places<'a> {
    let is_in = |pod: &Value, values: &[String]| {
        let mut pairs = topology.levels.iter().zip(values);
        pairs.all(|(level, value)| json::text(pod, &["spec", "nodeSelector", level]) == value)
    };
    let mut waiting = pods.iter().filter(|p| gated(p));
    let mut out = Vec::new();
    for (values, count) in &topology.domains {
        let taken = pods.iter().filter(|p| !gated(p) && is_in(p, values)).count();
        let left = usize::try_from(*count).unwrap_or(0).saturating_sub(taken);
        out.extend(waiting.by_ref().take(left).map(|p| (&***p, values.as_slice())));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, index: Option<&str>, node: Option<&str>) -> Arc<Value> {
        let mut pod = json!({"metadata": {"name": name, "labels": {}}, "spec": {}});
        if let Some(index) = index {
            json::set(&mut pod, &["metadata", "labels", "index"], json!(index));
        }
        match node {
            Some(node) => json::set(&mut pod, &["spec", "nodeSelector", HOSTNAME], json!(node)),
            None => {
                json::set(&mut pod, &["spec", "schedulingGates"], json!([{"name": names::TOPOLOGY_GATE}]));
            }
        }
        Arc::new(pod)
    }

    fn topology() -> TopologyAssignment {
        TopologyAssignment {
            levels: vec![HOSTNAME.into()],
            domains: vec![(vec!["x".into()], 2), (vec!["y".into()], 1)],
        }
    }

    fn texts(places: &Places<'_>) -> Vec<String> {
        places.iter().map(|(p, d)| format!("{}={}", json::name(p), d.join("/"))).collect()
    }

    #[test]
    fn ranks_decide_where_they_are_complete() {
        let request = json!({"podIndexLabel": "index"});
        let topology = topology();
        let all = [pod("a", Some("2"), None), pod("b", Some("0"), Some("x")), pod("c", Some("1"), None)];
        let pods: Vec<_> = all.iter().collect();
        assert_eq!(
            by_rank(&pods, &topology, &request).map(|p| texts(&p)),
            Some(vec!["c=x".into(), "a=y".into()])
        );
        for bad in ["3", "-1", "0", "x"] {
            let odd = [pod("a", Some(bad), None), pod("b", Some("0"), None)];
            assert!(by_rank(&odd.iter().collect::<Vec<_>>(), &topology, &request).is_none(), "{bad}");
        }
        assert!(by_rank(&pods, &topology, &Value::Null).is_none());
    }

    #[test]
    fn otherwise_free_places_are_filled_in_order() {
        let topology = topology();
        let all =
            [pod("a", None, None), pod("b", None, Some("x")), pod("c", None, None), pod("d", None, None)];
        let pods: Vec<_> = all.iter().collect();
        assert_eq!(texts(&in_order(&pods, &topology)), ["a=x", "c=y"]);
    }
}
