//! Policies in force, compiled once for each version of theirs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_apimachinery::policy::{Binding, Policy};

use crate::store::Store;

const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";
const BINDINGS: &str = "admissionregistration.k8s.io/validatingadmissionpolicybindings";

/// A policy with its bindings, sorted by name.
pub(super) struct Hook {
    pub policy: Arc<Policy>,
    pub bindings: Vec<Arc<Binding>>,
}

type Hooks = Arc<Vec<Hook>>;

/// The policies of a server.
#[derive(Default)]
pub struct Policies {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Revisions at which policies and bindings were read.
    at: Option<[u64; 2]>,
    hooks: Hooks,
    /// By name, with the revision of the object.
    compiled: BTreeMap<String, (u64, Arc<Policy>)>,
}

impl Policies {
    /// Policies that have bindings, by name.
    pub(super) fn hooks(&self, store: &Store) -> Hooks {
        let at = [store.last_revision(POLICIES), store.last_revision(BINDINGS)];
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.at != Some(at) {
            known.read(store);
            known.at = Some(at);
        }
        Arc::clone(&known.hooks)
    }
}

impl Known {
    fn read(&mut self, store: &Store) {
        let mut bound: BTreeMap<String, Vec<Arc<Binding>>> = BTreeMap::new();
        for record in store.list(BINDINGS, None).iter() {
            if let Ok(object) = record.value() {
                let binding = Binding::new(&object);
                bound.entry(binding.policy.clone()).or_default().push(Arc::new(binding));
            }
        }
        let mut compiled = BTreeMap::new();
        let mut hooks = Vec::new();
        for record in store.list(POLICIES, None).iter() {
            let name = &record.key.name;
            let Some(bindings) = bound.remove(name.as_str()) else { continue };
            let before =
                self.compiled.get(name.as_str()).filter(|(revision, _)| *revision == record.revision);
            let policy = match (before, record.value()) {
                (Some((_, policy)), _) => Arc::clone(policy),
                (None, Ok(object)) => Arc::new(Policy::compile(&object)),
                (None, Err(_)) => continue,
            };
            compiled.insert(name.to_string(), (record.revision, Arc::clone(&policy)));
            hooks.push(Hook { policy, bindings });
        }
        self.compiled = compiled;
        self.hooks = Arc::new(hooks);
    }
}
