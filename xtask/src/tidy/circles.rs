//! No circles between the files of a crate, parent and child excepted: a child may use what its parents declare.
//!
//! A file knows another when it imports or names something that the other defines; re-exports are followed to the
//! file that defines the name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ratchet::{Figure, Figures};
use super::scan::Source;
use super::tree::{self, Tree};

/// Files that are in a circle today, with the number of files that can reach each other there.
pub const FILE: &str = "xtask/tidy/circles.txt";
pub const HINT: &str = "";

/// A module's path from the crate's root.
type Module = Vec<String>;
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub fn figures(tree: &Tree) -> Figures {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in tree.rust().filter(|(p, _)| p.contains("/src/") && !tree::is_test(p)) {
        crates.entry(path.split("/src/").next().unwrap_or_default()).or_default().push((path, text));
    }
    let mut figures = Figures::new();
    for files in crates.into_values() {
        let graph = Files::parse(&files).graph();
        for group in groups(&graph) {
            let name = group.first().copied().unwrap_or_default();
            for file in &group {
                let circle = circle(&graph, &group, file);
                let files: Vec<_> = circle.iter().map(|f| f.split("/src/").nth(1).unwrap_or(f)).collect();
                let detail = format!("one of {} files in a circle: {}", group.len(), files.join(" → "));
                figures.insert(
                    (*file).to_owned(),
                    Figure { value: group.len(), group: name.to_owned(), detail },
                );
            }
        }
    }
    figures
}

/// The files of one crate by module.
struct Files<'a> {
    modules: BTreeMap<Module, (&'a str, Source)>,
}

impl<'a> Files<'a> {
    fn parse(files: &[(&'a str, &'a str)]) -> Self {
        let modules = files
            .iter()
            .map(|(path, text)| (module(path), (*path, Source::parse(tree::shipped(text)))))
            .collect();
        Self { modules }
    }

    /// Which file knows which, without itself and without its parents.
    fn graph(&self) -> Graph<'a> {
        let mut graph = Graph::new();
        for (module, (file, source)) in &self.modules {
            let known = graph.entry(file).or_default();
            for path in source.imports.iter().map(|i| &i.path).chain(&source.paths) {
                if let Some(target) = self.resolve(module, path, 0).filter(|t| !module.starts_with(t)) {
                    known.insert(self.modules[&target].0);
                }
            }
        }
        graph
    }

    /// The module whose file defines what a path in this module names; none for other crates.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let mut current = module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (current, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    current.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                if !self.modules.contains_key(&child) {
                    return None;
                }
            }
        }
        while let Some((name, tail)) = rest.split_first() {
            let child = [current.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                (current, rest) = (child, tail);
            } else {
                return self.definition(&current, name, depth).or(Some(current));
            }
        }
        Some(current)
    }

    /// Where a name that a module offers is defined; none when it isn't found.
    fn definition(&self, module: &Module, name: &str, depth: usize) -> Option<Module> {
        let (_, source) = self.modules.get(module)?;
        if source.items.iter().any(|i| i == name) || depth > 8 {
            return Some(module.clone());
        }
        if let Some(import) = source.imports.iter().find(|i| i.name == name) {
            return self.resolve(module, &import.path, depth + 1);
        }
        let globs = source.imports.iter().filter(|i| i.name == "*");
        globs
            .filter_map(|glob| self.resolve(module, &glob.path, depth + 1))
            .filter(|target| target != module)
            .find_map(|target| self.definition(&target, name, depth + 1))
    }
}

/// `crates/a/src/b/c.rs` and `crates/a/src/b/c/mod.rs` are `[b, c]`.
fn module(path: &str) -> Module {
    let inner = path.split("/src/").nth(1).unwrap_or_default().trim_end_matches(".rs");
    let mut module: Module = inner.split('/').map(str::to_owned).collect();
    let last = module.last().map(String::as_str);
    if last == Some("mod") || (module.len() == 1 && matches!(last, Some("lib" | "main"))) {
        module.pop();
    }
    module
}

/// Groups of more than one file that all reach each other.
fn groups<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (*file, reach(graph, file))).collect();
    let mut groups: Vec<BTreeSet<&str>> = Vec::new();
    for (file, far) in &reached {
        if groups.iter().any(|g| g.contains(file)) || !far.contains(file) {
            continue;
        }
        groups.push(
            far.iter()
                .copied()
                .filter(|other| reached.get(other).is_some_and(|r| r.contains(file)))
                .collect(),
        );
    }
    groups
}

/// Every file that this one knows, directly or through others; itself only if it is in a circle.
fn reach<'a>(graph: &Graph<'a>, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(next) = open.pop() {
        for known in graph.get(next).into_iter().flatten() {
            if reached.insert(*known) {
                open.push(known);
            }
        }
    }
    reached
}

/// The shortest way from a file back to itself within its group.
fn circle<'a>(graph: &Graph<'a>, group: &BTreeSet<&'a str>, file: &'a str) -> Vec<&'a str> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([file]);
    while let Some(next) = open.pop_front() {
        for known in graph.get(next).into_iter().flatten().filter(|k| group.contains(*k)) {
            if *known == file {
                let mut way = vec![file, next];
                while way[way.len() - 1] != file {
                    way.push(before[way[way.len() - 1]]);
                }
                way.reverse();
                return way;
            }
            before.entry(known).or_insert_with(|| {
                open.push_back(known);
                next
            });
        }
    }
    vec![file]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(p, t)| (format!("crates/x/src/{p}"), *t)).collect();
        let files: Vec<_> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        figures(&Tree::of(&files)).into_values().map(|f| f.detail).collect()
    }

    #[test]
    fn circles_are_reported_file_by_file() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::{c::{self, C}, d::D}; pub struct B;"),
            ("c.rs", "pub struct C; fn f() { super::a::A; }"),
            ("d.rs", "pub struct D;"),
        ];
        let circles = found(&files);
        assert_eq!(circles.len(), 3);
        assert_eq!(circles[0], "one of 3 files in a circle: a.rs → b.rs → c.rs → a.rs");
    }

    #[test]
    fn children_may_use_their_parents() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; use b::B; pub struct A;"),
            ("a/b.rs", "use super::A; use crate::a::A as Again; pub struct B;"),
        ];
        assert!(found(&files).is_empty());
        // But not through a third file that their parent doesn't need to know.
        let files = [
            ("lib.rs", "mod a; mod c;"),
            ("a/mod.rs", "mod b; use b::B; pub struct A;"),
            ("a/b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::a::A; pub struct C;"),
        ];
        assert_eq!(found(&files).len(), 3);
    }

    #[test]
    fn reexports_are_followed() {
        let files = [
            ("lib.rs", "mod a; mod c;"),
            ("a/mod.rs", "mod b; mod d; pub use b::B; pub use d::*;"),
            ("a/b.rs", "use crate::c::C; pub struct B;"),
            ("a/d.rs", "pub struct D;"),
            ("c.rs", "use crate::a::D; pub struct C;"),
        ];
        assert!(found(&files).is_empty(), "{:?}", found(&files));
    }

    #[test]
    fn tests_and_other_crates_are_left_out() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use b::Elsewhere;\n#[cfg(test)]\nmod tests { use crate::b::B; }"),
            ("b.rs", "use crate::a::A;"),
        ];
        assert!(found(&files).is_empty());
    }
}
