//! Cron expressions of five fields, in civil time: which minutes they name. What a minute that happens twice or never
//! means is the calendar's business.
//!
//! Own code and not the crate that CronJobs use: a window has to be searched backwards, in steps that a clock change
//! does not blur, and its errors name the field.

use jiff::civil::{Date, DateTime, Time};

/// The minutes that a cron expression names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the day of the month and of the week begin with `*`; if neither does, either is enough.
    any_day: bool,
    any_weekday: bool,
    /// Whether the hours begin with `*`.
    any_hour: bool,
}

const FORM: &str = "five fields (minute, hour, day of month, month, day of week), such as \"0 22 * * 1-5\"";
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Longest each month can be.
const LENGTHS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A field: its name, its range, and the words for its values from the first on.
struct Field {
    name: &'static str,
    range: (u32, u32),
    words: &'static [&'static str],
}

impl Field {
    /// The set of values, and whether it begins with `*`.
    fn read(&self, text: &str) -> Result<(u64, bool), String> {
        let mut set = 0;
        for part in text.split(',') {
            set |= self.part(part)?;
        }
        Ok((set, text.starts_with('*')))
    }

    fn part(&self, text: &str) -> Result<u64, String> {
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, step)) => {
                let number = step.parse::<u32>().ok().filter(|n| *n > 0);
                let bad = || self.error(text, "the step after '/' must be a number from 1 on");
                (range, Some(number.ok_or_else(bad)?))
            }
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => self.range,
            Some((a, b)) => (self.value(a, text)?, self.value(b, text)?),
            // As in other crons, a step goes on to the end.
            None if step.is_some() => (self.value(range, text)?, self.range.1),
            None => (self.value(range, text)?, self.value(range, text)?),
        };
        if first > last {
            return Err(self.error(text, "the range runs backwards; write it as two, separated by a comma"));
        }
        Ok((first..=last).step_by(step.unwrap_or(1) as usize).fold(0, |set, v| set | 1 << v))
    }

    fn value(&self, text: &str, part: &str) -> Result<u32, String> {
        let word = self.words.iter().position(|w| w.eq_ignore_ascii_case(text));
        let number = match word {
            Some(at) => u32::try_from(at).ok().map(|n| n + self.range.0),
            None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            None => None,
        };
        let (low, high) = self.range;
        number.filter(|n| (low..=high).contains(n)).ok_or_else(|| {
            self.error(
                part,
                &format!("use numbers from {low} to {high}, ranges (1-3), lists (1,3), steps (*/2)"),
            )
        })
    }

    fn error(&self, part: &str, detail: &str) -> String {
        format!("the {} {part:?} can't be read: {detail}", self.name)
    }
}

impl Cron {
    /// Reads an expression. Names of months and days, `*`, ranges, lists and steps are known; Sunday is 0 or 7.
    ///
    /// # Errors
    /// Which field is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(format!("must have {FORM}; this has {}", fields.len()));
        };
        let field = |name, low, high, words| Field { name, range: (low, high), words };
        let (minutes, _) = field("minute", 0, 59, &[]).read(minute)?;
        let (hours, any_hour) = field("hour", 0, 23, &[]).read(hour)?;
        let (days, any_day) = field("day of month", 1, 31, &[]).read(day)?;
        let (months, _) = field("month", 1, 12, &MONTHS).read(month)?;
        let (weekdays, any_weekday) = field("day of week", 0, 7, &WEEKDAYS).read(weekday)?;
        let weekdays = (weekdays | weekdays >> 7) & 0x7f;
        let cron = Self { minutes, hours, days, months, weekdays, any_day, any_weekday, any_hour };
        let first = days.trailing_zeros();
        let comes = (1u32..).zip(LENGTHS).any(|(m, length)| months >> m & 1 == 1 && first <= length);
        if any_weekday && !comes {
            return Err(format!("never comes: no month of {month:?} has a day {day}"));
        }
        Ok(cron)
    }

    /// Whether every hour is meant, also one that is there twice.
    pub(super) const fn any_hour(&self) -> bool {
        self.any_hour
    }

    fn on(&self, date: Date) -> bool {
        let bit = |set: u64, n: i8| set >> n.unsigned_abs() & 1 == 1;
        let day = bit(self.days, date.day());
        let weekday = bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        let either = if self.any_day || self.any_weekday { day && weekday } else { day || weekday };
        bit(self.months, date.month()) && either
    }

    fn hours(&self) -> impl DoubleEndedIterator<Item = i8> {
        let set = self.hours;
        (0i8..24).filter(move |h| set >> h.unsigned_abs() & 1 == 1)
    }

    /// The first minute named in `from..upto`. Both are whole minutes.
    pub(super) fn first(&self, from: DateTime, upto: DateTime) -> Option<DateTime> {
        let (mut date, mut time) = (from.date(), from.time());
        while DateTime::from_parts(date, time) < upto {
            if self.on(date) {
                let found = self.hours().filter(|h| *h >= time.hour()).find_map(|h| {
                    let low = if h == time.hour() { time.minute() } else { 0 };
                    let left = self.minutes >> low.unsigned_abs();
                    let minute = low + i8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
                    Some(date.at(h, minute, 0, 0))
                });
                if let Some(found) = found {
                    return Some(found).filter(|t| *t < upto);
                }
            }
            (date, time) = (date.tomorrow().ok()?, Time::midnight());
        }
        None
    }

    /// The last minute named in `from..=upto`.
    pub(super) fn last(&self, from: DateTime, upto: DateTime) -> Option<DateTime> {
        let (mut date, mut time) = (upto.date(), upto.time());
        while date >= from.date() {
            if self.on(date) {
                let found = self.hours().rev().filter(|h| *h <= time.hour()).find_map(|h| {
                    let high = if h == time.hour() { time.minute() } else { 59 };
                    let left = self.minutes & (u64::MAX >> (63 - high.unsigned_abs()));
                    let minute =
                        i8::try_from(63 - left.leading_zeros().min(63)).ok().filter(|_| left != 0)?;
                    Some(date.at(h, minute, 0, 0))
                });
                if let Some(found) = found {
                    return Some(found).filter(|t| *t >= from);
                }
            }
            (date, time) = (date.yesterday().ok()?, Time::constant(23, 59, 0, 0));
        }
        None
    }

    /// Whether a civil minute is named; the plain way.
    #[cfg(test)]
    pub(super) fn names(&self, t: DateTime) -> bool {
        self.on(t.date())
            && self.hours >> t.hour().unsigned_abs() & 1 == 1
            && self.minutes >> t.minute().unsigned_abs() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    #[test]
    fn expressions_are_read_strictly() {
        for (text, want) in [
            ("", "must have five fields (minute, hour, day of month, month, day of week)"),
            ("0 22 * *", "this has 4"),
            ("0 22 * * * *", "this has 6"),
            ("@daily", "this has 1"),
            ("60 * * * *", "the minute \"60\" can't be read: use numbers from 0 to 59"),
            ("* 24 * * *", "the hour \"24\""),
            ("* * 0 * *", "the day of month \"0\""),
            ("* * * 13 *", "the month \"13\""),
            ("* * * * 8", "the day of week \"8\""),
            ("* * * * fri-mon", "the range runs backwards"),
            ("*/0 * * * *", "the step after '/' must be a number from 1 on"),
            ("+5 * * * *", "the minute \"+5\""),
            ("1,,2 * * * *", "the minute \"\""),
            ("0 0 30 2 *", "never comes: no month of \"2\" has a day 30"),
            ("0 0 31 2,4,6 *", "never comes"),
        ] {
            let error = Cron::parse(text).map(drop);
            assert!(error.as_ref().is_err_and(|e| e.contains(want)), "{text}: {error:?}");
        }
        for text in ["0 0 29 2 *", "0 0 31 feb,MAR *", "0 0 30 2 mon", "5/20 1-5/2 */2 * 7"] {
            assert!(Cron::parse(text).is_ok(), "{text}");
        }
        assert_eq!(Cron::parse("0 0 * * 0"), Cron::parse("0 0 * * 7"));
        assert_eq!(Cron::parse("0 0 * jan mon-wed"), Cron::parse("0 0 * 1 1,2,3"));
    }

    #[test]
    fn first_and_last_agree_with_every_minute() {
        let from = jiff::civil::date(2024, 2, 26).at(7, 13, 0, 0);
        let minutes: Vec<DateTime> = (0..6 * 1440).map(|m| from + m.minutes()).collect();
        let upto = from + (6 * 1440).minutes();
        for text in [
            "*/7 3,22 * * *",
            "30 4 29 2 *",
            "0 0 1,15 * fri",
            "59 23 * * 1-5",
            "* * * * *",
            "0 12 28-31 */2 0",
        ] {
            let cron = Cron::parse(text).unwrap();
            let named: Vec<DateTime> = minutes.iter().copied().filter(|m| cron.names(*m)).collect();
            for at in minutes.iter().step_by(11) {
                let after = named.iter().find(|n| **n >= *at).copied();
                assert_eq!(cron.first(*at, upto), after, "{text}: first from {at}");
                let before = named.iter().rfind(|n| **n <= *at).copied();
                assert_eq!(cron.last(from, *at), before, "{text}: last up to {at}");
            }
        }
    }
}
