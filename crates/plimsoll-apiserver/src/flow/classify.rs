//! Which FlowSchema a request matches (`k8s.io/apiserver/pkg/util/flowcontrol/rule.go`), compiled from the objects.

use serde::Deserialize;

use crate::auth::User;
use crate::http::info::RequestInfo;

const ALL: &str = "*";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What requests of one schema are told apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Distinguisher {
    /// By nothing: they are one flow.
    #[default]
    #[serde(skip)]
    None,
    /// By user.
    ByUser,
    /// By namespace.
    ByNamespace,
}

/// `spec` of a FlowSchema.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// The level of its requests.
    pub priority_level_configuration: Reference,
    /// Schemas with smaller numbers are asked first.
    pub matching_precedence: i32,
    distinguisher_method: Option<Method>,
    rules: Vec<Rule>,
}

/// The name of another object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Reference {
    /// Its name.
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Method {
    r#type: Distinguisher,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<PathRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Subject {
    kind: String,
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Named>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    namespace: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PathRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    paths: Vec<String>,
}

/// Whether a list names something; the wildcard alone stands for everything, as validation sees to it.
fn names(list: &[String], what: &str) -> bool {
    match list {
        [only] if only == ALL => true,
        _ => list.iter().any(|one| one == what),
    }
}

impl Spec {
    /// What its requests are told apart by.
    pub fn distinguisher(&self) -> Distinguisher {
        self.distinguisher_method.as_ref().map_or(Distinguisher::None, |m| m.r#type)
    }

    /// Whether a request of a user matches.
    pub fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, info))
    }
}

impl Rule {
    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        let action = if info.is_resource {
            self.resource_rules.iter().any(|rule| rule.matches(info))
        } else {
            self.non_resource_rules.iter().any(|rule| rule.matches(info))
        };
        action && self.subjects.iter().any(|subject| subject.matches(user))
    }
}

impl Subject {
    fn matches(&self, user: &User) -> bool {
        match (self.kind.as_str(), &self.user, &self.group, &self.service_account) {
            ("User", Some(named), ..) => named.name == ALL || named.name == user.name,
            ("Group", _, Some(named), _) => named.name == ALL || user.is_in(&named.name),
            ("ServiceAccount", .., Some(named)) => {
                let account = user.name.strip_prefix(SERVICE_ACCOUNT);
                let account = account.and_then(|a| a.strip_prefix(named.namespace.as_str()));
                let name = account.and_then(|a| a.strip_prefix(':'));
                name.is_some_and(|name| named.name == ALL || named.name == name)
            }
            _ => false,
        }
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let namespace = match info.namespace.as_str() {
            "" => self.cluster_scope,
            namespace => names(&self.namespaces, namespace),
        };
        namespace
            && names(&self.verbs, &info.verb)
            && names(&self.api_groups, &info.group)
            && if info.subresource.is_empty() {
                names(&self.resources, &info.resource)
            } else {
                names(&self.resources, &[&info.resource, "/", &info.subresource].concat())
            }
    }
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let path = info.path.as_str();
        let fits = |rule: &String| {
            let below = rule.strip_suffix('*').unwrap_or(rule);
            let below = below.strip_suffix('/').unwrap_or(below);
            rule == ALL || rule == path || path.strip_prefix(below).is_some_and(|rest| rest.starts_with('/'))
        };
        names(&self.verbs, &info.verb) && self.paths.iter().any(fits)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::http::query::Query;

    fn spec(rule: &Value) -> Spec {
        serde_json::from_value(json!({"rules": [rule]})).unwrap()
    }

    fn get(path: &str) -> RequestInfo {
        RequestInfo::parse(&Method::GET, path, &Query::parse(""))
    }

    #[test]
    fn subjects() {
        let of = |subject: Value| {
            spec(&json!({"subjects": [subject],
                         "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}))
        };
        let account = User::new("system:serviceaccount:kube-system:robot", &["system:serviceaccounts"]);
        let kind_of = |namespace: &str, name: &str| {
            of(json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}))
        };
        let version = get("/version");
        for (schema, want) in [
            (of(json!({"kind": "User", "user": {"name": "*"}})), true),
            (of(json!({"kind": "User", "user": {"name": "system:serviceaccount:kube-system:robot"}})), true),
            (of(json!({"kind": "User", "user": {"name": "robot"}})), false),
            (of(json!({"kind": "Group", "group": {"name": "system:serviceaccounts"}})), true),
            (of(json!({"kind": "Group", "group": {"name": "system:masters"}})), false),
            (of(json!({"kind": "Group"})), false),
            (kind_of("kube-system", "*"), true),
            (kind_of("kube-system", "robot"), true),
            (kind_of("kube-system", "rob"), false),
            (kind_of("kube", "*"), false),
        ] {
            assert_eq!(schema.matches(&account, &version), want, "{schema:?}");
        }
    }

    #[test]
    fn resources_and_paths() {
        let anyone = json!([{"kind": "Group", "group": {"name": "*"}}]);
        let leases = spec(&json!({"subjects": anyone, "resourceRules": [{
            "verbs": ["get", "create"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "namespaces": ["*"],
        }]}));
        let status = spec(&json!({"subjects": anyone, "resourceRules": [{
            "verbs": ["*"], "apiGroups": [""], "resources": ["nodes/status"], "clusterScope": true,
        }]}));
        let health = spec(&json!({"subjects": anyone, "nonResourceRules": [
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]},
        ]}));
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        for (schema, path, want) in [
            (&leases, lease, true),
            (&leases, "/apis/coordination.k8s.io/v1/leases", false),
            (&leases, "/api/v1/namespaces/a/pods/b", false),
            (&status, "/api/v1/nodes/a/status", true),
            (&status, "/api/v1/nodes/a", false),
            (&health, "/healthz", true),
            (&health, "/healthz/ping", true),
            (&health, "/healthzz", false),
            (&health, "/apis/", true),
            (&health, lease, false),
        ] {
            assert_eq!(schema.matches(&User::anonymous(), &get(path)), want, "{path}");
        }
    }
}
