//! `metav1.Time` and `metav1.MicroTime` on the wire.

use jiff::Timestamp;
use jiff::tz::Offset;

/// The text Go writes for a time read from `text`: UTC, seconds or (`micro`) six fraction digits. `None` for the
/// zero time, which is written as `null`.
///
/// # Errors
/// Go's text for a time that it cannot parse.
pub fn normalise(text: &str, micro: bool) -> Result<Option<String>, String> {
    if !micro && is_plain(text) {
        return Ok((text != "0001-01-01T00:00:00Z").then(|| text.to_owned()));
    }
    if micro && !has_micros(text) {
        return Err(explain(text, micro));
    }
    let Some(time) = parse(text) else { return Err(explain(text, micro)) };
    let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
    if seconds == ZERO && nanos == 0 {
        return Ok(None);
    }
    let when = Offset::UTC.to_datetime(time);
    let base = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        when.year(),
        when.month(),
        when.day(),
        when.hour(),
        when.minute(),
        when.second()
    );
    Ok(Some(if micro { format!("{base}.{:06}Z", nanos.unsigned_abs() / 1000) } else { format!("{base}Z") }))
}

/// 0001-01-01T00:00:00Z in Unix seconds: Go's zero time.
const ZERO: i64 = -62_135_596_800;

/// Whether the text is in the form written, with plausible values, so that it can stay.
fn is_plain(text: &str) -> bool {
    let b = text.as_bytes();
    let number = |from: usize| {
        b.get(from..from + 2).map_or(99, |d| u32::from(d[0] - b'0') * 10 + u32::from(d[1] - b'0'))
    };
    b.len() == 20
        && b.iter().zip(b"0000-00-00T00:00:00Z").all(|(c, pattern)| match pattern {
            b'0' => c.is_ascii_digit(),
            other => c == other,
        })
        && (1..=12).contains(&number(5))
        && (1..=28).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

/// Whether six fraction digits follow the seconds, as Go's layout of `MicroTime` demands.
fn has_micros(text: &str) -> bool {
    let fraction = text.get(19..26).map(str::as_bytes);
    fraction.is_some_and(|f| f[0] == b'.' && f[1..].iter().all(u8::is_ascii_digit))
        && text.get(26..).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// RFC 3339 as Go reads it: `T` and `Z` in capitals, any number of fraction digits.
fn parse(text: &str) -> Option<Timestamp> {
    let b = text.as_bytes();
    if b.get(10) != Some(&b'T') || text.contains(['[', ' ', 'z']) || b.get(16) != Some(&b':') {
        return None;
    }
    text.parse().ok()
}

/// Go's words for a text that is no time; exact for a wrong beginning, close otherwise.
fn explain(text: &str, micro: bool) -> String {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let parts: [(usize, usize, &str); 11] = [
        (0, 4, "2006"),
        (4, 5, "-"),
        (5, 7, "01"),
        (7, 8, "-"),
        (8, 10, "02"),
        (10, 11, "T"),
        (11, 13, "15"),
        (13, 14, ":"),
        (14, 16, "04"),
        (16, 17, ":"),
        (17, 19, "05"),
    ];
    for (from, to, want) in parts {
        let part = text.get(from..to).unwrap_or_default();
        let fits = if want.len() == 1 && !want.starts_with(|c: char| c.is_ascii_digit()) {
            part == want
        } else {
            part.len() == want.len() && part.bytes().all(|b| b.is_ascii_digit())
        };
        if !fits {
            let rest = text.get(from..).unwrap_or_default();
            return format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {want:?}");
        }
    }
    let range = [
        (5, 1, 12, "month"),
        (8, 1, 31, "day"),
        (11, 0, 23, "hour"),
        (14, 0, 59, "minute"),
        (17, 0, 59, "second"),
    ];
    for (from, low, high, name) in range {
        let value: u32 = text.get(from..from + 2).and_then(|p| p.parse().ok()).unwrap_or(99);
        if value < low || value > high {
            return format!("parsing time {text:?}: {name} out of range");
        }
    }
    let rest = text.get(19..).unwrap_or_default();
    if micro && !has_micros(text) {
        return format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as \".000000\"");
    }
    if rest == "Z" {
        return format!("parsing time {text:?}: day out of range");
    }
    format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as \"Z07:00\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_utc() {
        for (text, micro, want) in [
            ("2024-05-01T10:00:00Z", false, Some("2024-05-01T10:00:00Z")),
            ("2024-05-01T10:00:00.999Z", false, Some("2024-05-01T10:00:00Z")),
            ("2024-05-01T10:00:00+02:00", false, Some("2024-05-01T08:00:00Z")),
            ("2024-05-01T10:00:00.123456Z", true, Some("2024-05-01T10:00:00.123456Z")),
            ("2024-05-01T12:00:00.000001+02:00", true, Some("2024-05-01T10:00:00.000001Z")),
            ("2024-02-29T00:00:00Z", false, Some("2024-02-29T00:00:00Z")),
            ("0001-01-01T00:00:00Z", false, None),
        ] {
            assert_eq!(normalise(text, micro).unwrap().as_deref(), want, "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_time() {
        for (text, want) in [
            ("now", r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            (
                "2024-05-01",
                r#"parsing time "2024-05-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            ("2024-13-01T00:00:00Z", r#"parsing time "2024-13-01T00:00:00Z": month out of range"#),
            ("2023-02-29T00:00:00Z", r#"parsing time "2023-02-29T00:00:00Z": day out of range"#),
        ] {
            assert_eq!(normalise(text, false).unwrap_err(), want);
        }
    }
}
