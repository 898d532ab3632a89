//! Tokens of CEL, as far as measuring an expression needs them (cel-go, `parser/gen/CEL.g4`).

/// A token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Open,
    Close,
    Operator,
    /// Names, literals, separators, comments and spaces.
    Other,
}

/// The first token of a text, and its length in bytes; `None`: the text doesn't begin with a token.
pub(super) fn first(text: &[u8]) -> Option<(Token, usize)> {
    let c = *text.first()?;
    if let Some(quote) = quote(text) {
        return Some((Token::Other, literal(text, quote)?));
    }
    Some(match c {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
            let length = run(text, |c| c.is_ascii_alphanumeric() || c == b'_');
            (if text.get(..length) == Some(b"in") { Token::Operator } else { Token::Other }, length)
        }
        b'0'..=b'9' => (Token::Other, number(text)),
        b' ' | b'\t' | b'\r' | b'\n' | 0x0C | b',' | b':' => (Token::Other, 1),
        b'/' if text.starts_with(b"//") => (Token::Other, run(text, |c| c != b'\n')),
        b'`' => {
            let name = run(text.get(1..)?, |c| c.is_ascii_alphanumeric() || b"_.-/ ".contains(&c));
            if name == 0 || text.get(name + 1) != Some(&b'`') {
                return None;
            }
            (Token::Other, name + 2)
        }
        b'(' | b'[' | b'{' => (Token::Open, 1),
        b')' | b']' | b'}' => (Token::Close, 1),
        b'=' | b'&' | b'|' if text.get(1) != Some(&c) => return None,
        b'=' | b'&' | b'|' => (Token::Operator, 2),
        b'.' | b'!' | b'-' | b'+' | b'*' | b'/' | b'%' | b'?' | b'<' | b'>' => {
            let equals = matches!(c, b'!' | b'<' | b'>') && text.get(1) == Some(&b'=');
            (Token::Operator, 1 + usize::from(equals))
        }
        _ => return None,
    })
}

fn run(text: &[u8], is: impl Fn(u8) -> bool) -> usize {
    text.iter().take_while(|c| is(**c)).count()
}

/// The length of a number without its fraction, which counts as a dot and another number.
fn number(text: &[u8]) -> usize {
    let hex = match text {
        [b'0', b'x', rest @ ..] => run(rest, |c| c.is_ascii_hexdigit()),
        _ => 0,
    };
    let mut length = if hex > 0 { 2 + hex } else { run(text, |c| c.is_ascii_digit()) };
    let unsigned = matches!(text.get(length), Some(b'u' | b'U'));
    if hex == 0 && matches!(text.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'+' | b'-')));
        let digits = text.get(length + 1 + sign..).map_or(0, |rest| run(rest, |c| c.is_ascii_digit()));
        length += if digits > 0 { 1 + sign + digits } else { 0 };
    }
    length + usize::from(unsigned)
}

/// The position of the quote of a literal that begins here: after `b`, `r` or both.
fn quote(text: &[u8]) -> Option<usize> {
    let bytes = usize::from(matches!(text.first(), Some(b'b' | b'B')));
    let at = bytes + usize::from(matches!(text.get(bytes), Some(b'r' | b'R')));
    matches!(text.get(at), Some(b'"' | b'\'')).then_some(at)
}

/// The length of a literal whose first quote is at `at`; `None`: it has no end or an invalid escape.
fn literal(text: &[u8], at: usize) -> Option<usize> {
    let raw = at.checked_sub(1).and_then(|i| text.get(i)).is_some_and(|c| matches!(c, b'r' | b'R'));
    let quote = *text.get(at)?;
    let triple = text.get(at..at + 3) == Some(&[quote; 3]);
    let closing = if triple { 3 } else { 1 };
    let mut i = at + closing;
    loop {
        match *text.get(i)? {
            _ if text.get(i..i + closing).is_some_and(|end| end.iter().all(|c| *c == quote)) => {
                return Some(i + closing);
            }
            b'\\' if !raw => i += 1 + escape(text.get(i + 1..)?)?,
            b'\n' | b'\r' if !triple => return None,
            _ => i += 1,
        }
    }
}

/// The length of an escape after its backslash.
fn escape(text: &[u8]) -> Option<usize> {
    let digits = |n: usize| {
        let all = text.get(1..=n)?.iter().all(u8::is_ascii_hexdigit);
        all.then_some(n + 1)
    };
    match text {
        [b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`', ..] => Some(1),
        [b'0'..=b'3', b'0'..=b'7', b'0'..=b'7', ..] => Some(3),
        [b'x' | b'X', ..] => digits(2),
        [b'u', ..] => digits(4),
        [b'U', ..] => digits(8),
        _ => None,
    }
}
