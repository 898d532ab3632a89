//! Time as integer nanoseconds, and the two text forms Kubernetes uses: `plimsoll_api::timestamp` for a crate that knows
//! nothing of the engine.

use jiff::Timestamp;

/// Nanoseconds since the Unix epoch, or a span of nanoseconds.
pub type Nanos = i64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// `metav1.Time`: RFC 3339 in UTC with whole seconds.
pub fn seconds_text(at: Nanos) -> String {
    let seconds = at.div_euclid(SECOND);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// `metav1.MicroTime`: RFC 3339 in UTC with six digits of a second.
pub fn micros_text(at: Nanos) -> String {
    let stamp = Timestamp::from_nanosecond(i128::from(at)).unwrap_or(Timestamp::UNIX_EPOCH);
    stamp.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Reads either form; `None` when the text is no RFC 3339 time.
pub fn parse(text: &str) -> Option<Nanos> {
    i64::try_from(text.parse::<Timestamp>().ok()?.as_nanosecond()).ok()
}

/// A span as people write it: `90`, `1.5`, `2s`, `3m`, `1h`, `1d`, `1m30s`, `250ms`; a bare number is seconds.
/// `None` for anything else and for negative spans. Saturates.
pub fn parse_span(text: &str) -> Option<Nanos> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut total = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let factor = match unit {
            "" if tail.is_empty() => 1.0,
            "s" => 1.0,
            "ms" => 0.001,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    // `as` saturates, which is what a span of millennia should do.
    Some((total * SECOND as f64) as Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_kubernetes_forms() {
        let at = 1_700_000_000 * SECOND + 123_456_789;
        assert_eq!(seconds_text(at), "2023-11-14T22:13:20Z");
        assert_eq!(micros_text(at), "2023-11-14T22:13:20.123456Z");
        assert_eq!(parse("2023-11-14T22:13:20Z"), Some(1_700_000_000 * SECOND));
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn spans() {
        for (text, want) in [
            ("5", Some(5 * SECOND)),
            ("0.25", Some(SECOND / 4)),
            ("10s", Some(10 * SECOND)),
            ("2m", Some(120 * SECOND)),
            ("1m30s", Some(90 * SECOND)),
            ("250ms", Some(SECOND / 4)),
            ("", None),
            ("x", None),
            ("-3", None),
            ("3 s", None),
            ("1..2", None),
        ] {
            assert_eq!(parse_span(text), want, "{text}");
        }
    }
}
