//! How a process is told to stop, and what it says while it does.

use std::time::Duration;

use crate::say;

/// A stop is silent for this long.
const SILENCE: Duration = Duration::from_secs(1);

/// Ctrl-C and SIGTERM, caught from the time that this is made: a process that acknowledges writes before they are on disk
/// may not end without writing them.
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// The system refuses.
    #[cfg(unix)]
    pub fn catch() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Catches the signals from now on.
    ///
    /// # Errors
    /// Never.
    #[cfg(not(unix))]
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next one.
    #[cfg(unix)]
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for the next one.
    #[cfg(not(unix))]
    pub async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }

    /// From now on a signal ends the process at once.
    pub fn end_at_once(mut self) {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(130);
        });
    }
}

/// From now on a signal ends the process at once.
pub fn end_at_next_signal() {
    if let Ok(signals) = Signals::catch() {
        signals.end_at_once();
    }
}

/// Waits for a part of the stop, and names it when that takes longer than a moment.
pub async fn waiting<T>(what: &str, part: impl Future<Output = T>) -> T {
    let mut part = std::pin::pin!(part);
    if let Ok(done) = tokio::time::timeout(SILENCE, part.as_mut()).await {
        return done;
    }
    say::error(&format!("stopping: waiting for {what}; a second Ctrl-C ends the process at once"));
    part.await
}
