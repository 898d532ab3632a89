//! Regular expressions of schemas, compiled once: a PodTemplateSpec alone has that of quantities in dozens of places, and each
//! definition is checked before it is kept.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;

/// Most regular expressions that are kept. Kueue's definitions, and those of jobs that it knows, have fewer than a hundred.
const MOST: usize = 512;
/// Longest pattern that is kept.
const LONGEST: usize = 1024;
/// Largest compiled regular expression, in bytes.
const LARGEST: usize = 10 << 20;

static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// The regular expression of a pattern; equal patterns share one.
///
/// # Errors
/// When it is none, or too large.
pub(super) fn compiled(pattern: &str) -> Result<Regex, String> {
    let known = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = known().get(pattern) {
        return Ok(regex.clone());
    }
    let regex = plimsoll_cel::pattern::compile(pattern, LARGEST)?;
    if pattern.len() <= LONGEST {
        let mut known = known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(pattern.to_owned(), regex.clone());
    }
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_compiled_as_ever() {
        let (again, once) = (compiled("^a+$").expect("valid"), compiled("^a+$").expect("valid"));
        assert!(again.is_match("aa") && once.is_match("aa") && !once.is_match("b"));
        assert!(compiled("(").is_err() && compiled("(").is_err());
        for i in 0..=MOST {
            assert!(compiled(&format!("^x{i}$")).expect("valid").is_match(&format!("x{i}")));
        }
        assert!(COMPILED.lock().expect("no panic").len() <= MOST);
        assert!(compiled(&"a".repeat(LONGEST + 1)).expect("valid").is_match(&"a".repeat(LONGEST + 1)));
    }
}
