//! String formats that custom resources may ask for (apiextensions `supportedFormats`).

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

/// Whether a string has a format. Formats that aren't known are not checked.
pub fn valid(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid(text, format.chars().nth(4)),
        "uri" => text.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        }),
        "hostname" => hostname(text),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && hostname(host)),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "k8s-short-name" => label(text),
        "k8s-long-name" => !text.is_empty() && text.len() <= 253 && text.split('.').all(label),
        _ => true,
    }
}

fn label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn hostname(text: &str) -> bool {
    let part = |p: &str| {
        !p.is_empty()
            && p.len() <= 63
            && p.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
            && !p.starts_with('-')
            && !p.ends_with('-')
    };
    !text.is_empty() && text.len() <= 255 && text.strip_suffix('.').unwrap_or(text).split('.').all(part)
}

fn cidr(text: &str) -> bool {
    let Some((ip, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (ip.parse::<Ipv4Addr>().is_ok() && bits <= 32) || (ip.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn uuid(text: &str, version: Option<char>) -> bool {
    let plain: String = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32
        && plain.bytes().all(|b| b.is_ascii_hexdigit())
        && version.is_none_or(|v| plain.chars().nth(12) == Some(v))
}

/// Go's duration syntax, and `3 days` as go-openapi has it.
fn duration(text: &str) -> bool {
    go_duration(text)
        || text.split_once(' ').is_some_and(|(n, unit)| {
            let unit = unit.trim().trim_end_matches('s');
            n.parse::<u32>().is_ok()
                && ["millisecond", "second", "minute", "hour", "day", "week", "min", "sec"].contains(&unit)
        })
}

fn go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        if digits.parse::<f64>().is_err() {
            return false;
        }
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "w"];
        let Some(next) = units.iter().filter_map(|u| after.strip_prefix(u)).min_by_key(|r| r.len()) else {
            return false;
        };
        rest = next;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::valid;

    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", "2024-05-01T10:00:00Z", "yesterday"),
            ("date", "2024-05-01", "2024-5-1"),
            ("duration", "1h30m", "soon"),
            ("byte", "YQ==", "%%"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "8a9c2f2e-6d7e-4f57-8f4e-0a4f2c1d3b5a", "x"),
            ("uri", "https://a.example.dev", "nothing"),
            ("hostname", "a.example.dev", "-a"),
            ("email", "a@example.dev", "a"),
            ("mac", "00:11:22:33:44:55", "00:11"),
        ] {
            assert!(valid(format, good), "{format} {good}");
            assert!(!valid(format, bad), "{format} {bad}");
        }
    }
}
