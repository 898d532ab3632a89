//! CEL rules of a schema (`x-kubernetes-validations`).

use serde_json::Value;

use super::check::correlated;
use super::node::{Additional, Node};
use crate::cel::{Binding, Program, to_cel};
use crate::error::{FieldError, FieldErrorKind};

/// Longest message an expression may make, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// Most errors collected for one object.
const MAX_ERRORS: usize = 100;

/// One rule, compiled.
#[derive(Debug)]
pub struct Rule {
    /// The expression; an error when it can't be compiled.
    pub program: Result<Program, String>,
    /// The rule as written.
    pub source: String,
    message: String,
    /// `messageExpression`, compiled.
    pub message_program: Option<Result<Program, String>>,
    reason: String,
    field_path: String,
    /// Whether `oldSelf` is optional.
    pub optional_old: bool,
    transition: bool,
}

impl Rule {
    /// Compiles one entry of `x-kubernetes-validations`.
    pub fn compile(raw: &Value) -> Self {
        let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let source = text("rule");
        let program = Program::compile(&source);
        let message_expression = text("messageExpression");
        Self {
            transition: program.as_ref().is_ok_and(|p| p.uses("oldSelf")),
            program,
            source,
            message: text("message"),
            message_program: (!message_expression.trim().is_empty())
                .then(|| Program::compile(&message_expression)),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old: raw.get("optionalOldSelf") == Some(&Value::Bool(true)),
        }
    }

    /// Whether the rule compares with the old value.
    pub const fn is_transition(&self) -> bool {
        self.transition
    }

    fn words(&self) -> String {
        match self.message.trim() {
            "" => format!("failed rule: {}", self.source.trim()),
            message => message.to_owned(),
        }
    }

    fn explain(&self, variables: &[(&str, &Binding)]) -> String {
        let made = self.message_program.as_ref().and_then(|p| p.as_ref().ok()?.run_string(variables).ok());
        match made.as_deref().map(str::trim) {
            Some(m) if !m.is_empty() && m.len() <= MAX_MESSAGE && !m.contains('\n') => m.to_owned(),
            _ => self.words(),
        }
    }

    fn failure(&self, value: &Value, node: &Node, path: &str, message: String) -> FieldError {
        let path = match self.field_path.trim() {
            "" => path_or_nil(path).to_owned(),
            inner if path.is_empty() => inner.trim_start_matches('.').to_owned(),
            inner => format!("{path}{inner}"),
        };
        let shown = shown(value, node);
        match self.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(path, message),
            "FieldValueRequired" => FieldError::required(path, message),
            "FieldValueDuplicate" => FieldError {
                kind: FieldErrorKind::Duplicate,
                field: path,
                value: shown,
                detail: String::new(),
            },
            _ => FieldError { kind: FieldErrorKind::Invalid, field: path, value: shown, detail: message },
        }
    }
}

/// Scalars are shown in messages, lists and objects are not.
fn shown(value: &Value, _node: &Node) -> Option<String> {
    (!value.is_array() && !value.is_object()).then(|| value.to_string())
}

/// Runs all rules of a schema on a value. Rules on values that haven't changed are not complained about.
pub fn check(value: &Value, old: Option<&Value>, node: &Node, path: &str, out: &mut Vec<FieldError>) {
    walk(value, old, node, path, true, out);
}

/// Runs all rules as if the value replaced itself.
pub fn check_as_update(value: &Value, node: &Node, out: &mut Vec<FieldError>) {
    walk(value, Some(value), node, "", false, out);
}

/// `ratchet`: rules on values that haven't changed are not run.
fn walk(
    value: &Value,
    old: Option<&Value>,
    node: &Node,
    path: &str,
    ratchet: bool,
    out: &mut Vec<FieldError>,
) {
    if !node.has_rules || out.len() >= MAX_ERRORS {
        return;
    }
    if !node.rules.is_empty() && (!ratchet || old != Some(value)) {
        run(value, old, node, path, out);
    }
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let before = old.and_then(|o| o.get(key));
                if let Some(property) = node.properties.get(key) {
                    walk(inner, before, property, &super::check::join(path, key, node), ratchet, out);
                } else if let Additional::Schema(of) = &node.additional {
                    walk(inner, before, of, &format!("{path}[{key}]"), ratchet, out);
                }
            }
        }
        Value::Array(all) => {
            let Some(items) = &node.items else { return };
            for (i, item) in all.iter().enumerate() {
                walk(item, correlated(item, old, node), items, &format!("{path}[{i}]"), ratchet, out);
            }
        }
        _ => {}
    }
}

fn run(value: &Value, old: Option<&Value>, node: &Node, path: &str, out: &mut Vec<FieldError>) {
    if value.is_null() && node.nullable {
        return;
    }
    let this = Binding::Value(to_cel(value, node));
    let before = old.map(|o| to_cel(o, node));
    for rule in &node.rules {
        let old_self = match (&before, rule.optional_old) {
            (before, true) => Binding::Optional(before.clone()),
            (Some(before), false) => Binding::Value(before.clone()),
            (None, false) if rule.transition => continue,
            (None, false) => Binding::Optional(None),
        };
        let variables = [("self", &this), ("oldSelf", &old_self)];
        let result = match &rule.program {
            Ok(program) => program.run_bool(&variables),
            Err(e) => Err(e.clone()),
        };
        match result {
            Ok(true) => {}
            Ok(false) => out.push(rule.failure(value, node, path, rule.explain(&variables))),
            Err(e) => {
                let words = match rule.message.trim() {
                    "" => rule.source.trim(),
                    message => message,
                };
                let kind = Value::from(node.kind.map_or("", super::node::NodeType::name));
                out.push(FieldError::invalid(
                    path_or_nil(path),
                    &kind,
                    format!("{e} evaluating rule: {words}"),
                ));
            }
        }
    }
}

fn path_or_nil(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}
