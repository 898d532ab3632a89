//! Ages, worded as Go's `duration.HumanDuration`.

use jiff::Timestamp;
use serde_json::Value;

/// `5s`, `2m10s`, `3h`, `4d2h`, …: at most two units, coarser with age.
///
/// `seconds` may be negative by one (clock skew); less than that is `<invalid>`.
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    if seconds < 120 {
        return format!("{seconds}s");
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    if minutes < 10 {
        return two(minutes, "m", seconds % 60, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    if hours < 8 {
        return two(hours, "h", minutes % 60, "m");
    }
    let days = hours / 24;
    if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        two(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        two(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

fn two(a: i64, unit_a: &str, b: i64, unit_b: &str) -> String {
    if b == 0 { format!("{a}{unit_a}") } else { format!("{a}{unit_a}{b}{unit_b}") }
}

/// Seconds from `from` to `to`, rounded towards zero.
pub fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    (to.as_nanosecond() - from.as_nanosecond()).checked_div(1_000_000_000).map_or(0, |s| s as i64)
}

/// A timestamp of an object; `None` when missing, null or not a time.
pub fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// The age of a timestamp field: `<unknown>` when it is missing.
pub fn age(value: &Value, now: Timestamp) -> String {
    match time(value) {
        Some(at) => human_duration(seconds_between(at, now)),
        None => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (179 * 60, "179m"),
            (180 * 60, "3h"),
            (181 * 60, "3h1m"),
            (8 * 3600 + 60, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (50 * 3600, "2d2h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (933 * 86400, "2y203d"),
            (8 * 365 * 86400 + 86400, "8y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn ages_of_fields() {
        let now: Timestamp = "2026-11-20T10:00:00Z".parse().unwrap();
        assert_eq!(age(&serde_json::json!("2026-11-20T09:58:20Z"), now), "100s");
        assert_eq!(age(&Value::Null, now), "<unknown>");
        assert_eq!(age(&serde_json::json!("2026-11-20T09:59:59.123456Z"), now), "0s");
    }
}
