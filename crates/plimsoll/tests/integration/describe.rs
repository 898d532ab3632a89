//! What the program says of itself: version, completion scripts, manual pages; and of the kinds that it serves.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use crate::common::Up;
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
    // A file: the script is longer than an argument may be.
    let dir = crate::common::directory();
    let file = dir.join("completion");
    std::fs::write(&file, format!("{script}\n{ask}\n")).unwrap();
    let done = Command::new("bash").arg("--norc").arg(&file).output().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
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

/// What `kubectl explain` shows of a field: its own description, found as kubectl does, through references.
fn explain<'a>(document: &'a Value, kind: (&str, &str, &str), path: &[&str]) -> &'a str {
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let (group, version, name) = kind;
    let is = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
        kinds.clone().any(|k| k["group"] == group && k["version"] == version && k["kind"] == name)
    };
    let mut at = schemas.values().find(is).unwrap_or_else(|| panic!("{kind:?}"));
    let follow = |schema: &'a Value| {
        let mut schema = schema;
        loop {
            let target = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
            let next = match target {
                Some(target) => &schemas[target.rsplit('/').next().unwrap()],
                None if schema["items"].is_object() => &schema["items"],
                None => return schema,
            };
            schema = next;
        }
    };
    let mut text = at["description"].as_str();
    for field in path {
        let property = &follow(at)["properties"][field];
        text = property["description"].as_str();
        at = property;
    }
    text.unwrap_or_else(|| panic!("no description of {kind:?} {path:?}"))
}

#[tokio::test]
async fn kinds_and_fields_have_descriptions() {
    let up = Up::start(&["--nodes", "0"]).await;
    let core = up.api.get_path("/openapi/v3/api/v1").await.unwrap();
    let pod = ("", "v1", "Pod");
    let about = explain(&core, pod, &[]);
    assert!(about.starts_with("A group of containers"), "{about}");
    let fields: [(&[&str], &str); 6] = [
        (&["metadata"], "Name, namespace, labels, annotations and what else every object has."),
        (&["metadata", "labels"], "Keys and values that objects can be selected by."),
        (&["spec"], "Desired state of the Pod."),
        (&["spec", "containers"], "App containers of the pod, at least one; they run at the same time."),
        (&["spec", "containers", "resources", "limits"], "Most that the container may use, by resource."),
        (
            &["status", "phase"],
            "Where the pod is in its life: Pending, Running, Succeeded, Failed or Unknown.",
        ),
    ];
    for (path, want) in fields {
        assert_eq!(explain(&core, pod, path), want, "{path:?}");
    }
    let batch = up.api.get_path("/openapi/v3/apis/batch/v1").await.unwrap();
    assert_eq!(
        explain(&batch, ("batch", "v1", "Job"), &["spec", "template", "spec", "nodeName"]),
        "Node that the pod is bound to; schedulers set it."
    );
    let kueue = up.api.get_path("/openapi/v3/apis/kueue.x-k8s.io/v1beta2").await.unwrap();
    let queue = ("kueue.x-k8s.io", "v1beta2", "ClusterQueue");
    let fields: [(&[&str], &str); 4] = [
        (&[], "A pool of quota shared by the LocalQueues that point at it."),
        (&["kind"], "Kind of the object: ClusterQueue."),
        (
            &["spec", "resourceGroups", "flavors", "resources", "nominalQuota"],
            "Amount that workloads can use here without borrowing.",
        ),
        (&["status", "flavorsUsage"], "Quota that admitted workloads use, by flavor."),
    ];
    for (path, want) in fields {
        assert_eq!(explain(&kueue, queue, path), want, "{path:?}");
    }
    let old = up.api.get_path("/openapi/v2").await.unwrap();
    let spec = &old["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
    assert_eq!(spec["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    assert_eq!(spec["description"], "Desired state of the Pod.");
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        return;
    }
    let kubectl = |args: &[&str]| {
        let done =
            Command::new("kubectl").args(args).arg("--kubeconfig").arg(&up.kubeconfig).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let text = kubectl(&["explain", "pod.spec.containers"]);
    assert!(text.contains("App containers of the pod") && !text.contains("<no description>"), "{text}");
    let text = kubectl(&["explain", "clusterqueue.spec", "--recursive"]);
    assert!(text.contains("Desired state of the ClusterQueue.") && text.contains("nominalQuota"), "{text}");
}
