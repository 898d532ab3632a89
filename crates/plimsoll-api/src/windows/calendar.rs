//! When a window is open: cron expressions and durations in a time zone, against the clock.
//!
//! Clock changes, by one rule: a window starts when the clock shows its minute.
//! - A minute that is skipped (spring) starts its window at the moment of the change.
//! - A minute that is there twice (autumn) starts it the first time only; where the hours are `*`, every hour counts, so
//!   both times.
//! - Durations are elapsed time: eight hours are eight hours in every night.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};
use plimsoll_queueing::{Calendar, Hours};
use plimsoll_state::Time;

use super::cron::Cron;

/// How far ahead and back a calendar looks, in hours: ten years, more than lie between two 29 February.
const SIGHT: SignedDuration = SignedDuration::from_hours(10 * 366 * 24);
/// Steps from start to start in search of the end of an open stretch; those after are left to the next look.
const MAX_STEPS: usize = 4096;
/// Clock changes looked at in one search; ten years of a zone that changes four times a year are 40.
const MAX_CHANGES: usize = 400;

/// One entry of `spec.windows`.
#[derive(Clone, Debug)]
pub struct Window {
    /// When it starts.
    pub start: Cron,
    /// How long it lasts; more than nothing.
    pub duration: SignedDuration,
}

/// The windows of a RunWindow.
#[derive(Clone, Debug)]
pub struct Zoned {
    /// Time zone of the expressions.
    pub zone: TimeZone,
    /// The windows; where they overlap or touch they are one.
    pub windows: Vec<Window>,
}

/// A stretch of time between two clock changes.
struct Stretch {
    /// The change it begins with, and the civil time that was reached then.
    start: Option<(Timestamp, DateTime)>,
    end: Option<Timestamp>,
    offset: Offset,
}

impl Stretch {
    fn of(zone: &TimeZone, at: Timestamp) -> Self {
        let tick = SignedDuration::from_nanos(1);
        let start = at.checked_add(tick).ok().and_then(|t| zone.preceding(t).next()).map(|t| t.timestamp());
        let reached = start.and_then(|t| {
            let before = t.checked_sub(tick).ok()?;
            Some((t, zone.to_offset(before).to_datetime(t)))
        });
        let end = zone.following(at).next().map(|t| t.timestamp());
        Self { start: reached, end, offset: zone.to_offset(at) }
    }

    fn civil(&self, at: Timestamp) -> DateTime {
        self.offset.to_datetime(at)
    }

    fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        self.offset.to_timestamp(civil).ok()
    }

    /// The first civil time that counts here: for a repeated hour what comes after it, unless `again`.
    fn low(&self, again: bool) -> Option<DateTime> {
        let (at, reached) = self.start?;
        let shown = self.civil(at);
        Some(if again { shown } else { shown.max(reached) })
    }

    /// The change it begins with, if a start was skipped by it.
    fn skipped(&self, cron: &Cron) -> Option<Timestamp> {
        let (at, reached) = self.start?;
        let shown = self.civil(at);
        (reached < shown && cron.first(up_to_minute(reached)?, shown).is_some()).then_some(at)
    }
}

fn whole_minute(t: DateTime) -> DateTime {
    t.date().at(t.hour(), t.minute(), 0, 0)
}

/// The same or the next whole minute.
fn up_to_minute(t: DateTime) -> Option<DateTime> {
    let whole = whole_minute(t);
    if whole == t { Some(t) } else { whole.checked_add(1.minute()).ok() }
}

impl Window {
    /// The last start in `floor..=at`.
    fn last_start(&self, zone: &TimeZone, at: Timestamp, floor: Timestamp) -> Option<Timestamp> {
        let mut upto = at;
        for _ in 0..MAX_CHANGES {
            let here = Stretch::of(zone, upto);
            let low = here.civil(floor).max(here.low(self.start.any_hour()).unwrap_or(DateTime::MIN));
            let low = up_to_minute(low)?;
            if let Some(found) = self.start.last(low, whole_minute(here.civil(upto))) {
                return here.instant(found);
            }
            let start = here.start.map(|(t, _)| t).filter(|t| *t >= floor)?;
            if let Some(at) = here.skipped(&self.start) {
                return Some(at);
            }
            upto = start.checked_sub(SignedDuration::from_nanos(1)).ok().filter(|t| *t >= floor)?;
        }
        None
    }

    /// The first start in `at..ceiling`.
    fn first_start(&self, zone: &TimeZone, at: Timestamp, ceiling: Timestamp) -> Option<Timestamp> {
        let mut from = at;
        for _ in 0..MAX_CHANGES {
            let here = Stretch::of(zone, from);
            if here.start.is_some_and(|(t, _)| t == from)
                && let Some(at) = here.skipped(&self.start)
            {
                return Some(at);
            }
            let end = here.end.map_or(ceiling, |t| t.min(ceiling));
            let low = here.civil(from).max(here.low(self.start.any_hour()).unwrap_or(DateTime::MIN));
            if let Some(found) = self.start.first(up_to_minute(low)?, here.civil(end)) {
                return here.instant(found);
            }
            from = here.end.filter(|t| *t < ceiling)?;
        }
        None
    }

    fn end(&self, start: Timestamp) -> Timestamp {
        start.checked_add(self.duration).unwrap_or(Timestamp::MAX)
    }
}

impl Zoned {
    /// The latest end of what started up to `at`.
    fn ends(&self, at: Timestamp, floor: Timestamp) -> Option<Timestamp> {
        self.windows.iter().filter_map(|w| Some(w.end(w.last_start(&self.zone, at, floor)?))).max()
    }
}

fn stamp(at: Time) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn time(at: Timestamp) -> Time {
    Time(i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX))
}

impl Calendar for Zoned {
    fn at(&self, now: Time) -> Hours {
        let at = stamp(now);
        let floor = at.checked_sub(SIGHT).unwrap_or(Timestamp::MIN);
        let end = self.ends(at, floor);
        let Some(mut end) = end.filter(|e| *e > at) else {
            let ceiling = at.checked_add(SIGHT).unwrap_or(Timestamp::MAX);
            let next = self.windows.iter().filter_map(|w| w.first_start(&self.zone, at, ceiling)).min();
            return Hours { open: false, since: end.map(time), change: next.map(time), again: None };
        };
        for _ in 0..MAX_STEPS / self.windows.len().max(1) {
            match self.ends(end, floor).filter(|e| *e > end) {
                Some(later) => end = later,
                None => return Hours { open: true, since: None, change: Some(time(end)), again: None },
            }
        }
        Hours { open: true, since: None, change: None, again: Some(time(end)) }
    }

    fn text(&self, at: Time) -> String {
        let zoned = stamp(at).to_zoned(self.zone.clone());
        zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }
}
