//! `cargo xtask simulate --mutations [NAME…]`: takes one mend after the other out of the sources, and has the simulator find that
//! out by seeds. The mutations are the files of `crates/plimsoll-sim/mutations`: why, the source after `---`, what is there
//! now, and after `+++` what is there instead; and more sources where one mend covers another. One whose first line ends with a flag, such as `(--joint)`, is for the seeds of that family, or for the tests named there. A
//! mutation that no seed finds says what the simulator does not look for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::example;

const DIRECTORY: &str = "crates/plimsoll-sim/mutations";
/// Seeds that each mutation has to be found by.
const SEEDS: &[&str] = &["--from", "2026112200000", "--seeds", "400", "--no-shrink"];

/// The same for mutations of joint admission.
const JOINT_SEEDS: &[&str] = &["--joint", "--seeds", "60", "--no-shrink"];
/// The same for mutations of writes about pods that fail for a while.
const UNWRITTEN_SEEDS: &[&str] = &["--unwritten", "--seeds", "100", "--no-shrink"];
/// The same for mutations of shards.
const SHARD_SEEDS: &[&str] = &["--shards", "--seeds", "200", "--no-shrink"];
/// Tests that find mutations of quota loans, which have a model of the API of their own.
const LOANS: &[&str] = &["-p", "plimsoll-queueing", "--lib", "loans::protocol_tests"];
/// Tests that find mutations of how trees move, which seeds hit too seldom.
const TREES: &[&str] = &["-p", "plimsoll-api", "-p", "plimsoll-jobs", "--lib", "shards"];
/// How the first line of those ends.
const FAMILIES: [(&str, Finder); 5] = [
    ("(--joint)", Finder::Seeds(JOINT_SEEDS)),
    ("(--unwritten)", Finder::Seeds(UNWRITTEN_SEEDS)),
    ("(--shards)", Finder::Seeds(SHARD_SEEDS)),
    ("(--loans)", Finder::Tests(LOANS)),
    ("(--trees)", Finder::Tests(TREES)),
];

/// What has to find a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finder {
    /// The simulator, with these arguments.
    Seeds(&'static [&'static str]),
    /// `cargo test`, with these arguments.
    Tests(&'static [&'static str]),
}

/// A mutation.
#[derive(Debug, PartialEq, Eq)]
struct Mutation<'a> {
    edits: Vec<SourceEdit<'a>>,
    finder: Finder,
}

/// A change of one source.
#[derive(Debug, PartialEq, Eq)]
struct SourceEdit<'a> {
    file: &'a str,
    from: &'a str,
    to: &'a str,
}

fn parse(text: &str) -> Option<Mutation<'_>> {
    let (why, rest) = text.split_once("\n--- ")?;
    let first = why.lines().next().unwrap_or_default();
    let family = FAMILIES.iter().find(|(end, _)| first.ends_with(end));
    let finder = family.map_or(Finder::Seeds(SEEDS), |(_, finder)| *finder);
    let edit = |part| {
        let (file, rest): (&str, &str) = str::split_once(part, '\n')?;
        let (from, to) = rest.split_once("\n+++\n")?;
        Some(SourceEdit { file, from, to: to.strip_suffix('\n').unwrap_or(to) })
    };
    let edits: Option<Vec<_>> = rest.split("\n--- ").map(edit).collect();
    Some(Mutation { edits: edits?, finder })
}

/// Sources that have a mutation until this is dropped, with their texts before.
#[derive(Default)]
struct Mutated(BTreeMap<PathBuf, String>);

impl Mutated {
    fn edit(&mut self, root: &Path, edit: &SourceEdit<'_>) -> Result<()> {
        let file = root.join(edit.file);
        let whole = std::fs::read_to_string(&file).with_context(|| edit.file.to_owned())?;
        let found = whole.matches(edit.from).count();
        ensure!(found == 1, "{} has the text of the mutation {found} times instead of once", edit.file);
        let mutated = whole.replacen(edit.from, edit.to, 1);
        // Where one source is edited twice, the first text is the one to restore.
        self.0.entry(file.clone()).or_insert(whole);
        std::fs::write(&file, mutated).with_context(|| edit.file.to_owned())
    }
}

impl Drop for Mutated {
    fn drop(&mut self) {
        for (file, whole) in &self.0 {
            if let Err(e) = std::fs::write(file, whole) {
                eprintln!("{} keeps a mutation: {e}", file.display());
            }
        }
    }
}

/// Tries the mutations of these names, or all.
///
/// # Errors
/// When one can't be made, does not build, or is not found.
pub fn run(root: &Path, names: &[String]) -> Result<()> {
    let files = std::fs::read_dir(root.join(DIRECTORY)).context(DIRECTORY)?;
    let mut files: Vec<PathBuf> = files.map(|f| Ok(f?.path())).collect::<Result<_>>()?;
    files.sort();
    let name = |f: &PathBuf| f.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    files.retain(|f| names.is_empty() || names.contains(&name(f)));
    let mut missed = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        let Some(mutation) = parse(&text) else { bail!("{} is no mutation", file.display()) };
        let mut mutated = Mutated::default();
        mutation.edits.iter().try_for_each(|edit| mutated.edit(root, edit))?;
        let passes = match mutation.finder {
            Finder::Seeds(seeds) => {
                let program = example::build_optimized(root, "simulate")?;
                drop(mutated);
                let simulate = Command::new(program).args(seeds).stdout(Stdio::null()).status();
                simulate.context("simulate")?.success()
            }
            Finder::Tests(args) => {
                let test = |last: &[&str]| {
                    let mut cargo = Command::new("cargo");
                    cargo.current_dir(root).arg("test").args(args).args(last);
                    cargo.stdout(Stdio::null()).stderr(Stdio::null()).status().context("cargo test")
                };
                ensure!(test(&["--no-run"])?.success(), "{} does not build", name(file));
                test(&[])?.success()
            }
        };
        println!("{}: {}", name(file), if passes { "not found" } else { "found" });
        if passes {
            missed.push(name(file));
        }
    }
    ensure!(missed.is_empty(), "no seed finds {}", missed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_edited_twice_is_restored() {
        let root = std::env::temp_dir().join(format!("plimsoll-mutations-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("source"), "one two").unwrap();
        let text = || std::fs::read_to_string(root.join("source")).unwrap();
        let mut mutated = Mutated::default();
        for (from, to) in [("one", "1"), ("two", "2")] {
            mutated.edit(&root, &SourceEdit { file: "source", from, to }).unwrap();
        }
        assert!(mutated.edit(&root, &SourceEdit { file: "source", from: "three", to: "3" }).is_err());
        assert_eq!(text(), "1 2");
        drop(mutated);
        assert_eq!(text(), "one two");
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// Each mutation can be made: its text is in the source once.
    #[test]
    fn the_mutations_are_of_these_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for file in std::fs::read_dir(root.join(DIRECTORY)).unwrap() {
            let file = file.unwrap().path();
            let text = std::fs::read_to_string(&file).unwrap();
            let mutation = parse(&text).unwrap_or_else(|| panic!("{} is no mutation", file.display()));
            for edit in mutation.edits {
                let source = std::fs::read_to_string(root.join(edit.file)).unwrap();
                assert_eq!(source.matches(edit.from).count(), 1, "{}", file.display());
                assert_ne!(edit.from, edit.to, "{}", file.display());
            }
        }
    }
}
