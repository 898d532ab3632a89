//! Comments that cite a "spec section", which an outsider can't find. They name the KEP, upstream's documentation page,
//! or upstream's file and function instead.

use std::collections::BTreeMap;

use super::ratchet::{Figure, Figures};
use super::tree::{self, Tree};

/// How many such comments each crate still has.
pub const FILE: &str = "xtask/tidy/spec-citations.txt";
pub const HINT: &str = "; name the KEP, upstream's page, or upstream's file and function";

pub fn figures(tree: &Tree) -> Figures {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in tree.rust().filter(|(p, _)| !p.starts_with("xtask/")) {
        let Some(name) = tree::crate_of(path) else { continue };
        for (number, _) in text.lines().enumerate().filter(|(_, l)| cites(l)) {
            found.entry(name).or_default().push(format!("{path}:{}", number + 1));
        }
    }
    found
        .into_iter()
        .map(|(name, places)| {
            let detail = format!("{} comments cite a spec section: {}", places.len(), places.join(", "));
            (name.to_owned(), Figure::alone(name, places.len(), detail))
        })
        .collect()
}

fn cites(line: &str) -> bool {
    let line = line.to_lowercase();
    ["spec section", "spec, section", "specification section"].iter().any(|w| line.contains(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_counted_by_crate() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! Verdicts (spec section 2.1).\n/// Spec sections 1.2 and 1.4.\n"),
            ("crates/b/src/lib.rs", "//! Verdicts (KEP-1234), see the section on specs.\n"),
        ]);
        let found = figures(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found["a"].value, 2);
        assert!(found["a"].detail.ends_with("crates/a/src/lib.rs:1, crates/a/src/lib.rs:2"));
    }
}
