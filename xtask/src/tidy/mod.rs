//! House rules that a compiler doesn't check, for the whole tree: one file per rule.

mod circles;
mod citations;
mod crates;
mod ledger;
mod length;
mod manifests;
mod ratchet;
mod scan;
mod tree;
mod words;

pub use tree::shipped;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, bail};

use ratchet::Ratchet;
use tree::Tree;

/// More violations than this have one cause.
const MAX_SHOWN: usize = 60;

/// Checks every rule and reports all violations at once. With `update` the lists of exceptions and the counts of
/// COMPATIBILITY.md are rewritten first, as far as no list grows.
pub fn run(root: &Path, update: bool) -> Result<()> {
    let tree = Tree::of_repository(root)?;
    let crates = crates::Table::parse(tree.text(crates::FILE).unwrap_or_default());
    let mut problems = Vec::new();
    words::check(&tree, &crates, &mut problems);
    manifests::check(&tree, &crates, &mut problems);
    let exceptions = [
        (length::FILE, length::HINT, length::figures(&tree)),
        (circles::FILE, circles::HINT, circles::figures(&tree)),
        (citations::FILE, citations::HINT, citations::figures(&tree)),
    ];
    for (file, hint, figures) in exceptions {
        let list = Ratchet::parse(tree.text(file).unwrap_or_default());
        if update && list.may_become(&figures) {
            std::fs::write(root.join(file), list.render(&figures))?;
        } else {
            list.compare(file, hint, &figures, &mut problems);
        }
    }
    let index = ledger::check(&tree, &mut problems);
    if update && tree.text(ledger::INDEX) != Some(index.as_str()) {
        std::fs::write(root.join(ledger::INDEX), &index)?;
    } else if tree.text(ledger::INDEX) != Some(index.as_str()) {
        problems
            .push(format!("{}: the counts are out of date; run `cargo xtask tidy --update`", ledger::INDEX));
    }
    if problems.is_empty() {
        return Ok(());
    }
    let mut report = String::new();
    for p in problems.iter().take(MAX_SHOWN) {
        let _ = writeln!(report, "  {p}");
    }
    if problems.len() > MAX_SHOWN {
        let _ = writeln!(report, "  and {} more", problems.len() - MAX_SHOWN);
    }
    bail!("{} violations of house rules:\n{report}", problems.len());
}
