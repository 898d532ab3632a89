//! Durations as Go writes them (`time.ParseDuration`).

use plimsoll_state::Duration;

/// A duration as Go writes it: `1h30m`, `500ms`, `0`.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
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
        nanos = nanos.checked_add((number * unit) as i64)?;
        rest = &rest[unit_end..];
    }
    Some(Duration(sign * nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(parse(text).map(|d| d.0 as f64 / 1e9), want, "{text:?}");
        }
    }
}
