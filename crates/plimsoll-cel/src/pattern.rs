//! Regular expressions as Go reads them (`regexp/syntax`, with Perl's flags), for another engine: classes such as `\w` are those of
//! ASCII, and what only that engine knows is refused or taken literally.

use regex::{Regex, RegexBuilder};

/// Most repetitions that Go takes.
const MAX_REPEAT: u32 = 1000;

/// Compiles a regular expression of Go, to `most` bytes.
///
/// # Errors
/// What is wrong with it, or that it is too large.
pub fn compile(pattern: &str, most: usize) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated).size_limit(most).build().map_err(|e| e.to_string())
}

/// Whether it is a regular expression of Go, however large it would be when it is compiled.
pub fn is_valid(pattern: &str) -> bool {
    translate(pattern).is_ok_and(|translated| regex_syntax::parse(&translated).is_ok())
}

struct Translation<'p> {
    rest: &'p str,
    out: String,
}

/// The same regular expression for the engine.
fn translate(pattern: &str) -> Result<String, String> {
    let mut t = Translation { rest: pattern, out: String::with_capacity(pattern.len() + 16) };
    while let Some(c) = t.rest.chars().next() {
        match c {
            '\\' => t.escape()?,
            '[' => t.class()?,
            '(' => t.group()?,
            '{' => t.repeat()?,
            c => {
                t.out.push(c);
                t.skip(c.len_utf8());
            }
        }
    }
    Ok(t.out)
}

fn perl_class(c: char) -> Option<&'static str> {
    Some(match c {
        'd' => "0-9",
        's' => r"\t\n\f\r\x20",
        'w' => "0-9A-Za-z_",
        _ => return None,
    })
}

impl Translation<'_> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or("");
    }

    fn literal(&mut self, c: char) {
        use std::fmt::Write as _;
        let _ = write!(self.out, r"\x{{{:X}}}", u32::from(c));
    }

    /// An escape outside a class.
    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest[1..].chars().next() else {
            return Err("trailing backslash at end of expression".to_owned());
        };
        match c {
            'Q' => {
                self.skip(2);
                let (text, after) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
                self.rest = after;
                text.chars().for_each(|c| self.literal(c));
            }
            'b' | 'B' => {
                self.out.push_str(if c == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" });
                self.skip(2);
            }
            'A' | 'z' => {
                self.out.push('\\');
                self.out.push(c);
                self.skip(2);
            }
            'p' | 'P' => self.unicode_class()?,
            _ => match perl_class(c.to_ascii_lowercase()) {
                Some(class) => {
                    self.out.push_str(if c.is_ascii_uppercase() { "[^" } else { "[" });
                    self.out.push_str(class);
                    self.out.push(']');
                    self.skip(2);
                }
                None => {
                    let c = self.character()?;
                    self.literal(c);
                }
            },
        }
        Ok(())
    }

    /// `\pN`, `\p{Greek}`, `\P{^Greek}`.
    fn unicode_class(&mut self) -> Result<(), String> {
        let mut negated = self.rest.as_bytes().get(1) == Some(&b'P');
        self.skip(2);
        let name = match self.rest.strip_prefix('{') {
            Some(inner) => {
                let (name, after) = inner.split_once('}').ok_or("invalid character class range")?;
                self.rest = after;
                name
            }
            None => {
                let length = self.rest.chars().next().ok_or("invalid character class range")?.len_utf8();
                let (name, after) = self.rest.split_at(length);
                self.rest = after;
                name
            }
        };
        let plain = name.strip_prefix('^');
        negated ^= plain.is_some();
        let name = plain.unwrap_or(name);
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("invalid character class range: `\\p{{{name}}}`"));
        }
        self.out.push_str(if negated { r"\P{" } else { r"\p{" });
        self.out.push_str(name);
        self.out.push('}');
        Ok(())
    }

    /// One character, escaped or not.
    fn character(&mut self) -> Result<char, String> {
        let c = self.rest.chars().next().ok_or("missing closing ]")?;
        self.skip(c.len_utf8());
        if c != '\\' {
            return Ok(c);
        }
        let c = self.rest.chars().next().ok_or("trailing backslash at end of expression")?;
        self.skip(c.len_utf8());
        let invalid = || format!("invalid escape sequence: `\\{c}`");
        Ok(match c {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => return self.hexadecimal().ok_or_else(invalid),
            '0'..='7' => {
                let more = self.rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                if c != '0' && more == 0 {
                    return Err(invalid());
                }
                let (digits, after) = self.rest.split_at(more);
                self.rest = after;
                u32::from_str_radix(&format!("{c}{digits}"), 8)
                    .ok()
                    .and_then(char::from_u32)
                    .ok_or_else(invalid)?
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return Err(invalid()),
        })
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let digits = match self.rest.strip_prefix('{') {
            Some(inner) => {
                let (digits, after) = inner.split_once('}')?;
                self.rest = after;
                digits
            }
            None => {
                let digits = self.rest.get(..2)?;
                self.rest = &self.rest[2..];
                digits
            }
        };
        let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| u32::from_str_radix(digits, 16).ok()).flatten().and_then(char::from_u32)
    }

    /// A class in brackets: `[` and operators of sets are characters in it.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        self.skip(1);
        if self.rest.starts_with('^') {
            self.out.push('^');
            self.skip(1);
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if self.rest.is_empty() {
                return Err("missing closing ]".to_owned());
            }
            if let Some(named) = self.rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
                self.named_class(named)?;
                continue;
            }
            let escaped = self.rest.strip_prefix('\\').and_then(|rest| rest.chars().next());
            match escaped {
                Some('p' | 'P') => self.unicode_class()?,
                Some(c) if perl_class(c.to_ascii_lowercase()).is_some() => {
                    let class = perl_class(c.to_ascii_lowercase()).unwrap_or_default();
                    let negated = if c.is_ascii_uppercase() { "^" } else { "" };
                    self.out.push_str(&format!("[{negated}{class}]"));
                    self.skip(2);
                }
                _ => self.range()?,
            }
        }
        self.out.push(']');
        self.skip(1);
        Ok(())
    }

    fn named_class(&mut self, (name, after): (&str, &str)) -> Result<(), String> {
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
            "space", "upper", "word", "xdigit",
        ];
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("invalid character class range: `[:{name}:]`"));
        }
        self.out.push_str(&format!("[:{name}:]"));
        let used = self.rest.len() - after.len();
        self.skip(used);
        Ok(())
    }

    fn range(&mut self) -> Result<(), String> {
        let low = self.character()?;
        self.literal(low);
        let is_range =
            self.rest.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(']'));
        if is_range {
            self.skip(1);
            let high = self.character()?;
            if high < low {
                return Err("invalid character class range".to_owned());
            }
            self.out.push('-');
            self.literal(high);
        }
        Ok(())
    }

    /// A group: flags that Go does not know are none.
    fn group(&mut self) -> Result<(), String> {
        if let Some(flags) = self.rest.strip_prefix("(?") {
            let named = flags.starts_with("P<") || flags.starts_with('<');
            let known = |c: char| "imsU-".contains(c);
            let end = flags.trim_start_matches(known);
            if !named && !end.starts_with([':', ')']) {
                return Err("invalid or unsupported Perl syntax".to_owned());
            }
        }
        self.out.push('(');
        self.skip(1);
        Ok(())
    }

    /// A repetition, or a brace where it is none.
    fn repeat(&mut self) -> Result<(), String> {
        let Some((inner, after)) = self.rest[1..].split_once('}').filter(|(inner, _)| is_repeat(inner))
        else {
            self.literal('{');
            self.skip(1);
            return Ok(());
        };
        let too_many = |n: &str| !n.is_empty() && n.parse::<u32>().map_or(true, |n| n > MAX_REPEAT);
        if inner.split(',').any(too_many) {
            return Err(format!("invalid repeat count: `{{{inner}}}`"));
        }
        self.out.push('{');
        self.out.push_str(inner);
        self.out.push('}');
        self.rest = after;
        Ok(())
    }
}

/// `n`, `n,` or `n,m`.
fn is_repeat(inner: &str) -> bool {
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    match inner.split_once(',') {
        None => !inner.is_empty() && digits(inner),
        Some((least, most)) => !least.is_empty() && digits(least) && digits(most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, matching, others) in [
            (r"^\w$", &["a", "_", "9"][..], &["é", "\u{430}"][..]),
            (r"^\W$", &["é", "-"], &["a"]),
            (r"^\d+$", &["12"], &["\u{663}"]),
            (r"^\s$", &[" ", "\t", "\n"], &["\u{a0}", "\u{b}"]),
            (r"^[\w-]+$", &["a-b"], &["é"]),
            (r"^[^\d]$", &["a", "\u{663}"], &["1"]),
            ("^[a&&b]$", &["a", "&", "b"], &["c"]),
            ("^[[a]$", &["[", "a"], &["]"]),
            ("^[]a]$", &["]", "a"], &["["]),
            ("^[^]a]$", &["["], &["]", "a"]),
            ("^[a-]$", &["a", "-"], &["b"]),
            ("^[+--]$", &["+", ",", "-"], &["."]),
            ("^[~~a]$", &["~", "a"], &["b"]),
            ("^[[:alpha:]_]$", &["a", "_"], &["1", "é"]),
            ("^[[:^alpha:]]$", &["1"], &["a"]),
            (r"^\Qa.b[\E$", &["a.b["], &["axb["]),
            (r"\bé", &[" aé"], &["é"]),
            (r"^\<a\>$", &["<a>"], &["a"]),
            (r"^\x41\x{42}\103$", &["ABC"], &["abc"]),
            ("^a{2}$", &["aa"], &["a"]),
            ("^a{,2}$", &["a{,2}"], &["aa"]),
            ("^{a}$", &["{a}"], &["a"]),
            ("^a{1,2}b{1,}$", &["aab", "abb"], &["aaab"]),
            (r"^\p{Greek}\P{Greek}\p{^Greek}\pL$", &["αaaβ"], &["aaaa"]),
            ("(?i)^ab$", &["AB"], &["b"]),
            ("(?P<x>a)(?<y>b)(?:c)", &["abc"], &["ab"]),
            (r"^a\.b\-c\/d$", &["a.b-c/d"], &["axb-c/d"]),
            ("^[0-9A-F]{8}(-[0-9A-F]{4}){3}$", &["0123ABCD-0000-1111-2222"], &["0123"]),
        ] {
            let regex = compile(pattern, 1 << 20).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            for text in matching {
                assert!(regex.is_match(text), "{pattern} {text:?}: {regex}");
            }
            for text in others {
                assert!(!regex.is_match(text), "{pattern} {text:?}: {regex}");
            }
        }
        for pattern in [
            "(",
            "[a",
            r"\",
            r"\y",
            r"[b-a]",
            "(?x)a",
            "(?=a)",
            "a{1001}",
            r"\1",
            "[[:foo:]]",
            r"\p{Nope}",
            r"\u0041",
            "a**b(",
        ] {
            assert!(compile(pattern, 1 << 20).is_err(), "{pattern}");
        }
    }
}
