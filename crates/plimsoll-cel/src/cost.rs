//! An upper bound of the cost of an expression, from its syntax tree and the sizes of its variables
//! (cel-go, `checker/cost.go`). The costs of single functions are this crate's own estimate, on the safe side.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators as op,
};
use kube_cel::cel::{IdedExpr, Value};

use crate::program::Program;

/// Cost of a list and of a map that are written out (cel-go, `common/cost.go`: `ListCreateBaseCost`,
/// `MapCreateBaseCost`).
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
/// Longest text that a function adds to the texts it is given, in bytes: a number, a name of a type.
const ADDED: u64 = 64;
/// Most digits that `format` writes after a point.
const DIGITS: u64 = u16::MAX as u64;
/// Highest cost of compiling one regular expression, whose size the regex crate bounds.
const REGEX: u64 = 300_000;

/// The highest cost that evaluating a program can have, in the units of a [`Budget`](crate::Budget), with variables of
/// these sizes. A variable that isn't named counts as a scalar.
pub fn upper_bound(program: &Program, variables: &[(&str, SizeEstimate)]) -> u64 {
    let mut bound = Bound { cost: 0, variables: variables.to_vec() };
    program.with_stack(|| bound.visit(program.expression()));
    bound.cost
}

/// The largest that a value can be (cel-go, `checker.SizeEstimate`).
#[derive(Clone, Debug)]
pub struct SizeEstimate {
    /// Elements, or bytes of a string.
    length: u64,
    /// Bytes of everything in the value.
    weight: u64,
    /// Each element; `None`: no larger than the whole value.
    element: Option<Box<SizeEstimate>>,
    /// Fields that are smaller than an element.
    fields: Vec<(&'static str, SizeEstimate)>,
}

impl SizeEstimate {
    /// A string of at most so many bytes, or a scalar.
    pub const fn string(bytes: u64) -> Self {
        Self { length: bytes, weight: bytes, element: None, fields: Vec::new() }
    }

    /// A list, map or object of at most `length` elements, which are no larger than `element` each and have at most
    /// `weight` bytes together.
    pub fn collection(length: u64, weight: u64, element: Self) -> Self {
        Self { length, weight, element: Some(Box::new(element)), fields: Vec::new() }
    }

    /// The same value with a field whose size is known better than that of the other elements.
    #[must_use]
    pub fn with_field(mut self, name: &'static str, size: Self) -> Self {
        self.fields.push((name, size));
        self
    }

    fn field(&self, name: &str) -> Self {
        let field = self.fields.iter().find(|(n, _)| *n == name);
        field.map_or_else(|| self.any_element(), |(_, size)| size.clone())
    }

    fn any_element(&self) -> Self {
        self.element.as_deref().cloned().unwrap_or_else(|| Self::string(self.weight))
    }

    /// One value or the other.
    fn or(self, other: Self) -> Self {
        let element = match (self.length, self.element, other.length, other.element) {
            (0, None, _, element) | (_, element, 0, None) => element,
            (_, Some(a), _, Some(b)) => Some(Box::new(a.or(*b))),
            _ => None,
        };
        let (length, weight) = (self.length.max(other.length), self.weight.max(other.weight));
        Self { length, weight, element, fields: Vec::new() }
    }

    /// Both values, one after the other.
    fn and(self, other: Self) -> Self {
        let length = self.length.saturating_add(other.length);
        let weight = self.weight.saturating_add(other.weight);
        Self { length, weight, ..self.or(other) }
    }
}

struct Bound<'e> {
    cost: u64,
    /// Variables, the innermost last.
    variables: Vec<(&'e str, SizeEstimate)>,
}

impl<'e> Bound<'e> {
    fn charge(&mut self, steps: u64) {
        self.cost = self.cost.saturating_add(steps);
    }

    /// Charges reading so many bytes.
    fn read(&mut self, bytes: u64) {
        self.charge(bytes / 10 + 1);
    }

    fn visit(&mut self, expr: &'e IdedExpr) -> SizeEstimate {
        match &expr.expr {
            Expr::Literal(LiteralValue::String(s)) => SizeEstimate::string(s.inner().len() as u64),
            Expr::Literal(LiteralValue::Bytes(b)) => SizeEstimate::string(b.inner().len() as u64),
            Expr::Literal(_) | Expr::Unspecified => SizeEstimate::string(1),
            Expr::Ident(name) => {
                self.charge(1);
                let found = self.variables.iter().rev().find(|(n, _)| n == name);
                found.map_or_else(|| SizeEstimate::string(1), |(_, size)| size.clone())
            }
            Expr::Select(select) => {
                self.charge(1);
                self.visit(&select.operand).field(&select.field)
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                self.charge(LIST_COST);
                self.aggregate(list.elements.iter())
            }
            Expr::Map(map) => {
                self.charge(MAP_COST);
                self.aggregate(map.entries.iter().flat_map(|e| parts(&e.expr)))
            }
            Expr::Struct(made) => {
                self.charge(MAP_COST);
                self.aggregate(made.entries.iter().flat_map(|e| parts(&e.expr)))
            }
            Expr::Comprehension(c) => self.comprehension(c),
        }
    }

    fn aggregate(&mut self, elements: impl Iterator<Item = &'e IdedExpr>) -> SizeEstimate {
        let mut all = SizeEstimate { length: 0, weight: 1, element: None, fields: Vec::new() };
        for element in elements {
            let size = self.visit(element);
            all.length += 1;
            all.weight = all.weight.saturating_add(size.weight).saturating_add(1);
            all.element = Some(Box::new(match all.element {
                Some(element) => element.or(size),
                None => size,
            }));
        }
        all
    }

    /// A loop: each step costs the same, and its accumulator grows by the same amount.
    fn comprehension(&mut self, c: &'e ComprehensionExpr) -> SizeEstimate {
        let range = self.visit(&c.iter_range);
        let start = self.visit(&c.accu_init);
        let outside = self.variables.len();
        self.variables.push((&c.accu_var, start.clone()));
        self.variables.push((&c.iter_var, range.any_element()));
        if let Some(second) = &c.iter_var2 {
            self.variables.push((second, range.any_element()));
        }
        let before = std::mem::take(&mut self.cost);
        self.visit(&c.loop_cond);
        let step = self.visit(&c.loop_step);
        let once = std::mem::replace(&mut self.cost, before);
        self.charge(once.saturating_add(1).saturating_mul(range.length));
        self.variables.truncate(outside);
        let grown = |from: u64, to: u64| {
            from.saturating_add(to.saturating_sub(from).saturating_mul(range.length)).max(from)
        };
        let end = match range.length {
            0 => start,
            _ => SizeEstimate {
                length: grown(start.length, step.length),
                weight: grown(start.weight, step.weight),
                element: step.element,
                fields: Vec::new(),
            },
        };
        self.variables.push((&c.accu_var, end));
        let result = self.visit(&c.result);
        self.variables.truncate(outside);
        result
    }

    fn call(&mut self, call: &'e CallExpr) -> SizeEstimate {
        let parts: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        let mut sizes: Vec<SizeEstimate> = parts.iter().map(|part| self.visit(part)).collect();
        let total = sizes.iter().fold(0_u64, |sum, s| sum.saturating_add(s.weight));
        let name = call.func_name.as_str();
        if sizes.len() == 3 && name == op::CONDITIONAL {
            self.charge(1);
            let (last, other) = (sizes.pop(), sizes.pop());
            return last.zip(other).map_or_else(|| SizeEstimate::string(total), |(a, b)| a.or(b));
        }
        if let [_, _] = sizes.as_slice()
            && let (Some(b), Some(a)) = (sizes.pop(), sizes.pop())
        {
            match name {
                op::ADD => {
                    self.read(total);
                    return a.and(b);
                }
                op::INDEX | op::OPT_INDEX | op::OPT_SELECT => {
                    self.charge(1);
                    return a.any_element();
                }
                op::EQUALS | op::NOT_EQUALS => {
                    self.read(a.weight.min(b.weight));
                    return SizeEstimate::string(1);
                }
                op::LOGICAL_AND | op::LOGICAL_OR => {
                    self.charge(1);
                    return SizeEstimate::string(1);
                }
                _ => sizes.extend([a, b]),
            }
        }
        self.function(name.rsplit('.').next().unwrap_or(name), &parts, &sizes, total)
    }

    fn function(
        &mut self,
        name: &str,
        parts: &[&IdedExpr],
        sizes: &[SizeEstimate],
        total: u64,
    ) -> SizeEstimate {
        self.read(total);
        let weight = |i: usize| sizes.get(i).map_or(0, |s| s.weight);
        let length = |i: usize| sizes.get(i).map_or(0, |s| s.length);
        let most = match name {
            "matches" | "find" | "findAll" => {
                self.charge(regex(parts.get(1), weight(1)));
                self.charge((weight(0) / 10 + 1).saturating_mul(weight(1) / 4 + 1));
                total
            }
            "replace" => weight(0).saturating_add(1).saturating_mul(weight(2).saturating_add(1)),
            "join" => weight(0).saturating_add(length(0).saturating_mul(weight(1))),
            "format" => {
                let (verbs, digits) = match parts.first().and_then(|p| literal(p)) {
                    Some(text) => (text.matches('%').count() as u64, text.contains('.')),
                    None => (weight(0), true),
                };
                let digits = if digits { DIGITS } else { ADDED };
                total.saturating_add(verbs.saturating_mul(digits))
            }
            "range" => match parts.last().map(|p| &p.expr) {
                Some(Expr::Literal(value)) => match Value::try_from(value.to_val().as_ref()) {
                    Ok(Value::Int(n)) => u64::try_from(n).unwrap_or(0),
                    _ => 0,
                },
                _ => u64::MAX,
            },
            "quote" | "encode" | "escapeKey" | "getEscapedPath" => total.saturating_mul(6),
            _ => total.saturating_add(ADDED),
        };
        // These functions on sets and lists compare each element of one with each of the other.
        if matches!(name, "contains" | "equivalent" | "intersects" | "distinct") {
            let elements = sizes.iter().map(|s| if s.element.is_some() { s.length } else { 1 });
            self.charge(elements.fold(1, u64::saturating_mul));
            self.charge(if name == "distinct" { length(0).saturating_mul(length(0)) } else { 0 });
        }
        if most > total {
            self.read(most);
        }
        SizeEstimate::string(most)
    }
}

fn parts(entry: &EntryExpr) -> impl Iterator<Item = &IdedExpr> {
    let (key, value) = match entry {
        EntryExpr::StructField(field) => (None, &field.value),
        EntryExpr::MapEntry(entry) => (Some(&entry.key), &entry.value),
    };
    key.into_iter().chain([value])
}

fn literal(expr: &IdedExpr) -> Option<&str> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(s)) => Some(s.inner()),
        _ => None,
    }
}

/// Cost of compiling a regular expression: a counted repetition is compiled as often as it counts.
fn regex(pattern: Option<&&IdedExpr>, length: u64) -> u64 {
    let Some(text) = pattern.and_then(|p| literal(p)) else { return REGEX };
    let mut times = 1_u64;
    for part in text.split('{').skip(1) {
        let counts = part.split('}').next().unwrap_or("").split(',');
        times = times.saturating_mul(counts.filter_map(|n| n.parse().ok()).max().unwrap_or(1).max(1));
    }
    length.saturating_mul(20).saturating_mul(times).saturating_add(1000).min(REGEX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_multiply_and_known_fields_are_small() {
        let items = || SizeEstimate::collection(100, 1000, SizeEstimate::string(10));
        let object =
            || SizeEstimate::collection(2, 2000, items()).with_field("name", SizeEstimate::string(8));
        let bound = |source: &str| {
            let program = Program::parse(source).unwrap();
            upper_bound(&program, &[("object", object())])
        };
        assert!(bound("object.name == 'a'") < 10);
        assert!(bound("object.items.all(x, x > 0)") > 100);
        let (one, two) =
            (bound("object.items.all(x, x > 0)"), bound("object.items.all(x, object.items.all(y, x > y))"));
        assert!(two > 90 * one, "{one} {two}");
        assert!(bound("lists.range(1000000000).size() > 1") > 1_000_000);
        assert!(bound("object.name.matches('a{1,5}')") > bound("object.name.matches('a')"));
    }
}
