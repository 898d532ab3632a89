//! Credential plugins (`client.authentication.k8s.io`), run as in k8s.io/client-go/plugin/pkg/client/auth/exec.

use std::fmt::Display;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use plimsoll_api::json;
use plimsoll_apimachinery::decode;
use serde_json::{Value, json};

/// How long a plugin may take that asks no user. client-go waits without end, and its requests with it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A plugin, and what it is told.
#[derive(Debug)]
pub(crate) struct Plugin<'a> {
    /// The program.
    pub command: &'a str,
    /// Its arguments.
    pub args: &'a [String],
    /// Its environment, beside that of this process.
    pub env: Vec<(&'a str, &'a str)>,
    /// Version of ExecCredential.
    pub api_version: &'a str,
    /// What to do when the program is missing.
    pub install_hint: &'a str,
    /// `spec.cluster` of the ExecCredential.
    pub cluster: Option<Value>,
    /// Whether it may ask the user of this process.
    pub interactive: bool,
}

impl Plugin<'_> {
    /// Runs the plugin, which has so much time; the ExecCredential that it answers.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn run(&self, patience: Duration) -> Result<Value, String> {
        let mut spec = json!({"interactive": self.interactive});
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec});
        let failed = |problem: &dyn Display| {
            let hint = if self.install_hint.is_empty() { "" } else { ": " };
            format!("exec plugin {:?}: {problem}{hint}{}", self.command, self.install_hint)
        };
        let child = Command::new(self.command)
            .args(self.args)
            .envs(self.env.iter().copied())
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(if self.interactive { Stdio::inherit() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|e| failed(&e))?;
        let out = child.stdout.take();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = out.map_or(Ok(0), |mut out| out.read_to_end(&mut bytes)).map(|_| bytes);
            // Nothing waits for it after the deadline.
            let _ = sender.send(read);
        });
        let began = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() < patience => std::thread::sleep(Duration::from_millis(20)),
                outcome => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let late = format!("has no answer after {} s", patience.as_secs());
                    return Err(failed(&outcome.err().map_or(late, |e| e.to_string())));
                }
            }
        };
        if !status.success() {
            return Err(failed(&status));
        }
        // A process that the plugin leaves behind may hold the pipe open.
        let left = patience.saturating_sub(began.elapsed());
        let output = output.recv_timeout(left).map_err(|_| failed(&"its output does not end"))?;
        let credential = parse(&output.map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
        let has = |key: &str| !json::text(&credential, &["status", key]).is_empty();
        if has("token") || (has("clientCertificateData") && has("clientKeyData")) {
            Ok(credential)
        } else {
            Err(failed(&"its answer has neither a token nor a certificate with its key"))
        }
    }
}

/// client-go's decoder reads YAML, too.
fn parse(output: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(output).or_else(|e| decode::yaml(output).ok().filter(Value::is_object).ok_or(e))
}
