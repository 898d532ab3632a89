//! Checks of CEL rules in a schema: their form, types and cost.

use serde_json::{Value, json};

use super::sizes::{anywhere, each, most};
use super::{at, list, text};
use crate::cel::{Program, TypeError, check_rule, loop_cost};
use crate::crd::node::{Additional, Node};
use crate::error::FieldError;

/// Most a rule may cost (apiserver `StaticEstimatedCostLimit`).
const RULE_LIMIT: f64 = 10_000_000.0;
/// Most all rules of a schema may cost (`StaticEstimatedCRDCostLimit`).
const TOTAL_LIMIT: f64 = 100_000_000.0;
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks all rules of a schema.
pub fn validate(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let node = Node::build(raw);
    let mut costs = Costs { total: 0.0, expensive: Vec::new() };
    walk(raw, &node, path, Some(1.0), &mut costs, errors);
    if costs.total > TOTAL_LIMIT {
        costs.expensive.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (field, _) in costs.expensive.into_iter().take(4) {
            let what =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(field, what));
        }
        let what = format!(
            "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by \
             factor of {} {HINT}",
            factor(costs.total / TOTAL_LIMIT)
        );
        errors.push(FieldError::forbidden(path, what));
    }
}

const HINT: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, \
                    maps, and strings are declared)";

struct Costs {
    total: f64,
    expensive: Vec<(String, f64)>,
}

fn factor(times: f64) -> String {
    if times > 100.0 { "more than 100x".to_owned() } else { format!("{times:.1}x") }
}

/// `times` is how often values of this schema can occur in one object, by the limits of the lists and maps around
/// it; `None`: one of them has none.
fn walk(
    raw: &Value,
    node: &Node,
    path: &str,
    times: Option<f64>,
    costs: &mut Costs,
    errors: &mut Vec<FieldError>,
) {
    for (i, rule) in list(raw, "x-kubernetes-validations").iter().enumerate() {
        let times = times.unwrap_or_else(|| anywhere(node));
        one(rule, node, &format!("{path}.x-kubernetes-validations[{i}]"), times, costs, errors);
    }
    let times = times.zip(each(node)).map(|(outer, inner)| outer * inner);
    for (name, child) in &node.properties {
        walk(
            at(at(raw, "properties"), name),
            child,
            &format!("{path}.properties[{name}]"),
            times,
            costs,
            errors,
        );
    }
    if let Some(items) = &node.items {
        walk(at(raw, "items"), items, &format!("{path}.items"), times, costs, errors);
    }
    if let Additional::Schema(of) = &node.additional {
        let inner = at(raw, "additionalProperties");
        walk(inner, of, &format!("{path}.additionalProperties"), times, costs, errors);
    }
}

fn one(rule: &Value, node: &Node, path: &str, times: f64, costs: &mut Costs, errors: &mut Vec<FieldError>) {
    let (source, message) = (text(rule, "rule"), text(rule, "message"));
    let field = |name: &str| format!("{path}.{name}");
    if source.trim().is_empty() {
        errors.push(FieldError::required(field("rule"), "rule is not specified"));
        return;
    }
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            field("message"),
            &json!(message),
            "message must be non-empty if specified",
        ));
    } else if message.contains('\n') {
        errors.push(FieldError::invalid(
            field("message"),
            &json!(message),
            "message must not contain line breaks",
        ));
    } else if message.is_empty() && source.trim().contains('\n') {
        let what = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(field("message"), what));
    }
    let reason = text(rule, "reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        errors.push(FieldError::not_supported(field("reason"), &json!(reason), &REASONS));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty()
        && let Err(e) = Program::compile(expression)
    {
        errors.push(invalid(
            field("messageExpression"),
            rule,
            &format!("messageExpression compilation failed: {e}"),
        ));
    }
    let program = match Program::compile(source) {
        Ok(program) => program,
        Err(e) => {
            errors.push(invalid(field("rule"), rule, &format!("compilation failed: {e}")));
            return;
        }
    };
    match check_rule(&program, node) {
        Ok(()) => {}
        Err(TypeError::UndefinedField(name)) => {
            let what = format!("compilation failed: {}", pointer(source, &name));
            errors.push(invalid(field("rule"), rule, &what));
            return;
        }
        Err(TypeError::NotBool) => {
            errors.push(invalid(field("rule"), rule, "cel expression must evaluate to a bool"));
            return;
        }
    }
    if rule.get("optionalOldSelf").is_some_and(|v| !v.is_null()) && !program.uses("oldSelf") {
        let what = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(field("optionalOldSelf"), at(rule, "optionalOldSelf"), what));
    }
    let cost = loop_cost(&program, node, most) * times;
    costs.total += cost;
    costs.expensive.push((field("rule"), cost));
    if cost > RULE_LIMIT {
        let what =
            format!("estimated rule cost exceeds budget by factor of {} {HINT}", factor(cost / RULE_LIMIT));
        errors.push(FieldError::forbidden(field("rule"), what));
    }
}

/// The rule as Go prints its internal struct, HTML characters escaped.
fn invalid(field: String, rule: &Value, what: &str) -> FieldError {
    let text = |key: &str| json!(text(rule, key)).to_string();
    let reason = rule.get("reason").cloned().unwrap_or_default();
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\
         \"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        text("fieldPath"),
        rule.get("optionalOldSelf").cloned().unwrap_or_default(),
    );
    let escaped = shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let mut error = FieldError::invalid(field, &Value::Null, what);
    error.value = Some(escaped);
    error
}

/// cel-go's error with the line and a caret under the selection.
fn pointer(source: &str, name: &str) -> String {
    let offset = source.find(&format!(".{name}")).unwrap_or_default();
    let before = source.get(..offset).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count());
    let shown = source.lines().nth(line).unwrap_or_default();
    format!(
        "ERROR: <input>:{}:{}: undefined field '{name}'\n | {shown}\n | {}^",
        line + 1,
        column + 1,
        ".".repeat(column)
    )
}
