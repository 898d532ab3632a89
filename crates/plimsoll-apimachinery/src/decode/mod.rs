//! Bytes to objects: JSON or YAML, field validation (Strict, Warn, Ignore) and the form the Go types give an
//! object on its way through the server.
//!
//! One walk over the body reads the text, drops and reports unknown and duplicate fields, checks JSON types and writes
//! every field the way its Go type would (see [`crate::schema::Presence`]). The same walk runs over objects already in
//! memory, such as the result of a patch: [`conform`].

mod custom;
pub mod depth;
mod embedded;
mod go_types;
pub(crate) mod syntax;
pub mod time;
mod typed;
mod walk;
mod yaml;

use serde::de::DeserializeSeed;
use serde_json::Value;

use self::walk::Walk;
use crate::error::ApiError;
use crate::gvk::Gvk;
use crate::kinds::Kind;

pub use go_types::{converter_error, zero_value};
pub use syntax::explain;
pub use yaml::{yaml, yaml_strict};

/// Text format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML, of which the first document counts.
    Yaml,
}

/// The handling of unknown and duplicate fields (query parameter `fieldValidation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, with a warning each.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object, with `apiVersion` and `kind`.
    pub object: Value,
    /// Texts for `Warning` headers: `unknown field "spec.x"`.
    pub warnings: Vec<String>,
}

/// The result of [`conform`].
#[derive(Clone, Debug, PartialEq)]
pub struct Conformed {
    /// The object.
    pub object: Value,
    /// Unknown and duplicate fields: `unknown field "spec.x"`.
    pub strict: Vec<String>,
}

/// The findings of a walk over a body.
#[derive(Debug, Default)]
struct Findings {
    object: Value,
    /// Unknown and duplicate fields, in order of appearance, at most [`MAX_STRICT`].
    strict: Vec<String>,
    /// Bytes of the paths that were looked at for that, those of the same field again and again among them.
    looked: usize,
    /// The first value of a wrong type, in Go's words.
    error: Option<String>,
    /// The first value that its own decoder can't read: Go's reads on after others, but not after this.
    fatal: Option<String>,
    /// As `error`, but in `apiVersion` or `kind`.
    meta_error: Option<String>,
}

/// Upstream reports this many unknown and duplicate fields.
const MAX_STRICT: usize = 100;
/// Most bytes of their paths: a body may have the same field a hundred thousand times under a key of a megabyte.
const MAX_LOOKED: usize = 16 << 20;

impl Findings {
    /// Whether another unknown or duplicate field is looked at, whose path has so many bytes. The first one always is.
    fn looks(&mut self, path: usize) -> bool {
        let looks = self.strict.len() < MAX_STRICT && self.looked < MAX_LOOKED;
        if looks {
            // Beside the path, it is compared with those before.
            self.looked += path + MAX_STRICT;
        }
        looks
    }
}

/// Decodes the body of a create or update.
///
/// # Errors
/// 400 with upstream's text when the body is malformed, of another kind, has values of a wrong type, or (when
/// strict) has unknown or duplicate fields.
pub fn decode(
    kind: &Kind,
    body: &[u8],
    format: Format,
    validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    let mut findings = parse(kind, body, format).map_err(|why| unrecognized(kind, &why, body))?;
    if let Some(why) = findings.meta_error.take() {
        let why = format!("couldn't get version/kind; json parse error: {why}");
        return Err(unrecognized(kind, &why, body));
    }
    let found = check_kind(kind, &mut findings.object, body).map_err(|e| match e {
        KindError::Malformed(why) => unrecognized(kind, &why, body),
        KindError::Refused(e) => *e,
    })?;
    if let Some(why) = findings.fatal.take().or(findings.error.take()) {
        return Err(cannot_be_handled(kind, &found, &why));
    }
    if validation == FieldValidation::Strict && !findings.strict.is_empty() {
        let why = format!("strict decoding error: {}", findings.strict.join(", "));
        return Err(cannot_be_handled(kind, &found, &why));
    }
    if kind.custom.is_some() && found.api_version() != kind.gvk.api_version() {
        return Err(other_version(kind, &found));
    }
    let warned = validation == FieldValidation::Warn;
    let warnings = if warned { as_warnings(&findings.strict) } else { Vec::new() };
    Ok(Decoded { object: findings.object, warnings })
}

/// Gives an object in memory the form its type has: unknown fields dropped and reported, zero fields dropped or
/// written out, quantities and times normalised. Does not touch `apiVersion` and `kind`.
///
/// # Errors
/// The first value of a wrong type, in Go's words.
pub fn conform(kind: &Kind, object: Value) -> Result<Conformed, String> {
    let findings = walk(kind, object).map_err(|e| e.to_string())?;
    match findings.meta_error.or(findings.fatal).or(findings.error) {
        Some(why) => Err(why),
        None => Ok(Conformed { object: findings.object, strict: findings.strict }),
    }
}

fn walk<'de, D>(kind: &Kind, deserializer: D) -> Result<Findings, D::Error>
where
    D: serde::Deserializer<'de>,
{
    match &kind.schema {
        Some(schema) if kind.custom.is_none() => {
            let mut walk = Walk::new(&schema.schemas);
            let object = walk.root(schema.root).deserialize(deserializer)?;
            Ok(Findings { object, ..walk.findings })
        }
        _ => custom::walk(kind, deserializer),
    }
}

fn parse(kind: &Kind, body: &[u8], format: Format) -> Result<Findings, String> {
    if format == Format::Json {
        return depth::read(body, depth::limit(), |deserializer| walk(kind, deserializer)).map_err(|e| {
            let why = syntax::explain(body).or_else(|| depth::explain(body)).unwrap_or_else(|| e.to_string());
            format!("couldn't get version/kind; json parse error: {why}")
        });
    }
    let (value, twice) = yaml_strict(body)?;
    let mut findings = walk(kind, value).map_err(|e| e.to_string())?;
    if !twice.is_empty() {
        findings.strict.insert(0, strict_yaml(&twice));
    }
    Ok(findings)
}

/// Fields that are there twice in a JSON text: `duplicate field "spec.x"`; none if it can't be read.
pub fn duplicates(body: &[u8]) -> Vec<String> {
    depth::read(body, depth::limit(), |deserializer| custom::duplicates(deserializer)).unwrap_or_default()
}

/// The error of a strict YAML reader for duplicate keys.
pub fn strict_yaml(twice: &[String]) -> String {
    format!("{}\n  {}", yaml::STRICT_LEAD, twice.join("\n  "))
}

/// Strict errors as warnings; each line of a YAML error is a warning of its own.
fn as_warnings(strict: &[String]) -> Vec<String> {
    let lines = strict.iter().flat_map(|error| match error.strip_prefix(yaml::STRICT_LEAD) {
        Some(lines) => lines.lines().map(str::trim).filter(|l| !l.is_empty()).collect(),
        None => vec![error.as_str()],
    });
    lines.map(str::to_owned).collect()
}

enum KindError {
    Malformed(String),
    Refused(Box<ApiError>),
}

/// Fills in a missing apiVersion or kind and refuses another one. Returns the group, version and kind of the body.
fn check_kind(kind: &Kind, object: &mut Value, body: &[u8]) -> Result<Gvk, KindError> {
    if object.is_null() {
        *object = Value::Object(serde_json::Map::new());
    }
    let want = &kind.gvk;
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, named) = (text("apiVersion"), text("kind"));
    let (mut group, mut version) = match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [version] => ("", *version),
        [group, version] => (*group, *version),
        _ => return Err(KindError::Malformed(format!("unexpected GroupVersion string: {api_version}"))),
    };
    if kind.custom.is_some() && named.is_empty() {
        let raw = String::from_utf8_lossy(body);
        return Err(KindError::Malformed(format!("Object 'Kind' is missing in '{raw}'")));
    }
    if version.is_empty() && kind.custom.is_none() {
        (group, version) = (&want.group, &want.version);
    }
    let named = if named.is_empty() { &want.kind } else { named };
    if (group, version, named) == ("policy", "v1beta1", "Eviction") {
        // `policy/v1beta1` is equivalent and still accepted for evictions.
        version = "v1";
    }
    let found = Gvk { group: group.to_owned(), version: version.to_owned(), kind: named.to_owned() };
    if kind.custom.is_some() {
        // Another version is refused later, and another kind much later.
        return Ok(found);
    }
    if found != *want {
        return Err(KindError::Refused(Box::new(other_kind(kind, &found))));
    }
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::String(want.api_version()));
        map.insert("kind".to_owned(), Value::String(want.kind.clone()));
    }
    Ok(found)
}

fn other_version(kind: &Kind, found: &Gvk) -> ApiError {
    ApiError::bad_request(format!(
        "the API version in the data ({}) does not match the expected API version ({})",
        found.api_version(),
        kind.gvk.api_version()
    ))
}

fn other_kind(kind: &Kind, found: &Gvk) -> ApiError {
    let want = &kind.gvk;
    let table = crate::builtin::is_registered(found);
    let same = found.kind == want.kind && table;
    if same {
        return other_version(kind, found);
    }
    let why = if table {
        format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            found.version,
            found.kind,
            internal_package(&want.group, &want.kind),
            want.kind
        )
    } else {
        format!(
            "no kind \"{}\" is registered for version \"{}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            found.kind,
            found.api_version()
        )
    };
    cannot_be_handled(kind, found, &why)
}

/// The Go package of a group's internal types, as it shows in messages.
pub(crate) fn internal_package<'a>(group: &'a str, kind: &str) -> &'a str {
    match group {
        "" | "events.k8s.io" if kind != "Scale" => "core",
        other => other.split('.').next().unwrap_or(other),
    }
}

fn cannot_be_handled(kind: &Kind, found: &Gvk, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {why}",
        found.kind, found.version, kind.gvk.kind
    ))
}

/// 400 for a body that isn't even an object of some kind.
pub fn unrecognized(kind: &Kind, why: &str, body: &[u8]) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        kind.gvk.kind,
        summary(body)
    ))
}

/// A value as Go's messages about JSON name it.
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The first 30 bytes of a body: verbatim when it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const MAX: usize = 30;
    let head = body.get(..MAX).unwrap_or(body);
    let more = if body.len() > MAX { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let hex: String = head.iter().map(|b| format!("{b:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

#[cfg(test)]
mod tests;
