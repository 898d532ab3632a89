//! Aggregated ClusterRoles: the rules of one with an `aggregationRule` are those of all that its selectors match
//! (upstream's clusterrole-aggregation-controller).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::meta::nullable;
use plimsoll_apimachinery::select::{LabelSelector, selector_text};
use plimsoll_client::{Client, Controller, Informer, Outcome, Target, WorkQueue, modify, resources};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch::Receiver;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Role {
    metadata: RoleMeta,
    aggregation_rule: Option<Aggregation>,
    #[serde(deserialize_with = "nullable")]
    rules: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RoleMeta {
    name: String,
    uid: String,
    #[serde(deserialize_with = "nullable")]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Aggregation {
    #[serde(deserialize_with = "nullable")]
    cluster_role_selectors: Vec<Value>,
}

/// The controller.
pub struct RoleAggregation {
    client: Arc<dyn Client>,
    roles: Informer<Role>,
}

impl RoleAggregation {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>) -> Self {
        let roles = Informer::new(client.reader(), &resources::CLUSTER_ROLES.storage, |_| None);
        Self { client, roles }
    }
}

/// The rules of an aggregated role: of its parts by name, each rule once. `None`: it isn't one.
fn gathered(role: &Role, all: &[Arc<Role>]) -> Option<Vec<Value>> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in &role.aggregation_rule.as_ref()?.cluster_role_selectors {
        // A selector that can't be read was refused when it was written.
        let Ok(selector) = LabelSelector::parse(&selector_text(selector)) else { continue };
        let mut parts: Vec<&Arc<Role>> = all
            .iter()
            .filter(|r| r.metadata.name != role.metadata.name && selector.matches(&r.metadata.labels))
            .collect();
        parts.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        for rule in parts.into_iter().flat_map(|p| &p.rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

impl Controller for RoleAggregation {
    fn name(&self) -> &'static str {
        "clusterrole-aggregation"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.roles.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        let mut changed = false;
        self.roles.refresh(|_| changed = true);
        if changed {
            for role in self.roles.all().iter().filter(|r| r.aggregation_rule.is_some()) {
                queue.add(&role.metadata.name);
            }
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let all = self.roles.all();
            let Some(role) = all.iter().find(|r| r.metadata.name == key) else { return Ok(None) };
            let Some(rules) = gathered(role, &all).filter(|r| *r != role.rules) else { return Ok(None) };
            let change = |there: &mut Value| {
                there["rules"] = Value::from(rules.clone());
                true
            };
            let target = Target::object(&resources::CLUSTER_ROLES, "", key);
            match modify(&*self.client, target, &role.metadata.uid, change).await {
                Err(error) if error.code != 404 => Err(error),
                _ => Ok(None),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role(value: Value) -> Arc<Role> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn rules_come_from_labelled_roles_once_each() {
        let rule = |what: &str| json!({"verbs": ["get"], "apiGroups": [""], "resources": [what]});
        let part = |name: &str, label: &str, rules: &[Value]| {
            role(json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules}))
        };
        let selector = json!({"matchLabels": {"to": "true"}});
        let whole = role(json!({"metadata": {"name": "whole", "labels": {"to": "true"}},
            "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": [rule("old")]}));
        let all = [
            part("b", "to", &[rule("pods"), rule("nodes")]),
            part("a", "to", &[rule("secrets"), rule("pods")]),
            part("c", "other", &[rule("leases")]),
            Arc::clone(&whole),
        ];
        assert_eq!(gathered(&whole, &all), Some(vec![rule("secrets"), rule("pods"), rule("nodes")]));
        assert_eq!(gathered(&all[0], &all), None);
    }
}
