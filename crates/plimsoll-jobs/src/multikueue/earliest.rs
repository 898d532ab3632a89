//! The dispatcher that asks workers when they could start a workload (Plimsoll's own, `plimsoll.dev/multikueue-dispatcher-earliest`):
//! the worker that could start it first gets a copy, and the next one when that has not admitted it in time. Workers without an
//! answer, such as those with Kueue, come after those that could start it within a round and before those that could not, in
//! steps as with the incremental dispatcher.

use std::collections::BTreeMap;

use plimsoll_api::{json, timestamp};
use plimsoll_state::{Duration, Time};
use serde_json::Value;

use super::group::Group;
use super::nomination::{Nomination, ROUND};

/// Clusters without an answer that a round adds (the default of `incrementalDispatcherConfig.stepSize`).
const STEP: usize = 3;
/// How long a worker may take beyond the time that it has named.
const GRACE: Duration = Duration::from_seconds(30);
/// How long an answer holds.
const FRESH: Duration = Duration::from_seconds(10);

/// What a worker says about a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Its engine's answer.
    Forecast {
        /// When it could start without preemption, as far as that is known.
        start: Option<Time>,
        /// How many workloads it would preempt to start it now.
        preempted: u64,
        /// How many workloads are before it.
        ahead: u64,
    },
    /// It can't run it: its queue is missing or takes nothing.
    Never,
    /// It does not answer such questions.
    Silent,
}

/// An answer and when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the worker says.
    pub outlook: Outlook,
    /// When it said so.
    pub at: Time,
}

/// What workers have answered about one workload, by cluster.
pub type Answers = BTreeMap<String, Answer>;

impl Outlook {
    /// Reads an AdmissionForecast of the visibility API.
    pub fn of(document: &Value) -> Self {
        let status = &document["status"];
        if !status.is_object() {
            return Self::Silent;
        }
        if status["message"].is_string() {
            return Self::Never;
        }
        Self::Forecast {
            start: timestamp::parse(json::text(status, &["startTime"])),
            preempted: status["preemptedWorkloads"].as_u64().unwrap_or(0),
            ahead: status["workloadsAhead"].as_u64().unwrap_or(0),
        }
    }

    /// Lower is better: now, now by preemption, soon, perhaps now, later, at a time that nobody knows, never.
    fn order(&self, now: Time) -> (u8, u64, i64) {
        match *self {
            Self::Forecast { start: Some(start), ahead, .. } if start <= now => (0, ahead, 0),
            Self::Forecast { preempted, .. } if preempted > 0 => (1, preempted, 0),
            Self::Forecast { start: Some(start), .. } if start <= now.plus(ROUND) => (2, 0, start.0),
            Self::Silent => (3, 0, 0),
            Self::Forecast { start: Some(start), .. } => (4, 0, start.0),
            Self::Forecast { start: None, ahead, .. } => (5, ahead, 0),
            Self::Never => (6, 0, 0),
        }
    }

    /// How long the worker has until the next one gets a copy, too.
    fn patience(&self, now: Time) -> Duration {
        match *self {
            Self::Forecast { start: Some(start), .. } => start.max(now).plus(GRACE).since(now).min(ROUND),
            Self::Forecast { preempted, .. } if preempted > 0 => GRACE,
            _ => ROUND,
        }
    }
}

/// Until when the checks of copies that have quota on these clusters are waited for: a round from then on.
fn checks_end(group: &Group<'_>, nominated: &[String]) -> Option<Time> {
    let copies = nominated.iter().filter_map(|name| group.remotes.get(name.as_str())?.workload.as_deref());
    let since = |copy: &Value| {
        let reserved = json::condition(copy, "QuotaReserved").filter(|c| c["status"] == "True")?;
        timestamp::parse(json::text(reserved, &["lastTransitionTime"]))
    };
    copies.filter_map(since).max().map(|since| since.plus(ROUND))
}

/// The clusters that get a copy now. `clusters` are those of the check in their order; `ends` is when the present round ends.
pub(super) fn nominate(
    group: &Group<'_>,
    mut nominated: Vec<String>,
    clusters: &[String],
    ends: Option<Time>,
    answers: &Answers,
) -> Nomination {
    let now = group.env.now;
    if let Some(left) = ends.map(|ends| ends.since(now)).filter(|left| *left > Duration::ZERO) {
        return Nomination { clusters: nominated, ends_in: Some(left), ends, ..Nomination::default() };
    }
    let connected = |c: &&String| group.remotes.contains_key(c.as_str());
    let next: Vec<&String> = clusters.iter().filter(connected).filter(|c| !nominated.contains(c)).collect();
    if next.is_empty() {
        return Nomination { clusters: nominated, ..Nomination::default() };
    }
    // What waits for checks on a worker has its quota: another copy would race it for nothing.
    if let Some(ends) = checks_end(group, &nominated).filter(|ends| *ends > now) {
        let (ends_in, ends) = (Some(ends.since(now)), Some(ends));
        return Nomination { clusters: nominated, ends_in, ends, ..Nomination::default() };
    }
    if ends.is_none() && !nominated.is_empty() {
        // A restart of the manager is no reason to end a round: the times that workers have named are forgotten with it.
        let ends = Some(now.plus(ROUND));
        return Nomination { clusters: nominated, ends_in: Some(ROUND), ends, ..Nomination::default() };
    }
    let fresh = |c: &str| answers.get(c).filter(|answer| answer.at.plus(FRESH) > now).map(|a| &a.outlook);
    if next.len() > 1 {
        let missing: Vec<String> = next.iter().filter(|c| fresh(c).is_none()).map(|c| (*c).clone()).collect();
        if !missing.is_empty() {
            return Nomination { clusters: nominated, ask: missing, ..Nomination::default() };
        }
    }
    let outlook = |c: &str| fresh(c).unwrap_or(&Outlook::Silent);
    let Some(best) = next.iter().map(|c| outlook(c)).min_by_key(|o| o.order(now)).cloned() else {
        return Nomination { clusters: nominated, ..Nomination::default() };
    };
    let step = if best == Outlook::Silent { STEP } else { 1 };
    let chosen = next.into_iter().filter(|c| outlook(c).order(now) == best.order(now)).take(step);
    nominated.extend(chosen.cloned().collect::<Vec<_>>());
    let patience = best.patience(now);
    Nomination {
        clusters: nominated,
        write: true,
        ends_in: Some(patience),
        ends: Some(now.plus(patience)),
        ask: Vec::new(),
    }
}
