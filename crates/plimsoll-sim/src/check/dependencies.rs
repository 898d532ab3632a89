//! Dependencies between workloads (annotation `plimsoll.dev/depends-on`): what a workload waits for happens while it is there,
//! before it gets quota.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::kueue::DEPENDS_ON;
use serde_json::Value;

use super::{Held, Rule, Violation};
use crate::api::{Name, condition, is_true, list, text, uid};

/// How a workload stands, for those that wait for it.
#[derive(Debug, Default)]
struct Standing {
    /// Names that it answers to, its own last.
    names: Vec<String>,
    /// Whether it is that of a group, which does not answer to the names of its pods.
    group: bool,
    /// Outcomes that it has had.
    outcomes: Vec<&'static str>,
}

impl Standing {
    fn read(name: &Name, object: &Value) -> Self {
        let owners = list(object, &["metadata", "ownerReferences"]).iter();
        let mut names: Vec<String> = owners.map(|o| text(o, &["name"]).to_owned()).collect();
        names.push(name.1.clone());
        let outcomes = match condition(object, "Finished").map(|c| text(c, &["reason"])) {
            // Another slice of the job goes on.
            Some("WorkloadSliceReplaced") => Vec::new(),
            Some("Succeeded") => vec!["succeeded", "finished", "ready"],
            Some(_) => vec!["failed", "finished"],
            None if is_true(object, "PodsReady") => vec!["ready"],
            None => Vec::new(),
        };
        let group = object["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"] == "true";
        Self { names, group, outcomes }
    }

    fn satisfies(&self, dependency: &str) -> bool {
        let (name, outcome) = dependency.split_once(':').unwrap_or((dependency, "succeeded"));
        self.names.iter().any(|n| n == name) && self.outcomes.contains(&outcome)
    }

    /// Whether it is what is waited for.
    fn answers_to(&self, dependency: &str) -> bool {
        let name = dependency.split(':').next().unwrap_or_default();
        let names =
            if self.group { self.names.last().map_or(&[][..], std::slice::from_ref) } else { &self.names };
        names.iter().any(|n| n == name)
    }
}

/// What a workload waits for.
#[derive(Debug, Default)]
struct Waits {
    uid: String,
    unmet: BTreeSet<String>,
}

/// Dependencies and dependents.
#[derive(Debug, Default)]
pub struct Dependencies {
    standings: BTreeMap<Name, Standing>,
    waits: BTreeMap<Name, Waits>,
}

impl Dependencies {
    /// Whether what a dependency names is there.
    pub fn is_there(&self, dependency: &str) -> bool {
        self.standings.values().any(|s| s.answers_to(dependency))
    }

    /// Whether what a dependency names is there and has had the outcome.
    pub fn is_met(&self, dependency: &str) -> bool {
        self.standings.values().any(|s| s.answers_to(dependency) && s.satisfies(dependency))
    }

    /// Takes in a workload that has become this from what it was, or that is gone.
    ///
    /// # Errors
    /// When it gets quota before its dependencies are met.
    pub fn changed(
        &mut self,
        name: &Name,
        object: Option<&Value>,
        old: &Held,
        new: &Held,
    ) -> Result<(), Violation> {
        let Some(object) = object else {
            self.standings.remove(name);
            self.waits.remove(name);
            return Ok(());
        };
        let standing = Standing::read(name, object);
        for waits in self.waits.values_mut() {
            waits.unmet.retain(|d| !standing.satisfies(d));
        }
        self.standings.insert(name.clone(), standing);
        let Some(wanted) = object["metadata"]["annotations"][DEPENDS_ON].as_str() else { return Ok(()) };
        let waits = self.waits.entry(name.clone()).or_default();
        if waits.uid != uid(object) {
            waits.uid = uid(object).to_owned();
            waits.unmet = wanted.split(',').map(|d| d.trim().to_owned()).collect();
            waits.unmet.retain(|d| !self.standings.values().any(|s| s.satisfies(d)));
        }
        if new.is_assigned() && !old.is_assigned() && !waits.unmet.is_empty() {
            let message = format!("{} got quota, and waits for {:?}", name.1, waits.unmet);
            return Err(Violation::new(Rule::Dependencies, message));
        }
        Ok(())
    }
}
