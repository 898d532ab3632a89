//! Schedules, and what of them is due.

use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::model::CronJob;

/// When to run.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// A cron pattern in a time zone.
    Cron(Box<croner::Cron>, TimeZone),
    /// `@every`.
    Every(SignedDuration),
}

/// Steps from the estimated to the exact last time before now, at most; schedules are uneven by less than that.
const MAX_STEPS: usize = 10_000;
/// Missed runs from which on an event complains.
const MANY: i64 = 100;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The last time that has come since the last run (or the creation).
    pub at: Option<Timestamp>,
    /// Whether so many have been missed that something is wrong.
    pub many_missed: bool,
    /// What the search began with.
    from: Timestamp,
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// Why it can't be read.
    pub fn parse(text: &str, zone: TimeZone) -> Result<Self, String> {
        if let Some(every) = text.strip_prefix("@every ") {
            let every =
                go_duration(every.trim()).ok_or_else(|| format!("failed to parse duration {text}"))?;
            // Delays are whole seconds, and at least one.
            return Ok(Self::Every(SignedDuration::from_secs(every.as_secs().max(1))));
        }
        // '?' is '*' in the two day fields.
        let pattern = text.replace('?', "*");
        let cron = croner::Cron::from_str(&pattern).map_err(|e| e.to_string())?;
        Ok(Self::Cron(Box::new(cron), zone))
    }

    /// The first time after another.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron, zone) => {
                let after = after.to_zoned(zone.clone());
                cron.find_next_occurrence(&after, false).ok().map(|t| t.timestamp())
            }
            Self::Every(delay) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(*delay).ok()
            }
        }
    }

    /// What is due now. `deadline`: whether what is too late for `startingDeadlineSeconds` is left out.
    ///
    /// # Errors
    /// The schedule has no times, or two at once.
    pub fn due(&self, cron: &CronJob, now: Timestamp, deadline: bool) -> Result<Due, String> {
        let created = cron.metadata.creation_timestamp;
        let mut from = cron.status.last_schedule_time.or(created).map_or(now, |t| t.0);
        if let Some(seconds) = cron.spec.starting_deadline_seconds.filter(|_| deadline) {
            let earliest = now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
            from = from.max(earliest);
        }
        let nothing = Due { at: None, many_missed: false, from };
        let Some(first) = self.next(from).filter(|t| *t <= now) else { return Ok(nothing) };
        let Some(second) = self.next(first).filter(|t| *t <= now) else {
            return Ok(Due { at: Some(first), ..nothing });
        };
        let between = second.duration_since(first).as_secs();
        if between < 1 {
            return Err("time difference between two schedules is less than 1 second".to_owned());
        }
        let missed = now.duration_since(first).as_secs() / between + 1;
        // Near the end at once: there may be very many.
        let skip = SignedDuration::from_secs((missed - 2).max(0).saturating_mul(between));
        let near = first.saturating_add(skip).map_or(first, |t| if t > now { first } else { t });
        let mut last =
            if near > first { self.next(near).filter(|t| *t <= now).unwrap_or(second) } else { second };
        for _ in 0..MAX_STEPS {
            match self.next(last) {
                Some(next) if next <= now => last = next,
                _ => break,
            }
        }
        Ok(Due { at: Some(last), many_missed: missed > MANY, from })
    }

    /// How long until the next time.
    pub fn wait(&self, cron: &CronJob, now: Timestamp) -> Option<SignedDuration> {
        let due = self.due(cron, now, false).ok()?;
        let next = self.next(due.at.unwrap_or(due.from))?;
        // A little later, so that the time has come for sure.
        Some((next.duration_since(now) + SignedDuration::from_millis(100)).max(SignedDuration::ZERO))
    }
}

/// A duration as Go writes it: `1h30m`, `90s`, `1.5h`.
fn go_duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    if text.is_empty() { None } else { SignedDuration::try_from_secs_f64(total).ok() }
}
