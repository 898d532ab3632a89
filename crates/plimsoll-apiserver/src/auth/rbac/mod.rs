//! RBAC: roles and bindings as stored objects, indexed by subject and kept up to date from the store's changes.

mod index;
mod rule;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use super::{MASTERS, Mode, User};
use crate::http::info::RequestInfo;
use crate::store::{ChangeKind, Record, Store, Watch};

use index::Index;
pub use index::Object;
pub use rule::{Rule, compact};

const KINDS: [(&str, Object); 4] = [
    // Roles before the bindings that refer to them.
    ("rbac.authorization.k8s.io/clusterroles", Object::ClusterRole),
    ("rbac.authorization.k8s.io/roles", Object::Role),
    ("rbac.authorization.k8s.io/clusterrolebindings", Object::ClusterRoleBinding),
    ("rbac.authorization.k8s.io/rolebindings", Object::RoleBinding),
];

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

/// The authorizer.
pub struct Rbac {
    mode: Mode,
    store: Store,
    policy: Mutex<Policy>,
}

/// The index, and where in the store's changes it is; empty before the first request.
#[derive(Default)]
struct Policy {
    index: Index,
    watches: Vec<Watch>,
}

/// All rules of a user in a namespace, and what could not be resolved.
#[derive(Debug, Default)]
pub struct UserRules {
    /// By binding, those of the cluster first.
    pub rules: Vec<Rule>,
    /// Why rules may be missing; empty: none are.
    pub errors: String,
}

impl Rbac {
    /// An authorizer over the roles in a store.
    pub fn new(mode: Mode, store: Store) -> Self {
        Self { mode, store, policy: Mutex::default() }
    }

    /// May the user do it?
    pub fn authorize(&self, user: &User, what: &Attributes) -> Decision {
        if self.mode == Mode::AlwaysAllow || user.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        self.read(|index| {
            let mut errors = Vec::new();
            for (binding, rules) in index.granted(user, &what.namespace) {
                match rules {
                    Ok(rules) if rules.iter().any(|rule| rule.allows(what)) => {
                        let reason = format!("RBAC: allowed by {}", binding.describe(user));
                        return Decision { allowed: true, reason };
                    }
                    Ok(_) => {}
                    Err(e) => errors.push(e),
                }
            }
            let reason = aggregate(&errors);
            let reason = if reason.is_empty() { reason } else { format!("RBAC: {reason}") };
            Decision { allowed: false, reason }
        })
    }

    /// All rules that apply to a user in a namespace: cluster bindings first.
    pub fn rules(&self, user: &User, namespace: &str) -> UserRules {
        self.read(|index| {
            let (mut rules, mut errors) = (Vec::new(), Vec::new());
            for (_, granted) in index.granted(user, namespace) {
                match granted {
                    Ok(granted) => rules.extend(granted.iter().cloned()),
                    Err(e) => errors.push(e),
                }
            }
            UserRules { rules, errors: aggregate(&errors) }
        })
    }

    /// The rules of the role that a binding in `namespace` refers to.
    ///
    /// # Errors
    /// What upstream's lister says of a role that does not exist.
    pub fn role(&self, kind: &str, namespace: &str, name: &str) -> Result<Vec<Rule>, String> {
        self.read(|index| index.role(kind, namespace, name).map(|rules| rules.as_ref().clone()))
    }

    /// Reads the index as of now: every acknowledged write is in it.
    fn read<T>(&self, read: impl FnOnce(&Index) -> T) -> T {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if !policy.catch_up() {
            *policy = Policy::list(&self.store);
        }
        read(&policy.index)
    }
}

impl Policy {
    fn list(store: &Store) -> Self {
        let mut policy = Self::default();
        for (resource, kind) in KINDS {
            let (snapshot, watch) = store.list_and_watch(&Arc::from(resource), None);
            snapshot.iter().for_each(|record| policy.set(kind, record, false));
            policy.watches.push(watch);
        }
        policy
    }

    /// Takes in what has changed; false: everything has to be listed.
    fn catch_up(&mut self) -> bool {
        if self.watches.is_empty() {
            return false;
        }
        for (at, (_, kind)) in KINDS.into_iter().enumerate() {
            loop {
                let Some(watch) = self.watches.get_mut(at) else { return false };
                match watch.try_next() {
                    Ok(Some(change)) => self.set(kind, &change.record, change.kind == ChangeKind::Deleted),
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
        }
        true
    }

    fn set(&mut self, kind: Object, record: &Record, gone: bool) {
        let object = if gone { None } else { record.value().ok() };
        self.index.set(kind, &record.key.namespace, &record.key.name, object.as_ref());
    }
}

/// Errors as Go's `Aggregate` prints them: each text once.
fn aggregate(errors: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for error in errors {
        if !seen.contains(&error.as_str()) {
            seen.push(error);
        }
    }
    match seen.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        all => format!("[{}]", all.join(", ")),
    }
}
