//! A controller as a process: started, measured, stopped.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Longest wait for the end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(90);

/// What runs as controller.
#[derive(Clone, Debug)]
pub struct Controller {
    /// As rows name it.
    pub name: String,
    /// Program and arguments; `{kubeconfig}` stands for the file's path.
    pub command: Vec<String>,
}

impl Controller {
    /// Reads `NAME=PROGRAM ARG …`.
    ///
    /// # Errors
    /// There is no name or no program.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let (name, command) = text.split_once('=').unwrap_or_default();
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if name.is_empty() || command.is_empty() {
            bail!(
                "--peer {text}: expected NAME=PROGRAM ARG …, such as kueue=./minimalkueue --kubeconfig {{kubeconfig}}"
            );
        }
        Ok(Self { name: name.to_owned(), command })
    }

    /// This program with these arguments.
    pub fn own(args: Vec<String>) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.display().to_string();
        Ok(Self { name: "plimsoll".into(), command: std::iter::once(program).chain(args).collect() })
    }

    /// Starts it. `KUBECONFIG` is set, too; what it says goes into `log`.
    pub fn start(&self, kubeconfig: &Path, log: &Path) -> anyhow::Result<Running> {
        let path = kubeconfig.display().to_string();
        let mut words = self.command.iter().map(|w| w.replace("{kubeconfig}", &path));
        let program = words.next().unwrap_or_default();
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let child = Command::new(&program)
            .args(words)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| program.clone())?;
        Ok(Running { child, log: log.to_owned() })
    }
}

/// A controller that runs; it is killed with this.
pub struct Running {
    child: Child,
    log: std::path::PathBuf,
}

impl Running {
    /// What it has used so far.
    pub fn usage(&self) -> Usage {
        usage(self.child.id())
    }

    /// What it holds now.
    pub fn held(&self) -> Held {
        let pid = self.child.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or_default()
        };
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        Held { memory: field("VmRSS:") as f64 / 1024.0, threads: field("Threads:"), files: files as u64 }
    }

    /// An error when it has ended by itself, with what it said last.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        bail!("the controller ended ({status}): {}", said.lines().last().unwrap_or_default())
    }

    /// Asks it to end.
    pub fn terminate(&self) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().context("kill")?;
        Ok(())
    }

    /// Asks it to end, and gives how long that took.
    pub async fn stop(mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.terminate()?;
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                bail!("the controller does not end after SIGTERM");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(began.elapsed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process holds at present; zeros where the system does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Resident memory, in MiB.
    pub memory: f64,
    /// Threads.
    pub threads: u64,
    /// Open files and connections.
    pub files: u64,
}

/// What a process has used; zeros where the system does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Seconds of processor time.
    pub cpu: f64,
    /// Most resident memory, in MiB.
    pub memory: f64,
}

/// From `/proc/PID`; Linux counts processor time there in hundredths of a second.
pub fn usage(pid: u32) -> Usage {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // The name, in parentheses, may have spaces in it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
    let status = read("status");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib = peak.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or_default();
    Usage { cpu: (ticks(11) + ticks(12)) / 100.0, memory: kib / 1024.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_commands() {
        let peer = Controller::parse("kueue=./minimalkueue --kubeconfig {kubeconfig}").unwrap();
        assert_eq!((peer.name.as_str(), peer.command.len()), ("kueue", 3));
        assert!(Controller::parse("./minimalkueue").is_err() && Controller::parse("kueue=").is_err());
    }

    #[test]
    fn this_process_uses_something() {
        let used = usage(std::process::id());
        assert!(used.memory > 1.0 && used.cpu >= 0.0, "{used:?}");
        assert!(usage(u32::MAX).memory < 1.0);
    }
}
