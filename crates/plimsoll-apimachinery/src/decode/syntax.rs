//! Go's words for malformed JSON and YAML. Only runs when a body is already known to be malformed.

/// The error of `encoding/json` for a text that is not JSON; `None` when the text is JSON.
pub fn explain(body: &[u8]) -> Option<String> {
    let mut scanner = Scanner { body, at: 0 };
    match scanner.document() {
        Ok(()) => None,
        Err(Fault::End) => Some("unexpected end of JSON input".to_owned()),
        Err(Fault::Char(at, context)) => {
            let c = body.get(at).copied().unwrap_or_default();
            Some(format!("invalid character {} {context}", quote(c)))
        }
    }
}

/// The errors for which upstream's parser has special texts.
fn yaml_in_go(text: &str, error: &serde_saphyr::Error, line: u64) -> Option<String> {
    let message = error.to_string();
    let message = message.lines().next().unwrap_or_default();
    let anchor = || {
        let place = error.location()?;
        let line = text.lines().nth(usize::try_from(place.line()).ok()?.checked_sub(1)?)?;
        let name: String = line.chars().skip(usize::try_from(place.column()).ok()?).collect();
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_'));
        name.get(..end.unwrap_or(name.len())).map(str::to_owned)
    };
    if message.contains("unknown anchor") {
        return anchor().map(|name| format!("yaml: unknown anchor '{name}' referenced"));
    }
    if message.contains("recursive references") {
        return anchor().map(|name| format!("yaml: anchor '{name}' value contains itself"));
    }
    if message.contains("tabs disallowed") {
        return Some(format!("yaml: line {line}: found character that cannot start any token"));
    }
    if message.contains("invalid !!binary base64") {
        return Some("yaml: !!binary value contains invalid base64 data".to_owned());
    }
    message
        .contains("simple key expected ':'")
        .then(|| format!("yaml: line {}: could not find expected ':'", line.saturating_add(1)))
}

/// The error for malformed YAML. The parsers differ, so only its beginning is upstream's.
pub fn explain_yaml(text: &str, error: &serde_saphyr::Error) -> String {
    let line = error.location().map_or(1, |l| l.line());
    if let Some(message) = yaml_in_go(text, error, line) {
        return message;
    }
    let unclosed = |open: char, close: char| text.matches(open).count() > text.matches(close).count();
    let what = if unclosed('[', ']') {
        if text.trim_end().ends_with(['[', ',']) {
            "did not find expected node content".to_owned()
        } else {
            "did not find expected ',' or ']'".to_owned()
        }
    } else if unclosed('{', '}') {
        "did not find expected ',' or '}'".to_owned()
    } else {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default();
        message.rsplit_once(" at line ").map_or(message, |(message, _)| message).to_owned()
    };
    let line = if what.starts_with("did not") { text.lines().count().max(1) as u64 } else { line };
    format!("yaml: line {line}: {what}")
}

enum Fault {
    End,
    Char(usize, &'static str),
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

/// The value that the scanner is inside of.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Object,
    Array,
}

impl Scanner<'_> {
    fn peek(&mut self) -> Result<u8, Fault> {
        while self.body.get(self.at).is_some_and(|b| b" \t\r\n".contains(b)) {
            self.at += 1;
        }
        self.body.get(self.at).copied().ok_or(Fault::End)
    }

    fn fault<T>(&self, context: &'static str) -> Result<T, Fault> {
        Err(Fault::Char(self.at, context))
    }

    /// Scans one value and nothing after it. Iterative, because the nesting of a body is bounded only by its length.
    fn document(&mut self) -> Result<(), Fault> {
        let mut stack: Vec<Inside> = Vec::new();
        loop {
            match self.peek()? {
                b'{' => {
                    self.at += 1;
                    if self.peek()? != b'}' {
                        self.key("looking for beginning of object key string")?;
                        stack.push(Inside::Object);
                        continue;
                    }
                    self.at += 1;
                }
                b'[' => {
                    self.at += 1;
                    if self.peek()? != b']' {
                        stack.push(Inside::Array);
                        continue;
                    }
                    self.at += 1;
                }
                _ => self.scalar()?,
            }
            if !self.close(&mut stack)? {
                return match self.peek() {
                    Err(_) => Ok(()),
                    Ok(_) => self.fault("after top-level value"),
                };
            }
        }
    }

    /// Closes the object or list that ends after a value. True when another value follows.
    fn close(&mut self, stack: &mut Vec<Inside>) -> Result<bool, Fault> {
        while let Some(inside) = stack.last().copied() {
            match (self.peek()?, inside) {
                (b',', Inside::Array) => {
                    self.at += 1;
                    return Ok(true);
                }
                (b',', Inside::Object) => {
                    self.at += 1;
                    self.peek()?;
                    self.key("looking for beginning of object key string")?;
                    return Ok(true);
                }
                (b']', Inside::Array) | (b'}', Inside::Object) => {
                    self.at += 1;
                    stack.pop();
                }
                (_, Inside::Array) => return self.fault("after array element"),
                (_, Inside::Object) => return self.fault("after object key:value pair"),
            }
        }
        Ok(false)
    }

    fn key(&mut self, context: &'static str) -> Result<(), Fault> {
        if self.peek()? != b'"' {
            return self.fault(context);
        }
        self.string()?;
        if self.peek()? != b':' {
            return self.fault("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            b'"' => self.string(),
            b't' => self.literal(
                b"true",
                [
                    "",
                    "in literal true (expecting 'r')",
                    "in literal true (expecting 'u')",
                    "in literal true (expecting 'e')",
                    "",
                ],
            ),
            b'f' => self.literal(
                b"false",
                [
                    "",
                    "in literal false (expecting 'a')",
                    "in literal false (expecting 'l')",
                    "in literal false (expecting 's')",
                    "in literal false (expecting 'e')",
                ],
            ),
            b'n' => self.literal(
                b"null",
                [
                    "",
                    "in literal null (expecting 'u')",
                    "in literal null (expecting 'l')",
                    "in literal null (expecting 'l')",
                    "",
                ],
            ),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.fault("looking for beginning of value"),
        }
    }

    fn literal(&mut self, word: &[u8], contexts: [&'static str; 5]) -> Result<(), Fault> {
        for (want, context) in word.iter().zip(contexts) {
            match self.body.get(self.at) {
                None => return Err(Fault::End),
                Some(b) if b == want => self.at += 1,
                Some(_) => return self.fault(context),
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            match self.body.get(self.at) {
                None => return Err(Fault::End),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.body.get(self.at) {
                        None => return Err(Fault::End),
                        Some(b'u') => {
                            for _ in 0..4 {
                                self.at += 1;
                                match self.body.get(self.at) {
                                    None => return Err(Fault::End),
                                    Some(b) if b.is_ascii_hexdigit() => {}
                                    Some(_) => return self.fault("in \\u hexadecimal character escape"),
                                }
                            }
                        }
                        Some(b) if b"bfnrt\\/\"".contains(b) => {}
                        Some(_) => return self.fault("in string escape code"),
                    }
                    self.at += 1;
                }
                Some(0..=0x1f) => return self.fault("in string literal"),
                Some(_) => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.body.get(self.at) == Some(&b'-') {
            self.at += 1;
            self.digit("in numeric literal")?;
        }
        let leading_zero = self.body.get(self.at) == Some(&b'0');
        self.at += 1;
        if !leading_zero {
            self.digits();
        }
        if self.body.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.body.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.body.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&self, context: &'static str) -> Result<(), Fault> {
        match self.body.get(self.at) {
            None => Err(Fault::End),
            Some(b) if b.is_ascii_digit() => Ok(()),
            Some(_) => self.fault(context),
        }
    }

    fn digits(&mut self) {
        while self.body.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }
}

/// A byte as Go quotes it.
fn quote(c: u8) -> String {
    match c {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x20..=0x7e => format!("'{}'", char::from(c)),
        0x80..=0xff => format!("'{}'", char::from(c)),
        _ => format!("'\\x{c:02x}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_words() {
        for (body, want) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            (r#"{"a":1} x"#, "invalid character 'x' after top-level value"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("tru", "unexpected end of JSON input"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("-a", "invalid character 'a' in numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            ("hello", "invalid character 'h' looking for beginning of value"),
        ] {
            assert_eq!(explain(body.as_bytes()).as_deref(), Some(want), "{body}");
        }
        assert_eq!(explain(br#"{"a":[1,{"b":null}],"c":-1.5e3}"#), None);
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_parser(body in "[\\[\\]{},:\"a0-9tn.e\\\\ -]{0,40}") {
            let valid = serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok();
            proptest::prop_assert_eq!(explain(body.as_bytes()).is_none(), valid);
        }
    }
}
