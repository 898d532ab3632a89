//! Named formats of strings and what is wrong with a string that doesn't have one (`k8s.io/apiserver/pkg/cel/library`,
//! `format.go`).

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use kube_cel::cel::Value;
use kube_cel::cel::objects::Opaque;
use regex::Regex;

use super::format::quoted;
use crate::url::Url;
use crate::value;

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const PARTS: &str = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// A format as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format(&'static str);

impl Opaque for Format {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }
}

/// `format.uri()` and the like, `format.named(name)`; `None`: there is no such function.
pub(super) fn call(name: &str, args: &[Value]) -> Option<Value> {
    let named = |name: &str| {
        let name = NAMES.into_iter().find(|known| *known == name)?;
        Some(Value::Opaque(Arc::new(Format(name))))
    };
    match (name, args) {
        ("named", [Value::String(name)]) => Some(value::optional(named(name.as_str()))),
        (name, []) => named(name),
        _ => None,
    }
}

impl Format {
    /// What is wrong with a text, as an optional list.
    pub(super) fn validate(self, text: &str) -> Value {
        let faults: Vec<Value> = self.faults(text).into_iter().map(Value::from).collect();
        value::optional((!faults.is_empty()).then(|| Value::List(Arc::new(faults))))
    }

    fn faults(self, text: &str) -> Vec<String> {
        let unless = |right: bool, fault: &str| if right { Vec::new() } else { vec![fault.to_owned()] };
        match self.0 {
            "dns1123Label" => label(text),
            "dns1123LabelPrefix" => label(&masked(text)),
            "dns1123Subdomain" => subdomain(text),
            "dns1123SubdomainPrefix" => subdomain(&masked(text)),
            "dns1035Label" => label_1035(text),
            "dns1035LabelPrefix" => label_1035(&masked(text)),
            "qualifiedName" => qualified_name(text),
            "labelValue" => label_value(text),
            "uri" => match Url::check(text) {
                Ok(()) => Vec::new(),
                Err(why) => vec![format!("parse {}: {why}", quoted(text))],
            },
            "uuid" => unless(matches(&UUID, text), "does not match the UUID format"),
            "byte" => unless(matches(&BASE64, text), "invalid base64"),
            "date" => unless(is_date(text), "invalid date"),
            _ => unless(is_datetime(text), "invalid datetime"),
        }
    }
}

/// A name that still gets a suffix may end with a dash (`maskTrailingDash`).
fn masked(text: &str) -> Cow<'_, str> {
    match text.strip_suffix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => {
            let mut kept = rest.to_owned();
            kept.pop();
            kept.push('a');
            kept.into()
        }
        None => text.into(),
    }
}

/// Letters and digits at both ends, `inner` allowed between them.
fn framed(text: &str, edge: fn(u8) -> bool, inner: &[u8]) -> bool {
    let ends = |b: Option<u8>| b.is_some_and(edge);
    ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|b| edge(b) || inner.contains(&b))
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn alphanumeric(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|part| framed(part, lower, b"-"))
}

fn too_long(text: &str, most: usize, unit: &str) -> Vec<String> {
    if text.len() > most { vec![format!("must be no more than {most} {unit}")] } else { Vec::new() }
}

fn label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "characters");
    if !framed(text, lower, b"-") {
        faults.push(if is_subdomain(text) { "must not contain dots" } else { LABEL }.to_owned());
    }
    faults
}

fn subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253, "characters");
    if !is_subdomain(text) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

fn label_1035(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "characters");
    if !framed(text, lower, b"-") || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(LABEL_1035.to_owned());
    }
    faults
}

fn qualified_name(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key must consist of {PARTS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            faults.extend(too_long(prefix, 253, "bytes").iter().map(|fault| format!("prefix part {fault}")));
            if !is_subdomain(prefix) {
                faults.push(format!("prefix part {SUBDOMAIN}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(too_long(name, 63, "bytes").iter().map(|fault| format!("name part {fault}")));
    if !framed(name, alphanumeric, b"-_.") {
        faults.push(format!("name part must consist of {PARTS}"));
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "bytes");
    if !text.is_empty() && !framed(text, alphanumeric, b"-_.") {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

type Pattern = LazyLock<Option<Regex>>;

static UUID: Pattern = LazyLock::new(|| {
    Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok()
});
static BASE64: Pattern = LazyLock::new(|| {
    Regex::new("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$").ok()
});
static TIME: Pattern = LazyLock::new(|| {
    Regex::new("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
});

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|p| p.is_match(text))
}

fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut number = |digits: usize| {
        let part = parts.next()?;
        let right = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        right.then(|| part.parse::<i16>().ok())?
    };
    let (year, month, day) = (number(4), number(2), number(2));
    let (Some(year), Some(month), Some(day), None) = (year, month, day, parts.next()) else { return false };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else { return false };
    jiff::civil::Date::new(year, month, day).is_ok()
}

fn is_datetime(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.as_ref().and_then(|p| p.captures(time)) else { return false };
    let at_most = |group: usize, most: &str| found.get(group).is_some_and(|m| m.as_str() <= most);
    is_date(date) && at_most(1, "23") && at_most(2, "59") && at_most(3, "59")
}
