//! What the program says of itself: version, completion scripts, manual pages.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use serde_json::Value;

fn output(args: &[&str]) -> (String, String, bool) {
    let done = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(done.stdout), text(done.stderr), done.status.success())
}

fn out(args: &[&str]) -> String {
    let (out, error, good) = output(args);
    assert!(good, "{args:?}: {error}");
    out
}

#[test]
fn version_names_commit_and_levels() {
    let json: Value = serde_json::from_str(&out(&["version", "-o", "json"])).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["kubernetesVersion"], "v1.36.2");
    assert_eq!(json["kueueVersion"], "v0.20-dev");
    let yaml: Value = serde_saphyr::from_str(&out(&["version", "--output=yaml"])).unwrap();
    assert_eq!(yaml, json);
    let text = out(&["version"]);
    assert!(text.starts_with(concat!("plimsoll ", env!("CARGO_PKG_VERSION"), "\n")), "{text}");
    let commit = json["commit"].as_str().unwrap();
    assert!(text.contains(&format!("Commit: {commit}\n")), "{text}");
    // In a repository it is the commit that is checked out, unless a packager named another.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = Command::new("git").arg("-C").arg(&root).args(["rev-parse", "HEAD"]).output();
    let head = git.ok().filter(|g| g.status.success()).and_then(|g| String::from_utf8(g.stdout).ok());
    match (std::env::var("PLIMSOLL_COMMIT").ok().filter(|given| !given.trim().is_empty()), head) {
        (Some(given), _) => assert_eq!(commit, given.trim()),
        (None, Some(head)) if root.join(".git").exists() => assert_eq!(commit, head.trim()),
        (None, _) => assert_eq!(commit, "unknown"),
    }
    let short = commit.get(..12).unwrap_or(commit);
    let want = if commit == "unknown" {
        concat!("plimsoll ", env!("CARGO_PKG_VERSION"), "\n").to_owned()
    } else {
        format!("plimsoll {} ({short})\n", env!("CARGO_PKG_VERSION"))
    };
    assert_eq!(out(&["--version"]), want);
}

#[test]
fn completion_scripts_know_every_command() {
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef plimsoll"),
        ("fish", "complete -c plimsoll"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = out(&["completion", shell]);
        assert!(script.contains(mark), "{shell}");
        for word in ["scheduler-config", "nodes-file", "completion", "bench"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let help = out(&["completion", "--help"]);
    assert!(help.contains("source <(plimsoll completion bash)"), "{help}");
    let (_, error, good) = output(&["completion", "tcsh"]);
    assert!(!good && error.contains("invalid value 'tcsh' for '<SHELL>'"), "{error}");
}

/// Bash reads the script and offers what follows `plimsoll up --no`.
#[test]
fn bash_completes() {
    if Command::new("bash").arg("--version").output().is_err() {
        return;
    }
    let script = out(&["completion", "bash"]);
    let ask =
        "COMP_WORDS=(plimsoll up --no); COMP_CWORD=2; _plimsoll plimsoll --no up; echo \"${COMPREPLY[@]}\"";
    let done = Command::new("bash").args(["--norc", "-c", &format!("{script}\n{ask}")]).output().unwrap();
    let words = String::from_utf8(done.stdout).unwrap();
    for word in ["--nodes", "--no-scheduler", "--no-placement"] {
        assert!(words.split_whitespace().any(|w| w == word), "{words}");
    }
}

#[test]
fn manual_pages() {
    let page = out(&["man"]);
    assert!(page.contains(".TH plimsoll 1"), "{page}");
    assert!(page.contains("plimsoll\\-up(1)"), "{page}");
    let page = out(&["man", "bench", "api"]);
    assert!(page.contains("plimsoll\\-bench\\-api"), "{page}");
    let (_, error, good) = output(&["man", "sail"]);
    assert!(!good && error.contains("no command \"sail\" in \"plimsoll\""), "{error}");
    let dir = std::env::temp_dir().join(format!("plimsoll-man-{}", std::process::id()));
    out(&["man", "--directory", dir.to_str().unwrap()]);
    for name in ["plimsoll.1", "plimsoll-up.1", "plimsoll-bench-api.1"] {
        assert!(dir.join(name).exists(), "{name}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
