//! Calendars of run windows, of the form that scenarios make: every so many minutes for so long.

use plimsoll_api::timestamp;
use plimsoll_state::Time;
use serde_json::Value;

use crate::api::{list, text};

/// A window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Seconds from one opening to the next.
    every: i64,
    /// Seconds that it is open.
    open: i64,
    grace: i64,
    min_run: i64,
    pub(super) finish: bool,
    made: i64,
    pub(super) local_queues: Vec<String>,
    pub(super) cluster_queues: Vec<String>,
    pub(super) flavors: Vec<String>,
}

/// Seconds of a duration such as `90s`.
fn seconds(value: &Value) -> i64 {
    value.as_str().and_then(|s| s.strip_suffix('s')).and_then(|s| s.parse().ok()).unwrap_or(0)
}

impl Window {
    /// What the object says.
    pub fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let first = list(spec, &["windows"]).first().cloned().unwrap_or_default();
        let minutes = text(&first, &["start"]).strip_prefix("*/").and_then(|s| s.split(' ').next());
        let minutes: i64 = minutes.and_then(|m| m.parse().ok()).unwrap_or(1);
        let names = |kind: &str| {
            list(spec, &["appliesTo", kind, "names"]).iter().map(|n| text(n, &[]).to_owned()).collect()
        };
        let made = timestamp::parse(text(object, &["metadata", "creationTimestamp"]));
        Self {
            every: minutes * 60,
            open: seconds(&first["duration"]),
            grace: seconds(&spec["gracePeriod"]),
            min_run: seconds(&spec["minRunTime"]),
            finish: text(spec, &["outside"]) == "Finish",
            made: made.unwrap_or_default().seconds(),
            local_queues: names("localQueues"),
            cluster_queues: names("clusterQueues"),
            flavors: names("flavors"),
        }
    }

    /// Whether it is open.
    pub fn is_open(&self, now: Time) -> bool {
        now.seconds().rem_euclid(self.every) < self.open
    }

    /// From when on what has run since then is told to stop, where it is closed now.
    pub fn stops(&self, since: i64, now: Time) -> i64 {
        let opened = now.seconds() - now.seconds().rem_euclid(self.every);
        let closed = (opened + self.open).max(self.made);
        (closed + self.grace).max(since + self.min_run)
    }
}
