//! `plimsoll run` in its own process.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A running `plimsoll run`.
pub struct Run {
    pub child: Child,
    out: BufReader<std::process::ChildStdout>,
    log: PathBuf,
}

impl Run {
    /// Starts it and waits for its first line.
    pub fn start(kubeconfig: &Path, args: &[&str]) -> (Self, Value) {
        Self::start_with(kubeconfig, args, "")
    }

    /// As [`Run::start`], with panics at these places.
    pub fn start_with(kubeconfig: &Path, args: &[&str], panics: &str) -> (Self, Value) {
        let log = super::directory().join("log");
        let mut child = super::binary()
            .args(["--log", "warn,plimsoll_runtime=info", "run", "--output", "json"])
            .args(["--metrics-bind-address", "127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig)
            .args(args)
            .env("PLIMSOLL_PANIC", panics)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut run = Self { child, out, log };
        let first = run.line();
        (run, first)
    }

    /// The next line on standard output; waits for it.
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}\n{}", self.log()))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn terminate(&mut self) -> Option<i32> {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = self.log.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// GET over plain HTTP: status and body.
pub fn get(url: &str, path: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
