//! CEL selectors of device classes and claims (`resource.k8s.io`, KEP-4381).
//!
//! An expression sees `device.driver`, `device.attributes[domain].name` and `device.capacity[domain].name`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use plimsoll_cel::cost::{self, SizeEstimate};
use plimsoll_cel::{
    Budget, Environment, EvalError, Evaluated, ObjectType, Program, Type, Value, from_entries, quantity,
    semver,
};
use plimsoll_state::DeviceSelector;
use plimsoll_state::model::{AttributeValue, Device};

/// Longest expression, in bytes (API limit `CELSelectorExpressionMaxLength`).
const MAX_EXPRESSION: usize = 10 * 1024;
/// Highest cost of an expression (API limit `CELSelectorExpressionMaxCost`).
const MAX_COST: u64 = 1_000_000;
/// Longest string of a device, in bytes: values of attributes, names of drivers
/// (`DeviceAttributeMaxValueLength`).
const MAX_STRING: u64 = 64;
/// Most attributes and capacities of a device, and the size of all of them with their names, in bytes.
const MAX_ENTRIES: u64 = 64;
const MAX_DEVICE: u64 = 8 * 1024;
/// Most compiled expressions kept.
const MAX_PROGRAMS: usize = 1024;

/// The variable `device` (`k8s.io/dynamic-resource-allocation/cel/compile.go`, `newCompiler`).
pub static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let device = ObjectType::new(
        "kubernetes.DRADevice",
        [
            ("driver", Type::String),
            ("allowMultipleAllocations", Type::Bool),
            ("attributes", Type::map(Type::map(Type::Unknown))),
            ("capacity", Type::map(Type::map(Type::Opaque("kubernetes.Quantity")))),
        ],
    );
    Environment::new().variable("device", Type::object(device))
});

/// Evaluates device selectors with CEL and keeps compiled expressions.
#[derive(Default)]
pub struct CelSelector {
    programs: Mutex<HashMap<String, Compiled>>,
}

type Compiled = Result<Arc<Program>, String>;

impl std::fmt::Debug for CelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CelSelector")
    }
}

/// The domains that an expression mentions in string literals.
fn mentioned(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(['"', '\'']).skip(1).step_by(2)
}

/// Values by domain and name; a name without a domain belongs to the driver's. Domains that the expression mentions are
/// there even when empty, so that `in` works on them.
fn by_domain(
    expression: &str,
    driver: &str,
    entries: impl Iterator<Item = (String, Evaluated)>,
) -> Evaluated {
    let mut domains: HashMap<String, HashMap<String, Value>> = HashMap::new();
    for domain in mentioned(expression).chain([driver]) {
        domains.entry(domain.to_owned()).or_default();
    }
    for (name, value) in entries {
        let (domain, id) = name.split_once('/').unwrap_or((driver, &name));
        domains.entry(domain.to_owned()).or_default().insert(id.to_owned(), value?);
    }
    Ok(from_entries(domains.into_iter().map(|(domain, values)| (domain, from_entries(values)))))
}

fn device_value(expression: &str, driver: &str, device: &Device) -> Evaluated {
    let attribute = |v: &AttributeValue| match v {
        AttributeValue::Bool(b) => Ok(Value::Bool(*b)),
        AttributeValue::Int(i) => Ok(Value::Int(*i)),
        AttributeValue::Text(s) => Ok(Value::from(s.as_str())),
        AttributeValue::Version(s) => semver(s),
    };
    let attributes = device.attributes.iter().map(|(n, v)| (n.clone(), attribute(v)));
    let capacity = device.capacity.iter().map(|(n, v)| (n.clone(), quantity(&v.text)));
    Ok(from_entries([
        ("driver".to_owned(), Value::from(driver)),
        ("allowMultipleAllocations".to_owned(), Value::Bool(device.multiple)),
        ("attributes".to_owned(), by_domain(expression, driver, attributes)?),
        ("capacity".to_owned(), by_domain(expression, driver, capacity)?),
    ]))
}

/// The largest that `device` can be for an expression.
fn device_size(expression: &str) -> SizeEstimate {
    let longest = expression.split(['"', '\'']).map(str::len).max().unwrap_or(0) as u64;
    let length = expression.len() as u64;
    let names =
        SizeEstimate::collection(MAX_ENTRIES, MAX_DEVICE, SizeEstimate::string(MAX_STRING.max(longest)));
    let weight = MAX_DEVICE + length;
    let domains = SizeEstimate::collection(MAX_ENTRIES + length / 2, weight, names);
    SizeEstimate::collection(4, 2 * weight, domains).with_field("driver", SizeEstimate::string(MAX_STRING))
}

fn compile(expression: &str) -> Compiled {
    if expression.len() > MAX_EXPRESSION {
        return Err(format!("expression is longer than {MAX_EXPRESSION} bytes"));
    }
    let program = Program::parse(expression).map_err(|e| e.to_string())?;
    if cost::upper_bound(&program, &[("device", device_size(expression))]) > MAX_COST {
        return Err("too complex, exceeds cost limit".to_owned());
    }
    Ok(Arc::new(program))
}

impl CelSelector {
    fn program(&self, expression: &str) -> Compiled {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = programs.get(expression) {
            return known.clone();
        }
        let compiled = compile(expression);
        if programs.len() >= MAX_PROGRAMS {
            programs.clear();
        }
        programs.insert(expression.to_owned(), compiled.clone());
        compiled
    }
}

impl DeviceSelector for CelSelector {
    fn check(&self, expression: &str) -> Result<(), String> {
        self.program(expression).map(drop)
    }

    fn matches(&self, expression: &str, driver: &str, device: &Device) -> Result<bool, String> {
        let program = self.program(expression)?;
        let value = device_value(expression, driver, device).map_err(|e| e.to_string())?;
        match program.evaluate(&mut HashMap::from([("device", value)]), &mut Budget::new(MAX_COST)) {
            Ok(Value::Bool(b)) => Ok(b),
            Ok(_) => Err("CEL expression: not a boolean".to_owned()),
            Err(EvalError::Error(why)) => Err(format!("CEL runtime error: {why}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_state::model::DeviceCapacity;

    #[test]
    fn expensive_expressions_are_refused() {
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
        let capacity = DeviceCapacity { text: "80Gi".into(), ..DeviceCapacity::default() };
        device.capacity.insert("memory".into(), capacity);
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
