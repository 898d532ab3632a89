//! Audit policies: which requests are recorded, and how much of them (`audit.k8s.io/v1` Policy, `k8s.io/apiserver/pkg/audit/policy`).

use plimsoll_config::{ConfigError, check_kind, decode, parse};
use serde::{Deserialize, Serialize};

use crate::auth::{Attributes, User};

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// User, verb, object and time.
    Metadata,
    /// And the body of the request.
    Request,
    /// And the body of the answer.
    RequestResponse,
}

/// When an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Stage {
    /// A request came.
    RequestReceived,
    /// The head of a long answer was sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The server failed.
    Panic,
}

/// `audit.k8s.io/v1` Policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code)]
pub struct Policy {
    api_version: String,
    kind: String,
    metadata: serde_json::Value,
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

/// `audit.k8s.io/v1` PolicyRule.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    /// Required.
    level: Option<Level>,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

/// `audit.k8s.io/v1` GroupResources.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// What becomes of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// How much is recorded.
    pub level: Level,
    /// Stages that are left out.
    pub omitted: Vec<Stage>,
    /// Whether bodies lose their `managedFields`.
    pub omit_managed_fields: bool,
}

impl Policy {
    /// Reads a policy, in YAML or JSON, strictly.
    ///
    /// # Errors
    /// Everything that is wrong with it, with the paths of the fields.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|e| e.to_string())
    }

    fn read(text: &str) -> Result<Self, ConfigError> {
        let value = parse(text)?;
        check_kind(&value, "Policy", &["audit.k8s.io/v1"], "Policy of audit.k8s.io/v1 (an audit policy)")?;
        let mut errors = Vec::new();
        let policy: Self = decode(value, "", &mut errors);
        if policy.rules.is_empty() && errors.is_empty() {
            errors.push("loaded illegal policy with 0 rules".to_owned());
        }
        // A rule that could not be decoded as a whole lacks what its error is about already.
        if errors.is_empty() {
            let checks = policy.rules.iter().enumerate();
            errors.extend(checks.filter_map(|(i, rule)| {
                rule.check().err().map(|(field, why)| format!("rules[{i}].{field}: {why}"))
            }));
        }
        if errors.is_empty() { Ok(policy) } else { Err(ConfigError::Invalid(errors)) }
    }

    /// The first rule that matches decides; without one nothing is recorded.
    pub fn evaluate(&self, user: &User, what: &Attributes) -> Verdict {
        let Some(rule) = self.rules.iter().find(|r| r.matches(user, what)) else { return Verdict::default() };
        Verdict {
            level: rule.level.unwrap_or_default(),
            omitted: self.omit_stages.iter().chain(&rule.omit_stages).copied().collect(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.level.is_none() {
            let levels = "supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"";
            return Err(("level", format!("Required value: {levels}")));
        }
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !self.non_resource_urls.is_empty() && of_resources {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            return Err(("nonResourceURLs", why.to_owned()));
        }
        for url in self.non_resource_urls.iter().filter(|u| *u != "*") {
            if !url.starts_with('/') {
                return Err((
                    "nonResourceURLs",
                    format!("{url:?}: non-resource URL rules must begin with a '/' character"),
                ));
            }
            if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
                return Err((
                    "nonResourceURLs",
                    format!(
                        "{url:?}: non-resource URL wildcards '*' must be the final character of the rule"
                    ),
                ));
            }
        }
        for group in &self.resources {
            if group.group.contains('/') {
                let why = format!("{:?}: a group has no version", group.group);
                return Err(("resources.group", why));
            }
            if group.resources.is_empty() && !group.resource_names.is_empty() {
                let why = "using resourceNames requires at least one resource";
                return Err(("resources.resourceNames", why.to_owned()));
            }
        }
        Ok(())
    }

    fn matches(&self, user: &User, what: &Attributes) -> bool {
        let any = |list: &[String], is: &dyn Fn(&String) -> bool| list.is_empty() || list.iter().any(is);
        if !any(&self.users, &|u| *u == user.name)
            || !any(&self.user_groups, &|g| user.is_in(g))
            || !any(&self.verbs, &|v| *v == what.verb)
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return what.is_resource
                && any(&self.namespaces, &|n| *n == what.namespace)
                && (self.resources.is_empty() || self.resources.iter().any(|g| g.matches(what)));
        }
        if !self.non_resource_urls.is_empty() {
            let path = |url: &String| match url.strip_suffix('*') {
                Some(head) => what.path.starts_with(head),
                None => *url == what.path,
            };
            return !what.is_resource && self.non_resource_urls.iter().any(path);
        }
        true
    }
}

impl GroupResources {
    fn matches(&self, what: &Attributes) -> bool {
        let is = |pattern: &String| match pattern.split_once('/') {
            _ if pattern == "*" => true,
            Some(("*", sub)) => sub == what.subresource,
            Some((resource, "*")) => resource == what.resource && !what.subresource.is_empty(),
            Some((resource, sub)) => resource == what.resource && sub == what.subresource,
            None => *pattern == what.resource && what.subresource.is_empty(),
        };
        self.group == what.group
            && (self.resources.is_empty() || self.resources.iter().any(is))
            && (self.resource_names.is_empty() || self.resource_names.contains(&what.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [quiet]}
- {level: None, nonResourceURLs: [/healthz*, /version]}
- {level: Request, verbs: [create], resources: [{group: '', resources: [pods, pods/*]}], omitManagedFields: false}
- {level: RequestResponse, namespaces: [secret-place], omitStages: [ResponseStarted]}
- {level: Metadata, resources: [{group: batch}, {group: '', resources: ['*/status']}]}
- {level: Metadata, userGroups: [devs], resources: [{group: '', resources: [configmaps], resourceNames: [one]}]}
";

    #[test]
    fn the_first_rule_decides() {
        let policy = Policy::parse(POLICY).unwrap();
        // user, verb, group, resource, namespace, name (or a path) → level
        let rows = [
            ("quiet", "create", "", "pods", "a", "", Level::None),
            ("u", "get", "", "/healthz/etcd", "", "", Level::None),
            ("u", "create", "", "pods", "a", "", Level::Request),
            ("u", "create", "", "pods/binding", "a", "p", Level::Request),
            ("u", "get", "", "pods", "a", "p", Level::None),
            ("u", "get", "", "pods", "secret-place", "p", Level::RequestResponse),
            ("u", "delete", "batch", "jobs", "a", "j", Level::Metadata),
            ("u", "patch", "", "nodes/status", "", "n", Level::Metadata),
            ("u", "get", "", "configmaps", "a", "one", Level::Metadata),
            ("u", "get", "", "configmaps", "a", "two", Level::None),
            ("u", "get", "", "/metrics", "", "", Level::None),
        ];
        for (user, verb, group, resource, namespace, name, level) in rows {
            let is_resource = !resource.starts_with('/');
            let (plain, sub) = resource.split_once('/').unwrap_or((resource, ""));
            let what = Attributes {
                is_resource,
                verb: verb.into(),
                group: group.into(),
                resource: if is_resource { plain.into() } else { String::new() },
                subresource: if is_resource { sub.into() } else { String::new() },
                namespace: namespace.into(),
                name: name.into(),
                path: resource.into(),
            };
            let verdict = policy.evaluate(&User::new(user, &["devs"]), &what);
            assert_eq!(verdict.level, level, "{user} {verb} {resource}");
            if level == Level::RequestResponse {
                assert_eq!(verdict.omitted, [Stage::RequestReceived, Stage::ResponseStarted]);
                assert!(verdict.omit_managed_fields);
            }
            if level == Level::Request {
                assert!(!verdict.omit_managed_fields);
            }
        }
    }

    #[test]
    fn policies_are_read_strictly() {
        let rule = |rule: &str| format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {rule}\n");
        let rows = [
            ("apiVersion: audit.k8s.io/v1\nkind: Policy\n".to_owned(), "0 rules"),
            ("apiVersion: v1\nkind: Policy\nrules: [{level: None}]\n".to_owned(), "audit.k8s.io/v1"),
            (rule("{level: Everything}"), "Everything"),
            (rule("{level: None, user: [a]}"), "user"),
            (rule("{level: None, omitStages: [Later]}"), "Later"),
            (rule("{users: [a]}"), "level"),
            (
                rule("{level: None, namespaces: [a], nonResourceURLs: [/x]}"),
                "rules[0].nonResourceURLs: rules cannot",
            ),
            (rule("{level: None, nonResourceURLs: [x]}"), "must begin with"),
            (rule("{level: None, nonResourceURLs: ['/a*b']}"), "final character"),
            (rule("{level: None, resources: [{group: '', resourceNames: [a]}]}"), "at least one resource"),
            (rule("{level: None, resources: [{group: apps/v1}]}"), "no version"),
        ];
        for (text, part) in rows {
            let error = Policy::parse(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
