//! What is started for a column, one process after the other.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use plimsoll_client::rest::Api;
use serde_json::{Value, json};

use super::options::Options;
use super::process::{Controller, Running};

/// Longest wait for a process to be ready.
const PATIENCE: Duration = Duration::from_secs(120);
/// Requests a second that each client may make: far more than it needs.
pub const REQUESTS_PER_SECOND: u32 = 1_000;
/// Seconds of the load after which pods that are not ready evict their workload.
const PODS_READY: f64 = 300.0;

/// What is known while processes are started.
pub struct Starting<'a> {
    pub options: &'a Options,
    pub dir: &'a Path,
    pub kubeconfig: PathBuf,
    pub processes: Vec<(&'static str, Running)>,
}

impl Starting<'_> {
    /// Starts a program; what it says goes to a file with its name.
    pub fn spawn(&mut self, name: &'static str, program: &Path, args: &[String]) -> anyhow::Result<()> {
        let command = std::iter::once(program.display().to_string()).chain(args.iter().cloned()).collect();
        let controller = Controller { name: name.to_owned(), command };
        self.processes.push((name, controller.start(&self.kubeconfig, &self.log(name))?));
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    /// What a process has said so far.
    pub fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    /// Waits for something.
    pub async fn until(
        &mut self,
        what: &str,
        mut holds: impl AsyncFnMut(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        while !holds(self).await {
            check(&mut self.processes)?;
            if began.elapsed() > PATIENCE {
                bail!("no {what} after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// An error when a process has ended.
pub fn check(processes: &mut [(&'static str, Running)]) -> anyhow::Result<()> {
    for (name, process) in processes {
        process.check().with_context(|| (*name).to_owned())?;
    }
    Ok(())
}

/// The same for Kueue and for Plimsoll: requeuing backs off for 1 s to 10 s.
pub fn pods_ready(speed: f64) -> Value {
    let timeout = format!("{}s", PODS_READY / speed);
    let strategy = json!({"timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffMaxSeconds": 10});
    json!({
        "timeout": timeout, "recoveryTimeout": timeout, "blockAdmission": false,
        "requeuingStrategy": strategy,
    })
}

/// Creates an object; webhooks and definitions of a server that starts may not be ready yet.
///
/// # Errors
/// The server still refuses it after a minute.
pub async fn create(api: &Api, resource: Resource, object: &Value) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match api.create(resource, object).await {
            Ok(_) => return Ok(()),
            Err(e) if e.is_conflict() => return Ok(()),
            Err(e) if began.elapsed() > PATIENCE => {
                bail!("{} {}: {e}", resource.kind, json::name(object));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// A port without a listener at the moment.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
