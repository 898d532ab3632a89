//! Waiting after pods have failed: 10 s, doubled for each further failure, 10 minutes at most.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::pod::Pod;

const BASE: SignedDuration = SignedDuration::from_secs(10);
const MAX: SignedDuration = SignedDuration::from_mins(10);

/// Failures since the last success, and when the last of them was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Failures since the last success.
    pub failures: i32,
    /// When the last of them was.
    pub last: Option<Timestamp>,
}

impl Record {
    /// The record after these pods have ended, none of which it has taken into account.
    pub fn after(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let failures = || failed.iter().map(|p| p.finished_at());
        let Some(success) = succeeded.iter().map(|p| p.finished_at()).max() else {
            let count = i32::try_from(failed.len()).unwrap_or(i32::MAX);
            return Self {
                failures: self.failures.saturating_add(count),
                last: failures().max().or(self.last),
            };
        };
        let since = failures().filter(|at| *at > success);
        let count = i32::try_from(since.clone().count()).unwrap_or(i32::MAX);
        Self { failures: count, last: since.max() }
    }

    /// How long pods may not be made yet.
    pub fn remaining(&self, now: Timestamp) -> SignedDuration {
        match self.last {
            Some(last) => remaining(self.failures, last, now),
            None => SignedDuration::ZERO,
        }
    }
}

/// How long a pod that replaces a failed one of its index may not be made yet.
pub fn remaining_of_index(replaced: Option<&Pod>, now: Timestamp) -> SignedDuration {
    match replaced {
        Some(pod) => remaining(pod.all_index_failures().saturating_add(1), pod.finished_at(), now),
        None => SignedDuration::ZERO,
    }
}

fn remaining(failures: i32, last: Timestamp, now: Timestamp) -> SignedDuration {
    if failures <= 0 {
        return SignedDuration::ZERO;
    }
    // The maximum is reached long before this many doublings.
    let doublings = (failures - 1).min(16);
    let delay = BASE.checked_mul(1 << doublings).map_or(MAX, |d| d.min(MAX));
    (delay - now.duration_since(last)).max(SignedDuration::ZERO)
}
