//! Two replicas of `plimsoll run`, started again when they end, as a Deployment does.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::common::{binary, directory, process};

/// Pause before a replica that has ended is started again.
const PAUSE: Duration = Duration::from_millis(500);
/// Times of the election, shorter than the defaults so that leaders change often.
const ELECTION: [&str; 6] = [
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
    "--leader-elect=true",
    "--metrics-bind-address=127.0.0.1:0",
    "--output=json",
];
/// What a replica may say when it ends by itself.
const EXPECTED: [&str; 2] = ["leaderelection lost", "gives up the lease because it makes no progress"];

struct Replica {
    child: Option<Child>,
    ended: Instant,
    log: PathBuf,
    starts: u32,
}

pub struct Replicas {
    kubeconfig: PathBuf,
    dir: PathBuf,
    all: [Replica; 2],
    kills: u32,
    /// The end of a replica that nothing explains.
    wrong: Option<String>,
}

impl Replicas {
    pub fn start(kubeconfig: &Path) -> Self {
        let dir = directory();
        let replica = |n: u32| Replica {
            child: None,
            ended: Instant::now(),
            log: dir.join(format!("replica-{n}.log")),
            starts: 0,
        };
        let all = [replica(0), replica(1)];
        let mut replicas = Self { kubeconfig: kubeconfig.to_owned(), dir, all, kills: 0, wrong: None };
        std::thread::sleep(PAUSE);
        replicas.tend();
        replicas
    }

    /// Starts again what has ended.
    pub fn tend(&mut self) {
        for replica in &mut self.all {
            if let Some(status) = replica.child.as_mut().and_then(|c| c.try_wait().unwrap()) {
                let text = std::fs::read_to_string(&replica.log).unwrap_or_default();
                let last = text.lines().rfind(|l| l.starts_with("error: ")).unwrap_or_default().to_owned();
                if !EXPECTED.iter().any(|e| last.contains(e)) {
                    self.wrong.get_or_insert(format!("a replica ended with {status}: {last:?}"));
                }
                replica.child = None;
                replica.ended = Instant::now();
            }
            if replica.child.is_none() && replica.ended.elapsed() >= PAUSE {
                let log = File::options().create(true).append(true).open(&replica.log).unwrap();
                let child = binary()
                    .args(["--log", "warn,plimsoll_runtime=debug", "run", "--kubeconfig"])
                    .arg(&self.kubeconfig)
                    .args(ELECTION)
                    .stdout(Stdio::null())
                    .stderr(log)
                    .spawn();
                replica.child = Some(child.unwrap());
                replica.starts += 1;
            }
        }
    }

    pub fn kill(&mut self, which: usize) {
        let replica = &mut self.all[which];
        if let Some(mut child) = replica.child.take() {
            process::kill(&mut child);
            self.kills += 1;
            replica.ended = Instant::now();
        }
    }

    /// Ends them cleanly; says what was wrong with any of them.
    pub fn end(&mut self) -> Option<String> {
        self.tend();
        for replica in &mut self.all {
            if let Some(mut child) = replica.child.take() {
                process::signal(&child, "TERM");
                let code = process::ended(&mut child);
                if code != Some(0) {
                    self.wrong.get_or_insert(format!("a replica ended with {code:?} when told to"));
                }
            }
        }
        self.wrong.clone()
    }

    pub fn summary(&self) -> String {
        let starts: u32 = self.all.iter().map(|r| r.starts).sum();
        format!("{} kills, {} starts of replicas", self.kills, starts)
    }

    /// Copies the logs to a place that stays.
    pub fn keep(&self, to: &Path) -> PathBuf {
        let _ = std::fs::create_dir_all(to);
        for replica in &self.all {
            if let Some(name) = replica.log.file_name() {
                let _ = std::fs::copy(&replica.log, to.join(name));
            }
        }
        to.to_owned()
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for replica in &mut self.all {
            if let Some(mut child) = replica.child.take() {
                process::kill(&mut child);
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
