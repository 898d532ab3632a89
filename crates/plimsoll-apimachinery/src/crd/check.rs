//! Checking values against a schema, with kube-openapi's messages.
//!
//! An update doesn't report a value that hasn't changed (ratcheting, KEP-4008).

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::correlate::{Before, join};
use super::format;
use super::node::{Additional, Bounds, Node};
use super::node_type::NodeType;
use crate::error::{FieldError, FieldErrorKind};
use crate::go::go_number;

/// Most errors collected for one object.
pub const MAX_ERRORS: usize = 200;

/// Checks values and collects errors.
pub struct Checker<'a> {
    /// Field path put before all others; empty for objects, the place of the default for defaults.
    pub base: &'a str,
    /// The errors found.
    pub errors: Vec<FieldError>,
}

impl Checker<'_> {
    fn field(&self, path: &str) -> String {
        // the keys of a map that is the whole value come with a dot
        match (self.base, path.strip_prefix('.').unwrap_or(path)) {
            ("", "") => "<nil>".to_owned(),
            ("", path) => path.to_owned(),
            (base, "") => base.to_owned(),
            (base, path) => format!("{base}.{path}"),
        }
    }

    fn push(&mut self, kind: FieldErrorKind, path: &str, value: Option<String>, detail: String) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(FieldError { kind, field: self.field(path), value, detail });
        }
    }

    fn invalid(&mut self, path: &str, value: &Value, detail: String) {
        self.push(FieldErrorKind::Invalid, path, Some(crate::error::shown(value)), detail);
    }

    /// An error without a field.
    fn composite(&mut self, detail: String) {
        self.push(FieldErrorKind::Invalid, "", Some("\"\"".to_owned()), detail);
    }

    fn wrong_type(&mut self, path: &str, wanted: &str, value: &str) {
        let quoted = Value::from(value).to_string();
        let detail = format!("{path} in body must be of type {wanted}: {quoted}");
        self.push(FieldErrorKind::TypeInvalid, path, Some(quoted), detail);
    }

    /// Checks one value; `old` is the value it replaces, where the old value is known.
    pub fn check(&mut self, value: &Value, old: Option<&Value>, node: &Node, path: &str) {
        if old == Some(value) {
            return;
        }
        self.check_type(value, node, path);
        if !value.is_null() {
            self.combinations(value, old, node, path);
        }
        match value {
            Value::String(s) => self.string(s, node, path),
            Value::Number(n) => self.number(value, n.as_f64().unwrap_or_default(), node, path),
            Value::Array(all) => self.array(value, all, old, node, path),
            _ => {}
        }
        if !node.enumeration.is_empty() {
            self.one_of_values(value, node, path);
        }
        if let Value::Object(map) = value {
            self.object(map, old, node, path);
        }
    }

    fn check_type(&mut self, value: &Value, node: &Node, path: &str) {
        if value.is_null() {
            if !node.nullable && (node.kind.is_some() || node.int_or_string) {
                self.wrong_type(path, node.type_name(), "null");
            }
            return;
        }
        let fits = match (node.kind, value) {
            _ if node.int_or_string => matches!(value, Value::String(_)) || is_integer(value),
            (None, _)
            | (Some(NodeType::Object), Value::Object(_))
            | (Some(NodeType::Array), Value::Array(_))
            | (Some(NodeType::String), Value::String(_))
            | (Some(NodeType::Boolean), Value::Bool(_))
            | (Some(NodeType::Number), Value::Number(_)) => true,
            (Some(NodeType::Integer), Value::Number(_)) => is_integer(value),
            _ => false,
        };
        if fits {
            return;
        }
        let listed = matches!(value, Value::String(_) | Value::Array(_));
        if !node.formatted {
            self.wrong_type(path, node.type_name(), type_of(value));
        } else if !listed {
            // Upstream reports these as values of a wrong format.
            self.wrong_type(path, &node.format, format_of(value));
        } else if matches!(node.kind, Some(NodeType::Integer | NodeType::Number)) {
            self.wrong_type(path, node.type_name(), type_of(value));
        }
    }

    fn string(&mut self, text: &str, node: &Node, path: &str) {
        let b = &node.bounds;
        let length = text.chars().count() as u64;
        let value = Value::from(text);
        // the first of these is enough
        if let Some(max) = b.max_length.filter(|max| length > *max) {
            let unit = if max == 1 { "byte" } else { "bytes" };
            let detail = format!("may not be more than {max} {unit}");
            self.push(FieldErrorKind::TooLong, path, None, detail);
        } else if let Some(min) = b.min_length.filter(|min| length < *min) {
            self.invalid(path, &value, format!("{path} in body should be at least {min} chars long"));
        } else if let Some((pattern, compiled)) = &b.pattern
            && !compiled.as_ref().is_some_and(|r| r.is_match(text))
        {
            self.invalid(path, &value, format!("{path} in body should match '{pattern}'"));
        }
        let of_texts = matches!(node.kind, None | Some(NodeType::String));
        if of_texts && node.formatted && !format::valid(&node.format, text) {
            self.wrong_type(path, &node.format, text);
        }
    }

    fn number(&mut self, value: &Value, n: f64, node: &Node, path: &str) {
        if !in_range(value, n, node) {
            let format = match node.format.as_str() {
                format if node.formatted => format!("with format {format}"),
                _ => "(default format)".to_owned(),
            };
            let kind = node.kind.map_or("", NodeType::name);
            self.composite(format!("Checked value must be of type {kind} {format} in {path}"));
        }
        let Bounds { minimum, maximum, multiple_of, .. } = &node.bounds;
        if let Some(factor) = multiple_of {
            self.boundary("MultipleOf", *factor, node, path);
            self.multiple(value, n, limit(value, *factor, node), path);
        }
        if let Some((min, exclusive)) = minimum {
            self.boundary("Minimum boundary", *min, node, path);
            let min = limit(value, *min, node);
            if min.outdoes(value, n, *exclusive, Ordering::Less) {
                let than = if *exclusive { "greater than" } else { "greater than or equal to" };
                self.invalid(path, value, format!("{path} in body should be {than} {min}"));
            }
        }
        if let Some((max, exclusive)) = maximum {
            self.boundary("Maximum boundary", *max, node, path);
            let max = limit(value, *max, node);
            if max.outdoes(value, n, *exclusive, Ordering::Greater) {
                let than = if *exclusive { "less than" } else { "less than or equal to" };
                self.invalid(path, value, format!("{path} in body should be {than} {max}"));
            }
        }
    }

    /// Reports a limit that doesn't fit the type of its values, as upstream does with every value.
    fn boundary(&mut self, what: &str, limit: f64, node: &Node, path: &str) {
        if limit_in_range(limit, node) {
            return;
        }
        let kind = node.kind.map_or("", NodeType::name);
        let format = if node.formatted {
            format!("with format {}", node.format)
        } else {
            "(default format)".to_owned()
        };
        self.composite(format!("{what} value must be of type {kind} {format} in {path}"));
    }

    fn multiple(&mut self, value: &Value, n: f64, factor: Limit, path: &str) {
        if factor.as_f64() <= 0.0 {
            let shown = factor.to_string();
            let what = format!("factor MultipleOf declared for {path} must be positive: {shown}");
            self.push(FieldErrorKind::Invalid, path, Some(shown), what);
            return;
        }
        let is_multiple = match (factor, value.as_i64()) {
            (Limit::Whole(factor), Some(whole)) => whole.checked_rem(factor) == Some(0),
            (Limit::Whole(_) | Limit::Float(_), _) => {
                let factor = factor.as_f64();
                is_whole(if factor < 1.0 { 1.0 / factor * n } else { n / factor })
            }
        };
        if !is_multiple {
            self.invalid(path, value, format!("{path} in body should be a multiple of {factor}"));
        }
    }

    fn array(&mut self, value: &Value, all: &[Value], old: Option<&Value>, node: &Node, path: &str) {
        let (length, b) = (all.len() as u64, &node.bounds);
        if let Some(min) = b.min_items.filter(|min| length < *min) {
            let size = Value::from(length);
            self.invalid(path, &size, format!("{path} in body should have at least {min} items"));
        }
        if let Some(max) = b.max_items.filter(|max| length > *max) {
            self.too_many(path, length, max);
        }
        if b.unique && (1..all.len()).any(|i| all.iter().take(i).any(|v| Some(v) == all.get(i))) {
            self.invalid(path, value, format!("{path} in body shouldn't contain duplicates"));
        }
        let Some(items) = &node.items else { return };
        let before = Before::of(old, node);
        for (i, item) in all.iter().enumerate() {
            self.check(item, before.of_item(item), items, &format!("{path}[{i}]"));
        }
    }

    fn too_many(&mut self, path: &str, actual: u64, max: u64) {
        let noun = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {noun}");
        self.push(FieldErrorKind::TooMany, path, Some(actual.to_string()), detail);
    }

    fn one_of_values(&mut self, value: &Value, node: &Node, path: &str) {
        let equal = |allowed: &Value| match (allowed, value) {
            (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
            (a, b) => a == b,
        };
        if node.enumeration.iter().any(equal) {
            return;
        }
        let allowed: Vec<String> = node
            .enumeration
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect();
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(FieldError::not_supported(self.field(path), value, &allowed));
        }
    }

    fn object(&mut self, map: &serde_json::Map<String, Value>, old: Option<&Value>, node: &Node, path: &str) {
        let (size, b) = (map.len() as u64, &node.bounds);
        if let Some(min) = b.min_properties.filter(|min| size < *min) {
            let size = Value::from(size);
            self.invalid(path, &size, format!("{path} in body should have at least {min} properties"));
        }
        if let Some(max) = b.max_properties.filter(|max| size > *max) {
            self.too_many(path, size, max);
        }
        for (key, value) in map {
            let inside = join(path, key);
            match (node.properties.get(key), &node.additional) {
                (Some(child), _) => self.check(value, old.and_then(|o| o.get(key)), child, &inside),
                (None, Additional::Schema(child)) => {
                    let inside = format!("{path}.{key}");
                    self.check(value, old.and_then(|o| o.get(key)), child, &inside);
                }
                (None, Additional::Allowed(false)) if !node.preserve => {
                    let detail = format!("{path}.{key} in body is a forbidden property");
                    self.push(FieldErrorKind::Invalid, &inside, Some("\"\"".to_owned()), detail);
                }
                _ => {}
            }
        }
        // A field with a default counts as present (kube-openapi's object validator).
        let filled = |name: &String| node.properties.get(name).is_some_and(|p| p.default.is_some());
        for name in node.required.iter().filter(|name| !map.contains_key(*name) && !filled(name)) {
            self.push(FieldErrorKind::Required, &join(path, name), None, String::new());
        }
    }

    /// The errors of a schema inside `allOf`, `anyOf`, `oneOf` or `not`.
    fn inside(&self, value: &Value, old: Option<&Value>, node: &Node, path: &str) -> Vec<FieldError> {
        let mut inner = Checker { base: self.base, errors: Vec::new() };
        inner.check(value, old, node, path);
        inner.errors
    }

    fn take(&mut self, found: Vec<FieldError>) {
        let room = MAX_ERRORS.saturating_sub(self.errors.len());
        self.errors.extend(found.into_iter().take(room));
    }

    fn combinations(&mut self, value: &Value, old: Option<&Value>, node: &Node, path: &str) {
        let quoted = Value::from(path).to_string();
        let results = |checker: &Self, all: &[Node]| -> Vec<Vec<FieldError>> {
            all.iter().map(|n| checker.inside(value, old, n, path)).collect()
        };
        let any = results(self, &node.any_of);
        if !any.is_empty() && any.iter().all(|e| !e.is_empty()) {
            self.composite(format!("{quoted} must validate at least one schema (anyOf)"));
            self.take(any.into_iter().next().unwrap_or_default());
        }
        let one = results(self, &node.one_of);
        let fitting = one.iter().filter(|e| e.is_empty()).count();
        if !one.is_empty() && fitting != 1 {
            let found = match fitting {
                0 => "Found none valid".to_owned(),
                n => format!("Found {n} valid alternatives"),
            };
            self.composite(format!("{quoted} must validate one and only one schema (oneOf). {found}"));
            if fitting == 0 {
                self.take(one.into_iter().next().unwrap_or_default());
            }
        }
        let all = results(self, &node.all_of);
        if all.iter().any(|e| !e.is_empty()) {
            let none = if all.iter().all(|e| !e.is_empty()) { ". None validated" } else { "" };
            all.into_iter().for_each(|found| self.take(found));
            self.composite(format!("{quoted} must validate all the schemas (allOf){none}"));
        }
        if let Some(not) = &node.not
            && self.inside(value, old, not, path).is_empty()
        {
            self.composite(format!("{quoted} must not validate the schema (not)"));
        }
    }
}

/// A limit as a value is compared with it: a whole number with a whole limit.
#[derive(Clone, Copy)]
enum Limit {
    Whole(i64),
    Float(f64),
}

/// The limit of a value (`MaximumNativeType`, `MinimumNativeType`).
fn limit(value: &Value, limit: f64, node: &Node) -> Limit {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if value.as_i64().is_none() || !limit_in_range(limit, node) {
        Limit::Float(limit)
    } else if (-END..END).contains(&limit) {
        Limit::Whole(limit as i64)
    } else {
        // The result of Go's conversion of numbers that are too large.
        Limit::Whole(i64::MIN)
    }
}

impl Limit {
    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Float(n) => n,
        }
    }

    /// Whether a value is beyond the limit, or at it when that is `exclusive`.
    fn outdoes(self, value: &Value, n: f64, exclusive: bool, beyond: Ordering) -> bool {
        let order = match (self, value.as_i64()) {
            (Self::Whole(limit), Some(whole)) => whole.cmp(&limit),
            (limit, _) => n.partial_cmp(&limit.as_f64()).unwrap_or(Ordering::Equal),
        };
        order == beyond || (exclusive && order == Ordering::Equal)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(n) => n.fmt(f),
            Self::Float(n) => f.write_str(&go_number(*n)),
        }
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.as_f64().is_some_and(is_whole)
}

/// Whether a float counts as a whole number (`swag.IsFloat64AJSONInteger`).
fn is_whole(n: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    let rounded = n.round();
    n.abs() <= LARGEST && (n == rounded || (n - rounded).abs() < 1e-9 * rounded.abs())
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The format of a number as it was read; other values have none.
fn format_of(value: &Value) -> &'static str {
    match value {
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        _ => "",
    }
}

/// Whether a limit is one of the numbers it limits.
fn limit_in_range(limit: f64, node: &Node) -> bool {
    in_range(&Value::from(limit), limit, node)
}

/// Whether a number fits its type's format (`IsValueValidAgainstRange`).
fn in_range(value: &Value, n: f64, node: &Node) -> bool {
    let whole = value.is_i64() || value.is_u64() || n.fract() == 0.0;
    match (node.kind, if node.formatted { node.format.as_str() } else { "" }) {
        (Some(NodeType::Integer), "int32") => {
            whole && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&n)
        }
        (Some(NodeType::Integer), "uint32") => whole && (0.0..=f64::from(u32::MAX)).contains(&n),
        (Some(NodeType::Integer), "uint64") => whole && (0.0..18_446_744_073_709_551_616.0).contains(&n),
        (Some(NodeType::Integer), _) => {
            let end = 9_223_372_036_854_775_808.0;
            value.is_i64() || (whole && (-end..end).contains(&n))
        }
        (_, "float" | "float32") => n.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}
