//! Checks of CEL rules in a schema: their form, types and cost.

use plimsoll_cel::{Program, display_error};
use serde_json::{Value, json};

use super::rule_cost::loop_cost;
use super::rule_types::{TypeError, check_message, check_rule};
use super::shown;
use super::sizes::{anywhere, each, most};
use crate::crd::fieldpath;
use crate::crd::node::Node;
use crate::error::FieldError;
use crate::json::{at, text};

/// Most a rule may cost (apiserver `StaticEstimatedCostLimit`).
const RULE_LIMIT: f64 = 10_000_000.0;
/// Most all rules of a schema may cost (`StaticEstimatedCRDCostLimit`).
const TOTAL_LIMIT: f64 = 100_000_000.0;
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
const HINT: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, \
                    maps, and strings are declared)";

/// How many values of a schema one object can have, by the limits of the lists and maps around it; `None`: one of them
/// has no limit.
#[derive(Clone, Copy)]
pub struct Cardinality(Option<f64>);

impl Cardinality {
    /// That of the object itself.
    pub const fn once() -> Self {
        Self(Some(1.0))
    }

    /// That of schemas inside `raw`.
    pub fn of(self, raw: &Value) -> Self {
        Self(self.0.zip(each(raw)).map(|(outer, inner)| outer * inner))
    }
}

/// The estimated costs of all rules of a schema.
#[derive(Default)]
pub struct Costs {
    total: f64,
    expensive: Vec<(String, f64)>,
}

impl Costs {
    fn observe(&mut self, field: String, cost: f64) {
        self.total += cost;
        if cost >= TOTAL_LIMIT / 100.0 {
            self.expensive.push((field, cost));
        }
    }

    /// Reports costs above the limit.
    pub fn report(mut self, path: &str, errors: &mut Vec<FieldError>) {
        if self.total <= TOTAL_LIMIT {
            return;
        }
        self.expensive.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (field, _) in self.expensive.into_iter().take(4) {
            let what =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(field, what));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, too_much(name, self.total, TOTAL_LIMIT)));
    }
}

/// `getCostErrorMessage`.
fn too_much(name: &str, cost: f64, limit: f64) -> String {
    let times = cost / limit;
    let factor = if times > 100.0 {
        "more than 100x".to_owned()
    } else if times < 1.5 {
        format!("{times:.6}x")
    } else {
        format!("{times:.1}x")
    };
    format!("{name} exceeds budget by factor of {factor} {HINT}")
}

/// The schema that rules belong to.
pub struct Of<'a> {
    /// Their schema.
    pub raw: &'a Value,
    /// It is that of the object itself.
    pub root: bool,
    /// How many values of the schema an object can have.
    pub times: Cardinality,
    /// The enclosing schema whose values are not correlated before and after an update.
    pub uncorrelated: Option<&'a str>,
    /// The definition had the same schema before, so that the cost of its rules was accepted.
    pub unchanged: bool,
}

/// Validates rules without compiling them.
pub fn texts(all: &[Value], raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (i, rule) in all.iter().enumerate() {
        one_text(rule, raw, &format!("{path}.x-kubernetes-validations[{i}]"), errors);
    }
}

fn one_text(rule: &Value, raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const BREAKS: [char; 2] = ['\n', '\r'];
    let field = |name: &str| format!("{path}.{name}");
    let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let bad = |name: &str, what: &str| FieldError::invalid(field(name), &json!(text(rule, name)), what);
    if source.is_empty() {
        errors.push(FieldError::required(field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(bad("message", "must be non-empty if specified"));
    } else if message.trim().contains(BREAKS) {
        errors.push(bad("message", "must not contain line breaks"));
    } else if source.contains(BREAKS) && message.is_empty() {
        let what = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(field("message"), what));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let what = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(field("messageExpression"), what));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str).filter(|r| !REASONS.contains(r)) {
        errors.push(FieldError::not_supported(field("reason"), &json!(reason), &REASONS));
    }
    let inner = text(rule, "fieldPath");
    if inner.is_empty() {
        return;
    }
    if inner.trim().is_empty() {
        errors.push(bad("fieldPath", "must be non-empty if specified"));
    }
    if inner.contains(BREAKS) {
        errors.push(bad("fieldPath", "must not contain line breaks"));
    }
    if fieldpath::find(inner, raw, true).is_err() {
        errors.push(bad("fieldPath", "must be a valid path"));
    }
}

/// Compiles rules whose texts are right.
pub fn validate(all: &[Value], of: &Of<'_>, path: &str, costs: &mut Costs, errors: &mut Vec<FieldError>) {
    let node = Node::build(of.raw);
    let times = of.times.0.unwrap_or_else(|| anywhere(&node));
    for (i, rule) in all.iter().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{i}]");
        one(rule, of, &node, &path, times, costs, errors);
    }
}

fn one(
    rule: &Value,
    of: &Of<'_>,
    node: &Node,
    path: &str,
    times: f64,
    costs: &mut Costs,
    errors: &mut Vec<FieldError>,
) {
    let field = |name: &str| format!("{path}.{name}");
    let compiled = compile(text(rule, "rule"), node, of.root);
    let program = match compiled {
        Ok(program) => Some(program),
        Err(why) => {
            errors.push(invalid(field("rule"), rule, &why));
            None
        }
    };
    let old = program.as_ref().is_some_and(|p| p.uses("oldSelf"));
    if let Some(program) = &program {
        let cost = loop_cost(program, node, most) * times;
        if cost > RULE_LIMIT && !of.unchanged {
            let what = too_much("estimated rule cost", cost, RULE_LIMIT);
            errors.push(FieldError::forbidden(field("rule"), what));
        }
        costs.observe(field("rule"), cost);
        let expression = text(rule, "messageExpression");
        if !expression.is_empty() {
            message(expression, rule, of, node, path, costs, errors);
        }
    }
    let optional = rule.get("optionalOldSelf").filter(|v| !v.is_null());
    if old {
        if let Some(around) = of.uncorrelated {
            let what =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {around}");
            errors.push(FieldError::invalid(field("rule"), at(rule, "rule"), what));
        }
    } else if let Some(optional) = optional {
        let what = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(field("optionalOldSelf"), optional, what));
    }
}

fn message(
    expression: &str,
    rule: &Value,
    of: &Of<'_>,
    node: &Node,
    path: &str,
    costs: &mut Costs,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{path}.messageExpression");
    let bad = |what: &str| invalid(field.clone(), rule, what);
    let failed = |why: &str| format!("messageExpression compilation failed: {why}");
    let program = match Program::parse(expression) {
        Ok(program) => program,
        Err(e) => return errors.push(bad(&failed(&e.to_string()))),
    };
    match check_message(&program, node, of.root) {
        Ok(()) => {}
        Err(TypeError::UndefinedField(name)) => {
            return errors.push(bad(&failed(&pointer(expression, &name))));
        }
        Err(TypeError::Wrong) => return errors.push(bad("messageExpression must evaluate to a string")),
    }
    let cost = loop_cost(&program, node, most);
    if cost > RULE_LIMIT && !of.unchanged {
        let what = too_much("estimated messageExpression cost", cost, RULE_LIMIT);
        errors.push(FieldError::forbidden(field.clone(), what));
    }
    costs.observe(field, cost);
}

fn compile(source: &str, node: &Node, root: bool) -> Result<Program, String> {
    let program = Program::parse(source).map_err(|e| format!("compilation failed: {e}"))?;
    match check_rule(&program, node, root) {
        Ok(()) => Ok(program),
        Err(TypeError::UndefinedField(name)) => {
            Err(format!("compilation failed: {}", pointer(source, &name)))
        }
        Err(TypeError::Wrong) => Err("cel expression must evaluate to a bool".to_owned()),
    }
}

/// An error that shows the whole rule.
fn invalid(field: String, rule: &Value, what: &str) -> FieldError {
    let mut error = FieldError::invalid(field, &Value::Null, what);
    error.value = Some(shown::rule(rule));
    error
}

/// cel-go's error with the line and a caret under the selection.
fn pointer(source: &str, name: &str) -> String {
    let offset = source.find(&format!(".{name}")).unwrap_or_default();
    let before = source.get(..offset).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count());
    display_error(line, column, &format!("undefined field '{name}'"), source)
}
