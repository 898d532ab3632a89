//! Roles and bindings, parsed once each, with the bindings by subject: what a request costs depends on the bindings of
//! its user and groups, and what a change costs on the object that changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::super::User;
use super::rule::Rule;

/// A kind of policy object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// ClusterRole.
    ClusterRole,
    /// ClusterRoleBinding.
    ClusterRoleBinding,
    /// Role.
    Role,
    /// RoleBinding.
    RoleBinding,
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    kind: String,
    name: String,
    /// Namespace of a service account; that of the binding where the subject has none.
    namespace: String,
}

impl Subject {
    fn parse(subject: &Value, namespace: &str) -> Self {
        let text = |field: &str| subject[field].as_str().unwrap_or("").to_owned();
        let own = text("namespace");
        let namespace = if own.is_empty() { namespace.to_owned() } else { own };
        Self { kind: text("kind"), name: text("name"), namespace }
    }

    /// The user that the subject is, if it is one.
    fn user(&self) -> Option<String> {
        match self.kind.as_str() {
            "User" => Some(self.name.clone()),
            "ServiceAccount" if !self.namespace.is_empty() => {
                Some(format!("system:serviceaccount:{}:{}", self.namespace, self.name))
            }
            _ => None,
        }
    }

    fn group(&self) -> Option<String> {
        (self.kind == "Group").then(|| self.name.clone())
    }

    fn is(&self, user: &User) -> bool {
        match self.kind.as_str() {
            "Group" => user.is_in(&self.name),
            _ => self.user().is_some_and(|name| name == user.name),
        }
    }

    fn describe(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => format!("ServiceAccount {:?}", format!("{}/{}", self.name, self.namespace)),
            kind => format!("{kind} {:?}", self.name),
        }
    }
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug, PartialEq, Eq)]
pub struct Binding {
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    name: String,
    role_kind: String,
    role: String,
    subjects: Vec<Subject>,
}

impl Binding {
    fn parse(namespace: &str, name: &str, object: &Value) -> Self {
        let role = |field: &str| object["roleRef"][field].as_str().unwrap_or("").to_owned();
        let subjects = object["subjects"].as_array().into_iter().flatten();
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            role_kind: role("kind"),
            role: role("name"),
            subjects: subjects.map(|s| Subject::parse(s, namespace)).collect(),
        }
    }

    /// `ClusterRoleBinding "b" of ClusterRole "r" to User "u"`: the first subject that the user is.
    pub fn describe(&self, user: &User) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let subject = self.subjects.iter().find(|s| s.is(user)).map(Subject::describe).unwrap_or_default();
        format!("{kind} {name:?} of {} {:?} to {subject}", self.role_kind, self.role)
    }
}

/// Bindings of one namespace, or of the cluster.
#[derive(Debug, Default)]
struct Scope {
    /// By name.
    all: HashMap<String, Arc<Binding>>,
    /// By user, then by name. A service account is a user here.
    users: HashMap<String, BTreeMap<String, Arc<Binding>>>,
    /// By group, then by name.
    groups: HashMap<String, BTreeMap<String, Arc<Binding>>>,
}

impl Scope {
    fn remove(&mut self, name: &str) {
        let Some(binding) = self.all.remove(name) else { return };
        for subject in &binding.subjects {
            drop_from(&mut self.users, subject.user(), name);
            drop_from(&mut self.groups, subject.group(), name);
        }
    }

    fn insert(&mut self, binding: Binding) {
        self.remove(&binding.name);
        let binding = Arc::new(binding);
        for subject in &binding.subjects {
            let entry = (binding.name.clone(), Arc::clone(&binding));
            if let Some(user) = subject.user() {
                self.users.entry(user).or_default().insert(entry.0, entry.1);
            } else if let Some(group) = subject.group() {
                self.groups.entry(group).or_default().insert(entry.0, entry.1);
            }
        }
        self.all.insert(binding.name.clone(), binding);
    }

    /// The bindings that apply to a user, by name, each once.
    fn of<'a>(&'a self, user: &User) -> Vec<&'a Arc<Binding>> {
        let own = self.users.get(&user.name);
        let mut found: Vec<&Arc<Binding>> = own.into_iter().flat_map(BTreeMap::values).collect();
        let mut lists = usize::from(own.is_some());
        for group in &user.groups {
            if let Some(bindings) = self.groups.get(group) {
                found.extend(bindings.values());
                lists += 1;
            }
        }
        if lists > 1 {
            found.sort_by(|a, b| a.name.cmp(&b.name));
            found.dedup_by(|a, b| a.name == b.name);
        }
        found
    }
}

fn drop_from(index: &mut HashMap<String, BTreeMap<String, Arc<Binding>>>, key: Option<String>, name: &str) {
    let Some(key) = key else { return };
    if let Some(bindings) = index.get_mut(&key) {
        bindings.remove(name);
        if bindings.is_empty() {
            index.remove(&key);
        }
    }
}

type Rules = Arc<Vec<Rule>>;

/// All roles and bindings.
#[derive(Debug, Default)]
pub struct Index {
    cluster_roles: HashMap<String, Rules>,
    /// By namespace, then by name.
    roles: HashMap<String, HashMap<String, Rules>>,
    cluster: Scope,
    namespaces: HashMap<String, Scope>,
}

/// A binding that applies to a user: the rules it gives, or why there are none.
pub type Granted<'a> = (&'a Arc<Binding>, Result<&'a Rules, String>);

impl Index {
    /// Takes in the state of an object; `None`: it is gone.
    pub fn set(&mut self, kind: Object, namespace: &str, name: &str, object: Option<&Value>) {
        match (kind, object) {
            (Object::ClusterRole, Some(role)) => {
                self.cluster_roles.insert(name.to_owned(), Arc::new(Rule::all(&role["rules"])));
            }
            (Object::ClusterRole, None) => drop(self.cluster_roles.remove(name)),
            (Object::Role, Some(role)) => {
                let rules = Arc::new(Rule::all(&role["rules"]));
                self.roles.entry(namespace.to_owned()).or_default().insert(name.to_owned(), rules);
            }
            (Object::Role, None) => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            (Object::ClusterRoleBinding, Some(binding)) => {
                self.cluster.insert(Binding::parse("", name, binding));
            }
            (Object::ClusterRoleBinding, None) => self.cluster.remove(name),
            (Object::RoleBinding, Some(binding)) => {
                let scope = self.namespaces.entry(namespace.to_owned()).or_default();
                scope.insert(Binding::parse(namespace, name, binding));
            }
            (Object::RoleBinding, None) => {
                if let Some(scope) = self.namespaces.get_mut(namespace) {
                    scope.remove(name);
                    if scope.all.is_empty() {
                        self.namespaces.remove(namespace);
                    }
                }
            }
        }
    }

    /// What bindings give a user in a namespace: those of the cluster first, each in the order of their names
    /// (`VisitRulesFor`).
    pub fn granted<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = Granted<'a>> + 'a {
        let own = move || self.namespaces.get(namespace).map(|scope| scope.of(user)).unwrap_or_default();
        let own = std::iter::once_with(own).flatten();
        let all = self.cluster.of(user).into_iter().chain(own);
        all.map(|binding| (binding, self.role(&binding.role_kind, &binding.namespace, &binding.role)))
    }

    /// The rules of a role that a binding in `namespace` refers to (`GetRoleReferenceRules`).
    ///
    /// # Errors
    /// What the lister says of a role that does not exist.
    pub fn role(&self, kind: &str, namespace: &str, name: &str) -> Result<&Rules, String> {
        let (found, kind) = match kind {
            "Role" => (self.roles.get(namespace).and_then(|roles| roles.get(name)), "role"),
            "ClusterRole" => (self.cluster_roles.get(name), "clusterrole"),
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        found.ok_or_else(|| format!("{kind}.rbac.authorization.k8s.io {name:?} not found"))
    }
}
