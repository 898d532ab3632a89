//! Between `kueue.x-k8s.io/v1beta1` and `v1beta2` (Kueue's conversion webhook).
//!
//! Fields that one version lacks are dropped; everything else is carried over, so that what v1beta2 says comes
//! back unchanged through v1beta1.

use serde_json::{Map, Value, json};

const GROUP: &str = "kueue.x-k8s.io/";
const WORKLOAD_CLASS: &str = "kueue.x-k8s.io/workloadpriorityclass";
const POD_CLASS: &str = "scheduling.k8s.io/priorityclass";
/// Most domains of an assignment, as in the definition.
const MAX_DOMAINS: usize = 100_000;
/// Most levels of an assignment, as in the definition.
const MAX_LEVELS: usize = 16;
/// Most bytes of the assignments of a workload in the flat form, about. Objects are converted before they are validated, and a few
/// bytes of the other form stand for as many domains as one likes: what is larger stays as it is.
const MAX_FLAT: usize = 64 << 20;
/// What a domain takes, and a value of one, beside its text.
const DOMAIN_BYTES: usize = 256;
const VALUE_BYTES: usize = 64;

type Object = Map<String, Value>;

/// Converts an object to `version` (`v1beta1` or `v1beta2`). Objects of other groups, of that version already, or
/// of a version that isn't known come back with nothing but their `apiVersion` changed.
pub fn convert(mut object: Value, version: &str) -> Value {
    let from = object["apiVersion"].as_str().and_then(|v| v.strip_prefix(GROUP)).map(str::to_owned);
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let Some(map) = object.as_object_mut() else { return object };
    match (from.as_deref(), version) {
        (Some("v1beta1"), "v1beta2") => forward(&kind, map),
        (Some("v1beta2"), "v1beta1") => back(&kind, map),
        _ => {}
    }
    map.insert("apiVersion".to_owned(), json!(format!("{GROUP}{version}")));
    object
}

fn within<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    map.get_mut(key)?.as_object_mut()
}

fn rename(map: &mut Object, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

fn forward(kind: &str, map: &mut Object) {
    match kind {
        "ClusterQueue" => {
            if let Some(spec) = within(map, "spec") {
                cluster_queue_forward(spec);
            }
            if let Some(status) = within(map, "status") {
                status.remove("pendingWorkloadsStatus");
            }
        }
        "LocalQueue" => {
            if let Some(status) = within(map, "status") {
                rename(status, "flavorUsage", "flavorsUsage");
                status.remove("flavors");
            }
        }
        "Workload" => {
            if let Some(spec) = within(map, "spec") {
                priority_class_forward(spec);
            }
            if let Some(status) = within(map, "status") {
                rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds");
                assignments(status, compress);
            }
        }
        "AdmissionCheck" => {
            if let Some(spec) = within(map, "spec") {
                spec.remove("retryDelayMinutes");
            }
        }
        "MultiKueueCluster" => {
            if let Some(spec) = within(map, "spec")
                && let Some(config) = spec.remove("kubeConfig")
                && config["location"].as_str().is_some_and(|l| !l.is_empty())
            {
                spec.insert("clusterSource".to_owned(), json!({ "kubeConfig": config }));
            }
        }
        _ => {}
    }
}

fn back(kind: &str, map: &mut Object) {
    match kind {
        "ClusterQueue" => {
            if let Some(spec) = within(map, "spec") {
                rename(spec, "cohortName", "cohort");
            }
        }
        "LocalQueue" => {
            if let Some(status) = within(map, "status") {
                rename(status, "flavorsUsage", "flavorUsage");
            }
        }
        "Workload" => {
            if let Some(spec) = within(map, "spec") {
                priority_class_back(spec);
            }
            if let Some(status) = within(map, "status") {
                rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds");
                let mut left = MAX_FLAT;
                assignments(status, |compressed| {
                    flatten(compressed, &mut left).unwrap_or_else(|| compressed.clone())
                });
            }
        }
        "MultiKueueCluster" => {
            if let Some(spec) = within(map, "spec")
                && let Some(config) =
                    spec.get_mut("clusterSource").and_then(|s| within(s.as_object_mut()?, "kubeConfig"))
            {
                let config = Value::Object(config.clone());
                spec.remove("clusterSource");
                spec.insert("kubeConfig".to_owned(), config);
            }
        }
        _ => {}
    }
}

fn cluster_queue_forward(spec: &mut Object) {
    rename(spec, "cohort", "cohortName");
    if let Some(fungibility) = within(spec, "flavorFungibility") {
        for value in fungibility.values_mut().filter(|v| *v == "Borrow" || *v == "Preempt") {
            *value = json!("MayStopSearch");
        }
    }
    // the flat list is the strategy with all flavors
    if let Some(Value::Array(checks)) = spec.remove("admissionChecks")
        && !checks.is_empty()
        && spec.get("admissionChecksStrategy").is_none_or(Value::is_null)
    {
        let rules: Vec<Value> = checks.iter().map(|name| json!({ "name": name })).collect();
        spec.insert("admissionChecksStrategy".to_owned(), json!({ "admissionChecks": rules }));
    }
}

fn priority_class_forward(spec: &mut Object) {
    let (name, source) = (spec.remove("priorityClassName"), spec.remove("priorityClassSource"));
    let (group, kind) = match source.as_ref().and_then(Value::as_str) {
        Some(WORKLOAD_CLASS) => ("kueue.x-k8s.io", "WorkloadPriorityClass"),
        Some(POD_CLASS) => ("scheduling.k8s.io", "PriorityClass"),
        _ => return,
    };
    let reference = json!({ "group": group, "kind": kind, "name": name.unwrap_or_default() });
    spec.insert("priorityClassRef".to_owned(), reference);
}

fn priority_class_back(spec: &mut Object) {
    let Some(reference) = spec.remove("priorityClassRef") else { return };
    let source = match (reference["group"].as_str(), reference["kind"].as_str()) {
        (Some("kueue.x-k8s.io"), Some("WorkloadPriorityClass")) => WORKLOAD_CLASS,
        (Some("scheduling.k8s.io"), Some("PriorityClass")) => POD_CLASS,
        _ => return,
    };
    spec.insert("priorityClassSource".to_owned(), json!(source));
    spec.insert("priorityClassName".to_owned(), reference["name"].clone());
}

fn assignments(status: &mut Object, mut change: impl FnMut(&Value) -> Value) {
    let sets = within(status, "admission").and_then(|a| a.get_mut("podSetAssignments")?.as_array_mut());
    for set in sets.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(assignment) = set.get_mut("topologyAssignment").filter(|a| a.is_object()) {
            *assignment = change(assignment);
        }
    }
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The flat form to the form of v1beta2, in one slice.
fn compress(flat: &Value) -> Value {
    let domains = array(flat, "domains");
    let levels = array(flat, "levels");
    if domains.is_empty() {
        return json!({ "levels": levels, "slices": [] });
    }
    let values = (0..levels.len().min(MAX_LEVELS)).map(|level| {
        let of =
            |d: &Value| array(d, "values").get(level).and_then(Value::as_str).unwrap_or_default().to_owned();
        individual(&domains.iter().map(of).collect::<Vec<_>>())
    });
    let counts: Vec<&Value> = domains.iter().map(|d| &d["count"]).collect();
    let same = counts.windows(2).all(|pair| pair.first() == pair.get(1));
    let pod_counts = match counts.first() {
        Some(count) if same => json!({ "universal": count }),
        _ => json!({ "individual": counts }),
    };
    let values: Vec<Value> = values.collect();
    let slice = json!({ "domainCount": domains.len(), "valuesPerLevel": values, "podCounts": pod_counts });
    json!({ "levels": levels, "slices": [slice] })
}

/// One level's values: the one they all are, or their roots between what they begin and end with.
pub(super) fn individual<S: AsRef<str>>(values: &[S]) -> Value {
    let Some(first) = values.first().map(S::as_ref) else {
        return json!({ "individual": { "roots": [] } });
    };
    if values.iter().all(|v| v.as_ref() == first) {
        return json!({ "universal": first });
    }
    let common = |texts: &mut dyn Iterator<Item = Vec<char>>| -> usize {
        let Some(start) = texts.next() else { return 0 };
        texts.fold(start.len(), |best, text| {
            start.iter().zip(&text).take(best).take_while(|(a, b)| a == b).count()
        })
    };
    let prefix = common(&mut values.iter().map(|v| v.as_ref().chars().collect()));
    let rest: Vec<Vec<char>> = values.iter().map(|v| v.as_ref().chars().skip(prefix).collect()).collect();
    let suffix = common(&mut rest.iter().map(|v| v.iter().rev().copied().collect()));
    let roots: Vec<String> =
        rest.iter().map(|v| v.iter().take(v.len().saturating_sub(suffix)).collect()).collect();
    let mut made = json!({ "roots": roots });
    if prefix > 0 {
        made["prefix"] = json!(first.chars().take(prefix).collect::<String>());
    }
    if suffix > 0 {
        let length = first.chars().count();
        made["suffix"] = json!(first.chars().skip(length - suffix).collect::<String>());
    }
    json!({ "individual": made })
}

/// The form of v1beta2 to the flat one; `None` where that takes more than is `left`.
fn flatten(compressed: &Value, left: &mut usize) -> Option<Value> {
    let mut domains = Vec::new();
    for slice in array(compressed, "slices") {
        let count = slice["domainCount"].as_u64().and_then(|c| usize::try_from(c).ok()).unwrap_or_default();
        for i in 0..count.min(MAX_DOMAINS.saturating_sub(domains.len())) {
            let levels = array(slice, "valuesPerLevel").iter().take(MAX_LEVELS);
            let values: Vec<String> = levels.map(|level| value_at(level, i)).collect();
            let bytes: usize = values.iter().map(|value| value.len() + VALUE_BYTES).sum();
            *left = left.checked_sub(DOMAIN_BYTES + bytes)?;
            let counts = &slice["podCounts"];
            let pods = counts.get("universal").or_else(|| array(counts, "individual").get(i));
            domains.push(json!({ "values": values, "count": pods }));
        }
    }
    Some(json!({ "levels": array(compressed, "levels"), "domains": domains }))
}

fn value_at(level: &Value, index: usize) -> String {
    if let Some(universal) = level["universal"].as_str() {
        return universal.to_owned();
    }
    let of = &level["individual"];
    let part = |key: &str| of[key].as_str().unwrap_or_default();
    let root = array(of, "roots").get(index).and_then(Value::as_str).unwrap_or_default();
    format!("{}{root}{}", part("prefix"), part("suffix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, kind: &str, mut rest: Value) -> Value {
        let mut object = json!({ "apiVersion": format!("{GROUP}{version}"), "kind": kind });
        object.as_object_mut().unwrap().append(rest.as_object_mut().unwrap());
        object
    }

    /// Each pair is the same object in both versions.
    #[test]
    fn both_ways() {
        let flat = json!({ "levels": ["block", "host"], "domains": [
            { "values": ["b1", "node-1-x"], "count": 2 }, { "values": ["b1", "node-22-x"], "count": 2 },
            { "values": ["b1", "node-3-x"], "count": 1 },
        ] });
        let compressed = json!({ "levels": ["block", "host"], "slices": [{
            "domainCount": 3,
            "valuesPerLevel": [
                { "universal": "b1" },
                { "individual": { "prefix": "node-", "suffix": "-x", "roots": ["1", "22", "3"] } },
            ],
            "podCounts": { "individual": [2, 2, 1] },
        }] });
        let admission = |t: &Value| {
            json!({ "admission": { "clusterQueue": "q",
            "podSetAssignments": [{ "name": "main", "topologyAssignment": t }] } })
        };
        let reference = json!({ "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high" });
        for (kind, one, two) in [
            ("ClusterQueue", json!({ "spec": { "cohort": "c" } }), json!({ "spec": { "cohortName": "c" } })),
            (
                "LocalQueue",
                json!({ "status": { "flavorUsage": [{ "name": "f" }] } }),
                json!({ "status": { "flavorsUsage": [{ "name": "f" }] } }),
            ),
            (
                "Workload",
                json!({ "spec": { "priorityClassName": "high", "priorityClassSource": WORKLOAD_CLASS } }),
                json!({ "spec": { "priorityClassRef": reference } }),
            ),
            (
                "Workload",
                json!({ "status": { "accumulatedPastExexcutionTimeSeconds": 3 } }),
                json!({ "status": { "accumulatedPastExecutionTimeSeconds": 3 } }),
            ),
            ("Workload", json!({ "status": admission(&flat) }), json!({ "status": admission(&compressed) })),
            (
                "MultiKueueCluster",
                json!({ "spec": { "kubeConfig": { "location": "s" } } }),
                json!({ "spec": { "clusterSource": { "kubeConfig": { "location": "s" } } } }),
            ),
            ("Topology", json!({ "spec": { "levels": [] } }), json!({ "spec": { "levels": [] } })),
        ] {
            let (one, two) = (object("v1beta1", kind, one), object("v1beta2", kind, two));
            assert_eq!(convert(one.clone(), "v1beta2"), two);
            assert_eq!(convert(two, "v1beta1"), one);
        }
    }

    #[test]
    fn only_in_the_old_version() {
        let old = object(
            "v1beta1",
            "ClusterQueue",
            json!({ "spec": {
                "admissionChecks": ["a", "b"],
                "flavorFungibility": { "whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt" },
            } }),
        );
        let new = convert(old, "v1beta2");
        assert_eq!(new["spec"]["admissionChecksStrategy"]["admissionChecks"][1]["name"], "b");
        assert_eq!(
            new["spec"]["flavorFungibility"],
            json!({ "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch" })
        );
        assert!(new["spec"].get("admissionChecks").is_none());
    }

    #[test]
    fn odd_input_is_harmless() {
        for odd in [json!(1), json!({}), object("v1beta2", "Workload", json!({ "spec": 1, "status": [] }))] {
            convert(odd, "v1beta1");
        }
        let huge = json!({ "admission": { "podSetAssignments": [{ "topologyAssignment": { "slices": [
            { "domainCount": 4_000_000_000_u64 }, { "domainCount": 4_000_000_000_u64 }] } }] } });
        let made = convert(object("v1beta2", "Workload", json!({ "status": huge })), "v1beta1");
        let sets = &made["status"]["admission"]["podSetAssignments"][0];
        assert_eq!(sets["topologyAssignment"]["domains"].as_array().unwrap().len(), MAX_DOMAINS);
    }

    /// A body of a few kilobytes that would become gigabytes.
    #[test]
    fn what_becomes_too_large_stays_as_it_is() {
        let slices =
            json!([{ "domainCount": MAX_DOMAINS, "valuesPerLevel": [{ "universal": "x".repeat(5000) }] }]);
        let set = json!({ "topologyAssignment": { "slices": slices } });
        let small = json!({ "topologyAssignment": { "slices": [{ "domainCount": 2 }] } });
        let status = json!({ "admission": { "podSetAssignments": [small, set, set] } });
        let made = convert(object("v1beta2", "Workload", json!({ "status": status })), "v1beta1");
        let sets = &made["status"]["admission"]["podSetAssignments"];
        assert_eq!(sets[0]["topologyAssignment"]["domains"].as_array().unwrap().len(), 2);
        assert_eq!((&sets[1], &sets[2]), (&set, &set));
        let levels = vec!["l"; 500];
        let flat = json!({ "levels": levels, "domains": [{ "values": [] }, { "values": ["a"] }] });
        let status = json!({ "admission": { "podSetAssignments": [{ "topologyAssignment": flat }] } });
        let made = convert(object("v1beta1", "Workload", json!({ "status": status })), "v1beta2");
        let slice = &made["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["slices"][0];
        assert_eq!(slice["valuesPerLevel"].as_array().unwrap().len(), MAX_LEVELS);
    }
}
