//! What failed writes of a workload leave behind: a pause, and what is to be done again.

use crate::model::WorkloadStatus;
use crate::{WorkloadUpdate, cond, conditions};
use plimsoll_state::time::{Duration, SECOND, Time};

/// Failed writes of a workload, and what they leave to be done.
#[derive(Debug, Default)]
pub(crate) struct WriteFailures {
    /// No write before this time.
    hold_off: Option<Time>,
    /// In succession.
    count: u32,
    /// Failed writes that later ones don't repeat: the reset of admission checks, the release of the reservation.
    checks_not_reset: bool,
    not_released: Option<NotReleased>,
}

/// The release of a reservation that was not written.
#[derive(Debug)]
struct NotReleased {
    /// When that reservation was made. A later one has a job of its own to stop.
    reserved: Time,
    /// Whether the job had ended for good ([`Event::WorkloadEnded`](crate::Event::WorkloadEnded)).
    ended: bool,
}

/// When the reservation of an evicted workload was made.
fn evicted_reservation(status: &WorkloadStatus) -> Option<Time> {
    let reserved = status.condition(cond::QUOTA_RESERVED).filter(|c| c.status)?;
    status.is_true(cond::EVICTED).then_some(reserved.transition)
}

impl WriteFailures {
    /// Until when no write is made, if one failed.
    pub(crate) fn hold_off(&self) -> Option<Time> {
        self.hold_off
    }

    /// Whether writes may be made.
    pub(crate) fn allow_write(&self, now: Time) -> bool {
        self.hold_off.is_none_or(|until| until <= now)
    }

    /// A pause may be over.
    pub(crate) fn expire(&mut self, now: Time) {
        self.hold_off = self.hold_off.filter(|until| *until > now);
    }

    /// A write succeeded; whether there was a pause.
    pub(super) fn end(&mut self) -> bool {
        self.count = 0;
        self.hold_off.take().is_some()
    }

    /// Another write failed; until when none is made.
    pub(super) fn count(&mut self, now: Time) -> Time {
        self.count = self.count.saturating_add(1);
        let until = now.plus(Duration(SECOND.saturating_mul(1 << (self.count - 1).min(6))));
        self.hold_off = Some(until);
        until
    }

    /// Remembers what a failed write was to do and later ones don't repeat. `shown`: the status that the API showed last.
    pub(crate) fn remember(&mut self, failed: &WorkloadUpdate, shown: &WorkloadStatus) {
        self.checks_not_reset |= failed.admission_checks.is_some();
        // The stop of the job is not reported again.
        if failed.admission == Some(None)
            && let Some(reserved) = evicted_reservation(shown)
        {
            let mut conditions = failed.conditions.iter();
            let ended = conditions
                .any(|c| c.kind == cond::REQUEUED && !c.status && conditions::requeues_after(&c.reason));
            self.not_released = Some(NotReleased { reserved, ended });
        }
    }

    /// Whether the release of the reservation in `status` is to be written again, and then with which `ended`.
    pub(super) fn take_not_released(&mut self, status: &WorkloadStatus) -> Option<bool> {
        let release = self.not_released.take()?;
        (evicted_reservation(status) == Some(release.reserved)).then_some(release.ended)
    }

    pub(super) fn take_checks_not_reset(&mut self) -> bool {
        std::mem::take(&mut self.checks_not_reset)
    }
}
