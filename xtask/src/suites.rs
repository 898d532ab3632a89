//! `cargo xtask suites`: what Kueue's integration suites said of `plimsoll run`, against the list of specs that can't pass.
//!
//! The suites run beside the project. Their reports (ginkgo's `--json-report`) are compared with `xtask/suites.txt`: a spec
//! that fails must be listed there with a reason, and one that passes must not. The list only shrinks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

const LIST: &str = "xtask/suites.txt";

/// Name of a spec: suite, then the texts of its containers and its own.
type Spec = (String, String);

/// How the specs of a suite ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Suite {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// Reads reports, each `SUITE=FILE`, prints a table and what disagrees with the list; with `update` takes specs that pass
/// off the list.
///
/// # Errors
/// A report that can't be read, and a disagreement.
pub fn run(root: &Path, args: &[String], update: bool) -> anyhow::Result<()> {
    let mut suites: BTreeMap<String, Suite> = BTreeMap::new();
    for arg in args {
        let (suite, file) =
            arg.split_once('=').context("usage: cargo xtask suites [--update] SUITE=REPORT…")?;
        let text = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
        let report: Value = serde_json::from_str(&text).with_context(|| file.to_owned())?;
        read(&report, suites.entry(suite.to_owned()).or_default());
    }
    let file = root.join(LIST);
    let text = std::fs::read_to_string(&file).context(LIST)?;
    let list = parse(&text)?;
    print!("{}", table(&suites, &list));
    let (problems, pass) = compare(&suites, &list);
    if update && !pass.is_empty() {
        std::fs::write(&file, without(&text, &pass)).context(LIST)?;
    } else if let Some((suite, spec)) = pass.first() {
        bail!("{LIST}: {} listed specs pass, such as {suite} | {spec}; run with --update", pass.len());
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}

/// Adds the specs of a report. Those that were left out count for nothing.
fn read(report: &Value, suite: &mut Suite) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for spec in list(report).iter().flat_map(|r| list(&r["SpecReports"])) {
        if spec["LeafNodeType"] != "It" {
            continue;
        }
        let mut name: Vec<String> = list(&spec["ContainerHierarchyTexts"])
            .iter()
            .filter_map(|t| Some(t.as_str()?.to_owned()))
            .collect();
        name.extend(spec["LeafNodeText"].as_str().map(str::to_owned));
        let name = name.join(" ");
        match spec["State"].as_str() {
            // A spec of several runs has passed when one of them did.
            Some("passed") => {
                suite.failed.remove(&name);
                suite.passed.insert(name);
            }
            // Also "skipped": with a message, the spec was refused while it ran.
            Some("skipped") if spec["Failure"]["Message"].as_str().unwrap_or_default().is_empty() => {}
            Some("pending") | None => {}
            Some(_) if suite.passed.contains(&name) => {}
            Some(_) => {
                suite.failed.insert(name);
            }
        }
    }
}

/// The list: lines of suite, spec and reason, separated by ` | `, and comments.
fn parse(text: &str) -> anyhow::Result<BTreeMap<Spec, String>> {
    let mut out = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.starts_with('#') && !l.is_empty()) {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [suite, spec, reason] = parts.as_slice() else {
            bail!("{LIST}:{}: not `suite | spec | reason`", number + 1);
        };
        if out.insert(((*suite).to_owned(), (*spec).to_owned()), (*reason).to_owned()).is_some() {
            bail!("{LIST}:{}: {spec} is listed twice", number + 1);
        }
    }
    Ok(out)
}

/// What fails and isn't listed, and what is listed and passes.
fn compare(suites: &BTreeMap<String, Suite>, list: &BTreeMap<Spec, String>) -> (Vec<String>, Vec<Spec>) {
    let (mut problems, mut pass) = (Vec::new(), Vec::new());
    for (name, suite) in suites {
        let key = |spec: &String| (name.clone(), spec.clone());
        let unlisted = suite.failed.iter().filter(|spec| !list.contains_key(&key(spec)));
        problems.extend(unlisted.map(|spec| format!("{name} | {spec}: fails and is not listed")));
        pass.extend(suite.passed.iter().map(key).filter(|spec| list.contains_key(spec)));
    }
    (problems, pass)
}

fn without(text: &str, pass: &[Spec]) -> String {
    let passes =
        |line: &str| pass.iter().any(|(suite, spec)| line.starts_with(&format!("{suite} | {spec} | ")));
    text.lines().filter(|l| !passes(l)).fold(String::new(), |text, line| text + line + "\n")
}

/// A row for each suite: specs that ran and can pass, how many of them did, and how many can't.
fn table(suites: &BTreeMap<String, Suite>, list: &BTreeMap<Spec, String>) -> String {
    let mut out =
        String::from("| suite | specs | passed | failed | not applicable |\n|---|---|---|---|---|\n");
    let mut sums = [0; 4];
    for (name, suite) in suites {
        let listed = suite.failed.iter().filter(|s| list.contains_key(&(name.clone(), (*s).clone()))).count();
        let (passed, failed) = (suite.passed.len(), suite.failed.len() - listed);
        let row = [passed + failed, passed, failed, listed];
        sums.iter_mut().zip(row).for_each(|(sum, n)| *sum += n);
        let _ = writeln!(out, "| {name} | {} | {} | {} | {} |", row[0], row[1], row[2], row[3]);
    }
    let _ = writeln!(out, "| all | {} | {} | {} | {} |", sums[0], sums[1], sums[2], sums[3]);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn suite(specs: &[(&str, &str)]) -> Suite {
        let reports: Vec<Value> = specs
            .iter()
            .map(|(text, state)| {
                let message = if state.is_empty() { "refused: a gate" } else { "" };
                let state = if state.is_empty() { "skipped" } else { state };
                json!({"LeafNodeType": "It", "ContainerHierarchyTexts": ["When", "it"], "LeafNodeText": text,
                       "State": state, "Failure": {"Message": message}})
            })
            .chain([json!({"LeafNodeType": "BeforeSuite", "State": "passed"})])
            .collect();
        let mut suite = Suite::default();
        read(&json!([{ "SpecReports": reports }]), &mut suite);
        suite
    }

    #[test]
    fn reports_are_read_and_a_repeat_may_pass() {
        let read = suite(&[
            ("a", "passed"),
            ("b", "failed"),
            ("c", "skipped"),
            ("d", ""),
            ("b", "passed"),
            ("a", "panicked"),
        ]);
        let names = |specs: &[&str]| specs.iter().map(|s| format!("When it {s}")).collect();
        assert_eq!(read, Suite { passed: names(&["a", "b"]), failed: names(&["d"]) });
    }

    #[test]
    fn failures_are_listed_and_what_passes_is_not() {
        let text = "# Head.\ns | When it b | in process\ns | When it a | gate\nt | When it a | gate\n";
        let list = parse(text).unwrap();
        let suites = [("s".to_owned(), suite(&[("a", "passed"), ("b", "failed"), ("c", "failed")]))].into();
        let (problems, pass) = compare(&suites, &list);
        assert_eq!(problems, ["s | When it c: fails and is not listed"]);
        assert_eq!(pass, [("s".to_owned(), "When it a".to_owned())]);
        assert_eq!(without(text, &pass), "# Head.\ns | When it b | in process\nt | When it a | gate\n");
        assert!(table(&suites, &list).contains("| s | 2 | 1 | 1 | 1 |"), "{}", table(&suites, &list));
        assert!(parse("s | When it a\n").is_err() && parse("s | a | x\ns | a | y\n").is_err());
    }

    #[test]
    fn the_list_is_in_form() {
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(LIST);
        let text = std::fs::read_to_string(list).unwrap();
        assert!(parse(&text).unwrap().values().all(|reason| !reason.is_empty()));
    }
}
