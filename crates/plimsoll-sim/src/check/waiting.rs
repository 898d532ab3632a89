//! How long workloads wait for nodes although they have quota (joint admission).

use std::collections::BTreeMap;

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use crate::api::{Name, is_true, list, text};

/// Workloads that wait for nodes, and the longest waits that have ended.
#[derive(Debug, Default)]
pub struct Waiting {
    since: BTreeMap<Name, Time>,
    longest: BTreeMap<i64, Duration>,
}

impl Waiting {
    /// A workload has changed. A wait ends when it has quota.
    pub fn changed(&mut self, name: &Name, object: &Value, now: Time) {
        if is_true(object, "QuotaReserved") {
            if let Some(since) = self.since.remove(name) {
                let priority = object["spec"]["priority"].as_i64().unwrap_or(0);
                let longest = self.longest.entry(priority).or_default();
                *longest = (*longest).max(now.since(since));
            }
            return;
        }
        let conditions = list(object, &["status", "conditions"]).iter();
        let mut why = conditions.filter(|c| c["type"] == "QuotaReserved").map(|c| text(c, &["reason"]));
        let topology = |c: &Value| text(c, &["message"]).contains("topology \"");
        let lacks_places = list(object, &["status", "conditions"])
            .iter()
            .any(|c| c["type"] == "QuotaReserved" && c["status"] == "False" && topology(c));
        if why.next() == Some("WaitingForNodes") || lacks_places {
            self.since.entry(name.clone()).or_insert(now);
        }
    }

    /// The longest wait by priority.
    pub const fn longest(&self) -> &BTreeMap<i64, Duration> {
        &self.longest
    }
}
