//! How large a CEL expression may be. The parser and the interpreter recurse into it, and an expression is user
//! input: it must not run out of stack, which nothing can catch.

/// Deepest nesting of brackets.
const MAX_NESTING: usize = 64;
/// Most operators and selections; a chain of them is as deep as it is long.
const MAX_OPERATORS: usize = 1000;
/// Expressions with more operators and brackets get a stack of their own when they are evaluated.
const SHALLOW: usize = 40;
/// Size of that stack in bytes. Pages that aren't touched cost nothing.
const STACK: usize = 64 << 20;

/// What an expression needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    nesting: usize,
    operators: usize,
}

impl Size {
    /// Measures an expression, without the texts in it.
    ///
    /// # Errors
    /// When it is too deep or too long to be evaluated safely.
    pub fn of(source: &str) -> Result<Self, String> {
        let mut size = Self::default();
        let (mut open, mut word) = (0_usize, String::new());
        let mut quote: Option<char> = None;
        let mut escaped = false;
        for c in source.chars() {
            if let Some(end) = quote {
                let closes = !escaped && c == end;
                escaped = !escaped && c == '\\';
                quote = if closes { None } else { quote };
                continue;
            }
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            size.operators += usize::from(word == "in");
            word.clear();
            match c {
                '"' | '\'' => quote = Some(c),
                '(' | '[' | '{' => {
                    open += 1;
                    size.operators += 1;
                    size.nesting = size.nesting.max(open);
                }
                ')' | ']' | '}' => open = open.saturating_sub(1),
                '.' | '!' | '-' | '+' | '*' | '/' | '%' | '?' | '<' | '>' | '=' | '&' | '|' => {
                    size.operators += 1;
                }
                _ => {}
            }
        }
        if size.nesting > MAX_NESTING {
            return Err(format!("expression recursion limit exceeded: {MAX_NESTING}"));
        }
        if size.operators > MAX_OPERATORS {
            return Err(format!("expression has more than {MAX_OPERATORS} operators"));
        }
        Ok(size)
    }

    /// Runs `f`, which parses the expression, with stack enough: a level of brackets takes some 200 KB of it in a
    /// debug build.
    pub fn parsing<R>(self, f: impl FnOnce() -> R) -> R {
        stacker::grow(STACK, f)
    }

    /// Runs `f`, which evaluates the expression, with stack enough.
    pub fn running<R>(self, f: impl FnOnce() -> R) -> R {
        if self.nesting + self.operators <= SHALLOW { f() } else { stacker::grow(STACK, f) }
    }
}

/// Stack that is enough for an expression of any size, and for a shallow one, in bytes.
const ROOM: usize = 16 << 20;
const SHALLOW_ROOM: usize = 1 << 20;

impl Size {
    /// Runs `f`, which evaluates the expression, perhaps within the evaluation of another, with stack enough.
    pub fn nested<R>(self, f: impl FnOnce() -> R) -> R {
        let room = if self.nesting + self.operators <= SHALLOW { SHALLOW_ROOM } else { ROOM };
        stacker::maybe_grow(room, STACK, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_refused() {
        let nested = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
        for (source, fits) in [
            ("self.a.all(x, x in ['a', \"((((\"] && size(x) < 3)".to_owned(), true),
            (nested(64), true),
            (nested(65), false),
            (format!("1{}", "+1".repeat(1000)), true),
            (format!("1{}", "+1".repeat(1001)), false),
            (format!("{}true", "!".repeat(1001)), false),
            (format!("a{}", " in a".repeat(1001)), false),
            (format!("'\\'{}'", "(".repeat(2000)), true),
        ] {
            assert_eq!(Size::of(&source).is_ok(), fits, "{source}");
        }
    }
}
