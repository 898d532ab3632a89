//! Waits for processes that end: a test whose process hangs fails and shows what the process said.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// Lines of a process, read as they come.
pub struct Lines(Receiver<String>);

impl Lines {
    /// Reads until the process closes its end, or nobody wants more.
    pub fn of(out: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The next line; empty when the process has closed its end.
    ///
    /// # Panics
    /// When there is none for longer than [`PATIENCE`].
    pub fn next(&self) -> String {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => panic!("the process has said nothing for {PATIENCE:?}"),
        }
    }
}

/// Sends a signal, such as `TERM`.
pub fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(done.unwrap().success(), "kill -{name} {}", child.id());
}

/// The exit code; `None` when a signal ended the process.
///
/// # Panics
/// When it has not ended within [`PATIENCE`].
pub fn ended(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if began.elapsed() >= PATIENCE {
            kill(child);
            panic!("process {} has not ended within {PATIENCE:?}", child.id());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends it at once, and waits for that.
pub fn kill(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}
