//! `metav1.Time` and `metav1.MicroTime`: the engine's time as RFC 3339 text, and back.

use jiff::Timestamp;
use plimsoll_state::Time;

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// `metav1.Time`: RFC 3339 in UTC with whole seconds, rounded down. Out of jiff's range: the epoch.
pub fn text(at: Time) -> String {
    let seconds = at.0.div_euclid(NANOSECONDS_PER_SECOND);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// `metav1.MicroTime`: RFC 3339 in UTC with six digits of a second.
pub fn micro_text(at: Time) -> String {
    let stamp = Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(Timestamp::UNIX_EPOCH);
    stamp.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Parses either form; `None` when the text is not an RFC 3339 time between the years 1677 and 2262.
pub fn parse(text: &str) -> Option<Time> {
    i64::try_from(text.parse::<Timestamp>().ok()?.as_nanosecond()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_round_trip() {
        let at = Time(1_700_000_000_123_456_000);
        assert_eq!(text(at), "2023-11-14T22:13:20Z");
        assert_eq!(micro_text(at), "2023-11-14T22:13:20.123456Z");
        assert_eq!(parse(&micro_text(at)), Some(at));
        assert_eq!(parse(&text(at)), Some(Time::from_seconds(1_700_000_000)));
        assert_eq!(parse("yesterday"), None);
    }
}
