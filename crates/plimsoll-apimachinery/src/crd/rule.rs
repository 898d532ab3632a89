//! A rule of a schema (an element of `x-kubernetes-validations`).

use plimsoll_cel::{CompileError, Program};
use serde_json::Value;

use super::fieldpath;

/// A rule, parsed.
#[derive(Debug)]
pub struct Rule {
    /// The expression, or why it can't be parsed.
    pub program: Result<Program, CompileError>,
    /// The rule as written.
    pub source: String,
    /// `message`, possibly empty.
    pub message: String,
    /// `messageExpression`, parsed; `None`: there is none.
    pub message_program: Option<Result<Program, CompileError>>,
    /// `reason`, possibly empty.
    pub reason: String,
    /// `fieldPath` as errors show it, possibly empty.
    pub field_path: String,
    /// Whether `oldSelf` is optional.
    pub optional_old: bool,
    /// Whether the rule uses `oldSelf`, so that it runs on updates only.
    pub transition: bool,
}

impl Rule {
    /// Parses an element of `x-kubernetes-validations` of a schema.
    pub fn parse(raw: &Value, schema: &Value) -> Self {
        let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let source = text("rule");
        let program = Program::parse(&source);
        let message_expression = text("messageExpression");
        Self {
            transition: program.as_ref().is_ok_and(|p| p.uses("oldSelf")),
            program,
            source,
            message: text("message"),
            message_program: (!message_expression.trim().is_empty())
                .then(|| Program::parse(&message_expression)),
            reason: text("reason"),
            field_path: fieldpath::normal(&text("fieldPath"), schema),
            optional_old: raw.get("optionalOldSelf") == Some(&Value::Bool(true)),
        }
    }

    /// The message where there is no `messageExpression`, or none that gives a message.
    pub fn default_message(&self) -> String {
        match self.message.trim() {
            "" => format!("failed rule: {}", self.source.trim()),
            message => message.to_owned(),
        }
    }

    /// The text by which errors of the evaluation name the rule.
    pub fn named(&self) -> &str {
        match self.message.trim() {
            "" => self.source.trim(),
            message => message,
        }
    }
}
