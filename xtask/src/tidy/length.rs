//! Files of at most 500 lines: a longer file has more than one subject. Tests are exempt.

use super::ratchet::{Figure, Figures};
use super::tree::{self, Tree};

/// Files that are longer today, with their lines.
pub const FILE: &str = "xtask/tidy/long-files.txt";
pub const HINT: &str = "; is it one subject?";

const MAX_LINES: usize = 500;

pub fn figures(tree: &Tree) -> Figures {
    tree.rust()
        .filter(|(path, _)| !tree::is_test(path))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| {
            (path.to_owned(), Figure::alone(path, lines, format!("{lines} lines, more than {MAX_LINES}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found_and_tests_are_not() {
        let long = "//! A file.\n".repeat(501);
        let tree = Tree::of(&[
            ("crates/a/src/long.rs", &long),
            ("crates/a/src/short.rs", "//! A file.\n"),
            ("crates/a/src/tests.rs", &long),
            ("crates/a/tests/all.rs", &long),
        ]);
        let found = figures(&tree);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["crates/a/src/long.rs"]);
        assert_eq!(found["crates/a/src/long.rs"].value, 501);
    }
}
