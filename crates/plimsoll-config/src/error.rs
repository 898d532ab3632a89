//! Why a configuration file can't be used.

use serde_json::Value;

/// Configuration files and the flags that take them: kind, API version up to the slash, flag.
const FLAGS: [(&str, &str, &str); 6] = [
    ("Configuration", "config.kueue.x-k8s.io", "--config"),
    ("KubeSchedulerConfiguration", "kubescheduler.config.k8s.io", "--scheduler-config"),
    ("Policy", "audit.k8s.io", "--audit-policy-file"),
    ("Node", "v1", "--nodes-file"),
    ("NodeList", "v1", "--nodes-file"),
    ("Config", "v1", "--kubeconfig"),
];

/// The flag that takes files of a kind, if one does.
pub fn flag_of(kind: &str, version: &str) -> Option<&'static str> {
    let group = version.split('/').next().unwrap_or_default();
    FLAGS.iter().find(|(k, g, _)| *k == kind && *g == group).map(|(.., flag)| *flag)
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is neither YAML nor JSON, or a key is there twice.
    #[error("error converting YAML to JSON: {0}")]
    Syntax(String),
    /// It is another kind or version.
    #[error("{}", kind_message(.kind, .version, .expected))]
    Kind {
        /// Kind that was found.
        kind: String,
        /// Version that was found.
        version: String,
        /// Kinds and versions that are read here.
        expected: &'static str,
    },
    /// Fields and values that are refused, one text each that begins with the path of the field.
    #[error("{}", list(.0))]
    Invalid(Vec<String>),
}

/// In upstream's words (`k8s.io/apimachinery/pkg/runtime` errors), and where the file belongs.
fn kind_message(kind: &str, version: &str, expected: &str) -> String {
    let found = match (kind, version) {
        ("", _) => "Object 'Kind' is missing".to_owned(),
        (_, "") => "Object 'apiVersion' is missing".to_owned(),
        _ => format!("no kind {kind:?} is registered for version {version:?}"),
    };
    match flag_of(kind, version) {
        Some(flag) if !expected.starts_with(kind) => {
            format!("{found}: this file belongs to {flag}; expected {expected}")
        }
        _ => format!("{found}: expected {expected}"),
    }
}

/// One error in its line, several in a line each.
pub(super) fn list(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("{} errors:\n  {}", many.len(), many.join("\n  ")),
    }
}

/// Fails unless a file is of the kind and one of the versions. `expected` begins with the kind and says which files
/// are meant.
///
/// # Errors
/// [`ConfigError::Kind`].
pub fn check_kind(
    value: &Value,
    kind: &str,
    versions: &[&str],
    expected: &'static str,
) -> Result<(), ConfigError> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") == kind && versions.contains(&text("apiVersion")) {
        return Ok(());
    }
    let (kind, version) = (text("kind").to_owned(), text("apiVersion").to_owned());
    Err(ConfigError::Kind { kind, version, expected })
}

/// `Unsupported value: "x": supported values: "a", "b"` (apimachinery's `field.NotSupported`).
pub fn unsupported(value: &str, supported: &[&str]) -> String {
    plimsoll_scheduler::framework::ArgsError::not_supported("", value, supported).message
}

/// The name that was meant, where one is close: other case, or one or two letters wrong.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = word.to_lowercase();
    let (distance, name) = names
        .into_iter()
        .map(|name| (strsim::osa_distance(&folded, &name.to_lowercase()), name))
        .min_by_key(|(distance, _)| *distance)?;
    let most = if word.len() < 5 { 1 } else { 2 };
    (distance <= most).then_some(name)
}
