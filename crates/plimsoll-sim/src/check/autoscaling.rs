//! Requests to the cluster autoscaler: one at a time for each workload, which is admitted when its nodes are there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Held, Rule, Violation};
use crate::api::{deleting, list, text};
use crate::users::autoscaler::{has_ended, is_provided};

/// Requests of a workload.
#[derive(Debug, Default)]
struct Asked {
    /// That have not ended.
    open: BTreeSet<String>,
    /// With nodes.
    provided: BTreeSet<String>,
    /// Whether it has had nodes since it got its quota.
    had: bool,
}

/// What was asked for, by the UID of the workload.
#[derive(Debug, Default)]
pub struct Requests {
    asked: BTreeMap<String, Asked>,
    /// Whether the check asks for nodes.
    needed: bool,
}

impl Requests {
    /// Takes in the admission check.
    pub fn know_check(&mut self, check: Option<&Value>) {
        self.needed = check.is_some_and(|c| c["spec"]["parameters"].is_object());
    }

    /// A request has changed.
    ///
    /// # Errors
    /// When there is another one of its workload that has not ended.
    pub fn changed(&mut self, name: &str, request: &Value, deleted: bool) -> Result<(), Violation> {
        let owners = list(request, &["metadata", "ownerReferences"]);
        let uid = owners.first().map_or("", |o| text(o, &["uid"]));
        let asked = self.asked.entry(uid.to_owned()).or_default();
        asked.open.remove(name);
        asked.provided.remove(name);
        if deleted || deleting(request) || has_ended(request) {
            return Ok(());
        }
        asked.open.insert(name.to_owned());
        if is_provided(request) {
            asked.provided.insert(name.to_owned());
            asked.had = true;
        }
        if asked.open.len() > 1 {
            let message = format!("{:?} ask for the same nodes", asked.open);
            return Err(Violation::new(Rule::AskedTwice, message));
        }
        Ok(())
    }

    /// Whether a workload may have become this from what it was; `asks`: it was admitted, and the check is for it.
    ///
    /// # Errors
    /// When it is admitted, and there were no nodes for it since it got its quota.
    pub fn compare(&mut self, name: &str, old: &Held, new: &Held, asks: bool) -> Result<(), Violation> {
        let asked = self.asked.entry(new.uid().to_owned()).or_default();
        if new.is_assigned() && !old.is_assigned() {
            asked.had = !asked.provided.is_empty();
        }
        if asks && self.needed && !asked.had {
            let message = format!("{name} is admitted without nodes that were asked for");
            return Err(Violation::new(Rule::Unchecked, message));
        }
        Ok(())
    }
}
