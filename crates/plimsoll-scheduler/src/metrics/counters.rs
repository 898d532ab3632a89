//! What is counted without a clock of the host (upstream `metrics/metrics.go`).

use super::Durations;
use super::recorder::{Histogram, exponential};
use crate::framework::Code;
use plimsoll_state::time::Duration;
use std::collections::BTreeMap;

/// 1 ms × 2^k, as upstream's `PermitWaitDuration`.
const PERMIT_WAIT: [f64; 15] = exponential(0.001, 2.0);

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// How often a preemption had so many victims.
    victims: BTreeMap<usize, u64>,
    /// By the code that ended the wait.
    permit_waits: BTreeMap<Code, Histogram<15>>,
    after_flush: u64,
}

impl Counters {
    /// A pod preempts so many others.
    pub fn preempted(&mut self, victims: usize) {
        *self.victims.entry(victims).or_insert(0) += 1;
    }

    /// A pod has waited on Permit for so long.
    pub fn waited_on_permit(&mut self, code: Code, wait: Duration) {
        let nanos = u64::try_from(wait.0).unwrap_or(0);
        self.permit_waits.entry(code).or_insert(Histogram::NEW).observe(&PERMIT_WAIT, nanos);
    }

    /// A pod is bound; `flushed`: it was tried because it had waited for an event for too long.
    pub fn bound(&mut self, flushed: bool) {
        self.after_flush += u64::from(flushed);
    }

    pub fn victims(&self) -> impl Iterator<Item = (usize, u64)> {
        self.victims.iter().map(|(victims, times)| (*victims, *times))
    }

    pub fn permit_waits(&self) -> impl Iterator<Item = (&'static str, Durations)> {
        self.permit_waits.iter().map(|(code, waits)| (code.name(), waits.durations(&PERMIT_WAIT)))
    }

    pub const fn after_flush(&self) -> u64 {
        self.after_flush
    }
}
