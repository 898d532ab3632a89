//! The text files of the repository, as the rules see them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Files whose text some rule reads; others are known by path only.
const READ: &[&str] = &[".rs", ".md", ".toml", ".txt"];

/// Paths relative to the root, `/` as separator, with their text where a rule reads it.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Tracked files, and new ones that git doesn't ignore.
    pub fn of_repository(root: &Path) -> Result<Self> {
        let out = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git ls-files")?;
        let mut files = BTreeMap::new();
        for name in String::from_utf8(out.stdout)?.split('\0').filter(|p| !p.is_empty()) {
            let path = root.join(name);
            if !path.is_file() {
                continue;
            }
            let text = if READ.iter().any(|e| name.ends_with(e)) {
                Some(std::fs::read_to_string(&path).with_context(|| name.to_owned())?)
            } else {
                None
            };
            files.insert(name.to_owned(), text);
        }
        Ok(Self { files })
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Rust files with their text, generated and test code included.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(|(p, _)| p.ends_with(".rs"))
            .filter_map(|(p, text)| Some((p.as_str(), text.as_deref()?)))
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(p, t)| ((*p).to_owned(), Some((*t).to_owned()))).collect() }
    }
}

/// Whether a Rust file is compiled for tests, examples or fuzzing only.
pub fn is_test(path: &str) -> bool {
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    stem.starts_with("test")
        || stem.ends_with("_tests")
        || path.split('/').any(|d| matches!(d, "tests" | "examples" | "benches" | "fuzz_targets"))
}

/// The code that ships: everything before the unit tests at a file's end. Test modules in files of their own, declared
/// further up, end nothing.
pub fn shipped(text: &str) -> &str {
    const TESTS: &str = "#[cfg(test)]\nmod ";
    let inline = |at: &usize| {
        let name = &text[at + TESTS.len()..];
        name.find(['{', ';']).is_none_or(|end| name[end..].starts_with('{'))
    };
    let end = text.match_indices(TESTS).map(|(at, _)| at).find(inline);
    end.map_or(text, |at| &text[..at])
}

/// The crate that a file belongs to, by its directory: `plimsoll-api` of `crates/plimsoll-api/src/lib.rs`.
pub fn crate_of(path: &str) -> Option<&str> {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["crates", name, ..] => Some(name),
        ["xtask", ..] => Some("xtask"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_test_modules_do_not_end_what_ships() {
        assert_eq!(shipped("a\n#[cfg(test)]\nmod tests;\nb"), "a\n#[cfg(test)]\nmod tests;\nb");
        assert_eq!(
            shipped("a\n#[cfg(test)]\nmod more;\nb\n#[cfg(test)]\nmod tests {\n}"),
            "a\n#[cfg(test)]\nmod more;\nb\n"
        );
        assert_eq!(shipped("a\n#[cfg(test)]\nmod tests { mod x; }"), "a\n");
    }
}
