//! Kueue's definitions, ready to be served or written out.

use std::sync::LazyLock;

use plimsoll_api::webhooks::CONVERT;
use serde_json::{Value, json};

use super::expand_embeds;

static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    // The manifests are part of the program and a test loads every one of them.
    plimsoll_api::crds::MANIFESTS.iter().filter_map(|(_, text)| load(text).ok()).collect()
});

/// The CustomResourceDefinitions of Kueue's twelve kinds and our own, with embedded types written out.
pub fn kueue_definitions() -> &'static [Value] {
    &DEFINITIONS
}

/// [`kueue_definitions`] for a cluster, in which a webhook converts Kueue's old version. `client` gives the `clientConfig` for
/// a path.
pub fn definitions_to_install(client: impl Fn(&str) -> Value) -> Vec<Value> {
    let mut all = DEFINITIONS.clone();
    let has_old = |d: &Value| d["spec"]["versions"].as_array().is_some_and(|versions| versions.len() > 1);
    for definition in all.iter_mut().filter(|d| d["spec"]["group"] == "kueue.x-k8s.io" && has_old(d)) {
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "clientConfig": client(CONVERT), "conversionReviewVersions": ["v1"]}});
    }
    all
}

/// Reads a manifest and writes its embedded types out.
///
/// # Errors
/// The error of the YAML parser, or an embedded type that is unknown.
pub fn load(manifest: &str) -> Result<Value, String> {
    let mut definition: Value = serde_saphyr::from_str(manifest).map_err(|e| e.to_string())?;
    expand_embeds(&mut definition)?;
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::{default_object, kinds, validate_object};
    use crate::kinds::Kind;

    fn kind(name: &str, version: &str) -> Kind {
        let all = kueue_definitions().iter().flat_map(kinds);
        all.into_iter().find(|k| k.gvk.kind == name && k.gvk.version == version).unwrap()
    }

    fn check(kind: &Kind, old: Option<&Value>, object: &Value) -> Vec<String> {
        let mut object = object.clone();
        default_object(kind, &mut object);
        validate_object(kind, old, &object, &[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_load_and_compile() {
        for (file, text) in plimsoll_api::crds::MANIFESTS {
            load(text).unwrap_or_else(|e| panic!("{file}: {e}"));
        }
        assert_eq!(kueue_definitions().len(), 15);
        let rows: Vec<Kind> = kueue_definitions().iter().flat_map(kinds).collect();
        assert_eq!(rows.len(), 26);
        for row in rows {
            fn rules(node: &crate::crd::node::Node, at: &str) {
                for rule in &node.rules {
                    assert!(rule.program.is_ok(), "{at}: {rule:?}");
                }
                node.properties.iter().for_each(|(k, n)| rules(n, &format!("{at}.{k}")));
                node.items.iter().for_each(|n| rules(n, &format!("{at}[]")));
            }
            rules(row.custom.as_ref().unwrap().checks.as_ref().unwrap(), &row.plural);
        }
    }

    /// `kubectl explain` shows descriptions; embedded types belong to other definitions and have none here.
    #[test]
    fn every_field_has_a_description() {
        fn look(schema: &Value, at: &str, missing: &mut Vec<String>) {
            if !schema.is_object() || schema.get("x-plimsoll-embed").is_some() {
                return;
            }
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{at}.{name}");
                let metadata =
                    !at.contains('.') && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
                if !property["description"].is_string() && !metadata {
                    missing.push(path.clone());
                }
                look(property, &path, missing);
            }
            look(&schema["items"], &format!("{at}[]"), missing);
            look(&schema["additionalProperties"], &format!("{at}{{}}"), missing);
        }
        let mut missing = Vec::new();
        for (file, text) in plimsoll_api::crds::MANIFESTS {
            let definition: Value = serde_saphyr::from_str(text).unwrap();
            for version in definition["spec"]["versions"].as_array().unwrap() {
                let schema = &version["schema"]["openAPIV3Schema"];
                let name =
                    format!("{} {}", file.trim_end_matches(".yaml"), version["name"].as_str().unwrap());
                assert!(schema["description"].is_string(), "{name}");
                look(schema, &name, &mut missing);
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn cluster_queues_get_defaults() {
        let mut queue = json!({ "spec": { "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{ "name": "f", "resources": [{ "name": "cpu", "nominalQuota": 4 }] }],
        }] } });
        let kind = kind("ClusterQueue", "v1beta2");
        default_object(&kind, &mut queue);
        let spec = &queue["spec"];
        assert_eq!(spec["queueingStrategy"], "BestEffortFIFO");
        assert_eq!(spec["stopPolicy"], "None");
        assert_eq!(
            spec["flavorFungibility"],
            json!({ "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor" })
        );
        assert_eq!(
            spec["preemption"],
            json!({
                "reclaimWithinCohort": "Never", "withinClusterQueue": "Never",
                "borrowWithinCohort": { "policy": "Never" },
            })
        );
        assert_eq!(check(&kind, None, &queue), [""; 0]);
    }

    #[test]
    fn refusals_have_kueues_words() {
        let queue = kind("ClusterQueue", "v1beta2");
        let with = |spec: Value| check(&queue, None, &json!({ "spec": spec }));
        let group = |flavor: Value, covered: Value| json!([{ "coveredResources": covered, "flavors": [{ "name": "f", "resources": [flavor] }] }]);
        assert_eq!(
            with(json!({ "resourceGroups": group(
                json!({ "name": "cpu", "nominalQuota": "1", "borrowingLimit": "1" }), json!(["cpu"])) })),
            ["spec: Invalid value: borrowingLimit must be nil when cohort is empty"]
        );
        assert_eq!(
            with(json!({ "resourceGroups": group(
                json!({ "name": "cpu", "nominalQuota": "1" }), json!(["cpu", "memory"])) })),
            ["spec.resourceGroups[0]: Invalid value: flavors must have the same number of resources as the \
              coveredResources"]
        );
        assert_eq!(
            with(json!({ "flavorFungibility": { "preference": "PreemptionOverBorrowing" } })),
            [
                "spec.flavorFungibility: Invalid value: preference can only be set when both whenCanBorrow and \
              whenCanPreempt are TryNextFlavor"
            ]
        );
        assert_eq!(
            with(json!({ "preemption": { "borrowWithinCohort": { "policy": "LowerPriority" } } })),
            [
                "spec.preemption: Invalid value: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
            ]
        );
        let flavor = kind("ResourceFlavor", "v1beta2");
        assert_eq!(
            check(&flavor, None, &json!({ "spec": { "tolerations": [{ "effect": "NoSchedule" }] } })).len(),
            1
        );
    }

    #[test]
    fn a_flavor_keeps_its_topology_and_may_change_otherwise() {
        let kind = kind("ResourceFlavor", "v1beta2");
        let flavor = |topology: &str, zone: &str| json!({ "spec": { "nodeLabels": { "zone": zone }, "topologyName": topology } });
        let update = |new: &Value| check(&kind, Some(&flavor("t", "a")), new);
        assert_eq!(update(&flavor("t", "b")), [""; 0]);
        let kept = "spec: Invalid value: topologyName is immutable when topologyName is set";
        assert_eq!(update(&flavor("other", "a")), [kept]);
        assert_eq!(update(&json!({ "spec": { "nodeLabels": { "zone": "a" } } })), [kept]);
    }

    #[test]
    fn workers_are_named_once() {
        let kind = kind("MultiKueueConfig", "v1beta2");
        let config = |clusters: Value| json!({ "spec": { "clusters": clusters } });
        assert_eq!(check(&kind, None, &config(json!(["b", "a"]))), [""; 0]);
        let twice = check(&kind, None, &config(json!(["b", "a", "b"])));
        assert_eq!(twice, ["spec.clusters: Invalid value: must be unique"]);
    }

    #[test]
    fn workloads_are_frozen_while_reserved() {
        let kind = kind("Workload", "v1beta2");
        let old = json!({
            "spec": {
                "podSets": [{ "name": "main", "count": 1, "template": { "spec": { "containers": [{ "name": "c" }] } } }],
                "queueName": "a", "active": true,
            },
            "status": {
                "conditions": [{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" }],
                "admission": { "clusterQueue": "q", "podSetAssignments": [{ "name": "main" }] },
            },
        });
        assert_eq!(check(&kind, None, &old), [""; 0]);
        let mut new = old.clone();
        new["spec"]["queueName"] = json!("b");
        let errors = check(&kind, Some(&old), &new);
        assert_eq!(errors, ["<nil>: Invalid value: queueName is immutable while workload quota reserved"]);
        new = old.clone();
        new["status"]["admission"]["podSetAssignments"] = json!([]);
        assert_eq!(check(&kind, Some(&old), &new).len(), 1);
    }
}
