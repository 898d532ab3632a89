//! Users with all rights but one, and users with certain rights and no others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::cases::{Case, Right};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const VERBS: [&str; 13] = [
    "approve",
    "bind",
    "create",
    "delete",
    "deletecollection",
    "escalate",
    "get",
    "impersonate",
    "list",
    "patch",
    "sign",
    "update",
    "watch",
];

/// The user who has every right but this one.
pub fn without(right: &Right) -> String {
    format!("without:{}", right.to_string().replace('/', "_"))
}

/// The user who has these rights and no others.
pub fn with_only(needs: &[Right]) -> String {
    let all: Vec<String> = needs.iter().map(|r| r.to_string().replace('/', "_")).collect();
    format!("with-only:{}", all.join("+"))
}

/// Roles and bindings of all users that the cases need: collection and object.
pub fn objects(cases: &[Case]) -> Vec<(String, Value)> {
    let mut resources: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for right in cases.iter().flat_map(|c| &c.needs) {
        resources.entry(&right.group).or_default().insert(&right.resource);
    }
    let mut users: BTreeMap<String, Value> = BTreeMap::new();
    for case in cases {
        for right in &case.needs {
            users.entry(without(right)).or_insert_with(|| all_but(right, &resources));
        }
        users.entry(with_only(&case.needs)).or_insert_with(|| {
            let rule =
                |r: &Right| json!({"verbs": [r.verb], "apiGroups": [r.group], "resources": [r.resource]});
            case.needs.iter().map(rule).collect()
        });
    }
    users.into_iter().flat_map(|(user, rules)| role_and_binding(&user, &rules)).collect()
}

fn all_but(right: &Right, resources: &BTreeMap<&str, BTreeSet<&str>>) -> Value {
    let others: Vec<&&str> = resources.keys().filter(|g| **g != right.group).collect();
    let own: Vec<&&str> = resources[right.group.as_str()].iter().filter(|r| **r != right.resource).collect();
    let verbs: Vec<&&str> = VERBS.iter().filter(|v| **v != right.verb).collect();
    json!([
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
        {"verbs": ["*"], "apiGroups": others, "resources": ["*"]},
        {"verbs": ["*"], "apiGroups": [right.group], "resources": own},
        {"verbs": verbs, "apiGroups": [right.group], "resources": [right.resource]},
    ])
}

pub fn role_and_binding(user: &str, rules: &Value) -> [(String, Value); 2] {
    let group = "rbac.authorization.k8s.io";
    let api_version = format!("{group}/v1");
    let mut rules = rules.clone();
    if let Some(rules) = rules.as_array_mut() {
        rules.retain(|r| r["resources"].as_array().is_none_or(|r| !r.is_empty()));
    }
    let metadata = json!({"name": user});
    let role =
        json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    [(format!("{RBAC}/clusterroles"), role), (format!("{RBAC}/clusterrolebindings"), binding)]
}
