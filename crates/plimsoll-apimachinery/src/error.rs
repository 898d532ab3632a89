//! Errors as the Kubernetes API shows them: `metav1.Status`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::go::{escape_html, go_number, go_quote, normalise_numbers};

/// One entry of `details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueRequired`.
    pub reason: String,
    /// Text.
    pub message: String,
    /// Path of the field, possibly empty.
    pub field: String,
}

/// `status.details`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its resource (or kind, for invalid objects).
    pub kind: String,
    /// Its UID.
    pub uid: String,
    /// Causes.
    pub causes: Vec<Cause>,
    /// Seconds after which the client may try again; 0: none given.
    pub retry_after_seconds: u32,
}

/// An answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub code: u16,
    /// `NotFound`, `AlreadyExists`, `Invalid`, …; possibly empty.
    pub reason: String,
    /// Text.
    pub message: String,
    /// Details, when there are any.
    pub details: Option<Box<Details>>,
    /// The continue token of an expired list (`metadata.continue`); else empty.
    pub continue_token: String,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            continue_token: String::new(),
        }
    }

    /// 400 `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500 `InternalError`, worded as upstream: `Internal error occurred: …`.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let mut e = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        e.details = Some(Box::new(Details {
            causes: vec![Cause { message: message.to_string(), ..Cause::default() }],
            ..Details::default()
        }));
        e
    }

    /// 404 `NotFound`: `pods "x" not found`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::named(404, "NotFound", group, resource, name, "not found")
    }

    /// 409 `AlreadyExists`: `pods "x" already exists`.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::named(409, "AlreadyExists", group, resource, name, "already exists")
    }

    /// 409 `AlreadyExists` for an object that asks for a generated name (`NewGenerateNameConflict`).
    pub fn generated_name_exists(group: &str, resource: &str, name: &str) -> Self {
        let what = "already exists, the server was not able to generate a unique name for the object";
        let mut e = Self::named(409, "AlreadyExists", group, resource, name, what);
        if let Some(details) = &mut e.details {
            details.retry_after_seconds = 1;
        }
        e
    }

    /// 409 `Conflict`: `Operation cannot be fulfilled on pods "x": …`.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let mut e = Self::named(409, "Conflict", group, resource, name, "");
        e.message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, resource));
        e
    }

    /// 422 `Invalid` for an object of a kind: `Pod "x" is invalid: [a, b]`.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // The message contains each text once, the causes contain every occurrence.
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        let mut seen = BTreeSet::new();
        for text in errors.iter().map(ToString::to_string) {
            if seen.insert(text.clone()) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        Self {
            code: 422,
            reason: "Invalid".to_owned(),
            message: format!("{} \"{name}\" is invalid: {list}", qualified(group, kind)),
            details: Some(Box::new(Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: kind.to_owned(),
                causes: errors.iter().map(FieldError::cause).collect(),
                ..Details::default()
            })),
            continue_token: String::new(),
        }
    }

    fn named(code: u16, reason: &str, group: &str, resource: &str, name: &str, what: &str) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: format!("{} \"{name}\" {what}", qualified(group, resource)),
            details: Some(Box::new(Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: resource.to_owned(),
                ..Details::default()
            })),
            continue_token: String::new(),
        }
    }

    /// The `Status` object of the answer.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(d) = &self.details {
            status["details"] = d.to_value();
        }
        if !self.continue_token.is_empty() {
            status["metadata"]["continue"] = json!(self.continue_token);
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut v = json!({});
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                v[key] = json!(text);
            }
        }
        if !self.causes.is_empty() {
            v["causes"] = self.causes.iter().map(Cause::to_value).collect();
        }
        if self.retry_after_seconds > 0 {
            v["retryAfterSeconds"] = json!(self.retry_after_seconds);
        }
        v
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut v = json!({});
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                v[key] = json!(text);
            }
        }
        v
    }
}

fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// A value in a message: texts quoted, objects and lists as Go writes JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Object(_) | Value::Array(_) => {
            let mut value = value.clone();
            normalise_numbers(&mut value);
            escape_html(&value.to_string())
        }
        Value::Number(n) if !n.is_i64() => go_number(n.as_f64().unwrap_or_default()),
        plain => plain.to_string(),
    }
}

/// The kind of a field error (apimachinery `field.ErrorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// It is missing.
    Required,
    /// The value is a duplicate.
    Duplicate,
    /// Its value is wrong.
    Invalid,
    /// The value is not one of the supported ones.
    NotSupported,
    /// It may not be set.
    Forbidden,
    /// It is longer than allowed.
    TooLong,
    /// It has more elements than allowed.
    TooMany,
    /// It refers to something that isn't there.
    NotFound,
    /// It has the wrong type.
    TypeInvalid,
    /// Something failed inside.
    Internal,
}

/// An error about one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The kind of error.
    pub kind: FieldErrorKind,
    /// Path: `spec.containers[0].name`.
    pub field: String,
    /// The value as the message shows it (`"x"`, `5`, `core.Foo{…}`); `None`: the message shows no value.
    pub value: Option<String>,
    /// Text after the value.
    pub detail: String,
}

impl FieldError {
    /// `field: Required value: detail`.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Required, field: field.into(), value: None, detail: detail.into() }
    }

    /// `field: Forbidden: detail`.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Forbidden, field: field.into(), value: None, detail: detail.into() }
    }

    /// `field: Invalid value: <JSON of value>: detail`.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Invalid,
            field: field.into(),
            value: Some(shown(value)),
            detail: detail.into(),
        }
    }

    /// `field: Duplicate value: <JSON of value>`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            kind: FieldErrorKind::Duplicate,
            field: field.into(),
            value: Some(shown(value)),
            detail: String::new(),
        }
    }

    /// `field: Unsupported value: <value>: supported values: "a", "b"`.
    pub fn not_supported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let list: Vec<String> = allowed.iter().map(|a| format!("\"{a}\"")).collect();
        Self {
            kind: FieldErrorKind::NotSupported,
            field: field.into(),
            value: Some(shown(value)),
            detail: format!("supported values: {}", list.join(", ")),
        }
    }

    /// The machine-readable reason of the cause.
    pub const fn reason(&self) -> &'static str {
        match self.kind {
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorKind::Internal => "InternalError",
        }
    }

    /// The message without the field.
    pub fn body(&self) -> String {
        let head = match self.kind {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Internal => "Internal error",
        };
        let mut text = head.to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    fn cause(&self) -> Cause {
        Cause { reason: self.reason().to_owned(), message: self.body(), field: self.field.clone() }
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}
