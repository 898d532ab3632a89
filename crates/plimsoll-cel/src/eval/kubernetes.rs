//! Kubernetes' formats, quantities and URLs (`k8s.io/apiserver/pkg/cel/library`, `quantity.go` and `urls.go`).

use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::Opaque;

use super::formats::Format;
use crate::error::{EvalError, Evaluated};
use crate::quantity::Quantity;
use crate::url::Url;
use crate::value;

/// `quantity`, `isQuantity`, `url` and `isURL`.
pub(super) fn function(name: &str, text: &str) -> Evaluated {
    match name {
        "quantity" => value::quantity(text),
        "isQuantity" => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        "isURL" => Ok(Value::Bool(Url::check(text).is_ok())),
        _ => match Url::parse(text) {
            Ok(url) => Ok(Value::Opaque(Arc::new(url))),
            Err(why) => EvalError::error(format!(
                "URL parse error during conversion from string: parse {}: {why}",
                serde_json::Value::from(text)
            )),
        },
    }
}

/// A method of a format, quantity or URL; `None`: the value is none of them, or has no such method.
pub(super) fn method(receiver: &dyn Opaque, name: &str, args: &[Value]) -> Option<Evaluated> {
    if let Some(format) = receiver.downcast_ref::<Format>() {
        return match (name, args) {
            ("validate", [Value::String(text)]) => Some(Ok(format.validate(text))),
            _ => None,
        };
    }
    if let Some(quantity) = receiver.downcast_ref::<Quantity>() {
        return of_quantity(quantity, name, args);
    }
    of_url(receiver.downcast_ref::<Url>()?, name, args)
}

fn of_quantity(quantity: &Quantity, name: &str, args: &[Value]) -> Option<Evaluated> {
    Some(match (name, args) {
        ("sign", []) => Ok(Value::Int(quantity.sign())),
        ("isInteger", []) => Ok(Value::Bool(quantity.as_int().is_some())),
        ("asInteger", []) => match quantity.as_int() {
            Some(i) => Ok(Value::Int(i)),
            None => EvalError::error("cannot convert value to integer"),
        },
        ("asApproximateFloat", []) => Ok(Value::Float(quantity.as_float())),
        ("isGreaterThan" | "isLessThan" | "compareTo", [other]) => {
            let Some(other) = quantity_of(other) else { return Some(EvalError::no_such_overload()) };
            let order = quantity.cmp(other);
            Ok(match name {
                "isGreaterThan" => Value::Bool(order.is_gt()),
                "isLessThan" => Value::Bool(order.is_lt()),
                _ => Value::Int(i64::from(order as i8)),
            })
        }
        ("add" | "sub", [other]) => {
            let other = match other {
                Value::Int(i) => Quantity::from_int(*i),
                other => match quantity_of(other) {
                    Some(other) => other.clone(),
                    None => return Some(EvalError::no_such_overload()),
                },
            };
            let other = if name == "add" { other } else { other.negated() };
            match quantity.add(&other) {
                Ok(sum) => Ok(Value::Opaque(Arc::new(sum))),
                Err(why) => EvalError::error(why),
            }
        }
        _ => return None,
    })
}

fn quantity_of(value: &Value) -> Option<&Quantity> {
    match value {
        Value::Opaque(of) => of.downcast_ref(),
        _ => None,
    }
}

fn of_url(url: &Url, name: &str, args: &[Value]) -> Option<Evaluated> {
    let text = match (name, args) {
        ("getScheme", []) => url.scheme().to_owned(),
        ("getHost", []) => url.host().to_owned(),
        ("getHostname", []) => url.hostname().to_owned(),
        ("getPort", []) => url.port().to_owned(),
        ("getEscapedPath", []) => url.escaped_path(),
        ("getQuery", []) => {
            let list =
                |values: Vec<String>| Value::List(Arc::new(values.into_iter().map(Value::from).collect()));
            return Some(Ok(value::from_entries(url.query().into_iter().map(|(k, v)| (k, list(v))))));
        }
        _ => return None,
    };
    Some(Ok(Value::from(text)))
}
