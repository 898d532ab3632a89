//! Query parameters, read as Go's `net/url` reads them.

/// The parameters of a request, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after `?`. Pairs that aren't valid are left out, as upstream does.
    pub fn parse(text: &str) -> Self {
        let pair = |p: &str| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            Some((unescape(name, true)?, unescape(value, true)?))
        };
        Self(text.split('&').filter(|p| !p.is_empty() && !p.contains(';')).filter_map(pair).collect())
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The first value, if it isn't empty.
    pub fn non_empty(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|v| !v.is_empty())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A boolean as apimachinery reads it: missing, `false` and `0` are false, anything else is true.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

/// Undoes percent escapes (and `+`, when asked). `None`: not valid.
pub fn unescape(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                out.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
            }
            b'+' if plus => out.push(b' '),
            b => out.push(b),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pairs_as_go_does() {
        let q = Query::parse("a=1&b=x%2Cy+z&a=2&c&bad=%zz");
        assert_eq!(q.get("a"), Some("1"));
        assert_eq!(q.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(q.get("b"), Some("x,y z"));
        assert_eq!(q.get("c"), Some(""));
        assert_eq!(q.get("bad"), None);
        assert!(Query::parse("watch=yes").flag("watch"));
        assert!(!Query::parse("watch=0").flag("watch"));
        assert!(Query::parse("watch").flag("watch"));
    }
}
