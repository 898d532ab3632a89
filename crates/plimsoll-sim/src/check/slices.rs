//! Elastic jobs (Kueue KEP-77): the slices of a job are charged what the larger of them needs, and as many of its pods run at
//! most, at every moment.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::quota::Usage;
use super::{Held, Rule, Violation};
use crate::api::{Name, deleting, uid};

/// Usage by flavor.
type Used<'a> = BTreeMap<&'a str, i64>;

/// Adds what all workloads use. What a parent does is charged to its variants.
pub fn add<'a>(held: impl Iterator<Item = &'a Held>, usage: &mut Usage) {
    let mut jobs: BTreeMap<(&str, &str), Used<'_>> = BTreeMap::new();
    for one in held.filter(|h| h.counts() && !h.is_parent) {
        if one.slice.is_empty() {
            one.add(usage);
            continue;
        }
        let job = jobs.entry((one.queue(), &one.slice)).or_default();
        for (flavor, used) in one.used() {
            let most = job.entry(flavor).or_insert(0);
            *most = used.max(*most);
        }
    }
    for ((queue, _), used) in jobs {
        for (flavor, used) in used {
            *usage.queues.entry((queue.to_owned(), flavor.to_owned())).or_insert(0) += used;
        }
    }
}

/// Jobs that are there and stay.
#[derive(Debug, Default)]
pub struct Jobs(BTreeSet<String>);

impl Jobs {
    /// Takes in a Job, or that it is gone.
    pub fn know(&mut self, job: &Value, gone: bool) {
        if gone || deleting(job) {
            self.0.remove(uid(job));
        } else {
            self.0.insert(uid(job).to_owned());
        }
    }

    /// Whether no elastic job runs more pods than it is charged for. `running`: pods on nodes that have not ended, by first
    /// slice.
    ///
    /// # Errors
    /// When one does.
    pub fn compare(
        &self,
        held: &BTreeMap<Name, Held>,
        running: &BTreeMap<&str, i64>,
    ) -> Result<(), Violation> {
        for (slice, count) in running {
            let own = |h: &&Held| h.slice == *slice;
            let all = || held.values().filter(own);
            // The pods of a Job that is deleted go without it.
            if !all().any(|h| self.0.contains(&h.job)) {
                continue;
            }
            let charged = all().map(Held::granted).max().unwrap_or(0);
            if *count > charged {
                let message = format!("{count} pods of the slices of {slice} run, {charged} are charged");
                return Err(Violation::new(Rule::PodsWithoutQuota, message));
            }
        }
        Ok(())
    }
}
