//! `plimsoll plugins`: what it lists, and which files it finds valid.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

fn plimsoll(args: &[&str]) -> (String, String, bool) {
    let done = Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("plugins").args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(done.stdout), text(done.stderr), done.status.success())
}

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("examples").join(name).display().to_string()
}

fn file(name: &str, contents: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plimsoll-plugins-{}-{name}", std::process::id()));
    std::fs::write(&path, contents).unwrap();
    path
}

#[test]
fn plugins_are_listed_with_their_extension_points() {
    let (out, error, good) = plimsoll(&["list"]);
    assert!(good, "{error}");
    let lines: Vec<Vec<&str>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["SCHEDULER", "PLUGIN", "WEIGHT", "EXTENSION", "POINTS"]);
    // kube-scheduler's defaults: `getDefaultPlugins`.
    let taints = ["default-scheduler", "TaintToleration", "3", "filter,preScore,score"];
    assert!(lines.iter().any(|l| *l == taints), "{out}");
    assert!(lines.iter().any(|l| *l == ["<none>", "Expression", "<none>", "preEnqueue,filter,score"]));

    let (out, error, good) =
        plimsoll(&["list", "-o", "json", "--scheduler-config", &example("expressions-scheduler.yaml")]);
    assert!(good, "{error}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    let named = |name: &str| rows.iter().find(|row| row["name"] == name).cloned();
    let watts = json!({
        "schedulerName": "default-scheduler", "name": "Expression/watts", "weight": 10, "extensionPoints": ["score"],
    });
    assert_eq!(named("Expression/watts"), Some(watts));
    assert_eq!(named("Expression"), None, "an instance of it is enabled");
}

#[test]
fn files_are_checked_without_a_cluster() {
    let (out, error, good) = plimsoll(&["check", &example("expressions-scheduler.yaml")]);
    assert!(good && out.contains(": valid (KubeSchedulerConfiguration)\n"), "{out}{error}");

    let kueue = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let bad = format!(
        "{head}profiles: [{{pluginConfig: [{{name: Expression/a, args: {{filter: 'nod.name'}}}}]}}]\n"
    );
    for (name, contents, valid, want) in [
        ("kueue.yaml", kueue.to_owned(), true, ""),
        ("wrong.yaml", format!("{kueue}waitForPodReady: {{}}\n"), false, "waitForPodReady"),
        ("rules.yaml", format!("{kueue}plimsoll: {{workloads: {{score: workload.pods}}}}\n"), true, ""),
        (
            "veto.yaml",
            format!("{kueue}plimsoll: {{workloads: {{veto: workload.pods}}}}\n"),
            false,
            "plimsoll.workloads.veto: Invalid value: must evaluate to a bool",
        ),
        (
            "unknown.yaml",
            format!("{head}profiles: [{{plugins: {{filter: {{enabled: [{{name: Nope}}]}}}}}}]\n"),
            false,
            "Nope",
        ),
        ("expression.yaml", bad, false, "profiles[0].pluginConfig[0].args.filter"),
        ("pod.yaml", "apiVersion: v1\nkind: Pod\n".to_owned(), false, "KubeSchedulerConfiguration"),
        ("empty.wasm", "\0asm\u{1}\0\0\0".to_owned(), false, "asm"),
    ] {
        let path = file(name, contents.as_bytes());
        let (out, error, good) = plimsoll(&["check", "-o", "json", path.to_str().unwrap()]);
        let verdict: Value =
            serde_json::from_str(&out).unwrap_or_else(|e| panic!("{name}: {e}: {out}{error}"));
        assert_eq!((good, &verdict["valid"]), (valid, &json!(valid)), "{name}: {out}{error}");
        assert!(verdict["error"].as_str().unwrap_or_default().contains(want), "{name}: {out}");
        let _ = std::fs::remove_file(path);
    }
    let named = [example("expressions-scheduler.yaml")];
    let (out, error, good) = plimsoll(&["bench", &named[0], "-o", "json", "--nodes", "5,20", "--pods", "3"]);
    assert!(good, "{error}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    let sizes: Vec<_> = rows.iter().map(|r| (r["nodes"].as_u64().unwrap(), r["newKinds"] == true)).collect();
    assert_eq!(sizes, [(5, true), (20, true), (5, false), (20, false)]);
    let (_, error, good) = plimsoll(&["status", "--server", "http://127.0.0.1:1"]);
    assert!(!good && error.contains("http://127.0.0.1:1/plugins"), "{error}");
    let (_, error, good) = plimsoll(&["check", "/nonexistent.yaml"]);
    assert!(!good && error.contains("/nonexistent.yaml"), "{error}");
}
