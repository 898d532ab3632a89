//! Paths of fields in errors, built without allocating until an error needs the text.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::checks::{self, Faults};
use crate::error::{FieldError, FieldErrorKind};

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

/// A field's path: `spec.containers[0].resources.limits[cpu]`.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

impl<'a> Path<'a> {
    /// A top-level field. An empty name is the object itself.
    pub fn new(name: &'a str) -> Self {
        Self { parent: None, step: Step::Field(name) }
    }

    /// A field of this one.
    pub fn field(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Field(name) }
    }

    /// An element of this list.
    pub fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of this map.
    pub fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = match self.parent {
            Some(parent) => {
                parent.fmt(f)?;
                matches!(parent, Path { parent: None, step: Step::Field("") })
            }
            None => true,
        };
        match self.step {
            Step::Field(name) if root => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Index(i) => write!(f, "[{i}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Errors found so far.
#[derive(Default)]
pub(crate) struct Errors(pub Vec<FieldError>);

impl Errors {
    #[cold]
    #[inline(never)]
    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.0.push(FieldError::required(path.to_string(), detail));
    }

    #[cold]
    #[inline(never)]
    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.0.push(FieldError::forbidden(path.to_string(), detail));
    }

    #[cold]
    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: &str) {
        self.invalid_value(path, &value.into(), detail);
    }

    #[cold]
    #[inline(never)]
    fn invalid_value(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        self.0.push(FieldError::invalid(path.to_string(), value, detail));
    }

    /// One error for each text.
    pub fn invalid_all(&mut self, path: &Path<'_>, value: &str, details: &[String]) {
        for detail in details {
            self.invalid(path, value, detail);
        }
    }

    /// An invalid value whose text is ready-made (Go structs).
    #[cold]
    #[inline(never)]
    pub fn invalid_text(&mut self, path: &Path<'_>, value: String, detail: &str) {
        self.0.push(FieldError {
            kind: FieldErrorKind::Invalid,
            field: path.to_string(),
            value: Some(value),
            detail: detail.to_owned(),
        });
    }

    /// An invalid field whose value is not shown.
    #[cold]
    #[inline(never)]
    pub fn invalid_unseen(&mut self, path: &Path<'_>, detail: &str) {
        self.0.push(FieldError {
            kind: FieldErrorKind::Invalid,
            field: path.to_string(),
            value: None,
            detail: detail.to_owned(),
        });
    }

    /// Something that could not be found out.
    #[cold]
    #[inline(never)]
    pub fn internal(&mut self, path: &Path<'_>, detail: &str) {
        self.0.push(FieldError {
            kind: FieldErrorKind::Internal,
            field: path.to_string(),
            value: None,
            detail: detail.to_owned(),
        });
    }

    #[cold]
    #[inline(never)]
    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.0.push(FieldError::duplicate(path.to_string(), &value.into()));
    }

    /// A duplicate whose text is ready-made (Go structs).
    #[cold]
    #[inline(never)]
    pub fn duplicate_text(&mut self, path: &Path<'_>, value: String, detail: &str) {
        self.0.push(FieldError {
            kind: FieldErrorKind::Duplicate,
            field: path.to_string(),
            value: Some(value),
            detail: detail.to_owned(),
        });
    }

    #[cold]
    #[inline(never)]
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, allowed: &[&str]) {
        self.0.push(FieldError::not_supported(path.to_string(), &value.into(), allowed));
    }

    /// A value that is not supported, whose text is ready-made (Go structs).
    #[cold]
    #[inline(never)]
    pub fn not_supported_text(&mut self, path: &Path<'_>, value: String, allowed: &[&str]) {
        let mut error = FieldError::not_supported(path.to_string(), &Value::Null, allowed);
        error.value = Some(value);
        self.0.push(error);
    }

    #[cold]
    #[inline(never)]
    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: &str) {
        self.0.push(FieldError {
            kind: FieldErrorKind::NotFound,
            field: path.to_string(),
            value: Some(crate::error::shown(&value.into())),
            detail: detail.to_owned(),
        });
    }

    #[cold]
    #[inline(never)]
    pub fn too_long(&mut self, path: &Path<'_>, max: usize) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        self.0.push(FieldError {
            kind: FieldErrorKind::TooLong,
            field: path.to_string(),
            value: None,
            detail: format!("may not be more than {max} {unit}"),
        });
    }

    #[cold]
    #[inline(never)]
    pub fn too_many(&mut self, path: &Path<'_>, count: usize, max: usize) {
        self.0.push(FieldError {
            kind: FieldErrorKind::TooMany,
            field: path.to_string(),
            value: Some(count.to_string()),
            detail: format!("must have at most {max} items"),
        });
    }

    /// Reports a value that is not one of the allowed ones; an empty value is checked, too.
    pub fn one_of(&mut self, path: &Path<'_>, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            self.not_supported(path, value, allowed);
        }
    }

    /// A name, or the like, that has to be there and well formed.
    pub fn named(&mut self, path: &Path<'_>, value: &str, check: impl Fn(&str) -> Faults) {
        if value.is_empty() {
            self.required(path, "");
        } else {
            self.invalid_all(path, value, &check(value));
        }
    }

    /// One of the allowed values, which has to be there.
    pub fn choice(&mut self, path: &Path<'_>, value: &str, allowed: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else {
            self.one_of(path, value, allowed);
        }
    }

    /// A number in a range (`InclusiveRangeError`).
    pub fn between(&mut self, path: &Path<'_>, value: i64, range: RangeInclusive<i64>) {
        if !range.contains(&value) {
            let detail = format!("must be between {} and {}, inclusive", range.start(), range.end());
            self.invalid(path, value, &detail);
        }
    }

    /// The number of a port (`IsValidPortNum`).
    pub fn port(&mut self, path: &Path<'_>, number: i64) {
        self.between(path, number, 1..=65_535);
    }

    /// The number or the name of a port (`ValidatePortNumOrName`).
    pub fn port_or_name(&mut self, path: &Path<'_>, port: Option<&Value>) {
        match port {
            Some(Value::String(name)) => self.invalid_all(path, name, &checks::port_name(name)),
            other => self.port(path, other.and_then(Value::as_i64).unwrap_or(0)),
        }
    }

    /// For how long a token is good, in seconds.
    pub fn token_seconds(&mut self, path: &Path<'_>, seconds: i64) {
        if seconds < 600 {
            self.invalid(path, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            self.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }

    /// Not negative (`ValidateNonnegativeField`).
    pub fn non_negative(&mut self, path: &Path<'_>, value: Option<i64>) {
        if let Some(value) = value.filter(|v| *v < 0) {
            self.invalid(path, value, NOT_NEGATIVE);
        }
    }

    /// The value is equal in both objects (`ValidateImmutableField`).
    pub fn immutable(
        &mut self,
        path: &Path<'_>,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        key: &str,
    ) {
        let (before, after) = (old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null));
        if before != after {
            self.invalid(path, after.clone(), IMMUTABLE);
        }
    }
}

/// `IsNegativeErrorMsg`.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// `FieldImmutableErrorMsg`.
pub(crate) const IMMUTABLE: &str = "field is immutable";
