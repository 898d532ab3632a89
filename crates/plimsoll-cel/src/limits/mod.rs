//! Limits on the size of an expression. The parser and the evaluator recurse into it, and an expression is user input:
//! it must not exhaust the stack, which nothing can catch.

mod lex;
mod tree;

use kube_cel::cel::IdedExpr;

use self::lex::Token;

/// Deepest nesting of brackets.
const MAX_NESTING: usize = 64;
/// Most operators and selections. The syntax tree of a chain of them is as deep as the chain is long.
const MAX_OPERATORS: usize = 1000;
/// Most operators and brackets of an expression that needs little stack.
const SHALLOW: usize = 40;
/// Size of the stack that deeper expressions get when the thread's has too little room, in bytes. Pages that aren't
/// touched cost nothing.
const STACK: usize = 64 << 20;
/// Room on the thread's stack that is enough for every expression, and for a shallow one, in bytes.
const ROOM: usize = 16 << 20;
const SHALLOW_ROOM: usize = 1 << 20;

/// Deepest syntax tree: the operators, and the loops of macros within one another.
const MAX_DEPTH: usize = MAX_OPERATORS + 5 * MAX_NESTING;

/// The size of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    nesting: usize,
    operators: usize,
    /// Depth of the syntax tree; 0 until the expression is parsed.
    depth: usize,
}

impl Size {
    /// Measures an expression before it is parsed. String literals and comments don't count.
    ///
    /// # Errors
    /// The expression is too deep or too long to be evaluated safely.
    pub(crate) fn of(source: &str) -> Result<Self, String> {
        let size = Self::of_tokens(source.as_bytes()).unwrap_or_else(|| Self::at_most(source));
        if size.nesting > MAX_NESTING {
            return Err(format!("expression recursion limit exceeded: {MAX_NESTING}"));
        }
        if size.operators > MAX_OPERATORS {
            return Err(format!("expression has more than {MAX_OPERATORS} operators"));
        }
        Ok(size)
    }

    /// Measures tokens; `None`: something in the expression is no token.
    fn of_tokens(mut rest: &[u8]) -> Option<Self> {
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

    /// An upper bound for a text that isn't an expression: the parser guesses where its string literals end and continues
    /// after an error.
    fn at_most(source: &str) -> Self {
        let nesting = source.matches(['(', '[', '{']).count();
        let signs = ['.', '!', '-', '+', '*', '/', '%', '?', '<', '>', '=', '&', '|'];
        let operators = nesting + source.matches(signs).count() + source.matches("in").count();
        Self { nesting, operators, depth: 0 }
    }

    /// Parses on a stack that is large enough, and measures the syntax tree: one that is too deep in spite of
    /// [`Self::of`] is dropped where there is still stack enough to drop it. Parsing takes some 200 KB of stack for a
    /// level of brackets in a debug build.
    ///
    /// # Errors
    /// The parser's, and when the tree is too deep to be evaluated safely.
    pub(crate) fn parse<P, E: ToString>(
        self,
        parse: impl FnOnce() -> Result<P, E>,
        tree: impl FnOnce(&P) -> &IdedExpr,
    ) -> Result<(P, Self), String> {
        stacker::grow(STACK, || {
            let parsed = parse().map_err(|e| e.to_string())?;
            let depth = tree::depth(tree(&parsed));
            if depth > MAX_DEPTH {
                return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            }
            Ok((parsed, Self { depth, ..self }))
        })
    }

    /// Runs `f`, which recurses into the syntax tree, on a stack that is large enough.
    pub(crate) fn with_stack<R>(self, f: impl FnOnce() -> R) -> R {
        let is_shallow = (self.nesting + self.operators).max(self.depth) <= SHALLOW;
        stacker::maybe_grow(if is_shallow { SHALLOW_ROOM } else { ROOM }, STACK, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::cel::Program;

    #[test]
    fn expressions_that_are_too_large_are_refused() {
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
            // string literals and comments whose end is easy to mistake
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
            // a text that is no token moves the end of a string literal
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
    fn syntax_trees_are_measured_as_well() {
        let parsed = |source: &str| {
            // as if the expression had not been measured
            let size = Size::default();
            size.parse(|| Program::compile(source), Program::expression).map(|(_, size)| size.depth)
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
