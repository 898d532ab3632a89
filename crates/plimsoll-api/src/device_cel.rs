//! CEL selectors of device classes and claims (`resource.k8s.io`, KEP-4381).
//!
//! An expression sees `device.driver`, `device.attributes[domain].name` and `device.capacity[domain].name`.

mod cost;

use crate::cel_limits::Size;
use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, Program, Value};
use plimsoll_state::DeviceSelector;
use plimsoll_state::model::{AttributeValue, Device};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex};

/// Longest expression, in bytes (API limit `CELSelectorExpressionMaxLength`).
const MAX_EXPRESSION: usize = 10 * 1024;

/// Most compiled expressions kept.
const MAX_PROGRAMS: usize = 1024;

static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
static QUANTITY: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("quantity(x)").ok());
static SEMVER: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("semver(x)").ok());

type Compiled = Result<Arc<(IdedExpr, Size)>, String>;

/// Evaluates device selectors with CEL; compiled expressions are kept.
#[derive(Default)]
pub struct CelSelector {
    programs: Mutex<HashMap<String, Compiled>>,
}

impl std::fmt::Debug for CelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CelSelector")
    }
}

fn text(s: &str) -> Value {
    Value::String(Arc::new(s.to_owned()))
}

fn map(entries: HashMap<Key, Value>) -> Value {
    Value::Map(Map { map: Arc::new(entries) })
}

fn key(s: &str) -> Key {
    Key::String(Arc::new(s.to_owned()))
}

/// `quantity(x)` or `semver(x)` of a text.
fn parsed(program: &LazyLock<Option<Program>>, x: &str) -> Result<Value, String> {
    let Some(program) = &**program else { return Err("no such function".to_owned()) };
    let mut scope = FUNCTIONS.new_inner_scope();
    scope.add_variable_from_value("x", text(x));
    program.execute(&scope).map_err(|e| e.to_string())
}

/// Values by domain and name; names without a domain belong to the driver's. Domains that the expression
/// mentions are there even when empty, so that `in` can be asked.
fn by_domain(
    expression: &str,
    driver: &str,
    entries: impl Iterator<Item = (String, Result<Value, String>)>,
) -> Result<Value, String> {
    let mut domains: HashMap<String, HashMap<Key, Value>> = HashMap::new();
    domains.entry(driver.to_owned()).or_default();
    for mentioned in expression.split(['"', '\'']).skip(1).step_by(2) {
        domains.entry(mentioned.to_owned()).or_default();
    }
    for (name, value) in entries {
        let (domain, id) = name.split_once('/').unwrap_or((driver, &name));
        domains.entry(domain.to_owned()).or_default().insert(key(id), value?);
    }
    Ok(map(domains.into_iter().map(|(domain, values)| (key(&domain), map(values))).collect()))
}

fn device_value(expression: &str, driver: &str, device: &Device) -> Result<Value, String> {
    let attribute = |v: &AttributeValue| match v {
        AttributeValue::Bool(b) => Ok(Value::Bool(*b)),
        AttributeValue::Int(i) => Ok(Value::Int(*i)),
        AttributeValue::Text(s) => Ok(text(s)),
        AttributeValue::Version(s) => parsed(&SEMVER, s),
    };
    let attributes = device.attributes.iter().map(|(n, v)| (n.clone(), attribute(v)));
    let capacity = device.capacity.iter().map(|(n, v)| (n.clone(), parsed(&QUANTITY, v)));
    Ok(map(HashMap::from([
        (key("driver"), text(driver)),
        (key("allowMultipleAllocations"), Value::Bool(false)),
        (key("attributes"), by_domain(expression, driver, attributes)?),
        (key("capacity"), by_domain(expression, driver, capacity)?),
    ])))
}

impl CelSelector {
    fn compile(&self, expression: &str) -> Compiled {
        let mut programs = self.programs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = programs.get(expression) {
            return known.clone();
        }
        let compiled = if expression.len() > MAX_EXPRESSION {
            Err(format!("expression is longer than {MAX_EXPRESSION} bytes"))
        } else {
            Size::of(expression).and_then(|size| {
                // Optional fields (`a.?b.orValue(c)`) are part of the environment of device selectors.
                let parse = || {
                    let tree = Parser::default().enable_optional_syntax(true).parse(expression);
                    tree.map(crate::cel_limits::with_keys)
                };
                let compiled = catch_unwind(|| size.parsed(parse, |tree| tree));
                let compiled =
                    compiled.unwrap_or_else(|_| Err("the expression can't be parsed".to_owned()))?;
                compiled.1.running(|| cost::check(expression, &compiled.0))?;
                Ok(Arc::new(compiled))
            })
        };
        if programs.len() >= MAX_PROGRAMS {
            programs.clear();
        }
        programs.insert(expression.to_owned(), compiled.clone());
        compiled
    }
}

impl DeviceSelector for CelSelector {
    fn check(&self, expression: &str) -> Result<(), String> {
        self.compile(expression).map(drop)
    }

    fn matches(&self, expression: &str, driver: &str, device: &Device) -> Result<bool, String> {
        let compiled = self.compile(expression)?;
        let (tree, size) = &*compiled;
        let value = device_value(expression, driver, device)?;
        let run = || {
            let mut scope = FUNCTIONS.new_inner_scope();
            scope.add_variable_from_value("device", value);
            Value::resolve(tree, &scope)
        };
        // An expression is user input; a fault in the interpreter must not take the scheduler down.
        match catch_unwind(AssertUnwindSafe(|| size.running(run))) {
            Ok(Ok(Value::Bool(b))) => Ok(b),
            Ok(Ok(_)) => Err("CEL expression: not a boolean".to_owned()),
            Ok(Err(e)) => Err(format!("CEL runtime error: {e}")),
            Err(_) => Err("internal error evaluating the expression".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_cost_too_much_is_refused() {
        let cel = CelSelector::default();
        let device = Device { name: "d".into(), ..Device::default() };
        let list = format!("[{}]", vec!["1"; 100].join(", "));
        let loops = |deep: usize| {
            let open: String = (0..deep).map(|i| format!("{list}.all(x{i}, ")).collect();
            format!("{open}true{}", ")".repeat(deep))
        };
        let doubled = format!(r#"["a"]{}.size() == 1"#, ".map(x, x + x)".repeat(40));
        let nested = format!(r#"["a"]{}.size() == 1"#, ".map(x, [x, x])".repeat(40));
        let replaced = format!(r#""aaaa"{}.size() > 1"#, r#".replace("", "bbbbbbbb")"#.repeat(12));
        for expression in [
            loops(4).as_str(),
            &doubled,
            &nested,
            &replaced,
            "lists.range(1000000000).size() > 1",
            "lists.range(device.driver.size()).size() > 1",
            r#"[1, 2, 3, 4, 5].all(x, "a".matches("((a{99}){99}){99}"))"#,
            r#"["%.60000f%.60000f".format([1.0, 1.0])].map(x, x + x + x).all(x, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0].all(y, x + x != x))"#,
        ] {
            let why = cel.matches(expression, "x.example", &device);
            assert_eq!(why, Err("too complex, exceeds cost limit".to_owned()), "{expression}");
        }
        for expression in [
            loops(2).as_str(),
            r#"device.attributes["x.example"].exists(k, k.matches("^[a-z]{1,8}$")) || true"#,
            r#"device.attributes.all(d, device.attributes[d].all(k, k != "a" || k.lowerAscii().trim() == k))"#,
            r#"["a100", "h100"].map(m, m.upperAscii() + "-80GB").exists(m, m == device.driver) || true"#,
            r#"device.attributes["x.example"].?model.orValue("none").replace("-", "_") != "a""#,
        ] {
            let found = cel.matches(expression, "x.example", &device);
            assert_eq!(found, Ok(true), "{expression}");
        }
    }

    #[test]
    fn expressions_see_driver_attributes_and_capacity() {
        let mut device = Device { name: "d".into(), ..Device::default() };
        device.attributes.insert("gen".into(), AttributeValue::Int(4));
        device.attributes.insert("fw".into(), AttributeValue::Version("1.10.1".into()));
        device.attributes.insert("other.example/model".into(), AttributeValue::Text("k2".into()));
        device.capacity.insert("memory".into(), "80Gi".into());
        let cases = [
            (r#"device.driver == "x.example""#, Ok(true)),
            (r#"device.attributes["x.example"].gen >= 4"#, Ok(true)),
            (r#"device.attributes["x.example"].fw.isGreaterThan(semver("1.3.0"))"#, Ok(true)),
            (r#"device.attributes["other.example"].model in ["k1"]"#, Ok(false)),
            (r#"device.capacity["x.example"].memory.compareTo(quantity("40Gi")) >= 0"#, Ok(true)),
            (r#""part" in device.attributes["none.example"]"#, Ok(false)),
            (r#"device.attributes["x.example"].nope == 1"#, Err(())),
            ("1", Err(())),
            ("((", Err(())),
        ];
        let cel = CelSelector::default();
        let hidden = format!("1 // '\n{}", "+1".repeat(4000));
        for (expression, want) in cases.into_iter().chain([(hidden.as_str(), Err(()))]) {
            let got = cel.matches(expression, "x.example", &device);
            assert_eq!(got.clone().map_err(|_| ()), want, "{expression}: {got:?}");
        }
    }
}
