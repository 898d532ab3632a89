//! No job is stopped while its workload may run: neither a late watch nor a change of leaders is a reason.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Held, Rule, Violation};
use crate::api::{Name, name_of, uid};

/// What a job is told to run, by UID; `None` while it is suspended.
#[derive(Debug, Default)]
pub struct Stops(BTreeMap<String, Option<Value>>);

impl Stops {
    /// Takes in a Job, or that it is gone.
    ///
    /// # Errors
    /// When it is suspended, though its workload is admitted and its user has changed nothing.
    pub fn changed(&mut self, job: &Value, gone: bool, held: &BTreeMap<Name, Held>) -> Result<(), Violation> {
        if gone {
            self.0.remove(uid(job));
            return Ok(());
        }
        let mut told = job["spec"].clone();
        let suspended = told.as_object_mut().and_then(|spec| spec.remove("suspend")) == Some(true.into());
        // What is started for a flavor runs on its nodes; a stop takes that back.
        told["template"]["spec"]["nodeSelector"].take();
        let label = &job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"];
        label.clone_into(&mut told["queue"]);
        let now = (!suspended).then(|| told.clone());
        let Some(Some(before)) = self.0.insert(uid(job).to_owned(), now) else { return Ok(()) };
        // The slices of an elastic job take each other's place.
        let runs = |h: &&Held| h.job == uid(job) && h.runs() && h.slice.is_empty();
        if suspended && before == told && held.values().any(|h| runs(&h)) {
            let name = name_of(job).1;
            let message = format!("job {name} was suspended, and its workload is admitted");
            return Err(Violation::new(Rule::Stopped, message));
        }
        Ok(())
    }
}
