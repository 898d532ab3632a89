//! Checkers: what must hold whatever happens, recounted from the API model after every step, without the engine's own
//! arithmetic.

pub mod quota;
mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::api::{Change, Kind, Name, name_of};
use quota::{Quotas, Usage};
pub use workload::Held;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Nothing uses more than it may.
    Quota,
    /// No workload gets a second reservation while it has one.
    AdmittedTwice,
    /// No workload is admitted with half of what admission needs.
    AdmittedWhole,
    /// The engine's books and the statuses say what the objects say.
    Usage,
    /// What can run runs within a bound, once the faults have ended.
    Liveness,
    /// A run comes to its end.
    Endless,
    /// The product does not panic, and its own checks hold.
    Panic,
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// How.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.message)
    }
}

impl Violation {
    /// A rule was broken.
    pub const fn new(rule: Rule, message: String) -> Self {
        Self { rule, message }
    }
}

/// The checkers.
#[derive(Debug, Default)]
pub struct Checkers {
    /// What each workload holds.
    held: BTreeMap<Name, Held>,
    /// The quotas of the API.
    quotas: Quotas,
    /// What is used.
    usage: Usage,
}

impl Checkers {
    /// An object has changed. `decided`: quotas that the process has known since it decided on this change, where it
    /// gives quota away.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn changed(
        &mut self,
        kind: Kind,
        change: &Change,
        decided: Option<&[Rc<Quotas>]>,
    ) -> Result<(), Violation> {
        let name = name_of(&change.object);
        let object = (!change.deleted).then_some(&*change.object);
        self.quotas.know(kind, &name.1, object);
        if kind != Kind::Workload {
            return Ok(());
        }
        let before = std::mem::take(&mut self.usage);
        let new = object.map(Held::read).unwrap_or_default();
        let old = self.held.insert(name.clone(), new).unwrap_or_default();
        if change.deleted {
            self.held.remove(&name);
        }
        for held in self.held.values() {
            held.add(&mut self.usage);
        }
        if let Some(new) = self.held.get(&name) {
            new.check_change(&name.1, &old)?;
            if let Some(decided) = decided {
                self.within(&name.1, &before, decided)?;
            }
        }
        Ok(())
    }

    /// Whether what is used fits into quotas that the process knew when it decided, or later: what was used too much
    /// before may not have grown.
    fn within(&self, name: &str, before: &Usage, decided: &[Rc<Quotas>]) -> Result<(), Violation> {
        let mut message = String::new();
        for quotas in decided {
            let old = quotas.excess(before);
            let was = |what: &(&str, String, String)| old.get(what).copied().unwrap_or(0).max(0);
            let excess = quotas.excess(&self.usage);
            let Some((what, over)) = excess.iter().find(|(what, over)| **over > was(what)) else {
                return Ok(());
            };
            let used = &self.usage;
            message = format!(
                "{name} got quota, and {what:?} uses {over} CPUs too much (before: {}): {used:?}",
                was(what)
            );
        }
        Err(Violation::new(Rule::Quota, message))
    }

    /// What is used, by node of the quota tree and flavor.
    pub fn charged(&self) -> BTreeMap<(String, String), i64> {
        self.quotas.charged(&self.usage)
    }

    /// What is used.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What a workload holds.
    pub fn held(&self, name: &Name) -> Option<&Held> {
        self.held.get(name)
    }
}

#[cfg(test)]
mod tests;
