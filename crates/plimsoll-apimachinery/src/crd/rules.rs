//! CEL rules of a schema (`x-kubernetes-validations`).

use serde_json::Value;

use super::check::Before;
use super::define::normal_path;
use super::node::{Additional, Node};
use crate::cel::eval::{Budget, Fail, Scope, Value as CelValue, optional};
use crate::cel::{Program, to_cel};
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
    /// Compiles one entry of `x-kubernetes-validations` of a schema.
    pub fn compile(raw: &Value, schema: &Value) -> Self {
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
            field_path: normal_path(&text("fieldPath"), schema),
            optional_old: raw.get("optionalOldSelf") == Some(&Value::Bool(true)),
        }
    }

    fn words(&self) -> String {
        match self.message.trim() {
            "" => format!("failed rule: {}", self.source.trim()),
            message => message.to_owned(),
        }
    }

    fn explain(&self, scope: &mut Variables, budget: &mut Budget) -> String {
        let program = self.message_program.as_ref().and_then(|p| p.as_ref().ok());
        let made = program.and_then(|p| match p.evaluate(scope, budget) {
            Ok(CelValue::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
        match made {
            Some(m) if !m.is_empty() && m.len() <= MAX_MESSAGE && !m.contains('\n') => m,
            _ => self.words(),
        }
    }

    /// What errors in evaluating the rule name.
    fn named(&self) -> &str {
        match self.message.trim() {
            "" => self.source.trim(),
            message => message,
        }
    }

    fn failure(&self, value: &Value, path: &str, message: String) -> FieldError {
        let path = match self.field_path.as_str() {
            "" => path_or_nil(path).to_owned(),
            inner if path.is_empty() => inner.to_owned(),
            inner => format!("{path}.{inner}"),
        };
        let shown = shown(value);
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
fn shown(value: &Value) -> Option<String> {
    (!value.is_array() && !value.is_object()).then(|| crate::error::shown(value))
}

/// Most all rules of one object may cost (apiserver `RuntimeCELCostBudget`).
const BUDGET: u64 = 10_000_000;

/// Runs all rules of a schema on a value. Rules on values that haven't changed are not complained about, unless they
/// compare with the old value.
pub fn check(value: &Value, old: Option<&Value>, node: &Node, path: &str, out: &mut Vec<FieldError>) {
    Run { ratchet: true, budget: Budget::new(BUDGET), spent: false, out }.walk(value, old, node, path);
}

/// Runs all rules as if the value replaced itself.
pub fn check_as_update(value: &Value, node: &Node, out: &mut Vec<FieldError>) {
    Run { ratchet: false, budget: Budget::new(BUDGET), spent: false, out }.walk(value, Some(value), node, "");
}

struct Run<'a> {
    /// Rules on values that haven't changed are not run.
    ratchet: bool,
    budget: Budget,
    /// Nothing more may be run.
    spent: bool,
    out: &'a mut Vec<FieldError>,
}

/// `self` and `oldSelf`.
struct Variables {
    this: CelValue,
    old: Option<CelValue>,
    optional: bool,
}

impl Scope for Variables {
    fn variable(&mut self, name: &str) -> Option<CelValue> {
        match name {
            "self" => Some(self.this.clone()),
            "oldSelf" if self.optional => Some(optional(self.old.clone())),
            "oldSelf" => self.old.clone(),
            _ => None,
        }
    }
}

impl Run<'_> {
    fn walk(&mut self, value: &Value, old: Option<&Value>, node: &Node, path: &str) {
        if !node.has_rules || self.spent || self.out.len() >= MAX_ERRORS {
            return;
        }
        if !node.rules.is_empty() && !value.is_null() {
            self.rules(value, old.filter(|o| !o.is_null()), node, path);
        }
        match value {
            Value::Object(map) => {
                for (key, inner) in map {
                    let before = old.and_then(|o| o.get(key));
                    if let Some(property) = node.properties.get(key) {
                        self.walk(inner, before, property, &super::check::join(path, key));
                    } else if let Additional::Schema(of) = &node.additional {
                        self.walk(inner, before, of, &format!("{path}[{key}]"));
                    }
                }
            }
            Value::Array(all) => {
                let Some(items) = &node.items else { return };
                let before = Before::of(old, node);
                for (i, item) in all.iter().enumerate() {
                    self.walk(item, before.of_item(item), items, &format!("{path}[{i}]"));
                }
            }
            _ => {}
        }
    }

    fn rules(&mut self, value: &Value, old: Option<&Value>, node: &Node, path: &str) {
        let same = self.ratchet && old == Some(value);
        let runs = |rule: &&Rule| {
            (rule.transition || !same) && (!rule.transition || old.is_some() || rule.optional_old)
        };
        let mut rules = node.rules.iter().filter(runs).peekable();
        if rules.peek().is_none() {
            return;
        }
        let mut scope =
            Variables { this: to_cel(value, node), old: old.map(|o| to_cel(o, node)), optional: false };
        for rule in rules {
            if self.spent {
                return;
            }
            scope.optional = rule.optional_old;
            let result = match &rule.program {
                Ok(program) => program.evaluate(&mut scope, &mut self.budget),
                Err(e) => Err(Fail::Error(e.clone())),
            };
            match result {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => {
                    let message = rule.explain(&mut scope, &mut self.budget);
                    self.out.push(rule.failure(value, path, message));
                }
                Err(fail) => self.failed(&fail, rule, node, path),
            }
        }
    }

    fn failed(&mut self, fail: &Fail, rule: &Rule, node: &Node, path: &str) {
        let words = rule.named();
        self.spent = !matches!(fail, Fail::Error(_));
        let what = match fail {
            Fail::Budget => fail.to_string(),
            Fail::CallLimit => {
                format!(
                    "'{fail}': no further validation rules will be run due to call cost exceeds limit for rule: {words}"
                )
            }
            Fail::Error(why) if why.starts_with("no such overload") => {
                format!(
                    "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {words}"
                )
            }
            Fail::Error(why) => format!("{why} evaluating rule: {words}"),
        };
        let kind = Value::from(node.kind.map_or("", super::node::NodeType::name));
        self.out.push(FieldError::invalid(path_or_nil(path), &kind, what));
    }
}

fn path_or_nil(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}
