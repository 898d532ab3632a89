//! Manifests: every dependency has a reason and is used, and dependencies between our crates point downwards.

use super::crates::Table;
use super::tree::{self, Tree};

/// One line of a manifest's dependency sections.
#[derive(PartialEq, Eq, Debug)]
struct Dependency<'a> {
    name: &'a str,
    dev: bool,
    /// The line chooses features, or says that these are all it is there for.
    features: bool,
}

pub fn check(tree: &Tree, crates: &Table, problems: &mut Vec<String>) {
    check_workspace(tree, problems);
    problems.extend(crates.malformed.iter().map(|l| format!("{}: not a row: `{l}`", super::crates::FILE)));
    let manifest = |name: &str| tree.paths().any(|p| p.ends_with(&format!("{name}/Cargo.toml")));
    let gone = crates.names().filter(|name| !manifest(name));
    problems.extend(gone.map(|name| format!("{}: there is no crate `{name}`", super::crates::FILE)));
    for path in tree.paths() {
        let Some(name) = tree::crate_of(path) else { continue };
        if !path.ends_with(&format!("{name}/Cargo.toml")) {
            continue;
        }
        let dependencies = dependencies(tree.text(path).unwrap_or_default());
        check_layers(path, name, &dependencies, crates, problems);
        check_use(tree, path, &dependencies, problems);
        check_doctests(tree, path, problems);
    }
}

/// The workspace's manifest gives a reason for each dependency, and some crate asks for it.
fn check_workspace(tree: &Tree, problems: &mut Vec<String>) {
    let manifest = tree.text("Cargo.toml").unwrap_or_default();
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    for line in section.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if !line.contains("path = ") && !line.contains('#') {
            problems.push(format!("Cargo.toml: no reason given for `{line}`"));
        }
        let name = line.split([' ', '=']).next().unwrap_or(line);
        let wanted = tree
            .paths()
            .filter(|p| p.ends_with("/Cargo.toml"))
            .any(|p| dependencies(tree.text(p).unwrap_or_default()).iter().any(|d| d.name == name));
        if !wanted {
            problems.push(format!("Cargo.toml: no crate asks for `{name}`"));
        }
    }
}

fn check_layers(
    path: &str,
    name: &str,
    dependencies: &[Dependency],
    crates: &Table,
    problems: &mut Vec<String>,
) {
    let Some(row) = crates.get(name) else {
        problems.push(format!("{path}: `{name}` has no row in {}", super::crates::FILE));
        return;
    };
    // What tests depend on is no part of the layering: cargo keeps it free of circles.
    for dependency in dependencies.iter().filter(|d| !d.dev) {
        if let Some(other) = crates.get(dependency.name).filter(|other| other.layer >= row.layer) {
            problems.push(format!(
                "{path}: layer {} depends on `{}` in layer {}; dependencies point downwards",
                row.layer, dependency.name, other.layer
            ));
        }
    }
}

fn check_use(tree: &Tree, path: &str, dependencies: &[Dependency], problems: &mut Vec<String>) {
    let sources = sources(tree, path.trim_end_matches("Cargo.toml"));
    for (at, dependency) in dependencies.iter().enumerate() {
        // Tests may want more features than the code that ships.
        if dependencies[..at].iter().any(|d| d.name == dependency.name) && !dependency.features {
            problems.push(format!("{path}: `{}` is declared twice", dependency.name));
        }
        let ident = dependency.name.replace('-', "_");
        let used = sources
            .iter()
            .filter(|(file, _)| dependency.dev || !tree::is_test(file))
            .any(|(_, text)| mentions(if dependency.dev { text } else { tree::shipped(text) }, &ident));
        if !used && !dependency.features {
            let place = if dependency.dev { "" } else { " outside tests" };
            problems.push(format!("{path}: `{}` is declared and not used{place}", dependency.name));
        }
    }
}

/// Crates without examples have `doctest = false`, since rustdoc takes seconds to find none. It must not hide examples.
fn check_doctests(tree: &Tree, path: &str, problems: &mut Vec<String>) {
    let hidden = tree.text(path).unwrap_or_default().lines().any(|line| line == "doctest = false");
    let root = format!("{}src/", path.trim_end_matches("Cargo.toml"));
    for (file, text) in tree.rust().filter(|(file, _)| hidden && file.starts_with(&root)) {
        if has_example(text) {
            problems.push(format!("{file}: `doctest = false` in {path} keeps its example from being tested"));
        }
    }
}

/// Whether comments have a block of code that rustdoc runs.
fn has_example(text: &str) -> bool {
    let mut inside = false;
    text.lines().map(str::trim_start).any(|line| {
        let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")).map(str::trim);
        let Some(language) = comment.and_then(|c| c.strip_prefix("```")) else { return false };
        inside = !inside;
        inside && !["text", "sh", "yaml", "json", "console", "toml"].contains(&language)
    })
}

/// A crate's files, and those of others that it takes in with `#[path = "…"]`.
fn sources<'a>(tree: &'a Tree, root: &str) -> Vec<(&'a str, &'a str)> {
    let mut sources: Vec<_> = tree.rust().filter(|(file, _)| file.starts_with(root)).collect();
    let taken: Vec<String> = sources
        .iter()
        .flat_map(|(file, text)| text.lines().map(move |line| (*file, line.trim())))
        .filter_map(|(file, line)| Some(beside(file, line.strip_prefix("#[path = \"")?.split('"').next()?)))
        .collect();
    sources
        .extend(tree.rust().filter(|(file, _)| !file.starts_with(root) && taken.iter().any(|t| t == file)));
    sources
}

/// A path relative to the directory of a file.
fn beside(file: &str, path: &str) -> String {
    let mut whole: Vec<&str> = file.split('/').collect();
    whole.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(whole.pop()),
            "." => {}
            part => whole.push(part),
        }
    }
    whole.join("/")
}

/// Whether a line of code names the crate: in a path, or in `use` and `extern crate`.
fn mentions(text: &str, ident: &str) -> bool {
    text.lines().filter(|l| !l.trim_start().starts_with("//")).any(|line| {
        line.match_indices(ident).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = &line[at + ident.len()..];
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.')
                && (after.starts_with("::") || after.starts_with(';') || after.starts_with(" as "))
        })
    })
}

fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut dev = None;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            dev = section.ends_with("dependencies").then(|| section.ends_with("dev-dependencies"));
        } else if let (Some(dev), Some((name, value))) = (dev, line.split_once('=')) {
            let name = name.trim().split('.').next().unwrap_or_default();
            if !name.starts_with('#') {
                let features = value.contains("# for its features") || (dev && value.contains("features"));
                found.push(Dependency { name, dev, features });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "a 0 pure\nb 1 io\n";

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let mut problems = Vec::new();
        let both = [("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", "")];
        let files: Vec<_> = both.into_iter().chain(files.iter().copied()).collect();
        check(&Tree::of(&files), &Table::parse(TABLE), &mut problems);
        problems
    }

    #[test]
    fn manifests_are_read() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\n# c = 1\n\
                        [target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n[dev-dependencies]\nd = { path = \"d\" }\n";
        let found: Vec<_> = dependencies(manifest).into_iter().map(|d| (d.name, d.dev)).collect();
        assert_eq!(found, [("b", false), ("libc", false), ("d", true)]);
    }

    #[test]
    fn dependencies_point_downwards() {
        let used = ("crates/a/src/lib.rs", "use b::B;\n");
        let up = problems(&[("crates/a/Cargo.toml", "[dependencies]\nb.workspace = true\n"), used]);
        assert_eq!(
            up,
            ["crates/a/Cargo.toml: layer 0 depends on `b` in layer 1; dependencies point downwards"]
        );
        let used = ("crates/b/src/lib.rs", "use a::A;\n");
        assert!(
            problems(&[("crates/b/Cargo.toml", "[dependencies]\na.workspace = true\n"), used]).is_empty()
        );
        let tests = [
            ("crates/a/Cargo.toml", "[dev-dependencies]\nb.workspace = true\n"),
            ("crates/a/tests/x.rs", "b::f();"),
        ];
        assert!(problems(&tests).is_empty());
        assert_eq!(problems(&[("crates/c/Cargo.toml", "")]).len(), 1, "a crate without a row");
    }

    #[test]
    fn rows_have_a_crate() {
        let mut problems = Vec::new();
        check(&Tree::of(&[("crates/a/Cargo.toml", "")]), &Table::parse(TABLE), &mut problems);
        assert_eq!(problems, ["xtask/tidy/crates.txt: there is no crate `b`"]);
    }

    #[test]
    fn dependencies_are_used() {
        let manifest = ("crates/a/Cargo.toml", "[dependencies]\nsome-thing = \"1\"\n");
        assert!(problems(&[manifest, ("crates/a/src/lib.rs", "fn f() { some_thing::g(); }\n")]).is_empty());
        assert!(problems(&[manifest, ("crates/a/src/lib.rs", "use some_thing as s;\n")]).is_empty());
        for unused in [
            "// some_thing::g\n",
            "fn f() { my.some_thing::<T>(); }\n",
            "#[cfg(test)]\nmod tests { use some_thing::g; }\n",
        ] {
            assert_eq!(problems(&[manifest, ("crates/a/src/lib.rs", unused)]).len(), 1, "{unused}");
        }
        let chosen =
            ("crates/a/Cargo.toml", "[dependencies]\nx = \"1\" # for its features: y wants a choice\n");
        assert!(problems(&[chosen]).is_empty());
        let twice = ("crates/a/Cargo.toml", "[dependencies]\nx = \"1\"\n[dev-dependencies]\nx = \"1\"\n");
        assert_eq!(
            problems(&[twice, ("crates/a/src/lib.rs", "x::f();\n")]),
            ["crates/a/Cargo.toml: `x` is declared twice"]
        );
    }

    #[test]
    fn examples_are_tested() {
        let example = ("crates/a/src/lib.rs", "//! Does it:\n//! ```\n//! a::f();\n//! ```\nfn f() {}\n");
        let text = ("crates/a/src/lib.rs", "//! ```text\n//! a -> b\n//! ```\nfn f() {}\n");
        let off = ("crates/a/Cargo.toml", "[lib]\ndoctest = false\n");
        assert!(problems(&[example]).is_empty());
        assert!(problems(&[off, text]).is_empty());
        assert_eq!(
            problems(&[off, example]),
            [
                "crates/a/src/lib.rs: `doctest = false` in crates/a/Cargo.toml keeps its example from being tested"
            ]
        );
    }

    #[test]
    fn the_workspace_gives_reasons() {
        let manifest =
            "[workspace.dependencies]\na = { path = \"crates/a\" }\nserde = \"1\"\n[profile.dev]\n";
        let found = problems(&[
            ("Cargo.toml", manifest),
            ("crates/b/Cargo.toml", "[dependencies]\na.workspace = true\n"),
            ("crates/b/src/lib.rs", "a::f();"),
        ]);
        assert_eq!(
            found,
            ["Cargo.toml: no reason given for `serde = \"1\"`", "Cargo.toml: no crate asks for `serde`"]
        );
    }
}
