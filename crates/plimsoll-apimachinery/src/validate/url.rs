//! URLs as Go's `net/url` reads them.

use crate::go::go_quote;

/// The parts of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    /// Scheme, in lower case.
    pub scheme: String,
    /// User information.
    pub user: Option<String>,
    /// Host, possibly with a port.
    pub host: String,
    /// The part after `?`.
    pub query: String,
    /// The part after `#`.
    pub fragment: String,
}

impl Url {
    /// Reads a URL, which may be relative.
    ///
    /// # Errors
    /// Go's words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let wrong = |shown: &str, why: String| format!("parse {}: {why}", go_quote(shown));
        let mut url = Self::without_fragment(whole).map_err(|why| wrong(whole, why))?;
        escapes(fragment).map_err(|why| wrong(text, why))?;
        url.fragment = fragment.to_owned();
        Ok(url)
    }

    /// Reads a URL of a request: absolute, or a path from the root; there is no fragment.
    ///
    /// # Errors
    /// Go's words.
    pub fn parse_request(text: &str) -> Result<Self, String> {
        let (scheme, rest) = scheme(text)?;
        if text.is_empty() {
            return Err("empty url".to_owned());
        }
        if scheme.is_empty() && !rest.starts_with('/') && text != "*" {
            return Err("invalid URI for request".to_owned());
        }
        Self::without_fragment(text)
    }

    fn without_fragment(text: &str) -> Result<Self, String> {
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text == "*" {
            return Ok(Self::default());
        }
        let (scheme, rest) = scheme(text)?;
        let mut url = Self { scheme: scheme.to_lowercase(), ..Self::default() };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, query),
            None => (rest, ""),
        };
        url.query = query.to_owned();
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        if let Some(after) = rest.strip_prefix("//")
            && (!scheme.is_empty() || !rest.starts_with("///"))
        {
            let end = after.find('/').unwrap_or(after.len());
            let (authority, remainder) = after.split_at(end);
            url.authority(authority)?;
            path = remainder;
        }
        escapes(path)?;
        Ok(url)
    }

    fn authority(&mut self, text: &str) -> Result<(), String> {
        let host = match text.rsplit_once('@') {
            None => text,
            Some((user, host)) => {
                let fine = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
                if !user.chars().all(fine) {
                    return Err("net/url: invalid userinfo".to_owned());
                }
                escapes(user)?;
                self.user = Some(user.to_owned());
                host
            }
        };
        let port = if host.starts_with('[') {
            let Some(close) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
            host.get(close + 1..).unwrap_or_default()
        } else {
            host.rfind(':').and_then(|i| host.get(i..)).unwrap_or_default()
        };
        let digits = port.strip_prefix(':').unwrap_or(if port.is_empty() { "" } else { "x" });
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("invalid port {} after host", go_quote(port)));
        }
        escapes(host)?;
        // Go accepts bytes above ASCII.
        let fine =
            |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c);
        if let Some(bad) = host.chars().find(|c| !fine(*c)) {
            return Err(format!("invalid character {} in host name", go_quote(&bad.to_string())));
        }
        self.host = host.to_owned();
        Ok(())
    }
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => {
                let (scheme, rest) = text.split_at(i);
                return Ok((scheme, rest.strip_prefix(':').unwrap_or(rest)));
            }
            _ => break,
        }
    }
    Ok(("", text))
}

/// Whether every `%` starts an escape.
fn escapes(text: &str) -> Result<(), String> {
    let b = text.as_bytes();
    for (i, _) in b.iter().enumerate().filter(|(_, c)| **c == b'%') {
        let code = b.get(i + 1..i + 3).unwrap_or_default();
        if code.len() != 2 || !code.iter().all(u8::is_ascii_hexdigit) {
            let bad = b.get(i..b.len().min(i + 3)).unwrap_or_default();
            return Err(format!("invalid URL escape {}", go_quote(&String::from_utf8_lossy(bad))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, want) in [
            ("https://a.example/x?q=1#f", Ok(("https", "a.example", "q=1", "f"))),
            ("10.0.0.1", Ok(("", "", "", ""))),
            ("a:b", Ok(("a", "", "", ""))),
            ("::1", Err("parse \"::1\": missing protocol scheme")),
            ("1a:b", Err("parse \"1a:b\": first path segment in URL cannot contain colon")),
            ("https://h:x/", Err("parse \"https://h:x/\": invalid port \":x\" after host")),
            ("101%", Err("parse \"101%\": invalid URL escape \"%\"")),
            ("https://a b", Err("parse \"https://a b\": invalid character \" \" in host name")),
        ] {
            let found = Url::parse(text);
            let parts = found.as_ref().map(|u| (&u.scheme[..], &u.host[..], &u.query[..], &u.fragment[..]));
            assert_eq!(parts.map_err(|e| &e[..]), want, "{text}");
        }
    }
}
