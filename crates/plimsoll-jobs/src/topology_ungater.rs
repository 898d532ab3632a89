//! Assigns the domains of a topology assignment to gated pods (Kueue KEP-2724, `pkg/controller/tas/topology_ungater.go`): by
//! rank where every pod has one, otherwise in order of names.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::resource::PODS;
use plimsoll_queueing::TopologyAssignment;
use serde_json::{Value, json};

use crate::plan::{Plan, Write, patch};
use crate::store::Kind;
use crate::{Env, names, pod_view};

/// Label whose value is the node of a domain when the lowest level is the node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Annotation: the first rank of a podset.
const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// Whether the pod waits for its topology domain.
fn gated(pod: &Value) -> bool {
    pod_view::has_gate(pod, names::TOPOLOGY_GATE)
}

/// Whether the workload has a topology assignment.
pub fn concerns(wl: &Value) -> bool {
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]);
    assigned.iter().any(|a| a["topologyAssignment"].is_object())
}

/// Writes that ungate pods of an admitted workload with the node selector of their domains.
pub fn plan(namespace: &str, workload: &str, env: Env<'_>) -> Plan {
    let Some(wl) = env.objects.get(Kind::Workload, namespace, workload) else { return Vec::new() };
    if !json::is_true(&wl, "Admitted") || json::is_true(&wl, "Evicted") || json::is_true(&wl, "Finished") {
        return Vec::new();
    }
    // Pods of an elastic job stay in their domains when another slice replaces theirs. One that waits at the gate of elastic jobs has
    // no quota yet.
    let mut pods = match env.is_elastic(&wl) {
        true => env.objects.pods_of_slice(namespace, pod_view::first_slice(&wl)),
        false => env.objects.pods_of_workload(namespace, workload),
    };
    pods.retain(|pod| !pod_view::has_gate(pod, names::ELASTIC_GATE));
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
            pods.iter().filter(|p| json::label(p, names::PODSET) == name && !pod_view::ended(p)).collect();
        let podset = json::list(&wl, &["spec", "podSets"]).iter().find(|p| p["name"] == name);
        let request = podset.map_or(&Value::Null, |p| &p["topologyRequest"]);
        let ranks = Ranks { count: count(assigned), before: before_in_group(&wl, assigned) };
        let places = by_rank(&mine, &topology, request, &ranks).unwrap_or_else(|| in_order(&mine, &topology));
        for (pod, domain) in places {
            let host = topology.levels.iter().position(|l| l == HOSTNAME).and_then(|i| domain.get(i));
            // No pod is sent to a node that is being replaced.
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

/// The ranks of the pods of a podset.
struct Ranks {
    count: i64,
    /// Pods of the same group with lower ranks.
    before: i64,
}

fn count(assigned: &Value) -> i64 {
    assigned["count"].as_i64().unwrap_or(0).max(0)
}

/// In a group of two podsets the smaller one, the leader, has the first ranks.
fn before_in_group(wl: &Value, assigned: &Value) -> i64 {
    let group = |name: &Value| {
        let podset = json::list(wl, &["spec", "podSets"]).iter().find(|p| p["name"] == *name)?;
        podset["topologyRequest"]["podSetGroupName"].as_str()
    };
    let Some(mine) = group(&assigned["name"]) else { return 0 };
    let all = json::list(wl, &["status", "admission", "podSetAssignments"]);
    let members: Vec<&Value> = all.iter().filter(|a| group(&a["name"]) == Some(mine)).collect();
    let (Some(first), Some(second)) = (members.first(), members.get(1)) else { return 0 };
    let (leader, workers) = if count(first) > count(second) { (second, first) } else { (first, second) };
    if workers["name"] == assigned["name"] { count(leader) } else { 0 }
}

type Places<'a> = Vec<(&'a Value, &'a [String])>;

/// Rank `r` is assigned to the domain of the `r`-th place. `None` when ranks are unknown, duplicate or too large, or when a pod
/// that was ungated earlier is in another domain than its rank's, as after a node was replaced.
fn by_rank<'a>(
    pods: &[&'a Arc<Value>],
    topology: &'a TopologyAssignment,
    request: &Value,
    ranks: &Ranks,
) -> Option<Places<'a>> {
    let label = request["podIndexLabel"].as_str()?;
    // All pods of a podset have the same offset.
    let offset = pods.first().and_then(|p| json::annotation(p, INDEX_OFFSET));
    let offset = ranks.before.checked_add(offset.map_or(Some(0), |o| o.parse::<i64>().ok())?)?;
    let bound = ranks.count.checked_add(offset)?;
    let groups = request["subGroupIndexLabel"].as_str();
    let groups = groups.map(|label| (label, request["subGroupCount"].as_i64().unwrap_or(0)));
    let size = match groups {
        Some((_, groups)) if groups <= 0 => return None,
        Some((_, groups)) => ranks.count / groups,
        None => ranks.count,
    };
    let mut of_rank: BTreeMap<i64, &'a Value> = BTreeMap::new();
    for pod in pods {
        let below = |label: &str, bound: i64| {
            json::label_opt(pod, label)?.parse().ok().filter(|n: &i64| (0..bound).contains(n))
        };
        let index = below(label, bound)?;
        let mut rank = index.checked_sub(offset)?;
        if let Some((label, groups)) = groups {
            let group = below(label, groups)?;
            if index >= size {
                return None;
            }
            rank = rank.checked_add(size.checked_mul(group)?)?;
        }
        if !(0..ranks.count).contains(&rank) || of_rank.insert(rank, pod).is_some() {
            return None;
        }
    }
    let total: i64 = topology.domains.iter().map(|d| i64::from(d.1.max(0))).sum();
    if of_rank.last_key_value().is_some_and(|(rank, _)| *rank >= total) {
        return None;
    }
    let mut out = Vec::new();
    let mut first = 0;
    for (values, count) in &topology.domains {
        let end = first + i64::from((*count).max(0));
        for (_, pod) in of_rank.range(first..end) {
            if gated(pod) {
                out.push((*pod, values.as_slice()));
            } else if !was_sent_to(pod, &topology.levels, values) {
                return None;
            }
        }
        first = end;
    }
    Some(out)
}

/// Whether the pod was ungated for this domain.
fn was_sent_to(pod: &Value, levels: &[String], values: &[String]) -> bool {
    levels.iter().zip(values).all(|(level, v)| json::text(pod, &["spec", "nodeSelector", level]) == v)
}

/// Assigns gated pods by name to the places that ungated pods leave free.
fn in_order<'a>(pods: &[&'a Arc<Value>], topology: &'a TopologyAssignment) -> Places<'a> {
    let mut waiting = pods.iter().filter(|p| gated(p));
    let mut out = Vec::new();
    for (values, count) in &topology.domains {
        let taken = pods.iter().filter(|p| !gated(p) && was_sent_to(p, &topology.levels, values)).count();
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

    const THREE: Ranks = Ranks { count: 3, before: 0 };

    #[test]
    fn ranks_decide_where_they_are_complete() {
        let request = json!({"podIndexLabel": "index"});
        let topology = topology();
        let all = [pod("a", Some("2"), None), pod("b", Some("0"), Some("x")), pod("c", Some("1"), None)];
        let pods: Vec<_> = all.iter().collect();
        assert_eq!(
            by_rank(&pods, &topology, &request, &THREE).map(|p| texts(&p)),
            Some(vec!["c=x".into(), "a=y".into()])
        );
        for bad in ["3", "-1", "0", "x"] {
            let odd = [pod("a", Some(bad), None), pod("b", Some("0"), None)];
            assert!(by_rank(&odd.iter().collect::<Vec<_>>(), &topology, &request, &THREE).is_none(), "{bad}");
        }
        assert!(by_rank(&pods, &topology, &Value::Null, &THREE).is_none());
    }

    /// A pod that runs where another rank belongs: places are filled by what is free.
    #[test]
    fn ranks_that_moved_are_given_up() {
        let request = json!({"podIndexLabel": "index"});
        let topology = topology();
        let all = [pod("a", Some("0"), None), pod("b", Some("1"), Some("y")), pod("c", Some("2"), Some("x"))];
        let pods: Vec<_> = all.iter().collect();
        assert!(by_rank(&pods, &topology, &request, &THREE).is_none());
        assert_eq!(texts(&in_order(&pods, &topology)), ["a=x"]);
    }

    /// Ranks of workers go on after the leader's.
    #[test]
    fn ranks_of_workers_follow_the_leader() {
        let grouped = |name: &str| json!({"name": name, "topologyRequest": {"podSetGroupName": "g"}});
        let wl = json!({
            "spec": {"podSets": [grouped("leader"), grouped("workers"), {"name": "other"}]},
            "status": {"admission": {"podSetAssignments": [
                {"name": "leader", "count": 1}, {"name": "workers", "count": 3}, {"name": "other", "count": 2},
            ]}},
        });
        let assigned = json::list(&wl, &["status", "admission", "podSetAssignments"]);
        let before: Vec<i64> = assigned.iter().map(|a| before_in_group(&wl, a)).collect();
        assert_eq!(before, [0, 1, 0]);
        let request = json!({"podIndexLabel": "index"});
        let topology = topology();
        let all = [pod("a", Some("1"), None), pod("b", Some("3"), None)];
        let ranks = Ranks { count: 3, before: 1 };
        let places = by_rank(&all.iter().collect::<Vec<_>>(), &topology, &request, &ranks);
        assert_eq!(places.map(|p| texts(&p)), Some(vec!["a=x".into(), "b=y".into()]));
    }

    /// The pods of the slice before stay where they are, and those without quota wait.
    #[test]
    fn pods_of_an_elastic_job_are_those_of_all_its_slices() {
        let gates = |names: &[&str]| json!(names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>());
        let pod = |name: &str, gates: Value, node: Option<&str>| {
            let mut pod = json!({"metadata": {"namespace": "ns", "name": name, "resourceVersion": "1",
                    "labels": {names::PODSET: "main"}, "annotations": {names::SLICE: "s1", names::WORKLOAD: "s1"}},
                "spec": {"schedulingGates": gates}});
            if let Some(node) = node {
                pod["spec"]["nodeSelector"] = json!({HOSTNAME: node});
            }
            pod
        };
        let mut fixture = crate::testing::Fixture::default();
        fixture.put(Kind::Pod, pod("a", gates(&[]), Some("x")));
        fixture.put(Kind::Pod, pod("b", gates(&[names::TOPOLOGY_GATE, names::ELASTIC_GATE]), None));
        fixture.put(Kind::Pod, pod("c", gates(&[names::TOPOLOGY_GATE]), None));
        let owner =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "ju", "controller": true}]);
        let wl = json!({"metadata": {"namespace": "ns", "name": "s2", "uid": "w2", "ownerReferences": owner,
                "annotations": {names::ELASTIC: "true", names::SLICE: "s1"}},
            "spec": {"podSets": [{"name": "main", "count": 2}]},
            "status": {"conditions": [{"type": "Admitted", "status": "True"}], "admission": {"podSetAssignments": [
                {"name": "main", "count": 2, "topologyAssignment": {"levels": [HOSTNAME], "slices": [
                    {"domainCount": 2, "podCounts": {"universal": 1},
                     "valuesPerLevel": [{"individual": {"roots": ["x", "y"]}}]}]}}]}}});
        fixture.put(Kind::Workload, wl);
        let writes = plan("ns", "s2", fixture.env(plimsoll_state::Time::from_seconds(0)));
        let [Write::Patch { name, body, .. }] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!((name.as_str(), &body["spec"]["nodeSelector"]), ("c", &json!({HOSTNAME: "y"})));
        let owned = pod("c", gates(&[names::TOPOLOGY_GATE]), None);
        let mut owned = owned;
        owned["metadata"]["ownerReferences"] = owner;
        let keys = crate::affected(Kind::Pod, &owned, &fixture);
        assert!(keys.contains(&crate::Key::Topology("ns".into(), "s2".into())), "{keys:?}");
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
