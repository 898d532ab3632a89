//! The FlowSchemas and PriorityLevelConfigurations that exist from the start, and how they are kept
//! (`k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap/default.go`, `pkg/registry/flowcontrol/ensurer/strategy.go`).

use serde_json::{Value, json};

/// Whether the server keeps the `spec` of an object as it is here.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The level and schema of requests that are never queued.
pub const EXEMPT: &str = "exempt";
/// The level and schema of the rest.
pub const CATCH_ALL: &str = "catch-all";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}}, "spec": spec,
    })
}

/// Level, shares, lendable percent, queues and hand.
const QUEUED: [(&str, u32, u32, u32, u32); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];

/// All levels; those that the server can't be without first.
pub fn levels() -> Vec<Value> {
    let kind = "PriorityLevelConfiguration";
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let reject = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"},
    }});
    let mut all = vec![object(kind, EXEMPT, &exempt), object(kind, CATCH_ALL, &reject)];
    all.extend(QUEUED.iter().map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        });
        object(kind, name, &json!({"type": "Limited", "limited": limited}))
    }));
    all
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn system_accounts() -> Vec<Value> {
    vec![json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}})]
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster {
        rule["clusterScope"] = json!(true);
    }
    rule
}

fn rules(subjects: &[Value], resources: Vec<Value>, paths: Option<(&str, &[&str])>) -> Value {
    let mut rule = json!({"subjects": subjects});
    if !resources.is_empty() {
        rule["resourceRules"] = Value::Array(resources);
    }
    if let Some((verb, paths)) = paths {
        rule["nonResourceRules"] = json!([{"verbs": [verb], "nonResourceURLs": paths}]);
    }
    rule
}

fn everything(subjects: &[Value]) -> Value {
    rules(subjects, vec![resources(&["*"], "*", &["*"], true)], Some(("*", &["*"])))
}

fn schema(name: &str, level: &str, precedence: u32, distinguisher: &str, rules: &Value) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rules],
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    object("FlowSchema", name, &spec)
}

/// All schemas; those that the server can't be without first.
pub fn schemas() -> Vec<Value> {
    let everybody = || groups(&["system:unauthenticated", "system:authenticated"]);
    let nodes = || groups(&["system:nodes"]);
    let (by_user, by_namespace) = ("ByUser", "ByNamespace");
    let manager = "system:kube-controller-manager";
    let scheduler = "system:kube-scheduler";
    let leases = |verbs: &[&str]| resources(verbs, "coordination.k8s.io", &["leases"], false);
    let mut electing = users(&[manager, scheduler]);
    electing.extend(system_accounts());
    let election = rules(&electing, vec![leases(&["get", "create", "update"])], None);
    let reporting = vec![resources(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"])];
    let probes = rules(&everybody(), Vec::new(), Some(("get", &["/healthz", "/readyz", "/livez"])));
    vec![
        schema(EXEMPT, EXEMPT, 1, "", &everything(&groups(&["system:masters"]))),
        schema(CATCH_ALL, CATCH_ALL, 10_000, by_user, &everything(&everybody())),
        schema("probes", EXEMPT, 2, "", &probes),
        schema("system-leader-election", "leader-election", 100, by_user, &election),
        schema("system-node-high", "node-high", 400, by_user, &rules(&nodes(), reporting, None)),
        schema("system-nodes", "system", 500, by_user, &everything(&nodes())),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            by_namespace,
            &everything(&users(&[manager])),
        ),
        schema("kube-scheduler", "workload-high", 800, by_namespace, &everything(&users(&[scheduler]))),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            by_namespace,
            &everything(&system_accounts()),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            by_user,
            &everything(&groups(&["system:serviceaccounts"])),
        ),
        schema("global-default", "global-default", 9900, by_user, &everything(&everybody())),
    ]
}

/// What becomes of an object that exists already; `None`: it stays as it is.
pub fn revise(current: &Value, wanted: &Value) -> Option<Value> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or("");
    let says = current["metadata"]["annotations"][AUTO_UPDATE].as_str().and_then(parse_bool);
    // An operator who has never changed it did not mean to keep it either.
    let untouched = current["metadata"]["generation"].as_i64() == Some(1);
    let keeps = matches!(name, EXEMPT | CATCH_ALL) || says.unwrap_or(untouched);
    let new_spec = keeps && !is_equal(current, wanted);
    if says == Some(keeps) && !new_spec {
        return None;
    }
    let mut revised = current.clone();
    if new_spec {
        revised["spec"] = wanted["spec"].clone();
        if let Some(exempt) = own_exempt(current, name) {
            revised["spec"]["exempt"] = exempt;
        }
    }
    revised["metadata"]["annotations"][AUTO_UPDATE] = json!(keeps.to_string());
    Some(revised)
}

/// The one part of a mandatory object that is the operator's: shares of the exempt level (KEP-1040).
fn own_exempt(current: &Value, name: &str) -> Option<Value> {
    let of_level = current["kind"] == "PriorityLevelConfiguration" && name == EXEMPT;
    of_level.then(|| current["spec"]["exempt"].clone()).filter(Value::is_object)
}

fn is_equal(current: &Value, wanted: &Value) -> bool {
    let mut spec = wanted["spec"].clone();
    if let Some(exempt) = own_exempt(current, wanted["metadata"]["name"].as_str().unwrap_or("")) {
        spec["exempt"] = exempt;
    }
    current["spec"] == spec
}

/// As Go's `strconv.ParseBool`.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_kept_as_their_annotation_says() {
        let wanted = &schemas()[10];
        assert_eq!(revise(wanted, wanted), None);
        let mut edited = wanted.clone();
        edited["spec"]["matchingPrecedence"] = json!(7);
        assert_eq!(revise(&edited, wanted).as_ref(), Some(wanted));
        edited["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        assert_eq!(revise(&edited, wanted), None);
        // Without the annotation, an edited object is the operator's.
        edited["metadata"] = json!({"name": "global-default", "generation": 2});
        let revised = revise(&edited, wanted).unwrap();
        assert_eq!(revised["metadata"]["annotations"][AUTO_UPDATE], "false");
        assert_eq!(revised["spec"]["matchingPrecedence"], 7);
        // Mandatory objects are never the operator's, but for the shares of the exempt level.
        let mut level = levels()[0].clone();
        level["spec"]["exempt"]["nominalConcurrencyShares"] = json!(9);
        assert_eq!(revise(&level, &levels()[0]), None);
        let mut catch_all = levels()[1].clone();
        catch_all["spec"]["limited"]["nominalConcurrencyShares"] = json!(9);
        catch_all["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        assert_eq!(revise(&catch_all, &levels()[1]).as_ref(), Some(&levels()[1]));
    }
}
