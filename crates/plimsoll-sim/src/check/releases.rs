//! An evicted workload keeps its quota while its pods use it, as the strategy of its job says (Kueue KEP-10076): until they have
//! ended, or until they are being deleted.

use plimsoll_state::{Duration, Time};

use super::pods::Pods;
use super::{Held, Rule, Violation};
use crate::api::Name;
use crate::scenario::{Release, Settings};

/// How long a pod is on its node before the process has to know it, where nothing goes wrong.
const KNOWN: Duration = Duration::from_seconds(10);
/// How long what went wrong before has effects.
const SETTLED: Duration = Duration::from_seconds(120);

/// What evicted jobs wait for.
#[derive(Debug)]
pub struct Releases {
    release: Release,
    /// Since when nothing goes wrong.
    calm: Option<Time>,
}

impl Default for Releases {
    fn default() -> Self {
        Self { release: Release { jobs: false, pods: true }, calm: None }
    }
}

impl Releases {
    /// With these settings.
    pub fn new(settings: &Settings) -> Self {
        let default = Self::default();
        Self { release: settings.release.unwrap_or(default.release), ..default }
    }

    /// From now on nothing goes wrong.
    pub fn calm(&mut self, now: Time) {
        self.calm.get_or_insert(now);
    }

    /// A workload has changed.
    ///
    /// # Errors
    /// When it has released its quota, and pods of it still use that.
    pub fn compare(
        &self,
        name: &Name,
        old: &Held,
        new: &Held,
        pods: &Pods,
        now: Time,
    ) -> Result<(), Violation> {
        let calm = self.calm.is_some_and(|since| now.since(since) > SETTLED);
        let family = new.is_parent || !new.variant_of.is_empty();
        if !calm || family || !old.is_assigned() || new.is_assigned() || !new.is_evicted() {
            return Ok(());
        }
        let terminal = if new.of_pods { self.release.pods } else { self.release.jobs };
        let left = pods.using(name, terminal, now, KNOWN);
        if left == 0 {
            return Ok(());
        }
        let message = format!("{} was evicted and has released its quota, and {left} pods use it", name.1);
        Err(Violation::new(Rule::PodsWithoutQuota, message))
    }
}
