//! Threads for work that must not wait for the worker threads.

use anyhow::Context;
use plimsoll_client::supervise::Supervisor;

/// Runs a future on a thread with a runtime of its own. The supervisor waits for its end, and a panic there ends the process.
///
/// # Errors
/// When the system gives no thread.
pub fn run(
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context(name)?;
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    supervisor
        .spawn_thread(name, move || {
            runtime.block_on(work);
            drop(end);
        })
        .context(name)?;
    supervisor.spawn_vital(name, async move {
        let _ = ended.await;
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;

    /// With one worker thread, which is blocked, the work goes on.
    #[tokio::test(flavor = "current_thread")]
    async fn work_goes_on_while_all_workers_are_busy() {
        let supervisor = Supervisor::new(CancellationToken::new());
        let (renewed, renewals) = channel();
        let work = async move {
            for i in 0..3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = renewed.send(i);
            }
        };
        run("a test", work, &supervisor).expect("a thread");
        for i in 0..3 {
            assert_eq!(renewals.recv_timeout(Duration::from_secs(20)), Ok(i));
        }
        supervisor.wait().await;
    }
}
