//! Requests to the cluster autoscaler: one at a time for each workload, which is admitted when its nodes are there, and
//! runs no longer than they are.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use super::{Held, Rule, Violation};
use crate::api::{deleting, list, text};
use crate::users::autoscaler::{has_ended, is_provided, is_revoked};

/// How long the writes that stop a workload may take.
const STOPS: Duration = Duration::from_seconds(30);

/// Requests of a workload.
#[derive(Debug, Default)]
struct Asked {
    /// That have not ended.
    open: BTreeSet<String>,
    /// With nodes.
    provided: BTreeSet<String>,
    /// Whether it has had nodes since it got its quota.
    had: bool,
    /// Since when its nodes are gone.
    revoked: Option<Time>,
    /// Its name, where it is admitted.
    admitted: Option<String>,
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
    pub fn changed(
        &mut self,
        name: &str,
        request: &Value,
        deleted: bool,
        now: Time,
    ) -> Result<(), Violation> {
        let owners = list(request, &["metadata", "ownerReferences"]);
        let uid = owners.first().map_or("", |o| text(o, &["uid"]));
        let asked = self.asked.entry(uid.to_owned()).or_default();
        asked.open.remove(name);
        asked.provided.remove(name);
        let revoked = !deleted && is_revoked(request);
        asked.revoked = revoked.then(|| asked.revoked.unwrap_or(now));
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

    /// A workload is gone.
    pub fn gone(&mut self, uid: &str) {
        if let Some(asked) = self.asked.get_mut(uid) {
            asked.admitted = None;
        }
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
        asked.admitted = new.runs().then(|| name.to_owned());
        if asks && self.needed && !asked.had {
            let message = format!("{name} is admitted without nodes that were asked for");
            return Err(Violation::new(Rule::Unchecked, message));
        }
        Ok(())
    }

    /// Whether what has lost its nodes was told to stop, some time after the faults have ended.
    ///
    /// # Errors
    /// When it was not.
    pub fn overdue(&self, calm: Time, now: Time) -> Result<(), Violation> {
        for asked in self.asked.values() {
            let Asked { revoked: Some(since), admitted: Some(name), .. } = asked else { continue };
            if self.needed && now.since((*since).max(calm)) > STOPS {
                let message = format!("{name} runs on, and its nodes were taken away");
                return Err(Violation::new(Rule::Unchecked, message));
            }
        }
        Ok(())
    }
}
