//! The manifests in the text of Kueue's tasks (`content/en/docs/tasks`): configurations are read, objects are accepted by the API.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::site;
use crate::common::Up;
use crate::deploy::kubectl;
use plimsoll_api::json;
use serde_json::Value;

/// Manifests that are not accepted: the page, a text in the manifest, and why. The list only shrinks.
const LEFT_OUT: [(&str, &str, &str); 12] = [
    ("manage/administer_cluster_quotas.md", "input: example.com/gpu-type1:", "no YAML: two colons in a line"),
    (
        "manage/enforce_job_management/manage_jobs_without_queue_name.md",
        "managed-namespace: true",
        "a boolean where a label has a text; Kueue refuses it, too",
    ),
    (
        "manage/enforce_job_management/opt_in_namespace_management.md",
        "metadata:",
        "a configuration has no metadata; Kueue refuses it, too",
    ),
    ("manage/productization/prometheus.md", "...", "an extract with dots, no YAML"),
    (
        "manage/setup_failure_recovery.md",
        "safe-to-forcefully-delete: true",
        "an extract with a boolean where an annotation has a text",
    ),
    (
        "manage/setup_multikueue.md",
        "kind: ClusterProfile",
        "the definition comes with the cluster inventory API",
    ),
    ("manage/setup_multikueue.md", "kind: Deployment", "an extract of Kueue's own Deployment"),
    ("manage/setup_wait_for_pods_ready.md", "Eviction | Creation", "a scheme of the fields"),
    ("manage/setup_wait_for_pods_ready.md", "_ID_", "a template that a script fills in"),
    ("run/external_workloads/flux_miniclusters.md", "kind: MiniCluster", "an operator of another project"),
    ("run/multikueue/external-frameworks.md", "data:", "a configuration has no data; Kueue refuses it, too"),
    ("troubleshooting/troubleshooting_jobs.md", "", "extracts and what commands print"),
];

/// A block of YAML in a page.
pub struct Block {
    /// Its first line.
    line: usize,
    pub text: String,
}

/// The blocks of YAML of a page, without the indentation of the list that they are in.
pub fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let mut found = Vec::new();
    // Whether a block is open, and whether it is one of YAML.
    let mut open: Option<bool> = None;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let Some(info) = trimmed.strip_prefix("```") else {
            if let (Some(true), Some(Block { text, .. })) = (open, found.last_mut()) {
                text.push_str(line);
                text.push('\n');
            }
            continue;
        };
        if open.take().is_some() {
            continue;
        }
        let language = info.trim().split([' ', '{']).next().unwrap_or_default();
        let is_yaml = matches!(language, "yaml" | "yml");
        open = Some(is_yaml);
        if is_yaml {
            found.push(Block { line: number + 2, text: String::new() });
        }
    }
    found.into_iter().map(|block| Block { text: outdented(&block.text), ..block }).collect()
}

/// A text without the indentation that all its lines have. It begins with an empty line, so that every line has one before it.
fn outdented(text: &str) -> String {
    let blank = |line: &&str| line.trim().is_empty();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let common = text.lines().filter(|l| !blank(l)).map(indent).min().unwrap_or_default();
    let lines = text.lines().map(|line| line.get(common..).unwrap_or_default());
    std::iter::once("").chain(lines).fold(String::new(), |all, line| all + line + "\n")
}

/// The files of these directories and of those below, by their paths.
pub fn files(directories: &[PathBuf], wanted: &dyn Fn(&Path) -> bool) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = directories.to_vec();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if wanted(&path) {
                found.insert(path);
            }
        }
    }
    found
}

/// What a fragment of Kueue's configuration begins with. Under `resources` pods have requests and limits.
fn is_configuration(object: &Value) -> bool {
    const SECTIONS: [&str; 6] = [
        "featureGates",
        "managedJobsNamespaceSelector",
        "metrics",
        "objectRetentionPolicies",
        "resources",
        "waitForPodsReady",
    ];
    let keys = object.as_object().into_iter().flatten();
    let pods = object["resources"]["requests"].is_object() || object["resources"]["limits"].is_object();
    !pods && keys.clone().count() > 0 && keys.into_iter().all(|(key, _)| SECTIONS.contains(&key.as_str()))
}

/// What `plimsoll run` says of a configuration file.
fn configure(dir: &Path, text: &str) -> Result<(), String> {
    let file = dir.join("page.yaml");
    std::fs::write(&file, text).unwrap();
    let out = crate::common::binary().args(["install", "--config"]).arg(&file).output().unwrap();
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

/// What the API server says of a manifest, unknown fields included.
fn create(up: &Up, object: &Value) -> Result<(), String> {
    let mut child = kubectl()
        .unwrap()
        .args(["create", "--dry-run=server", "--validate=strict", "-f", "-", "--kubeconfig"])
        .arg(&up.kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

fn check(up: &Up, block: &Block) -> Result<(), String> {
    const HEAD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    let documents: Vec<Value> = serde_saphyr::from_multiple(&block.text).map_err(|e| e.to_string())?;
    for object in documents {
        let kind = json::text(&object, &["kind"]);
        match kind {
            "Configuration" => configure(&up.dir, &block.text)?,
            "" if is_configuration(&object) => configure(&up.dir, &format!("{HEAD}{}", block.text))?,
            // Parts of objects, and what commands print.
            "" => {}
            _ => create(up, &object)?,
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_in_kueues_pages_are_accepted() {
    let Some(site) = site() else { return };
    if kubectl().is_none() {
        eprintln!("skipped: no kubectl");
        return;
    }
    let tasks = site.join("content/en/docs/tasks");
    let up = Up::start(&["--with", "all"]).await;
    for namespace in ["team-a", "kueue-system", "kueue-test", "default-ns"] {
        let namespace =
            serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        up.create(&namespace).await.unwrap();
    }
    let (mut problems, mut left_out) = (Vec::new(), vec![0; LEFT_OUT.len()]);
    let mut accepted = 0;
    for page in files(std::slice::from_ref(&tasks), &|path| path.extension().is_some_and(|e| e == "md")) {
        let name = page.strip_prefix(&tasks).unwrap().display().to_string();
        for block in blocks(&page) {
            let Err(why) = check(&up, &block) else {
                accepted += 1;
                continue;
            };
            match LEFT_OUT.iter().position(|(page, text, _)| name == *page && block.text.contains(text)) {
                Some(i) => left_out[i] += 1,
                None => problems.push(format!("{name}:{}: {why}", block.line)),
            }
        }
    }
    for (i, (page, text, _)) in LEFT_OUT.iter().enumerate().filter(|(i, _)| left_out[*i] == 0) {
        problems.push(format!("{page}, {text:?} (number {i}) is accepted: take it off the list"));
    }
    assert!(problems.is_empty(), "{accepted} are accepted, and not:\n{}", problems.join("\n"));
}

#[test]
fn kueues_configuration_files_are_read() {
    let Some(site) = site() else { return };
    let root = site.join("..");
    let chart = std::fs::read_to_string(root.join("charts/kueue/values.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    let mut texts = vec![(
        "charts/kueue/values.yaml".to_owned(),
        json::text(&chart, &["managerConfig", "controllerManagerConfigYaml"]).to_owned(),
    )];
    let is_configuration = |path: &Path| path.ends_with("controller_manager_config.yaml");
    for path in files(&[root.join("config"), root.join("test/e2e/config")], &is_configuration) {
        texts.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
    }
    assert!(texts.len() > 5, "{} files", texts.len());
    let dir = crate::common::directory();
    std::fs::create_dir_all(&dir).unwrap();
    for (name, text) in texts {
        if let Err(why) = configure(&dir, &text) {
            panic!("{name}: {why}");
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
