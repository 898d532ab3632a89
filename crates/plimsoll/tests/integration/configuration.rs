//! Files and flags that are refused, through the program: what stands on standard error, and the exit code.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Stdio;

const KUEUE: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
const SCHEDULER: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

/// Exit code and standard error of `plimsoll up` with a flag and its file.
fn refused(flag: &str, file: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let dir = crate::common::directory();
    let path = dir.join("file.yaml");
    std::fs::write(&path, file).unwrap();
    let log = dir.join("audit.log");
    let audit: &[&str] = match flag {
        "--audit-policy-file" => &["--audit-log-path", log.to_str().unwrap()],
        _ => &[],
    };
    let child = crate::common::binary()
        .args(["up", "--port", "0", "--kubeconfig"])
        .arg(dir.join("kubeconfig"))
        .arg(flag)
        .arg(&path)
        .args(audit)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout.is_empty(), "nothing is ready");
    assert!(!dir.join("kubeconfig").exists(), "nothing has been written");
    let _ = std::fs::remove_dir_all(&dir);
    (output.status.code(), String::from_utf8(output.stderr).unwrap(), path.display().to_string())
}

#[test]
fn files_are_refused_by_name_with_everything_that_is_wrong() {
    let rows = [
        (
            "--config",
            SCHEDULER.to_owned(),
            "no kind \"KubeSchedulerConfiguration\" is registered for version \"kubescheduler.config.k8s.io/v1\": this \
             file belongs to --scheduler-config; expected Configuration of config.kueue.x-k8s.io/v1beta2 or \
             config.kueue.x-k8s.io/v1beta1 (Kueue's configuration file)\n",
        ),
        (
            "--scheduler-config",
            format!("{SCHEDULER}parallelism: 0\npercentageOfNodesToScore: \"5\"\n"),
            "2 errors:\n  percentageOfNodesToScore: Invalid value: \"5\": must be a whole number, without quotes\n  \
             parallelism: Invalid value: 0: should be an integer value greater than zero\n",
        ),
        (
            "--config",
            format!("{KUEUE}integrations: {{externalFrameworks: [Foo.v1]}}\n"),
            "integrations.externalFrameworks[0]: Invalid value: \"Foo.v1\": must be format, 'Kind.version.group.com'\n",
        ),
        (
            "--nodes-file",
            format!("{NODE}spec: {{unschedulable: \"true\"}}\n"),
            "document 1: json: cannot unmarshal string into Go struct field NodeSpec.spec.unschedulable of type bool\n",
        ),
        (
            "--nodes-file",
            KUEUE.to_owned(),
            "document 1: apiVersion: expected v1, got \
             \"config.kueue.x-k8s.io/v1beta2\": this file belongs to --config\n",
        ),
        (
            "--audit-policy-file",
            format!("{POLICY}rules: [{{level: Metdata}}, {{level: None, user: [a]}}]\n"),
            "2 errors:\n  rules[0].level: Unsupported value: \"Metdata\": supported values: \"None\", \"Metadata\", \
             \"Request\", \"RequestResponse\"\n  strict decoding error: unknown field \"rules[1].user\": did you mean \
             \"users\"?\n",
        ),
    ];
    for (flag, file, want) in rows {
        let (code, stderr, path) = refused(flag, &file, &[]);
        assert_eq!((code, stderr), (Some(1), format!("error: {flag} {path}: {want}")));
    }
}

#[test]
fn the_errors_of_all_files_and_flags_come_at_once() {
    let wrong = format!("{KUEUE}namespaces: a\n");
    let (code, stderr, path) =
        refused("--config", &wrong, &["--scheduler-feature-gates", "GangScheduling=yes"]);
    let want = format!(
        "error: --scheduler-feature-gates: invalid value of GangScheduling=yes, err: strconv.ParseBool: parsing \"yes\": \
         invalid syntax: must be true or false\n--config {path}: strict decoding error: unknown field \"namespaces\": did \
         you mean \"namespace\"?\n"
    );
    assert_eq!((code, stderr), (Some(1), want));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (code, stderr, _) = refused("--config", KUEUE, &["--scheduler-config", "/nowhere/at-all.yaml"]);
    let want = "error: --scheduler-config /nowhere/at-all.yaml: No such file or directory (os error 2)\n";
    assert_eq!((code, stderr.as_str()), (Some(1), want));
}
