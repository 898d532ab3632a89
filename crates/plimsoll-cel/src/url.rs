//! URLs as Go reads them (`net/url`): nothing is made regular, and without a slash after the scheme there is no host.

use std::collections::BTreeMap;

use kube_cel::cel::objects::Opaque;

/// A URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    opaque: bool,
    path: String,
    query: String,
    text: String,
}

impl Opaque for Url {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.URL"
    }
}

/// The scheme of a URL and what comes after it; no scheme where there is none.
fn scheme(text: &str) -> Result<(&str, &str), &'static str> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((&text[..i], &text[i + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

/// Whether each `%` has two hexadecimal digits after it.
fn is_escaped(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|p| p.len() >= 2 && p.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

fn unescape(text: &str, plus: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while let Some(byte) = bytes.get(i) {
        let escaped = text.get(i + 1..i + 3).filter(|_| *byte == b'%');
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(b) => {
                out.push(b);
                i += 3;
            }
            None => {
                out.push(if plus && *byte == b'+' { b' ' } else { *byte });
                i += 1;
            }
        }
    }
    out
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Characters that stand for themselves in a host.
fn is_host(host: &str) -> bool {
    host.bytes()
        .all(|b| !b.is_ascii() || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b))
}

fn is_user(user: &str) -> bool {
    user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b))
}

/// The host of an authority, with its port.
fn host(authority: &str) -> Result<String, &'static str> {
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
    if !is_user(user) || !is_escaped(user) {
        return Err("net/url: invalid userinfo");
    }
    if host.starts_with('[') {
        let Some((_, port)) = host.rsplit_once(']') else { return Err("missing ']' in host") };
        if !is_port(port) {
            return Err("invalid port after host");
        }
    } else if let Some(at) = host.rfind(':')
        && !is_port(&host[at..])
    {
        return Err("invalid port after host");
    }
    if !is_host(host) || !is_escaped(host) {
        return Err("invalid character in host name");
    }
    String::from_utf8(unescape(host, false)).map_err(|_| "invalid host")
}

impl Url {
    /// Reads a URL that is absolute, or an absolute path.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        // What comes after a `#` is judged with the rest, and then belongs to nothing.
        Self::check(text)?;
        let mut url = Self::read(text.split_once('#').map_or(text, |(before, _)| before), false)?;
        text.clone_into(&mut url.text);
        Ok(url)
    }

    /// Checks that a text is a URL (`ParseRequestURI`).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(text: &str) -> Result<(), &'static str> {
        Self::read(text, true).map(drop)
    }

    /// `requested`: as the target of a request, which has no host without a scheme.
    fn read(text: &str, requested: bool) -> Result<Self, &'static str> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL");
        }
        if text.is_empty() {
            return Err("empty url");
        }
        if text == "*" {
            return Ok(Self { path: "*".to_owned(), ..Self::default() });
        }
        let (scheme, rest) = scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url =
            Self { scheme: scheme.to_ascii_lowercase(), query: query.to_owned(), ..Self::default() };
        if !rest.starts_with('/') {
            if scheme.is_empty() {
                return Err("invalid URI for request");
            }
            url.opaque = true;
            return Ok(url);
        }
        let mut path = rest;
        let may_follow = |after: &&str| !scheme.is_empty() || !(requested || after.starts_with('/'));
        if let Some(after) = rest.strip_prefix("//").filter(may_follow) {
            let end = after.find('/').unwrap_or(after.len());
            url.host = host(&after[..end])?;
            path = &after[end..];
        }
        if !is_escaped(path) {
            return Err("invalid URL escape");
        }
        path.clone_into(&mut url.path);
        Ok(url)
    }

    /// The scheme in lower case, possibly empty.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Host and port as they are written, possibly empty.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host without its port and without brackets.
    pub fn hostname(&self) -> &str {
        let host = self.host.strip_suffix(self.port()).filter(|_| !self.port().is_empty());
        let host = host.and_then(|h| h.strip_suffix(':')).unwrap_or(&self.host);
        let host = host.strip_suffix(':').filter(|h| !h.starts_with('[') || h.ends_with(']')).unwrap_or(host);
        host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
    }

    /// The port, possibly empty.
    pub fn port(&self) -> &str {
        match self.host.rsplit_once(':') {
            Some((before, port)) if !self.host.starts_with('[') || before.ends_with(']') => port,
            _ => "",
        }
    }

    /// The path with its escapes; what has to be escaped and is not, is.
    pub fn escaped_path(&self) -> String {
        const PLAIN: &[u8] = b"-_.~$&+,/:;=@!'()*[]%";
        let plain = |b: &u8| b.is_ascii_alphanumeric() || PLAIN.contains(b);
        if self.path == "*" || self.path.bytes().all(|b| plain(&b)) {
            return self.path.clone();
        }
        let mut out = String::new();
        for b in unescape(&self.path, false) {
            if b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b) {
                out.push(char::from(b));
            } else {
                out.push_str(&format!("%{b:02X}"));
            }
        }
        out
    }

    /// The query's values by name, in order; what can't be read is left out.
    pub fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|p| !p.is_empty() && !p.contains(';') && is_escaped(p)) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |part: &str| String::from_utf8_lossy(&unescape(part, true)).into_owned();
            out.entry(text(key)).or_default().push(text(value));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_go_reads_them() {
        for (text, scheme, host, hostname, port, path) in [
            ("https://example.com:80/path?k=v#f", "https", "example.com:80", "example.com", "80", "/path"),
            ("https://e.com:443/", "https", "e.com:443", "e.com", "443", "/"),
            ("https://example.com", "https", "example.com", "example.com", "", ""),
            ("http://localhost/x", "http", "localhost", "localhost", "", "/x"),
            ("/path", "", "", "", "", "/path"),
            ("/a/../b", "", "", "", "", "/a/../b"),
            ("HTTPS://Example.COM/A", "https", "Example.COM", "Example.COM", "", "/A"),
            ("https:internal.example", "https", "", "", "", ""),
            ("https:\\\\internal.example", "https", "", "", "", ""),
            ("https://[::1]:80/", "https", "[::1]:80", "::1", "80", "/"),
            ("https://[::1]/", "https", "[::1]", "::1", "", "/"),
            ("https://user:pw@h/", "https", "h", "h", "", "/"),
            ("https://h:/", "https", "h:", "h", "", "/"),
            ("https://h/a b", "https", "h", "h", "", "/a%20b"),
            ("https://h/a%2Fb", "https", "h", "h", "", "/a%2Fb"),
            ("//h/p", "", "h", "h", "", "/p"),
            ("///p", "", "", "", "", "///p"),
        ] {
            let url = Url::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let found = (url.scheme(), url.host(), url.hostname(), url.port());
            assert_eq!(found, (scheme, host, hostname, port), "{text}");
            assert_eq!(url.escaped_path(), path, "{text}");
        }
        for wrong in [
            "",
            "a",
            "a/b",
            ":x",
            "1a:b",
            "https://h:x/",
            "https://a b/",
            "https://h/%zz",
            "https://[::1",
            "/a\n",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
        let query = Url::parse("/p?b=2&a=1&b=x+y%21&c&d=%zz&e;f").expect("valid").query();
        let list: Vec<(&str, String)> = query.iter().map(|(k, v)| (k.as_str(), v.join("|"))).collect();
        assert_eq!(list, [("a", "1".into()), ("b", "2|x y!".into()), ("c", String::new())]);
    }
}
