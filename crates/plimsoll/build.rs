//! Records the commit that the program is built from (`plimsoll version`, `plimsoll --version`).
//!
//! `PLIMSOLL_COMMIT` in the environment wins: packagers build from a tarball, where no repository is. Without it the
//! commit is that of the repository this source belongs to, and empty where there is none.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    let given = std::env::var("PLIMSOLL_COMMIT").ok().map(|text| text.trim().to_owned());
    let commit = given.filter(|text| !text.is_empty()).or_else(from_git).unwrap_or_default();
    let package = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let short = commit.get(..12).unwrap_or(&commit);
    let long = if commit.is_empty() { package } else { format!("{package} ({short})") };
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={commit}");
    println!("cargo::rustc-env=PLIMSOLL_LONG_VERSION={long}");
}

/// The commit of HEAD, and a note for Cargo to build again when HEAD moves.
fn from_git() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // A tarball unpacked inside another project's repository has no commit of ours.
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root {
        return None;
    }
    // HEAD changes with the branch, its log with every commit. A repository without logs has the branch's own file.
    let mut watched = vec!["HEAD".to_owned(), "logs/HEAD".to_owned(), "packed-refs".to_owned()];
    watched.extend(git(&root, &["symbolic-ref", "--quiet", "HEAD"]));
    for name in watched {
        let path = git(&root, &["rev-parse", "--git-path", &name]).map(|path| root.join(path));
        // Cargo would build again every time for a path that does not exist.
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "HEAD"])
}

/// What git prints; `None` when there is no git, no repository or nothing to print.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
