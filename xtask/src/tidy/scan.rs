//! What a Rust file declares and refers to, read without a compiler: enough to tell which files know each other.

/// One `use`, expanded: `use a::{b as c, d::*}` is two.
#[derive(PartialEq, Eq, Debug)]
pub struct Import {
    pub path: Vec<String>,
    /// The name it has in the file; `*` for globs.
    pub name: String,
}

#[derive(Default, Debug)]
pub struct Source {
    pub imports: Vec<Import>,
    /// Paths outside of `use`, from their first segment.
    pub paths: Vec<Vec<String>>,
    /// Names of items, at whatever depth.
    pub items: Vec<String>,
}

impl Source {
    pub fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut source = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            at = source.token(&tokens, at);
        }
        source
    }

    /// Takes in what begins at this token; returns where to go on.
    fn token(&mut self, tokens: &[String], at: usize) -> usize {
        let next = tokens.get(at + 1).map(String::as_str).unwrap_or_default();
        match tokens[at].as_str() {
            "use" => self.import(tokens, at + 1, &[]),
            "struct" | "enum" | "trait" | "type" | "fn" | "const" | "static" | "union"
                if is_word(next) && next != "fn" =>
            {
                self.items.push(next.to_owned());
                at + 2
            }
            "macro_rules" => {
                self.items.extend(tokens.get(at + 2).cloned());
                at + 3
            }
            word if is_word(word) && next == "::" => {
                let (path, end) = path(tokens, at);
                let before = at.checked_sub(1).map(|b| tokens[b].as_str());
                if !matches!(before, Some("::" | ".")) {
                    self.paths.push(path);
                }
                end
            }
            _ => at + 1,
        }
    }

    /// One branch of a `use` that begins here, below `head`; returns the token after it.
    fn import(&mut self, tokens: &[String], at: usize, head: &[String]) -> usize {
        let (mut path, mut at) = path(tokens, at);
        path.splice(0..0, head.iter().cloned());
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|t| t != "}") {
                    let end = self.import(tokens, at, &path);
                    at = end.max(at + 1);
                    if tokens.get(at).is_some_and(|t| t == ",") {
                        at += 1;
                    }
                }
                at + 1
            }
            Some("*") => {
                self.imports.push(Import { path, name: "*".to_owned() });
                at + 1
            }
            next => {
                if path.last().is_some_and(|l| l == "self") && path.len() > 1 {
                    path.pop();
                }
                let alias = (next == Some("as")).then(|| tokens.get(at + 1).cloned()).flatten();
                let end = if alias.is_some() { at + 2 } else { at };
                if let Some(name) = alias.or_else(|| path.last().cloned()) {
                    self.imports.push(Import { path, name });
                }
                end
            }
        }
    }
}

/// A path's segments from here, and the token after them; a `::` before braces or a star belongs to it.
fn path(tokens: &[String], mut at: usize) -> (Vec<String>, usize) {
    let mut segments = Vec::new();
    if tokens.get(at).is_some_and(|t| t == "::") {
        at += 1;
    }
    while let Some(word) = tokens.get(at).filter(|t| is_word(t)) {
        segments.push(word.clone());
        at += 1;
        if tokens.get(at).is_none_or(|t| t != "::") {
            break;
        }
        at += 1;
    }
    (segments, at)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::` and single characters, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let skipped = comment(rest).or_else(|| literal(rest));
        if let Some(length) = skipped {
            at += length;
        } else if rest[0].is_alphanumeric() || rest[0] == '_' {
            let length = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
            tokens.push(rest[..length].iter().collect());
            at += length;
        } else if rest.starts_with(&[':', ':']) {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !rest[0].is_whitespace() {
                tokens.push(rest[0].to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// Length of the comment that begins here.
fn comment(rest: &[char]) -> Option<usize> {
    match rest {
        ['/', '/', ..] => Some(rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => {
            let mut depth = 0_usize;
            let mut at = 0;
            while at < rest.len() {
                match &rest[at..] {
                    ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
                    ['*', '/', ..] if depth == 1 => return Some(at + 2),
                    ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
                    _ => at += 1,
                }
            }
            Some(rest.len())
        }
        _ => None,
    }
}

/// Length of the literal that begins here: strings, raw strings, characters; lifetimes are none.
fn literal(rest: &[char]) -> Option<usize> {
    let prefix = match rest {
        ['b', 'r' | '"' | '\'', ..] | ['c', '"', ..] => 1,
        _ => 0,
    };
    match &rest[prefix..] {
        ['r', tail @ ..] => {
            let hashes = tail.iter().take_while(|c| **c == '#').count();
            let body = tail.get(hashes + 1..).filter(|_| tail[hashes] == '"')?;
            let end = (0..body.len()).find(|i| {
                body[*i] == '"' && body[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
            });
            Some(end.map_or(rest.len(), |i| prefix + 1 + hashes + 1 + i + 1 + hashes))
        }
        ['"', body @ ..] => Some(prefix + 1 + quoted(body, '"')),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => Some(prefix + 1 + quoted(&rest[prefix + 1..], '\'')),
        _ => None,
    }
}

/// Length up to and with the closing quote.
fn quoted(body: &[char], quote: char) -> usize {
    let mut at = 0;
    while at < body.len() && body[at] != quote {
        at += if body[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(body.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<(String, String)> {
        Source::parse(text).imports.into_iter().map(|i| (i.path.join("::"), i.name)).collect()
    }

    #[test]
    fn uses_are_expanded() {
        let found =
            imports("pub(crate) use crate::a::{self, b::{C, D as E}, f::*};\nuse super::g;\nuse h as _;");
        let expected = [
            ("crate::a", "a"),
            ("crate::a::b::C", "C"),
            ("crate::a::b::D", "E"),
            ("crate::a::f", "*"),
            ("super::g", "g"),
            ("h", "_"),
        ];
        assert_eq!(found, expected.map(|(p, n)| (p.to_owned(), n.to_owned())));
    }

    #[test]
    fn paths_in_code_are_found_and_those_in_text_are_not() {
        let source = Source::parse(
            "// crate::a::b\nfn f<'a>(x: &'a str) -> crate::a::B { let s = \"crate::c\"; let c = '\"'; r#\"crate::d\"#; \
             super::e::g::<u8>(x); /* crate::h /* */ crate::i */ x.y::<Z>() }",
        );
        assert_eq!(source.paths, [vec!["crate", "a", "B"], vec!["super", "e", "g"]]);
        assert_eq!(source.items, ["f"]);
    }

    #[test]
    fn items_are_named() {
        let source = Source::parse(
            "pub struct A<T>(T); enum B {} macro_rules! c { () => {} } const fn d() {} type E = A<u8>;",
        );
        assert_eq!(source.items, ["A", "B", "c", "d", "E"]);
    }
}
