//! String formats that custom resources may ask for (kube-openapi's `strfmt`, apiextensions `supportedFormats`).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use super::node_type::NodeType;
use crate::validate::address::{Network, sloppy};
use crate::validate::url::Url;

/// Formats of strings, without dashes.
const TEXTS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether a format is supported for a type; unsupported formats are ignored.
pub fn is_supported(kind: Option<NodeType>, format: &str) -> bool {
    match kind {
        None | Some(NodeType::String) => TEXTS.contains(&format.replace('-', "").as_str()),
        Some(NodeType::Integer) => matches!(format, "int32" | "int64"),
        Some(NodeType::Number) => matches!(format, "float" | "double"),
        Some(_) => false,
    }
}

/// Whether a string has a format. Formats that aren't known are not checked.
pub fn valid(format: &str, text: &str) -> bool {
    let plain = format.replace('-', "");
    if let Some((_, pattern)) = PATTERNS.iter().find(|(name, _)| *name == plain) {
        return pattern.as_ref().is_none_or(|p| p.is_match(text)) && beside_pattern(&plain, text);
    }
    match plain.as_str() {
        "datetime" => date_time(text),
        "date" => date(text),
        "duration" => duration(text),
        "ipv4" => sloppy(text).is_some() && text.contains('.'),
        "ipv6" => {
            text.contains(':') && (text.parse::<Ipv6Addr>().is_ok() || text.parse::<Ipv4Addr>().is_ok())
        }
        "cidr" => Network::parse(text).is_some(),
        "mac" => mac(text),
        "uri" => Url::parse_request(text).is_ok(),
        "email" => email(text),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "creditcard" => credit_card(text),
        "k8sshortname" => label(text),
        "k8slongname" => !text.is_empty() && text.len() <= 253 && text.split('.').all(label),
        _ => true,
    }
}

/// The conditions of a format beyond its pattern.
fn beside_pattern(format: &str, text: &str) -> bool {
    match format {
        "hostname" => text.len() <= 255 && text.split('.').all(|part| part.len() <= 63),
        "ssn" => text.len() == 11,
        _ => true,
    }
}

static PATTERNS: LazyLock<Vec<(&'static str, Option<Regex>)>> = LazyLock::new(|| {
    const BYTE: &str = r"(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])";
    let uuid = |third: &str, fourth: &str| {
        format!("(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}$")
    };
    let hex = "[0-9a-f]{4}";
    let of = |digit: u8| format!("{digit}[0-9a-f]{{3}}");
    let word = r"[a-zA-Z0-9\p{S}\p{L}]";
    let inner = r"[a-zA-Z0-9\p{S}\p{L}-]";
    [
        ("uuid", uuid(hex, hex)),
        ("uuid3", uuid(&of(3), hex)),
        ("uuid4", uuid(&of(4), "[89ab][0-9a-f]{3}")),
        ("uuid5", uuid(&of(5), "[89ab][0-9a-f]{3}")),
        (
            "hostname",
            format!(
                r"^({word}((-?{word}{{0,62}})?)|({word}(({inner}{{0,61}}{word})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
            ),
        ),
        ("ssn", r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$".to_owned()),
        ("hexcolor", "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$".to_owned()),
        ("rgbcolor", format!(r"^rgb\(\s*{BYTE}\s*,\s*{BYTE}\s*,\s*{BYTE}\s*\)$")),
        (
            "byte",
            "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$".to_owned(),
        ),
        ("bsonobjectid", "^[0-9a-fA-F]{24}$".to_owned()),
    ]
    .into_iter()
    .map(|(name, pattern)| (name, Regex::new(&pattern).ok()))
    .collect()
});

fn label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// A date, `t`, a time with an offset; seconds end at 59.
fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(rest)) = (parts.next(), parts.next()) else { return false };
    let b = rest.as_bytes();
    let two = |at: usize, most: &str| {
        rest.get(at..at + 2).is_some_and(|d| d.bytes().all(|c| c.is_ascii_digit()) && d <= most)
    };
    let clock =
        two(0, "23") && b.get(2) == Some(&b':') && two(3, "59") && b.get(5) == Some(&b':') && two(6, "59");
    date(day) && clock && offset(rest.get(8..).unwrap_or_default())
}

/// A fraction behind any one character, and `z` or `+01:00`.
fn offset(text: &str) -> bool {
    let zone = |z: &str| {
        z == "z" || {
            let b = z.as_bytes();
            b.len() == 6
                && matches!(b.first(), Some(b'+' | b'-'))
                && b.get(3) == Some(&b':')
                && [1, 2, 4, 5].iter().all(|i| b.get(*i).is_some_and(u8::is_ascii_digit))
        }
    };
    if zone(text) {
        return true;
    }
    let mut chars = text.chars();
    chars.next();
    let rest = chars.as_str();
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    after.len() < rest.len() && zone(after)
}

/// `net.ParseMAC`.
fn mac(text: &str) -> bool {
    let hex = |parts: Vec<&str>, width: usize, counts: &[usize]| {
        counts.contains(&parts.len())
            && parts.iter().all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    match text.as_bytes().get(2) {
        Some(b':') => hex(text.split(':').collect(), 2, &[6, 8, 20]),
        Some(b'-') => hex(text.split('-').collect(), 2, &[6, 8, 20]),
        _ => hex(text.split('.').collect(), 4, &[3, 4, 10]),
    }
}

/// An address, possibly with a name (`mail.ParseAddress`, without comments and quoted parts of names).
fn email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>').and_then(|t| t.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text,
    };
    let atom = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || local.split('.').all(atom)) && domain.split('.').all(atom)
}

/// Digits (and `X`) of a text, without spaces and dashes.
fn bare(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'-').collect()
}

fn digits(bytes: &[u8]) -> Option<Vec<u32>> {
    bytes.iter().map(|b| char::from(*b).to_digit(10)).collect()
}

fn isbn10(text: &str) -> bool {
    let all = bare(text);
    let Some((last, head)) = all.split_last().filter(|(_, head)| head.len() == 9) else { return false };
    let last = if *last == b'X' { Some(10) } else { char::from(*last).to_digit(10) };
    let (Some(last), Some(head)) = (last, digits(head)) else { return false };
    let sum: u32 = head.iter().zip(1..).map(|(d, i)| d * i).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn isbn13(text: &str) -> bool {
    let Some(all) = digits(&bare(text)).filter(|d| d.len() == 13) else { return false };
    let sum: u32 = all.iter().zip([1, 3].iter().cycle()).map(|(d, f)| d * f).sum();
    sum.is_multiple_of(10)
}

static CARDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let kinds = [
        "4[0-9]{12}(?:[0-9]{3})?",
        "5[1-5][0-9]{14}",
        "(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}",
        "6(?:011|5[0-9][0-9])[0-9]{12}",
        "3[47][0-9]{13}",
        "3(?:0[0-5]|[68][0-9])[0-9]{11}",
        "(?:2131|1800|35[0-9]{3})[0-9]{11}",
        "6[27][0-9]{14}",
    ];
    Regex::new(&format!("^(?:{})$", kinds.join("|"))).ok()
});

/// Numbers of known issuers whose last digit is right (Luhn).
fn credit_card(text: &str) -> bool {
    let plain = String::from_utf8(bare(text)).unwrap_or_default();
    if !CARDS.as_ref().is_some_and(|p| p.is_match(&plain)) {
        return false;
    }
    let doubled = |(i, d): (usize, u32)| match (i % 2, d * 2) {
        (0, _) => d,
        (_, twice) if twice > 9 => twice - 9,
        (_, twice) => twice,
    };
    let sum: u32 = plain.chars().rev().filter_map(|c| c.to_digit(10)).enumerate().map(doubled).sum();
    sum.is_multiple_of(10)
}

/// Go's duration syntax, or amounts with words anywhere in the text (`3 days`), as kube-openapi has it.
fn duration(text: &str) -> bool {
    let of_unit = |(at, _)| {
        let rest = text.get(at..).unwrap_or_default();
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let end = unit.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(unit.len());
        is_unit(&unit.get(..end).unwrap_or_default().to_lowercase())
    };
    // Every occurrence of a digit has the same continuation, so the first one is enough.
    let first =
        |(at, _): &(usize, &str)| !text.as_bytes().get(at.wrapping_sub(1)).is_some_and(u8::is_ascii_digit);
    go_duration(text) || text.match_indices(|c: char| c.is_ascii_digit()).filter(first).any(of_unit)
}

fn is_unit(unit: &str) -> bool {
    let short = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    let begins = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    short.contains(&unit) || begins.iter().any(|b| unit.starts_with(b))
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
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
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
            ("date-time", "2024-05-01T10:00:00Z", "2024-05-01T10:00:60Z"),
            ("datetime", "2024-05-01t10:00:00.5+01:00", "yesterday"),
            ("date", "2024-05-01", "2024-5-1"),
            ("duration", "1h30m", "soon"),
            ("duration", "5 days", "5 x"),
            ("byte", "YQ==", "YQ"),
            ("byte", "YWJj", ""),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv4", "010.0.0.1", "::1"),
            ("ipv6", "::1", "fe80::1%eth0"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "8a9c2f2e-6d7e-4f57-8f4e-0a4f2c1d3b5a", "x"),
            ("uuid4", "57b73598-8764-4ad0-a76a-679bb6640eb1", "57b73598-8764-3ad0-a76a-679bb6640eb1"),
            ("uri", "https://a.example.dev", "nothing"),
            ("uri", "/a/b", ""),
            ("hostname", "a.example.dev", "a.b"),
            ("hostname", "a", "-a"),
            ("email", "A <a@example.dev>", "a"),
            ("mac", "00:11:22:33:44:55", "00:11"),
            ("mac", "0000.5e00.5301", "00:11-22:33:44:55"),
            ("isbn", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("ssn", "111-11-1111", "111111111"),
            ("hexcolor", "#fff", "#ffff"),
            ("rgbcolor", "rgb(1, 2, 255)", "rgb(1,2,256)"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b", "a..b"),
        ] {
            assert!(valid(format, good), "{format} {good}");
            assert!(!valid(format, bad), "{format} {bad}");
        }
        assert!(valid("nosuch", "x"));
    }
}
