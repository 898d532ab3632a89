//! Webhook configurations, compiled, and hooks of other parts of this process.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::webhook::{Stage, Webhook, compile};
use serde_json::Value;

use super::Operation;
use crate::store::Store;

/// What a hook is asked about, apart from the object.
#[derive(Clone, Copy, Debug)]
pub struct HookRequest<'a> {
    /// Group, empty for the core group.
    pub group: &'a str,
    /// Plural.
    pub plural: &'a str,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
    /// What is being done.
    pub operation: Operation,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// Name; empty when the server names the object.
    pub name: &'a str,
    /// State before, for updates and deletions.
    pub old: Option<&'a Value>,
}

/// Admission by another part of this process: as a webhook, without the network. Called for every write; it must not
/// wait.
pub trait AdmissionHook: Send + Sync + 'static {
    /// Whether it looks at such a write at all.
    fn concerns(&self, _request: &HookRequest<'_>) -> bool {
        true
    }

    /// Whether it may change the object of such a write.
    fn mutates(&self, request: &HookRequest<'_>) -> bool {
        self.concerns(request)
    }

    /// Changes a new or changed object; it gets its defaults again afterwards. Called after the built-in plugins.
    ///
    /// # Errors
    /// Why the request is refused.
    fn mutate(&self, request: &HookRequest<'_>, object: &mut Value) -> Result<(), ApiError>;

    /// Looks at the object as it will be stored (`None` for a deletion); gives warnings.
    ///
    /// # Errors
    /// Why the request is refused.
    fn validate(&self, request: &HookRequest<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError>;
}

type Compiled = (u64, Arc<Vec<Webhook>>);

/// The webhooks and hooks of a server.
#[derive(Default)]
pub struct Hooks {
    mutating: Mutex<Option<Compiled>>,
    validating: Mutex<Option<Compiled>>,
    local: RwLock<Vec<Arc<dyn AdmissionHook>>>,
}

impl Hooks {
    /// Adds a hook of this process.
    pub fn add(&self, hook: Arc<dyn AdmissionHook>) {
        self.local.write().unwrap_or_else(PoisonError::into_inner).push(hook);
    }

    pub(super) fn local(&self) -> Vec<Arc<dyn AdmissionHook>> {
        self.local.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The webhooks of a stage, compiled again when a configuration has changed.
    pub(super) fn webhooks(&self, store: &Store, stage: Stage) -> Arc<Vec<Webhook>> {
        let (cell, resource) = match stage {
            Stage::Mutating => (&self.mutating, "admissionregistration.k8s.io/mutatingwebhookconfigurations"),
            Stage::Validating => {
                (&self.validating, "admissionregistration.k8s.io/validatingwebhookconfigurations")
            }
        };
        let at = store.last_revision(resource);
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cell {
            Some((revision, webhooks)) if *revision == at => Arc::clone(webhooks),
            _ => {
                let all = store.list(resource, None);
                let configurations: Vec<Value> = all.iter().filter_map(|r| r.value().ok()).collect();
                let webhooks = Arc::new(compile(stage, &configurations));
                *cell = Some((at, Arc::clone(&webhooks)));
                webhooks
            }
        }
    }
}
