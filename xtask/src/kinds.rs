//! `cargo xtask kinds`: the table of job integrations in `docs/kinds.md`, from the sources and from what Kueue's suites said.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};

use crate::tidy::shipped;

const PAGE: &str = "docs/kinds.md";
const SUITES: &str = "docs/kueue-suites.md";
/// Where the sources are.
const SOURCES: &str = "crates/plimsoll-jobs/src";
/// The lines around the table.
const MARKS: (&str, &str) = ("<!-- made by `cargo xtask kinds` -->", "<!-- end -->");

/// Kinds whose integration is in the same files.
struct Row {
    /// The kinds.
    kinds: &'static str,
    /// Their names in `integrations.frameworks`, without the common group.
    frameworks: &'static [&'static str],
    /// Where their pods come from.
    podsets: &'static str,
    /// Files below [`SOURCES`].
    files: &'static [&'static str],
    /// Suites of Kueue that are about them.
    suites: &'static [&'static str],
}

#[rustfmt::skip]
const ROWS: [Row; 14] = [
    Row { kinds: "Job", frameworks: &["batch/job"], podsets: "`main`", files: &["job.rs"], suites: &["job"] },
    Row { kinds: "Pod, pod groups", frameworks: &["pod"], podsets: "`main`, or one per role", files: &["pod/mod.rs", "pod/group.rs", "pod/webhook.rs"], suites: &["pod"] },
    Row { kinds: "Deployment", frameworks: &["deployment"], podsets: "those of its pods", files: &["serving/deployment.rs"], suites: &[] },
    Row { kinds: "StatefulSet", frameworks: &["statefulset"], podsets: "`main`", files: &["serving/stateful_set.rs"], suites: &["statefulset"] },
    Row { kinds: "LeaderWorkerSet", frameworks: &["leaderworkerset.x-k8s.io/leaderworkerset"], podsets: "leader and workers of each group", files: &["serving/leader_worker_set.rs"], suites: &[] },
    Row { kinds: "JobSet", frameworks: &["jobset.x-k8s.io/jobset"], podsets: "one per replicated Job", files: &["kinds/jobset.rs"], suites: &["jobset"] },
    Row { kinds: "PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob", frameworks: &["kubeflow.org/pytorchjob", "kubeflow.org/tfjob", "kubeflow.org/xgboostjob", "kubeflow.org/paddlejob", "kubeflow.org/jaxjob"], podsets: "one per replica type", files: &["kinds/kubeflow.rs"], suites: &["pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob"] },
    Row { kinds: "MPIJob", frameworks: &["kubeflow.org/mpijob"], podsets: "launcher, worker", files: &["kinds/kubeflow.rs"], suites: &["mpijob"] },
    Row { kinds: "RayCluster, RayJob, RayService", frameworks: &["ray.io/raycluster", "ray.io/rayjob", "ray.io/rayservice"], podsets: "head, groups of workers, submitter", files: &["kinds/ray.rs"], suites: &["raycluster", "rayjob"] },
    Row { kinds: "AppWrapper", frameworks: &["workload.codeflare.dev/appwrapper"], podsets: "declared or implied", files: &["kinds/appwrapper.rs"], suites: &["appwrapper"] },
    Row { kinds: "SparkApplication", frameworks: &["sparkoperator.k8s.io/sparkapplication"], podsets: "driver, executors", files: &["kinds/spark.rs"], suites: &["sparkapplication"] },
    Row { kinds: "TrainJob", frameworks: &["trainer.kubeflow.org/trainjob"], podsets: "those of its runtime", files: &["kinds/trainjob.rs"], suites: &["trainjob"] },
    Row { kinds: "[JobKinds](job-kinds.md)", frameworks: &[], podsets: "declared", files: &["kinds/declared.rs", "job_kind.rs", "declaration/mod.rs", "declaration/expression.rs", "declaration/path.rs"], suites: &[] },
    Row { kinds: "all of them", frameworks: &[], podsets: "", files: &["integration.rs", "integrations.rs", "generic_job.rs", "reconciler.rs", "podset.rs", "workload.rs", "kinds/mod.rs", "kinds/webhook.rs", "serving/mod.rs", "webhook/mod.rs"], suites: &[] },
];

/// Writes the table into the page.
///
/// # Errors
/// A file that can't be read or written, and a page without the marks.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let page = read(root, PAGE)?;
    let made = table(root)?;
    let (head, _, tail) = parts(&page)?;
    std::fs::write(root.join(PAGE), format!("{head}{made}{tail}")).context(PAGE)
}

fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())
}

/// What is before the table, the table, and what is after it.
fn parts(page: &str) -> anyhow::Result<(&str, &str, &str)> {
    let (begin, end) = MARKS;
    let begin = page.find(begin).map(|at| at + begin.len() + 1);
    let end = page.find(end);
    match (begin, end) {
        (Some(begin), Some(end)) if begin <= end => Ok((&page[..begin], &page[begin..end], &page[end..])),
        _ => bail!("{PAGE} has no lines {:?} and {:?}", MARKS.0, MARKS.1),
    }
}

/// The table.
fn table(root: &Path) -> anyhow::Result<String> {
    let suites = suites(&read(root, SUITES)?);
    let mut out = String::from(
        "| kinds | framework | podsets | Kueue's suite: passed of those that can | lines |\n|---|---|---|---|---|\n",
    );
    for row in &ROWS {
        let mut lines = 0;
        for file in row.files {
            lines += shipped(&read(root, &format!("{SOURCES}/{file}"))?).lines().count();
        }
        let (mut passed, mut can) = (0, 0);
        for suite in row.suites {
            let Some(of) = suites.get(*suite) else { bail!("{SUITES} has no {suite}") };
            (can, passed) = (can + of.0, passed + of.1);
        }
        let ran = match row.suites.len() {
            0 if row.podsets.is_empty() => String::new(),
            0 => "none".to_owned(),
            1 => format!("{passed} of {can}"),
            several => format!("{passed} of {can}, {several} suites"),
        };
        let frameworks = frameworks(row.frameworks);
        writeln!(out, "| {} | {frameworks} | {} | {ran} | {lines} |", row.kinds, row.podsets)?;
    }
    Ok(out)
}

/// Names of a group as one: `ray.io/{raycluster,rayjob}`, or `kubeflow.org/…` where there are many.
fn frameworks(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [first, _, _, _, ..] => format!("`{}/…`", first.split('/').next().unwrap_or_default()),
        [first, ..] => {
            let group = first.split('/').next().unwrap_or_default();
            let kinds: Vec<&str> = names.iter().filter_map(|name| name.rsplit('/').next()).collect();
            format!("`{group}/{{{}}}`", kinds.join(","))
        }
    }
}

/// Specs that can pass and specs that passed, by the last part of the suite's name, of the first table of the page.
fn suites(page: &str) -> BTreeMap<String, (u32, u32)> {
    let mut all = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, suite, can, passed, ..] = cells.as_slice() else { continue };
        let Some(suite) = suite.strip_prefix("controller/jobs/") else { continue };
        if let (Ok(can), Ok(passed)) = (can.parse(), passed.parse()) {
            all.entry(suite.to_owned()).or_insert((can, passed));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// All but the numbers of lines, which each edit changes.
    fn without_lines(table: &str) -> Vec<String> {
        table
            .lines()
            .map(|line| line.trim_end_matches([' ', '|']).trim_end_matches(char::is_numeric).to_owned())
            .collect()
    }

    #[test]
    fn the_page_has_the_table() {
        let page = read(&root(), PAGE).unwrap();
        let (_, there, _) = parts(&page).unwrap();
        assert_eq!(without_lines(there), without_lines(&table(&root()).unwrap()), "run `cargo xtask kinds`");
    }

    /// Every framework that the sources register has a row.
    #[test]
    fn every_framework_has_a_row() {
        let custom = read(&root(), &format!("{SOURCES}/custom_kind.rs")).unwrap();
        let registered =
            custom.lines().filter_map(|line| line.trim().strip_prefix("Row(\"")?.split('"').next());
        let mut registered: Vec<&str> =
            registered.chain(["batch/job", "pod", "deployment", "statefulset"]).collect();
        registered.sort_unstable();
        registered.dedup();
        let mut rows: Vec<&str> = ROWS.iter().flat_map(|row| row.frameworks).copied().collect();
        rows.sort_unstable();
        assert_eq!(rows, registered);
    }

    #[test]
    fn suites_are_read_from_the_first_table() {
        let page = "| suite | can pass | passed | failed | listed |\n|---|---|---|---|---|\n| controller/core | 3 | 2 | 1 | 0 |\n\
                    | controller/jobs/job | 84 | 83 | 1 | 7 |\n\n| controller/jobs/job | 1 | 1 | 0 | 0 |\n";
        assert_eq!(suites(page), [("job".to_owned(), (84, 83))].into());
        assert_eq!(frameworks(&["a/b", "a/c"]), "`a/{b,c}`");
        assert_eq!(frameworks(&["a/b", "a/c", "a/d", "a/e"]), "`a/…`");
        assert!(parts("nothing").is_err());
    }
}
