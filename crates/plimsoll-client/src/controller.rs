//! The loop that every controller runs in.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, select_all};
use futures::stream::FuturesUnordered;
use jiff::SignedDuration;
use plimsoll_apimachinery::ApiError;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::fault;
use crate::supervise::caught;
use crate::workqueue::{Backoff, WorkQueue};

/// Keys that one controller works on at the same time.
const WORKERS: usize = 8;

/// Least and longest time between two refreshes: in a busy moment many changes are handled at once.
const PACE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// In between, the next refresh is this many times as far off as the last one took, so that refreshing stays a small part
/// of the work.
const REST: u32 = 10;

/// What came of work on a key. `Ok(Some(after))`: requeue it after this time.
pub type Outcome = Result<Option<SignedDuration>, ApiError>;

/// A controller: enqueues keys as objects change, and reconciles keys.
pub trait Controller: Send + Sync + 'static {
    /// Name, for logs.
    fn name(&self) -> &'static str;

    /// Time between attempts at a key that fails.
    fn backoff(&self) -> Backoff {
        Backoff { base: SignedDuration::from_millis(100), max: SignedDuration::from_secs(60) }
    }

    /// Change whenever [`Controller::refresh`] may find something new.
    fn signals(&self) -> Vec<Receiver<u64>>;

    /// Handles all changes since the last call, and enqueues keys.
    fn refresh(&self, queue: &mut WorkQueue, now: jiff::Timestamp);

    /// Reconciles a key. Never called for the same key twice at the same time; every change that was visible when it is
    /// called has been handled by [`Controller::refresh`].
    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome>;
}

/// Runs a controller until `stop`.
pub async fn run(controller: Arc<dyn Controller>, clock: Clock, stop: CancellationToken) {
    let mut queue = WorkQueue::new(controller.backoff());
    let mut working = FuturesUnordered::new();
    let mut signals = controller.signals();
    loop {
        signals.iter_mut().for_each(|s| drop(s.borrow_and_update()));
        let began = tokio::time::Instant::now();
        fault::point("controller", controller.name());
        controller.refresh(&mut queue, clock.now());
        let pause = (began.elapsed() * REST).clamp(PACE.0, PACE.1);
        let next_refresh = tokio::time::Instant::now() + pause;
        while working.len() < WORKERS
            && let Some(key) = queue.pop(clock.now())
        {
            working.push(work(&controller, key));
        }
        let busy = working.len() >= WORKERS;
        let due = if busy { None } else { queue.next_due() };
        tokio::select! {
            () = stop.cancelled() => return,
            Some((key, outcome)) = working.next(), if !working.is_empty() => {
                settle(&*controller, &mut queue, &clock, &key, outcome);
            }
            () = any_changed(&mut signals) => tokio::time::sleep_until(next_refresh).await,
            () = clock.sleep_until(due) => {}
        }
    }
}

async fn work(controller: &Arc<dyn Controller>, key: String) -> (String, Outcome) {
    // A panic over one object must not keep a controller from all others.
    let sync = async {
        fault::point("sync", &key);
        controller.sync(&key).await
    };
    let outcome = caught(controller.name(), sync).await;
    let outcome = outcome.unwrap_or_else(|why| Err(ApiError::internal(format!("panicked: {why}"))));
    (key, outcome)
}

fn settle(controller: &dyn Controller, queue: &mut WorkQueue, clock: &Clock, key: &str, outcome: Outcome) {
    match outcome {
        Ok(again) => {
            queue.done(key);
            if let Some(at) = again.and_then(|after| clock.now().checked_add(after).ok()) {
                queue.add_at(key, at);
            }
        }
        Err(error) => {
            let delay = queue.failed(key, clock.now());
            tracing::debug!(controller = controller.name(), key, %error, ?delay, "sync failed, requeued");
        }
    }
}

/// Waits until one of the signals has changed.
fn any_changed(signals: &mut [Receiver<u64>]) -> impl Future<Output = ()> {
    let changes: Vec<_> = signals.iter_mut().map(|s| Box::pin(s.changed())).collect();
    async move {
        if changes.is_empty() {
            return std::future::pending().await;
        }
        // A closed signal means that the source is gone: nothing will change any more.
        if select_all(changes).await.0.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
