//! `plimsoll run` in its own process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::process::{self, Lines};

/// A running `plimsoll run`.
pub struct Run {
    pub child: Child,
    out: Lines,
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
        let out = Lines::of(child.stdout.take().unwrap());
        let mut run = Self { child, out, log };
        let first = run.line();
        (run, first)
    }

    /// The next line on standard output; waits for it.
    pub fn line(&mut self) -> Value {
        let line = self.out.next();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}\n{}", self.log()))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        process::kill(&mut self.child);
    }

    pub fn terminate(&mut self) -> Option<i32> {
        process::signal(&self.child, "TERM");
        self.ended()
    }

    /// Waits for the end and gives the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        process::ended(&mut self.child)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        process::kill(&mut self.child);
        if let Some(dir) = self.log.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// GET over plain HTTP: status and body.
pub fn get(url: &str, path: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
