//! Time as the engine sees it: integer nanoseconds, always an argument.

use crate::cast::whole;

/// A point in time: nanoseconds since the Unix epoch. Negative before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A span of time in nanoseconds. May be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000_000_000;

impl Time {
    /// The point `seconds` after the epoch; saturates at the representable range (about 292 years).
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// Whole seconds since the epoch, rounded down. API timestamps have this resolution.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// The same point with the part below a second cut off.
    pub const fn truncate_to_second(self) -> Self {
        Self::from_seconds(self.seconds())
    }

    /// `self + d`, saturating.
    pub const fn plus(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }

    /// The span from `earlier` to `self`, saturating.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of whole seconds, saturating.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// A span of whole milliseconds, saturating.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Whole seconds, rounded towards negative infinity.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// Seconds as Go's `%.0f` prints them: to the nearest whole number, halves to the even one.
    pub const fn rounded_seconds(self) -> i64 {
        let (seconds, rest) = (self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND));
        let up = rest > SECOND / 2 || rest == SECOND / 2 && seconds % 2 != 0;
        if up { seconds + 1 } else { seconds }
    }

    /// A span as Go writes it (`time.ParseDuration`): `1h30m`, `500ms`, `0`; `None`: it is no span.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::ZERO);
        }
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(r) => (-1, r),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest.is_empty() {
            return None;
        }
        let mut nanos = 0i64;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let number: f64 = rest[..end].parse().ok()?;
            rest = &rest[end..];
            let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
            let unit = match &rest[..unit_end] {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
            nanos = nanos.checked_add(whole(number * unit))?;
            rest = &rest[unit_end..];
        }
        Some(Self(sign * nanos))
    }

    /// The span as Go prints it: `5m0s`, `1.5s`, `20ms`, `0s`.
    pub fn go_text(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        let all = self.0.unsigned_abs();
        let second = SECOND.unsigned_abs();
        if all == 0 {
            return "0s".to_owned();
        }
        if all < second {
            let (unit, name) = match all {
                0..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "µs"),
                _ => (1_000_000, "ms"),
            };
            return format!("{sign}{}{name}", decimal(all, unit));
        }
        let (hours, minutes) = (all / second / 3600, all / second / 60 % 60);
        let seconds = decimal(all % (60 * second), second);
        match (hours, minutes) {
            (0, 0) => format!("{sign}{seconds}s"),
            (0, m) => format!("{sign}{m}m{seconds}s"),
            (h, m) => format!("{sign}{h}h{m}m{seconds}s"),
        }
    }
}

/// `value / unit` without needless digits; the unit is a power of ten.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_printed_as_go_does() {
        let cases = [
            (0, "0s"),
            (300 * SECOND, "5m0s"),
            (3_600 * SECOND, "1h0m0s"),
            (3_661 * SECOND + 500_000_000, "1h1m1.5s"),
            (1_500_000_000, "1.5s"),
            (20_000_000, "20ms"),
            (1_100, "1.1µs"),
            (7, "7ns"),
            (-90 * SECOND, "-1m30s"),
        ];
        for (nanos, want) in cases {
            assert_eq!(Duration(nanos).go_text(), want);
        }
    }

    #[test]
    fn seconds_are_rounded_as_go_does() {
        for (millis, want) in [(0, 0), (499, 0), (500, 0), (501, 1), (1_500, 2), (2_500, 2), (-700, -1)] {
            assert_eq!(Duration::from_millis(millis).rounded_seconds(), want, "{millis}");
        }
    }

    #[test]
    fn durations_are_read_as_go_does() {
        let table = [
            ("1h0m0s", Some(3600.0)),
            ("1.5s", Some(1.5)),
            ("500ms", Some(0.5)),
            ("0", Some(0.0)),
            ("-3s", Some(-3.0)),
            ("3", None),
            ("", None),
            ("s", None),
            ("1x", None),
        ];
        for (text, want) in table {
            assert_eq!(Duration::parse(text).map(|d| d.0 as f64 / 1e9), want, "{text:?}");
        }
    }
}
