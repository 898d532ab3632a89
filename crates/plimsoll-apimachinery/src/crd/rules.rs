//! Evaluation of the rules of a schema (`x-kubernetes-validations`).

use std::sync::Arc;

use plimsoll_cel::{Activation, Budget, EvalError, ListType, Value as Cel, optional};
use serde_json::Value;

use super::correlate::{Before, join};
use super::node::{Additional, Node};
use super::node_type::NodeType;
use super::rule::Rule;
use super::value::{Lists, to_cel};
use crate::cel::{MAX_MESSAGE, OUT_OF_BUDGET, RUNTIME_BUDGET};
use crate::error::{FieldError, FieldErrorKind};

/// Most errors collected for one object.
const MAX_ERRORS: usize = 100;

/// The message of a rule that does not hold.
fn message(rule: &Rule, variables: &mut Variables, budget: &mut Budget) -> String {
    let program = rule.message_program.as_ref().and_then(|p| p.as_ref().ok());
    let made = program.and_then(|p| match p.evaluate(variables, budget) {
        Ok(Cel::String(text)) => Some(text.trim().to_owned()),
        _ => None,
    });
    match made {
        Some(m) if !m.is_empty() && m.len() <= MAX_MESSAGE && !m.contains('\n') => m,
        _ => rule.default_message(),
    }
}

/// The error of a rule that does not hold.
fn failure(rule: &Rule, value: &Value, path: &str, message: String) -> FieldError {
    let path = match rule.field_path.as_str() {
        "" => path_or_nil(path).to_owned(),
        inner if path.is_empty() => inner.to_owned(),
        inner => format!("{path}.{inner}"),
    };
    let shown = shown(value);
    match rule.reason.as_str() {
        "FieldValueForbidden" => FieldError::forbidden(path, message),
        "FieldValueRequired" => FieldError::required(path, message),
        "FieldValueDuplicate" => {
            FieldError { kind: FieldErrorKind::Duplicate, field: path, value: shown, detail: String::new() }
        }
        _ => FieldError { kind: FieldErrorKind::Invalid, field: path, value: shown, detail: message },
    }
}

/// Scalars are shown in messages, lists and objects are not.
fn shown(value: &Value) -> Option<String> {
    (!value.is_array() && !value.is_object()).then(|| crate::error::shown(value))
}

/// Evaluates all rules of a schema on a value. A rule on a value that hasn't changed doesn't run, unless it uses
/// `oldSelf` (ratcheting, KEP-4008).
pub fn check(value: &Value, old: Option<&Value>, node: &Node, path: &str, out: &mut Vec<FieldError>) {
    Run { ratchet: true, budget: Budget::new(RUNTIME_BUDGET), spent: false, out }
        .walk(value, old, node, path);
}

/// Evaluates all rules as if the value replaced itself.
pub fn check_as_update(value: &Value, node: &Node, out: &mut Vec<FieldError>) {
    Run { ratchet: false, budget: Budget::new(RUNTIME_BUDGET), spent: false, out }.walk(
        value,
        Some(value),
        node,
        "",
    );
}

struct Run<'a> {
    /// Whether rules on values that haven't changed are skipped.
    ratchet: bool,
    budget: Budget,
    /// Whether a cost limit is exceeded, so that no further rule runs.
    spent: bool,
    out: &'a mut Vec<FieldError>,
}

/// `self` and `oldSelf`.
struct Variables {
    this: Cel,
    old: Option<Cel>,
    optional: bool,
    /// Their lists.
    lists: Lists,
}

impl Activation for Variables {
    fn has_list_types(&self) -> bool {
        self.lists.are_there()
    }

    fn list_type(&self, list: &Arc<Vec<Cel>>) -> ListType {
        self.lists.of(list)
    }

    fn resolve(&mut self, name: &str) -> Option<Cel> {
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
                        self.walk(inner, before, property, &join(path, key));
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
        let mut lists = Lists::default();
        let this = to_cel(value, node, &mut lists);
        let old = old.map(|o| to_cel(o, node, &mut lists));
        let mut variables = Variables { this, old, optional: false, lists };
        for rule in rules {
            if self.spent {
                return;
            }
            variables.optional = rule.optional_old;
            let result = match &rule.program {
                Ok(program) => program.evaluate(&mut variables, &mut self.budget),
                Err(e) => Err(EvalError::Error(e.to_string())),
            };
            match result {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    let message = message(rule, &mut variables, &mut self.budget);
                    self.out.push(failure(rule, value, path, message));
                }
                Err(error) => self.failed(&error, rule, node, path),
            }
        }
    }

    fn failed(&mut self, error: &EvalError, rule: &Rule, node: &Node, path: &str) {
        let name = rule.named();
        self.spent = !matches!(error, EvalError::Error(_));
        let what = match error {
            EvalError::Budget => OUT_OF_BUDGET.to_owned(),
            EvalError::CallLimit => {
                format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                )
            }
            EvalError::Error(why) if why.starts_with("no such overload") => {
                format!(
                    "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                )
            }
            EvalError::Error(why) => format!("{why} evaluating rule: {name}"),
        };
        let kind = Value::from(node.kind.map_or("", NodeType::name));
        self.out.push(FieldError::invalid(path_or_nil(path), &kind, what));
    }
}

fn path_or_nil(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}
