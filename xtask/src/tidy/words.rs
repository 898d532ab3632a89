//! Words that may not appear in code: impure calls in pure crates, unfinished code anywhere; and heads of files.

use super::crates::{Kind, Table};
use super::tree::{self, Tree};

/// Not in crates of kind `pure`, nor in those of kind `engine`.
const IMPURE: &[&str] = &[
    "tokio",
    "async fn",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "std::fs",
    "std::process",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "std::thread",
    "thread_rng",
    "rand::rng",
];

/// Not in crates of kind `engine` either.
const UNDECIDED: &[&str] = &[
    "std::time",
    "std::env",
    "serde_json",
    "collections::HashMap",
    "collections::HashSet",
    "println!",
    "kube::",
    "k8s_openapi",
];

/// Not in any crate.
const REPLACED: &[(&str, &str)] =
    &[("serde_yaml", "use serde-saphyr"), ("k8s_pb::", "protobuf goes through the generated table")];

/// Not in any Rust file, tests included.
const NOWHERE: &[&str] = &["todo!(", "unimplemented!(", "FIXME", "XXX:", "#[ignore"];

pub fn check(tree: &Tree, crates: &Table, problems: &mut Vec<String>) {
    for (path, text) in tree.rust().filter(|(p, _)| !p.starts_with("xtask/")) {
        check_file(path, text, crates, problems);
    }
}

fn check_file(path: &str, text: &str, crates: &Table, problems: &mut Vec<String>) {
    for word in NOWHERE {
        if let Some(line) = text.lines().position(|l| l.contains(word)) {
            problems.push(format!("{path}:{}: `{word}`", line + 1));
        }
    }
    let in_tests = path.contains("/tests/") || path.rsplit('/').next().is_some_and(|f| f.starts_with("test"));
    if !in_tests && !text.starts_with("//!") && !text.starts_with("#!") {
        problems.push(format!("{path}: the file doesn't say in its head (//!) what it is about"));
    }
    // Unit tests may read files and print; the rules are about the code that ships.
    if tree::is_test(path) || !path.starts_with("crates/") {
        return;
    }
    let kind = tree::crate_of(path).and_then(|name| crates.get(name)).map_or(Kind::Io, |row| row.kind);
    let mut forbidden: Vec<(&str, &str)> = REPLACED.to_vec();
    if kind != Kind::Io {
        forbidden.extend(IMPURE.iter().map(|w| (*w, "the crate is pure")));
    }
    if kind == Kind::Engine {
        forbidden.extend(UNDECIDED.iter().map(|w| (*w, "the engine is pure and deterministic")));
    }
    for (word, why) in forbidden {
        let code = tree::shipped(text);
        let found = code.lines().position(|l| !l.trim_start().starts_with("//") && l.contains(word));
        if let Some(line) = found {
            problems.push(format!("{path}:{}: `{word}` ({why})", line + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let table = Table::parse("decides 0 engine\nplain 1 pure\nserves 2 io\n");
        check(&Tree::of(&[(path, text)]), &table, &mut problems);
        problems
    }

    #[test]
    fn pure_crates_have_no_io() {
        let text = "//! A file.\nuse std::fs;\n";
        assert_eq!(
            problems("crates/plain/src/a.rs", text),
            ["crates/plain/src/a.rs:2: `std::fs` (the crate is pure)"]
        );
        assert_eq!(problems("crates/decides/src/a.rs", text).len(), 1);
        assert!(problems("crates/serves/src/a.rs", text).is_empty());
        assert!(problems("crates/plain/tests/a.rs", text).is_empty());
        let tests = "//! A file.\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert!(problems("crates/plain/src/a.rs", tests).is_empty());
    }

    #[test]
    fn the_engine_has_no_hash_order() {
        let text = "//! A file.\nuse std::collections::HashMap;\n";
        assert_eq!(problems("crates/decides/src/a.rs", text).len(), 1);
        assert!(problems("crates/plain/src/a.rs", text).is_empty());
    }

    #[test]
    fn files_have_a_head_and_are_finished() {
        assert_eq!(problems("crates/plain/src/a.rs", "fn f() {}\n").len(), 1);
        assert_eq!(problems("crates/plain/tests/a.rs", concat!("fn f() { to", "do!() }\n")).len(), 1);
    }
}
