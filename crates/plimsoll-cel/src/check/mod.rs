//! Type check of expressions, as far as types are certain: it refuses an undeclared name, an undefined field and an
//! operand of a wrong type in cel-go's words. An expression whose type it doesn't follow has no type and passes.

#[cfg(test)]
mod tests;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators as op,
};

use crate::environment::{Environment, Type};
use crate::error::{CompileError, display_error};
use crate::eval::is_duration;
use crate::{library, pattern};

/// Most errors that are told, as in cel-go, and about how many bytes of them: each has the whole source.
const MAX_ERRORS: usize = 100;
const MAX_ERROR_BYTES: usize = 256 << 10;

/// The type of an expression.
///
/// # Errors
/// All errors found, as cel-go prints them.
pub(crate) fn check(
    expression: &IdedExpr,
    source: &str,
    environment: &Environment,
) -> Result<Type, CompileError> {
    let mut checker =
        Checker { environment, source, locals: Vec::new(), errors: Vec::new(), literals: Vec::new() };
    let found = checker.type_of(expression);
    // Literals are looked at where the types are right.
    let errors = if checker.errors.is_empty() { checker.literals } else { checker.errors };
    if errors.is_empty() { Ok(found) } else { Err(CompileError(errors.join("\n"))) }
}

/// Whether another error is told.
fn has_room(errors: &[String]) -> bool {
    errors.len() < MAX_ERRORS && errors.iter().map(String::len).sum::<usize>() < MAX_ERROR_BYTES
}

struct Checker<'a> {
    environment: &'a Environment,
    source: &'a str,
    /// Variables of macros, the innermost last.
    locals: Vec<(&'a str, Type)>,
    errors: Vec<String>,
    /// Errors of literals.
    literals: Vec<String>,
}

impl<'a> Checker<'a> {
    fn type_of(&mut self, expr: &'a IdedExpr) -> Type {
        match &expr.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::UInt(_) => Type::Uint,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::String(_) => Type::String,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Null => Type::Null,
            },
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                let found = self.select(&select.operand, &select.field);
                if select.test { Type::Bool } else { found }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let types: Vec<Type> = list.elements.iter().map(|e| self.type_of(e)).collect();
                let held = |(i, ty)| if list.optional_indices.contains(&i) { held_by(ty) } else { ty };
                let types = types.into_iter().enumerate().map(held).collect();
                Type::list(self.common(types))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.type_of(&entry.key));
                        let value = self.type_of(&entry.value);
                        values.push(if entry.optional { held_by(value) } else { value });
                    }
                }
                self.common(keys);
                Type::map(self.common(values))
            }
            Expr::Comprehension(c) => self.comprehension(c),
            Expr::Struct(_) => {
                self.error(0, "unsupported expression");
                Type::Unknown
            }
            Expr::Unspecified => Type::Unknown,
        }
    }

    /// The one type of the elements of a list, or of the keys or values of a map.
    fn common(&mut self, types: Vec<Type>) -> Type {
        let mut types = types.into_iter();
        let Some(mut first) = types.next() else { return Type::Unknown };
        for ty in types {
            if !same(&first, &ty) {
                let what = format!("expected type '{}' but found '{}'", shown(&first), shown(&ty));
                self.error(self.source.find(['[', '{']).unwrap_or(0), &what);
                return Type::Unknown;
            }
            if first != ty {
                // The check follows one of the two further than the other.
                first = Type::Unknown;
            }
        }
        first
    }

    fn ident(&mut self, name: &'a str) -> Type {
        if let Some((_, ty)) = self.locals.iter().rev().find(|(n, _)| *n == name) {
            return ty.clone();
        }
        if library::is_type(name) {
            return Type::Type;
        }
        match self.environment.type_of(name) {
            Some(ty) => ty.clone(),
            None => {
                self.undeclared(name, false);
                Type::Unknown
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
        if has_room(&self.errors) {
            let shown = self.shown_at(at, what);
            self.errors.push(shown);
        }
    }

    fn shown_at(&self, at: usize, what: &str) -> String {
        let before = self.source.get(..at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count());
        display_error(line + 1, column, what, self.source)
    }

    /// A text that a function makes nothing of (cel-go's `ValidateTimestampLiterals` and the like).
    fn literal(&mut self, function: &str, arg: Option<&IdedExpr>) {
        let Some(Expr::Literal(LiteralValue::String(text))) = arg.map(|a| &a.expr) else { return };
        let text = text.inner();
        let right = match function {
            "timestamp" => library::of_string(function, text).is_ok(),
            "duration" => is_duration(text),
            "matches" => pattern::is_valid(text),
            _ => true,
        };
        if !right && has_room(&self.literals) {
            let quoted =
                ['\'', '"'].iter().find_map(|quote| self.source.find(&format!("{quote}{text}{quote}")));
            let shown = self.shown_at(quoted.unwrap_or(0), &format!("invalid {function} argument"));
            self.literals.push(shown);
        }
    }

    fn select(&mut self, operand: &'a IdedExpr, field: &str) -> Type {
        let at = |source: &str| source.find(&format!(".{field}")).unwrap_or(0);
        if let Some(name) = library::ident(operand)
            && !self.is_local(name)
        {
            if let Some(ty) = self.environment.type_of_field(name, field) {
                return ty.clone();
            }
            if self.environment.is_scope(name) {
                self.error(at(self.source), &format!("undefined field '{field}'"));
                return Type::Unknown;
            }
        }
        match self.type_of(operand) {
            Type::Dyn => Type::Dyn,
            Type::Unknown => Type::Unknown,
            Type::Map(of) => *of,
            Type::Optional(_) => Type::optional(Type::Unknown),
            Type::Object(of) => match of.field(field) {
                Some(ty) => ty.clone(),
                None => {
                    self.error(at(self.source), &format!("undefined field '{field}'"));
                    Type::Unknown
                }
            },
            other => {
                self.error(at(self.source), &format!("type '{other}' does not support field selection"));
                Type::Unknown
            }
        }
    }

    fn call(&mut self, call: &'a CallExpr) -> Type {
        let name = call.func_name.as_str();
        if let Some(target) = call.target.as_deref() {
            return self.method(call, target);
        }
        if let (op::OPT_SELECT, [operand, _]) = (name, call.args.as_slice()) {
            self.type_of(operand);
            return Type::optional(Type::Unknown);
        }
        let types: Vec<Type> = call.args.iter().map(|a| self.type_of(a)).collect();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return self.operator(name, &types);
        }
        self.literal(name, call.args.last());
        self.result(name)
    }

    fn method(&mut self, call: &'a CallExpr, target: &'a IdedExpr) -> Type {
        let name = call.func_name.as_str();
        let namespace = library::namespace(target).filter(|n| !self.is_local(n));
        let args = call.args.as_slice();
        if let (Some("cel"), "bind", [variable, value, body]) = (namespace, name, args) {
            let ty = self.type_of(value);
            return self.with(std::slice::from_ref(variable), &[ty], std::slice::from_ref(body));
        }
        if namespace.is_none() {
            self.type_of(target);
        }
        let variables = library::macro_variables(name, args.len());
        if variables > 0 && namespace.is_none() {
            let (names, rest) = args.split_at(variables);
            self.with(names, &[Type::Unknown, Type::Unknown], rest);
            return if matches!(name, "all" | "exists" | "existsOne" | "exists_one") {
                Type::Bool
            } else {
                Type::Unknown
            };
        }
        for arg in args {
            self.type_of(arg);
        }
        if name == "matches" {
            self.literal(name, args.first());
        }
        // Functions of these namespaces share names with methods whose results have other types.
        if namespace.is_some_and(|n| matches!(n, "math" | "lists" | "format"))
            && self.result(name) != Type::Unknown
        {
            return Type::Unknown;
        }
        self.result(name)
    }

    fn with(&mut self, names: &'a [IdedExpr], types: &[Type], bodies: &'a [IdedExpr]) -> Type {
        let base = self.locals.len();
        for (name, ty) in names.iter().zip(types) {
            if let Expr::Ident(name) = &name.expr {
                self.locals.push((name, ty.clone()));
            }
        }
        let found = bodies.iter().map(|b| self.type_of(b)).last().unwrap_or(Type::Unknown);
        self.locals.truncate(base);
        found
    }

    fn result(&mut self, name: &str) -> Type {
        match library::result_type(name) {
            Some(ty) => ty,
            None => {
                self.undeclared(name, true);
                Type::Unknown
            }
        }
    }

    fn operator(&mut self, name: &str, types: &[Type]) -> Type {
        let is_bool = |t: &Type| t.is_open() || *t == Type::Bool;
        let fits = match (name, types) {
            (op::LOGICAL_AND | op::LOGICAL_OR | op::LOGICAL_NOT, all) => all.iter().all(is_bool),
            (op::CONDITIONAL, [condition, yes, no]) => is_bool(condition) && alike(yes, no, false),
            (op::EQUALS | op::NOT_EQUALS, [a, b]) => alike(a, b, false),
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [a, b]) => alike(a, b, true),
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [a, b]) => {
                let adds = |t: &Type| !matches!(t, Type::Bool | Type::Null | Type::Type);
                adds(a) && adds(b) && alike(a, b, false)
            }
            (op::IN, [a, Type::List(b)]) => alike(a, b, false),
            (op::IN, [_, b]) if b.is_plain() => false,
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
            (op::INDEX, [Type::List(of) | Type::Map(of), _]) => (**of).clone(),
            (op::INDEX, [Type::Dyn, _]) => Type::Dyn,
            (op::INDEX, _) => Type::Unknown,
            (op::OPT_INDEX, _) => Type::optional(Type::Unknown),
            (op::NEGATE, [of]) => of.clone(),
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [a, b]) => match (a, b) {
                (Type::Dyn, Type::Dyn) => Type::Dyn,
                (a, Type::Dyn) if a.is_plain() => a.clone(),
                (Type::Dyn, b) if b.is_plain() => b.clone(),
                (a, b) if a == b => a.clone(),
                _ => Type::Unknown,
            },
            _ => Type::Bool,
        }
    }

    fn comprehension(&mut self, c: &'a ComprehensionExpr) -> Type {
        let element = match self.type_of(&c.iter_range) {
            Type::List(of) => *of,
            Type::Map(_) => Type::String,
            Type::Dyn => Type::Dyn,
            Type::Unknown | Type::Optional(_) => Type::Unknown,
            other => {
                let what = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(0, &what);
                Type::Unknown
            }
        };
        let start = match self.type_of(&c.accu_init) {
            Type::List(_) => Type::list(Type::Unknown),
            other => other,
        };
        let base = self.locals.len();
        self.locals.push((&c.accu_var, start));
        self.locals.push((&c.iter_var, element));
        self.type_of(&c.loop_step);
        self.locals.truncate(base + 1);
        let found = self.type_of(&c.result);
        self.locals.truncate(base);
        found
    }
}

/// Whether values of two types can be compared; `numbers`: numbers of different types can.
fn alike(a: &Type, b: &Type, numbers: bool) -> bool {
    match (a, b) {
        (a, b) if a.is_open() || b.is_open() => true,
        (Type::Null, other) | (other, Type::Null) => is_nullable(other),
        (Type::List(a), Type::List(b)) | (Type::Map(a), Type::Map(b)) => alike(a, b, false),
        (a, b) => a == b || (numbers && a.is_number() && b.is_number()),
    }
}

/// Whether `null` can be compared with a value of a type: with objects and opaque values it can.
fn is_nullable(ty: &Type) -> bool {
    matches!(ty, Type::Null | Type::Type | Type::Opaque(_) | Type::Object(_))
}

/// The type of a value that has one of two types.
fn joined(a: &Type, b: &Type) -> Type {
    match (a, b) {
        (Type::Dyn, _) | (_, Type::Dyn) => Type::Dyn,
        (a, b) if a == b => a.clone(),
        _ => Type::Unknown,
    }
}

/// A type as cel-go's messages show it.
fn shown(ty: &Type) -> String {
    ty.to_string().replace("null_type", "null")
}

/// The type that an optional value holds.
fn held_by(optional: Type) -> Type {
    match optional {
        Type::Optional(of) => *of,
        _ => Type::Unknown,
    }
}

/// Whether two types are the same, as far as the check follows them.
fn same(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Unknown, _) | (_, Type::Unknown) => true,
        (Type::List(a), Type::List(b))
        | (Type::Map(a), Type::Map(b))
        | (Type::Optional(a), Type::Optional(b)) => same(a, b),
        (a, b) => a == b,
    }
}

/// The position of a word in a text, in bytes; 0 where it isn't there.
fn word(source: &str, name: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |at: usize| {
        let before = source.get(..at).and_then(|s| s.chars().next_back());
        let after = source.get(at + name.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    source.match_indices(name).map(|(at, _)| at).find(|at| whole(*at)).unwrap_or(0)
}
