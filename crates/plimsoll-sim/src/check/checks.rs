//! Admission checks: a workload is admitted when those of its ClusterQueue are ready.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Held, Rule, Violation};
use crate::api::{list, text};

/// The check of a ClusterQueue: the flavors that it is for; empty: all.
type Required = Option<Vec<String>>;

/// What ClusterQueues ask for.
#[derive(Debug, Default)]
pub struct Checks {
    /// `None`: it has changed since the start, and the process may have decided with either.
    queues: BTreeMap<String, Option<Required>>,
}

impl Checks {
    /// Takes in a ClusterQueue, or that it is gone.
    pub fn know(&mut self, name: &str, object: Option<&Value>) {
        let checks = object.map(|o| list(o, &["spec", "admissionChecksStrategy", "admissionChecks"]));
        let required = checks.map(|checks| {
            let flavors =
                |c: &Value| list(c, &["onFlavors"]).iter().map(|f| text(f, &[]).to_owned()).collect();
            checks.first().map(flavors)
        });
        let known = self.queues.entry(name.to_owned()).or_insert_with(|| required.clone());
        if *known != required {
            *known = None;
        }
    }

    /// Whether a workload may have become this from what it was; whether it is admitted and a check is for it.
    ///
    /// # Errors
    /// When it is admitted though a check is not ready.
    pub fn compare(&self, name: &str, old: &Held, new: &Held) -> Result<bool, Violation> {
        // The checks of a parent are those of its variants.
        if old.is_admitted() || !new.is_admitted() || new.is_parent {
            return Ok(false);
        }
        let required = self.queues.get(new.queue()).and_then(Option::as_ref).and_then(Option::as_ref);
        let asked = required.is_some_and(|r| r.is_empty() || new.flavors().any(|f| r.iter().any(|r| r == f)));
        // Where a check is required no more, its row goes some time after the admission.
        if asked && (new.ready().is_empty() || new.ready().contains(&false)) {
            let message = format!("{name} is admitted, and its checks are {:?}", new.ready());
            return Err(Violation::new(Rule::Unchecked, message));
        }
        Ok(asked)
    }
}
