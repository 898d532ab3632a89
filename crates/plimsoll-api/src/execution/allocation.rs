//! `status.allocation` of a claim for devices, as upstream's allocator writes it (`Allocate` in
//! `structured/internal/incubating/allocator_incubating.go`).

use plimsoll_scheduler::AllocationTerms;
use plimsoll_state::model::{AllocatedDevice, NodeSelector, Requirement};
use serde_json::{Value, json};

use crate::json;

/// The allocation of these devices to a claim: beside them the tolerations of their requests, which keep taints from evicting the
/// pod, and the configurations for drivers, those of classes first.
pub(super) fn allocation(claim: &Value, devices: &[AllocatedDevice], terms: &AllocationTerms) -> Value {
    let requests = json::list(claim, &["spec", "devices", "requests"]);
    let results: Vec<Value> = devices.iter().map(|d| result(requests, d)).collect();
    let mut config: Vec<Value> =
        terms.config.iter().filter_map(|(names, config)| of_class(names, config)).collect();
    for entry in json::list(claim, &["spec", "devices", "config"]) {
        config.extend(std::iter::repeat_n(of_claim(entry), uses(entry, requests, devices)));
    }
    let mut out = json!({"devices": {"results": results}});
    if !config.is_empty() {
        out["devices"]["config"] = config.into();
    }
    if let Some(nodes) = &terms.nodes {
        out["nodeSelector"] = selector(nodes);
    }
    out
}

fn result(requests: &[Value], d: &AllocatedDevice) -> Value {
    let mut out = json!({"request": d.request, "driver": d.driver, "pool": d.pool, "device": d.device});
    if d.admin {
        out["adminAccess"] = true.into();
    }
    let (name, sub) = d.request.split_once('/').map_or((&*d.request, None), |(name, sub)| (name, Some(sub)));
    let request = requests.iter().find(|r| r["name"] == name);
    let chosen = request.and_then(|r| match sub {
        None => Some(&r["exactly"]),
        Some(sub) => json::list(r, &["firstAvailable"]).iter().find(|s| s["name"] == sub),
    });
    let tolerations = chosen.map(|c| json::list(c, &["tolerations"])).filter(|t| !t.is_empty());
    if let Some(tolerations) = tolerations {
        out["tolerations"] = tolerations.into();
    }
    out
}

/// A configuration without its requests, from one side or the other.
fn of_class(requests: &[String], config: &str) -> Option<Value> {
    let mut out: Value = serde_json::from_str(config).ok().filter(Value::is_object)?;
    out["source"] = "FromClass".into();
    out["requests"] = requests.into();
    Some(out)
}

fn of_claim(entry: &Value) -> Value {
    let mut out = entry.clone();
    out["source"] = "FromClaim".into();
    out
}

/// How often a claim's configuration is in its allocation: for each request that it names, by itself or by the subrequest that was
/// chosen; without requests, once.
fn uses(entry: &Value, requests: &[Value], devices: &[AllocatedDevice]) -> usize {
    let named = json::list(entry, &["requests"]);
    if named.is_empty() {
        return 1;
    }
    let is_named = |name: &str| named.iter().any(|n| n == name);
    let chosen = |request: &str| {
        let sub = |d: &&AllocatedDevice| d.request.split_once('/').is_some_and(|(name, _)| name == request);
        devices.iter().find(sub).is_some_and(|d| is_named(&d.request))
    };
    let used = |r: &&Value| r["name"].as_str().is_some_and(|name| is_named(name) || chosen(name));
    requests.iter().filter(used).count()
}

fn selector(nodes: &NodeSelector) -> Value {
    let terms = nodes.terms.iter().map(|term| {
        let mut out = json!({});
        for (field, list) in [("matchFields", &term.fields), ("matchExpressions", &term.expressions)] {
            if !list.is_empty() {
                out[field] = list.iter().map(requirement).collect::<Vec<Value>>().into();
            }
        }
        out
    });
    json!({"nodeSelectorTerms": terms.collect::<Vec<Value>>()})
}

fn requirement(r: &Requirement) -> Value {
    let mut out = json!({"key": r.key, "operator": r.operator.name()});
    if !r.values.is_empty() {
        out["values"] = r.values.clone().into();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_state::model::{NodeSelectorTerm, Operator};

    fn device(request: &str, admin: bool) -> AllocatedDevice {
        AllocatedDevice {
            request: request.into(),
            driver: "drv".into(),
            pool: "p".into(),
            device: "d0".into(),
            admin,
        }
    }

    #[test]
    fn devices_have_the_tolerations_of_their_requests() {
        let toleration = |key: &str| json!([{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]);
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"tolerations": toleration("one")}},
            {"name": "s", "firstAvailable": [
                {"name": "a", "tolerations": toleration("first")}, {"name": "b", "tolerations": toleration("second")}]},
            {"name": "t", "exactly": {}},
        ]}}});
        let got = allocation(
            &claim,
            &[device("r", false), device("s/b", false), device("t", true)],
            &AllocationTerms::default(),
        );
        let result =
            |request: &str| json!({"request": request, "driver": "drv", "pool": "p", "device": "d0"});
        let mut want = [result("r"), result("s/b"), result("t")];
        want[0]["tolerations"] = toleration("one");
        want[1]["tolerations"] = toleration("second");
        want[2]["adminAccess"] = true.into();
        assert_eq!(got, json!({"devices": {"results": want}}));
    }

    #[test]
    fn configurations_come_from_classes_and_then_from_the_claim() {
        let opaque = |n: i64| json!({"driver": "drv", "parameters": {"n": n}});
        let claim = json!({"spec": {"devices": {
            "requests": [{"name": "r", "exactly": {}}, {"name": "s", "firstAvailable": [{"name": "a"}, {"name": "b"}]}],
            "config": [
                {"opaque": opaque(2)},
                {"requests": ["r"], "opaque": opaque(3)},
                {"requests": ["s/a"], "opaque": opaque(4)},
                {"requests": ["s/b"], "opaque": opaque(5)},
                {"requests": ["s"], "opaque": opaque(6)},
            ],
        }}});
        let both = vec!["r".to_owned(), "s/b".to_owned()];
        let config = vec![(both.clone(), json!({"opaque": opaque(1)}).to_string())];
        let terms = AllocationTerms { nodes: None, config };
        let got = allocation(&claim, &[device("r", false), device("s/b", false)], &terms);
        let want = json!([
            {"source": "FromClass", "requests": both, "opaque": opaque(1)},
            {"source": "FromClaim", "opaque": opaque(2)},
            {"source": "FromClaim", "requests": ["r"], "opaque": opaque(3)},
            {"source": "FromClaim", "requests": ["s/b"], "opaque": opaque(5)},
            {"source": "FromClaim", "requests": ["s"], "opaque": opaque(6)},
        ]);
        assert_eq!(got["devices"]["config"], want);
        assert!(got.get("nodeSelector").is_none());
    }

    #[test]
    fn nodes_are_written_as_a_selector() {
        let name =
            Requirement { key: "metadata.name".into(), operator: Operator::In, values: vec!["n".into()] };
        let rack = Requirement { key: "rack".into(), operator: Operator::Exists, values: Vec::new() };
        let term = NodeSelectorTerm { expressions: vec![rack], fields: vec![name] };
        let terms = AllocationTerms { nodes: Some(NodeSelector { terms: vec![term] }), config: Vec::new() };
        let want = json!({"nodeSelectorTerms": [{
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
            "matchExpressions": [{"key": "rack", "operator": "Exists"}],
        }]});
        assert_eq!(allocation(&json!({}), &[], &terms)["nodeSelector"], want);
    }
}
