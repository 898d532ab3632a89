//! Types of expressions of admission policies, as far as they are certain: what is not declared, has no such field
//! or is of a type it may not have is refused in cel-go's words. What this doesn't follow has no type and is let
//! through.

mod objects;
mod results;
#[cfg(test)]
mod tests;

use std::fmt;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators as op,
};

use self::objects::{DEVICE, Fields, NAMESPACE, REQUEST, named};
use self::results::RESULTS;
use super::Program;
use super::eval::{NAMESPACES, TYPES, variables_of};

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub enum Ty {
    /// Not followed: it may be anything, and nothing is said of it.
    Unknown,
    /// Known at run time only.
    Dyn,
    /// A type without parameters.
    Plain(&'static str),
    /// A list.
    List(Box<Ty>),
    /// A map from texts.
    Map(Box<Ty>),
    /// An object with these fields.
    Object(&'static Fields),
    /// An optional value.
    Optional(Box<Ty>),
}

/// `bool`.
pub const BOOL: Ty = Ty::Plain("bool");
/// `string`.
pub const STRING: Ty = Ty::Plain("string");
/// `null_type`.
pub const NULL: Ty = Ty::Plain("null_type");

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown | Self::Dyn => f.write_str("dyn"),
            Self::Plain(name) => f.write_str(name),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(of) => write!(f, "map(string, {of})"),
            Self::Object(fields) => f.write_str(fields.first().map_or("", |(_, name)| name)),
            Self::Optional(of) => write!(f, "optional_type({of})"),
        }
    }
}

impl Ty {
    fn is_open(&self) -> bool {
        matches!(self, Self::Unknown | Self::Dyn | Self::Optional(_))
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Plain("int" | "uint" | "double"))
    }
}

/// The variables an expression may use, beside `object`, `oldObject`, `request` and `namespaceObject`.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Whether there is `params`.
    pub params: bool,
    /// Whether there is `authorizer`.
    pub authorizer: bool,
    /// Whether it selects devices: there is `device` and nothing else.
    pub device: bool,
    /// Fields of `variables` and their types, if there is such a variable.
    pub variables: Option<Vec<(String, Ty)>>,
}

/// The type of an expression.
///
/// # Errors
/// All errors found, as cel-go prints them.
pub fn check(program: &Program, declared: &Declared) -> Result<Ty, String> {
    let mut checker = Checker { declared, source: program.source(), locals: Vec::new(), errors: Vec::new() };
    let found = program.size.nested(|| checker.ty(program.expression()));
    if checker.errors.is_empty() { Ok(found) } else { Err(checker.errors.join("\n")) }
}

struct Checker<'a> {
    declared: &'a Declared,
    source: &'a str,
    locals: Vec<(&'a str, Ty)>,
    errors: Vec<String>,
}

impl<'a> Checker<'a> {
    fn ty(&mut self, expr: &'a IdedExpr) -> Ty {
        match &expr.expr {
            Expr::Literal(literal) => Ty::Plain(match literal {
                LiteralValue::Boolean(_) => "bool",
                LiteralValue::Int(_) => "int",
                LiteralValue::UInt(_) => "uint",
                LiteralValue::Double(_) => "double",
                LiteralValue::String(_) => "string",
                LiteralValue::Bytes(_) => "bytes",
                LiteralValue::Null => "null_type",
            }),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                let found = self.select(&select.operand, &select.field);
                if select.test { BOOL } else { found }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let types: Vec<Ty> = list.elements.iter().map(|e| self.ty(e)).collect();
                let held = |(i, ty)| if list.optional_indices.contains(&i) { held_by(ty) } else { ty };
                let types = types.into_iter().enumerate().map(held).collect();
                Ty::List(Box::new(self.common(types)))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.ty(&entry.key));
                        let value = self.ty(&entry.value);
                        values.push(if entry.optional { held_by(value) } else { value });
                    }
                }
                self.common(keys);
                Ty::Map(Box::new(self.common(values)))
            }
            Expr::Comprehension(c) => self.comprehension(c),
            Expr::Struct(_) => {
                self.error(0, "unsupported expression");
                Ty::Unknown
            }
            Expr::Unspecified => Ty::Unknown,
        }
    }

    /// The one type of the elements of a list, or of the keys or values of a map.
    fn common(&mut self, types: Vec<Ty>) -> Ty {
        let mut types = types.into_iter();
        let Some(mut first) = types.next() else { return Ty::Unknown };
        for ty in types {
            if !same(&first, &ty) {
                let what = format!("expected type '{}' but found '{}'", shown(&first), shown(&ty));
                self.error(self.source.find(['[', '{']).unwrap_or(0), &what);
                return Ty::Unknown;
            }
            if first != ty {
                // One of them says more than the other.
                first = Ty::Unknown;
            }
        }
        first
    }

    fn ident(&mut self, name: &'a str) -> Ty {
        if let Some((_, ty)) = self.locals.iter().rev().find(|(n, _)| *n == name) {
            return ty.clone();
        }
        match name {
            name if TYPES.contains(&name) => Ty::Plain("type"),
            "device" if self.declared.device => Ty::Object(DEVICE),
            name if self.declared.device => {
                self.undeclared(name, false);
                Ty::Unknown
            }
            "object" | "oldObject" => Ty::Dyn,
            "request" => Ty::Object(REQUEST),
            "namespaceObject" => Ty::Object(NAMESPACE),
            "params" if self.declared.params => Ty::Dyn,
            "authorizer" if self.declared.authorizer => Ty::Plain("kubernetes.authorization.Authorizer"),
            name => {
                self.undeclared(name, false);
                Ty::Unknown
            }
        }
    }

    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|(n, _)| *n == name)
    }

    fn undeclared(&mut self, name: &str, is_function: bool) {
        let at = word(self.source, name);
        let at =
            if is_function { at + self.source.get(at..).and_then(|s| s.find('(')).unwrap_or(0) } else { at };
        self.error(at, &format!("undeclared reference to '{name}' (in container '')"));
    }

    fn error(&mut self, at: usize, what: &str) {
        let before = self.source.get(..at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count());
        self.errors.push(super::errors::displayed(line + 1, column, what, self.source));
    }

    fn select(&mut self, operand: &'a IdedExpr, field: &str) -> Ty {
        let at = |source: &str| source.find(&format!(".{field}")).unwrap_or(0);
        if let Expr::Ident(name) = &operand.expr
            && !self.is_local(name)
        {
            match (name.as_str(), &self.declared.variables) {
                ("variables", Some(variables)) => {
                    if let Some((_, ty)) = variables.iter().rev().find(|(n, _)| n == field) {
                        return ty.clone();
                    }
                    self.error(at(self.source), &format!("undefined field '{field}'"));
                    return Ty::Unknown;
                }
                ("authorizer", _) if self.declared.authorizer && field == "requestResource" => {
                    return Ty::Plain("kubernetes.authorization.ResourceCheck");
                }
                _ => {}
            }
        }
        match self.ty(operand) {
            Ty::Dyn => Ty::Dyn,
            Ty::Unknown => Ty::Unknown,
            Ty::Map(of) => *of,
            Ty::Optional(_) => Ty::Optional(Box::new(Ty::Unknown)),
            Ty::Object(fields) => match fields.iter().find(|(n, _)| *n == field && *n != "@name") {
                Some((_, ty)) => named(ty),
                None => {
                    self.error(at(self.source), &format!("undefined field '{field}'"));
                    Ty::Unknown
                }
            },
            other => {
                self.error(at(self.source), &format!("type '{other}' does not support field selection"));
                Ty::Unknown
            }
        }
    }

    fn call(&mut self, call: &'a CallExpr) -> Ty {
        let name = call.func_name.as_str();
        if let Some(target) = call.target.as_deref() {
            return self.method(call, target);
        }
        if let (op::OPT_SELECT, [operand, _]) = (name, call.args.as_slice()) {
            self.ty(operand);
            return Ty::Optional(Box::new(Ty::Unknown));
        }
        let types: Vec<Ty> = call.args.iter().map(|a| self.ty(a)).collect();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return self.operator(name, &types);
        }
        self.result(name)
    }

    fn method(&mut self, call: &'a CallExpr, target: &'a IdedExpr) -> Ty {
        let name = call.func_name.as_str();
        let space = match &target.expr {
            Expr::Ident(n) if NAMESPACES.contains(&n.as_str()) && !self.is_local(n) => Some(n.as_str()),
            _ => None,
        };
        let args = call.args.as_slice();
        if let (Some("cel"), "bind", [variable, value, body]) = (space, name, args) {
            let ty = self.ty(value);
            return self.with(std::slice::from_ref(variable), &[ty], std::slice::from_ref(body));
        }
        if space.is_none() {
            self.ty(target);
        }
        let variables = variables_of(name, args.len());
        if variables > 0 && space.is_none() {
            let (names, rest) = args.split_at(variables);
            self.with(names, &[Ty::Unknown, Ty::Unknown], rest);
            return if matches!(name, "all" | "exists" | "existsOne" | "exists_one") {
                BOOL
            } else {
                Ty::Unknown
            };
        }
        for arg in args {
            self.ty(arg);
        }
        // `lists.range`, `format.named`, `sets.contains` and others of a namespace that methods have, too.
        if space.is_some_and(|s| matches!(s, "math" | "lists" | "format")) && self.result(name) != Ty::Unknown
        {
            return Ty::Unknown;
        }
        self.result(name)
    }

    fn with(&mut self, names: &'a [IdedExpr], types: &[Ty], bodies: &'a [IdedExpr]) -> Ty {
        let base = self.locals.len();
        for (name, ty) in names.iter().zip(types) {
            if let Expr::Ident(name) = &name.expr {
                self.locals.push((name, ty.clone()));
            }
        }
        let found = bodies.iter().map(|b| self.ty(b)).last().unwrap_or(Ty::Unknown);
        self.locals.truncate(base);
        found
    }

    fn result(&mut self, name: &str) -> Ty {
        match RESULTS.iter().find(|(_, names)| names.contains(&name)) {
            Some((ty, _)) => named(ty),
            None => {
                self.undeclared(name, true);
                Ty::Unknown
            }
        }
    }

    fn operator(&mut self, name: &str, types: &[Ty]) -> Ty {
        let is_bool = |t: &Ty| t.is_open() || *t == BOOL;
        let fits = match (name, types) {
            (op::LOGICAL_AND | op::LOGICAL_OR | op::LOGICAL_NOT, all) => all.iter().all(is_bool),
            (op::CONDITIONAL, [condition, yes, no]) => is_bool(condition) && alike(yes, no, false),
            (op::EQUALS | op::NOT_EQUALS, [a, b]) => alike(a, b, false),
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [a, b]) => alike(a, b, true),
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [a, b]) => {
                let plain = |t: &Ty| !matches!(t, Ty::Plain("bool" | "null_type" | "type"));
                plain(a) && plain(b) && alike(a, b, false)
            }
            (op::IN, [a, Ty::List(b)]) => alike(a, b, false),
            (op::IN, [_, Ty::Plain(_)]) => false,
            _ => true,
        };
        if !fits {
            let shown: Vec<String> = types.iter().map(shown).collect();
            let symbol: String = name.chars().filter(|c| !matches!(c, '_' | '@' | '[' | ']' | ':')).collect();
            let at = self.source.find(&symbol).unwrap_or(0);
            let what = format!("found no matching overload for '{name}' applied to '({})'", shown.join(", "));
            self.error(at, &what);
        }
        match (name, types) {
            (op::CONDITIONAL, [_, yes, no]) => joined(yes, no),
            (op::INDEX, [Ty::List(of) | Ty::Map(of), _]) => (**of).clone(),
            (op::INDEX, [Ty::Dyn, _]) => Ty::Dyn,
            (op::INDEX, _) => Ty::Unknown,
            (op::OPT_INDEX, _) => Ty::Optional(Box::new(Ty::Unknown)),
            (op::NEGATE, [of]) => of.clone(),
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [a, b]) => match (a, b) {
                (Ty::Dyn, Ty::Dyn) => Ty::Dyn,
                (Ty::Plain(_), Ty::Dyn) => a.clone(),
                (Ty::Dyn, Ty::Plain(_)) => b.clone(),
                (a, b) if a == b => a.clone(),
                _ => Ty::Unknown,
            },
            _ => BOOL,
        }
    }

    fn comprehension(&mut self, c: &'a ComprehensionExpr) -> Ty {
        let element = match self.ty(&c.iter_range) {
            Ty::List(of) => *of,
            Ty::Map(_) => STRING,
            Ty::Dyn => Ty::Dyn,
            Ty::Unknown | Ty::Optional(_) => Ty::Unknown,
            other => {
                let what = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(0, &what);
                Ty::Unknown
            }
        };
        let start = match self.ty(&c.accu_init) {
            Ty::List(_) => Ty::List(Box::new(Ty::Unknown)),
            other => other,
        };
        let base = self.locals.len();
        self.locals.push((&c.accu_var, start));
        self.locals.push((&c.iter_var, element));
        self.ty(&c.loop_step);
        self.locals.truncate(base + 1);
        let found = self.ty(&c.result);
        self.locals.truncate(base);
        found
    }
}

/// Whether two types can be compared. `numbers`: numbers of any types can.
fn alike(a: &Ty, b: &Ty, numbers: bool) -> bool {
    match (a, b) {
        (a, b) if a.is_open() || b.is_open() => true,
        // Objects can be null.
        (Ty::Plain("null_type"), Ty::Plain(p)) | (Ty::Plain(p), Ty::Plain("null_type")) => {
            !matches!(*p, "bool" | "int" | "uint" | "double" | "string" | "bytes")
        }
        (Ty::Plain("null_type"), Ty::Object(_)) | (Ty::Object(_), Ty::Plain("null_type")) => true,
        (Ty::List(a), Ty::List(b)) | (Ty::Map(a), Ty::Map(b)) => alike(a, b, false),
        (a, b) => a == b || (numbers && a.is_number() && b.is_number()),
    }
}

/// The type of a value that has one of two types.
fn joined(a: &Ty, b: &Ty) -> Ty {
    match (a, b) {
        (Ty::Dyn, _) | (_, Ty::Dyn) => Ty::Dyn,
        (a, b) if a == b => a.clone(),
        _ => Ty::Unknown,
    }
}

/// A type as the compiler's messages have it.
fn shown(ty: &Ty) -> String {
    ty.to_string().replace("null_type", "null")
}

/// What an optional value holds.
fn held_by(optional: Ty) -> Ty {
    match optional {
        Ty::Optional(of) => *of,
        _ => Ty::Unknown,
    }
}

/// Whether two types are the same, as far as they are known.
fn same(a: &Ty, b: &Ty) -> bool {
    match (a, b) {
        (Ty::Unknown, _) | (_, Ty::Unknown) => true,
        (Ty::List(a), Ty::List(b)) | (Ty::Map(a), Ty::Map(b)) | (Ty::Optional(a), Ty::Optional(b)) => {
            same(a, b)
        }
        (a, b) => a == b,
    }
}

/// Where a word stands in a text.
fn word(source: &str, name: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |at: usize| {
        let before = source.get(..at).and_then(|s| s.chars().next_back());
        let after = source.get(at + name.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    source.match_indices(name).map(|(at, _)| at).find(|at| whole(*at)).unwrap_or(0)
}
