//! Texts with rules: DNS names, labels, ports, addresses (apimachinery `util/validation`).

use std::borrow::Cow;

pub(crate) use plimsoll_api::content::{label_key as qualified_name, label_value};

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LOOSE_SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const WILDCARD: &str = r"a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// The errors of a text; empty: it is valid.
pub(crate) type Faults = Vec<String>;

fn too_long(text: &str, max: usize, unit: &str, faults: &mut Faults) {
    if text.len() > max {
        faults.push(format!("must be no more than {max} {unit}"));
    }
}

/// Letters and digits at both ends, `inner` allowed between them.
fn framed(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let b = text.as_bytes();
    match (b.first(), b.last()) {
        (Some(first), Some(last)) => edge(*first) && edge(*last) && b.iter().all(|c| edge(*c) || inner(*c)),
        _ => false,
    }
}

fn lower(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn alnum(c: u8) -> bool {
    c.is_ascii_alphanumeric()
}

fn is_label(text: &str) -> bool {
    framed(text, lower, |c| c == b'-')
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// `IsDNS1123Label`.
pub(crate) fn dns_label(text: &str) -> Faults {
    let mut faults = Faults::new();
    too_long(text, 63, "characters", &mut faults);
    if !is_label(text) {
        faults.push(if is_subdomain(text) { "must not contain dots" } else { LABEL }.to_owned());
    }
    faults
}

/// `IsDNS1123Subdomain`.
pub(crate) fn dns_subdomain(text: &str) -> Faults {
    let mut faults = Faults::new();
    too_long(text, 253, "characters", &mut faults);
    if !is_subdomain(text) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// `IsDNS1123SubdomainWithUnderscore`.
pub(crate) fn loose_subdomain(text: &str) -> Faults {
    let mut faults = Faults::new();
    too_long(text, 253, "characters", &mut faults);
    let label = |text: &str| {
        let text = text.strip_prefix('_').unwrap_or(text);
        framed(text, lower, |c| c == b'-' || c == b'_')
    };
    if !text.split('.').all(label) {
        faults.push(LOOSE_SUBDOMAIN.to_owned());
    }
    faults
}

/// `IsDNS1035Label`.
pub(crate) fn dns_1035_label(text: &str) -> Faults {
    let mut faults = Faults::new();
    too_long(text, 63, "characters", &mut faults);
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(LABEL_1035.to_owned());
    }
    faults
}

/// `IsWildcardDNS1123Subdomain`.
pub(crate) fn wildcard_subdomain(text: &str) -> Faults {
    let mut faults = Faults::new();
    too_long(text, 253, "characters", &mut faults);
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        faults.push(WILDCARD.to_owned());
    }
    faults
}

/// `IsConfigMapKey`.
pub(crate) fn config_key(text: &str) -> Faults {
    let mut faults = Faults::new();
    too_long(text, 253, "characters", &mut faults);
    if text.is_empty() || !text.bytes().all(|c| alnum(c) || b"-._".contains(&c)) {
        faults.push(CONFIG_KEY.to_owned());
    }
    match text {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// `IsRelaxedEnvVarName`.
pub(crate) fn env_name(text: &str) -> Faults {
    if text.is_empty() || !text.bytes().all(|c| (0x20..=0x7e).contains(&c) && c != b'=') {
        return vec![
            "a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned(),
        ];
    }
    Faults::new()
}

/// `IsValidPortNum`.
pub(crate) fn port_number(port: i64) -> Faults {
    if (1..=65_535).contains(&port) {
        Faults::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".to_owned()]
    }
}

/// `IsValidPortName`.
pub(crate) fn port_name(text: &str) -> Faults {
    let mut faults = Faults::new();
    too_long(text, 15, "characters", &mut faults);
    if text.is_empty() || !text.bytes().all(|c| lower(c) || c == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|c| c.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// `IsValidPercent`.
pub(crate) fn percent(text: &str) -> Faults {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return vec![PERCENT.to_owned()];
    }
    Faults::new()
}

/// A name that still gets a suffix may end with a dash (`NameIsDNSSubdomain(name, true)`).
pub(crate) fn as_prefix(text: &str) -> Cow<'_, str> {
    match text.strip_suffix('-') {
        Some(rest) if text.len() > 1 => {
            let mut kept: String = rest.to_owned();
            kept.pop();
            kept.push('a');
            kept.into()
        }
        _ => text.into(),
    }
}

/// The errors of a path segment (`IsValidPathSegmentName`).
pub(crate) fn path_segment(text: &str, prefix: bool) -> Faults {
    if !prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|bad| text.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        type Check = fn(&str) -> Faults;
        let fine: [(Check, &[&str]); 5] = [
            (dns_label, &["a", "1", "a-1"]),
            (dns_subdomain, &["a", "a.b", "1.2-3"]),
            (dns_1035_label, &["a", "a1"]),
            (qualified_name, &["a", "A_b.c", "example.com/x"]),
            (label_value, &["", "A", "a.b_c-1"]),
        ];
        for (check, texts) in fine {
            for text in texts {
                assert_eq!(check(text), Faults::new(), "{text}");
            }
        }
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label("-a"), [LABEL]);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("").len(), 2);
        assert_eq!(qualified_name("a/b/c").len(), 1);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(as_prefix("a-"), "a");
        assert_eq!(as_prefix("ab-"), "aa");
    }
}
