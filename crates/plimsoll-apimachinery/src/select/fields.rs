//! Field selectors: the syntax of apimachinery's `fields`, and the selectable fields of each kind.

use serde_json::Value;

use crate::error::ApiError;
use crate::kinds::Kind;

/// One requirement: a field equals a value, or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Field, in the name used for matching (`regarding.name` has become `involvedObject.name`).
    pub field: String,
    /// Value.
    pub value: String,
    /// `!=`.
    pub negated: bool,
}

/// A parsed field selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// Requirements, sorted by text as upstream does.
    pub requirements: Vec<FieldRequirement>,
    family: Family,
}

/// Kinds whose fields are computed, not read at the path of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Family {
    #[default]
    Plain,
    Pod,
    Event,
}

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// The error of a kind for a field that isn't selectable.
#[derive(Clone, Copy)]
enum Refusal {
    /// `field label not supported: X`
    Short,
    /// `field label "X" not supported for Job`
    Quoted,
    /// `field label not supported for G/V, Kind=K: X`
    Long,
    /// `"X" is not a known field selector: only "metadata.name", "metadata.namespace"`
    Default,
}

/// Selectable fields of built-in kinds (the `AddFieldLabelConversionFunc`s of pkg/apis): group, kind, error, fields as
/// (name in the request, name for matching; empty: equal).
type Row = (&'static str, &'static str, Refusal, &'static [(&'static str, &'static str)]);

const TABLE: &[Row] = &[
    (
        "",
        "Pod",
        Refusal::Short,
        &[
            (NAME, ""),
            (NAMESPACE, ""),
            ("spec.nodeName", ""),
            ("spec.restartPolicy", ""),
            ("spec.schedulerName", ""),
            ("spec.serviceAccountName", ""),
            ("spec.hostNetwork", ""),
            ("status.phase", ""),
            ("status.podIP", ""),
            ("status.podIPs", ""),
            ("status.nominatedNodeName", ""),
            ("spec.host", "spec.nodeName"),
        ],
    ),
    ("", "Node", Refusal::Short, &[(NAME, ""), ("spec.unschedulable", "")]),
    ("", "Namespace", Refusal::Short, &[(NAME, ""), ("status.phase", "")]),
    ("", "Secret", Refusal::Short, &[(NAME, ""), (NAMESPACE, ""), ("type", "")]),
    (
        "",
        "Service",
        Refusal::Short,
        &[(NAME, ""), (NAMESPACE, ""), ("spec.clusterIP", ""), ("spec.type", "")],
    ),
    ("", "ReplicationController", Refusal::Short, &[(NAME, ""), (NAMESPACE, ""), ("status.replicas", "")]),
    (
        "",
        "Event",
        Refusal::Short,
        &[
            (NAME, ""),
            (NAMESPACE, ""),
            ("involvedObject.kind", ""),
            ("involvedObject.namespace", ""),
            ("involvedObject.name", ""),
            ("involvedObject.uid", ""),
            ("involvedObject.apiVersion", ""),
            ("involvedObject.resourceVersion", ""),
            ("involvedObject.fieldPath", ""),
            ("reason", ""),
            ("reportingComponent", ""),
            ("source", ""),
            ("type", ""),
        ],
    ),
    (
        "events.k8s.io",
        "Event",
        Refusal::Short,
        &[
            (NAME, ""),
            (NAMESPACE, ""),
            ("regarding.kind", "involvedObject.kind"),
            ("regarding.namespace", "involvedObject.namespace"),
            ("regarding.name", "involvedObject.name"),
            ("regarding.uid", "involvedObject.uid"),
            ("regarding.apiVersion", "involvedObject.apiVersion"),
            ("regarding.resourceVersion", "involvedObject.resourceVersion"),
            ("regarding.fieldPath", "involvedObject.fieldPath"),
            ("reason", ""),
            ("reportingController", "reportingComponent"),
            ("type", ""),
        ],
    ),
    (
        "batch",
        "Job",
        Refusal::Quoted,
        &[(NAME, ""), (NAMESPACE, ""), ("status.successful", "status.succeeded")],
    ),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        Refusal::Short,
        &[(NAME, ""), ("spec.signerName", "")],
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        Refusal::Long,
        &[(NAME, ""), ("spec.nodeName", ""), ("spec.driver", "")],
    ),
];

impl FieldSelector {
    /// Parses `a=b,c==d,e!=f`; `\` escapes `,`, `=` and itself in values.
    ///
    /// # Errors
    /// 400 for bad syntax and for fields the kind can't be selected by.
    pub fn parse(kind: &Kind, text: &str) -> Result<Self, ApiError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut requirements = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let Some((field, negated, value)) = split_term(part) else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let value = unescape(value).map_err(ApiError::bad_request)?;
            if field.is_empty() && value.is_empty() {
                continue;
            }
            requirements.push((field, value, negated));
        }
        let requirements = requirements
            .into_iter()
            .map(|(field, value, negated)| {
                Ok(FieldRequirement { field: convert(kind, field)?, value, negated })
            })
            .collect::<Result<_, String>>()
            .map_err(ApiError::bad_request)?;
        let family = match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
            ("", "Pod") => Family::Pod,
            ("" | "events.k8s.io", "Event") => Family::Event,
            _ => Family::Plain,
        };
        Ok(Self { requirements, family })
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the selector uses a field other than name and namespace.
    pub fn needs_object(&self) -> bool {
        self.requirements.iter().any(|r| r.field != NAME && r.field != NAMESPACE)
    }

    /// The value that the selector requires of a field; `None`: it doesn't require exactly one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.field == field && !r.negated).map(|r| r.value.as_str())
    }

    /// Whether the requirements on name and namespace hold; other requirements are ignored.
    pub fn matches_name(&self, name: &str, namespace: &str) -> bool {
        self.requirements.iter().all(|r| match r.field.as_str() {
            NAME => (r.value == name) != r.negated,
            NAMESPACE => (r.value == namespace) != r.negated,
            _ => true,
        })
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements.iter().all(|r| self.value_is(object, &r.field, &r.value) != r.negated)
    }

    fn value_is(&self, object: &Value, field: &str, want: &str) -> bool {
        let at = |path: &str| get(object, path);
        let first =
            |paths: &[&str]| paths.iter().map(|p| text(at(p))).find(|t| !t.is_empty()).unwrap_or_default();
        match (self.family, field) {
            (Family::Pod, "status.podIP") => {
                let ip = match at("status.podIPs").and_then(|ips| ips.get(0)) {
                    Some(first) => text(first.get("ip")),
                    None => text(at("status.podIP")),
                };
                ip == want
            }
            // Upstream accepts the field but never fills it.
            (Family::Pod, "status.podIPs") => want.is_empty(),
            (Family::Event, "source") => {
                first(&[
                    "source.component",
                    "deprecatedSource.component",
                    "reportingComponent",
                    "reportingController",
                ]) == want
            }
            (Family::Event, "reportingComponent") => {
                first(&["reportingComponent", "reportingController"]) == want
            }
            (Family::Event, f) if f.starts_with("involvedObject.") => {
                let tail = f.trim_start_matches("involvedObject.");
                first(&[f, &format!("regarding.{tail}")]) == want
            }
            (_, f) => match at(f) {
                Some(value) => text(Some(value)) == want,
                None => missing(f) == want,
            },
        }
    }
}

/// Go's text for the zero value of a field.
fn missing(field: &str) -> &'static str {
    match field {
        "spec.hostNetwork" | "spec.unschedulable" => "false",
        "status.succeeded" | "status.replicas" => "0",
        _ => "",
    }
}

fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, key| value.get(key)).filter(|v| !v.is_null())
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Bool(b)) => b.to_string(),
        Some(Value::Number(n)) => n.to_string(),
        _ => String::new(),
    }
}

/// Checks that the kind can be selected by a field and gives the field its name for matching.
fn convert(kind: &Kind, field: &str) -> Result<String, String> {
    if let Some(custom) = &kind.custom {
        let known = field == NAME
            || (kind.namespaced && field == NAMESPACE)
            || custom.selectable_fields.iter().any(|path| path.trim_start_matches('.') == field);
        return if known { Ok(field.to_owned()) } else { Err(format!("field label not supported: {field}")) };
    }
    let row = TABLE.iter().find(|(g, k, ..)| *g == kind.gvk.group && *k == kind.gvk.kind);
    let (refusal, fields) =
        row.map_or((Refusal::Default, &[(NAME, ""), (NAMESPACE, "")][..]), |r| (r.2, r.3));
    if let Some((name, inner)) = fields.iter().find(|(name, _)| *name == field) {
        return Ok((*if inner.is_empty() { name } else { inner }).to_owned());
    }
    Err(match refusal {
        Refusal::Short => format!("field label not supported: {field}"),
        Refusal::Quoted => format!("field label \"{field}\" not supported for {}", kind.gvk.kind),
        Refusal::Long => {
            format!(
                "field label not supported for {}, Kind={}: {field}",
                kind.gvk.api_version(),
                kind.gvk.kind
            )
        }
        Refusal::Default => {
            format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                crate::go::go_quote(field)
            )
        }
    })
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.extend(text.get(start..i));
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.extend(text.get(start..));
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(i, _)| {
        let (left, rest) = term.split_at(i);
        let operators = [("!=", true), ("==", false), ("=", false)];
        operators.iter().find_map(|(op, negated)| rest.strip_prefix(op).map(|right| (left, *negated, right)))
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => {
                    return Err(format!("invalid field selector: invalid escape sequence: \\{next}"));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}
