//! RBAC: roles and bindings as stored objects, read again when they change.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::{MASTERS, Mode, User};
use crate::http::info::RequestInfo;
use crate::store::Store;

const GROUP: &str = "rbac.authorization.k8s.io";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Whether an API resource is meant (else a path).
    pub is_resource: bool,
    /// Verb.
    pub verb: String,
    /// Group.
    pub group: String,
    /// Resource, without subresource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Path, for what is no resource.
    pub path: String,
}

impl Attributes {
    /// The attributes of a request.
    pub fn of(info: &RequestInfo) -> Self {
        Self {
            is_resource: info.is_resource,
            verb: info.verb.clone(),
            group: info.group.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.authorized_name().to_owned(),
            path: info.path.clone(),
        }
    }
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be done.
    pub allowed: bool,
    /// `RBAC: allowed by …`, or empty.
    pub reason: String,
}

#[derive(Debug, Default)]
struct Policy {
    cluster_roles: Vec<Value>,
    cluster_bindings: Vec<Value>,
    roles: Vec<Value>,
    bindings: Vec<Value>,
}

/// The authorizer.
pub struct Rbac {
    mode: Mode,
    store: Store,
    cache: Mutex<([u64; 4], Arc<Policy>)>,
}

const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

impl Rbac {
    /// An authorizer over the roles in a store.
    pub fn new(mode: Mode, store: Store) -> Self {
        Self { mode, store, cache: Mutex::new(([u64::MAX; 4], Arc::default())) }
    }

    /// May the user do it?
    pub fn authorize(&self, user: &User, what: &Attributes) -> Decision {
        if self.mode == Mode::AlwaysAllow || user.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let policy = self.policy();
        let hit = policy.rules_for(user, &what.namespace).find_map(|(rules, by)| {
            list(rules).iter().any(|r| rule_allows(r, what)).then(|| format!("RBAC: allowed by {}", by()))
        });
        Decision { allowed: hit.is_some(), reason: hit.unwrap_or_default() }
    }

    /// All rules that apply to a user in a namespace: cluster bindings first.
    pub fn rules(&self, user: &User, namespace: &str) -> Vec<Value> {
        let policy = self.policy();
        policy.rules_for(user, namespace).flat_map(|(rules, _)| list(rules).to_vec()).collect()
    }

    fn policy(&self) -> Arc<Policy> {
        let resources = RESOURCES.map(|r| format!("{GROUP}/{r}"));
        let at = [0, 1, 2, 3].map(|i: usize| self.store.last_revision(&resources[i]));
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.0 != at {
            let all = |resource: &str| -> Vec<Value> {
                let snapshot = self.store.list(resource, None);
                snapshot.iter().filter_map(|r| r.value().ok()).collect()
            };
            *cache = (
                at,
                Arc::new(Policy {
                    cluster_roles: all(&resources[0]),
                    cluster_bindings: all(&resources[1]),
                    roles: all(&resources[2]),
                    bindings: all(&resources[3]),
                }),
            );
        }
        Arc::clone(&cache.1)
    }
}

type Granted<'a> = (&'a Value, Box<dyn FnOnce() -> String + 'a>);

impl Policy {
    fn rules_for<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = Granted<'a>> {
        let cluster = self.cluster_bindings.iter().filter_map(move |b| self.granted(b, user, ""));
        let own = self
            .bindings
            .iter()
            .filter(move |b| !namespace.is_empty() && b["metadata"]["namespace"].as_str() == Some(namespace));
        cluster.chain(own.filter_map(move |b| self.granted(b, user, namespace)))
    }

    /// The rules a binding gives the user, and how that is worded.
    fn granted<'a>(&'a self, binding: &'a Value, user: &'a User, namespace: &'a str) -> Option<Granted<'a>> {
        let subject = list(&binding["subjects"]).iter().find(|s| is_subject(s, user, namespace))?;
        let role_ref = &binding["roleRef"];
        let name = role_ref["name"].as_str()?;
        let named = |r: &&Value| r["metadata"]["name"].as_str() == Some(name);
        let role = if role_ref["kind"] == "Role" {
            self.roles.iter().filter(|r| r["metadata"]["namespace"].as_str() == Some(namespace)).find(named)
        } else {
            self.cluster_roles.iter().find(named)
        }?;
        let by = move || {
            let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
            let (what, bound) = if namespace.is_empty() {
                ("ClusterRoleBinding", text(&binding["metadata"]["name"]))
            } else {
                ("RoleBinding", format!("{}/{namespace}", text(&binding["metadata"]["name"])))
            };
            let who = if subject["kind"] == "ServiceAccount" {
                format!("{}/{}", text(&subject["name"]), text(&subject["namespace"]))
            } else {
                text(&subject["name"])
            };
            let kinds = (text(&role_ref["kind"]), text(&subject["kind"]));
            format!("{what} {bound:?} of {} {name:?} to {} {who:?}", kinds.0, kinds.1)
        };
        Some((&role["rules"], Box::new(by)))
    }
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

fn is_subject(subject: &Value, user: &User, namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or("");
    match subject["kind"].as_str().unwrap_or("") {
        "User" => user.name == name,
        "Group" => user.is_in(name),
        "ServiceAccount" => {
            let ns = subject["namespace"].as_str().unwrap_or(namespace);
            user.name.strip_prefix("system:serviceaccount:").and_then(|n| n.split_once(':'))
                == Some((ns, name))
        }
        _ => false,
    }
}

fn rule_allows(rule: &Value, what: &Attributes) -> bool {
    let has = |field: &str, wanted: &str| list(&rule[field]).iter().any(|v| v == "*" || v == wanted);
    if !has("verbs", &what.verb) {
        return false;
    }
    if !what.is_resource {
        return list(&rule["nonResourceURLs"]).iter().filter_map(Value::as_str).any(|url| {
            url == "*"
                || url == what.path
                || url.strip_suffix('*').is_some_and(|prefix| what.path.starts_with(prefix))
        });
    }
    let names = list(&rule["resourceNames"]);
    has("apiGroups", &what.group)
        && resource_matches(rule, what)
        && (names.is_empty() || names.iter().any(|n| n == what.name.as_str()))
}

fn resource_matches(rule: &Value, what: &Attributes) -> bool {
    let full = if what.subresource.is_empty() {
        what.resource.clone()
    } else {
        format!("{}/{}", what.resource, what.subresource)
    };
    list(&rule["resources"]).iter().filter_map(Value::as_str).any(|r| {
        r == "*"
            || r == full
            || (!what.subresource.is_empty() && r.strip_prefix("*/") == Some(what.subresource.as_str()))
    })
}
