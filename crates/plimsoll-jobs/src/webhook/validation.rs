//! Field errors in apimachinery's words, and rules for fields that several webhooks have.

use plimsoll_api::kueue::DEPENDS_ON;
use plimsoll_api::windows::RUN_WINDOW;
use plimsoll_api::{content, json};
use serde_json::Value;

use crate::names;
use crate::pod_view::Identifiers;

/// Detail of a negative amount.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

/// Field errors of an object (`field.ErrorList`).
#[derive(Debug, Default)]
pub(crate) struct ErrorList(Vec<String>);

/// Path of a label.
pub(crate) fn label_path(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

/// Path of an annotation.
pub(crate) fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

impl ErrorList {
    /// `Invalid value`. Texts are shown in quotes, as JSON shows them.
    pub fn invalid(&mut self, path: &str, value: impl Into<Value>, detail: &str) {
        self.0.push(format!("{path}: Invalid value: {}: {detail}", value.into()));
    }

    /// `Invalid value`, without the value (`field.OmitValueType`).
    pub fn invalid_whole(&mut self, path: &str, detail: &str) {
        self.0.push(format!("{path}: Invalid value: {detail}"));
    }

    /// `Forbidden`.
    pub fn forbidden(&mut self, path: &str, detail: &str) {
        self.0.push(format!("{path}: Forbidden: {detail}"));
    }

    /// `Required value`.
    pub fn required(&mut self, path: &str, detail: &str) {
        self.0.push(format!("{path}: Required value: {detail}"));
    }

    /// `Duplicate value`.
    pub fn duplicate(&mut self, path: &str, value: &str) {
        self.0.push(format!("{path}: Duplicate value: {}", Value::from(value)));
    }

    /// `Duplicate value` of an object, which is shown as this JSON.
    pub fn duplicate_object(&mut self, path: &str, shown: &str, detail: &str) {
        self.0.push(format!("{path}: Duplicate value: {shown}: {detail}"));
    }

    /// `Not found`.
    pub fn not_found(&mut self, path: &str, value: &str) {
        self.0.push(format!("{path}: Not found: {}", Value::from(value)));
    }

    /// `Unsupported value`; without supported ones it names none (apimachinery's `field.NotSupported`).
    pub fn not_supported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let mut text = format!("{path}: Unsupported value: {}", Value::from(value));
        if !supported.is_empty() {
            text.push_str(&format!(": supported values: {}", supported.join(", ")));
        }
        self.0.push(text);
    }

    /// `ValidateLabelName`: the key of a label, a taint or a toleration.
    pub fn label_key(&mut self, path: &str, key: &str) {
        for fault in content::label_key(key) {
            self.invalid(path, key, &fault);
        }
    }

    /// The value of a label.
    pub fn label_value(&mut self, path: &str, value: &str) {
        for fault in content::label_value(value) {
            self.invalid(path, value, &fault);
        }
    }

    /// `ValidateLabels`: all keys and values of a map.
    pub fn labels(&mut self, path: &str, labels: &Value) {
        for (key, value) in labels.as_object().into_iter().flatten() {
            self.label_key(path, key);
            self.label_value(path, value.as_str().unwrap_or_default());
        }
    }

    /// `ValidateAnnotations`: all keys of a map, in lower case, and its size.
    pub fn annotations(&mut self, path: &str, annotations: &Value) {
        const MOST: usize = 256 << 10;
        let mut size = 0;
        for (key, value) in annotations.as_object().into_iter().flatten() {
            for fault in content::label_key(&key.to_lowercase()) {
                self.invalid(path, key.as_str(), &fault);
            }
            size += key.len() + value.as_str().map_or(0, str::len);
        }
        if size > MOST {
            self.too_long(path, MOST);
        }
    }

    /// `Too long`, of a text.
    pub fn too_long(&mut self, path: &str, most: usize) {
        self.0.push(format!("{path}: Too long: may not be more than {most} bytes"));
    }

    /// `Too many`, of a list.
    pub fn too_many(&mut self, path: &str, actual: usize, most: usize) {
        self.0.push(format!("{path}: Too many: {actual}: must have at most {most} items"));
    }

    /// `field is immutable`, when the two differ.
    pub fn immutable(&mut self, path: &str, new: impl Into<Value>, old: impl Into<Value>) {
        let new = new.into();
        if new != old.into() {
            self.invalid(path, new, "field is immutable");
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors with more detail.
    #[must_use]
    pub fn with_suffix(mut self, text: &str) -> Self {
        self.0.iter_mut().for_each(|error| error.push_str(text));
        self
    }

    /// Appends other errors.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// All errors as one message (`utilerrors.Aggregate`), or `None`.
    pub fn into_message(self) -> Option<String> {
        let mut seen: Vec<String> = Vec::new();
        for error in self.0 {
            if !seen.contains(&error) {
                seen.push(error);
            }
        }
        match seen.len() {
            0 => None,
            1 => seen.pop(),
            _ => Some(format!("[{}]", seen.join(", "))),
        }
    }
}

/// A text that must be a name: a DNS subdomain (RFC 1123). All faults are one error, as in Kueue.
fn name(path: &str, text: &str, errors: &mut ErrorList) {
    let faults = content::subdomain(text);
    if !faults.is_empty() {
        errors.invalid(path, text, &faults.join(","));
    }
}

/// A label whose value must be a name.
pub(crate) fn name_label(object: &Value, key: &str, errors: &mut ErrorList) {
    if let Some(value) = json::label_opt(object, key) {
        name(&label_path(key), value, errors);
    }
}

/// The path of the name of a group or workload (Kueue `GetPrebuiltWorkloadPath`, `getGroupNamePath`).
pub(crate) fn identifier_path(object: &Value, key: &str, identifiers: Identifiers) -> String {
    if identifiers.prefers_annotation(object, key) { annotation_path(key) } else { label_path(key) }
}

/// The name of a group or workload must be a name (Kueue `ValidatePrebuiltWorkloadName`, `validatePodGroupName`).
pub(crate) fn identifier(object: &Value, key: &str, identifiers: Identifiers, errors: &mut ErrorList) {
    let annotated = identifiers.prefers_annotation(object, key);
    let value = if annotated { json::annotation(object, key) } else { json::label_opt(object, key) };
    if let Some(value) = value {
        name(&identifier_path(object, key, identifiers), value, errors);
    }
}

/// `strconv.Atoi`, with Go's error message.
pub(crate) fn atoi(text: &str) -> Result<i64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let quoted = Value::from(text);
    text.parse::<i64>().map_err(|e| match e.kind() {
        PosOverflow | NegOverflow => format!("strconv.Atoi: parsing {quoted}: value out of range"),
        _ => format!("strconv.Atoi: parsing {quoted}: invalid syntax"),
    })
}

/// All rules for a RunWindow.
pub(crate) fn run_window(object: &Value) -> ErrorList {
    let mut errors = ErrorList::default();
    for problem in plimsoll_api::windows::problems(object) {
        errors.invalid(&problem.field, problem.value, &problem.detail);
    }
    errors
}

/// The annotation that names a RunWindow has to be a name.
pub(crate) fn named_window(object: &Value, errors: &mut ErrorList) {
    if let Some(text) = json::annotation(object, RUN_WINDOW) {
        name(&annotation_path(RUN_WINDOW), text, errors);
    }
}

/// The list of dependencies has to be well-formed.
pub(crate) fn depends_on(object: &Value, errors: &mut ErrorList) {
    let Some(text) = json::annotation(object, DEPENDS_ON) else { return };
    if let Err(detail) = plimsoll_api::kueue::depends_on(text) {
        errors.invalid(&annotation_path(DEPENDS_ON), text, &detail);
    }
}

/// A priority class may change; one is added while a job is suspended, and never removed (Kueue
/// `ValidateUpdateForWorkloadPriorityClassName`).
pub(crate) fn priority_class(suspended: bool, old: &Value, new: &Value, errors: &mut ErrorList) {
    let (path, key) = (label_path(names::PRIORITY_CLASS), names::PRIORITY_CLASS);
    match (json::label(old, key), json::label(new, key)) {
        ("", after) if !after.is_empty() && !suspended => {
            errors.invalid(&path, after, "WorkloadPriorityClass cannot be added to a non-suspended workload");
        }
        (before, "") if !before.is_empty() => {
            errors.invalid(&path, "", "WorkloadPriorityClass cannot be removed from a workload");
        }
        _ => {}
    }
}

/// A quantity, as text or as a number; `None`: the schema refuses it.
pub(crate) fn quantity(value: &Value) -> Option<plimsoll_api::Quantity> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().ok()
}

/// The keys of `tolerations` (Kueue `validateTolerations`).
pub(crate) fn tolerations(object: &Value, at: &str, errors: &mut ErrorList) {
    for (i, toleration) in json::list(object, &["tolerations"]).iter().enumerate() {
        let key = json::text(toleration, &["key"]);
        if !key.is_empty() {
            errors.label_key(&format!("{at}[{i}].key"), key);
        }
    }
}
