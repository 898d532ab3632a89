//! What a kind of job registers.

use plimsoll_api::resource::Resource;
use serde_json::Value;

use crate::Env;
use crate::plan::Plan;
use crate::webhook::review::{Review, Validation};

/// Plans the writes for the job of this framework, namespace and name.
pub type Reconcile = fn(&str, &str, &str, Env<'_>) -> Plan;

/// What a framework registers (Kueue's `IntegrationCallbacks`).
#[derive(Clone, Copy, Debug)]
pub struct Integration {
    /// Name in `integrations.frameworks`.
    pub framework: &'static str,
    /// The kind of job.
    pub resource: Resource,
    /// Name of the validating webhook, as refusals cite it.
    pub validating_webhook: &'static str,
    /// Whether the mutating webhook also changes updated objects.
    pub defaults_updates: bool,
    /// Sets defaults as Kueue's mutating webhook does.
    pub default: fn(&Review<'_>, &mut Value, Env<'_>),
    /// Validates as Kueue's validating webhook does.
    pub validate: fn(&Review<'_>, &Value, Env<'_>) -> Validation,
    /// Plans the writes for a job; `None`: this kind is queued through its pods.
    pub reconcile: Option<Reconcile>,
}
