//! How large a CEL expression may be. The parser and the interpreter recurse into it, and an expression is user
//! input: it must not run out of stack, which nothing can catch.

mod lex;
mod tree;

use kube_cel::cel::IdedExpr;

use self::lex::Token;

/// Deepest nesting of brackets.
const MAX_NESTING: usize = 64;
/// Most operators and selections; a chain of them is as deep as it is long.
const MAX_OPERATORS: usize = 1000;
/// Expressions with more operators and brackets get a stack of their own when they are evaluated.
const SHALLOW: usize = 40;
/// Size of that stack in bytes. Pages that aren't touched cost nothing.
const STACK: usize = 64 << 20;

/// Deepest syntax tree: as many operators as there may be, and the loops of macros within one another.
const MAX_DEPTH: usize = MAX_OPERATORS + 5 * MAX_NESTING;

/// What an expression needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    nesting: usize,
    operators: usize,
    /// Of the syntax tree, once it is known.
    depth: usize,
}

impl Size {
    /// Measures an expression, without the texts and comments in it.
    ///
    /// # Errors
    /// When it is too deep or too long to be evaluated safely.
    pub fn of(source: &str) -> Result<Self, String> {
        let size = Self::lexed(source.as_bytes()).unwrap_or_else(|| Self::most(source));
        if size.nesting > MAX_NESTING {
            return Err(format!("expression recursion limit exceeded: {MAX_NESTING}"));
        }
        if size.operators > MAX_OPERATORS {
            return Err(format!("expression has more than {MAX_OPERATORS} operators"));
        }
        Ok(size)
    }

    /// `None`: something in it is no token.
    fn lexed(mut rest: &[u8]) -> Option<Self> {
        let (mut size, mut open) = (Self::default(), 0_usize);
        while !rest.is_empty() {
            let (token, length) = lex::first(rest)?;
            match token {
                Token::Open => {
                    open += 1;
                    size.operators += 1;
                    size.nesting = size.nesting.max(open);
                }
                Token::Close => open = open.saturating_sub(1),
                Token::Operator => size.operators += 1,
                Token::Other => {}
            }
            rest = rest.get(length..)?;
        }
        Some(size)
    }

    /// The most that what is no expression may look like: where its texts end is a guess of the parser, which
    /// reads on behind an error.
    fn most(source: &str) -> Self {
        let nesting = source.matches(['(', '[', '{']).count();
        let signs = ['.', '!', '-', '+', '*', '/', '%', '?', '<', '>', '=', '&', '|'];
        let operators = nesting + source.matches(signs).count() + source.matches("in").count();
        Self { nesting, operators, depth: 0 }
    }

    /// Parses with stack enough, and measures what has been parsed as well: what is too deep in spite of
    /// [`Self::of`] is dropped where there is still stack enough for it.
    ///
    /// # Errors
    /// The parser's, and when the tree is too deep to be evaluated safely.
    pub fn parsed<P, E: ToString>(
        self,
        parse: impl FnOnce() -> Result<P, E>,
        tree: impl FnOnce(&P) -> &IdedExpr,
    ) -> Result<(P, Self), String> {
        self.parsing(|| {
            let parsed = parse().map_err(|e| e.to_string())?;
            let depth = tree::depth(tree(&parsed));
            if depth > MAX_DEPTH {
                return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            }
            Ok((parsed, Self { depth, ..self }))
        })
    }

    fn is_shallow(self) -> bool {
        (self.nesting + self.operators).max(self.depth) <= SHALLOW
    }

    /// Runs `f`, which parses the expression, with stack enough: a level of brackets takes some 200 KB of it in a
    /// debug build.
    fn parsing<R>(self, f: impl FnOnce() -> R) -> R {
        stacker::grow(STACK, f)
    }

    /// Runs `f`, which evaluates the expression, with stack enough.
    pub fn running<R>(self, f: impl FnOnce() -> R) -> R {
        if self.is_shallow() { f() } else { stacker::grow(STACK, f) }
    }
}

/// Stack that is enough for an expression of any size, and for a shallow one, in bytes.
const ROOM: usize = 16 << 20;
const SHALLOW_ROOM: usize = 1 << 20;

impl Size {
    /// Runs `f`, which evaluates the expression, perhaps within the evaluation of another, with stack enough.
    pub fn nested<R>(self, f: impl FnOnce() -> R) -> R {
        let room = if self.is_shallow() { SHALLOW_ROOM } else { ROOM };
        stacker::maybe_grow(room, STACK, f)
    }
}

/// The tree with optional fields of maps as optional keys, which the interpreter understands better.
pub(crate) fn with_keys(mut tree: IdedExpr) -> IdedExpr {
    tree::fields_to_keys(&mut tree);
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::cel::Program;

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
            (format!("'''\n' {0}''' + r'\\' + bR\"\\\" // {0}", "(".repeat(2000)), true),
            (format!("a.`//`{}", ".a".repeat(900)), true),
            // what hides it from a quick look
            (format!("1 // '\n{}", "+1\n".repeat(8000)), false),
            (format!("r'\\' == ''{}", "+'a'".repeat(2000)), false),
            (format!("R\"\\\"{}", "+1".repeat(2000)), false),
            (format!("br'\\'{}", "+1".repeat(2000)), false),
            (format!("1r'\\'{}", "+1".repeat(2000)), false),
            (format!("'''''a'''{}", "+1".repeat(2000)), false),
            (format!("\"\"\"\"\\\"\"\"\"{}+'\"'", "+1".repeat(2000)), false),
            (format!("''''''{}", "+1".repeat(2000)), false),
            (format!("a.`//`{}", ".a".repeat(2000)), false),
            (format!("1{}", " in 1in 1".repeat(600)), false),
            (format!("1{}", " in 0xfin 1uin 1".repeat(400)), false),
            // what is no token ends a text elsewhere than it seems
            (format!("'\\q''{}'", "+1".repeat(2000)), false),
            (format!("a&'{}'", "+1".repeat(2000)), false),
            (format!("'\n{}'", "+1".repeat(2000)), false),
            (format!("a # '{}'", "(".repeat(2000)), false),
            ("a # '(' '\\q' & '''".to_owned(), true),
        ] {
            assert_eq!(Size::of(&source).is_ok(), fits, "{source}");
        }
    }

    #[test]
    fn what_is_parsed_is_measured_as_well() {
        let parsed = |source: &str| {
            // as if it had not been measured
            let size = Size::default();
            size.parsed(|| Program::compile(source), Program::expression).map(|(_, size)| size.depth)
        };
        assert_eq!(parsed("1"), Ok(1));
        assert_eq!(parsed("a.b[0] + 1"), Ok(4));
        assert_eq!(parsed("[{'a': 1 + 1}]"), Ok(4));
        assert_eq!(parsed(&format!("1{}", "+1".repeat(1000))), Ok(1001));
        assert!(parsed("a.all(x, x > 1)").is_ok_and(|depth| depth > 3));
        let deep = parsed(&format!("1 // '\n{}", "+1".repeat(5000)));
        assert_eq!(deep, Err("expression recursion limit exceeded: 1320".to_owned()));
    }
}
