//! One rule of a role, parsed once (`rbac.authorization.k8s.io/v1` PolicyRule).

use serde_json::{Value, json};

use super::Attributes;

/// A PolicyRule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs; `*` is every verb.
    pub verbs: Vec<String>,
    /// API groups; `*` is every group.
    pub groups: Vec<String>,
    /// Resources as `pods`, `pods/log`, `*/scale` or `*`.
    pub resources: Vec<String>,
    /// Names of objects; none: every object.
    pub names: Vec<String>,
    /// Paths that are no resources; a `*` at the end stands for any rest.
    pub urls: Vec<String>,
}

impl Rule {
    /// The rules of a role.
    pub fn all(rules: &Value) -> Vec<Self> {
        rules.as_array().into_iter().flatten().map(Self::parse).collect()
    }

    fn parse(rule: &Value) -> Self {
        let strings = |field: &str| {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: strings("verbs"),
            groups: strings("apiGroups"),
            resources: strings("resources"),
            names: strings("resourceNames"),
            urls: strings("nonResourceURLs"),
        }
    }

    /// A rule of everything: for all resources, and for all paths.
    pub fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        let resources = Self { verbs: all(), groups: all(), resources: all(), ..Self::default() };
        [resources, Self { verbs: all(), urls: all(), ..Self::default() }]
    }

    /// As SelfSubjectRulesReview shows the part for resources, if there is one.
    pub fn resource_rule(&self) -> Option<Value> {
        let mut rule = json!({"verbs": self.verbs});
        for (field, list) in
            [("apiGroups", &self.groups), ("resources", &self.resources), ("resourceNames", &self.names)]
        {
            if !list.is_empty() {
                rule[field] = json!(list);
            }
        }
        (!self.resources.is_empty()).then_some(rule)
    }

    /// As SelfSubjectRulesReview shows the part for paths, if there is one.
    pub fn path_rule(&self) -> Option<Value> {
        (!self.urls.is_empty()).then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.urls}))
    }

    /// Whether the rule allows a request (`RuleAllows`).
    pub fn allows(&self, what: &Attributes) -> bool {
        if !has(&self.verbs, &what.verb) {
            return false;
        }
        if !what.is_resource {
            return self.urls.iter().any(|url| path_matches(url, &what.path));
        }
        has(&self.groups, &what.group)
            && self.resources.iter().any(|r| resource_matches(r, &what.resource, &what.subresource))
            && (self.names.is_empty() || self.names.contains(&what.name))
    }

    /// Whether the rule allows all that another one does (`ruleCovers`). The other is a single one
    /// ([`Rule::singles`]).
    pub fn covers(&self, other: &Self) -> bool {
        let has_all = |own: &[String], wanted: &[String]| {
            own.iter().any(|o| o == "*") || wanted.iter().all(|w| own.contains(w))
        };
        let resource_covered = |resource: &String| {
            let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
            self.resources.iter().any(|own| resource_matches(own, resource, sub))
        };
        has_all(&self.verbs, &other.verbs)
            && has_all(&self.groups, &other.groups)
            && other.resources.iter().all(resource_covered)
            && other.urls.iter().all(|url| self.urls.iter().any(|own| path_matches(own, url)))
            && (self.names.is_empty()
                || (!other.names.is_empty() && other.names.iter().all(|n| self.names.contains(n))))
    }

    /// The rule taken apart: rules of one verb of one resource, name or path each (`BreakdownRule`).
    pub fn singles(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut out = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let single = Self {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        out.push(single);
                        continue;
                    }
                    out.extend(self.names.iter().map(|n| Self { names: one(n), ..single.clone() }));
                }
            }
        }
        for url in &self.urls {
            out.extend(self.verbs.iter().map(|verb| Self {
                verbs: one(verb),
                urls: one(url),
                ..Self::default()
            }));
        }
        out
    }

    /// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}` (`CompactString`).
    pub fn compact_string(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.urls),
            ("Verbs", &self.verbs),
        ];
        let quoted = |values: &[String]| {
            let all: Vec<String> = values.iter().map(|v| plimsoll_apimachinery::go::go_quote(v)).collect();
            all.join(" ")
        };
        let shown = fields.iter().filter(|(_, list)| !list.is_empty());
        let shown: Vec<String> = shown.map(|(name, list)| format!("{name}:[{}]", quoted(list))).collect();
        format!("{{{}}}", shown.join(", "))
    }
}

/// Rules of one resource and at most one name become one rule with all their verbs (`CompactRules`).
pub fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for rule in rules {
        let simple = rule.groups.len() == 1
            && rule.resources.len() == 1
            && rule.names.len() <= 1
            && rule.urls.is_empty();
        let same = |other: &&mut Rule| {
            simple
                && other.urls.is_empty()
                && (&other.groups, &other.resources, &other.names)
                    == (&rule.groups, &rule.resources, &rule.names)
        };
        match out.iter_mut().find(same) {
            Some(other) => {
                for verb in rule.verbs {
                    if !other.verbs.contains(&verb) {
                        other.verbs.push(verb);
                    }
                }
            }
            None => out.push(rule),
        }
    }
    out
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|v| v == "*" || v == wanted)
}

/// `ResourceMatches`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.strip_suffix(subresource)
        .and_then(|head| head.strip_suffix('/'))
        .is_some_and(|head| head == "*" || head == resource)
}

/// `NonResourceURLMatches`.
fn path_matches(rule: &str, path: &str) -> bool {
    rule == "*" || rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}
