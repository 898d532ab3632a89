//! The most that evaluating an expression can cost, told from its text alone, as upstream's validation estimates it
//! (API limit `CELSelectorExpressionMaxCost`). What single functions cost is our own estimate.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators as op,
};
use kube_cel::cel::{IdedExpr, Value};

/// Most that an expression may cost, in steps.
const MAX_COST: u64 = 1_000_000;
/// Cost of a list and of a map that are written out (cel-go's cost tracker).
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
/// Longest text of a device: values of attributes, names of drivers, in bytes.
const TEXT: u64 = 64;
/// Most attributes and capacities of a device, and the size of them all with their names, in bytes.
const ENTRIES: u64 = 64;
const DEVICE: u64 = 8 * 1024;
/// Most digits that `format` writes behind a point.
const DIGITS: u64 = u16::MAX as u64;
/// Most that compiling one regular expression costs; the regex crate bounds its size.
const REGEX: u64 = 300_000;

/// Refuses what can cost too much.
///
/// # Errors
/// Upstream's words.
pub(super) fn check(expression: &str, tree: &IdedExpr) -> Result<(), String> {
    let longest = expression.split(['"', '\'']).map(str::len).max().unwrap_or(0) as u64;
    // Domains that the expression mentions are there for every device.
    let mentioned = expression.len() as u64;
    let names = Size { length: ENTRIES, weight: DEVICE, of: Some(Box::new(Size::text(TEXT.max(longest)))) };
    let domains =
        Size { length: ENTRIES + mentioned / 2, weight: DEVICE + mentioned, of: Some(Box::new(names)) };
    let device = Size { length: 4, weight: 2 * domains.weight, of: Some(Box::new(domains)) };
    let mut bound = Bound { cost: 0, known: vec![("device", device)] };
    bound.visit(tree);
    if bound.cost > MAX_COST { Err("too complex, exceeds cost limit".to_owned()) } else { Ok(()) }
}

/// The most that a value can be.
#[derive(Clone, Debug)]
struct Size {
    /// Elements, or bytes of a text.
    length: u64,
    /// Everything in it.
    weight: u64,
    /// Of each element; `None`: no more than the whole.
    of: Option<Box<Size>>,
}

impl Size {
    fn text(bytes: u64) -> Self {
        Self { length: bytes, weight: bytes, of: None }
    }

    fn element(&self) -> Self {
        self.of.as_deref().cloned().unwrap_or_else(|| Self::text(self.weight))
    }

    /// One or the other.
    fn or(self, other: Self) -> Self {
        let of = match (self.length, self.of, other.length, other.of) {
            (0, None, _, of) | (_, of, 0, None) => of,
            (_, Some(a), _, Some(b)) => Some(Box::new(a.or(*b))),
            _ => None,
        };
        Self { length: self.length.max(other.length), weight: self.weight.max(other.weight), of }
    }

    /// Both, one behind the other.
    fn and(self, other: Self) -> Self {
        let length = self.length.saturating_add(other.length);
        let weight = self.weight.saturating_add(other.weight);
        Self { length, weight, ..self.or(other) }
    }
}

struct Bound<'e> {
    cost: u64,
    /// Variables, the innermost last.
    known: Vec<(&'e str, Size)>,
}

impl<'e> Bound<'e> {
    fn charge(&mut self, steps: u64) {
        self.cost = self.cost.saturating_add(steps);
    }

    /// Charges looking at so many bytes.
    fn read(&mut self, bytes: u64) {
        self.charge(bytes / 10 + 1);
    }

    fn visit(&mut self, expr: &'e IdedExpr) -> Size {
        match &expr.expr {
            Expr::Literal(LiteralValue::String(s)) => Size::text(s.inner().len() as u64),
            Expr::Literal(LiteralValue::Bytes(b)) => Size::text(b.inner().len() as u64),
            Expr::Literal(_) | Expr::Unspecified => Size::text(1),
            Expr::Ident(name) => {
                self.charge(1);
                let known = self.known.iter().rev().find(|(n, _)| n == name);
                known.map_or_else(|| Size::text(1), |(_, size)| size.clone())
            }
            Expr::Select(select) => {
                self.charge(1);
                let of_device = matches!(&select.operand.expr, Expr::Ident(name) if name == "device");
                let operand = self.visit(&select.operand);
                if of_device && select.field == "driver" { Size::text(TEXT) } else { operand.element() }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                self.charge(LIST_COST);
                self.gathered(list.elements.iter())
            }
            Expr::Map(map) => {
                self.charge(MAP_COST);
                self.gathered(map.entries.iter().flat_map(|e| parts(&e.expr)))
            }
            Expr::Struct(made) => {
                self.charge(MAP_COST);
                self.gathered(made.entries.iter().flat_map(|e| parts(&e.expr)))
            }
            Expr::Comprehension(c) => self.comprehension(c),
        }
    }

    fn gathered(&mut self, elements: impl Iterator<Item = &'e IdedExpr>) -> Size {
        let mut all = Size { length: 0, weight: 1, of: None };
        for element in elements {
            let size = self.visit(element);
            all.length += 1;
            all.weight = all.weight.saturating_add(size.weight).saturating_add(1);
            all.of = Some(Box::new(match all.of {
                Some(of) => of.or(size),
                None => size,
            }));
        }
        all
    }

    /// A loop: its steps are all alike, and what it gathers grows by as much in each.
    fn comprehension(&mut self, c: &'e ComprehensionExpr) -> Size {
        let range = self.visit(&c.iter_range);
        let start = self.visit(&c.accu_init);
        let outside = self.known.len();
        self.known.push((&c.accu_var, start.clone()));
        self.known.push((&c.iter_var, range.element()));
        if let Some(second) = &c.iter_var2 {
            self.known.push((second, range.element()));
        }
        let before = std::mem::take(&mut self.cost);
        self.visit(&c.loop_cond);
        let step = self.visit(&c.loop_step);
        let once = std::mem::replace(&mut self.cost, before);
        self.charge(once.saturating_add(1).saturating_mul(range.length));
        self.known.truncate(outside);
        let grown = |from: u64, to: u64| {
            from.saturating_add(to.saturating_sub(from).saturating_mul(range.length)).max(from)
        };
        let end = match range.length {
            0 => start,
            _ => Size {
                length: grown(start.length, step.length),
                weight: grown(start.weight, step.weight),
                of: step.of,
            },
        };
        self.known.push((&c.accu_var, end));
        let result = self.visit(&c.result);
        self.known.truncate(outside);
        result
    }

    fn call(&mut self, call: &'e CallExpr) -> Size {
        let parts: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        let mut sizes: Vec<Size> = parts.iter().map(|part| self.visit(part)).collect();
        let total = sizes.iter().fold(0_u64, |sum, s| sum.saturating_add(s.weight));
        let name = call.func_name.as_str();
        if sizes.len() == 3 && name == op::CONDITIONAL {
            self.charge(1);
            let (last, other) = (sizes.pop(), sizes.pop());
            return last.zip(other).map_or_else(|| Size::text(total), |(a, b)| a.or(b));
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
                    return a.element();
                }
                op::EQUALS | op::NOT_EQUALS => {
                    self.read(a.weight.min(b.weight));
                    return Size::text(1);
                }
                op::LOGICAL_AND | op::LOGICAL_OR => {
                    self.charge(1);
                    return Size::text(1);
                }
                _ => sizes.extend([a, b]),
            }
        }
        self.function(name.rsplit('.').next().unwrap_or(name), &parts, &sizes, total)
    }

    fn function(&mut self, name: &str, parts: &[&IdedExpr], sizes: &[Size], total: u64) -> Size {
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
                let digits = if digits { DIGITS } else { TEXT };
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
            _ => total.saturating_add(TEXT),
        };
        // Of functions on sets and lists some compare everything with everything.
        if matches!(name, "contains" | "equivalent" | "intersects" | "distinct") {
            let elements = sizes.iter().map(|s| if s.of.is_some() { s.length } else { 1 });
            self.charge(elements.fold(1, u64::saturating_mul));
            self.charge(if name == "distinct" { length(0).saturating_mul(length(0)) } else { 0 });
        }
        if most > total {
            self.read(most);
        }
        Size::text(most)
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

/// Cost of compiling a regular expression: what is repeated is compiled as often.
fn regex(pattern: Option<&&IdedExpr>, length: u64) -> u64 {
    let Some(text) = pattern.and_then(|p| literal(p)) else { return REGEX };
    let mut times = 1_u64;
    for part in text.split('{').skip(1) {
        let counts = part.split('}').next().unwrap_or("").split(',');
        times = times.saturating_mul(counts.filter_map(|n| n.parse().ok()).max().unwrap_or(1).max(1));
    }
    length.saturating_mul(20).saturating_mul(times).saturating_add(1000).min(REGEX)
}
