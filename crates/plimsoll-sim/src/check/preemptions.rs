//! Whether a workload that others are preempted for starts, and how soon (joint admission).

use std::collections::BTreeMap;

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use crate::api::{Name, is_true, list, text, uid};

/// Workloads for which others were preempted, and the longest of their waits.
#[derive(Debug, Default)]
pub struct Preemptions {
    /// By UID, since the first preemption.
    since: BTreeMap<String, Time>,
    /// Which preemption was seen last of a workload: when it was, and its preemptor.
    seen: BTreeMap<Name, (String, String)>,
    longest: Duration,
    count: usize,
}

impl Preemptions {
    /// A workload has changed, or is gone. A wait ends when it has quota, or wants none any more.
    pub fn changed(&mut self, name: &Name, object: &Value, deleted: bool, now: Time) {
        if (is_true(object, "QuotaReserved") || is_true(object, "Finished") || deleted)
            && let Some(since) = self.since.remove(uid(object))
        {
            self.longest = self.longest.max(now.since(since));
        }
        let conditions = list(object, &["status", "conditions"]).iter();
        let mut preempted = conditions.filter(|c| c["type"] == "Preempted" && c["status"] == "True");
        let Some(preempted) = preempted.next() else { return };
        let message = text(preempted, &["message"]);
        let by = message.split_once("(UID: ").and_then(|(_, rest)| rest.split_once(','));
        let Some((by, _)) = by else { return };
        let seen = (text(preempted, &["lastTransitionTime"]).to_owned(), by.to_owned());
        if self.seen.get(name) != Some(&seen) {
            self.since.entry(seen.1.clone()).or_insert(now);
            self.seen.insert(name.clone(), seen);
            self.count += 1;
        }
    }

    /// How many workloads were preempted.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The longest wait between a preemption and the start of the workload that it was for, with those that last.
    pub fn longest(&self, now: Time) -> Duration {
        self.since.values().map(|&since| now.since(since)).fold(self.longest, Duration::max)
    }
}
